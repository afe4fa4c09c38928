"""Words as rows of integers.

A model reads a word as a short row of integers: its id (``word``), its UTF-8 bytes in the published ELMo
scheme (``char``), these with its row in a table of forms (``char+word``), its pieces (``subword``,
``morpheme``), or its id and its characters by a list (``dictionary``). Zero always means "nothing here".
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from elmokit.core.errors import FRESH, ModelError, import_extra
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, load_tokenizer

Rows = npt.NDArray[np.signedinteger[Any]]

N_CHARACTERS = 262
"""256 bytes, five marks, and zero for "no character"."""
_BOS_BYTE, _EOS_BYTE, _WORD_START_BYTE, _WORD_END_BYTE, _PAD_BYTE = 256, 257, 258, 259, 260
NO_CHAR, UNKNOWN_CHAR, CHAR_PAD = "<nothing>", "<oov>", "<pad>"
WORD_START, WORD_END, BOS_CHAR, EOS_CHAR = "<bow>", "<eow>", "<bos>", "<eos>"
"""The special entries in a list of characters."""
_STRAIGHT_QUOTES = str.maketrans("‘’“”", "''\"\"")
_MAX_PIECES = 24
_PIECE_TOKENS = 4_000_000
_MORPH_WORDS = 50_000


class Vocabulary:
    """The words a model predicts: specials first, then by descending frequency.

    Attributes:
        counts: How often each word occurs in the training text, (n_words,); None if that is not known.
    """

    def __init__(self, words: Sequence[str], counts: npt.NDArray[np.int64] | None = None) -> None:
        if tuple(words[: len(SPECIALS)]) != SPECIALS:
            raise ModelError(f"A vocabulary must begin with {' '.join(SPECIALS)}.")
        self.words, self.counts = list(words), counts
        self._ids = {word: id for id, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise ModelError("A vocabulary must not contain a word twice.")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def id_of(self, word: str) -> int:
        """The word's id, or that of ``<unk>``."""
        return self._ids.get(word, UNK)

    def text(self) -> str:
        """The contents of ``vocab.txt``: a word a line, the line number is the id."""
        return "".join(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read ``vocab.txt``."""
        try:
            return cls(path.read_bytes().decode("utf-8").removesuffix("\n").split("\n"))
        except (OSError, UnicodeDecodeError, ModelError) as error:
            raise ModelError(f"{path} cannot be read: {error}", remedy=FRESH) from error


def load_words(folder: Path, n_words: int, n_tokens: int) -> tuple[Vocabulary, Tokenizer]:
    """``vocab.txt`` and ``tokenizer.json`` of a model folder, of these sizes (0: of any)."""
    files = folder / "vocab.txt", folder / "tokenizer.json"
    vocabulary, tokenizer = Vocabulary.load(files[0]), load_tokenizer(files[1])
    sizes = len(vocabulary), tokenizer.get_vocab_size()
    for file, size, expected in zip(files, sizes, (n_words, n_tokens), strict=True):
        if expected and size != expected:
            raise ModelError(f"{file} has {size} words, config.json says {expected}.", remedy=FRESH)
    return vocabulary, tokenizer


class WordFeatures(Protocol):
    """Turns words into rows of integers, all of one width."""

    def rows(self, words: Sequence[str]) -> Rows:
        """One row for each word, shape (n_words, width)."""


class WordIds:
    """A word is its id in the vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, 1)."""
        ids = np.fromiter(map(self._vocabulary.id_of, words), dtype=np.int32, count=len(words))
        return ids[:, None]


class Characters:
    """A word is its UTF-8 bytes between two marks, padded to ``max_chars``; all ids are shifted by one."""

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, max_chars). Longer words are cut by byte."""
        room = self.max_chars - 2
        coded = [word.encode("utf-8", "replace")[:room] for word in words]
        sizes = np.fromiter(map(len, coded), dtype=np.int64, count=len(coded))
        rows = np.full((len(coded), self.max_chars), _PAD_BYTE, dtype=np.int16)
        inside = np.arange(room) < sizes[:, None]
        rows[:, 1 : room + 1][inside] = np.frombuffer(b"".join(coded), dtype=np.uint8)
        rows[:, 0] = _WORD_START_BYTE
        rows[np.arange(len(coded)), sizes + 1] = _WORD_END_BYTE
        marks = {SPECIALS[BOS]: _BOS_BYTE, SPECIALS[EOS]: _EOS_BYTE}
        for place, word in enumerate(words):
            if word in marks:
                rows[place] = _PAD_BYTE
                rows[place, :3] = (_WORD_START_BYTE, marks[word], _WORD_END_BYTE)
            elif word == SPECIALS[PAD]:
                rows[place] = -1  # zero in the end
        rows += 1
        return rows


def form_of(word: str) -> str:
    """A word in lower case with straight quotes: what a row of a word table stands for."""
    form = word.lower()
    return form if form.isascii() else form.translate(_STRAIGHT_QUOTES)  # translating is slow


