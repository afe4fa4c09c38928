"""Layer 0: from a word's row of integers to its vector, once for each distinct word.

All encoders take ``features`` (n_words, width), the rows that ``elmokit.text.vocabulary`` makes, and return
vectors (n_words, dim). The caller masks out the vector of a row of zeros.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.packed_lstm import linear
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.word_table import WordTable
from elmokit.text.vocabulary import N_CHARACTERS

_WORDS_AT_ONCE = 1024


def random_normal(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal random numbers; on the device "meta", where weights are loaded later, an empty tensor.

    (Arithmetic on "meta" makes torch load its compiler, which takes a second or two.)
    """
    if torch.empty(0).is_meta:
        return torch.empty(shape)
    return torch.randn(shape) * scale if scale != 1 else torch.randn(shape)


class WordEncoder(nn.Module):
    """A table with a row for each word."""

    def __init__(self, n_words: int, dim: int, *, sparse: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.sparse = sparse
        self.weight = nn.Parameter(random_normal(n_words, dim, scale=scale))

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, 1) -> (n_words, dim)"""
        return F.embedding(features[:, 0], self.weight, sparse=self.sparse)


class PieceEncoder(nn.Module):
    """The pieces' vectors, pooled."""

    def __init__(self, n_pieces: int, dim: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.weight = nn.Parameter(random_normal(n_pieces, dim))

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, n_pieces) -> (n_words, dim)"""
        present = (features != 0).unsqueeze(-1)  # (n_words, n_pieces, 1)
        vectors = F.embedding(features, self.weight)  # (n_words, n_pieces, dim)
        if self.pooling == "max":
            lowest = torch.finfo(vectors.dtype).min
            pooled = vectors.masked_fill(~present, lowest).amax(dim=1)
            return pooled.masked_fill(~present.any(dim=1), 0.0)
        total = (vectors * present).sum(dim=1)
        if self.pooling == "sum":
            return total
        return total / present.sum(dim=1).clamp(min=1)


class Highway(nn.Module):
    """x <- g * relu(transform(x)) + (1 - g) * x with g = sigmoid(carry(x)).

    The names follow the published files, where the gate that admits the transform is called "carry".
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.carry = nn.Linear(dim, dim)
        self.transform = nn.Linear(dim, dim)
        nn.init.constant_(self.carry.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        """(n_words, dim) -> (n_words, dim)"""
        gate = torch.sigmoid(linear(x, self.carry))
        return x + gate * (torch.relu(linear(x, self.transform)) - x)


class _FilterMaximum(torch.autograd.Function):
    """The maximum of filters over all positions in the characters of many words.

    A filter's output at a position is a sum of one row per character, and there are few characters: so each
    row (offset in the filter, character) is computed once, and a position costs a few additions instead of a
    matrix product. Backward, only the position of the maximum matters.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, bias: Tensor, chars: Tensor) -> Tensor:
        # vectors (characters, char_dim), weight (width, char_dim, count), chars (words, length)
        width, _, count = weight.shape
        n_characters = len(vectors)
        rows = (vectors @ weight).view(width * n_characters, count)
        windows = chars.unfold(1, width, 1) + torch.arange(width) * n_characters
        n_words, n_positions, _ = windows.shape
        outputs = F.embedding_bag(windows.reshape(-1, width), rows, mode="sum")
        outputs = outputs.view(n_words, n_positions, count)
        highest = outputs.amax(dim=1)  # (words, count)
        if any(ctx.needs_input_grad):
            # Far faster than argmax, which torch does not vectorize.
            small = torch.uint8 if n_positions < 256 else torch.int32
            positions = torch.arange(n_positions, dtype=small).view(1, -1, 1)
            where = ((outputs == highest.unsqueeze(1)).to(small) * positions).amax(dim=1)
            ctx.save_for_backward(vectors, weight, chars, where)
        return highest + bias

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads  # (words, count)
        vectors, weight, chars, where = ctx.saved_tensors
        width, _, count = weight.shape
        n_characters = len(vectors)
        d_rows = grad.new_zeros(width, n_characters * count)
        where, columns, flat = where.long(), torch.arange(count), grad.reshape(-1)
        for offset in range(width):
            cells = chars.gather(1, where + offset).mul_(count).add_(columns)
            d_rows[offset].scatter_add_(0, cells.view(-1), flat)
        d_rows = d_rows.view(width, n_characters, count)
        d_vectors = (d_rows @ weight.transpose(1, 2)).sum(dim=0)
        d_weight = vectors.t() @ d_rows  # (width, char_dim, count)
        return d_vectors, d_weight, grad.sum(dim=0), None


class CharacterFilter(nn.Module):
    """All filters of one width: (width, char_dim, count) weights, a bias each."""

    def __init__(self, width: int, char_dim: int, count: int) -> None:
        super().__init__()
        limit = (width * char_dim) ** -0.5
        self.weight = nn.Parameter(torch.empty(width, char_dim, count).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.empty(count).uniform_(-limit, limit))

    def forward(self, vectors: Tensor, chars: Tensor) -> Tensor:
        """Character ids (words, length) -> highest outputs (words, count)."""
        return cast(Tensor, _FilterMaximum.apply(vectors, self.weight, self.bias, chars))  # type: ignore[no-untyped-call]


class CharacterEncoder(nn.Module):
    """The published ELMo character CNN: filters, maximum over positions, highway, projection.

    Args:
        n_characters: Rows of the table; the first is "no character", the last "past the end of the word".
    """

    def __init__(self, config: BilmConfig, n_characters: int = N_CHARACTERS) -> None:
        super().__init__()
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.padding = n_characters - 1
        self.weight = nn.Parameter(random_normal(n_characters, config.char_dim))
        self.filters = nn.ModuleList(
            CharacterFilter(width, config.char_dim, count) for width, count in config.filters
        )
        self.widest = max(width for width, _ in config.filters)
        self.n_filters = sum(count for _, count in config.filters)
        self.highways = nn.ModuleList(Highway(self.n_filters) for _ in range(config.n_highway))
        self.projection = nn.Linear(self.n_filters, config.dim) if self.n_filters != config.dim else None

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, max_chars) -> (n_words, dim)"""
        x = self.spelling(features)
        return x if self.projection is None else linear(x, self.projection)

    def spelling(self, features: Tensor) -> Tensor:
        """(n_words, max_chars) -> (n_words, all filters), before the projection"""
        # The vector of "no character" is always zero.
        vectors = torch.cat([self.weight.new_zeros(1, self.weight.shape[1]), self.weight[1:]])
        lengths = (features != self.padding).sum(dim=1)
        order = lengths.argsort(stable=True)  # words of similar length together: less padding
        parts = []
        blocks = zip(features[order].split(_WORDS_AT_ONCE), lengths[order].split(_WORDS_AT_ONCE), strict=True)
        for part, sizes in blocks:
            # Where a filter sees only padding its output is always the same, so one such place is enough.
            part = part[:, : int(sizes[-1:].sum()) + self.widest]
            parts.append(torch.cat([filters(vectors, part) for filters in self.filters], dim=1))
        x: Tensor = self.activation(torch.cat(parts)[order.argsort()])  # (n_words, all filters)
        for highway in self.highways:
            x = highway(x)
        return x


class DictionaryEncoder(CharacterEncoder):
    """The token encoder of ELMoForManyLangs: filters over listed characters, plus the word's row in a table.

    (There the row is concatenated with the filters' outputs before the projection; the sum is the same if the
    table was multiplied by its part of the projection.)
    """

    def __init__(self, config: BilmConfig, n_words: int, n_characters: int) -> None:
        super().__init__(config, n_characters)
        self.projection = nn.Linear(self.n_filters, config.dim)
        self.words = nn.Parameter(random_normal(n_words, config.dim))

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, 1 + max_chars) -> (n_words, dim)"""
        return super().forward(features[:, 1:]) + F.embedding(features[:, 0], self.words)


class CharacterWordEncoder(CharacterEncoder):
    """Filters over characters beside the word's row in a table, projected together.

    Args:
        n_rows: Rows of a table that is trained; 0 if ``table`` is set later, to one that stays as it is.
    """

    def __init__(self, config: BilmConfig, n_rows: int) -> None:
        super().__init__(config)
        self.projection = nn.Linear(self.n_filters + config.table_dim, config.dim)
        scale = config.table_dim**-0.5
        self.table: nn.Module | None = (
            WordEncoder(n_rows, config.table_dim, sparse=True, scale=scale) if n_rows else None
        )

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, 1 + max_chars) -> (n_words, dim)"""
        assert self.table is not None and self.projection is not None  # noqa: PT018
        has_row = (features[:, :1] > 0).float()
        rows = self.table(features[:, 0] if isinstance(self.table, WordTable) else features[:, :1])
        return linear(torch.cat([self.spelling(features[:, 1:]), rows * has_row], dim=1), self.projection)


def token_encoder(config: BilmConfig, n_words: int, n_pieces: int) -> nn.Module:
    """The encoder that ``config`` asks for."""
    if config.input == "char":
        return CharacterEncoder(config)
    if config.input == "char+word":
        return CharacterWordEncoder(config, n_pieces)
    if config.input == "dictionary":
        return DictionaryEncoder(config, n_words, n_pieces)
    if config.input == "word":
        sparse = config.objective != "full" or not config.tie
        scale = config.dim**-0.5 if config.tie else 1.0  # a shared table must suit the softmax too
        return WordEncoder(n_words, config.dim, sparse=sparse, scale=scale)
    return PieceEncoder(n_pieces, config.dim, config.pooling)
