"""A report's tables as plain Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elmokit.tasks import pictures

__all__ = ["Table", "escaped", "fenced", "page_markdown", "rows_markdown"]


@dataclass(frozen=True)
class Table:
    """A table of ready-made text; the first value of a row names it.

    Args:
        head: the name of each column.
        rows: the values, as text.
        groups: names above the columns after the first, each with the number of columns it spans.
        chosen: the name of the row to be made bold.
    """

    head: list[str]
    rows: list[list[str]]
    groups: tuple[tuple[str, int], ...] = ()
    chosen: str | None = None

    @property
    def starts(self) -> list[int]:
        """The columns where a group begins."""
        return [1 + sum(span for _, span in self.groups[:group]) for group in range(1, len(self.groups))]

    @property
    def full_head(self) -> list[str]:
        """The columns' names with those of their groups."""
        above = ["", *(group for group, span in self.groups for _ in range(span))]
        above += [""] * (len(self.head) - len(above))
        return [" ".join(filter(None, pair)) for pair in zip(above, self.head, strict=True)]


def page_markdown(page: Mapping[str, Any]) -> str:
    """The page's tables as plain Markdown."""
    parts = [f"# {escaped(page['title'])}", escaped(page["lead"])]
    parts.append("\n".join(f"- {escaped(note)}" for note in page["notes"]))
    parts.append(
        "\n".join(
            f"- {figure['name']}: **{figure['value']}** ({escaped(figure['under'])})"
            for figure in page["figures"]
        )
    )
    if page["summary"]:
        parts += ["## Scores", escaped(page["summary_words"]), rows_markdown(page["summary"])]
    if page["epochs"]:
        parts += ["## Training", rows_markdown(page["epochs"])]
    if mix := page["mix"]:
        table = Table(
            ["Layer", "Start", "Final"], [[row["name"], row["start"], row["final"]] for row in mix["rows"]]
        )
        parts += ["## How the layers are mixed", escaped(mix["words"]), rows_markdown(table)]
    if page["confusion_tables"] or page["pairs"]:
        parts.append("## What is taken for what")
        for split, table in page["confusion_tables"]:
            parts += [
                f"### {escaped(split)}",
                "Rows are true classes, columns predicted ones.",
                rows_markdown(table),
            ]
        if page["pairs"]:
            parts += [
                f"### Most common confusions ({escaped(page['pairs_aside'])})",
                rows_markdown(page["pairs"]),
            ]
    if page["classes"]:
        parts += ["## Class by class", "In percent.", rows_markdown(page["classes"])]
    if page["calibrations"]:
        parts += ["## Can its probabilities be believed?", "In percent."]
        for split, table in page["calibration_tables"]:
            parts += [f"### {escaped(split)}", rows_markdown(table)]
    if page["mistakes"]:
        parts.append("## Its most confident mistakes")
        for split, entries in page["mistakes"]:
            rows = [
                [entry["true"], entry["predicted"], entry["probability"], entry["text"]] for entry in entries
            ]
            parts += [
                f"### {escaped(split)}",
                rows_markdown(Table(["True", "Predicted", "Probability", "Text"], rows)),
            ]
    if page["command"] or page["details"]:
        parts.append("## How it was made")
    if page["command"]:
        parts.append(fenced(page["command"]))
    for caption, pairs in page["details"]:
        parts += [f"### {caption}", rows_markdown(Table(["Name", "Value"], [list(pair) for pair in pairs]))]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = re.sub(r"([\\`*_\[\]|$~])", r"\\\1", pictures.one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str) -> str:
    """Text as a block of code, whatever it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def rows_markdown(table: Table) -> str:
    """A table; all but its first column stand to the right."""
    lines = [table.full_head, ["---", *["---:"] * (len(table.head) - 1)]]
    cells = [[escaped(value) for value in line] for line in (lines[0], *table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (cells[0], lines[1], *cells[1:]))
