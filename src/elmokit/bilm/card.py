"""The facts of a model folder, for a person and for a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elmokit.bilm.folder import BilmFolder

__all__ = ["describe", "render"]

_CLIPS = {"cells": "cell_clip", "outputs": "proj_clip"}
_BARS = " ▁▂▃▄▅▆▇█"


def describe(saved: BilmFolder, folder: Path) -> dict[str, Any]:
    """All facts as plain values."""
    model, config = saved.model, saved.model.config

    def count(part: str) -> int:
        return sum(p.numel() for name, p in model.named_parameters() if name.startswith(part))

    home = folder if folder.is_dir() else folder.parent
    files = [file for file in sorted(home.iterdir()) if file.is_file()]
    return {
        "folder": folder.name or folder.resolve().name,
        "kind": "bilm",
        "model": config.to_dict(),
        "text": saved.text.to_dict(),
        "vector_dim": 2 * config.dim,
        "n_words": model.n_words,
        "n_pieces": model.n_pieces,
        "first_words": saved.vocabulary.words[4:16],
        "parameters": {
            "token encoder": count("encoder."),
            "forward LSTM": count("forward_stack."),
            "backward LSTM": count("backward_stack."),
            "word predictor": count("predictor."),
        },
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "bytes": sum(file.stat().st_size for file in files),
        "training": saved.training,
    }


def _spark(values: list[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[1 + round((value - low) / span * (len(_BARS) - 2))] for value in values)


def render(facts: dict[str, Any], console: Console) -> None:
    """Print the facts as a card."""
    config, text, training = facts["model"], facts["text"], facts["training"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, value: str) -> None:
        table.add_row(name, value)

    inputs = {
        "char": "characters: filters "
        + " ".join(f"{width}×{n}" for width, n in config["filters"])
        + f", {config['n_highway']} highway, words up to {config['max_chars']} bytes",
        "word": "word table" + (", shared with the output" if config["tie"] else ""),
        "subword": f"{facts['n_pieces']:,} subword pieces, {config['pooling']}",
        "morpheme": f"{facts['n_pieces']:,} morphemes, {config['pooling']}",
        "dictionary": f"{facts['n_pieces']:,} listed characters: filters "
        + " ".join(f"{width}×{n}" for width, n in config["filters"])
        + f", {config['n_highway']} highway; and a word table",
    }
    row("input", inputs[config["input"]])
    shape = f"{config['n_layers']} + {config['n_layers']} layers, {config['dim']} wide each way"
    if config["hidden_dim"] != config["dim"]:
        shape += f", {config['hidden_dim']} cells projected"
    clips = [f"{part} within ±{config[key]:g}" for part, key in _CLIPS.items() if config[key] is not None]
    row("LSTM", ", ".join([shape, *(["residual"] if config["residual"] else []), *clips]))
    row("vectors", f"{config['n_layers'] + 1} layers (0 is the token encoder), {facts['vector_dim']} wide")
    parts = ", ".join(f"{name} {count:,}" for name, count in facts["parameters"].items())
    row("parameters", f"[bold]{facts['n_parameters']:,}[/] ({parts})")
    first = f": {escape(' '.join(facts['first_words']))} …" if facts["first_words"] else ""
    row("vocabulary", f"{facts['n_words']:,} words{first}")
    switches = [name for name in ("mend", "contractions", "urls", "lowercase") if text[name]]
    if text["punctuation"] == "remove":
        switches.append("no punctuation")
    row("cleaning", ", ".join([*switches, f"{text['tokens']}, <s> per {text['unit']}"]))
    row("softmax", config["objective"])
    if corpus := training.get("corpus"):
        files = escape(", ".join(corpus["files"]))
        row("corpus", f"{corpus['n_words']:,} words, {corpus['n_documents']:,} texts ({files})")
        row("unknown", f"{corpus['unknown_share']:.2%} of its words")
    if training.get("n_steps"):
        row(
            "training",
            f"{training['n_steps']:,} steps, {training['n_words']:,} words, "
            f"{training['seconds']:,.0f} s, {training['date']}",
        )
    if valid := training.get("held_out"):
        row(
            "perplexity",
            f"[bold]{valid['perplexity']:,.2f}[/] held out, exact "
            f"(forward {valid['forward']:,.2f}, backward {valid['backward']:,.2f})",
        )
        values = [entry["perplexity"] for entry in training.get("history", [])]
        if len(values) > 1:
            row("", f"[cyan]{_spark(values)}[/]  {values[0]:,.1f} → {values[-1]:,.1f}")
    for text, figures in training.get("perplexities", {}).items():
        row(
            "perplexity",
            f"{figures['perplexity']:,.2f} on {escape(text)} "
            f"(forward {figures['forward']:,.2f}, backward {figures['backward']:,.2f})",
        )
    if source := training.get("source"):
        row("converted from", escape(f"{', '.join(source['files'])} ({source['format']})"))
    for note in training.get("notes", []):
        row("note", escape(note))
    if training.get("licence"):
        row("licence", escape(training["licence"]))
    if training.get("command"):
        row("made by", escape(training["command"]))
    row("on disk", f"{facts['bytes'] / 1e6:,.1f} MB")
    console.print(f"[bold]{escape(facts['folder'])}[/]: a bidirectional language model (ELMo)\n")
    console.print(table)
