"""Confidence intervals and significance tests for methods measured on the same test rows.

A method's results are a matrix (n_seeds, n_rows): what each test row adds to its score, which is their mean
(``row_values``). **Rows** are resampled (bootstrap), the same for all seeds and both methods. A few rows that
contradict the result are added first (after Agresti and Coull, and Bonett and Price): ten right answers out
of ten do not prove perfection. **Seeds** are too few to resample: the variance between their scores, minus
what comes from disagreement on single rows, is added as noise with a t distribution (Welch's degrees of
freedom for two methods). In a ranking, each method's variance is shrunk toward what is typical of all
(``pool_variance``; empirical Bayes, as in Smyth's moderated t), unless it varies far more than the others.
With three varying seeds, false alarms are somewhat more frequent than the level says
(``benchmarks/false_alarms.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from elmokit.tasks.task import Metrics

N_RESAMPLES = 10_000
LEVEL = 0.05
_MIN_METHODS = 3  # with several seeds each, to estimate a typical variance
_MAX_DEGREES = 30.0  # that the typical variance can be worth
_TYPICAL = 0.75  # quantile of the F distribution beyond which a method is judged by its own seeds alone
_UNIT = 10_000  # row scores other than right or wrong are rounded to this fraction
_MAX_LEVELS = 2000  # that a row can differ by when rows are resampled

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class RowScores(NamedTuple):
    """What each test row adds to a score, (n_seeds, n_rows), in whole units of 1 / ``unit``, so that the
    order of rows and seeds is irrelevant. ``unit`` is 1 if rows are right or wrong."""

    values: Integers
    unit: int

    @property
    def mean(self) -> float:
        """The score, averaged over the seeds."""
        return float(self.values.mean() / self.unit)


class PooledVariance(NamedTuple):
    """The typical variance between the scores of a method's seeds, and the degrees of freedom it is worth:
    close to zero if methods differ widely."""

    variance: float
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much better a first method is than a second, with a 95% interval, a two-sided p-value, and about
    the smallest difference that would have been significant as one of 1, 2, ... tests."""

    difference: float
    low: float
    high: float
    p: float
    detectable: tuple[float, ...]

    def reversed(self) -> Difference:
        """The same difference, from the second method's side."""
        return replace(self, difference=-self.difference, low=-self.high, high=-self.low)


def row_values(metrics: Metrics) -> Floats:
    """What each row adds to the main score, (n,): its jackknife pseudo-values, whose mean is the score.

    For accuracy they are exactly 1 or 0. For a ratio of sums, such as F1, they are its linear approximation,
    so that intervals and tests need not know the score.
    """
    kinds, numbers = np.unique(metrics.row_stats, axis=0, return_inverse=True)
    n, sums = metrics.n, metrics.row_stats.sum(axis=0)
    score = metrics.score(sums)
    if n == 1:
        return np.array([score])
    by_kind = np.array([n * score - (n - 1) * metrics.score(sums - kind) for kind in kinds])
    values = by_kind[numbers.ravel()]
    rounded: Floats = np.round(values + (score - values.mean()), 6)
    return rounded


def row_scores(values: npt.ArrayLike) -> RowScores:
    """From an array (n_seeds, n_rows), or (n_rows,) for one seed; seeds that all agree become one."""
    array = np.atleast_2d(np.asarray(values))
    unit = 1 if np.isin(array, (0, 1)).all() else _UNIT
    whole = np.rint(array.astype(np.float64) * unit).astype(np.int64)
    return RowScores(whole[:1] if (whole == whole[0]).all() else whole, unit)


def score_interval(
    values: npt.ArrayLike, *, seed: int = 0, n_resamples: int = N_RESAMPLES
) -> tuple[float, float]:
    """95% interval of a method's score over other test rows and seeds; ``values`` as for ``compare_pair``."""
    rows = row_scores(values)
    rng = np.random.default_rng(seed)
    by_row, scale = _coarse(rows.values.sum(axis=0), len(rows.values) * rows.unit)
    means = _resampled_means(np.append(by_row, [0, 0, scale, scale]), scale, n_resamples, rng)
    low, high = _interval(means + _seed_noise([rows], n_resamples, rng), rows.mean)
    return (max(0.0, low), min(1.0, high)) if rows.unit == 1 else (low, high)


def pool_variance(methods: Iterable[RowScores]) -> PooledVariance | None:
    """Estimate the typical variance between seeds; None with too few methods that have several seeds.

    The logarithms of the variances differ by chance, as those of chi-square variables do, and because the
    methods differ; what remains after chance tells how alike the methods are (Smyth 2004).
    """
    several = [rows for rows in methods if min(rows.values.shape) > 1]
    variances = np.array([_between_seeds(rows)[0] for rows in several])
    if len(several) < _MIN_METHODS or not variances.any():
        return None
    logs = np.log(np.maximum(variances, 1e-3 * variances[variances > 0].min()))
    halves = np.array([len(rows.values) - 1 for rows in several]) / 2
    centered = logs - special.digamma(halves) + np.log(halves)
    excess = float(centered.var(ddof=1) - special.polygamma(1, halves).mean())
    half = _MAX_DEGREES / 2
    if excess > float(special.polygamma(1, half)):  # invert the trigamma function, which decreases
        half = float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - excess, 1e-3, half))
    typical = float(np.exp(centered.mean() + special.digamma(half) - np.log(half)))
    return PooledVariance(typical, 2 * half)


