"""Encoders of other programs: names, files of vectors, folders, and ``fit`` and ``compare`` with them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from elmokit import TextClassifier, load
from elmokit.comparison.recipes import make_plan
from elmokit.core.errors import DataError, ElmokitError, ModelError
from elmokit.tasks.stack import StackModel
from elmokit.vectors.foreign import ForeignName, PackageEncoder, TextVectors, open_encoder, read_vectors
from program import Cli
from topics import probabilities, rows, table

WORDS = ("bank", "profit", "goal", "coach", "rain", "storm", "the", "a")
TRAIN, TEST = rows(60), rows(24, seed=1)
PACKAGE = f"""
import os
import numpy as np
class StaticModel:
    def __init__(self, folder, **options):
        if not os.path.exists(os.path.join(folder, "weights")):
            raise OSError("no weights here.\\nSee the manual.")
    from_pretrained = classmethod(lambda cls, folder: cls(folder))
    def encode(self, texts, show_progress_bar=False):
        [text.encode() for text in texts]  # an error for broken text
        return np.array([[text.split().count(word) for word in {WORDS}] for text in texts], dtype=np.float64)
SentenceTransformer = StaticModel
"""
"""Stands in for both packages: a text is the counts of some words."""


def count_words(texts: list[tuple[str, str]]) -> np.ndarray[Any, Any]:
    return np.array([[text.split().count(word) for word in WORDS] for text, _ in texts], dtype=np.float32)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages, as stand-ins."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("sentence_transformers", "model2vec"):
        (site / f"{name}.py").write_text(PACKAGE)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(site)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model for the stand-ins."""
    made = tmp_path / "tiny-model"
    for part in ("1_Pooling", "onnx", ".cache"):
        (made / part).mkdir(parents=True)
        (made / part / "config.json").write_text("{}")
    (made / "weights").write_text("1")
    return made


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    """A GloVe file of the words."""
    file = tmp_path / "glove.txt"
    numbers = np.random.default_rng(0).normal(size=(len(WORDS), 6))
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, numbers, strict=True)]
    file.write_text("".join(lines))
    return file


# -- files of vectors -------------------------------------------------------------------------


def test_vectors_are_the_same_in_every_format(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.save(tmp_path / "a.npy", vectors)
    names = ["x", "y", "z"]
    table(tmp_path / "a.csv", vectors.tolist(), names)
    parquet.write_table(pa.table(dict(zip(names, vectors.T, strict=True))), tmp_path / "columns.parquet")
    listed = {"id": list("abcde"), "vector": vectors.tolist()}
    parquet.write_table(pa.table(listed), tmp_path / "list.parquet")
    for name in ("a.npy", "a.csv", "columns.parquet", "list.parquet"):
        assert np.array_equal(read_vectors([tmp_path / name]), vectors), name
    both = open_encoder(f"vectors:{tmp_path / 'a.npy'}+{tmp_path / 'a.csv'}")
    assert isinstance(both, TextVectors)
    assert np.array_equal(both.vectors, np.concatenate([vectors, vectors]))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1.0, 2], [3, np.nan]]), "vector 2 has a value that is not a finite number"),
        (np.zeros(4), r"shape \(4,\)"),
        (np.array([["a", "b"]]), "<U1"),
        (np.array([[None, 1]]), "Python objects"),
        (np.ones((2, 5)), "dimension"),  # not as wide as the file before it
    ],
)
def test_what_is_no_vectors_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "first.npy", np.ones((2, 3)))
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    files = [tmp_path / "first.npy"] if message == "dimension" else []
    with pytest.raises(DataError, match=message):
        read_vectors([*files, tmp_path / "a.npy"])


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3\n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    parquet.write_table(pa.table({"vector": [[1.0, 2.0], [3.0]]}), tmp_path / "c.parquet")
    for name in ("a.csv", "b.parquet", "c.parquet"):
        with pytest.raises(DataError, match=name):
            read_vectors([tmp_path / name])


