"""``elmokit distill``: the sentence vector of another encoder for a language model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.markup import escape

from elmokit.cli import options
from elmokit.core.names import DEFAULT, resolve_name
from elmokit.vectors.settings import DistillConfig

_TEACHER = "vectors:FILE with a vector for each text, st:FOLDER, m2v:FOLDER, or an elmokit model."


@options.with_settings(
    options.READ,
    options.Section("distill", DistillConfig, "Distillation", ("epochs", "dim", "lr", "seed")),
    overwrite=True,
)
def command(
    teacher: Annotated[str, options.argument("TEACHER", _TEACHER)],
    texts: options.Texts,
    out: options.Out,
    from_model: Annotated[
        Path | None,
        options.flag(
            f"The language model to keep; {DEFAULT} unless given.",
            "--from",
            metavar="MODEL",
            parser=resolve_name,
        ),
    ] = None,
    similarity: Annotated[
        Path | None,
        options.flag("Pairs to measure on: a table with the columns text, other and score.", metavar="FILE"),
    ] = None,
    labeled: Annotated[
        Path | None,
        options.flag("Texts to measure on: a table with the columns text and label.", metavar="FILE"),
    ] = None,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Train a sentence vector for a language model, with another encoder as the teacher.

    [bold]elmokit distill st:all-MiniLM-L6-v2 my_texts.txt --out student[/] computes the teacher's vectors of
    your texts, learns a table of words whose sums point the same way, and saves it with the language
    model, whose layers stay as they are. If it is stopped, run the same command again:
    it resumes and ends with the same result.
    """
    from elmokit.report.document import make_list
    from elmokit.report.render import print_table
    from elmokit.vectors.distillation import distill

    settings |= {"similarity": similarity, "labeled": labeled}
    settings |= {"from_model": from_model or DEFAULT, "command": options.command_line()}
    result = distill(teacher, texts, out, reporter=reporter, **settings)
    reporter.event("end", **{**asdict(result), "folder": str(out)})
    print_table(make_list(result.rows()), reporter.console)
    reporter.say(
        f"The model is in [bold]{escape(str(out))}[/]. Read {escape(str(out / 'report.html'))}; use it: "
        f"{options.next_command('fit', out, 'rows.csv', '--out', 'my-classifier')}"
    )
