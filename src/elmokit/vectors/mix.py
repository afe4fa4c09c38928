"""From all layers to one vector per word: trained weights, frozen weights, or a learned function.

trainable, frozen    x = w0 * layer0 + w1 * layer1 + w2 * layer2
  form "softmax"     x = gamma * (s0 * layer0 + ...),  s = softmax(w)
function             x = relu(A [layer0; layer1; layer2] + b)

``PublishedMix`` reads softmax mixes in the names of the tools that train them: AllenNLP's
(``scalar_mix_0.gamma``) and bilm-tf's (``input_ELMo_W``, in HDF5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.errors import ModelError
from elmokit.core.tensors import load_tensors
from elmokit.published.hdf5 import open_arrays
from elmokit.published.many_langs import read_state_dict
from elmokit.vectors.embeddings import Embeddings
from elmokit.vectors.encoder import FloatArray
from elmokit.vectors.settings import MixConfig, layer_factors

_TINY = 1e-12  # added to the variance, as in the published code
_ALLENNLP = re.compile(r"((?:.*\.)?scalar_mix_\d+)\.(?:scalar_parameters\.(\d+)|gamma)")
_BILM_TF = re.compile(r"(.*)ELMo_(W|gamma)")


class Mix(nn.Module):
    """Base class of mixes; ``out_dim`` is the width of the result."""

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
        """The mix without normalization."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """For the log: the weight of each layer, and gamma where there is one."""
        return {}

    def distance(self) -> Tensor:
        """What the L2 term penalizes."""
        return torch.zeros(())

    def penalty(self) -> Tensor:
        """L2 term of the loss."""
        is_on = self.config.mix_l2 and self.config.mix != "frozen"
        return self.config.mix_l2 * self.distance() if is_on else torch.zeros(())


class ScalarMix(Mix):
    """One weight per layer, trained or frozen; raw, or softmax times gamma."""

    def __init__(self, config: MixConfig, n_layers: int, dim: int, seed: int = 0) -> None:
        super().__init__(config)
        self.out_dim = dim
        is_raw, learns = config.mix_form == "raw", config.mix == "trainable"
        start = torch.tensor(layer_factors(n_layers, weights=config.weights))
        if not learns and not config.weights:  # random once, then stored with the model
            start = torch.rand(n_layers, generator=torch.Generator().manual_seed(seed))
            if is_raw and not start.is_meta:  # (arithmetic there loads torch's compiler)
                start = start / start.sum()
        elif not is_raw:  # the weights are shares
            start = start.log() if config.weights else torch.zeros(n_layers)
        self.weights = nn.Parameter(start, requires_grad=learns)
        self.gamma = None if is_raw else nn.Parameter(torch.ones(()), requires_grad=learns)

    def scalars(self) -> Tensor:
        """The factor of each layer, (n_layers,)."""
        return self.weights if self.gamma is None else self.gamma * torch.softmax(self.weights, dim=0)

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
        values = {f"mix_{depth}": float(value) for depth, value in enumerate(shares.detach())}
        return values if self.gamma is None else {**values, "mix_gamma": self.gamma.item()}

    def distance(self) -> Tensor:
        """Squared distance of the weights from equal ones."""
        equal = 1.0 / len(self.weights) if self.gamma is None else 0.0
        return (self.weights - equal).square().sum()


class FunctionMix(Mix):
    """A learned function of all layers: Linear(n_layers * dim -> width) and ReLU or tanh."""

    def __init__(self, config: MixConfig, n_layers: int, dim: int) -> None:
        super().__init__(config)
        self.out_dim = config.mix_width or dim
        self.n_layers, self.dim = n_layers, dim
        self.linear = nn.Linear(n_layers * dim, self.out_dim)

    def mixed(self, layers: Sequence[Tensor]) -> Tensor:
        """The function's value."""
        x: Tensor = self.linear(torch.cat(list(layers), dim=-1))
        return torch.relu(x) if self.config.mix_activation == "relu" else torch.tanh(x)

    def values(self) -> dict[str, float]:
        """The share of each layer's block in the norm of the matrix."""
        norms = self.linear.weight.detach().view(self.out_dim, self.n_layers, self.dim).norm(dim=(0, 2))
        return {f"mix_{depth}": float(value) for depth, value in enumerate(norms / norms.sum())}

    def distance(self) -> Tensor:
        """Squared norm of the matrix."""
        return self.linear.weight.square().sum()