def test_vectors_are_found_by_text_and_come_back_from_a_folder(tmp_path: Path) -> None:
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    known = TextVectors(vectors, label="given").bind(["a b", "c", "c", "\ud800"])
    known.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again, TextVectors)
    assert again.fingerprint == known.fingerprint
    assert "2 wide" in repr(again)
    for one in (known, again):
        assert one.sentences(["\ud800", "c", ["a", "b"], " "]).tolist() == [[6, 7], [2, 3], [0, 1], [0, 0]]
        with pytest.raises(DataError, match="no vector for the text 'd'"):
            one.sentences(["c", "d"])
    with pytest.raises(DataError, match="4 vectors, but there are 3 texts"):
        known.bind(["a", "b", "c"])


# -- packages ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("prefix", ["st", "m2v"])
def test_a_model_of_another_package_is_copied_with_what_needs_it(
    tmp_path: Path, folder: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = open_encoder(f"{prefix}:{folder}")
    assert isinstance(encoder, PackageEncoder)
    assert encoder.dim == len(WORDS)
    assert encoder.sentences([]).shape == (0, len(WORDS))
    assert encoder.sentences(["the \ud800", ["bank", "bank"]])[:, 0].tolist() == [0, 2]
    encoder.save(tmp_path / "copy")
    copy = open_encoder(tmp_path / "copy")
    names = {str(path.relative_to(tmp_path / "copy" / "model")) for path in tmp_path.glob("copy/model/**/*")}
    assert names == {"weights", "1_Pooling", "1_Pooling/config.json"}
    assert np.array_equal(copy.sentences(["bank rain"]), encoder.sentences(["bank rain"]))
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ElmokitError, match=r"pip install 'elmokit\["):
            open_encoder(tmp_path / "copy")
    before = ForeignName(prefix, (folder,)).fingerprint
    (folder / "weights").write_text("2")
    assert ForeignName(prefix, (folder,)).fingerprint != before
    (folder / "weights").unlink()
    with pytest.raises(ModelError, match=r"cannot open .*: no weights here\."):
        open_encoder(f"{prefix}:{folder}")


