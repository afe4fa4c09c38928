"""Fitting a classifier, killed and interrupted: run again, it ends in the same bits."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from elmokit.core.errors import RunError
from elmokit.tasks.fit import fit
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.trainer import TaskTraining
from elmokit.training.loop import StepResult
from program import Cli, Start, n_metrics, wait_for_more
from topics import flags, rows, table

# The program, but for the report, which takes a while.
_PROGRAM = """
from elmokit.tasks import model_report
model_report.write_report = lambda folder, document, record: None
from elmokit.cli.main import main
main()
"""
SETTINGS: dict[str, Any] = {
    "finetune": True,
    "unfreeze_every": 1.5,
    "epochs": 10,
    "batch_words": 48,
    "head_dim": 16,
    "ema": 0.9,
    "dropout_weight": 0.1,
}


pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("rows") / "train.csv", rows(90))


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
    start: Start, cli: Cli, encoder: Path, train: Path, tmp_path: Path
) -> None:
    out = tmp_path / "topics"
    words = ("fit", encoder, train, "--out", out, *flags(SETTINGS), "--checkpoint-every=0.1s")
    process = start(*words, code=_PROGRAM)
    assert wait_for_more(process, lambda: n_metrics(out), random.randint(5, 40))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "config.json").exists()

    process = start(*words, code=_PROGRAM)
    assert wait_for_more(process, lambda: n_metrics(out), n_metrics(out) + 10)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Stopping after this step" in said
    assert f"Saved in {out}. Run the same command again to resume." in said
    assert not (out / "config.json").exists()

    other = ClassifierConfig.from_flat(**{**SETTINGS, "lr": 0.5})
    with pytest.raises(RunError, match="was started with different settings or data: lr was"):
        fit(encoder, [train], out, config=other)
    cli(*words).check_fine("Resuming from step", "Done: ")
    fit(encoder, [train], tmp_path / "alone", **SETTINGS)
    assert_same_outcome(out, tmp_path / "alone")


class Killed(BaseException):
    """Ends a run without a word, as a kill does."""


@pytest.mark.parametrize(
    "settings",
    [
        {"head": "bilstm", "mix_form": "softmax"},
        {"mix": "function", "cache": "no"},
        {"finetune": True, "unfreeze_every": 0.5},
    ],
    ids=["cached layers", "layers computed anew", "fine-tuned"],
)
def test_a_fit_cut_off_in_any_epoch_goes_on_to_the_same_bits(
    encoder: Path, train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    config = ClassifierConfig.from_flat(
        **{"epochs": 3, "batch_words": 200, "head_dim": 8, "ema": 0.9, **settings}
    )
    plain = TaskTraining.step
    n_steps = deadly = 0

    def step(self: TaskTraining, index: int, carry: Any, rng: torch.Generator) -> StepResult:
        nonlocal n_steps
        n_steps += 1
        if n_steps == deadly:
            raise Killed
        return plain(self, index, carry, rng)

    monkeypatch.setattr(TaskTraining, "step", step)
    fit(encoder, [train], tmp_path / "alone", config=config)
    total, out = n_steps, tmp_path / "topics"
    for moment in (2, total // 3, total // 2, 0):
        n_steps, deadly = 0, moment
        try:
            fit(encoder, [train], out, config=config, checkpoint_every=0.0)
        except Killed:
            assert not (out / "config.json").exists()
    assert 0 < n_steps < total
    assert_same_outcome(out, tmp_path / "alone")
