"""What stands below a classifier: a biLM, or a table of word vectors, which is run as if it were a biLM
with one layer. The same heads, loop and reports serve both."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.bilm.lstm import shared_dropout
from elmokit.bilm.model import BilmOutput
from elmokit.bilm.token_encoder import WordEncoder
from elmokit.core.config import DropoutConfig
from elmokit.core.model_folder import kind_of
from elmokit.core.names import resolve_name
from elmokit.static.folder import load_vectors, save_vectors
from elmokit.static.word_vectors import WordVectors
from elmokit.text.tokenizing import PAD, SPECIALS, UNK, Text
from elmokit.text.vocabulary import WordIds
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import FloatArray, IntArray, Layers, TokenIds, number_words

__all__ = [
    "Encoder",
    "StaticEncoder",
    "TableModel",
    "encoder_facts",
    "load_encoder",
    "save_encoder",
]


class TableModel(nn.Module):
    """A table of word vectors: one layer, the same whatever stands around a word."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.encoder = WordEncoder(*vectors.shape, sparse=True, scale=0.0)
        with torch.no_grad():
            self.encoder.weight.copy_(vectors)

    def run(
        self,
        vectors: Tensor,
        index: Tensor,
        lengths: Tensor,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> BilmOutput:
        """As ``Bilm.run``: (n_distinct, dim), (batch, time), (batch,) -> one layer, (batch, time, dim)."""
        mask = torch.arange(index.shape[1]) < lengths.unsqueeze(1)  # (batch, time)
        x = F.embedding(index, vectors) * mask.unsqueeze(2)
        if rng is not None and dropout is not None:
            x = shared_dropout(x, dropout.dropout_word, rng, over=2)
            x = shared_dropout(x, dropout.dropout_input, rng, over=1)
        return BilmOutput((x,), mask, None)


class StaticEncoder:
    """Word vectors as the encoder of a classifier.

    The vectors are brought to mean 0 and spread 1 over the whole table: what skip-gram and CBOW make of a
    small text points nearly one way, and a head would see little else.

    Args:
        vectors: the table and all it takes to feed it.
        model: the network, if it has been trained further.
    """

    n_layers = 1
    directional = False

    def __init__(self, vectors: WordVectors, model: TableModel | None = None) -> None:
        self.vectors = _levelled(vectors)
        self.model = TableModel(torch.from_numpy(self.vectors.vectors)) if model is None else model
        self.model.eval()

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.vectors.dim

    @property
    def training(self) -> dict[str, Any]:
        """Where the vectors came from."""
        return self.vectors.training

    @property
    def module(self) -> TableModel:
        """What fine-tuning trains."""
        return self.model

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints, comparable vectors."""
        return self.saved().fingerprint

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text, as the table knows them."""
        return self.vectors.words(texts)

    def to_ids(self, words: Iterable[Sequence[str]]) -> TokenIds:
        """Texts given as words, as ids."""
        return number_words(words, WordIds(self.vectors.vocabulary))

    def layers(
        self,
        ids: TokenIds,
        rows: IntArray,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> Layers:
        """The one layer of the texts ``rows`` as one batch."""
        out = self.model.run(*ids.batch(rows, self.model.encoder), dropout=dropout, rng=rng)
        return Layers(out.layers, out.mask)

    def precompute(self, ids: TokenIds) -> TokenIds:
        """The same texts with the vectors of all their words, until weights change."""
        return ids.with_vectors(self.model.encoder)

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text: the mean over its words; zeros for a text without any."""
        table = self.saved()
        means = [
            table.look_up(words).mean(axis=0) if words else np.zeros(self.dim) for words in self.words(texts)
        ]
        return np.array(means, dtype=np.float32).reshape(-1, self.dim)

    def unfreezing_order(self) -> list[list[str]]:
        """Names of the parameters that fine-tuning trains: the table."""
        return [[name for name, _ in self.model.named_parameters()]]

    def copy(self) -> StaticEncoder:
        """A copy for fine-tuning."""
        model = copy.deepcopy(self.model).requires_grad_(False)
        changed = {**self.training, "fine_tuned": True}
        return StaticEncoder(replace(self.vectors, training=changed), model)

    def batch(self, words: Sequence[Sequence[str]]) -> Layers:
        """The one layer of a batch of texts given as words. A text without a word has one row of zeros."""
        lengths = np.array([max(1, len(row)) for row in words], dtype=np.int64)
        index = np.full((len(words), int(lengths.max())), PAD, dtype=np.int64)
        id_of = self.vectors.vocabulary.id_of
        for place, row in enumerate(words):
            ids = [id_of(word) for word in row]
            index[place, : len(row)] = [UNK if id < len(SPECIALS) else id for id in ids]
        table = self.model.encoder.weight.detach()
        out = self.model.run(table, torch.from_numpy(index), torch.from_numpy(lengths))
        return Layers(out.layers, out.mask)

    def saved(self) -> WordVectors:
        """The vectors as they are now."""
        return replace(self.vectors, vectors=self.model.encoder.weight.detach().numpy())


def _levelled(vectors: WordVectors) -> WordVectors:
    """Mean 0 and spread 1; a table that was levelled before stays as it is. Rows of zeros stay zero."""
    if vectors.training.get("levelled"):
        return vectors
    table = vectors.vectors
    own = table[len(SPECIALS) :]
    centre = own.mean(axis=0, dtype=np.float64)
    spread = max(float((own - centre).std()), float(np.finfo(np.float32).tiny))
    moved = ((table - centre) / spread).astype(np.float32)
    moved[~table.any(axis=1)] = 0.0
    return replace(vectors, vectors=moved, training={**vectors.training, "levelled": True})


Encoder = Elmo | StaticEncoder


def load_encoder(folder: str | Path) -> Encoder:
    """Open a model by name, or a folder that ``pretrain`` or ``baseline`` has made."""
    folder = resolve_name(folder)
    if kind_of(folder) == "word-vectors":
        return StaticEncoder(load_vectors(folder))
    return Elmo(load_bilm(folder))


def save_encoder(folder: Path, encoder: Encoder) -> None:
    """Write an encoder as a model folder."""
    if isinstance(encoder, StaticEncoder):
        save_vectors(folder, encoder.saved())
    else:
        save_bilm(folder, encoder.folder)


def encoder_facts(encoder: Encoder, name: str) -> dict[str, Any]:
    """An encoder in a few plain facts."""
    training = encoder.training
    held_out = training.get("held_out") or {}
    what = "word vectors" if isinstance(encoder, StaticEncoder) else encoder.model.config.input
    return {
        "name": name,
        "input": what,
        "layers": encoder.n_layers,
        "width": encoder.dim,
        "parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
        "held-out perplexity": held_out.get("perplexity"),
        "pretraining seconds": training.get("seconds"),
    }
