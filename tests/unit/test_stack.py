"""The stack, the default of ``fit``: views, folds, weights, folders, odd rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from test_fit import Said
from threadpoolctl import threadpool_limits

from elmokit.core.errors import DataError, ModelError, RunError
from elmokit.core.model_folder import load
from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.tasks import logistic, stack
from elmokit.tasks.estimator import TextClassifier
from elmokit.tasks.fit import evaluate, fit, predict
from elmokit.tasks.logistic import Design, fit_weights, normalize, solve
from elmokit.tasks.model import TaskModel, load_encoder
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.stack import StackFit, StackModel, encode, fit_stack, make_folds
from elmokit.tasks.task import Examples, Labels
from elmokit.vectors.encoder import FloatArray
from folders import drop_checksums
from topics import news, rows, several, table

ODD = ["", "   ", "?!", "zzzz", "\ud800 broken", "A VERY LONG TEXT " * 100]


def examples(texts: Sequence[str], labels: Sequence[str], weights: Any = None) -> Examples:
    names, targets = np.unique(labels, return_inverse=True)
    return Examples([(text,) for text in texts], targets, Labels(tuple(names.tolist())), weights=weights)


def fit_lexical(texts: Sequence[str], labels: Sequence[str], **settings: Any) -> StackFit:
    return fit_stack(None, examples(texts, labels), ClassifierConfig.from_flat(**settings))


# -- logistic regression ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 7), (40, 90)])
@pytest.mark.parametrize("form", ["dense", "sparse", "direct"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_solutions_are_those_of_scikit_learn(
    form: str, shape: tuple[int, int], n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x: Any = rng.normal(size=shape) * (rng.random(shape) < 0.6)
    y, weights = np.arange(shape[0]) % n_classes, rng.uniform(0.5, 2, shape[0])
    if form != "dense":
        x = csr_matrix(x)
    if form == "direct":
        monkeypatch.setattr(logistic, "MAX_ROTATED", 10)
    design = Design.of(x)
    solution = solve(design, np.eye(n_classes)[y], weights, 0.7, several=False, tolerance=1e-9)
    found, biases = design.unrotate(solution)
    # With two classes scikit-learn has one row of weights, which costs twice as much as two of half its size.
    theirs = LogisticRegression(C=1.4 if n_classes == 2 else 0.7, tol=1e-10, max_iter=5000)
    theirs.fit(x, y, sample_weight=weights)
    scores = x @ found.T + biases
    expected = theirs.decision_function(x)
    if n_classes == 2:
        expected = np.column_stack([-expected, expected]) / 2
    center = [part - part.mean(axis=1, keepdims=True) for part in (scores, expected)]
    np.testing.assert_allclose(center[0], center[1], atol=1e-4)


def test_weights_prefer_the_better_predictor_and_are_never_negative() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    good = normalize(2.0 * np.eye(3)[y] + rng.normal(size=(500, 3)), several=False)
    noise, wrong = (normalize(rng.normal(size=(500, 3)) - k * np.eye(3)[y], several=False) for k in (0, 2))
    weights, loss = fit_weights([good, noise, wrong], np.eye(3)[y], np.ones(500), several=False)
    assert weights[0] > 0.5 > weights[1] >= 0 == weights[2]
    alone = fit_weights([good], np.eye(3)[y], np.ones(500), several=False)[1]
    assert loss <= alone + 1e-9


# -- folds ------------------------------------------------------------------------------------


def test_folds_spread_each_class_evenly_and_are_those_of_the_seed() -> None:
    targets = np.repeat([0, 1, 2, 3], [50, 33, 2, 1])
    folds = make_folds(targets, 3)
    for number, count in enumerate(np.bincount(targets)):
        per_fold = np.bincount(folds[targets == number], minlength=5)
        assert per_fold.max() - per_fold.min() <= 1
        assert per_fold.sum() == count
    assert np.array_equal(folds, make_folds(targets, 3))
    assert not np.array_equal(folds, make_folds(targets, 4))
    assert set(make_folds(np.arange(3000) % 7, 0)) == {0, 1, 2}
    many = make_folds(np.arange(60_000) % 7, 0)
    assert set(many) == {0, -1}
    assert (many == 0).sum() <= 5000


# -- fitting ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled() -> StackFit:
    return fit_stack(load_encoder("english"), examples(*news(160)), ClassifierConfig())


def test_the_stack_is_at_least_as_likely_as_each_of_its_views(bundled: StackFit) -> None:
    model = bundled.model
    names = ["words", "characters", "context", "sentence", "vectors", "layers"]
    assert [view.name for view in model.tried] == names
    assert {view.name for view in model.views} == {view.name for view in model.tried if view.weight}
    right = bundled.probabilities.argmax(axis=1) == examples(*news(160)).targets[bundled.rows]
    assert right.mean() >= max(view.score for view in model.tried) - 0.05
    confidence = bundled.probabilities.max(axis=1)
    assert abs(confidence.mean() - right.mean()) < 0.1  # calibrated


def test_predictions_do_not_depend_on_the_rows_beside_them(bundled: StackFit) -> None:
    texts = [*news(40)[0], *ODD]
    together = bundled.model.probabilities([(text,) for text in texts])
    alone = np.concatenate([bundled.model.probabilities([(text,)]) for text in texts])
    assert together.dtype == np.float32
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together, alone, atol=2e-6)
    np.testing.assert_allclose(together.sum(axis=1), 1, atol=1e-5)
    words = bundled.model.probabilities([(text.split(),) for text in news(5)[0]])
    assert words.shape == (5, len(bundled.model.labels))


def test_a_folder_gives_the_same_bits_and_a_damaged_one_is_refused(bundled: StackFit, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    bundled.model.save(folder)
    texts = [(text,) for text in [*news(20)[0], *ODD]]
    model = load(folder)
    assert isinstance(model, StackModel)
    assert model.tried == bundled.model.tried
    assert np.array_equal(model.probabilities(texts), bundled.model.probabilities(texts))
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "README.md", "model.safetensors", "vocab.txt", "encoder")
    }
    assert "views" in model.facts().values
    card = (folder / "README.md").read_text("utf-8")
    assert all(view.name in card for view in model.views)
    record = json.loads((folder / "config.json").read_text("utf-8"))
    record["used"] = {"smell": {"weight": 1, "dim": 3, "terms": 0}}
    (folder / "config.json").write_text(json.dumps(record), encoding="utf-8")
    drop_checksums(folder)
    with pytest.raises(ModelError, match="views are unknown"):
        load(folder)


def test_the_same_seed_gives_the_same_bits_with_any_number_of_threads() -> None:
    texts, labels = news(80)
    first = fit_lexical(texts, labels)
    with threadpool_limits(2):
        second = fit_lexical(texts, labels)
    assert np.array_equal(first.probabilities, second.probabilities)
    for one, other in zip(first.model.views, second.model.views, strict=True):
        assert np.array_equal(one.weights, other.weights)


def test_without_use_for_the_encoder_none_is_kept() -> None:
    foreign: Any = SentencesOnly()
    texts = ["storm wind", "bank rate"] * 30  # of which it knows no word
    model = fit_stack(foreign, examples(texts, ["weather", "money"] * 30), ClassifierConfig()).model
    assert [view.name for view in model.tried] == ["words", "characters", "sentence"]
    assert model.encoder is None


def test_row_weights_count() -> None:
    texts = ["good film", "bad film"] * 20
    labels = ["yes", "no"] * 15 + ["no", "yes"] * 5  # a quarter is labeled the wrong way round
    weights = np.array([1.0] * 30 + [0.0] * 10, dtype=np.float32)
    found = fit_stack(None, examples(texts, labels, weights), ClassifierConfig())
    (row,) = found.model.probabilities([("good film",)])
    assert row[found.model.labels.names.index("yes")] > 0.9
    assert len(found.rows) == 30


def test_rare_classes_are_named_and_can_be_predicted() -> None:
    texts, labels = news(80)
    texts += ["zebra zebra", "giraffe giraffe tall", "giraffe neck"]
    labels += ["zoo", "park", "park"]
    found = fit_lexical(texts, labels)
    assert "2 classes (park, zoo)" in found.model.record.notes[0]
    assert len(found.rows) == 82  # the fits that predict the only row of a class have not seen the class
    answers = [one.label for one in found.model.predict([("zebra zebra",), ("giraffe neck",)])]
    assert answers == ["zoo", "park"]


def test_one_row_of_each_class_works_with_a_note() -> None:
    found = fit_lexical(["goal goal", "rain rain", "bank bank"], ["sport", "weather", "money"])
    assert "one row" in found.model.record.notes[0]
    assert not len(found.rows)
    assert [one.label for one in found.model.predict([("rain",), ("bank",)])] == ["weather", "money"]


def test_texts_without_words_are_refused() -> None:
    with pytest.raises(DataError, match="contains a word"):
        fit_lexical(["", " "], ["sport", "weather"])


def test_many_rows_use_one_part_and_sparse_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits stand for many rows."""
    texts, labels = news(150)
    usual = fit_lexical(texts, labels)
    monkeypatch.setattr(stack, "FEW_ROWS", 50)
    monkeypatch.setattr(stack, "_MANY_ROWS", 100)
    monkeypatch.setattr(logistic, "MAX_ROTATED", 100)
    many = fit_lexical(texts, labels)
    assert len(many.rows) == 30
    assert len(usual.rows) == 150
    inputs = [(text,) for text in texts]
    one, other = (found.model.probabilities(inputs).argmax(axis=1) for found in (many, usual))
    assert (one == other).mean() > 0.9
    monkeypatch.setattr(stack, "_MOST_CHARACTERS", 100)
    assert [view.name for view in fit_lexical(texts, labels).model.tried] == ["words"]


