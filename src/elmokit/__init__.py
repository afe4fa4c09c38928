"""elmokit: contextual word vectors that anyone can train on their own text.

Importing this package does no work: each name is loaded when it is first used. Settings are in
``elmokit.settings``, the types of results in ``elmokit.results``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit import results as results
    from elmokit import settings as settings
    from elmokit.bilm.pretrain import pretrain
    from elmokit.bilm.settings import PretrainConfig
    from elmokit.comparison.compare import compare
    from elmokit.comparison.recipes import make_plan
    from elmokit.core.console import Reporter
    from elmokit.core.errors import ElmokitError
    from elmokit.core.model_folder import load
    from elmokit.published.convert import convert
    from elmokit.static.train import baseline
    from elmokit.static.word_vectors import WordVectors
    from elmokit.tasks.estimator import ElmoVectorizer, TextClassifier
    from elmokit.tasks.fit import evaluate, fit, predict
    from elmokit.tasks.settings import ClassifierConfig
    from elmokit.text.settings import ReadConfig
    from elmokit.vectors.distillation import distill
    from elmokit.vectors.elmo import Elmo
    from elmokit.vectors.embeddings import Embeddings
    from elmokit.vectors.neighbors import find_duplicates, search, similar_words
    from elmokit.vectors.senses import senses
    from elmokit.vectors.settings import StoreConfig
    from elmokit.vectors.store import VectorStore
    from elmokit.vectors.store_writer import embed
    from elmokit.vectors.verify import verify

__version__ = "0.2.0"

# fmt: off
_HOMES = {  # the public names of each module
    "bilm.pretrain": "pretrain", "bilm.settings": "PretrainConfig", "comparison.compare": "compare",
    "comparison.recipes": "make_plan", "core.console": "Reporter", "core.errors": "ElmokitError",
    "core.model_folder": "load", "published.convert": "convert", "static.train": "baseline",
    "static.word_vectors": "WordVectors", "tasks.estimator": "ElmoVectorizer TextClassifier",
    "tasks.fit": "evaluate fit predict", "tasks.settings": "ClassifierConfig",
    "text.settings": "ReadConfig",
    "vectors.distillation": "distill", "vectors.elmo": "Elmo", "vectors.embeddings": "Embeddings",
    "vectors.neighbors": "find_duplicates search similar_words",
    "vectors.senses": "senses", "vectors.settings": "StoreConfig", "vectors.store": "VectorStore",
    "vectors.store_writer": "embed", "vectors.verify": "verify",
}
__all__ = [  # noqa: RUF022 (by what they are for)
    "load", "Elmo", "Embeddings", "WordVectors", "VectorStore", "TextClassifier", "ElmoVectorizer",
    "pretrain", "distill", "baseline", "embed", "fit", "predict", "evaluate", "compare", "convert", "verify",
    "search", "find_duplicates", "similar_words", "senses",
    "PretrainConfig", "ClassifierConfig", "StoreConfig", "ReadConfig", "make_plan",
    "Reporter", "ElmokitError",
]
# fmt: on


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("results", "settings"):
        return import_module(f"elmokit.{name}")
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"elmokit.{module}"), name)
    raise AttributeError(f"module 'elmokit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
