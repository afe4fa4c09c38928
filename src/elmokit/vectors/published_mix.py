"""The mix of layers as published: gamma * sum_k softmax(w)_k * layer_k, several of them side by side.

Kept in the names of the tools that trained it: AllenNLP's (``scalar_mix_0.gamma``, in safetensors) or
bilm-tf's (``input_ELMo_W``, in HDF5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.core.errors import ConfigError, ModelError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.published.hdf5 import open_arrays, write_arrays
from elmokit.published.many_langs import read_state_dict
from elmokit.vectors.embeddings import A, Embeddings
from elmokit.vectors.mix import ScalarMix

__all__ = ["PublishedMix"]

_TINY = 1e-12  # added to the variance, as in the published code
_ALLENNLP = re.compile(r"(.*\.)?scalar_mix_(\d+)\.(?:scalar_parameters\.(\d+)|(gamma))")
_BILM = re.compile(r"(?:(.+)_)?ELMo_(W|gamma)")
_OTHER_TOOL = "Give a .safetensors or .hdf5 file that holds a trained mix, or the weights.th of AllenNLP."


class PublishedMix(nn.Module):
    """Softmax weights and a gamma for each of several outputs.

    Args:
        n_layers: layers that are mixed, token encoder included.
        n_outputs: mixes side by side, each with weights of its own.
        layer_norm: bring each layer to mean 0 and variance 1 first, over *all words of the batch* together,
            as the published code can. A word's vector then depends on its company.
        l2: penalty on the squared raw weights.

    Attributes:
        weights: raw weights, (n_outputs, n_layers); zero at the start.
        gammas: (n_outputs,); one at the start.
    """

    def __init__(
        self, n_layers: int, n_outputs: int = 1, *, layer_norm: bool = False, l2: float = 0.0
    ) -> None:
        super().__init__()
        if n_layers < 1 or n_outputs < 1 or l2 < 0:
            raise ConfigError(
                f"n_layers = {n_layers}, n_outputs = {n_outputs}, l2 = {l2:g}: layers and outputs must be at "
                "least 1, l2 at least 0."
            )
        self.layer_norm, self.l2 = layer_norm, l2
        self.weights = nn.Parameter(torch.zeros(n_outputs, n_layers))
        self.gammas = nn.Parameter(torch.ones(n_outputs))

    @property
    def n_layers(self) -> int:
        """Layers that are mixed."""
        return self.weights.shape[1]

    @property
    def n_outputs(self) -> int:
        """Mixes side by side."""
        return self.weights.shape[0]

    def forward(self, layers: Sequence[Tensor], mask: Tensor | None = None) -> list[Tensor]:
        """All outputs, each of a layer's shape.

        Args:
            layers: each (batch, time, dim) or (n_words, dim), token encoder first.
            mask: (batch, time), true or 1 where there is a word; None if all are.
        """
        if len(layers) != self.n_layers:
            raise ConfigError(
                f"{len(layers)} layers were given to a mix of {self.n_layers}.",
                remedy="Give the layers of the model that the mix was trained with.",
            )
        if self.layer_norm:
            layers = [_normalised(layer, mask) for layer in layers]
        shares = self.gammas.unsqueeze(1) * torch.softmax(self.weights, dim=1)  # (outputs, layers)
        return [
            cast(Tensor, sum(share * layer for share, layer in zip(row, layers, strict=True)))
            for row in shares
        ]

    @torch.no_grad()
    def mixed(self, found: Embeddings[A]) -> list[list[A]]:
        """What ``Elmo.embed`` gave, mixed: for each output one (n_words, dim) array per text. All its texts
        are one batch to ``layer_norm``."""
        flat = found.flat if isinstance(found.flat, Tensor) else torch.from_numpy(found.flat)
        outputs = self.forward([flat[:, depth] for depth in range(flat.shape[1])])
        bounds = list(zip(found.offsets[:-1], found.offsets[1:], strict=True))
        whole: list[Any] = [out if isinstance(found.flat, Tensor) else out.numpy() for out in outputs]
        return [[out[first:last] for first, last in bounds] for out in whole]

    def penalty(self) -> Tensor:
        """L2 on the raw weights, to be added to the loss."""
        return self.l2 * self.weights.square().sum()

    def values(self) -> list[dict[str, float]]:
        """Of each output, the share of each layer, and gamma."""
        shares = torch.softmax(self.weights.detach(), dim=1)
        return [
            {f"mix_{depth}": float(share) for depth, share in enumerate(row)} | {"mix_gamma": float(gamma)}
            for row, gamma in zip(shares, self.gammas.detach(), strict=True)
        ]

    @classmethod
    def from_scalars(cls, *mixes: ScalarMix) -> PublishedMix:
        """The same as mixes that a classifier has trained; raw weights must be positive to be shares."""
        found = cls(len(mixes[0].weights) if mixes else 0, len(mixes))
        with torch.no_grad():
            for place, mix in enumerate(mixes):
                if mix.gamma is not None:
                    found.weights[place], found.gammas[place] = mix.weights, mix.gamma
                    continue
                if float(mix.weights.min()) <= 0:
                    raise ConfigError(
                        f"Raw weights {[round(float(w), 4) for w in mix.weights]} are not all above zero, so "
                        "no softmax times gamma gives the same mix.",
                        remedy="Fit with --mix-form softmax to have a mix in the published form.",
                    )
                found.weights[place] = mix.weights.log()
                found.gammas[place] = mix.weights.sum()
        return found

    def save(self, path: str | Path) -> None:
        """Write the weights: AllenNLP's names to a .safetensors file, bilm-tf's to an .hdf5 file."""
        path = Path(path)
        weights, gammas = self.weights.detach(), self.gammas.detach()
        if path.suffix.lower() == ".safetensors":
            named = {
                f"scalar_mix_{place}.scalar_parameters.{depth}": weights[place, depth : depth + 1].clone()
                for place in range(self.n_outputs)
                for depth in range(self.n_layers)
            }
            named |= {f"scalar_mix_{p}.gamma": gammas[p : p + 1].clone() for p in range(self.n_outputs)}
            save_tensors(path, named, {"layer_norm": self.layer_norm})
        elif path.suffix.lower() in (".hdf5", ".h5"):
            arrays = [(f"{p}_ELMo_W", weights[p].numpy()) for p in range(self.n_outputs)]
            arrays += [(f"{p}_ELMo_gamma", gammas[p : p + 1].numpy()) for p in range(self.n_outputs)]
            write_arrays(path, arrays, 4 * (weights.numel() + gammas.numel()))
        else:
            raise ConfigError(
                f"A mix cannot be written to {path.name}.",
                remedy="Choose a name that ends in .safetensors or .hdf5.",
            )

    @classmethod
    def load(cls, path: str | Path, *, layer_norm: bool | None = None, l2: float = 0.0) -> PublishedMix:
        """Read the weights of a trained mix.

        Args:
            path: a .safetensors file or a ``torch.save``d state dictionary with AllenNLP's names (those of a
                whole model will do), or an .hdf5 file with bilm-tf's.
            layer_norm: as in the class; files of others do not tell, and then it is off unless said.
            l2: as in the class.
        """
        path = Path(path)
        named, meta = _arrays(path)
        found: dict[str, dict[int, float]] = {}
        modules: set[str] = set()
        for name, values in named.items():
            if match := _ALLENNLP.fullmatch(name):
                module, place, depth, _ = match.groups()
                modules.add(module or "")
                found.setdefault(place, {})[-1 if depth is None else int(depth)] = float(values[0])
            elif match := _BILM.fullmatch(name):
                place, part = match.groups()
                row = found.setdefault(place or "", {})
                row.update({-1: float(values[0])} if part == "gamma" else dict(enumerate(values.tolist())))
        if len(modules) > 1:
            raise ModelError(
                f"{path} holds the mixes of several modules: {', '.join(sorted(modules))}.",
                remedy="Save the tensors of the one that you mean to a file of its own.",
            )
        ordered = [found[place] for place in sorted(found, key=lambda name: (len(name), name))]
        n_layers = max((len(row) for row in ordered), default=1) - 1
        if n_layers < 1 or any(sorted(row) != list(range(-1, n_layers)) for row in ordered):
            raise ModelError(
                f"{path} holds no whole mix: weights of one or more layers, and gamma, for each output.",
                remedy=_OTHER_TOOL,
            )
        norm = bool(meta.get("layer_norm", False)) if layer_norm is None else layer_norm
        mix = cls(n_layers, len(ordered), layer_norm=norm, l2=l2)
        with torch.no_grad():
            for place, row in enumerate(ordered):
                mix.weights[place] = torch.tensor([row[depth] for depth in range(n_layers)])
                mix.gammas[place] = row[-1]
        return mix


def _arrays(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The small arrays of a file by name, flat, and what is said about them."""
    if path.suffix.lower() == ".safetensors":
        named, meta = load_tensors(path)
        return {name: tensor.flatten() for name, tensor in named.items() if tensor.numel()}, meta
    if path.suffix.lower() in (".hdf5", ".h5"):
        with open_arrays(path) as file:
            names = [name for name in file.names() if _BILM.fullmatch(name)]
            return {name: torch.from_numpy(np.atleast_1d(file.read(name)).ravel()) for name in names}, {}
    if path.suffix.lower() in (".th", ".pt", ".pth", ".bin"):
        named = read_state_dict(path)
        return {name: tensor.flatten() for name, tensor in named.items() if tensor.numel()}, {}
    raise ModelError(f"{path} is not a file that a mix can be read from.", remedy=_OTHER_TOOL)


def _normalised(layer: Tensor, mask: Tensor | None) -> Tensor:
    """One mean and one variance over all numbers of all words of the batch."""
    words = layer if mask is None else layer[mask.bool()]
    mean = words.mean()
    return (layer - mean) / torch.sqrt((words - mean).square().mean() + _TINY)
