"""``elmokit demo``: what contextual vectors can do, on texts that come with the package."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli.options import Reporter, flag, next_command, with_settings
from elmokit.core.names import DEFAULT, resolve_name

if TYPE_CHECKING:
    from elmokit.vectors.elmo import Elmo

_WORD = "bank"
_SENTENCES = [
    "He sat on the bank of the river and watched the boats.",
    "Reeds grow along the bank of the stream.",
    "The bank raised its rates again on Thursday.",
    "Shares in the bank fell after it warned on profits.",
]
_METHODS = "stack,elmo-trainable,elmo-frozen,elmo-function,sgns,cbow,svd,tfidf-svm"
_OUT, _TITLE = "Folder for the report and its best model.", "The demo: topics of the bundled news texts"


@with_settings()
def command(
    out: Annotated[Path, typer.Option("--out", "-o", help=_OUT, metavar="FOLDER")] = Path("elmokit-demo"),
    model: Annotated[
        Path | None, flag("A model to use instead of the bundled one.", metavar="MODEL", parser=resolve_name)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of random seeds per method.", metavar="INT", min=1)] = 3,
    *,
    reporter: Reporter,
) -> None:
    """See in two minutes what contextual vectors can do.

    Shows one word in several senses; then fits the default classifier, ELMo with three mixes, skip-gram
    and CBOW (extra static), SVD and a linear model on the bundled news texts, prints the ranking and writes
    a report. Everything is computed on this machine, without a network. If you run it again, it resumes or
    shows the results again.
    """
    from elmokit.comparison.compare import compare
    from elmokit.comparison.report import print_comparison
    from elmokit.corpora import write_mini_news_split
    from elmokit.vectors.elmo import Elmo

    folder = model or resolve_name(DEFAULT)
    _show_senses(Elmo.load(folder), folder.name, reporter)
    train, test = write_mini_news_split(out)
    reporter.say(
        "[bold]2. Topics of news texts[/]: every method learns from the same few labeled texts\n"
        "   [dim]ELMo was pretrained on general English; the other methods see only these texts.[/]\n"
    )
    name, report = str(model or DEFAULT), out / "report"
    settings: Any = {"methods": _METHODS, "seeds": seeds, "encoder": folder, "reporter": reporter}
    settings |= {"text_columns": "text", "label_column": "topic", "command": "elmokit demo", "title": _TITLE}
    comparison = compare(train, test, report, **settings)
    if comparison.failed:
        raise typer.Exit(1)
    print_comparison(comparison, reporter.console)
    reporter.say(
        f"\n[bold]Your turn:[/]\n   open    {escape(str(report / 'report.html'))}\n"
        f"   explore {next_command('serve', name, report / 'best', report)}\n"
        f"   compare {next_command('compare', 'train.csv', 'test.csv', '--out', 'report')}\n"
        f"   train   {next_command('pretrain', 'my_text.txt', '--out', 'my-elmo')}\n"
        "   [dim](after make demo, elmokit is in .venv/bin)[/]"
    )


def _show_senses(elmo: Elmo, name: str, reporter: Reporter) -> None:
    """One word in several sentences: its nearest occurrences, and how similar it is to itself."""
    import numpy as np

    from elmokit.cli.similar import show_similar
    from elmokit.corpora import mini_news
    from elmokit.report.document import make_table
    from elmokit.report.render import print_table
    from elmokit.text.rows import TextSource
    from elmokit.text.settings import ReadConfig
    from elmokit.vectors.neighbors import Occurrences, SimilarWords, cosines, mix_layers, unit_rows

    reporter.say(
        f"[bold]1. One word, more than one sense[/]  [dim]({escape(name)}, mean of the LSTM layers)[/]\n"
        "   Below each sentence: the most similar uses in the bundled texts, with their cosine similarity."
    )
    texts = TextSource([mini_news()], ReadConfig(text_columns="text"))
    with reporter.counting("Reading the bundled texts", unit="words") as advance:
        corpus = Occurrences.read(elmo, list(texts), progress=advance)
    embeddings = elmo.embed(_SENTENCES)
    weights = [0.0, *[1.0 / (elmo.n_layers - 1)] * (elmo.n_layers - 1)]  # layer 0 has no context
    vectors = []
    for words, rows in zip(embeddings.tokens, embeddings.mixed(weights), strict=True):
        place = words.index(_WORD)
        vectors.append(rows[place])
        neighbors = corpus.nearest(rows[place], partial(mix_layers, weights=weights), 2)
        show_similar(words, SimilarWords(_WORD, place, neighbors), reporter.console)
    scores = cosines(np.stack(vectors), unit_rows(np.stack(vectors)))
    cells = [[str(number), *(f"{score:.2f}" for score in row)] for number, row in enumerate(scores, 1)]
    reporter.say(f"\nCosine of the vectors of “{_WORD}” (1 is the same), sentence by sentence:\n")
    print_table(make_table(["", *(row[0] for row in cells)], cells), reporter.console)
    reporter.say("[dim]With static vectors every number in this table would be 1.00.[/]\n")
