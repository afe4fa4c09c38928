"""Exact perplexity of ids and of files: always over the whole vocabulary, whatever the training loss was."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder, load_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.state import BilmState, distinct_words
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, nearest
from elmokit.core.threads import run_all
from elmokit.text.batching import Ints, Streams, bucket_batches
from elmokit.text.corpus import CorpusSettings, Documents, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, VocabularyConfig
from elmokit.text.tokenizing import BOS, EOS, UNK
from elmokit.text.vocabulary import Rows
from elmokit.training.machine import tuned_process
from elmokit.training.processes import Processes

FEW_WORDS = 5_000  # perplexity on less text is rough
_EVAL_STREAMS, _EVAL_STEPS, _EVAL_TOKENS = 32, 64, 4096
State = Literal["carried", "zero"]
Predictions = tuple[Tensor, Tensor]
"""Hidden states (n, dim), and the words (n) that they predict."""


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


def predict_window(
    model: Bilm, window: Ints, features: Rows, state: BilmState
) -> tuple[list[Predictions], BilmState]:
    """What both directions predict in a window of streams, and the state after it."""
    rows, index = distinct_words(window[:, :-1], features)
    places = [predicted(words, model.n_words, direction) for direction, words in enumerate(window[:, 1:])]

    def chosen(direction: int, top: Tensor) -> Tensor:
        return top.flatten(0, 1).index_select(0, places[direction][0])

    outputs, state = model.stream(rows, index, state.rows(window.shape[2]), head=chosen)
    return [(hidden, targets) for hidden, (_, targets) in zip(outputs, places, strict=True)], state


def predicted(words: Ints, n_words: int, direction: int) -> tuple[Tensor, Tensor]:
    """Which places of some words (time, stream) are predicted, and the targets, both (n,).

    All words are predicted but the ``<s>`` after ``</s>`` (backward: the ``</s>`` before ``<s>``), and those
    outside the vocabulary as ``<unk>``.
    """
    kept = np.flatnonzero(words != (BOS, EOS)[direction])
    targets = np.where(words < n_words, words, UNK).ravel()[kept]
    return torch.from_numpy(kept), torch.from_numpy(targets)


@torch.no_grad()
def perplexity(
    model: Bilm,
    documents: Documents,
    features: Rows,
    *,
    state: State = "carried",
    progress: Callable[[int], None] = lambda amount: None,
    processes: Processes | None = None,
) -> Perplexity:
    """Exact perplexity of ``documents``, ids into ``features``; ``processes`` share out the streams.

    The state is ``carried`` from text to text in up to 32 streams, as in training, or every text starts from
    ``zero``, so that their order does not matter. ``progress`` is called with the number of words just read.
    """
    was_training = model.training
    model.eval()
    losses, counts = [0.0, 0.0], [0, 0]
    processes = processes or Processes()
    try:
        for predictions, n_tokens in (
            _read_carried(model, documents, features, processes)
            if state == "carried"
            else _read_from_zero(model, documents, features)
        ):
            sums = run_all([partial(model.predictor.exact_loss, *some) for some in predictions])
            for direction, (_, targets) in enumerate(predictions):
                losses[direction] += sums[direction]
                counts[direction] += len(targets)
            progress(n_tokens)
    finally:
        model.train(was_training)
    if state == "carried":
        *losses, n_forward, n_backward = processes.total([*losses, *map(float, counts)])
        counts = [int(n_forward), int(n_backward)]
    return Perplexity.from_losses(losses[0], counts[0], losses[1], counts[1])


@torch.no_grad()
def next_word_accuracy(model: Bilm, documents: Documents, features: Rows) -> dict[str, tuple[float, float]]:
    """The share of words that are the first, and among the first five, of those predicted, by direction.

    ``<unk>`` is never right: the word itself must be predicted.
    """
    hits, n_words = np.zeros((2, 2)), np.zeros((2, 1))  # (direction, top 1 or 5)
    model.eval()
    for predictions, _ in _read_carried(model, documents, features, Processes()):
        for direction, (hidden, targets) in enumerate(predictions):
            ranks = model.predictor.ranks(hidden, targets)[targets != UNK]
            hits[direction] += [int((ranks < n).sum()) for n in (1, 5)]
            n_words[direction] += len(targets)
    forward, backward = (hits / np.maximum(1, n_words)).tolist()
    return {"forward": tuple(forward), "backward": tuple(backward)}


def _read_carried(
    model: Bilm, documents: Documents, features: Rows, processes: Processes
) -> Iterator[tuple[list[Predictions], int]]:
    """What is predicted, batch by batch, with the number of words read."""
    n_streams = min(_EVAL_STREAMS, max(1, documents.n_tokens // _EVAL_STEPS))
    streams = Streams(documents, n_streams, _EVAL_STEPS)
    own = processes.part(streams.n_streams, streams.n_streams)
    state = model.zero_state(own.stop - own.start)
    for number in range(len(streams)):
        window = streams.window(number)[:, :, own]
        if not window.size:
            continue
        predictions, state = predict_window(model, window, features, state)
        yield predictions, window[0, 1:].size


def _read_from_zero(
    model: Bilm, documents: Documents, features: Rows
) -> Iterator[tuple[list[Predictions], int]]:
    lengths, dim = documents.lengths, model.config.dim
    for rows in bucket_batches(lengths, _EVAL_TOKENS):
        ids = documents.padded(rows).astype(np.int64)
        out = model(*distinct_words(ids, features), torch.from_numpy(lengths[rows]))
        top, inner = out.layers[-1], out.mask[:, 1:]  # inner: there is a word here and one before it
        words = torch.from_numpy(np.where(ids < model.n_words, ids, UNK))  # (batch, time)
        forward = top[:, :-1, :dim][inner], words[:, 1:][inner]
        backward = top[:, 1:, dim:][inner], words[:, :-1][inner]
        yield [forward, backward], int(lengths[rows].sum())


def text_perplexity(
    model: str | Path | BilmFolder,
    texts: Sequence[str | Path],
    *,
    read: ReadConfig | None = None,
    state: State = "carried",
    reporter: Reporter | None = None,
) -> TextPerplexity:
    """Exact perplexity of files under the model in a folder."""
    if state not in get_args(State):
        raise ConfigError(f"state = {state!r} is not a valid choice.", remedy=nearest(state, get_args(State)))
    reporter = reporter or Reporter("silent")
    saved = model if isinstance(model, BilmFolder) else load_bilm(model)
    open_words, fixed = saved.model.config.input != "word", tuple(saved.vocabulary.words)
    settings = CorpusSettings(saved.text, VocabularyConfig(), open_words, held_out=0.0, fixed=fixed)
    with tuned_process(), tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        with reporter.counting("Reading the text", unit="characters") as advance:
            source = TextSource(texts, read, say=reporter.note)
            corpus = prepare_corpus(Path(folder) / "corpus", settings, source, progress=advance)
        if corpus.n_words < FEW_WORDS:
            reporter.say(f"[yellow]Only {corpus.n_words:,} words: perplexity is rough. Give more text.[/]")
        rows = saved.features.rows(corpus.words)
        with reporter.counting("Measuring", total=corpus.train.n_tokens, unit="words") as advance:
            result = perplexity(saved.model, corpus.train, rows, state=state, progress=advance)
        return TextPerplexity(
            **asdict(result),
            n_words=corpus.n_words,
            n_documents=len(corpus.train),
            unknown_share=corpus.unknown_share,
        )
