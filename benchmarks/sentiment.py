"""Sentiment of sentences and of whole documents, through ``elmokit compare``.

    python benchmarks/sentiment.py --out sentiment

The stack that ``elmokit fit english`` makes, beside TF-IDF + SVM, NB-SVM, and the mean vectors of the encoder
and of skip-gram vectors (of the training texts) under a logistic regression. All labels are used; a twentieth
of the training rows is held out for the choices. Documents are read to their end: ``max_words`` is beyond the
longest. A stopped run resumes.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

import elmokit
from elmokit.comparison.recipes import make_plan
from few_labels import SETS
from measuring import finish

METHODS = ("stack", "tfidf-svm", "nbsvm", "elmo-linear", "sgns-linear")
WHOLE = {"classifier": {"max_words": 20_000}}  # the longest review of IMDB has fewer than 3,000 words


def write_rows(file: Path, rows: list[tuple[str, str]]) -> Path:
    """Texts and labels as a table."""
    with open(file, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return file


def compare_methods(name: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Accuracy of each method on a set's test rows, in percent, by seed."""
    folder, texts = options.out / name, SETS[name](None)
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(0).permutation(len(texts.train)).tolist()
    held = len(order) // 20
    splits = {
        "train": [texts.train[row] for row in order[held:]],
        "valid": [texts.train[row] for row in order[:held]],
        "test": list(texts.test),
    }
    files = {split: write_rows(folder / f"{split}.csv", rows) for split, rows in splits.items()}
    whole = {id: WHOLE for id in options.methods if id not in ("tfidf-svm", "nbsvm")}
    plan = make_plan(methods=options.methods, seeds=options.seeds, config={"method": whole})
    result = elmokit.compare(
        files["train"],
        files["test"],
        folder / "report",
        plan,
        valid=files["valid"],
        encoder=options.encoder,
        workers=1,
    )
    return {
        one.method.id: [100 * value for value in one.main.values]
        for one in result.methods
        if one.status == "done"
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("sentiment"))
    parser.add_argument("--sets", nargs="+", default=["polarity", "sst-5", "imdb"], choices=[*SETS])
    parser.add_argument("--methods", nargs="+", default=[*METHODS])
    parser.add_argument("--encoder", default="english")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {name: compare_methods(name, options) for name in options.sets}
    print(f"| method | {' | '.join(results)} |\n|---|{'---:|' * len(results)}")
    for id in options.methods:
        cells = [
            f"{np.mean(scores[id]):.1f} ± {np.std(scores[id]):.1f}" if id in scores else ""
            for scores in results.values()
        ]
        print(f"| {id} | {' | '.join(cells)} |")
    finish(
        {name: {id: np.round(some, 2).tolist() for id, some in one.items()} for name, one in results.items()}
    )


if __name__ == "__main__":
    main()
