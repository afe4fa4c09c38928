"""``elmokit inspect``: a readable card of a model folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.options import resolve_model


def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            parser=resolve_model,
            help="A bundled model, a biLM, classifier or word-vector folder, or published ELMo files.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what a model is: sizes, corpus, perplexity and layers; classes, mix weights and accuracy."""
    from rich.console import Console

    from elmokit.core.formatting import format_size
    from elmokit.core.model_card import print_facts
    from elmokit.core.model_folder import load

    loaded = load(model)
    facts = loaded.facts()
    home = model if model.is_dir() else model.parent
    files = [file for file in home.rglob("*") if file.is_file() and file.relative_to(home).parts[0] != "run"]
    n_bytes = sum(file.stat().st_size for file in files)
    title = model.name or model.resolve().name
    if as_json:
        values = {"folder": title, "kind": loaded.kind, **facts.values, "bytes": n_bytes}
        typer.echo(json.dumps(values, ensure_ascii=False))
    else:
        facts = replace(facts, title=title, rows=(*facts.rows, ("on disk", format_size(n_bytes))))
        print_facts(facts, Console(highlight=False))
