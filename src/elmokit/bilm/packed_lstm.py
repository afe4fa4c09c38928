"""Inference for LSTM layers that the fused kernel cannot do (projection, clipping).

What makes it fast on a CPU: rows are sorted by length, so that a step has no padding; the input product of
many steps is one matrix product; recurrent and output weights are kept in oneDNN's packed layout, so that a
step need not pack them again; gates are computed in place, and tanh(x) as 2 sigmoid(2x) - 1, which is several
times faster.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmLayer, LstmStack
from elmokit.training.machine import is_mapped, release

_FEW = 6  # rows: a packed product of fewer is slower than one of six
_ROWS_AT_ONCE = 512  # in an input product: as fast as more, and less memory


def can_run_packed(stack: LstmStack) -> bool:
    """Whether to use ``run_packed``: in inference mode, for layers without the fused kernel."""
    layers = [cast(LstmLayer, layer) for layer in stack.layers]
    return torch.is_inference_mode_enabled() and not any(layer.fused for layer in layers)


def run_packed(
    stack: LstmStack, x: Tensor, lengths: Tensor, state: list[LayerState]
) -> tuple[list[Tensor], list[LayerState]]:
    """The same as ``stack(x, state, lengths)``, faster: every layer (time, batch, dim), and the state
    after each row's last step. Outputs past a row's end are zero."""
    order = torch.argsort(lengths, descending=True, stable=True)
    back = torch.argsort(order)
    rows = nn.utils.rnn.pack_padded_sequence(
        x.index_select(1, order), lengths[order].clamp(min=1), enforce_sorted=True
    )
    sizes = rows.batch_sizes.tolist()  # rows that have not ended, step by step
    data = rows.data  # (words, dim)
    alive = (lengths > 0).unsqueeze(1)
    outputs: list[Tensor] = []
    after: list[LayerState] = []
    for depth, (layer, before) in enumerate(zip(stack.layers, state, strict=True)):
        start = (before[0].index_select(0, order), before[1].index_select(0, order))
        y, ended = _run_layer(cast(LstmLayer, layer), data, sizes, start)
        data = y.add_(data) if stack.residual and depth else y
        padded, _ = nn.utils.rnn.pad_packed_sequence(rows._replace(data=data), total_length=len(x))
        outputs.append(padded.index_select(1, back))
        h, c = (
            torch.where(alive, x.index_select(0, back), old) for x, old in zip(ended, before, strict=True)
        )
        after.append((h, c))
    return outputs, after


def _run_layer(layer: LstmLayer, x: Tensor, sizes: list[int], state: LayerState) -> tuple[Tensor, LayerState]:
    """One layer over packed rows, (words, dim) -> (words, dim), and the state after each row's last step."""
    weights = _weights(layer)
    n_rows, hidden = sizes[0], layer.hidden_dim
    h = x.new_zeros(max(n_rows, _FEW), layer.dim)
    h[:n_rows] = state[0]
    c_all = state[1].clone()
    y = torch.empty_like(x)
    place = 0
    for steps in _windows(sizes):
        first = place
        inputs = weights.of_input(x[first : first + sum(steps)])  # (words, 4 hidden)
        for n in steps:
            gates = weights.of_state(h, inputs[place - first : place - first + n])  # (n, 4 hidden)
            gates[:, 2 * hidden : 3 * hidden].mul_(2.0)
            i, f, g, o = gates.sigmoid_().chunk(4, dim=1)
            c = c_all[:n]
            c.mul_(f).addcmul_(i, g, value=2.0).sub_(i)  # f c + i (2 g - 1)
            if layer.cell_clip is not None:
                c.clamp_(-layer.cell_clip, layer.cell_clip)
            out = torch.mul(c, 2.0).sigmoid_().mul_(2.0).sub_(1.0).mul_(o)
            out = weights.of_output(out)
            if layer.proj_clip is not None:
                out.clamp_(-layer.proj_clip, layer.proj_clip)
            h[:n] = out
            y[place : place + n] = out
            place += n
    return y, (h[:n_rows], c_all)


