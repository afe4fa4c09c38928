"""elmokit: contextual word vectors that anyone can train on their own text.

Importing this package does no work: each public name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
    from elmokit.bilm.model import Bilm, BilmOutput
    from elmokit.bilm.perplexity import Perplexity, perplexity, text_perplexity
    from elmokit.bilm.pretrain import PretrainResult, pretrain
    from elmokit.bilm.settings import BilmConfig, PretrainConfig, TrainingConfig, resolve
    from elmokit.bilm.state import BilmState
    from elmokit.comparison.compare import Comparison, compare_files
    from elmokit.comparison.methods import Plan
    from elmokit.comparison.recipes import make_plan
    from elmokit.core.errors import (
        ConfigError,
        DataError,
        ElmokitError,
        MissingExtraError,
        ModelError,
        RunError,
    )
    from elmokit.published.convert import Conversion, convert
    from elmokit.static.settings import SvdConfig, Word2VecConfig
    from elmokit.static.train import baseline, train_vectors
    from elmokit.static.word_vectors import WordVectors
    from elmokit.tasks.estimator import TextClassifier
    from elmokit.tasks.fit import evaluate, fit, predict
    from elmokit.tasks.model import TaskModel
    from elmokit.tasks.settings import ClassifierConfig
    from elmokit.text.rows import RowSource, TextSource
    from elmokit.text.settings import LabelConfig, ReadConfig, TextConfig, VocabularyConfig
    from elmokit.text.tokenizing import TextPipeline
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.embeddings import Embeddings
    from elmokit.vectors.mix import PublishedMix
    from elmokit.vectors.neighbors import search, similar_words
    from elmokit.vectors.settings import MixConfig, StoreConfig
    from elmokit.vectors.store import VectorStore
    from elmokit.vectors.store_writer import embed
    from elmokit.vectors.verify import Verification, verify
    from elmokit.vectors.word_cache import TokenCache, write_token_cache

__version__ = "0.1.0"

_HOMES = {
    "Bilm": "elmokit.bilm.model",
    "BilmConfig": "elmokit.bilm.settings",
    "BilmFolder": "elmokit.bilm.folder",
    "BilmOutput": "elmokit.bilm.model",
    "BilmState": "elmokit.bilm.state",
    "ClassifierConfig": "elmokit.tasks.settings",
    "Comparison": "elmokit.comparison.compare",
    "ConfigError": "elmokit.core.errors",
    "Conversion": "elmokit.published.convert",
    "DataError": "elmokit.core.errors",
    "Elmo": "elmokit.vectors.elmo",
    "ElmokitError": "elmokit.core.errors",
    "Embeddings": "elmokit.vectors.embeddings",
    "LabelConfig": "elmokit.text.settings",
    "MissingExtraError": "elmokit.core.errors",
    "MixConfig": "elmokit.vectors.settings",
    "ModelError": "elmokit.core.errors",
    "Perplexity": "elmokit.bilm.perplexity",
    "Plan": "elmokit.comparison.methods",
    "PretrainConfig": "elmokit.bilm.settings",
    "PretrainResult": "elmokit.bilm.pretrain",
    "PublishedMix": "elmokit.vectors.mix",
    "ReadConfig": "elmokit.text.settings",
    "RowSource": "elmokit.text.rows",
    "RunError": "elmokit.core.errors",
    "StoreConfig": "elmokit.vectors.settings",
    "SvdConfig": "elmokit.static.settings",
    "TaskModel": "elmokit.tasks.model",
    "TextClassifier": "elmokit.tasks.estimator",
    "TextConfig": "elmokit.text.settings",
    "TextPipeline": "elmokit.text.tokenizing",
    "TextSource": "elmokit.text.rows",
    "TokenCache": "elmokit.vectors.word_cache",
    "TrainingConfig": "elmokit.bilm.settings",
    "VectorStore": "elmokit.vectors.store",
    "Verification": "elmokit.vectors.verify",
    "VocabularyConfig": "elmokit.text.settings",
    "Word2VecConfig": "elmokit.static.settings",
    "WordVectors": "elmokit.static.word_vectors",
    "baseline": "elmokit.static.train",
    "compare_files": "elmokit.comparison.compare",
    "convert": "elmokit.published.convert",
    "embed": "elmokit.vectors.store_writer",
    "evaluate": "elmokit.tasks.fit",
    "fit": "elmokit.tasks.fit",
    "load_bilm": "elmokit.bilm.folder",
    "make_plan": "elmokit.comparison.recipes",
    "perplexity": "elmokit.bilm.perplexity",
    "predict": "elmokit.tasks.fit",
    "pretrain": "elmokit.bilm.pretrain",
    "resolve": "elmokit.bilm.settings",
    "save_bilm": "elmokit.bilm.folder",
    "search": "elmokit.vectors.neighbors",
    "similar_words": "elmokit.vectors.neighbors",
    "text_perplexity": "elmokit.bilm.perplexity",
    "train_vectors": "elmokit.static.train",
    "verify": "elmokit.vectors.verify",
    "write_token_cache": "elmokit.vectors.word_cache",
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
    "TaskModel",
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
    "baseline",
    "compare_files",
    "convert",
    "embed",
    "evaluate",
    "fit",
    "load_bilm",
    "make_plan",
    "perplexity",
    "predict",
    "pretrain",
    "resolve",
    "save_bilm",
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
