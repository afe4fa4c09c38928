"""A text classifier: an encoder, a mix of its layers, a head; texts in, class probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.tasks.encoders import Encoder
from elmokit.tasks.heads import make_head
from elmokit.tasks.layer_cache import Batch
from elmokit.tasks.settings import ClassifierConfig
from elmokit.text.batching import bucket_batches
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import Text, n_characters
from elmokit.training.machine import tuned_process
from elmokit.vectors.mix import make_mix

__all__ = ["PREDICT_WORDS", "Network", "Targets", "TextClassifier"]

PREDICT_WORDS = 8192
"""Words in a batch when nothing is learnt."""
_PREDICT_TEXTS = 1024


class Network(nn.Module):
    """Mix and head: from a batch's layers to class scores."""

    def __init__(self, config: ClassifierConfig, n_layers: int, dim: int, n_classes: int) -> None:
        super().__init__()
        self.config = config
        self.mix = make_mix(config.mix, n_layers, dim, config.fit.seed)
        self.head = make_head(config.head, self.mix.out_dim, n_classes)

    def forward(self, batch: Batch, rng: torch.Generator | None = None, *, is_mixed: bool = False) -> Tensor:
        """Class scores, (batch, n_classes); ``is_mixed`` if the batch holds the mix already."""
        x = batch.layers[0] if is_mixed else self.mix(batch.layers)  # (batch, time, dim)
        x = shared_dropout(x, self.config.head.dropout_head / 2, rng, over=1)
        scores: Tensor = self.head(x, batch.mask, rng)
        return scores


@dataclass(frozen=True)
class Targets:
    """What is to be learnt.

    Attributes:
        classes: their names, sorted.
        values: class numbers, (n_texts,); for several labels per text, ones and zeros,
            (n_texts, n_classes).
        weights: how much each text counts, (n_texts,); None if all do the same.
    """

    classes: list[str]
    values: npt.NDArray[Any]
    weights: npt.NDArray[np.float32] | None = None

    @property
    def multilabel(self) -> bool:
        """Whether a text may have several labels."""
        return self.values.ndim == 2


@dataclass
class TextClassifier:
    """A fitted classifier: texts in, class probabilities out.

    Attributes:
        encoder: a biLM, or word vectors.
        network: mix and head.
        classes: their names.
        multilabel: whether a text may have several labels.
        record: how it was made: settings, history, timings, command.
        n_cut: texts so far that were longer than ``max_words``, of which only the start was read.
    """

    encoder: Encoder
    network: Network
    classes: list[str]
    multilabel: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    n_cut: int = field(default=0, init=False)

    @property
    def separator(self) -> str:
        """What stands between several labels of a text."""
        return str(self.record.get("label_separator") or "|")

    def reading(self, asked: ReadConfig) -> ReadConfig:
        """How to read rows for it: the columns that it was fitted on, unless others are asked for.

        Columns by number are asked for anew: in a file without labels they may be other ones.
        """
        fitted = ReadConfig(text_columns=self._column("text"))
        if asked.columns or asked.header == "no" or any(map(str.isdecimal, fitted.columns)):
            return asked
        return replace(asked, text_columns=fitted.text_columns)

    def labelling(self, asked: LabelConfig) -> LabelConfig:
        """Where the labels of its rows stand, likewise."""
        fitted = self._column("label")
        column = asked.label_column or ("" if fitted.isdecimal() else fitted)
        separator = asked.label_separator or (self.separator if self.multilabel else "")
        return replace(asked, label_column=column, label_separator=separator)

    def _column(self, name: str) -> str:
        columns = self.record.get("columns")
        value = columns.get(name) if isinstance(columns, dict) else None
        return value if isinstance(value, str) else ""

    @torch.no_grad()
    def probabilities(
        self, texts: Iterable[Text], progress: Callable[[int], None] = lambda amount: None
    ) -> npt.NDArray[np.float32]:
        """The probability of each class for each text, (n_texts, n_classes)."""
        found = list(self.stream(texts, progress))
        return np.concatenate(found) if found else np.zeros((0, len(self.classes)), dtype=np.float32)

    def stream(
        self, texts: Iterable[Text], progress: Callable[[int], None] = lambda amount: None
    ) -> Iterator[npt.NDArray[np.float32]]:
        """``probabilities`` for any number of texts, some at a time, so that memory stays flat."""
        chunk: list[Text] = []
        n_read = 0
        for text in texts:
            chunk.append(text)
            n_read += n_characters(text)
            if len(chunk) == _PREDICT_TEXTS or n_read > 1000 * _PREDICT_TEXTS:
                yield self._some(chunk)
                progress(len(chunk))
                chunk, n_read = [], 0
        if chunk:
            yield self._some(chunk)
            progress(len(chunk))

    def labels(self, probabilities: npt.NDArray[np.floating[Any]]) -> list[str]:
        """The most probable class of each row; of several labels, all above a half, joined."""
        if not self.multilabel:
            return [self.classes[place] for place in probabilities.argmax(axis=1)]
        return [
            self.separator.join(name for name, value in zip(self.classes, row, strict=True) if value > 0.5)
            for row in probabilities
        ]

    @torch.no_grad()
    def _some(self, texts: Sequence[Text]) -> npt.NDArray[np.float32]:
        self.network.eval()
        limit = self.network.config.fit.max_words
        whole = self.encoder.words(texts)
        self.n_cut += sum(len(row) > limit for row in whole)
        words = [row[:limit] for row in whole]
        lengths = [len(row) + 2 for row in words]
        result = torch.zeros(len(words), len(self.classes))
        with tuned_process():
            for rows in bucket_batches(lengths, PREDICT_WORDS):
                out = self.encoder.batch([words[row] for row in rows])
                scores = self.network(Batch(out.values, out.mask))
                shares = torch.sigmoid(scores) if self.multilabel else torch.softmax(scores, dim=1)
                result[torch.from_numpy(rows)] = shares
        return result.numpy()
