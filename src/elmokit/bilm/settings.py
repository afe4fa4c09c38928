"""Settings of a language model and its training, and the presets built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.core.config import Config, DropoutConfig, RunConfig, option
from elmokit.core.errors import ConfigError, nearest
from elmokit.text.settings import PIPELINES, TextConfig, VocabularyConfig


@dataclass(frozen=True, kw_only=True)
class BilmConfig(Config):
    """The shape of a bidirectional language model."""

    input: Literal["char", "char+word", "word", "subword", "morpheme", "dictionary"] = option(
        "char",
        "How a word is read: its characters (CNN), characters and its row in a table, the row alone, or its "
        "subwords or morphemes, pooled; dictionary (listed characters and a row) in converted models only.",
    )
    dim: int = option(256, "Width of a layer in each direction; vectors are twice as wide.", at_least=1)
    hidden_dim: int = option(
        256, "LSTM cells per layer and direction; projected to dim if they differ.", at_least=1
    )
    n_layers: int = option(2, "LSTM layers in each direction.", at_least=1, at_most=64)
    residual: bool = option(True, "Add each LSTM layer's input to its output, from the second on.")
    cell_clip: float | None = option(None, "Clip LSTM cells to ± this value.", at_least=1e-6)
    proj_clip: float | None = option(None, "Clip LSTM outputs to ± this value.", at_least=1e-6)
    max_chars: int = option(50, "Characters (bytes) of a word that are read.", at_least=3, at_most=1000)
    char_dim: int = option(16, "Width of a character's vector.", at_least=1)
    filters: tuple[tuple[int, int], ...] = option(
        ((1, 32), (2, 64), (3, 128), (4, 128), (5, 160)), "Character filters as width:count pairs."
    )
    table_dim: int = option(128, "Width of a word's row in the table (input char+word).", at_least=1)
    n_highway: int = option(1, "Highway layers over the character filters.", at_least=0, at_most=64)
    char_activation: Literal["relu", "tanh"] = option("relu", "Activation after the filters' maximum.")
    pooling: Literal["mean", "max", "sum"] = option("mean", "How a word's pieces become one.")
    objective: Literal["sampled", "full", "adaptive", "none"] = option(
        "sampled",
        "How the next word is learned: sampled, full or adaptive softmax; none in converted models that "
        "predict no word.",
    )
    n_samples: int = option(4096, "Random samples per step for the sampled softmax.", at_least=1)
    tie: bool = option(False, "Use one table for input and output words (input word only).")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie and (self.input != "word" or self.objective == "adaptive"):
            raise ConfigError(
                f"tie = True does not work with input = {self.input!r} and objective = {self.objective!r}.",
                remedy="Leave tie out, or choose input = 'word' and objective = 'sampled' or 'full'.",
            )
        widest = max(width for width, _ in self.filters)
        if self.input in ("char", "char+word", "dictionary") and widest > self.max_chars:
            raise ConfigError(
                f"A character filter of width {widest} does not fit into max_chars = {self.max_chars}.",
                remedy="Raise max_chars or use narrower filters.",
            )

    def to_dict(self) -> dict[str, Any]:
        """Without the width of a table that is not there: settings of 0.1 stay what they were."""
        values = super().to_dict()
        if self.input != "char+word":
            del values["table_dim"]
        return values


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(DropoutConfig, RunConfig):
    """How a language model is trained."""

    n_lanes: int = option(64, "Streams of text read side by side (the batch).", at_least=1)
    window: int = option(35, "Words of each stream in a step; LSTM state is carried over.", at_least=1)
    accumulate: int = option(
        1, "Parts of a step that are computed one after the other, for less memory.", at_least=1
    )
    precision: Literal["float32", "bfloat16"] = option(
        "float32", "Precision of products in training; weights and losses are float32 in any case."
    )
    dropout_row: float = option(
        0.1, "Share of words read by their characters only (input char+word).", at_least=0, at_most=0.95
    )
    dropout_output: float = option(0.1, "Dropout before the softmax.", at_least=0, at_most=0.95)
    held_out: float = option(
        0.02,
        "Share of texts held out when no --valid is given; by default more of a small text, up to a tenth.",
        at_least=0,
        at_most=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Config):
    """Everything that decides what ``pretrain`` does with a text."""

    text: TextConfig = TextConfig()  # noqa: RUF009 (frozen)
    vocabulary: VocabularyConfig = VocabularyConfig()  # noqa: RUF009 (frozen)
    model: BilmConfig = BilmConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.objective == "none" or self.model.input == "dictionary":
            raise ConfigError(
                "objective = 'none' and input = 'dictionary' are for converted models, which do not predict "
                "words and cannot be pretrained.",
                remedy="Choose another. Use a converted model to embed texts or to fit a classifier.",
            )

    def to_dict(self) -> dict[str, Any]:
        """Without settings of a word table that is not there: those of 0.1 stay what they were. The number
        of parts of a step does not matter."""
        values = super().to_dict() | {"model": self.model.to_dict()}
        del values["training"]["accumulate"]
        if self.training.precision == TrainingConfig.precision:
            del values["training"]["precision"]
        if self.model.input != "char+word":
            del values["training"]["dropout_row"]
        return values


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "vocabulary": {"max_words": 10_000},
        "model": {"dim": 64, "hidden_dim": 64, "filters": "1:16,2:32,3:48,4:64", "objective": "full"},
        "training": {"n_lanes": 16, "window": 20, "lr": 4e-3},
    },
    "small": {},
    "medium": {
        "model": {"dim": 512, "hidden_dim": 512, "filters": "1:32,2:64,3:128,4:256,5:256,6:256"},
        "training": {"lr": 1e-3},
    },
    "original": {
        "vocabulary": {"max_words": 793_471, "min_count": 3},
        "model": {
            "dim": 512,
            "hidden_dim": 4096,
            "cell_clip": 3.0,
            "proj_clip": 3.0,
            "filters": "1:32,2:32,3:64,4:128,5:256,6:512,7:1024",
            "n_highway": 2,
            "n_samples": 8192,
        },
        "training": {"n_lanes": 128, "window": 20, "lr": 1e-3, "clip_norm": 10.0},
    },
    "adapt": {  # for --from: the shape and the cleaning are those of the model
        "vocabulary": {"max_words": 30_000},
        "training": {"epochs": 3, "lr": 1e-3},
    },
    "classic": {
        "text": PIPELINES["classic"].to_dict(),
        "vocabulary": {"max_words": 30_000},
        "model": {"input": "word", "dim": 150, "hidden_dim": 150, "residual": False, "n_samples": 2048},
        "training": {"lr": 4e-3, "dropout_input": 0.0, "dropout_layer": 0.0, "dropout_output": 0.0},
    },
}
"""What each preset changes from the defaults, by section."""


def resolve(preset: str = "small", *overrides: Mapping[str, Mapping[str, Any]]) -> PretrainConfig:
    """The preset's settings, changed by each of ``overrides`` (by section) in order."""
    if preset not in PRESETS:
        raise ConfigError(f"There is no preset {preset!r}.", remedy=nearest(preset, PRESETS))
    merged: dict[str, dict[str, Any]] = {}
    for layer in (PRESETS[preset], *overrides):
        for section, values in layer.items():
            merged.setdefault(section, {}).update(values)
    return PretrainConfig.from_dict(merged)
