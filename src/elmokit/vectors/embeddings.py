"""What ``Elmo.embed`` returns: every layer of every word of some texts, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F

from elmokit.bilm.state import BilmState
from elmokit.core.errors import ConfigError, nearest
from elmokit.core.model_card import Described, Facts
from elmokit.core.ragged import Ragged
from elmokit.text.tokenizing import Text
from elmokit.vectors.encoder import FloatArray, IntArray
from elmokit.vectors.settings import StoreConfig, layer_factors

Pooling = Literal["mean", "max", "last", "sif"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


class TextEncoder(Described):
    """What encoders share: facts, and how similar texts are."""

    def similarity(self: Any, texts: Sequence[Text], others: Sequence[Text]) -> Any:
        """How similar each text is to its partner, (n_texts,): the cosine of their sentence vectors, from -1
        to 1; 0 for a text without a word. Needs no training.

        >>> elmo.similarity(["A plane takes off."], ["An air plane is taking off."])  # doctest: +SKIP
        """
        if len(texts) != len(others):
            raise ConfigError(
                f"There are {len(texts):,} texts and {len(others):,} others.",
                remedy="Give one partner for each text.",
            )
        first, second = (F.normalize(torch.from_numpy(self.sentences(side))) for side in (texts, others))
        return (first * second).sum(dim=1).numpy()


@dataclass(frozen=True, repr=False)
class Embeddings(Described):
    """Every layer of every word, text by text, in the order the texts were given.

    ``len(out)`` is the number of texts and ``out[i]`` all layers of one, (n_words, layer, dim).

    Attributes:
        tokens: The words of each text.
        flat: All words one after the other, (n_words, layer, dim); layer 0 is the token encoder.
        offsets: Text i is ``flat[offsets[i]:offsets[i + 1]]``.
        sif_weights: The weight of each word in "sif" pooling, (n_words,).
        state: The model's state at the end, with ``state="stateful"``.
    """

    tokens: list[list[str]]
    flat: FloatArray
    offsets: IntArray
    sif_weights: FloatArray
    state: BilmState | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> FloatArray:
        return Ragged(self.flat, self.offsets)[index]

    def facts(self) -> Facts:
        """Sizes and shapes."""
        words = [" ".join(row) for row in self.tokens[:3]]
        rows = (
            ("texts", f"{len(self):,}: {' | '.join(words)}{' …' if len(self) > 3 else ''}"),
            ("flat", f"{self.flat.shape} (words, layers, dim); layer 0 is the token encoder"),
            ("out[i]", f"(words of text i, {self.n_layers}, {self.dim})"),
        )
        return Facts("Contextual vectors of words.", rows)

    @property
    def n_layers(self) -> int:
        """Number of layers, token encoder included."""
        return int(self.flat.shape[1])

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.flat.shape[2])

    @property
    def layers(self) -> list[FloatArray]:
        """All layers of each text, each (n_words, layer, dim)."""
        return self.split(self.flat)

    def layer(self, index: int) -> list[FloatArray]:
        """One layer of each text, each (n_words, dim); 0 is the token encoder, -1 the top."""
        return self.split(self._mix(index))

    def mixed(self, weights: Sequence[float] | None = None, *, gamma: float = 1.0) -> list[FloatArray]:
        """The weighted sum of the layers of each text, each (n_words, dim); by default, equal weights."""
        return self.split(self._mix(None, weights, gamma))

    def sentence(
        self, pooling: Pooling = "mean", *, layer: int | None = None, weights: Sequence[float] | None = None
    ) -> FloatArray:
        """One vector per text, (n_texts, dim). A text without a word gets zeros.

        Args:
            pooling: "mean", "max", "last" (where each direction has read all: the forward half of
                the last word and the backward half of the first) or "sif" (a mean in which
                frequent words count less).
            layer: Pool one layer instead of a mix.
            weights: Weights of the mix; equal by default.
        """
        return pool(self._mix(layer, weights), self.offsets, pooling, self.sif_weights)

    def select(self, config: StoreConfig) -> FloatArray:
        """What ``config`` asks for: (n_words or n_texts, dim), or (..., layer, dim) with all layers."""
        if config.pool == "none":
            return self.flat if config.all_layers else self._mix(config.layer, config.weights)
        assert config.pool != "sentence"  # those are not made of layers: Elmo.sentences
        if not config.all_layers:
            return self.sentence(config.pool, layer=config.layer, weights=config.weights)
        return np.stack([self.sentence(config.pool, layer=depth) for depth in range(self.n_layers)], axis=1)

    def _mix(
        self, layer: int | None, weights: Sequence[float] | None = None, gamma: float = 1.0
    ) -> FloatArray:
        """One layer, or a mix of all, of every word, (n_words, dim)."""
        factors = np.asarray(layer_factors(self.n_layers, layer, weights), np.float32) * np.float32(gamma)
        if layer is not None:
            return self.flat[:, layer]
        mixed: FloatArray = np.einsum("nld,l->nd", self.flat, factors)
        return mixed

    def split(self, words: FloatArray) -> list[FloatArray]:
        """What belongs to each text, from a row for each word of all texts."""
        return list(Ragged(words, self.offsets))


def pool(words: FloatArray, offsets: IntArray, pooling: Pooling, sif_weights: FloatArray) -> FloatArray:
    """One vector per text from the vectors of its words, (n_words, dim) -> (n_texts, dim)."""
    if pooling not in POOLINGS:
        raise ConfigError(f"There is no pooling {pooling!r}.", remedy=nearest(str(pooling), POOLINGS))
    starts, counts = offsets[:-1], np.diff(offsets)
    full = counts > 0  # texts with a word
    result = np.zeros((len(counts), words.shape[1]), dtype=np.float32)
    if pooling == "last":
        half = words.shape[1] // 2
        result[full, :half] = words[offsets[1:][full] - 1, :half]
        result[full, half:] = words[starts[full], half:]
    elif pooling == "max":
        result[full] = np.maximum.reduceat(words, starts[full], axis=0)
    else:
        shares = np.ones(len(words), dtype=np.float32) if pooling == "mean" else sif_weights
        totals = np.add.reduceat(words * shares[:, None], starts[full], axis=0)
        result[full] = totals / np.add.reduceat(shares, starts[full])[:, None]
    return result
