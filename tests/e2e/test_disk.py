"""A full disk or an unwritable place is a clear error, and what was saved stays."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elmokit import baseline, load
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import RunError
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
