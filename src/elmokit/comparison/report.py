"""The report of a comparison: a Document, its files, and the ranking on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.comparison.data import SPLITS
from elmokit.comparison.ranking import format_rank
from elmokit.comparison.result import MAIN_SPLIT, Comparison, MethodResult, Score, to_json
from elmokit.comparison.verdict import answer, format_points, summarize_ranking
from elmokit.core.formatting import format_duration, format_size, format_value, one_line, percent, plural
from elmokit.report import figures, render
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
from elmokit.report.figures import Line, draw_lines, shorten
from elmokit.tasks.task import format_score_name

if TYPE_CHECKING:
    from rich.console import Console

_LOOKS = {"elmo": 0, "static": 1, "linear": 2}  # color and shape of each family
_PUBLISHED = (
    "Published: accuracies on the same test set in write-ups of these methods, after training on all 120,000 "
    "train rows."
)
_TERMINAL = ("Test", "Valid", "macro F1", "Pretrain", "Fit", "Texts per second", "Disk")
_MAX_CLASSES = 30  # of a confusion matrix
_STRONGEST = 0.45  # shade of the best F1


def write_report(comparison: Comparison) -> list[Path]:
    """Write report.json, report.md, report.html and pictures of confusion matrices."""
    return render.write_report(comparison.folder, make_document(comparison), to_json(comparison))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the ranking and the answer."""
    from rich.markup import escape

    if comparison.ranking is not None:
        render.print_table(make_ranking_table(comparison, _TERMINAL, 26), console)
    for result in comparison.methods:
        if result.status != "done":
            console.print(
                escape(f"{one_line(result.method.name)} {result.status}: {one_line(result.reason)}")
            )
    console.print()
    for sentence in answer(comparison):
        console.print(escape(one_line(sentence)), soft_wrap=True)


def make_document(comparison: Comparison) -> Document:
    """The report as a Document."""
    lead, *more = answer(comparison)
    sections = [
        *_ranking_section(comparison),
        *_scores_section(comparison),
        *_differences_section(comparison),
        *_curve_section(comparison),
        *_classes_section(comparison),
        *_confusion_section(comparison),
        *_examples_section(comparison),
        *_training_section(comparison.ranked),
        *_mix_section(comparison.ranked),
        *_pretraining_section(comparison),
        *_data_section(comparison),
        *_details_section(comparison),
    ]
    data = comparison.data
    context = f"{plural(len(comparison.methods), 'method')} on {plural(data.rows[MAIN_SPLIT], 'test row')}"
    if data.classes:
        context += f" in {plural(len(data.classes), 'class', 'classes')}"
    return Document(
        comparison.title,
        f"{lead}\n\n{' '.join(more)}",
        tuple(sections),
        tuple(_facts(comparison)),
        (*comparison.notes, *comparison.left_out),
        f"{context}.",
    )


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
    for name in _further_scores(comparison)[:1]:
        yield Fact(_title(name), f"{percent(result.figures[MAIN_SPLIT][name].mean)}%", "on test")
    pretraining = cost.pretrain_seconds
    note = f"of it {format_duration(pretraining, rough=True)} pretraining" if pretraining else "to fit"
    yield Fact("Time", format_duration(cost.seconds, rough=True), note)
    if cost.texts_per_second:
        yield Fact("Speed", _rate(cost.texts_per_second), "texts per second")
    if cost.n_bytes:
        yield Fact("Size", format_size(cost.n_bytes), "on disk")


# -- ranking --------------------------------------------------------------------------------------


def _ranking_section(comparison: Comparison) -> Iterator[Section]:
    items, text = [], []
    if comparison.ranking is not None:
        table = make_ranking_table(comparison)
        items.append(table)
        text.append("In percent: mean and standard deviation (±) over the seeds, below it the 95% interval.")
        if any(first != last for first, last in comparison.ranking.ranks.values()):
            text.append("Methods that share a range of ranks are not significantly different.")
        text += [_PUBLISHED] if any(column.title == "Published" for column in table.columns) else []
    missing = [result for result in comparison.methods if result.status != "done"]
    if missing:
        rows = [[_name(result), result.status, Cell(result.reason)] for result in missing]
        items.append(make_table([Column("Method"), Column("Status"), Column("Reason")], rows))
    yield Section("ranking", "Ranking", " ".join(text), tuple(items))


def make_ranking_table(comparison: Comparison, titles: Collection[str] = (), name_width: int = 48) -> Table:
    """A row for each finished method; of the columns those with ``titles``, or all that have values."""
    ranking = comparison.ranking
    assert ranking is not None
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
        highlight=None if comparison.recommended is None else ranking.order.index(comparison.recommended),
    )


