"""A comparison's report as plain Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmokit.tasks.report_markdown import Table, escaped, fenced, rows_markdown

__all__ = ["comparison_markdown"]

_MAX_CLASSES = 12  # a wider table cannot be read in plain text


def comparison_markdown(page: Mapping[str, Any]) -> str:
    """The page's words and tables as plain Markdown."""
    parts = [f"# {escaped(page['title'])}", escaped(page["lead"]), f"**{escaped(page['headline'])}**"]
    parts.append(" ".join(map(escaped, page["sentences"])))
    parts.append(_bullets(page["notes"]))
    parts += [
        "## Ranking",
        "Accuracy and macro averages in percent.",
        rows_markdown(page["ranking"]["table"]),
    ]
    if page["ranking"]["published"]:
        parts.append(escaped(page["ranking"]["published"]))
    if differences := page["differences"]:
        parts += ["## Which differences are real?", _bullets(differences["sentences"])]
        parts.append(_table(differences["table"]))
    if curve := page["curve"]:
        parts += ["## How many labels does it take?", escaped(curve["words"]), rows_markdown(curve["table"])]
    if classes := page["classes"]:
        parts += [
            "## Class by class",
            f"F1 on {classes['split']}, in percent.",
            rows_markdown(classes["table"]),
        ]
    if (confusions := page["confusions"]) and confusions["tables"]:
        parts += ["## What is taken for what", "Rows are true classes, columns predicted ones."]
        for name, table in confusions["tables"]:
            if len(table.head) > _MAX_CLASSES + 1:
                parts.append("There are too many classes for tables; report.html and report.json have them.")
                break
            parts += [f"### {escaped(name)}", rows_markdown(table)]
    if page["examples"]:
        rows = [
            [
                entry["text"],
                entry["label"],
                " · ".join(entry["right"]),
                "; ".join(f"{guess}: {' · '.join(names)}" for guess, names in entry["wrong"]),
            ]
            for entry in page["examples"]
        ]
        parts += [
            "## Where the methods disagree",
            rows_markdown(Table(["Text", "True", "Right", "Wrong"], rows)),
        ]
    if page["mix"]:
        parts += ["## How the layers are mixed", rows_markdown(page["mix"]["table"])]
    if pretraining := page["pretraining"]:
        parts += ["## Pretraining", escaped(pretraining["words"]), _pairs(pretraining["rows"])]
    if intrinsic := page["intrinsic"]:
        parts += ["## The vectors by themselves", escaped(intrinsic["words"])]
        parts.append(rows_markdown(intrinsic["table"]))
    if data := page["data"]:
        parts += ["## Data", _bullets(data["notes"]), _table(data["table"])]
    if page["commands"] or page["details"] or page["settings"]:
        parts.append("## How it was made")
    if page["commands"]:
        parts.append(fenced("\n".join(page["commands"])))
    for caption, rows in [*page["details"], *page["settings"]]:
        parts += [f"### {escaped(caption)}", _pairs(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(sentences: list[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def _pairs(rows: list[tuple[str, str]]) -> str:
    return rows_markdown(Table(["Name", "Value"], [list(row) for row in rows])) if rows else ""


def _table(table: Table | None) -> str:
    return rows_markdown(table) if table else ""
