"""Small models for the server's tests, without training, and the server as a program."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit import save_bilm
from elmokit.config import TextConfig
from elmokit.embed.elmo import Elmo
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.classifier import Network, TextClassifier
from elmokit.tasks.encoders import Encoder, StaticEncoder
from elmokit.tasks.folder import save_classifier
from elmokit.tasks.settings import ClassifierConfig
from odd_texts import TEXTS, make_model
from program import Start

__all__ = ["CLASSES", "CORPUS", "running", "save_models", "save_report", "untrained"]

CLASSES = ["money", "sport", "weather"]
CORPUS = [
    *TEXTS,
    "the bank of a river",
    "its bank raised rates",
    "stone bank under the bridge",
    "Bank and river and bank",
]


def untrained(encoder: Encoder, *, multilabel: bool = False, **settings: Any) -> TextClassifier:
    """A classifier with random weights, far enough from zero to have opinions."""
    torch.manual_seed(3)
    network = Network(ClassifierConfig.from_flat(**settings), encoder.n_layers, encoder.dim, len(CLASSES))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.4 * torch.randn_like(parameter))
    return TextClassifier(encoder, network.eval(), CLASSES, multilabel)


def save_models(folder: Path) -> dict[str, Path]:
    """An encoder (``small``) and four classifiers: over it (``topics``), with several labels (``tags``),
    by a learnt function (``learnt``), and over static word vectors (``table``)."""
    save_bilm(folder / "small", make_model())
    elmo = Elmo.load(folder / "small")
    words = ["the", "bank", "raised", "rates", "river"]
    table = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    static = StaticEncoder(WordVectors.of(words, table, TextConfig(), {"method": "svd"}))
    save_classifier(folder / "topics", untrained(elmo, mix_weights="0.5,0.2,0.3"))
    save_classifier(folder / "tags", untrained(elmo, multilabel=True, mix="frozen"))
    save_classifier(folder / "learnt", untrained(elmo, mix="function", max_words=6))
    save_classifier(folder / "table", untrained(static))
    return {name: folder / name for name in ("small", "topics", "tags", "learnt", "table")}


def save_report(folder: Path, title: str, body: str) -> Path:
    """What a comparison leaves, as far as the server looks at it."""
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(f"<!doctype html><title>x</title>{body}", encoding="utf-8")
    (folder / "report.json").write_text(f'{{"title": "{title}"}}', encoding="utf-8")
    return folder


@contextlib.contextmanager
def running(start: Start, *words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``elmokit serve`` on a free port, and its address."""
    process = start("serve", *words, "--port", "0")
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"http://\S+:\d+", line):
            yield process, found[0]
            return
    raise AssertionError(f"the server did not start:\n{said}")
