"""Where each number of a published ELMo weight file stands in our model: one table, read both ways.

Their LSTM columns are in the order input, candidate, forget, output, ours in the order input, forget,
candidate, output; and they add 1 to the forget gate when they run, so that our bias is one higher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.bilm.settings import BilmConfig
from elmokit.text.vocabulary import N_CHARACTERS

__all__ = ["Entry", "cell", "layout"]

Floats = npt.NDArray[np.float32]
_GATES = (0, 2, 1, 3)  # ours is theirs at these places, and theirs is ours: the order is its own inverse


@dataclass(frozen=True)
class Entry:
    """One dataset of a published file.

    Attributes:
        name: of the dataset.
        shape: of the dataset.
        parameters: ours that hold the same numbers.
        read: the dataset to the parameters.
        write: the parameters to the dataset.
    """

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    read: Callable[[Floats], tuple[Floats, ...]]
    write: Callable[..., Floats]


def cell(direction: int, depth: int) -> str:
    """The group of an LSTM layer; direction 0 is forward, 1 backward."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"


def layout(config: BilmConfig, n_words: int) -> list[Entry]:
    """All datasets of a model of this shape; ``n_words`` counts the rows of a word table."""
    entries = _characters(config) if config.input == "char" else [_same("embedding", (n_words, config.dim))]
    for direction, stack in enumerate(("forward_stack", "backward_stack")):
        for depth in range(config.n_layers):
            entries += _lstm(cell(direction, depth), f"{stack}.layers.{depth}", config)
    return entries


def _characters(config: BilmConfig) -> list[Entry]:
    total = sum(count for _, count in config.filters)
    entries = [
        Entry(
            "char_embed",
            (N_CHARACTERS - 1, config.char_dim),
            ("encoder.weight",),
            lambda table: (np.concatenate([np.zeros_like(table[:1]), table]),),  # id 0: no character
            lambda weight: weight[1:],
        )
    ]
    for number, (width, count) in enumerate(config.filters):
        ours = f"encoder.filters.{number}"
        entries += [
            Entry(
                f"CNN/W_cnn_{number}",
                (1, width, config.char_dim, count),
                (f"{ours}.weight",),
                lambda kernel: (kernel[0],),
                lambda weight: weight[None],
            ),
            _same(f"CNN/b_cnn_{number}", (count,), f"{ours}.bias"),
        ]
    for number in range(config.n_highway):
        for part in ("carry", "transform"):
            ours = f"encoder.highways.{number}.{part}"
            entries += [
                _turned(f"CNN_high_{number}/W_{part}", (total, total), f"{ours}.weight"),
                _same(f"CNN_high_{number}/b_{part}", (total,), f"{ours}.bias"),
            ]
    if total != config.dim:
        entries += [
            _turned("CNN_proj/W_proj", (total, config.dim), "encoder.projection.weight"),
            _same("CNN_proj/b_proj", (config.dim,), "encoder.projection.bias"),
        ]
    return entries


def _lstm(theirs: str, ours: str, config: BilmConfig) -> list[Entry]:
    dim, hidden = config.dim, config.hidden_dim

    def read_weight(kernel: Floats) -> tuple[Floats, ...]:  # (2 dim, 4 hidden) -> twice (4 hidden, dim)
        found = []
        for rows in (kernel[:dim], kernel[dim:]):
            weight = np.empty((4 * hidden, dim), dtype=np.float32)
            for place, gate in enumerate(_GATES):
                weight[place * hidden : (place + 1) * hidden] = rows[:, gate * hidden : (gate + 1) * hidden].T
            found.append(weight)
        return tuple(found)

    def write_weight(input_weight: Floats, recurrent_weight: Floats) -> Floats:
        kernel = np.empty((2 * dim, 4 * hidden), dtype=np.float32)
        for start, weight in ((0, input_weight), (dim, recurrent_weight)):
            for place, gate in enumerate(_GATES):
                columns = slice(gate * hidden, (gate + 1) * hidden)
                kernel[start : start + dim, columns] = weight[place * hidden : (place + 1) * hidden].T
        return kernel

    def read_bias(bias: Floats) -> tuple[Floats, ...]:
        gates = bias.reshape(4, hidden)[list(_GATES)]
        gates[1] += 1.0
        return (gates.reshape(-1),)

    def write_bias(bias: Floats) -> Floats:
        gates = bias.reshape(4, hidden).copy()
        gates[1] -= 1.0
        return gates[list(_GATES)].reshape(-1)

    entries = [
        Entry(
            f"{theirs}/W_0",
            (2 * dim, 4 * hidden),
            (f"{ours}.input_weight", f"{ours}.recurrent_weight"),
            read_weight,
            write_weight,
        ),
        Entry(f"{theirs}/B", (4 * hidden,), (f"{ours}.bias",), read_bias, write_bias),
    ]
    if hidden != dim:
        entries.append(_turned(f"{theirs}/W_P_0", (hidden, dim), f"{ours}.projection"))
    return entries


def _same(name: str, shape: tuple[int, ...], parameter: str = "encoder.weight") -> Entry:
    return Entry(name, shape, (parameter,), lambda values: (values,), lambda values: values)


def _turned(name: str, shape: tuple[int, int], parameter: str) -> Entry:
    return Entry(
        name,
        shape,
        (parameter,),
        lambda values: (np.ascontiguousarray(values.T),),
        lambda values: np.ascontiguousarray(values.T),
    )
