"""Methods ordered by score, with a significance test for every pair of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from elmokit.comparison.statistics import (
    LEVEL,
    N_RESAMPLES,
    Difference,
    compare_pair,
    holm,
    pool_variance,
    row_scores,
)
from elmokit.core.errors import DataError

_RESAMPLES_PER_PAIR = 100  # so that the smallest possible p-value is significant after correction
_MUCH_CHEAPER = 2.0  # a method tied with the best is recommended instead if it costs this many times less
_WORTH_SAVING = 60.0  # and at least this many seconds less


@dataclass(frozen=True, kw_only=True)
class Pair(Difference):
    """The tested difference between two methods, by id; ``p_adjusted`` is corrected for all tests, and so is
    ``detectable``, one number: what Holm's method asks of the tests that are not significant yet."""

    better: str
    worse: str
    p_adjusted: float

    @property
    def significant(self) -> bool:
        """True if the difference is significant after correction."""
        return self.p_adjusted < LEVEL


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Methods in the order of their score.

    Attributes:
        order: ids, best first; equal scores in alphabetical order.
        ranks: first and last rank that a method may have: behind all that are significantly better, ahead of
            all that are significantly worse.
        pairs: neighbors in the order of the ranking, then all others.
        detectable: about the smallest difference that would have been significant after correction; None
            without any pair.
    """

    order: tuple[str, ...]
    ranks: Mapping[str, tuple[int, int]]
    pairs: tuple[Pair, ...]
    detectable: float | None

    @property
    def tied_with_best(self) -> tuple[str, ...]:
        """The best method and those not significantly different from it."""
        best, *others = self.order
        return best, *(method for method in others if not self.pair(best, method).significant)

    def pair(self, one: str, other: str) -> Pair:
        """The result for two methods, in either order."""
        for pair in self.pairs:
            if {pair.better, pair.worse} == {one, other}:
                return pair
        raise DataError(
            f"{one} and {other} are not two methods of the ranking.",
            remedy=f"Its methods are: {', '.join(self.order)}.",
        )


def rank(scores: Mapping[str, npt.ArrayLike], *, seed: int = 0, n_resamples: int = N_RESAMPLES) -> Ranking:
    """Rank methods by their mean score and test which differences are significant.

    Every method is tested against every other. All tests are corrected together by Holm's method, so that at
    most 5 of 100 comparisons should have a false alarm (with few seeds somewhat more, see ``statistics``).

    Args:
        scores: For each method id what each row adds to its score, (n_seeds, n_rows): the same rows for all,
            any number of seeds. For accuracy: right or wrong.
        n_resamples: At least this many for each pair.
    """
    rows = {method: row_scores(values) for method, values in scores.items()}
    order = sorted(rows, key=lambda method: (-rows[method].mean, method))
    both = sorted(combinations(order, 2), key=lambda ids: order.index(ids[1]) - order.index(ids[0]) > 1)
    n_resamples = max(n_resamples, _RESAMPLES_PER_PAIR * len(both))
    pooled = pool_variance(rows.values())
    options = {"seed": seed, "n_resamples": n_resamples, "n_tests": len(both)}
    differences = [
        compare_pair(scores[better], scores[worse], pooled=pooled, **options) for better, worse in both
    ]
    adjusted = holm([difference.p for difference in differences])
    n_open = max(1, sum(p >= LEVEL for p in adjusted))
    differences = [replace(one, detectable=(one.detectable[n_open - 1],)) for one in differences]
    pairs = tuple(
        Pair(**asdict(difference), better=better, worse=worse, p_adjusted=p)
        for (better, worse), difference, p in zip(both, differences, adjusted, strict=True)
    )
    clear = [pair for pair in pairs if pair.significant]
    n_better, n_worse = Counter(pair.worse for pair in clear), Counter(pair.better for pair in clear)
    detectable = [pair.detectable[0] for pair in pairs[: len(order) - 1]]
    return Ranking(
        order=tuple(order),
        ranks={method: (1 + n_better[method], len(order) - n_worse[method]) for method in order},
        pairs=pairs,
        detectable=float(np.median(detectable)) if detectable else None,
    )


def recommend(ranking: Ranking, seconds: Mapping[str, float]) -> str:
    """The best method, or one tied with it that takes far less time to pretrain and fit."""
    recommended, *others = ranking.tied_with_best
    for method in others:
        cost, less = seconds[recommended], seconds[method]
        if less * _MUCH_CHEAPER <= cost and cost - less >= _WORTH_SAVING:
            recommended = method
    return recommended


def format_rank(rank: tuple[int, int]) -> str:
    """A rank, or the range of ranks a method may have.

    >>> format_rank((1, 1)), format_rank((2, 3))
    ('1', '2–3')
    """
    first, last = rank
    return str(first) if first == last else f"{first}–{last}"
