"""``elmokit demo``: the whole road on a small corpus that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.")] = Path("elmokit-demo"),
) -> None:
    """Train a tiny ELMo on the bundled news corpus, save it, open it and describe it.

    Takes about a minute on two cores and needs no network. Run again, it goes on or shows what
    it has made.
    """
    from rich.console import Console

    from elmokit.bilm.card import describe, render
    from elmokit.bilm.folder import load_bilm
    from elmokit.bilm.pretraining import pretrain
    from elmokit.config import resolve
    from elmokit.corpora import mini_news
    from elmokit.training.progress import Reporter

    reporter = Reporter()
    reporter.say(
        "[bold]1. Pretraining[/] a tiny ELMo on 680 short news texts that come with elmokit.\n"
        "   Perplexity on held-out texts is how many words it hesitates between: watch it fall.\n"
    )
    config = resolve("tiny", {"training": {"held_out": 0.05}})
    result = pretrain([mini_news()], out, config, reporter=reporter, command="elmokit demo")
    if result.stopped == "interrupted":
        reporter.say("Saved. Run elmokit demo again to go on.")
        raise typer.Exit(130)
    if result.was_done:
        reporter.say(f"Already trained; delete {out} to see it learn again.")
    reporter.say(f"\n[bold]2. Loading[/] what was saved in {out}:\n")
    saved = load_bilm(out)
    render(describe(saved, out), Console(highlight=False))
    reporter.say(
        "\n[bold]3. Your turn:[/] elmokit pretrain my_text.txt --out my-elmo\n   "
        "(elmokit pretrain --help explains it; after make demo, elmokit is in .venv/bin)"
    )
