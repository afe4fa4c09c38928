"""The facts of a folder of word vectors, for a person and for a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elmokit.static.settings import METHODS
from elmokit.static.word_vectors import WordVectors
from elmokit.text.tokenizing import SPECIALS

__all__ = ["describe", "render", "sample_neighbours"]

_SAMPLED = 3
_METHODS = {**METHODS, "import": "imported"}


def describe(vectors: WordVectors, folder: Path) -> dict[str, Any]:
    """All facts as plain values."""
    return {
        "folder": folder.name or folder.resolve().name,
        "kind": "word-vectors",
        "n_words": vectors.n_words,
        "dim": vectors.dim,
        "text": vectors.text.to_dict(),
        "first_words": vectors.vocabulary.words[len(SPECIALS) :][:12],
        "neighbours": sample_neighbours(vectors),
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "training": vectors.training,
    }


def sample_neighbours(vectors: WordVectors, k: int = 5) -> dict[str, list[tuple[str, float]]]:
    """The nearest words of a few words that are neither very frequent nor rare, to get an idea."""
    words = vectors.vocabulary.words[len(SPECIALS) :]
    telling = [word for word in words[:1000] if len(word) > 3 and word.isalpha()]
    some = telling[len(telling) // 4 :: max(1, len(telling) // 4)][:_SAMPLED]
    return {word: vectors.neighbours(word, k) for word in some}


def render(facts: dict[str, Any], console: Console) -> None:
    """Print the facts as a card."""
    training = facts["training"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    method = training.get("method", "unknown")
    table.add_row("method", f"[bold]{escape(_METHODS.get(method, method))}[/]")
    table.add_row("vectors", f"{facts['n_words']:,} words, {facts['dim']} wide; the same in every context")
    table.add_row("vocabulary", f"{escape(' '.join(facts['first_words']))} …")
    if settings := training.get("settings"):
        table.add_row("settings", escape(", ".join(f"{name} {value}" for name, value in settings.items())))
    if corpus := training.get("corpus"):
        files = escape(", ".join(corpus["files"]))
        table.add_row("corpus", f"{corpus['n_words']:,} words, {corpus['n_documents']:,} texts ({files})")
        table.add_row("unknown", f"{corpus['unknown_share']:.2%} of its words")
        table.add_row("training", f"{training['seconds']:,.1f} s, {training['date']}")
    if training.get("file"):
        table.add_row("taken from", escape(training["file"]))
    for word, found in facts["neighbours"].items():
        near = ", ".join(f"{one} {score:.2f}" for one, score in found)
        table.add_row("near", f"[cyan]{escape(word)}[/]: {escape(near)}")
    for fact in training.get("intrinsic", []):
        value = "cannot be told" if fact["value"] is None else f"{fact['value']:.3f}"
        row = f"{fact['measure']} {value} ({fact['covered']:,} of {fact['total']:,})"
        table.add_row(escape(fact["task"]), row)
    if training.get("command"):
        table.add_row("made by", escape(training["command"]))
    table.add_row("on disk", f"{facts['bytes'] / 1e6:,.1f} MB")
    console.print(f"[bold]{escape(facts['folder'])}[/]: static word vectors\n")
    console.print(table)
