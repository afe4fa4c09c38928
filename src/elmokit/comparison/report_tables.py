"""The tables of a comparison's report: class by class, confusions, examples, vectors, data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.comparison.standing import accuracy_of, at, figure, main_split, name_of
from elmokit.tasks.drawing import one_line, short
from elmokit.tasks.pictures import MAX_PICTURED, confusion
from elmokit.tasks.report_markdown import Table
from elmokit.tasks.report_page import SPLITS, picture
from elmokit.tasks.report_words import is_number, percent

__all__ = ["classes_part", "confusions_part", "data_part", "examples_part", "intrinsic_part"]

_ROOMY = 5  # with more classes than this, a confusion matrix takes the whole width
_ALL_SPLITS = 30  # with more, only those of the main split are drawn
_MAX_EXAMPLES = 20


def classes_part(methods: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """F1 of every class by every method; the fewer of the two are the columns."""
    split = main_split(methods)
    scores: dict[str, dict[int, float | None]] = {}
    for column, method in enumerate(methods):
        for entry in at(method, "splits", split, "per_class") or []:
            scores.setdefault(one_line(str(entry.get("name"))) or "(empty)", {})[column] = figure(entry, "f1")
    if not scores:
        return None
    known = [value for row in scores.values() for value in row.values() if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)

    def cell(values: Mapping[int, float | None], column: int) -> dict[str, Any]:
        value = values.get(column)
        best = max((other for other in values.values() if other is not None), default=None)
        share = 0.0 if value is None or high == low else (value - low) / (high - low)
        return {
            "text": percent(value),
            "shade": round(share * 42),
            "best": value is not None and value == best,
        }

    names = [short(name_of(method), 40) for method in methods]
    by_class = [
        (name, [cell(values, column) for column in range(len(methods))]) for name, values in scores.items()
    ]
    if len(scores) <= max(len(methods), 8):
        head = ["Method", *scores]
        rows = [(name, [cells[column] for _, cells in by_class]) for column, name in enumerate(names)]
    else:
        head, rows = ["Class", *names], by_class
    return {
        "split": split,
        "head": [head[0], *(short(name, 24) for name in head[1:])],
        "rows": rows,
        "table": Table(head, [[name, *(cell["text"] for cell in cells)] for name, cells in rows]),
    }


def confusions_part(methods: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The confusions of every method by split, the main split first; the others are folded away."""
    main = main_split(methods)
    splits, tables, most = [], [], 0
    for split in (main, *(name for name in reversed(SPLITS) if name != main)):
        drawn = []
        for number, method in enumerate(methods):
            table, rows, columns = _confusion_of(at(method, "splits", split) or {})
            most = max(most, len(rows))
            if not rows or len(rows) > MAX_PICTURED or (len(rows) > _ALL_SPLITS and split != main):
                continue
            roomy = len(columns) > _ROOMY
            name, share = name_of(method), accuracy_of(method, split)
            drawn.append(
                picture(
                    name,
                    confusion(table, rows, columns, name=f"confusion-{split}-{number}"),
                    "" if share is None else f"{share:.1%}",
                    "scroll big" if roomy else "scroll",
                    roomy=roomy,
                    folded=roomy and number > 0,
                )
            )
            if split == main:
                cells = [
                    [one_line(label), *(f"{count:,}" for count in counts)]
                    for label, counts in zip(rows, table, strict=True)
                ]
                tables.append((name, Table(["True", *map(one_line, columns)], cells)))
        if drawn:
            splits.append((split, drawn))
    words = f"{most} classes are too many for a picture." if most > MAX_PICTURED else ""
    if MAX_PICTURED >= most > _ALL_SPLITS:
        words = f"With {most} classes only {main} is drawn; report.json has the other splits."
    return {"splits": splits, "tables": tables, "words": words} if splits or words else None


