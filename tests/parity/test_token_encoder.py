"""The token encoders (layer 0) against the numpy reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm import token_encoder as module
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.token_encoder import CharacterEncoder, PieceEncoder, WordEncoder, token_encoder
from elmokit.text.tokenizing import SPECIALS
from elmokit.text.vocabulary import Characters

TOLERANCE = 1e-5
WORDS = [*SPECIALS, "a", "of", "the", "naïve", "word", "日本", "incomprehensibilities", "x" * 60]


def array(tensor: Tensor) -> reference.Array:
    return tensor.detach().double().numpy()


def arrays(module: nn.Module) -> dict[str, reference.Array]:
    return {name: array(parameter) for name, parameter in module.named_parameters()}


def char_config(
    dim: int = 6,
    max_chars: int = 12,
    filters: tuple[tuple[int, int], ...] = ((1, 3), (2, 2), (5, 3)),
    n_highway: int = 1,
    activation: str = "relu",
) -> BilmConfig:
    return BilmConfig.from_dict(
        {
            "input": "char",
            "dim": dim,
            "char_dim": 4,
            "max_chars": max_chars,
            "filters": filters,
            "n_highway": n_highway,
            "char_activation": activation,
        }
    )


def char_encoder(config: BilmConfig) -> CharacterEncoder:
    torch.manual_seed(4)
    encoder = CharacterEncoder(config)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name != "weight":
                parameter.normal_(0.0, 0.6)
    return encoder


def char_rows(words: list[str], max_chars: int) -> Tensor:
    return torch.from_numpy(Characters(max_chars).rows(words).astype(np.int64))


def expected_vectors(encoder: CharacterEncoder, config: BilmConfig, rows: Tensor) -> reference.Array:
    weights = arrays(encoder)
    return np.stack(
        [
            reference.char_cnn(
                row,
                weights,
                n_filters=len(config.filters),
                n_highway=config.n_highway,
                activation=config.char_activation,
            )
            for row in rows.numpy()
        ]
    )


CONFIGS = {
    "relu": char_config(),
    "tanh": char_config(activation="tanh"),
    "no highway": char_config(n_highway=0),
    "two highways": char_config(n_highway=2, activation="tanh"),
    "no projection": char_config(dim=8),
    "filter as wide as a word": char_config(filters=((12, 3), (1, 2))),
    "words fill all columns": char_config(max_chars=5),
    "fifty columns": char_config(max_chars=50, filters=((1, 2), (7, 3))),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_character_encoder_equals_the_reference_over_all_columns(name: str) -> None:
    config = CONFIGS[name]
    encoder = char_encoder(config)
    rows = char_rows(WORDS, config.max_chars)
    found = array(encoder(rows))
    np.testing.assert_allclose(found, expected_vectors(encoder, config, rows), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGS)
def test_character_encoder_of_short_words_alone_equals_the_reference(name: str) -> None:
    config = CONFIGS[name]
    encoder = char_encoder(config)
    for words in (["a"], ["of", "a"], ["<s>", "</s>"]):
        rows = char_rows(words, config.max_chars)
        np.testing.assert_allclose(
            array(encoder(rows)), expected_vectors(encoder, config, rows), rtol=TOLERANCE, atol=TOLERANCE
        )


def test_padding_columns_take_part_in_the_maximum() -> None:
    config = char_config(filters=((1, 4),), n_highway=0, dim=4)
    encoder = char_encoder(config)
    rows = char_rows(["a"], config.max_chars)
    kernel = arrays(encoder)["filters.0.weight"][0]  # (char_dim, count)
    with torch.no_grad():
        encoder.weight[261] = torch.from_numpy(50.0 * kernel.sum(axis=1))
    weights = arrays(encoder)
    of_padding = weights["weight"][261] @ kernel + weights["filters.0.bias"]
    found = array(encoder(rows))[0]
    assert (found >= np.maximum(of_padding, 0) - 1e-3).all()
    assert (of_padding > 1.0).any()


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_words_taken_in_parts_of_any_size_come_back_in_their_order(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORDS_AT_ONCE", at_once)
    config = char_config()
    encoder = char_encoder(config)
    rows = char_rows(WORDS[::-1] + WORDS, config.max_chars)
    np.testing.assert_allclose(
        array(encoder(rows)), expected_vectors(encoder, config, rows), rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("width", [1, 2, 5])
def test_filter_maximum_passes_gradcheck_in_double(width: int) -> None:
    rng = torch.Generator().manual_seed(width)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()

    chars = torch.randint(0, 9, (4, 6), generator=rng)
    chars[0, 2:] = 8  # places that are all alike
    chars[1] = 0
    highest: Callable[..., Tensor] = module._FilterMaximum.apply
    assert torch.autograd.gradcheck(
        lambda vectors, weight, bias: highest(vectors, weight, bias, chars),
        (leaf(9, 3), leaf(width, 3, 4), leaf(4)),
    )


@pytest.mark.parametrize("name", ["relu", "two highways", "words fill all columns", "fifty columns"])
def test_character_encoder_gradients_equal_those_of_a_plain_convolution(name: str) -> None:
    config = CONFIGS[name]
    encoder = char_encoder(config)
    rows = char_rows(WORDS, config.max_chars)
    own = dict(encoder.named_parameters())

    pooled = []
    chars = F.embedding(rows, own["weight"]) * (rows != 0).unsqueeze(2)  # (words, columns, char_dim)
    for number in range(len(config.filters)):
        kernel = own[f"filters.{number}.weight"].permute(2, 1, 0)  # (count, char_dim, width)
        answers = F.conv1d(chars.transpose(1, 2), kernel, own[f"filters.{number}.bias"])
        pooled.append(answers.amax(dim=2))
    x = torch.cat(pooled, dim=1)
    x = torch.relu(x) if config.char_activation == "relu" else torch.tanh(x)
    for highway in encoder.highways:
        x = highway(x)
    plain = x if encoder.projection is None else encoder.projection(x)

    found = encoder(rows)
    torch.testing.assert_close(found, plain, rtol=TOLERANCE, atol=TOLERANCE)
    weights = torch.linspace(-1, 1, found.numel()).view_as(found)
    leaves = list(own.values())
    ours = torch.autograd.grad((found * weights).sum(), leaves)
    theirs = torch.autograd.grad((plain * weights).sum(), leaves)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_the_vector_of_no_character_counts_for_nothing_and_gets_no_gradient() -> None:
    config = char_config()
    encoder = char_encoder(config)
    before = encoder(char_rows(WORDS, config.max_chars))
    with torch.no_grad():
        encoder.weight[0] = 100.0
    assert torch.equal(encoder(char_rows(WORDS, config.max_chars)), before)
    encoder(char_rows(WORDS, config.max_chars)).square().sum().backward()
    grad = encoder.weight.grad
    assert grad is not None
    assert not grad[0].any()
    assert grad[261].any()


def test_character_encoder_takes_no_words_at_all() -> None:
    config = char_config()
    empty = torch.empty(0, config.max_chars, dtype=torch.long)
    assert char_encoder(config)(empty).shape == (0, config.dim)


@pytest.mark.parametrize("pooling", ["mean", "max", "sum"])
def test_piece_encoder_equals_the_reference(pooling: str) -> None:
    torch.manual_seed(5)
    encoder = PieceEncoder(20, 7, pooling)
    rows = torch.tensor([[0, 0, 0], [3, 0, 0], [4, 9, 0], [19, 1, 2], [5, 5, 5]])
    wanted = [reference.pool_pieces(row, array(encoder.weight), pooling) for row in rows.numpy()]
    np.testing.assert_allclose(array(encoder(rows)), np.stack(wanted), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("pooling", ["mean", "max", "sum"])
def test_piece_encoder_does_not_care_for_further_columns_of_zeros(pooling: str) -> None:
    encoder = PieceEncoder(20, 7, pooling)
    rows = torch.tensor([[4, 9], [7, 0], [0, 0]])
    wider = torch.cat([rows, torch.zeros(3, 5, dtype=torch.long)], dim=1)
    torch.testing.assert_close(encoder(wider), encoder(rows), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("pooling", ["mean", "max", "sum"])
def test_piece_zero_gets_no_gradient(pooling: str) -> None:
    encoder = PieceEncoder(20, 7, pooling)
    encoder(torch.tensor([[4, 9], [7, 0], [0, 0]])).square().sum().backward()
    grad = encoder.weight.grad
    assert grad is not None
    assert torch.isfinite(grad).all()
    assert not grad[0].any()
    assert grad[[4, 7, 9]].any(dim=1).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_word_encoder_gives_table_rows_and_gradients_to_those_rows_alone(sparse: bool) -> None:
    encoder = WordEncoder(10, 3, sparse=sparse)
    ids = torch.tensor([[2], [7], [2]])
    found = encoder(ids)
    assert torch.equal(found, encoder.weight[ids[:, 0]])
    found.sum().backward()
    grad = encoder.weight.grad
    assert grad is not None
    assert grad.is_sparse == sparse
    dense = grad.to_dense() if sparse else grad
    wanted = torch.zeros(10, 3)
    wanted[2], wanted[7] = 2.0, 1.0
    assert torch.equal(dense, wanted)


def test_token_encoder_gives_the_kind_that_is_asked_for() -> None:
    kinds = {
        kind: type(token_encoder(BilmConfig.from_dict({"input": kind, "dim": 8}), 10, 20)).__name__
        for kind in ("char", "word", "subword", "morpheme")
    }
    assert kinds == {
        "char": "CharacterEncoder",
        "word": "WordEncoder",
        "subword": "PieceEncoder",
        "morpheme": "PieceEncoder",
    }


@pytest.mark.parametrize(
    ("objective", "tie", "sparse"),
    [("sampled", False, True), ("full", False, True), ("sampled", True, True), ("full", True, False)],
)
def test_only_a_table_shared_with_the_full_softmax_has_dense_gradients(
    objective: str, tie: bool, sparse: bool
) -> None:
    config = BilmConfig.from_dict({"input": "word", "dim": 4, "objective": objective, "tie": tie})
    encoder = token_encoder(config, 10, 0)
    assert isinstance(encoder, WordEncoder)
    assert encoder.sparse == sparse
