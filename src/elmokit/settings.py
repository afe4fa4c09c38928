"""Every kind of settings, in one place."""

from __future__ import annotations

from elmokit.bilm.settings import BilmConfig, PretrainConfig, TrainingConfig
from elmokit.comparison.methods import CompareConfig
from elmokit.core.config import Config, DropoutConfig, RunConfig
from elmokit.serve.settings import ServeConfig
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.tasks.settings import ClassifierConfig, FitConfig, HeadConfig
from elmokit.text.settings import LabelConfig, ReadConfig, TextConfig, VocabularyConfig
from elmokit.vectors.settings import DistillConfig, LayerConfig, MixConfig, StoreConfig

__all__ = [
    "BilmConfig",
    "ClassifierConfig",
    "CompareConfig",
    "Config",
    "DistillConfig",
    "DropoutConfig",
    "FitConfig",
    "HeadConfig",
    "LabelConfig",
    "LayerConfig",
    "MixConfig",
    "PretrainConfig",
    "ReadConfig",
    "RunConfig",
    "ServeConfig",
    "StoreConfig",
    "SvdConfig",
    "TextConfig",
    "TrainingConfig",
    "VocabularyConfig",
    "Word2VecConfig",
]
