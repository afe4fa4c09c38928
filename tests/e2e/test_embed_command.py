"""``elmokit embed`` as a person runs it: killed, interrupted, piped, on a small disk, with bad input."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from elmokit import load_bilm, save_bilm
from elmokit.cli.main import main
from elmokit.embed.elmo import Elmo
from elmokit.embed.store import VectorStore

WORDS = (
    "the a old small fox dog mayor town ran saw bread milk tea 1,000 lights naïve café 😀 שלום Paris didn't"
)
COLOURS = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")  # each would put colour codes into messages
_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["elmokit", *sys.argv[2:]]
from elmokit.cli.main import main
main()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of many chunks: some thousand lines, each of its own."""
    rng = random.Random(3)
    words = WORDS.split()
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 40))) + f" {i:x}" for i in range(4000))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """One thread: the machine may be busy, and threads that wait for each other crawl then."""
    plain = {name: value for name, value in os.environ.items() if name not in COLOURS}
    return {**plain, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program, which then takes its time over each chunk, so that it can be caught at work;
    what still runs when the test is over is killed."""
    slow = (
        "import time; from elmokit.embed.elmo import Elmo; from elmokit.cli.main import main; "
        "embed = Elmo.embed; "
        "Elmo.embed = lambda self, texts, **more: (time.sleep(0.3), embed(self, texts, **more))[1]; main()"
    )
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", slow, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def check_refused(self, *parts: str) -> None:
        """Code 2, no traceback, an error that holds all of ``parts``, and something to try."""
        assert self.code == 2, self.err
        assert self.err.startswith("error:")
        assert "Traceback" not in self.err
        assert "try:" in self.err
        assert [part for part in parts if part not in self.err] == [], self.err


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program inside this process: quicker than one of its own."""
    for name in COLOURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "90")

    def begin(*words: str | Path, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["elmokit", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return begin


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def n_done(out: Path) -> int:
    try:
        return int(json.loads((out / "progress.json").read_text(encoding="utf-8"))["n_texts"])
    except FileNotFoundError:
        return 0


def wait_for_progress(process: subprocess.Popen[str], out: Path, before: int) -> bool:
    """Wait until more texts are done than ``before``; false if the program ended first."""
    while n_done(out) <= before:
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    return True


def test_killed_at_random_moments_and_run_again_it_ends_in_the_same_bytes(
    start: Start, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    words = ["embed", tiny_model, corpus, "--all-layers"]
    alone = start(*words, "--out", tmp_path / "alone")
    rng = random.Random()
    out = tmp_path / "killed"
    n_kills = 0
    while n_kills < 3:
        process = start(*words, "--out", out)
        if not wait_for_progress(process, out, n_done(out)):
            break
        time.sleep(rng.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        n_kills += process.returncode == -signal.SIGKILL
    assert n_kills > 0
    process = start(*words, "--out", out)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "Done." in said or "Already done." in said
    said, _ = alone.communicate()
    assert alone.returncode == 0, said
    assert "MB on disk" in said
    assert contents(out) == contents(tmp_path / "alone")
    assert len(VectorStore.open(out)) == 4000


def test_killed_while_it_reads_it_starts_anew(
    start: Start, run: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    words = ["embed", tiny_model, corpus, "--pool", "mean", "--out", tmp_path / "out"]
    process = start(*words)
    while not (tmp_path / "out" / "manifest.json").exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()
    done = run(*words)
    assert done.code == 0, done.err
    assert VectorStore.open(tmp_path / "out").vectors.shape == (4000, 16)


def test_interrupted_it_says_how_to_go_on_and_going_on_with_another_model_is_refused(
    run: Run, start: Start, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start("embed", tiny_model, corpus, "--out", out)
    assert wait_for_progress(process, out, 0)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Run the same command to go on" in said
    assert "Traceback" not in said
    before = contents(out)

    saved = load_bilm(tiny_model)
    with torch.no_grad():
        next(iter(saved.model.parameters())).add_(1e-3)
    save_bilm(tmp_path / "other", replace(saved))
    other = run("embed", tmp_path / "other", corpus, "--out", out)
    other.check_refused("another model", "Nothing was touched")
    other = run("embed", tiny_model, corpus, "--pool", "max", "--out", out)
    other.check_refused("pool was 'none', is 'max'")
    run("similar", tiny_model, "the fox", "--in", out).check_refused("not finished")
    assert contents(out) == before

    done = run("embed", tiny_model, corpus, "--out", out)
    assert done.code == 0, done.err
    assert "Going on from text" in done.out
    done = run("embed", tiny_model, corpus, "--out", out)
    assert done.code == 0
    assert "Already done." in done.out


def test_everything_at_once_from_a_table_told_to_a_program(
    run: Run, tiny_model: Path, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(
        "key,title,body\nr1,The fox,ran home 😀\nr2,,\nr3,שלום,cafe\u0301 in Paris\n", encoding="utf-8"
    )
    out = tmp_path / "out"
    done = run(
        *("embed", tiny_model, table, "--out", out, "--json", "--text-columns", "title,body"),
        *("--id-column", "key", "--pool", "sif", "--mix", "0.2,0.3,0.5", "--state", "warm"),
        *("--dtype", "float16", "--format", "safetensors", "--export", "parquet", "--export", "npz"),
    )
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["event"] for event in events] == ["plan", "progress", "end"]
    assert events[0]["n_bytes"] == (out / "vectors.safetensors").stat().st_size
    assert (events[-1]["n_texts"], events[-1]["n_empty"], events[-1]["stopped"]) == (3, 1, "done")
    assert events[-1]["exports"] == ["vectors.parquet", "vectors.npz"]
    store = VectorStore.open(out)
    texts = ["The fox ran home 😀", "", "שלום cafe\u0301 in Paris"]
    assert (store.ids, list(store.texts)) == (["r1", "r2", "r3"], texts)
    wanted = Elmo.load(tiny_model).embed(texts, state="warm").sentence("sif", weights=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(store.vectors, wanted, atol=2e-3)
    assert pq.read_table(out / "vectors.parquet")["id"].to_pylist() == ["r1", "r2", "r3"]
    with np.load(out / "vectors.npz", allow_pickle=False) as archive:
        assert np.array_equal(archive["vectors"], store.vectors)
    for file in out.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name


def test_standard_input_can_be_embedded_and_gone_on_with(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    words = ("embed", tiny_model, "-", "--out", tmp_path / "out")
    done = run(*words, stdin="The fox ran.\nUn café.\n")
    assert done.code == 0, done.err
    assert list(VectorStore.open(tmp_path / "out").texts) == ["The fox ran.", "Un café."]
    assert "Already done." in run(*words, stdin="The fox ran.\nUn café.\n").out
    run(*words, stdin="Something else.\n").check_refused("standard input changed")


def test_a_disk_that_fills_up_is_named_before_anything_is_computed(
    run: Run, tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", _LIMITED, str(2_000_000), "embed", str(tiny_model), str(corpus)]
    done = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, check=False, env=environment()
    )
    Outcome(done.returncode, done.stdout, done.stderr).check_refused("the disk is full")
    assert n_done(out) == 0
    again = run("embed", tiny_model, corpus, "--out", out)
    assert again.code == 0, again.err
    assert len(VectorStore.open(out)) == 4000


def test_bad_input_is_refused_with_a_remedy_and_leaves_nothing(
    run: Run, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
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
        ((tiny_model, tmp_path / "empty.txt"), ["empty.txt", "holds no text"]),
        ((*good, "--layer", "7"), ["no layer 7"]),
        ((*good, "--mix", "1,2"), ["2 weights"]),
        ((*good, "--mix", "much"), ["mix"]),
        ((*good, "--layer", "1", "--all-layers"), ["exclude each other"]),
        ((*good, "--pool", "average"), ["pool"]),
        ((*good, "--dtype", "float64"), ["float64"]),
        ((*good, "--format", "csv"), ["format"]),
        ((*good, "--state", "cold"), ["state"]),
        ((*good, "--export", "excel"), ["excel"]),
        ((*good, "--id-column", "key"), ["plain text"]),
    ):
        run("embed", *words, "--out", out).check_refused(*parts)
        assert not out.exists(), words
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("mine", encoding="utf-8")
    run("embed", *good, "--out", tmp_path / "mine").check_refused("mine", "nothing in it was touched")
    run("embed", *good, "--out", tiny_corpus).check_refused("is a file")
    run("embed", *good, "--out", "/dev/null/vectors").check_refused("/dev/null/vectors")


def test_help_says_defaults_of_zero_and_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    rows = run("pretrain", "--help").out.splitlines()
    for flag, default in (("--clip-norm", 1.0), ("--evals-per-epoch", 1), ("--seed", 0)):
        (row,) = [row for row in rows if f" {flag} " in row]
        assert f"(default {default})" in row
    assert not [row for row in rows if "default True" in row or "default False" in row]


def test_a_folder_that_looks_like_markup_is_named_as_it_is(
    run: Run, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "[bold]out"
    for said in ("Done.", "Already done."):
        done = run("embed", tiny_model, tiny_corpus, "--pool", "mean", "--out", out, "--export", "npz")
        assert done.code == 0, done.err
        assert said in done.out
        assert f"Exported: {out / 'vectors.npz'}" in done.out


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
