"""How well word vectors agree with people: similarity lists and analogy questions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from elmokit.core.errors import DataError
from elmokit.static.word_vectors import WordVectors
from elmokit.text.readers import decode_lines, open_bytes
from elmokit.text.tokenizing import SPECIALS, replace_surrogates
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.neighbors import unit_rows

__all__ = [
    "AnalogyResult",
    "Pair",
    "Questions",
    "SimilarityResult",
    "analogy_accuracy",
    "intrinsic_facts",
    "read_pairs",
    "read_questions",
    "similarity_correlation",
]

Pair = tuple[str, str, float]
Questions = dict[str, list[tuple[str, str, str, str]]]
"""By section, "" where there is none: a is to b as c is to d."""

_QUESTIONS_AT_ONCE = 256
_PAIR = "Each line must be word,word,number (or with tabs or spaces between)."


@dataclass(frozen=True)
class SimilarityResult:
    """Agreement with a list of word pairs that people have judged.

    Attributes:
        spearman: rank correlation of cosines and judgements over the pairs covered; None if it cannot
            be told, for want of pairs or of differences between them.
        n_covered: pairs both of whose words have a vector.
        n_pairs: all pairs.
    """

    spearman: float | None
    n_covered: int
    n_pairs: int


@dataclass(frozen=True)
class AnalogyResult:
    """Questions "a is to b as c is to what?" that were answered.

    Attributes:
        n_right: answered as the list has it.
        n_covered: questions all of whose words have a vector.
        n_questions: all questions.
        sections: the same three by section of the list; empty if there is none, or inside one.
    """

    n_right: int
    n_covered: int
    n_questions: int
    sections: dict[str, AnalogyResult]

    @property
    def accuracy(self) -> float | None:
        """Share of the questions covered that were answered rightly; None if none was covered."""
        return self.n_right / self.n_covered if self.n_covered else None


def read_pairs(file: str | Path) -> list[Pair]:
    """A list of lines ``word, word, score``, as people have judged them.

    Args:
        file: separated by tabs, commas or spaces, also ``.gz``. Lines that begin with ``#`` are passed
            over, and so is a first line that names the columns.
    """
    pairs: list[Pair] = []
    named = False
    for number, line in _lines(Path(file)):
        if line.startswith("#"):
            continue
        separator = "\t" if "\t" in line else "," if "," in line else None
        fields = [part.strip() for part in line.split(separator)]
        score = _number(fields[2]) if len(fields) == 3 and all(fields) else None
        if score is not None:
            pairs.append((fields[0], fields[1], score))
        elif len(fields) == 3 and not pairs and not named:
            named = True
        else:
            raise DataError(f"{file}, line {number}: not two words and a number.", remedy=_PAIR)
    if not pairs:
        raise DataError(f"{file} holds no pair of words.", remedy=_PAIR)
    return pairs


def read_questions(file: str | Path) -> Questions:
    """Analogy questions by section.

    Args:
        file: lines of four words, ``a b c d``: a is to b as c is to d. A line ``: name`` begins a
            section. Also ``.gz``.
    """
    found: Questions = {}
    section = ""
    for number, line in _lines(Path(file)):
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        words = line.split()
        if len(words) != 4:
            raise DataError(
                f"{file}, line {number}: {len(words)} words where a question has four.",
                remedy="Each line must be four words (a is to b as c is to d) or : and a section's name.",
            )
        found.setdefault(section, []).append((words[0], words[1], words[2], words[3]))
    if not found:
        raise DataError(f"{file} holds no question.", remedy="Give lines of four words.")
    return found


def similarity_correlation(vectors: WordVectors, pairs: Sequence[Pair]) -> SimilarityResult:
    """Spearman's rank correlation of the cosines of word pairs with people's judgements."""
    known = [(vectors.known(one), vectors.known(other), score) for one, other, score in pairs]
    covered = [(one, other, score) for one, other, score in known if one is not None and other is not None]
    left = unit_rows(vectors.look_up([one for one, _, _ in covered]))
    right = unit_rows(vectors.look_up([other for _, other, _ in covered]))
    cosines, judged = (left * right).sum(axis=1), [score for *_, score in covered]
    can_be_told = len(set(cosines.tolist())) > 1 and len(set(judged)) > 1
    spearman = float(stats.spearmanr(cosines, judged).statistic) if can_be_told else None
    return SimilarityResult(spearman, len(covered), len(pairs))


def analogy_accuracy(vectors: WordVectors, questions: Questions) -> AnalogyResult:
    """Share of analogy questions answered rightly by 3CosAdd, as ``WordVectors.analogy`` does it."""
    units = unit_rows(vectors.vectors[len(SPECIALS) :]).astype(np.float32)  # (n_words, dim)
    found = {section: _answered(vectors, units, some) for section, some in questions.items()}
    results = found.values()
    return AnalogyResult(
        sum(one.n_right for one in results),
        sum(one.n_covered for one in results),
        sum(one.n_questions for one in results),
        found if list(found) != [""] else {},
    )


def intrinsic_facts(
    vectors: WordVectors, similarity: Sequence[str | Path] = (), analogies: Sequence[str | Path] = ()
) -> list[dict[str, Any]]:
    """Figures for a report, one for each list: task, measure, value (None if it cannot be told), and how
    many of the total were covered.

    Args:
        vectors: the table.
        similarity: files for ``read_pairs``.
        analogies: files for ``read_questions``.
    """
    facts: list[dict[str, Any]] = []
    for file in similarity:
        pairs = similarity_correlation(vectors, read_pairs(file))
        facts.append(_fact(file, "Spearman", pairs.spearman, pairs.n_covered, pairs.n_pairs))
    for file in analogies:
        asked = analogy_accuracy(vectors, read_questions(file))
        facts.append(_fact(file, "accuracy", asked.accuracy, asked.n_covered, asked.n_questions))
    return facts


def _fact(file: str | Path, measure: str, value: float | None, covered: int, total: int) -> dict[str, Any]:
    name = replace_surrogates(Path(file).name)
    return {"task": name, "measure": measure, "value": value, "covered": covered, "total": total}


def _answered(
    vectors: WordVectors, units: Floats, questions: Sequence[tuple[str, str, str, str]]
) -> AnalogyResult:
    """``units``: (n_words, dim), a row of length 1 for each word but the special ones."""
    id_of = vectors.vocabulary.id_of
    known = [tuple(map(vectors.known, words)) for words in questions]
    rows = [[id_of(word) - len(SPECIALS) for word in words if word] for words in known if all(words)]
    asked = np.array(rows, dtype=np.int64).reshape(-1, 4)
    n_right = 0
    for first in range(0, len(asked), _QUESTIONS_AT_ONCE):
        a, b, c, d = asked[first : first + _QUESTIONS_AT_ONCE].T
        scores = (units[b] - units[a] + units[c]) @ units.T  # (n_questions, n_words)
        for given in (a, b, c):
            scores[np.arange(len(d)), given] = -np.inf
        n_right += int((scores.argmax(axis=1) == d).sum())
    return AnalogyResult(n_right, len(asked), len(questions), {})


def _number(text: str) -> float | None:
    """The finite number that a text is."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    if not file.is_file():
        raise DataError(f"There is no file {file}.", remedy="Check the name and the folder.")
    with open_bytes(file) as stream:
        for number, line in enumerate(decode_lines(stream, str(file)), start=1):
            if stripped := line.strip():
                yield number, stripped


def is_analogy_file(file: str | Path) -> bool:
    """True if the first line of a list is a section (``: capitals``) or has four words and no score."""
    for _, line in _lines(Path(file)):
        words = re.split(r"[,;\t ]+", line)
        return line.startswith(":") or (len(words) == 4 and _number(words[2]) is None)
    return False