class OwnMix(Mix):
    """A mix of the user's: ``forward`` takes the layers; ``out_dim`` is that of a layer unless it says so.

    Nothing is known of its weights, and it has no penalty.
    """

    def __init__(self, config: MixConfig, part: type[nn.Module], n_layers: int, dim: int) -> None:
        super().__init__(config)
        self.part = part(config, n_layers, dim)
        self.out_dim = int(getattr(self.part, "out_dim", dim))

    def mixed(self, layers: Sequence[Tensor]) -> Tensor:
        """What the user's module makes of the layers."""
        x: Tensor = self.part(layers)
        return x


def make_mix(config: MixConfig, n_layers: int, dim: int, seed: int = 0) -> Mix:
    """The mix that ``config`` asks for, over ``n_layers`` layers of width ``dim``."""
    if config.mix == "function":
        return FunctionMix(config, n_layers, dim)
    return ScalarMix(config, n_layers, dim, seed)


@dataclass(frozen=True)
class PublishedMix:
    """gamma * sum_k softmax(w)_k * layer_k, once for each of several outputs, as trained by other tools.

    With ``layer_norm``, each layer is normalized first with one mean and variance over *all words of the
    batch*, as the published code can. A word's vector then depends on the rest of the batch.
    """

    shares: list[list[float]]  # softmax(w) of each output
    gammas: list[float]
    layer_norm: bool = False

    def mixed(self, embeddings: Embeddings) -> list[list[FloatArray]]:
        """For each output, one (n_words, dim) array per text. To ``layer_norm``, all texts are one batch."""
        if self.layer_norm:
            centered = embeddings.flat - embeddings.flat.mean(axis=(0, 2), keepdims=True)
            deviation = np.sqrt(np.square(centered).mean(axis=(0, 2), keepdims=True) + _TINY)
            embeddings = replace(embeddings, flat=centered / deviation)
        outputs = zip(self.shares, self.gammas, strict=True)
        return [embeddings.mixed(shares, gamma=gamma) for shares, gamma in outputs]

    @classmethod
    def load(cls, path: str | Path, *, layer_norm: bool | None = None) -> PublishedMix:
        """Read a trained mix.

        Args:
            path: A .safetensors file or a ``torch.save``d state dictionary with AllenNLP's names (a whole
                model's will do), or an .hdf5 file with bilm-tf's.
            layer_norm: By default, what the file says, or False.
        """
        path = Path(path)
        tensors, meta = _read_arrays(path)
        outputs: dict[str, dict[int, float]] = {}  # by depth; gamma is -1
        for name, values in tensors.items():
            if match := _ALLENNLP.fullmatch(name):
                outputs.setdefault(match[1], {})[int(match[2] or -1)] = float(values[0])
            elif match := _BILM_TF.fullmatch(name):
                row = {-1: float(values[0])} if match[2] == "gamma" else dict(enumerate(values.tolist()))
                outputs.setdefault(match[1], {}).update(row)
        if len({name.rpartition(".")[0] for name in outputs}) > 1:
            raise ModelError(
                f"{path} holds the mixes of several modules: {', '.join(sorted(outputs))}.",
                remedy="Save the tensors of one of them to a separate file.",
            )
        rows = [outputs[place] for place in sorted(outputs, key=lambda name: (len(name), name))]
        n_layers = max((len(row) for row in rows), default=1) - 1
        if n_layers < 1 or any(sorted(row) != list(range(-1, n_layers)) for row in rows):
            raise ModelError(
                f"{path} does not hold a complete mix: each output needs layer weights and gamma.",
                remedy="Give a trained mix: .safetensors, .hdf5, or the weights.th of AllenNLP.",
            )
        weights = torch.tensor([[row[depth] for depth in range(n_layers)] for row in rows])
        norm = bool(meta.get("layer_norm", False)) if layer_norm is None else layer_norm
        return cls(torch.softmax(weights, dim=1).tolist(), [row[-1] for row in rows], norm)


def _read_arrays(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The arrays of a file by name, flat, and its metadata."""
    suffix, meta = path.suffix.lower(), dict[str, Any]()
    if suffix == ".safetensors":
        tensors, meta = load_tensors(path)
    elif suffix in (".hdf5", ".h5"):
        with open_arrays(path) as file:
            names = [name for name in file.shapes if _BILM_TF.fullmatch(name)]
            tensors = {name: torch.from_numpy(np.atleast_1d(file.read(name))) for name in names}
    else:
        tensors = read_state_dict(path)
    return {name: tensor.flatten() for name, tensor in tensors.items() if tensor.numel()}, meta
