"""``elmokit compare``: which method suits some labeled text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli import options
from elmokit.comparison.methods import CompareConfig
from elmokit.core.errors import ConfigError
from elmokit.core.names import resolve_name

_SHOWN = ("recipe", "methods", "seeds", "curve", "budget", "workers", "task", "config")


@options.with_settings(
    options.Section("compare", CompareConfig, "Comparison", _SHOWN),
    options.READ,
    options.LABELS,
    overwrite=True,
)
def command(
    files: Annotated[list[str], options.argument("TRAIN [VALID] TEST", options.ROWS)],
    out: options.Out,
    encoder: Annotated[
        Path | None,
        options.flag(
            "A language model to use instead of pretraining one.", metavar="MODEL", parser=resolve_name
        ),
    ] = None,
    unlabeled: Annotated[
        list[str] | None,
        options.flag("More text for pretraining, without labels; can be repeated.", metavar="FILE"),
    ] = None,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Find out which method suits your text: ELMo, skip-gram, CBOW, SVD or a linear model.

    [bold]elmokit compare train.csv test.csv --out report[/] pretrains a language model on the training
    text, fits every method on the same rows with several seeds, measures them on the test rows and
    writes report.html: a ranking that says which differences are significant and what each method costs.
    The recommended model is copied to report/best.

    Stop it at any time; run the same command again to resume. With [green]--budget 30m[/] it starts no
    new step after 30 minutes and lists what it skipped. With [green]--curve 100,300,1000[/] it
    shows how scores grow with the number of labeled rows.
    """
    if len(files) not in (2, 3):
        raise ConfigError(
            f"compare takes two or three files, not {len(files)}: train, validation (optional) and test.",
            remedy="To use several files for one of them, give a pattern in quotes, such as 'train-*.csv'.",
        )

    from elmokit.comparison.compare import compare
    from elmokit.comparison.report import print_comparison
    from elmokit.comparison.result import to_json

    report = str(out / "report.html")
    settings |= {"valid": files[1:-1], "unlabeled": unlabeled or (), "encoder": encoder}
    result = compare(files[0], files[-1], out, reporter=reporter, command=options.command_line(), **settings)
    reporter.event("result", ranking=to_json(result)["ranking"], report=report)
    reporter.say("")
    print_comparison(result, reporter.console)
    reporter.say(f"\nRead [bold]{escape(report)}[/].")
    if result.recommended is not None:
        reporter.say(f"Use it: {options.next_command('predict', out / 'best', 'new.csv')}")
    if result.failed:
        raise typer.Exit(1)
