"""``elmokit embed``: texts to vectors on disk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Section, Settings, with_settings
from elmokit.core.names import resolve_name
from elmokit.vectors.settings import EXPORTS, StoreConfig

_SHOWN = ("layer", "mix_weights", "all_layers", "pool", "dtype", "format", "state", "id_column")


@with_settings(Section("store", StoreConfig, "What to keep", _SHOWN), READ)
def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", parser=resolve_name, help="A bundled model, a folder, or published ELMo files."
        ),
    ],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, patterns, or -.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the vectors.", show_default=False)],
    export: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Write them in another format, too \\[{'|'.join(EXPORTS)}]; may repeat.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: Settings,
) -> None:
    """Turn texts into contextual vectors and keep them on disk.

    One vector for each word, or, with [bold]--pool mean[/], one for each text, which
    [bold]elmokit.search[/] can look through. The size is said before anything is computed. Stop it
    with Ctrl-C, cut the power: the same command goes on where it was, to the same bytes.
    """
    from elmokit.core.console import Reporter
    from elmokit.vectors.store_writer import embed

    reporter = Reporter("json" if as_json else "auto")
    try:
        result = embed(model, texts, out, exports=export or (), reporter=reporter, **settings)
    except KeyboardInterrupt:
        reporter.event("end", folder=str(out), stopped="interrupted")
        reporter.say("[bold]Interrupted.[/] What was done is kept. Run the same command to resume.")
        raise typer.Exit(130) from None
    reporter.event(
        "end",
        folder=str(out),
        stopped="done",
        was_done=result.was_done,
        n_texts=result.n_texts,
        n_words=result.n_words,
        n_vectors=result.n_vectors,
        n_empty=result.n_empty,
        n_bytes=result.n_bytes,
        exports=[file.name for file in result.exports],
        seconds=round(result.seconds, 1),
    )
    if result.was_done:
        reporter.say(
            f"[bold green]Already done.[/] {escape(str(out))} holds {result.n_vectors:,} vectors "
            f"of {result.n_texts:,} texts."
        )
    else:
        n_now = result.n_texts - result.n_resumed
        reporter.say(
            f"[bold green]Done.[/] {n_now:,} texts in {result.seconds:,.1f} s "
            f"({n_now / max(result.seconds, 1e-9):,.0f} texts/s)."
        )
    for file in result.exports:
        reporter.say(f"Exported: [bold]{escape(str(file))}[/]")
    if settings.get("pool", "none") == "none":
        given, made = (escape(shlex.quote(str(path))) for path in (model, out))
        reporter.say(f'Look for words: elmokit similar {given} "a sentence" --in {made}')
    else:
        reporter.say(f'Look for texts: elmokit.search("{escape(str(out))}", ["a sentence"], elmo)')