def _ranking_cells(comparison: Comparison, result: MethodResult) -> dict[Column, Cell]:
    cost, name = result.cost, _title(comparison.metric)
    further = [(key, result.figures[MAIN_SPLIT][key].mean) for key in _further_scores(comparison)]
    published = " / ".join(percent(share, 1) for share in result.method.published)
    return {
        Column("Test", "right", name): Cell(_spread(result.main), note=_interval(result)),
        Column("Valid", "right", name): Cell(percent(result.scores["valid"].mean)),
        Column("Train", "right", name): Cell(percent(result.scores["train"].mean)),
        **{
            Column(format_score_name(key), "right", "Other scores on test"): Cell(percent(mean))
            for key, mean in further
        },
        Column("Pretrain", "right", "Time"): Cell(_rough(cost.pretrain_seconds)),
        Column("Fit", "right", "Time"): Cell(_rough(cost.fit_seconds)),
        Column("Texts per second", "right"): Cell(_rate(cost.texts_per_second)),
        Column("Memory", "right", "Memory and disk"): Cell(_size(cost.peak_memory)),
        Column("Disk", "right", "Memory and disk"): Cell(_size(cost.n_bytes)),
        Column("Published", "right"): Cell(published or "–"),
    }


def _further_scores(comparison: Comparison) -> list[str]:
    """Names of up to three scores besides the main one that every method has."""
    first, *others = [result.figures[MAIN_SPLIT] for result in comparison.ranked]
    names = [name for name in first if name.endswith(("precision", "recall", "f1"))]
    return [name for name in names if name != comparison.metric and all(name in other for other in others)][
        :3
    ]


def _scores_section(comparison: Comparison) -> Iterator[Section]:
    results = comparison.ranked
    if len(results) < 2:
        return
    name = format_score_name(comparison.metric)
    intervals, points = [], []
    for place, result in enumerate(results, start=1):
        score, cost, look = result.main, result.cost, _LOOKS[result.method.family]
        low, high = result.interval
        intervals.append(
            figures.Interval(f"{place}. {result.method.name}", score.mean, low, high, score.values, look)
        )
        seconds = max(cost.seconds, 0.001)
        points.append(
            figures.Point(str(place), result.method.name, seconds, score.mean, cost.fit_seconds, look)
        )
    text = (
        f"The dot is the mean {name} on test, the line its 95% interval; small ticks are seeds. The second "
        "figure has the same methods by number; the dotted line joins those that none beats in both score "
        "and time. A thin line is pretraining, which is done once."
    )
    drawings = (
        figures.draw_intervals(intervals, x_label=name, caption=f"{_title(name)} on test"),
        figures.draw_scatter(
            points, x_label="time to pretrain and fit", y_label=name, caption=f"{_title(name)} and time"
        ),
    )
    yield Section("scores", f"{_title(name)} and time", text, drawings)


def _differences_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.ranking is None:
        return
    names = {result.method.id: result.method.name for result in comparison.methods}
    rows = [
        [
            names[pair.better],
            Cell(names[pair.worse]),
            format_points(pair.difference, 2),
            f"{format_points(pair.low, 2)} to {format_points(pair.high, 2)}",
            "< 0.001" if pair.p_adjusted < 0.001 else f"{pair.p_adjusted:.3f}",
            "significant" if pair.significant else "not significant",
        ]
        for pair in comparison.ranking.pairs
    ]
    head: list[Column | str] = [
        "Better",
        Column("Worse"),
        "Points",
        "95% interval",
        "p, corrected",
        "Verdict",
    ]
    table = make_table(head, rows, caption="Every pair", folded=True)
    text = "\n".join(f"- {one_line(sentence)}" for sentence in summarize_ranking(comparison))
    yield Section("differences", "Significant differences", text, (table,) if rows else ())


def _curve_section(comparison: Comparison) -> Iterator[Section]:
    curve = comparison.curve
    if curve is None or not any(curve.scores.values()):
        return
    results = [(comparison.method(id), scores) for id, scores in curve.scores.items() if scores]
    results.sort(key=lambda entry: -next(iter(entry[1].values())).mean)
    lines = [
        Line(
            result.method.name,
            list(scores),
            [score.mean for score in scores.values()],
            [score.sd or 0.0 for score in scores.values()],
            _LOOKS[result.method.family],
        )
        for result, scores in results
    ]
    rows: list[list[Cell | str]] = [
        [_name(result), *(_spread(scores[n], 1) if n in scores else "–" for n in curve.counts)]
        for result, scores in results
    ]
    text = f"{_title(comparison.metric)} on test by the number of labeled train rows, in percent"
    text += f"; mean of {curve.draws} random draws, ± one standard deviation." if curve.draws > 1 else "."
    figure = draw_lines(lines, x_label="labeled rows", in_percent=True, log_x=True)
    table = make_table(["Method", *(f"{n:,}" for n in curve.counts)], rows)
    yield Section("curve", "Learning curve", text, (figure, table))


