"""``elmokit evaluate``: how good a model is, by its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli.options import (
    LABELS,
    READ,
    Json,
    Model,
    Settings,
    argument,
    command_line,
    flag,
    print_json,
    with_settings,
)

if TYPE_CHECKING:
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import Evaluation


@with_settings(READ, LABELS)
def command(
    model: Model,
    files: Annotated[list[str], argument("FILE...", "Labeled rows, plain text, or word pairs: see above.")],
    out: Annotated[Path | None, flag("Folder for a report on labeled rows.", "--out", "-o")] = None,
    state: Annotated[
        str,
        typer.Option(help="Language models: state at the start of a text \\[carried|zero]."),
    ] = "carried",
    as_json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Measure a model. What is measured depends on its kind.

    [green]A fitted model[/]: accuracy, precision, recall and F1 on labeled rows; with --out, a report with
    the confusion matrix, calibration and the most confident mistakes. Columns named to fit need not be
    named again.

    [green]A language model[/]: exact perplexity of a text, in each direction and both. Words outside the
    vocabulary are predicted as <unk>; their share is shown, because perplexities under different
    vocabularies are not comparable.

    [green]Word vectors[/]: correlation with human similarity scores (word,word,score), or accuracy on
    analogy questions (a b c d).
    """
    from elmokit.bilm.perplexity import TextPerplexity
    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import evaluate

    reporter = Reporter("silent" if as_json else "auto")
    options: dict[str, Any] = {"out": out, "state": state, "reporter": reporter, "command": command_line()}
    result = evaluate(model, files, **options, **settings)
    details = result.details
    if as_json:
        print_json(result.to_json())
    elif isinstance(details, TextPerplexity):
        reporter.say(
            f"Perplexity [bold]{details.perplexity:,.2f}[/] "
            f"(forward {details.forward:,.2f}, backward {details.backward:,.2f})\n"
            f"[dim]{details.n_words:,} words in {details.n_documents:,} texts, "
            f"{details.unknown_share:.2%} unknown; exact, state {state}[/]"
        )
    elif isinstance(details, dict):
        for name, one in details.items():
            value = "not defined" if one.value is None else f"[bold]{one.value:.3f}[/]"
            covered = f"with {one.n_covered:,} of {one.n_total:,} in the vocabulary"
            reporter.say(f"{escape(name)}: {one.measure} {value}, {covered}.")
    else:
        _print_metrics(result, out, reporter)


def _print_metrics(result: Evaluation, out: Path | None, reporter: Reporter) -> None:
    from rich.table import Table

    from elmokit.tasks.task import format_scores

    speed = f"[dim]({result.details.n:,} rows, {result.speed:,.0f} per second)[/]"
    reporter.say(f"{format_scores(result.values, 4)} {speed}")
    for note in result.notes:
        reporter.say(f"[dim]{escape(note)}[/]")
    figures = result.details.to_json()
    if unseen := figures.get("unseen"):
        labels = ", ".join(f"{escape(name)} ({count})" for name, count in unseen.items())
        reporter.say(f"[yellow]Labels never seen in training, counted as wrong: {labels}[/]")
    if classes := figures.get("per_class"):
        table = Table("class", box=None, pad_edge=False, header_style="dim")
        for name in ("precision", "recall", "F1", "rows"):
            table.add_column(name, justify="right")
        for entry in classes:
            scores = (f"{entry[name]:.4f}" for name in ("precision", "recall", "f1"))
            table.add_row(escape(entry["name"]), *scores, f"{entry['support']:,}")
        reporter.console.print(table)
    if out is not None:
        reporter.say(f"Report: {escape(str(out / 'report.html'))}")
