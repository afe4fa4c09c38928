"""Texts on three topics, told apart by their words, and an encoder that knows these words."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elmokit.bilm.folder import BilmFolder, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.corpora import mini_news
from elmokit.tasks.task import Examples, Labels, Predictor
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, Text, TextPipeline
from elmokit.text.vocabulary import Vocabulary
from elmokit.vectors.elmo import Elmo

TOPICS = {"money": ("bank", "profit"), "sport": ("goal", "coach"), "weather": ("rain", "storm")}
OTHERS = ("the", "a", "we", "saw")

# Settings with which a classifier learns the topics in a moment, and ones that only go through the motions.
EASY: dict[str, Any] = {
    "epochs": 5,
    "lr": 0.03,
    "batch_words": 128,
    "head_dim": 16,
    "dropout_head": 0.0,
    "dropout_word": 0.0,
    "label_smoothing": 0.05,
    "warmup": 0.1,
    "weight_decay": 0.01,
    "ema": 0.0,
}
QUICK = {**EASY, "epochs": 2, "max_steps": 2}


def rows(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts and their topics."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        topic = list(TOPICS)[number % len(TOPICS)]
        words = [*rng.choices(OTHERS, k=rng.randint(1, 4)), *rng.choices(TOPICS[topic], k=2)]
        found.append((" ".join(rng.sample(words, len(words))), topic))
    return found


def news(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of the corpus that comes with the package, drawn at random, and their topics."""
    with open(mini_news(), encoding="utf-8", newline="") as file:
        found = [(row["text"], row["topic"]) for row in csv.DictReader(file)]
    chosen = [found[row] for row in np.random.default_rng(seed).permutation(len(found))[:n]]
    return [text for text, _ in chosen], [topic for _, topic in chosen]


def several(n: int, seed: int = 0, separator: str = "|") -> list[tuple[str, str]]:
    """Texts with one to three topics each."""
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        topics = rng.sample(list(TOPICS), rng.randint(1, 3))
        words = (rng.choice(TOPICS[topic] if topic in topics else OTHERS) for topic in TOPICS)
        found.append((" ".join(words), separator.join(topics)))
    return found


def table(path: Path, rows: Iterable[Sequence[Any]], head: Sequence[str] = ("text", "label")) -> Path:
    """A CSV file of ``rows``."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def probabilities(model: Predictor, texts: Iterable[Text]) -> npt.NDArray[Any]:
    """The probability of each class for each text."""
    return np.stack([prediction.probabilities for prediction in model.predict((text,) for text in texts)])


def make_elmo(**settings: Any) -> Elmo:
    """An encoder with random weights."""
    torch.manual_seed(0)
    vocabulary = Vocabulary([*SPECIALS, *OTHERS, *(word for words in TOPICS.values() for word in words)])
    shape = {"input": "word", "dim": 12, "hidden_dim": 12, "objective": "full"}
    model = Bilm(BilmConfig.from_dict({**shape, **settings}), len(vocabulary)).eval()
    tokenizer = TextPipeline(TextConfig()).word_tokenizer(vocabulary.words)
    return Elmo(BilmFolder(model, TextConfig(), vocabulary, tokenizer, {}))


def save_encoder(folder: Path) -> None:
    """An encoder with random weights, in a folder."""
    save_bilm(folder, make_elmo().folder)


def make_examples(texts: Sequence[Text], targets: npt.NDArray[Any], weights: Any = None) -> Examples:
    """Texts with the numbers of their topics, or with ones and zeros."""
    labels = Labels(tuple(TOPICS), "|" if targets.ndim == 2 else "")
    return Examples([(text,) for text in texts], targets, labels, weights=weights)


def examples(n: int, seed: int = 0) -> Examples:
    """The same as ``rows``."""
    return make_examples([text for text, _ in rows(n, seed)], np.arange(n) % len(TOPICS))
