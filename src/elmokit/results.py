"""The types of what the verbs return."""

from __future__ import annotations

from elmokit.bilm.perplexity import Perplexity, TextPerplexity
from elmokit.bilm.pretrain import PretrainResult
from elmokit.comparison.ranking import Pair, Ranking
from elmokit.comparison.result import Comparison, Cost, MethodResult, Score
from elmokit.published.convert import Conversion
from elmokit.static.intrinsic import IntrinsicResult
from elmokit.tasks.answering import Answer, AnswerMetrics, AnswerPrediction
from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.fit import Evaluation, FittedModel, PredictionSummary
from elmokit.tasks.metrics import ClassificationMetrics, MultilabelMetrics
from elmokit.tasks.pairs import ScoreMetrics, ScorePrediction
from elmokit.tasks.tagging import Entity, TagMetrics, TagPrediction
from elmokit.tasks.task import Prediction
from elmokit.vectors.distillation import DistillResult
from elmokit.vectors.neighbors import Duplicate, Hit, Occurrence, SimilarWords
from elmokit.vectors.senses import Sense, WordSenses
from elmokit.vectors.store_writer import EmbedResult
from elmokit.vectors.verify import Difference, Verification

__all__ = [
    "Answer",
    "AnswerMetrics",
    "AnswerPrediction",
    "ClassPrediction",
    "ClassificationMetrics",
    "Comparison",
    "Conversion",
    "Cost",
    "Difference",
    "DistillResult",
    "Duplicate",
    "EmbedResult",
    "Entity",
    "Evaluation",
    "FittedModel",
    "Hit",
    "IntrinsicResult",
    "MethodResult",
    "MultilabelMetrics",
    "Occurrence",
    "Pair",
    "Perplexity",
    "Prediction",
    "PredictionSummary",
    "PretrainResult",
    "Ranking",
    "Score",
    "ScoreMetrics",
    "ScorePrediction",
    "Sense",
    "SimilarWords",
    "TagMetrics",
    "TagPrediction",
    "TextPerplexity",
    "Verification",
    "WordSenses",
]
