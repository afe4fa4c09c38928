"""Scores of class predictions: accuracy, precision, recall, F1, log loss, calibration, worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

MAX_MATRIX = 50  # labels; more have a list of confusions instead of a matrix
_N_BINS = 10
_MAX_CHARACTERS = 400  # of a mistake's text


@dataclass(frozen=True, slots=True)
class ClassScore:
    """The scores of one class; ``support`` is how many rows have it."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction; ``probability_true`` is None for a label that training never saw, and both are None
    for scores that are not probabilities."""

    text: str
    true: str
    predicted: str
    probability: float | None
    probability_true: float | None


@dataclass(frozen=True, eq=False)
class ClassMetrics:
    """What the metrics of one and of several labels a row share.

    Attributes:
        classes: Names, in the order of the columns of ``probabilities``.
        unknown: True labels that training never saw; they count as wrong.
        probabilities: (n, n_classes).
        true: Label numbers (n,), or ones and zeros (n, n_classes); classes first, then ``unknown``.
        calibrated: False if ``probabilities`` only order the classes.
    """

    classes: tuple[str, ...]
    unknown: tuple[str, ...]
    probabilities: npt.NDArray[np.floating[Any]]
    true: npt.NDArray[Any]
    calibrated: bool = True
    main: ClassVar[str]
    averages: ClassVar[tuple[str, ...]]

    @property
    def n(self) -> int:
        """Rows measured."""
        return len(self.probabilities)

    @cached_property
    def predicted(self) -> npt.NDArray[Any]:
        """In the form of ``true``: the most probable class, or all classes above a half."""
        if self.true.ndim == 1:
            return np.asarray(self.probabilities.argmax(axis=1))
        return np.pad(self.probabilities > 0.5, ((0, 0), (0, len(self.unknown))))

    @property
    def accuracy(self) -> float:
        """Share of rows with exactly the right labels."""
        return float((self.predicted == self.true).reshape(self.n, -1).all(axis=1).mean())

    @property
    def names(self) -> tuple[str, ...]:
        """All labels: the classes, then the unknown ones."""
        return (*self.classes, *self.unknown)

    @cached_property
    def _by_label(self) -> list[ClassScore]:
        *shares, support = self._scores(labels=range(len(self.names)))  # numbers of rows as floats at times
        columns = (column.tolist() for column in (*shares, support.astype(int)))
        return list(map(ClassScore, self.names, *columns))

    @property
    def per_class(self) -> list[ClassScore]:
        """The scores of each class."""
        return self._by_label[: len(self.classes)]

    @property
    def unseen(self) -> dict[str, int]:
        """Rows with each label that training never saw."""
        return {entry.name: entry.support for entry in self._by_label[len(self.classes) :]}

    def average(self, kind: str) -> dict[str, float]:
        """Precision, recall and F1 over all classes: "macro" counts them alike, "weighted" by their rows."""
        precision, recall, f1, _ = self._scores(average=kind)
        return {"precision": float(precision), "recall": float(recall), "f1": float(f1)}

    def _scores(self, **options: Any) -> Any:
        from sklearn.metrics import precision_recall_fscore_support

        tables = [self.true, self.predicted]
        if self.true.ndim == 2:
            # As integers, and never a single column: scikit-learn would take that for one label a row.
            tables = [np.pad(table, ((0, 0), (0, 1))).astype(int) for table in tables]
            options = {"labels": range(len(self.names)), **options}
        return precision_recall_fscore_support(*tables, zero_division=0, **options)

    def losses(self) -> dict[str, float | None]:
        """Scores of which lower ones are better."""
        raise NotImplementedError

    @cached_property
    def values(self) -> Mapping[str, float]:
        """All scores by name, the main one first; without what is None."""
        scores: dict[str, float | None] = {"accuracy": self.accuracy, **self.losses()}
        for kind in self.averages:
            scores |= {f"{kind}_{name}": score for name, score in self.average(kind).items()}
        names = (self.main, "macro_f1", *scores)
        return {name: score for name in names if (score := scores[name]) is not None}

    def to_json(self) -> dict[str, Any]:
        """With the keys of 0.1."""
        return {
            "n": self.n,
            "accuracy": self.accuracy,
            **{kind: self.average(kind) for kind in self.averages},
            "per_class": [asdict(entry) for entry in self.per_class],
            "unseen": self.unseen,
        }


@dataclass(frozen=True, eq=False)
class ClassificationMetrics(ClassMetrics):
    """Metrics for one label a row; ``texts`` are for the list of mistakes."""

    texts: Sequence[str] = ()
    main = "accuracy"
    averages = ("macro", "weighted")

    @cached_property
    def row_stats(self) -> npt.NDArray[np.float64]:
        """Right predictions and rows, (n, 2)."""
        return np.stack([self.predicted == self.true, np.ones(self.n)], axis=1)

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """Accuracy."""
        return float(sums[0] / sums[1])

    @property
    def confusion(self) -> npt.NDArray[np.int64]:
        """Rows by true and predicted label, (n_classes + n_unknown, n_classes)."""
        table = np.zeros((len(self.names), len(self.classes)), dtype=np.int64)
        np.add.at(table, (self.true, self.predicted), 1)
        return table

    @property
    def confusions(self) -> list[tuple[str, str, int, int]]:
        """True and predicted label of wrong predictions, rows, rows of the true label; most rows first."""
        labels = np.stack([self.true, self.predicted])[:, self.predicted != self.true]
        pairs, counts = np.unique(labels, axis=1, return_counts=True)
        names, rows = self.names, np.bincount(self.true, minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")
        return [
            (names[true], names[wrong], n, int(rows[true]))
            for true, wrong, n in zip(*pairs[:, order].tolist(), counts[order].tolist(), strict=True)
        ]

    def losses(self) -> dict[str, float | None]:
        """Expected calibration error and log loss: of calibrated probabilities, and of known labels."""
        if not self.calibrated:
            return {"ece": None, "log_loss": None}
        ece = sum(n / self.n * abs(right - sure) for n, sure, right in self.bins if n)
        known = np.flatnonzero(self.true < len(self.classes))
        chances = self.probabilities[known, self.true[known]].clip(np.finfo(self.probabilities.dtype).eps, 1)
        return {
            "ece": ece,
            "log_loss": float(-np.log(chances).mean(dtype=np.float64)) if len(known) else None,
        }

    @cached_property
    def bins(self) -> list[tuple[int, float, float]]:
        """Of each tenth of all probabilities: predictions, their mean probability, share of right ones."""
        sure, right = self.probabilities.max(axis=1), self.predicted == self.true
        places, bins = np.minimum((sure * _N_BINS).astype(int), _N_BINS - 1), []
        for rows in (np.flatnonzero(places == place) for place in range(_N_BINS)):
            means = [values[rows].mean(dtype=float) if len(rows) else 0.0 for values in (sure, right)]
            bins.append((len(rows), float(means[0]), float(means[1])))
        return bins

    def mistakes(self, n: int = 20) -> list[Mistake]:
        """The wrong predictions with the highest probability, highest first."""
        wrong, sure = np.flatnonzero(self.predicted != self.true), self.probabilities.max(axis=1)
        mistakes = []
        for row in wrong[np.argsort(-sure[wrong], kind="stable")][:n].tolist():
            true, text = int(self.true[row]), self.texts[row]
            chances = [
                float(sure[row]),
                float(self.probabilities[row, true]) if true < len(self.classes) else None,
            ]
            if len(text) > _MAX_CHARACTERS:
                text = f"{text[:_MAX_CHARACTERS].rstrip()} …"
            names = self.names[true], self.names[self.predicted[row]]
            mistakes.append(Mistake(text, *names, *(chances if self.calibrated else (None, None))))
        return mistakes

    def to_json(self) -> dict[str, Any]:
        """With the keys of 0.1; of many classes ``confusions``, because a matrix grows with their square."""
        losses, bins = self.losses(), []
        matrix: dict[str, Any] = {"confusions": self.confusions}
        if len(self.names) <= MAX_MATRIX:
            matrix = {"confusion": self.confusion.tolist(), "confusion_rows": list(self.names)}
        for place, (n, sure, right) in enumerate(self.bins if self.calibrated else ()):
            means = {"confidence": sure if n else None, "accuracy": right if n else None}
            bins.append({"low": place / _N_BINS, "high": (place + 1) / _N_BINS, "n": n, **means})
        return {
            **super().to_json(),
            **matrix,
            "log_loss": losses["log_loss"],
            "calibration": {"bins": bins, "ece": losses["ece"]},
        }


@dataclass(frozen=True, eq=False)
class MultilabelMetrics(ClassMetrics):
    """Metrics for rows that may have several labels, or none."""

    main = "micro_f1"
    averages = ("micro", "macro", "weighted", "samples")

    @cached_property
    def row_stats(self) -> npt.NDArray[np.float64]:
        """Right labels, predicted labels and true labels, (n, 3)."""
        true = self.true > 0.5
        counts = [labels.sum(axis=1) for labels in (self.predicted & true, self.predicted, true)]
        return np.stack(counts, axis=1).astype(np.float64)

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """Micro F1."""
        return float(2 * sums[0] / max(1.0, sums[1] + sums[2]))

    def losses(self) -> dict[str, float | None]:
        """Hamming loss: the share of wrong yes-or-no decisions."""
        return {"hamming_loss": float((self.predicted != self.true).mean())}

    def to_json(self) -> dict[str, Any]:
        """With the keys of 0.1."""
        return {**super().to_json(), "threshold": 0.5, "subset_accuracy": self.accuracy, **self.losses()}
