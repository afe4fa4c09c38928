"""Answers to SQuAD's questions: a reader on `english`, on skip-gram vectors, and the best TF-IDF sentence.

    python benchmarks/answering.py run --out answering.jsonl
    python benchmarks/answering.py table --out answering.jsonl

Only the 10,570 questions of SQuAD 1.1's development set are used: its 48 articles are split at random into
34 to train on, 6 for validation and 8 for the test, so that no passage is in two splits. Scores are therefore
not comparable to those of readers that learned from SQuAD's 87,599 training questions. The best weights are
chosen on the validation questions; test questions are measured once for each fit. Skip-gram vectors are
trained on the training passages. Every fit is one line of the result file; a stopped run resumes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

import elmokit
from elmokit.tasks.answering import AnswerMetrics
from few_labels import read_results
from measuring import data_file, finish

ENCODERS = ("tf-idf sentence", "skip-gram", "english")
SPLITS = {"train": slice(0, 34), "valid": slice(34, 40), "test": slice(40, None)}


def split_articles(folder: Path) -> dict[str, Path]:
    """SQuAD files with the articles of each split."""
    content = json.loads(gzip.decompress(data_file("squad/dev-v1.1.reconstructed.json.gz").read_bytes()))
    articles = [content["data"][row] for row in np.random.default_rng(0).permutation(len(content["data"]))]
    files = {}
    for split, part in SPLITS.items():
        files[split] = folder / f"{split}.json"
        files[split].write_text(json.dumps({"data": articles[part]}), encoding="utf-8")
    return files


def questions(file: Path) -> list[tuple[str, str, list[str]]]:
    """Question, passage and answers of each row."""
    return [
        (qa["question"], paragraph["context"], [answer["text"] for answer in qa["answers"]])
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def answer_by_sentence(train: Path, file: Path) -> AnswerMetrics:
    """The sentence of each passage that is most similar to the question."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    vectorizer.fit({passage for _, passage, _ in questions(train)})
    rows, answers = questions(file), []
    for question, passage, _ in rows:
        sentences = re.split(r"(?<=[.!?])\s+", passage)
        similarity = vectorizer.transform(sentences) @ vectorizer.transform([question]).T
        answers.append(sentences[int(similarity.toarray()[:, 0].argmax())])
    return AnswerMetrics([row[0] for row in rows], [row[2] for row in rows], answers, [1.0] * len(rows))


def train_skip_gram(train: Path, folder: Path) -> Path:
    """Skip-gram vectors of the words of the training passages."""
    text, vectors = folder / "passages.txt", folder / "skip-gram"
    text.write_text("\n".join(dict.fromkeys(passage for _, passage, _ in questions(train))), encoding="utf-8")
    if not vectors.exists():
        elmokit.baseline("sgns", text, vectors, dim=300, epochs=15, min_count=1)
    return vectors


def run(options: argparse.Namespace) -> None:
    """All fits that the result file does not have yet."""
    done = {(line["encoder"], line["seed"]) for line in read_results(options.out)}
    folder = options.out.with_suffix("")  # fits that were stopped resume here
    folder.mkdir(parents=True, exist_ok=True)
    files = split_articles(folder)
    for seed in range(options.seeds):
        for encoder in options.encoders:
            if (encoder, seed) in done or (encoder == ENCODERS[0] and seed):
                continue
            start, line = time.process_time(), dict[str, Any](encoder=encoder, seed=seed)
            if encoder == ENCODERS[0]:
                splits = ("valid",) if options.valid else ("valid", "test")
                line |= {
                    split: dict(answer_by_sentence(files["train"], files[split]).values) for split in splits
                }
            else:
                path = train_skip_gram(files["train"], folder) if encoder == "skip-gram" else encoder
                fitted = elmokit.fit(
                    path,
                    files["train"],
                    folder / f"{Path(encoder).name}-{seed}",
                    valid=files["valid"],
                    test=() if options.valid else files["test"],
                    seed=seed,
                    **{name: json.loads(value) for name, value in (pair.split("=") for pair in options.set)},
                )
                assert fitted.model is not None
                line |= {split: dict(one.values) for split, one in fitted.metrics.items()}
                line["history"] = [dict(entry) for entry in fitted.model.record.history]
            line["cpu_seconds"] = round(time.process_time() - start)
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def table(options: argparse.Namespace) -> dict[str, Any]:
    """The mean over the seeds, as Markdown."""
    lines, means = read_results(options.out), {}
    print(
        "| method | seeds | validation F1 | exact | test F1 | exact | CPU s |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for encoder in dict.fromkeys(line["encoder"] for line in lines):
        own, cells = [line for line in lines if line["encoder"] == encoder], []
        for split in ("valid", "test"):
            for score in ("answer_f1", "exact_match"):
                values = [100 * line[split][score] for line in own if split in line]
                cells.append(f"{np.mean(values):.1f}" if values else "")
                means[f"{encoder}/{split}/{score}"] = round(float(np.mean(values)), 2) if values else None
        seconds = np.mean([line["cpu_seconds"] for line in own])
        print(f"| {Path(encoder).name} | {len(own)} | {' | '.join(cells)} | {seconds:,.0f} |")
    return means


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("answering.jsonl"))
    parser.add_argument("--encoders", nargs="+", default=[*ENCODERS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--valid", action="store_true", help="leave the test questions alone")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the fit, as NAME=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        run(options)
    finish(table(options))


if __name__ == "__main__":
    main()
