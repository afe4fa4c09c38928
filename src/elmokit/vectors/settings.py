"""How layers are mixed, as settings (apart from the networks, so that help needs no library)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from elmokit.core.config import Config, option
from elmokit.core.errors import ConfigError

__all__ = ["MixConfig", "layer_weights"]


@dataclass(frozen=True, kw_only=True)
class MixConfig(Config):
    """How the layers of a biLM become one vector per word."""

    mix: Literal["trainable", "frozen", "function"] = option(
        "trainable",
        "One weight per layer that is trained, or kept frozen; or a learned function of all, which is better "
        "with many labels.",
    )
    mix_form: Literal["raw", "softmax"] = option(
        "raw", "The weights as they are (course write-ups), or softmax times gamma (published ELMo)."
    )
    mix_weights: str = option(
        "",
        "Weights (of a softmax: shares) of the layers, lowest first, as in 0.2,0.3,0.5: fixed if frozen, "
        "else the start.",
    )
    mix_width: int | None = option(None, "Width of the function mix (default: a layer's).", at_least=1)
    mix_activation: Literal["relu", "tanh"] = option("relu", "Activation of the function mix.")
    mix_norm: bool = option(False, "Normalise each layer of each word to mean 0, variance 1 first.")
    mix_l2: float = option(
        0.0,
        "Penalty on the squared distance of trained weights from equal (function: on its matrix).",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights and self.mix == "function":
            raise ConfigError(
                "mix_weights are for trainable and frozen mixes; a function has none.",
                remedy="Leave mix_weights out, or choose another mix.",
            )
        if self.weights and self.mix_form == "softmax" and min(self.weights) <= 0:
            raise ConfigError(
                f"mix_weights = {self.mix_weights!r}: shares of a softmax must be above zero.",
                remedy="Give positive numbers, or choose mix_form raw.",
            )

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights given, one by one; empty if none were."""
        return layer_weights("mix_weights", self.mix_weights)


def layer_weights(name: str, text: str) -> tuple[float, ...]:
    """The numbers in a list of weights, one by one; ``name`` is the setting, for the error."""
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise ConfigError(
            f"{name} = {text!r} is not a list of numbers.",
            remedy="Write one number per layer, lowest first, as in 0.2,0.3,0.5.",
        )
    return found
