"""``elmokit verify``: check the vectors of a model against reference vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.options import Json, Model, Reporter, argument, flag, with_settings
from elmokit.core.names import resolve_name

_EXPECTED = "An HDF5 file of vectors, a folder with *sentences*.json and *embeddings*.hdf5, or another model."
_STATE = "State at the start of a sentence \\[zero|warm|stateful]."
_BATCH_SIZE = "The batch size that EXPECTED was made with. Default: as in its files, or 1."
_SENTENCES = "Sentences, one per line with spaces between words, or JSON. Default: from EXPECTED, or bundled."
_TOLERANCE = "Largest difference, absolute or relative, that passes."


@with_settings()
def command(
    model: Model,
    expected: Annotated[Path, argument("EXPECTED", _EXPECTED, parser=resolve_name)],
    state: Annotated[str, typer.Option(help=_STATE, metavar="CHOICE")] = "stateful",
    batch_size: Annotated[int | None, flag(_BATCH_SIZE, metavar="INT", min=1)] = None,
    sentences: Annotated[Path | None, flag(_SENTENCES, metavar="FILE")] = None,
    tolerance: Annotated[float, typer.Option(help=_TOLERANCE, metavar="NUMBER", min=0)] = 1e-5,
    as_json: Json = False,
    *,
    reporter: Reporter,
) -> None:
    """Compare a model's vectors with expected ones: the largest difference of each layer.

    Words are encoded both from their characters and from a token cache. Exits with code 1 if a layer differs
    by more than the tolerance.
    """
    from elmokit.report.document import make_table
    from elmokit.report.render import print_table
    from elmokit.vectors.verify import verify

    options: Any = {"state": state, "batch_size": batch_size, "sentences": sentences}
    result = verify(model, expected, tolerance=tolerance, **options)
    reporter.result(result.to_dict())
    rows = [
        [row.path, str(row.layer), f"{row.absolute:.2e}", f"{row.relative:.2e}", f"{row.n_words:,}"]
        for row in result.differences
    ]
    heads = ["path", "layer", "largest absolute", "largest relative", "words"]
    batches = "" if result.batch_size is None else f", batches of {result.batch_size}"
    verdict = "[bold green]Passed[/]" if result.passed else "[bold red]Differs[/]"
    print_table(make_table(heads, rows), reporter.console)
    reporter.say(
        f"{verdict}: {result.n_sentences:,} sentences, state {result.state}{batches}, "
        f"tolerance {result.tolerance:g}."
    )
    if not result.passed:
        raise typer.Exit(1)
