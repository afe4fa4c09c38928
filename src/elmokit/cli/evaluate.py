"""``elmokit evaluate``: how good a model is, by its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli import options


@options.with_settings(options.READ, options.LABELS, overwrite=True)
def command(
    model: options.Model,
    files: Annotated[
        list[str], options.argument("FILE...", "Labeled rows, plain text, or word pairs: see above.")
    ],
    out: Annotated[
        Path | None, options.flag("Folder for a report on labeled rows.", "--out", "-o", metavar="FOLDER")
    ] = None,
    state: Annotated[
        str,
        typer.Option(
            help="Language models: state at the start of a text \\[carried|zero].", metavar="CHOICE"
        ),
    ] = "carried",
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Measure a model. What is measured depends on its kind.

    [green]A fitted model[/]: accuracy, precision, recall and F1 on labeled rows; with --out, a report with
    the confusion matrix, calibration and the most confident mistakes. It reads the same
    columns as elmokit fit did.

    [green]A language model[/]: exact perplexity of a text, forward, backward and combined. Words outside the
    vocabulary are predicted as <unk>, and their share is shown. Compare perplexities only between models
    with the same vocabulary.

    [green]Word vectors[/]: correlation with human similarity scores (word,word,score), or accuracy on
    analogy questions (a b c d).
    """
    from elmokit.bilm.perplexity import TextPerplexity
    from elmokit.core.formatting import plural
    from elmokit.report.document import make_table
    from elmokit.report.render import print_table
    from elmokit.tasks.fit import evaluate
    from elmokit.tasks.task import format_score_name, format_scores

    settings |= {"out": out, "state": state, "command": options.command_line()}
    result = evaluate(model, files, reporter=reporter, **settings)
    details, figures = result.details, result.to_json()
    reporter.result(figures)
    if isinstance(details, TextPerplexity):
        reporter.say(
            f"Perplexity [bold]{details.perplexity:,.2f}[/] "
            f"(forward {details.forward:,.2f}, backward {details.backward:,.2f})\n"
            f"[dim]{plural(details.n_words, 'word')} in {plural(details.n_documents, 'text')}, "
            f"{details.unknown_share:.2%} unknown; exact, state {state}[/]"
        )
        return
    if isinstance(details, dict):
        for name, one in details.items():
            value = "not defined" if one.value is None else f"[bold]{one.value:.3f}[/]"
            covered = f"with {one.n_covered:,} of {one.n_total:,} in the vocabulary"
            reporter.say(f"{escape(name)}: {one.measure} {value}, {covered}.")
        return
    speed = f"[dim]({details.n:,} rows, {result.speed:,.0f} per second)[/]"
    reporter.say(f"{format_scores(result.values, 4)} {speed}")
    for note in result.notes:
        reporter.note(note)
    if (part := result.part) and (scores := part.scores(figures)):
        rows = [[name, *map("{:.4f}".format, shares), f"{n:,}"] for name, (*shares, n) in scores.items()]
        print_table(make_table(map(format_score_name, (part.title, *part.columns)), rows), reporter.console)
    if out is not None:
        reporter.say(f"Report: {escape(str(out / 'report.html'))}")
