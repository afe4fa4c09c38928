"""elmokit: contextual word vectors that anyone can train on their own text.

Importing this package does no work: each public name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.bilm.conversion import Conversion, convert
    from elmokit.bilm.evaluation import Perplexity, perplexity
    from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
    from elmokit.bilm.measuring import text_perplexity
    from elmokit.bilm.model import Bilm, BilmOutput, BilmState
    from elmokit.bilm.pretraining import PretrainResult, pretrain
    from elmokit.compare.comparing import Comparison, compare_files
    from elmokit.compare.methods import Plan
    from elmokit.compare.recipes import make_plan
    from elmokit.config import (
        BilmConfig,
        PretrainConfig,
        TextConfig,
        TrainingConfig,
        VocabularyConfig,
        resolve,
    )
    from elmokit.embed.elmo import Elmo
    from elmokit.embed.embeddings import Embeddings
    from elmokit.embed.published_mix import PublishedMix
    from elmokit.embed.search import search
    from elmokit.embed.settings import MixConfig
    from elmokit.embed.similar import similar_words
    from elmokit.embed.store import VectorStore
    from elmokit.embed.store_settings import StoreConfig
    from elmokit.embed.store_writing import embed_files
    from elmokit.embed.token_cache import TokenCache, write_token_cache
    from elmokit.embed.verification import Verification, verify
    from elmokit.errors import ConfigError, DataError, ElmokitError, MissingExtraError, ModelError, RunError
    from elmokit.static.folder import load_vectors, save_vectors
    from elmokit.static.learning import train_vectors
    from elmokit.static.settings import SvdConfig, Word2VecConfig
    from elmokit.static.word_vectors import WordVectors
    from elmokit.tasks.classifier import TextClassifier
    from elmokit.tasks.estimators import ElmoClassifier
    from elmokit.tasks.fitting import evaluate_files, fit_files
    from elmokit.tasks.folder import load_classifier, save_classifier
    from elmokit.tasks.settings import ClassifierConfig
    from elmokit.text.readers import TextSource
    from elmokit.text.rows import RowSource
    from elmokit.text.settings import LabelConfig, ReadConfig
    from elmokit.text.tokenising import TextPipeline

__version__ = "0.1.0"

_HOMES = {
    "Bilm": "elmokit.bilm.model",
    "BilmConfig": "elmokit.config",
    "BilmFolder": "elmokit.bilm.folder",
    "BilmOutput": "elmokit.bilm.model",
    "BilmState": "elmokit.bilm.model",
    "ClassifierConfig": "elmokit.tasks.settings",
    "Comparison": "elmokit.compare.comparing",
    "ConfigError": "elmokit.errors",
    "Conversion": "elmokit.bilm.conversion",
    "DataError": "elmokit.errors",
    "Elmo": "elmokit.embed.elmo",
    "ElmoClassifier": "elmokit.tasks.estimators",
    "ElmokitError": "elmokit.errors",
    "Embeddings": "elmokit.embed.embeddings",
    "LabelConfig": "elmokit.text.settings",
    "MissingExtraError": "elmokit.errors",
    "MixConfig": "elmokit.embed.settings",
    "ModelError": "elmokit.errors",
    "Perplexity": "elmokit.bilm.evaluation",
    "Plan": "elmokit.compare.methods",
    "PretrainConfig": "elmokit.config",
    "PretrainResult": "elmokit.bilm.pretraining",
    "PublishedMix": "elmokit.embed.published_mix",
    "ReadConfig": "elmokit.text.settings",
    "RowSource": "elmokit.text.rows",
    "RunError": "elmokit.errors",
    "StoreConfig": "elmokit.embed.store_settings",
    "SvdConfig": "elmokit.static.settings",
    "TextClassifier": "elmokit.tasks.classifier",
    "TextConfig": "elmokit.config",
    "TextPipeline": "elmokit.text.tokenising",
    "TextSource": "elmokit.text.readers",
    "TokenCache": "elmokit.embed.token_cache",
    "TrainingConfig": "elmokit.config",
    "VectorStore": "elmokit.embed.store",
    "Verification": "elmokit.embed.verification",
    "VocabularyConfig": "elmokit.config",
    "Word2VecConfig": "elmokit.static.settings",
    "WordVectors": "elmokit.static.word_vectors",
    "compare_files": "elmokit.compare.comparing",
    "convert": "elmokit.bilm.conversion",
    "embed_files": "elmokit.embed.store_writing",
    "evaluate_files": "elmokit.tasks.fitting",
    "fit_files": "elmokit.tasks.fitting",
    "load_bilm": "elmokit.bilm.folder",
    "load_classifier": "elmokit.tasks.folder",
    "load_vectors": "elmokit.static.folder",
    "make_plan": "elmokit.compare.recipes",
    "perplexity": "elmokit.bilm.evaluation",
    "pretrain": "elmokit.bilm.pretraining",
    "resolve": "elmokit.config",
    "save_bilm": "elmokit.bilm.folder",
    "save_classifier": "elmokit.tasks.folder",
    "save_vectors": "elmokit.static.folder",
    "search": "elmokit.embed.search",
    "similar_words": "elmokit.embed.similar",
    "text_perplexity": "elmokit.bilm.measuring",
    "train_vectors": "elmokit.static.learning",
    "verify": "elmokit.embed.verification",
    "write_token_cache": "elmokit.embed.token_cache",
}

__all__ = [
    "Bilm",
    "BilmConfig",
    "BilmFolder",
    "BilmOutput",
    "BilmState",
    "ClassifierConfig",
    "Comparison",
    "ConfigError",
    "Conversion",
    "DataError",
    "Elmo",
    "ElmoClassifier",
    "ElmokitError",
    "Embeddings",
    "LabelConfig",
    "MissingExtraError",
    "MixConfig",
    "ModelError",
    "Perplexity",
    "Plan",
    "PretrainConfig",
    "PretrainResult",
    "PublishedMix",
    "ReadConfig",
    "RowSource",
    "RunError",
    "StoreConfig",
    "SvdConfig",
    "TextClassifier",
    "TextConfig",
    "TextPipeline",
    "TextSource",
    "TokenCache",
    "TrainingConfig",
    "VectorStore",
    "Verification",
    "VocabularyConfig",
    "Word2VecConfig",
    "WordVectors",
    "compare_files",
    "convert",
    "embed_files",
    "evaluate_files",
    "fit_files",
    "load_bilm",
    "load_classifier",
    "load_vectors",
    "make_plan",
    "perplexity",
    "pretrain",
    "resolve",
    "save_bilm",
    "save_classifier",
    "save_vectors",
    "search",
    "similar_words",
    "text_perplexity",
    "train_vectors",
    "verify",
    "write_token_cache",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'elmokit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
