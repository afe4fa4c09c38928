"""``elmokit predict``: labels and probabilities for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Model, Settings, argument, flag, with_settings


@with_settings(READ)
def command(
    model: Model,
    files: Annotated[list[str], argument("FILE...", "Rows to label (.csv .tsv .jsonl .parquet .txt), or -.")],
    out: Annotated[Path | None, flag("File to write; standard output unless given.", "--out", "-o")] = None,
    format: Annotated[str, flag("csv or jsonl; else by the ending of --out or of FILE.")] = "",
    *,
    settings: Settings,
) -> None:
    """Label new rows: every input column, then the prediction and the probability of each class.

    MODEL is a folder that elmokit fit or compare has made. It remembers the columns that were given to
    elmokit fit, unless you name others. Rows are streamed, so files may have any length:

    [bold]elmokit predict my-classifier new.csv --out labeled.csv[/]
    """
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import predict

    reporter = Reporter("auto" if out is not None else "silent")
    summary = predict(model, files, out, format=cast(Any, format), reporter=reporter, **settings)
    for note in summary.notes:
        typer.echo(note, err=True)
    if out is not None:
        reporter.say(f"{summary.n_rows:,} rows labeled in {escape(str(out))}.")
