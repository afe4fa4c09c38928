"""Words as characters of a list, the way ELMoForManyLangs models read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS
from elmokit.text.vocabulary import Rows, Vocabulary

__all__ = [
    "BOS_CHAR",
    "CHAR_PAD",
    "EOS_CHAR",
    "NO_CHAR",
    "UNKNOWN_CHAR",
    "WORD_END",
    "WORD_START",
    "DictionaryCharacters",
]

NO_CHAR, UNKNOWN_CHAR, CHAR_PAD = "<nothing>", "<oov>", "<pad>"
WORD_START, WORD_END, BOS_CHAR, EOS_CHAR = "<bow>", "<eow>", "<bos>", "<eos>"


class DictionaryCharacters:
    """A word is its place in the vocabulary, and its characters between two marks, padded to ``max_chars``.

    Args:
        tokenizer: its vocabulary is the list of characters; the first means "nothing", the last is padding.
        vocabulary: the words.
        max_chars: columns for the characters; longer words are cut, and are then looked up as cut.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, max_chars: int) -> None:
        self._ids = tokenizer.get_vocab()
        self._vocabulary = vocabulary
        self._max_chars = max_chars

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, 1 + max_chars): the word first, then its characters."""
        ids, room = self._ids, self._max_chars - 2
        rows = np.full((len(words), 1 + self._max_chars), ids[CHAR_PAD], dtype=np.int32)
        marks = {SPECIALS[BOS]: BOS_CHAR, SPECIALS[EOS]: EOS_CHAR}
        for row, word in zip(rows, words, strict=True):
            if word == SPECIALS[PAD]:
                row[:] = 0
                continue
            cut = word[:room]
            inside = (
                [ids[marks[word]]] if word in marks else [ids.get(sign, ids[UNKNOWN_CHAR]) for sign in cut]
            )
            row[0] = self._vocabulary.id_of(word if word in marks else cut)
            row[1 : len(inside) + 3] = [ids[WORD_START], *inside, ids[WORD_END]]
        return rows
