"""Comparisons without any training: random answers of a given accuracy, ranked by the code itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elmokit.bilm.folder import save_bilm
from elmokit.comparison.data import Data
from elmokit.comparison.methods import Family, Method, Plan
from elmokit.comparison.result import Comparison, build_result
from elmokit.comparison.steps import MetricsRecord, Step, StepResult, Workspace
from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.task import Examples, Labels, get_task
from odd_texts import make_model

NEWS = ("World", "Sports", "Business", "Sci/Tech")
TASK = get_task("classify")


@dataclass(frozen=True)
class Spec:
    """A method: its accuracy on test, and seconds of pretraining and fitting."""

    id: str
    name: str
    family: Family
    accuracy: float
    pretrain: float | None = None
    fit: float = 10.0
    n_seeds: int = 1


METHODS = (
    Spec("elmo-finetuned", "ELMo, fine-tuned", "elmo", 0.9391, 1511, 1904, 3),
    Spec("elmo-trainable", "ELMo, trainable mix", "elmo", 0.9312, 1511, 242, 3),
    Spec("elmo-frozen", "ELMo, frozen mix", "elmo", 0.9309, 1511, 239, 3),
    Spec("tfidf-svm", "TF-IDF bigrams + SVM", "linear", 0.9245, None, 13.1),
    Spec("tfidf-lr", "TF-IDF + logistic regression", "linear", 0.9152, None, 14.2),
    Spec("sgns", "Skip-gram", "static", 0.9108, 61, 131, 3),
    Spec("cbow", "CBOW", "static", 0.9017, 24, 127, 3),
    Spec("svd", "SVD", "static", 0.8852, 19, 133, 3),
)
"""Believable methods, the best first."""
TRAINING = {
    "history": [{"epoch": n, "perplexity": 130 + 320 / n} for n in range(1, 7)],
    "held_out": {"perplexity": 141.3, "forward": 139.8, "backward": 142.9},
}
TEXTS = (
    "Oil prices fall as Opec signals it will pump more crude through the winter, easing fears of a shortage",
    "Sox owner says he would rather sell the web start-up than the team, whatever the league decides",
    "Space probe sends back first pictures of the moon's hazy surface after a seven-year flight",
)


def make_comparison(
    accuracies: Mapping[str, float] | Sequence[Spec] = METHODS,
    n_rows: int = 2000,
    *,
    folder: Path = Path("report"),
    classes: Sequence[str] = NEWS,
    n_seeds: int = 1,
    missing: bool = False,
    curve: bool = False,
    disagreement: float = 0.1,
) -> Comparison:
    """The result of a comparison.

    Args:
        accuracies: By method id, all linear models; or full specifications.
        missing: Add a method that failed and one that was skipped.
        curve: Add a learning curve.
        disagreement: How much methods and seeds differ in the rows they get right.
    """
    specs = list[Spec]()
    if isinstance(accuracies, Mapping):
        specs += [Spec(id, id.upper(), "linear", value, n_seeds=n_seeds) for id, value in accuracies.items()]
    else:
        specs += accuracies
    methods, steps, results = list(map(_method, specs)), list[Step](), dict[str, StepResult]()
    splits = {"train": 2 * n_rows, "valid": n_rows // 2, "test": n_rows}
    data = Data(
        TASK,
        {split: _examples(tuple(classes), n) for split, n in splits.items()},
        notes=["12 rows are in both train and test."],
        names={"train": "train.csv", "test": "test.csv"},
    )
    space = Workspace(folder / "work", data)
    draws = [(100, 0, 0.8), (100, 1, 0.81), (300, 0, 0.9), (300, 1, 0.91)] if curve else []
    for spec, method in zip(specs, methods, strict=True):
        for seed in range(spec.n_seeds):
            steps.append(fit_step(method, f"s{seed}", seed))
            results[steps[-1].id] = _result(spec, seed, data, disagreement)
        for n_labels, draw, share in draws:
            steps.append(fit_step(method, f"n{n_labels}-d{draw}", draw, n_labels))
            few = replace(spec, accuracy=spec.accuracy * share)
            results[steps[-1].id] = _result(few, draw, data, disagreement)
        if spec.pretrain:
            results[method.source] = StepResult(spec.pretrain)
            if spec.family == "elmo" and not (model := space.encoder_folder(method)).exists():
                save_bilm(model, replace(make_model(), training=TRAINING))
    failed = {}
    if missing:
        methods += [Method("glove", "GloVe", "static", "glove"), Method("cove", "CoVe", "elmo", "cove")]
        steps += map(fit_step, methods[-2:])
        failed = {"glove-s0": "glove.txt, line 17: 99 numbers, not 100."}
    counts = (100, 300) if curve else ()
    ids = tuple(spec.id for spec in specs) if curve else ()
    left_out = ("CoVe was skipped: the budget of 30 min is used up.",) if missing else ()
    plan = Plan("quick", tuple(methods), (0, 1, 2), counts, 2, ids, left_out)
    command = "elmokit compare train.csv test.csv --out report"
    title = "Which embedding for AG News?"
    return build_result(space, plan, steps, results, failed, title=title, command=command)


def fit_step(method: Method, name: str = "s0", seed: int = 0, n_labels: int = 0) -> Step:
    """A step that fits a method."""
    return Step(f"{method.id}-{name}", f"{method.id}-{name}", "fit", method, seed, n_labels)


def _method(spec: Spec) -> Method:
    base = spec.id.partition("-")[0]
    settings = {"mix": "frozen"} if spec.family == "static" else {"finetune": spec.id == "elmo-finetuned"}
    return Method(spec.id, spec.name, spec.family, base, settings)


@functools.cache
def _examples(classes: tuple[str, ...], n: int) -> Examples:
    targets = np.random.default_rng(n).integers(0, len(classes), n)
    return Examples([(TEXTS[row % len(TEXTS)],) for row in range(n)], targets, Labels(classes))


def _result(spec: Spec, seed: int, data: Data, disagreement: float) -> StepResult:
    shifts = {"train": 0.03, "valid": 0.002, "test": 0.0}
    shift = 0.002 * (seed - 1) if spec.n_seeds > 1 else 0.0
    metrics = {
        split: _record(examples, min(1.0, spec.accuracy + shifts[split] + shift), spec.id, seed, disagreement)
        for split, examples in data.splits.items()
    }
    history = [
        {"step": 10 * epoch, "epoch": epoch, "train_loss": 0.4 / epoch, "valid_loss": 0.5 / epoch}
        for epoch in range(1, 5)
    ]
    weights = [[1 / 3] * 3] if spec.id == "elmo-frozen" else [[1 / 3] * 3, [0.2, 0.5, 0.3]]
    mix = {
        "kind": "trainable",
        "form": "softmax",
        "names": ["layer 0 (token encoder)", "layer 1", "layer 2"],
        "values": weights[-1],
        "gamma": 1.04,
        "history": weights,
        "epochs": list(range(len(weights))),
    }
    return StepResult(
        spec.fit,
        peak_memory=1_500_000_000,
        n_bytes=69_800_000,
        metrics=metrics,
        texts_per_second=228.0,
        history=history if spec.family != "linear" else (),
        mix=mix if spec.family == "elmo" else None,
        notes=["2 texts have no known word."] if spec.family == "static" else (),
    )


def _record(examples: Examples, accuracy: float, id: str, seed: int, disagreement: float) -> MetricsRecord:
    """The metrics of answers that are right on exactly this share of the rows."""
    n, n_classes = len(examples), len(examples.labels)
    rng = np.random.default_rng([n, seed, *id.encode()])
    hardness = np.random.default_rng(n).normal(size=n) + disagreement * rng.normal(size=n)
    wrong = np.argsort(hardness)[round(accuracy * n) :]
    answers = examples.targets.copy()
    answers[wrong] = (answers[wrong] + rng.integers(1, max(2, n_classes), len(wrong))) % n_classes
    chances = np.full((n, n_classes), 0.1 / n_classes)
    chances[np.arange(n), answers] += 0.9
    predictions = [ClassPrediction(labels=examples.labels, probabilities=row) for row in chances]
    return MetricsRecord.from_metrics(TASK.measure(examples, predictions))
