"""The result of a comparison in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elmokit.core.formatting import format_duration, join_names, plural
from elmokit.tasks.task import format_score_name

if TYPE_CHECKING:
    from elmokit.comparison.ranking import Pair, Ranking
    from elmokit.comparison.result import Comparison, MethodResult

_MUCH_FASTER = 5.0  # times, for a method to be named as the fast alternative
_MANY_ROWS = 2000  # enough for a second decimal to mean something
_MANY_SEEDS = 5
_LARGE = 0.05  # a difference that readers will not believe to be chance


def answer(comparison: Comparison) -> list[str]:
    """Sentences for whoever reads nothing else; the first names the recommended method."""
    ranking, recommended = comparison.ranking, comparison.recommended
    if ranking is None or recommended is None:
        return ["No method finished, so there is nothing to rank.", *_missing(comparison)]
    best, result = comparison.method(ranking.order[0]), comparison.method(recommended)
    score = f"{format_score_name(comparison.metric)} {result.main.mean:.1%}"
    sentence = f"Recommended: {result.method.name} ({score} on {plural(result.main.n, 'test row')})."
    if result is not best:
        sentence += (
            f" It is not significantly different from the best, {best.method.name} ({best.main.mean:.1%}), "
            "and takes far less time."
        )
    sentences = [sentence, _lead(comparison, ranking, result), _cost(comparison, result)]
    sentences += [_fast_alternative(comparison, result), _few_labels(comparison), *_missing(comparison)]
    return [sentence for sentence in sentences if sentence]


def _lead(comparison: Comparison, ranking: Ranking, result: MethodResult) -> str:
    if len(ranking.order) == 1:
        return "No other method finished, so there is nothing to compare it with."
    best, second = ranking.order[:2]
    others = [id for id in ranking.tied_with_best if id not in (best, result.method.id)]
    names = join_names((comparison.method(id).method.name for id in others), at_most=3)
    if others:
        verb = "is" if len(others) == 1 else "are"
        also = "" if result.method.id == best else " either"
        return f"{names} {verb} not significantly different from the best{also}."
    if result.method.id != best:
        return ""
    pair, name = ranking.pair(best, second), comparison.method(second).method.name
    interval = f"95% interval {pair.low * 100:.1f} to {pair.high * 100:.1f}"
    return f"Its lead of {pair.difference * 100:.1f} points over {name} is significant ({interval})."


def _cost(comparison: Comparison, result: MethodResult) -> str:
    cost = result.cost
    sentence = f"Fitting takes {format_duration(cost.fit_seconds, rough=True)}"
    if cost.pretrain_seconds:
        sentence += f", after {format_duration(cost.pretrain_seconds, rough=True)} of pretraining"
    others = [other.cost.seconds for other in comparison.ranked if other is not result]
    return sentence + ("; no method is faster." if others and cost.seconds <= min(others) else ".")


def _fast_alternative(comparison: Comparison, result: MethodResult) -> str:
    fast = [other for other in comparison.ranked if other.cost.seconds * _MUCH_FASTER <= result.cost.seconds]
    if not fast:
        return ""
    time = format_duration(fast[0].cost.seconds, rough=True)
    return f"The best method that is much faster is {fast[0].method.name}: {fast[0].main.mean:.1%} in {time}."


def _few_labels(comparison: Comparison) -> str:
    """Which method is best when labels are few, and how the others do."""
    curve = comparison.curve
    if curve is None or not any(curve.scores.values()):
        return ""
    fewest = min(n for scores in curve.scores.values() for n in scores)
    means = [
        (scores[fewest].mean, comparison.method(id).method.name)
        for id, scores in curve.scores.items()
        if fewest in scores
    ]
    (first, leader), *others = sorted(means, reverse=True)
    rest = join_names((f"{name} ({mean:.1%})" for mean, name in others), at_most=3)
    sentence = f"With only {fewest:,} labels, {leader} {'leads with' if rest else 'reaches'} {first:.1%}"
    return sentence + (f", ahead of {rest}." if rest else ".")


def _missing(comparison: Comparison) -> list[str]:
    sentences = []
    for status, verbs in (("failed", ("failed", "failed")), ("skipped", ("was skipped", "were skipped"))):
        names = [result.method.name for result in comparison.methods if result.status == status]
        if names:
            sentences.append(f"{join_names(names)} {verbs[len(names) > 1]}; the ranking gives the reason.")
    return sentences


# -- significant differences ----------------------------------------------------------------------


def summarize_ranking(comparison: Comparison) -> list[str]:
    """Which differences are significant, and what the tests can and cannot show."""
    ranking, methods = comparison.ranking, comparison.ranked
    if ranking is None or ranking.detectable is None:
        return ["Only one method finished, so there is nothing to compare it with."] if methods else []
    ids = {
        family: [result.method.id for result in methods if result.method.family == family]
        for family in ("elmo", "static")
    }
    sentences = compare_families(comparison, ranking, ids["elmo"], ids["static"], "static method")
    neighbors, others = ranking.pairs[: len(methods) - 1], ranking.pairs[len(methods) - 1 :]
    sentences += [describe_pair(comparison, pair) for pair in neighbors]
    if others:
        n_significant = sum(pair.significant for pair in others)
        verb = "differs" if n_significant == 1 else "differ"
        sentences.append(
            f"Of {plural(len(others), 'other pair')}, {n_significant or 'none'} {verb} significantly."
        )
    n_rows = plural(methods[0].main.n, "test row")
    if ranking.detectable >= 1:
        sentences.append(f"With {n_rows}, no difference can be significant.")
    else:
        least = f"{ranking.detectable * 100:.{_n_decimals(methods[0])}f}"
        sentences.append(f"With {n_rows}, differences below about {least} points are rarely significant.")
    if all(len(result.seeds) == 1 for result in methods):
        sentences.append("Every method was trained with one seed; variation between seeds is not included.")
    if len(ranking.pairs) > 1:
        n_tests = len(ranking.pairs)
        sentences.append(
            f"p-values are corrected for {n_tests} tests (Holm); the intervals are for each pair alone."
        )
    return sentences


def describe_pair(comparison: Comparison, pair: Pair) -> str:
    """The tested difference between two methods."""
    better, worse = comparison.method(pair.better), comparison.method(pair.worse)
    n, p = _n_decimals(better), pair.p_adjusted
    figures = (
        f"{better.main.mean:.{n}%} vs. {worse.main.mean:.{n}%}, {format_points(pair.difference, n)} points, "
        f"95% interval {format_points(pair.low, n)} to {format_points(pair.high, n)}, "
        + ("p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.0995 else f"p = {p:.3f}")
    )
    if pair.significant:
        return f"{better.method.name} is significantly better than {worse.method.name} ({figures})."
    after = " after correction for several tests" if pair.low > 0 else ""
    few_seeds = any(1 < len(result.seeds) < _MANY_SEEDS for result in (better, worse))
    more = "; more seeds may show one" if few_seeds and pair.difference >= _LARGE else ""
    names = join_names([better.method.name, worse.method.name])
    return f"{names} are not significantly different{after} ({figures}{more})."


def compare_families(
    comparison: Comparison, ranking: Ranking, ours: Sequence[str], theirs: Sequence[str], kind: str
) -> list[str]:
    """How the methods of one family compare with those of another.

    Args:
        ours: Ids of the one family, best first.
        theirs: Ids of the other family, best first.
        kind: What a method of the other family is called.
    """
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}  # ours by whom they beat, equal, lose to
    for one in ours if theirs else ():
        pairs = {other: ranking.pair(one, other) for other in theirs}
        sides = (
            tuple(other for other, pair in pairs.items() if pair.significant and pair.better == one),
            tuple(other for other, pair in pairs.items() if not pair.significant),
            tuple(other for other, pair in pairs.items() if pair.significant and pair.worse == one),
        )
        groups.setdefault(sides, []).append(one)
    sentences = []
    for others_by_side, group in groups.items():
        be = "is" if len(group) == 1 else "are"
        parts = []
        for relation, which, others in zip(
            ("better than", "not significantly different from", "worse than"),
            ("every", "any", "every"),
            others_by_side,
            strict=True,
        ):
            names = join_names(comparison.method(id).method.name for id in others)
            if others:
                whole = len(others) == len(theirs) > 1
                parts.append(f"{be} {relation} {f'{which} {kind}' if whole else names}")
        who = join_names(comparison.method(id).method.name for id in group)
        sentences.append(f"{who} {', and '.join(filter(None, [', '.join(parts[:-1]), parts[-1]]))}.")
    return sentences


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
