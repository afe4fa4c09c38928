"""``compare_files``: which method suits some data, from files to a report."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from elmokit.comparison.budget import within_budget
from elmokit.comparison.costs import Sizes, estimate, operations_per_second
from elmokit.comparison.data import Data, Rows, n_words, read_rows, save_rows
from elmokit.comparison.methods import Plan, source_id
from elmokit.comparison.recipes import make_plan, with_text
from elmokit.comparison.report import write_report
from elmokit.comparison.result import Comparison, build_result
from elmokit.comparison.runner import Grid, RunSummary
from elmokit.comparison.steps import (
    ANSWERS,
    MetricsRecord,
    Step,
    StepResult,
    Unit,
    made_from,
    result_of,
    units_of,
)
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError
from elmokit.core.names import resolve_name
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import load_tensors
from elmokit.tasks.task import get_task
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates
from elmokit.vectors.elmo import Elmo


def compare_files(
    train: str | Path | Sequence[str | Path],
    test: str | Path | Sequence[str | Path],
    out: str | Path,
    plan: Plan | None = None,
    *,
    valid: str | Path | Sequence[str | Path] = (),
    unlabelled: str | Path | Sequence[str | Path] = (),
    encoder: str | Path | None = None,
    budget: float | None = None,
    workers: int = 0,
    read: ReadConfig | None = None,
    labels: LabelConfig | None = None,
    title: str = "",
    reporter: Reporter | None = None,
    command: str = "",
) -> Comparison:
    """Compare methods on labelled rows and write a report.

    Called again with the same arguments, it goes on where it was stopped; a part that is finished is
    never done again, also if methods or seeds are added.

    Args:
        train: files of labelled rows to learn from.
        test: files of labelled rows to measure on, once.
        out: the folder for the report; its ``work`` folder holds the parts.
        plan: methods, settings and seeds (``make_plan``); the quick recipe unless given.
        valid: rows to choose the best weights by; else a tenth of the train rows is set aside.
        unlabelled: further texts for pretraining.
        encoder: a biLM folder to use instead of pretraining one.
        budget: seconds that all of it may take; the plan is cut down to fit.
        workers: parts at once, a core each; as many as there are cores unless given.
        read: how files are read.
        labels: where labels stand.
        title: of the report.
        reporter: who is told; silent unless given.
        command: the command line, for the report.
    """
    reporter, out = reporter or Reporter("silent"), Path(out)
    train, test, valid, unlabelled = (
        [files] if isinstance(files, str | Path) else list(files)
        for files in (train, test, valid, unlabelled)
    )
    given = None if encoder is None else resolve_name(encoder)
    mark = "" if given is None else Elmo.load(given).fingerprint
    plan = plan or make_plan()
    if given is not None:
        plan = _with_given(plan, Elmo.load(given))
    begun = time.monotonic()
    rows = read_rows(
        train,
        test,
        valid,
        unlabelled,
        read=read or ReadConfig(),
        labels=labels or LabelConfig(),
        reporter=reporter,
    )
    if plan.counts and max(plan.counts) >= len(rows.texts("train")):
        few = [n for n in plan.counts if n < len(rows.texts("train"))]
        rows.notes.append(f"The learning curve stops at all {len(rows.texts('train')):,} train rows.")
        plan = dataclasses.replace(plan, counts=tuple(few))
    folder = open_out(out, "comparison", resume=True)
    work = folder.run
    with folder.lock():
        marks = {f"text.{name}_rows": rows_mark for name, rows_mark in rows.marks().items()}
        folder.require_same({}, {**marks, "encoder.weights": mark})
        for file in (work / "layers").glob(".*.new"):  # of a run that was killed
            file.unlink(missing_ok=True)
        save_rows(work / "rows", rows)
        sizes, speed = _sizes(rows), operations_per_second()
        n_workers = (
            workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or 2
        )
        if budget is not None:
            plan = _within(
                work, plan, budget, lambda: within_budget(plan, sizes, speed, budget, n_workers, given)
            )
        _describe(plan, rows, given, reporter)
        units = units_of(plan, given)
        costs = {unit.id: estimate(unit, plan.method(unit.method), sizes, speed) for unit in units}
        deadline = None if budget is None else begun + budget
        made = {unit.id: made_from(unit, plan.method(unit.method), rows.marks(), mark) for unit in units}
        grid = Grid(
            work,
            units,
            plan,
            made=made,
            encoder=given,
            mark=mark,
            costs=costs,
            deadline=deadline,
            reporter=reporter,
        )
        if grid.n_done:
            reporter.say(f"Going on: {grid.n_done} of {len(units)} parts are done already.")
        outcome = grid.run(n_workers)
        if outcome.interrupted:
            raise KeyboardInterrupt
        data = Data(
            get_task("classify"),
            rows.parts,
            rows.unlabelled,
            rows.notes,
            {
                name: ", ".join(Path(file).name for file in files)
                for name, files in (("train", train), ("valid", valid), ("test", test))
                if files
            },
        )
        steps = [Step(**{**dataclasses.asdict(unit), "kind": _kind(unit)}) for unit in units]
        comparison = build_result(
            out,
            plan,
            data,
            RunSummary(outcome.failed, outcome.left_out),
            steps,
            _results(work, units, data),
            encoder=given,
            title=title,
            command=replace_surrogates(command),
        )
        write_report(comparison)
        shutil.rmtree(work / "layers", ignore_errors=True)
    return comparison


def _kind(unit: Unit) -> Any:
    return "fit" if unit.kind == "linear" else unit.kind


def _results(work: Path, units: Sequence[Unit], data: Data) -> dict[str, StepResult]:
    results = {}
    for unit in units:
        found = result_of(work, unit)
        if found is None:
            continue
        metrics = {}
        for split, details in found.get("splits", {}).items():
            tensors = load_tensors(work / "units" / unit.id / ANSWERS)[0]
            predicted = tensors[split].numpy()
            true = data.splits[split].targets
            right = predicted == true if len(true) == len(predicted) else np.ones(len(predicted))
            values = {"accuracy": details["accuracy"]}
            values |= {f"macro_{name}": value for name, value in details["macro"].items()}
            metrics[split] = MetricsRecord(
                "accuracy", values, details, right[:, None], right.astype(float), predicted
            )
        seconds = found.get("fit_seconds", found.get("seconds", 0.0))
        results[unit.id] = StepResult(
            {},
            seconds,
            found.get("encoding_seconds", 0.0),
            found["peak_memory"],
            found.get("bytes", 0),
            metrics,
            found.get("documents_per_second", 0.0),
            found.get("history") or (),
            found.get("mix"),
            found.get("notes", ()),
        )
    return results


def _sizes(rows: Rows) -> Sizes:
    return Sizes(
        n_train=n_words(rows.texts("train")),
        n_more=n_words(rows.unlabelled),
        n_other=n_words(rows.texts("valid")) + n_words(rows.texts("test")),
        n_texts=len(rows.texts("train")),
    )


def _with_given(plan: Plan, elmo: Elmo) -> Plan:
    """The plan for an encoder that is there: one language model for all, and its way of cleaning text."""
    sources = {source_id(method): method.id for method in plan.methods if method.family == "elmo"}
    if len(sources) > 1:
        raise ConfigError(
            f"{len(sources)} different language models are asked for ({', '.join(sources.values())}, …), "
            "but one is given.",
            remedy="Leave out --encoder, or choose --methods that share a language model.",
        )
    return dataclasses.replace(plan, methods=tuple(with_text(plan.methods, elmo.folder.text)))


def _within(work: Path, plan: Plan, budget: float, cut: Callable[[], Plan]) -> Plan:
    """The plan that fits the budget. It is kept: measured again, the machine's speed would be another."""
    file = work / "budget.json"
    asked: dict[str, Any] = json.loads(json.dumps({"budget": budget, "asked": plan.to_dict()}))
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        plan = cut()
        write_text(file, json.dumps({**asked, "plan": plan.to_dict()}, indent=1) + "\n")
        return plan
    if {"budget": kept["budget"], "asked": kept["asked"]} != asked:
        raise ConfigError(
            f"{work.parent} was begun with another budget, or other methods, for which its plan was made.",
            remedy="Repeat the first command to go on, or choose another --out.",
        )
    return Plan.from_dict(kept["plan"])


def _describe(plan: Plan, rows: Rows, encoder: Path | None, reporter: Reporter) -> None:
    counts = {name: len(rows.texts(name)) for name in ("train", "valid", "test")}
    reporter.say(
        f"Rows: {counts['train']:,} to learn from, {counts['valid']:,} for validation, "
        f"{counts['test']:,} to measure on; {len(rows.classes)} classes."
    )
    for note in rows.notes:
        reporter.say(f"[yellow]{escape(note)}[/]")
    names = ", ".join(method.id for method in plan.methods)
    n_seeds = len(plan.seeds)
    reporter.say(f"Methods ({plan.recipe}, {n_seeds} seed{'s' if n_seeds > 1 else ''}): {escape(names)}.")
    for sentence in plan.left_out:
        reporter.say(f"[yellow]{escape(sentence)}[/]")
    if encoder is not None:
        reporter.say(f"Language model: {escape(str(encoder))}.")