# -- classes --------------------------------------------------------------------------------------


def _classes_section(comparison: Comparison) -> Iterator[Section]:
    """F1 of every class by every method; the fewer of the two are the columns."""
    details = [result.details[MAIN_SPLIT].get("per_class", ()) for result in comparison.ranked]
    if not details or not all(details):
        return
    classes = [entry["name"] for entry in details[0]]
    scores = [[entry["f1"] for entry in per_class] for per_class in details]  # (n_methods, n_classes)
    low, high = min(map(min, scores)), max(map(max, scores))
    best = [max(column) for column in zip(*scores, strict=True)]
    cells = [
        [
            Cell(percent(f1), shade=_STRONGEST * (f1 - low) / max(high - low, 1e-9), bold=f1 == most)
            for f1, most in zip(row, best, strict=True)
        ]
        for row in scores
    ]
    if len(classes) <= max(len(details), 8):
        rows = [[_name(result, 40), *row] for result, row in zip(comparison.ranked, cells, strict=True)]
        table = make_table(["Method", *(shorten(name, 24) for name in classes)], rows)
    else:
        heads = [shorten(result.method.name, 40) for result in comparison.ranked]
        table = make_table(
            ["Class", *heads], [[name, *row] for name, *row in zip(classes, *cells, strict=True)]
        )
    text = "F1 on test, in percent. The best method for each class is bold."
    yield Section("classes", "Scores by class", text, (table,))


def _confusion_section(comparison: Comparison) -> Iterator[Section]:
    """All splits of the recommended method, then test for the others."""
    classes, results = comparison.data.classes, comparison.ranked
    if not all("confusion" in result.details[MAIN_SPLIT] for result in results):
        return
    results.sort(key=lambda result: result.method.id != comparison.recommended)
    shown = [(results[0], split) for split in reversed(SPLITS)] if results else []
    shown += [(result, MAIN_SPLIT) for result in results[1:]]
    text = (
        "Rows are true classes, columns predicted ones, counts of the first seed; shaded by share of the row."
    )
    if len(classes) > _MAX_CLASSES:
        shown, text = [], f"{len(classes):,} classes are too many for tables; report.json has the counts."
    tables = tuple(
        make_confusion_table(
            result.details[split]["confusion"],
            result.details[split]["confusion_rows"],
            classes,
            f"{shorten(result.method.name, 48)}, {split}",
            folded=number > 0,
            picture=f"confusion_{split}.png" if result is results[0] else "",
        )
        for number, (result, split) in enumerate(shown)
    )
    if results:
        yield Section("confusion", "Confusion matrix", text, tables)


def _examples_section(comparison: Comparison) -> Iterator[Section]:
    if not comparison.examples:
        return
    names = {result.method.id: shorten(result.method.name, 40) for result in comparison.methods}
    rows: list[list[Cell | str]] = []
    for example in comparison.examples:
        wrong: dict[str, list[str]] = {}
        for id in example.wrong:
            wrong.setdefault(example.guesses[id], []).append(names[id])
        guesses = "; ".join(f"{guess}: {' · '.join(methods)}" for guess, methods in wrong.items())
        right = " · ".join(names[id] for id in example.right) or "–"
        rows.append([example.text, Cell(example.label), Cell(right), Cell(guesses or "–")])
    head = [Column("Text"), Column("True"), Column("Right"), Column("Wrong")]
    text = "First texts that the best method gets right and most others wrong, then the opposite."
    yield Section("examples", "Texts on which the methods disagree", text, (make_table(head, rows),))


# -- how it was made ------------------------------------------------------------------------------


def _training_section(results: Sequence[MethodResult]) -> Iterator[Section]:
    drawings = []
    for result in results:
        history = result.history
        keys = [key for key in ("train_loss", "valid_loss") if all(key in entry for entry in history)]
        if len(history) > 1 and keys:
            epochs = [entry["epoch"] for entry in history]
            axis = "epoch" if len(set(epochs)) == len(epochs) else "step"
            x = [entry[axis] for entry in history]
            lines = [Line(format_score_name(key), x, [entry[key] for entry in history]) for key in keys]
            drawings.append(draw_lines(lines, x_label=axis, caption=result.method.name))
    if drawings:
        yield Section("training", "Training", "Loss of the first seed.", tuple(drawings), folded=True)


