"""All methods side by side on AG News, and how few labels each needs: the comparison that the README shows.

The data is 73,106 of the 120,000 train rows (and 10,331 more without titles), and the canonical test of
7,600; ``ag_news.py`` makes the split and the two language models, and fits the ELMo classifiers, which are
measured here, not fitted again, where its folder has them. Every step is a folder: a stopped run
resumes.

    python benchmarks/ag_news.py prepare --work ag-news
    python benchmarks/ag_news.py pretrain --work ag-news
    python benchmarks/compare_ag_news.py --work ag-news --out ag-report               (hours)
    python benchmarks/compare_ag_news.py --work ag-news --out ag-report --only curve  (the learning curve)
    python benchmarks/compare_ag_news.py --work ag-news --out ag-report --only static (the static vectors)
    python benchmarks/compare_ag_news.py --work ag-news --out quick --only quick      (the quick recipe)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ag_news import FINETUNED, FROZEN, LANGUAGE_MODELS
from elmokit.bilm.settings import resolve
from elmokit.comparison.compare import compare
from elmokit.comparison.data import read_data
from elmokit.comparison.methods import Method, Plan, catalog
from elmokit.comparison.recipes import make_plan, with_text
from elmokit.comparison.result import Comparison, to_json
from elmokit.comparison.steps import Step, StepResult, Workspace, measure_splits, plan_steps
from elmokit.comparison.verdict import summarize_ranking
from elmokit.core.console import Reporter
from elmokit.core.run_folder import open_out
from elmokit.tasks.model import TaskModel
from elmokit.tasks.model_report import mix_record
from elmokit.tasks.task import get_task
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.vectors.elmo import Elmo
from measuring import finish

COUNTS = (100, 300, 1000, 3000)
_STATIC = {**FROZEN, "mix": "frozen"}
_POOLED = {"mix": "function", "mix_norm": True, "dropout_word": 0.0, "lr": 2e-3}
_TITLE = "AG News: 73,106 of 120,000 train rows, 10,331 more without titles"


def language_model(name: str) -> dict[str, Any]:
    """The settings of one of the language models of ``ag_news.py``."""
    preset, changes = LANGUAGE_MODELS[name]
    return {"preset": preset, **changes}


def methods() -> list[Method]:
    """Every method of the full comparison."""
    found = []
    for name, mix in (
        ("classic", "trainable"),
        ("classic", "frozen"),
        ("classic", "function"),
        ("better", "trainable"),
    ):
        found.append(
            catalog()[f"elmo-{mix}"].vary(
                id=f"{name}-{mix}",
                name=f"ELMo ({name}), {mix} mix",
                classifier=FROZEN,
                language_model=language_model(name),
            )
        )
    better = {"language_model": language_model("better")}
    found.append(catalog()["elmo-linear"].vary(**better))
    found.append(catalog()["elmo-finetuned"].vary(id="finetuned", classifier=FINETUNED, **better))
    found.append(
        catalog()["elmo-function"].vary(
            id="pooled-function", name="ELMo, learned function, pooled", classifier=_POOLED, **better
        )
    )
    found.append(
        catalog()["sgns-function"].vary(
            id="pooled-sgns",
            name="Skip-gram, learned function, pooled",
            classifier=_POOLED,
            vectors={"dim": 300},
        )
    )
    for id in ("sgns", "cbow", "svd"):
        found.append(catalog()[id].vary(classifier=_STATIC, vectors={"dim": 300}))
    found.append(catalog()["sgns-linear"].vary(vectors={"dim": 300}))
    found = with_text(found, resolve("small", {"text": language_model("better")["text"]}).text)
    return [*found, *(catalog()[id] for id in ("tfidf-svm", "tfidf-lr"))]


def adopt(work: Path, space: Workspace, plan: Plan, n_workers: int) -> None:
    """Take over what ``ag_news.py`` has made: language models as they are, classifiers to be measured."""
    steps = plan_steps(plan)
    ready = {step.id for step in steps if (work / "models" / step.id / "config.json").exists()}
    needed = {need for step in steps if step.id not in ready for need in step.needs}
    measured = []
    for step in steps:
        folder = space.step_folder(step.folder)
        if StepResult.load(folder) is not None:
            continue
        result = StepResult(0.0)
        if step.kind == "language-model":
            name = "classic" if "classic" in step.method.id else "better"
            if (work / name / "config.json").exists():
                shutil.rmtree(folder / "model", ignore_errors=True)
                shutil.copytree(work / name, folder / "model", ignore=shutil.ignore_patterns("run", ".*"))
                seconds = Elmo.load(folder / "model").training.get("seconds") or 0.0
                take_over(folder, dataclasses.replace(result, seconds=seconds))
        elif step.kind == "layers" and step.id not in needed:
            take_over(folder, result)
        elif step.id in ready:
            measured.append((work, space, step, result))
    with ProcessPoolExecutor(n_workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        try:
            for done in as_completed([pool.submit(adopt_fit, *given) for given in measured]):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def take_over(folder: Path, result: StepResult) -> None:
    """Record a step as done."""
    folder.mkdir(parents=True, exist_ok=True)
    result.save(folder)
    print(f"{folder.name}: taken over", flush=True)


def adopt_fit(work: Path, space: Workspace, step: Step, result: StepResult) -> None:
    """Measure a classifier that is there already."""
    model = work / "models" / step.id
    classifier = TaskModel.load(model)
    record = json.loads((work / "results" / f"{step.id}.json").read_text(encoding="utf-8"))
    metrics, speed = measure_splits(classifier, space.data, is_curve=False)
    result = dataclasses.replace(
        result,
        seconds=record["seconds"]["training"],
        history=record["history"],
        mix=dataclasses.asdict(mix_record(classifier)),
        n_bytes=sum(file.stat().st_size for file in model.rglob("*") if file.is_file()),
        metrics=metrics,
        texts_per_second=speed,
    )
    take_over(space.step_folder(step.folder), result)


def run(arguments: argparse.Namespace, plan: Plan, *, adopting: bool) -> Comparison:
    """Run a plan on the split that ``ag_news.py`` has made."""
    work, out = arguments.work, arguments.out
    train, valid, test = [work / "train.csv", work / "extra.csv"], [work / "valid.csv"], [work / "test.csv"]
    read, labels = ReadConfig(text_columns="text"), LabelConfig(label_column="label")
    if adopting:
        sources = {"train": train, "valid": valid, "test": test, "unlabeled": ()}
        data = read_data(sources, get_task("classify"), read, labels, Reporter())
        folder = open_out(out, "comparison")
        inputs = {f"text.{name}_rows": value for name, value in data.fingerprints.items()}
        with folder.lock():
            folder.require_same({}, {**inputs, "encoder.weights": ""})  # as compare will
        adopt(work, Workspace(folder.run, data), plan, arguments.workers or os.cpu_count() or 1)
    return compare(
        train,
        test,
        out,
        plan,
        valid=valid,
        workers=arguments.workers,
        read=read,
        labels=labels,
        title=_TITLE,
        reporter=Reporter(),
        command="python benchmarks/compare_ag_news.py",
    )


def main() -> None:
    """Run the comparison, the learning curve alone, or the quick recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("ag-news"), help="the folder of ag_news.py")
    parser.add_argument("--out", type=Path, default=Path("ag-report"), help="folder for the report")
    parser.add_argument("--only", choices=["all", "curve", "static", "quick"], default="all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    seeds = tuple(range(arguments.seeds))
    curve = ("elmo-linear", "sgns-linear", "tfidf-svm")
    if arguments.only == "quick":
        plan = make_plan("quick")
    else:
        plan = Plan("ag-news", tuple(methods()), seeds, counts=COUNTS, draws=arguments.draws, curve=curve)
        if arguments.only == "curve":
            few = tuple(method for method in plan.methods if method.id in curve)
            plan = dataclasses.replace(plan, methods=few)
        elif arguments.only == "static":
            static = tuple(method for method in plan.methods if method.id in ("svd", "sgns", "cbow"))
            plan = dataclasses.replace(plan, methods=static, counts=(), curve=())
    begun = time.monotonic()
    found = run(arguments, plan, adopting=arguments.only != "quick")
    finish(
        {
            "minutes": round((time.monotonic() - begun) / 60, 1),
            "accuracy": {result.method.id: result.main.mean for result in found.ranked},
            "curve": to_json(found)["curve"],
            "summary": summarize_ranking(found),
        }
    )


if __name__ == "__main__":
    main()
