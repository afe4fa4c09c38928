"""What people read about vectors on disk: their size beforehand, and a card in the folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store_files import OFFSETS, TEXTS
from elmokit.vectors.store_size import StoreSize

__all__ = ["card", "plan", "size_text"]


def size_text(n_bytes: float) -> str:
    """A number of bytes for people.

    >>> size_text(999), size_text(1_234_000)
    ('999 bytes', '1.2 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes:,.0f} bytes"
    units = ["kB", "MB", "GB", "TB"]
    n_bytes /= 1000
    while n_bytes >= 1000 and len(units) > 1:
        n_bytes /= 1000
        units.pop(0)
    return f"{n_bytes:,.1f} {units[0]}"


def plan(manifest: dict[str, Any], config: StoreConfig, shape: Sequence[int], size: StoreSize) -> str:
    """What will be written, before it is."""
    widths = " × ".join(f"{width:,}" for width in shape)
    each = "one per word" if config.pool == "none" else f"one per text ({config.pool})"
    parts = {"vectors": size.vectors, "offsets": size.offsets, "texts": size.texts, **size.exports}
    lines = [
        f"Text: {manifest['n_words']:,} words in {manifest['n_texts']:,} texts.",
        f"Vectors: {each}, {escape(config.selection)}, {widths} {config.dtype}.",
        f"Size: [bold]{'about ' if size.exports else ''}{size_text(size.total)} on disk[/] "
        f"({', '.join(f'{name} {size_text(n_bytes)}' for name, n_bytes in parts.items())}).",
    ]
    n_empty = manifest["n_empty"]
    if n_empty:
        what = "no vectors" if config.pool == "none" else "a vector of zeros"
        who = (
            "1 text holds no word: it keeps its place and has"
            if n_empty == 1
            else (f"{n_empty:,} texts hold no word: they keep their places and have")
        )
        lines.append(f"[dim]{who} {what}.[/]")
    return "\n".join(lines)


def card(manifest: dict[str, Any], config: StoreConfig) -> str:
    """The README.md of the folder."""
    shape = "(n_vectors, layer, dim)" if config.all_layers else "(n_vectors, dim)"
    each = "per word" if config.pool == "none" else f"per text ({config.pool})"
    model, n_empty = manifest["model"], manifest["n_empty"]
    rows = {
        "model": f"{model['name'] or 'not named'} ({model['fingerprint']})",
        "texts": f"{manifest['n_texts']:,}, {manifest['n_words']:,} words, {n_empty:,} empty",
        "vectors": f"{manifest['n_vectors']:,}, one {each}: {config.selection}, start state {config.state}",
        f"`vectors.{config.format}`": f"{shape}, {manifest['dim']} wide, {config.dtype}",
        f"`{OFFSETS}`": "text i is vectors[offsets[i]:offsets[i + 1]]",
        f"`{TEXTS}`": "id, text and words of each text, one a line",
    }
    return "\n".join(
        [
            f"# Vectors of {manifest['n_texts']:,} texts",
            "",
            f"Made with elmokit {manifest['elmokit_version']}.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            "",
            "Open it in Python with `elmokit.VectorStore.open`.",
            "",
        ]
    )
