"""The nearest words of each word of a query, by vectors that know no context."""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.errors import ConfigError, DataError, nearest
from elmokit.static.word_vectors import WordVectors
from elmokit.text.tokenising import SPECIALS

__all__ = ["NearWords", "near_words"]

_FREQUENT = 50


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
    if not words:
        raise DataError("The query holds no word.", remedy="Give a sentence with the word to look for.")
    if word is None:
        frequent = set(vectors.vocabulary.words[len(SPECIALS) :][:_FREQUENT])
        spelt = [place for place, one in enumerate(words) if any(map(str.isalnum, one))] or range(len(words))
        places = [place for place in spelt if words[place] not in frequent] or list(spelt)
    else:
        cleaned = vectors.pipeline.word(word)
        places = [place for place, one in enumerate(words) if one == cleaned]
        if not places:
            raise ConfigError(f"The query has no word {word!r}.", remedy=nearest(word, dict.fromkeys(words)))
    return [
        NearWords(one, place, vectors.neighbours(one, k) if one in vectors else [], one in vectors)
        for place, one in ((place, words[place]) for place in places)
    ]
