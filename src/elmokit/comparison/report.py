"""The report of a comparison: a Document, its files, and the ranking on the terminal."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.comparison.data import SPLITS
from elmokit.comparison.ranking import format_rank
from elmokit.comparison.result import (
    MAIN_SPLIT,
    Comparison,
    MethodResult,
    Pretraining,
    Score,
    class_counts,
    to_json,
)
from elmokit.comparison.verdict import answer, format_interval, format_p, format_points, summarize_ranking
from elmokit.core.formatting import format_duration, format_size, format_value, one_line, percent, plural
from elmokit.report import render
from elmokit.report.document import (
    Cell,
    Code,
    Column,
    Document,
    Fact,
    Figure,
    Section,
    Table,
    make_confusion_table,
    make_list,
    make_table,
)
from elmokit.report.figures import Line, Point, draw_lines, draw_scatter, shorten
from elmokit.tasks.model_report import MixRecord, draw_history
from elmokit.tasks.task import format_score_name

if TYPE_CHECKING:
    from rich.console import Console

_LOOKS = {"elmo": 0, "static": 1, "linear": 2, "foreign": 3}  # color and shape of each family
_TERMINAL = ("Test", "Valid", "macro F1", "Pretrain", "Fit", "Texts per second", "Disk")
_MAX_CLASSES = 30  # of a confusion matrix
_STRONGEST = 0.45  # shade of the best F1


def write_report(comparison: Comparison) -> list[Path]:
    """Write report.json, report.md, report.html and pictures of confusion matrices."""
    return render.write_report(comparison.folder, make_document(comparison), to_json(comparison))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the ranking and the answer."""
    if comparison.ranked:
        render.print_table(make_ranking_table(comparison, _TERMINAL, 26), console)
    for result in comparison.methods:
        if result.status != "done":
            reason = f"{result.method.name} {result.status}: {result.reason}"
            console.print(one_line(reason), markup=False, soft_wrap=True)
    console.print("", *map(one_line, answer(comparison)), sep="\n", markup=False, soft_wrap=True)


def make_document(comparison: Comparison) -> Document:
    """The report as a Document."""
    lead, *more = answer(comparison)
    n_methods, n_rows = len(comparison.methods), len(comparison.data.splits[MAIN_SPLIT])
    return Document(
        comparison.title,
        f"{lead}\n\n{' '.join(more)}",
        tuple(_sections(comparison)),
        tuple(_facts(comparison)),
        (*comparison.notes, *comparison.plan.left_out),
        f"{plural(n_methods, 'method')} on {plural(n_rows, 'test row')}.",
    )


def _sections(comparison: Comparison) -> Iterator[Section]:
    yield _ranking_section(comparison)
    if len(comparison.ranked) > 1:
        yield _scores_section(comparison)
    if comparison.ranked:
        yield _differences_section(comparison)
    if comparison.curve:
        yield _curve_section(comparison)
    details = [result.details[MAIN_SPLIT] for result in comparison.ranked]
    if details and all(detail.get("per_class") for detail in details):
        yield _classes_section(comparison)
    if details and all("confusion" in detail for detail in details):
        yield _confusion_section(comparison)
    if comparison.examples:
        yield _examples_section(comparison)
    losses = [
        draw_history(result.history, ("train_loss", "valid_loss"), result.method.name)
        for result in comparison.ranked
        if len(result.history) > 1 and "l2" not in result.history[0]  # what a linear head tried
    ]
    if losses:
        yield Section("training", "Training", "Loss of the first seed.", tuple(losses), folded=True)
    if any(result.mix is not None for result in comparison.ranked):
        yield _mix_section(comparison)
    if comparison.pretraining is not None:
        yield _pretraining_section(comparison.pretraining)
    yield _data_section(comparison)
    yield _details_section(comparison)


def _facts(comparison: Comparison) -> Iterator[Fact]:
    """The main numbers of the recommended method."""
    if comparison.recommended is None:
        return
    result = comparison.method(comparison.recommended)
    score, cost = result.main, result.cost
    note = f"95% interval {_interval(result)}"
    if score.sd is not None:
        note = f"± {percent(score.sd)} over {plural(len(score.values), 'seed')}, {note}"
    yield Fact(f"{_title(comparison.metric)} on test", f"{percent(score.mean)}%", note)
    note = f"of it {_rough(cost.pretrain_seconds)} pretraining" if cost.pretrain_seconds else "to fit"
    yield Fact("Time", _rough(cost.seconds), note)
    yield Fact("Speed", _rate(cost.texts_per_second), "texts per second")
    if cost.n_bytes:
        yield Fact("Size", format_size(cost.n_bytes), "on disk")


