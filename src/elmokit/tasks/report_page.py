"""What a classifier's report says: its tables, pictures and words, ready to be set."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from elmokit.tasks import pictures
from elmokit.tasks.report_markdown import Table

__all__ = ["classifier_page", "known_splits"]

_ORDER = ("train", "valid", "test")
_MANY = 5
_MAX_PAIRS = 10
_AVERAGES = ("micro", "macro", "weighted", "samples")


def known_splits(facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The splits that have texts, in their order, and what is to be said of the others."""
    given: dict[str, Any] = facts.get("splits") or {}
    order = sorted(given, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    splits, notes = {}, []
    for name in order:
        split = given[name]
        if not split or not split.get("n"):
            notes.append(f"The {name} split has no texts and is left out.")
            continue
        splits[name] = split
        if unseen := split.get("unseen"):
            n, labels = sum(unseen.values()), "labels" if len(unseen) > 1 else "label"
            listed = ", ".join(
                f"{pictures.short(label, 40)} ({count:,})" for label, count in list(unseen.items())[:10]
            )
            more = ", …" if len(unseen) > 10 else ""
            notes.append(
                f"In {name}, {n:,} {'texts have' if n > 1 else 'text has'} {len(unseen)} {labels} that "
                f"training never saw: {listed}{more}. They count as wrong."
            )
    return splits, notes


# -- what the pages show ----------------------------------------------------------------------


def classifier_page(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything on the page, as text, tables and pictures."""
    splits: dict[str, Any] = facts["splits"]
    main = next((name for name in reversed(_ORDER) if name in splits), next(iter(splits), ""))
    several = bool(facts.get("multilabel"))
    n_classes = len(facts.get("classes") or (splits[main]["per_class"] if main else []))
    page: dict[str, Any] = {
        "title": pictures.one_line(str(facts.get("title") or "Text classifier")),
        "lead": "",
        "figures": [],
        "notes": facts["notes"],
        "summary": _summary(splits, main, several) if splits else None,
        "summary_words": "In percent"
        + (
            "."
            if several
            else ", but for log loss. Macro averages count every class alike, weighted ones by its texts."
        ),
        "epochs": _epochs(facts.get("history") or []),
        "curves": _curves(facts.get("history") or []),
        "mix": _mix(facts.get("mix") or {}),
        "classes": _classes(splits),
        "confusions": [],
        "confusion_words": "",
        "confusion_tables": [],
        "pairs": None,
        "pairs_aside": main,
        "calibrations": [],
        "mistakes": _mistakes(facts.get("mistakes") or {}),
        "command": str(facts.get("command") or ""),
        "details": _details(facts),
    }
    if main:
        classes = f"{n_classes:,} {'class' if n_classes == 1 else 'classes'}"
        texts = f"{splits[main]['n']:,} {'text' if splits[main]['n'] == 1 else 'texts'}"
        page["lead"] = f"Measured on the {main} split: {texts}, {classes}" + (
            ", several to a text." if several else "."
        )
        page["figures"] = _headline(splits[main], main, several, facts.get("timings") or {})
    if splits and not several:
        _add_confusions(page, splits, main)
        page["calibrations"] = [
            _picture(
                name,
                pictures.reliability(
                    split["calibration"]["bins"], name=f"calibration{number}", ece=split["calibration"]["ece"]
                ),
                f"ECE {_percent(split['calibration']['ece'])}%, {split['n']:,} texts",
            )
            for number, (name, split) in enumerate(splits.items())
        ]
        page["calibration_tables"] = [(name, _calibration(split)) for name, split in splits.items()]
    return page


def _picture(title: str, svg: str, aside: str = "", kind: str = "curve", **more: bool) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "title": title,
        "aside": aside,
        "kind": kind,
        "svg": Markup(svg),
        "roomy": False,
        "folded": False,
        **more,
    }


def _headline(split: Mapping[str, Any], name: str, several: bool, timings: Mapping[str, Any]) -> list[Any]:
    macro = ("Macro F1", _percent(split["macro"]["f1"]) + "%", f"on {name}, all classes alike")
    if several:
        figures = [
            ("Micro F1", _percent(split["micro"]["f1"]) + "%", f"on {name}, all answers alike"),
            macro,
            ("All right", _percent(split["subset_accuracy"]) + "%", f"of the {name} texts, in every class"),
            ("Hamming loss", _percent(split["hamming_loss"]) + "%", f"of all answers on {name} wrong"),
        ]
    else:
        low, high = _interval(split["accuracy"], split["n"])
        figures = [
            (
                "Accuracy",
                _percent(split["accuracy"]) + "%",
                f"on {name}, 95% interval {low * 100:.1f} to {high * 100:.1f}",
            ),
            macro,
            ("Calibration error", _percent(split["calibration"]["ece"]) + "%", f"on {name} (ECE)"),
            ("Log loss", _number(split["log_loss"]), f"on {name}"),
        ]
    if speed := timings.get("documents_per_second"):
        figures.append(("Speed", f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}", "texts a second"))
    return [dict(zip(("name", "value", "under"), figure, strict=True)) for figure in figures]


def _interval(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of n."""
    z = 1.959964
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _summary(splits: Mapping[str, Any], main: str, several: bool) -> Table:
    averages = [name for name in _AVERAGES if name in next(iter(splits.values()))]
    first = "All right" if several else "Accuracy"
    last = ["Hamming loss"] if several else ["Log loss", "ECE"]
    rows = []
    for name, split in splits.items():
        exact = split["subset_accuracy" if several else "accuracy"]
        scores = [
            _percent(split[average][score]) for average in averages for score in ("precision", "recall", "f1")
        ]
        rest = (
            [_percent(split["hamming_loss"])]
            if several
            else [_number(split["log_loss"]), _percent(split["calibration"]["ece"])]
        )
        rows.append([name, f"{split['n']:,}", _percent(exact), *scores, *rest])
    return Table(
        ["Split", "Texts", first, *["Precision", "Recall", "F1"] * len(averages), *last],
        rows,
        (("", 2), *((average.capitalize(), 3) for average in averages), ("", len(last))),
        chosen=main if len(splits) > 1 else None,
    )


def _classes(splits: Mapping[str, Any]) -> Table | None:
    rows: dict[str, list[str]] = {}
    for number, split in enumerate(splits.values()):
        for entry in split["per_class"]:
            row = rows.setdefault(entry["name"], [entry["name"], *["–"] * (4 * number)])
            row += [_percent(entry[score]) for score in ("precision", "recall", "f1")]
            row.append(f"{entry['support']:,}")
        for row in rows.values():
            row += ["–"] * (1 + 4 * (number + 1) - len(row))
    if not rows:
        return None
    return Table(
        ["Class", *["Precision", "Recall", "F1", "Support"] * len(splits)],
        [[pictures.one_line(row[0]) or "(empty)", *row[1:]] for row in rows.values()],
        tuple((name, 4) for name in splits),
    )


def _add_confusions(page: dict[str, Any], splits: Mapping[str, Any], main: str) -> None:
    """The confusions of each split as pictures and tables; only as a list where there are very many."""
    columns = [entry["name"] for entry in splits[main]["per_class"]]
    many = len(columns) > _MANY
    for number, (name, split) in enumerate(splits.items()):
        rows, table = split["confusion_rows"], split["confusion"]
        if len(rows) > pictures.MAX_PICTURED:
            continue
        svg = pictures.confusion(table, rows, columns, name=f"confusion{number}")
        aside = f"{split['n']:,} texts"
        kind = "scroll big" if many else "scroll"
        page["confusions"].append(_picture(name, svg, aside, kind, roomy=many, folded=many and name != main))
        head = ["True", *(pictures.one_line(column) for column in columns)]
        cells = [
            [pictures.one_line(label), *(f"{count:,}" for count in counts)]
            for label, counts in zip(rows, table, strict=True)
        ]
        page["confusion_tables"].append((name, Table(head, cells)))
    if not page["confusions"]:
        page["confusion_words"] = f"{len(columns):,} classes are too many for a picture."
    split = splits[main]
    pairs = [
        (count, sum(counts), label, columns[column])
        for label, counts in zip(split["confusion_rows"], split["confusion"], strict=True)
        for column, count in enumerate(counts)
        if count and columns[column] != label
    ]
    pairs.sort(key=lambda pair: -pair[0])
    if many and pairs:
        page["pairs"] = Table(
            ["True", "Predicted", "Texts", "% of the true class"],
            [
                [pictures.one_line(right), pictures.one_line(chosen), f"{count:,}", _percent(count / total)]
                for count, total, right, chosen in pairs[:_MAX_PAIRS]
            ],
        )


def _calibration(split: Mapping[str, Any]) -> Table:
    return Table(
        ["Probability", "Texts", "Mean", "Right"],
        [
            [
                f"{entry['low']:.0%} to {entry['high']:.0%}",
                f"{entry['n']:,}",
                _percent(entry["confidence"]),
                _percent(entry["accuracy"]),
            ]
            for entry in split["calibration"]["bins"]
            if entry["n"]
        ],
    )


def _curves(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    along, places = _along(history)
    wanted = (
        ("Loss", {"train": "train_loss", "valid": "valid_loss"}, False),
        ("Accuracy", {"train": "train_accuracy", "valid": "accuracy"}, True),
    )
    found = []
    for title, keys, percent in wanted:
        lines: list[pictures.Line] = []
        for name, key in keys.items():
            points = [
                (place, entry[key])
                for place, entry in zip(places, history, strict=True)
                if _is_number(entry.get(key))
            ]
            lines.append((name, [place for place, _ in points], [value for _, value in points]))
        if any(line[1] for line in lines):
            said = [_said(line, along, percent) for line in lines if line[1]]
            words = f"{title} by {along}. {' '.join(said)}"
            svg = pictures.curves(lines, name=title.lower(), words=words, x_label=along, percent=percent)
            found.append(_picture(title, svg, f"by {along}"))
    return found


def _along(history: Sequence[Mapping[str, Any]]) -> tuple[str, list[float]]:
    """What the curves run along: the epoch, the step, or just the number of the measurement."""
    for key in ("epoch", "step"):
        places = [entry.get(key) for entry in history]
        numbers = [float(place) for place in places if _is_number(place)]
        if len(numbers) == len(places) and all(a < b for a, b in itertools.pairwise(numbers)):
            return key, numbers
    return "measurement", [float(number) for number in range(1, len(history) + 1)]


def _said(line: pictures.Line, along: str, percent: bool = False) -> str:
    name, places, values = line

    def at(index: int) -> str:
        value = f"{values[index]:.2%}" if percent else _number(values[index])
        return f"{value} at {along} {places[index]:g}"

    if len(values) <= 12:
        return f"{name}: " + ", ".join(map(at, range(len(values)))) + "."
    low, high = values.index(min(values)), values.index(max(values))
    return f"{name}: {at(0)}, lowest {at(low)}, highest {at(high)}, {at(len(values) - 1)}."


def _epochs(history: Sequence[Mapping[str, Any]]) -> Table | None:
    keys = list(dict.fromkeys(key for entry in history for key in entry))
    if not keys:
        return None
    return Table(
        [key.replace("_", " ") for key in keys],
        [[_shown(entry.get(key)) for key in keys] for entry in history],
    )


def _mix(mix: Mapping[str, Any]) -> dict[str, Any] | None:
    values = [value if _is_number(value) else None for value in mix.get("values") or []]
    if not values:
        return None
    names = [str(name) for name in mix.get("names") or []]
    names += [f"layer {number}" for number in range(len(names), len(values))]
    history = [
        row for row in mix.get("history") or [] if len(row) == len(values) and all(map(_is_number, row))
    ]
    kind, form = mix.get("kind"), mix.get("form")
    said = {
        "trainable": "The weights are learnt with the classifier",
        "frozen": "The weights are set beforehand and not learnt",
        "function": "A learnt function mixes the layers; shown is the size of the weights each goes through",
    }.get(str(kind), "The weight of each layer")
    ends = {"softmax": "; they add up to one.", "raw": "; they may take any value, also below zero."}
    words = said + (ends.get(str(form), ".") if kind != "function" else ", as a share of all.")
    largest = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
    picture = None
    if len(history) > 1:
        given = mix.get("epochs") or []
        along = [float(epoch) for epoch in (given if len(given) == len(history) else range(len(history)))]
        lines = [
            (name.partition(" (")[0], along, [row[column] for row in history])
            for column, name in enumerate(names[: len(values)])
        ]
        spoken = "Weight of each layer by epoch. " + " ".join(_said(line, "epoch") for line in lines)
        svg = pictures.curves(lines, name="mix", words=spoken, x_label="epoch")
        picture = _picture("Weight of each layer", svg, "by epoch")
    return {
        "words": words,
        "picture": picture,
        "started": bool(history),
        "rows": [
            {
                "name": pictures.one_line(names[column]),
                "start": _number(history[0][column]) if history else "–",
                "final": _number(value),
                "share": f"{abs(value or 0.0) / largest * 100:.1f}",
            }
            for column, value in enumerate(values)
        ],
    }


def _mistakes(mistakes: Mapping[str, Any]) -> list[tuple[str, list[dict[str, str]]]]:
    def label(value: Any) -> str:
        return ", ".join(map(label, value)) if isinstance(value, list) else pictures.one_line(str(value))

    return [
        (
            split,
            [
                {
                    "text": pictures.one_line(str(entry.get("text", ""))),
                    "true": label(entry.get("true")),
                    "predicted": label(entry.get("predicted")),
                    "probability": _signed_percent(entry.get("probability")) or "–",
                    "probability_true": _signed_percent(entry.get("probability_true")),
                }
                for entry in entries
            ],
        )
        for split, entries in mistakes.items()
        if entries
    ]


def _details(facts: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings, timings and versions as named lists of names and values."""
    timings = []
    for name, value in (facts.get("timings") or {}).items():
        if name == "documents_per_second":
            timings.append(("texts per second", _shown(value)))
        else:
            timings.append((name.replace("_", " "), _duration(value) if _is_number(value) else _shown(value)))
    found = [("Encoder", list(_flat(facts.get("encoder") or {})))]
    found += [("Settings", list(_flat(facts.get("settings") or {}))), ("Timings", timings)]
    found.append(("Versions", list(_flat(facts.get("versions") or {}))))
    return [(caption, rows) for caption, rows in found if rows]


def _flat(values: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield pictures.one_line(before + name), _shown(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.2f}"


def _signed_percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _shown(value: Any) -> str:
    """Any plain value as text for a table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, dict)):
        return pictures.one_line(json.dumps(value, ensure_ascii=False))
    return pictures.one_line(str(value))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
