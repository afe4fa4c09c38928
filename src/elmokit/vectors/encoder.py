"""``Encoder``: what turns texts into layers of vectors. Everything downstream knows only this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.bilm.state import distinct_words
from elmokit.core.config import DropoutConfig
from elmokit.core.console import Advance
from elmokit.core.ragged import Ragged
from elmokit.core.tensors import fingerprint
from elmokit.text.tokenizing import PAD, SPECIALS, UNK, Text, check_texts
from elmokit.text.vocabulary import Rows, WordFeatures

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
CHUNK = 1024  # texts encoded at a time
_ALL = (0, 1 << 40)  # words of a text without a mark


@dataclass(frozen=True, eq=False)
class TokenIds(Ragged[np.int32]):
    """Texts as ids, edges included: the rows of ``features`` that their tokens have."""

    features: Rows  # one for each distinct word, as the token encoder takes it
    vectors: Tensor | None = None  # what the token encoder makes of them, (n_distinct, dim)
    words: tuple[str, ...] = ()  # their spelling
    parts: tuple[TokenIds, ...] = ()  # of several encoders side by side, the ids of each

    def batch(self, rows: IntArray, token_encoder: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of words, (n_words, dim); which of them stands where, (batch, time); lengths, (batch,)."""
        index, lengths = self.padded(rows).astype(np.int64), torch.from_numpy(self.lengths[rows])
        if self.vectors is not None:
            return self.vectors, torch.from_numpy(index), lengths
        features, places = distinct_words(index, self.features)
        return token_encoder(features), places, lengths

    @torch.no_grad()
    def with_vectors(self, token_encoder: nn.Module) -> TokenIds:
        """The same texts, every distinct word through ``token_encoder`` once, without gradients."""
        parts = torch.from_numpy(self.features.astype(np.int64)).split(4096)
        return replace(self, vectors=torch.cat([token_encoder(part) for part in parts]))

    def content_hash(self, salt: str) -> str:
        """Changes when any word of any text does, or ``salt``."""
        parts = [part.content_hash(salt) for part in self.parts]
        return fingerprint(salt, self.values, self.offsets, self.features, *parts)


def number_words(
    texts: Iterable[Sequence[str]], features: WordFeatures, edges: tuple[int, ...] = ()
) -> TokenIds:
    """Number the words of texts in order of appearance, after the special words.

    A special word inside a text counts as unknown. A text without any token becomes one ``<pad>``.

    Args:
        texts: Words of each text; read once, so that a generator keeps memory low.
        edges: Ids put before and after every text: ``(BOS, EOS)`` or nothing.
    """
    places = {word: place for place, word in enumerate(SPECIALS)}
    ids, offsets = list[int](), [0]
    for words in texts:
        inner = (places.setdefault(word, len(places)) for word in words)
        ids += [*edges[:1], *(place if place >= len(SPECIALS) else UNK for place in inner), *edges[1:]]
        if len(ids) == offsets[-1]:
            ids.append(PAD)
        offsets.append(len(ids))
    return TokenIds(
        np.array(ids, np.int32), np.array(offsets, np.int64), features.rows(list(places)), None, (*places,)
    )


@dataclass(frozen=True, eq=False)
class Layers:
    """Layers of a batch of texts, layer 0 (the token encoder) first.

    Attributes:
        values: One tensor per layer, (batch, time, dim), zero where ``mask`` is False.
        mask: (batch, time), True where there is a token.
        n_edge: Rows of ``<s>`` and ``</s>`` at each end of a text: 0 or 1.
    """

    values: tuple[Tensor, ...]
    mask: Tensor
    n_edge: int = 0

    def words(self) -> Layers:
        """Without the edges: what taggers and span heads read."""
        if not self.n_edge:
            return self
        mask = self.mask[:, 2:]  # a text's last token is </s>
        values = tuple(layer[:, 1:-1] * mask.unsqueeze(2) for layer in self.values)
        return Layers(values, mask)

    def part(self, spans: IntArray) -> Layers:
        """Only the words from the first to before the second place of each text, (batch, 2)."""
        inner = self.words()
        first, last = torch.from_numpy(spans).unsqueeze(2).unbind(dim=1)  # (batch, 1)
        last = torch.minimum(last, inner.mask.sum(dim=1, keepdim=True))
        places = first + torch.arange(max(0, int((last - first).max())))  # (batch, longest)
        mask, index = places < last, places.clamp(max=max(0, inner.mask.shape[1] - 1)).unsqueeze(2)
        values = (torch.take_along_dim(layer, index, dim=1) * mask.unsqueeze(2) for layer in inner.values)
        return Layers(tuple(values), mask)


def find_marks(texts: Sequence[Text]) -> IntArray | None:
    """The first and the last place of the words that ``PlacedWords`` mark, (n_texts, 2); None without any."""
    marks = [getattr(text, "mark", ()) or _ALL for text in texts]
    return None if set(marks) <= {_ALL} else np.array(marks, dtype=np.int64)


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """Rows of length 1, in single precision; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


class SentenceEncoder(Protocol):
    """One vector per text: all that a foreign model or a file of vectors has."""

    @property
    def dim(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...  # equal fingerprints, comparable vectors

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text, (n_texts, dim)."""


class Encoder(SentenceEncoder, Protocol):
    """Turns texts into layers of vectors."""

    @property
    def n_layers(self) -> int: ...
    @property
    def n_edge(self) -> int: ...  # see Layers
    @property
    def directional(self) -> bool: ...  # dim is [forward; backward], so "last" pooling reads both ends
    @property
    def has_sentence_vector(self) -> bool: ...  # sentences() was trained for whole texts and is not a mean
    @property
    def module(self) -> nn.Module: ...  # what fine-tuning trains

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text, as the encoder sees them."""

    def to_ids(self, words: Iterable[Sequence[str]]) -> TokenIds:
        """Texts given as words, as ids."""

    def layers(
        self,
        ids: TokenIds,
        rows: IntArray,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> Layers:
        """All layers of the texts ``rows`` as one batch. Without an ``rng`` there is no dropout."""

    def precompute(self, ids: TokenIds) -> TokenIds:
        """The texts with what is the same in every batch, without gradients, until the weights change."""

    def batch(self, words: Sequence[Sequence[str]]) -> Layers:
        """All layers of one batch of texts given as words, without gradients; for prediction."""

    def unfreezing_order(self) -> list[list[str]]:
        """Names of ``module``'s parameters, top layer first."""

    def copy(self) -> Encoder:
        """A copy for fine-tuning, without what will no longer be true of it."""


def encode_chunks(encoder: SentenceEncoder, texts: Sequence[Text], advance: Advance) -> Iterator[FloatArray]:
    """The vectors of texts, some at a time, so that there is progress to show."""
    check_texts(texts)
    for first in range(0, len(texts), CHUNK):
        yield encoder.sentences(texts[first : first + CHUNK])
        advance(min(CHUNK, len(texts) - first))