class FormIds:
    """A word is the number of its form in a list, starting at 1; 0 if it is not there."""

    def __init__(self, forms: Sequence[str]) -> None:
        self._ids = {form: place for place, form in enumerate(forms, start=1)}

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, 1)."""
        ids = (0 if word in SPECIALS else self._ids.get(form_of(word), 0) for word in words)
        return np.fromiter(ids, dtype=np.int32, count=len(words))[:, None]


class FormsAndCharacters:
    """A word is the number of its form, and its characters: the input ``char+word``."""

    def __init__(self, forms: FormIds, max_chars: int) -> None:
        self._forms, self._characters = forms, Characters(max_chars)

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, 1 + max_chars): the form first, then the characters."""
        return np.concatenate([self._forms.rows(words), self._characters.rows(words)], axis=1)


class Pieces:
    """A word is the pieces that a BPE or Unigram model splits it into, padded with zeros."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._model = tokenizer.model

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, most pieces of any word). A special word is a piece of its own."""
        cut = [
            [SPECIALS.index(word)]
            if word in SPECIALS
            else [piece.id for piece in self._model.tokenize(word)[:_MAX_PIECES]] or [UNK]
            for word in words
        ]
        rows = np.zeros((len(cut), max(map(len, cut), default=1)), dtype=np.int32)
        for place, ids in enumerate(cut):
            rows[place, : len(ids)] = ids
        return rows


class DictionaryCharacters:
    """A word is its id, and its characters by a list between two marks, padded to ``max_chars``: the input of
    ELMoForManyLangs models.

    Args:
        tokenizer: Its vocabulary is the list of characters; the first means "nothing", the last is padding.
        max_chars: Columns for the characters; longer words are cut, and then looked up as cut.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, max_chars: int) -> None:
        self._ids, self._vocabulary, self._max_chars = tokenizer.get_vocab(), vocabulary, max_chars

    def rows(self, words: Sequence[str]) -> Rows:
        """Shape (n_words, 1 + max_chars): the word first, then its characters."""
        ids, room = self._ids, self._max_chars - 2
        rows = np.full((len(words), 1 + self._max_chars), ids[CHAR_PAD], dtype=np.int32)
        marks = {SPECIALS[BOS]: BOS_CHAR, SPECIALS[EOS]: EOS_CHAR}
        for row, word in zip(rows, words, strict=True):
            if word == SPECIALS[PAD]:
                row[:] = 0
                continue
            word, signs = (word, [marks[word]]) if word in marks else (word[:room], list(word[:room]))
            row[0] = self._vocabulary.id_of(word)
            inside = [ids.get(sign, ids[UNKNOWN_CHAR]) for sign in (WORD_START, *signs, WORD_END)]
            row[1 : len(inside) + 1] = inside
        return rows


def _seen(words: Sequence[str], counts: npt.NDArray[np.int64]) -> list[tuple[str, int]]:
    """The words that occur in the training text, with their counts."""
    pairs = zip(words, counts.tolist(), strict=True)
    return [(word, count) for word, count in pairs if count and word not in SPECIALS]


def learn_bpe(words: Sequence[str], counts: npt.NDArray[np.int64], n_pieces: int) -> models.Model:
    """Byte-pair pieces of the words, each word weighted by its count."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[UNK], end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    seen = _seen(words, counts)
    trainer = trainers.BpeTrainer(
        vocab_size=n_pieces,
        # Ends of words are listed in order here: the library would number them at random.
        special_tokens=[*SPECIALS, *sorted({f"{word[-1]}</w>" for word, _ in seen})],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    scale = max(1.0, float(counts.sum()) / _PIECE_TOKENS)  # so that training stays fast
    texts = (" ".join([word] * math.ceil(count / scale)) for word, count in seen)
    tokenizer.train_from_iterator(texts, trainer)
    model: models.Model = tokenizer.model
    return model


def require_morfessor() -> Any:
    """The package ``morfessor``, or an error that names the extra."""
    return import_extra("morfessor", "morpheme", "Morpheme input")


def learn_morphemes(words: Sequence[str], counts: npt.NDArray[np.int64]) -> models.Model:
    """Morphemes of the words by Morfessor Baseline.

    Morfessor learns a lexicon of morphs with probabilities, and splits a word by the most probable path
    through it: that is a Unigram model. So the result is saved in ``tokenizer.json`` like any other, and
    Morfessor is not needed again.
    """
    morfessor = require_morfessor()
    known = [(1, word) for word, _ in _seen(words, counts)[:_MORPH_WORDS]]
    morfessor.utils.show_progress_bar = False
    segmenter = morfessor.BaselineModel()
    segmenter.load_data(known)
    state = random.getstate()
    random.seed(0)  # the library shuffles with the shared generator
    try:
        segmenter.train_batch()
    finally:
        random.setstate(state)
    morphs = Counter(morph for _, word in known for morph in segmenter.viterbi_segment(word)[0])
    for letter in {letter for _, word in known for letter in word}:  # so that any word can be spelled out
        morphs.setdefault(letter, 1)
    total = sum(morphs.values())
    ranked = sorted(morphs.items(), key=lambda item: (-item[1], item[0]))
    lexicon = [(special, 0.0) for special in SPECIALS]
    lexicon += [(morph, math.log(count / total)) for morph, count in ranked if morph not in SPECIALS]
    return models.Unigram(lexicon, unk_id=UNK)
