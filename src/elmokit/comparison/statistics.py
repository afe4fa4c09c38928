"""When a difference in accuracy is real, and how sure a figure is.

A method's answers on the test rows are a matrix of truth values, (n_seeds, n_rows): right or wrong. Two
things are left to chance: which rows came into the test, and which seeds the method was trained with.

**Rows** are redrawn (bootstrap), the same for all seeds and both methods, since rows are easy or hard for
all alike. A row counts by how many seeds got it right, so a draw of rows is a draw of a few numbers from a
multinomial distribution, whatever the number of rows. Before an interval is drawn, a few rows are added
that speak against it (two right and two wrong for an accuracy, as Agresti and Coull do; one for each side
for a difference, as Bonett and Price do): ten right answers out of ten are no proof of perfection.

**Seeds** are too few to be redrawn (three seeds show two thirds of their variance on average, and now and
then nearly none). Their part of the variance is estimated as in a two-way table of seeds and rows: the
variance between the seeds' accuracies, less what comes about by the seeds' disagreeing on single rows, which
redrawing the rows covers already. It enters as noise with a t distribution, the heavier the fewer seeds there
are; for two methods the variances are added and the degrees of freedom are Welch's. So a test errs about as
often as it should where rows are the only noise; where three seeds vary, somewhat more often
(``benchmarks/false_alarms.py`` counts it).

Two or three seeds say little of one method's variance, but those of all methods together say what is usual
(``usual_spread``). Where several methods are ranked, each one's variance is drawn towards that, the more so
the more alike the methods are in this, and counts like one from more seeds (empirical Bayes, as in Smyth's
moderated t). A method that varies far more than the others is judged by its own seeds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from elmokit.core.errors import DataError

__all__ = [
    "Difference",
    "Spread",
    "accuracy_interval",
    "checked_answers",
    "compare_pair",
    "holm",
    "mcnemar",
    "mean_sd",
    "usual_spread",
]

N_RESAMPLES = 10_000
_TAILS = (0.025, 0.975)
_FEWEST_METHODS = 3  # with several seeds, to speak of what is usual
_MOST_DEGREES = 30.0  # that what is usual can be worth
_USUAL = 0.75  # of the methods; one that varies more than these is judged by its own seeds alone
_FEWEST = 5  # rows, all for one side, that McNemar's test needs to see anything: 0.5 ** 5 < 0.05 < 0.5 ** 4

Answers = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What is usual of the variance between the seeds' accuracies.

    Attributes:
        variance: the usual one.
        degrees: how many degrees of freedom it is worth: next to none if methods differ widely.
    """

    variance: float
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much more accurate a first method is than a second.

    Attributes:
        difference: of their mean accuracies, between -1 and 1.
        low: lower end of its 95 % interval.
        high: upper end.
        p: how probable it is that chance alone makes a difference this large, to either side.
        visible: about the smallest difference that could have been told from chance here.
    """

    difference: float
    low: float
    high: float
    p: float
    visible: float

    def reversed(self) -> Difference:
        """The same, seen from the second method."""
        return Difference(
            difference=-self.difference, low=-self.high, high=-self.low, p=self.p, visible=self.visible
        )


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; one value alone has no spread.

    >>> mean_sd([0.90, 0.92]), mean_sd([0.9])
    ((0.91, 0.014142135623730963), (0.9, None))
    """
    found = np.asarray(values, dtype=np.float64)
    if not found.size:
        raise DataError("There is no value to take the mean of.")
    return float(found.mean()), float(found.std(ddof=1)) if found.size > 1 else None


def accuracy_interval(
    correct: npt.ArrayLike, *, seed: int = 0, n_resamples: int = N_RESAMPLES
) -> tuple[float, float]:
    """95 % interval of a method's accuracy, over test rows and seeds that might have been others.

    Args:
        correct: whether each answer is right, (n_seeds, n_rows), or (n_rows,) for one seed.
        seed: of the draws.
        n_resamples: how many draws.
    """
    answers = checked_answers(correct)
    n_seeds = len(answers)
    counts = np.bincount(answers.sum(axis=0), minlength=n_seeds + 1)  # rows by how many seeds are right
    counts[0] += 2
    counts[-1] += 2
    rng = np.random.default_rng(seed)
    drawn = _redrawn_means(counts, np.arange(n_seeds + 1) / n_seeds, n_resamples, rng)
    drawn += _seed_noise([answers], n_resamples, rng)
    low, high = np.quantile(drawn, _TAILS)
    accuracy = float(answers.mean())
    return max(0.0, min(float(low), accuracy)), min(1.0, max(float(high), accuracy))


