"""Scores of class predictions, against scikit-learn and hand arithmetic."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.core.errors import ModelError
from elmokit.tasks.classification import Classification, ClassPrediction
from elmokit.tasks.metrics import ClassificationMetrics, Mistake, MultilabelMetrics
from elmokit.tasks.task import Examples, Labels
from elmokit.text.rows import Row

CLASSES = ("cat", "dog", "eel")
TRUE = ["cat", "cat", "dog", "dog", "eel"]
CHANCES = np.array([[0.7, 0.2, 0.1], [0.4, 0.55, 0.05], [0.1, 0.8, 0.1], [0.0, 1.0, 0.0], [0.75, 0.15, 0.1]])
Array = npt.NDArray[np.floating]


def measure(
    true: Sequence[str],
    chances: Array,
    classes: tuple[str, ...] = CLASSES,
    texts: Sequence[str] = (),
    calibrated: bool = True,
) -> ClassificationMetrics:
    """Through the task itself."""
    texts = texts or ["a text"] * len(true)
    rows = [Row("", text, label) for text, label in zip(texts, true, strict=True)]
    labels, task = Labels(classes), Classification()
    predictions = [
        ClassPrediction(labels=labels, probabilities=row, calibrated=calibrated) for row in chances
    ]
    metrics = task.measure(task.read(rows, labels), predictions)
    assert isinstance(metrics, ClassificationMetrics)
    return metrics


def measure_several(true: npt.ArrayLike, chances: Array, classes: tuple[str, ...]) -> MultilabelMetrics:
    labels = Labels(classes, "|")
    wanted = np.asarray(true, dtype=np.float32)
    examples = Examples([("a text",)] * len(wanted), wanted, labels)
    predictions = [ClassPrediction(labels=labels, probabilities=row) for row in chances]
    metrics = Classification().measure(examples, predictions)
    assert isinstance(metrics, MultilabelMetrics)
    return metrics


# -- one class a text -------------------------------------------------------------------------


def test_calibration_agrees_with_hand_arithmetic() -> None:
    metrics = measure(TRUE, CHANCES)
    calibration = metrics.to_json()["calibration"]
    bins = [[*entry.values()] for entry in calibration["bins"]]
    assert [n for _, _, n, *_ in bins] == [0, 0, 0, 0, 0, 1, 0, 2, 1, 1]  # one belongs to the last bin
    assert bins[7] == pytest.approx([0.7, 0.8, 2, 0.725, 0.5])
    assert bins[0] == [0.0, 0.1, 0, None, None]
    expected = (abs(0 - 0.55) + 2 * abs(0.5 - 0.725) + abs(1 - 0.8) + abs(1 - 1.0)) / 5
    assert metrics.values["ece"] == calibration["ece"] == pytest.approx(expected)


def test_scores_that_are_no_probabilities_have_neither_loss_nor_calibration() -> None:
    metrics = measure(TRUE, CHANCES, calibrated=False)
    assert not {"log_loss", "ece"} & set(metrics.values)
    facts = json.loads(json.dumps(metrics.to_json(), allow_nan=False))
    assert (facts["log_loss"], facts["calibration"]) == (None, {"bins": [], "ece": None})


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(2, 6))
def test_scores_agree_with_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    numbers = np.random.default_rng(seed)
    names = tuple(f"class {number}" for number in range(n_classes))
    chances = numbers.dirichlet(np.ones(n_classes), size=n)
    true = [names[number] for number in numbers.integers(0, n_classes, size=n)]
    predicted = [names[number] for number in chances.argmax(axis=1)]
    metrics = measure(true, chances, names)
    assert list(metrics.values)[:2] == ["accuracy", "macro_f1"]
    facts = metrics.to_json()
    json.dumps(facts, allow_nan=False)
    assert metrics.accuracy == pytest.approx(sklearn.metrics.accuracy_score(true, predicted))
    for average in ("macro", "weighted"):
        expected = sklearn.metrics.precision_recall_fscore_support(
            true, predicted, average=average, zero_division=0
        )
        assert tuple(facts[average].values()) == pytest.approx(expected[:3])
    expected = sklearn.metrics.precision_recall_fscore_support(true, predicted, labels=names, zero_division=0)
    assert [entry.f1 for entry in metrics.per_class] == pytest.approx(expected[2].tolist())
    assert [entry.support for entry in metrics.per_class] == expected[3].tolist()
    assert facts["confusion"] == sklearn.metrics.confusion_matrix(true, predicted, labels=names).tolist()
    assert metrics.values["log_loss"] == pytest.approx(sklearn.metrics.log_loss(true, chances, labels=names))
    assert metrics.score(metrics.row_stats.sum(axis=0)) == pytest.approx(metrics.values[metrics.main])


def test_labels_unseen_in_training_count_as_wrong_and_get_rows_of_their_own() -> None:
    chances = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]])
    metrics = measure(["cat", "yak", "ant", "yak"], chances)
    assert metrics.unseen == {"ant": 1, "yak": 2}
    assert metrics.accuracy == 1 / 4
    assert metrics.to_json()["confusion_rows"] == ["cat", "dog", "eel", "ant", "yak"]
    assert metrics.confusion.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert metrics.per_class[0].precision == 1 / 2
    assert metrics.values["macro_recall"] == pytest.approx(1 / 5), "unseen labels are never found"
    assert metrics.values["log_loss"] == pytest.approx(-np.log(0.5)), "only of the one known label"
    assert "log_loss" not in measure(["yak"], chances[:1]).values


def test_classes_that_do_not_occur_and_probabilities_of_zero_do_no_harm() -> None:
    metrics = measure(["dog", "dog"], CHANCES[2:4])
    assert metrics.average("macro") == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert [entry.support for entry in metrics.per_class] == [0, 2, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = measure(["cat"], np.array([[0.0, 1.0, 0.0]], dtype=np.float32))
        assert metrics.values["log_loss"] == pytest.approx(-np.log(np.finfo(np.float32).eps), rel=1e-6)


def test_probabilities_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="not finite numbers") as caught:
        measure(["cat"], np.full((1, 3), np.nan))
    assert caught.value.remedy


# -- several classes a text -------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 5))
def test_scores_of_several_classes_agree_with_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    numbers = np.random.default_rng(seed)
    true, chances = numbers.random((n, n_classes)) < 0.3, numbers.random((n, n_classes)).round(1)
    metrics = measure_several(true, chances, tuple(f"class {number}" for number in range(n_classes)))
    json.dumps(metrics.to_json(), allow_nan=False)
    chosen = chances > 0.5  # more than, not at least
    assert metrics.accuracy == pytest.approx((true == chosen).all(axis=1).mean())
    assert metrics.values["hamming_loss"] == pytest.approx((true != chosen).mean())
    for column, entry in enumerate(metrics.per_class):
        one = sklearn.metrics.precision_recall_fscore_support(
            true[:, column], chosen[:, column], average="binary", pos_label=True, zero_division=0
        )
        assert (entry.precision, entry.recall, entry.f1) == pytest.approx(one[:3])
        assert entry.support == true[:, column].sum()
    assert metrics.values["macro_f1"] == pytest.approx(np.mean([entry.f1 for entry in metrics.per_class]))
    if n_classes > 1:
        for average in ("micro", "weighted", "samples"):
            expected = sklearn.metrics.f1_score(true, chosen, average=average, zero_division=0)
            assert metrics.values[f"{average}_f1"] == pytest.approx(expected)
    assert metrics.score(metrics.row_stats.sum(axis=0)) == pytest.approx(metrics.values[metrics.main])


# -- mistakes ---------------------------------------------------------------------------------


def test_the_surest_mistakes_come_first_and_equals_keep_their_order() -> None:
    texts = ["right", "first", "surest", "second", "unknown"]
    chances = np.array([[0.9, 0.1, 0], [0.6, 0.3, 0.1], [0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.5, 0.3, 0.2]])
    metrics = measure(["cat", "dog", "eel", "eel", "yak"], chances, texts=texts)
    mistakes = metrics.mistakes()
    assert [entry.text for entry in mistakes] == ["surest", "first", "second", "unknown"]
    assert mistakes[0] == Mistake("surest", "eel", "cat", 0.8, 0.1)
    assert mistakes[3].probability_true is None
    assert len(metrics.mistakes(2)) == 2
    (long,) = measure(["cat"], np.array([[0.1, 0.9, 0]]), texts=["x" * 900]).mistakes()
    assert (len(long.text), long.text[-1]) == (402, "…")


def test_rows_are_whole_numbers_where_no_prediction_is_right() -> None:
    metrics = measure(["cat", "dog"], np.array([[0.1, 0.9, 0.0], [0.9, 0.1, 0.0]]))
    assert metrics.accuracy == 0
    assert all(type(entry.support) is int for entry in metrics.per_class)
