"""``elmokit baseline``: raw text to static word vectors, or a table of others to a folder of ours."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from elmokit.cli.options import with_settings
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

__all__ = ["command"]

_IMPORT = "import"
_CHOICES = (*METHODS, _IMPORT)
_GROUPS = {
    "vectors": VectorsConfig,
    "counting": CountingConfig,
    "predicting": PredictingConfig,
    "text": TextConfig,
    "read": ReadConfig,
}
_PANELS = {
    "vectors": "Vectors",
    "counting": "svd only",
    "predicting": "sgns and cbow only",
    "text": "Cleaning and words",
    "read": "Reading files",
}


@with_settings(_GROUPS, _PANELS)
def command(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"\\[{'|'.join(_CHOICES)}]")],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for "
            "standard input; for import, one table of word vectors (.txt .vec .bin, also .gz).",
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
    similarity: Annotated[
        list[Path] | None,
        typer.Option(
            help="Compare with people's judgements in this list (word,word,score); may repeat.",
            show_default=False,
        ),
    ] = None,
    analogies: Annotated[
        list[Path] | None,
        typer.Option(help="Answer the analogy questions in this list; may repeat.", show_default=False),
    ] = None,
    export: Annotated[
        list[Path] | None,
        typer.Option(
            help="Write them to this file, too: word2vec text (.txt .vec) or binary (.bin), also .gz; "
            "may repeat.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: dict[str, dict[str, Any]],
) -> None:
    """Make static word vectors: one vector for each word, whatever stands around it.

    [green]svd[/] counts which words stand near each other and factorises the counts, the same every
    time; [green]sgns[/] is word2vec's skip-gram with negative sampling, [green]cbow[/] its continuous
    bag of words. [green]import[/] takes a table that word2vec, GloVe, fastText or gensim has written.

    [bold]elmokit baseline sgns my_text.txt --out my-vectors[/], then [bold]elmokit similar
    my-vectors "a word"[/].
    """
    if method not in _CHOICES:
        raise ConfigError(f"There is no method {method!r}.", remedy=nearest(method, _CHOICES))
    _check_flags(method, texts, settings)
    text = _text_config(pipeline, settings["text"])
    read = ReadConfig.from_dict(settings["read"])
    group, config_class = ("counting", SvdConfig) if method == "svd" else ("predicting", Word2VecConfig)
    config = config_class.from_dict({**settings["vectors"], **settings[group]})

    from elmokit.core.console import Reporter
    from elmokit.static.exchange import export_format, export_vectors
    from elmokit.static.folder import check_out, save_vectors
    from elmokit.static.intrinsic import intrinsic_facts, read_pairs, read_questions
    from elmokit.static.train import train_vectors
    from elmokit.text.readers import TextSource

    for file in export or ():
        export_format(file)
    for file in similarity or ():  # a list that cannot be read is better known now than later
        read_pairs(file)
    for file in analogies or ():
        read_questions(file)
    reporter = Reporter("json" if as_json else "auto")
    began = time.perf_counter()
    record: dict[str, Any] = {"command": _command_line()}
    try:
        if method == _IMPORT:
            vectors = _imported(texts[0], out, pipeline, settings)
        else:
            source = TextSource(texts, read, outside=out)
            check_out(out)
            vectors = train_vectors(cast(Method, method), source, config, text=text, reporter=reporter)
        if similarity or analogies:
            record["intrinsic"] = intrinsic_facts(vectors, similarity or (), analogies or ())
        vectors = replace(vectors, training={**vectors.training, **record})
        save_vectors(out, vectors)
        for file in export or ():
            export_vectors(file, vectors)
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(130) from None
    _tell(vectors, method, out, export or [], time.perf_counter() - began, reporter)


def _imported(
    table: str, out: Path, pipeline: str | None, settings: dict[str, dict[str, Any]]
) -> WordVectors:
    from elmokit.static.exchange import import_vectors
    from elmokit.static.folder import check_out

    check_out(out)
    vectors = import_vectors(
        table,
        max_words=settings["vectors"].get("max_words"),
        text=_text_config(pipeline, {}) if pipeline is not None else None,
        **settings["read"],
    )
    text = TextConfig.from_dict({**vectors.text.to_dict(), **settings["text"]})
    return replace(vectors, text=text)


def _check_flags(method: str, texts: Sequence[str], settings: dict[str, dict[str, Any]]) -> None:
    """Refuse flags that would do nothing."""
    idle = {"svd": ("predicting",), _IMPORT: ("counting", "predicting")}.get(method, ("counting",))
    names = [name for group in idle for name in settings[group]]
    if method == _IMPORT:
        names += [name for name in settings["vectors"] if name != "max_words"]
        names += [name for name in settings["read"] if name not in ("encoding", "errors")]
        if len(texts) > 1:
            raise ConfigError(f"import takes one table, not {len(texts)}.", remedy="Import them one by one.")
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(f"{method} does not use {flags}.", remedy="Leave it out, or choose another method.")


def _text_config(pipeline: str | None, switches: dict[str, Any]) -> TextConfig:
    if pipeline is not None and pipeline not in PIPELINES:
        raise ConfigError(f"There is no pipeline {pipeline!r}.", remedy=nearest(pipeline, PIPELINES))
    base = PIPELINES[pipeline] if pipeline is not None else STATIC_TEXT
    return TextConfig.from_dict({**base.to_dict(), **switches})


def _command_line() -> str:
    from elmokit.text.tokenizing import without_surrogates

    # Where files lie is nobody's business but the user's: the card keeps their names.
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return without_surrogates(shlex.join(["elmokit", *words]))


def _tell(
    vectors: WordVectors, method: str, out: Path, exports: list[Path], seconds: float, reporter: Reporter
) -> None:
    from elmokit.static.card import sample_neighbours

    n_words, training = vectors.n_words, vectors.training
    near = sample_neighbours(vectors)
    facts = training.get("intrinsic", [])
    reporter.event(
        "end",
        folder=str(out),
        method=method,
        n_words=n_words,
        dim=vectors.dim,
        seconds=round(seconds, 1),
        neighbours=near,
        intrinsic=facts,
        exports=[str(file) for file in exports],
    )
    reporter.say(f"[bold green]Done.[/] {n_words:,} words, vectors {vectors.dim} wide, in {seconds:,.1f} s.")
    if training.get("n_left_out"):
        reporter.say(f"[yellow]{training['n_left_out']:,} words with a space in them were left out.[/]")
    for word, found in near.items():
        listed = ", ".join(f"{one} {score:.2f}" for one, score in found)
        reporter.say(f"  [cyan]{escape(word)}[/]: {escape(listed)}")
    for fact in facts:
        value = "cannot be told" if fact["value"] is None else f"[bold]{fact['value']:.3f}[/]"
        reporter.say(
            f"{escape(fact['task'])}: {fact['measure']} {value}, "
            f"with {fact['covered']:,} of {fact['total']:,} in the vocabulary."
        )
    for file in exports:
        reporter.say(f"Exported: [bold]{escape(str(file))}[/]")
    place = escape(shlex.quote(str(out)))
    asked = escape(shlex.quote(next(iter(near), "a word")))
    reporter.say(
        f"The vectors are in [bold]{escape(str(out))}[/]. Look at them with: elmokit similar {place} {asked}"
    )