def test_missing_things_are_named(
    cli: Cli, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = table(tmp_path / "train.csv", TRAIN)
    for verb in (["fit", "NAME", train], ["compare", train, train, "--methods", "tfidf-svm,NAME"]):
        for name, parts in {
            f"st:{tmp_path}/none": ("there is no folder",),
            f"vectors:{tmp_path}/none.npy": ("there is no file",),
            f"glove:{folder}": ("there is no file",),
            f"st:{folder}": ("needs the package sentence-transformers", "elmokit[sentence-transformers]"),
            f"m2v:{folder}": ("needs the package model2vec", "elmokit[model2vec]"),
        }.items():
            with monkeypatch.context() as patch:
                if "elmokit" in parts[-1]:
                    patch.setattr(importlib.util, "find_spec", lambda name: None)
                words = [str(word).replace("NAME", name) for word in verb]
                cli(*words, "--out", tmp_path / "m").check_refused(*parts)
    assert not (tmp_path / "m").exists()


# -- fit --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("packages", "no_report")
def test_fit_and_the_estimator_take_a_foreign_encoder(cli: Cli, tmp_path: Path, folder: Path) -> None:
    train, test = table(tmp_path / "train.csv", TRAIN), table(tmp_path / "test.csv", TEST)
    out = tmp_path / "m"
    cli("fit", f"st:{folder}", train, "--test", test, "--out", out).check_fine(
        "sentence 1.000", "test: accuracy"
    )
    model = load(out)
    assert isinstance(model, StackModel)
    assert {"sentence"} < {view.name for view in model.tried}
    assert "context" not in {view.name for view in model.tried}
    cli("predict", out, test, "--out", tmp_path / "labeled.csv").check_fine()
    cli("inspect", out).check_fine("tiny-model")
    texts, labels = zip(*TRAIN, strict=True)
    classifier = TextClassifier(f"m2v:{folder}").fit(texts, labels)
    classifier.save(tmp_path / "c")
    again = TextClassifier.load(tmp_path / "c")
    assert np.array_equal(again.predict_proba(texts), classifier.predict_proba(texts))
    refused = cli("fit", f"st:{folder}", train, "--head", "pool", "--out", tmp_path / "p")
    refused.check_refused("no layers", "--head auto")


@pytest.mark.usefixtures("no_report")
def test_fit_takes_vectors_of_its_rows_and_word_vectors(cli: Cli, tmp_path: Path, glove: Path) -> None:
    train, test = table(tmp_path / "train.csv", TRAIN), table(tmp_path / "test.csv", TEST)
    np.save(tmp_path / "train.npy", count_words(TRAIN))
    np.save(tmp_path / "test.npy", count_words(TEST))
    both, out = f"vectors:{tmp_path / 'train.npy'}+{tmp_path / 'test.npy'}", tmp_path / "m"
    cli("fit", both, train, "--test", test, "--out", out).check_fine("test: accuracy 1.0")
    model: Any = load(out)
    assert probabilities(model, [text for text, _ in TEST]).shape == (24, 3)
    new = table(tmp_path / "new.csv", [("a new text", "money")])
    cli("predict", out, new).check_refused("no vector for the text 'a new text'", "st:")
    cli("fit", both, train, "--out", tmp_path / "n").check_refused("84 vectors, but there are 60 texts")
    cli("fit", f"glove:{glove}", train, "--test", test, "--out", tmp_path / "g").check_fine("test: accuracy")


# -- compare ----------------------------------------------------------------------------------


def test_compare_ranks_foreign_encoders_and_keeps_the_best(cli: Cli, tmp_path: Path, glove: Path) -> None:
    train, test = table(tmp_path / "train.csv", TRAIN), table(tmp_path / "test.csv", TEST)
    np.save(tmp_path / "both.npy", count_words([*TRAIN, *TEST]))
    methods = f"tfidf-svm,glove:{glove},vectors:{tmp_path / 'both.npy'}"
    words = ["compare", train, test, "--methods", methods]
    cli(*words, "--out", tmp_path / "r").check_fine("both (vectors) + LR", "glove (glove) + LR")
    for id in ("vectors-both", "glove-glove"):
        (folder,) = (tmp_path / "r" / "work" / "steps").glob(f"{id}-s0-????????/model")
        model: Any = load(folder)
        assert model.views[0].name == "sentence"
        assert len(list(model.predict([(text,) for text, _ in TEST]))) == 24
    report = (tmp_path / "r" / "report.json").read_text()
    assert str(tmp_path) not in report
    assert "glove:glove.txt,vectors:both.npy" in report
    cli(*words, "--out", tmp_path / "r").check_fine("Resuming: 5 of 5")
    np.save(tmp_path / "both.npy", 2 * count_words([*TRAIN, *TEST]))
    cli(*words, "--out", tmp_path / "r").check_fine("Resuming: 3 of 5")
    np.save(tmp_path / "both.npy", count_words(TRAIN))
    cli(*words, "--out", tmp_path / "s").check_refused("60 vectors, but there are 84 texts")


@pytest.mark.usefixtures("packages")
def test_methods_of_two_folders_with_one_name_are_two(folder: Path) -> None:
    plan = make_plan(methods=[f"st:{folder}", f"m2v:{folder}", f"st:{folder}/../{folder.name}"], curve="100")
    assert [method.id for method in plan.methods] == ["st-tiny-model", "m2v-tiny-model", "st-tiny-model-2"]
    assert plan.curve == tuple(method.id for method in plan.methods)
    with pytest.raises(ElmokitError, match="no method 'foreign'"):
        make_plan(methods="foreign")