# -- ranking --------------------------------------------------------------------------------------


def _ranking_section(comparison: Comparison) -> Section:
    items, text = [], []
    if comparison.ranked:
        items.append(make_ranking_table(comparison))
        text.append("In percent: mean and standard deviation (±) over the seeds, then the 95% interval.")
        text.append("Methods that share a range of ranks are not significantly different.")
    missing = [
        [_name(result), result.status, result.reason]
        for result in comparison.methods
        if result.status != "done"
    ]
    if missing:
        items.append(make_table([Column("Method"), Column("Status"), Column("Reason")], missing))
    return Section("ranking", "Ranking", " ".join(text), tuple(items))


def make_ranking_table(comparison: Comparison, titles: Collection[str] = (), name_width: int = 48) -> Table:
    """A row for each finished method; of the columns those with ``titles``, or all that have values."""
    ranking = comparison.ranking
    rows = [_ranking_cells(comparison, result) for result in comparison.ranked]
    columns = [
        column
        for column in rows[0]
        if (not titles or column.title in titles) and any(row[column].text != "–" for row in rows)
    ]
    return make_table(
        ["Method", "Rank", *columns],
        [
            [_name(result, name_width), format_rank(ranking.ranks[id]), *(row[column] for column in columns)]
            for id, result, row in zip(ranking.order, comparison.ranked, rows, strict=True)
        ],
        highlight=ranking.order.index(comparison.recommended or ""),
    )


def _ranking_cells(comparison: Comparison, result: MethodResult) -> dict[Column, Cell]:
    cost, metric, figures = result.cost, _title(comparison.metric), result.figures[MAIN_SPLIT]
    cells = [
        ("Test", metric, _spread(result.main)),
        ("Valid", metric, percent(result.scores["valid"].mean)),
        ("Train", metric, percent(result.scores["train"].mean)),
        *(
            (format_score_name(name), "Other scores on test", percent(figures[name].mean))
            for name in _further_scores(comparison)
        ),
        ("Pretrain", "Time", _rough(cost.pretrain_seconds)),
        ("Fit", "Time", _rough(cost.fit_seconds)),
        ("Texts per second", "", _rate(cost.texts_per_second)),
        ("Memory", "Memory and disk", _size(cost.peak_memory)),
        ("Disk", "Memory and disk", _size(cost.n_bytes)),
    ]
    return {
        Column(title, "right", group): Cell(text, note=_interval(result) if title == "Test" else "")
        for title, group, text in cells
    }


def _further_scores(comparison: Comparison) -> list[str]:
    """Names of up to three scores besides the main one."""
    names = [name for name in comparison.ranked[0].figures[MAIN_SPLIT] if name != comparison.metric]
    return [name for name in names if name.endswith(("precision", "recall", "f1"))][:3]


def _scores_section(comparison: Comparison) -> Section:
    points, name = [], format_score_name(comparison.metric)
    for place, result in enumerate(comparison.ranked, start=1):
        x, start, look = (
            max(result.cost.seconds, 0.001),
            result.cost.fit_seconds,
            _LOOKS[result.method.family],
        )
        points.append(
            Point(str(place), result.method.name, x, result.main.mean, *result.interval, start, look)
        )
    text = (
        f"{_title(name)} on test with its 95% interval, over time. The dotted line joins methods that no "
        "other beats in both; a thin horizontal line is pretraining, which is done once. "
        + "; ".join(f"{point.label}: {point.name}" for point in points)
    )
    figure = draw_scatter(points, x_label="time to pretrain and fit", y_label=name)
    return Section("scores", f"{_title(name)} and time", f"{text}.", (figure,))


