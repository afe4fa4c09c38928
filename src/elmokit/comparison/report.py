"""The report of a comparison: a Document, its files, and the ranking on the terminal."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmokit.comparison.data import SPLITS
from elmokit.comparison.ranking import format_rank
from elmokit.comparison.result import (
    MAIN_SPLIT,
    Comparison,
    MethodResult,
    Score,
    class_counts,
    held_out_history,
    machine,
    to_json,
)
from elmokit.comparison.verdict import answer, format_interval, format_p, format_points, summarize_ranking
from elmokit.core.formatting import format_duration, format_rate, format_size, one_line, percent, plural
from elmokit.core.model_card import versions
from elmokit.report import render
from elmokit.report.document import (
    Cell,
    Column,
    Document,
    Fact,
    Figure,
    Section,
    Table,
    make_confusion_table,
    make_details,
    make_list,
    make_pairs_table,
    make_table,
)
from elmokit.report.figures import Line, Point, draw_lines, draw_scatter, shorten
from elmokit.tasks.metrics import MAX_MATRIX
from elmokit.tasks.model_report import MixRecord, draw_history
from elmokit.tasks.task import Part, format_score_name, format_title

if TYPE_CHECKING:
    from rich.console import Console

    from elmokit.vectors.elmo import Elmo

_LOOKS = {"elmo": 0, "static": 1, "linear": 2, "foreign": 3}  # color and shape of each family
_TERMINAL = ("Test", "Valid", "macro F1", "Pretrain", "Fit", "Texts per second", "Disk")
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
    ranked = comparison.ranked
    yield _ranking_section(comparison)
    if len(ranked) > 1:
        yield _scores_section(comparison)
    if ranked:
        yield _differences_section(comparison)
    if comparison.curve:
        yield _curve_section(comparison)
    details = ranked[0].details[MAIN_SPLIT] if ranked else {}
    part = comparison.data.task.part
    if part is not None and part.scores(details):
        yield _classes_section(comparison, part)
    if "confusion" in details or "confusions" in details:
        yield _confusion_section(comparison)
    if comparison.examples:
        yield _examples_section(comparison)
    losses = [
        draw_history(result.first.history, ("train_loss", "valid_loss"), result.method.name)
        for result in ranked
        if len(result.first.history) > 1
    ]
    if losses:
        yield Section("training", "Training", "Loss of the first seed.", tuple(losses), folded=True)
    if mixes := [(result, MixRecord(**result.first.mix)) for result in ranked if result.first.mix]:
        layers = max((mix.names for _, mix in mixes), key=len)
        rows: list[list[Cell | str]] = [
            [
                _name(result),
                *map("{:.3f}".format, mix.values),
                *["–"] * (len(layers) - len(mix.values)),
                _or_dash(mix.gamma, "{:.3f}".format),
            ]
            for result, mix in mixes
        ]
        text = "Weight of each layer in the mix of the first seed; γ scales the mix."
        yield Section("mix", "Mix of the layers", text, (make_table(["Method", *layers, "γ"], rows),))
    if comparison.encoder is not None:
        yield _pretraining_section(comparison, comparison.encoder)
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
    yield Fact(f"{format_title(comparison.metric)} on test", f"{percent(score.mean)}%", note)
    note = (
        f"of it {format_duration(cost.pretrain_seconds)} pretraining" if cost.pretrain_seconds else "to fit"
    )
    yield Fact("Time", format_duration(cost.seconds), note)
    yield Fact("Speed", _or_dash(cost.texts_per_second, format_rate), "texts per second")
    if cost.n_bytes:
        yield Fact("Size", format_size(cost.n_bytes), "on disk")


def _ranking_section(comparison: Comparison) -> Section:
    items, text = [], ""
    if comparison.ranked:
        items.append(make_ranking_table(comparison))
        text = (
            "In percent: mean and standard deviation (±) over the seeds, then the 95% interval. "
            "A range of ranks begins after all methods that are significantly better and ends before those "
            "that are significantly worse."
        )
    missing = [[_name(one), one.status, one.reason] for one in comparison.methods if one.status != "done"]
    if missing:
        items.append(make_table([Column("Method"), Column("Status"), Column("Reason")], missing))
    return Section("ranking", "Ranking", text, tuple(items))


def make_ranking_table(comparison: Comparison, titles: Collection[str] = (), name_width: int = 48) -> Table:
    """A row for each finished method; of the columns those with ``titles``, or all that have values."""
    ranking, metric, ranked = comparison.ranking, format_title(comparison.metric), comparison.ranked
    known, costs = {*ranked[0].records[MAIN_SPLIT][0].values}, [result.cost for result in ranked]
    columns: list[tuple[str, str, list[Cell | str]]] = [
        (metric, "Test", [Cell(_spread(one.main), note=_interval(one)) for one in ranked]),
        (metric, "Valid", [percent(one.scores["valid"].mean) for one in ranked]),
        (metric, "Train", [percent(one.scores["train"].mean) for one in ranked]),
    ]
    for name in comparison.data.task.shown:
        if name in known and name != comparison.metric:
            scores = [Score.of(one.records[MAIN_SPLIT], name) for one in ranked]
            own = "Other scores on test", format_score_name(name)
            columns.append((*own, [percent(score.mean) for score in scores]))
    columns += [
        ("Time", "Pretrain", [_or_dash(cost.pretrain_seconds, format_duration) for cost in costs]),
        ("Time", "Fit", [format_duration(cost.fit_seconds) for cost in costs]),
        ("", "Texts per second", [_or_dash(cost.texts_per_second, format_rate) for cost in costs]),
        ("Memory and disk", "Memory", [_or_dash(cost.peak_memory, format_size) for cost in costs]),
        ("Memory and disk", "Disk", [_or_dash(cost.n_bytes, format_size) for cost in costs]),
    ]
    kept = [column for column in columns if (not titles or column[1] in titles) and {*column[2]} != {"–"}]
    heads = (Column(title, "right", group) for group, title, _ in kept)
    ranks = (format_rank(ranking.ranks[one.method.id]) for one in ranked)
    names = (_name(one, name_width) for one in ranked)
    rows = zip(names, ranks, *(cells for *_, cells in kept), strict=True)
    highlight = ranking.order.index(comparison.recommended or "")
    return make_table(["Method", "Rank", *heads], rows, highlight=highlight)


def _scores_section(comparison: Comparison) -> Section:
    points, name = [], format_score_name(comparison.metric)
    for place, result in enumerate(comparison.ranked, start=1):
        x, look = max(result.cost.seconds, 0.001), _LOOKS[result.method.family]
        span = (*result.interval, result.cost.fit_seconds)
        points.append(Point(str(place), result.method.name, x, result.main.mean, *span, look))
    text = (
        f"{format_title(name)} on test with its 95% interval, over time. The dotted line joins methods that "
        "no other beats in both; a thin horizontal line is pretraining, which is done once. "
        + "; ".join(f"{point.label}: {point.name}" for point in points)
    )
    figure = draw_scatter(points, x_label="time to pretrain and fit", y_label=name)
    return Section("scores", f"{format_title(name)} and time", f"{text}.", (figure,))


def _differences_section(comparison: Comparison) -> Section:
    names = comparison.names
    rows = [
        [
            names[pair.better],
            names[pair.worse],
            format_points(pair.difference),
            format_interval(pair),
            format_p(pair.p_adjusted, ""),
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
    text = f"{format_title(comparison.metric)} on test by the number of labeled training rows, in percent"
    text += f"; mean of {draws} random draws, ± one standard deviation." if draws > 1 else "."
    figure = draw_lines(lines, x_label="labeled rows", in_percent=True, log_x=True)
    table = make_table(["Method", *(f"{n:,}" for n in counts)], rows)
    return Section("curve", "Learning curve", text, (figure, table))


def _classes_section(comparison: Comparison, part: Part) -> Section:
    """The main score of every class, or of what else a task tells apart, by every method."""
    place = part.columns.index(part.main)
    tables = [part.scores(result.details[MAIN_SPLIT]) for result in comparison.ranked]
    per_class = [{name: values[place] for name, values in table.items()} for table in tables]
    names = list(dict.fromkeys(itertools.chain(*per_class)))
    scores = np.array([[own.get(one, 0.0) for own in per_class] for one in names])  # (n_classes, n_methods)
    shades = _STRONGEST * (scores - scores.min()) / max(np.ptp(scores), 1e-9)
    rows = []
    for one, own, shade in zip(names, scores, shades, strict=True):
        cells = [Cell(percent(f1), s, bold=f1 == own.max()) for f1, s in zip(own, shade, strict=True)]
        rows.append([Cell(one), *cells])
    head = [part.title.capitalize(), *(shorten(result.method.name, 40) for result in comparison.ranked)]
    text = f"{format_title(part.main)} on test, in percent. The best method for each {part.title} is bold."
    table = make_table(head, rows, searchable=len(rows) > MAX_MATRIX)
    return Section("classes", f"Scores by {part.title}", text, (table,))


def _confusion_section(comparison: Comparison) -> Section:
    """All splits of the recommended method, then test for the others."""
    classes = comparison.data.labels.names
    first, *others = sorted(comparison.ranked, key=lambda result: result.method.id != comparison.recommended)
    if any("confusions" in result.details[split] for result in comparison.ranked for split in SPLITS):
        text = f"{len(classes):,} classes are too many for a matrix; report.json has all confusions."
        pairs, caption = first.details[MAIN_SPLIT].get("confusions", ()), f"{first.method.name}, {MAIN_SPLIT}"
        items = (make_pairs_table(pairs, caption, 50),) if pairs else ()
        return Section("confusion", "Confusions", text, items)
    tables, own = list[Table](), [(first, split) for split in reversed(SPLITS)]
    for result, split in (*own, *((other, MAIN_SPLIT) for other in others)):
        details, caption = result.details[split], f"{shorten(result.method.name, 48)}, {split}"
        matrix = details["confusion"], details["confusion_rows"], classes, caption
        picture = f"confusion_{split}" if result is first else ""
        tables.append(make_confusion_table(*matrix, folded=bool(tables), picture=picture))
    text = "Rows are true classes, columns are predicted ones. Counts of the first seed, shaded by row share."
    return Section("confusion", "Confusion matrix", text, tuple(tables))


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


def _pretraining_section(comparison: Comparison, encoder: Elmo) -> Section:
    text = "The encoder was pretrained on the train texts without their labels."
    if comparison.given:
        text = (
            "The encoder was pretrained on other text, which no other method saw; that time is not counted."
        )
    text += " It was trained with one seed; intervals and tests do not include its variation."
    items: list[Figure | Table] = [make_list(encoder.facts().rows)]
    if len(history := held_out_history(encoder)) > 1:
        x, y = ([entry[key] for entry in history] for key in ("epoch", "perplexity"))
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
        for note in result.first.notes:
            notes[note].append(result.method.name)
    text = _bullets([*data.notes, *(f"{' · '.join(names)}: {note}" for note, names in notes.items())])
    table = make_table(["Rows", *data.splits], rows, highlight=1, searchable=len(rows) > MAX_MATRIX)
    return Section("data", "Data", text, (table,))


def _details_section(comparison: Comparison) -> Section:
    here = machine()
    return make_details(
        comparison.command,
        ("Machine", {**here, "memory": _or_dash(here["memory"], format_size)}),
        ("Versions", versions("torch", "numpy")),
        *((result.method.name, result.settings) for result in comparison.methods),
    )


def _name(result: MethodResult, width: int = 48) -> Cell:
    return Cell(shorten(result.method.name, width), look=_LOOKS[result.method.family])


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {one_line(sentence)}" for sentence in sentences)


def _spread(score: Score, places: int = 2) -> str:
    """The mean and, for several seeds, their standard deviation."""
    return percent(score.mean, places) + ("" if score.sd is None else f" ± {percent(score.sd, places)}")


def _interval(result: MethodResult) -> str:
    return " to ".join(percent(end, 1) for end in result.interval)


def _or_dash(value: float | None, format: Callable[[float], str]) -> str:
    return "–" if value is None else format(value)
