"""The report of a fitted model: the task's own sections, then training, mix and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.core.formatting import format_duration, format_rate, format_value, percent, plural
from elmokit.report.document import Document, Fact, Figure, Section, make_details, make_table
from elmokit.report.figures import Line, draw_lines
from elmokit.report.render import write_report
from elmokit.tasks.heads import LinearHead
from elmokit.tasks.metrics import ClassificationMetrics
from elmokit.tasks.model import TaskModel
from elmokit.tasks.stack import StackModel
from elmokit.tasks.task import Metrics, Predictor, format_score_name, format_title

_MIX_KINDS = {
    "trainable": "The weights are learned with the head.",
    "frozen": "The weights are set beforehand and not learned.",
    "function": "A learned function mixes the layers; the table shows each layer's share of its norm.",
}


def write_model_report(out: Path, model: Predictor, metrics: Mapping[str, Metrics], title: str) -> None:
    """Write the report of a model, by the last split."""
    write_report(out, model_document(model, metrics, title), report_record(model, metrics, title))


def model_document(model: Predictor, metrics: Mapping[str, Metrics], title: str) -> Document:
    """The report for people."""
    *_, split = metrics
    main, record = metrics[split], model.record
    context = f"Measured on the {split} split: {plural(main.n, 'row')}"
    if classes := model.task.classes(model.labels):
        context += f", {plural(len(classes), 'class', 'classes')}"
    facts = [Fact(format_title(name), _show(name, main), f"on {split}") for name in [*main.values][:4]]
    if speed := record.timings.get("documents_per_second"):
        facts.append(Fact("Speed", format_rate(speed), "rows per second"))
    sections = [_scores_section(metrics), *model.task.sections(metrics)]
    if isinstance(model, TaskModel):
        if history := _course(model):
            sections.append(_training_section(history))
        sections.append(_mix_section(mix_record(model)))
    if isinstance(model, StackModel):
        sections.append(_views_section(model))
    sections.append(_details_section(model))
    return Document(title, "", tuple(sections), tuple(facts), tuple(record.notes), f"{context}.")


def report_record(model: Predictor, metrics: Mapping[str, Metrics], title: str) -> dict[str, Any]:
    """What report.json holds, with the keys of 0.1."""
    names = ("encoder", "timings", "versions", "command", "notes", "rivals")
    single = {split: one for split, one in metrics.items() if isinstance(one, ClassificationMetrics)}
    facts: dict[str, Any] = {
        "title": title,
        "task": model.task.name,
        "classes": list(model.labels.names),
        "multilabel": bool(model.labels.separator),
        "splits": {split: one.to_json() for split, one in metrics.items()},
        "mistakes": {split: [asdict(entry) for entry in one.mistakes()] for split, one in single.items()},
        **{name: getattr(model.record, name) for name in names},
    }
    if isinstance(model, TaskModel):
        facts |= {"mix": asdict(mix_record(model)), "settings": model.config.to_flat()}
        facts["history"] = [
            {name: value for name, value in entry.items() if not name.startswith("mix_")}
            for entry in model.record.history
        ]
    if isinstance(model, StackModel):
        facts["views"] = [asdict(view) for view in model.tried]
    return facts


@dataclass(frozen=True)
class MixRecord:
    """The weights of the layers: now, and at each of ``epochs`` (none for a linear head)."""

    kind: str
    form: str
    names: list[str]
    values: list[float]
    gamma: float | None
    history: list[list[float]]
    epochs: list[float]


def mix_record(model: TaskModel) -> MixRecord:
    """The weights of the layers and their course over the epochs."""
    record, values, config = model.record, model.network.mix.values(), model.config
    gamma = values.pop("mix_gamma", None)
    course = [record.mix_start, *history] if (history := _course(model)) else []
    names = [f"layer {depth}{'' if depth else ' (token encoder)'}" for depth in range(model.encoder.n_layers)]
    shares = [[entry[key] for key in values] for entry in course]
    epochs = [round(place / config.fit.evals_per_epoch, 2) for place in range(len(course))]
    form = config.mix.mix_form
    return MixRecord(config.mix.mix, form, names, list(values.values()), gamma, shares, epochs)


def _course(model: TaskModel) -> Sequence[Mapping[str, float]]:
    """The history of training; none for a linear head, whose history is what was tried."""
    return () if isinstance(model.network.head, LinearHead) else model.record.history


def draw_history(
    history: Sequence[Mapping[str, float]], keys: Iterable[str], caption: str, **options: Any
) -> Figure:
    """The figures of all evaluations, over the epochs, or over the steps if an epoch has several."""
    epochs = [entry["epoch"] for entry in history]
    axis = "epoch" if len(set(epochs)) == len(epochs) else "step"
    known = [key for key in keys if all(key in entry for entry in history)]
    columns = {key: [entry[key] for entry in history] for key in (axis, *known)}
    lines = [Line(format_score_name(key), columns[axis], columns[key]) for key in known]
    return draw_lines(lines, x_label=axis, caption=caption, **options)


def _scores_section(metrics: Mapping[str, Metrics]) -> Section:
    names = list(dict.fromkeys(name for one in metrics.values() for name in one.values))
    rows = [["Rows", *(f"{one.n:,}" for one in metrics.values())]]
    rows += [[format_title(name), *(_show(name, one) for one in metrics.values())] for name in names]
    explained = {
        "macro_f1": "Macro averages count every class equally, weighted ones by its rows.",
        "ece": "ECE, the expected calibration error, is the mean gap between probability and accuracy.",
    }
    text = " ".join(sentence for name, sentence in explained.items() if name in names)
    return Section("scores", "Scores", text, (make_table(["Score", *metrics], rows),))


def _show(name: str, metrics: Metrics) -> str:
    value = metrics.values.get(name)
    return "–" if value is None else f"{value:.4f}" if name == "log_loss" else f"{value:.2%}"


def _training_section(history: Sequence[Mapping[str, float]]) -> Section:
    columns = [key for key in history[-1] if not key.startswith("mix_")]
    scores = [key for key in columns if key not in ("step", "epoch", "train_loss", "valid_loss")]
    rows = [[format_value(entry.get(key)) for key in columns] for entry in history]
    items = (
        draw_history(history, ("train_loss", "valid_loss"), "Loss"),
        draw_history(history, scores, "Score on validation rows", in_percent=True),
        make_table(map(format_score_name, columns), rows, caption="Every evaluation", folded=True),
    )
    return Section("training", "Training", "", items)


def _mix_section(mix: MixRecord) -> Section:
    figures, starts = [], ["–"] * len(mix.names)
    if mix.history:
        columns = zip(mix.names, zip(*mix.history, strict=True), strict=True)
        lines = [Line(name, mix.epochs, list(column)) for name, column in columns]
        figures = [draw_lines(lines, x_label="epoch", caption="Weight of each layer")]
        starts = [f"{value:.4f}" for value in mix.history[0]]
    rows = zip(mix.names, starts, (f"{value:.4f}" for value in mix.values), strict=True)
    table = make_table(["Layer", "Start", "Final"], rows)
    return Section("mix", "Mix of the layers", _MIX_KINDS[mix.kind], (*figures, table))


def _views_section(model: StackModel) -> Section:
    text = (
        "Each view is a logistic regression. Their log-probabilities are added with these weights; a view "
        "without weight is left out. Scores are out of fold: each row was predicted by fits that had "
        "not seen it."
    )
    rows = [
        [view.name, f"{view.weight:.3f}", f"{view.strength:.3g}", percent(view.score)] for view in model.tried
    ]
    rows += [[name, "–", "–", percent(score)] for name, score in model.record.rivals.items()]
    return Section("views", "Views", text, (make_table(["View or rival", "Weight", "C", "Score (%)"], rows),))


def _details_section(model: Predictor) -> Section:
    record, config = model.record, getattr(model, "config", None)
    timings = {name: format_duration(value) for name, value in record.timings.items()}
    if timings.pop("documents_per_second", ""):
        timings["rows per second"] = format_value(record.timings["documents_per_second"])
    settings = config.to_flat() if config else model.facts().values["settings"]
    lists = {"Encoder": record.encoder, "Settings": settings, "Timings": timings, "Versions": record.versions}
    return make_details(record.command, *lists.items())
