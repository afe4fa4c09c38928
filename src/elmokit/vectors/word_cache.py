"""The word cache of ``Elmo``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.token_encoder import WordEncoder
from elmokit.text.tokenizing import SPECIALS, UNK
from elmokit.vectors.token_cache import TokenCache

__all__ = ["WordCache"]

_KEPT_AT_A_TIME = 1024
_LETTERS = 20  # of a word, on average, before all are forgotten: texts of strangers may hold very long ones


class WordCache:
    """Token-encoder vectors, computed once for each word and kept up to a number of words."""

    def __init__(self, folder: BilmFolder, at_most: int, stored: TokenCache | None = None) -> None:
        self._stored = stored
        self._encoder = folder.model.encoder
        self._features = folder.features
        self._at_most = max(1, at_most)
        self._whole = folder.model.config.input == "word"  # the table itself is the cache
        self._id_of = folder.vocabulary.id_of
        self._places: dict[str, int] = {}
        self._table = torch.empty(0, folder.model.config.dim)
        self._n_kept = self._n_letters = 0

    def look_up(self, words: Sequence[Sequence[str]]) -> tuple[Tensor, list[int]]:
        """A table of vectors, and the place in it of each word of all texts, one after the other."""
        if self._whole:
            ids = (self._id_of(word) for row in words for word in row)
            table = cast(WordEncoder, self._encoder).weight.detach()
            return table, [UNK if id < len(SPECIALS) else id for id in ids]
        if not self._places:
            self.keep(())
        places = self._places
        new = list(dict.fromkeys(word for row in words for word in row if word not in places))
        is_full = len(places) + len(new) > self._at_most + len(SPECIALS)
        if is_full or self._n_letters > _LETTERS * self._at_most:
            self.forget()
            new = list(dict.fromkeys(word for row in words for word in row if word not in places))
        if new:
            self._add(new)
        return self._table, [places[word] for row in words for word in row]

    def keep(self, words: Iterable[str]) -> None:
        """Forget all words but these, of which the first, up to the limit, stay from now on, and the
        specials; those that stand in a text itself count as ``<unk>``."""
        if self._whole:
            return
        self._places.clear()
        self._n_letters = 0
        self._add(list(SPECIALS))
        self._places.update(dict.fromkeys(SPECIALS, UNK))
        new = [word for word in dict.fromkeys(words) if word not in self._places][: self._at_most]
        for first in range(0, len(new), _KEPT_AT_A_TIME):
            self._add(new[first : first + _KEPT_AT_A_TIME])
        self._n_kept = len(self._places)

    def forget(self) -> None:
        """Forget all words but those to be kept."""
        while len(self._places) > self._n_kept:
            self._n_letters -= len(self._places.popitem()[0])

    @torch.inference_mode()
    def _add(self, words: list[str]) -> None:
        first = len(self._places)
        needed = first + len(words)
        if needed > len(self._table):  # grow by half, so that growing stays cheap, but not past the limit
            room = min(3 * first // 2, self._at_most + len(SPECIALS))
            table = torch.empty(max(needed, room), self._table.shape[1])
            table[:first] = self._table[:first]
            self._table = table
        self._table[first:needed] = self._vectors(words)
        self._places.update(zip(words, range(first, needed), strict=True))
        self._n_letters += sum(map(len, words))

    def _vectors(self, words: list[str]) -> Tensor:
        """Of words not known yet: from the disk where they are stored, else computed."""
        stored = [word for word in words if self._stored is not None and word in self._stored]
        if self._stored is None or not stored:
            return self._computed(words)
        found = torch.empty(len(words), self._table.shape[1])
        known = torch.tensor([word in self._stored for word in words])
        found[known] = self._stored.rows(stored)
        if len(stored) < len(words):
            found[~known] = self._computed([word for word in words if word not in self._stored])
        return found

    def _computed(self, words: list[str]) -> Tensor:
        vectors: Tensor = self._encoder(torch.from_numpy(self._features.rows(words).astype(np.int64)))
        return vectors
