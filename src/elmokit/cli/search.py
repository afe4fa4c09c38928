"""``elmokit search``: the texts of a file that are most like a query, or each other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.cli import options
from elmokit.text.settings import ReadConfig

_PLACE = "A file of texts (.txt .csv .tsv .jsonl .parquet), or a folder made by elmokit embed --pool ..."
_MODEL = "Any encoder; for a folder, the model that it was made with."
_MOST = 1000  # pairs


@options.with_settings(options.READ)
def command(  # many parameters because each is an argument or a flag
    place: Annotated[str, options.argument("FILE_OR_VECTORS", _PLACE)],
    queries: Annotated[
        list[str] | None,
        options.argument("QUERY...", "What to look for; default, or -: lines of standard input."),
    ] = None,
    model: Annotated[str, typer.Option("--model", help=_MODEL, metavar="ENCODER")] = "english",
    k: Annotated[int, typer.Option("-k", help="Texts to show for each query.", metavar="INT", min=1)] = 5,
    duplicates: Annotated[
        bool, options.flag("List pairs of texts that are nearly the same instead.", "--duplicates")
    ] = False,
    at_least: Annotated[
        float, typer.Option(help="The lowest cosine of such a pair.", metavar="NUMBER")
    ] = 0.9,
    approximate: Annotated[
        bool, options.flag("Use an approximate index (extra: search).", "--approximate")
    ] = False,
    id_column: Annotated[
        str, options.flag("Column with an id for each text; default: numbers from 0.", metavar="TEXT")
    ] = "",
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Find the texts that are most like a query, by meaning rather than by words.

    The texts of a file are compared by the model's sentence vectors, computed first. To search
    often, keep them: [bold]elmokit embed english FILE --pool sentence --out FOLDER[/]. For questions that
    share words with their answers, keyword search (BM25) is better.
    """
    from elmokit.core.config import merge_settings
    from elmokit.core.errors import ConfigError
    from elmokit.report.document import Column, make_table
    from elmokit.report.figures import shorten
    from elmokit.report.render import print_table
    from elmokit.text.rows import TextSource
    from elmokit.vectors.foreign import open_encoder
    from elmokit.vectors.neighbors import find_duplicates, search

    given: Any = {**merge_settings(settings, read=ReadConfig()), "id_column": id_column, "reporter": reporter}
    if duplicates:
        if queries or approximate:
            raise ConfigError(
                "--duplicates compares all texts with each other, exactly.",
                remedy="Leave out the queries and --approximate, or leave out --duplicates.",
            )
        encoder = None if Path(place).is_dir() else open_encoder(model)
        pairs = find_duplicates(place, encoder, at_least, at_most=_MOST, **given)
        reporter.result({"duplicates": [asdict(pair) for pair in pairs]})
        both = [[(hit.id, shorten(hit.text, 38)) for hit in (pair.first, pair.second)] for pair in pairs]
        rows = [[f"{pair.score:.3f}", *one, *other] for pair, (one, other) in zip(pairs, both, strict=True)]
        print_table(make_table(map(Column, ("score", "id", "text", "id", "text")), rows), reporter.console)
        limit = " (only the most alike are listed)" if len(pairs) == _MOST else ""
        reporter.say(f"{len(pairs):,} pairs with a cosine of at least {at_least:g}{limit}.")
        return
    queries = [] if queries == ["-"] else queries
    if not queries and place == "-":
        raise ConfigError("Texts and queries cannot both come from standard input.", remedy="Name a file.")
    queries = queries or [text.strip() for text in TextSource(["-"], ReadConfig()) if text.strip()]
    if not queries:
        raise ConfigError(
            "There is no query.", remedy="Give a text to look for, or one on each line of input."
        )
    results = search(place, queries, open_encoder(model), k, approximate=approximate, **given)
    answers = [*zip(queries, results, strict=True)]
    reporter.result({"queries": [{"query": q, "hits": [*map(asdict, hits)]} for q, hits in answers]})
    for query, hits in answers:
        reporter.say(f"\n[bold cyan]{escape(query)}[/]")
        rows = [[f"{hit.score:.3f}", hit.id, shorten(hit.text, 80)] for hit in hits]
        print_table(make_table(map(Column, ("score", "id", "text")), rows), reporter.console)
