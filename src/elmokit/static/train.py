"""From raw text to word vectors, by any of the methods."""

from __future__ import annotations

import contextlib
import datetime
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import elmokit
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, nearest
from elmokit.static.counting import count_pairs
from elmokit.static.settings import METHODS, STATIC_TEXT, Method, SvdConfig, VectorsConfig, Word2VecConfig
from elmokit.static.svd import factorised, weighted
from elmokit.static.word2vec import n_epochs, predicted
from elmokit.static.word_vectors import WordVectors
from elmokit.text.corpus import Corpus, CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, TextConfig, VocabularyConfig
from elmokit.text.tokenizing import SPECIALS, UNK, reject_table, replace_surrogates
from elmokit.vectors.embeddings import Floats

__all__ = ["train_vectors"]


def train_vectors(
    method: Method,
    texts: TextSource | Sequence[str],
    config: SvdConfig | Word2VecConfig | None = None,
    *,
    text: TextConfig = STATIC_TEXT,
    reporter: Reporter | None = None,
    command: str = "",
) -> WordVectors:
    """Learn a vector for each word of a text.

    >>> texts = ["the cat sat on the mat", "the dog sat on the rug"]
    >>> train_vectors("svd", texts, SvdConfig(dim=2, min_count=1)).dim
    2

    Args:
        method: "svd", "sgns" (skip-gram with negative sampling) or "cbow".
        texts: a ``TextSource`` of some files, or a list of texts.
        config: ``SvdConfig`` for "svd", ``Word2VecConfig`` for the others; the defaults unless given.
        text: how raw text becomes words.
        reporter: who is told; silent unless given.
        command: the command line, for the card.
    """
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}.", remedy=nearest(method, METHODS))
    class_ = SvdConfig if method == "svd" else Word2VecConfig
    config = class_() if config is None else config
    if not isinstance(config, class_):
        raise ConfigError(
            f"{method} takes a {class_.__name__}, not a {type(config).__name__}.",
            remedy=f"Give config={class_.__name__}(...).",
        )
    reporter = reporter or Reporter("silent")
    source = texts if isinstance(texts, TextSource) else _GivenTexts(texts)
    began = time.perf_counter()
    with _numbered(source, text, config, reporter) as corpus:
        if isinstance(config, Word2VecConfig):
            config = replace(config, epochs=n_epochs(config, corpus.manifest["n_words"]))
        rows = _rows(method, corpus, config, reporter)
        own = [UNK] if corpus.counts[UNK] else []  # where nothing was unknown, nothing was learnt for it
        own += range(len(SPECIALS), corpus.n_vocabulary)
        made = {
            "method": method,
            "settings": config.to_dict(),
            "corpus": _corpus_facts(corpus, source),
            "seconds": round(time.perf_counter() - began, 1),
            "date": datetime.date.today().isoformat(),
            "command": replace_surrogates(command),
            "versions": _versions(method),
        }
        return WordVectors.of([corpus.words[place] for place in own], rows[own], text, made)


class _GivenTexts(TextSource):
    """Texts that are in memory already."""

    def __init__(self, texts: Sequence[str]) -> None:
        if isinstance(texts, str):
            raise ConfigError(
                "train_vectors takes a list of texts, not one string.",
                remedy="Put it in a list: [text]; for a file, give TextSource(file).",
            )
        reject_table(texts)
        self.config = ReadConfig()
        self.files = []
        self._stdin = None
        self._texts_given = texts

    def __iter__(self) -> Iterator[str]:
        for index, text in enumerate(self._texts_given):
            if not isinstance(text, str):
                raise DataError(
                    f"Text {index} is not a string, but {type(text).__name__}.",
                    remedy="Turn missing values into empty strings first.",
                )
            yield replace_surrogates(text)

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return f"a list of {len(self._texts_given):,}"


@contextlib.contextmanager
def _numbered(
    source: TextSource, text: TextConfig, config: VectorsConfig, reporter: Reporter
) -> Iterator[Corpus]:
    """The text as word ids, on disk for as long as it takes; rare words are ``<unk>``."""
    settings = CorpusSettings(
        text=text,
        vocabulary=VocabularyConfig(max_words=config.max_words, min_count=config.min_count),
        open_words=False,
        held_out=0.0,
    )
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as folder:
        with reporter.counting("Preparing the text", unit="characters") as advance:
            corpus = prepare_corpus(
                Path(folder) / "corpus", settings, source, progress=lambda phase, amount: advance(amount)
            )
        manifest = corpus.manifest
        reporter.say(
            f"Text: {manifest['n_words']:,} words in {manifest['n_documents']['train']:,} texts; "
            f"{corpus.n_vocabulary - len(SPECIALS):,} words get a vector, "
            f"{manifest['unknown_share']:.1%} of the text is <unk>."
        )
        yield corpus


def _rows(method: Method, corpus: Corpus, config: SvdConfig | Word2VecConfig, reporter: Reporter) -> Floats:
    """A row for each word of the vocabulary."""
    if isinstance(config, SvdConfig):
        with reporter.counting("Counting pairs", total=corpus.train.n_tokens, unit="words") as advance:
            counts = count_pairs(
                corpus.train, corpus.n_vocabulary, config.window, config.distance, progress=advance
            )
        with reporter.counting("Factorising"):
            rows = factorised(weighted(counts, config), config)
        if rows.shape[1] < config.dim:
            reporter.say(
                f"[yellow]The text is short: vectors are {rows.shape[1]} wide instead of {config.dim}.[/]"
            )
        return rows
    total = corpus.manifest["n_words"] * config.epochs
    with reporter.counting("Learning", total=total, unit="words") as advance:
        return predicted(corpus, "sgns" if method == "sgns" else "cbow", config, progress=advance)


def _corpus_facts(corpus: Corpus, source: TextSource) -> dict[str, Any]:
    manifest = corpus.manifest
    names = [replace_surrogates(path.name) for path in source.files][:20]
    return {
        "files": names or [source.name],
        "n_words": manifest["n_words"],
        "n_documents": manifest["n_documents"]["train"],
        "unknown_share": manifest["unknown_share"],
        "content_hash": manifest["content_hash"],
    }


def _versions(method: Method) -> dict[str, str]:
    library = "scipy" if method == "svd" else "gensim"
    return {
        "elmokit": elmokit.__version__,
        library: version(library),
        "python": platform.python_version(),
    }
