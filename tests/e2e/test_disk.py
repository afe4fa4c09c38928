"""A full disk or an unwritable place is a clear error, and what was saved stays."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit import baseline, load
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import RunError
from elmokit.tasks.fit import predict
from program import Cli, environment, small_disk

_SHAPE = [
    "--preset",
    "tiny",
    "--dim",
    "8",
    "--set",
    "hidden_dim=8",
    "--set",
    "filters=1:4,2:4",
    "--set",
    "min_count=1",
]


FROZEN = Path(__file__).resolve().parents[1] / "fixtures" / "v0_1"


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes()).hexdigest()


def test_a_disk_that_fills_up_leaves_the_checkpoint_and_the_run_goes_on_later(
    cli: Cli, tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    command = ("pretrain", tiny_corpus, "--out", out, *_SHAPE, "--epochs", "2")
    with small_disk(64):  # preparing the text needs more than this
        cli(*command).check_refused("the disk is full")
    with small_disk(8_000):  # so do the checkpoints
        cli(*command).check_refused("the disk is full")
    assert not list((out / "run").glob(".*.new"))
    cli(*command).check_fine("Done.")
    before = _digest(out / "model.safetensors")
    load_bilm(out)
    with small_disk(8_000):  # a finished run asked again needs no room
        cli(*command).check_fine()
    assert _digest(out / "model.safetensors") == before


@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nothing can be written to")
def test_a_place_that_cannot_be_written_to_is_named(cli: Cli, tiny_corpus: Path) -> None:
    for out in ("/proc/elmokit-model", "/dev/null/model"):
        cli("pretrain", tiny_corpus, "--out", out, *_SHAPE).check_refused(out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("--help",), ("inspect", "english")])
def test_standard_output_that_is_full_and_closed_input_are_errors_without_a_traceback(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "elmokit"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*program, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "error: Cannot write standard output" in done.stderr
    shell = [
        "sh",
        "-c",
        'exec "$@" <&-',
        "sh",
        *program,
        "embed",
        "english",
        "-",
        "--out",
        str(tmp_path / "v"),
    ]
    closed = subprocess.run(shell, capture_output=True, text=True, env=environment())
    assert (closed.returncode, "Traceback" in closed.stderr) == (2, False), closed.stderr
    assert "Standard input (-) is closed" in closed.stderr
    assert not (tmp_path / "v").exists()


def test_names_and_terminals_without_utf8_are_no_problem(
    tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    text = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.txt")
    shutil.copy(tiny_corpus, text)
    command = [
        sys.executable,
        "-m",
        "elmokit",
        "embed",
        str(tiny_model),
        text,
        "--pool",
        "mean",
        "--out",
        f"{text}-out",
    ]
    environ = {**environment(), "PYTHONIOENCODING": "ascii:strict"}
    for ending in ("Done.", "Already done."):
        done = subprocess.run(command, capture_output=True, env=environ)
        assert done.returncode == 0, done.stderr
        assert ending.encode() in done.stdout


def test_folders_without_utf8_names_hold_every_kind_of_result(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    shutil.copytree(tiny_model, odd / "odd\udcff")
    model, rows = odd / "odd\udcff", odd / "rows.parquet"
    table = pa.table({"text": ["a good film", "a bad one"] * 6, "label": ["good", "bad"] * 6})
    with open(rows, "wb") as stream:
        pq.write_table(table, stream)
    cli("fit", model, rows, "--out", odd / "f\udcff").check_fine()
    cli("fit", model, rows, "--head", "pool", "--epochs", "1", "--out", odd / "p\udcff").check_fine()
    cli("predict", odd / "p\udcff", rows).check_fine()
    cli("embed", model, rows, "--pool", "mean", "--export", "parquet", "--out", odd / "e").check_fine()
    cli("fit", model, rows, "--with", f"vectors:{odd}/e/vectors.parquet", "--out", odd / "w").check_fine()
    distilled = ("distill", FROZEN / "vectors" / "svd", tiny_corpus, "--from", model, "--epochs", "1")
    cli(*distilled, "--out", odd / "d").check_fine()


def test_closed_standard_output_is_an_error_where_rows_go_there(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.txt").write_text("a good film", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(RunError, match=r"Standard output is closed(.|\n)*--out"):
        predict(FROZEN / "classifiers" / "pool", tmp_path / "t.txt")


def test_a_full_disk_leaves_every_kind_of_model_as_it_was(
    tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    models: list[Any] = [
        load(tiny_model),
        load(FROZEN / "linear" / "tfidf-svm"),
        load(FROZEN / "classifiers" / "pool"),
    ]
    models.append(baseline("svd", tiny_corpus, tmp_path / "v", dim=4, min_count=1))
    for number, model in enumerate(models):
        folder = tmp_path / str(number)
        model.save(folder)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with small_disk(1_000), pytest.raises(RunError, match="the disk is full"):
            model.save(folder)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def test_a_result_that_is_overwritten_stays_until_the_new_one_is_there(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    rows, typo = tmp_path / "rows.csv", tmp_path / "typo.csv"
    rows.write_text("text,label\n" + "a good film,good\na bad one,bad\n" * 40, encoding="utf-8")
    commands: dict[str, list[Any]] = {
        "fit": ["fit", tiny_model, "FILE"],
        "head": ["fit", tiny_model, "FILE", "--head", "pool", "--epochs", 1, "--head-dim", 4],
        "embed": ["embed", tiny_model, "FILE", "--pool", "mean"],
        "pretrain": ["pretrain", "FILE", *_SHAPE, "--epochs", 1],
        "senses": ["senses", tiny_model, "the", "--in", "FILE"],
    }
    for name, words in commands.items():
        out, given = tmp_path / name, tiny_corpus if name in ("pretrain", "senses") else rows

        def run(file: Path, *more: Any, words: list[Any] = words, out: Path = out) -> Any:
            return cli(*(file if word == "FILE" else str(word) for word in words), "--out", out, *more)

        run(given).check_fine()
        before = contents(out)
        run(typo, "--overwrite").check_refused("typo.csv")
        assert contents(out) == before, name
        with small_disk(2_500):
            run(given, "--overwrite").check_refused("the disk is full")
        kept = {path: data for path, data in before.items() if "run" not in path.relative_to(out).parts}
        assert kept.items() <= contents(out).items(), name
        assert {path for path in contents(out) if path.parent == out} == {
            path for path in kept if path.parent == out
        }
        run(given, *([] if name == "head" else ["--overwrite"])).check_fine("Done" if name == "embed" else "")
        assert not (out / ".outdated").exists()
