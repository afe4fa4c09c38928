"""The words of a small corpus, each in its context, ready to be compared with a word that someone types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.neighbors import unit_rows

__all__ = ["Found", "Occurrences", "plane"]

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Found:
    """A word of the corpus.

    Attributes:
        score: cosine similarity, 1 at most.
        word: the word.
        words: all words of its text.
        position: which of them it is, from 0.
        text: the number of the text in the corpus.
    """

    score: float
    word: str
    words: list[str]
    position: int
    text: int


@dataclass(frozen=True)
class Occurrences:
    """Every word of a corpus with all its layers.

    Attributes:
        name: of the corpus.
        texts: the words of each text.
        flat: all layers of all words, (n_words, layer, dim), in half precision.
        products: of each word, its layers with each other, (n_words, layer, layer).
        text_of: the number of each word's text, (n_words,).
        place_of: which word of its text each is, (n_words,).
    """

    name: str
    texts: list[list[str]]
    flat: Tensor
    products: Tensor
    text_of: npt.NDArray[np.int64]
    place_of: npt.NDArray[np.int64]

    @classmethod
    def read(
        cls,
        elmo: Elmo,
        texts: Iterable[str],
        *,
        name: str = "",
        most: int = 50_000,
        progress: Callable[[int], None] = lambda amount: None,
    ) -> Occurrences:
        """Embed a corpus, the first ``most`` words of it; copies of a text count once."""
        words: list[list[str]] = []
        parts: list[Tensor] = []
        n_words, seen = 0, set[tuple[str, ...]]()
        for found in elmo.chunks(iter(texts), to="torch"):
            for row, layers in zip(found.tokens, found.layers, strict=True):
                room = most - n_words
                if row and room and tuple(row) not in seen:
                    seen.add(tuple(row))
                    words.append(row[:room])
                    parts.append(torch.as_tensor(layers)[:room].half())
                    n_words += len(words[-1])
                    progress(len(words[-1]))
            if n_words >= most:
                break
        flat = torch.cat(parts) if parts else torch.zeros(0, elmo.n_layers, elmo.dim).half()
        products = [
            torch.einsum("nid,njd->nij", block, block)
            for block in map(Tensor.float, flat.split(_ROWS_AT_ONCE))
        ]
        text_of = np.repeat(np.arange(len(words)), [len(row) for row in words])
        place_of = np.array([place for row in words for place in range(len(row))], dtype=np.int64)
        return cls(name, words, flat, torch.cat(products), text_of, place_of)

    @property
    def n_texts(self) -> int:
        """Texts that are looked through."""
        return len(self.texts)

    def nearest(
        self, vector: Floats, weights: Sequence[float], k: int, *, different_from: str = ""
    ) -> list[Found]:
        """The ``k`` words whose mixed vectors are most like ``vector``, best first.

        Args:
            vector: (dim,), mixed in the same way.
            weights: how much each layer counts.
            k: how many.
            different_from: leave out this word.
        """
        scores = self._cosines(vector, weights)
        other = different_from.casefold()
        found: list[Found] = []
        for place in np.argsort(-scores, kind="stable").tolist():
            one = self._found(place, float(scores[place]))
            if not any(map(str.isalnum, one.word)) or (other and one.word.casefold() == other):
                continue
            found.append(one)
            if len(found) == k:
                break
        return found

    def of_word(self, word: str, most: int) -> list[int]:
        """Where a word stands in the corpus, whatever its case; the first ``most`` places."""
        wanted = word.casefold()
        places: list[int] = []
        start = 0
        for row in self.texts:
            places += [start + place for place, one in enumerate(row) if one.casefold() == wanted]
            start += len(row)
            if len(places) >= most:
                break
        return places[:most]

    def at(self, place: int) -> Found:
        """The word at a place."""
        return self._found(place, 1.0)

    def mixed(self, places: Sequence[int], weights: Sequence[float]) -> Floats:
        """The mixed vectors of some places, (n, dim)."""
        rows = self.flat[list(places)].float()
        return torch.einsum("nld,l->nd", rows, torch.tensor(list(weights))).numpy()

    def _found(self, place: int, score: float) -> Found:
        text, position = int(self.text_of[place]), int(self.place_of[place])
        return Found(score, self.texts[text][position], self.texts[text], position, text)

    def _cosines(self, vector: Floats, weights: Sequence[float]) -> Floats:
        """Of all words, mixed in this way, with a vector (dim,) -> (n_words,)"""
        unit = torch.from_numpy(unit_rows(vector[None])[0]).float()
        share = torch.tensor(list(weights))
        found = torch.cat(
            [block.float() @ unit @ share for block in self.flat.split(_ROWS_AT_ONCE)]
        )  # sum of w_l (row_l . unit)
        lengths = torch.einsum("nij,i,j->n", self.products, share, share).clamp(min=0).sqrt()
        return (found / lengths.clamp(min=1e-12)).clamp(-1.0, 1.0).numpy()


def plane(vectors: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], list[float]]:
    """Rows as points of the plane in which they differ most (PCA of rows of length 1), and the share of
    their spread that each axis shows. (n, dim) -> (n, 2). Of each axis, the side with the larger end is up.
    """
    units = unit_rows(vectors)
    centred = units - units.mean(axis=0)
    left, spread, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(units), 2))
    shares = [0.0, 0.0]
    total = float((spread**2).sum())
    for axis in range(min(2, len(spread))):
        column = left[:, axis] * spread[axis]
        if total > 1e-12:
            points[:, axis] = column * np.sign(column[np.abs(column).argmax()] or 1.0)
            shares[axis] = float(spread[axis] ** 2 / total)
    return points, shares
