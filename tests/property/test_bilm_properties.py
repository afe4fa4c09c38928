"""What must hold of a biLM whatever the batch: a text's vectors are its own, and time has a direction."""

from __future__ import annotations

import functools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.bilm import perplexity as evaluation
from elmokit.bilm.model import Bilm
from elmokit.bilm.perplexity import Perplexity, perplexity
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.softmax import TablePredictor
from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK
from elmokit.text.vocabulary import Characters

FEW = settings(max_examples=15, deadline=None)
TOLERANCE = 1e-5
WORDS = [*SPECIALS, "a", "of", "cat", "dogs", "naïve", "tremendous", "rare", "rarest"]
N_PREDICTED = 10  # the last two words can be read but not predicted

SHAPES: dict[str, dict[str, Any]] = {
    "fused": {"input": "char", "dim": 4, "hidden_dim": 4},
    "loop": {"input": "char", "dim": 4, "hidden_dim": 6, "cell_clip": 3.0, "proj_clip": 2.0},
    "word": {"input": "word", "dim": 4, "hidden_dim": 4, "residual": False, "n_layers": 3},
}


@functools.cache
def model_of(shape: str) -> Bilm:
    common = {"max_chars": 14, "char_dim": 3, "filters": ((1, 2), (3, 4)), "objective": "full"}
    torch.manual_seed(0)
    n_words = len(WORDS) if shape == "word" else N_PREDICTED
    model = Bilm(BilmConfig.from_dict({**common, **SHAPES[shape]}), n_words)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "stack" in name or name == "predictor.bias":
                parameter.normal_(0.0, 0.7)
    return model.eval()


@functools.cache
def rows_of(shape: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    """A row for each of WORDS."""
    if shape == "word":
        return np.arange(len(WORDS), dtype=np.int32)[:, None]
    return Characters(14).rows(WORDS)


def features_of(shape: str) -> Tensor:
    return torch.from_numpy(rows_of(shape).astype(np.int64))


def run(
    shape: str, texts: list[list[int]], *, further: int = 0, filler: int = 0, compact: bool = False
) -> list[Tensor]:
    """Every text's vectors (time, layer, 2 dim), all texts in one batch.

    Args:
        shape: which model.
        texts: ids into WORDS.
        further: columns of padding past the longest text.
        filler: the id that padding places hold.
        compact: give the model rows of the distinct words alone.
    """
    width = max(map(len, texts)) + further
    index = np.full((len(texts), width), filler, dtype=np.int64)
    for row, text in enumerate(texts):
        index[row, : len(text)] = text
    features = features_of(shape)
    if compact:
        distinct, places = np.unique(index, return_inverse=True)
        features, index = features[distinct], places.reshape(index.shape)
    lengths = torch.tensor([len(text) for text in texts])
    with torch.no_grad():
        out = model_of(shape)(features, torch.from_numpy(index), lengths)
    stacked = out.stacked()
    for row, text in enumerate(texts):
        assert not stacked[row, len(text) :].any()
    return [stacked[row, : len(text)] for row, text in enumerate(texts)]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=TOLERANCE, atol=TOLERANCE)


shapes = pytest.mark.parametrize("shape", SHAPES)
word_ids = st.integers(0, len(WORDS) - 1)
text_lists = st.lists(st.lists(word_ids, min_size=1, max_size=7), min_size=1, max_size=5)


# -- a text's vectors are its own -----------------------------------------------------------------


@shapes
@FEW
@given(texts=text_lists)
def test_a_batch_of_any_size_gives_each_text_what_it_has_alone(shape: str, texts: list[list[int]]) -> None:
    assert_same(run(shape, texts), [run(shape, [text])[0] for text in texts])


