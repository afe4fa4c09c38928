"""What ``Elmo.embed`` takes and gives: odd texts, bad arguments, the word cache, views and poolings."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.state import BilmState
from elmokit.core.errors import ConfigError, DataError, ElmokitError
from elmokit.text.settings import TextConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import POOLINGS, Embeddings, Pooling
from odd_texts import make_model

WORDS = ["the", "of", "cat", "dogs", "naïve", "rare"]
TEXTS = ["the cat of dogs", "", "rare", "naïve cat , unseen", "  "]
INPUTS = ["char", "word", "subword"]
inputs = pytest.mark.parametrize("kind", INPUTS)


@functools.cache
def folder_of(kind: str, n_layers: int = 2, dim: int = 4) -> BilmFolder:
    shape = {"n_layers": n_layers, "dim": dim, "hidden_dim": dim}
    return make_model(input=kind, known=" ".join(WORDS), text=TextConfig(lowercase=True), **shape)


def elmo_of(kind: str = "char", **options: Any) -> Elmo:
    return Elmo(folder_of(kind), **options)


# -- texts ----------------------------------------------------------------------------------------


@inputs
@pytest.mark.parametrize("texts", [[], [""], ["", "  "], [[]]])
def test_no_word_at_all_is_no_error(kind: str, texts: list[Any]) -> None:
    elmo = elmo_of(kind)
    for state in ("zero", "warm", "stateful"):
        out = elmo.embed(texts, state=state)
        assert out.flat.shape == (0, elmo.n_layers, elmo.dim)
        assert len(out) == len(texts) == len(out.layer(1)) == len(out.mixed())
        for pooling in POOLINGS:
            assert out.sentence(pooling).shape == (len(texts), elmo.dim)
            assert not out.sentence(pooling).any()


def test_boundaries_of_an_empty_text_can_be_had() -> None:
    out = elmo_of().embed([""], boundaries=True)
    assert out.tokens == [["<s>", "</s>"]]
    np.testing.assert_allclose(out.sentence("mean", layer=1)[0], out.layer(1)[0].mean(axis=0), rtol=1e-5)
    assert np.abs(out[0]).max() > 0


@inputs
def test_words_given_as_a_list_are_cleaned_but_neither_split_nor_dropped(kind: str) -> None:
    given = ["New York", "", " ", "\x00", "don't", "<s>", "THE", "e\u0301", "a\ud800"]
    out = elmo_of(kind).embed([given, tuple(given[:2])])
    assert out.tokens[0] == ["new york", "", " ", "\x00", "don't", "<s>", "the", "é", "a\ufffd"]
    assert len(out[0]) == len(given)
    assert len(out[1]) == 2
    assert np.isfinite(out.flat).all()


# -- bad arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "options", "error", "said"),
    [
        ("the cat", {}, ConfigError, "not a single string"),
        (["the", None], {}, DataError, "Text 1 is neither"),
        ([["the", ["cat"]]], {}, DataError, "Text 0 is neither"),
        ([b"the"], {}, DataError, "Text 0 is neither.*bytes"),
        (["the"], {"state": "statefull"}, ConfigError, "state = 'statefull'"),
        (["the"], {"batch_size": 0}, ConfigError, "batch_size = 0"),
    ],
)
def test_a_bad_argument_is_refused_with_words_that_help(
    texts: Any, options: dict[str, Any], error: type[ElmokitError], said: str
) -> None:
    with pytest.raises(error, match=said):
        elmo_of().embed(texts, **options)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (2, 5)])
def test_a_state_of_another_model_is_refused(shape: tuple[int, int]) -> None:
    n_layers, dim = shape
    foreign = folder_of("char", n_layers, dim).model.zero_state(1)
    elmo = elmo_of()
    with pytest.raises(ConfigError, match="does not fit this model"):
        elmo.embed(["the"], state=foreign)
    state = elmo.embed(["the", "cat"], state="stateful", batch_size=2).state
    assert state is not None
    with pytest.raises(ConfigError, match="2 rows, the batch has 3"):
        elmo.embed(["the"] * 3, state=state, batch_size=3)


# -- what comes back ------------------------------------------------------------------------------


def states_of(state: BilmState | None) -> list[Tensor]:
    assert state is not None
    return list(state.tensors().values())


@inputs
def test_results_carry_no_autograd_state_and_can_be_trained_on(kind: str) -> None:
    elmo = elmo_of(kind)
    out = elmo.embed(TEXTS, state="stateful")
    for tensor in states_of(out.state):
        assert not tensor.requires_grad
        assert not tensor.is_inference()
    head = nn.Linear(elmo.dim, 2)
    head(torch.from_numpy(out.flat)).sum().backward()
    assert head.weight.grad is not None
    out.flat.fill(1.0)


@inputs
def test_embedding_changes_no_bit_of_the_model(kind: str) -> None:
    folder = folder_of(kind)
    weights = {name: x.detach().clone() for name, x in folder.model.named_parameters()}
    start = [tensor.clone() for tensor in states_of(folder.start_state)]
    elmo = Elmo(folder, cached_words=2)
    for state in ("zero", "warm", "stateful"):
        elmo.embed(TEXTS, state=state).flat.fill(7.0)
    assert all(torch.equal(weights[name], x) for name, x in folder.model.named_parameters())
    assert all(map(torch.equal, start, states_of(folder.start_state)))
    assert not any(x.is_inference() or x.grad is not None for x in folder.model.parameters())


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"state": "stateful", "batch_size": 2}])
def test_progress_is_told_of_every_text_once(options: dict[str, Any]) -> None:
    told: list[int] = []
    elmo_of().embed(TEXTS, progress=told.append, **options)
    assert sum(told) == len(TEXTS)
    assert max(told) <= options.get("batch_size", len(TEXTS))


# -- views ----------------------------------------------------------------------------------------

TOKENS = [["a", "b", "c"], [], ["d"], ["e", "f"], []]
COUNTS = [3, 0, 1, 2, 0]
OFFSETS = np.array([0, 3, 3, 4, 6, 6])


def made(n_layers: int = 3, dim: int = 4) -> Embeddings:
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(6, n_layers, dim)).astype(np.float32)
    sif_weights = rng.uniform(0.1, 1.0, 6).astype(np.float32)
    return Embeddings(TOKENS, flat, OFFSETS, sif_weights)


def test_a_text_is_its_part_of_all_words() -> None:
    out = made()
    assert len(out) == 5
    assert (out.n_layers, out.dim) == (3, 4)
    assert [len(row) for row in out.layers] == COUNTS
    assert [len(row) for row in out] == COUNTS  # type: ignore[attr-defined]
    np.testing.assert_array_equal(out[0], out.flat[:3])
    np.testing.assert_array_equal(out[2], out.flat[3:4])
    np.testing.assert_array_equal(out[-2], out.flat[4:])
    np.testing.assert_array_equal(out[-5], out[0])
    for index in (5, -6):
        with pytest.raises(IndexError):
            out[index]


@pytest.mark.parametrize("n_layers", [1, 3])
def test_mixed_is_the_weighted_sum_of_the_layers(n_layers: int) -> None:
    out = made(n_layers)
    weights = [0.3 * depth - 0.4 for depth in range(n_layers)]
    for given, gamma in ((weights, 1.0), (None, -0.5), (np.array(weights), -0.5)):
        factors = [1 / n_layers] * n_layers if given is None else weights
        for row, whole in zip(out.mixed(given, gamma=gamma), out.layers, strict=True):  # type: ignore[arg-type]
            wanted = gamma * np.tensordot(whole, factors, (1, 0))
            np.testing.assert_allclose(row, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layer": 3}, "no layer 3: this model has 3"),
        ({"layer": -4}, "no layer -4: this model has 3"),
        ({"weights": []}, "0 weights were given for 3 layers"),
        ({"layer": 0, "weights": [1.0, 0.0, 0.0]}, "used together"),
        ({"pooling": "man"}, "no pooling 'man'"),
    ],
    ids=str,
)
def test_a_choice_that_there_is_not_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        made().sentence(**choice)
    assert caught.value.remedy


# -- poolings -------------------------------------------------------------------------------------


def plain_pooling(words: Any, sif_weights: Any, pooling: str) -> list[float]:
    """One text's words to one vector, number by number."""
    dim = words.shape[1]
    if len(words) == 0:
        return [0.0] * dim
    if pooling == "max":
        return [max(float(word[place]) for word in words) for place in range(dim)]
    if pooling == "last":
        return [float(words[-1][place] if place < dim // 2 else words[0][place]) for place in range(dim)]
    shares = [float(share) for share in sif_weights] if pooling == "sif" else [1.0] * len(words)
    return [
        sum(share * float(word[place]) for share, word in zip(shares, words, strict=True)) / sum(shares)
        for place in range(dim)
    ]


@pytest.mark.parametrize("choice", [{}, {"layer": -1}, {"weights": [0.5, -1.0, 2.0]}], ids=str)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_sentence_vectors_equal_plain_loops_over_each_text(pooling: Pooling, choice: dict[str, Any]) -> None:
    out = made()
    factors = np.zeros(3)
    if "layer" in choice:
        factors[choice["layer"]] = 1.0
    else:
        factors[:] = choice.get("weights", [1 / 3] * 3)
    wanted = [
        plain_pooling((out[text] * factors[:, None]).sum(axis=1), out.sif_weights[first:last], pooling)
        for text, (first, last) in enumerate(itertools.pairwise(OFFSETS))
    ]
    found = out.sentence(pooling, **choice)
    assert found.shape == (5, 4)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_rare_words_count_more_and_unknown_and_control_words_as_the_rarest() -> None:
    ranked = [*WORDS, "unseen", "<unk>", "<s>", "</s>", "<pad>"]
    sif_weights = elmo_of().embed([ranked]).sif_weights
    p = [1 / rank for rank in range(1, len(WORDS) + 1)]
    wanted = [1e-3 / (1e-3 + share / sum(p)) for share in p]
    np.testing.assert_allclose(sif_weights[: len(WORDS)], wanted, rtol=1e-5)
    assert (np.diff(sif_weights[: len(WORDS)]) > 0).all()
    assert (sif_weights[len(WORDS) :] == sif_weights[len(WORDS) - 1]).all()


def test_boundaries_count_as_frequent_and_control_words_between_them_do_not() -> None:
    elmo = elmo_of()
    out = elmo.embed([["<s>", "cat"], [], ["</s>"]], boundaries=True)
    often, cat, rarest = elmo.embed([["the", "cat", "unseen"]]).sif_weights
    wanted = [often, rarest, cat, often, often, often, often, rarest, often]
    np.testing.assert_array_equal(out.sif_weights, wanted)
    assert len(out.sif_weights) == len(out.flat)
