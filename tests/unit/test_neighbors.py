"""Nearest vectors against brute force, and the searches built on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.decomposition import PCA

from elmokit.core.errors import ConfigError, DataError, ElmokitError, ModelError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import (
    LayerMix,
    Occurrences,
    map_2d,
    mix_layers,
    nearest_rows,
    search,
    similar_words,
)
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_writer import embed
from odd_texts import make_model
from serving import CORPUS

TEXTS = [
    "The bank raised its rates on Monday.",
    "A river bank is made of mud, 😀 and stones.",
    "The central bank cut rates again; the Bank said so.",
    "Nobody reads the company's letters.",
    "",
    "שלום the bank עולם",
    "The bank raised its rates on Monday.",
    "She raised three children by the cafe\u0301.",
]


def make_elmo(seed: int = 0) -> Elmo:
    frequent = " ".join(["the", ".", "its", "on", *(f"w{number}" for number in range(60))])
    return Elmo(make_model(seed, known=f"{frequent} bank"))


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return make_elmo()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "texts.csv"
    path.write_text("text,key\n" + "".join(f'"{t}",k{i}\n' for i, t in enumerate(TEXTS)), encoding="utf-8")
    return path


def brute_force(matrix: npt.NDArray[Any], queries: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """All cosines, one by one."""
    scores = np.zeros((len(queries), len(matrix)))
    for (q, query), (r, row) in itertools.product(enumerate(queries), enumerate(matrix)):
        length = np.linalg.norm(query.astype(np.float64)) * np.linalg.norm(row.astype(np.float64))
        scores[q, r] = query.astype(np.float64) @ row.astype(np.float64) / length if length else 0.0
    return scores


# -- nearest rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize(("k", "dtype"), [(5, "float16"), (80, "float32")])
def test_nearest_rows_are_those_of_brute_force(
    k: int, block: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.vectors.neighbors._BLOCK_NUMBERS", 9 * block)
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(50, 9)).astype(dtype)
    queries = rng.normal(size=(4, 9)).astype(np.float32)
    rows, scores = nearest_rows(matrix, queries, k)
    wanted = brute_force(matrix, queries)
    assert rows.shape == scores.shape == (4, min(k, 50))
    assert np.array_equal(rows, np.argsort(-wanted, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(scores, np.take_along_axis(wanted, rows, axis=1), atol=1e-6)


@pytest.mark.parametrize("block", [1, 8, 40])
def test_of_equal_rows_the_first_comes_first(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.vectors.neighbors._BLOCK_NUMBERS", 300 * block)
    rng = np.random.default_rng(1)
    few = rng.normal(size=(3, 300)).astype(np.float32)
    matrix = few[rng.integers(0, 3, size=40)] * np.float32(2) ** rng.integers(-3, 3, size=(40, 1))
    for k in (1, 4, 17, 40):
        rows, _ = nearest_rows(matrix.astype(np.float32), few, k)
        wanted = np.argsort(-brute_force(matrix, few).round(6), axis=1, kind="stable")[:, :k]
        assert np.array_equal(rows, wanted)


def test_zero_vectors_have_the_cosine_zero_and_nothing_gives_nothing() -> None:
    matrix = np.array([[0.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    rows, scores = nearest_rows(matrix, np.array([[1.0, 0.0], [0.0, 0.0]]), 4)
    assert rows.tolist() == [[3, 0, 2, 1], [0, 1, 2, 3]]
    assert scores.tolist() == [[1.0, 0.0, 0.0, -1.0], [0.0] * 4]
    for n_rows, n_queries, shape in ((0, 2, (2, 0)), (4, 0, (0, 4))):
        rows, scores = nearest_rows(np.ones((n_rows, 3)), np.ones((n_queries, 3)), 5)
        assert rows.shape == scores.shape == shape


# -- search ---------------------------------------------------------------------------------------

POOLED: list[dict[str, Any]] = [
    {"pool": "sif"},
    {"pool": "last", "layer": 1, "dtype": "float16"},
    {"pool": "max", "mix_weights": "0,1,2", "state": "warm", "format": "safetensors"},
    {"pool": "mean", "all_layers": True},
]


def test_vectors_that_are_not_finite_are_refused() -> None:
    for rows, queries in (([[np.nan, 1.0]], [[1.0, 0.0]]), ([[1.0, 0.0]], [[np.inf, 0.0]])):
        with pytest.raises(DataError, match="not finite"):
            nearest_rows(np.array(rows, np.float32), np.array(queries, np.float32), 1)


@pytest.mark.parametrize("settings", POOLED, ids=str)
def test_search_finds_each_text_itself_first(
    elmo: Elmo, corpus: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = StoreConfig.from_dict({**settings, "id_column": "key"})
    embed(elmo, corpus, tmp_path / "store", config=config)
    found = search(tmp_path / "store", [text for text in TEXTS if text], elmo, k=3)
    for index, hits in zip([0, 1, 2, 3, 5, 0, 7], found, strict=True):
        assert (hits[0].index, hits[0].id, hits[0].text) == (index, f"k{index}", TEXTS[index])
        assert hits[0].score == pytest.approx(1.0, abs=1e-3)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert found[0][1].index == 6  # the copy comes second


@pytest.fixture(scope="module")
def stores(elmo: Elmo, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores of words, of texts, of one layer and of all."""
    folder = tmp_path_factory.mktemp("stores")
    choices: dict[str, dict[str, Any]] = {
        "words": {},
        "texts": {"pool": "mean"},
        "layer 2": {"layer": 2},
        "all": {"all_layers": True},
    }
    return {name: embed(elmo, corpus, folder / name, **given).folder for name, given in choices.items()}


