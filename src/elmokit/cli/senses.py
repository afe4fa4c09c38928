"""``elmokit senses``: in which senses a word is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli import options
from elmokit.text.settings import ReadConfig

_CORPUS = "Where to look: files, folders, patterns, or -; can be repeated."
_LABELED = (
    "Examples with the columns text and sense (and word): each use gets the sense of the nearest examples."
)
_LAYER = "Compare by the word's vector in this layer; default: by the sentence vector, if the model has one."


@options.with_settings(options.READ, overwrite=True)
def command(  # many parameters because each is an argument or a flag
    model: options.Model,
    word: Annotated[str, options.argument("WORD", "The word to look at.")],
    corpus: Annotated[list[str], options.flag(_CORPUS, "--in", metavar="FILE")],
    k: Annotated[
        int | None,
        options.flag("Number of senses; default: 1 to 6, by silhouette score.", "-k", "--k", metavar="INT"),
    ] = None,
    labeled: Annotated[Path | None, options.flag(_LABELED, metavar="FILE")] = None,
    layer: Annotated[int | None, options.flag(_LAYER, metavar="INT")] = None,
    at_most: Annotated[
        int, typer.Option(help="Sentences to look at, drawn at random.", metavar="INT")
    ] = 2000,
    out: Annotated[
        Path | None, options.flag("Folder for a report with a map.", "--out", "-o", metavar="FOLDER")
    ] = None,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Show the senses in which a word is used in a corpus.

    The sentences with the word are grouped by k-means. For each sense, it shows the share of sentences,
    its typical words, and three typical sentences.
    """
    from elmokit.cli.similar import around
    from elmokit.core.config import merge_settings
    from elmokit.text.rows import TextSource
    from elmokit.vectors.senses import senses

    given: Any = {"overwrite": settings.pop("overwrite", False), "command": options.command_line()}
    given |= {
        "k": k,
        "labeled": labeled,
        "layer": layer,
        "at_most": at_most,
        "out": out,
        "reporter": reporter,
    }
    read: Any = merge_settings(settings, read=ReadConfig())["read"]
    result = senses(model, word, TextSource(corpus, read, say=reporter.note), **given)
    reporter.result(result.to_json())
    counts = f"{len(result.uses):,} of {result.n_found:,} sentences, compared by {result.compared_by}"
    silhouette = "" if result.silhouette is None else f", silhouette {result.silhouette:.2f}"
    reporter.say(f"[bold cyan]{escape(word)}[/]  [dim]{counts}{silhouette}[/]")
    for sense in result.senses:
        reporter.say(
            f"\n[bold]{escape(sense.name)}[/]  {sense.share:.0%}  [dim]{escape(', '.join(sense.keywords))}[/]"
        )
        for use in sense.examples:
            before, after = around(use.words, use.position)
            reporter.say(f"  {escape(before)}[cyan]{escape(use.word)}[/]{escape(after)}")
    if out is not None:
        reporter.say(f"\nReport: {escape(str(out / 'report.html'))}")
