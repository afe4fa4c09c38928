"""TF-IDF models: just what scikit-learn's own pipelines answer, before and after a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

import topics
from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.task import Examples, Labels
from elmokit.tasks.tfidf import METHODS, Terms, TfidfModel, fit_tfidf
from folders import drop_checksums
from program import Cli

NAMES = ("business", "science", "sports", "world")
ODD = ["", "   ", "?!", "zzzz qqqq", "a", "\ud800 broken", "THE MATCH was won, was won!", "__label__0"]


def fit(method: str, texts: Sequence[str], labels: Sequence[str], classes: Sequence[str] = ()) -> TfidfModel:
    names = tuple(classes or sorted(set(labels)))
    targets = np.array([names.index(label) for label in labels], dtype=np.int64)
    return fit_tfidf(method, Examples([(text,) for text in texts], targets, Labels(names)))


def labels_of(model: TfidfModel, texts: Sequence[str]) -> list[str]:
    return [prediction.label for prediction in model.predict((text,) for text in texts)]


def news(n_classes: int = 4) -> tuple[list[str], list[str], list[str], list[str]]:
    """Texts and labels to fit on, then to try."""
    rows = [row for row in zip(*topics.news(600), strict=True) if row[1] in NAMES[:n_classes]]
    train, test = zip(*rows[::2], strict=True), zip(*rows[1::2], strict=True)
    return tuple(map(list, (*train, *test)))  # type: ignore[return-value]


class LogCountRatio(BaseEstimator, TransformerMixin):  # type: ignore[misc]
    """Multiplies each term by how much more often texts of the class have it than others."""

    def fit(self, x: Any, y: Any) -> LogCountRatio:
        shares = []
        for inside in (True, False):
            counts = 1 + (x[np.asarray(y) == inside] > 0).sum(axis=0)
            shares.append(counts / counts.sum())
        self.ratios_ = np.log(shares[0] / shares[1])
        return self

    def transform(self, x: Any) -> Any:
        return x.multiply(self.ratios_).tocsr()


def pipeline(method: str, *, few: bool = True) -> Pipeline:
    """The same model as scikit-learn alone makes it."""
    if method == "tfidf-lr":
        return make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10, max_iter=1000))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1 if few else 2)
    if method == "nbsvm":
        one = make_pipeline(LogCountRatio(), LinearSVC(C=1.0, random_state=0))
        return make_pipeline(vectorizer, OneVsRestClassifier(one))
    return make_pipeline(vectorizer, LinearSVC(C=2.0 if few else 0.5, random_state=0))


# -- fitting and answering --------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_answers_are_those_of_scikit_learns_own_pipeline(method: str, n_classes: int, tmp_path: Path) -> None:
    texts, labels, others, right = news(n_classes)
    theirs = pipeline(method).fit(texts, labels)
    made = fit(method, texts, labels)
    for _ in range(2):  # the second time over itself
        made.save(tmp_path / "model")
    model = TfidfModel.load(tmp_path / "model")
    tried = [*others, *ODD]
    inputs = [(text,) for text in tried]
    assert model.labels.names == tuple(theirs.classes_)
    assert labels_of(model, tried) == theirs.predict(tried).tolist()
    found = model.probabilities(inputs)
    np.testing.assert_array_equal(found, made.probabilities(inputs))
    np.testing.assert_array_equal(found, fit(method, texts, labels).probabilities(inputs))
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    if method == "tfidf-lr":
        np.testing.assert_allclose(found, theirs.predict_proba(tried), atol=1e-5)
    else:
        scores = theirs.decision_function(tried)
        theirs_first = np.argsort(np.column_stack([-scores, scores]) if n_classes == 2 else scores, axis=1)
        assert (np.argsort(found, axis=1) == theirs_first).all()
    accuracy = np.mean([a == b for a, b in zip(labels_of(model, others), right, strict=True)])
    assert accuracy > 0.5, "the corpus is made of words that change their sense"
    (prediction,) = model.predict([(["the", "match"],)])
    np.testing.assert_array_equal(prediction.probabilities, model.probabilities([("the match",)])[0])
    assert prediction.calibrated == (method == "tfidf-lr")
    assert labels_of(model, []) == []
    for name in ("method", "labels", "seen", "settings"):
        assert getattr(model, name) == getattr(made, name)
    assert model.record.to_json() == made.record.to_json()
    names = {"config.json", "README.md", "model.safetensors", "vocab.txt"}
    assert {file.name for file in (tmp_path / "model").iterdir()} == names
    assert json.loads(json.dumps(model.facts().values))["kind"] == "linear"


def test_many_texts_drop_the_terms_of_a_single_one() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(300)])
    targets = rng.integers(0, 3, size=10_000)
    texts = [
        " ".join(words[rng.integers(0, 100, size=4) + 100 * target]) + f" only{place}"
        for place, target in enumerate(targets)
    ]
    labels = [f"class {target}" for target in targets]
    model = fit("tfidf-svm", texts, labels)
    assert (model.settings["min_df"], model.settings["C"]) == (2, 0.5)
    theirs = pipeline("tfidf-svm", few=False).fit(texts, labels)
    assert len(model.terms.terms) == len(theirs[0].vocabulary_)
    assert labels_of(model, texts[:500]) == theirs.predict(texts[:500]).tolist()
    with pytest.raises(DataError, match="that another one has, too"):
        fit("tfidf-svm", [f"first{n} second{n}" for n in range(10_000)], labels)


@pytest.mark.parametrize("method", METHODS)
def test_classes_without_texts_have_their_column_and_are_never_chosen(method: str, tmp_path: Path) -> None:
    texts, labels, others, _ = news(2)
    first, second = sorted(set(labels))
    classes = ["none here", second, "nor | here", first]
    model = fit(method, texts, labels, classes)
    inputs = [(text,) for text in others]
    found = model.probabilities(inputs)
    assert not found[:, [0, 2]].any()
    np.testing.assert_allclose(found[:, [3, 1]], fit(method, texts, labels).probabilities(inputs), atol=0.05)
    model.save(tmp_path / "model")
    loaded = TfidfModel.load(tmp_path / "model")
    assert loaded.labels.names == tuple(classes)
    np.testing.assert_array_equal(loaded.probabilities(inputs), found)
    assert "nor \\| here" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_rounding_does_not_change_the_label() -> None:
    terms = Terms(["one", "two"], np.ones(2, dtype=np.float32), "word", (1, 1))
    solution = np.zeros((1, 2), dtype=np.float32), np.array([1e-12], dtype=np.float32)
    model = TfidfModel(Labels(("a", "b")), [0, 1], "tfidf-lr", terms, *solution)
    assert labels_of(model, ["one", ""]) == ["b", "b"]


@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_learned_from_is_refused(method: str) -> None:
    for texts, labels, message in (
        (["one text", "two texts"], ["a", "a"], "same label"),
        ([], [], "same label"),
        (["?", ""], ["a", "b"], "contains a word"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            fit(method, texts, labels)
        assert caught.value.remedy
    several = Examples([("one",)], np.ones((1, 2)), Labels(("a", "b"), "|"))
    with pytest.raises(ConfigError, match="one label per row"):
        fit_tfidf(method, several)


# -- folders ----------------------------------------------------------------------------------


def change(**values: Any) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        file = folder / "config.json"
        record = json.loads(file.read_text(encoding="utf-8")) | values
        file.write_text(json.dumps(record), encoding="utf-8")

    return changed


def spoil_weights(folder: Path) -> None:
    tensors, _ = load_tensors(folder / "model.safetensors")
    tensors["weights"] = torch.full_like(tensors["weights"], float("nan"))
    save_tensors(folder / "model.safetensors", tensors, {})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt cannot be read"),
        (lambda folder: (folder / "vocab.txt").write_bytes(b"\xff\n"), "vocab.txt cannot be read"),
        (lambda folder: (folder / "vocab.txt").write_bytes(b"one\ntwo\n"), "different terms"),
        (spoil_weights, "not finite"),
        (change(method="magic"), "its method"),
        (change(method="fasttext"), "fastText model, which elmokit 0.1"),
        (change(classes=["a", "a", "b", "c"]), "not in order"),
        (change(seen=[0, 9]), "not in order"),
        (change(seen=[1]), "its classes are unknown"),
        (change(seen=[0, 1]), "shape"),
        (change(n_terms="many"), "damaged"),
    ],
)
def test_a_damaged_folder_is_refused(spoil: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    texts, labels, _, _ = news()
    fit("tfidf-lr", texts[:100], labels[:100]).save(tmp_path / "model")
    spoil(tmp_path / "model")
    drop_checksums(tmp_path / "model")
    with pytest.raises(ModelError, match=message) as caught:
        TfidfModel.load(tmp_path / "model")
    assert caught.value.remedy


def test_no_class_is_given_without_finite_probabilities(tmp_path: Path, cli: Cli) -> None:
    fit("tfidf-lr", ["one good", "two bad"], ["a", "b"]).save(tmp_path / "m")
    spoil_weights(tmp_path / "m")
    drop_checksums(tmp_path / "m")
    (tmp_path / "rows.txt").write_text("one good\n", encoding="utf-8")
    cli("predict", tmp_path / "m", tmp_path / "rows.txt").check_refused(
        "weights holds numbers that are not finite"
    )
    with pytest.raises(ModelError, match="probabilities that are not finite"):
        ClassPrediction(labels=Labels(("a", "b")), probabilities=np.array([np.nan, 0.5]))
