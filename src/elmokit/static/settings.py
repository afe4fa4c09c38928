"""How static vectors are made, as settings (apart from the methods, so that help needs no library)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elmokit.core.config import Config, option
from elmokit.text.settings import TextConfig

__all__ = [
    "METHODS",
    "STATIC_TEXT",
    "CountingConfig",
    "Method",
    "PredictingConfig",
    "SvdConfig",
    "VectorsConfig",
    "Word2VecConfig",
]

Method = Literal["svd", "sgns", "cbow"]
METHODS: dict[str, str] = {
    "svd": "SVD of co-occurrences",
    "sgns": "skip-gram with negative sampling",
    "cbow": "continuous bag of words",
}
STATIC_TEXT = TextConfig(lowercase=True)
"""A table has one row for each spelling, so by default spellings that differ in case share one."""


@dataclass(frozen=True, kw_only=True)
class VectorsConfig(Config):
    """What every method has."""

    dim: int = option(100, "Width of a vector.", at_least=1)
    window: int = option(5, "Words to each side that count as near.", at_least=1)
    min_count: int = option(2, "Keep words seen at least this often; the rest is <unk>.", at_least=1)
    max_words: int = option(100_000, "Keep at most this many words; the rest is <unk>.", at_least=1)
    seed: int = option(0, "Seed of everything random.", at_least=0, at_most=2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class CountingConfig(Config):
    """What becomes of the counts before they are factorised."""

    distance: Literal["flat", "harmonic"] = option(
        "flat", "Every near word counts as 1, or the n-th to the side as 1/n."
    )
    counts: Literal["raw", "log", "ppmi"] = option(
        "ppmi", "Counts as they are, log(1 + count), or positive pointwise mutual information."
    )
    shift: float = option(1.0, "PPMI: log(shift) is taken off, as with this many negatives.", at_least=1)
    smoothing: float = option(
        0.75, "PPMI: contexts count with this power (1: as they are).", at_least=0, at_most=1
    )
    power: float = option(0.5, "Singular values count with this power.", at_least=0, at_most=1)


@dataclass(frozen=True, kw_only=True)
class PredictingConfig(Config):
    """How skip-gram and CBOW learn."""

    negatives: int = option(5, "Words drawn at random for each near word.", at_least=1)
    subsample: float = option(
        1e-3,
        "Words with a larger share of the text than this are thinned out (0: none).",
        at_least=0,
        at_most=1,
    )
    epochs: int = option(
        0,
        "Passes over the text (0: five, and up to 50 for a short text, to read 40 million words).",
        at_least=0,
    )
    lr: float = option(0.05, "Learning rate at the start; it falls to 0.0001.", at_least=0.0001)
    workers: int = option(
        2, "Threads. With 1, the same seed gives the same vectors; with more, nearly so.", at_least=1
    )


@dataclass(frozen=True, kw_only=True)
class SvdConfig(CountingConfig, VectorsConfig):
    """SVD of a matrix of co-occurrences."""


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(PredictingConfig, VectorsConfig):
    """Skip-gram with negative sampling, or CBOW."""
