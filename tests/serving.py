"""Small untrained models for tests of the server, and the server as a program."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.bilm.folder import save_bilm
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.model import Network, TaskModel
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Labels, get_task
from elmokit.text.settings import TextConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import Encoder
from odd_texts import TEXTS, make_model
from program import environment

CLASSES = ["money", "sport", "weather"]
CORPUS = [
    *TEXTS,
    "the bank of a river",
    "its bank raised rates",
    "stone bank under the bridge",
    "Bank and river and bank",
]


def untrained(encoder: Encoder, *, multilabel: bool = False, **settings: Any) -> TaskModel:
    """A classifier with random weights that are large enough for clear predictions."""
    torch.manual_seed(3)
    task, labels = get_task("classify"), Labels(tuple(CLASSES), "|" if multilabel else "")
    config = ClassifierConfig.from_flat(**settings)
    network = Network(task, config, encoder.n_layers, encoder.dim, labels)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.4 * torch.randn_like(parameter))
    return TaskModel(task, encoder, network.eval(), labels)


TAGS = tuple(sorted(["O", *(f"{prefix}-{label}" for prefix in "BIES" for label in ("LOC", "PER"))]))


def untrained_model(name: str, encoder: Encoder, labels: tuple[str, ...] = TAGS, head: str = "") -> TaskModel:
    """A model of a task with random weights; by default, a tagger of two labels."""
    torch.manual_seed(5)
    task, config = get_task(name), ClassifierConfig.from_flat(head=head or "linear", head_dim=6)
    network = Network(task, config, encoder.n_layers, encoder.dim, Labels(labels))
    with torch.no_grad():
        for parameter in network.head.parameters():
            parameter.add_(torch.randn_like(parameter))
    return TaskModel(task, encoder, network.eval(), Labels(labels))


def save_models(folder: Path) -> dict[str, Path]:
    """An encoder (``small``), a tagger (``names``), a reader (``reader``), a model of pairs (``same``) and
    four classifiers: over the encoder (``topics``), with several labels (``tags``), by a
    learned function (``learned``), and over static word vectors (``table``)."""
    save_bilm(folder / "small", make_model())
    elmo = Elmo.load(folder / "small")
    words = ["the", "bank", "raised", "rates", "river"]
    table = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    static = WordVectors.of(words, table, TextConfig(), {"method": "svd"})
    untrained(elmo, mix_weights="0.5,0.2,0.3").save(folder / "topics")
    untrained(elmo, multilabel=True, mix="frozen").save(folder / "tags")
    untrained(elmo, mix="function", max_words=6).save(folder / "learned")
    untrained(static).save(folder / "table")
    untrained_model("tag", elmo).save(folder / "names")
    untrained_model("answer", elmo, (), "bidaf").save(folder / "reader")
    untrained_model("pair", elmo, ("different", "same"), "siamese").save(folder / "same")
    names = ("small", "topics", "tags", "learned", "table", "names", "reader", "same")
    return {name: folder / name for name in names}


def save_report(folder: Path, body: str) -> Path:
    """The page of a comparison."""
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(f"<!doctype html><title>x</title>{body}", encoding="utf-8")
    return folder


@dataclass
class Server:
    """``elmokit serve`` in its own process."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self, number: int) -> tuple[int, str]:
        """Its exit code after a signal, and the rest of its output."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=120)
        return self.process.returncode, output


@contextlib.contextmanager
def running(*words: str | Path) -> Iterator[Server]:
    """``elmokit serve`` on a free port."""
    command = [sys.executable, "-m", "elmokit", "serve", "--port", "0", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            output = ""
            while not (match := re.search(r"http://\S+:\d+", output)):
                line = process.stdout.readline()
                assert line, f"the server did not start:\n{output}"
                output += line
            yield Server(process, match[0])
        finally:
            if process.poll() is None:
                process.kill()