def _windows(sizes: list[int]) -> Iterator[list[int]]:
    """Steps whose rows together are few enough for one input product."""
    steps: list[int] = []
    for n in sizes:
        if steps and sum(steps) + n > _ROWS_AT_ONCE:
            yield steps
            steps = []
        steps.append(n)
    yield steps


class _Weights:
    """The matrix products of a layer; ``packed``, with the weights that every step uses packed once."""

    def __init__(self, layer: LstmLayer, *, packed: bool) -> None:
        def prepare(weight: Tensor) -> Tensor:
            result = pack(weight.detach()) if packed else weight.detach()
            if packed:
                release(weight)  # it is hardly needed anymore
            return result

        self._packed, self._linear = packed, product if packed else F.linear
        self._input, self._bias = layer.input_weight.detach(), layer.bias.detach()
        if packed and is_mapped(self._input):  # then the weight itself costs no memory
            self._input = prepare(self._input)
        self._recurrent = prepare(layer.recurrent_weight)
        self._projection = None if layer.projection is None else prepare(layer.projection)

    def of_input(self, x: Tensor) -> Tensor:
        """(n, dim) -> (n, 4 hidden)"""
        return self._linear(x, self._input, self._bias)

    def of_state(self, h: Tensor, inputs: Tensor) -> Tensor:
        """The first rows of h (rows, dim), and inputs (n, 4 hidden) -> (n, 4 hidden)"""
        n = len(inputs)
        if not self._packed:
            return torch.addmm(inputs, h[:n], self._recurrent.t())
        if n < _FEW:
            return product(h[:_FEW], self._recurrent)[:n].add_(inputs)
        return product_and_sum(h[:n], self._recurrent, inputs)

    def of_output(self, m: Tensor) -> Tensor:
        """(n, hidden) -> (n, dim)"""
        return m if self._projection is None else self._linear(m, self._projection)


_PACKED: WeakKeyDictionary[LstmLayer, tuple[list[tuple[int, int]], _Weights]] = WeakKeyDictionary()


def _weights(layer: LstmLayer) -> _Weights:
    """The layer's products; packed weights are kept until the layer changes or goes."""
    if not packing_works() or any(parameter.is_inference() for parameter in layer.parameters()):
        return _Weights(layer, packed=False)
    versions = [(parameter.data_ptr(), parameter._version) for parameter in layer.parameters()]
    if layer not in _PACKED or _PACKED[layer][0] != versions:
        _PACKED[layer] = versions, _Weights(layer, packed=True)
    return _PACKED[layer][1]


# -- matrix products by oneDNN ----------------------------------------------------------------

# torch has no public functions for these (its own compiler uses them), so they are tested before use.


def pack(weight: Tensor) -> Tensor:
    """A weight (out, in) in oneDNN's own layout, which only the products here understand."""
    return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight, 32))


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (n, in) times a weight (out, in), packed or plain -> (n, out)"""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def product_and_sum(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    """The same, with other (n, out) added to it."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, None, "add"))


@functools.cache
def packing_works() -> bool:
    """Whether these products are available here, and right."""
    if not torch.backends.mkldnn.is_available():
        return False
    rng = torch.Generator().manual_seed(0)
    x, weight, other = (torch.randn(size, generator=rng) for size in ((9, 5), (12, 5), (9, 12)))
    expected = x @ weight.t()
    try:
        packed = pack(weight)
        results = [product(x, packed), product(x, weight), product_and_sum(x, packed, other) - other]
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(result, expected, rtol=1e-4, atol=1e-5) for result in results)


def linear(x: Tensor, layer: torch.nn.Linear) -> Tensor:
    """``layer(x)``; in inference mode by the faster product."""
    if torch.is_inference_mode_enabled() and len(x) and packing_works():
        return product(x, layer.weight, layer.bias)
    return F.linear(x, layer.weight, layer.bias)
