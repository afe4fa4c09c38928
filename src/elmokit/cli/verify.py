"""``elmokit verify``: whether a model gives the vectors that it should."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.options import Json, Model, argument, flag, print_json
from elmokit.core.names import resolve_name

_EXPECTED = "An HDF5 file of vectors, a folder with *sentences*.json and *embeddings*.hdf5, or another model."
_SENTENCES = "The sentences: one per line, words between spaces; or JSON. Default: in EXPECTED, or bundled."


def command(
    model: Model,
    expected: Annotated[Path, argument("EXPECTED", _EXPECTED, parser=resolve_name)],
    state: Annotated[
        str,
        typer.Option(help="State at the start of a sentence \\[zero|warm|stateful]."),
    ] = "stateful",
    batch_size: Annotated[
        int | None,
        flag(
            "Sentences side by side when EXPECTED was made. Default: as in its files, or 1.",
            min=1,
        ),
    ] = None,
    sentences: Annotated[Path | None, flag(_SENTENCES)] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest difference, absolute or relative, that passes.", min=0)
    ] = 1e-5,
    as_json: Json = False,
) -> None:
    """Compare a model's vectors with expected ones: the largest difference of each layer.

    Words are encoded both from their characters and from a token cache. Exits with code 1 if a layer differs
    by more than the tolerance.
    """
    from rich.table import Table

    from elmokit.core.console import Reporter
    from elmokit.vectors.verify import verify

    options: dict[str, Any] = {"state": state, "batch_size": batch_size, "sentences": sentences}
    result = verify(model, expected, tolerance=tolerance, **options)
    if as_json:
        print_json(result.to_dict())
    else:
        table = Table(
            "path", "layer", "largest absolute", "largest relative", "words", box=None, pad_edge=False
        )
        for row in result.differences:
            errors = f"{row.absolute:.2e}", f"{row.relative:.2e}"
            table.add_row(row.path, str(row.layer), *errors, f"{row.n_words:,}")
        batches = "" if result.batch_size is None else f", batches of {result.batch_size}"
        verdict = "[bold green]Passed[/]" if result.passed else "[bold red]Differs[/]"
        reporter = Reporter()
        reporter.console.print(table)
        reporter.say(
            f"{verdict}: {result.n_sentences:,} sentences, state {result.state}{batches}, "
            f"tolerance {result.tolerance:g}."
        )
    if not result.passed:
        raise typer.Exit(1)
