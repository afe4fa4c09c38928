"""The result of a comparison in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.core.formatting import format_duration, join_names, plural
from elmokit.tasks.task import format_score_name

if TYPE_CHECKING:
    from elmokit.comparison.ranking import Pair
    from elmokit.comparison.result import Comparison, MethodResult

_MUCH_FASTER = 5.0  # times, for a method to be named as the fast alternative


def answer(comparison: Comparison) -> list[str]:
    """Sentences for whoever reads nothing else; the first names the recommended method."""
    sentences = ["No method finished, so there is nothing to rank."]
    if comparison.recommended is not None:
        result = comparison.method(comparison.recommended)
        sentences = [*_recommend(comparison, result), _describe_cost(comparison, result)]
    for status in ("failed", "skipped"):
        names = [result.method.name for result in comparison.methods if result.status == status]
        if names:
            sentences.append(f"{status.capitalize()}: {join_names(names)}; the ranking gives the reason.")
    return sentences


def _recommend(comparison: Comparison, result: MethodResult) -> list[str]:
    best, *others = comparison.ranked
    score = f"{format_score_name(comparison.metric)} {result.main.mean:.1%}"
    sentences = [f"Recommended: {result.method.name} ({score} on {plural(result.main.n, 'test row')})."]
    if result is not best:
        sentences[0] += (
            f" It is not significantly different from the best, {best.method.name} "
            f"({best.main.mean:.1%}), and takes far less time."
        )
    tied = set(comparison.ranking.tied_with_best) - {best.method.id, result.method.id}
    if tied:
        names = join_names((other.method.name for other in others if other.method.id in tied), at_most=3)
        sentences.append(f"Also not significantly different from the best: {names}.")
    elif result is best and others:
        pair = comparison.ranking.pairs[0]
        lead = f"{format_points(pair.difference)} points (95% interval {format_interval(pair)})"
        sentences.append(f"Its lead over {others[0].method.name} is significant: {lead}.")
    return sentences


def _describe_cost(comparison: Comparison, result: MethodResult) -> str:
    """How long it takes, and which method is best among those that are much faster."""
    cost = result.cost
    sentence = f"Fitting takes {format_duration(cost.fit_seconds)}"
    if cost.pretrain_seconds:
        sentence += f", after {format_duration(cost.pretrain_seconds)} of pretraining"
    for other in comparison.ranked:
        if other.cost.seconds * _MUCH_FASTER <= cost.seconds and other is not result:
            score = f"{other.main.mean:.1%} in {format_duration(other.cost.seconds)}"
            return f"{sentence}. The best method that is much faster is {other.method.name}: {score}."
    return f"{sentence}."


# -- significant differences ----------------------------------------------------------------------


def summarize_ranking(comparison: Comparison) -> list[str]:
    """Which differences between neighbors are significant, and what the tests can and cannot show."""
    ranking, methods = comparison.ranking, comparison.ranked
    if ranking.detectable is None:
        return ["Only one method finished, so there is nothing to compare it with."] if methods else []
    sentences = [describe_pair(comparison, pair) for pair in ranking.pairs[: len(methods) - 1]]
    n_rows, least = plural(methods[0].main.n, "test row"), f"{ranking.detectable * 100:.1f}"
    sentences.append(f"With {n_rows}, differences below about {least} points are rarely significant.")
    if all(len(result.fits) == 1 for result in methods):
        sentences.append("Every method was trained with one seed; variation between seeds is not included.")
    n_tests = plural(len(ranking.pairs), "test")
    return [*sentences, f"p-values are corrected for {n_tests} (Holm); intervals are not corrected."]


def describe_pair(comparison: Comparison, pair: Pair) -> str:
    """The tested difference between two methods."""
    better, worse = comparison.method(pair.better), comparison.method(pair.worse)
    figures = (
        f"{better.main.mean:.2%} vs. {worse.main.mean:.2%}, {format_points(pair.difference)} points, "
        f"95% interval {format_interval(pair)}, p {format_p(pair.p_adjusted)}"
    )
    if pair.significant:
        return f"{better.method.name} is significantly better than {worse.method.name} ({figures})."
    names = join_names([better.method.name, worse.method.name])
    return f"{names} are not significantly different ({figures})."


def format_p(p: float, equals: str = "= ") -> str:
    """A p-value after its sign, as in "= 0.012"."""
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"


def format_interval(pair: Pair) -> str:
    """The interval of a difference in percentage points."""
    return f"{format_points(pair.low)} to {format_points(pair.high)}"


def format_points(difference: float) -> str:
    """A difference in percentage points with its sign; zero has none.

    >>> format_points(0.0071), format_points(-0.0123), format_points(-0.00001)
    ('+0.71', '−1.23', '0.00')
    """
    size = f"{abs(difference) * 100:.2f}"
    sign = "" if float(size) == 0 else "+" if difference > 0 else "−"
    return sign + size
