"""The result of a comparison in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elmokit.core.formatting import format_duration, join_names, plural
from elmokit.tasks.task import format_score_name

if TYPE_CHECKING:
    from elmokit.comparison.ranking import Pair
    from elmokit.comparison.result import Comparison, MethodResult

_MUCH_FASTER = 5.0  # times, for a method to be named as the fast alternative
_MANY_ROWS = 2000  # enough for a second decimal to mean something
_MANY_SEEDS = 5
_LARGE = 0.05  # a difference that readers will not believe to be chance
_RELATIONS = (("better than", "every"), ("not significantly different from", "any"), ("worse than", "every"))


def answer(comparison: Comparison) -> list[str]:
    """Sentences for whoever reads nothing else; the first names the recommended method."""
    sentences = ["No method finished, so there is nothing to rank."]
    if comparison.recommended is not None:
        result = comparison.method(comparison.recommended)
        sentences = [
            _recommendation(comparison, result),
            _lead(comparison, result),
            _cost(comparison, result),
            _few_labels(comparison),
        ]
    for status in ("failed", "skipped"):
        names = [result.method.name for result in comparison.methods if result.status == status]
        if names:
            sentences.append(f"{status.capitalize()}: {join_names(names)}; the ranking gives the reason.")
    return [sentence for sentence in sentences if sentence]


def _recommendation(comparison: Comparison, result: MethodResult) -> str:
    best = comparison.ranked[0]
    score = f"{format_score_name(comparison.metric)} {result.main.mean:.1%}"
    sentence = f"Recommended: {result.method.name} ({score} on {plural(result.main.n, 'test row')})."
    if result is best:
        return sentence
    return (
        f"{sentence} It is not significantly different from the best, {best.method.name} "
        f"({best.main.mean:.1%}), and takes far less time."
    )


def _lead(comparison: Comparison, result: MethodResult) -> str:
    ranking, names = comparison.ranking, comparison.names
    if len(ranking.order) == 1:
        return "No other method finished, so there is nothing to compare it with."
    best, second = ranking.order[:2]
    others = [names[id] for id in ranking.tied_with_best if id not in (best, result.method.id)]
    if others:
        also = "" if result.method.id == best else " either"
        return (
            f"{join_names(others, at_most=3)} {_be(others)} not significantly different from the best{also}."
        )
    if result.method.id != best:
        return ""
    pair = ranking.pair(best, second)
    interval = f"95% interval {pair.low * 100:.1f} to {pair.high * 100:.1f}"
    return f"Its lead of {pair.difference * 100:.1f} points over {names[second]} is significant ({interval})."


def _cost(comparison: Comparison, result: MethodResult) -> str:
    """How long it takes, and which method is best among those that are much faster."""
    cost = result.cost
    sentence = f"Fitting takes {format_duration(cost.fit_seconds, rough=True)}"
    if cost.pretrain_seconds:
        sentence += f", after {format_duration(cost.pretrain_seconds, rough=True)} of pretraining"
    others = [other for other in comparison.ranked if other is not result]
    if others and all(cost.seconds <= other.cost.seconds for other in others):
        return f"{sentence}; no method is faster."
    fast = [other for other in others if other.cost.seconds * _MUCH_FASTER <= cost.seconds]
    if not fast:
        return f"{sentence}."
    score = f"{fast[0].main.mean:.1%} in {format_duration(fast[0].cost.seconds, rough=True)}"
    return f"{sentence}. The best method that is much faster is {fast[0].method.name}: {score}."


def _few_labels(comparison: Comparison) -> str:
    """Which method is best when labels are few, and how the others do."""
    if not comparison.curve:
        return ""
    fewest = min(n for scores in comparison.curve.values() for n in scores)
    means = [(scores[fewest].mean, id) for id, scores in comparison.curve.items() if fewest in scores]
    ranked = [f"{comparison.names[id]} ({mean:.1%})" for mean, id in sorted(means, reverse=True)]
    rest = f", ahead of {join_names(ranked[1:], at_most=3)}" if len(ranked) > 1 else ""
    return f"With only {fewest:,} labels, the best is {ranked[0]}{rest}."


# -- significant differences ----------------------------------------------------------------------


def summarize_ranking(comparison: Comparison) -> list[str]:
    """Which differences are significant, and what the tests can and cannot show."""
    ranking, methods = comparison.ranking, comparison.ranked
    if ranking.detectable is None:
        return ["Only one method finished, so there is nothing to compare it with."] if methods else []
    elmo, static = (
        [result.method.id for result in methods if result.method.family == family]
        for family in ("elmo", "static")
    )
    sentences = compare_families(comparison, elmo, static)
    neighbors, others = ranking.pairs[: len(methods) - 1], ranking.pairs[len(methods) - 1 :]
    sentences += [describe_pair(comparison, pair) for pair in neighbors]
    if others:
        n_significant = sum(pair.significant for pair in others)
        sentences.append(f"Significant differences between other pairs: {n_significant} of {len(others)}.")
    n_rows = plural(methods[0].main.n, "test row")
    if ranking.detectable >= 1:
        sentences.append(f"With {n_rows}, no difference can be significant.")
    else:
        least = f"{ranking.detectable * 100:.{_n_decimals(methods[0])}f}"
        sentences.append(f"With {n_rows}, differences below about {least} points are rarely significant.")
    if all(len(result.seeds) == 1 for result in methods):
        sentences.append("Every method was trained with one seed; variation between seeds is not included.")
    if others:
        n_tests = len(ranking.pairs)
        sentences.append(
            f"p-values are corrected for {n_tests} tests (Holm); the intervals are for each pair alone."
        )
    return sentences


def describe_pair(comparison: Comparison, pair: Pair) -> str:
    """The tested difference between two methods."""
    better, worse = comparison.method(pair.better), comparison.method(pair.worse)
    n = _n_decimals(better)
    figures = (
        f"{better.main.mean:.{n}%} vs. {worse.main.mean:.{n}%}, {format_points(pair.difference, n)} points, "
        f"95% interval {format_points(pair.low, n)} to {format_points(pair.high, n)}, "
        + ("p < 0.001" if pair.p_adjusted < 0.001 else f"p = {pair.p_adjusted:.3f}")
    )
    if pair.significant:
        return f"{better.method.name} is significantly better than {worse.method.name} ({figures})."
    after = " after correction for several tests" if pair.low > 0 else ""
    few_seeds = any(1 < len(result.seeds) < _MANY_SEEDS for result in (better, worse))
    more = "; more seeds may show one" if few_seeds and pair.difference >= _LARGE else ""
    names = join_names([better.method.name, worse.method.name])
    return f"{names} are not significantly different{after} ({figures}{more})."


def compare_families(comparison: Comparison, ours: Sequence[str], static: Sequence[str]) -> list[str]:
    """How methods, best first, compare with static methods; those with equal results share a sentence."""
    groups = defaultdict(list)
    for one in ours if static else ():
        sides: tuple[list[str], ...] = ([], [], [])  # whom it beats, equals, loses to
        for other in static:
            pair = comparison.ranking.pair(one, other)
            side = 1 if not pair.significant else 0 if pair.better == one else 2
            sides[side].append(comparison.names[other])
        parts = [
            f"{relation} {f'{which} static method' if len(others) == len(static) > 1 else join_names(others)}"
            for (relation, which), others in zip(_RELATIONS, sides, strict=True)
            if others
        ]
        groups[tuple(parts)].append(comparison.names[one])
    sentences = []
    for relations, names in groups.items():
        first, *more = (f"{_be(names)} {relation}" for relation in relations)
        last = f", and {more[-1]}" if more else ""
        sentences.append(f"{join_names(names)} {', '.join([first, *more[:-1]])}{last}.")
    return sentences


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _n_decimals(result: MethodResult) -> int:
    return 2 if result.main.n >= _MANY_ROWS else 1


def format_points(difference: float, places: int) -> str:
    """A difference in percentage points with its sign; zero has none.

    >>> format_points(0.0071, 1), format_points(-0.0123, 2), format_points(-0.00001, 1)
    ('+0.7', '−1.23', '0.0')
    """
    size = f"{abs(difference) * 100:.{places}f}"
    sign = "" if float(size) == 0 else "+" if difference > 0 else "−"
    return sign + size
