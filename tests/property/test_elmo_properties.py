"""What must hold of contextual vectors whatever is asked: a text's vectors are its own."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.bilm.folder import BilmFolder
from elmokit.text.tokenizing import SPECIALS, Text
from elmokit.vectors import elmo as elmo_module
from elmokit.vectors.elmo import Elmo, State
from elmokit.vectors.encoder import FloatArray
from odd_texts import make_model

FEW = settings(max_examples=5, deadline=None)
TOLERANCE = 1e-5
WORDS = ["the", "of", "cat", "dogs", "naïve", "rare", "日", "rarest"]

SHAPES: dict[str, dict[str, Any]] = {
    "fused": {"input": "char"},
    "loop": {"input": "char", "hidden_dim": 6, "cell_clip": 0.5, "proj_clip": 0.4},
    "word": {"input": "word", "residual": False, "n_layers": 3},
    "subword": {"input": "subword", "n_layers": 1},
}


@functools.cache
def folder_of(shape: str) -> BilmFolder:
    return make_model(known=" ".join(WORDS), **{"dim": 4, "hidden_dim": 4, **SHAPES[shape]})


def vectors(
    shape: str, texts: list[Text], state: State = "zero", *, cached_words: int = 100, **options: Any
) -> list[FloatArray]:
    """Every text's vectors (n_words, layer, 2 dim), from an Elmo that has seen nothing yet."""
    return Elmo(folder_of(shape), cached_words=cached_words).embed(texts, state=state, **options).layers


def assert_same(found: list[FloatArray], wanted: list[FloatArray]) -> None:
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE)


shapes = pytest.mark.parametrize("shape", SHAPES)
each_alone = st.sampled_from(["zero", "warm"])
word = st.sampled_from([*WORDS, *SPECIALS, "unseen", "extraordinarily", "😀", "שלום", "e\u0301", "12", ""])
raw_texts = st.one_of(
    st.lists(word, max_size=7).map(" ".join),
    st.text(max_size=12),
    st.sampled_from(["", " \t", "the cat, of naïve dogs.", "👨‍👩‍👧 قطة", "the of the of the"]),
)
any_text: st.SearchStrategy[Text] = st.one_of(raw_texts, st.lists(word, max_size=9))
text_lists = st.lists(any_text, min_size=1, max_size=6)


# -- a text's vectors are its own -----------------------------------------------------------------


