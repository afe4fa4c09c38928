"""``elmokit inspect``: what a model is."""

from __future__ import annotations

from dataclasses import replace

from elmokit.cli.options import Json, Model


def command(model: Model, as_json: Json = False) -> None:
    """Show the sizes, training and scores of a model."""
    from elmokit.core.console import Reporter
    from elmokit.core.formatting import format_size
    from elmokit.core.model_card import print_facts
    from elmokit.core.model_folder import load

    loaded = load(model)
    facts = loaded.facts()
    home = model if model.is_dir() else model.parent
    files = [file for file in home.rglob("*") if file.is_file() and file.relative_to(home).parts[0] != "run"]
    n_bytes = sum(file.stat().st_size for file in files)
    title = model.name or model.resolve().name
    reporter = Reporter("json" if as_json else "auto")
    reporter.result({"folder": title, "kind": loaded.kind, **facts.values, "bytes": n_bytes})
    rows = (*facts.rows, ("on disk", format_size(n_bytes)))
    print_facts(replace(facts, title=title, rows=rows), reporter.console)
