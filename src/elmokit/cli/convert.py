"""``elmokit convert``: published ELMo models to our folders and back."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli.options import model_folder, with_settings
from elmokit.core.errors import ConfigError
from elmokit.text.settings import ReadConfig, TextConfig

__all__ = ["command"]


@with_settings(
    {"text": TextConfig, "read": ReadConfig},
    {"text": "How raw text becomes words from now on", "read": "Reading the files of --calibrate"},
)
def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            parser=model_folder,
            help="A folder with options.json and weights.hdf5, the options file itself, an ELMoForManyLangs "
            "folder, or (with --to official or --compact) a folder of elmokit.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="DST", help="The folder to make; new or empty.")],
    to: Annotated[
        str, typer.Option(help="elmokit: our model folder; official: options.json, weights.hdf5, vocab.txt.")
    ] = "elmokit",
    vocab: Annotated[
        Path | None,
        typer.Option(help="The model's word list, if it is not beside it as vocab.txt.", show_default=False),
    ] = None,
    calibrate: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to measure the warm start state on: files, folders or patterns; may repeat. Else a "
            "small English sample that comes with elmokit.",
            show_default=False,
        ),
    ] = None,
    no_warm: Annotated[bool, typer.Option("--no-warm", help="Measure no start state: quicker.")] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="Numbers in half precision and no word predictor: a small folder, for vectors only.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    *,
    settings: dict[str, dict[str, Any]],
) -> None:
    """Turn a published ELMo model into a folder of elmokit, or a folder of elmokit into a published model.

    [bold]elmokit convert english-elmo my-elmo[/] reads options.json and weights.hdf5 and leaves a folder
    that every other command takes. [bold]elmokit convert my-elmo for-others --to official[/] writes these
    files for tools that need them. [bold]elmokit convert my-elmo to-share --compact[/] leaves out all that
    vectors do not need. Raw text is cut into words by rule, and nothing else is done to it,
    unless flags say otherwise. Prove the numbers with [bold]elmokit verify[/].
    """
    if no_warm and calibrate:
        raise ConfigError("--no-warm and --calibrate exclude each other.", remedy="Choose one.")
    text = TextConfig.from_dict({"unicode": "none", "unit": "sentence", **settings["text"]})
    read = ReadConfig.from_dict(settings["read"])

    from elmokit.core.console import Reporter
    from elmokit.published.convert import convert

    reporter = Reporter("silent" if as_json else "auto")
    made = convert(
        source,
        out,
        to=to,  # type: ignore[arg-type]
        vocabulary=vocab,
        text=text if settings["text"] else None,
        calibrate=[] if no_warm else calibrate or None,
        compact=compact,
        read=read,
        reporter=reporter,
        command=shlex.join(["elmokit", *sys.argv[1:]]),
    )
    if as_json:
        typer.echo(json.dumps({"folder": str(out), "n_parameters": made.n_parameters, "notes": made.notes}))
        return
    for note in made.notes:
        reporter.say(f"[yellow]note:[/] {escape(note)}")
    tolerance = " --tolerance 0.01" if compact else ""  # what half precision leaves
    reporter.say(
        f"[bold green]Done.[/] {escape(str(out))} holds the model, {made.n_parameters:,} parameters. "
        f"Check it: elmokit verify {escape(str(out))} {escape(str(source))}{tolerance}"
    )
