"""What frozen vectors of language models are good for, in one table: to choose a general model by.

    python benchmarks/english_choice.py english my-elmo ...

- Accuracy of a logistic regression on the mean vector over the words (equal mix of the layers, length one)
  with 500 labels, mean of three draws: AG News, sentence polarity, SST-5, and questions by type of answer.
  The questions are those of SQuAD's development set, typed by rule from their answers; an article is either
  learned from or measured on.
- F1 over the entity tokens of CoNLL-2003's development set, of a linear probe on all layers of 2,000 training
  sentences.
- Senses of ``senses.tsv``: accuracy of the nearest mean of the other examples, by layer and for their mix.
- STS-B's development set: Spearman correlation of the cosine of mean vectors, and of sentence vectors.

Only development sets and held-out training rows are read. Data is found through ELMOKIT_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV

from elmokit.tasks.stack import encode
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import FloatArray
from few_labels import SETS, TextSet, draw
from measuring import data_file, finish
from pairs import read_pairs
from senses import embed_uses, nearest_mean

N_LABELS, N_DRAWS, N_SENTENCES = 500, 3, 2000
_MAX_WORDS = 400
_DATE = re.compile(
    r"\b(1[0-9]{3}|20[0-2][0-9])\b|\b[0-9]+(st|nd|rd|th) century\b|\b(January|February|March|April|May|June|"
    r"July|August|September|October|November|December|(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b"
)
_NUMBER = re.compile(
    r"[0-9]|\b(one|two|three|four|five|six|seven|eight|nine|ten|hundred|million|half)\b", re.I
)


def type_of(answer: str) -> str:
    """By rule: a date, a number, a name (its long words are capitalized), a thing or a description."""
    if _DATE.search(answer):
        return "date"
    if _NUMBER.search(answer):
        return "number"
    words = answer.split()
    long = [word for word in words if len(word) > 3] or words
    if all(word[0].isupper() for word in long):
        return "name"
    return "thing" if len(words) <= 3 else "description"


def questions() -> TextSet:
    """Questions with the type of their first answer; every third article is measured on."""
    articles = json.loads(gzip.decompress(data_file("squad/dev-v1.1.reconstructed.json.gz").read_bytes()))
    parts: tuple[list[tuple[str, str]], ...] = ([], [])
    for number, article in enumerate(articles["data"]):
        for paragraph in article["paragraphs"]:
            for row in paragraph["qas"]:
                parts[number % 3 == 2].append((row["question"], type_of(row["answers"][0]["text"])))
    return TextSet(*parts)


def mean_vectors(elmo: Elmo, texts: Sequence[str]) -> FloatArray:
    """(n_texts, dim)"""
    return encode(elmo, [(text,) for text in texts], _MAX_WORDS, ["context"])["context"]


def few_label_accuracy(elmo: Elmo, rows: TextSet, *, valid: bool) -> list[float]:
    """In percent, for each draw."""
    scores = []
    test: FloatArray | None = None
    for number in range(N_DRAWS):
        one = draw(rows, N_LABELS, number, valid=valid)
        assert one is not None
        test = mean_vectors(elmo, one.test) if test is None else test  # the same rows for every draw
        probe = GridSearchCV(LogisticRegression(max_iter=2000), {"C": 2.0 ** np.arange(-1, 8)}, cv=4)
        probe.fit(mean_vectors(elmo, one.texts), one.labels)
        scores.append(100 * float((probe.predict(test) == one.truth).mean()))
    return scores


def tokens(elmo: Elmo, split: str, at_most: int) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    """All layers of every word side by side, (n_words, n_layers * dim), and its kind of entity."""
    text = gzip.decompress(data_file(f"conll2003/{split}.txt.gz").read_bytes()).decode("utf-8")
    parts = [part.split("\n") for part in text.split("\n\n") if part.strip() and "-DOCSTART-" not in part]
    lines = [[line.split() for line in part if line.strip()] for part in parts[:at_most]]
    found = elmo.embed([[line[0] for line in part] for part in lines])
    tags = np.array([line[-1].rpartition("-")[2] for part in lines for line in part])
    return found.flat.reshape(len(tags), -1), tags


def entity_f1(elmo: Elmo) -> float:
    """Over the words of entities, in percent."""
    (x, y), (x_valid, truth) = tokens(elmo, "train", N_SENTENCES), tokens(elmo, "valid", 10**9)
    centre, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    probe = LogisticRegression(C=0.01, max_iter=300).fit((x - centre) / spread, y)
    kinds = [kind for kind in np.unique(y) if kind != "O"]
    found = probe.predict((x_valid - centre) / spread)
    return 100 * float(f1_score(truth, found, labels=kinds, average="micro"))


def sense_accuracy(elmo: Elmo) -> list[float]:
    """By layer, and of their mix last."""
    words, senses, views = embed_uses(elmo)
    names = dict.fromkeys(words.tolist())
    return [
        float(np.mean([nearest_mean(_unit(x[words == word]), senses[words == word]) for word in names]))
        for name, x in views.items()
        if name != "sentence vector"
    ]


def _unit(x: Any) -> Any:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)


def similarity(elmo: Elmo) -> list[float]:
    """Spearman correlation, in percent: by the mean vector and by the trained sentence vector, if any."""
    texts, others, given = zip(*read_pairs("sts", "valid"), strict=True)
    vectors = [[mean_vectors(elmo, part) for part in (texts, others)]]
    if elmo.has_sentence_vector:
        vectors.append([_unit(elmo.sentences(part)) for part in (texts, others)])
    scores = np.array(given, dtype=float)
    return [100 * float(spearmanr((u * v).sum(axis=1), scores)[0]) for u, v in vectors]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["english"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    sets = {name: (SETS[name](None), True) for name in ("ag-news", "polarity", "sst-5")}
    sets["questions"] = (questions(), False)
    figures: dict[str, Any] = {}
    print(f"| model | {' | '.join(sets)} | entities | senses by layer, mix | STS-B: mean, sentence | CPU s |")
    print(f"|---|{'---:|' * (len(sets) + 4)}")
    for model in options.models:
        start, elmo = time.process_time(), Elmo.load(model)
        scores = {name: few_label_accuracy(elmo, rows, valid=valid) for name, (rows, valid) in sets.items()}
        f1, senses, sts = entity_f1(elmo), sense_accuracy(elmo), similarity(elmo)
        seconds = round(time.process_time() - start)
        figures[model] = {**scores, "entities": f1, "senses": senses, "sts": sts, "cpu_seconds": seconds}
        cells = [f"{np.mean(values):.1f} ± {np.std(values):.1f}" for values in scores.values()]
        cells += [f"{f1:.1f}", " / ".join(f"{one:.2f}" for one in senses)]
        print(f"| {model} | {' | '.join(cells)} | {', '.join(f'{one:.1f}' for one in sts)} | {seconds} |")
    finish(figures)


if __name__ == "__main__":
    main()
