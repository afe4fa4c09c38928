"""``elmokit predict``: labels and probabilities for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Settings, resolve_model, with_settings
from elmokit.text.settings import ReadConfig


@with_settings(READ)
def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", parser=resolve_model, help="A classifier folder (elmokit fit, compare)."
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Rows to label (.csv .tsv .jsonl .parquet .txt), or -."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; standard output unless given.", show_default=False),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="csv or jsonl; else as the ending of --out or of FILE says.", show_default=False),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Label new rows: every input column, then the prediction and each class's probability.

    Columns that were named to fit are read here, too, unless --text-columns names others. Streams, so
    files of any length are fine:

    [bold]elmokit predict my-classifier new.csv --out labeled.csv[/]
    """
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import predict

    reporter = Reporter("auto" if out is not None else "silent")
    read = ReadConfig.from_dict(settings["read"])
    summary = predict(model, files, out, format=cast(Any, format or ""), reporter=reporter, read=read)
    for note in summary.notes:
        typer.echo(note, err=True)
    if out is not None:
        reporter.say(f"{summary.n_rows:,} rows labeled in {escape(str(out))}.")
