"""Layer 0: from a word's row of integers to its vector, once for each distinct word.

All encoders take ``features`` of shape (n_words, width), the rows that ``elmokit.text.vocabulary``
makes, and give vectors of shape (n_words, dim). A row of zeros gives a vector that is masked out
by the caller.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.config import BilmConfig
from elmokit.text.vocabulary import N_CHARACTERS

__all__ = ["CharacterEncoder", "PieceEncoder", "WordEncoder", "token_encoder"]

_PADDING = N_CHARACTERS - 1  # the id of "past the end of the word"


class WordEncoder(nn.Module):
    """A table with a row for each word."""

    def __init__(self, n_words: int, dim: int, *, sparse: bool) -> None:
        super().__init__()
        self.sparse = sparse
        self.weight = nn.Parameter(torch.randn(n_words, dim) / dim**0.5)

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, 1) -> (n_words, dim)"""
        return F.embedding(features[:, 0], self.weight, sparse=self.sparse)


class PieceEncoder(nn.Module):
    """The pieces' vectors, pooled."""

    def __init__(self, n_pieces: int, dim: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.weight = nn.Parameter(torch.randn(n_pieces, dim) / dim**0.5)

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

    The names follow the published files, where the gate that lets the transform in is "carry".
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.carry = nn.Linear(dim, dim)
        self.transform = nn.Linear(dim, dim)
        nn.init.constant_(self.carry.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        """(n_words, dim) -> (n_words, dim)"""
        gate = torch.sigmoid(self.carry(x))
        return x + gate * (torch.relu(self.transform(x)) - x)


class CharacterEncoder(nn.Module):
    """The published ELMo character CNN: filters, maximum over places, highway, projection."""

    def __init__(self, config: BilmConfig) -> None:
        super().__init__()
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.weight = nn.Parameter(torch.randn(N_CHARACTERS, config.char_dim))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_dim, count, width) for width, count in config.filters
        )
        self.widest = max(width for width, _ in config.filters)
        total = sum(count for _, count in config.filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.n_highway))
        self.projection = nn.Linear(total, config.dim) if total != config.dim else None
        with torch.no_grad():
            self.weight[0].zero_()

    def forward(self, features: Tensor) -> Tensor:
        """(n_words, max_chars) -> (n_words, dim)"""
        # Places where a filter sees nothing but padding all give one value, so one such place
        # for each filter is enough: columns further on can go without changing the maximum.
        longest = int((features != _PADDING).sum(dim=1).max()) if len(features) else 0
        features = features[:, : longest + self.widest]
        chars = F.embedding(features, self.weight, padding_idx=0)  # (n_words, length, char_dim)
        chars = chars.transpose(1, 2).contiguous()  # (n_words, char_dim, length)
        pooled = [conv(chars).amax(dim=2) for conv in self.convolutions]
        x: Tensor = self.activation(torch.cat(pooled, dim=1))  # (n_words, all filters)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)


def token_encoder(config: BilmConfig, n_words: int, n_pieces: int) -> nn.Module:
    """The encoder that ``config`` asks for."""
    if config.input == "char":
        return CharacterEncoder(config)
    if config.input == "word":
        sparse = config.objective != "full" or not config.tie
        return WordEncoder(n_words, config.dim, sparse=sparse)
    return PieceEncoder(n_pieces, config.dim, config.pooling)
