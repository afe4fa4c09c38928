"""Where each dataset of a published ELMo weight file belongs in our model: one table, read both ways.

Their LSTM columns are in the order input, candidate, forget, output; ours are input, forget, candidate,
output. They add 1 to the forget gate at run time, so our bias is one higher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.bilm.settings import BilmConfig
from elmokit.text.vocabulary import N_CHARACTERS

Floats = npt.NDArray[np.float32]
_GATES = [0, 2, 1, 3]  # swaps the two middle gates, so it is its own inverse


@dataclass(frozen=True)
class Transform:
    """How a dataset becomes one or more of our parameters, and back."""

    read: Callable[[Floats], tuple[Floats, ...]]
    write: Callable[..., Floats]


def _read_lstm(kernel: Floats) -> tuple[Floats, ...]:
    """(2 dim, 4 hidden) -> input and recurrent weights, each (4 hidden, dim)"""
    dim, hidden = kernel.shape[0] // 2, kernel.shape[1] // 4
    gates = kernel.reshape(2, dim, 4, hidden)[:, :, _GATES]
    return tuple(np.ascontiguousarray(gates.transpose(0, 2, 3, 1)).reshape(2, 4 * hidden, dim))


def _write_lstm(input_weight: Floats, recurrent_weight: Floats) -> Floats:
    """Twice (4 hidden, dim) -> (2 dim, 4 hidden)"""
    cells, dim = input_weight.shape
    gates = np.stack([input_weight, recurrent_weight]).reshape(2, 4, cells // 4, dim)[:, _GATES]
    return np.ascontiguousarray(gates.transpose(0, 3, 1, 2)).reshape(2 * dim, cells)


def _read_bias(bias: Floats) -> tuple[Floats, ...]:
    gates = bias.reshape(4, -1)[_GATES]
    gates[1] += 1.0
    return (gates.reshape(-1),)


def _write_bias(bias: Floats) -> Floats:
    gates = bias.reshape(4, -1)[_GATES]
    gates[2] -= 1.0
    return gates.reshape(-1)


def _transpose(values: Floats) -> Floats:
    return np.ascontiguousarray(values.T)


_SAME = Transform(lambda values: (values,), lambda values: values)
_TRANSPOSED = Transform(lambda values: (_transpose(values),), _transpose)
_FILTER = Transform(lambda kernel: (kernel[0],), lambda weight: weight[None])
_CHARACTERS = Transform(  # row 0 of ours stands for "no character"
    lambda table: (np.concatenate([np.zeros_like(table[:1]), table]),), lambda weight: weight[1:]
)
_LSTM = Transform(_read_lstm, _write_lstm)
_BIAS = Transform(_read_bias, _write_bias)


@dataclass(frozen=True)
class Entry:
    """One dataset of a published file, and our parameters that hold the same numbers."""

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    transform: Transform = _SAME


def cell(direction: int, depth: int) -> str:
    """The group of an LSTM layer; direction 0 is forward, 1 backward."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"


def layout(config: BilmConfig, n_words: int) -> list[Entry]:
    """All datasets of a model of this shape; ``n_words`` is the number of rows of a word table."""
    if config.input == "char":
        entries = _characters(config)
    else:
        entries = [Entry("embedding", (n_words, config.dim), ("encoder.weight",))]
    dim, hidden = config.dim, config.hidden_dim
    for direction, stack in enumerate(("forward_stack", "backward_stack")):
        for depth in range(config.n_layers):
            theirs, ours = cell(direction, depth), f"{stack}.layers.{depth}"
            weights = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
            entries += [
                Entry(f"{theirs}/W_0", (2 * dim, 4 * hidden), weights, _LSTM),
                Entry(f"{theirs}/B", (4 * hidden,), (f"{ours}.bias",), _BIAS),
            ]
            if hidden != dim:
                entries.append(Entry(f"{theirs}/W_P_0", (hidden, dim), (f"{ours}.projection",), _TRANSPOSED))
    return entries


def _characters(config: BilmConfig) -> list[Entry]:
    width, char_dim = sum(count for _, count in config.filters), config.char_dim
    entries = [Entry("char_embed", (N_CHARACTERS - 1, char_dim), ("encoder.weight",), _CHARACTERS)]
    for number, (span, count) in enumerate(config.filters):
        ours = f"encoder.filters.{number}"
        entries += [
            Entry(f"CNN/W_cnn_{number}", (1, span, char_dim, count), (f"{ours}.weight",), _FILTER),
            Entry(f"CNN/b_cnn_{number}", (count,), (f"{ours}.bias",)),
        ]
    for number in range(config.n_highway):
        for part in ("carry", "transform"):
            ours = f"encoder.highways.{number}.{part}"
            entries += [
                Entry(f"CNN_high_{number}/W_{part}", (width, width), (f"{ours}.weight",), _TRANSPOSED),
                Entry(f"CNN_high_{number}/b_{part}", (width,), (f"{ours}.bias",)),
            ]
    if width != config.dim:
        entries += [
            Entry("CNN_proj/W_proj", (width, config.dim), ("encoder.projection.weight",), _TRANSPOSED),
            Entry("CNN_proj/b_proj", (config.dim,), ("encoder.projection.bias",)),
        ]
    return entries
