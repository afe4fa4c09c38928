"""A comparison's answer in plain words: which method to take, whether its lead is real, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.comparison.ranking import Ranking
from elmokit.comparison.standing import (
    accuracy_of,
    at,
    figure,
    main_split,
    name_of,
    ranked,
    seconds_of,
    spread_of,
    tied,
    unranked,
)
from elmokit.core.formatting import format_size
from elmokit.tasks.report_words import percent, rough_time

__all__ = ["answer", "chosen", "headline_figures", "listed", "points", "seeds_text", "side_by_side"]

_MUCH_CHEAPER = 2.0  # a method as good as the best is taken instead if it costs so many times less,
_WORTH_SAVING = 60.0  # and at least so many seconds less
_QUICK = 5.0  # what is offered to those in a hurry costs so many times less


def chosen(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The method to take: the best, or the best of its equals that saves a person's time."""
    methods = ranked(facts)
    if not methods:
        return None
    take, same = methods[0], tied(facts) or []
    for method in methods[1:]:
        cost, other = seconds_of(take), seconds_of(method)
        if method.get("id") not in same or cost is None or other is None:
            continue
        if other * _MUCH_CHEAPER <= cost and cost - other >= _WORTH_SAVING:
            take = method
    return take


def answer(facts: Mapping[str, Any]) -> list[str]:
    """Sentences for whoever reads nothing else; the first says what to take."""
    methods, take = ranked(facts), chosen(facts)
    if take is None:
        said = ["No method finished, so there is nothing to rank."]
        return [*said, *_missing(facts)]
    split = main_split(methods)
    best, share = methods[0], accuracy_of(take, split) or 0.0
    n = figure(take, "splits", split, "n")
    texts = f"{n:,.0f} {split} texts" if n else f"{split} texts"
    if take is best:
        said = [f"Take {name_of(take)}: it gets {share:.1%} of the {texts} right."]
    else:
        said = [
            f"Take {name_of(take)}: it gets {share:.1%} of the {texts} right, which cannot be told from "
            f"the best, {name_of(best)} with {accuracy_of(best, split) or 0.0:.1%}."
        ]
    said += [_lead(facts, take), _cost(methods, take), _hurry(methods, take, split), _few_labels(facts)]
    return [sentence for sentence in [*said, *_missing(facts)] if sentence]


def _lead(facts: Mapping[str, Any], take: Mapping[str, Any]) -> str:
    methods = ranked(facts)
    if len(methods) == 1:
        return "No other method has figures, so there is nothing to set beside it."
    best, second = methods[0], methods[1]
    split, same = main_split(methods), tied(facts)
    pair = pair_of(facts, best, second)
    ahead = figure(pair, "difference")
    if ahead is None:
        ahead = (accuracy_of(best, split) or 0.0) - (accuracy_of(second, split) or 0.0)
    if same is None:
        return f"It is {points(ahead)} ahead of {name_of(second)}; whether that is chance was not tested."
    if len(same) == 1:
        low, high = figure(pair, "low"), figure(pair, "high")
        known = low is not None and high is not None
        interval = f" (95% interval {(low or 0) * 100:.1f} to {(high or 0) * 100:.1f})" if known else ""
        return f"Its lead of {points(ahead)} over {name_of(second)} is real{interval}."
    names = {method.get("id"): name_of(method) for method in methods}
    others = [names[name] for name in same if name != take.get("id")]
    if take is not best:
        others = [name for name in others if name != name_of(best)]
        return f"The same holds for {listed(others)}." if others else ""
    return f"Its lead may be chance: {listed(others)} may be as good."


def _cost(methods: Sequence[Mapping[str, Any]], take: Mapping[str, Any]) -> str:
    fit, pretrain = figure(take, "seconds", "fit"), figure(take, "seconds", "pretrain")
    if fit is None:
        return ""
    said = f"Fitting it takes {rough_time(fit)}" + (
        f", after {rough_time(pretrain)} of pretraining" if pretrain else ""
    )
    costs = [cost for method in methods if (cost := seconds_of(method)) is not None]
    if len(costs) > 1 and (seconds_of(take) or 0.0) <= min(costs):
        said += "; none is quicker"
    return said + "."


def _hurry(methods: Sequence[Mapping[str, Any]], take: Mapping[str, Any], split: str) -> str:
    cost = seconds_of(take)
    quick = [
        method
        for method in methods
        if method is not take and cost and (seconds_of(method) or cost) * _QUICK <= cost
    ]
    if not quick:
        return ""
    other = max(quick, key=lambda method: accuracy_of(method, split) or 0.0)
    seconds = seconds_of(other) or 0.0
    opening = "If seconds matter" if seconds < 60 else "If time matters"
    share = accuracy_of(other, split) or 0.0
    return f"{opening}, {name_of(other)} gives {share:.1%} in {rough_time(seconds)}."


