"""The models and reports that a server has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmokit.core.errors import ModelError
from elmokit.serve.registry import open_registry
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig
from serving import CLASSES, CORPUS, save_models, save_report


def test_models_and_reports_by_name(tmp_path: Path) -> None:
    folders = save_models(tmp_path)
    report, other = (save_report(tmp_path / home / "report", "") for home in "ab")
    places = [folders["small"], folders["small"], folders["topics"], folders["table"], report, other]
    registry = open_registry(list(map(str, places)), iter(CORPUS), corpus_name="odd", corpus_words=30)
    assert list(registry.models) == ["small", "small-2", "topics", "table"]
    assert registry.reports == {"report": report / "report.html", "report-2": other / "report.html"}
    models = registry.models
    assert models["small"].occurrences is models["topics"].occurrences, "read once for the same model"
    assert models["table"].occurrences is None
    small, topics, table = (models[name].facts() for name in ("small", "topics", "table"))
    assert (small["task"], small["contextual"], small["n_layers"], small["dim"]) == (None, True, 3, 12)
    assert (small["corpus"], small["corpus_texts"]) == ("odd", 5)
    assert models["small"].mix() == ([1 / 3] * 3, False)
    assert (topics["task"], topics["fields"], topics["classes"]) == ("classify", ("text",), tuple(CLASSES))
    network = models["topics"].network
    assert network is not None
    assert models["topics"].mix()[0] == pytest.approx(list(network.mix.values().values()))
    assert (table["contextual"], table["n_layers"], table["dim"], table["corpus_texts"]) == (False, 1, 8, 0)


def test_a_server_needs_a_model(tmp_path: Path) -> None:
    report = save_report(tmp_path / "report", "")
    with pytest.raises(ModelError, match="only reports"):
        open_registry([report], [])
    with pytest.raises(ModelError, match="nowhere"):
        open_registry([str(tmp_path / "nowhere")], [])
    vectors = WordVectors.of(["a", "b"], np.eye(2, dtype=np.float32), TextConfig(), {"method": "svd"})
    vectors.save(tmp_path / "vectors")
    with pytest.raises(ModelError, match="holds word vectors, which cannot be served"):
        open_registry([tmp_path / "vectors"], CORPUS)


def test_a_classifier_with_a_report_is_a_classifier(tmp_path: Path) -> None:
    folder = save_models(tmp_path)["topics"]
    (folder / "report.html").write_text("x", encoding="utf-8")
    registry = open_registry([folder], [])
    assert list(registry.models) == ["topics"]
    assert registry.reports == {}
