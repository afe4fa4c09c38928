"""What a classifier's report says: its tables, pictures and words, ready to be set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.tasks import pictures
from elmokit.tasks.report_markdown import Table
from elmokit.tasks.report_words import along, duration, flat, four_places, is_number, percent, said, shown

__all__ = ["SPLITS", "classifier_page", "curve_pictures", "known_splits", "mix_part", "picture"]

SPLITS = ("train", "valid", "test")
"""In their order."""

_MANY = 5
_MAX_PAIRS = 10
_AVERAGES = ("micro", "macro", "weighted", "samples")


def known_splits(facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The splits that have texts, in their order, and what is to be said of the others."""
    given: dict[str, Any] = facts.get("splits") or {}
    order = sorted(given, key=lambda name: SPLITS.index(name) if name in SPLITS else len(SPLITS))
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
    main = next((name for name in reversed(SPLITS) if name in splits), next(iter(splits), ""))
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
        "curves": curve_pictures(facts.get("history") or []),
        "mix": mix_part(facts.get("mix") or {}),
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
            picture(
                name,
                pictures.reliability(
                    split["calibration"]["bins"], name=f"calibration{number}", ece=split["calibration"]["ece"]
                ),
                f"ECE {percent(split['calibration']['ece'])}%, {split['n']:,} texts",
            )
            for number, (name, split) in enumerate(splits.items())
        ]
        page["calibration_tables"] = [(name, _calibration(split)) for name, split in splits.items()]
    return page


def picture(title: str, svg: str, aside: str = "", kind: str = "curve", **more: bool) -> dict[str, Any]:
    """A picture as the templates' macro of that name takes it."""
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
    macro = ("Macro F1", percent(split["macro"]["f1"]) + "%", f"on {name}, all classes alike")
    if several:
        figures = [
            ("Micro F1", percent(split["micro"]["f1"]) + "%", f"on {name}, all answers alike"),
            macro,
            ("All right", percent(split["subset_accuracy"]) + "%", f"of the {name} texts, in every class"),
            ("Hamming loss", percent(split["hamming_loss"]) + "%", f"of all answers on {name} wrong"),
        ]
    else:
        low, high = _interval(split["accuracy"], split["n"])
        figures = [
            (
                "Accuracy",
                percent(split["accuracy"]) + "%",
                f"on {name}, 95% interval {low * 100:.1f} to {high * 100:.1f}",
            ),
            macro,
            ("Calibration error", percent(split["calibration"]["ece"]) + "%", f"on {name} (ECE)"),
            ("Log loss", four_places(split["log_loss"]), f"on {name}"),
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
            percent(split[average][score]) for average in averages for score in ("precision", "recall", "f1")
        ]
        rest = (
            [percent(split["hamming_loss"])]
            if several
            else [four_places(split["log_loss"]), percent(split["calibration"]["ece"])]
        )
        rows.append([name, f"{split['n']:,}", percent(exact), *scores, *rest])
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
            row += [percent(entry[score]) for score in ("precision", "recall", "f1")]
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
        page["confusions"].append(picture(name, svg, aside, kind, roomy=many, folded=many and name != main))
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
                [pictures.one_line(right), pictures.one_line(chosen), f"{count:,}", percent(count / total)]
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
                percent(entry["confidence"]),
                percent(entry["accuracy"]),
            ]
            for entry in split["calibration"]["bins"]
            if entry["n"]
        ],
    )


def curve_pictures(history: Sequence[Mapping[str, Any]], name: str = "") -> list[dict[str, Any]]:
    """Loss and accuracy over a training, whichever was measured; ``name`` is put before the pictures'."""
    where, places = along(history)
    wanted = (
        ("Loss", {"train": "train_loss", "valid": "valid_loss"}, False),
        ("Accuracy", {"train": "train_accuracy", "valid": "accuracy"}, True),
    )
    found = []
    for title, keys, in_percent in wanted:
        lines: list[pictures.Line] = []
        for split, key in keys.items():
            points = [
                (place, entry[key])
                for place, entry in zip(places, history, strict=True)
                if is_number(entry.get(key))
            ]
            lines.append((split, [place for place, _ in points], [value for _, value in points]))
        if any(line[1] for line in lines):
            words = f"{title} by {where}. " + " ".join(
                said(line, where, in_percent) for line in lines if line[1]
            )
            svg = pictures.curves(
                lines, name=name + title.lower(), words=words, x_label=where, percent=in_percent
            )
            found.append(picture(title, svg, f"by {where}"))
    return found


def _epochs(history: Sequence[Mapping[str, Any]]) -> Table | None:
    keys = list(dict.fromkeys(key for entry in history for key in entry))
    if not keys:
        return None
    return Table(
        [key.replace("_", " ") for key in keys],
        [[shown(entry.get(key)) for key in keys] for entry in history],
    )


def mix_part(mix: Mapping[str, Any], name: str = "mix") -> dict[str, Any] | None:
    """What is said of the layers' weights: words, rows and, if they changed, a picture of that name."""
    values = [value if is_number(value) else None for value in mix.get("values") or []]
    if not values:
        return None
    names = [str(layer) for layer in mix.get("names") or []]
    names += [f"layer {number}" for number in range(len(names), len(values))]
    history = [
        row for row in mix.get("history") or [] if len(row) == len(values) and all(map(is_number, row))
    ]
    kind, form = mix.get("kind"), mix.get("form")
    opening = {
        "trainable": "The weights are learnt with the classifier",
        "frozen": "The weights are set beforehand and not learnt",
        "function": "A learnt function mixes the layers; shown is the size of the weights each goes through",
    }.get(str(kind), "The weight of each layer")
    ends = {"softmax": "; they add up to one.", "raw": "; they may take any value, also below zero."}
    words = opening + (ends.get(str(form), ".") if kind != "function" else ", as a share of all.")
    largest = max((abs(value) for value in values if value is not None), default=0.0) or 1.0
    shown_picture = None
    if len(history) > 1:
        given = mix.get("epochs") or []
        epochs = [float(epoch) for epoch in (given if len(given) == len(history) else range(len(history)))]
        lines = [
            (layer.partition(" (")[0], epochs, [row[column] for row in history])
            for column, layer in enumerate(names[: len(values)])
        ]
        spoken = "Weight of each layer by epoch. " + " ".join(said(line, "epoch") for line in lines)
        svg = pictures.curves(lines, name=name, words=spoken, x_label="epoch")
        shown_picture = picture("Weight of each layer", svg, "by epoch")
    return {
        "words": words,
        "picture": shown_picture,
        "started": bool(history),
        "rows": [
            {
                "name": pictures.one_line(names[column]),
                "start": four_places(history[0][column]) if history else "–",
                "final": four_places(value),
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
            timings.append(("texts per second", shown(value)))
        else:
            timings.append((name.replace("_", " "), duration(value) if is_number(value) else shown(value)))
    found = [("Encoder", list(flat(facts.get("encoder") or {})))]
    found += [("Settings", list(flat(facts.get("settings") or {}))), ("Timings", timings)]
    found.append(("Versions", list(flat(facts.get("versions") or {}))))
    return [(caption, rows) for caption, rows in found if rows]


def _signed_percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
