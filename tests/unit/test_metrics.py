from __future__ import annotations

import json
import warnings

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from elmokit.core.errors import DataError
from elmokit.tasks.metrics import confident_mistakes, measure, measure_multilabel

CLASSES = ["cat", "dog", "eel"]
TRUE = ["cat", "cat", "dog", "dog", "eel"]
PREDICTED = ["cat", "dog", "dog", "dog", "cat"]
CHANCES = np.array(
    [[0.7, 0.2, 0.1], [0.4, 0.55, 0.05], [0.1, 0.8, 0.1], [0.0, 1.0, 0.0], [0.75, 0.15, 0.1]],
    dtype=np.float64,
)


def random_answers(seed: int, n: int, n_classes: int) -> tuple[list[str], list[str], npt.NDArray[np.float64]]:
    numbers = np.random.default_rng(seed)
    names = [f"class {number}" for number in range(n_classes)]
    chances = numbers.dirichlet(np.ones(n_classes), size=n)
    true = [names[number] for number in numbers.integers(0, n_classes, size=n)]
    return true, [names[number] for number in chances.argmax(axis=1)], chances


# -- one class a text -------------------------------------------------------------------------


def test_measures_agree_with_hand_arithmetic() -> None:
    facts = measure(TRUE, PREDICTED, CHANCES, CLASSES)
    assert (facts["n"], facts["accuracy"], facts["unseen"]) == (5, 3 / 5, {})
    assert facts["confusion"] == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert facts["confusion_rows"] == CLASSES
    cat, dog, eel = facts["per_class"]
    assert cat == {"name": "cat", "precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2, "support": 2}
    assert dog == {"name": "dog", "precision": pytest.approx(2 / 3), "recall": 1.0, "f1": 0.8, "support": 2}
    assert eel == {"name": "eel", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert facts["macro"]["f1"] == pytest.approx((0.5 + 0.8 + 0) / 3)
    assert facts["macro"]["recall"] == pytest.approx(1 / 2)
    assert facts["weighted"]["f1"] == pytest.approx((2 * 0.5 + 2 * 0.8) / 5)
    assert facts["weighted"]["recall"] == pytest.approx(facts["accuracy"])
    assert facts["log_loss"] == pytest.approx(-np.log([0.7, 0.4, 0.8, 1.0, 0.1]).mean())


def test_calibration_agrees_with_hand_arithmetic() -> None:
    calibration = measure(TRUE, PREDICTED, CHANCES, CLASSES)["calibration"]
    bins = calibration["bins"]
    assert [entry["n"] for entry in bins] == [0, 0, 0, 0, 0, 1, 0, 2, 1, 1]
    assert bins[7] == {
        "low": 0.7,
        "high": 0.8,
        "n": 2,
        "confidence": pytest.approx(0.725),
        "accuracy": 0.5,
    }
    assert bins[0]["confidence"] is None
    assert bins[0]["accuracy"] is None
    assert bins[9]["n"] == 1, "a probability of one belongs to the last bin"
    expected = (abs(0 - 0.55) + 2 * abs(0.5 - 0.725) + abs(1 - 0.8) + abs(1 - 1.0)) / 5
    assert calibration["ece"] == pytest.approx(expected)


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(2, 6))
def test_measures_agree_with_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    true, predicted, chances = random_answers(seed, n, n_classes)
    names = [f"class {number}" for number in range(n_classes)]
    facts = measure(true, predicted, chances, names)
    json.dumps(facts, allow_nan=False)
    assert facts["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(true, predicted))
    for average in ("macro", "weighted"):
        expected = sklearn.metrics.precision_recall_fscore_support(
            true, predicted, average=average, zero_division=0
        )
        found = facts[average]
        assert (found["precision"], found["recall"], found["f1"]) == pytest.approx(expected[:3])
    expected = sklearn.metrics.precision_recall_fscore_support(true, predicted, labels=names, zero_division=0)
    assert [entry["f1"] for entry in facts["per_class"]] == pytest.approx(expected[2].tolist())
    assert [entry["support"] for entry in facts["per_class"]] == expected[3].tolist()
    matrix = sklearn.metrics.confusion_matrix(true, predicted, labels=names)
    assert facts["confusion"] == matrix.tolist()
    assert facts["log_loss"] == pytest.approx(sklearn.metrics.log_loss(true, chances, labels=names))
    assert sum(entry["n"] for entry in facts["calibration"]["bins"]) == n
    assert 0 <= facts["calibration"]["ece"] <= 1


def test_labels_unseen_in_training_count_as_wrong_and_get_rows_of_their_own() -> None:
    true = ["cat", "yak", "ant", "yak"]
    predicted = ["cat", "cat", "dog", "eel"]
    chances = np.full((4, 3), 1 / 3)
    facts = measure(true, predicted, chances, CLASSES)
    assert facts["unseen"] == {"ant": 1, "yak": 2}
    assert facts["accuracy"] == 1 / 4
    assert facts["confusion_rows"] == ["cat", "dog", "eel", "ant", "yak"]
    assert facts["confusion"] == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert facts["per_class"][0]["precision"] == 1 / 2
    assert facts["macro"]["recall"] == pytest.approx(1 / 5), "unseen labels are never found"
    assert facts["weighted"]["recall"] == facts["accuracy"]
    assert facts["log_loss"] == pytest.approx(np.log(3)), "only of the one known label"
    only = measure(["yak"], ["cat"], np.full((1, 3), 1 / 3), CLASSES)
    assert only["log_loss"] is None
    json.dumps(only, allow_nan=False)


def test_a_class_that_neither_occurs_nor_is_predicted_does_not_lower_the_averages() -> None:
    facts = measure(["dog", "dog"], ["dog", "dog"], CHANCES[2:4], CLASSES)
    assert facts["macro"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert [entry["support"] for entry in facts["per_class"]] == [0, 2, 0]


def test_a_split_without_texts_has_no_figures() -> None:
    for empty in (np.zeros((0, 3)), np.array([])):
        facts = measure([], [], empty, CLASSES)
        assert facts["n"] == 0
        assert facts["accuracy"] is facts["log_loss"] is facts["macro"]["f1"] is None
        json.dumps(facts, allow_nan=False)


def test_a_single_class_is_measured_too() -> None:
    facts = measure(["cat", "cat"], ["cat", "cat"], np.ones((2, 1)), ["cat"])
    assert facts["accuracy"] == facts["macro"]["f1"] == 1.0
    assert facts["log_loss"] == pytest.approx(0)


def test_a_true_class_of_probability_nought_has_a_finite_loss_and_no_warning_is_given() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = measure(["cat"], ["dog"], np.array([[0.0, 1.0, 0.0]], dtype=np.float32), CLASSES)
    assert facts["log_loss"] == pytest.approx(-np.log(np.finfo(np.float32).eps), rel=1e-6)


@pytest.mark.parametrize(
    ("true", "predicted", "chances", "classes", "message"),
    [
        (["cat"], ["cat"], np.ones((1, 2)), CLASSES, "shape"),
        (["cat"], ["cat", "dog"], np.ones((1, 3)), CLASSES, "predicted ones"),
        (["cat"], ["fox"], np.ones((1, 3)), CLASSES, "'fox' is none of the classes"),
        (["cat"], ["cat"], np.full((1, 3), np.nan), CLASSES, "not numbers"),
        (["cat"], ["cat"], np.ones((1, 2)), ["cat", "cat"], "twice"),
        ([], [], np.ones((0, 0)), [], "empty"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    true: list[str], predicted: list[str], chances: npt.NDArray[np.float64], classes: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        measure(true, predicted, chances, classes)
    assert caught.value.remedy


# -- several classes a text -------------------------------------------------------------------


def test_measures_of_several_classes_agree_with_hand_arithmetic() -> None:
    true = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=bool)
    chances = np.array([[0.9, 0.6, 0.51], [0.1, 0.8, 0.2], [0.3, 0.2, 0.1]])
    facts = measure_multilabel(true, chances, CLASSES)
    assert facts["subset_accuracy"] == pytest.approx(2 / 3)
    assert facts["hamming_loss"] == pytest.approx(1 / 9)
    assert facts["micro"] == {"precision": 3 / 4, "recall": 1.0, "f1": pytest.approx(6 / 7)}
    assert facts["macro"]["precision"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert facts["weighted"]["precision"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert facts["samples"]["precision"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert [entry["support"] for entry in facts["per_class"]] == [1, 1, 1]
    assert measure_multilabel(true, chances, CLASSES, threshold=0.55)["micro"]["recall"] == pytest.approx(
        2 / 3
    )


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 5))
def test_measures_of_several_classes_agree_with_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    numbers = np.random.default_rng(seed)
    true, chances = numbers.random((n, n_classes)) < 0.3, numbers.random((n, n_classes))
    facts = measure_multilabel(true, chances, [f"class {number}" for number in range(n_classes)])
    json.dumps(facts, allow_nan=False)
    chosen = chances >= 0.5
    assert facts["subset_accuracy"] == pytest.approx((true == chosen).all(axis=1).mean())
    assert facts["hamming_loss"] == pytest.approx((true != chosen).mean())
    for column, entry in enumerate(facts["per_class"]):
        one = sklearn.metrics.precision_recall_fscore_support(
            true[:, column], chosen[:, column], average="binary", pos_label=True, zero_division=0
        )
        assert (entry["precision"], entry["recall"], entry["f1"]) == pytest.approx(one[:3])
        assert entry["support"] == true[:, column].sum()
    assert facts["macro"]["f1"] == pytest.approx(np.mean([entry["f1"] for entry in facts["per_class"]]))
    if n_classes > 1:
        for average in ("micro", "weighted", "samples"):
            expected = sklearn.metrics.f1_score(true, chosen, average=average, zero_division=0)
            assert facts[average]["f1"] == pytest.approx(expected)


def test_no_texts_and_shapes_that_do_not_fit_with_several_classes() -> None:
    facts = measure_multilabel(np.zeros((0, 3)), np.zeros((0, 3)), CLASSES)
    assert (facts["n"], facts["subset_accuracy"], facts["per_class"]) == (0, None, [])
    with pytest.raises(DataError, match="shape"):
        measure_multilabel(np.zeros((2, 2)), np.zeros((2, 3)), CLASSES)


# -- mistakes ---------------------------------------------------------------------------------


def test_the_surest_mistakes_come_first_and_equals_keep_their_order() -> None:
    texts = ["right", "first", "surest", "second", "unknown"]
    true = ["cat", "dog", "eel", "eel", "yak"]
    predicted = ["cat", "cat", "cat", "dog", "cat"]
    chances = np.array([[0.9, 0.1, 0], [0.6, 0.3, 0.1], [0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.5, 0.3, 0.2]])
    found = confident_mistakes(texts, true, predicted, chances, CLASSES)
    assert [entry["text"] for entry in found] == ["surest", "first", "second", "unknown"]
    assert found[0] == {
        "text": "surest",
        "true": "eel",
        "predicted": "cat",
        "probability": 0.8,
        "probability_true": 0.1,
    }
    assert found[3]["probability_true"] is None
    assert len(confident_mistakes(texts, true, predicted, chances, CLASSES, n=2)) == 2
    assert confident_mistakes([], [], [], np.zeros((0, 3)), CLASSES) == []


@pytest.mark.parametrize(("text", "length"), [("word " * 200, 401), ("x" * 900, 402), ("short", 5)])
def test_long_texts_are_cut_at_a_word(text: str, length: int) -> None:
    (found,) = confident_mistakes([text], ["cat"], ["dog"], np.array([[0.1, 0.9, 0]]), CLASSES)
    assert len(found["text"]) == length
    assert found["text"].endswith("…") == (len(text) > 400)
