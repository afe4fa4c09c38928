"""How well a classifier does, as plain values that go into JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import DataError

__all__ = ["confident_mistakes", "measure", "measure_multilabel"]

N_BINS = 10
MAX_CHARACTERS = 400


def measure(
    true: Sequence[str], predicted: Sequence[str], probabilities: npt.NDArray[Any], classes: Sequence[str]
) -> dict[str, Any]:
    """Accuracy, precision, recall, F1, confusions, log loss and calibration of one split.

    Macro and weighted averages run over the labels that occur in ``true`` or ``predicted``, as they do in
    scikit-learn when it is given no labels. A true label that is not in ``classes`` was never seen in
    training: its texts count as wrong, it has a row of its own at the end of the confusions, and
    ``unseen`` lists it. Log loss is over the other texts, since theirs would be infinite.

    Args:
        true: the right label of each text.
        predicted: the label chosen for each text, one of ``classes``.
        probabilities: a row for each text, a column for each class.
        classes: all classes, in the order of the columns.
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    place = _places(classes)
    chances = _checked(probabilities, len(true), len(classes))
    if len(predicted) != len(true):
        raise DataError(
            f"There are {len(true):,} true labels and {len(predicted):,} predicted ones.",
            remedy="Give one predicted label for each text.",
        )
    if foreign := set(predicted) - set(classes):
        raise DataError(
            f"The predicted label {min(foreign)!r} is none of the classes.",
            remedy="Give the classes that the classifier was trained on.",
        )
    unseen = Counter(sorted(label for label in true if label not in place))
    rows = [*classes, *unseen]
    row_of = {label: row for row, label in enumerate(rows)}
    facts: dict[str, Any] = {
        "n": len(true),
        "accuracy": None,
        "macro": dict.fromkeys(("precision", "recall", "f1")),
        "weighted": dict.fromkeys(("precision", "recall", "f1")),
        "per_class": [],
        "confusion": [[0] * len(classes) for _ in rows],
        "confusion_rows": rows,
        "log_loss": None,
        "calibration": {"bins": [], "ece": None},
        "unseen": dict(unseen),
    }
    if not true:
        return facts
    right = np.array([row_of[label] for label in true])
    chosen = np.array([place[label] for label in predicted])
    facts["accuracy"] = float(accuracy_score(right, chosen))
    for name in ("macro", "weighted"):
        facts[name] = _three(precision_recall_fscore_support(right, chosen, average=name, zero_division=0))
    scores = precision_recall_fscore_support(right, chosen, labels=range(len(classes)), zero_division=0)
    facts["per_class"] = _per_class(classes, scores)
    table = np.zeros((len(rows), len(classes)), dtype=np.int64)
    np.add.at(table, (right, chosen), 1)
    facts["confusion"] = table.tolist()
    known = right < len(classes)
    if known.any():
        smallest = np.finfo(chances.dtype).eps
        facts["log_loss"] = float(
            -np.log(chances[known, right[known]].clip(smallest, 1)).mean(dtype=np.float64)
        )
    facts["calibration"] = _calibration(chances.max(axis=1), right == chosen)
    return facts


def measure_multilabel(
    true: npt.NDArray[Any], probabilities: npt.NDArray[Any], classes: Sequence[str], threshold: float = 0.5
) -> dict[str, Any]:
    """The same for texts that may have several classes, or none.

    Args:
        true: a row for each text, a column for each class: whether the text has it.
        probabilities: the probability of each class, in the same shape.
        classes: all classes, in the order of the columns.
        threshold: a class is given to a text when its probability is at least this.
    """
    from sklearn.metrics import accuracy_score, hamming_loss, precision_recall_fscore_support

    _places(classes)
    has = np.asarray(true).astype(bool)
    chances = _checked(probabilities, len(has), len(classes))
    if has.shape != chances.shape:
        raise DataError(
            f"The true labels have the shape {has.shape}, the probabilities {chances.shape}.",
            remedy="Give both as one row for each text and one column for each class.",
        )
    averages = ("micro", "macro", "weighted", "samples")
    facts: dict[str, Any] = {
        "n": len(has),
        "threshold": float(threshold),
        "subset_accuracy": None,
        "hamming_loss": None,
        **{name: dict.fromkeys(("precision", "recall", "f1")) for name in averages},
        "per_class": [],
    }
    if not len(has):
        return facts
    # In whole numbers: with one class only, scikit-learn would take a column of truth values for labels.
    given, wanted = (chances > threshold).astype(int), has.astype(int)
    if len(classes) == 1:
        nothing = np.zeros_like(given)
        given, wanted = np.hstack([given, nothing]), np.hstack([wanted, nothing])
    labels = range(len(classes))
    facts["subset_accuracy"] = float(accuracy_score(wanted, given))
    facts["hamming_loss"] = float(hamming_loss(wanted, given)) * wanted.shape[1] / len(classes)
    for name in averages:
        scores = precision_recall_fscore_support(wanted, given, labels=labels, average=name, zero_division=0)
        facts[name] = _three(scores)
    scores = precision_recall_fscore_support(wanted, given, labels=labels, zero_division=0)
    facts["per_class"] = _per_class(classes, scores)
    return facts