def _differences_section(comparison: Comparison) -> Section:
    names = comparison.names
    rows = [
        [
            names[pair.better],
            names[pair.worse],
            format_points(pair.difference),
            format_interval(pair),
            format_p(pair.p_adjusted).removeprefix("= "),
            "significant" if pair.significant else "not significant",
        ]
        for pair in comparison.ranking.pairs
    ]
    head = ("Better", Column("Worse"), "Points", "95% interval", "p, corrected", "Verdict")
    table = make_table(head, rows, caption="Every pair", folded=True)
    text = _bullets(summarize_ranking(comparison))
    return Section("differences", "Significant differences", text, (table,) if rows else ())


def _curve_section(comparison: Comparison) -> Section:
    counts, draws = (*comparison.plan.counts, len(comparison.data.splits["train"])), comparison.plan.draws
    results = [(comparison.method(id), scores) for id, scores in comparison.curve.items()]
    results.sort(key=lambda entry: -next(iter(entry[1].values())).mean)
    lines: list[Line] = []
    rows: list[list[Cell | str]] = []
    for result, scores in results:
        means, sds = zip(*((score.mean, score.sd or 0.0) for score in scores.values()), strict=True)
        lines.append(Line(result.method.name, list(scores), means, sds, _LOOKS[result.method.family]))
        rows.append([_name(result), *(_spread(scores[n], 1) if n in scores else "–" for n in counts)])
    text = f"{_title(comparison.metric)} on test by the number of labeled train rows, in percent"
    text += f"; mean of {draws} random draws, ± one standard deviation." if draws > 1 else "."
    figure = draw_lines(lines, x_label="labeled rows", in_percent=True, log_x=True)
    table = make_table(["Method", *(f"{n:,}" for n in counts)], rows)
    return Section("curve", "Learning curve", text, (figure, table))


# -- classes --------------------------------------------------------------------------------------


def _classes_section(comparison: Comparison) -> Section:
    """F1 of every class by every method."""
    results = comparison.ranked
    per_class = [result.details[MAIN_SPLIT]["per_class"] for result in results]
    classes = [entry["name"] for entry in per_class[0]]
    scores = np.array([[entry["f1"] for entry in own] for own in per_class]).T  # (n_classes, n_methods)
    shades = _STRONGEST * (scores - scores.min()) / max(np.ptp(scores), 1e-9)
    best = scores == scores.max(axis=1, keepdims=True)
    rows = [
        [Cell(name), *(Cell(percent(f1), shade, bold=bold) for f1, shade, bold in zip(*row, strict=True))]
        for name, *row in zip(classes, scores, shades, best, strict=True)
    ]
    head = ["Class", *(shorten(result.method.name, 40) for result in results)]
    text = "F1 on test, in percent. The best method for each class is bold."
    return Section("classes", "Scores by class", text, (make_table(head, rows),))


def _confusion_section(comparison: Comparison) -> Section:
    """All splits of the recommended method, then test for the others."""
    classes = comparison.data.labels.names
    if len(classes) > _MAX_CLASSES:
        text = f"{len(classes):,} classes are too many for tables; report.json has the counts."
        return Section("confusion", "Confusion matrix", text)
    first, *others = sorted(comparison.ranked, key=lambda result: result.method.id != comparison.recommended)
    shown = [(first, split) for split in reversed(SPLITS)] + [(other, MAIN_SPLIT) for other in others]
    tables = tuple(
        make_confusion_table(
            result.details[split]["confusion"],
            result.details[split]["confusion_rows"],
            classes,
            f"{shorten(result.method.name, 48)}, {split}",
            folded=number > 0,
            picture=f"confusion_{split}.png" if result is first else "",
        )
        for number, (result, split) in enumerate(shown)
    )
    text = "Rows are true classes, columns are predicted ones. Counts of the first seed, shaded by row share."
    return Section("confusion", "Confusion matrix", text, tables)


def _examples_section(comparison: Comparison) -> Section:
    names = {id: shorten(name, 40) for id, name in comparison.names.items()}
    rows = []
    for example in comparison.examples:
        right = " · ".join(names[id] for id in example.right)
        wrong = " · ".join(f"{names[id]} ({example.guesses[id]})" for id in example.wrong)
        rows.append([example.text, example.label, right, wrong])
    head = [Column("Text"), Column("True"), Column("Right"), Column("Wrong")]
    text = "First, texts that the best method gets right and most others get wrong; then the opposite."
    return Section("examples", "Texts on which the methods disagree", text, (make_table(head, rows),))


