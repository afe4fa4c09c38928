"""What a server looks neighbours up in, the map, and the shelf of models and reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.decomposition import PCA

from elmokit.core.errors import ModelError
from elmokit.serve.registry import open_shelf
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import Occurrences, map_2d
from serving import CORPUS, save_models, save_report

WEIGHTS = [[1 / 3] * 3, [0.0, 0.0, 1.0], [0.5, -0.2, 1.5]]


@pytest.fixture(scope="module")
def occurrences(elmo: Elmo) -> Occurrences:
    return Occurrences.read(elmo, CORPUS, name="odd")


def reference(elmo: Elmo, weights: list[float]) -> tuple[list[tuple[int, int, str]], npt.NDArray[Any]]:
    """Every word of the corpus and its mixed vector, in half precision as it is kept."""
    found = elmo.embed([text for text in CORPUS if elmo.words([text])[0]])
    rows = np.concatenate(found.layers).astype(np.float16).astype(np.float64)
    places = [(number, at, word) for number, row in enumerate(found.tokens) for at, word in enumerate(row)]
    return places, np.einsum("nld,l->nd", rows, np.asarray(weights, dtype=np.float64))


def cosines(rows: npt.NDArray[Any], vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = rows @ vector / (np.linalg.norm(rows, axis=1) * np.linalg.norm(vector))
    return found


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_nearest_are_those_that_plain_numpy_finds(
    elmo: Elmo, occurrences: Occurrences, weights: list[float]
) -> None:
    places, rows = reference(elmo, weights)
    query = elmo.embed(["a bank of stone and its rates"]).mixed(weights)[0]
    for vector in query:
        wanted = cosines(rows, vector.astype(np.float64))
        found = occurrences.nearest(vector, weights, 12)
        assert len(found) == 12
        scores = [one.score for one in found]
        assert scores == sorted(scores, reverse=True)
        by_place = {(number, at): score for (number, at, _), score in zip(places, wanted, strict=True)}
        for one in found:
            assert one.score == pytest.approx(by_place.pop((one.index, one.position)), abs=1e-5)
            assert one.words[one.position] == one.word
            assert any(map(str.isalnum, one.word))
        able = [by_place.get((number, at), -1) for number, at, word in places if any(map(str.isalnum, word))]
        assert max(able) <= scores[-1] + 1e-5, "nothing nearer was passed over"


def test_a_word_of_the_corpus_is_nearest_to_itself_and_can_be_left_out(
    elmo: Elmo, occurrences: Occurrences
) -> None:
    weights = WEIGHTS[0]
    vector = elmo.embed(["the bank of a river"]).mixed(weights)[0][1]
    best = occurrences.nearest(vector, weights, 3)[0]
    assert best.words == ("the", "bank", "of", "a", "river")
    assert best.word == "bank"
    assert 0.9999 < best.score <= 1.0
    others = occurrences.nearest(vector, weights, 1000, different_from="BANK")
    assert "river" in {one.word for one in others}
    assert "bank" not in {one.word.casefold() for one in others}


def test_weights_of_nothing_find_nothing_alike(occurrences: Occurrences) -> None:
    vector = np.ones(12, dtype=np.float32)
    assert {one.score for one in occurrences.nearest(vector, [0.0] * 3, 5)} == {0.0}
    assert {one.score for one in occurrences.nearest(0 * vector, [1.0] * 3, 5)} == {0.0}


def test_where_a_word_stands(elmo: Elmo, occurrences: Occurrences) -> None:
    places = occurrences.of_word("Bank", 100)
    assert [occurrences.at(place).word.lower() for place in places] == ["bank"] * len(places)
    everywhere = [word.casefold() for row in elmo.words(CORPUS) for word in row]
    assert len(places) == everywhere.count("bank") > 5
    assert occurrences.of_word("bank", 2) == places[:2]
    assert occurrences.of_word("nowhere", 2) == []
    for weights in WEIGHTS:
        _, rows = reference(elmo, weights)
        np.testing.assert_allclose(occurrences.mixed(places, weights), rows[places], atol=1e-5)
    assert occurrences.mixed([], WEIGHTS[0]).shape == (0, elmo.dim)


def test_copies_count_once_and_reading_stops_in_time(elmo: Elmo) -> None:
    def texts() -> Iterator[str]:
        for number in range(3000):
            yield "the bank" if number % 2 else f"river {number}"
        raise AssertionError("read too far")

    done: list[int] = []
    found = Occurrences.read(elmo, texts(), most=101, progress=done.append)
    assert sum(done) == len(found.flat) == 101
    assert found.texts.count(("the", "bank")) == 1
    assert found.texts[-1] == ("river",), "the last text is cut"
    assert len(found.texts) == 51
    whole = Occurrences.read(elmo, ["a river flows " * 50], most=100)
    assert len(whole.texts[0]) == 100, "a text that is longer than all that is read"


def test_a_corpus_without_a_word(elmo: Elmo) -> None:
    found = Occurrences.read(elmo, ["", "\u200b"])
    assert (len(found.texts), tuple(found.flat.shape)) == (0, (0, 3, 12))
    assert found.nearest(np.ones(12, dtype=np.float32), WEIGHTS[0], 5) == []
    assert found.of_word("bank", 5) == []


# -- the map ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "dim"), [(3, 2), (5, 40), (200, 12)])
def test_the_plane_is_that_of_a_principal_component_analysis(n: int, dim: int) -> None:
    rows = np.random.default_rng(n).normal(size=(n, dim)) * np.linspace(3, 1, dim) + 0.5
    points, shares = map_2d(rows)
    pca = PCA(2, svd_solver="full").fit(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    wanted = pca.transform(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    np.testing.assert_allclose(np.abs(points), np.abs(wanted), atol=1e-10)
    np.testing.assert_allclose(shares, pca.explained_variance_ratio_, atol=1e-10)
    for axis in points.T:
        assert axis.max() >= -axis.min(), "the larger end is up"
    np.testing.assert_allclose(map_2d(7 * rows)[0], points, atol=1e-10)


def test_planes_of_little() -> None:
    for rows in (np.ones((1, 4)), np.ones((5, 4)), np.zeros((3, 4)), np.ones((4, 1))):
        points, shares = map_2d(rows)
        assert points.shape == (len(rows), 2)
        assert not points.any()
        assert shares == [0.0, 0.0]
    points, shares = map_2d(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert shares == pytest.approx([1.0, 0.0])
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(2**0.5)


# -- the shelf --------------------------------------------------------------------------------


def test_models_and_reports_by_name(tmp_path: Path) -> None:
    folders = save_models(tmp_path)
    report = save_report(tmp_path / "a" / "report", "One", "")
    other = save_report(tmp_path / "b" / "report", "Two", "")
    (other / "report.json").write_text("{damaged", encoding="utf-8")
    places = [folders["small"], folders["small"], folders["topics"], folders["table"], report, other]
    shelf = open_shelf(list(map(str, places)), iter(CORPUS), corpus_name="odd", corpus_words=30)
    assert list(shelf.models) == ["small", "small-2", "topics", "table"]
    assert {name: one.title for name, one in shelf.reports.items()} == {"report": "One", "report-2": "report"}
    models = shelf.models
    assert models["small"].occurrences is models["topics"].occurrences, "read once for the same model"
    assert models["table"].occurrences is None
    small, topics, table = (models[name].facts() for name in ("small", "topics", "table"))
    assert (small["kind"], small["contextual"], small["n_layers"], small["dim"]) == ("encoder", True, 3, 12)
    assert (small["corpus"], small["corpus_texts"], small["warm"]) == ("odd", 5, True)
    assert small["weights"] == [1 / 3] * 3
    assert topics["kind"] == "classifier"
    assert topics["classes"] == ["money", "sport", "weather"]
    classifier = models["topics"].classifier
    assert classifier is not None
    assert topics["weights"] == pytest.approx(list(classifier.network.mix.values().values()))
    assert (table["contextual"], table["n_layers"], table["dim"], table["corpus_texts"]) == (False, 1, 8, 0)


def test_a_server_needs_a_model(tmp_path: Path) -> None:
    report = save_report(tmp_path / "report", "One", "")
    with pytest.raises(ModelError, match="only reports"):
        open_shelf([report], [])
    with pytest.raises(ModelError, match="nowhere"):
        open_shelf([str(tmp_path / "nowhere")], [])


def test_a_classifier_with_a_report_is_a_classifier(tmp_path: Path) -> None:
    folder = save_models(tmp_path)["topics"]
    (folder / "report.html").write_text("x", encoding="utf-8")
    (folder / "report.json").write_text("{}", encoding="utf-8")
    shelf = open_shelf([folder], [])
    assert list(shelf.models) == ["topics"]
    assert shelf.reports == {}