def confident_mistakes(
    texts: Sequence[str],
    true: Sequence[str],
    predicted: Sequence[str],
    probabilities: npt.NDArray[Any],
    classes: Sequence[str],
    n: int = 20,
) -> list[dict[str, Any]]:
    """The ``n`` wrong answers the classifier was surest of, the surest first.

    Equally sure ones keep their order. ``probability_true`` is None for a label unseen in training.
    """
    place = _places(classes)
    chances = _checked(probabilities, len(texts), len(classes))
    wrong = [row for row, (right, chosen) in enumerate(zip(true, predicted, strict=True)) if right != chosen]
    wrong.sort(key=lambda row: -chances[row, place[predicted[row]]])
    return [
        {
            "text": _cut(texts[row]),
            "true": true[row],
            "predicted": predicted[row],
            "probability": float(chances[row, place[predicted[row]]]),
            "probability_true": float(chances[row, place[true[row]]]) if true[row] in place else None,
        }
        for row in wrong[:n]
    ]


def _places(classes: Sequence[str]) -> dict[str, int]:
    place = {name: column for column, name in enumerate(classes)}
    if not classes or len(place) < len(classes):
        raise DataError(
            "The list of classes is empty or names a class twice.", remedy="Name every class just once."
        )
    return place


def _checked(probabilities: npt.NDArray[Any], n_texts: int, n_classes: int) -> npt.NDArray[Any]:
    """The probabilities as floating-point numbers, with one row a text and one column a class."""
    chances = np.asarray(probabilities)
    if not np.issubdtype(chances.dtype, np.floating):
        chances = chances.astype(np.float64)
    if not n_texts and not chances.size:
        return chances.reshape(0, n_classes)
    if chances.shape != (n_texts, n_classes):
        raise DataError(
            f"The probabilities have the shape {chances.shape}, not {(n_texts, n_classes)}.",
            remedy="Give one row for each text and one column for each class.",
        )
    if not np.isfinite(chances).all():
        raise DataError(
            "Some probabilities are not numbers (nan or inf).",
            remedy="The training went astray: lower the learning rate and train again.",
        )
    return chances


def _three(scores: Any) -> dict[str, float]:
    return {name: float(score) for name, score in zip(("precision", "recall", "f1"), scores[:3], strict=True)}


def _per_class(classes: Sequence[str], scores: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, **_three(column), "support": int(column[3])}
        for name, column in zip(classes, zip(*scores, strict=True), strict=True)
    ]


def _calibration(sureness: npt.NDArray[Any], correct: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """How often answers of each sureness are right, and by how much the two differ on average (ECE)."""
    where = np.minimum((sureness * N_BINS).astype(int), N_BINS - 1)
    bins, gap = [], 0.0
    for number in range(N_BINS):
        inside = where == number
        n = int(inside.sum())
        confidence = float(sureness[inside].mean(dtype=np.float64)) if n else None
        accuracy = float(correct[inside].mean()) if n else None
        if confidence is not None and accuracy is not None:
            gap += n / len(sureness) * abs(accuracy - confidence)
        bins.append(
            {
                "low": number / N_BINS,
                "high": (number + 1) / N_BINS,
                "n": n,
                "confidence": confidence,
                "accuracy": accuracy,
            }
        )
    return {"bins": bins, "ece": gap}


def _cut(text: str) -> str:
    """The text, or its beginning up to a word's end when it is long."""
    if len(text) <= MAX_CHARACTERS:
        return text
    start = text[:MAX_CHARACTERS]
    head, _, tail = start.rpartition(" ")
    return (head if head and len(tail) < 40 else start).rstrip() + " …"
