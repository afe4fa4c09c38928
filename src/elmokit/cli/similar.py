"""``elmokit similar``: where a word is used as it is in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from elmokit.cli import options
from elmokit.text.settings import ReadConfig
from elmokit.vectors.settings import LayerConfig

if TYPE_CHECKING:
    from elmokit.vectors.neighbors import SimilarWords

_CORPUS = (
    "Where to look: files, folders, patterns, -, or a folder made by elmokit embed; can be repeated. Not "
    "needed for word vectors."
)
_WORD = "Only this word of the sentence. Default: all words but punctuation and the 50 most frequent ones."
_NO_SPACE = re.compile(  # \0 marks the word
    r" (?=\0?(?:[.,;:!?%)\]}…”’»。、！？]|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b))"
    r"|(?<=[(\[{$£€#“‘«]) |(?<=[(\[{$£€#“‘«]\0) ",
    re.IGNORECASE,
)
_QUOTED = re.compile(r'" ([^"]*) "')


@options.with_settings(
    options.Section("layers", LayerConfig, "What to compare", ("layer", "mix_weights", "state")), options.READ
)
def command(
    model: options.Model,
    query: Annotated[str, options.argument("SENTENCE", "A sentence with the words to look for.")],
    corpus: Annotated[list[str] | None, options.flag(_CORPUS, "--in", metavar="FILE")] = None,
    word: Annotated[str | None, options.flag(_WORD, metavar="TEXT")] = None,
    k: Annotated[
        int, typer.Option("-k", help="Occurrences to show for each word.", metavar="INT", min=1)
    ] = 8,
    different: Annotated[
        bool, options.flag("Leave out the word itself: show only other words.", "--different")
    ] = False,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Find words in a corpus that are used like the words of your sentence.

    Words are compared by their vectors in context, so [bold]bank[/] in "the bank raised rates" finds
    other uses of bank in that sense or, with [bold]--different[/], other words that are used like it. For the
    static vectors of [bold]elmokit baseline[/], it shows the nearest words and needs no corpus.
    """
    from elmokit.core.config import merge_settings
    from elmokit.core.model_folder import kind_of
    from elmokit.static.word_vectors import WordVectors
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.neighbors import open_corpus, similar_words

    configs: Any = merge_settings(settings, layers=LayerConfig(), read=ReadConfig())
    config: LayerConfig = configs["layers"]
    encoder = WordVectors.load(model) if kind_of(model) == "word-vectors" else Elmo.load(model)
    texts = open_corpus(corpus, configs["read"], say=reporter.note) if corpus else None
    layers: Any = {"layer": config.layer, "weights": config.weights, "state": config.state}
    total = len(texts) if isinstance(texts, Sized) else None
    with reporter.counting("Looking through the texts", total, unit="texts") as advance:
        similar = similar_words(
            encoder, query, texts, k=k, word=word, different=different, progress=advance, **layers
        )
    words = encoder.words([query])[0]
    context = isinstance(encoder, Elmo)
    reporter.result({"query": words, "context": context, "words": [one.to_dict() for one in similar]})
    if isinstance(encoder, WordVectors):
        reporter.say("[dim]Static vectors: the same in every sentence.[/]")
        words = []
    elif encoder.model.config.input == "word":
        unknown = [one.word for one in similar if one.word not in encoder.folder.vocabulary]
        if names := escape(", ".join(dict.fromkeys(unknown))):
            reporter.say(f"[yellow]Unknown to this model, so read as <unk>: {names}[/]")
    for one in similar:
        show_similar(words, one, reporter.console)


def show_similar(words: Sequence[str], one: SimilarWords, console: Console) -> None:
    """Print a word of a sentence, given as ``words``, and its neighbors, each in its text."""
    heading = Text(one.word, "bold cyan")
    if words:
        before, after = around(words, one.position)
        heading = Text.assemble(heading, f"  in  {before}", (one.word, "cyan"), after, style="dim")
    console.print("", heading, sep="\n")
    if not one.neighbors:
        console.print(
            "  [dim]no other word in the corpus[/]" if one.known else "  [yellow]unknown to these vectors[/]"
        )
        return
    width = max(30, console.width - 34)  # of the snippets
    table = Table(box=None, show_header=False)
    table.add_column(width=6, justify="right")
    table.add_column(max_width=20, no_wrap=True, overflow="ellipsis", style="bold")
    table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    side = width // 2 - 5
    for hit in one.neighbors:
        style = "green" if hit.score >= 0.8 else "yellow" if hit.score >= 0.5 else "dim"
        before, after = around(hit.words, hit.position) if hit.words else ("", "")
        left = Text(before if len(before) <= side else f"…{before[1 - side :]}")
        left.align("right", side)  # so that all words begin in one column
        snippet = Text.assemble(left, (hit.word, "bold cyan"), after) if hit.words else ""
        table.add_row(Text(f"{hit.score:.3f}", style), Text(hit.word), snippet)
    console.print(table)


def around(words: Sequence[str], position: int) -> tuple[str, str]:
    """What stands before and after a word, with spaces roughly as they were written.

    >>> print("no".join(around(["He", "did", "n't", "say", '"', "no", '"', "(", "yet", ")", "."], 5)))
    He didn't say "no" (yet).
    """
    marked = [*words[:position], f"\0{words[position]}\0", *words[position + 1 :]]
    text = _QUOTED.sub(r'"\1"', _NO_SPACE.sub("", " ".join(marked)))
    before, _, after = text.split("\0")
    return before, after
