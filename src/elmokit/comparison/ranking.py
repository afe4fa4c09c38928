"""Methods ordered by score, with a significance test for every pair of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.comparison.statistics import (
    N_RESAMPLES,
    Difference,
    RowScores,
    compare_pair,
    holm,
    pool_variance,
    row_scores,
)
from elmokit.core.errors import DataError

LEVEL = 0.05
_MANY_ROWS = 2000  # enough for a second decimal to mean something
_MANY_SEEDS = 5
_RESAMPLES_PER_PAIR = 100  # so that the smallest possible p-value is significant after correction
_LARGE = 0.05  # a difference that readers will not believe to be chance


@dataclass(frozen=True, kw_only=True)
class Pair(Difference):
    """The tested difference between two methods.

    Attributes:
        better: id of the method with the higher score (if equal, the one ranked first).
        worse: id of the other.
        p_adjusted: p, corrected for all tests of the ranking.
        sentence: the result in words.
    """

    better: str
    worse: str
    p_adjusted: float
    sentence: str

    @property
    def significant(self) -> bool:
        """True if the difference is significant after correction."""
        return self.p_adjusted < LEVEL


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Methods in the order of their score.

    Attributes:
        order: ids, best first; equal scores in alphabetical order.
        ranks: first and last rank that a method may have, given what is significant.
        pairs: neighbors in the order of the ranking, then all others.
        tied_with_best: ids of the best method and of those not significantly different from it.
        detectable: about the smallest difference that would have been significant; None without any pair.
        summary: the result in sentences.
    """

    order: tuple[str, ...]
    ranks: Mapping[str, tuple[int, int]]
    pairs: tuple[Pair, ...]
    tied_with_best: tuple[str, ...]
    detectable: float | None
    summary: tuple[str, ...]

    def pair(self, one: str, other: str) -> Pair:
        """The result for two methods, in either order."""
        for pair in self.pairs:
            if {pair.better, pair.worse} == {one, other}:
                return pair
        raise DataError(
            f"{one} and {other} are not two methods of the ranking.",
            remedy=f"Its methods are: {', '.join(self.order)}.",
        )


