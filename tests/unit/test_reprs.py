"""What models and vectors say of themselves when they are printed or shown in a notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import topics
from elmokit import Elmo, TextClassifier, WordVectors, fit, load
from elmokit.text.settings import TextConfig

TEXTS, LABELS = map(list, zip(*topics.rows(60), strict=True))


@pytest.fixture(scope="module")
def classifier(encoder: Path) -> TextClassifier:
    return TextClassifier(encoder, head="pool", epochs=1).fit(TEXTS, LABELS)


def check(shown: Any, *parts: str) -> None:
    html = shown._repr_html_()
    for part in (type(shown).__name__, *parts):
        assert part in repr(shown)
        assert part in html
    assert len(repr(shown).splitlines()) <= 7
    assert html.count("<tr>") <= 6


def test_encoders_and_vectors_say_their_sizes(elmo: Elmo) -> None:
    check(elmo, "language model", "3 layers", f"{elmo.dim} wide")
    check(elmo.embed(["the cat", "sat"]), "2: the cat | sat", f"(3, 3, {elmo.dim})")
    check(elmo.embed([]), f"(0, 3, {elmo.dim})")
    check(WordVectors.of(["we", "saw"], np.eye(2), TextConfig()), "2 words", "2 dimensions")


def test_classifiers_say_their_classes(classifier: TextClassifier, tmp_path: Path, no_report: None) -> None:
    check(classifier.model_, "3: money, sport and weather", "3 layers")
    rows = topics.table(tmp_path / "rows.csv", topics.rows(60))
    fit("tfidf-svm", rows, tmp_path / "tfidf")
    check(load(tmp_path / "tfidf"), "3: money, sport and weather", "terms")


def test_a_fitted_estimator_shows_its_parameters_and_its_model(classifier: TextClassifier) -> None:
    lines = repr(classifier).splitlines()
    assert lines[0].startswith("TextClassifier(")
    assert "TaskModel: A text classifier." in lines
    bundle = classifier._repr_mimebundle_()
    assert bundle["text/html"].endswith(classifier.model_._repr_html_())
    fresh = TextClassifier("english", head="pool")
    assert "TaskModel" not in repr(fresh) + fresh._repr_mimebundle_()["text/html"]
    assert "TaskModel" not in repr(make_pipeline(classifier))


def test_names_from_outside_are_cut_and_escaped(elmo: Elmo) -> None:
    out = replace(elmo.embed(["a"]), tokens=[["<script>alert(1)</script>\n", *["word"] * 90]])
    assert "<script>" not in out._repr_html_()
    assert max(map(len, repr(out).splitlines())) < 120
