"""``elmokit compare``: which method suits some labelled text."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from elmokit.cli.options import LABELS, READ, Settings, command_line, with_settings
from elmokit.core.config import duration, merge_settings
from elmokit.core.errors import ConfigError
from elmokit.core.names import resolve_name
from elmokit.text.settings import LabelConfig, ReadConfig


@with_settings(READ, LABELS)
def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="TRAIN [VALID] TEST", help="Labelled rows: .csv .tsv .jsonl .parquet, or a pattern."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.", show_default=False)],
    recipe: Annotated[
        str, typer.Option(help="What is run: quick, thorough or write-ups (the course write-ups' systems).")
    ] = "quick",
    methods: Annotated[
        str,
        typer.Option(
            help="Only these, with commas: elmo-trainable, elmo-frozen, elmo-function, elmo-linear, "
            "elmo-finetuned, sgns, sgns-linear, cbow, svd, tfidf-svm, tfidf-lr, fasttext; or elmo, static, "
            "linear.",
            show_default=False,
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file that changes settings or adds variants.", show_default=False),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Seeds of each method with chance in it (0: as the recipe says).", min=0)
    ] = 0,
    encoder: Annotated[
        Path | None,
        typer.Option(
            parser=resolve_name,
            help="A model (news, or a biLM folder) to use instead of pretraining one.",
            show_default=False,
        ),
    ] = None,
    unlabeled: Annotated[
        list[str] | None,
        typer.Option(help="More text for pretraining, without labels; may repeat.", show_default=False),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Time that all of it may take, as in 30m: the plan is cut down to fit.", show_default=False
        ),
    ] = "",
    curve: Annotated[
        str,
        typer.Option(
            help="Learning curve over these numbers of labels, as in 100,300,1000,3000.", show_default=False
        ),
    ] = "",
    draws: Annotated[int, typer.Option(help="Draws of labels for each number.", min=1)] = 5,
    curve_methods: Annotated[
        str, typer.Option(help="Methods in the learning curve, with commas.", hidden=True)
    ] = "",
    workers: Annotated[
        int, typer.Option(help="Parts at once, one core each (0: as many as there are cores).", min=0)
    ] = 0,
    title: Annotated[str, typer.Option(help="Title of the report.", hidden=True)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: Settings,
) -> None:
    """Find out which vectors suit your text: ELMo, skip-gram, CBOW, SVD or a linear model.

    [bold]elmokit compare train.csv test.csv --out report[/] pretrains a language model on the train
    text, fits every method on the same rows with several seeds, measures them on the test rows and
    writes report.html: a ranking that says which differences are real and what each method costs.

    It may be stopped at any time: the same command goes on where it was. With [green]--budget 30m[/] it
    does what fits into half an hour and says what it left out. With [green]--curve 100,300,1000[/] it
    shows how few labels each method needs.
    """
    if len(files) not in (2, 3):
        raise ConfigError(
            f"compare takes two or three files, not {len(files)}: train, perhaps validation, and test.",
            remedy="For several files each, give a pattern in quotes, as in 'train-*.csv'.",
        )
    seconds = duration(budget) if budget else None
    counts = _counts(curve)
    configs: Any = merge_settings(settings, read=ReadConfig(), labels=LabelConfig())
    read, labels = configs["read"], configs["labels"]

    from elmokit.comparison.compare import compare_files
    from elmokit.comparison.recipes import make_plan, read_plan_toml
    from elmokit.comparison.report import print_comparison
    from elmokit.comparison.result import to_json
    from elmokit.core.console import Reporter

    plan = make_plan(
        recipe,
        methods=_listed(methods),
        n_seeds=seeds,
        changes=read_plan_toml(config) if config is not None else None,
        counts=counts,
        draws=draws,
        curve=_listed(curve_methods),
    )
    reporter = Reporter("json" if as_json else "auto")
    try:
        comparison = compare_files(
            files[0],
            files[-1],
            out,
            plan,
            valid=files[1:-1],
            unlabelled=unlabeled or (),
            encoder=encoder,
            budget=seconds,
            workers=workers,
            read=read,
            labels=labels,
            title=title,
            reporter=reporter,
            command=command_line(),
        )
    except KeyboardInterrupt:
        reporter.say(f"Saved in {escape(str(out))}. Run the same command again to resume.")
        raise typer.Exit(130) from None
    if as_json:
        ranking = to_json(comparison)["ranking"]
        typer.echo(json.dumps({"event": "result", "ranking": ranking, "report": str(out / "report.html")}))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:  # a file or a pipe has room
            console = Console(highlight=False, width=max(100, console.width))
        console.print()
        print_comparison(comparison, console)
        console.print(f"\nRead [bold]{escape(str(out / 'report.html'))}[/].", soft_wrap=True)
        if comparison.recommended is not None:
            place = out / "work" / "units" / f"{comparison.recommended}-s{plan.seeds[0]}" / "model"
            use = ["elmokit", "predict", str(place), "new.csv"]
            named = not any(map(str.isdecimal, read.columns))  # numbers may be others where labels are not
            use += ["--text-columns", read.text_columns] if read.columns and named else []
            console.print(f"Use it: {escape(shlex.join(use))}", soft_wrap=True)
    if comparison.failed:
        raise typer.Exit(1)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part.replace("_", "")) for part in _listed(text)]
    except ValueError as error:
        raise ConfigError(
            f"--curve {text} is not a list of numbers.", remedy="Write it as in 100,300,1000."
        ) from error
    if any(count < 2 for count in counts):
        raise ConfigError("--curve needs numbers of at least 2.", remedy="Write it as in 100,300,1000.")
    return counts
