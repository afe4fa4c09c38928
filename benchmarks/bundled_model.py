"""What a pretrained model is good for, before anything is learnt from many labels.

    python benchmarks/bundled_model.py news [MODEL ...]

For each model: its size; how well its vectors tell senses apart (``senses.tsv``, 12 words in 2 senses, 4
sentences each: the share of occurrences whose nearest other occurrence of the word has the same sense, by
layer); and accuracy with few labels, frozen, with the linear head, mean over draws: AG News with 1,000 labels
(drawn from the train rows), movie-review sentences (sentence_polarity, 500 labels, 2,000 rows of test)
and the bundled corpus (480 labels, 200 rows of test). AG News and the polarity set are found through
ELMOKIT_DATA. Beside them TF-IDF + SVM on the same labels.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import statistics
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from elmokit.bilm.names import located
from elmokit.corpora import mini_news
from elmokit.embed.elmo import Elmo
from elmokit.embed.search import unit_rows
from measuring import data_file, finish

_DRAWS = 3


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


def ag_news() -> tuple[list[str], list[str], list[str], list[str]]:
    """Train and test rows."""

    def rows(name: str) -> tuple[list[str], list[str]]:
        with gzip.open(data_file(f"ag_news/{name}"), "rt", encoding="utf-8", newline="") as file:
            read = list(csv.reader(file))
        return [f"{title} {text}".strip() for _, title, text in read], [label for label, _, _ in read]

    return (*rows("train_partial.csv.gz"), *rows("test.csv.gz"))


def polarity() -> tuple[list[str], list[str], list[str], list[str]]:
    """Sentences from movie reviews; the last thousand of each class are the test."""
    texts: dict[str, list[str]] = {}
    with zipfile.ZipFile(data_file("nltk_corpora/sentence_polarity.zip")) as file:
        for label in ("neg", "pos"):
            content = file.read(f"sentence_polarity/rt-polarity.{label}").decode("utf-8", "replace")
            texts[label] = [line for line in content.splitlines() if line.strip()]
    train = [(text, label) for label, part in texts.items() for text in part[:-1000]]
    test = [(text, label) for label, part in texts.items() for text in part[-1000:]]
    return (*map(list, zip(*train, strict=True)), *map(list, zip(*test, strict=True)))  # type: ignore[return-value]


def mini() -> tuple[list[str], list[str], list[str], list[str]]:
    """The bundled corpus, split as in the demo."""
    with open(mini_news(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    seen: dict[str, int] = {}
    parts: tuple[list[dict[str, str]], list[dict[str, str]]] = ([], [])
    for row in rows:
        number = seen[row["topic"]] = seen.get(row["topic"], 0) + 1
        parts[number % 17 < 5].append(row)
    train, test = parts
    return (
        [row["text"] for row in train],
        [row["topic"] for row in train],
        [row["text"] for row in test],
        [row["topic"] for row in test],
    )


def few(
    elmo: Elmo | None, data: tuple[list[str], list[str], list[str], list[str]], n_labels: int | None
) -> list[float]:
    """Test accuracy with some labels, a figure for each draw; TF-IDF + SVM if there is no model."""
    texts, labels, test, wanted = data
    classes = sorted(set(labels))
    n_draws = _DRAWS if n_labels else 1
    picks: list[list[int]] = []
    for draw in range(n_draws):
        rng = np.random.default_rng(draw)
        if n_labels is None:
            picks.append(list(range(len(texts))))
            continue
        share = n_labels // len(classes)
        picks.append(
            [
                int(place)
                for name in classes
                for place in rng.permutation([i for i, label in enumerate(labels) if label == name])[:share]
            ]
        )
    if elmo is None:
        made: Callable[[Sequence[str]], Any] = list
        model: Any = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LinearSVC())
        held: Any = test
    else:
        encoder = elmo

        def made(some: Sequence[str]) -> Any:
            found = encoder.embed(list(some))
            return np.concatenate(
                [found.sentence("mean", layer=depth) for depth in range(encoder.n_layers)], axis=1
            )

        model = make_pipeline(
            StandardScaler(), LogisticRegressionCV(Cs=[1e-4, 1e-3, 1e-2], max_iter=300, cv=3)
        )
        held = made(test)
    found = []
    for picked in picks:
        model.fit(made([texts[i] for i in picked]), [labels[i] for i in picked])
        found.append(float(model.score(held, wanted)))
    return found


def main() -> None:
    """Measure every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", default=["news"])
    arguments = parser.parse_args()
    sets = {
        "AG News, 1,000": (ag_news(), 1000),
        "polarity, 500": (polarity(), 500),
        "bundled, 480": (mini(), None),
    }
    figures: dict[str, Any] = {}
    print("| model | MB | senses by layer (mix last) | " + " | ".join(sets) + " |")
    print("|---|---|---|" + "---|" * len(sets))
    for name in [None, *arguments.models]:
        elmo = None if name is None else Elmo.load(name)
        size = 0.0 if name is None else sum(f.stat().st_size for f in located(name).iterdir() if f.is_file())
        shares = [] if elmo is None else senses(elmo)
        row: dict[str, Any] = {"bytes": size, "senses": shares}
        for label, (data, n_labels) in sets.items():
            row[label] = few(elmo, data, n_labels)
        figures[name or "TF-IDF + SVM"] = row
        cells = [
            f"{statistics.mean(row[label]):.3f}"
            + (f" ± {statistics.stdev(row[label]):.3f}" if len(row[label]) > 1 else "")
            for label in sets
        ]
        told = " / ".join(f"{share:.2f}" for share in shares) or "–"
        print(
            f"| {name or 'TF-IDF + SVM'} | {size / 1e6:.1f} | {told} | " + " | ".join(cells) + " |",
            flush=True,
        )
    finish(figures)


if __name__ == "__main__":
    main()