# -- how it was made ------------------------------------------------------------------------------


def _mix_section(comparison: Comparison) -> Section:
    mixes = [(result, MixRecord(**result.mix)) for result in comparison.ranked if result.mix is not None]
    layers = max((mix.names for _, mix in mixes), key=len)
    rows: list[list[Cell | str]] = []
    for result, mix in mixes:
        values = [*mix.values, *[None] * (len(layers) - len(mix.values)), mix.gamma]
        rows.append([_name(result), *("–" if value is None else f"{value:.3f}" for value in values)])
    text = "Weight of each layer in the mix of the first seed; γ scales the mix."
    return Section("mix", "Mix of the layers", text, (make_table(["Method", *layers, "γ"], rows),))


def _pretraining_section(model: Pretraining) -> Section:
    rows = [
        ("Encoder", f"{model.name} (1 of {model.n_models})"),
        ("Time", _rough(model.seconds)),
        ("Perplexity", format_value(model.perplexity)),
        ("Perplexity, forward", format_value(model.forward)),
        ("Perplexity, backward", format_value(model.backward)),
        ("Parameters", format_value(model.parameters)),
        ("Vocabulary", plural(model.words, "word")),
    ]
    text = "The encoder was pretrained on the train texts without their labels."
    if model.was_given:
        text = (
            "The encoder was pretrained on other text, which no other method saw; that time is not counted."
        )
    text += " It was trained with one seed; intervals and tests do not include its variation."
    items: list[Figure | Table] = [make_list([row for row in rows if row[1] != "–"])]
    if len(model.history) > 1:
        x, y = ([entry[key] for entry in model.history] for key in ("epoch", "perplexity"))
        items.append(draw_lines([Line("held-out text", x, y)], x_label="epoch", caption="Perplexity"))
    return Section("pretraining", "Pretraining", text, tuple(items))


def _data_section(comparison: Comparison) -> Section:
    data, counts = comparison.data, class_counts(comparison.data)
    rows = [["File", *(data.names.get(split, "–") for split in data.splits)]]
    rows.append(["All rows", *(f"{len(examples):,}" for examples in data.splits.values())])
    for name in dict.fromkeys(itertools.chain(data.labels.names, *counts.values())) if counts else ():
        rows.append([name or "(empty)", *(f"{counts[split][name]:,}" for split in data.splits)])
    notes = defaultdict(list)
    for result in comparison.methods:
        for note in result.notes:
            notes[note].append(result.method.name)
    text = _bullets([*data.notes, *(f"{' · '.join(names)}: {note}" for note, names in notes.items())])
    table = make_table(["Rows", *data.splits], rows, highlight=1)
    return Section("data", "Data", text, (table,))


def _details_section(comparison: Comparison) -> Section:
    lists: list[tuple[str, Mapping[str, Any]]] = [
        ("Machine", {**comparison.machine, "memory": _size(comparison.machine["memory"])}),
        ("Versions", comparison.versions),
        *((result.method.name, result.settings) for result in comparison.methods if result.settings),
    ]
    items: list[Code | Table] = [Code(comparison.command, "Command")] if comparison.command else []
    for caption, values in lists:
        items.append(make_list(((name, format_value(value)) for name, value in values.items()), caption))
    return Section("details", "How it was made", "", tuple(items), folded=True)


def _name(result: MethodResult, width: int = 48) -> Cell:
    return Cell(shorten(result.method.name, width), look=_LOOKS[result.method.family])


def _title(metric: str) -> str:
    name = format_score_name(metric)
    return name[0].upper() + name[1:]


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(sentence)}" for sentence in sentences)


def _spread(score: Score, places: int = 2) -> str:
    """The mean and, for several seeds, their standard deviation."""
    return percent(score.mean, places) + ("" if score.sd is None else f" ± {percent(score.sd, places)}")


def _interval(result: MethodResult) -> str:
    return " to ".join(percent(end, 1) for end in result.interval)


def _rough(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _size(n_bytes: int | None) -> str:
    return "–" if n_bytes is None else format_size(n_bytes)


def _rate(speed: float | None) -> str:
    return "–" if speed is None else f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
