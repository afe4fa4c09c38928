"""``elmokit convert``: between published models, word-vector files and our folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

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
from elmokit.core.errors import ConfigError, DataError
from elmokit.text.settings import ReadConfig, TextConfig

if TYPE_CHECKING:
    from elmokit.core.console import Reporter

_TABLES = (".txt", ".vec", ".bin")


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
    from elmokit.core.model_folder import kind_of

    reporter = Reporter("silent" if as_json else "auto")
    if token_cache is not None:
        _write_cache(source, token_cache, out, as_json, reporter)
        return
    if out is None:
        raise ConfigError("OUT is missing.", remedy="Name the folder to write: elmokit convert SOURCE OUT.")
    if kind_of(source) == "word-vectors":
        _export_vectors(source, out, as_json, reporter)
    elif source.is_file() and _ending(source) in _TABLES:
        _import_vectors(source, out, max_words, settings, as_json, reporter)
    else:
        skip = calibrate == ["none"]
        _convert_model(
            source, out, to, vocab, [] if skip else calibrate or None, compact, settings, as_json, reporter
        )


def _convert_model(
    source: Path,
    out: Path,
    to: str,
    vocab: Path | None,
    calibrate: list[str] | None,
    compact: bool,
    settings: Settings,
    as_json: bool,
    reporter: Reporter,
) -> None:
    from elmokit.published.convert import convert

    text = TextConfig.from_dict({"unicode": "none", "unit": "sentence", **settings["text"]})
    result = convert(
        source,
        out,
        to=cast(Any, to),
        vocabulary=vocab,
        text=text if settings["text"] else None,
        calibrate=calibrate,
        compact=compact,
        read=ReadConfig.from_dict(settings["read"]),
        reporter=reporter,
        command=command_line(),
    )
    if as_json:
        print_json({"folder": str(out), "n_parameters": result.n_parameters, "notes": result.notes})
        return
    for note in result.notes:
        reporter.say(f"[yellow]note:[/] {escape(note)}")
    tolerance = " --tolerance 0.01" if compact else ""  # what half precision leaves
    reporter.say(
        f"[bold green]Done.[/] {escape(str(out))} holds the model, {result.n_parameters:,} parameters. "
        f"Check it: elmokit verify {escape(str(out))} {escape(str(source))}{tolerance}"
    )


def _ending(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1] if suffixes else ""


def _import_vectors(
    source: Path, out: Path, max_words: int | None, settings: Settings, as_json: bool, reporter: Reporter
) -> None:
    from elmokit.core.run_folder import open_out
    from elmokit.static.exchange import import_vectors

    open_out(out, "word-vectors", resume=True)
    read = {name: value for name, value in settings["read"].items() if name in ("encoding", "errors")}
    vectors = import_vectors(source, max_words=max_words, **read)
    text = TextConfig.from_dict({**vectors.text.to_dict(), **settings["text"]})
    vectors = replace(vectors, text=text, training={**vectors.training, "command": command_line()})
    vectors.save(out)
    n_skipped = int(vectors.training.get("n_left_out") or 0)
    if as_json:
        print_json(
            {"folder": str(out), "n_words": vectors.n_words, "dim": vectors.dim, "n_skipped": n_skipped}
        )
        return
    if n_skipped:
        reporter.say(f"[yellow]{n_skipped:,} words that contain a space were skipped.[/]")
    reporter.say(
        f"[bold green]Done.[/] {escape(str(out))} holds {vectors.n_words:,} words, "
        f"vectors {vectors.dim} wide."
    )


def _export_vectors(source: Path, out: Path, as_json: bool, reporter: Reporter) -> None:
    from elmokit.static.exchange import export_format, export_vectors
    from elmokit.static.word_vectors import WordVectors

    export_format(out)
    vectors = WordVectors.load(source)
    export_vectors(out, vectors)
    if as_json:
        print_json({"file": str(out), "n_words": vectors.n_words, "dim": vectors.dim})
        return
    reporter.say(f"[bold green]Done.[/] {vectors.n_words:,} words in {escape(str(out))}.")


def _write_cache(model: Path, vocab: Path, out: Path | None, as_json: bool, reporter: Reporter) -> None:
    if out is None and model.is_file():
        raise ConfigError(
            f"{model} is a file, so the vectors cannot go inside it.", remedy="Name a folder: OUT."
        )

    from elmokit.bilm.folder import load_bilm
    from elmokit.published.official import THEIR_SPECIALS, read_vocabulary
    from elmokit.vectors.word_cache import CACHE_FOLDER, write_token_cache

    saved = load_bilm(model)
    words = [
        saved.pipeline.word(word) for word in read_vocabulary(vocab) if word and word not in THEIR_SPECIALS
    ]
    if not words:
        raise DataError(f"{vocab} has no words.", remedy="Give a list of words, one per line.")
    folder = out or model / CACHE_FOLDER
    n_bytes = 4 * len(words) * saved.model.config.dim
    reporter.say(f"{len(words):,} words, {n_bytes / 1e6:,.1f} MB in {escape(str(folder))}.")
    with reporter.counting("Computing vectors", total=len(words), unit="words") as advance:
        n_kept = write_token_cache(saved, words, folder, progress=advance)
    if as_json:
        print_json({"folder": str(folder), "n_words": n_kept, "n_bytes": n_bytes})
        return
    use = (
        "They are used whenever the model is opened."
        if out is None
        else "Use them with Elmo.load(..., token_cache=...)."
    )
    reporter.say(f"[bold green]Done.[/] {n_kept:,} words. {use}")
