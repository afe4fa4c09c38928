"""``elmokit convert``: between published models, word-vector files and our folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli import options
from elmokit.core.names import resolve_name

_SOURCE = (
    "options.json and weights.hdf5 (their folder, or the options file), an ELMoForManyLangs folder, a table "
    "of word vectors (.txt .vec .bin, also .gz), or an elmokit folder."
)
_TOKEN_CACHE = (
    "Compute the token-encoder vectors of this word list (one word per line) and keep them in OUT, or in the "
    "model folder, where they are used whenever the model is opened."
)


@options.with_settings(options.TEXT, options.READ, overwrite=True)
def command(  # many parameters because each is an argument or a flag
    source: Annotated[Path, options.argument("SOURCE", _SOURCE, parser=resolve_name)],
    out: Annotated[
        Path | None, options.argument("OUT", "Folder to write, new or empty; or a .txt, .vec or .bin file.")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="elmokit: an elmokit model folder; official: options.json, weights.hdf5, vocab.txt.",
            metavar="CHOICE",
        ),
    ] = "elmokit",
    vocab: Annotated[
        Path | None, options.flag("Word list, if there is no vocab.txt next to the model.", metavar="FILE")
    ] = None,
    calibrate: Annotated[
        list[str] | None,
        options.flag(
            "Text to estimate the warm start state from, or none to skip it; can be repeated.", metavar="FILE"
        ),
    ] = None,
    compact: Annotated[
        bool,
        options.flag("Smaller: half precision and no output layer; for computing vectors only.", "--compact"),
    ] = False,
    token_cache: Annotated[Path | None, options.flag(_TOKEN_CACHE, metavar="FILE")] = None,
    max_words: Annotated[
        int | None, options.flag("Word vectors: read only the first N words.", metavar="INT", min=1)
    ] = None,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Convert published models and word-vector files to elmokit folders, and back.

    [bold]elmokit convert english-elmo my-elmo[/] reads options.json and weights.hdf5;
    [bold]elmokit convert my-elmo for-others --to official[/] writes them.
    [bold]elmokit convert my-elmo small --compact[/] drops what is needed only for training.
    [bold]elmokit convert glove.txt my-glove[/] reads word vectors from word2vec, GloVe, fastText or gensim;
    [bold]elmokit convert my-glove table.txt[/] writes them. Check a converted model with
    [bold]elmokit verify[/].
    """
    from elmokit.published.convert import convert

    settings |= {"max_words": max_words} if max_words is not None else {}
    settings |= {"to": to, "vocab": vocab, "calibrate": calibrate, "compact": compact}
    settings |= {"token_cache": token_cache, "reporter": reporter, "command": options.command_line()}
    result = convert(source, out, **settings)
    record = {"folder": str(result.path), "n_parameters": result.n_parameters, "notes": result.notes}
    reporter.result(record if result.n_words is None else {**record, "n_words": result.n_words})
    for note in result.notes:
        reporter.say(f"[yellow]note:[/] {escape(note)}")
    done = f"[bold green]Done.[/] {escape(str(result.path))} has"
    if token_cache is not None:
        use = "whenever the model is opened" if out is None else "with Elmo.load(..., token_cache=...)"
        reporter.say(f"{done} {result.n_words:,} words. They are used {use}.")
    elif result.n_words is not None:
        reporter.say(f"{done} the vectors of {result.n_words:,} words.")
    else:
        tolerance = ("--tolerance", "0.01") if compact else ()  # for half precision
        check = options.next_command("verify", result.path, source, *tolerance)
        reporter.say(f"{done} the model, {result.n_parameters:,} parameters. Check it: {check}")
