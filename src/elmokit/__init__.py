"""elmokit: contextual word vectors that anyone can train on their own text.

Importing this package does no work: each public name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.bilm.evaluation import Perplexity, perplexity
    from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
    from elmokit.bilm.measuring import text_perplexity
    from elmokit.bilm.model import Bilm, BilmOutput, BilmState
    from elmokit.bilm.pretraining import PretrainResult, pretrain
    from elmokit.config import (
        BilmConfig,
        PretrainConfig,
        TextConfig,
        TrainingConfig,
        VocabularyConfig,
        resolve,
    )
    from elmokit.errors import (
        ConfigError,
        DataError,
        ElmokitError,
        MissingExtraError,
        ModelError,
        RunError,
    )
    from elmokit.text.readers import TextSource
    from elmokit.text.settings import ReadConfig
    from elmokit.text.tokenising import TextPipeline

__version__ = "0.1.0"

_HOMES = {
    "Bilm": "elmokit.bilm.model",
    "BilmConfig": "elmokit.config",
    "BilmFolder": "elmokit.bilm.folder",
    "BilmOutput": "elmokit.bilm.model",
    "BilmState": "elmokit.bilm.model",
    "ConfigError": "elmokit.errors",
    "DataError": "elmokit.errors",
    "ElmokitError": "elmokit.errors",
    "MissingExtraError": "elmokit.errors",
    "ModelError": "elmokit.errors",
    "Perplexity": "elmokit.bilm.evaluation",
    "PretrainConfig": "elmokit.config",
    "PretrainResult": "elmokit.bilm.pretraining",
    "ReadConfig": "elmokit.text.settings",
    "RunError": "elmokit.errors",
    "TextConfig": "elmokit.config",
    "TextPipeline": "elmokit.text.tokenising",
    "TextSource": "elmokit.text.readers",
    "TrainingConfig": "elmokit.config",
    "VocabularyConfig": "elmokit.config",
    "load_bilm": "elmokit.bilm.folder",
    "perplexity": "elmokit.bilm.evaluation",
    "pretrain": "elmokit.bilm.pretraining",
    "resolve": "elmokit.config",
    "save_bilm": "elmokit.bilm.folder",
    "text_perplexity": "elmokit.bilm.measuring",
}

__all__ = [
    "Bilm",
    "BilmConfig",
    "BilmFolder",
    "BilmOutput",
    "BilmState",
    "ConfigError",
    "DataError",
    "ElmokitError",
    "MissingExtraError",
    "ModelError",
    "Perplexity",
    "PretrainConfig",
    "PretrainResult",
    "ReadConfig",
    "RunError",
    "TextConfig",
    "TextPipeline",
    "TextSource",
    "TrainingConfig",
    "VocabularyConfig",
    "load_bilm",
    "perplexity",
    "pretrain",
    "resolve",
    "save_bilm",
    "text_perplexity",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'elmokit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
