"""Settings of mixes, stores and distillation, apart from the networks so that help imports no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elmokit.core.config import Config, RunConfig, option
from elmokit.core.errors import ConfigError

EXPORTS = {"parquet": "vectors.parquet", "hdf5": "vectors.hdf5", "word2vec": "vectors.vec"}
"""Formats that vectors can be written in, too, and the name of the file."""
_SEVERAL, _ONE = "{} cannot be used together.", "Choose one: a layer, a mix of them, or all of them."


@dataclass(frozen=True, kw_only=True)
class MixConfig(Config):
    """How the layers of an encoder become one vector per word."""

    mix: Literal["trainable", "frozen", "function"] = option(
        "trainable",
        "One weight per layer, trained or frozen; or a learned function of all layers, which is better "
        "with many labels.",
    )
    mix_form: Literal["raw", "softmax"] = option(
        "raw", "The weights as they are (course write-ups), or softmax times gamma (published ELMo)."
    )
    mix_weights: str = option(
        "",
        "Weights (for softmax: shares) of the layers, lowest first, as in 0.2,0.3,0.5: fixed if frozen, "
        "else the start.",
    )
    mix_width: int | None = option(None, "Width of the function mix (default: a layer's).", at_least=1)
    mix_activation: Literal["relu", "tanh"] = option("relu", "Activation of the function mix.")
    mix_norm: bool = option(False, "Normalize each layer of each word to mean 0, variance 1 first.")
    mix_l2: float = option(
        0.0,
        "L2 penalty that pulls the weights toward equal ones (function: on its matrix).",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and self.mix == "function":
            raise ConfigError("A function mix takes no mix_weights.", remedy="Leave mix_weights out.")
        if self.weights and self.mix_form == "softmax" and min(self.weights) <= 0:
            raise ConfigError(
                f"mix_weights = {self.mix_weights!r}: shares of a softmax must be above zero.",
                remedy="Give positive numbers, or choose mix_form raw.",
            )

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The numbers in ``mix_weights``; None if there are none."""
        return _parse_weights(self.mix_weights)


@dataclass(frozen=True, kw_only=True)
class LayerConfig(Config):
    """Which layers of a text are used, and what the text starts from. By default, an equal mix from zero."""

    layer: int | None = option(None, "One layer: 0 is the token encoder, -1 the top.")
    mix_weights: str = option(
        "", "Weights of the layers, lowest first, as in 0.2,0.3,0.5. By default, equal."
    )
    state: Literal["zero", "warm"] = option(
        "zero", "What each text starts from: zero, or the model's average state after a text."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.layer is not None) + (self.weights is not None) + getattr(self, "all_layers", False) > 1:
            raise ConfigError(_SEVERAL.format("layer, mix_weights and all_layers"), remedy=_ONE)

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The numbers in ``mix_weights``; None for equal weights."""
        return _parse_weights(self.mix_weights)

    def factors(self, n_layers: int) -> tuple[float, ...]:
        """The weight of each of ``n_layers`` layers; an error if the model has no such layers."""
        return layer_factors(n_layers, self.layer, self.weights)


@dataclass(frozen=True, kw_only=True)
class StoreConfig(LayerConfig):
    """Which vectors of a text are stored, and in what form."""

    all_layers: bool = option(False, "Keep every layer instead of a mix.")
    pool: Literal["none", "sentence", "mean", "max", "last", "sif"] = option(
        "none",
        "One vector per text: sentence (the model's own, best for search), mean, max, last (the final "
        "state of each direction) or sif (a mean in which frequent words count less). none: one per word.",
    )
    dtype: Literal["float32", "float16"] = option(
        "float32", "Number type on disk; float16 takes half the space."
    )
    format: Literal["npy", "safetensors"] = option("npy", "File format of the vectors.")
    id_column: str = option(
        "", "Column with an id for each text: a name, or a number from 1. Empty: texts are numbered from 0."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool == "sentence" and (self.all_layers, self.layer, self.weights) != (False, None, None):
            raise ConfigError(
                "pool = sentence: a model's own sentence vector has no layers.",
                remedy="Leave out layer, mix_weights and all_layers, or choose another pool.",
            )

    @property
    def selection(self) -> str:
        """Which layers are kept, for people.

        >>> StoreConfig(mix_weights="0.2,0.8").selection, StoreConfig(layer=1).selection
        ('mix 0.2,0.8', 'layer 1')
        """
        if self.pool == "sentence":
            return "sentence vector"
        if self.layer is not None:
            return f"layer {self.layer}"
        if self.all_layers:
            return "all layers"
        return f"mix {self.mix_weights}" if self.weights else "equal mix of all layers"


def layer_factors(
    n_layers: int, layer: int | None = None, weights: Sequence[float] | None = None
) -> tuple[float, ...]:
    """The weight of each layer: of one layer alone, as given, or equal."""
    if layer is not None and weights is not None:
        raise ConfigError(_SEVERAL.format("layer and weights"), remedy=_ONE)
    if layer is not None and not -n_layers <= layer < n_layers:
        raise ConfigError(
            f"There is no layer {layer}: this model has {n_layers}.",
            remedy=f"Choose 0 (token encoder) to {n_layers - 1} (top), or -1 for the top.",
        )
    if weights is not None and len(weights) != n_layers:
        raise ConfigError(
            f"{len(weights)} weights were given for {n_layers} layers.",
            remedy="Give one weight per layer, token encoder first.",
        )
    if layer is not None:
        return tuple(float(depth == layer % n_layers) for depth in range(n_layers))
    return (1.0 / n_layers,) * n_layers if weights is None else tuple(weights)


def _parse_weights(text: str) -> tuple[float, ...] | None:
    try:
        weights = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        weights = (math.nan,)
    if not all(map(math.isfinite, weights)):
        raise ConfigError(
            f"mix_weights = {text!r} is not a list of numbers.",
            remedy="Write one number per layer, lowest first, as in 0.2,0.3,0.5.",
        )
    return weights or None


@dataclass(frozen=True, kw_only=True)
class DistillConfig(RunConfig):
    """How a word table is learned from a teacher."""

    epochs: int = option(3, "Passes over the texts.", at_least=1)
    lr: float = option(7e-4, "Highest learning rate.", at_least=0, at_most=1000)
    clip_norm: float = option(0.0, "Clip the gradient norm to this (0: never).", at_least=0)
    batch_texts: int = option(256, "Texts in a step.", at_least=1)
    dim: int = option(256, "Width of the sentence vector; the teacher's own width at most.", at_least=2)
    max_forms: int = option(60_000, "Rows of the table.", at_least=1)
    min_count: int = option(2, "Words seen less often get no row.", at_least=1)
    n_grams: int = option(20_000, "Rows for character n-grams, which spell words without a row.", at_least=1)
    gram_scale: float = option(1.2, "Weight of such a word against a known one.", at_least=0)
    held_out: int = option(2_000, "Texts to measure the table on; a tenth at most.", at_least=1)
