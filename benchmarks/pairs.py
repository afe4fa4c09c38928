"""Pairs of texts: similarity (STS benchmark) and paraphrase (MRPC), both heads, beside the plain cosine.

    python benchmarks/pairs.py run --out pairs.jsonl     # both tasks and both heads, three seeds
    python benchmarks/pairs.py table --out pairs.jsonl

The encoder is frozen. The best weights are chosen on the development pairs (of MRPC, which has none, on a
tenth of the training pairs, the same for every seed); test pairs are measured once for each fit. The cosine
of both sentence vectors needs no training; for MRPC its threshold is the best one of the training pairs.
Every fit is one line of the result file, so that a stopped run resumes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr

import elmokit
from elmokit.tasks.fit import hold_out
from elmokit.tasks.model import load_encoder
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import AnyTask, Examples, Labels, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from few_labels import read_results
from measuring import data_file, finish

STS = {"train": "stsb/sts-train.csv.gz", "valid": "stsb/sts-dev.csv.gz", "test": "stsb/sts-test.csv.gz"}
MRPC = {split: f"mrpc/msr_paraphrase_{split}.txt.gz" for split in ("train", "test")}


def read_pairs(task: str, split: str) -> list[tuple[str, str, str]]:
    """Both texts, and the score or class, of each pair."""
    file = data_file((STS if task == "sts" else MRPC)[split])
    lines = gzip.decompress(file.read_bytes()).decode("utf-8-sig").splitlines()
    if task == "sts":
        cells = (line.split("\t") for line in lines)
        return [(row[5], row[6], row[4]) for row in cells]
    return [(row[3], row[4], row[0]) for row in (line.split("\t") for line in lines[1:])]


def write_splits(task: str, folder: Path) -> dict[str, Path]:
    """The pairs of each split as a CSV file."""
    files = {}
    for split in STS if task == "sts" else MRPC:
        files[split] = folder / f"{task}-{split}.csv"
        with open(files[split], "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "other", "score" if task == "sts" else "label"))
            writer.writerows(read_pairs(task, split))
    return files


def measure_cosine(task: str, encoder: str) -> dict[str, dict[str, float]]:
    """What the cosine of both sentence vectors reaches without a head."""
    elmo = elmokit.Elmo.load(encoder)
    cosines, labels = dict[str, Any](), dict[str, Any]()
    for split in STS if task == "sts" else MRPC:
        texts, others, given = zip(*read_pairs(task, split), strict=True)
        cosines[split], labels[split] = elmo.similarity(texts, others), np.array(given, dtype=float)
    if task == "sts":
        return {
            split: {
                "pearson": float(pearsonr(cosines[split], labels[split])[0]),
                "spearman": float(spearmanr(cosines[split], labels[split])[0]),
            }
            for split in ("valid", "test")
        }
    right = [((cosines["train"] >= limit) == labels["train"]).mean() for limit in cosines["train"]]
    limit = cosines["train"][int(np.argmax(right))]
    return {"test": {"accuracy": float(((cosines["test"] >= limit) == labels["test"]).mean())}}


def read_splits(task: AnyTask, name: str, folder: Path) -> dict[str, Examples]:
    """The pairs of each split as examples; of MRPC, a tenth of the training pairs is for validation."""
    parts, labels, read = dict[str, Examples](), Labels(), ReadConfig(text_columns="text,other")
    for split, file in write_splits(name, folder).items():
        parts[split] = task.read(RowSource(file, read, LabelConfig(), form=task.form), labels)
        labels = parts["train"].labels
    if "valid" not in parts:
        parts["train"], parts["valid"] = hold_out(parts["train"], 0.1, seed=0)
    return parts


def run(options: argparse.Namespace) -> None:
    """All fits that the result file does not have yet; they share the encoder's layers."""
    keys, task = ("task", "encoder", "head", "seed"), get_task("pair")
    encoder = load_encoder(options.encoder)
    done = {tuple(line[key] for key in keys) for line in read_results(options.out)}
    for name in options.tasks:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            parts = read_splits(task, name, folder)
            plans = [
                ("cosine", 0),
                *((head, seed) for head in options.heads for seed in range(options.seeds)),
            ]
            for head, seed in plans:
                if (name, options.encoder, head, seed) in done:
                    continue
                line: dict[str, Any] = dict(zip(keys, (name, options.encoder, head, seed), strict=True))
                start = time.process_time()
                if head == "cosine":
                    line |= measure_cosine(name, options.encoder)
                else:
                    config = ClassifierConfig.from_flat(**{**task.settings, "head": head, "seed": seed})
                    train, valid = parts["train"], parts["valid"]
                    model = fit_task(task, encoder, train, valid, config, layers_folder=folder)
                    for split in ("valid",) if options.valid else ("valid", "test"):
                        answers = list(model.predict(parts[split].inputs))
                        line[split] = dict(task.measure(parts[split], answers).values)
                line["cpu_seconds"] = round(time.process_time() - start)
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


def table(options: argparse.Namespace) -> dict[str, Any]:
    """Mean and standard deviation over the seeds, as Markdown."""
    lines, means = read_results(options.out), {}
    print("| task | encoder | head | seeds | validation | test | CPU s |\n|---|---|---|---:|---:|---:|---:|")
    for key in dict.fromkeys((line["task"], line["encoder"], line["head"]) for line in lines):
        own = [line for line in lines if (line["task"], line["encoder"], line["head"]) == key]
        names, cells = (("pearson", "spearman") if key[0] == "sts" else ("accuracy",)), []
        for split in ("valid", "test"):
            parts = []
            for name in names:
                values = [100 * line[split][name] for line in own if split in line]
                means["/".join((*key, split, name))] = round(float(np.mean(values)), 2) if values else None
                parts += [f"{np.mean(values):.1f} ± {np.std(values):.1f}"] if values else []
            cells.append(", ".join(parts))
        seconds = np.mean([line["cpu_seconds"] for line in own])
        print(f"| {' | '.join(key)} | {len(own)} | {cells[0]} | {cells[1]} | {seconds:,.0f} |")
    return means


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--tasks", nargs="+", default=["sts", "mrpc"], choices=["sts", "mrpc"])
    parser.add_argument("--heads", nargs="*", default=["siamese", "align"])
    parser.add_argument("--encoder", default="english")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--valid", action="store_true", help="leave the test pairs alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        run(options)
    finish(table(options))


if __name__ == "__main__":
    main()
