"""From mixed vectors to class scores: pooling with a hidden layer, a biLSTM, or a linear model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.tasks.linear_head import LinearHead
from elmokit.tasks.settings import HeadConfig

__all__ = ["BilstmHead", "PoolHead", "make_head"]


def read_out(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, mean and last of (batch, time, 2 * dim) over each text's words, each (batch, 2 * dim).

    "Last" is where each direction has read all: the forward half of the last word, the backward
    half of the first.
    """
    lengths = mask.sum(dim=1)
    inside = mask.unsqueeze(2)
    highest = x.masked_fill(~inside, torch.finfo(x.dtype).min).amax(dim=1)
    mean = (x * inside).sum(dim=1) / lengths.unsqueeze(1)
    half = x.shape[2] // 2
    rows = torch.arange(len(x))
    last = torch.cat([x[rows, lengths - 1, :half], x[:, 0, half:]], dim=1)
    return highest, mean, last


class PoolHead(nn.Module):
    """Maximum, mean and last over the words, a hidden layer, class scores."""

    def __init__(self, config: HeadConfig, dim: int, n_classes: int) -> None:
        super().__init__()
        self.dropout = config.dropout_head
        self.hidden = nn.Linear(3 * dim, config.head_dim)
        self.output = nn.Linear(config.head_dim, n_classes)

    def forward(self, x: Tensor, mask: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """(batch, time, dim), (batch, time) -> (batch, n_classes)"""
        pooled = shared_dropout(torch.cat(read_out(x, mask), dim=1), self.dropout, rng, over=None)
        hidden = shared_dropout(torch.relu(self.hidden(pooled)), self.dropout, rng, over=None)
        scores: Tensor = self.output(hidden)
        return scores


class BilstmHead(nn.Module):
    """A bidirectional LSTM over the words; the maximum and the last of its outputs, class scores."""

    def __init__(self, config: HeadConfig, dim: int, n_classes: int) -> None:
        super().__init__()
        self.dropout, width = config.dropout_head, config.head_dim
        widths = [dim] + [2 * width] * (config.head_layers - 1)
        self.ahead = nn.ModuleList(nn.LSTM(size, width) for size in widths)
        self.behind = nn.ModuleList(nn.LSTM(size, width) for size in widths)
        self.output = nn.Linear(4 * width, n_classes)

    def forward(self, x: Tensor, mask: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """(batch, time, dim), (batch, time) -> (batch, n_classes)"""
        n_rows, n_time = mask.shape
        lengths, steps = mask.sum(dim=1), torch.arange(n_time).unsqueeze(1)
        # Each text is turned round within its own length, so that padding always comes last.
        mirror = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (time, batch)
        places = (mirror * n_rows + torch.arange(n_rows)).flatten()

        def turned(y: Tensor) -> Tensor:
            return y.flatten(0, 1).index_select(0, places).view(y.shape)

        for ahead, behind in zip(self.ahead, self.behind, strict=True):
            steps_first = shared_dropout(x, self.dropout, rng, over=1).transpose(0, 1).contiguous()
            there, _ = ahead(steps_first)
            back, _ = behind(turned(steps_first))
            x = torch.cat([there, turned(back)], dim=2).transpose(0, 1)  # (batch, time, 2 * width)
        highest, _, last = read_out(x, mask)
        read = shared_dropout(torch.cat([highest, last], dim=1), self.dropout, rng, over=None)
        scores: Tensor = self.output(read)
        return scores


def make_head(config: HeadConfig, dim: int, n_classes: int) -> PoolHead | BilstmHead | LinearHead:
    """The head that ``config`` asks for, over vectors of width ``dim``."""
    if config.head == "linear":
        return LinearHead(dim, n_classes)
    return (PoolHead if config.head == "pool" else BilstmHead)(config, dim, n_classes)
