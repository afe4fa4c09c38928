"""The program itself, killed and interrupted: run again, it ends in the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

WORDS = (
    "the a one old small red green cat dog bird tree house river stone cloud runs sleeps eats sees "
    "finds loves carries under over near with without never always and or but quickly slowly"
)
COMMON = [
    "--preset=tiny",
    "--dim=8",
    "--filters=1:4,2:4",
    "--n-lanes=4",
    "--window=8",
    "--objective=sampled",
    "--n-samples=16",
    "--held-out=0.05",
    "--evals-per-epoch=2",
    "--dropout-weight=0.1",
    "--ema=0.9",
    "--checkpoint-every=0.2s",
]
FUSED = [*COMMON, "--hidden-dim=8", "--epochs=4"]
PROJECTED = [*COMMON, "--hidden-dim=10", "--cell-clip=3", "--epochs=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(5)
    words = WORDS.split()
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) + "." for _ in range(200))
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


Start = Callable[[Path, list[str]], subprocess.Popen[str]]


@pytest.fixture
def start(corpus: Path) -> Iterator[Start]:
    """Starts ``elmokit pretrain``; what still runs when the test is over is killed.

    One thread: the machine may be busy, and threads that wait for each other crawl then.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(out: Path, options: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "elmokit.cli.main", "pretrain", str(corpus), "--out", str(out)]
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    """What it says until its end, which is a good one."""
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def n_lines(out: Path) -> int:
    metrics = out / "run" / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def wait_for_progress(process: subprocess.Popen[str], out: Path, before: int) -> bool:
    """Wait until there are more metrics than ``before``; false if the program ended first."""
    while n_lines(out) <= before:
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    return True


def assert_same_outcome(found: Path, wanted: Path) -> None:
    """The same weights to the bit, and metrics without a gap or a repetition."""
    assert (found / "model.safetensors").read_bytes() == (wanted / "model.safetensors").read_bytes()
    steps: dict[Path, list[tuple[str, int, float]]] = {}
    for out in (found, wanted):
        lines = map(json.loads, (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        steps[out] = [
            (line["event"], line["step"], line["loss"] if line["event"] == "train" else line["perplexity"])
            for line in lines
        ]
    assert steps[found] == steps[wanted]
    training = [json.loads((out / "config.json").read_text(encoding="utf-8"))["training"] for out in steps]
    for name in ("held_out", "history", "n_steps", "n_words", "stopped"):
        assert training[0][name] == training[1][name]


def test_a_run_killed_at_random_moments_and_run_again_ends_in_the_same_bits(
    start: Start, tmp_path: Path
) -> None:
    alone = start(tmp_path / "alone", FUSED)
    rng = random.Random()
    out = tmp_path / "killed"
    n_kills = 0
    while n_kills < 3:
        process = start(out, FUSED)
        if not wait_for_progress(process, out, n_lines(out)):
            break
        time.sleep(rng.uniform(0.0, 0.4))
        process.kill()
        process.communicate()
        n_kills += process.returncode == -signal.SIGKILL
        if process.returncode == 0:
            break
    assert n_kills > 0
    said = finish(start(out, FUSED))
    assert "Done." in said
    finish(alone)
    assert_same_outcome(out, tmp_path / "alone")


def test_an_interrupted_run_saves_says_how_to_go_on_and_going_on_ends_in_the_same_bits(
    start: Start, tmp_path: Path
) -> None:
    alone = start(tmp_path / "alone", PROJECTED)
    out = tmp_path / "interrupted"
    process = start(out, PROJECTED)
    assert wait_for_progress(process, out, 5)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Interrupted." in said
    assert "Run the same command to go on" in said
    n_done = n_lines(out)
    said = finish(start(out, PROJECTED))
    assert "Going on from step" in said
    assert n_lines(out) > n_done
    finish(alone)
    assert_same_outcome(out, tmp_path / "alone")