def _confusion_of(split: Mapping[str, Any]) -> tuple[list[list[int]], list[str], list[str]]:
    """A table of counts with the names of its rows and columns; empty if it is not one."""
    table = [[int(count or 0) for count in row or []] for row in split.get("confusion") or []]
    widths = {len(row) for row in table}
    if len(widths) != 1 or widths == {0}:
        return [], [], []
    names = [str(name) for name in split.get("confusion_classes") or []]
    names += [f"class {number + 1}" for number in range(len(names), max(len(table), *widths))]
    return table, names[: len(table)], names[: widths.pop()]


def examples_part(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Texts that one method gets right and another wrong; the wrong ones by what they answered."""
    names = {method.get("id"): short(name_of(method), 40) for method in facts.get("methods") or []}
    found = []
    for entry in (facts.get("examples") or [])[:_MAX_EXAMPLES]:
        guesses = entry.get("guesses") or {}
        wrong: dict[str, list[str]] = {}
        for key in entry.get("wrong") or []:
            wrong.setdefault(one_line(str(guesses.get(key, "–"))), []).append(str(names.get(key, key)))
        found.append(
            {
                "text": one_line(str(entry.get("text", ""))),
                "label": one_line(str(entry.get("label", ""))),
                "right": [str(names.get(key, key)) for key in entry.get("right") or []],
                "wrong": list(wrong.items()),
            }
        )
    return found


def intrinsic_part(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the vectors are worth by themselves: one row for each, one column for each task."""
    tasks = list(dict.fromkeys((str(entry.get("task")), str(entry.get("measure"))) for entry in entries))
    rows: dict[str, dict[tuple[str, str], str]] = {}
    for entry in entries:
        name = one_line(str(entry.get("name") or entry.get("method")))
        value, covered, total = (figure(entry, key) for key in ("value", "covered", "total"))
        text = "–" if value is None else f"{value:.3f}"
        if covered is not None and total is not None:
            text += f" ({covered:,.0f} of {total:,.0f})"
        rows.setdefault(name, {})[str(entry.get("task")), str(entry.get("measure"))] = text
    if not rows:
        return None
    head = ["Vectors", *(one_line(f"{task}, {measure}") for task, measure in tasks)]
    return {
        "words": "How well the vectors alone agree with what people say of words; in brackets, how many of "
        "the questions have all their words in the vocabulary.",
        "table": Table(head, [[name, *(row.get(task, "–") for task in tasks)] for name, row in rows.items()]),
    }


def data_part(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """How many texts there are of each class and split, where they came from, and what was noticed."""
    data = facts.get("data") or {}
    splits = [
        name
        for name in SPLITS
        if name in (data.get("rows") or {}) or name in (data.get("class_counts") or {})
    ]
    counts = {name: at(data, "class_counts", name) or {} for name in splits}
    classes = [str(name) for name in data.get("classes") or []]
    classes += [name for row in counts.values() for name in row if name not in classes]
    classes = list(dict.fromkeys(classes))

    def count(value: Any) -> str:
        return f"{value:,.0f}" if is_number(value) else "–"

    files = data.get("names") or {}
    rows = [["File", *(one_line(str(files.get(name) or "–")) for name in splits)]] if files else []
    rows += [["All texts", *(count(at(data, "rows", name)) for name in splits)]]
    if any(counts.values()):
        rows += [
            [one_line(label) or "(empty)", *(count(counts[name].get(label, 0)) for name in splits)]
            for label in classes
        ]
    notes = [one_line(str(note)) for note in data.get("notes") or []]
    if is_number(data.get("unlabelled")) and data["unlabelled"]:
        notes.append(f"{data['unlabelled']:,} further texts without labels were there to pretrain on.")
    notes += _method_notes(facts.get("methods") or [])
    if not splits and not notes:
        return None
    return {"table": Table(["Texts", *splits], rows, chosen="All texts") if splits else None, "notes": notes}


def _method_notes(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    """What single methods noticed, each note once, with their names."""
    found: dict[str, list[str]] = {}
    for method in methods:
        for note in method.get("notes") or []:
            found.setdefault(one_line(str(note)), []).append(name_of(method))
    return [f"{' · '.join(names)}: {note}" for note, names in found.items()]
