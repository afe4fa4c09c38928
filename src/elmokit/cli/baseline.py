"""``elmokit baseline``: raw text to static word vectors, or a table of others to a folder of ours."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Section, Settings, command_line, with_settings
from elmokit.core.errors import ConfigError, nearest
from elmokit.static.settings import (
    METHODS,
    STATIC_TEXT,
    CountingConfig,
    Method,
    PredictingConfig,
    SvdConfig,
    VectorsConfig,
    Word2VecConfig,
)
from elmokit.text.settings import PIPELINES, ReadConfig, TextConfig

if TYPE_CHECKING:
    from elmokit.core.console import Reporter
    from elmokit.static.word_vectors import WordVectors

_SECTIONS = (
    Section("vectors", VectorsConfig, "Vectors", ("dim", "window", "min_count", "max_words", "seed")),
    Section("counting", CountingConfig, "svd only", ("counts",)),
    Section("predicting", PredictingConfig, "sgns and cbow only", ("epochs", "workers")),
    Section("text", TextConfig, "Cleaning and words", ()),
    READ,
)


@with_settings(*_SECTIONS)
def command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"\\[{'|'.join(METHODS)}]")],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for "
            "standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the vectors.", show_default=False)],
    pipeline: Annotated[
        str | None,
        typer.Option(
            help=f"Ready-made cleaning \\[{'|'.join(PIPELINES)}]; single switches win over it. "
            "Else: plain, lower-cased.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: Settings,
) -> None:
    """Make static word vectors: one vector for each word, whatever stands around it.

    [green]svd[/] counts which words stand near each other and factorises the counts, the same every
    time; [green]sgns[/] is word2vec's skip-gram with negative sampling, [green]cbow[/] its continuous
    bag of words. Import or export other programs' tables with [bold]elmokit convert[/].

    [bold]elmokit baseline sgns my_text.txt --out my-vectors[/], then [bold]elmokit similar
    my-vectors "a word"[/].
    """
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}.", remedy=nearest(method, METHODS))
    _check_flags(method, settings)
    text = _text_config(pipeline, settings["text"])
    read = ReadConfig.from_dict(settings["read"])
    group, config_class = ("counting", SvdConfig) if method == "svd" else ("predicting", Word2VecConfig)
    config = config_class.from_dict({**settings["vectors"], **settings[group]})

    from elmokit.core.console import Reporter
    from elmokit.static.train import baseline

    reporter = Reporter("json" if as_json else "auto")
    began = time.perf_counter()
    try:
        vectors = baseline(
            cast(Method, method),
            texts,
            out,
            text=text,
            reporter=reporter,
            command=command_line(),
            **config.to_dict(),
            **read.to_dict(),
        )
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(130) from None
    _report(vectors, method, out, time.perf_counter() - began, reporter)


def _check_flags(method: str, settings: Settings) -> None:
    """Refuse flags that would do nothing."""
    names = list(settings["predicting" if method == "svd" else "counting"])
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(f"{method} does not use {flags}.", remedy="Leave it out, or choose another method.")


def _text_config(pipeline: str | None, switches: dict[str, Any]) -> TextConfig:
    if pipeline is not None and pipeline not in PIPELINES:
        raise ConfigError(f"There is no pipeline {pipeline!r}.", remedy=nearest(pipeline, PIPELINES))
    base = PIPELINES[pipeline] if pipeline is not None else STATIC_TEXT
    return TextConfig.from_dict({**base.to_dict(), **switches})


def _report(vectors: WordVectors, method: str, out: Path, seconds: float, reporter: Reporter) -> None:
    neighbors = vectors.sample_neighbors()
    reporter.event(
        "end",
        folder=str(out),
        method=method,
        n_words=vectors.n_words,
        dim=vectors.dim,
        seconds=round(seconds, 1),
        neighbors=neighbors,
    )
    reporter.say(
        f"[bold green]Done.[/] {vectors.n_words:,} words, vectors {vectors.dim} wide, in {seconds:,.1f} s."
    )
    for word, nearest_words in neighbors.items():
        listed = ", ".join(f"{other} {score:.2f}" for other, score in nearest_words)
        reporter.say(f"  [cyan]{escape(word)}[/]: {escape(listed)}")
    place = escape(shlex.quote(str(out)))
    query = escape(shlex.quote(next(iter(neighbors), "a word")))
    reporter.say(
        f"The vectors are in [bold]{escape(str(out))}[/]. Look at them with: elmokit similar {place} {query}"
    )