def rank(
    scores: Mapping[str, npt.ArrayLike],
    names: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> Ranking:
    """Rank methods by their mean score and test which differences are significant.

    Every method is tested against every other. All tests are corrected together by Holm's method, so that at
    most 5 of 100 comparisons should have a false alarm (with few seeds somewhat more, see ``statistics``).

    Args:
        scores: For each method id what each row adds to its score, (n_seeds, n_rows): the same rows for all,
            any number of seeds. For accuracy: right or wrong.
        names: Display names by id; default: the id.
        n_resamples: At least this many for each pair.
    """
    rows = {method: row_scores(values) for method, values in scores.items()}
    order = sorted(rows, key=lambda method: (-rows[method].mean, method))
    names = {method: (names or {}).get(method, method) for method in order}
    places = sorted(itertools.combinations(range(len(order)), 2), key=lambda place: place[1] - place[0] > 1)
    n_resamples = max(n_resamples, _RESAMPLES_PER_PAIR * len(places))
    pooled = pool_variance(rows.values())
    differences = [
        compare_pair(scores[order[a]], scores[order[b]], pooled=pooled, seed=seed, n_resamples=n_resamples)
        for a, b in places
    ]
    pairs = []
    for (a, b), difference, p in zip(
        places, differences, holm([test.p for test in differences]), strict=True
    ):
        sentence = _sentence(difference, p, [(names[id], rows[id]) for id in (order[a], order[b])])
        pairs.append(
            Pair(
                **dataclasses.asdict(difference),
                better=order[a],
                worse=order[b],
                p_adjusted=p,
                sentence=sentence,
            )
        )
    neighbors = pairs[: max(0, len(order) - 1)]
    detectable = float(np.median([pair.detectable for pair in neighbors])) if neighbors else None
    ranks = _ranks(order, {place: pair.significant for place, pair in zip(places, pairs, strict=True)})
    return Ranking(
        order=tuple(order),
        ranks=ranks,
        pairs=tuple(pairs),
        tied_with_best=tuple(method for method in order if ranks[method][0] == 1),
        detectable=detectable,
        summary=tuple(_summary(pairs, list(rows.values()), detectable)),
    )


def format_rank(rank: tuple[int, int]) -> str:
    """A rank, or the range of ranks a method may have.

    >>> format_rank((1, 1)), format_rank((2, 3))
    ('1', '2–3')
    """
    first, last = rank
    return str(first) if first == last else f"{first}–{last}"


def _ranks(order: Sequence[str], significant: Mapping[tuple[int, int], bool]) -> dict[str, tuple[int, int]]:
    """Extend each method's rank up and down as far as nothing significant lies between."""
    ranks = {}
    for place, method in enumerate(order):
        first = last = place
        while first > 0 and not significant[first - 1, first] and not significant[first - 1, place]:
            first -= 1
        while last + 1 < len(order) and not significant[last, last + 1] and not significant[place, last + 1]:
            last += 1
        ranks[method] = (first + 1, last + 1)
    return ranks


def _sentence(test: Difference, p: float, methods: Sequence[tuple[str, RowScores]]) -> str:
    (better, first), (worse, second) = methods
    n = _n_decimals(first)
    figures = (
        f"{first.mean:.{n}%} vs. {second.mean:.{n}%}, {_points(test.difference, n)} points, "
        f"95% interval {_points(test.low, n)} to {_points(test.high, n)}, "
        + ("p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.0995 else f"p = {p:.3f}")
    )
    if p < LEVEL:
        return f"{better} is significantly better than {worse} ({figures})."
    after = " after correction for several tests" if test.low > 0 else ""
    few_seeds = any(1 < len(rows.values) < _MANY_SEEDS for _, rows in methods)
    more = "; more seeds may show one" if few_seeds and test.difference >= _LARGE else ""
    return f"{better} and {worse} are not significantly different{after} ({figures}{more})."


def _summary(pairs: Sequence[Pair], methods: Sequence[RowScores], detectable: float | None) -> list[str]:
    if detectable is None:
        return ["Only one method finished, so there is nothing to compare it with."]
    neighbors, others = pairs[: len(methods) - 1], pairs[len(methods) - 1 :]
    sentences = [pair.sentence for pair in neighbors]
    if others:
        n_significant = sum(pair.significant for pair in others)
        differ = "differs" if n_significant == 1 else "differ"
        sentences.append(
            f"Of {_counted(len(others), 'other pair')}, {n_significant or 'none'} {differ} significantly."
        )
    n_rows = _counted(methods[0].values.shape[1], "test row")
    if detectable >= 1:
        sentences.append(f"With {n_rows}, no difference can be significant.")
    else:
        least = f"{detectable * 100:.{_n_decimals(methods[0])}f}"
        sentences.append(f"With {n_rows}, differences below about {least} points are rarely significant.")
    if all(len(rows.values) == 1 for rows in methods):
        sentences.append("Every method was trained with one seed; variation between seeds is not included.")
    if len(pairs) > 1:
        sentences.append(
            f"p-values are corrected for {len(pairs)} tests (Holm); the intervals are for each pair alone."
        )
    return sentences


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _n_decimals(rows: RowScores) -> int:
    return 2 if rows.values.shape[1] >= _MANY_ROWS else 1


def _points(difference: float, n: int) -> str:
    """A difference in percentage points with its sign; zero has none.

    >>> _points(0.0071, 1), _points(-0.0123, 2), _points(-0.00001, 1)
    ('+0.7', '−1.23', '0.0')
    """
    size = f"{abs(difference) * 100:.{n}f}"
    sign = "" if float(size) == 0 else "+" if difference > 0 else "−"
    return sign + size
