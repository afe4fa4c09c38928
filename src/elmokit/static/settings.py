"""Settings of static word vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elmokit.core.config import Config, option
from elmokit.text.settings import TextConfig

Method = Literal["svd", "sgns", "cbow"]
METHODS: dict[str, str] = {
    "svd": "SVD of co-occurrences",
    "sgns": "skip-gram with negative sampling",
    "cbow": "continuous bag of words",
}
STATIC_TEXT = TextConfig(lowercase=True)
"""Lower-cased by default: a table has one row per spelling."""


@dataclass(frozen=True, kw_only=True)
class VectorsConfig(Config):
    """Settings of every method."""

    dim: int = option(100, "Width of a vector.", at_least=1)
    window: int = option(5, "Words to each side that count as nearby.", at_least=1)
    min_count: int = option(2, "Keep words that occur at least this often; the rest is <unk>.", at_least=1)
    max_words: int = option(100_000, "Keep at most this many words; the rest is <unk>.", at_least=1)
    seed: int = option(0, "Random seed.", at_least=0, at_most=2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class CountingConfig(Config):
    """How co-occurrences are counted and weighted before they are factorized."""

    distance: Literal["flat", "harmonic"] = option(
        "flat", "Every nearby word counts as 1, or the n-th to the side as 1/n."
    )
    counts: Literal["raw", "log", "ppmi"] = option(
        "ppmi", "Counts as they are, log(1 + count), or positive pointwise mutual information."
    )
    shift: float = option(1.0, "PPMI: log(shift) is subtracted, as with this many negatives.", at_least=1)
    smoothing: float = option(
        0.75, "PPMI: counts of contexts are raised to this power (1: unchanged).", at_least=0, at_most=1
    )
    power: float = option(0.5, "Singular values are raised to this power.", at_least=0, at_most=1)


@dataclass(frozen=True, kw_only=True)
class PredictingConfig(Config):
    """How skip-gram and CBOW are trained."""

    negatives: int = option(5, "Random words drawn for each nearby word.", at_least=1)
    subsample: float = option(
        1e-3,
        "Words with a larger share of the text than this are subsampled (0: none).",
        at_least=0,
        at_most=1,
    )
    epochs: int = option(0, "Passes over the text (0: 5 to 50, more for a short text).", at_least=0)
    lr: float = option(0.05, "Learning rate at the start; it falls to 0.0001.", at_least=0.0001)
    workers: int = option(
        2, "Threads. Only with 1 does the same seed give the same vectors to the bit.", at_least=1
    )


@dataclass(frozen=True, kw_only=True)
class SvdConfig(CountingConfig, VectorsConfig):
    """SVD of a co-occurrence matrix."""


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(PredictingConfig, VectorsConfig):
    """Skip-gram with negative sampling, or CBOW."""
