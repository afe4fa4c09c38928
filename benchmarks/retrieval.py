"""Questions and the paragraphs that answer them: sentence vectors beside TF-IDF and BM25.

    python benchmarks/retrieval.py --model english

SQuAD 1.1 development: each of the 10,570 questions looks for its paragraph among all 2,067. Recall at 1 and
10, and the mean reciprocal rank, in percent; below, recall at 1 by how many of the question's content words
its paragraph has. "and BM25" ranks by the sum of 1 / (60 + rank) of both. Data is found through
ELMOKIT_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer, TfidfVectorizer

from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import unit_rows
from measuring import data_file, finish

Scores = npt.NDArray[np.float64]
"""(n_questions, n_paragraphs)"""
_K1, _B = 1.2, 0.75  # the usual constants of BM25
_BLOCK = 512  # texts


def read_squad() -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """Paragraphs, questions, and the number of each question's paragraph."""
    with gzip.open(data_file("squad/dev-v1.1.reconstructed.json.gz")) as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [(one["question"], place) for place, part in enumerate(paragraphs) for one in part["qas"]]
    texts, places = zip(*questions, strict=True)
    return [paragraph["context"] for paragraph in paragraphs], list(texts), np.array(places)


def bm25(paragraphs: Sequence[str], questions: Sequence[str]) -> Scores:
    """Okapi BM25 of lower-cased words, with ln(1 + (N - n + 0.5) / (n + 0.5)) as the weight of a word."""
    counter = CountVectorizer(token_pattern=r"(?u)\b\w+\b")
    counts = counter.fit_transform(paragraphs).tocoo()
    lengths = np.bincount(counts.row, counts.data, len(paragraphs))
    n_with = np.bincount(counts.col, minlength=counts.shape[1])
    weights = np.log(1 + (len(paragraphs) - n_with + 0.5) / (n_with + 0.5))
    damping = _K1 * (1 - _B + _B * lengths / lengths.mean())
    values = weights[counts.col] * counts.data * (_K1 + 1) / (counts.data + damping[counts.row])
    table = csr_matrix((values, (counts.row, counts.col)), counts.shape)
    scores: Scores = (counter.transform(questions) @ table.T).toarray()
    return scores


def tfidf(paragraphs: Sequence[str], questions: Sequence[str]) -> Scores:
    """Cosine of TF-IDF vectors of words, logarithmic counts."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    table = vectorizer.fit_transform(paragraphs)
    scores: Scores = (vectorizer.transform(questions) @ table.T).toarray()
    return scores


def cosines_of(encode: Callable[[list[str]], npt.NDArray[Any]]) -> Callable[[list[str], list[str]], Scores]:
    """Cosine of the vectors that ``encode`` makes."""

    def score(paragraphs: list[str], questions: list[str]) -> Scores:
        sides = []
        for texts in (questions, paragraphs):
            parts = [encode(texts[first : first + _BLOCK]) for first in range(0, len(texts), _BLOCK)]
            sides.append(unit_rows(np.concatenate(parts)))
        return np.asarray(sides[0] @ sides[1].T)

    return score


def ranks_of(scores: Scores, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rank of each question's paragraph, from 1; of equal scores, the wrong ones come first."""
    right = scores[np.arange(len(places)), places]
    return np.asarray((scores >= right[:, None]).sum(axis=1))


def fuse(first: Scores, second: Scores) -> Scores:
    """Reciprocal rank fusion."""
    both = [(-scores).argsort(axis=1, kind="stable").argsort(axis=1) for scores in (first, second)]
    return np.asarray(sum(1 / (61 + order) for order in both))


def overlap(paragraphs: Sequence[str], questions: Sequence[str], places: npt.NDArray[np.int64]) -> Scores:
    """The share of each question's content words that its paragraph has."""
    split = CountVectorizer(
        token_pattern=r"(?u)\b\w+\b", stop_words=list(ENGLISH_STOP_WORDS)
    ).build_analyzer()
    known = [{*split(paragraph)} for paragraph in paragraphs]
    shares = []
    for question, place in zip(questions, places.tolist(), strict=True):
        words = {*split(question)}
        shares.append(len(words & known[place]) / max(1, len(words)))
    return np.array(shares)


def main() -> None:
    """Rank by every method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="english")
    arguments = parser.parse_args()
    paragraphs, questions, places = read_squad()
    elmo = Elmo.load(arguments.model)
    name = arguments.model
    methods: dict[str, Callable[[list[str], list[str]], Scores]] = {
        "TF-IDF": tfidf,
        "BM25": bm25,
        f"{name}, sentence vector": cosines_of(elmo.sentences),
        f"{name}, --pool mean": cosines_of(lambda texts: elmo.embed(texts).sentence("mean")),
        f"{name}, --pool sif": cosines_of(lambda texts: elmo.embed(texts).sentence("sif")),
    }
    shares = overlap(paragraphs, questions, places)
    groups = {
        "under half": shares < 0.5,
        "half to three quarters": (shares >= 0.5) & (shares < 0.75),
        "three quarters or more": shares >= 0.75,
    }
    print(
        f"{len(questions):,} questions, {len(paragraphs):,} paragraphs; questions by shared content words: "
    )
    print(", ".join(f"{label} {int(group.sum()):,}" for label, group in groups.items()))
    print("| | recall@1 | recall@10 | MRR | " + " | ".join(groups) + " | seconds |")
    print("|---|---:|---:|---:|" + "---:|" * len(groups) + "---:|")
    figures: dict[str, Any] = {}
    tables: dict[str, Scores] = {}

    def show(label: str, scores: Scores, seconds: float) -> None:
        ranks = ranks_of(scores, places)
        row = [float((ranks <= 1).mean()), float((ranks <= 10).mean()), float((1 / ranks).mean())]
        row += [float((ranks[group] <= 1).mean()) for group in groups.values()]
        figures[label] = row
        cells = " | ".join(f"{100 * value:.1f}" for value in row)
        print(f"| {label} | {cells} | {'–' if math.isnan(seconds) else f'{seconds:.1f}'} |", flush=True)

    for label, method in methods.items():
        started = time.process_time()
        tables[label] = method(paragraphs, questions)
        show(label, tables[label], time.process_time() - started)
    show("sentence vector and BM25", fuse(tables["BM25"], tables[f"{name}, sentence vector"]), math.nan)
    finish({"questions": Counter(places.tolist()).total(), "figures": figures})


if __name__ == "__main__":
    main()