class Distilled:
    """An encoder with a trained sentence vector."""

    has_sentence_vector = True

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def sentences(self, texts: Sequence[Any]) -> FloatArray:
        return np.array([[len(text), str(text).count("e"), 1.0] for text in texts], dtype=np.float32)


class SentencesOnly:
    """A foreign encoder: one vector per text is all it has."""

    def sentences(self, texts: Sequence[Any]) -> FloatArray:
        return np.array([["goal" in text, "rain" in text] for text in texts], dtype=np.float32)


def test_a_sentence_vector_is_a_view_and_stands_beside_the_context(encoder: Path) -> None:
    plain: Any = load_encoder(encoder)
    distilled: Any = Distilled(plain)
    inputs = [(text,) for text in ("goal coach", "", "rain")]
    views = encode(distilled, inputs, 400, stack.dense_views(distilled))
    assert {name: view.shape[1] for name, view in views.items()} == {
        "context": plain.dim,
        "sentence": 3,
        "vectors": plain.dim + 3,
        "layers": (3 * plain.n_layers - 1) * plain.dim + 3,
    }
    np.testing.assert_allclose(np.linalg.norm(views["sentence"], axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(views["context"], axis=1), [1, 0, 1], atol=1e-6)
    expected = plain.embed(["goal coach"]).sentence("mean")
    np.testing.assert_allclose(views["context"][:1], expected / np.linalg.norm(expected), atol=1e-6)
    read = plain.embed(["goal coach"])
    half = plain.dim // 2
    last = np.concatenate([read.layer(2)[0][-1, :half], read.layer(2)[0][0, half:]])
    found = views["layers"][0, -plain.dim - 3 : -3]  # the last block before the sentence vector
    np.testing.assert_allclose(found, last / np.linalg.norm(last), atol=1e-6)
    assert stack.dense_views(plain) == ("context", "layers")
    assert stack.dense_views(plain, 30_000) == ("context",)
    fitted = fit_stack(distilled, examples(*zip(*rows(45), strict=True)), ClassifierConfig())
    assert [view.name for view in fitted.model.tried][2:] == list(stack.DENSE)
    foreign: Any = SentencesOnly()
    only = fit_stack(foreign, examples(*zip(*rows(45), strict=True)), ClassifierConfig())
    assert [view.name for view in only.model.tried] == ["words", "characters", "sentence"]


# -- verbs ------------------------------------------------------------------------------------


def test_fit_without_flags_makes_a_stack_that_every_verb_takes(encoder: Path, tmp_path: Path) -> None:
    train, test = table(tmp_path / "train.csv", rows(60)), table(tmp_path / "test.csv", rows(30, seed=1))
    result = fit(encoder, train, tmp_path / "made", test=test)
    assert isinstance(result.model, StackModel)
    assert [*result.scores] == ["out-of-fold", "test"]
    assert result.scores["test"]["accuracy"] > 0.9
    assert result.scores["out-of-fold"]["n"] == 60
    assert evaluate(tmp_path / "made", test).values["accuracy"] == result.scores["test"]["accuracy"]
    assert predict(tmp_path / "made", test, tmp_path / "out.csv").n_rows == 30
    assert (tmp_path / "made" / "report.html").exists()
    with pytest.raises(RunError, match="already holds a classifier"):
        fit(encoder, train, tmp_path / "made")
    trained = fit(encoder, train, tmp_path / "trained", epochs=1, max_steps=1)
    assert isinstance(trained.model, TaskModel)
    assert trained.model.config.head.head == "pool"


def test_several_labels_a_text(encoder: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", several(120))
    result = fit(encoder, train, tmp_path / "made", label_separator="|")
    assert result.scores["out-of-fold"]["micro_f1"] > 0.9
    model = load(tmp_path / "made")
    assert isinstance(model, StackModel)
    (answer,) = model.predict([("bank rain the",)])
    assert answer.label == "money|weather"


def test_the_estimator_uses_it_unless_a_head_is_asked_for(encoder: Path, tmp_path: Path) -> None:
    texts, labels = zip(*rows(45), strict=True)
    numbers = np.array([{"money": 3, "sport": 5, "weather": 7}[label] for label in labels])
    classifier = TextClassifier(encoder).fit(texts, numbers)
    assert isinstance(classifier.model_, StackModel)
    assert not classifier.history_
    assert classifier.score(texts, numbers) > 0.9
    classifier.save(tmp_path / "model")
    again = TextClassifier.load(tmp_path / "model")
    assert again.predict(texts).tolist() == classifier.predict(texts).tolist()
    assert again.get_params() == {**classifier.get_params(), "encoder": again.encoder}
    other = replace(ClassifierConfig(), mix=replace(ClassifierConfig().mix, mix="function"))
    assert ClassifierConfig().is_stack
    assert not other.is_stack
    assert not ClassifierConfig.from_flat(finetune=True).is_stack
    assert ClassifierConfig.from_flat(seed=3, max_words=50).is_stack


def test_fit_says_how_the_stack_and_a_trained_head_stand_beside_simple_methods(
    encoder: Path, tmp_path: Path
) -> None:
    said = Said()
    train = table(tmp_path / "train.csv", rows(60))
    result = fit(encoder, train, tmp_path / "made", reporter=said)
    assert isinstance(result.model, StackModel)
    assert (
        "On the same folds: TF-IDF + SVM: 1.000; NB-SVM: 1.000; this model: 1.000 (views: words 1.000"
        in said.text
    )
    assert {*result.model.record.rivals} == {"TF-IDF + SVM", "NB-SVM"}
    report = (tmp_path / "made" / "report.md").read_text("utf-8")
    assert "NB-SVM" in report
    assert "characters" in report
    said = Said()
    trained = fit(encoder, train, tmp_path / "trained", epochs=1, max_steps=1, reporter=said)
    assert trained.model is not None
    assert "On the validation rows: TF-IDF + SVM: 1.000; this model: 0." in said.text
    assert "try --head auto" in said.text
    assert "model underfits: training accuracy 0." in said.text
    assert trained.model.record.rivals == {"TF-IDF + SVM": 1.0}


def test_the_service_serves_it(bundled: StackFit, tmp_path: Path) -> None:
    bundled.model.save(tmp_path / "topics")
    app = make_app(open_registry([tmp_path / "topics"], ["Rates rose again."]))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        text = news(1)[0][0]
        answer = client.post("/v1/predict", json={"texts": [text]}).json()
        (expected,) = bundled.model.predict([(text,)])
        assert answer["results"][0]["prediction"] == expected.label
        layers = client.post("/v1/layers", json={"text": "Rates rose again."})
        assert layers.status_code == 200, layers.text


@pytest.mark.parametrize("several_encoders", [False, True])
def test_rows_that_are_cut_are_counted(encoder: Path, tmp_path: Path, several_encoders: bool) -> None:
    long = ("we saw the rain storm", "weather")
    train, other = (table(tmp_path / f"{n}.csv", [*rows(n), long]) for n in (30, 6))
    said = Said()
    more = [encoder] if several_encoders else []
    splits: Any = {"valid": other, "test": other}
    fitted = fit(encoder, train, tmp_path / "made", with_=more, max_words=4, reporter=said, **splits)
    n_cut, n_other = (sum(len(text.split()) > 4 for text, _ in [*rows(n), long]) for n in (30, 6))
    assert f"Truncated to 4 words (max_words): {n_cut} of 31 rows for training." in said.text
    note = f"Truncated to 4 words (max_words): {n_other} of 7 rows."
    assert fitted.model is not None
    for split in ("valid", "test"):
        assert note.replace("rows", f"{split} rows") in fitted.model.record.notes
    predictions = fitted.model.predict([(long[0],), ("the bank",)])
    assert [prediction.n_cut for prediction in predictions] == [1, 0]
    assert predict(tmp_path / "made", other, tmp_path / "out.csv").notes[-1] == note
    assert evaluate(tmp_path / "made", other).notes == (note.replace("rows", "test rows"),)
