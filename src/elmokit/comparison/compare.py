"""``compare``: which method suits some labeled text, from files to a report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.markup import escape

from elmokit.comparison.data import SPLITS, read_data
from elmokit.comparison.methods import CompareConfig, Plan
from elmokit.comparison.recipes import make_plan, plan_for_task, with_text
from elmokit.comparison.report import write_report
from elmokit.comparison.result import Comparison, build_result
from elmokit.comparison.runner import Runner
from elmokit.comparison.steps import Workspace, plan_steps
from elmokit.core.atomic import explain_os_errors, staging, sync
from elmokit.core.config import merge_settings
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError
from elmokit.core.formatting import join_names, plural
from elmokit.core.model_folder import find_replaced, kind_of
from elmokit.core.names import resolve_name
from elmokit.core.run_folder import open_out
from elmokit.tasks.fit import Files, choose_task
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.foreign import TextVectors, open_encoder


def compare(  # many parameters because each is an argument or flag of the command
    train: Files,
    test: Files,
    out: str | Path,
    plan: Plan | None = None,
    *,
    valid: Files = (),
    unlabeled: Files = (),
    encoder: str | Path | None = None,
    read: ReadConfig | None = None,
    labels: LabelConfig | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> Comparison:
    """Fit and measure several methods on the same rows, write a report, and copy the best model to out/best.

    Called again with the same arguments, it resumes where it was stopped; finished steps are never done
    again, also when methods or seeds are added. On Ctrl-C it saves and raises KeyboardInterrupt.

    Args:
        train: Files, folders or glob patterns with labeled rows.
        test: Rows to measure on.
        out: Folder for the report; its ``work`` folder holds the steps.
        plan: What is compared; ``make_plan`` with the settings of the same names unless given.
        valid: Rows to choose the best weights by; without them a tenth of the training rows is held out.
        unlabeled: Further texts for pretraining.
        encoder: A biLM to use instead of pretraining one.
        overwrite: Start over if ``out`` holds another comparison.
        command: The command line, for the report.
        settings: By name, such as ``seeds=3``, ``budget="30m"`` or ``label_column="topic"``: those of
            CompareConfig, ReadConfig and LabelConfig.
    """
    start, reporter, out = time.monotonic(), reporter or Reporter("silent"), Path(out)
    read, labels = read or ReadConfig(), labels or LabelConfig()
    configs: Any = merge_settings(settings, compare=CompareConfig(), read=read, labels=labels)
    config, read_config, label_config = configs.values()
    folder = open_out(out, "comparison", overwrite=overwrite)
    task = choose_task(config.task, train, read_config, reporter)
    sources = {"train": train, "valid": valid, "test": test, "unlabeled": unlabeled}
    names = ("methods", "seeds", "config", "curve", "draws", "curve_methods")
    plan = plan or make_plan(config.recipe, **{name: getattr(config, name) for name in names})
    plan, path, encoder_hash = plan_for_task(plan, task), None, ""
    if encoder is not None:
        given, path = Elmo.load(encoder), resolve_name(encoder)
        plan, encoder_hash = _plan_for_encoder(plan, given), given.fingerprint
    data = read_data(sources, task, read_config, label_config, reporter)
    n_train = len(data.splits["train"])
    plan = replace(plan, counts=tuple(count for count in plan.counts if count < n_train))
    with folder.lock():
        hashes = {f"text.{split}_rows": value for split, value in data.fingerprints.items()}
        folder.require_same({}, {**hashes, "encoder.weights": encoder_hash})
        plan = _bind_vectors(plan, sources, read_config, label_config, folder.run / "given")
        space = Workspace(folder.run, data, path)
        _describe(plan, space, reporter)
        deadline = None if config.budget is None else start + config.budget
        steps = plan_steps(plan, cheap_first=deadline is not None)
        runner = Runner(space, steps, deadline, reporter)
        if runner.results:
            reporter.say(f"Resuming: {len(runner.results)} of {len(steps)} steps are done.")
        failed = runner.run(config.workers or torch.get_num_threads())
        comparison = build_result(
            space,
            plan,
            steps,
            runner.results,
            failed,
            title=config.title,
            command=command,
        )
        write_report(comparison)
        if comparison.recommended is not None:
            id = f"{comparison.recommended}-s{plan.seeds[0]}"
            first = next(step.folder for step in steps if step.id == id)
            _copy_model(space.step_folder(first) / "model", out / "best")
        shutil.rmtree(folder.run / "layers", ignore_errors=True)
    return comparison


def _plan_for_encoder(plan: Plan, encoder: Elmo) -> Plan:
    """The plan for a given encoder: one language model for all, and its way of cleaning text."""
    sources = {method.source: method.id for method in plan.methods if method.family == "elmo"}
    if len(sources) > 1:
        raise ConfigError(
            f"The methods need {len(sources)} different language models ({join_names(sources.values())}), "
            "but one is given.",
            remedy="Leave out --encoder, or choose --methods that share a language model.",
        )
    given = {"fingerprint": encoder.fingerprint}
    methods = [replace(m, language_model=given) if m.family == "elmo" else m for m in plan.methods]
    return replace(plan, methods=tuple(with_text(methods, encoder.folder.text)))


def _bind_vectors(
    plan: Plan, sources: Mapping[str, Files], read: ReadConfig, labels: LabelConfig, folder: Path
) -> Plan:
    """The plan with vectors from files kept in ``folder``, by the texts that they belong to."""
    methods, texts = [], list[str]()
    for method in plan.methods:
        if method.base.startswith("vectors:"):
            rows = (RowSource(sources[split], read, labels) for split in SPLITS if sources[split])
            texts = texts or [row.text for source in rows for row in source]
            cast(TextVectors, open_encoder(method.base)).bind(texts).save(folder / method.id)
            method = replace(method, base=str(folder / method.id))
        methods.append(method)
    return replace(plan, methods=tuple(methods))


def _describe(plan: Plan, space: Workspace, reporter: Reporter) -> None:
    train, valid, test = (f"{len(space.data.splits[split]):,}" for split in SPLITS)
    reporter.say(f"Rows: {train} for training, {valid} for validation, {test} for testing.")
    names = ", ".join(method.id for method in plan.methods)
    reporter.say(f"Methods ({plan.recipe}, {plural(len(plan.seeds), 'seed')}): {escape(names)}.")
    for note in (*space.data.notes, *plan.left_out):
        reporter.say(f"[yellow]{escape(note)}[/]")


def _copy_model(model: Path, best: Path) -> None:
    """Copy a model folder; config.json comes last, so that a part of it is never taken for a model."""
    gone = list[str]()
    with explain_os_errors(best), staging(best, "config.json", gone=gone) as staged:
        shutil.copytree(model, staged, dirs_exist_ok=True)
        gone += find_replaced(best, str(kind_of(model)), {path.name for path in staged.iterdir()})
        for path in staged.rglob("*"):
            sync(path)
