"""LSTM layers in int8: weights as bytes, activations as bytes for the moment of each product.

``benchmarks/embed_speed.py`` measures what that gains on a CPU, and docs/performance.md what it costs.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmLayer
from elmokit.bilm.model import Bilm
from elmokit.errors import ConfigError

__all__ = ["QuantisedLstmLayer", "quantise"]


class QuantisedLstmLayer(nn.Module):
    """An ``LstmLayer`` without projection and clipping, for reading only."""

    def __init__(self, layer: LstmLayer) -> None:
        super().__init__()
        self.dim, self.hidden_dim = layer.dim, layer.hidden_dim
        zeros = torch.zeros_like(layer.bias)
        self._cell = torch.ops.quantized.make_quantized_cell_params_dynamic(
            _packed(layer.input_weight, layer.bias), _packed(layer.recurrent_weight, zeros),
            layer.bias.detach(), zeros, True,
        )  # fmt: skip

    def zero_state(self, n_rows: int) -> LayerState:
        """The state before the first step."""
        return torch.zeros(n_rows, self.dim), torch.zeros(n_rows, self.hidden_dim)

    def forward(
        self,
        x: Tensor,
        state: LayerState,
        lengths: Tensor | None = None,
        weight_dropout: float = 0.0,
        rng: torch.Generator | None = None,
    ) -> tuple[Tensor, LayerState]:
        """(time, batch, dim) -> (time, batch, dim) and the state after the last step."""
        if lengths is not None:
            raise ConfigError(
                "An int8 model does not keep the state of texts of different lengths.",
                remedy="Load it without quantize for state='stateful'.",
            )
        hx = [part.unsqueeze(0).contiguous() for part in state]
        y, h, c = torch.quantized_lstm(
            x.contiguous(),
            hx,
            [self._cell],
            True,
            1,
            0.0,
            False,
            False,
            False,
            dtype=torch.qint8,
            use_dynamic=True,
        )
        return y, (h[0], c[0])


def _packed(weight: Tensor, bias: Tensor) -> torch.ScriptObject:
    """A matrix as bytes, each row with a scale of its own."""
    weight = weight.detach()
    scales = weight.abs().amax(dim=1).clamp(min=1e-8).double() / 127
    rows = torch.quantize_per_channel(
        weight, scales, torch.zeros_like(scales, dtype=torch.long), 0, torch.qint8
    )
    return cast(torch.ScriptObject, torch.ops.quantized.linear_prepack(rows, bias.detach()))


def quantise(model: Bilm) -> None:
    """Turn a model's LSTM layers into int8 ones, in place. It can no longer be trained or saved."""
    for stack in (model.forward_stack, model.backward_stack):
        for depth, layer in enumerate(stack.layers):
            if not cast(LstmLayer, layer).fused:
                raise ConfigError(
                    "Models with projection or clipping cannot be turned into int8.",
                    remedy="Load it without quantize.",
                )
            stack.layers[depth] = QuantisedLstmLayer(cast(LstmLayer, layer))
