"""The program itself, killed and interrupted: run again, it ends in the same bits."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest

from program import Cli, Start, n_metrics, wait_for_more

WORDS = (
    "the a one old small red green cat dog bird tree house river stone cloud runs sleeps eats sees "
    "finds loves carries under over near with without never always and or but quickly slowly"
)
COMMON = [
    "--preset=tiny",
    "--dim=8",
    "--set=filters=1:4,2:4",
    "--set=n_lanes=4",
    "--set=window=8",
    "--set=objective=sampled",
    "--set=n_samples=16",
    "--set=held_out=0.05",
    "--set=evals_per_epoch=2",
    "--set=dropout_weight=0.1",
    "--set=ema=0.9",
    "--checkpoint-every=0.2s",
]
FUSED = [*COMMON, "--set=hidden_dim=8", "--epochs=4"]
PROJECTED = [*COMMON, "--set=hidden_dim=10", "--set=cell_clip=3", "--epochs=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(5)
    words = WORDS.split()
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) + "." for _ in range(140))
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


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


@pytest.mark.usefixtures("single_thread")
def test_a_run_killed_at_random_moments_and_run_again_ends_in_the_same_bits(
    start: Start, cli: Cli, corpus: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "killed", ["pretrain", corpus, *FUSED, "--out"]
    n_kills = 0
    while n_kills < 2:
        process = start(*words, out)
        if not wait_for_more(process, lambda: n_metrics(out), n_metrics(out)):
            break
        time.sleep(random.uniform(0.0, 0.3))
        process.kill()
        process.communicate()
        n_kills += process.returncode == -signal.SIGKILL
    assert n_kills > 0
    for folder in (out, tmp_path / "alone"):
        cli(*words, folder).check_fine()
    assert_same_outcome(out, tmp_path / "alone")


@pytest.mark.usefixtures("single_thread")
def test_an_interrupted_run_saves_says_how_to_go_on_and_going_on_ends_in_the_same_bits(
    start: Start, cli: Cli, corpus: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "interrupted", ["pretrain", corpus, *PROJECTED, "--out"]
    process = start(*words, out)
    assert wait_for_more(process, lambda: n_metrics(out), 5)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Interrupted." in said
    assert "Run the same command to resume" in said
    n_done = n_metrics(out)
    cli(*words, out).check_fine("Resuming from step", "Done.")
    assert n_metrics(out) > n_done
    cli(*words, tmp_path / "alone").check_fine("Done.")
    assert_same_outcome(out, tmp_path / "alone")
