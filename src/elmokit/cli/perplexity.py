"""``elmokit perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from elmokit.cli.options import model_folder, with_settings
from elmokit.core.errors import ConfigError
from elmokit.text.settings import ReadConfig

__all__ = ["command"]


@with_settings({"read": ReadConfig}, {"read": "Reading files"})
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", parser=model_folder, help="A model folder.")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, patterns, or -.")],
    state: Annotated[
        str,
        typer.Option(help="carried: read on from text to text; zero: start every text afresh."),
    ] = "carried",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    *,
    settings: dict[str, dict[str, Any]],
) -> None:
    """Exact perplexity of a text under a model, each direction and both.

    Always over the whole vocabulary. Words outside it are predicted as <unk>; their share is shown,
    because perplexities under different vocabularies cannot be compared.
    """
    if state not in ("carried", "zero"):
        raise ConfigError(f"--state {state} is not a choice.", remedy="Choose carried or zero.")

    from elmokit.bilm.measuring import text_perplexity
    from elmokit.core.console import Reporter

    reporter = Reporter("silent" if as_json else "auto")
    read = ReadConfig.from_dict(settings["read"])
    found = text_perplexity(model, texts, read=read, state=state, reporter=reporter)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps(found))
        return
    reporter.say(
        f"Perplexity [bold]{found['perplexity']:,.2f}[/] "
        f"(forward {found['forward']:,.2f}, backward {found['backward']:,.2f})\n"
        f"[dim]{found['n_words']:,} words in {found['n_documents']:,} texts, "
        f"{found['unknown_share']:.2%} unknown; exact, state {state}[/]"
    )
