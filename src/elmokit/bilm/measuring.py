"""Perplexity of raw text under a saved model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from elmokit.bilm.folder import load_bilm
from elmokit.bilm.perplexity import perplexity
from elmokit.core.console import Reporter
from elmokit.text.corpus import CorpusSettings, prepare_corpus
from elmokit.text.readers import TextSource
from elmokit.text.settings import ReadConfig, VocabularyConfig
from elmokit.training.machine import tuned_process

__all__ = ["text_perplexity"]


def text_perplexity(
    model: str | Path,
    texts: Sequence[str | Path],
    *,
    read: ReadConfig | None = None,
    state: Literal["carried", "zero"] = "carried",
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Exact perplexity of files under the model in a folder.

    Returns:
        ``perplexity``, ``forward``, ``backward``, ``n_predictions``, ``n_words``,
        ``n_documents`` and ``unknown_share``.
    """
    reporter = reporter or Reporter("silent")
    saved = load_bilm(model)
    settings = CorpusSettings(
        text=saved.text,
        vocabulary=VocabularyConfig(),
        open_words=saved.model.config.input != "word",
        held_out=0.0,
        fixed=tuple(saved.vocabulary.words),
    )
    with tuned_process(), tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        with reporter.counting("Reading the text", unit="characters") as advance:
            corpus = prepare_corpus(
                Path(folder) / "corpus",
                settings,
                TextSource(texts, read),
                progress=lambda phase, amount: advance(amount),
            )
        rows = saved.features.rows(corpus.words)
        with reporter.counting("Measuring", total=corpus.train.n_tokens, unit="words") as advance:
            found = perplexity(
                saved.model, corpus.train, rows, state=state, progress=lambda amount: advance(amount)
            )
        return {
            **asdict(found),
            "n_words": corpus.manifest["n_words"],
            "n_documents": corpus.manifest["n_documents"]["train"],
            "unknown_share": corpus.manifest["unknown_share"],
        }
