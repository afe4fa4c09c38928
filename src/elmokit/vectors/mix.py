"""From all layers to one vector per word: trained weights, frozen weights, or a learned function.

trainable, frozen    x = w0 * layer0 + w1 * layer1 + w2 * layer2
  form "softmax"     x = gamma * (s0 * layer0 + ...),  s = softmax(w)
function             x = relu(A [layer0; layer1; layer2] + b)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.errors import ConfigError
from elmokit.vectors.settings import MixConfig

__all__ = ["FunctionMix", "Mix", "ScalarMix", "make_mix"]


class Mix(nn.Module):
    """What all mixes share.

    Attributes:
        config: its settings.
        out_dim: the width it gives.
    """

    out_dim: int

    def __init__(self, config: MixConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Layers of shape (..., dim), token encoder first -> (..., out_dim)."""
        if self.config.mix_norm:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        return self.mixed(layers)

    def mixed(self, layers: Sequence[Tensor]) -> Tensor:
        """The mix itself."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """What to log: how much each layer counts, and gamma where there is one."""
        raise NotImplementedError

    def penalty(self) -> Tensor:
        """L2 term, to be added to the loss."""
        return torch.zeros(())


class ScalarMix(Mix):
    """One weight per layer, trained or frozen; raw, or softmax times gamma."""

    def __init__(self, config: MixConfig, n_layers: int, dim: int, seed: int = 0) -> None:
        super().__init__(config)
        self.out_dim = dim
        given = config.weights
        if given and len(given) != n_layers:
            raise ConfigError(
                f"mix_weights has {len(given)} numbers, but the encoder has {n_layers} layers.",
                remedy="Give one weight per layer, token encoder first.",
            )
        if given and config.mix_form == "softmax":  # given as shares
            start = torch.tensor(given).log()
        elif given:
            start = torch.tensor(given)
        elif config.mix == "frozen":  # drawn once, stored with the model
            start = torch.rand(n_layers, generator=torch.Generator().manual_seed(seed))
            if config.mix_form == "raw" and not start.is_meta:  # (arithmetic there loads torch's compiler)
                start = start / start.sum()
        else:
            start = torch.full((n_layers,), 1.0 / n_layers if config.mix_form == "raw" else 0.0)
        learns = config.mix == "trainable"
        self.weights = nn.Parameter(start, requires_grad=learns)
        self.gamma = (
            nn.Parameter(torch.ones(()), requires_grad=learns) if config.mix_form == "softmax" else None
        )

    def scalars(self) -> Tensor:
        """The factor of each layer, (n_layers,)."""
        if self.gamma is None:
            return self.weights
        return self.gamma * torch.softmax(self.weights, dim=0)

    def mixed(self, layers: Sequence[Tensor]) -> Tensor:
        """The weighted sum."""
        factors = self.scalars()
        total = factors[0] * layers[0]
        for factor, layer in zip(factors[1:], layers[1:], strict=True):
            total = torch.addcmul(total, factor, layer)
        return total

    def values(self) -> dict[str, float]:
        """The weights (after softmax, if that is the form) and gamma."""
        shares = self.weights if self.gamma is None else torch.softmax(self.weights, dim=0)
        found = {f"mix_{depth}": float(value) for depth, value in enumerate(shares.detach())}
        return found if self.gamma is None else {**found, "mix_gamma": self.gamma.item()}

    def penalty(self) -> Tensor:
        """Squared distance of the weights from equal ones."""
        if not self.config.mix_l2 or self.config.mix == "frozen":
            return super().penalty()
        equal = 1.0 / len(self.weights) if self.gamma is None else 0.0
        return self.config.mix_l2 * (self.weights - equal).square().sum()


class FunctionMix(Mix):
    """A learned function of all layers: Linear(n_layers * dim -> width) and ReLU or tanh."""

    def __init__(self, config: MixConfig, n_layers: int, dim: int) -> None:
        super().__init__(config)
        self.out_dim = config.mix_width or dim
        self.n_layers, self.dim = n_layers, dim
        self.linear = nn.Linear(n_layers * dim, self.out_dim)

    def mixed(self, layers: Sequence[Tensor]) -> Tensor:
        """The function's answer."""
        found: Tensor = self.linear(torch.cat(list(layers), dim=-1))
        return torch.relu(found) if self.config.mix_activation == "relu" else torch.tanh(found)

    def values(self) -> dict[str, float]:
        """The share of each layer's block in the norm of the matrix."""
        norms = self.linear.weight.detach().view(self.out_dim, self.n_layers, self.dim).norm(dim=(0, 2))
        return {f"mix_{depth}": float(value) for depth, value in enumerate(norms / norms.sum())}

    def penalty(self) -> Tensor:
        """Squared norm of the matrix."""
        if not self.config.mix_l2:
            return super().penalty()
        return self.config.mix_l2 * self.linear.weight.square().sum()


def make_mix(config: MixConfig, n_layers: int, dim: int, seed: int = 0) -> Mix:
    """The mix that ``config`` asks for, over ``n_layers`` layers of width ``dim``."""
    if config.mix == "function":
        return FunctionMix(config, n_layers, dim)
    return ScalarMix(config, n_layers, dim, seed)
