"""``elmokit fit``: labelled rows to a classifier folder with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli.options import LABELS, READ, Section, Settings, command_line, with_settings
from elmokit.core.config import duration
from elmokit.tasks.settings import ClassifierConfig, FitConfig, HeadConfig
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.vectors.settings import MixConfig

_SECTIONS = (
    READ,
    LABELS,
    Section("mix", MixConfig, "Mixing the layers", ("mix",)),
    Section("head", HeadConfig, "Head", ("head",)),
    Section("fit", FitConfig, "Training", ("finetune", "epochs", "max_words", "seed")),
)


@with_settings(*_SECTIONS)
def command(
    encoder: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER",
            help="A bundled model, a folder (elmokit pretrain, baseline), published ELMo files, or a linear "
            "model over counts of words: tfidf-svm, tfidf-lr.",
        ),
    ],
    train: Annotated[
        list[str], typer.Argument(metavar="TRAIN...", help="Labelled rows: .csv .tsv .jsonl .parquet.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the classifier.", show_default=False)],
    valid: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows to choose the best weights by; else a share is set aside.", show_default=False
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Rows to measure on at the end, for the report.", show_default=False),
    ] = None,
    task: Annotated[str, typer.Option(help="What to learn.")] = "classify",
    checkpoint_every: Annotated[str, typer.Option(help="Time between checkpoints.")] = "60s",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: Settings,
) -> None:
    """Make a text classifier from labelled rows, on top of a biLM.

    [bold]elmokit fit my-elmo train.csv --label-column topic --out my-classifier[/] is all it takes. The
    encoder stays as it is ([green]frozen[/]) and only mix and head learn, which is quick; with
    [green]--finetune[/] the whole model learns, which takes longer and is more accurate.

    Beside the model, the folder holds report.html with accuracy, precision, recall, F1, confusion
    matrices, loss curves, mix weights, calibration and the most confident mistakes.
    """
    read = ReadConfig.from_dict(settings.pop("read"))
    labels = LabelConfig.from_dict(settings.pop("labels"))
    config = ClassifierConfig.from_dict(settings)
    every = duration(checkpoint_every)

    from elmokit.core.console import Reporter
    from elmokit.tasks.fit import fit
    from elmokit.tasks.task import format_scores

    reporter = Reporter("json" if as_json else "auto")
    result = fit(
        encoder,
        train,
        out,
        task=task,
        config=config,
        valid=valid or (),
        test=test or (),
        read=read,
        labels=labels,
        checkpoint_every=every,
        reporter=reporter,
        command=command_line(),
    )
    if result.model is None:
        reporter.say(f"Saved in {escape(str(out))}. Run the same command again to resume.")
        raise typer.Exit(130)
    for name, scores in result.scores.items():
        reporter.event("result", split=name, **scores)
        reporter.say(f"{name:>6}: {format_scores(scores)} [dim]({scores['n']:,} rows)[/]")
    reporter.say(
        f"{'Was done already' if result.was_done else 'Done'}: {escape(str(out))}. "
        f"Read {escape(str(out / 'report.html'))}; use it: elmokit predict {escape(str(out))} new.csv"
    )