def _mix_section(results: Sequence[MethodResult]) -> Iterator[Section]:
    mixes = [(result, result.mix) for result in results if result.mix is not None]
    if not mixes:
        return
    layers = max((mix["names"] for _, mix in mixes), key=len)
    rows: list[list[Cell | str]] = [
        [
            _name(result),
            *(f"{value:.3f}" for value in mix["values"]),
            *["–"] * (len(layers) - len(mix["values"])),
            "–" if mix["gamma"] is None else f"{mix['gamma']:.3f}",
        ]
        for result, mix in mixes
    ]
    items: list[Figure | Table] = [make_table(["Method", *layers, "γ"], rows)]
    for result, mix in mixes:
        history = mix["history"]
        if any(row != history[0] for row in history):
            lines = [
                Line(name, mix["epochs"], [row[column] for row in history])
                for column, name in enumerate(mix["names"])
            ]
            items.append(draw_lines(lines, x_label="epoch", caption=result.method.name))
    text = "Weight of each layer in the mix of the first seed; γ scales the mix."
    yield Section("mix", "Mix of the layers", text, tuple(items))


def _pretraining_section(comparison: Comparison) -> Iterator[Section]:
    model = comparison.pretraining
    if model is None:
        return
    rows = [
        ("Encoder", model.name),
        ("Time", _rough(model.seconds)),
        ("Perplexity", format_value(model.perplexity)),
        ("Perplexity, forward", format_value(model.forward)),
        ("Perplexity, backward", format_value(model.backward)),
        ("Parameters", format_value(model.parameters)),
        ("Vocabulary", plural(model.words, "word")),
    ]
    if model.was_given:
        text = (
            "The encoder was given: it was pretrained on other text, which no other method has read, and the "
            "time that took is not counted."
        )
    elif model.n_models == 1:
        text = "All ELMo methods share one encoder, pretrained on the train texts without their labels."
    else:
        text = (
            f"{model.n_models} encoders were pretrained on the train texts without their labels. This is one."
        )
    text += " It was trained with one seed; intervals and tests do not include what another would change."
    items: list[Figure | Table] = [make_list([row for row in rows if row[1] != "–"])]
    if len(model.history) > 1:
        x, y = ([entry[key] for entry in model.history] for key in ("epoch", "perplexity"))
        items.append(draw_lines([Line("held-out text", x, y)], x_label="epoch", caption="Perplexity"))
    yield Section("pretraining", "Pretraining", text, tuple(items))


def _data_section(comparison: Comparison) -> Iterator[Section]:
    data = comparison.data
    rows = [["File", *(data.names.get(split, "–") for split in data.rows)]] if data.names else []
    rows.append(["All rows", *(f"{n:,}" for n in data.rows.values())])
    others = {name for counts in data.class_counts.values() for name in counts} - set(data.classes)
    for name in (*data.classes, *sorted(others)) if data.class_counts else ():
        counts = [data.class_counts[split].get(name, 0) for split in data.rows]
        rows.append([name or "(empty)", *(f"{count:,}" for count in counts)])
    notes: dict[str, list[str]] = {}
    for result in comparison.methods:
        for note in result.notes:
            notes.setdefault(note, []).append(result.method.name)
    lines = [*data.notes, *(f"{' · '.join(names)}: {note}" for note, names in notes.items())]
    text = "\n".join(f"- {one_line(line)}" for line in lines)
    table = make_table(["Rows", *data.rows], rows, highlight=1 if data.names else 0)
    yield Section("data", "Data", text, (table,))


def _details_section(comparison: Comparison) -> Iterator[Section]:
    machine = {
        name: format_size(value) if name == "memory" and value else format_value(value)
        for name, value in comparison.machine.items()
    }
    lists = [("Machine", machine), ("Versions", comparison.versions)]
    for result in comparison.methods:
        settings = {**result.method.vectors, **result.method.classifier}
        shown = {name: format_value(value) for name, value in settings.items()}
        lists.append((result.method.name, shown))
    items: list[Code | Table] = [Code(comparison.command, "Command")] if comparison.command else []
    items += [make_list(values.items(), caption) for caption, values in lists if values]
    yield Section("details", "How it was made", "", tuple(items), folded=True)


def _name(result: MethodResult, width: int = 48) -> Cell:
    return Cell(shorten(result.method.name, width), look=_LOOKS[result.method.family])


def _title(metric: str) -> str:
    name = format_score_name(metric)
    return name[0].upper() + name[1:]


def _spread(score: Score, places: int = 2) -> str:
    """The mean and, for several seeds, their standard deviation."""
    return percent(score.mean, places) + ("" if score.sd is None else f" ± {percent(score.sd, places)}")


def _interval(result: MethodResult) -> str:
    return " to ".join(percent(end, 1) for end in result.interval)


def _rough(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds, rough=True)


def _size(n_bytes: int | None) -> str:
    return "–" if n_bytes is None else format_size(n_bytes)


def _rate(speed: float | None) -> str:
    return "–" if speed is None else f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