def compare_pair(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    pooled: PooledVariance | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    n_tests: int = 1,
) -> Difference:
    """Test whether methods ``a`` and ``b`` differ on the same test rows.

    With one seed each and rows that are right or wrong, this is McNemar's test (mid-p). Otherwise the sign of
    each row's difference is flipped at random, which generalizes it, and the noise of the seeds is added.
    Seeds that agree on every row count as one.

    Args:
        a: What each row adds to the score, (n_seeds, n_rows), or (n_rows,) for one seed; ``b`` may have
            another number of seeds.
        pooled: Typical variance between seeds, from several methods.
        n_tests: Give the smallest detectable difference for up to this many tests.
    """
    first, second = row_scores(a), row_scores(b)
    (n_a, n_rows), n_b = first.values.shape, len(second.values)
    difference = first.mean - second.mean
    if difference < 0:  # both orders of the methods give the same result
        options = {"seed": seed, "n_resamples": n_resamples, "n_tests": n_tests}
        return compare_pair(b, a, pooled=pooled, **options).reversed()
    unit_a, unit_b = n_a * first.unit, n_b * second.unit
    exact = unit_b * first.values.sum(axis=0) - unit_a * second.values.sum(axis=0)
    lead, scale = _coarse(exact, unit_a * unit_b)  # (n_rows,), times scale
    rng = np.random.default_rng(seed)
    noise = _seed_noise([first, second], n_resamples, rng, pooled)
    means = _resampled_means(np.append(lead, [-scale, scale]), scale, n_resamples, rng)
    low, high = _interval(means + noise, difference)

    levels, counts = np.unique(np.abs(lead), return_counts=True)
    flips = 2 * rng.binomial(counts, 0.5, size=(n_resamples, len(levels))) - counts
    chance = np.abs(flips @ levels / (scale * n_rows) + noise)  # sizes of differences without a cause
    if scale == 1:
        p = mcnemar(int((lead > 0).sum()), int((lead < 0).sum()))
    elif difference == 0:
        p = 1.0
    else:  # how often chance is as large; equal sizes count half (mid-p)
        n_larger, n_as_large = (chance > difference + 1e-12).sum(), (chance >= difference - 1e-12).sum()
        p = float(((n_larger + n_as_large) / 2 + 1) / (n_resamples + 1))
    levels = LEVEL / np.arange(1, n_tests + 1)
    # McNemar's test needs n rows, all for one side, with 0.5 ** n below the level.
    least = np.maximum((np.floor(-np.log2(levels)) + 1) / n_rows, np.quantile(chance, 1 - levels))
    detectable = tuple(np.minimum(1.0, least).tolist())
    return Difference(
        difference=difference, low=max(-1.0, low), high=min(1.0, high), p=p, detectable=detectable
    )


def mcnemar(n_first: int, n_second: int) -> float:
    """McNemar's test with mid-p, from the number of rows that only one of the methods gets right.

    >>> round(mcnemar(5, 0), 6), mcnemar(7, 7), mcnemar(0, 0)
    (0.03125, 1.0, 1.0)
    """
    n, fewer = n_first + n_second, min(n_first, n_second)
    return float(min(1.0, 2 * stats.binom.cdf(fewer, n, 0.5) - stats.binom.pmf(fewer, n, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.arange(len(order), 0, -1) * np.asarray(p_values)[order])
    return [min(1.0, float(p)) for p in adjusted]


def _interval(samples: Floats, estimate: float) -> tuple[float, float]:
    """The middle 95% of the samples, widened to include the estimate."""
    low, high = np.quantile(samples, (0.025, 0.975))
    return min(float(low), estimate), max(float(high), estimate)


def _coarse(values: Integers, scale: int) -> tuple[Integers, int]:
    """The values in units of 1/scale, in coarser units if there are too many."""
    if scale <= _MAX_LEVELS:
        return values, scale
    return np.rint(values * (_MAX_LEVELS / scale)).astype(np.int64), _MAX_LEVELS


def _resampled_means(rows: Integers, scale: int, n_resamples: int, rng: np.random.Generator) -> Floats:
    """Means of as many rows, drawn with replacement, divided by the scale."""
    levels, counts = np.unique(rows, return_counts=True)
    draws = rng.multinomial(len(rows), counts / len(rows), size=n_resamples)  # (n_resamples, n_levels)
    means: Floats = draws @ (levels / scale) / len(rows)
    return means


def _between_seeds(rows: RowScores) -> tuple[float, float]:
    """Variance between the seeds' scores, and the part of it explained by disagreement on single rows."""
    n_seeds, n_rows = rows.values.shape
    by_seed, by_row = rows.values.sum(axis=1), rows.values.sum(axis=0)
    between = int(n_seeds * (by_seed**2).sum() - by_seed.sum() ** 2)
    within = int((n_seeds * (rows.values**2).sum(axis=0) - by_row**2).sum())
    scale = n_rows * (n_rows - 1) * n_seeds * (n_seeds - 1) * rows.unit**2
    return between / scale, within / scale


def _seed_noise(
    methods: Iterable[RowScores],
    n_resamples: int,
    rng: np.random.Generator,
    pooled: PooledVariance | None = None,
) -> Floats:
    """Samples of what other seeds would change in the methods' mean scores, beyond single rows."""
    total = welch = 0.0  # the variance, and what its degrees of freedom follow from
    for rows in methods:
        n_seeds = len(rows.values)
        if min(rows.values.shape) == 1:
            continue
        (between, within), degrees = _between_seeds(rows), float(n_seeds - 1)
        if pooled and between <= pooled.variance * stats.f.ppf(_TYPICAL, degrees, pooled.degrees):
            between = (pooled.degrees * pooled.variance + degrees * between) / (pooled.degrees + degrees)
            degrees += pooled.degrees
        variance = max(0.0, between - within) / n_seeds
        total, welch = total + variance, welch + variance**2 / degrees
    if total == 0:
        return np.zeros(n_resamples)
    noise: Floats = rng.standard_t(total**2 / welch, n_resamples) * np.sqrt(total)
    return noise
