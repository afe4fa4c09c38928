"""``WordVectors``: a table with one vector for each word, wherever it stands."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import DataError, ModelError
from elmokit.core.tensors import fingerprint
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, UNK, Text, TextPipeline, tokenize_texts
from elmokit.text.vocabulary import Vocabulary
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.neighbors import nearest_rows, unit_rows

__all__ = ["UNKNOWN_WORDS", "WordVectors"]

UNKNOWN_WORDS = (SPECIALS[UNK], "<UNK>", "unk", "UNK")
"""What tables call the row for words that they do not know; the first that is there is taken."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each word of a vocabulary, and all it takes to find the words of a text.

    What a table does not know has the vector of ``<unk>``. In tables made here that is a vector like
    any other: rare words were replaced by ``<unk>`` before learning. A table from elsewhere that has
    no such row gets the mean of all its vectors there. ``<pad>``, ``<s>`` and ``</s>`` are zero
    unless the table has them; where they stand in a text as words, they are unknown words.

    >>> table = WordVectors.of(["cat", "dog", "tax"], [[1, 0], [0.8, 0.6], [0, 1]], TextConfig())
    >>> table.neighbours("cat", k=1)
    [('dog', 0.800000011920929)]
    >>> table.look_up(["tax", "lion"]).shape
    (2, 2)

    Attributes:
        vocabulary: the words, specials first.
        vectors: (n_words, dim), a row for each.
        text: how raw text becomes words.
        training: where it came from: method, settings, corpus, seconds, command, date.
    """

    vocabulary: Vocabulary
    vectors: Floats
    text: TextConfig
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.vectors.shape
        if len(shape) != 2 or shape[0] != len(self.vocabulary) or shape[1] < 1:
            raise ModelError(
                f"A table of shape {shape} does not fit a vocabulary of {len(self.vocabulary)} words.",
                remedy="There must be one row for each word.",
            )
        if self.vectors.dtype != np.float32:
            raise ModelError(f"Word vectors are float32, not {self.vectors.dtype}.")
        if not np.isfinite(self.vectors).all():
            raise ModelError("A table of word vectors holds a value that is not a finite number.")

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        rows: npt.ArrayLike,
        text: TextConfig,
        training: dict[str, Any] | None = None,
    ) -> WordVectors:
        """A table from words (no two alike) and their rows; the special words are put in front.

        Args:
            words: most frequent first, if that is known. A row for unknown words may be called
                ``<unk>``, ``<UNK>``, ``unk`` or ``UNK``.
            rows: (n_words, dim).
            text: how raw text becomes words.
            training: where it came from.
        """
        given = np.asarray(rows, dtype=np.float32)
        places = {word: place for place, word in enumerate(words)}
        if given.ndim != 2 or not len(given) == len(words) == len(places) > 0:
            raise ModelError(
                f"{len(words)} words ({len(places)} distinct) and a table of shape {given.shape} "
                "do not make word vectors.",
                remedy="Give distinct words, and a row for each.",
            )
        special = np.zeros((len(SPECIALS), given.shape[1]), dtype=np.float32)
        special[UNK] = given.mean(axis=0, dtype=np.float64)
        for row, name in enumerate(SPECIALS):
            names = UNKNOWN_WORDS if row == UNK else (name,)
            if found := [one for one in names if one in places]:
                special[row] = given[places.pop(found[0])]
        kept = np.fromiter(places.values(), dtype=np.int64, count=len(places))
        table = np.concatenate([special, given[kept]])
        return cls(Vocabulary([*SPECIALS, *places]), table, text, training or {})

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __contains__(self, word: str) -> bool:
        return word in self.vocabulary and word not in SPECIALS

    @property
    def n_words(self) -> int:
        """Words with a vector of their own: all but the special ones."""
        return len(self.vocabulary) - len(SPECIALS)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.vectors.shape[1])

    @cached_property
    def pipeline(self) -> TextPipeline:
        """Raw text to words."""
        return TextPipeline(self.text)

    @cached_property
    def fingerprint(self) -> str:
        """A short mark that changes when anything does that a vector can depend on."""
        facts = {"text": self.text.to_dict(), "words": self.vocabulary.words, "shape": self.vectors.shape}
        return fingerprint(facts, self.vectors)

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text (a string, or a list of words), as the table knows them."""
        return tokenize_texts(self.pipeline, texts)

    def look_up(self, words: Sequence[str]) -> Floats:
        """The vector of each word, (n_words, dim); that of ``<unk>`` for words without one."""
        ids = np.fromiter(map(self.vocabulary.id_of, words), dtype=np.int64, count=len(words))
        ids[ids < len(SPECIALS)] = UNK
        return self.vectors[ids]

    def vector(self, word: str) -> Floats:
        """The vector of one word, (dim,); that of ``<unk>`` if it has none."""
        found: Floats = self.look_up([word])[0]
        return found

    def known(self, word: str) -> str | None:
        """A word as the table spells it; None if it has no vector for it."""
        if word in self:
            return word
        cleaned = self.pipeline.word(word)
        return cleaned if cleaned in self else None

    def neighbours(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` words with the highest cosine to ``word``, best first."""
        word = self._sure(word)
        return self._nearest(self.vector(word), [word], k)

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> list[tuple[str, float]]:
        """The ``k`` words that are to ``c`` as ``b`` is to ``a`` (3CosAdd), without these three.

        ``analogy("man", "king", "woman")`` asks for the words nearest to king - man + woman, each
        brought to length 1 first.
        """
        asked = [self._sure(word) for word in (a, b, c)]
        units = unit_rows(self.look_up(asked))
        return self._nearest(units[1] - units[0] + units[2], asked, k)

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words."""
        units = unit_rows(self.look_up([self._sure(a), self._sure(b)]))
        return float(units[0] @ units[1])

    def _sure(self, word: str) -> str:
        if found := self.known(word):
            return found
        close = difflib.get_close_matches(self.pipeline.word(word), self.vocabulary.words[len(SPECIALS) :])
        raise DataError(
            f"There is no vector for {word!r}.",
            remedy=f"Like it are: {', '.join(close)}."
            if close
            else "Ask for a word of the text it learnt from.",
        )

    def _nearest(self, query: npt.NDArray[Any], without: Sequence[str], k: int) -> list[tuple[str, float]]:
        words = self.vectors[len(SPECIALS) :]
        rows, scores = nearest_rows(words, query[None], k + len(without) if k > 0 else k)
        found = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        named = [(self.vocabulary.words[row + len(SPECIALS)], score) for row, score in found]
        return [(word, score) for word, score in named if word not in without][:k]
