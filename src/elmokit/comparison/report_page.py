"""What a comparison's report says: its answer, tables, pictures and words, ready to be set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.comparison import pictures
from elmokit.comparison.ranking_rows import ranking_columns, ranking_rows
from elmokit.comparison.report_tables import (
    classes_part,
    confusions_part,
    data_part,
    examples_part,
    intrinsic_part,
)
from elmokit.comparison.standing import (
    accuracy_of,
    at,
    figure,
    figures_in,
    main_split,
    name_of,
    ranked,
    seconds_of,
)
from elmokit.comparison.verdict import answer, headline_figures
from elmokit.core.formatting import format_size
from elmokit.tasks.drawing import one_line
from elmokit.tasks.pictures import curves
from elmokit.tasks.report_markdown import Table
from elmokit.tasks.report_page import curve_pictures, mix_part, picture
from elmokit.tasks.report_words import flat, four_places, is_number, percent, rough_time, said, shown

__all__ = ["comparison_page"]

_PUBLISHED = (
    "Published: what the write-ups of these methods report on the same test set, after training on the full "
    "120,000 train rows. Ours may have fewer."
)


_CONTENTS = {
    "ranking": "Ranking",
    "accuracies": "Accuracy",
    "differences": "Real differences",
    "cost": "Cost",
    "curve": "Few labels",
    "classes": "Classes",
    "confusions": "Confusions",
    "examples": "Examples",
    "training": "Training",
    "mix": "Layers",
    "pretraining": "Pretraining",
    "intrinsic": "Vectors",
    "data": "Data",
    "details": "How it was made",
}


def comparison_page(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything on the page, as text, tables and pictures."""
    methods = ranked(facts)
    answered = [one_line(sentence) for sentence in answer(facts)]
    page: dict[str, Any] = {
        "title": one_line(str(facts.get("title") or "Comparison")),
        "lead": _lead(facts),
        "headline": answered[0],
        "sentences": answered[1:],
        "figures": headline_figures(facts),
        "notes": [one_line(str(note)) for key in ("notes", "left_out") for note in facts.get(key) or []],
        "legend": _legend(facts),
        "ranking": _ranking(facts),
        "accuracies": _accuracies(methods) if len(methods) > 1 else None,
        "differences": _differences(facts),
        "cost": _cost(methods),
        "curve": _curve(facts),
        "classes": classes_part(methods),
        "confusions": confusions_part(methods),
        "examples": examples_part(facts),
        "training": _training(methods),
        "mix": _mix(methods),
        "pretraining": _pretraining(facts.get("pretraining") or {}),
        "intrinsic": intrinsic_part(facts.get("intrinsic") or []),
        "data": data_part(facts),
        "commands": [str(command) for command in facts.get("commands") or []],
        "details": _details(facts),
        "settings": [
            (name_of(method), rows)
            for method in facts.get("methods") or []
            if (rows := list(flat(method.get("settings") or {})))
        ],
    }
    page["contents"] = [
        (part, words)
        for part, words in _CONTENTS.items()
        if page[part] or (part == "details" and (page["commands"] or page["settings"]))
    ]
    return page


def _lead(facts: Mapping[str, Any]) -> str:
    methods = facts.get("methods") or []
    split = main_split(ranked(facts))
    parts = [f"{len(methods)} {'method' if len(methods) == 1 else 'methods'}"]
    seeds = {len(method.get("seeds") or []) for method in ranked(facts)} - {0}
    if len(seeds) == 1 and max(seeds) > 1:
        parts[0] += f", {max(seeds)} seeds each,"
    if n := figure(facts, "data", "rows", split):
        parts.append(f"on the same {n:,.0f} {split} texts")
    if classes := at(facts, "data", "classes"):
        parts.append(f"in {len(classes):,} {'class' if len(classes) == 1 else 'classes'}")
    return " ".join(parts).rstrip(",") + "."