@shapes
@FEW
@given(texts=text_lists, data=st.data())
def test_the_order_of_texts_in_a_batch_does_not_matter(
    shape: str, texts: list[list[int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    plain = run(shape, texts)
    assert_same(run(shape, [texts[place] for place in order]), [plain[place] for place in order])


@shapes
@FEW
@given(text=st.lists(word_ids, min_size=1, max_size=7), some=text_lists, others=text_lists)
def test_a_texts_companions_do_not_matter(
    shape: str, text: list[int], some: list[list[int]], others: list[list[int]]
) -> None:
    assert_same(run(shape, [text, *some])[:1], run(shape, [*others, text])[-1:])


@shapes
@FEW
@given(texts=text_lists, further=st.integers(0, 6), filler=word_ids, compact=st.booleans())
def test_padding_does_not_matter_however_wide_and_whatever_it_holds(
    shape: str, texts: list[list[int]], further: int, filler: int, compact: bool
) -> None:
    assert_same(run(shape, texts, further=further, filler=filler, compact=compact), run(shape, texts))


# -- time has a direction -------------------------------------------------------------------------


@shapes
@FEW
@given(text=st.lists(word_ids, min_size=1, max_size=8), data=st.data())
def test_a_changed_word_changes_nothing_before_it_forwards_and_nothing_after_it_backwards(
    shape: str, text: list[int], data: st.DataObject
) -> None:
    t = data.draw(st.integers(0, len(text) - 1), label="t")
    other = data.draw(word_ids.filter(lambda word: word != text[t]), label="other")
    changed = [*text[:t], other, *text[t + 1 :]]
    before, after = run(shape, [text])[0], run(shape, [changed])[0]  # (time, layer, 2 dim)
    differs = before != after
    dim = model_of(shape).config.dim
    ahead, behind = differs[:, :, :dim], differs[:, :, dim:]
    assert not ahead[:t].any()
    assert not behind[t + 1 :].any()
    # Layer 0 changes at t, and only there; every other layer at t and its own neighbour.
    assert not differs[:t, 0].any()
    assert not differs[t + 1 :, 0].any()
    assert differs[t].any(dim=1).all()
    assert ahead[t].any(dim=1).all()
    assert behind[t].any(dim=1).all()
    if t + 1 < len(text):
        assert ahead[t + 1, 1:].any(dim=1).all()
    if t > 0:
        assert behind[t - 1, 1:].any(dim=1).all()


# -- characters -----------------------------------------------------------------------------------

spelling = st.text(st.sampled_from("abcxyzéß日🙂"), max_size=8)


@FEW
@given(word=spelling, some=st.lists(spelling, max_size=4), others=st.lists(spelling, max_size=4))
def test_a_words_character_vector_does_not_depend_on_the_words_beside_it(
    word: str, some: list[str], others: list[str]
) -> None:
    encoder = model_of("fused").encoder

    def vector(words: list[str], place: int) -> Tensor:
        rows = torch.from_numpy(Characters(14).rows(words).astype(np.int64))
        with torch.no_grad():
            found: Tensor = encoder(rows)[place]
        return found

    alone = vector([word], 0)
    for words, place in (([word, *some], 0), ([*others, word], -1), ([word, "<pad>", "w" * 14], 0)):
        torch.testing.assert_close(vector(words, place), alone, rtol=TOLERANCE, atol=TOLERANCE)


# -- perplexity -----------------------------------------------------------------------------------

inner_words = st.one_of(st.just(UNK), st.integers(EOS + 1, len(WORDS) - 1))
document_lists = st.lists(st.lists(inner_words, min_size=1, max_size=9), min_size=1, max_size=10)


def documents_of(texts: list[list[int]]) -> Documents:
    framed = [[BOS, *text, EOS] for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in framed])]).astype(np.int64)
    return Documents(np.concatenate(framed).astype(np.uint16), offsets)


