"""Methods in the order of their accuracy, and in plain words which of the differences are real."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.comparison.statistics import (
    N_RESAMPLES,
    Answers,
    Difference,
    checked_answers,
    compare_pair,
    holm,
    usual_spread,
)
from elmokit.core.errors import DataError

__all__ = ["Pair", "Ranking", "rank"]

LEVEL = 0.05
_MANY_ROWS = 2000  # from here on a second decimal means something
_MANY_SEEDS = 5
_DRAWS_PER_PAIR = 100  # so that the least p that draws can show counts after correction, too
_MUCH = 0.05  # a difference that a person would not believe to be none


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods whose difference was tested.

    Attributes:
        better: id of the one with the higher accuracy (of equals, the one ranked first).
        worse: id of the other.
        found: their difference, as tested alone.
        p_adjusted: its p, corrected for all tests of the ranking.
        words: what came out, as a sentence.
    """

    better: str
    worse: str
    found: Difference
    p_adjusted: float
    words: str

    @property
    def real(self) -> bool:
        """Whether the difference can be told from chance."""
        return self.p_adjusted < LEVEL

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        names = {"better": self.better, "worse": self.worse}
        rest = {"p_adjusted": self.p_adjusted, "real": self.real, "words": self.words}
        return names | dataclasses.asdict(self.found) | rest


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What ``rank`` found.

    Attributes:
        order: ids, the most accurate first; of equals, the one that comes first in the alphabet.
        ranks: by id, the places that a method may have: "1", or "2–3" if it cannot be told from others.
        pairs: neighbours in the order of the ranking, then all others.
        summary: the outcome in sentences.
        visible: about the smallest difference that could have been seen; None without any pair.
    """

    order: list[str]
    ranks: dict[str, str]
    pairs: list[Pair]
    summary: list[str]
    visible: float | None

    def pair(self, one: str, other: str) -> Pair:
        """The outcome for two methods, in whichever order they are named."""
        for pair in self.pairs:
            if {pair.better, pair.worse} == {one, other}:
                return pair
        raise DataError(
            f"{one} and {other} are no two methods of the ranking.",
            remedy=f"Its methods are: {', '.join(self.order)}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        pairs = [pair.to_dict() for pair in self.pairs]
        return {
            "order": self.order,
            "ranks": self.ranks,
            "pairs": pairs,
            "summary": self.summary,
            "visible": self.visible,
        }


def rank(
    correct: Mapping[str, npt.ArrayLike],
    names: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> Ranking:
    """Rank methods by their mean accuracy and test which differences are real.

    Every method is tested against every other; all tests are corrected together by Holm's method, so that
    among them one false alarm or more should come in five of a hundred comparisons (with few seeds it is
    somewhat more, see ``elmokit.comparison.statistics``).

    Args:
        correct: for each method's id whether its answers are right, (n_seeds, n_rows): the same rows for
            all, any number of seeds.
        names: what the methods are called in sentences, by id; the id itself where there is none.
        seed: of the draws.
        n_resamples: how many draws for each pair; more if there are so many pairs that none could be real.
    """
    answers = {method: checked_answers(found) for method, found in correct.items()}
    accuracies = {method: float(found.mean()) for method, found in answers.items()}
    order = sorted(answers, key=lambda method: (-accuracies[method], method))
    n_rows = answers[order[0]].shape[1] if order else 0
    places = sorted(itertools.combinations(range(len(order)), 2), key=lambda place: place[1] - place[0] > 1)
    n_resamples = max(n_resamples, _DRAWS_PER_PAIR * len(places))
    usual = usual_spread(answers.values())
    found = [
        compare_pair(answers[order[a]], answers[order[b]], usual=usual, seed=seed, n_resamples=n_resamples)
        for a, b in places
    ]
    pairs = []
    for (a, b), difference, p in zip(places, found, holm([one.p for one in found]), strict=True):
        called = [(names or {}).get(order[place], order[place]) for place in (a, b)]
        shares = [accuracies[order[place]] for place in (a, b)]
        few = any(1 < len(answers[order[place]]) < _MANY_SEEDS for place in (a, b))
        words = _words((a, b), called, shares, difference, p, n_rows, few_seeds=few)
        pairs.append(Pair(better=order[a], worse=order[b], found=difference, p_adjusted=p, words=words))
    neighbours = pairs[: max(0, len(order) - 1)]
    visible = float(np.median([pair.found.visible for pair in neighbours])) if neighbours else None
    return Ranking(
        order=order,
        ranks=_ranks(order, {place: pair.real for place, pair in zip(places, pairs, strict=True)}),
        pairs=pairs,
        summary=_summary(order, pairs, list(answers.values()), visible),
        visible=visible,
    )


def _ranks(order: Sequence[str], real: Mapping[tuple[int, int], bool]) -> dict[str, str]:
    """The places that each method may have: as far as no test stands between it and its neighbours."""
    found = {}
    for place, method in enumerate(order):
        first = last = place
        while first > 0 and not real[first - 1, first] and not real[first - 1, place]:
            first -= 1
        while last + 1 < len(order) and not real[last, last + 1] and not real[place, last + 1]:
            last += 1
        found[method] = str(first + 1) if first == last else f"{first + 1}–{last + 1}"
    return found


def _words(
    places: tuple[int, int],
    names: Sequence[str],
    shares: Sequence[float],
    found: Difference,
    p: float,
    n_rows: int,
    *,
    few_seeds: bool,
) -> str:
    n = _decimals(n_rows)
    figures = (
        f"{shares[0]:.{n}%} against {shares[1]:.{n}%}, {_points(found.difference, n)} points, "
        f"95% interval {_points(found.low, n)} to {_points(found.high, n)}, "
        + ("p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.0995 else f"p = {p:.3f}")
    )
    if p < LEVEL:
        return f"{names[0]} is better than {names[1]} ({figures})."
    first, second = (f"{_ordinal(place + 1)} ({name})" for place, name in zip(places, names, strict=True))
    more = "; more seeds would tell more" if few_seeds and found.difference >= _MUCH else ""
    if found.low > 0:  # tested alone it would count; among so many tests it does not
        return f"{first} may be better than {second}, but that may be chance: {figures}{more}."
    return f"No real difference between {first} and {second}: {figures}{more}."


def _summary(
    order: Sequence[str], pairs: Sequence[Pair], answers: Sequence[Answers], visible: float | None
) -> list[str]:
    if not order:
        return ["No method finished, so there is nothing to rank."]
    n_rows = answers[0].shape[1]
    if visible is None:
        return ["Only one method finished, so there is nothing to compare it with."]
    neighbours, others = pairs[: len(order) - 1], pairs[len(order) - 1 :]
    said = [pair.words for pair in neighbours]
    if others:
        n_real = sum(pair.real for pair in others)
        said.append(f"Of {_counted(len(others), 'other pair')} the difference is real in {n_real or 'none'}.")
    rows = _counted(n_rows, "test row")
    if visible >= 1:
        said.append(f"With {rows} no difference could be told from chance.")
    else:
        least = f"{visible * 100:.{_decimals(n_rows)}f}"
        said.append(f"With {rows}, differences below about {least} points can hardly be told from chance.")
    if all(len(found) == 1 for found in answers):
        said.append("Every method was trained once; what another seed would change is not counted.")
    if len(pairs) > 1:
        said.append(f"p is corrected for {len(pairs)} tests (Holm); the intervals are of each pair alone.")
    return said


def _decimals(n_rows: int) -> int:
    return 2 if n_rows >= _MANY_ROWS else 1


def _points(difference: float, n: int) -> str:
    """A difference in percentage points with its sign; nought has none.

    >>> _points(0.0071, 1), _points(-0.0123, 2), _points(-0.00001, 1)
    ('+0.7', '−1.23', '0.0')
    """
    size = f"{abs(difference) * 100:.{n}f}"
    sign = "" if float(size) == 0 else "+" if difference > 0 else "−"
    return sign + size


def _counted(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _ordinal(n: int) -> str:
    """
    >>> [_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '112th']
    """
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