@pytest.mark.parametrize(
    ("name", "queries", "options", "error", "message"),
    [
        ("words", ["x"], {}, ConfigError, "each word(.|\n)*--pool sentence"),
        ("texts", ["x"], {"encoder": make_elmo(seed=1)}, ModelError, "another model"),
        ("texts", ["x", " "], {}, DataError, "Query 1"),
        ("texts", ["x"], {"k": 0}, ConfigError, "k = 0"),
        ("nowhere", ["x"], {}, DataError, "no file or folder"),
    ],
)
def test_search_refuses_what_it_cannot_answer(
    elmo: Elmo,
    stores: dict[str, Path],
    name: str,
    queries: Any,
    options: dict[str, Any],
    error: type[ElmokitError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        search(stores.get(name, Path("nowhere")), queries, **{"encoder": elmo, **options})


# -- words in context -----------------------------------------------------------------------------


def test_similar_words_are_those_of_brute_force(elmo: Elmo) -> None:
    query = "The bank raised rates."
    texts = TEXTS[:6]
    found = similar_words(elmo, query, texts, k=5)
    assert [one.word for one in found] == ["bank", "raised", "rates"]
    corpus = elmo.embed(texts)
    rows = np.concatenate(corpus.mixed())
    flat = [(text, position) for text, words in enumerate(corpus.tokens) for position in range(len(words))]
    for one in found:
        wanted = brute_force(rows, elmo.embed([query]).mixed()[0][one.position][None])[0]
        order = np.argsort(-wanted, kind="stable")[:5]
        assert [(hit.index, hit.position) for hit in one.neighbors] == [flat[place] for place in order]
        np.testing.assert_allclose([hit.score for hit in one.neighbors], wanted[order], atol=1e-5)
        for hit in one.neighbors:
            assert hit.words[hit.position] == hit.word
            assert list(hit.words) == corpus.tokens[hit.index]


@pytest.mark.parametrize("options", [{"layer": -1}, {"weights": [0, 1, 1]}, {"state": "warm"}])
def test_a_sentence_in_the_corpus_finds_itself_once(elmo: Elmo, options: dict[str, Any]) -> None:
    found = similar_words(elmo, TEXTS[0], TEXTS, word="bank", k=30, **options)
    hits = found[0].neighbors
    first = [hit for hit in hits if hit.index in (0, 6)]
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)
    assert {hit.index for hit in first} == {0}  # the copy is not listed again
    assert len({(hit.words, hit.position) for hit in hits}) == len(hits) == 30


def test_different_leaves_the_word_itself_out_however_it_is_spelt(elmo: Elmo) -> None:
    (same,) = similar_words(elmo, "the bank", TEXTS, word="BANK", k=50)
    assert {"bank", "Bank"} <= {hit.word for hit in same.neighbors}
    (other,) = similar_words(elmo, "the bank", TEXTS, word="bank", k=50, different=True)
    assert not {"bank", "Bank"} & {hit.word for hit in other.neighbors}
    kept = [(hit.index, hit.position) for hit in same.neighbors if hit.word.lower() != "bank"]
    assert [(hit.index, hit.position) for hit in other.neighbors][: len(kept)] == kept


def test_frequent_words_and_punctuation_are_left_out_unless_there_is_nothing_else(elmo: Elmo) -> None:
    for query, words in (
        ("The bank raised its rates.", ["bank", "raised", "rates"]),
        ("The its.", ["The", "its"]),
        ("? !", ["?", "!"]),
    ):
        assert [one.word for one in similar_words(elmo, query, TEXTS)] == words
    twice = similar_words(elmo, "bank or bank", TEXTS, word="bank", k=1)
    assert [one.position for one in twice] == [0, 2]


@pytest.mark.parametrize(
    "settings",
    [{}, {"mix_weights": "0.5,0.25,0.25"}, {"all_layers": True}, {"state": "warm", "dtype": "float16"}],
    ids=str,
)
def test_a_folder_of_vectors_gives_the_same_answer(
    elmo: Elmo, corpus: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.vectors.neighbors._BLOCK_ROWS", 10)
    config = StoreConfig.from_dict({**settings, "id_column": "key"})
    embed(elmo, corpus, tmp_path / "store", config=config)
    store = VectorStore.open(tmp_path / "store")
    (found,) = similar_words(elmo, "a bank on a river", store, word="bank", k=6)
    choice: Any = {"layer": config.layer, "weights": config.weights, "state": config.state}
    (wanted,) = similar_words(elmo, "a bank on a river", TEXTS, word="bank", k=6, **choice)
    scores = [[hit.score for hit in one.neighbors] for one in (found, wanted)]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)
    assert found.neighbors[0].words == wanted.neighbors[0].words
    assert found.neighbors[0].id == f"k{found.neighbors[0].index}"


@pytest.mark.parametrize(
    ("query", "texts", "options", "error", "message"),
    [
        ("the bank", TEXTS, {"word": "bnak"}, ConfigError, "no word 'bnak'(.|\n)*'bank'"),
        ("bank", ["", " "], {}, DataError, "corpus contains no words"),
        ("bank", TEXTS, {"k": 0}, ConfigError, "k = 0"),
        ("bank", "the bank", {}, ConfigError, "no corpus"),
        ("bank", np.array([["x", "y"]]), {}, DataError, "not a table"),
        ("bank", TEXTS, {"layer": 1, "weights": [1, 1, 1]}, ConfigError, "used together"),
        ("bank", "store of texts", {}, ConfigError, "each text(.|\n)*--pool none"),
        ("bank", "store of layer 2", {"layer": 0}, ConfigError, "holds the layer 2, not the layer 0"),
        ("bank", "store of layer 2", {"weights": [1, 1, 1]}, ConfigError, "not the mix"),
        ("bank", "store of layer 2", {"model": make_elmo(seed=1)}, ModelError, "another model"),
    ],
)
def test_what_similar_words_cannot_answer_is_refused(
    elmo: Elmo,
    stores: dict[str, Path],
    query: str,
    texts: Any,
    options: dict[str, Any],
    error: type[ElmokitError],
    message: str,
) -> None:
    if isinstance(texts, str) and texts.startswith("store of "):
        texts = VectorStore.open(stores[texts.removeprefix("store of ")])
    with pytest.raises(error, match=message):
        similar_words(**{"model": elmo, "query": query, "texts": texts, **options})


def test_a_layer_that_a_folder_holds_by_another_name_or_among_others_is_found(
    elmo: Elmo, stores: dict[str, Path]
) -> None:
    for name, layer in (("layer 2", -1), ("all", 1)):
        assert similar_words(elmo, "bank", VectorStore.open(stores[name]), layer=layer)[0].neighbors


def test_a_long_corpus_streams_and_tells_how_far_it_is(elmo: Elmo) -> None:
    n_given = 0

    def texts() -> Iterator[str]:
        nonlocal n_given
        for number in range(1300):
            n_given += 1
            yield f"{TEXTS[number % len(TEXTS)]} {number}"

    told: list[tuple[int, int]] = []
    (found,) = similar_words(
        elmo, "the bank raised", texts(), word="bank", k=3, progress=lambda n: told.append((n, n_given))
    )
    assert [amount for amount, _ in told] == [512, 512, 276]
    assert told[0][1] == 512  # the rest had not been asked for yet
    assert len(found.neighbors) == 3


# -- a corpus in memory ---------------------------------------------------------------------------

WEIGHTS = [[1 / 3] * 3, [0.5, -0.2, 1.5]]


@pytest.fixture(scope="module")
def occurrences(elmo: Elmo) -> Occurrences:
    return Occurrences.read(elmo, CORPUS, name="odd")


def by(weights: list[float]) -> LayerMix:
    return partial(mix_layers, weights=weights)


def reference(elmo: Elmo, weights: list[float]) -> tuple[list[tuple[int, int, str]], npt.NDArray[Any]]:
    """Every word of the corpus and its mixed vector, in half precision as it is kept."""
    out = elmo.embed([text for text in CORPUS if elmo.words([text])[0]])
    rows = np.concatenate(out.layers).astype(np.float16).astype(np.float64)
    places = [(number, at, word) for number, row in enumerate(out.tokens) for at, word in enumerate(row)]
    return places, np.einsum("nld,l->nd", rows, np.asarray(weights, dtype=np.float64))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_nearest_are_those_that_plain_numpy_finds(
    elmo: Elmo, occurrences: Occurrences, weights: list[float]
) -> None:
    places, rows = reference(elmo, weights)
    query = elmo.embed(["a bank of stone and its rates"]).mixed(weights)[0]
    for vector, wanted in zip(query, brute_force(rows, query), strict=True):
        neighbors = occurrences.nearest(vector, by(weights), 12)
        scores = [one.score for one in neighbors]
        assert scores == sorted(scores, reverse=True)
        by_place = {place: score for place, score in zip(places, wanted, strict=True) if place[2].isalnum()}
        for one in neighbors:
            assert one.score == pytest.approx(by_place.pop((one.index, one.position, one.word)), abs=1e-5)
        assert len(scores) == 12
        assert max(by_place.values()) <= scores[-1] + 1e-5, "nothing nearer was passed over"
    others = occurrences.nearest(query[1], by(weights), 1000, different_from="BANK")
    assert "river" in {one.word for one in others}
    assert "bank" not in {one.word.casefold() for one in others}


def test_where_a_word_stands(elmo: Elmo, occurrences: Occurrences) -> None:
    places = occurrences.of_word("Bank", 100)
    assert [occurrences.at(place).word.lower() for place in places] == ["bank"] * len(places)
    everywhere = [word.casefold() for row in elmo.words(CORPUS) for word in row]
    assert len(places) == everywhere.count("bank") > 5
    assert occurrences.of_word("bank", 2) == places[:2]
    assert occurrences.of_word("nowhere", 2) == []
    for weights in WEIGHTS:
        _, rows = reference(elmo, weights)
        np.testing.assert_allclose(occurrences.mixed(places, by(weights)), rows[places], atol=1e-5)
    assert occurrences.mixed([], by(WEIGHTS[0])).shape == (0, elmo.dim)


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
