"""What an embedded folder holds, as settings (apart from the networks, so that help needs no library)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elmokit.core.config import Config, option
from elmokit.core.errors import ConfigError
from elmokit.vectors.settings import layer_weights

__all__ = ["EXPORTS", "StoreConfig"]

EXPORTS = ("parquet", "npz")


@dataclass(frozen=True, kw_only=True)
class StoreConfig(Config):
    """Which vectors are kept of a text, and in what form. Unless told: an equal mix of the layers."""

    layer: int | None = option(None, "Keep one layer: 0 is the token encoder, -1 the top.")
    mix_weights: str = option(
        "", "Weights of the layers, lowest first, as in 0.2,0.3,0.5. Unless given: equal."
    )
    all_layers: bool = option(False, "Keep every layer instead of a mix.")
    pool: Literal["none", "mean", "max", "last", "sif"] = option(
        "none",
        "One vector per text: mean, max, last (where each direction has read all) or sif (a mean in "
        "which frequent words count less). none: one vector per word.",
    )
    dtype: Literal["float32", "float16"] = option("float32", "Numbers on disk; float16 takes half the room.")
    format: Literal["npy", "safetensors"] = option("npy", "File the vectors stand in.")
    state: Literal["zero", "warm"] = option(
        "zero", "What each text starts from: zero, or the model's average state after a text."
    )
    id_column: str = option(
        "", "Column with an id for each text: a name, or a number from 1. Empty: texts are numbered from 0."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = [
            name
            for name, given in (
                ("layer", self.layer is not None),
                ("mix_weights", bool(self.mix_weights)),
                ("all_layers", self.all_layers),
            )
            if given
        ]
        if len(asked) > 1:
            raise ConfigError(
                f"{' and '.join(asked)} exclude each other.",
                remedy="Choose one: a layer, a mix of them, or all of them.",
            )
        self.weights  # noqa: B018 (checks them)

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weights of the mix, one by one; None for equal ones."""
        return layer_weights("mix_weights", self.mix_weights) or None

    def check(self, n_layers: int) -> None:
        """Refuse a layer or a number of weights that a model with ``n_layers`` layers does not have."""
        if self.layer is not None and not -n_layers <= self.layer < n_layers:
            raise ConfigError(
                f"There is no layer {self.layer}: this model has {n_layers}.",
                remedy=f"Choose 0 (token encoder) to {n_layers - 1} (top), or -1 for the top.",
            )
        if self.weights is not None and len(self.weights) != n_layers:
            raise ConfigError(
                f"mix_weights = {self.mix_weights!r} has {len(self.weights)} weights, but the model has "
                f"{n_layers} layers.",
                remedy="Give one weight per layer, token encoder first.",
            )

    def kept(self) -> str:
        """Which layers are kept, for people.

        >>> StoreConfig(mix_weights="0.2,0.8").kept(), StoreConfig(layer=1).kept()
        ('mix 0.2,0.8', 'layer 1')
        """
        if self.layer is not None:
            return f"layer {self.layer}"
        if self.all_layers:
            return "all layers"
        return f"mix {self.mix_weights}" if self.mix_weights.strip() else "equal mix of all layers"
