"""``elmokit similar``: where a word is used as it is in a sentence."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from elmokit.cli.options import READ, Json, Section, Settings, argument, flag, print_json, with_settings
from elmokit.core.names import resolve_name
from elmokit.text.settings import ReadConfig
from elmokit.vectors.settings import StoreConfig

if TYPE_CHECKING:
    from elmokit.vectors.neighbors import Occurrence, SimilarWords

_CLOSING = {*".,;:!?%)]}…”’»。、！？", "...", "n't", "n’t"}
_OPENING = set("([{$£€#“‘«")
_OPENED = "\0"
_CLITIC = re.compile(r"['’](?:s|re|ve|ll|d|m)", re.IGNORECASE)


@with_settings(Section("store", StoreConfig, "What to compare", ("layer", "mix_weights", "state")), READ)
def command(
    model: Annotated[
        Path,
        argument(
            "MODEL",
            "A bundled model, a folder, published ELMo files, or word vectors.",
            parser=resolve_name,
        ),
    ],
    query: Annotated[str, argument("SENTENCE", "A sentence with the words to look for.")],
    corpus: Annotated[
        list[str] | None,
        flag(
            "Where to look: files, folders, patterns, - or a folder of elmokit embed; may repeat. Needed "
            "unless MODEL is word vectors.",
            "--in",
        ),
    ] = None,
    word: Annotated[
        str | None,
        flag("Only this word of the sentence. Else: all but punctuation and the 50 most frequent words."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Occurrences to show for each word.", min=1)] = 8,
    different: Annotated[
        bool, flag("Leave out the same word: only other words in like use.", "--different")
    ] = False,
    as_json: Json = False,
    *,
    settings: Settings,
) -> None:
    """Find the words of a corpus that are used most like the words of a sentence.

    Words are compared by their vectors in context, so [bold]bank[/] in "the bank raised rates" finds
    other banks of that kind, and with [bold]--different[/] other words in its place. The static vectors
    of [bold]elmokit baseline[/] know no context: for them, the nearest words are found, without a corpus.
    """
    from elmokit.core.config import merge_settings
    from elmokit.core.console import Reporter
    from elmokit.core.model_folder import kind_of
    from elmokit.static.word_vectors import WordVectors
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.neighbors import open_corpus, similar_words

    merged = merge_settings(settings, store=StoreConfig(), read=ReadConfig())
    config, read = cast(StoreConfig, merged["store"]), cast(ReadConfig, merged["read"])
    reporter = Reporter("silent" if as_json else "auto")
    encoder = WordVectors.load(model) if kind_of(model) == "word-vectors" else Elmo.load(model)
    texts = open_corpus(corpus, read) if corpus else None
    total = len(texts) if isinstance(texts, Sized) else None
    with reporter.counting("Looking through the texts", total, unit="texts") as advance:
        similar = similar_words(
            encoder,
            query,
            texts,
            word=word,
            layer=config.layer,
            weights=config.weights,
            state=config.state,
            k=k,
            different=different,
            progress=advance,
        )
    words = encoder.words([query])[0]
    if as_json:
        context = isinstance(encoder, Elmo)
        print_json({"query": words, "context": context, "words": [one.to_dict() for one in similar]})
        return
    console = Console(highlight=False)
    if isinstance(encoder, WordVectors):
        console.print(
            "[dim]Static vectors: the same in every sentence, so the rest of it does not matter.[/]"
        )
        words = []
    elif encoder.model.config.input == "word":
        unknown = [one.word for one in similar if one.word not in encoder.folder.vocabulary]
        if names := escape(", ".join(dict.fromkeys(unknown))):
            console.print(f"[yellow]Unknown to this model, so read as <unk>: {names}[/]", soft_wrap=True)
    for one in similar:
        _show(words, one, console)


def _show(words: Sequence[str], one: SimilarWords, console: Console) -> None:
    """A word of the query and its neighbors, each in its text, one below the other."""
    heading = Text(one.word, "bold cyan")
    if words:
        before, after = around(words, one.position)
        heading = Text.assemble(
            heading, ("  in  ", "dim"), (before, "dim"), (one.word, "cyan"), (after, "dim")
        )
    console.print("", heading, sep="\n")
    if not one.neighbors:
        console.print(
            "  [dim]no other word in the corpus[/]" if one.known else "  [yellow]unknown to these vectors[/]"
        )
        return
    widest = min(20, max(cell_len(hit.word) for hit in one.neighbors))
    side = max(10, (console.width - 2 * widest - 14) // 2)
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(max_width=widest, no_wrap=True, overflow="ellipsis", style="bold")
    table.add_column(no_wrap=True, overflow="crop")
    for hit in one.neighbors:
        style = "green" if hit.score >= 0.8 else "yellow" if hit.score >= 0.5 else "dim"
        table.add_row(Text(f"{hit.score:.3f}", style), Text(hit.word), _snippet(hit, side))
    console.print(table)


def _snippet(hit: Occurrence, side: int) -> Text:
    """The text around a word, cut so that all words begin in one column."""
    if not hit.words:
        return Text()
    before, after = around(hit.words, hit.position)
    if cell_len(before) > side:
        before = "…" + set_cell_size(before[::-1], side - 1)[::-1]
    if cell_len(after) > side:
        after = set_cell_size(after, side - 1) + "…"
    return Text.assemble(" " * (side - cell_len(before)), before, (hit.word, "bold cyan"), after)


def around(words: Sequence[str], position: int) -> tuple[str, str]:
    """What stands before and after a word, spaces included."""
    spaced = _spaced(words)
    space = " " if spaced[position].startswith(" ") else ""
    return "".join(spaced[:position]) + space, "".join(spaced[position + 1 :])


def _spaced(words: Sequence[str]) -> list[str]:
    """Words with the space before each, roughly as they were written.

    >>> print("".join(_spaced(["He", "did", "n't", "say", '"', "no", '"', "(", "yet", ")", "."])))
    He didn't say "no" (yet).
    """
    spaced: list[str] = []
    n_quotes, last = 0, ""
    for word in words:
        opening = word in _OPENING or (word == '"' and n_quotes % 2 == 0)
        n_quotes += word == '"'
        sticks = word in _CLOSING or (word == '"' and not opening) or _CLITIC.fullmatch(word)
        dense = _is_wide(word[:1]) and _is_wide(last[-1:])
        spaced.append(word if not spaced or sticks or dense or last == _OPENED else f" {word}")
        last = _OPENED if opening else word
    return spaced


def _is_wide(char: str) -> bool:
    """Whether a character belongs to a script that is written without spaces."""
    return bool(char) and unicodedata.east_asian_width(char) in "WF" and char.isalpha()