def assert_same_perplexity(found: Perplexity, wanted: Perplexity) -> None:
    assert found.n_predictions == wanted.n_predictions
    assert found.forward == pytest.approx(wanted.forward, rel=TOLERANCE)
    assert found.backward == pytest.approx(wanted.backward, rel=TOLERANCE)
    assert found.perplexity == pytest.approx(wanted.perplexity, rel=TOLERANCE)


@shapes
@FEW
@given(texts=document_lists, budget=st.sampled_from([1, 12, 40, 4096]), data=st.data())
def test_perplexity_from_zero_state_does_not_depend_on_the_order_of_documents(
    shape: str, texts: list[list[int]], budget: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(texts))
    model, rows = model_of(shape), rows_of(shape)
    with mock.patch.object(evaluation, "_EVAL_TOKENS", budget):
        found = perplexity(model, documents_of(list(order)), rows, state="zero")
    assert_same_perplexity(found, perplexity(model, documents_of(texts), rows, state="zero"))


@shapes
@FEW
@given(texts=document_lists)
def test_perplexity_from_zero_state_is_that_of_all_documents_one_by_one(
    shape: str, texts: list[list[int]]
) -> None:
    model, rows = model_of(shape), rows_of(shape)
    sums = [0.0, 0.0]
    n = 0
    for text in texts:
        alone = perplexity(model, documents_of([text]), rows, state="zero")
        sums[0] += math.log(alone.forward) * (len(text) + 1)
        sums[1] += math.log(alone.backward) * (len(text) + 1)
        n += len(text) + 1
    wanted = Perplexity.from_losses(sums[0], n, sums[1], n)
    assert_same_perplexity(perplexity(model, documents_of(texts), rows, state="zero"), wanted)


def one_lane_loss(shape: str, stream: list[int], backward: bool) -> tuple[float, int]:
    """Summed loss and count of a whole stream read at once by one direction, written out plainly."""
    model = model_of(shape)
    stack = model.backward_stack if backward else model.forward_stack
    own = model.predictor
    assert isinstance(own, TablePredictor)
    with torch.no_grad():
        x = model.encoder(features_of(shape))[torch.tensor(stream[:-1])].unsqueeze(1)
        top = stack(x, stack.zero_state(1))[0][-1][:, 0]
        log_p = F.log_softmax((top @ own.weight.t() + own.bias).double(), dim=1)
    total, count = 0.0, 0
    for step, target in enumerate(stream[1:]):
        if target == (EOS if backward else BOS):  # what begins the next text is no news
            continue
        total -= float(log_p[step, target if target < model.n_words else UNK])
        count += 1
    return total, count


@shapes
@FEW
@given(texts=document_lists)
def test_perplexity_with_carried_state_equals_one_plain_lane_when_the_text_is_short(
    shape: str, texts: list[list[int]]
) -> None:
    documents = documents_of(texts)
    assert documents.n_tokens < 128  # so there is one lane, of one or two windows
    framed = [[BOS, *text, EOS] for text in texts]
    ahead = one_lane_loss(shape, [word for text in framed for word in text], backward=False)
    behind = one_lane_loss(shape, [word for text in framed for word in text[::-1]], backward=True)
    found = perplexity(model_of(shape), documents, rows_of(shape), state="carried")
    assert_same_perplexity(found, Perplexity.from_losses(*ahead, *behind))


@shapes
def test_carried_and_zero_state_agree_on_a_single_document(shape: str) -> None:
    documents = documents_of([[4, 5, 6, 7, 8, 9, 10, 11, UNK]])
    model, rows = model_of(shape), rows_of(shape)
    assert_same_perplexity(
        perplexity(model, documents, rows, state="carried"),
        perplexity(model, documents, rows, state="zero"),
    )


def test_perplexity_puts_the_model_back_into_the_mode_it_was_in() -> None:
    model = model_of("fused")
    documents = documents_of([[4, 5]])
    try:
        for mode in (True, False):
            model.train(mode)
            perplexity(model, documents, rows_of("fused"))
            assert model.training == mode
    finally:
        model.eval()
