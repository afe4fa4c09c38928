"""One direction: a stack of LSTM layers that runs from left to right, state in and state out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from elmokit.bilm.settings import BilmConfig
from elmokit.core.config import DropoutConfig

LayerState = tuple[Tensor, Tensor]
"""Output h (batch, dim) and cell c (batch, hidden_dim) after the last step."""


@dataclass(frozen=True)
class SharedNoise:
    """Some of the streams that a step reads side by side, with the random numbers for all of them: a mask is
    drawn for all streams and cut, so that it is the same however they are shared out."""

    rng: torch.Generator
    part: slice
    n_streams: int


def shared_dropout(
    x: Tensor, share: float, rng: torch.Generator | SharedNoise | None, *, over: int | None = 0
) -> Tensor:
    """Dropout of a share of the numbers, with one mask for all places along the axis ``over`` (time:
    variational dropout) or, for None, a mask for all numbers. Without an ``rng`` there is no dropout."""
    if share == 0.0 or rng is None:
        return x
    shape = [1 if axis == over else size for axis, size in enumerate(x.shape)]
    if isinstance(rng, torch.Generator):
        return x * dropout_mask(shape, share, rng)
    if over is None:  # weights, which all streams share
        return x * dropout_mask(shape, share, rng.rng)
    shape[1] = rng.n_streams  # x is (time, stream, dim)
    return x * dropout_mask(shape, share, rng.rng)[:, rng.part]


def dropout_mask(shape: Sequence[int], share: float, rng: torch.Generator) -> Tensor:
    """Zero with probability ``share``, else 1 / (1 - share)."""
    keep = 1.0 - share
    return torch.empty(shape).bernoulli_(keep, generator=rng).div_(keep)


class LstmLayer(nn.Module):
    """An LSTM layer with optional projection and clipping.

    Gates are in the order input, forget, candidate, output. Without projection and clipping the fused
    kernel does the work; with them a loop over time does, after one input product for all steps.
    """

    def __init__(
        self, dim: int, hidden_dim: int, cell_clip: float | None = None, proj_clip: float | None = None
    ) -> None:
        super().__init__()
        self.dim, self.hidden_dim = dim, hidden_dim
        self.cell_clip, self.proj_clip = cell_clip, proj_clip
        self.input_weight = nn.Parameter(torch.empty(4 * hidden_dim, dim))
        self.recurrent_weight = nn.Parameter(torch.empty(4 * hidden_dim, dim))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_dim))
        projected = dim != hidden_dim
        self.projection = nn.Parameter(torch.empty(dim, hidden_dim)) if projected else None
        # Outputs that are not projected are within +-1 anyway.
        self.fused = not projected and cell_clip is None and (proj_clip is None or proj_clip >= 1.0)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for input weights, orthogonal for recurrent ones, forget gates open."""
        nn.init.xavier_uniform_(self.input_weight)
        for gate in self.recurrent_weight.detach().chunk(4):
            nn.init.orthogonal_(gate)
        with torch.no_grad():
            self.bias[self.hidden_dim : 2 * self.hidden_dim] = 1.0
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def zero_state(self, n_rows: int) -> LayerState:
        """The state before the first step."""
        return self.bias.new_zeros(n_rows, self.dim), self.bias.new_zeros(n_rows, self.hidden_dim)

    def forward(
        self,
        x: Tensor,
        state: LayerState,
        lengths: Tensor | None = None,
        weight_dropout: float = 0.0,
        rng: torch.Generator | SharedNoise | None = None,
    ) -> tuple[Tensor, LayerState]:
        """(time, batch, dim) -> (time, batch, dim) and the state after each row's last step.

        ``lengths`` (on the CPU) are the steps of each row, if they differ; outputs past a row's end are
        undefined. ``weight_dropout`` drops this share of the recurrent weights in this call.
        """
        recurrent = shared_dropout(self.recurrent_weight, weight_dropout, rng, over=None)
        if not self.fused:
            return self._loop(x, state, recurrent, lengths)
        hx = [part.unsqueeze(0) for part in state]
        weights = [self.input_weight, recurrent, self.bias, torch.zeros_like(self.bias)]
        if lengths is None:
            y, h, c = torch.lstm(x, hx, weights, True, 1, 0.0, self.training, False, False)
            return y, (h[0], c[0])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.clamp(min=1), enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        assert order is not None and back is not None  # noqa: PT018 (enforce_sorted=False)
        hx = [part.index_select(1, order) for part in hx]
        data, h, c = torch.lstm(
            packed.data, packed.batch_sizes, hx, weights, True, 1, 0.0, self.training, False
        )
        y, _ = nn.utils.rnn.pad_packed_sequence(packed._replace(data=data), total_length=len(x))
        alive = (lengths > 0).unsqueeze(1)
        h, c = h[0].index_select(0, back), c[0].index_select(0, back)
        return y, (torch.where(alive, h, state[0]), torch.where(alive, c, state[1]))

    def _loop(
        self, x: Tensor, state: LayerState, recurrent: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, LayerState]:
        h, c = state
        inputs = nn.functional.linear(x, self.input_weight, self.bias)  # (time, batch, 4 hidden)
        recurrent = recurrent.t()
        outputs = []
        for step, gates in enumerate(inputs):
            i, f, g, o = torch.addmm(gates, h, recurrent).chunk(4, dim=1)
            new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            if self.cell_clip is not None:
                new_c = new_c.clamp(-self.cell_clip, self.cell_clip)
            new_h = torch.sigmoid(o) * torch.tanh(new_c)
            if self.projection is not None:
                new_h = new_h @ self.projection.t()
            if self.proj_clip is not None:
                new_h = new_h.clamp(-self.proj_clip, self.proj_clip)
            if lengths is None:
                h, c = new_h, new_c
            else:
                alive = (step < lengths).unsqueeze(1)
                h, c = torch.where(alive, new_h, h), torch.where(alive, new_c, c)
            outputs.append(h)
        return torch.stack(outputs), (h, c)


class LstmStack(nn.Module):
    """The LSTM layers of one direction."""

    def __init__(self, config: BilmConfig) -> None:
        super().__init__()
        self.residual = config.residual
        self.layers = nn.ModuleList(
            LstmLayer(config.dim, config.hidden_dim, config.cell_clip, config.proj_clip)
            for _ in range(config.n_layers)
        )

    def zero_state(self, n_rows: int) -> list[LayerState]:
        """The state before the first step."""
        return [cast(LstmLayer, layer).zero_state(n_rows) for layer in self.layers]

    def forward(
        self,
        x: Tensor,
        state: list[LayerState],
        lengths: Tensor | None = None,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | SharedNoise | None = None,
    ) -> tuple[list[Tensor], list[LayerState]]:
        """(time, batch, dim) -> the same of every layer, and the new state."""
        rates = dropout or DropoutConfig()
        outputs: list[Tensor] = []
        new_state: list[LayerState] = []
        for depth, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            if depth:
                x = shared_dropout(x, rates.dropout_layer, rng)
            y, after = layer(x, before, lengths, rates.dropout_weight, rng)
            x = y + x if self.residual and depth else y
            outputs.append(x)
            new_state.append(after)
        return outputs, new_state
