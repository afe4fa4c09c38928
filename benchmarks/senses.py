"""Which layer tells the senses of a word apart, and how much each layer depends on context.

    python benchmarks/senses.py --model english --picture docs/pictures/self-similarity.png

``senses.tsv`` has 40 words in two senses, six sentences each, written for this. For each layer, their equal
mix and the sentence vector: k-means with two groups for each word (purity and adjusted Rand index; "chance"
is the mean of 200 random groupings of the same sizes), the share of words in which ``elmokit senses`` sees
one, two or more senses by itself, the share of single senses (six sentences) that it splits, and the accuracy
of the nearest mean of the other examples. What to compare by was chosen by the first 12 words, the penalty
for each sense beyond two by the first 20; the last columns are the 28 words after the first 12.

Self-similarity: the mean cosine of two uses of the same word in the bundled news texts (words with ten uses
or more), less the mean cosine of two uses of different words.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from elmokit.corpora import mini_news
from elmokit.report.figures import Line, draw_lines
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import unit_rows
from elmokit.vectors.senses import group_vectors
from measuring import finish

Vectors = npt.NDArray[np.float64]
_N_CHOSEN_BY = 12  # words
_TIE = 1e-5  # cosines that differ by rounding: the token encoder gives all uses of a word the same vector


def purity(groups: npt.NDArray[np.int64], senses: npt.NDArray[np.int64]) -> float:
    """The share of uses that have the most frequent sense of their group."""
    return sum(int(np.bincount(senses[groups == one]).max()) for one in np.unique(groups)) / len(senses)


def nearest_mean(units: Vectors, senses: npt.NDArray[np.int64]) -> float:
    """The share of uses that are nearest to the mean of the other uses of their sense; ties count half."""
    right = 0.0
    for place, unit in enumerate(units):
        others = np.arange(len(units)) != place
        means = np.stack([units[others & (senses == sense)].mean(axis=0) for sense in (0, 1)])
        cosines = unit_rows(means) @ unit
        lead = cosines[senses[place]] - cosines[1 - senses[place]]
        right += 0.5 if abs(lead) < _TIE else float(lead > 0)
    return right / len(units)


def measure(vectors: Vectors, senses: npt.NDArray[np.int64], words: npt.NDArray[Any]) -> dict[str, float]:
    """All figures, as means over words."""
    rng, rows = np.random.default_rng(0), []
    for word in dict.fromkeys(words.tolist()):
        units, own = unit_rows(vectors[words == word]), senses[words == word]
        groups = KMeans(2, n_init=10, random_state=0).fit_predict(units)
        shuffled = [purity(rng.permutation(groups), own) for _ in range(200)]
        n_seen = int(group_vectors(units)[0].max()) + 1
        split = [int(group_vectors(units[own == sense])[0].max()) > 0 for sense in (0, 1)]
        rows.append(
            {
                "purity": purity(groups, own),
                "chance": float(np.mean(shuffled)),
                "rand": float(adjusted_rand_score(own, groups)),
                "one": float(n_seen == 1),
                "two": float(n_seen == 2),
                "split": float(np.mean(split)),
                "nearest mean": nearest_mean(units, own),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def self_similarity(elmo: Elmo, texts: list[str]) -> list[tuple[float, float]]:
    """By layer: the mean cosine of two uses of one word, and of two uses of different words."""
    uses: dict[str, list[npt.NDArray[np.float32]]] = defaultdict(list)
    for part in elmo.chunks(texts):
        for word, layers in zip((w for row in part.tokens for w in row), part.flat, strict=True):
            if word.isalpha() and len(uses[word]) < 100:
                uses[word].append(layers)
    words = [np.stack(rows) for rows in uses.values() if len(rows) >= 10]
    result = []
    for layer in range(elmo.n_layers):
        units = [unit_rows(rows[:, layer]) for rows in words]
        same = [((sums := one.sum(axis=0)) @ sums - len(one)) / (len(one) * (len(one) - 1)) for one in units]
        means = np.stack([one.mean(axis=0) for one in units])
        products = means @ means.T
        n = len(units)
        result.append((float(np.mean(same)), float((products.sum() - products.trace()) / (n * (n - 1)))))
    return result


def embed_uses(elmo: Elmo) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], dict[str, Vectors]]:
    """The word and the sense (0 or 1) of every use in the list, and its vectors by what they are."""
    with open(Path(__file__).with_name("senses.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    words = np.array([row["word"] for row in rows])
    first = {row["word"]: row["sense"] for row in reversed(rows)}
    senses = np.array([int(row["sense"] != first[row["word"]]) for row in rows])
    sentences = [row["sentence"] for row in rows]
    found = elmo.embed(sentences)
    places = [[one.lower() for one in row].index(word) for row, word in zip(found.tokens, words, strict=True)]
    layers = np.stack([row[place] for row, place in zip(found.layers, places, strict=True)])
    views: dict[str, Vectors] = {f"layer {depth}": layers[:, depth] for depth in range(elmo.n_layers)}
    views["equal mix"] = layers.mean(axis=1)
    views["sentence vector"] = elmo.sentences(sentences).astype(np.float64)
    return words, senses, views


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="english")
    parser.add_argument("--picture", type=Path, help="where to draw self-similarity")
    arguments = parser.parse_args()
    elmo = Elmo.load(arguments.model)
    words, senses, views = embed_uses(elmo)
    chosen = np.isin(words, list(dict.fromkeys(words.tolist()))[:_N_CHOSEN_BY])
    print("| | purity | chance | adjusted Rand | sees one / two / more senses | splits one sense |", end="")
    print(" nearest mean | purity, other 28 | Rand, other 28 |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    figures: dict[str, Any] = {}
    for name, vectors in views.items():
        one, rest = (measure(vectors[keep], senses[keep], words[keep]) for keep in (words != "", ~chosen))
        figures[name] = one
        more = 1 - one["one"] - one["two"]
        print(
            f"| {name} | {one['purity']:.3f} | {one['chance']:.3f} | {one['rand']:.3f} | "
            f"{one['one']:.0%} / {one['two']:.0%} / {more:.0%} | {one['split']:.0%} | "
            f"{one['nearest mean']:.3f} | {rest['purity']:.3f} | {rest['rand']:.3f} |",
            flush=True,
        )
    texts = list(TextSource([mini_news()], ReadConfig(text_columns="text")))
    similar = self_similarity(elmo, texts)
    print("\n| layer | same word | different words | self-similarity |\n|---|---:|---:|---:|")
    for depth, (same, other) in enumerate(similar):
        print(f"| {depth} | {same:.3f} | {other:.3f} | {same - other:.3f} |")
    if arguments.picture:
        x = list(range(len(similar)))
        lines = [
            Line("the same word", x, [same for same, _ in similar]),
            Line("different words", x, [other for _, other in similar]),
            Line("difference", x, [same - other for same, other in similar]),
        ]
        drawn = draw_lines(lines, x_label="layer", caption="Mean cosine of two uses")
        arguments.picture.write_bytes(drawn.png)
    finish({"senses": figures, "self_similarity": similar})


if __name__ == "__main__":
    main()
