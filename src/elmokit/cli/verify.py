"""``elmokit verify``: whether a model gives the vectors that it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from elmokit.cli.options import resolve_model
from elmokit.core.errors import ConfigError, nearest

_STATES = ("zero", "warm", "stateful")


def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", parser=resolve_model, help="A model folder, or published ELMo files."
        ),
    ],
    expected: Annotated[
        Path,
        typer.Argument(
            metavar="EXPECTED",
            parser=resolve_model,
            help="An HDF5 file of vectors, a folder with *sentences*.json and *embeddings*.hdf5, or another "
            "model.",
        ),
    ],
    state: Annotated[
        str,
        typer.Option(help="Where sentences start \\[zero|warm|stateful]; published programs carry state on."),
    ] = "stateful",
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Sentences side by side, as in the program that made EXPECTED. Else as files are laid out, "
            "or 1.",
            min=1,
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option(
            help="The sentences: one a line, words between spaces; or JSON. Else found in EXPECTED, or a "
            "bundled few.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest difference, absolute or relative, that passes.", min=0)
    ] = 1e-5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare a model's vectors with expected ones: the largest difference of each layer.

    Words go in both by their characters and from a token cache. Ends with code 1 if a layer is off by more
    than the tolerance.
    """
    if state not in _STATES:
        raise ConfigError(f"--state {state} is not a choice.", remedy=nearest(state, _STATES))

    from elmokit.vectors.verify import verify

    found = verify(
        model,
        expected,
        state=state,  # type: ignore[arg-type]
        batch_size=batch_size,
        sentences=sentences,
        tolerance=tolerance,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        names = ("path", "layer", "largest absolute", "largest relative", "words")
        table = Table(*names, box=None, pad_edge=False)
        for row in found.differences:
            table.add_row(
                row.path, str(row.layer), f"{row.absolute:.2e}", f"{row.relative:.2e}", f"{row.n_words:,}"
            )
        console = Console(highlight=False)
        console.print(table)
        batches = "" if found.batch_size is None else f", batches of {found.batch_size}"
        verdict = "[bold green]Passed[/]" if found.passed else "[bold red]Differs[/]"
        console.print(
            f"{verdict}: {found.n_sentences:,} sentences, state {found.state}{batches}, "
            f"tolerance {found.tolerance:g}.",
            soft_wrap=True,
        )
    if not found.passed:
        raise typer.Exit(1)
