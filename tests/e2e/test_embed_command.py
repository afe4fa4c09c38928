"""``elmokit embed`` as a person runs it: killed, interrupted, piped, on a small disk, with bad input."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.vectors import store_writer
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.store import VectorStore
from odd_texts import contents
from program import Cli, Start, small_disk, wait_for_more

N_TEXTS = 500
WORDS = (
    "the a old small fox dog mayor town ran saw bread milk tea 1,000 lights naïve café 😀 שלום Paris didn't"
)
# The program that takes its time over the part of the work that ``{slow}`` does, so that it can be caught
# at it; and in smaller chunks than it would otherwise.
_SLOWLY = """
import time
from elmokit.cli.main import main
from elmokit.vectors import store_writer
from elmokit.vectors.elmo import Elmo
work = Elmo.{slow}
Elmo.{slow} = lambda *given, **named: (time.sleep(0.3), work(*given, **named))[1]
store_writer._CHUNK_TEXTS = 64
main()
"""
EMBEDDING_SLOWLY, READING_SLOWLY = _SLOWLY.format(slow="embed"), _SLOWLY.format(slow="words")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hundred lines, each of its own."""
    rng = random.Random(3)
    words = WORDS.split()
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 40))) + f" {i:x}" for i in range(N_TEXTS))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def n_done(out: Path) -> int:
    try:
        return int(json.loads((out / "progress.json").read_text(encoding="utf-8"))["n_texts"])
    except FileNotFoundError:
        return 0


