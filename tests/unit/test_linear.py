"""Linear models: just what scikit-learn's own pipelines answer, before and after a folder."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from elmokit.core.errors import ConfigError, DataError, ModelError, RunError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.corpora import mini_news
from elmokit.tasks import fast_text
from elmokit.tasks.linear import LinearMethod, LinearModel, fit_linear
from elmokit.tasks.tfidf import TfidfModel

TFIDF: list[LinearMethod] = ["tfidf-lr", "tfidf-svm"]
has_fasttext = pytest.mark.skipif(
    importlib.util.find_spec("fasttext") is None, reason="the package fasttext is not installed"
)
METHODS = [*TFIDF, pytest.param("fasttext", marks=has_fasttext)]
ODD = ["", "   ", "?!", "zzzz qqqq", "a", "\ud800 broken", "THE MATCH was won, was won!", "__label__0"]


def news(n_classes: int = 4) -> tuple[list[str], list[str], list[str], list[str]]:
    """Texts and labels to fit on, then to try, of the corpus that comes with the package."""
    with open(mini_news(), encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["topic"]) for row in csv.DictReader(file)]
    kept = sorted({topic for _, topic in rows})[:n_classes]
    rows = [(text, topic) for text, topic in rows if topic in kept]
    train, test = [row for n, row in enumerate(rows) if n % 3], rows[::3]
    return [t for t, _ in train], [y for _, y in train], [t for t, _ in test], [y for _, y in test]


def pipeline(method: str, *, few: bool = True) -> Pipeline:
    """The same model as scikit-learn alone makes it."""
    if method == "tfidf-lr":
        return make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10, max_iter=1000))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1 if few else 2)
    return make_pipeline(vectorizer, LinearSVC(C=2.0 if few else 0.5, random_state=0))


# -- fitting and answering --------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("method", TFIDF)
def test_answers_are_those_of_scikit_learns_own_pipeline(
    method: LinearMethod, n_classes: int, tmp_path: Path
) -> None:
    texts, labels, others, _ = news(n_classes)
    theirs = pipeline(method).fit(texts, labels)
    fit_linear(method, texts, labels).save(tmp_path / "model")
    model = LinearModel.load(tmp_path / "model")
    tried = [*others, *ODD]
    assert model.classes == list(theirs.classes_)
    assert model.labels(tried) == theirs.predict(tried).tolist()
    found = model.probabilities(tried)
    assert found.dtype == np.float32
    assert found.shape == (len(tried), n_classes)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert [model.classes[place] for place in found.argmax(axis=1)] == theirs.predict(tried).tolist()
    if method == "tfidf-lr":
        np.testing.assert_allclose(found, theirs.predict_proba(tried), atol=1e-5)
    else:
        scores = theirs.decision_function(tried)
        theirs_first = np.argsort(np.column_stack([-scores, scores]) if n_classes == 2 else scores, axis=1)
        assert (np.argsort(found, axis=1) == theirs_first).all()
    assert model.has_probabilities == (method == "tfidf-lr")


def test_many_texts_drop_the_terms_of_a_single_one() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(300)])
    targets = rng.integers(0, 3, size=10_000)
    texts = [
        " ".join(words[rng.integers(0, 100, size=4) + 100 * target]) + f" only{place}"
        for place, target in enumerate(targets)
    ]
    labels = [f"class {target}" for target in targets]
    model = fit_linear("tfidf-svm", texts, labels)
    assert (model.settings["min_df"], model.settings["C"], model.notes) == (2, 0.5, [])
    theirs = pipeline("tfidf-svm", few=False).fit(texts, labels)
    assert isinstance(model.core, TfidfModel)
    assert len(model.core.terms) == len(theirs[0].vocabulary_)
    assert not any(term.startswith("only") for term in model.core.terms)
    assert model.labels(texts[:500]) == theirs.predict(texts[:500]).tolist()


def test_texts_whose_words_all_differ_fall_back_and_say_so() -> None:
    unlike = [f"first{n} second{n}" for n in range(10_000)]
    model = fit_linear("tfidf-svm", unlike, ["a", "b"] * 5000)
    assert model.settings["min_df"] == 1
    assert "were kept" in model.notes[0]
    tiny = fit_linear("tfidf-svm", ["good film", "bad play"] * 5, ["yes", "no"] * 5)
    assert tiny.settings["min_df"] == 1
    assert tiny.labels(["a good one", "so bad"]) == ["yes", "no"]


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_the_same_model_every_time_and_a_good_one(method: LinearMethod) -> None:
    texts, labels, others, right = news()
    one, two = (fit_linear(method, texts, labels, seed=3) for _ in range(2))
    found = one.probabilities([*others, *ODD])
    np.testing.assert_array_equal(found, two.probabilities([*others, *ODD]))
    assert np.isfinite(found).all()
    accuracy = np.mean([a == b for a, b in zip(one.labels(others), right, strict=True)])
    assert accuracy > 0.5, "chance is a quarter, and the corpus is made of words that change their sense"
    assert one.probabilities([]).shape == (0, 4)
    assert one.labels([]) == []


@pytest.mark.parametrize("method", METHODS)
def test_classes_without_texts_have_their_column_and_are_never_chosen(
    method: LinearMethod, tmp_path: Path
) -> None:
    texts, labels, others, _ = news(2)
    first, second = sorted(set(labels))
    classes = ["none here", second, "nor | here", first]
    model = fit_linear(method, texts, labels, classes=classes)
    found = model.probabilities(others)
    assert not found[:, [0, 2]].any()
    plain = fit_linear(method, texts, labels)
    np.testing.assert_allclose(found[:, [3, 1]], plain.probabilities(others), atol=0.05)
    model.save(tmp_path)
    loaded = LinearModel.load(tmp_path)
    assert loaded.classes == classes
    np.testing.assert_array_equal(loaded.probabilities(others), found)
    assert "nor \\| here" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_rounding_does_not_change_the_label() -> None:
    numbers: Any = {
        "idf": np.ones(2, dtype=np.float32),
        "weights": np.zeros((1, 2), dtype=np.float32),
        "intercepts": np.array([1e-12], dtype=np.float32),
    }
    model = LinearModel("tfidf-lr", ["a", "b"], [0, 1], TfidfModel(["one", "two"], **numbers, n_words=1))
    assert model.labels(["one", ""]) == ["b", "b"]


@pytest.mark.parametrize(
    ("method", "texts", "labels", "message"),
    [
        ("tfidf-lr", ["one text", "two texts"], ["a", "a"], "only the class 'a'"),
        ("fasttext", ["one text", "two texts"], ["a", "a"], "only the class 'a'"),
        ("tfidf-svm", [], [], "no class at all"),
        ("tfidf-lr", ["?", ""], ["a", "b"], "holds a word"),
        ("tfidf-svm", ["?", ""], ["a", "b"], "holds a word"),
        ("tfidf-svm", ["one", "two", "three"], ["a", "b"], "3 texts and 2 labels"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(
    method: LinearMethod, texts: list[str], labels: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        fit_linear(method, texts, labels)
    assert caught.value.remedy


def test_unknown_methods_and_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="no linear method") as caught:
        fit_linear("tfidf-svn", ["one", "two"], ["a", "b"])  # type: ignore[arg-type]
    assert "tfidf-svm" in caught.value.remedy
    with pytest.raises(DataError, match="'b' is none of the classes"):
        fit_linear("tfidf-lr", ["one", "two"], ["a", "b"], classes=["a", "c"])


# -- folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_model_comes_back_from_its_folder_to_the_bit(method: LinearMethod, tmp_path: Path) -> None:
    texts, labels, others, _ = news()
    model = fit_linear(method, texts, labels, seed=1)
    folder = tmp_path / "a model"
    model.save(folder)
    model.save(folder)
    loaded = LinearModel.load(folder)
    np.testing.assert_array_equal(loaded.probabilities([*others, *ODD]), model.probabilities([*others, *ODD]))
    for name in ("method", "classes", "seen", "settings", "notes", "n_bytes"):
        assert getattr(loaded, name) == getattr(model, name)
    numbers = {"model.bin"} if method == "fasttext" else {"model.safetensors", "vocab.txt"}
    assert {file.name for file in folder.iterdir()} == {"config.json", "README.md", *numbers}
    on_disk = sum((folder / name).stat().st_size for name in numbers)
    assert model.n_bytes == pytest.approx(on_disk, rel=0.05)
    record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (record["format"], record["kind"]) == ("elmokit", "linear")


@has_fasttext
def test_one_kind_of_model_leaves_nothing_of_another_in_its_folder(tmp_path: Path) -> None:
    texts, labels, others, _ = news(2)
    fit_linear("fasttext", texts, labels).save(tmp_path)
    model = fit_linear("tfidf-lr", texts, labels)
    model.save(tmp_path)
    assert not (tmp_path / "model.bin").exists()
    assert LinearModel.load(tmp_path).labels(others) == model.labels(others)


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


def cut(name: str) -> Callable[[Path], None]:
    def shortened(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return shortened


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt cannot be read"),
        (lambda folder: (folder / "vocab.txt").write_bytes(b"\xff\n"), "vocab.txt cannot be read"),
        (cut("vocab.txt"), "different terms"),
        (cut("model.safetensors"), "cannot be read as a safetensors file"),
        (spoil_weights, "not numbers"),
        (change(kind="classifier"), "holds a classifier, not a linear model"),
        (change(format_version=99), "format version 99"),
        (change(method="magic"), "no linear method 'magic'"),
        (change(classes=["a", "a", "b", "c"]), "not in order"),
        (change(seen=[0, 9]), "not in order"),
        (change(seen=[1]), "fewer than two"),
        (change(seen=[0, 1]), "shape"),
        (change(n_terms="many"), "damaged"),
        (change(settings=None), "damaged"),
    ],
)
def test_a_damaged_folder_is_refused(spoil: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    texts, labels, _, _ = news()
    fit_linear("tfidf-lr", texts[:100], labels[:100]).save(tmp_path)
    LinearModel.load(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message) as caught:
        LinearModel.load(tmp_path)
    assert caught.value.remedy


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here already", encoding="utf-8")
    model = fit_linear("tfidf-lr", ["one good", "two bad"], ["a", "b"])
    with pytest.raises(RunError, match="Cannot write"):
        model.save(tmp_path / "file")


# -- fastText ---------------------------------------------------------------------------------


@has_fasttext
def test_a_damaged_file_of_fasttext_is_refused(tmp_path: Path) -> None:
    texts, labels, _, _ = news(2)
    fit_linear("fasttext", texts, labels).save(tmp_path)
    file = tmp_path / "model.bin"
    size = file.stat().st_size
    file.write_bytes(b"x" * size)
    with pytest.raises(ModelError, match="cannot be read"):
        LinearModel.load(tmp_path)
    file.write_bytes(b"x")
    with pytest.raises(ModelError, match=r"1 bytes long, config\.json says"):
        LinearModel.load(tmp_path)
    file.unlink()
    with pytest.raises(ModelError, match="missing"):
        LinearModel.load(tmp_path)


@has_fasttext
def test_fasttext_writes_nothing_where_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts, labels, _, _ = news(2)
    fit_linear("fasttext", texts, labels)
    assert list(tmp_path.iterdir()) == []


class Diverging:
    """A package that only learns at a low rate."""

    def __init__(self, highest: float, message: str = "Encountered NaN.") -> None:
        self.highest, self.message, self.tried = highest, message, list[float]()

    def train_supervised(self, file: str, *, lr: float, **settings: Any) -> object:
        self.tried.append(lr)
        assert Path(file).read_text(encoding="utf-8") == "__label__0 one\n__label__1 two _ _ label _ _ 0\n"
        if lr > self.highest:
            raise RuntimeError(self.message)
        return object()


def test_fasttext_begins_again_with_half_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = ["One", "two __label__0"], ["a", "b"]
    package = Diverging(0.1)
    monkeypatch.setattr(fast_text, "_package", lambda: package)
    model = fit_linear("fasttext", texts, labels)
    assert package.tried == [0.25, 0.125, 0.0625]
    assert model.settings["lr"] == 0.0625
    assert "begun again with the rate 0.0625" in model.notes[0]
    for package in (Diverging(0.0), Diverging(0.1, "Out of luck.")):
        monkeypatch.setattr(fast_text, "_package", lambda package=package: package)
        with pytest.raises(DataError, match="cannot learn") as caught:
            fit_linear("fasttext", texts, labels)
        assert package.message in caught.value.message
    assert len(package.tried) == 1, "only divergence is worth another try"


def test_without_its_package_fasttext_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        fit_linear("fasttext", ["one", "two"], ["a", "b"])
    assert "pip install fasttext" in caught.value.remedy