def _few_labels(facts: Mapping[str, Any]) -> str:
    """Who leads where labels are few, and what the others make of them."""
    lines = at(facts, "curve", "methods") or {}
    found = []
    for key, line in lines.items():
        known = [
            (point["n"], figure(point, "mean"))
            for point in at(line, "points") or []
            if figure(point, "n") is not None
        ]
        found += [(n, mean, str(at(line, "name") or key)) for n, mean in known if mean is not None]
    if not found:
        return ""
    fewest = min(n for n, _, _ in found)
    (first, leader), *others = sorted(((mean, name) for n, mean, name in found if n == fewest), reverse=True)
    said = f"With only {fewest:,} labels {leader} {'leads with' if others else 'gives'} {first:.1%}"
    if not others:
        return said + "."
    if len(others) > 3:
        (second, next_name), (least, last_name) = others[0], others[-1]
        return f"{said}; next is {next_name} with {second:.1%}, last {last_name} with {least:.1%}."
    return f"{said}, before {listed([f'{name} ({mean:.1%})' for mean, name in others])}."


def _missing(facts: Mapping[str, Any]) -> list[str]:
    failed = [method for method, _ in unranked(facts) if method.get("status") == "failed"]
    left = [method for method, _ in unranked(facts) if method.get("status") == "left out"]
    said = []
    if failed:
        said.append(f"{listed([name_of(method) for method in failed])} failed; the table says why.")
    if left and not facts.get("left_out"):  # the notes say it already
        said.append(
            f"{listed([name_of(method) for method in left])} {'was' if len(left) == 1 else 'were'} left out."
        )
    return said


def headline_figures(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """The few figures of the method to take, for the top of the page."""
    methods, take = ranked(facts), chosen(facts)
    if take is None:
        return []
    split = main_split(methods)
    accuracy = at(take, "splits", split, "accuracy")
    low, high = figure(accuracy, "low"), figure(accuracy, "high")
    under = [seeds_text(accuracy)] if spread_of(accuracy) is not None else []
    if low is not None and high is not None:
        under.append(f"95% interval {low * 100:.1f} to {high * 100:.1f}")
    found = [(f"Accuracy on {split}", percent(accuracy_of(take, split)) + "%", ", ".join(under))]
    f1 = figure(take, "splits", split, "macro", "f1")
    if f1 is not None:
        found.append(("Macro F1", percent(f1) + "%", "all classes alike"))
    if (cost := seconds_of(take)) is not None:
        pretrain = figure(take, "seconds", "pretrain")
        parts = f"of it {rough_time(pretrain)} pretraining" if pretrain else "to fit"
        found.append(("Time", rough_time(cost), parts))
    if speed := figure(take, "documents_per_second"):
        found.append(("Speed", f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}", "texts a second"))
    if size := figure(take, "bytes"):
        found.append(("Size", format_size(size), "on disk"))
    return [dict(zip(("name", "value", "under"), entry, strict=True)) for entry in found]


def pair_of(facts: Mapping[str, Any], better: Mapping[str, Any], worse: Mapping[str, Any]) -> Any:
    """What was found of the difference between two methods."""
    for pair in at(facts, "ranking", "pairs") or []:
        if (pair.get("better"), pair.get("worse")) == (better.get("id"), worse.get("id")):
            return pair
    return None


def points(difference: float) -> str:
    """A difference of accuracies, in percentage points."""
    size = f"{difference * 100:.1f}"
    return f"{size} {'point' if size == '1.0' else 'points'}"


def seeds_text(accuracy: Any) -> str:
    """As in ± 0.21 over 3 seeds."""
    n, sd = len(at(accuracy, "values") or []), spread_of(accuracy)
    if sd is None:
        return ""
    return f"± {percent(sd)}" + (f" over {n} seeds" if n else "")


def side_by_side(
    ranking: Ranking, ours: Sequence[str], theirs: Sequence[str], names: Mapping[str, str], kind: str
) -> list[str]:
    """How the methods of one family stand against those of another, in sentences; all pairs were tested.

    Args:
        ranking: what ``rank`` found.
        ours: ids of the one family.
        theirs: ids of the other.
        names: what the methods are called, by id.
        kind: what a method of the other family is called.
    """
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}  # by whom they beat, equal, and are beaten by
    for one in sorted(ours, key=ranking.order.index) if theirs else ():
        sides: dict[str, list[str]] = {"before": [], "beside": [], "behind": []}
        for other in sorted(theirs, key=ranking.order.index):
            pair = ranking.pair(one, other)
            sides["beside" if not pair.significant else "before" if pair.better == one else "behind"].append(
                other
            )
        alike.setdefault(tuple(map(tuple, sides.values())), []).append(one)
    said = []
    for outcome, group in alike.items():
        parts = []
        verbs = ("is better than", "is not significantly different from", "is worse than")
        if len(group) > 1:
            verbs = ("are better than", "are not significantly different from", "are worse than")
        for verb, which, others in zip(verbs, ("every", "any", "every"), outcome, strict=True):
            whole = len(others) == len(theirs) > 1
            called = f"{which} {kind}" if whole else listed([names[id] for id in others], most=len(others))
            parts += [f"{verb} {called}"] if others else []
        who = listed([names[id] for id in group], most=len(group))
        said.append(f"{who} {', and '.join(filter(None, [', '.join(parts[:-1]), parts[-1]]))}.")
    return said


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence; of very many, the first few."""
    if len(names) > most:
        names = [*names[:3], f"{len(names) - 3} more"]
    mark = "; " if any("," in name for name in names) else ", "
    return " and ".join(filter(None, [mark.join(names[:-1]), *names[-1:]]))
