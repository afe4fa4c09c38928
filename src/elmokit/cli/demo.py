"""``elmokit demo``: why vectors in context are worth having, on texts that come with the package."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from elmokit.core.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from elmokit.comparison.result import Comparison
    from elmokit.core.console import Reporter
    from elmokit.vectors.elmo import Elmo

_WORD = "bank"
_SENTENCES = (
    "He sat on the bank of the river and watched the boats.",
    "Reeds grow along the bank of the stream.",
    "The bank raised its rates again on Thursday.",
    "Shares in the bank fell after it warned on profits.",
)
_METHODS = ("elmo-trainable", "elmo-frozen", "elmo-function", "sgns", "cbow", "svd", "tfidf-svm")


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and a classifier.")] = Path(
        "elmokit-demo"
    ),
    model: Annotated[
        Path | None,
        typer.Option(parser=resolve_name, help="Another model than the bundled one.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each method with chance in it.", min=1)] = 3,
) -> None:
    """See in two or three minutes why vectors in context are worth having.

    Shows one word in several senses; then fits ELMo in its three mixes, skip-gram, CBOW, SVD and a linear
    model on the bundled news texts, prints who is best and writes a report. All of it is computed here and
    now, without a network. Run again, it goes on or shows what it has made.
    """
    from rich.console import Console

    from elmokit.core.console import Reporter
    from elmokit.vectors.elmo import Elmo

    reporter, console = Reporter(), Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has room
        console = Console(highlight=False, width=max(100, console.width))
    folder = model or resolve_name("news")
    elmo = Elmo.load(folder)
    _senses(elmo, folder.name, console, reporter)
    _mixes(_comparison(folder, out, seeds, console, reporter), console)
    _closing(out, str(model or "news"), console)


def _senses(elmo: Elmo, name: str, console: Console, reporter: Reporter) -> None:
    """One word in several sentences: where it is used alike, and how alike it is to itself."""
    from elmokit.cli.similar import around
    from elmokit.corpora import mini_news
    from elmokit.text.rows import TextSource
    from elmokit.text.settings import ReadConfig
    from elmokit.vectors.neighbors import Occurrences

    console.print(
        f"[bold]1. One word, more than one sense[/]  [dim]({escape(name)}, mean of the LSTM layers)[/]\n"
    )
    texts = TextSource([mini_news()], ReadConfig(text_columns="text"))
    with reporter.counting("Reading the bundled texts", unit="words") as advance:
        corpus = Occurrences.read(elmo, list(texts), progress=advance)
    found = elmo.embed(list(_SENTENCES))
    rows = []
    weights = [0.0, *[1.0 / (elmo.n_layers - 1)] * (elmo.n_layers - 1)]  # layer 0 sees the word alone
    for number, (words, vectors) in enumerate(zip(found.tokens, found.mixed(weights), strict=True), 1):
        place = [word.lower() for word in words].index(_WORD)
        rows.append(vectors[place])
        before, after = around(words, place)
        console.print(
            f"   [bold]{number}[/]  {escape(before)}[bold cyan]{escape(words[place])}[/]{escape(after)}"
        )
        for near in corpus.nearest(vectors[place], weights, 2):
            before, after = around(near.words, near.position)
            console.print(
                f"      [dim]{near.score:.2f}  …{escape(before[-34:])}[/][cyan]{escape(near.word)}[/]"
                f"[dim]{escape(after[:34])}…[/]"
            )
    _matrix(rows, console)


def _matrix(rows: Sequence[Any], console: Console) -> None:
    import numpy as np
    from rich.table import Table

    from elmokit.vectors.neighbors import unit_rows

    units = unit_rows(np.stack(rows))
    alike = units @ units.T
    console.print(f"\n   How alike the vectors of “{_WORD}” are (1 is the same), sentence by sentence:\n")
    table = Table(box=None, show_header=True, header_style="bold", padding=(0, 2))
    table.add_column("")
    for number in range(1, len(rows) + 1):
        table.add_column(str(number), justify="right")
    low, high = float(alike.min()), float(alike[~np.eye(len(alike), dtype=bool)].max())
    for number, row in enumerate(alike, 1):
        cells = []
        for place, value in enumerate(row, 1):
            strong = (value - low) / max(high - low, 1e-9)
            style = "dim" if place == number else "green" if strong > 0.5 else "yellow"
            cells.append(f"[{style}]{value:.2f}[/]")
        table.add_row(f"     [bold]{number}[/]", *cells)
    console.print(table)
    console.print("   [dim]With static vectors every number in this table would be 1.00.[/]\n")


def _comparison(model: Path, out: Path, seeds: int, console: Console, reporter: Reporter) -> Comparison:
    """All methods on the bundled texts, and the report."""
    from elmokit.comparison.compare import compare
    from elmokit.comparison.recipes import make_plan
    from elmokit.comparison.report import print_comparison
    from elmokit.core.atomic import explain_os_errors

    train, test = _split(out)
    console.print(
        "[bold]2. Topics of news texts[/]: every method learns from the same few labelled texts\n"
        "   [dim]ELMo brings what its model has read before; the others know these texts alone.[/]\n",
        soft_wrap=True,
    )
    try:
        comparison = compare(
            train,
            test,
            out / "report",
            make_plan(methods=_METHODS, seeds=seeds),
            encoder=model,
            text_columns="text",
            label_column="topic",
            title="The demo: topics of the bundled news texts",
            reporter=reporter,
            command="elmokit demo",
        )
    except KeyboardInterrupt:
        reporter.say("Saved. Run elmokit demo again to resume.")
        raise typer.Exit(130) from None
    if comparison.failed:
        raise typer.Exit(1)
    console.print()
    print_comparison(comparison, console)
    best = out / "report" / "work" / "steps" / "elmo-trainable-s0" / "model"
    if best.is_dir() and not (out / "topics").exists():
        with explain_os_errors(out / "topics"):
            shutil.rmtree(out / ".topics.new", ignore_errors=True)
            shutil.copytree(best, out / ".topics.new")
            (out / ".topics.new").rename(out / "topics")
    return comparison


def _split(out: Path) -> tuple[Path, Path]:
    """The bundled texts, 480 to learn from and 200 to measure on; always the same."""
    from elmokit.core.atomic import explain_os_errors, write_text
    from elmokit.core.errors import RunError
    from elmokit.corpora import mini_news_split

    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, part in zip(("train.csv", "test.csv"), mini_news_split(), strict=True):
        rows = io.StringIO()
        writer = csv.DictWriter(rows, ["topic", "text"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(part)
        files[out / name] = rows.getvalue()
    for file, content in files.items():
        if file.exists() and (not file.is_file() or file.read_text("utf-8", "replace") != content):
            raise RunError(
                f"{file} exists and is not the demo's; nothing was touched.", remedy="Choose another --out."
            )
    for file, content in files.items():
        if not file.exists():
            write_text(file, content)
    train, test = files
    return train, test


def _mixes(comparison: Comparison, console: Console) -> None:
    """How much each layer counts in each mix."""
    console.print("\n[bold]3. What the mixes made of the layers[/] [dim](λ of the first seed)[/]\n")
    for result in comparison.methods:
        mix = result.mix
        if mix is not None:
            values = "   ".join(f"λ{depth} {value:.3f}" for depth, value in enumerate(mix["values"]))
            notes = {"function": "share of the function's matrix", "frozen": "drawn at random, not learned"}
            note = f"  [dim]({notes[mix['kind']]})[/]" if mix["kind"] in notes else ""
            console.print(f"   {escape(result.method.name):<24} {values}{note}")


def _closing(out: Path, model: str, console: Console) -> None:
    model, topics, report = (escape(str(part)) for part in (model, out / "topics", out / "report"))
    console.print(
        f"\n[bold]Your turn:[/]\n   open    {escape(str(out / 'report' / 'report.html'))}\n"
        f"   explore elmokit serve {model} {topics} {report}\n"
        f"   compare elmokit compare train.csv test.csv --encoder {model} --out report\n"
        "   train   elmokit pretrain my_text.txt --out my-elmo\n"
        "   [dim](after make demo, elmokit is in .venv/bin)[/]",
        soft_wrap=True,
    )
