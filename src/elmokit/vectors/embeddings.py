"""What ``Elmo.embed`` returns: every layer of every word of some texts, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.bilm.state import BilmState
from elmokit.core.errors import ConfigError, nearest
from elmokit.vectors.encoder import FloatArray, IntArray
from elmokit.vectors.settings import StoreConfig, layer_factors

Array = Any
"""A numpy array or a tensor."""
Pooling = Literal["mean", "max", "last", "sif"]
POOLINGS: tuple[Pooling, ...] = ("mean", "max", "last", "sif")


@dataclass(frozen=True)
class Embeddings:
    """Every layer of every word, text by text, in the order the texts were given.

    ``len(out)`` is the number of texts and ``out[i]`` all layers of one, (n_words, layer, dim).

    Attributes:
        tokens: The words of each text.
        flat: All words one after the other, (n_words, layer, dim); layer 0 is the token encoder.
        offsets: Text i is ``flat[offsets[i]:offsets[i + 1]]``.
        sif_weights: The weight of each word in "sif" pooling, (n_words,).
        notes: Notes for people, such as texts without a word.
        state: The model's state at the end, with ``state="stateful"``.
    """

    tokens: list[list[str]]
    flat: Array
    offsets: IntArray
    sif_weights: FloatArray
    notes: list[str] = field(default_factory=list)
    state: BilmState | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Array:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    @property
    def n_layers(self) -> int:
        """Number of layers, token encoder included."""
        return int(self.flat.shape[1])

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.flat.shape[2])

    @property
    def layers(self) -> list[Array]:
        """All layers of each text, each (n_words, layer, dim)."""
        return self.split(self.flat)

    def layer(self, index: int) -> list[Array]:
        """One layer of each text, each (n_words, dim); 0 is the token encoder, -1 the top."""
        return self.split(self._mix(index))

    def mixed(self, weights: Sequence[float] | None = None, *, gamma: float = 1.0) -> list[Array]:
        """The weighted sum of the layers of each text, each (n_words, dim); by default, equal weights."""
        return self.split(self._mix(None, weights, gamma))

    def sentence(
        self,
        pooling: Pooling = "mean",
        *,
        layer: int | None = None,
        weights: Sequence[float] | None = None,
    ) -> Array:
        """One vector per text, (n_texts, dim). A text without a word gets zeros.

        Args:
            pooling: "mean", "max", "last" (where each direction has read all: the forward half of
                the last word and the backward half of the first) or "sif" (a mean in which
                frequent words count less).
            layer: Pool one layer instead of a mix.
            weights: Weights of the mix; equal by default.
        """
        return pool(self._mix(layer, weights), self.offsets, pooling, self.sif_weights)

    def select(self, config: StoreConfig) -> Array:
        """What ``config`` asks for: (n_words or n_texts, dim), or (..., layer, dim) with all layers."""
        if config.pool == "none":
            return self.flat if config.all_layers else self._mix(config.layer, config.weights)
        if not config.all_layers:
            return self.sentence(config.pool, layer=config.layer, weights=config.weights)
        layers = [self.sentence(config.pool, layer=depth) for depth in range(self.n_layers)]
        return torch.stack(layers, dim=1) if isinstance(self.flat, Tensor) else np.stack(layers, axis=1)

    def _mix(self, layer: int | None, weights: Sequence[float] | None = None, gamma: float = 1.0) -> Array:
        """One layer, or a mix of all, of every word, (n_words, dim)."""
        factors = np.asarray(layer_factors(self.n_layers, layer, weights), np.float32) * np.float32(gamma)
        if layer is not None:
            return self.flat[:, layer]
        if isinstance(self.flat, Tensor):
            return torch.einsum("nld,l->nd", self.flat, torch.from_numpy(factors))
        return np.einsum("nld,l->nd", self.flat, factors)

    def split(self, words: Array) -> list[Array]:
        """What belongs to each text, from a row for each word of all texts."""
        return [words[first:last] for first, last in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


def pool(words: Array, offsets: IntArray, pooling: Pooling, sif_weights: FloatArray | None = None) -> Array:
    """One vector per text from the vectors of its words, (n_words, dim) -> (n_texts, dim)."""
    if pooling not in POOLINGS:
        raise ConfigError(f"There is no pooling {pooling!r}.", remedy=nearest(str(pooling), POOLINGS))
    if isinstance(words, Tensor):
        return torch.from_numpy(pool(words.numpy(), offsets, pooling, sif_weights))
    starts, counts = offsets[:-1], np.diff(offsets)
    full = counts > 0  # texts with a word
    result = np.zeros((len(counts), words.shape[1]), dtype=np.float32)
    if not full.any():
        return result
    if pooling == "last":
        half = words.shape[1] // 2
        result[full, :half] = words[offsets[1:][full] - 1, :half]
        result[full, half:] = words[starts[full], half:]
    elif pooling == "max":
        result[full] = np.maximum.reduceat(words, starts[full], axis=0)
    else:
        is_plain = pooling == "mean" or sif_weights is None
        shares: Array = np.ones(len(words), dtype=np.float32) if is_plain else sif_weights
        totals = np.add.reduceat(words * shares[:, None], starts[full], axis=0)
        result[full] = totals / np.add.reduceat(shares, starts[full])[:, None]
    return result
