"""How accurate the classifiers are on AG News, beside the linear models people use today.

The data is 73,106 of the 120,000 train rows (and 10,331 more without titles), and the canonical test of
7,600. A twentieth of the 73,106 is the validation set, on which everything is chosen; neither it nor the
test rows are in the pretraining. (No train row has the title and description of a test row, but 70 test
descriptions stand in train under other titles: news agencies' texts, in the data as published.)
Every part is a unit on disk: a stopped run goes on where it was.

    python benchmarks/ag_news.py prepare     the split, as CSV files
    python benchmarks/ag_news.py pretrain    the two language models (about an hour on two cores)
    python benchmarks/ag_news.py rivals      the linear models, validation and test
    python benchmarks/ag_news.py fit         all classifiers, validation figures (hours)
    python benchmarks/ag_news.py test        each saved classifier on the test rows, once
    python benchmarks/ag_news.py table       what there is so far, as Markdown

``--only PATTERN`` takes some units (a glob, as in 'finetuned-*'); two processes with one thread each
(OMP_NUM_THREADS=1) get more out of two cores than one with two.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import gzip
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import resolve
from elmokit.core.atomic import write_text
from elmokit.core.config import read_toml
from elmokit.core.console import Reporter
from elmokit.core.run_folder import RunFolder
from elmokit.core.tensors import fingerprint
from elmokit.tasks.model import TaskModel
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import ReadConfig
from elmokit.vectors.elmo import Elmo
from measuring import data_file, finish

SPLITS = ("train", "extra", "valid", "test")
LANGUAGE_MODELS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "classic": ("classic", {"training": {"epochs": 5}}),
    "better": (
        "small",
        read_toml(Path(__file__).parents[1] / "recipes" / "news-words.toml"),
    ),
}
FROZEN = {
    "head": "bilstm",
    "epochs": 3,
    "lr": 2e-3,
    "mix_norm": True,
    "dropout_head": 0.2,
    "dropout_word": 0.0,
    "label_smoothing": 0.0,
}
FINETUNED = {
    "finetune": True,
    "epochs": 5,
    "lr": 1e-3,
    "encoder_lr": 1e-3,
    "mix_form": "softmax",
    "dropout_word": 0.15,
    "dropout_input": 0.1,
    "dropout_layer": 0.25,
    "dropout_weight": 0.2,
    "dropout_head": 0.4,
    "label_smoothing": 0.05,
    "ema": 0.999,
}
MIXES = ("trainable", "frozen", "function")


@dataclass(frozen=True)
class Unit:
    """One classifier: its name without the seed, encoder and settings."""

    name: str
    encoder: str
    settings: dict[str, Any]
    seed: int

    @property
    def full_name(self) -> str:
        """The name of its files."""
        return f"{self.name}-s{self.seed}"


def units(seeds: list[int]) -> list[Unit]:
    """All classifiers, in the order of the table."""
    found = []
    for seed in seeds:
        for mix in MIXES:
            found.append(Unit(f"classic-{mix}", "classic", {**FROZEN, "mix": mix}, seed))
        for mix in MIXES:
            found.append(Unit(f"better-{mix}", "better", {**FROZEN, "mix": mix}, seed))
        found.append(Unit("finetuned", "better", FINETUNED, seed))
    return found


def prepare(work: Path) -> None:
    """Write the split as CSV files with the columns text and label."""
    from sklearn.model_selection import train_test_split

    names = data_file("ag_news/classes.txt").read_text(encoding="utf-8").split("\n")

    def rows(name: str) -> list[tuple[str, str]]:
        with gzip.open(data_file(f"ag_news/{name}"), "rt", encoding="utf-8", newline="") as file:
            return [(f"{title} {text}".strip(), names[int(n) - 1]) for n, title, text in csv.reader(file)]

    train = rows("train_partial.csv.gz")
    fitting, valid = train_test_split(
        train, test_size=0.05, random_state=0, stratify=[label for _, label in train]
    )
    extra, test = rows("train_desc_only_extra.csv.gz"), rows("test.csv.gz")
    work.mkdir(parents=True, exist_ok=True)
    for name, part in zip(SPLITS, (fitting, extra, valid, test), strict=True):
        with open(work / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(part)
        print(f"{name}: {len(part):,} rows")


def read(work: Path, *names: str) -> tuple[list[str], list[str]]:
    """Texts and labels of some splits."""
    texts, labels = [], []
    for name in names:
        with open(work / f"{name}.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                texts.append(row["text"])
                labels.append(row["label"])
    return texts, labels


def pretrain_all(work: Path, wanted: Callable[[str], bool]) -> None:
    """Train both language models on the train text."""
    for name, (preset, changes) in LANGUAGE_MODELS.items():
        if not wanted(name):
            continue
        result = pretrain(
            [work / "train.csv", work / "extra.csv"],
            work / name,
            resolve(preset, changes),
            read=ReadConfig(text_columns="text"),
            valid=[work / "valid.csv"],
            reporter=Reporter(),
            command=f"benchmarks/ag_news.py pretrain --only {name}",
        )
        print(f"{name}: {result.held_out} in {result.seconds:,.0f} s")


def fit(work: Path, unit: Unit) -> None:
    """Fit one classifier, save it, and note its validation figures."""
    config = ClassifierConfig.from_flat(**unit.settings, seed=unit.seed)
    texts, labels = read(work, "train", "extra")
    valid_texts, valid_labels = read(work, "valid")
    classes = sorted(set(labels))
    places = {label: place for place, label in enumerate(classes)}

    def examples(texts: list[str], found: list[str]) -> Examples:
        targets = np.array([places[label] for label in found])
        return Examples([(text,) for text in texts], targets, Labels(tuple(classes)))

    run = work / "runs" / unit.full_name
    run.mkdir(parents=True, exist_ok=True)
    elmo = Elmo.load(work / unit.encoder)
    weights = fingerprint(*elmo.model.parameters())
    RunFolder(run, run, "classifier").require_same(config.to_dict(), {"encoder.weights": weights})
    model = fit_task(
        get_task("classify"),
        elmo,
        examples(texts, labels),
        examples(valid_texts, valid_labels),
        config,
        run=run,
        layers_folder=work / "layers",
        reporter=Reporter(),
    )
    if model.record.stopped == "interrupted":
        raise KeyboardInterrupt
    best = max(model.record.history, key=lambda entry: entry["accuracy"])
    record = {
        "settings": unit.settings,
        "valid": best["accuracy"],
        "history": model.record.history,
        "seconds": model.record.timings,
        "pretraining": elmo.folder.training.get("seconds"),
        "wall": round(sum(model.record.timings.values()), 1),
    }
    model.save(work / "models" / unit.full_name)
    note(work, unit.full_name, record)
    print(f"{unit.full_name}: validation {best['accuracy']:.4f}, {model.record.timings}")


def test(work: Path, name: str) -> None:
    """Measure a saved classifier on the test rows, once."""
    record = noted(work, name)
    if record is None or "test" in record:
        return
    texts, labels = read(work, "test")
    folder = work / "models" / name
    model = TaskModel.load(folder)
    begun = time.perf_counter()
    predicted = [prediction.label for prediction in model.predict((text,) for text in texts)]
    seconds = time.perf_counter() - begun
    record["test"] = float(np.mean([a == b for a, b in zip(predicted, labels, strict=True)]))
    record["documents_per_second"] = round(len(texts) / seconds)
    record["megabytes"] = round(sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6, 1)
    note(work, name, record)
    print(f"{name}: test {record['test']:.4f}")


def rivals(work: Path) -> None:
    """The linear models, on the same rows; validation and test."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    texts, labels = read(work, "train", "extra")
    models = {
        "TF-IDF words and bigrams, linear SVM": make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2), LinearSVC(C=0.5)
        ),
        "TF-IDF words, logistic regression": make_pipeline(
            TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10, max_iter=1000)
        ),
    }
    parts = {name: read(work, name) for name in ("valid", "test")}
    for name, model in models.items():
        begun = time.perf_counter()
        model.fit(texts, labels)
        record: dict[str, Any] = {"wall": round(time.perf_counter() - begun, 1)}
        for split, (split_texts, split_labels) in parts.items():
            record[split] = float(model.score(split_texts, split_labels))
        begun = time.perf_counter()
        model.predict(parts["test"][0])
        record["documents_per_second"] = round(len(parts["test"][0]) / (time.perf_counter() - begun))
        note(work, name, record)
        print(name, record)
    fasttext_rival(work, texts, labels, parts)


