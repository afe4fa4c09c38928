"""``elmokit similar``: where a word is used as it is in a sentence."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from elmokit.cli.options import READ, Settings, with_settings
from elmokit.core.errors import ConfigError
from elmokit.core.names import resolve_name
from elmokit.text.settings import ReadConfig
from elmokit.vectors.settings import StoreConfig

if TYPE_CHECKING:
    from elmokit.text.rows import TextSource
    from elmokit.vectors.neighbors import Occurrence, SimilarWords
    from elmokit.vectors.store import VectorStore

_CLOSING = {*".,;:!?%)]}…”’»。、！？", "...", "n't", "n’t"}
_OPENING = set("([{$£€#“‘«")
_OPENED = "\0"
_CLITIC = re.compile(r"['’](?:s|re|ve|ll|d|m)", re.IGNORECASE)


@with_settings(READ)
def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            parser=resolve_name,
            help="A bundled model, a folder, published ELMo files, or word vectors.",
        ),
    ],
    query: Annotated[str, typer.Argument(metavar="SENTENCE", help="A sentence with the words to look for.")],
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            help="Where to look: files, folders, patterns, - or a folder of elmokit embed; may repeat. "
            "Needed unless MODEL is word vectors.",
            show_default=False,
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(
            help="Only this word of the sentence. Else: all but punctuation and the model's 50 most "
            "frequent words.",
            show_default=False,
        ),
    ] = None,
    n_found: Annotated[int, typer.Option("-k", help="Occurrences to show for each word.", min=1)] = 8,
    different: Annotated[
        bool, typer.Option("--different", help="Leave out the same word: only other words in like use.")
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(help="Compare by one layer: 0 is the token encoder, -1 the top.", show_default=False),
    ] = None,
    mix_weights: Annotated[
        str,
        typer.Option(help="Compare by a mix of the layers, lowest first; else equal.", show_default=False),
    ] = "",
    state: Annotated[str, typer.Option(help="What each text starts from \\[zero|warm].")] = "zero",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    *,
    settings: Settings,
) -> None:
    """Find the words of a corpus that are used most like the words of a sentence.

    Words are compared by their vectors in context, so [bold]bank[/] in "the bank raised rates" finds
    other banks of that kind, and with [bold]--different[/] other words in its place. The static vectors
    of [bold]elmokit baseline[/] know no context: for them, the nearest words are found, without a corpus.
    """
    config = StoreConfig.from_dict({"layer": layer, "mix_weights": mix_weights, "state": state})
    read = ReadConfig.from_dict(settings)

    from elmokit.core.model_folder import kind_of

    if kind_of(model) == "word-vectors":
        _refuse_context(corpus, config)
        _static(model, query, word, n_found, as_json)
        return
    if not corpus:
        raise ConfigError(
            "There is nowhere to look: --in is missing.",
            remedy="Say --in with a text file, a folder, or a folder that elmokit embed has made.",
        )

    from elmokit.core.console import Reporter
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.neighbors import similar_words

    reporter = Reporter("silent" if as_json else "auto")
    elmo = Elmo.load(model)
    texts = _opened(corpus, read)
    try:
        with reporter.counting("Looking through the texts", _n_texts(texts), unit="texts") as advance:
            found = similar_words(
                elmo,
                query,
                texts,
                word=word,
                layer=config.layer,
                weights=config.weights,
                state=config.state,
                k=n_found,
                different=different,
                progress=advance,
            )
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(130) from None
    words = elmo.words([query])[0]
    if as_json:
        typer.echo(json.dumps(_record(words, found), ensure_ascii=False))
        return
    unknown = [one.word for one in found if one.word not in elmo.folder.vocabulary]
    if elmo.model.config.input == "word" and unknown:
        listed = escape(", ".join(dict.fromkeys(unknown)))
        reporter.say(f"[yellow]Unknown to this model, so read as <unk>: {listed}[/]")
    _show(words, found, Console(highlight=False))


def _refuse_context(corpus: list[str] | None, config: StoreConfig) -> None:
    """Refuse what only vectors in context can answer."""
    given = {"--in": corpus, "--layer": config.layer is not None, "--mix-weights": config.mix_weights}
    idle = [flag for flag, value in given.items() if value]
    if config.state != StoreConfig().state:
        idle.append("--state")
    if idle:
        raise ConfigError(
            f"Static word vectors know no context, so {', '.join(idle)} cannot be used with them.",
            remedy="Leave it out: the nearest words are found without a corpus.",
        )


def _static(model: Path, query: str, word: str | None, n_found: int, as_json: bool) -> None:
    """The nearest words, by vectors that are the same in every sentence."""
    from elmokit.static.word_vectors import WordVectors
    from elmokit.vectors.neighbors import similar_words

    vectors = WordVectors.load(model)
    found = similar_words(vectors, query, word=word, k=n_found)
    if as_json:
        record = {
            "query": vectors.words([query])[0],
            "context": False,
            "words": [
                {
                    "word": one.word,
                    "position": one.position,
                    "known": one.known,
                    "found": [{"score": round(near.score, 6), "word": near.word} for near in one.neighbors],
                }
                for one in found
            ],
        }
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    console = Console(highlight=False)
    console.print("[dim]Static vectors: the same in every sentence, so the rest of it does not matter.[/]")
    for one in found:
        console.print()
        console.print(Text.assemble((one.word, "bold cyan")))
        if not one.known:
            console.print("  [yellow]unknown to these vectors[/]")
            continue
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for near in one.neighbors:
            table.add_row(_score(near.score), Text(near.word))
        console.print(table)


def _opened(corpus: list[str], read: ReadConfig) -> TextSource | VectorStore:
    """The texts to look through, or a folder of vectors."""
    from elmokit.text.rows import TextSource
    from elmokit.vectors.store import MANIFEST, VectorStore

    stores = [place for place in corpus if place != "-" and (Path(place) / MANIFEST).is_file()]
    if not stores:
        return TextSource(corpus, read)
    if len(corpus) > 1:
        raise ConfigError(
            f"{stores[0]} is a folder of vectors, which cannot be mixed with others.",
            remedy="Give it alone, or give the text files.",
        )
    return VectorStore.open(stores[0])


def _n_texts(texts: Any) -> int | None:
    return len(texts) if hasattr(texts, "__len__") else None


def _record(words: list[str], found: list[SimilarWords]) -> dict[str, Any]:
    return {
        "query": words,
        "words": [
            {
                "word": one.word,
                "position": one.position,
                "found": [
                    {
                        "score": round(hit.score, 6),
                        "word": hit.word,
                        "id": hit.id,
                        "index": hit.index,
                        "position": hit.position,
                        "words": list(hit.words),
                    }
                    for hit in one.neighbors
                ],
            }
            for one in found
        ],
    }


def _show(words: list[str], found: list[SimilarWords], console: Console) -> None:
    for one in found:
        before, after = around(words, one.position)
        console.print()
        place = ((before, "dim"), (one.word, "cyan"), (after, "dim"))
        console.print(Text.assemble((one.word, "bold cyan"), ("  in  ", "dim"), *place))
        if not one.neighbors:
            console.print("  [dim]no other word in the corpus[/]")
            continue
        widest = min(20, max(cell_len(hit.word) for hit in one.neighbors))
        side = max(10, (console.width - 2 * widest - 14) // 2)
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(max_width=widest, no_wrap=True, overflow="ellipsis", style="bold")
        table.add_column(no_wrap=True, overflow="crop")
        for hit in one.neighbors:
            table.add_row(_score(hit.score), Text(hit.word), _snippet(hit, side))
        console.print(table)


def _score(score: float) -> Text:
    return Text(f"{score:.3f}", style="green" if score >= 0.8 else "yellow" if score >= 0.5 else "dim")


def around(words: Sequence[str], position: int) -> tuple[str, str]:
    """What stands before and after a word, spaces included."""
    spaced = _spaced(words)
    space = " " if spaced[position].startswith(" ") else ""
    return "".join(spaced[:position]) + space, "".join(spaced[position + 1 :])


def _snippet(hit: Occurrence, side: int) -> Text:
    """The text around a word, so much on each side that all words begin in one column."""
    before, after = around(hit.words, hit.position)
    before, after = _fitting(before, side, from_end=True), _fitting(after, side)
    padding = " " * (side - cell_len(before))
    return Text.assemble(padding, before, (hit.word, "bold cyan"), after)


def _fitting(text: str, room: int, from_end: bool = False) -> str:
    """As much of a text as there is room for, cut with …"""
    if cell_len(text) <= room:
        return text
    while cell_len(text) > room - 1:
        text = text[1:] if from_end else text[:-1]
    return f"…{text}" if from_end else f"{text}…"


def _spaced(words: Sequence[str]) -> list[str]:
    """Words with the space before each, roughly as they were written.

    >>> print("".join(_spaced(["He", "did", "n't", "say", '"', "no", '"', "(", "yet", ")", "."])))
    He didn't say "no" (yet).
    """
    found: list[str] = []
    n_quotes, last = 0, ""
    for word in words:
        opening = word in _OPENING or (word == '"' and n_quotes % 2 == 0)
        n_quotes += word == '"'
        sticks = word in _CLOSING or (word == '"' and not opening) or _CLITIC.fullmatch(word)
        dense = _wide(word[:1]) and _wide(last[-1:])
        found.append(word if not found or sticks or dense or last == _OPENED else f" {word}")
        last = _OPENED if opening else word
    return found


def _wide(char: str) -> bool:
    """Whether a sign belongs to a script that is written without spaces."""
    return bool(char) and unicodedata.east_asian_width(char) in "WF" and char.isalpha()
