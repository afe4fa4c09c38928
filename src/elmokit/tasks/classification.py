"""The task "classify": one label a text, or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.core.formatting import join_names, percent
from elmokit.report.document import (
    Cell,
    Column,
    Section,
    Table,
    make_confusion_table,
    make_pairs_table,
    make_table,
)
from elmokit.report.figures import draw_reliability
from elmokit.tasks.heads import BilstmHead, Head, LinearHead, PoolHead
from elmokit.tasks.metrics import MAX_MATRIX, ClassificationMetrics, Mistake, MultilabelMetrics
from elmokit.tasks.task import Examples, Inputs, Labels, Part, Prediction, Task, join_texts
from elmokit.text.rows import Row
from elmokit.text.settings import LabelConfig

_MAX_CLASSES = 1000  # more than this, and fewer than two rows each, are no classes
_FEW_CLASSES = 5
Metrics = ClassificationMetrics | MultilabelMetrics


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPrediction(Prediction):
    """The probability of each class, (n_classes,); uncalibrated ones only order the classes."""

    labels: Labels
    probabilities: npt.NDArray[np.floating[Any]]
    calibrated: bool = True

    def __post_init__(self) -> None:
        check_finite(self.probabilities, "probabilities")

    @property
    def places(self) -> list[int]:
        """The most probable class; if a text can have several, all above a half."""
        if self.labels.separator:
            return np.flatnonzero(self.probabilities > 0.5).tolist()
        return [int(self.probabilities.argmax())]

    @property
    def label(self) -> str:
        """Its name; several are joined by the separator."""
        return self.labels.separator.join(self.labels.names[place] for place in self.places)

    @property
    def probability(self) -> float | None:
        """That of the label; of several, the lowest; None if there is no label."""
        return min((float(self.probabilities[place]) for place in self.places), default=None)


class Classification(Task[ClassPrediction, Metrics]):
    """Texts with one label, or with several if the labels have a separator."""

    name = "classify"
    heads: ClassVar[Mapping[str, type[Head]]] = {"pool": PoolHead, "bilstm": BilstmHead, "linear": LinearHead}
    part = Part("per_class", "class", ("precision", "recall", "f1", "rows"))
    shown: ClassVar[tuple[str, ...]] = ("macro_f1", "macro_precision", "macro_recall")
    classifies_texts = True

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        """Texts and class numbers; of several labels, ones and zeros."""
        known, split = list(rows), LabelConfig(label_separator=labels.separator).split
        answers = [split(row.label or "") for row in known]
        counts = Counter(name for answer in answers for name in answer)
        notes: tuple[str, ...] = ()
        if not labels.names:
            labels = replace(labels, names=_check_classes(counts, known))
            if single := sorted(name for name, count in counts.items() if count == 1):
                notes = (f"Labels with a single row, which cannot be held out: {shorten(single)}.",)
        unknown = tuple(sorted(counts.keys() - {*labels.names}))
        numbers = {name: number for number, name in enumerate((*labels.names, *unknown))}
        if labels.separator:
            targets = np.zeros((len(known), len(numbers)), dtype=np.float32)
            for target, answer in zip(targets, answers, strict=True):
                target[[numbers[name] for name in answer]] = 1.0
        else:
            targets = np.array([numbers[name] for (name,) in answers], dtype=np.int64)
        return Examples([(row.text,) for row in known], targets, labels, unknown, notes=notes)

    def loss(self, output: Tensor, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """Cross-entropy; with several labels, the mean over the classes."""
        expected = torch.from_numpy(targets)
        if expected.ndim == 1:
            return F.cross_entropy(output, expected, reduction="none", label_smoothing=smoothing)
        soft = expected.float() * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(output, soft, reduction="none").mean(dim=1)

    def decode(
        self,
        output: Tensor,
        masks: Sequence[Tensor],
        labels: Labels,
        inputs: Sequence[Inputs] | None = None,
    ) -> list[ClassPrediction]:
        """Softmax; with several labels, a sigmoid for each."""
        shares = torch.sigmoid(output) if labels.separator else torch.softmax(output, dim=1)
        return [ClassPrediction(labels=labels, probabilities=row) for row in shares.numpy()]

    def measure(self, examples: Examples, predictions: Sequence[ClassPrediction]) -> Metrics:
        """Accuracy and its relatives; with several labels, F1 and its relatives."""
        names, unknown, true = examples.labels.names, examples.unknown, examples.targets
        probabilities = np.stack([prediction.probabilities for prediction in predictions])
        calibrated = all(prediction.calibrated for prediction in predictions)
        if examples.labels.separator:
            return MultilabelMetrics(names, unknown, probabilities, true, calibrated)
        texts = join_texts(examples.inputs)
        return ClassificationMetrics(names, unknown, probabilities, true, calibrated, texts)

    def columns(self, prediction: ClassPrediction) -> dict[str, Any]:
        """The label, its probability, and the probability of each class; of an SVM, scores instead."""
        shares = dict(zip(prediction.labels.names, prediction.probabilities.tolist(), strict=True))
        one, each = ("probability", "probabilities") if prediction.calibrated else ("score", "scores")
        return {"prediction": prediction.label, one: prediction.probability, each: shares}

    def sections(self, metrics: Mapping[str, Metrics]) -> list[Section]:
        """Confusion matrices, scores by class and, of the last split, calibration and mistakes."""
        single = {split: one for split, one in metrics.items() if isinstance(one, ClassificationMetrics)}
        if not single:
            return [self._classes_section(metrics)]
        split, last = [*single.items()][-1]
        further = [_calibration_section(split, last)] if last.calibrated else []
        if mistakes := last.mistakes():
            further.append(_mistakes_section(mistakes))
        return [_confusion_section(single), self._classes_section(metrics), *further]

    def _classes_section(self, metrics: Mapping[str, Metrics]) -> Section:
        lines = ["In percent."]
        for split, one in metrics.items():
            if one.unseen:
                names = join_names((f"{name} ({n:,})" for name, n in one.unseen.items()), at_most=10)
                lines.append(f"- Labels of {split} rows that training never saw, counted as wrong: {names}.")
        many = any(len(one.classes) > MAX_MATRIX for one in metrics.values())
        table = self.part.table(metrics, searchable=many)
        return Section("classes", "Scores by class", "\n\n".join(lines), (table,))


class OwnClassification(Classification):
    """Classification with a head or a mix of the user's."""

    def __init__(self, head: type[nn.Module] | None = None, mix: type[nn.Module] | None = None) -> None:
        own: dict[str, Any] = {head.__name__: head} if head else {}
        self.heads = {**Classification.heads, **own}  # type: ignore[misc]
        self.own_mix = mix
        self.own_parts = {name: part.__name__ for name, part in (("head", head), ("mix", mix)) if part}

    def loss(self, output: Tensor, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """As for the heads of elmokit, after a look at the shape of the scores."""
        if output.ndim != 2 or len(output) != len(targets):
            raise ConfigError(
                f"For {len(targets)} texts, the head gave scores of shape {tuple(output.shape)}.",
                remedy="Return a tensor (batch, n_classes) from its forward.",
            )
        return super().loss(output, targets, smoothing=smoothing)


def _confusion_section(metrics: Mapping[str, ClassificationMetrics]) -> Section:
    *others, main = metrics
    names, classes, tables = metrics[main].names, metrics[main].classes, list[Table]()
    for split in (main, *others) if len(names) <= MAX_MATRIX else ():
        one, name = metrics[split], f"confusion_{split}"
        table = one.confusion.tolist(), one.names, classes, split
        tables.append(make_confusion_table(*table, folded=split != main, picture=name))
    if len(classes) > _FEW_CLASSES and (pairs := metrics[main].confusions):
        tables.append(make_pairs_table(pairs, f"Most common confusions ({main})", 10 if tables else 50))
    text = "Rows are true classes, columns are predicted ones. The shade is the share of the row."
    if len(names) > MAX_MATRIX:
        text = f"{len(classes):,} classes are too many for a matrix."
    return Section("confusion", "Confusion matrix", text, tuple(tables))


def _calibration_section(split: str, metrics: ClassificationMetrics) -> Section:
    figure = draw_reliability(metrics.bins, caption=f"{split}: ECE {percent(metrics.values['ece'])}%")
    text = (
        "A bar shows how many predictions of about that probability are right, a dot their mean probability, "
        "a number how many there are. On the dashed line, probability and share agree; below it, the model "
        "is overconfident. ECE is the mean distance from the line."
    )
    return Section("calibration", "Calibration", text, (figure,))


def _mistakes_section(mistakes: Sequence[Mistake]) -> Section:
    rows = []
    for entry in mistakes:
        sides = (entry.true, entry.probability_true), (entry.predicted, entry.probability)
        cells = [Cell(name, note="" if share is None else f"{share:.1%}") for name, share in sides]
        rows.append([*cells, Cell(entry.text)])
    table = make_table([Column("True"), Column("Predicted"), Column("Text")], rows)
    what = "score" if mistakes[0].probability is None else "probability"
    text = f"Wrong predictions with the highest {what} first. Some may be wrong labels in the data."
    return Section("mistakes", "Most confident mistakes", text, (table,))


def check_finite(values: npt.NDArray[Any], what: str) -> None:
    """Refuse values of a model that are not finite numbers."""
    if not np.isfinite(values).all():
        raise ModelError(
            f"The model gives {what} that are not finite numbers.",
            remedy="Its weights are damaged, or its training failed; take a fresh copy, or fit it again.",
        )


def _check_classes(counts: Counter[str], rows: Sequence[Row]) -> tuple[str, ...]:
    """The classes, sorted; fewer than two, or far too many, are refused."""
    place = rows[0].place if rows else ""
    if len(counts) < 2:
        raise DataError(
            f"{place}: all {len(rows):,} rows have the label {next(iter(counts))!r}."
            if counts
            else f"{place}: no row has a label.",
            remedy="A classifier needs rows of at least two classes; check --label-column.",
        )
    if len(counts) > _MAX_CLASSES and len(counts) * 2 > len(rows):
        raise DataError(
            f"{place}: the {len(rows):,} rows have {len(counts):,} different labels.",
            remedy="That looks like a column of texts or numbers; check --label-column.",
        )
    return tuple(sorted(counts))


def shorten(names: Sequence[str]) -> str:
    """The first names, each cut if it is long."""
    text = ", ".join(name if len(name) < 40 else f"{name[:39]}…" for name in names[:8])
    return text + (f", … and {len(names) - 8} more" if len(names) > 8 else "")
