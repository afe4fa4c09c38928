"""``elmokit cache``: token-encoder vectors of a vocabulary, kept beside the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli.options import model_folder
from elmokit.core.errors import ConfigError, DataError

__all__ = ["command"]


def command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", parser=model_folder, help="A model folder, or published ELMo files."),
    ],
    vocab: Annotated[Path, typer.Argument(metavar="VOCAB", help="A list of words, one a line, UTF-8.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the vectors. Else token_cache in the model folder, where it is found.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compute the token-encoder vectors of a vocabulary once, and keep them on disk.

    A character CNN is then spared for these words whenever the model is opened; any other word is computed
    when it comes, alone. The vectors are mapped, not read, so a large list costs no memory.
    """
    if out is None and model.is_file():
        raise ConfigError(
            f"{model} is not a folder that the vectors could be put into.", remedy="Say where with --out."
        )

    from elmokit.bilm.folder import load_bilm
    from elmokit.core.console import Reporter
    from elmokit.published.official import THEIR_SPECIALS, read_vocabulary
    from elmokit.vectors.token_cache import CACHE_FOLDER, write_token_cache

    reporter = Reporter("silent" if as_json else "auto")
    saved = load_bilm(model)
    words = [
        saved.pipeline.word(word) for word in read_vocabulary(vocab) if word and word not in THEIR_SPECIALS
    ]
    if not words:
        raise DataError(f"{vocab} holds no word.", remedy="Give a list of words, one a line.")
    folder = out or model / CACHE_FOLDER
    n_bytes = 4 * len(words) * saved.model.config.dim
    reporter.say(f"{len(words):,} words, {n_bytes / 1e6:,.1f} MB in {escape(str(folder))}.")
    with reporter.counting("Computing vectors", total=len(words), unit="words") as advance:
        n_kept = write_token_cache(saved, words, folder, progress=advance)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "n_words": n_kept, "n_bytes": n_bytes}))
        return
    how = (
        "It is used whenever the model is opened."
        if out is None
        else "Open it with Elmo.load(..., token_cache=...)."
    )
    reporter.say(f"[bold green]Done.[/] {n_kept:,} words are kept. {how}")