def usual_spread(methods: Iterable[Answers]) -> Spread | None:
    """What the seeds of several methods say together; None if there are too few methods with several seeds.

    The logarithms of the variances differ by chance, as chi-square variables with so many degrees of freedom
    do, and by nature; what is left after chance tells how alike the methods are (Smyth 2004).
    """
    several = [found for answers in methods if min((found := _distinct(answers)).shape) > 1]
    if len(several) < _FEWEST_METHODS:
        return None
    variances = np.array([_between_seeds(answers)[0] for answers in several])
    if not (variances > 0).any():
        return None
    logs = np.log(np.maximum(variances, 1e-3 * variances[variances > 0].min()))
    halves = np.array([len(answers) - 1 for answers in several]) / 2
    centred = logs - special.digamma(halves) + np.log(halves)
    by_nature = float(centred.var(ddof=1) - special.polygamma(1, halves).mean())
    half = _MOST_DEGREES / 2
    if by_nature > float(special.polygamma(1, half)):  # the inverse of a falling function
        half = float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - by_nature, 1e-3, half))
    usual = float(np.exp(centred.mean() + special.digamma(half) - np.log(half)))
    return Spread(variance=usual, degrees=2 * half)


def compare_pair(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    usual: Spread | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> Difference:
    """Test whether method ``a`` and method ``b`` differ in accuracy on the same test rows.

    With one seed each this is McNemar's test (mid-p). With several, the rows' signs are flipped at random,
    of which McNemar's test is the exact form for one seed, and the seeds' noise is added (see above).
    Seeds that agree on every row, as those of a method without chance do, count as one.

    Args:
        a: whether each answer of the first is right, (n_seeds, n_rows), or (n_rows,) for one seed.
        b: the same for the second; the number of seeds may be another.
        usual: what other methods say of the variance between seeds.
        seed: of the draws.
        n_resamples: how many draws.
    """
    first, second = _distinct(checked_answers(a)), _distinct(checked_answers(b))
    n_rows = first.shape[1]
    if second.shape[1] != n_rows:
        raise DataError(
            f"One method has answers for {n_rows:,} test rows, the other for {second.shape[1]:,}.",
            remedy="Compare methods on the same test rows.",
        )
    difference = float(first.mean() - second.mean())
    if difference < 0:  # so that both orders of the methods give the same
        return compare_pair(b, a, usual=usual, seed=seed, n_resamples=n_resamples).reversed()
    scale = len(first) * len(second)
    lead = len(second) * first.sum(axis=0) - len(first) * second.sum(axis=0)  # (n_rows,), times scale
    rng = np.random.default_rng(seed)
    noise = _seed_noise([first, second], n_resamples, rng, usual)

    counts = np.bincount(lead + scale, minlength=2 * scale + 1)  # rows by how far the first leads
    counts[0] += 1
    counts[-1] += 1
    drawn = _redrawn_means(counts, np.arange(-scale, scale + 1) / scale, n_resamples, rng)
    low, high = np.quantile(drawn + noise, _TAILS)

    sizes = np.bincount(np.abs(lead), minlength=scale + 1)
    levels = np.arange(scale + 1)
    flips = 2 * rng.binomial(sizes, 0.5, size=(n_resamples, scale + 1)) - sizes
    chance = flips @ levels / (scale * n_rows) + noise  # differences that come about without a cause
    if len(first) == len(second) == 1:
        p = mcnemar(int((lead > 0).sum()), int((lead < 0).sum()))
    else:
        p = _two_sided(chance, difference)
    return Difference(
        difference=difference,
        low=max(-1.0, min(float(low), difference)),
        high=min(1.0, max(float(high), difference)),
        p=p,
        visible=min(1.0, max(_FEWEST / n_rows, float(np.quantile(np.abs(chance), 0.95)))),
    )


def mcnemar(n_first: int, n_second: int) -> float:
    """McNemar's test with mid-p: the probability of both counts, or more unequal ones, by chance.

    Args:
        n_first: test rows that only the first method gets right.
        n_second: rows that only the second gets right.

    >>> round(mcnemar(5, 0), 6), mcnemar(7, 7), mcnemar(0, 0)
    (0.03125, 1.0, 1.0)
    """
    n, fewer = n_first + n_second, min(n_first, n_second)
    return float(min(1.0, 2 * stats.binom.cdf(fewer, n, 0.5) - stats.binom.pmf(fewer, n, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: probabilities that may be read side by side, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def checked_answers(correct: npt.ArrayLike) -> Answers:
    """``correct`` as truth values, (n_seeds, n_rows)."""
    found: npt.NDArray[Any] = np.asarray(correct)
    if found.ndim == 1:
        found = found[None]
    if found.ndim != 2 or not np.isin(found, (0, 1)).all():
        raise DataError(
            f"Answers of shape {found.shape} are not a truth value for each seed and test row.",
            remedy="Give an array of the shape (n_seeds, n_rows): right or wrong.",
        )
    if not found.size:
        raise DataError("There are no test rows to compare methods on.", remedy="Give a test file with rows.")
    return found.astype(bool)


def _distinct(answers: Answers) -> Answers:
    """One seed instead of several that agree on every row."""
    return answers[:1] if (answers == answers[0]).all() else answers


def _redrawn_means(
    counts: npt.NDArray[np.int64], values: Floats, n_resamples: int, rng: np.random.Generator
) -> Floats:
    """Means over rows drawn with replacement, where ``counts`` rows have each of ``values``."""
    n = int(counts.sum())
    kept = counts > 0
    drawn = rng.multinomial(n, counts[kept] / n, size=n_resamples)  # (n_resamples, n_values)
    means: Floats = drawn @ values[kept] / n
    return means


def _between_seeds(answers: Answers) -> tuple[float, float]:
    """Variance between the seeds' accuracies, and how much of it comes about by disagreeing on single rows.

    In whole numbers until the end, so that the order of rows and seeds makes no difference.
    """
    n_seeds, n_rows = answers.shape
    by_seed, by_row = answers.sum(axis=1), answers.sum(axis=0)
    between = int(n_seeds * (by_seed**2).sum() - by_seed.sum() ** 2)
    within = int((by_row * (n_seeds - by_row)).sum())  # each row over the seeds
    scale = n_rows * (n_rows - 1) * n_seeds * (n_seeds - 1)
    return between / scale, within / scale


def _seed_variance(answers: Answers, usual: Spread | None) -> tuple[float, float]:
    """Variance of the mean accuracy that comes from the choice of seeds, beyond that of single rows, and how
    many degrees of freedom it has."""
    n_seeds, n_rows = answers.shape
    if n_seeds == 1 or n_rows == 1:
        return 0.0, 0.0
    (between, within), degrees = _between_seeds(answers), float(n_seeds - 1)
    if usual is not None and between <= usual.variance * stats.f.ppf(_USUAL, degrees, usual.degrees):
        between = (usual.degrees * usual.variance + degrees * between) / (usual.degrees + degrees)
        degrees += usual.degrees
    return max(0.0, between - within) / n_seeds, degrees


def _seed_noise(
    methods: Sequence[Answers], n_resamples: int, rng: np.random.Generator, usual: Spread | None = None
) -> Floats:
    """What other seeds would have changed in the methods' mean accuracies, drawn ``n_resamples`` times."""
    parts = [_seed_variance(answers, usual) for answers in methods]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return np.zeros(n_resamples)
    degrees = variance**2 / sum(part**2 / n for part, n in parts if part)
    noise: Floats = rng.standard_t(degrees, n_resamples) * np.sqrt(variance)
    return noise


def _two_sided(chance: Floats, difference: float) -> float:
    """How often ``chance`` is as far from nought as ``difference``; equals count half (mid-p)."""
    if difference == 0:
        return 1.0
    near = np.isclose(np.abs(chance), difference, rtol=0, atol=1e-12)
    above = np.abs(chance) > difference
    return float((np.count_nonzero(above & ~near) + near.sum() / 2 + 1) / (len(chance) + 1))
