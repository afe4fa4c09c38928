"""``elmokit convert``: between published models, word-vector files and our folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import (
    READ,
    Json,
    Section,
    Settings,
    command_line,
    print_json,
    resolve_model,
    with_settings,
)
from elmokit.text.settings import TextConfig


@with_settings(Section("text", TextConfig, "How raw text becomes words from now on", ()), READ)
def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            parser=resolve_model,
            help="options.json and weights.hdf5 (their folder, or the options file), an ELMoForManyLangs "
            "folder, a table of word vectors (.txt .vec .bin, also .gz), or an elmokit folder.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="Folder to write, new or empty; or a .txt, .vec or .bin file."),
    ] = None,
    to: Annotated[
        str, typer.Option(help="elmokit: a folder of ours; official: options.json, weights.hdf5, vocab.txt.")
    ] = "elmokit",
    vocab: Annotated[
        Path | None,
        typer.Option(help="The model's word list, if it is not beside it as vocab.txt.", show_default=False),
    ] = None,
    calibrate: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to measure the warm start state on, or none to skip it; may repeat. Default: a small "
            "bundled English sample.",
            show_default=False,
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Half precision and no word predictor: smaller, for vectors only."),
    ] = False,
    token_cache: Annotated[
        Path | None,
        typer.Option(
            help="Compute the token-encoder vectors of this word list (one word per line) once and keep them "
            "in OUT, or in the model folder, where they are used whenever the model is opened.",
            show_default=False,
        ),
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(help="Word vectors: read only the first so many words.", min=1, show_default=False),
    ] = None,
    as_json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Convert published models and word-vector files to elmokit folders, and back.

    [bold]elmokit convert english-elmo my-elmo[/] reads options.json and weights.hdf5;
    [bold]elmokit convert my-elmo for-others --to official[/] writes them.
    [bold]elmokit convert my-elmo small --compact[/] leaves out what vectors do not need.
    [bold]elmokit convert glove.txt my-glove[/] reads word vectors of word2vec, GloVe, fastText or gensim;
    [bold]elmokit convert my-glove table.txt[/] writes them. Check a converted model with
    [bold]elmokit verify[/].
    """
    from elmokit.core.console import Reporter
    from elmokit.published.convert import convert

    reporter = Reporter("silent" if as_json else "auto")
    given: dict[str, Any] = {**settings["text"], **settings["read"]}
    if max_words is not None:
        given["max_words"] = max_words
    result = convert(
        source,
        out,
        to=cast(Any, to),
        vocab=vocab,
        calibrate=calibrate,
        compact=compact,
        token_cache=token_cache,
        reporter=reporter,
        command=command_line(),
        **given,
    )
    if as_json:
        record = {"folder": str(result.path), "n_parameters": result.n_parameters, "notes": result.notes}
        print_json(record if result.n_words is None else {**record, "n_words": result.n_words})
        return
    for note in result.notes:
        reporter.say(f"[yellow]note:[/] {escape(note)}")
    path = escape(str(result.path))
    if token_cache is not None:
        use = "whenever the model is opened" if out is None else "with Elmo.load(..., token_cache=...)"
        reporter.say(f"[bold green]Done.[/] {path} has {result.n_words:,} words. They are used {use}.")
    elif result.n_words is not None:
        reporter.say(f"[bold green]Done.[/] {path} has the vectors of {result.n_words:,} words.")
    else:
        tolerance = " --tolerance 0.01" if compact else ""  # what half precision leaves
        reporter.say(
            f"[bold green]Done.[/] {path} has the model, {result.n_parameters:,} parameters. "
            f"Check it: elmokit verify {path} {escape(str(source))}{tolerance}"
        )
