"""``elmokit inspect``: a readable card of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what a model is: sizes, vocabulary, corpus, perplexity, layers."""
    from rich.console import Console

    from elmokit.bilm.card import describe, render
    from elmokit.bilm.folder import load_bilm

    facts = describe(load_bilm(model), model)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        render(facts, Console(highlight=False))