def _legend(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = {str(method.get("family")) for method in facts.get("methods") or []}
    return [(family, words) for family, words in pictures.FAMILIES.items() if family in known]


def _ranking(facts: Mapping[str, Any]) -> dict[str, Any]:
    columns, rows = ranking_columns(facts), ranking_rows(facts)
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    starts = {sum(span for _, span in groups[:place]) for place in range(1, len(groups))}
    cells = [
        [
            row.name,
            row.rank,
            *(
                [" ".join(filter(None, (value, under and f"({under})"))) for value, under in row.values]
                if row.values
                else [row.remark, *["–"] * (len(columns) - 1)]
            ),
        ]
        for row in rows
    ]
    return {
        "columns": columns,
        "groups": groups,
        "starts": starts,
        "rows": rows,
        "spread": any("±" in value for row in rows for value, _ in row.values),
        "interval": any(under for row in rows for _, under in row.values),
        "shared": any("–" in row.rank for row in rows if row.values),
        "chosen": any(row.chosen for row in rows),
        "published": _PUBLISHED if any(column.name == "Published" for column in columns) else "",
        "table": Table(["Method", "Rank", *(column.label or column.name for column in columns)], cells),
    }


def _marks(methods: Sequence[Mapping[str, Any]]) -> list[pictures.Mark]:
    split = main_split(methods)
    return [
        pictures.Mark(
            name=name_of(method),
            family=str(method.get("family")),
            accuracy=accuracy_of(method, split) or 0.0,
            low=figure(method, "splits", split, "accuracy", "low"),
            high=figure(method, "splits", split, "accuracy", "high"),
            values=figures_in(at(method, "splits", split, "accuracy", "values")),
            seconds=seconds_of(method),
            fit=figure(method, "seconds", "fit"),
        )
        for method in methods
    ]


def _accuracies(methods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    marks, split = _marks(methods), main_split(methods)
    spoken = [f"Accuracy on {split}, the best first."]
    for mark in marks:
        known = mark.low is not None and mark.high is not None
        interval = f", interval {mark.low:.1%} to {mark.high:.1%}" if known else ""
        spoken.append(f"{mark.name}: {mark.accuracy:.1%}{interval}.")
    words = f"The dot is the mean accuracy on {split}"
    if any(mark.low is not None for mark in marks):
        words += ", the line its 95% interval; the shaded strip is the interval of the first"
    if any(len(mark.values) > 1 for mark in marks):
        words += ". Small strokes are single seeds"
    return _both("accuracies", pictures.accuracies, marks, " ".join(spoken)) | {"words": words + "."}


def _both(name: str, draw: Any, drawn: Any, words: str) -> dict[str, Any]:
    """The same picture for a screen and for a phone; a page shows one of them."""
    return {
        size: picture(name, draw(drawn, name=f"{name}-{size}", words=words, wide=size == "wide"), kind=size)
        for size in ("wide", "narrow")
    }


def _differences(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    names = {method.get("id"): name_of(method) for method in facts.get("methods") or []}
    pairs = at(facts, "ranking", "pairs") or []
    sentences = [str(sentence) for sentence in at(facts, "ranking", "summary") or []]
    sentences = sentences or [str(pair["words"]) for pair in pairs if pair.get("words")]
    rows = []

    def signed(share: float) -> str:
        return f"{share * 100:+.2f}".replace("-", "−")

    for pair in pairs:
        low, high = figure(pair, "low"), figure(pair, "high")
        difference, p = figure(pair, "difference"), figure(pair, "p_adjusted")
        p = figure(pair, "p") if p is None else p
        rows.append(
            [
                f"{names.get(pair.get('better'), pair.get('better'))} over "
                f"{names.get(pair.get('worse'), pair.get('worse'))}",
                "–" if difference is None else signed(difference),
                "–" if low is None or high is None else f"{signed(low)} to {signed(high)}",
                "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}",
                "real" if pair.get("real") else "may be chance",
            ]
        )
    if not sentences and not rows:
        return None
    head = ["Difference", "Points", "95% interval", "p, corrected", "Verdict"]
    return {
        "sentences": [one_line(sentence) for sentence in sentences],
        "table": Table(head, rows) if rows else None,
    }


def _cost(methods: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    marks = [mark for mark in _marks(methods) if mark.seconds is not None and mark.seconds > 0]
    if len(marks) < 2:
        return None
    spoken = ["Accuracy against the time to pretrain and fit, the quickest first."]
    for mark in sorted(marks, key=lambda mark: mark.seconds or 0.0):
        spoken.append(f"{mark.name}: {mark.accuracy:.1%} in {rough_time(mark.seconds or 0.0)}.")
    words = "Left is quicker, up is better; the dotted line joins the methods that none beats in both."
    if any(mark.fit and mark.fit < 0.9 * (mark.seconds or 0.0) for mark in marks):
        words += " A thin line is pretraining, done once: the stroke at its left end is fitting alone."
    return _both("cost", pictures.cost, marks, " ".join(spoken)) | {"words": words}


def _curve(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    families = {method.get("id"): str(method.get("family")) for method in facts.get("methods") or []}
    found = []
    for key, line in (at(facts, "curve", "methods") or {}).items():
        measured = [
            (n, mean, figure(point, "sd"))
            for point in at(line, "points") or []
            if (n := figure(point, "n")) and (mean := figure(point, "mean")) is not None
        ]
        if measured:
            name = one_line(str(at(line, "name") or key))
            found.append(pictures.Curve(name, families.get(key, ""), sorted(measured)))
    if not found:
        return None
    found.sort(key=lambda curve: -curve.points[0][1])
    counts = sorted({n for curve in found for n, _, _ in curve.points})
    draws = figure(facts, "curve", "draws")
    spoken = ["Accuracy by the number of labelled texts."]
    rows = []
    for curve in found:
        values = {n: (mean, sd) for n, mean, sd in curve.points}
        each = ", ".join(f"{mean:.1%} with {n:,.0f}" for n, (mean, _) in values.items())
        spoken.append(f"{curve.name}: {each}.")
        cells = []
        for n in counts:
            mean, sd = values.get(n, (None, None))
            cells.append(percent(mean) + ("" if sd is None else f" ± {percent(sd)}"))
        rows.append([curve.name, *cells])
    words = "How accuracy grows with the number of labelled texts" + (
        f", each the mean of {draws:.0f} draws; the band is one standard deviation either way."
        if draws and draws > 1
        else "."
    )
    return _both("curve", pictures.learning_curves, found, " ".join(spoken)) | {
        "words": words,
        "table": Table(["Method", *(f"{n:,.0f}" for n in counts)], rows),
    }


def _training(methods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for number, method in enumerate(methods):
        history = method.get("history") or []
        losses = [
            {
                key: value
                for key, value in entry.items()
                if key in ("epoch", "step", "train_loss", "valid_loss")
            }
            for entry in history
        ]
        best = max(figures_in([entry.get("accuracy") for entry in history]), default=None)
        aside = "" if best is None else f"best valid {best:.1%}"
        found += [
            loss | {"title": name_of(method), "aside": aside}
            for loss in curve_pictures(losses, f"train{number}-")
        ]
    return found


def _mix(methods: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    parts: list[dict[str, Any]] = []
    rows: list[tuple[str, list[str], float | None]] = []
    layers: list[str] = []
    for number, method in enumerate(methods):
        given = dict(method.get("mix") or {})
        if all(row == given["history"][0] for row in given.get("history") or []):
            given["history"] = []  # nothing changed, so there is nothing to draw
        part = mix_part(given, f"mix{number}")
        if part is None:
            continue
        name = name_of(method)
        drawn = part["picture"] and part["picture"] | {"title": name, "aside": "by epoch"}
        parts.append({"name": name, "words": part["words"], "picture": drawn})
        layers = max(layers, [row["name"] for row in part["rows"]], key=len)
        rows.append((name, [row["final"] for row in part["rows"]], figure(given, "gamma")))
    if not parts:
        return None
    with_gamma = any(gamma is not None for _, _, gamma in rows)
    cells = [
        [name, *values, *["–"] * (len(layers) - len(values)), *([four_places(gamma)] if with_gamma else [])]
        for name, values, gamma in rows
    ]
    return {
        "parts": parts,
        "pictures": [part["picture"] for part in parts if part["picture"]],
        "table": Table(["Method", *layers, *(["γ"] if with_gamma else [])], cells),
    }


def _pretraining(given: Mapping[str, Any]) -> dict[str, Any] | None:
    if not given:
        return None
    rows = [
        ("Encoder", shown(given.get("name"))),
        ("Pretraining", "–" if (time := figure(given, "seconds")) is None else rough_time(time)),
        ("Perplexity", shown(given.get("perplexity"))),
        ("Perplexity, forward", shown(given.get("forward"))),
        ("Perplexity, backward", shown(given.get("backward"))),
        ("Parameters", shown(given.get("parameters"))),
        ("Vocabulary", f"{words:,.0f} words" if (words := figure(given, "words")) else "–"),
    ]
    points_known = [
        (epoch, value)
        for entry in given.get("history") or []
        if (epoch := figure(entry, "epoch")) is not None
        and (value := figure(entry, "perplexity")) is not None
    ]
    drawn = None
    if len(points_known) > 1:
        line = ("held out", [epoch for epoch, _ in points_known], [value for _, value in points_known])
        spoken = f"Perplexity by epoch. {said(line, 'epoch')}"
        svg = curves([line], name="perplexity", words=spoken, x_label="epoch")
        drawn = picture("Perplexity", svg, "on held-out text, by epoch")
    told = (
        "The encoder was given: it has read other text before, which no other method has, and the time that "
        "took is not counted here."
        if given.get("was_given")
        else "One encoder, pretrained on the train texts without their labels, serves all ELMo methods."
        if (given.get("n_models") or 1) == 1
        else f"{given['n_models']} encoders were pretrained on the train texts without their labels; this is "
        "the first."
    )
    told += " It was made once: what another seed of its own would change is in no interval or test."
    return {"words": told, "rows": [(name, value) for name, value in rows if value != "–"], "picture": drawn}


def _details(facts: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    machine = []
    for name, value in (facts.get("machine") or {}).items():
        is_memory = name == "memory" and is_number(value)
        machine.append((one_line(name), format_size(value) if is_memory else shown(value)))
    found = [("Machine", machine), ("Versions", list(flat(facts.get("versions") or {})))]
    return [(caption, rows) for caption, rows in found if rows]
