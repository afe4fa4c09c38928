"""``elmokit evaluate``: how good a model is, by its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import LABELS, READ, Json, Model, Settings, command_line, print_json, with_settings
from elmokit.core.errors import ConfigError, nearest
from elmokit.text.settings import LabelConfig, ReadConfig

if TYPE_CHECKING:
    from elmokit.core.console import Reporter

_STATES = ("carried", "zero")


@with_settings(READ, LABELS)
def command(
    model: Model,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Labeled rows, plain text, or word pairs: see above."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for a report on labeled rows.", show_default=False),
    ] = None,
    state: Annotated[
        str, typer.Option(help="Language models: carry the state from text to text, or start from zero.")
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
    from elmokit.core.console import Reporter
    from elmokit.core.model_folder import kind_of

    if state not in _STATES:
        raise ConfigError(f"--state {state} is not a choice.", remedy=nearest(state, _STATES))
    read = ReadConfig.from_dict(settings["read"])
    reporter = Reporter("silent" if as_json else "auto")
    kind = kind_of(model)
    if kind == "word-vectors":
        _evaluate_vectors(model, files, as_json, reporter)
    elif kind in (None, "bilm"):
        _evaluate_language_model(model, files, read, state, as_json, reporter)
    else:
        _evaluate_rows(model, files, read, LabelConfig.from_dict(settings["labels"]), out, as_json, reporter)


def _evaluate_language_model(
    model: Path, files: list[str], read: ReadConfig, state: str, as_json: bool, reporter: Reporter
) -> None:
    from elmokit.bilm.perplexity import text_perplexity

    result = text_perplexity(model, files, read=read, state=cast(Any, state), reporter=reporter)
    if as_json:
        print_json(result)
        return
    reporter.say(
        f"Perplexity [bold]{result['perplexity']:,.2f}[/] "
        f"(forward {result['forward']:,.2f}, backward {result['backward']:,.2f})\n"
        f"[dim]{result['n_words']:,} words in {result['n_documents']:,} texts, "
        f"{result['unknown_share']:.2%} unknown; exact, state {state}[/]"
    )


def _evaluate_vectors(model: Path, files: list[str], as_json: bool, reporter: Reporter) -> None:
    from elmokit.static.intrinsic import evaluate_vectors
    from elmokit.static.word_vectors import WordVectors

    vectors = WordVectors.load(model)
    results = {Path(file).name: evaluate_vectors(vectors, file) for file in files}
    if as_json:
        print_json(
            {
                "intrinsic": [
                    {
                        "task": name,
                        "measure": result.measure,
                        "value": result.value,
                        "covered": result.n_covered,
                        "total": result.n_total,
                    }
                    for name, result in results.items()
                ]
            }
        )
        return
    for name, result in results.items():
        value = "not defined" if result.value is None else f"[bold]{result.value:.3f}[/]"
        reporter.say(
            f"{escape(name)}: {result.measure} {value}, "
            f"with {result.n_covered:,} of {result.n_total:,} in the vocabulary."
        )


def _evaluate_rows(
    model: Path,
    files: list[str],
    read: ReadConfig,
    labels: LabelConfig,
    out: Path | None,
    as_json: bool,
    reporter: Reporter,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from elmokit.tasks.fit import evaluate_files

    figures = evaluate_files(
        model, files, read=read, labels=labels, out=out, reporter=reporter, command=command_line()
    )
    if as_json:
        print_json(figures)
        return
    console = Console(highlight=False)
    macro = figures["macro"]
    console.print(
        f"Accuracy [bold]{figures['accuracy']:.4f}[/]  macro precision {macro['precision']:.4f}, "
        f"recall {macro['recall']:.4f}, F1 {macro['f1']:.4f}  [dim]({figures['n']:,} rows, "
        f"{figures['documents_per_second']:,.0f} per second)[/]",
        soft_wrap=True,
    )
    for note in figures["notes"]:
        console.print(f"[dim]{note}[/]")
    if figures.get("unseen"):
        listed = ", ".join(f"{escape(name)} ({count})" for name, count in figures["unseen"].items())
        console.print(f"[yellow]Labels never seen in training, counted as wrong: {listed}[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("class", "precision", "recall", "F1", "rows"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for entry in figures["per_class"]:
        values = (f"{entry[name]:.4f}" for name in ("precision", "recall", "f1"))
        table.add_row(escape(entry["name"]), *values, f"{entry['support']:,}")
    console.print(table)
    if out is not None:
        console.print(f"Report: {escape(str(out / 'report.html'))}", soft_wrap=True)
