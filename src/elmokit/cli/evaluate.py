"""``elmokit evaluate``: how good a model is, by its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from elmokit.cli import options

if TYPE_CHECKING:
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import Evaluation


@options.with_settings(options.READ, options.LABELS, overwrite=True)
def command(
    model: options.Model,
    files: Annotated[
        list[str], options.argument("FILE...", "Labeled rows, plain text, or word pairs: see above.")
    ],
    out: Annotated[Path | None, options.flag("Folder for a report on labeled rows.", "--out", "-o")] = None,
    state: Annotated[
        str, typer.Option(help="Language models: state at the start of a text \\[carried|zero].")
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
    from elmokit.tasks.fit import evaluate

    settings |= {"out": out, "state": state, "command": options.command_line()}
    result = evaluate(model, files, reporter=reporter, **settings)
    details = result.details
    if as_json:
        options.print_json(result.to_json())
    elif isinstance(details, TextPerplexity):
        reporter.say(
            f"Perplexity [bold]{details.perplexity:,.2f}[/] "
            f"(forward {details.forward:,.2f}, backward {details.backward:,.2f})\n"
            f"[dim]{plural(details.n_words, 'word')} in {plural(details.n_documents, 'text')}, "
            f"{details.unknown_share:.2%} unknown; exact, state {state}[/]"
        )
    elif isinstance(details, dict):
        for name, one in details.items():
            value = "not defined" if one.value is None else f"[bold]{one.value:.3f}[/]"
            covered = f"with {one.n_covered:,} of {one.n_total:,} in the vocabulary"
            reporter.say(f"{escape(name)}: {one.measure} {value}, {covered}.")
    else:
        _print_metrics(result, reporter)
        if out is not None:
            reporter.say(f"Report: {escape(str(out / 'report.html'))}")


def _print_metrics(result: Evaluation, reporter: Reporter) -> None:
    from elmokit.report.document import make_table
    from elmokit.report.render import print_table
    from elmokit.tasks.task import format_scores

    speed = f"[dim]({result.details.n:,} rows, {result.speed:,.0f} per second)[/]"
    reporter.say(f"{format_scores(result.values, 4)} {speed}")
    for note in result.notes:
        reporter.note(note)
    figures = result.details.to_json()
    if unseen := figures.get("unseen"):
        labels = ", ".join(f"{escape(name)} ({count})" for name, count in unseen.items())
        reporter.say(f"[yellow]Labels never seen in training, counted as wrong: {labels}[/]")
    if classes := figures.get("per_class"):
        names = ("precision", "recall", "f1")
        rows = [[one["name"], *(f"{one[n]:.4f}" for n in names), f"{one['support']:,}"] for one in classes]
        print_table(make_table(["class", "precision", "recall", "F1", "rows"], rows), reporter.console)
