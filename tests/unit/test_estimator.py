"""``TextClassifier`` among scikit-learn's tools: what they ask of an estimator, and what it keeps."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

import topics
from elmokit.core.errors import ConfigError, DataError
from elmokit.tasks.estimator import ElmoVectorizer, TextClassifier
from elmokit.tasks.fit import hold_out
from elmokit.tasks.model import TaskModel
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels
from elmokit.tasks.trainer import fit_task
from topics import OTHERS, TOPICS

WORDS = list(TOPICS.values())
DIRECT = ("epochs", "lr", "head_dim", "dropout_head", "dropout_word", "label_smoothing")
EASY: dict[str, Any] = {name: topics.EASY[name] for name in DIRECT}
EASY["options"] = {name: value for name, value in topics.EASY.items() if name not in DIRECT}


def rows(labels: list[Any], n: int, seed: int = 0) -> tuple[list[str], list[Any]]:
    """Texts told apart by words of their topic, the labels taking turns."""
    rng = random.Random(seed)
    texts, found = [], []
    for number in range(n):
        place = number % len(labels)
        words = [*rng.choices(OTHERS, k=rng.randint(1, 4)), *rng.choices(WORDS[place], k=2)]
        texts.append(" ".join(rng.sample(words, len(words))))
        found.append(labels[place])
    return texts, found


@pytest.fixture(scope="module")
def fitted(encoder: Path) -> TextClassifier:
    return TextClassifier(encoder, **EASY).fit(*rows(["money", "sport", "weather"], 90))


NEW, NEW_LABELS = rows(["money", "sport", "weather"], 30, seed=1)


# -- what scikit-learn asks for ---------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_estimators_unfitted",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
@pytest.mark.parametrize("made", [TextClassifier(), ElmoVectorizer()], ids=["classifier", "vectorizer"])
def test_checks_of_scikit_learn_that_need_no_numbers_pass(check: str, made: Any) -> None:
    if not hasattr(estimator_checks, check):
        pytest.skip("this scikit-learn has no such check")
    getattr(estimator_checks, check)(type(made).__name__, made)


def test_parameters_are_settings_and_options_win_over_them() -> None:
    assert TextClassifier(head="auto").config() == ClassifierConfig()
    assert TextClassifier(lr=0.1, options={"lr": 0.2, "max_words": 7}).config().fit.lr == 0.2
    assert TextClassifier(class_weight="balanced").config().fit.class_weights == "balanced"
    assert is_classifier(TextClassifier())


def test_fitting_changes_no_parameter_and_returns_itself(encoder: Path) -> None:
    made = TextClassifier(encoder, **{**EASY, "epochs": 1})
    before = {name: repr(value) for name, value in made.get_params().items()}
    assert made.fit(*rows(["a", "b"], 20)) is made
    assert {name: repr(value) for name, value in made.get_params().items()} == before
    learnt = {name for name in vars(made) if name not in before}
    assert learnt == {"classes_", "history_", "model_"}
    check_is_fitted(made)


def test_pipeline_cross_validation_and_grid_search_work(encoder: Path) -> None:
    texts, labels = rows(["money", "sport"], 60)
    loud = [text.upper() for text in texts]
    lower = FunctionTransformer(lambda some: [text.lower() for text in some])
    classifier = TextClassifier(encoder, **{**EASY, "mix": "function"})
    pipeline = Pipeline([("lower", lower), ("elmo", classifier)])
    scores = cross_val_score(pipeline, loud, labels, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() >= 0.95
    search = GridSearchCV(pipeline, {"elmo__lr": [1e-7, 0.03]}, cv=2, error_score="raise").fit(loud, labels)
    assert search.best_params_ == {"elmo__lr": 0.03}
    assert search.score(loud, labels) >= 0.95
    assert list(search.classes_) == ["money", "sport"]


def test_a_fitted_estimator_goes_through_joblib(fitted: TextClassifier, tmp_path: Path) -> None:
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    found = joblib.load(tmp_path / "fitted.joblib")
    assert np.array_equal(found.predict_proba(NEW), fitted.predict_proba(NEW))
    assert found.get_params() == fitted.get_params()
    assert found.history_ == fitted.history_


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [["pos", "neg"], [7, -1, 3], [True, False], list(np.array([10, 30, 20], dtype=np.int16)), [2.0, 1.0]],
    ids=["strings", "integers", "booleans", "numpy integers", "floats"],
)
def test_labels_of_any_type_come_back_as_they_were(encoder: Path, labels: list[Any]) -> None:
    settings = {**EASY, "mix": "function", "epochs": 7}
    made = TextClassifier(encoder, **settings).fit(*rows(labels, 25 * len(labels)))
    assert made.classes_.tolist() == sorted(np.array(labels).tolist())
    texts, wanted = rows(labels, 10 * len(labels), seed=1)
    found = made.predict(texts)
    assert found.dtype == np.asarray(labels).dtype
    assert made.score(texts, wanted) >= 0.95
    probabilities = made.predict_proba(texts)
    assert probabilities.shape == (len(texts), len(labels))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(made.classes_[probabilities.argmax(axis=1)], found)


def test_several_labels_per_text_are_ones_and_zeros(encoder: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    wanted = np.array([[rng.random() < 0.5 for _ in range(3)] for _ in range(150)]).astype(int)
    texts = [
        " ".join(rng.choice(WORDS[place] if has else OTHERS) for place, has in enumerate(row))
        for row in wanted
    ]
    settings = {**EASY, "mix": "function", "epochs": 8, "options": {**EASY["options"], "batch_words": 64}}
    made = TextClassifier(encoder, **settings).fit(texts[:120], wanted[:120])
    found = made.predict(texts[120:])
    assert found.shape == (30, 3)
    assert set(np.unique(found)) == {0, 1}
    assert made.score(texts[120:], wanted[120:]) >= 0.9  # all labels of a text right
    assert made.classes_.tolist() == [0, 1, 2]
    made.save(tmp_path / "saved")
    again = TextClassifier.load(tmp_path / "saved")
    assert again.predict(texts).tolist() == made.predict(texts).tolist()
    assert again.classes_.tolist() == [0, 1, 2]


# -- saving -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"mix": "frozen"},
        {"mix": "function", "head": "bilstm", "head_dim": 4},
        {"mix_form": "softmax", "finetune": True},
    ],
    ids=["frozen mix", "function and bilstm", "fine-tuned"],
)
def test_a_saved_estimator_gives_the_same_probabilities(
    encoder: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    made = TextClassifier(encoder, **{**EASY, "epochs": 2, **more}).fit(*rows(["a", "b", "c"], 45))
    found = made
    for _ in range(2):  # the second time over itself
        found.save(tmp_path / "saved")
        found = TextClassifier.load(tmp_path / "saved")
        assert np.array_equal(found.predict_proba(NEW), made.predict_proba(NEW))
    assert found.classes_.tolist() == ["a", "b", "c"]
    assert isinstance(made.model_, TaskModel)
    assert isinstance(found.model_, TaskModel)
    mix, theirs = made.model_.network.mix, found.model_.network.mix
    assert [p.requires_grad for p in theirs.parameters()] == [p.requires_grad for p in mix.parameters()]


def test_a_loaded_estimator_keeps_label_types_history_and_parameters(encoder: Path, tmp_path: Path) -> None:
    made = TextClassifier(encoder, **{**EASY, "mix": "function", "class_weight": "balanced"})
    made.fit(*rows([10, 9], 40))
    made.save(tmp_path / "saved")
    found = TextClassifier.load(tmp_path / "saved")
    assert found.classes_.tolist() == [9, 10]
    assert found.predict(NEW).tolist() == made.predict(NEW).tolist()
    assert found.history_ == made.history_
    assert found.config() == replace(made.config(), head=found.config().head)  # auto was resolved
    assert found.get_params()["class_weight"] == "balanced"


def test_an_interrupted_fit_is_not_taken_for_a_finished_one(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **named: Any) -> TaskModel:
        model = fit_task(*arguments, **named)
        return replace(model, record=replace(model.record, stopped="interrupted"))

    monkeypatch.setattr("elmokit.tasks.estimator.fit_task", interrupted)
    made = TextClassifier(encoder, **EASY)
    with pytest.raises(KeyboardInterrupt):
        made.fit(*rows(["a", "b"], 20))
    assert not hasattr(made, "model_")


def test_a_failed_refit_leaves_the_old_model_whole(encoder: Path) -> None:
    made = TextClassifier(encoder, **{**EASY, "epochs": 1}).fit(*rows(["a", "b"], 20))
    before, classes, history = made.predict_proba(NEW), made.classes_, made.history_
    with pytest.raises(DataError, match="no rows for validation"):
        made.fit(*rows(["x", "y", "z"], 9), valid=([], []))
    assert np.array_equal(made.predict_proba(NEW), before)
    assert made.classes_ is classes
    assert made.history_ is history


# -- the validation split ---------------------------------------------------------------------


def held(targets: Any, share: float = 0.1, seed: int = 0) -> list[int]:
    """Numbers of the rows that are held out."""
    examples = Examples([(str(place),) for place in range(len(targets))], targets, Labels())
    train, valid = hold_out(examples, share, seed)
    assert len(train) + len(valid) == len(targets)
    return [int(str(place)) for (place,) in valid.inputs]


def test_validation_rows_are_a_share_of_all_and_of_each_class_as_far_as_it_goes() -> None:
    values = np.repeat([0, 1, 2, 3], [100, 10, 2, 1])
    assert np.bincount(values[held(values, 0.2)], minlength=4).tolist() == [20, 2, 1, 0]
    assert np.bincount(values[held(values, 0.001)], minlength=4).tolist() == [1, 0, 0, 0]
    assert held(values) == held(values) != held(values, seed=1)
    assert len(held(np.repeat(np.arange(500), 2))) == 100
    assert len(held(np.zeros(2, dtype=int), 0.5)) == 1
    assert (len(held(np.ones((50, 3)))), len(held(np.ones((1, 3))))) == (5, 0)  # several labels


def test_validation_rows_can_be_given(encoder: Path) -> None:
    texts, labels = rows(["a", "b"], 40)
    good, bad = (
        TextClassifier(encoder, **EASY).fit(texts, labels, valid=(texts[:4], wanted))
        for wanted in (labels[:4], labels[1:5])
    )
    assert good.history_[-1]["accuracy"] == 1.0
    assert bad.history_[-1]["accuracy"] == 0.0


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (np.array([["a", "b"], ["c", "d"]]), ["x", "y"], "not a table"),
        (["a", "b"], ["x", "x"], "only one class"),
        ([], [], "no labels"),
        (["a", "b"], ["x"], "2 texts, but 1 labels"),
        ("a text", ["x"], "list of texts"),
        (["a", None, "b"], ["x", "y", "x"], "Text 1 is neither a string nor a list of strings, but NoneType"),
        (["a", "b"], ["x", None], "none missing"),
        (["a", "b", "c"], np.array(["x", float("nan"), "y"], dtype=object), "none missing"),
        (["a", "b", "c"], [1.0, float("nan"), 2.0], "some are missing"),
        (["a", "b", "c"], np.array(["x", 3, "y"], dtype=object), "of one type"),
        (["a", "b"], [[1, 2], [0, 1]], "ones and zeros"),
        (["a", "b"], [["x"], ["x", "y"]], "one per text"),
        (["a", "b"], ["x", "y"], "no rows for validation"),
        (["", " ", ""], ["x", "y", "x"], "contains a word"),
    ],
)
def test_bad_rows_are_refused(encoder: Path, texts: Any, labels: Any, message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        TextClassifier(encoder, **EASY).fit(texts, labels)


def test_column_of_labels_is_read_as_a_list_with_a_warning(encoder: Path) -> None:
    texts, labels = ["a good film", "a bad day"] * 10, np.array(["x", "y"] * 10)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = TextClassifier(encoder, **EASY).fit(texts, labels[:, None])
    assert fitted.classes_.tolist() == ["x", "y"]
    assert fitted.predict(texts).shape == (20,)


@pytest.mark.parametrize(
    ("labels", "valid", "message"),
    [
        (["a", "b"] * 5, (["text"], ["c"]), "'c' is not among"),
        ([2, 4] * 5, (["text"], [3]), "3.* is not among"),
        (["a", "b"] * 5, ([], []), "no rows for validation"),
        ([[0, 1], [1, 0]] * 5, (["text"], [[0, 1, 1]]), "ones and zeros"),
    ],
)
def test_bad_validation_rows_are_refused(encoder: Path, labels: Any, valid: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TextClassifier(encoder, **EASY).fit(rows(["a", "b"], 10)[0], labels, valid=valid)


@pytest.mark.parametrize("weights", [[1.0] * 9, [-1.0] * 10, [float("nan")] * 10, [0.0] * 10, [[1.0]] * 10])
def test_bad_sample_weights_are_refused(encoder: Path, weights: Any) -> None:
    with pytest.raises(DataError, match="weight"):
        TextClassifier(encoder, **EASY).fit(*rows(["a", "b"], 10), sample_weight=weights)


def test_sample_weights_decide_between_labels_that_contradict_each_other(encoder: Path) -> None:
    texts, labels = rows(["a", "b"], 40)
    other = ["b" if label == "a" else "a" for label in labels]
    weights = [1.0] * 40 + [0.0] * 40
    made = TextClassifier(encoder, **EASY)
    made.fit([*texts, *texts], [*labels, *other], sample_weight=weights, valid=(texts, labels))
    assert made.score(texts, labels) >= 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "lstm"}, "head"),
        ({"class_weight": "even"}, "class_weight"),
        ({"options": {"max_word": 3}}, "max_word"),
        ({"mix_weights": "1,two,3"}, "mix_weights"),
    ],
)
def test_wrong_settings_are_refused_when_fitting(
    encoder: Path, settings: dict[str, Any], message: str
) -> None:
    made = TextClassifier(encoder, **settings)  # scikit-learn wants no checks here
    with pytest.raises(ConfigError, match=message):
        made.fit(*rows(["a", "b"], 20))
