"""``elmokit compare``: which method suits some labeled text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.cli.options import (
    LABELS,
    READ,
    ROWS,
    Json,
    Out,
    Section,
    Settings,
    argument,
    command_line,
    flag,
    next_command,
    print_json,
    with_settings,
)
from elmokit.comparison.methods import CompareConfig
from elmokit.core.errors import ConfigError
from elmokit.core.names import resolve_name

_SHOWN = ("recipe", "methods", "seeds", "curve", "draws", "budget", "workers", "task")


@with_settings(Section("compare", CompareConfig, "Comparison", _SHOWN), READ, LABELS)
def command(
    files: Annotated[list[str], argument("TRAIN [VALID] TEST", ROWS)],
    out: Out,
    encoder: Annotated[
        Path | None, flag("A language model to use instead of pretraining one.", parser=resolve_name)
    ] = None,
    unlabeled: Annotated[
        list[str] | None, flag("More text for pretraining, without labels; may repeat.")
    ] = None,
    config: Annotated[Path | None, flag("TOML file that changes settings or adds variants.")] = None,
    as_json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Find out which vectors suit your text: ELMo, skip-gram, CBOW, SVD or a linear model.

    [bold]elmokit compare train.csv test.csv --out report[/] pretrains a language model on the train
    text, fits every method on the same rows with several seeds, measures them on the test rows and
    writes report.html: a ranking that says which differences are significant and what each method costs.
    The recommended model is copied to report/best.

    It can be stopped at any time: the same command resumes. With [green]--budget 30m[/] it starts no
    further step after half an hour and names what it skipped. With [green]--curve 100,300,1000[/] it
    shows how few labels each method needs.
    """
    if len(files) not in (2, 3):
        raise ConfigError(
            f"compare takes two or three files, not {len(files)}: train, perhaps validation, and test.",
            remedy="For several files each, give a pattern in quotes, as in 'train-*.csv'.",
        )
    settings |= {"config": str(config)} if config else {}

    from elmokit.comparison.compare import compare
    from elmokit.comparison.report import print_comparison
    from elmokit.comparison.result import to_json
    from elmokit.core.console import Reporter

    reporter = Reporter("json" if as_json else "auto")
    settings |= {"valid": files[1:-1], "unlabeled": unlabeled or (), "encoder": encoder}
    try:
        result = compare(files[0], files[-1], out, reporter=reporter, command=command_line(), **settings)
    except KeyboardInterrupt:
        reporter.say(f"Saved in {escape(str(out))}. Run the same command again to resume.")
        raise typer.Exit(130) from None
    if as_json:
        ranking = to_json(result)["ranking"]
        print_json({"event": "result", "ranking": ranking, "report": str(out / "report.html")})
    else:
        reporter.say("")
        print_comparison(result, reporter.console)
        reporter.say(f"\nRead [bold]{escape(str(out / 'report.html'))}[/].")
        if result.recommended is not None:
            reporter.say(f"Use it: {next_command('predict', out / 'best', 'new.csv')}")
    if result.failed:
        raise typer.Exit(1)
