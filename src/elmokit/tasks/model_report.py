"""The report of a fitted model: the task's own sections, then training, mix and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from elmokit.core.formatting import format_duration, format_value, plural
from elmokit.report.document import Code, Document, Fact, Figure, Section, Table, make_list, make_table
from elmokit.report.figures import Line, draw_lines
from elmokit.tasks.metrics import ClassificationMetrics
from elmokit.tasks.model import FitRecord, TaskModel
from elmokit.tasks.task import Metrics, Predictor, format_score_name

_MIX_KINDS = {
    "trainable": "The weights are learned with the head",
    "frozen": "The weights are set beforehand and not learned",
    "function": "A learned function mixes the layers; shown is each layer's share in the size of its matrix",
}
_MIX_FORMS = {"softmax": "; they add up to one.", "raw": "; they may take any value, also below zero."}


def model_document(
    model: Predictor, metrics: Mapping[str, Metrics], record: FitRecord, title: str
) -> Document:
    """A report on a model.

    Args:
        metrics: By split; the last one is the one that counts.
        record: Notes, timings and command to show: those of the fit, or of an evaluation.
    """
    *_, split = metrics
    main = metrics[split]
    context = f"Measured on the {split} split: {plural(main.n, 'row')}"
    if model.labels.names:
        context += f", {plural(len(model.labels), 'class', 'classes')}"
    facts = [_fact(name, value, split) for name, value in list(main.values.items())[:4]]
    if speed := record.timings.get("documents_per_second"):
        facts.append(Fact("Speed", f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}", "rows per second"))
    sections = model.task.sections(metrics)
    if isinstance(model, TaskModel):
        sections += _training_sections(model.record)
        sections.append(_mix_section(model))
    sections.append(_details_section(model, record))
    return Document(title, "", tuple(sections), tuple(facts), tuple(record.notes), f"{context}.")


def report_record(
    model: Predictor, metrics: Mapping[str, Metrics], record: FitRecord, title: str
) -> dict[str, Any]:
    """What report.json holds, with the keys of 0.1."""
    facts: dict[str, Any] = {
        "title": title,
        "task": model.task.name,
        "classes": list(model.labels.names),
        "multilabel": bool(model.labels.separator),
        "splits": {split: found.to_json() for split, found in metrics.items()},
    }
    if isinstance(model, TaskModel):
        kept = [
            {k: v for k, v in entry.items() if not k.startswith("mix_")} for entry in model.record.history
        ]
        facts |= {"history": kept, "mix": mix_record(model), "settings": _settings(model)}
    mistakes = {
        split: [asdict(mistake) for mistake in found.mistakes()]
        for split, found in metrics.items()
        if isinstance(found, ClassificationMetrics)
    }
    names = ("encoder", "timings", "versions", "command", "notes")
    return facts | {"mistakes": mistakes} | {name: getattr(record, name) for name in names}


def mix_record(model: TaskModel) -> dict[str, Any]:
    """The weights of the layers and their course over the epochs."""
    record, values = model.record, model.network.mix.values()
    keys = [key for key in values if key != "mix_gamma"]
    per_epoch = len([entry for entry in record.history if entry["epoch"] == 1]) or 1
    measured = [{**entry, "epoch": (place + 1) / per_epoch} for place, entry in enumerate(record.history)]
    start = {"epoch": 0.0, **record.mix_start}
    course = [entry for entry in [start, *measured] if all(key in entry for key in keys)]
    lower, *upper = (f"layer {depth}" for depth in range(model.encoder.n_layers))
    return {
        "kind": model.config.mix.mix,
        "form": model.config.mix.mix_form,
        "names": [f"{lower} (token encoder)", *upper],
        "values": [values[key] for key in keys],
        "gamma": values.get("mix_gamma"),
        "history": [[entry[key] for key in keys] for entry in course],
        "epochs": [round(entry["epoch"], 2) for entry in course],
    }


def _fact(name: str, value: float, split: str) -> Fact:
    shown = f"{value:.4f}" if name == "log_loss" else f"{value * 100:.2f}%"
    label = format_score_name(name)
    return Fact(label[0].upper() + label[1:], shown, f"on {split}")


def _training_sections(record: FitRecord) -> list[Section]:
    history = record.history
    if not history or "l2" in history[0]:  # a linear head is not trained in steps
        return []
    figures: list[Figure | Table] = []
    epochs = [float(entry["epoch"]) for entry in history]
    if len(set(epochs)) < len(epochs):
        epochs = [float(entry["step"]) for entry in history]
    x_label = "epoch" if epochs[0] == history[0]["epoch"] else "step"
    skipped = ("step", "epoch", "train_loss", "valid_loss")
    scores = [key for key in history[0] if key not in skipped and not key.startswith("mix_")]
    for caption, keys in (("Loss", ["train_loss", "valid_loss"]), ("Score on validation rows", scores)):
        lines = [
            Line(format_score_name(key), epochs, [entry[key] for entry in history])
            for key in keys
            if all(key in entry for entry in history)
        ]
        if lines:
            figures.append(draw_lines(lines, x_label=x_label, caption=caption, in_percent=caption != "Loss"))
    columns = [key for key in history[-1] if not key.startswith("mix_")]
    rows = [[format_value(entry.get(key)) for key in columns] for entry in history]
    heads = [format_score_name(key) for key in columns]
    figures.append(make_table(heads, rows, caption="Every evaluation", folded=True))
    return [Section("training", "Training", "", tuple(figures))]


def _mix_section(model: TaskModel) -> Section:
    record = mix_record(model)
    kind = record["kind"]
    text = _MIX_KINDS[kind] + (_MIX_FORMS[record["form"]] if kind != "function" else ".")
    history: Sequence[Sequence[float]] = record["history"]
    items: list[Figure | Table] = []
    if len(history) > 1 and "l2" not in model.record.history[0]:
        lines = [
            Line(name, record["epochs"], [row[column] for row in history])
            for column, name in enumerate(record["names"])
        ]
        items.append(draw_lines(lines, x_label="epoch", caption="Weight of each layer"))
    rows = [
        [name, f"{history[0][column]:.4f}" if history else "–", f"{value:.4f}"]
        for column, (name, value) in enumerate(zip(record["names"], record["values"], strict=True))
    ]
    items.append(make_table(["Layer", "Start", "Final"], rows))
    return Section("mix", "Mix of the layers", text, tuple(items))


def _details_section(model: Predictor, record: FitRecord) -> Section:
    timings = [
        ("rows per second", format_value(value))
        if name == "documents_per_second"
        else (name, format_duration(value))
        for name, value in record.timings.items()
    ]
    settings = _settings(model) if isinstance(model, TaskModel) else model.facts().values["settings"]
    lists: dict[str, list[tuple[str, str]]] = {
        "Encoder": [(name, format_value(value)) for name, value in record.encoder.items()],
        "Settings": [(name, format_value(value)) for name, value in settings.items()],
        "Timings": timings,
        "Versions": list(record.versions.items()),
    }
    items: list[Code | Table] = [Code(record.command, "Command")] if record.command else []
    items += [make_list(rows, caption) for caption, rows in lists.items() if rows]
    return Section("details", "How it was made", "", tuple(items), folded=True)


def _settings(model: TaskModel) -> dict[str, Any]:
    config = model.config
    return {**config.mix.to_dict(), **config.head.to_dict(), **config.fit.to_dict()}
