"""Fitting a classifier, killed and interrupted: run again, it ends in the same bits."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from elmokit.bilm.folder import BilmFolder, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.config import BilmConfig, TextConfig
from elmokit.errors import RunError
from elmokit.tasks import fitting
from elmokit.tasks.classify import Classification
from elmokit.tasks.fitting import fit_files
from elmokit.tasks.settings import ClassifierConfig
from elmokit.text.tokenising import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.loop import StepResult

TOPICS = {"money": ("bank", "profit"), "sport": ("goal", "coach"), "weather": ("rain", "storm")}
OTHERS = ("the", "a", "we", "saw")
# The program, but for the report, which takes a while.
_PROGRAM = """
from elmokit.tasks import fitting
fitting.write_report = lambda folder, facts: None
from elmokit.cli.main import main
main()
"""
SETTINGS: dict[str, Any] = {
    "finetune": True,
    "thaw": 1.5,
    "epochs": 10,
    "batch_words": 48,
    "head_dim": 16,
    "ema": 0.9,
    "dropout_weight": 0.1,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with random weights."""
    torch.manual_seed(0)
    vocabulary = Vocabulary([*SPECIALS, *OTHERS, *(word for words in TOPICS.values() for word in words)])
    config = BilmConfig(input="word", dim=12, hidden_dim=12, objective="full")
    tokenizer = TextPipeline(TextConfig()).word_tokenizer(vocabulary.words)
    model = Bilm(config, len(vocabulary)).eval()
    folder = tmp_path_factory.mktemp("encoder") / "random"
    save_bilm(folder, BilmFolder(model, TextConfig(), vocabulary, tokenizer, {}))
    return folder


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    path = tmp_path_factory.mktemp("rows") / "train.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        for number in range(120):
            topic = list(TOPICS)[number % 3]
            words = [*rng.choices(OTHERS, k=rng.randint(1, 5)), *rng.choices(TOPICS[topic], k=2)]
            writer.writerow((" ".join(words), topic))
    return path


Start = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def start(encoder: Path, train: Path) -> Iterator[Start]:
    """Starts ``elmokit fit``; what still runs when the test is over is killed.

    One thread: the machine may be busy, and threads that wait for each other crawl then.
    """
    started: list[subprocess.Popen[str]] = []
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items() if value is not True]

    def begin(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _PROGRAM, "fit", str(encoder), str(train), "--out", str(out)]
        process = subprocess.Popen(
            [*command, "--finetune", *flags, "--checkpoint-every=0.1s"],
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


@pytest.fixture
def single_thread() -> Iterator[None]:
    """One thread here, too, so that sums are taken in the same order."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "write_report", lambda folder, facts: None)


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
    for part in ("model.safetensors", "encoder/model.safetensors"):
        assert (found / part).read_bytes() == (wanted / part).read_bytes()
    lines = {}
    for out in (found, wanted):
        records = map(json.loads, (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        lines[out] = [{name: record[name] for name in record if name != "seconds"} for record in records]
    assert lines[found] == lines[wanted]
    made = [json.loads((out / "config.json").read_text(encoding="utf-8"))["record"] for out in lines]
    for name in ("history", "mix_start", "splits", "stopped"):
        assert made[0][name] == made[1][name]
    assert not list((found / "run").glob("*layers*"))


@pytest.mark.usefixtures("single_thread")
def test_a_fit_killed_then_interrupted_and_run_again_ends_in_the_same_bits(
    start: Start, encoder: Path, train: Path, tmp_path: Path
) -> None:
    out, config = tmp_path / "topics", ClassifierConfig.from_flat(**SETTINGS)
    process = start(out)
    fit_files(encoder, [train], tmp_path / "alone", config)
    assert wait_for_progress(process, out, random.randint(5, 60))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "config.json").exists()

    process = start(out)
    assert wait_for_progress(process, out, n_lines(out) + 10)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Stopping after this step" in said
    assert f"Saved in {out}. Run the same command again to go on." in said
    assert not (out / "config.json").exists()

    other = ClassifierConfig.from_flat(**{**SETTINGS, "lr": 0.5})
    with pytest.raises(RunError, match="was started with other settings or text: lr was"):
        fit_files(encoder, [train], out, other)
    said = finish(start(out))
    assert "Going on from step" in said
    assert "Done: " in said
    assert_same_outcome(out, tmp_path / "alone")


class Killed(BaseException):
    """Ends a run without a word, as a kill does."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mix": "frozen"},
        {"mix": "function", "cache": "no"},
        {"head": "bilstm", "mix_form": "softmax"},
        {"finetune": True, "thaw": 0.5},
    ],
    ids=["kept layers", "kept mix", "layers computed anew", "bilstm", "fine-tuned"],
)
def test_a_fit_cut_off_in_any_epoch_goes_on_to_the_same_bits(
    encoder: Path, train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    config = ClassifierConfig.from_flat(
        **{"epochs": 3, "batch_words": 200, "head_dim": 8, "ema": 0.9, **settings}
    )
    plain = Classification.step
    n_steps = deadly = 0

    def step(self: Classification, index: int, carry: Any, rng: torch.Generator) -> StepResult:
        nonlocal n_steps
        n_steps += 1
        if n_steps == deadly:
            raise Killed
        return plain(self, index, carry, rng)

    monkeypatch.setattr(Classification, "step", step)
    fit_files(encoder, [train], tmp_path / "alone", config)
    total, out = n_steps, tmp_path / "topics"
    for moment in (2, total // 3, total // 2, 0):
        n_steps, deadly = 0, moment
        try:
            fit_files(encoder, [train], out, config, checkpoint_every=0.0)
        except Killed:
            assert not (out / "config.json").exists()
    assert 0 < n_steps < total
    assert_same_outcome(out, tmp_path / "alone")
