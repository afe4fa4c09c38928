"""``elmokit baseline``: raw text to static word vectors."""

from __future__ import annotations

import time
from typing import Annotated, Any, cast

from rich.markup import escape

from elmokit.cli.options import (
    READ,
    TEXT,
    Json,
    Out,
    Section,
    Settings,
    Texts,
    argument,
    command_line,
    next_command,
    with_settings,
)
from elmokit.core.errors import ConfigError
from elmokit.static.settings import METHODS, CountingConfig, PredictingConfig, VectorsConfig

_COUNTING = Section("counting", CountingConfig, "svd only", ("counts",))
_PREDICTING = Section("predicting", PredictingConfig, "sgns and cbow only", ("epochs", "workers"))


@with_settings(
    Section("vectors", VectorsConfig, "Vectors", ("dim", "window", "min_count", "max_words", "seed")),
    _COUNTING,
    _PREDICTING,
    TEXT,
    READ,
)
def command(
    method: Annotated[str, argument("METHOD", f"\\[{'|'.join(METHODS)}]")],
    texts: Texts,
    out: Out,
    as_json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Train static word vectors: one vector for each word, whatever its context.

    [green]svd[/] counts which words stand near each other and factorizes the counts, with the same result
    every time; [green]sgns[/] is word2vec's skip-gram with negative sampling, [green]cbow[/] its continuous
    bag of words. Words are lower-cased unless --pipeline plain is given. Import or export the tables of other
    programs with [bold]elmokit convert[/].

    [bold]elmokit baseline sgns my_text.txt --out my-vectors[/], then [bold]elmokit similar
    my-vectors "a word"[/].
    """
    from elmokit.core.console import Reporter
    from elmokit.static.train import baseline

    unused = _PREDICTING if method == "svd" else _COUNTING
    names = [setting.name for setting in unused.settings() if setting.name in settings]
    if names and method in METHODS:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(f"{method} does not use {flags}.", remedy="Leave it out, or choose another method.")
    reporter = Reporter("json" if as_json else "auto")
    start = time.perf_counter()
    vectors = baseline(cast(Any, method), texts, out, reporter=reporter, command=command_line(), **settings)
    seconds, neighbors = time.perf_counter() - start, vectors.sample_neighbors()
    size = {"n_words": vectors.n_words, "dim": vectors.dim}
    reporter.event(
        "end", folder=str(out), method=method, **size, seconds=round(seconds, 1), neighbors=neighbors
    )
    reporter.say(
        f"[bold green]Done.[/] {vectors.n_words:,} words, vectors {vectors.dim} wide, in {seconds:,.1f} s."
    )
    for word, nearest_words in neighbors.items():
        scores = ", ".join(f"{other} {score:.2f}" for other, score in nearest_words)
        reporter.say(f"  [cyan]{escape(word)}[/]: {escape(scores)}")
    query = next_command("similar", out, next(iter(neighbors), "a word"))
    reporter.say(f"The vectors are in [bold]{escape(str(out))}[/]. Look at them with: {query}")
