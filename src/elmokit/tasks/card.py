"""The facts of a classifier folder, for a person and for a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elmokit.tasks.model import TextClassifier

__all__ = ["describe", "render"]

_WIDTH = 24


def describe(classifier: TextClassifier, folder: Path) -> dict[str, Any]:
    """All facts as plain values."""
    network, record = classifier.network, classifier.record
    mix = network.mix.values()
    files = [
        file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder).parts[0] != "run"
    ]
    return {
        "folder": folder.name or folder.resolve().name,
        "kind": "classifier",
        "classes": classifier.classes,
        "multilabel": classifier.multilabel,
        "settings": network.config.to_dict(),
        "mix": mix,
        "mix_history": [
            {name: entry[name] for name in mix if name in entry}
            for entry in [record.get("mix_start", {}), *record.get("history", [])]
        ],
        "splits": record.get("splits", {}),
        "encoder": record.get("encoder", {}),
        "n_parameters": {
            "mix and head": sum(p.numel() for p in network.parameters()),
            "encoder": sum(p.numel() for p in classifier.encoder.module.parameters()),
        },
        "bytes": sum(file.stat().st_size for file in files),
        "record": {
            name: record[name]
            for name in ("date", "command", "timings", "versions", "notes", "history")
            if name in record
        },
    }


def render(facts: dict[str, Any], console: Console) -> None:
    """Print the facts as a card."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    settings = facts["settings"]
    shown = ", ".join(facts["classes"][:12]) + (", …" if len(facts["classes"]) > 12 else "")
    table.add_row("classes", f"{len(facts['classes'])}: {escape(shown)}")
    how = "fine-tuned" if settings["fit"]["finetune"] else "frozen"
    encoder = facts["encoder"]
    wide = f", {encoder['layers']} layers, {encoder['width']} wide" if encoder else ""
    table.add_row("encoder", f"{escape(str(encoder.get('name', 'encoder')))} ({how}{wide})")
    table.add_row("head", f"{settings['head']['head']}, {settings['head']['head_dim']} wide")
    form = f", {settings['mix']['mix_form']}" if settings["mix"]["mix"] != "function" else ""
    table.add_row("mix", f"[bold]{settings['mix']['mix']}[/]{form}")
    highest = max(abs(value) for name, value in facts["mix"].items() if name != "mix_gamma") or 1.0
    for name, value in facts["mix"].items():
        label = "gamma" if name == "mix_gamma" else f"layer {name.removeprefix('mix_')}"
        bar = "█" * round(_WIDTH * abs(value) / highest) if name != "mix_gamma" else ""
        way = [entry[name] for entry in facts["mix_history"] if name in entry]
        every = -(-len(way) // 6) or 1  # half a dozen values at most
        seen = " → ".join(f"{value:.3f}" for value in [*way[:-1:every], *way[-1:]])
        table.add_row("", f"{label}  [cyan]{bar:<{_WIDTH}}[/] {value:.3f}  [dim]{seen}[/]")
    for split, figures in facts["splits"].items():
        table.add_row(
            split,
            f"accuracy [bold]{figures['accuracy']:.4f}[/], macro F1 {figures['macro']['f1']:.4f}"
            f" [dim]({figures['n']:,} rows)[/]",
        )
    counts = facts["n_parameters"]
    table.add_row("parameters", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    if facts["record"].get("command"):
        table.add_row("made by", escape(facts["record"]["command"]))
    table.add_row("on disk", f"{facts['bytes'] / 1e6:,.1f} MB")
    console.print(f"[bold]{escape(facts['folder'])}[/]: a text classifier\n")
    console.print(table)
