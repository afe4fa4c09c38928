"""``elmokit baseline``: raw text to static word vectors."""

from __future__ import annotations

import time
from typing import Annotated, Any, cast

from rich.markup import escape

from elmokit.cli import options
from elmokit.core.errors import ConfigError
from elmokit.static.settings import METHODS, CountingConfig, PredictingConfig, VectorsConfig

_COUNTING = options.Section("counting", CountingConfig, "svd only", ("counts",))
_PREDICTING = options.Section("predicting", PredictingConfig, "sgns and cbow only", ("epochs", "workers"))


@options.with_settings(
    options.Section("vectors", VectorsConfig, "Vectors", ("dim", "window", "min_count", "max_words", "seed")),
    _COUNTING,
    _PREDICTING,
    options.TEXT,
    options.READ,
    overwrite=True,
)
def command(
    method: Annotated[str, options.argument("METHOD", f"\\[{'|'.join(METHODS)}]")],
    texts: options.Texts,
    out: options.Out,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Train static word vectors: one vector for each word, regardless of context.

    [green]svd[/] counts which words occur near each other and factorizes the counts, with the same result
    every time; [green]sgns[/] is word2vec's skip-gram with negative sampling, [green]cbow[/] its continuous
    bag of words; both need the extra static. Words are lower-cased unless --pipeline plain is given. Import
    or export the tables of other programs with [bold]elmokit convert[/].

    For example, [bold]elmokit baseline sgns my_text.txt --out my-vectors[/], then [bold]elmokit similar
    my-vectors "a word"[/].
    """
    from elmokit.static.train import baseline

    unused = _PREDICTING if method == "svd" else _COUNTING
    flags = [f"--{one.name.replace('_', '-')}" for one in unused.settings() if one.name in settings]
    if flags and method in METHODS:
        message = f"{method} does not use {', '.join(flags)}."
        raise ConfigError(message, remedy="Leave it out, or choose another method.")
    start = time.perf_counter()
    settings |= {"reporter": reporter, "command": options.command_line()}
    vectors = baseline(cast(Any, method), texts, out, **settings)
    seconds = time.perf_counter() - start
    size = {"n_words": vectors.n_words, "dim": vectors.dim, "seconds": round(seconds, 1)}
    reporter.event("end", folder=str(out), method=method, **size)
    reporter.say(
        f"[bold green]Done.[/] {vectors.n_words:,} words, vectors {vectors.dim} wide, in {seconds:,.1f} s."
    )
    query = options.next_command("similar", out, "a word")
    reporter.say(f"The vectors are in [bold]{escape(str(out))}[/]. Look at them with: {query}")
