"""The nearest words of each word of a query, by vectors that know no context."""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.static.word_vectors import WordVectors
from elmokit.vectors.similar import chosen_words

__all__ = ["NearWords", "near_words"]


@dataclass(frozen=True)
class NearWords:
    """A word of the query, and the words most like it.

    Attributes:
        word: the word.
        position: which word of the query it is, from 0.
        found: words and their cosines, best first; empty if there is no vector for the word.
        is_known: there is a vector for the word.
    """

    word: str
    position: int
    found: list[tuple[str, float]]
    is_known: bool


def near_words(vectors: WordVectors, query: str, *, word: str | None = None, k: int = 8) -> list[NearWords]:
    """For words of ``query``, the ``k`` words with the highest cosine.

    Args:
        vectors: the table.
        query: a text with the words to look for.
        word: this word of the query only. Unless given, all but punctuation and the 50 most frequent
            words of the table; all that hold a letter or digit, if none is left.
        k: words to find for each.
    """
    words = vectors.words([query])[0]
    places = chosen_words(vectors.pipeline, vectors.vocabulary, words, word)
    return [
        NearWords(one, place, vectors.neighbours(one, k) if one in vectors else [], one in vectors)
        for place, one in ((place, words[place]) for place in places)
    ]
