"""Where each array of a published weight file belongs in our model: a table for each format.

In ``weights.hdf5`` LSTM columns are in the order input, candidate, forget, output; ours are input, forget,
candidate, output. Its programs add 1 to the forget gate at run time, so our bias is one higher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.bilm.settings import BilmConfig
from elmokit.text.vocabulary import N_CHARACTERS

Floats = npt.NDArray[np.float32]
WORD_TABLE, CHAR_TABLE = "word_emb_layer.embedding.weight", "char_emb_layer.embedding.weight"
_GATES = [0, 2, 1, 3]  # swaps the two middle gates, so it is its own inverse


@dataclass(frozen=True)
class Entry:
    """One array of a published file, and our parameters that hold the same numbers.

    Attributes:
        read: From the array to the values of each parameter.
        write: The inverse.
    """

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    read: Callable[[Floats], Sequence[Floats]] = lambda values: (values,)
    write: Callable[..., Floats] = lambda values: values


def _read_lstm(kernel: Floats) -> Sequence[Floats]:
    """(2 dim, 4 hidden) -> input and recurrent weights, each (4 hidden, dim)"""
    dim, cells = kernel.shape[0] // 2, kernel.shape[1]
    gates = kernel.reshape(2, dim, 4, cells // 4)[:, :, _GATES]
    return list(gates.transpose(0, 2, 3, 1).reshape(2, cells, dim))


def _write_lstm(input_weight: Floats, recurrent_weight: Floats) -> Floats:
    """Twice (4 hidden, dim) -> (2 dim, 4 hidden)"""
    cells, dim = input_weight.shape
    gates = np.stack([input_weight, recurrent_weight]).reshape(2, 4, cells // 4, dim)[:, _GATES]
    return gates.transpose(0, 3, 1, 2).reshape(2 * dim, cells)


def _read_bias(bias: Floats) -> Sequence[Floats]:
    gates = bias.reshape(4, -1)[_GATES]
    gates[1] += 1.0
    return (gates.reshape(-1),)


def _write_bias(bias: Floats) -> Floats:
    gates = bias.reshape(4, -1)[_GATES]
    gates[2] -= 1.0
    return gates.reshape(-1)


def _read_highway(both: Floats) -> Sequence[Floats]:
    """Change and gate; their gate lets the input through, ours the change."""
    change, gate = np.split(both, 2)
    return change, -gate


_TRANSPOSED = (lambda values: (values.T,), lambda values: values.T)
_FILTER = (lambda kernel: (kernel[0],), lambda weight: weight[None])
_CHARACTERS = (  # row 0 of ours stands for "no character"
    lambda table: (np.concatenate([np.zeros_like(table[:1]), table]),),
    lambda weight: weight[1:],
)


def official_layout(config: BilmConfig, n_words: int) -> list[Entry]:
    """All datasets of a model of this shape; ``n_words`` is the number of rows of a word table."""
    dim, hidden = config.dim, config.hidden_dim
    entries = [Entry("embedding", (n_words, dim), ("encoder.weight",))]
    if config.input == "char":
        entries = _official_characters(config)
    for direction, stack in enumerate(("forward_stack", "backward_stack")):
        for depth in range(config.n_layers):
            theirs = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
            ours = f"{stack}.layers.{depth}"
            weights = (f"{ours}.input_weight", f"{ours}.recurrent_weight")
            entries += [
                Entry(f"{theirs}/W_0", (2 * dim, 4 * hidden), weights, _read_lstm, _write_lstm),
                Entry(f"{theirs}/B", (4 * hidden,), (f"{ours}.bias",), _read_bias, _write_bias),
            ]
            if hidden != dim:
                entries.append(Entry(f"{theirs}/W_P_0", (hidden, dim), (f"{ours}.projection",), *_TRANSPOSED))
    return entries


def _official_characters(config: BilmConfig) -> list[Entry]:
    width, char_dim = sum(count for _, count in config.filters), config.char_dim
    entries = [Entry("char_embed", (N_CHARACTERS - 1, char_dim), ("encoder.weight",), *_CHARACTERS)]

    def add(group: str, name: str, ours: str, shape: tuple[int, ...], change: Any = _TRANSPOSED) -> None:
        """Add a matrix and its bias."""
        entries.append(Entry(f"{group}/W_{name}", shape, (f"{ours}.weight",), *change))
        entries.append(Entry(f"{group}/b_{name}", shape[-1:], (f"{ours}.bias",)))

    for number, (span, count) in enumerate(config.filters):
        add("CNN", f"cnn_{number}", f"encoder.filters.{number}", (1, span, char_dim, count), _FILTER)
    for number in range(config.n_highway):
        for part in ("carry", "transform"):
            add(f"CNN_high_{number}", part, f"encoder.highways.{number}.{part}", (width, width))
    if width != config.dim:
        add("CNN_proj", "proj", "encoder.projection", (width, config.dim))
    return entries


def many_langs_layout(config: BilmConfig, n_rows: Mapping[str, int], word_dim: int) -> list[Entry]:
    """All tensors of an ELMoForManyLangs model.

    Gates are in our order and forget biases complete. What has no parameters here is combined by the loader.

    Args:
        n_rows: Rows of the word table and the character table, under their names; none for no table.
        word_dim: Width of the word table, 0 for none.
    """
    dim, hidden, char_dim = config.dim, config.hidden_dim, config.char_dim
    parts = {
        "input_linearity.weight": ("input_weight", (4 * hidden, dim)),
        "state_linearity.weight": ("recurrent_weight", (4 * hidden, dim)),
        "state_linearity.bias": ("bias", (4 * hidden,)),
        "state_projection.weight": ("projection", (dim, hidden)),
    }
    entries = [
        Entry(f"{direction}_layer_{depth}.{theirs}", shape, (f"{direction}_stack.layers.{depth}.{ours}",))
        for direction in ("forward", "backward")
        for depth in range(config.n_layers)
        for theirs, (ours, shape) in parts.items()
    ]
    filters = config.filters if CHAR_TABLE in n_rows else ()
    width = sum(count for _, count in filters)
    widths = {WORD_TABLE: word_dim, CHAR_TABLE: char_dim}
    entries += [Entry(name, (count, widths[name])) for name, count in n_rows.items()]
    entries += [Entry("projection.weight", (dim, word_dim + width)), Entry("projection.bias", (dim,))]
    for number, (span, count) in enumerate(filters):
        theirs, ours = f"convolutions.{number}", f"encoder.filters.{number}"
        entries += [
            Entry(f"{theirs}.weight", (count, char_dim, span), (f"{ours}.weight",), *_TRANSPOSED),
            Entry(f"{theirs}.bias", (count,), (f"{ours}.bias",)),
        ]
    for number in range(config.n_highway if filters else 0):
        ours = f"encoder.highways.{number}"
        for part, shape in (("weight", (2 * width, width)), ("bias", (2 * width,))):
            names = (f"{ours}.transform.{part}", f"{ours}.carry.{part}")
            entries.append(Entry(f"highways._layers.{number}.{part}", shape, names, _read_highway))
    return entries
