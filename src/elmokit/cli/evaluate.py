"""``elmokit evaluate``: how good a classifier is on labelled rows."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli.options import model_folder, with_settings
from elmokit.text.settings import LabelConfig, ReadConfig

__all__ = ["command"]


@with_settings({"read": ReadConfig, "labels": LabelConfig}, {"read": "Reading files", "labels": "Labels"})
def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", parser=model_folder, help="A classifier folder (elmokit fit).")
    ],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Labelled rows.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for a report (JSON, Markdown, HTML).", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    *,
    settings: dict[str, dict[str, Any]],
) -> None:
    """Accuracy, precision, recall and F1 on labelled rows, over all and class by class.

    With --out, a report adds the confusion matrix, calibration and the most confident mistakes. Labels
    that the classifier has never seen count as wrong and are listed. Columns that were named to fit need
    not be named again.
    """
    from rich.console import Console
    from rich.table import Table

    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import evaluate_files

    reporter = Reporter("silent" if as_json else "auto")
    figures = evaluate_files(
        model,
        files,
        read=ReadConfig.from_dict(settings["read"]),
        labels=LabelConfig.from_dict(settings["labels"]),
        out=out,
        reporter=reporter,
        command=shlex.join(["elmokit", *sys.argv[1:]]),
    )
    if as_json:
        typer.echo(json.dumps(figures, ensure_ascii=False))
        return
    console = Console(highlight=False)
    macro = figures["macro"]
    console.print(
        f"Accuracy [bold]{figures['accuracy']:.4f}[/]  macro precision {macro['precision']:.4f}, "
        f"recall {macro['recall']:.4f}, F1 {macro['f1']:.4f}  [dim]({figures['n']:,} rows, "
        f"{figures['documents_per_second']:,.0f} a second)[/]",
        soft_wrap=True,
    )
    for note in figures["notes"]:
        console.print(f"[dim]{note}[/]")
    if figures.get("unseen"):
        listed = ", ".join(f"{escape(name)} ({count})" for name, count in figures["unseen"].items())
        console.print(f"[yellow]Labels never seen in training, counted as wrong: {listed}[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("class", "precision", "recall", "F1", "rows"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for entry in figures["per_class"]:
        values = (f"{entry[name]:.4f}" for name in ("precision", "recall", "f1"))
        table.add_row(escape(entry["name"]), *values, f"{entry['support']:,}")
    console.print(table)
    if out is not None:
        console.print(f"Report: {escape(str(out / 'report.html'))}", soft_wrap=True)
