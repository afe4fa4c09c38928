"""``elmokit predict``: labels and probabilities for new rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Settings, resolve_model, with_settings
from elmokit.core.errors import ConfigError
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

    [bold]elmokit predict my-classifier new.csv --out labelled.csv[/]
    """
    read = ReadConfig.from_dict(settings["read"])
    suffix = out.suffix[1:].lower() if out else ""
    if suffix in ("gz", "zst") or (format is None and suffix in ("tsv", "parquet")):
        raise ConfigError(
            f"Predictions are not written as .{suffix} files: {out}.", remedy="End --out in .csv or .jsonl."
        )
    ending = (format or suffix or _ending(files)).lower()
    if ending in ("ndjson", "json"):
        ending = "jsonl"
    if format is not None and ending not in ("csv", "jsonl"):
        raise ConfigError(f"--format {format} is not a choice.", remedy="Choose csv or jsonl.")
    if ending not in ("csv", "jsonl"):
        ending = "csv"

    from elmokit.core.console import Reporter
    from elmokit.core.model_folder import kind_of
    from elmokit.tasks.fit import cut_note
    from elmokit.tasks.folder import load_classifier
    from elmokit.tasks.linear import LinearModel
    from elmokit.tasks.model import TextClassifier
    from elmokit.text.predictions import PredictionWriter
    from elmokit.text.rows import Row, RowSource

    classifier = LinearModel.load(model) if kind_of(model) == "linear" else load_classifier(model)
    if isinstance(classifier, TextClassifier):
        read = classifier.reading(read)
    source = RowSource(files, read, labels="none", keep=True)
    reporter = Reporter("auto" if out is not None else "silent")
    separator = (
        classifier.separator if isinstance(classifier, TextClassifier) and classifier.multilabel else ""
    )
    pending: deque[Row] = deque()

    def texts() -> Iterator[str]:
        for row in source:
            pending.append(row)
            yield row.text

    n_rows = 0
    with (
        PredictionWriter(
            out,
            cast(Literal["csv", "jsonl"], ending),
            source.columns(),
            classifier.classes,
            separator=separator,
        ) as writer,
        reporter.counting("Predicting", unit="rows") as advance,
    ):
        for shares in classifier.stream(texts(), advance):
            labels = (
                [classifier.classes[place] for place in shares.argmax(axis=1)]
                if isinstance(classifier, LinearModel)
                else classifier.labels(shares)
            )
            for label, share in zip(labels, shares, strict=True):
                writer.write(pending.popleft(), label, share.tolist())
            n_rows += len(shares)
    for note in classifier.notes if isinstance(classifier, LinearModel) else cut_note(classifier):
        typer.echo(note, err=True)
    if out is not None:
        reporter.say(f"{n_rows:,} rows labelled in {escape(str(out))}.")


def _ending(files: list[str]) -> str:
    suffixes = [suffix.lower() for suffix in Path(files[0]).suffixes if suffix.lower() not in (".gz", ".zst")]
    return suffixes[-1][1:] if suffixes else ""
