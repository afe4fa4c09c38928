"""Exact perplexity of ids and of files: always over the whole vocabulary, whatever the training loss was."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder, load_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.state import distinct_words
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, nearest
from elmokit.text.batching import Streams, StreamWindow, bucket_batches
from elmokit.text.corpus import CorpusSettings, Documents, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, VocabularyConfig
from elmokit.text.tokenizing import BOS, EOS, UNK
from elmokit.text.vocabulary import Rows
from elmokit.training.machine import tuned_process

_EVAL_STREAMS, _EVAL_STEPS, _EVAL_TOKENS = 32, 64, 4096
State = Literal["carried", "zero"]
_STATES = ("carried", "zero")
_Part = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], int]
"""Hidden states (n, dim) and target words (n) in each direction; the number of words read."""


@dataclass(frozen=True)
class StreamBatch:
    """A window of streams as tensors: distinct words once, and where they are.

    Attributes:
        features: (n_distinct, width).
        forward_index, backward_index: (time, stream), into ``features``.
        forward_kept, backward_kept: Positions (of time * stream) whose next word is worth predicting: all
            but the ``<s>`` after ``</s>`` (backward: the ``</s>`` before ``<s>``).
        forward_targets, backward_targets: The words at the kept positions.
    """

    features: Tensor
    forward_index: Tensor
    backward_index: Tensor
    forward_kept: Tensor
    forward_targets: Tensor
    backward_kept: Tensor
    backward_targets: Tensor


def stream_batch(window: StreamWindow, features: Rows, n_words: int) -> StreamBatch:
    """Make the tensors of a window. Words past the first ``n_words`` are predicted as ``<unk>``."""
    rows, index = distinct_words(np.stack([window.forward_inputs, window.backward_inputs]), features)

    def targets(words: npt.NDArray[np.int64], trivial: int) -> tuple[Tensor, Tensor]:
        flat = words.ravel()
        kept = np.flatnonzero(flat != trivial)
        ids = flat[kept]
        return torch.from_numpy(kept), torch.from_numpy(np.where(ids < n_words, ids, UNK))

    forward = targets(window.forward_targets, BOS)
    backward = targets(window.backward_targets, EOS)
    return StreamBatch(rows, index[0], index[1], *forward, *backward)


@dataclass(frozen=True)
class Perplexity:
    """Exact perplexity of held-out text: forward, backward, and of all predictions together."""

    forward: float
    backward: float
    perplexity: float
    n_predictions: int

    @classmethod
    def from_losses(cls, forward: float, n_forward: int, backward: float, n_backward: int) -> Perplexity:
        """From summed losses in nats and their counts."""

        def exp(total: float, count: int) -> float:
            return math.exp(min(700.0, total / count)) if count else math.nan

        n_both = n_forward + n_backward
        both = exp(forward + backward, n_both)
        return cls(exp(forward, n_forward), exp(backward, n_backward), both, n_both)


@dataclass(frozen=True)
class TextPerplexity(Perplexity):
    """Exact perplexity of files, with their size and the share of words outside the vocabulary."""

    n_words: int
    n_documents: int
    unknown_share: float


@torch.no_grad()
def perplexity(
    model: Bilm,
    documents: Documents,
    features: Rows,
    *,
    state: State = "carried",
    progress: Callable[[int], None] = lambda amount: None,
) -> Perplexity:
    """Exact perplexity of ``documents``.

    Args:
        documents: Ids into ``features``.
        features: A row for each word of the corpus.
        state: ``carried`` passes the state from text to text in up to 32 streams, as in training; ``zero``
            starts every text from zero, so that the order of texts does not matter.
        progress: Called with the number of words just read.
    """
    was_training = model.training
    model.eval()
    forward = backward = 0.0
    n_forward = n_backward = 0
    parts = (_predict_carried if state == "carried" else _predict_from_zero)(model, documents, features)
    try:
        for forward_part, backward_part, n_tokens in parts:
            forward += model.predictor.exact_loss(*forward_part)
            backward += model.predictor.exact_loss(*backward_part)
            n_forward += len(forward_part[1])
            n_backward += len(backward_part[1])
            progress(n_tokens)
    finally:
        model.train(was_training)
    return Perplexity.from_losses(forward, n_forward, backward, n_backward)


@torch.no_grad()
def next_word_accuracy(model: Bilm, documents: Documents, features: Rows) -> dict[str, tuple[float, float]]:
    """The share of words that are the first, and among the first five, of those predicted, by direction.

    ``<unk>`` is never right: the word itself must be predicted.
    """
    hits, n_words = np.zeros((2, 2)), np.zeros((2, 1))  # (direction, top 1 or 5)
    model.eval()
    for *parts, _ in _predict_carried(model, documents, features):
        for direction, (hidden, targets) in enumerate(parts):
            ranks = model.predictor.ranks(hidden, targets)[targets != UNK]
            hits[direction] += [int((ranks < n).sum()) for n in (1, 5)]
            n_words[direction] += len(targets)
    forward, backward = (hits / np.maximum(1, n_words)).tolist()
    return {"forward": tuple(forward), "backward": tuple(backward)}


def _predict_carried(model: Bilm, documents: Documents, features: Rows) -> Iterator[_Part]:
    n_streams = min(_EVAL_STREAMS, max(1, documents.n_tokens // _EVAL_STEPS))
    streams = Streams(documents, n_streams, _EVAL_STEPS)
    state = model.zero_state(streams.n_streams)
    for number in range(len(streams)):
        batch = stream_batch(streams.window(number), features, model.n_words)
        state = state.rows(batch.forward_index.shape[1])
        forward, backward, state = model.stream(
            batch.features, batch.forward_index, batch.backward_index, state
        )
        yield (
            (forward.flatten(0, 1)[batch.forward_kept], batch.forward_targets),
            (backward.flatten(0, 1)[batch.backward_kept], batch.backward_targets),
            batch.forward_index.numel(),
        )


def _predict_from_zero(model: Bilm, documents: Documents, features: Rows) -> Iterator[_Part]:
    lengths, dim = documents.lengths, model.config.dim
    for rows in bucket_batches(lengths, _EVAL_TOKENS):
        sizes = torch.from_numpy(lengths[rows])
        ids = documents.padded(rows).astype(np.int64)
        out = model(*distinct_words(ids, features), sizes)
        top = out.layer(-1)  # (batch, time, 2 dim)
        words = torch.from_numpy(np.where(ids < model.n_words, ids, UNK))
        inner = out.mask[:, 1:]  # there is a word here and one before it
        yield (
            (top[:, :-1, :dim][inner], words[:, 1:][inner]),
            (top[:, 1:, dim:][inner], words[:, :-1][inner]),
            int(sizes.sum()),
        )


def text_perplexity(
    model: str | Path | BilmFolder,
    texts: Sequence[str | Path],
    *,
    read: ReadConfig | None = None,
    state: State = "carried",
    reporter: Reporter | None = None,
) -> TextPerplexity:
    """Exact perplexity of files under the model in a folder."""
    if state not in _STATES:
        raise ConfigError(f"state = {state!r} is not a valid choice.", remedy=nearest(state, _STATES))
    reporter = reporter or Reporter("silent")
    saved = model if isinstance(model, BilmFolder) else load_bilm(model)
    open_words, fixed = saved.model.config.input != "word", tuple(saved.vocabulary.words)
    settings = CorpusSettings(saved.text, VocabularyConfig(), open_words, held_out=0.0, fixed=fixed)
    with tuned_process(), tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        with reporter.counting("Reading the text", unit="characters") as advance:
            source = TextSource(texts, read)
            corpus = prepare_corpus(Path(folder) / "corpus", settings, source, progress=advance)
        rows = saved.features.rows(corpus.words)
        with reporter.counting("Measuring", total=corpus.train.n_tokens, unit="words") as advance:
            result = perplexity(saved.model, corpus.train, rows, state=state, progress=advance)
        return TextPerplexity(
            **asdict(result),
            n_words=corpus.n_words,
            n_documents=len(corpus.train),
            unknown_share=corpus.unknown_share,
        )
