"""What a pretrained model is good for with few labels: what the bundled one was chosen by.

    python benchmarks/ag_news.py prepare --work ag-news                     the split of AG News
    python benchmarks/bundled_model.py MODEL ... --split ag-news            to choose by: validation rows
    python benchmarks/bundled_model.py english --split ag-news --rows test  the chosen one, once

For each model: its size; how well its vectors tell senses apart (``senses.tsv``, 40 words in 2 senses, 6
sentences each: the share of occurrences whose nearest other occurrence of the word has the same sense, by
layer); and accuracy with few labels: AG News with 1,000 (validation or canonical test rows), movie-review
sentences with 500 (sentence_polarity, the last 1,000 of each class are the test, the 500 before them the
validation) and, with the test, the bundled corpus with all its 480. Each with the ``pool`` head over the
frozen model, with the ``linear`` one, and fine-tuned; beside them TF-IDF + SVM
on the same labels. Mean and standard deviation over draws of labels. Data is found through ELMOKIT_DATA.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from ag_news import read
from elmokit import TextClassifier
from elmokit.core.names import resolve_name
from elmokit.corpora import mini_news_split
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import unit_rows
from measuring import data_file, finish


@dataclass(frozen=True)
class Task:
    """Texts to draw labels from and texts to measure on."""

    texts: list[str]
    labels: list[str]
    measured: list[str]
    wanted: list[str]
    n_labels: int | None

    def draws(self, n_draws: int) -> Iterator[tuple[list[str], list[str]]]:
        """As many texts of each class; all of them, once, if no number is given."""
        if self.n_labels is None:
            yield self.texts, self.labels
            return
        places = {
            name: [i for i, label in enumerate(self.labels) if label == name] for name in set(self.labels)
        }
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            picked = [
                int(place)
                for name in sorted(places)
                for place in rng.permutation(places[name])[: self.n_labels // len(places)]
            ]
            yield [self.texts[i] for i in picked], [self.labels[i] for i in picked]


def ag_news(split: Path, rows: str) -> Task:
    """News, four topics."""
    return Task(*read(split, "train", "extra"), *read(split, rows), 1000)


def polarity(rows: str) -> Task:
    """Sentences from movie reviews, two classes."""
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    with zipfile.ZipFile(data_file("nltk_corpora/sentence_polarity.zip")) as file:
        for label in ("neg", "pos"):
            content = file.read(f"sentence_polarity/rt-polarity.{label}").decode("utf-8", "replace")
            found = [(line, label) for line in content.splitlines() if line.strip()]
            parts["train"] += found[:-1500]
            parts["valid"] += found[-1500:-1000]
            parts["test"] += found[-1000:]
    texts, labels = map(list, zip(*parts["train"], strict=True))
    measured, wanted = map(list, zip(*parts[rows], strict=True))
    return Task(texts, labels, measured, wanted, 500)


def bundled() -> Task:
    """The bundled corpus, split as in the demo."""
    train, test = (
        ([row["text"] for row in part], [row["topic"] for row in part]) for part in mini_news_split()
    )
    return Task(*train, *test, None)


def senses(elmo: Elmo) -> list[float]:
    """Share of occurrences whose nearest occurrence of the word has its sense, by layer; the mix last."""
    with open(Path(__file__).with_name("senses.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = elmo.embed([row["sentence"] for row in rows])
    vectors = []
    for row, words, layers in zip(rows, found.tokens, found.layers, strict=True):
        place = [word.lower() for word in words].index(row["word"])
        vectors.append(np.concatenate([layers[place], layers[place].mean(axis=0, keepdims=True)]))
    stacked = np.stack(vectors)  # (n, layer + 1, dim)
    shares = []
    for depth in range(stacked.shape[1]):
        units = unit_rows(stacked[:, depth])
        right = 0
        for place, row in enumerate(rows):
            others = [i for i, one in enumerate(rows) if one["word"] == row["word"] and i != place]
            best = max(others, key=lambda i: float(units[i] @ units[place]))
            right += rows[best]["sense"] == row["sense"]
        shares.append(right / len(rows))
    return shares


def methods(model: str | None) -> dict[str, Callable[[int], Any]]:
    """Each way to classify, made for a seed."""
    if model is None:
        return {
            "TF-IDF + SVM": lambda seed: make_pipeline(
                TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LinearSVC()
            )
        }
    return {
        "frozen, pool": lambda seed: TextClassifier(model, head="pool", seed=seed),
        "frozen, linear": lambda seed: TextClassifier(model, head="linear", seed=seed),
        "fine-tuned": lambda seed: TextClassifier(model, head="pool", finetune=True, seed=seed),
    }


def main() -> None:
    """Measure every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", default=["news"])
    parser.add_argument("--split", type=Path, default=Path("ag-news"), help="what ag_news.py prepare made")
    parser.add_argument("--rows", choices=["valid", "test"], default="valid", help="what to measure on")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--only", default="", help="methods whose names hold this")
    arguments = parser.parse_args()
    tasks = {
        "AG News, 1,000": ag_news(arguments.split, arguments.rows),
        "polarity, 500": polarity(arguments.rows),
    }
    if arguments.rows == "test":
        tasks["bundled, 480"] = bundled()
    figures: list[dict[str, Any]] = []
    print("| model | MB | senses by layer (mix last) | | " + " | ".join(tasks) + " |")
    print("|---|---|---|---|" + "---|" * len(tasks))
    for model in [None, *arguments.models]:
        told = "| – | – "
        if model is not None:
            size = sum(file.stat().st_size for file in resolve_name(model).iterdir() if file.is_file()) / 1e6
            told = f"| {size:.1f} | " + " / ".join(f"{share:.2f}" for share in senses(Elmo.load(model)))
        for name, make in methods(model).items():
            if model is not None and arguments.only not in name:
                continue
            row: dict[str, Any] = {"model": model, "method": name}
            for label, task in tasks.items():
                row[label] = [
                    float(make(seed).fit(texts, labels).score(task.measured, task.wanted))
                    for seed, (texts, labels) in enumerate(task.draws(arguments.draws))
                ]
            figures.append(row)
            cells = [
                f"{statistics.mean(row[label]):.3f}"
                + (f" ± {statistics.stdev(row[label]):.3f}" if len(row[label]) > 1 else "")
                for label in tasks
            ]
            print(f"| {model or ''} {told} | {name} | " + " | ".join(cells) + " |", flush=True)
            told = "| | "
    finish({"rows": arguments.rows, "figures": figures})


if __name__ == "__main__":
    main()