def fasttext_rival(
    work: Path, texts: list[str], labels: list[str], parts: dict[str, tuple[list[str], list[str]]]
) -> None:
    """fastText supervised, where the package is importable. Its own ``predict`` breaks on NumPy 2, so the
    compiled object underneath is asked."""
    try:
        import fasttext
    except ImportError:
        print("fastText: the package is not importable, left out")
        return
    import re

    def plain(text: str) -> str:
        return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))

    def tag(label: str) -> str:
        return "__label__" + label.replace(" ", "_")

    file = work / "fasttext.txt"
    file.write_text(
        "".join(f"{tag(label)} {plain(text)}\n" for text, label in zip(texts, labels, strict=True)),
        encoding="utf-8",
    )
    for name, n_grams in (("fastText, words and bigrams", 2), ("fastText, words", 1)):
        begun = time.perf_counter()
        model = fasttext.train_supervised(
            str(file), epoch=5, wordNgrams=n_grams, lr=0.25, verbose=0, thread=1
        )
        record: dict[str, Any] = {"wall": round(time.perf_counter() - begun, 1)}
        for split, (split_texts, split_labels) in parts.items():
            begun = time.perf_counter()
            found = [model.f.predict(plain(text) + "\n", 1, 0.0, "strict")[0][1] for text in split_texts]
            record["documents_per_second"] = round(len(split_texts) / (time.perf_counter() - begun))
            record[split] = float(np.mean([a == tag(b) for a, b in zip(found, split_labels, strict=True)]))
        note(work, name, record)
        print(name, record)