@pytest.mark.usefixtures("single_thread")
def test_killed_at_random_moments_and_run_again_it_ends_in_the_same_bytes(
    start: Start, cli: Cli, tiny_model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["embed", tiny_model, corpus, "--all-layers", "--out"]
    out = tmp_path / "killed"
    n_kills = 0
    while n_kills < 2:
        before = n_done(out)
        process = start(*words, out, code=EMBEDDING_SLOWLY)
        if not wait_for_more(process, lambda: n_done(out), before):
            break
        time.sleep(random.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        n_kills += process.returncode == -signal.SIGKILL
    assert n_kills > 0
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 64)
    cli(*words, out).check_fine()
    cli(*words, tmp_path / "alone").check_fine("Done.", "MB on disk")
    assert contents(out) == contents(tmp_path / "alone")
    assert len(VectorStore.open(out)) == N_TEXTS


def test_killed_while_it_reads_it_starts_anew(
    start: Start, cli: Cli, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    words = ["embed", tiny_model, corpus, "--pool", "mean", "--out", tmp_path / "out"]
    process = start(*words, code=READING_SLOWLY)
    assert wait_for_more(process, (tmp_path / "out" / ".texts.jsonl.new").exists)
    process.kill()
    process.communicate()
    assert not (tmp_path / "out" / "texts.jsonl").exists()
    cli(*words).check_fine("Done.")
    assert VectorStore.open(tmp_path / "out").vectors.shape == (N_TEXTS, 16)


def test_interrupted_it_says_how_to_go_on_and_going_on_with_another_model_is_refused(
    cli: Cli, start: Start, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start("embed", tiny_model, corpus, "--out", out, code=EMBEDDING_SLOWLY)
    assert wait_for_more(process, lambda: n_done(out))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Run the same command again to resume" in said
    assert "Traceback" not in said
    before = contents(out)

    saved = load_bilm(tiny_model)
    with torch.no_grad():
        next(iter(saved.model.parameters())).add_(1e-3)
    save_bilm(tmp_path / "other", replace(saved))
    other = cli("embed", tmp_path / "other", corpus, "--out", out)
    other.check_refused("another model", "Nothing was touched")
    other = cli("embed", tiny_model, corpus, "--pool", "max", "--out", out)
    other.check_refused("pool was 'none', now 'max'")
    cli("similar", tiny_model, "the fox", "--in", out).check_refused("not finished")
    assert contents(out) == before

    cli("embed", tiny_model, corpus, "--out", out).check_fine("Resuming from text")
    cli("embed", tiny_model, corpus, "--out", out).check_fine("Already done.")


def test_everything_at_once_from_a_table_told_to_a_program(
    cli: Cli, tiny_model: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(
        "key,title,body\nr1,The fox,ran home 😀\nr2,,\nr3,שלום,cafe\u0301 in Paris\n", encoding="utf-8"
    )
    out = tmp_path / "out"
    done = cli(
        *("embed", tiny_model, table, "--out", out, "--json", "--text-columns", "title,body"),
        *("--id-column", "key", "--pool", "sif", "--mix-weights", "0.2,0.3,0.5", "--state", "warm"),
        *("--dtype", "float16", "--format", "safetensors", "--export", "parquet"),
    )
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["event"] for event in events] == ["plan", "progress", "end"]
    assert events[0]["n_bytes"] == (out / "vectors.safetensors").stat().st_size
    assert (events[-1]["n_texts"], events[-1]["n_empty"], events[-1]["stopped"]) == (3, 1, "done")
    assert events[-1]["exports"] == ["vectors.parquet"]
    store = VectorStore.open(out)
    texts = ["The fox ran home 😀", "", "שלום cafe\u0301 in Paris"]
    assert (store.ids, list(store.texts)) == (["r1", "r2", "r3"], texts)
    wanted = Elmo.load(tiny_model).embed(texts, state="warm").sentence("sif", weights=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(store.vectors, wanted, atol=2e-3)
    assert pq.read_table(out / "vectors.parquet")["id"].to_pylist() == ["r1", "r2", "r3"]
    for file in out.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name


def test_standard_input_can_be_embedded_and_gone_on_with(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    words = ("embed", tiny_model, "-", "--out", tmp_path / "out")
    cli(*words, stdin="The fox ran.\nUn café.\n").check_fine()
    assert list(VectorStore.open(tmp_path / "out").texts) == ["The fox ran.", "Un café."]
    assert "Already done." in cli(*words, stdin="The fox ran.\nUn café.\n").out
    cli(*words, stdin="Something else.\n").check_refused("standard input changed")


def test_a_disk_that_fills_up_is_named_before_anything_is_computed(
    cli: Cli, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with small_disk(250_000):
        cli("embed", tiny_model, corpus, "--out", out).check_refused("the disk is full")
    assert n_done(out) == 0
    cli("embed", tiny_model, corpus, "--out", out).check_fine("Done.")
    assert len(VectorStore.open(out)) == N_TEXTS


def test_bad_input_is_refused_with_a_remedy_and_leaves_no_file(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (tmp_path / "image.txt").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "cut.jsonl").write_text('{"text": "a"}\n{"text": ', encoding="utf-8")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    good = (tiny_model, tiny_corpus)
    for words, parts in (
        ((tmp_path / "no-model", tiny_corpus), ["no-model"]),
        ((tmp_path, tiny_corpus), ["config.json"]),
        ((tiny_model, tmp_path / "nowhere.txt"), ["nowhere.txt"]),
        ((tiny_model, tmp_path / "image.txt"), ["image.txt"]),
        ((tiny_model, tmp_path / "cut.jsonl"), ["cut.jsonl", "line 2"]),
        ((tiny_model, tmp_path / "empty.txt"), ["empty.txt", "contains no text"]),
        ((*good, "--layer", "7"), ["no layer 7"]),
        ((*good, "--mix-weights", "1,2"), ["2 weights"]),
        ((*good, "--mix-weights", "much"), ["mix"]),
        ((*good, "--layer", "1", "--all-layers"), ["used together"]),
        ((*good, "--pool", "average"), ["pool"]),
        ((*good, "--dtype", "float64"), ["float64"]),
        ((*good, "--format", "csv"), ["format"]),
        ((*good, "--state", "cold"), ["state"]),
        ((*good, "--export", "excel"), ["excel"]),
        ((*good, "--id-column", "key"), ["plain text"]),
    ):
        cli("embed", *words, "--out", out).check_refused(*parts)
        assert not out.exists() or not contents(out), words
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("mine", encoding="utf-8")
    cli("embed", *good, "--out", tmp_path / "mine").check_refused("mine", "nothing in it was touched")
    cli("embed", *good, "--out", tiny_corpus).check_refused("is a file")
    cli("embed", *good, "--out", "/dev/null/vectors").check_refused("/dev/null/vectors")


@pytest.mark.parametrize("verb", ["embed", "similar"])
def test_help_imports_no_torch(verb: str) -> None:
    code = (
        "import sys\n"
        "from elmokit.cli.main import app\n"
        f"app([{verb!r}, '--help'], standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules or 'pyarrow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
