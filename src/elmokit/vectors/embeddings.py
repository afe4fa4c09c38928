"""What ``Elmo.embed`` gives: every layer of every word of some texts, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.bilm.state import BilmState
from elmokit.core.errors import ConfigError, nearest

__all__ = ["POOLINGS", "Embeddings", "Pooling", "pooled"]

Floats = npt.NDArray[np.float32]
A = TypeVar("A", Floats, Tensor)
Pooling = Literal["mean", "max", "last", "sif"]
POOLINGS: tuple[Pooling, ...] = ("mean", "max", "last", "sif")


@dataclass(frozen=True)
class Embeddings(Generic[A]):
    """Every layer of every word, text by text, in the order the texts were given.

    Attributes:
        tokens: the words of each text.
        flat: all words one after the other, (n_words, layer, dim); layer 0 is the token encoder.
        offsets: text i is ``flat[offsets[i]:offsets[i + 1]]``.
        rarity: how much each word counts in the "sif" pooling, (n_words,).
        notes: what a person should know, such as texts without a word.
        state: what the model remembers at the end, if ``state="stateful"`` was asked for.

    ``len(out)`` is the number of texts and ``out[i]`` all layers of one, (n_words, layer, dim).
    """

    tokens: list[list[str]]
    flat: A
    offsets: npt.NDArray[np.int64]
    rarity: Floats
    notes: list[str] = field(default_factory=list)
    state: BilmState | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> A:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    @property
    def n_layers(self) -> int:
        """Layers, token encoder included."""
        return int(self.flat.shape[1])

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.flat.shape[2])

    @property
    def layers(self) -> list[A]:
        """All layers of each text, each (n_words, layer, dim)."""
        return [self[index] for index in range(len(self))]

    def layer(self, index: int) -> list[A]:
        """One layer of each text, each (n_words, dim); 0 is the token encoder, -1 the top."""
        return self._split(self._chosen(index))

    def mixed(self, weights: Sequence[float] | None = None, *, gamma: float = 1.0) -> list[A]:
        """The weighted sum of the layers of each text, each (n_words, dim); equal weights unless given."""
        return self._split(self._mixed(weights, gamma))

    def sentence(
        self,
        pooling: Pooling = "mean",
        *,
        layer: int | None = None,
        weights: Sequence[float] | None = None,
    ) -> A:
        """One vector per text, (n_texts, dim). A text without a word gets zeros.

        Args:
            pooling: "mean", "max", "last" (where each direction has read all: the forward half of
                the last word and the backward half of the first) or "sif" (a mean in which
                frequent words count less).
            layer: pool one layer, instead of a mix.
            weights: of the mix; equal unless given.
        """
        if layer is not None and weights is not None:
            raise ConfigError(
                "layer and weights exclude each other.", remedy="Choose one: a layer, or a mix of them."
            )
        words = self._mixed(weights, 1.0) if layer is None else self._chosen(layer)
        return pooled(words, self.offsets, pooling, self.rarity)

    def _chosen(self, layer: int) -> A:
        if not -self.n_layers <= layer < self.n_layers:
            raise ConfigError(
                f"There is no layer {layer}: layers are 0 (token encoder) to {self.n_layers - 1}."
            )
        return self.flat[:, layer]

    def _mixed(self, weights: Sequence[float] | None, gamma: float) -> A:
        if weights is None:
            weights = [1.0 / self.n_layers] * self.n_layers
        if len(weights) != self.n_layers:
            raise ConfigError(
                f"{len(weights)} weights were given for {self.n_layers} layers.",
                remedy="Give one weight per layer, token encoder first.",
            )
        factors = np.asarray(weights, dtype=np.float32) * np.float32(gamma)
        if isinstance(self.flat, Tensor):
            return torch.einsum("nld,l->nd", self.flat, torch.from_numpy(factors))
        return cast(A, np.einsum("nld,l->nd", self.flat, factors))

    def _split(self, words: A) -> list[A]:
        bounds = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        return [words[first:last] for first, last in bounds]


def pooled(words: A, offsets: npt.NDArray[np.int64], pooling: Pooling, rarity: Floats | None = None) -> A:
    """One vector per text from the vectors of its words, (n_words, dim) -> (n_texts, dim)."""
    if pooling not in POOLINGS:
        raise ConfigError(f"There is no pooling {pooling!r}.", remedy=nearest(str(pooling), POOLINGS))
    if isinstance(words, Tensor):
        return torch.from_numpy(pooled(words.numpy(), offsets, pooling, rarity))
    starts, counts = offsets[:-1], np.diff(offsets)
    full = counts > 0  # texts with a word
    result = np.zeros((len(counts), words.shape[1]), dtype=np.float32)
    if not full.any():
        return cast(A, result)
    if pooling == "last":
        half = words.shape[1] // 2
        result[full, :half] = words[offsets[1:][full] - 1, :half]
        result[full, half:] = words[starts[full], half:]
    elif pooling == "max":
        result[full] = np.maximum.reduceat(words, starts[full], axis=0)
    else:
        shares: npt.NDArray[Any] = np.ones(len(words), dtype=np.float32)
        if pooling == "sif":
            assert rarity is not None
            shares = rarity
        totals = np.add.reduceat(words * shares[:, None], starts[full], axis=0)
        result[full] = totals / np.add.reduceat(shares, starts[full])[:, None]
    return cast(A, result)
