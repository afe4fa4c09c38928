"""Reports of classifiers without any training: random answers, measured and reported by the code itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.model import FitRecord, TaskModel
from elmokit.tasks.task import Examples, Labels, Metrics, get_task
from elmokit.vectors.elmo import Elmo
from odd_texts import make_model
from serving import untrained

TASK = get_task("classify")
TEXT = f"{'A long story. ' * 20}{'unbroken' * 20} <script>x</script>"


def make_metrics(
    classes: Sequence[str], n: int, *, several: bool = False, calibrated: bool = True, unseen: str = ""
) -> Metrics:
    """Metrics of ``n`` random answers, most of them right, and of a row with the label ``unseen``."""
    numbers = np.random.default_rng(n)
    true = numbers.integers(0, len(classes), size=n)
    scores = numbers.normal(size=(n, len(classes))) * 1.4
    scores[np.arange(n), true] += 3
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels = Labels(tuple(classes), "|" if several else "")
    targets = np.eye(len(classes))[true] if several else np.append(true, [len(classes)] if unseen else [])
    if unseen:
        chances = np.concatenate([chances, chances[:1]])
    answers = [ClassPrediction(labels=labels, probabilities=row, calibrated=calibrated) for row in chances]
    unknown = (unseen,) if unseen else ()
    examples = Examples([(TEXT,)] * len(chances), targets.astype(float if several else int), labels, unknown)
    metrics: Metrics = TASK.measure(examples, answers)
    return metrics


def make_fitted(classes: Sequence[str], *, several: bool = False, **settings: Any) -> TaskModel:
    """A model with random weights and the record of a fit."""
    model = untrained(Elmo(make_model()), multilabel=several, **settings)
    values = model.network.mix.values()
    history = [
        {"step": 10 * epoch, "epoch": epoch, "accuracy": 1 - 0.3 / epoch, "valid_loss": 1.2 / epoch}
        | {"train_loss": 1 / epoch, **values}
        for epoch in (1, 2, 3)
    ]
    record = FitRecord(
        command="elmokit fit <news> && echo ```",
        history=history,
        mix_start=dict.fromkeys(values, 1 / 3),
        timings={"encoding": 75.2, "documents_per_second": 123.4},
        notes=["Read me first."],
        encoder={"name": "<b>model</b>", "width": 512},
        versions={"elmokit": "1.0"},
    )
    return replace(model, labels=Labels(tuple(classes), "|" if several else ""), record=record)
