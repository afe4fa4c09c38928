"""The rival: the bidirectional language model as course write-ups build it.

Word table, embedding 150, hidden 150, two LSTM layers each way with an output layer of its own,
sentences with <s> and </s>, cut at the 95th percentile and padded to one length, batches of 32,
one-hot targets, full softmax both ways, Adam. Padding is left out of the loss, which favours it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Textbook", "TextbookTrainer"]

_PAD = 0


class Textbook(nn.Module):
    """The model."""

    def __init__(self, n_words: int, dim: int = 150) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, dim, padding_idx=_PAD)
        self.ahead = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.behind = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.next_word = nn.Linear(dim, n_words)
        self.previous_word = nn.Linear(dim, n_words)

    def forward(self, ahead: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, time) twice -> logits (batch, time, words) twice."""
        forward, _ = self.ahead(self.embedding(ahead))
        backward, _ = self.behind(self.embedding(behind))
        return self.next_word(forward), self.previous_word(backward)


class TextbookTrainer:
    """Trains and evaluates it the textbook way."""

    def __init__(self, documents: list[npt.NDArray[np.int64]], n_words: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.n_words = n_words
        self.model = Textbook(n_words)
        self.optimiser = torch.optim.Adam(self.model.parameters())
        self.limit = int(np.percentile([len(document) for document in documents], 95))
        self.documents = [document[: self.limit] for document in documents]
        self.rng = np.random.default_rng(seed)

    def batches(self) -> Iterator[list[npt.NDArray[np.int64]]]:
        """An epoch in batches of 32."""
        order = self.rng.permutation(len(self.documents))
        for first in range(0, len(order), 32):
            yield [self.documents[place] for place in order[first : first + 32]]

    def step(self, batch: list[npt.NDArray[np.int64]]) -> int:
        """One update; returns the real words it saw."""
        ahead, behind = _padded(batch, self.limit), _padded([d[::-1] for d in batch], self.limit)
        logits = self.model(ahead[:, :-1], behind[:, :-1])
        loss = torch.zeros(())
        for scores, words in zip(logits, (ahead[:, 1:], behind[:, 1:]), strict=True):
            one_hot = F.one_hot(words, self.n_words).float()
            each = -(one_hot * F.log_softmax(scores, dim=-1)).sum(dim=-1)
            real = words != _PAD
            loss = loss + (each * real).sum() / real.sum()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return sum(len(document) - 1 for document in batch)

    @torch.no_grad()
    def perplexity(self, documents: list[npt.NDArray[np.int64]]) -> float:
        """Full-softmax perplexity of uncut documents, both directions together."""
        total, count = 0.0, 0
        for first in range(0, len(documents), 16):
            batch = documents[first : first + 16]
            longest = max(map(len, batch))
            ahead, behind = _padded(batch, longest), _padded([d[::-1] for d in batch], longest)
            for scores, words in zip(
                self.model(ahead[:, :-1], behind[:, :-1]), (ahead[:, 1:], behind[:, 1:]), strict=True
            ):
                total += float(
                    F.cross_entropy(scores.flatten(0, 1), words.flatten(), ignore_index=_PAD, reduction="sum")
                )
                count += int((words != _PAD).sum())
        return math.exp(total / count)


def _padded(documents: list[npt.NDArray[np.int64]], length: int) -> Tensor:
    rows = np.full((len(documents), length), _PAD, dtype=np.int64)
    for place, document in enumerate(documents):
        rows[place, : len(document)] = document
    return torch.from_numpy(rows)
