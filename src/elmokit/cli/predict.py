"""``elmokit predict``: labels and probabilities for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Address, Engine, Settings, argument, flag, with_settings
from elmokit.core.names import resolve_name

_OUT = "Output file (with --engine ray, a folder); by default, standard output."


@with_settings(READ, overwrite=True)
def command(
    model: Annotated[
        Path, argument("MODEL", "A folder made by elmokit fit or compare.", parser=resolve_name)
    ],
    files: Annotated[
        list[str], argument("FILE...", "Rows to label (.csv .tsv .jsonl .parquet .conll .txt), or -.")
    ],
    out: Annotated[Path | None, flag(_OUT, "--out", "-o", metavar="FILE")] = None,
    format: Annotated[
        str,
        flag(
            "csv, jsonl or, for tags, conll; default: from the extension of --out or FILE.", metavar="CHOICE"
        ),
    ] = "",
    engine: Engine = "local",
    address: Address = "",
    *,
    settings: Settings,
) -> None:
    """Label new rows.

    The output has every input column, then the prediction and the probability of each class (of an SVM, its
    scores).

    MODEL reads the same columns as elmokit fit did unless you
    name others. Rows are streamed, so files can have any length:

    [bold]elmokit predict my-classifier new.csv --out labeled.csv[/]
    """
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import predict

    reporter = Reporter("auto" if out is not None else "silent")
    how: Any = {"format": format, "engine": engine, "address": address}
    summary = predict(model, files, out, reporter=reporter, **how, **settings)
    for note in summary.notes:
        typer.echo(note, err=True)
    if out is not None:
        reporter.say(f"{summary.n_rows:,} rows labeled in {escape(str(out))}.")
