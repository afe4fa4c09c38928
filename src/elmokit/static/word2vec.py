"""Skip-gram with negative sampling and CBOW, learnt by gensim over a numbered corpus."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from elmokit.static.settings import Word2VecConfig
from elmokit.text.corpus import Corpus
from elmokit.vectors.embeddings import Floats

__all__ = ["Sentences", "n_epochs", "predicted"]

_LONGEST = 10_000  # gensim reads no more of a sentence
_ENOUGH_WORDS = 40_000_000


class Sentences:
    """The documents of a corpus as lists of words, as often as they are asked for.

    gensim leaves out what follows the 10,000th word of a sentence, so longer documents come in parts.

    Args:
        corpus: the numbered text.
        progress: told how many words were just read.
    """

    def __init__(self, corpus: Corpus, progress: Callable[[int], None] = lambda amount: None) -> None:
        self._corpus = corpus
        self._progress = progress

    def __len__(self) -> int:
        n_words = self._corpus.train.lengths - 2
        return int((-(-n_words // _LONGEST)).sum())

    def __iter__(self) -> Iterator[list[str]]:
        words, ids, offsets = self._corpus.words, self._corpus.train.ids, self._corpus.train.offsets
        for begin, end in zip((offsets[:-1] + 1).tolist(), (offsets[1:] - 1).tolist(), strict=True):
            for first in range(begin, end, _LONGEST):
                part = ids[first : min(end, first + _LONGEST)].tolist()
                yield [words[place] for place in part]
                self._progress(len(part))


def n_epochs(config: Word2VecConfig, n_words: int) -> int:
    """Passes over a text of ``n_words``: as many as asked for, or as it takes to learn something.

    >>> [n_epochs(Word2VecConfig(), n_words) for n_words in (10_000, 4_000_000, 10**9)]
    [50, 10, 5]
    """
    return config.epochs or min(50, max(5, -(-_ENOUGH_WORDS // max(1, n_words))))


def predicted(
    corpus: Corpus,
    kind: Literal["sgns", "cbow"],
    config: Word2VecConfig,
    *,
    progress: Callable[[int], None] = lambda amount: None,
) -> Floats:
    """Vectors by which words predict the words near them, or are predicted by them.

    With one worker, the same text, settings and seed give the same vectors. More workers change the
    same table at the same time, and whose turn it is differs from run to run.

    Args:
        corpus: the numbered text.
        kind: "sgns", a word predicts each near one; "cbow", the mean of the near ones predicts it.
        config: settings.
        progress: told how many words were just read; those of the text, ``n_epochs`` times.

    Returns:
        (n_vocabulary, dim); rows of words that do not occur are zero.
    """
    from gensim.models import Word2Vec

    sentences = Sentences(corpus, progress)
    counts = corpus.counts[: corpus.n_vocabulary]
    epochs = n_epochs(config, int(counts.sum()))
    seen = np.flatnonzero(counts)
    with _quiet():
        model = Word2Vec(
            sg=int(kind == "sgns"),
            vector_size=config.dim,
            window=config.window,
            negative=config.negatives,
            sample=config.subsample,
            alpha=config.lr,
            epochs=epochs,
            workers=config.workers,
            seed=config.seed,
            min_count=1,
            sorted_vocab=0,
            hashfxn=_hash,
        )
        model.build_vocab_from_freq(
            {corpus.words[place]: int(counts[place]) for place in seen}, corpus_count=len(sentences)
        )
        model.train(sentences, total_examples=len(sentences), total_words=int(counts.sum()), epochs=epochs)
    table = np.zeros((len(counts), config.dim), dtype=np.float32)
    table[seen] = model.wv.vectors
    return table


def _hash(word: str) -> int:
    """The same in every process, which Python's own is not."""
    return zlib.crc32(str(word).encode())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep gensim's running commentary from the screen."""
    logger = logging.getLogger("gensim")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
