"""``elmokit fit``: labeled rows to a fitted model with its report."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli import options
from elmokit.tasks.settings import FitConfig, HeadConfig
from elmokit.vectors.settings import MixConfig

_ENCODER = (
    "A bundled model, a folder (elmokit pretrain, baseline), published ELMo files, a foreign encoder "
    "(st:FOLDER, m2v:FOLDER, glove:FILE, vectors:FILE), or a linear model over counts of words: tfidf-svm, "
    "tfidf-lr, nbsvm."
)


@options.with_settings(
    options.READ,
    options.LABELS,
    options.Section("mix", MixConfig, "Mixing the layers", ("mix",)),
    options.Section("head", HeadConfig, "Head", ("head",)),
    options.Section("fit", FitConfig, "Training", ("finetune", "epochs", "seed")),
    overwrite=True,
)
def command(  # many parameters because each is an argument or flag
    encoder: Annotated[str, options.argument("ENCODER", _ENCODER)],
    train: Annotated[list[str], options.argument("TRAIN...", options.ROWS)],
    out: options.Out,
    with_: Annotated[
        list[str] | None,
        options.flag("A further encoder beside the first; can be repeated.", "--with", metavar="ENCODER"),
    ] = None,
    valid: Annotated[
        list[str] | None,
        options.flag("Validation rows; by default, a share of the training rows.", metavar="FILE"),
    ] = None,
    test: Annotated[
        list[str] | None, options.flag("Test rows, measured at the end for the report.", metavar="FILE")
    ] = None,
    task: Annotated[
        str,
        typer.Option(help="classify, tag, answer or pair; auto decides by the columns.", metavar="CHOICE"),
    ] = "auto",
    checkpoint_every: options.CheckpointEvery = 60.0,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Train a model on labeled rows, on top of any encoder.

    [bold]elmokit fit english train.csv --label-column topic --out my-classifier[/] fits logistic regressions
    on the encoder's vectors, on words and on characters, weighted by how well they predict held-out rows. It
    also prints the scores of simple baselines on the same rows.

    [green]--head pool[/] or [green]bilstm[/] trains a network on a mix of the encoder's layers instead;
    [green]--finetune[/] trains the encoder, too: slower, and usually better with many labeled rows.

    Besides the model, the folder holds report.html with accuracy, precision, recall, F1, confusion
    matrices, loss curves, mix weights, calibration and the most confident mistakes.
    """
    from elmokit.tasks.fit import fit
    from elmokit.tasks.task import format_scores

    settings |= {"task": task, "valid": valid or (), "test": test or (), "checkpoint_every": checkpoint_every}
    settings["with_"] = with_ or ()
    result = fit(encoder, train, out, reporter=reporter, command=options.command_line(), **settings)
    if result.model is None:
        reporter.say(f"Saved in {escape(str(out))}. Run the same command again to resume.")
        raise typer.Exit(130)
    for name, scores in result.scores.items():
        reporter.event("result", split=name, **scores)
        reporter.say(f"{name:>6}: {format_scores(scores)} [dim]({scores['n']:,} rows)[/]")
    reporter.say(
        f"{'Already done' if result.was_done else 'Done'}: {escape(str(out))}. "
        f"Read {escape(str(out / 'report.html'))}; use it: {options.next_command('predict', out, 'new.csv')}"
    )