@shapes
@FEW
@given(state=each_alone, texts=text_lists, data=st.data())
def test_the_order_of_texts_does_not_matter(
    shape: str, state: State, texts: list[Text], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    plain = vectors(shape, texts, state)
    assert_same(vectors(shape, [texts[place] for place in order], state), [plain[place] for place in order])


@shapes
@FEW
@given(state=each_alone, texts=text_lists, batch_size=st.integers(1, 8), budget=st.sampled_from([1, 15, 40]))
def test_neither_batch_size_nor_token_budget_matters(
    shape: str, state: State, texts: list[Text], batch_size: int, budget: int
) -> None:
    plain = vectors(shape, texts, state)
    assert_same(vectors(shape, texts, state, batch_size=batch_size), plain)
    with mock.patch.object(elmo_module, "_BATCH_TOKENS", budget):
        assert_same(vectors(shape, texts, state), plain)
        assert_same(vectors(shape, texts, state, batch_size=batch_size), plain)


@shapes
@FEW
@given(state=each_alone, text=any_text, some=text_lists, others=text_lists)
def test_a_texts_companions_do_not_matter(
    shape: str, state: State, text: Text, some: list[Text], others: list[Text]
) -> None:
    alone = vectors(shape, [text], state)
    assert_same(vectors(shape, [text, *some], state)[:1], alone)
    assert_same(vectors(shape, [*others, text], state)[-1:], alone)


@shapes
@FEW
@given(
    texts=text_lists, earlier=st.lists(text_lists, max_size=3), cached_words=st.sampled_from([0, 1, 3, 100])
)
def test_what_ran_before_does_not_matter_however_many_words_are_kept(
    shape: str, texts: list[Text], earlier: list[list[Text]], cached_words: int
) -> None:
    elmo = Elmo(folder_of(shape), cached_words=cached_words)
    for some in earlier:
        elmo.embed(some)
        elmo.embed(some, state="stateful")
    plain = vectors(shape, texts)
    assert_same(elmo.embed(texts).layers, plain)
    elmo.word_cache.keep(WORDS[:3])
    assert_same(elmo.embed(texts).layers, plain)
    elmo.word_cache.forget()
    assert_same(elmo.embed(texts).layers, plain)


@shapes
@FEW
@given(text=any_text, between=text_lists)
def test_the_same_sentence_always_has_the_same_vectors(shape: str, text: Text, between: list[Text]) -> None:
    elmo = Elmo(folder_of(shape), cached_words=3)
    first = elmo.embed([text]).layers
    out = elmo.embed([text, *between, text]).layers
    assert_same([out[0], out[-1]], [*first, *first])
    elmo.embed(between, state="stateful")
    assert_same(elmo.embed([text]).layers, first)


@shapes
@FEW
@given(
    state=st.sampled_from(["zero", "warm", "stateful"]),
    texts=text_lists,
    window=st.integers(1, 6),
    batch_size=st.sampled_from([1, 3]),
)
def test_reading_long_texts_in_windows_gives_what_one_pass_gives(
    shape: str, state: State, texts: list[Text], window: int, batch_size: int
) -> None:
    plain = vectors(shape, texts, state, batch_size=batch_size)
    with mock.patch.object(elmo_module, "_WINDOW", window):
        assert_same(vectors(shape, texts, state, batch_size=batch_size), plain)


@shapes
@FEW
@given(texts=text_lists)
def test_keeping_the_boundaries_adds_two_words_and_changes_no_other(shape: str, texts: list[Text]) -> None:
    elmo = Elmo(folder_of(shape))
    plain, framed = elmo.embed(texts), elmo.embed(texts, boundaries=True)
    assert_same([row[1:-1] for row in framed.layers], plain.layers)
    assert framed.tokens == [["<s>", *row, "</s>"] for row in plain.tokens]
    assert plain.tokens == elmo.words(texts)


@shapes
@FEW
@given(texts=text_lists)
def test_a_control_word_means_the_same_as_an_unknown_mark(shape: str, texts: list[Text]) -> None:
    elmo = Elmo(folder_of(shape))
    given = elmo.words(texts)
    unknown = [["<unk>" if word in SPECIALS else word for word in row] for row in given]
    assert_same(elmo.embed(given).layers, elmo.embed(unknown).layers)


# -- carried state --------------------------------------------------------------------------------


@shapes
@FEW
@given(texts=text_lists, n_rows=st.integers(1, 3), data=st.data())
def test_going_on_from_a_results_state_equals_one_call(
    shape: str, texts: list[Text], n_rows: int, data: st.DataObject
) -> None:
    cut = n_rows * data.draw(st.integers(0, len(texts) // n_rows))
    elmo = Elmo(folder_of(shape))
    whole = elmo.embed(texts, state="stateful", batch_size=n_rows)
    first = elmo.embed(texts[:cut], state="stateful", batch_size=n_rows)
    assert first.state is not None
    second = elmo.embed(texts[cut:], state=first.state)
    assert_same([*first.layers, *second.layers], whole.layers)
    assert whole.state is not None
    assert second.state is not None
    for name, tensor in whole.state.tensors().items():
        torch.testing.assert_close(second.state.tensors()[name], tensor, rtol=TOLERANCE, atol=TOLERANCE)


@shapes
@FEW
@given(texts=text_lists, n_rows=st.integers(1, 3))
def test_stateful_rows_side_by_side_equal_each_row_read_alone(
    shape: str, texts: list[Text], n_rows: int
) -> None:
    together = vectors(shape, texts, "stateful", batch_size=n_rows)
    for row in range(n_rows):
        assert_same(together[row::n_rows], vectors(shape, texts[row::n_rows], "stateful"))


@shapes
@FEW
@given(texts=text_lists, chunk=st.integers(1, 4))
def test_a_stream_of_texts_gives_what_one_call_gives(shape: str, texts: list[Text], chunk: int) -> None:
    with mock.patch.object(elmo_module, "_CHUNK_TEXTS", chunk):
        for state in ("zero", "warm"):
            parts = Elmo(folder_of(shape)).chunks(iter(texts), state)
            assert_same([layers for part in parts for layers in part.layers], vectors(shape, texts, state))


@shapes
def test_stateful_depends_on_the_order_and_the_first_text_starts_from_zero(shape: str) -> None:
    one, two = "the cat of dogs", "rare rarest"
    ahead, behind = vectors(shape, [one, two], "stateful"), vectors(shape, [two, one], "stateful")
    zero = vectors(shape, [one, two])
    assert_same([ahead[0], behind[0]], zero)
    for after, alone in ((ahead[1], zero[1]), (behind[1], zero[0])):
        np.testing.assert_allclose(after[:, 0], alone[:, 0], rtol=TOLERANCE, atol=TOLERANCE)
        assert np.abs(after[:, 1:] - alone[:, 1:]).max() > 1e-3


@shapes
def test_zero_is_what_a_text_starts_from_unless_told(shape: str) -> None:
    texts: list[Text] = ["the cat of dogs", "rare rarest"]
    zero = vectors(shape, texts)
    assert_same(Elmo(folder_of(shape)).embed(texts).layers, zero)
    for words, other in zip(zero, vectors(shape, texts, "warm"), strict=True):
        assert np.abs(words[:, 1:] - other[:, 1:]).max() > 1e-3
