"""``elmokit inspect``: a readable card of a model folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

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

    from elmokit.bilm import card as bilm_card
    from elmokit.bilm.folder import load_bilm
    from elmokit.core.model_folder import kind_of

    console = Console(highlight=False)
    kind = kind_of(model)
    if kind == "classifier":
        from elmokit.tasks import card
        from elmokit.tasks.folder import load_classifier

        facts = card.describe(load_classifier(model), model)
        render = card.render
    elif kind == "word-vectors":
        from elmokit.core.model_card import print_facts
        from elmokit.static.word_vectors import WordVectors

        card_facts = replace(WordVectors.load(model).facts(), title=model.resolve().name)
        facts = {"folder": card_facts.title, **card_facts.values}

        def render(facts: dict[str, Any], console: Console) -> None:
            print_facts(card_facts, console)

    else:
        facts = bilm_card.describe(load_bilm(model), model)
        render = bilm_card.render
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        render(facts, console)
