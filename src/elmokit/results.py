"""The types of what the verbs return."""

from __future__ import annotations

from elmokit.bilm.perplexity import Perplexity, TextPerplexity
from elmokit.bilm.pretrain import PretrainResult
from elmokit.comparison.result import Comparison
from elmokit.published.convert import Conversion
from elmokit.static.intrinsic import IntrinsicResult
from elmokit.tasks.fit import Evaluation, FittedModel, PredictionSummary
from elmokit.tasks.metrics import ClassificationMetrics, MultilabelMetrics
from elmokit.tasks.task import Prediction
from elmokit.vectors.neighbors import Hit, Occurrence, SimilarWords
from elmokit.vectors.store_writer import EmbedResult
from elmokit.vectors.verify import Difference, Verification

__all__ = [
    "ClassificationMetrics",
    "Comparison",
    "Conversion",
    "Difference",
    "EmbedResult",
    "Evaluation",
    "FittedModel",
    "Hit",
    "IntrinsicResult",
    "MultilabelMetrics",
    "Occurrence",
    "Perplexity",
    "Prediction",
    "PredictionSummary",
    "PretrainResult",
    "SimilarWords",
    "TextPerplexity",
    "Verification",
]
