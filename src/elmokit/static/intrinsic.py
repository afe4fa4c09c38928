"""How well word vectors agree with human judgments: word similarity and analogy questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from elmokit.core.errors import DataError
from elmokit.static.exchange import to_number
from elmokit.static.word_vectors import WordVectors
from elmokit.text.readers import decode_lines, open_bytes
from elmokit.text.tokenizing import SPECIALS
from elmokit.vectors.neighbors import unit_rows

Pair = tuple[str, str, float]
Question = tuple[str, ...]
"""Four words: a is to b as c is to d."""
_QUESTIONS_AT_ONCE = 256
_PAIR = "Each line must be word,word,number (or with tabs or spaces between)."
_QUESTION = "Each line must be four words (a is to b as c is to d) or : and a section's name."


@dataclass(frozen=True)
class IntrinsicResult:
    """Agreement of word vectors with one list of human judgments.

    Attributes:
        measure: Spearman's rank correlation of cosines and scores over word pairs, or the share of analogy
            questions answered correctly.
        value: None if it is undefined: nothing is covered, or all pairs are alike.
        n_covered: Pairs or questions all of whose words have a vector; only these count.
    """

    measure: Literal["Spearman", "accuracy"]
    value: float | None
    n_covered: int
    n_total: int

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        counts = {"covered": self.n_covered, "total": self.n_total}
        return {"measure": self.measure, "value": self.value, **counts}


def evaluate_vectors(vectors: WordVectors, file: str | Path) -> IntrinsicResult:
    """Compare word vectors with a file of scored word pairs or of analogy questions."""
    _, first = next(_lines(Path(file)), (0, ""))
    words = first.split()
    if first.startswith(":") or (len(words) == 4 and "," not in first and to_number(words[2]) is None):
        return analogy_accuracy(vectors, read_questions(file))
    return similarity_correlation(vectors, read_pairs(file))


def read_pairs(file: str | Path) -> list[Pair]:
    """Read lines of two words and a score, separated by tabs, commas or spaces; also ``.gz``.

    Lines that begin with ``#`` are skipped, and so is a first line that names the columns.
    """
    pairs: list[Pair] = []
    lines = ((number, line) for number, line in _lines(Path(file)) if not line.startswith("#"))
    for place, (number, line) in enumerate(lines):
        separator = "\t" if "\t" in line else "," if "," in line else None
        fields = [part.strip() for part in line.split(separator)]
        score = to_number(fields[2]) if len(fields) == 3 and all(fields) else None
        if score is not None:
            pairs.append((fields[0], fields[1], score))
        elif place or len(fields) != 3:  # the first may name the columns
            raise DataError(f"{file}, line {number}: not two words and a number.", remedy=_PAIR)
    if not pairs:
        raise DataError(f"{file} has no pair of words.", remedy=_PAIR)
    return pairs


def read_questions(file: str | Path) -> list[Question]:
    """Read analogy questions, lines of four words; also ``.gz``. Sections (``: name``) are skipped."""
    lines = [(number, tuple(line.split())) for number, line in _lines(Path(file)) if line[0] != ":"]
    for number, words in lines:
        if len(words) != 4:
            problem = f"{file}, line {number}: {len(words)} words, but a question has four."
            raise DataError(problem, remedy=_QUESTION)
    if not lines:
        raise DataError(f"{file} has no question.", remedy=_QUESTION)
    return [words for _, words in lines]


def similarity_correlation(vectors: WordVectors, pairs: Sequence[Pair]) -> IntrinsicResult:
    """Spearman's rank correlation of the cosines of word pairs with their scores."""
    spelled = [(vectors.find(one), vectors.find(other), score) for one, other, score in pairs]
    covered = [(one, other, score) for one, other, score in spelled if one and other]
    left = unit_rows(vectors.look_up([one for one, _, _ in covered]))
    right = unit_rows(vectors.look_up([other for _, other, _ in covered]))
    cosines, scores = (left * right).sum(axis=1), [score for *_, score in covered]
    is_defined = len(set(cosines.tolist())) > 1 and len(set(scores)) > 1
    value = float(stats.spearmanr(cosines, scores).statistic) if is_defined else None
    return IntrinsicResult("Spearman", value, len(covered), len(pairs))


def analogy_accuracy(vectors: WordVectors, questions: Sequence[Question]) -> IntrinsicResult:
    """The share of analogy questions that ``WordVectors.analogy`` answers correctly."""
    units = unit_rows(vectors.vectors[len(SPECIALS) :]).astype(np.float32)  # (n_words, dim)
    spelled = [[word for word in map(vectors.find, words) if word] for words in questions]
    rows = [list(map(vectors.vocabulary.id_of, words)) for words in spelled if len(words) == 4]
    covered = np.array(rows, dtype=np.int64).reshape(-1, 4) - len(SPECIALS)
    n_right = 0
    for first in range(0, len(covered), _QUESTIONS_AT_ONCE):
        a, b, c, d = covered[first : first + _QUESTIONS_AT_ONCE].T
        scores = (units[b] - units[a] + units[c]) @ units.T  # (n_questions, n_words)
        for given in (a, b, c):
            scores[np.arange(len(d)), given] = -np.inf
        n_right += int((scores.argmax(axis=1) == d).sum())
    value = n_right / len(covered) if rows else None
    return IntrinsicResult("accuracy", value, len(covered), len(questions))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    with open_bytes(file) as stream:
        for number, line in enumerate(decode_lines(stream, str(file)), start=1):
            if stripped := line.strip():
                yield number, stripped