def note(work: Path, name: str, record: dict[str, Any]) -> None:
    """Keep a unit's figures."""
    (work / "results").mkdir(parents=True, exist_ok=True)
    write_text(work / "results" / f"{name}.json", json.dumps(record, indent=2) + "\n")


def noted(work: Path, name: str) -> dict[str, Any] | None:
    """A unit's figures, if there are any."""
    file = work / "results" / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def table(work: Path) -> dict[str, Any]:
    """All figures so far, as Markdown; several seeds as mean and standard deviation."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((work / "results").glob("*.json")):
        name, _, seed = file.stem.rpartition("-s")
        groups.setdefault(name if seed.isdigit() else file.stem, []).append(json.loads(file.read_text()))
    print("| system | seeds | validation | test | pretraining (s) | fit (s) | documents/s | MB | mix |")
    print("|---|---|---|---|---|---|---|---|---|")
    figures = {}
    for name, records in sorted(groups.items(), key=lambda pair: -max(r["valid"] for r in pair[1])):

        def spread(key: str, records: list[dict[str, Any]] = records) -> str:
            values = [record[key] for record in records if key in record]
            if not values:
                return ""
            sd = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
            return f"{statistics.mean(values):.4f}{sd}"

        last = records[-1]
        end = (last.get("history") or [{}])[-1]
        mix = " / ".join(f"{value:.2f}" for key, value in end.items() if key.startswith("mix_"))
        print(
            f"| {name} | {len(records)} | {spread('valid')} | {spread('test')} | "
            f"{last.get('pretraining') or 0:,.0f} | "
            f"{statistics.mean(record['wall'] for record in records):,.0f} | "
            f"{last.get('documents_per_second', '')} | {last.get('megabytes', '')} | {mix} |"
        )
        figures[name] = {"valid": spread("valid"), "test": spread("test"), "n": len(records)}
    return figures


def main() -> None:
    """Run one of the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["prepare", "pretrain", "rivals", "fit", "test", "table"])
    parser.add_argument("--work", type=Path, default=Path("ag-news"), help="folder for all that is made")
    parser.add_argument("--only", default="*", help="a glob for the names of units")
    parser.add_argument("--seeds", default="0,1,2")
    arguments = parser.parse_args()
    work: Path = arguments.work

    def wanted(name: str) -> bool:
        return fnmatch.fnmatch(name, arguments.only)

    if arguments.stage == "prepare":
        prepare(work)
    elif arguments.stage == "pretrain":
        pretrain_all(work, wanted)
    elif arguments.stage == "rivals":
        rivals(work)
    elif arguments.stage in ("fit", "test"):
        for unit in units([int(seed) for seed in arguments.seeds.split(",")]):
            if not wanted(unit.full_name):
                continue
            if arguments.stage == "test":
                test(work, unit.full_name)
                continue
            record = noted(work, unit.full_name)
            if record is None:
                fit(work, unit)
            elif record["settings"] != unit.settings:
                print(f"{unit.full_name}: was made with other settings; delete its result, model and run")
    if arguments.stage == "table":
        finish(table(work))


if __name__ == "__main__":
    main()
