"""Word vectors as a type: what is looked up, the rule for unknown words, neighbours and analogies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.static.word_vectors import UNKNOWN_WORDS, WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK
from elmokit.text.vocabulary import Vocabulary

TEXT = TextConfig(lowercase=True)
WORDS = ["king", "queen", "man", "woman", "apple"]
ROWS = np.array([[3.0, 1.0, 0.1], [3.0, -1.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.1, 0.0], [0.0, 0.1, 5.0]])


@pytest.fixture
def table() -> WordVectors:
    return WordVectors.of(WORDS, ROWS, TEXT)


def test_special_words_come_first_and_the_rest_in_order(table: WordVectors) -> None:
    assert table.vocabulary.words == [*SPECIALS, *WORDS]
    assert (len(table), table.n_words, table.dim) == (9, 5, 3)
    assert table.vectors.dtype == np.float32
    np.testing.assert_allclose(table.look_up(WORDS), ROWS, rtol=1e-6)


def test_a_table_without_a_row_for_unknown_words_gets_the_mean(table: WordVectors) -> None:
    np.testing.assert_allclose(table.vectors[UNK], ROWS.mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(table.vector("banana"), table.vectors[UNK])
    assert not table.vectors[[PAD, BOS, EOS]].any()


@pytest.mark.parametrize("name", UNKNOWN_WORDS)
def test_a_row_for_unknown_words_is_taken_whatever_it_is_called(name: str) -> None:
    table = WordVectors.of(["a", name, "b"], [[1, 0], [5, 5], [0, 1]], TEXT)
    assert table.vocabulary.words == [*SPECIALS, "a", "b"]
    assert table.vector("c").tolist() == table.vector(name).tolist() == [5, 5]


def test_of_several_such_rows_the_first_kind_counts() -> None:
    table = WordVectors.of(["UNK", "unk", "</s>", "<unk>"], [[1], [2], [3], [4]], TEXT)
    assert table.vocabulary.words == [*SPECIALS, "UNK", "unk"]
    assert table.vectors.ravel().tolist() == [0, 4, 0, 3, 1, 2]  # </s> is no word for the unknown


def test_control_words_in_a_text_are_unknown_words(table: WordVectors) -> None:
    found = table.look_up([*SPECIALS, "king"])
    assert found.shape == (5, 3)
    assert (found[:4] == table.vectors[UNK]).all()
    assert "king" in table
    assert not any(word in table for word in (*SPECIALS, "King", "banana"))
    assert table.look_up([]).shape == (0, 3)


def test_words_are_found_as_elsewhere(table: WordVectors) -> None:
    assert table.words(["The King's APPLE!", ["The", "King's"], "", []]) == [
        ["the", "king", "'s", "apple", "!"],
        ["the", "king's"],
        [],
        [],
    ]


@pytest.mark.parametrize("texts", [["a", None], ["a", 3.5], [["a", None]]], ids=str)
def test_what_is_no_text_is_refused(table: WordVectors, texts: Any) -> None:
    with pytest.raises(DataError, match="neither a string nor a list"):
        table.words(texts)


def test_a_table_of_texts_is_refused(table: WordVectors) -> None:
    with pytest.raises(ConfigError, match="not one string"):
        table.words("a text")
    with pytest.raises(DataError, match="not a table"):
        table.words(np.array([["a", "b"]]))  # type: ignore[arg-type]


def test_neighbours_are_ranked_by_cosine_and_are_never_the_word_itself(table: WordVectors) -> None:
    found = table.neighbours("king", 10)
    units = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    wanted = sorted(zip(units[1:] @ units[0], WORDS[1:], strict=True), reverse=True)
    assert [word for word, _ in found] == [word for _, word in wanted]
    np.testing.assert_allclose([score for _, score in found], [score for score, _ in wanted], rtol=1e-5)
    assert table.neighbours("KING", 1) == found[:1]
    assert table.similarity("king", "Man") == pytest.approx(units[0] @ units[2])


def test_an_analogy_leaves_its_own_words_out(table: WordVectors) -> None:
    assert table.analogy("man", "king", "woman", 2)[0][0] == "queen"
    assert {word for word, _ in table.analogy("man", "king", "woman")} == {"queen", "apple"}


def test_words_without_a_vector_are_named_with_like_ones(table: WordVectors) -> None:
    with pytest.raises(DataError, match="no vector for 'quen'") as caught:
        table.neighbours("quen")
    assert "queen" in caught.value.remedy
    for ask in (lambda: table.similarity("king", "xyz"), lambda: table.analogy("a1", "king", "man")):
        with pytest.raises(DataError, match="no vector for"):
            ask()
    with pytest.raises(ConfigError, match="k = 0"):
        table.neighbours("king", 0)


def test_the_fingerprint_changes_with_anything_that_counts(table: WordVectors) -> None:
    same = WordVectors.of(WORDS, ROWS, TEXT, {"method": "svd"})
    assert same.fingerprint == table.fingerprint
    others = [
        WordVectors.of(WORDS, ROWS + 0.01, TEXT),
        WordVectors.of(WORDS[::-1], ROWS, TEXT),
        replace(table, text=TextConfig()),
    ]
    assert len({table.fingerprint, *(other.fingerprint for other in others)}) == 4


@pytest.mark.parametrize(
    ("words", "rows"),
    [(["a"], [[1], [2]]), (["a", "a"], [[1], [2]]), ([], np.empty((0, 2))), (["a"], [1.0])],
    ids=["too few words", "a word twice", "empty", "flat"],
)
def test_words_and_rows_that_do_not_fit_are_refused(words: list[str], rows: Any) -> None:
    with pytest.raises(ModelError, match="do not make word vectors"):
        WordVectors.of(words, rows, TEXT)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (np.zeros((3, 2), dtype=np.float32), "does not fit"),
        (np.zeros((5, 0), dtype=np.float32), "does not fit"),
        (np.zeros((5, 2)), "float32"),
        (np.full((5, 2), np.inf, dtype=np.float32), "finite"),
    ],
)
def test_a_wrong_table_is_refused(vectors: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        WordVectors(Vocabulary([*SPECIALS, "a"]), vectors, TEXT)
