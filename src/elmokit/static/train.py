"""``baseline``: from raw text to static word vectors, by SVD or by gensim's skip-gram and CBOW."""

from __future__ import annotations

import logging
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.core.config import merge_settings
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ConfigError, import_extra, nearest
from elmokit.core.model_card import origin_record
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.static.settings import METHODS, STATIC_TEXT, Method, SvdConfig, Word2VecConfig
from elmokit.static.svd import count_pairs, factorize, weight_counts
from elmokit.static.word_vectors import WordVectors
from elmokit.text.corpus import Corpus, CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, TextConfig, VocabularyConfig
from elmokit.text.tokenizing import SPECIALS, UNK, check_texts, replace_surrogates
from elmokit.vectors.encoder import FloatArray

_MAX_SENTENCE = 10_000  # gensim reads no more words of a sentence
_ENOUGH_WORDS = 40_000_000
Configuration = SvdConfig | Word2VecConfig


def baseline(
    method: Method,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    config: Configuration | None = None,
    text: TextConfig = STATIC_TEXT,
    read: ReadConfig | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> WordVectors:
    """Learn static word vectors from files and write them to a model folder.

    Args:
        method: "svd", "sgns" (skip-gram with negative sampling) or "cbow".
        texts: Files, folders or patterns; "-" is standard input.
        out: Folder to write: new, empty or, with ``overwrite``, with word vectors, which are replaced.
        config: ``SvdConfig`` for "svd", ``Word2VecConfig`` for the others.
        command: The command line, for the card.
        settings: Single settings of ``config``, ``text`` and ``read`` by name, such as ``dim=50``.
    """
    defaults = {"vectors": _check_config(method, config), "text": text, "read": read or ReadConfig()}
    configs: Any = merge_settings(settings, **defaults)
    reporter = reporter or Reporter("silent")
    source = TextSource(texts, configs["read"], exclude=Path(out), say=reporter.note)
    folder = open_out(Path(out), "word-vectors", overwrite=overwrite)
    job = {"method": {"method": method}, **{name: one.to_dict() for name, one in configs.items()}}
    files = {"text.files": fingerprint({"files": source.fingerprints()})}
    with folder.lock():
        if folder.is_done(job, files, reporter.say):
            return WordVectors.load(out)
        vectors = train_vectors(
            method, source, configs["vectors"], text=configs["text"], reporter=reporter, command=command
        )
        vectors.save(out)
    return vectors


def train_vectors(
    method: Method,
    texts: TextSource | Sequence[str],
    config: Configuration | None = None,
    *,
    text: TextConfig = STATIC_TEXT,
    reporter: Reporter | None = None,
    command: str = "",
) -> WordVectors:
    """Learn a vector for each word of some files, or of a list of texts.

    >>> texts = ["the cat sat on the mat", "the dog sat on the rug"]
    >>> train_vectors("svd", texts, SvdConfig(dim=2, min_count=1)).dim
    2
    """
    config = _check_config(method, config)
    reporter = reporter or Reporter("silent")
    source = texts if isinstance(texts, TextSource) else _ListSource(texts)
    start = time.perf_counter()
    vocabulary = VocabularyConfig(max_words=config.max_words, min_count=config.min_count)
    prepared = CorpusSettings(text, vocabulary, open_words=False, held_out=0.0)
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as folder:
        with reporter.counting("Preparing the text", unit="characters") as advance:
            corpus = prepare_corpus(Path(folder) / "corpus", prepared, source, progress=advance)
        reporter.say(
            f"Text: {corpus.n_words:,} words in {len(corpus.train):,} texts; "
            f"{corpus.n_vocabulary - len(SPECIALS):,} words get a vector, "
            f"{corpus.unknown_share:.1%} of the text is <unk>."
        )
        if isinstance(config, Word2VecConfig):
            n_epochs = config.epochs or min(50, max(5, -(-_ENOUGH_WORDS // corpus.n_words)))
            config = replace(config, epochs=n_epochs)
            rows = _train_word2vec(corpus, method, config, reporter)
        else:
            rows = _train_svd(corpus, config, reporter)
        places = [UNK] if corpus.counts[UNK] else []  # without unknown words, nothing was learned for <unk>
        places += range(len(SPECIALS), corpus.n_vocabulary)
        training = {
            "method": method,
            "settings": config.to_dict(),
            "corpus": corpus.record(source),
            "seconds": round(time.perf_counter() - start, 1),
            **origin_record(command, "scipy" if method == "svd" else "gensim"),
        }
        return WordVectors.of([corpus.words[place] for place in places], rows[places], text, training)


def _check_config(method: str, config: Configuration | None) -> Configuration:
    """The settings of a method, if it can be used: the default ones, or those given if of its class."""
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}.", remedy=nearest(method, METHODS))
    expected = SvdConfig if method == "svd" else Word2VecConfig
    if config is not None and not isinstance(config, expected):
        raise ConfigError(
            f"{method} takes a {expected.__name__}, not a {type(config).__name__}.",
            remedy=f"Give config={expected.__name__}(...).",
        )
    if method != "svd":
        import_extra("gensim.models", "static", f"The method {method}")
    return config or expected()


class _ListSource(TextSource):
    """Texts in memory."""

    def __init__(self, texts: Sequence[str]) -> None:
        check_texts(texts, allow_words=False)
        self.config, self.files, self._stdin, self._list = ReadConfig(), [], None, texts

    def __iter__(self) -> Iterator[str]:
        return map(replace_surrogates, self._list)

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return f"a list of {len(self._list):,}"


def _train_svd(corpus: Corpus, config: SvdConfig, reporter: Reporter) -> FloatArray:
    with reporter.counting("Counting pairs", total=corpus.train.n_tokens, unit="words") as advance:
        counts = count_pairs(
            corpus.train, corpus.n_vocabulary, config.window, config.distance, progress=advance
        )
    with reporter.counting("Factorizing"):
        rows = factorize(weight_counts(counts, config), config)
    if rows.shape[1] < config.dim:
        reporter.say(
            f"[yellow]The text is short: vectors have {rows.shape[1]} dimensions instead of {config.dim}.[/]"
        )
    return rows


def _train_word2vec(corpus: Corpus, method: Method, config: Word2VecConfig, reporter: Reporter) -> FloatArray:
    """Vectors that predict nearby words ("sgns"), or a word from the mean of nearby ones ("cbow").

    With one worker, the same text, settings and seed give the same vectors. More workers change the same
    table at the same time, in an order that differs from run to run.
    """
    from gensim.models import Word2Vec

    counts = corpus.counts[: corpus.n_vocabulary]
    places, n_words = np.flatnonzero(counts), int(counts.sum())
    total = n_words * config.epochs
    logging.getLogger("gensim").setLevel(logging.ERROR)  # its hints are about settings of its own
    with reporter.counting("Training", total=total, unit="words") as advance:
        sentences = Sentences(corpus, advance)
        model = Word2Vec(
            sg=int(method == "sgns"),
            vector_size=config.dim,
            window=config.window,
            negative=config.negatives,
            sample=config.subsample,
            alpha=config.lr,
            epochs=config.epochs,
            workers=config.workers,
            seed=config.seed,
            min_count=1,
            sorted_vocab=0,
            hashfxn=lambda word: zlib.crc32(str(word).encode()),  # the same in every process
        )
        frequencies = {corpus.words[place]: int(counts[place]) for place in places}
        model.build_vocab_from_freq(frequencies, corpus_count=len(sentences))
        model.train(sentences, total_examples=len(sentences), total_words=n_words, epochs=config.epochs)
    table = np.zeros((len(counts), config.dim), dtype=np.float32)  # words that do not occur stay zero
    table[places] = model.wv.vectors
    return table


class Sentences:
    """The documents of a corpus as lists of words, for any number of passes; long ones in parts, because
    gensim drops what follows the 10,000th word of a sentence."""

    def __init__(self, corpus: Corpus, progress: Advance = lambda amount: None) -> None:
        self._corpus, self._progress = corpus, progress

    def __len__(self) -> int:
        n_words = self._corpus.train.lengths - 2
        return int((-(-n_words // _MAX_SENTENCE)).sum())  # rounded up

    def __iter__(self) -> Iterator[list[str]]:
        words = self._corpus.words
        for document in self._corpus.train:
            for first in range(1, len(document) - 1, _MAX_SENTENCE):
                part = document[first : min(len(document) - 1, first + _MAX_SENTENCE)].tolist()
                yield [words[place] for place in part]
                self._progress(len(part))
