"""Where the time of a training step goes: the textbook way, `classic`, and `small`.

    ELMOKIT_DATA=... python benchmarks/pretrain_profile.py

Profiles a few steps of each on AG News (73,106 of the 120,000 train rows) and prints the share of
each kind of work, and milliseconds per thousand real words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from elmokit.bilm.settings import resolve
from elmokit.training.machine import tuned_memory
from measuring import data_file, finish, seconds
from pretrain_speed import our_steps, prepared, textbook_steps

_KINDS = {
    "LSTM": ("mkldnn_rnn", "lstm"),
    "optimiser": ("adam", "foreach", "Optimizer", "index_copy", "lerp", "addcmul", "sqrt", "addcdiv"),
    "matrix products": ("mm", "linear", "matmul", "bmm"),
    "one-hot targets": ("one_hot", "scatter_"),
    "softmax and loss": ("softmax", "exp", "log", "SampledLoss", "sum", "neg", "mul"),
    "words to vectors": ("embedding", "index", "gather", "unique", "sort", "FilterMaximum", "eq", "amax"),
}


def main() -> None:
    file = data_file("ag_news/train_partial.csv.gz")
    figures: dict[str, Any] = {}
    with tuned_memory(), tempfile.TemporaryDirectory() as folder:
        classic, small = resolve("classic"), resolve("small", {"text": {"mend": True}})
        words = prepared(classic, file, Path(folder) / "classic")
        runs: dict[str, tuple[Callable[[int], int], int]] = {
            "textbook": (textbook_steps(words), 2),
            "classic": (our_steps(classic, words), 20),
            "small": (our_steps(small, prepared(small, file, Path(folder) / "small")), 8),
        }
        for name, (steps, count) in runs.items():
            steps(2)
            figures[name] = _profile(name, steps, count)
    finish(figures)


def _profile(name: str, steps: Callable[[int], int], count: int) -> dict[str, float]:
    n_words = 0

    def work() -> None:
        nonlocal n_words
        n_words = steps(count)

    taken = seconds(work)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    times = dict.fromkeys([*_KINDS, "the rest"], 0.0)
    for event in found.key_averages():
        kind = next((k for k, signs in _KINDS.items() if any(s in event.key for s in signs)), "the rest")
        times[kind] += event.self_cpu_time_total
    total = sum(times.values())
    shares = {kind: round(time / total, 3) for kind, time in times.items()}
    print(f"{name}: {1e6 * taken / n_words:,.0f} ms per 1,000 words")
    for kind, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"    {kind:<18} {share:>6.1%}")
    return {"ms_per_1000_words": round(1e6 * taken / n_words, 1), **shares}


if __name__ == "__main__":
    main()
