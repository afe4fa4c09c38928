"""``elmokit embed``: texts to vectors on disk."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from rich.markup import escape

from elmokit.cli import options
from elmokit.vectors.settings import EXPORTS, StoreConfig

_SHOWN = ("layer", "mix_weights", "all_layers", "pool", "dtype", "format", "state", "id_column")


@options.with_settings(
    options.Section("store", StoreConfig, "What to keep", _SHOWN), options.READ, overwrite=True
)
def command(
    model: options.Model,
    texts: options.Texts,
    out: options.Out,
    export: Annotated[
        list[str] | None,
        options.flag(
            f"Also write the vectors in this format \\[{'|'.join(EXPORTS)}]; can be repeated.",
            metavar="CHOICE",
        ),
    ] = None,
    engine: options.Engine = "local",
    address: options.Address = "",
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Turn texts into contextual vectors and save them.

    It writes one vector per word or, with [bold]--pool sentence[/], one per text, for
    [bold]elmokit search[/]. The output size is shown before anything is computed. If it is interrupted, run
    the same command again: it resumes and produces the same bytes.
    """
    from elmokit.vectors.store_writer import embed

    how: Any = {"engine": engine, "address": address, "reporter": reporter}
    result = embed(model, texts, out, exports=export or (), **how, **settings)
    names = {"folder": str(out), "exports": [file.name for file in result.exports]}
    reporter.event(
        "end", **{**asdict(result), **names, "stopped": "done", "seconds": round(result.seconds, 1)}
    )
    n_now = result.n_texts - result.n_resumed
    ending = f"[bold green]Done.[/] {n_now:,} texts in {result.seconds:,.1f} s "
    ending += f"({n_now / max(result.seconds, 1e-9):,.0f} texts/s)."
    if result.was_done:
        counts = f"{result.n_vectors:,} vectors of {result.n_texts:,} texts"
        ending = f"[bold green]Already done.[/] {escape(str(out))} holds {counts}."
    reporter.say(ending)
    for file in result.exports:
        reporter.say(f"Exported: [bold]{escape(str(file))}[/]")
    if settings.get("pool", "none") == "none":
        reporter.say(f"Look for words: {options.next_command('similar', model, 'a sentence', '--in', out)}")
    else:
        reporter.say(f"Look for texts: {options.next_command('search', out, 'a sentence', '--model', model)}")
