"""All methods side by side on AG News, and how few labels each needs: the comparison that the README shows.

The data is 73,106 of the 120,000 train rows (and 10,331 more without titles), and the canonical test of
7,600; ``ag_news.py`` makes the split and the two language models, and fits the ELMo classifiers, which are
measured here, not fitted again, where its folder has them. Every part is a unit on disk: a stopped run
goes on where it was.

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
from elmokit.comparison.compare import compare_files
from elmokit.comparison.data import load_rows, read_rows, save_rows
from elmokit.comparison.doing import measured
from elmokit.comparison.methods import CATALOGUE, Method, Plan
from elmokit.comparison.recipes import make_plan, with_text
from elmokit.comparison.result import Comparison, to_json
from elmokit.comparison.steps import RESULT, Unit, made_from, units_of
from elmokit.comparison.verdict import summarize_ranking
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.core.run_folder import open_out
from elmokit.tasks.model import TaskModel
from elmokit.tasks.model_report import mix_record
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
            CATALOGUE[f"elmo-{mix}"].changed(
                id=f"{name}-{mix}",
                name=f"ELMo ({name}), {mix} mix",
                classifier=FROZEN,
                language_model=language_model(name),
            )
        )
    better = {"language_model": language_model("better")}
    found.append(CATALOGUE["elmo-linear"].changed(**better))
    found.append(CATALOGUE["elmo-finetuned"].changed(id="finetuned", classifier=FINETUNED, **better))
    found.append(
        CATALOGUE["elmo-function"].changed(
            id="pooled-function", name="ELMo, learned function, pooled", classifier=_POOLED, **better
        )
    )
    found.append(
        CATALOGUE["sgns-function"].changed(
            id="pooled-sgns",
            name="Skip-gram, learned function, pooled",
            classifier=_POOLED,
            vectors={"dim": 300},
        )
    )
    for id in ("sgns", "cbow", "svd"):
        found.append(CATALOGUE[id].changed(classifier=_STATIC, vectors={"dim": 300}))
    found.append(CATALOGUE["sgns-linear"].changed(vectors={"dim": 300}))
    found = with_text(found, resolve("small", {"text": language_model("better")["text"]}).text)
    return [*found, *(CATALOGUE[id] for id in ("tfidf-svm", "tfidf-lr"))]


def adopt(work: Path, out: Path, plan: Plan, n_workers: int) -> None:
    """Take over what ``ag_news.py`` has made: language models as they are, classifiers to be measured."""
    units = units_of(plan, None)
    ready = {unit.id for unit in units if (work / "models" / unit.id / "config.json").exists()}
    needed = {need for unit in units if unit.id not in ready for need in unit.needs}
    marks = load_rows(out / "work" / "rows").marks()
    measured_here = []
    for unit in units:
        folder = out / "work" / "units" / unit.id
        if (folder / RESULT).exists():
            continue
        made = made_from(unit, plan.method(unit.method), marks, "")
        if unit.kind == "language-model":
            name = "classic" if "classic" in unit.method else "better"
            if (work / name / "config.json").exists():
                shutil.rmtree(folder / "model", ignore_errors=True)
                shutil.copytree(work / name, folder / "model", ignore=shutil.ignore_patterns("run", ".*"))
                take_over(folder, made, {"seconds": Elmo.load(folder / "model").training.get("seconds")})
        elif unit.kind == "layers" and unit.id not in needed:
            take_over(folder, made, {})
        elif unit.id in ready:
            measured_here.append((work, folder, unit, made))
    with ProcessPoolExecutor(n_workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        try:
            for done in as_completed([pool.submit(adopt_fit, *given) for given in measured_here]):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def take_over(folder: Path, made: dict[str, Any], result: dict[str, Any]) -> None:
    """Note a part as done."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RESULT, json.dumps({"made": made, **result}, indent=1) + "\n")
    print(f"{folder.name}: taken over", flush=True)


def adopt_fit(work: Path, folder: Path, unit: Unit, made: dict[str, Any]) -> None:
    """Measure a classifier that is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    model = work / "models" / unit.id
    classifier = TaskModel.load(model)
    record = json.loads((work / "results" / f"{unit.id}.json").read_text(encoding="utf-8"))
    result = {
        "fit_seconds": record["seconds"]["training"],
        "history": record["history"],
        "mix": dataclasses.asdict(mix_record(classifier)),
        "bytes": sum(file.stat().st_size for file in model.rglob("*") if file.is_file()),
        **measured(folder, unit, load_rows(folder.parents[1] / "rows"), classifier),
    }
    take_over(folder, made, result)


def run(arguments: argparse.Namespace, plan: Plan, *, adopting: bool) -> Comparison:
    """Run a plan on the split that ``ag_news.py`` has made."""
    work, out = arguments.work, arguments.out
    train, valid, test = [work / "train.csv", work / "extra.csv"], [work / "valid.csv"], [work / "test.csv"]
    if adopting:
        read, labels = ReadConfig(text_columns="text"), LabelConfig(label_column="label")
        rows = read_rows(train, test, valid, read=read, labels=labels, reporter=Reporter())
        folder = open_out(out, "comparison", resume=True)
        inputs = {f"text.{name}_rows": mark for name, mark in rows.marks().items()}
        with folder.lock():
            folder.require_same({}, {**inputs, "encoder.weights": ""})  # as compare_files will
        save_rows(out / "work" / "rows", rows)
        adopt(work, out, plan, arguments.workers or os.cpu_count() or 1)
    return compare_files(
        train,
        test,
        out,
        plan,
        valid=valid,
        workers=arguments.workers,
        read=ReadConfig(text_columns="text"),
        labels=LabelConfig(label_column="label"),
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
