"""Heads of the classification task: pooling with a hidden layer, a biLSTM, logistic regression."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Labels, Output

_STEPS = 1000
_RARE = -14.0  # score of a class without rows: a probability of about one in a million
_TINY = 1e-6


class Head(nn.Module):
    """Turns the mixed vectors of a batch into a task's output."""

    reads_edges: ClassVar[bool] = True
    """False for heads over words: they get no vectors of ``<s>`` and ``</s>``."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__()

    def forward(
        self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: torch.Generator | None = None
    ) -> Output:
        """Vectors (batch, time, dim) and masks (batch, time) of each field.

        Args:
            rng: Generator for dropout; None disables it.
        """
        raise NotImplementedError


def read_out(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, mean and last of (batch, time, 2 * dim) over each text's words, each (batch, 2 * dim).

    "Last" is where each direction has read everything: the forward half of the last word, the backward
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


class PoolHead(Head):
    """Maximum, mean and last over the words, a hidden layer, class scores."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.dropout = config.dropout_head
        self.hidden = nn.Linear(3 * dim, config.head_dim)
        self.output = nn.Linear(config.head_dim, len(labels))

    def forward(
        self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: torch.Generator | None = None
    ) -> Tensor:
        """Class scores, (batch, n_classes)."""
        pooled = torch.cat(read_out(mixed[0], masks[0]), dim=1)
        pooled = shared_dropout(pooled, self.dropout, rng, over=None)
        hidden = shared_dropout(torch.relu(self.hidden(pooled)), self.dropout, rng, over=None)
        scores: Tensor = self.output(hidden)
        return scores


class BilstmHead(Head):
    """A bidirectional LSTM over the words; the maximum and the last of its outputs, class scores."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.dropout, width = config.dropout_head, config.head_dim
        widths = [dim] + [2 * width] * (config.head_layers - 1)
        # Model files have these two names; ``forward`` is taken.
        self.ahead = nn.ModuleList(nn.LSTM(size, width) for size in widths)
        self.behind = nn.ModuleList(nn.LSTM(size, width) for size in widths)
        self.output = nn.Linear(4 * width, len(labels))

    def forward(
        self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: torch.Generator | None = None
    ) -> Tensor:
        """Class scores, (batch, n_classes)."""
        x, mask = mixed[0], masks[0]
        n_rows, n_time = mask.shape
        lengths, steps = mask.sum(dim=1), torch.arange(n_time).unsqueeze(1)
        # Each text is reversed within its own length, so that padding always comes last.
        mirror = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (time, batch)
        places = (mirror * n_rows + torch.arange(n_rows)).flatten()

        def reverse(y: Tensor) -> Tensor:
            return y.flatten(0, 1).index_select(0, places).view(y.shape)

        for ahead, behind in zip(self.ahead, self.behind, strict=True):
            steps_first = shared_dropout(x, self.dropout, rng, over=1).transpose(0, 1).contiguous()
            forward, _ = ahead(steps_first)
            backward, _ = behind(reverse(steps_first))
            x = torch.cat([forward, reverse(backward)], dim=2).transpose(0, 1)  # (batch, time, 2 * width)
        highest, _, last = read_out(x, mask)
        pooled = shared_dropout(torch.cat([highest, last], dim=1), self.dropout, rng, over=None)
        scores: Tensor = self.output(pooled)
        return scores


class LinearHead(Head):
    """Logistic regression on the mean over a text's words: what a few dozen labels can support.

    The mean is centered, and all its numbers are divided by one spread. The weights are the minimum of a
    convex function, so no seed matters; ``solve`` finds it.
    """

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.centre = nn.Parameter(torch.zeros(dim), requires_grad=False)  # a name in model files
        self.spread = nn.Parameter(torch.ones(()), requires_grad=False)
        self.output = nn.Linear(dim, len(labels))

    def forward(
        self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: torch.Generator | None = None
    ) -> Tensor:
        """Class scores, (batch, n_classes)."""
        return self.scores(mean_over_words(mixed[0], masks[0]))

    def scores(self, features: Tensor) -> Tensor:
        """From means over the words, (batch, dim), to class scores, (batch, n_classes)."""
        scores: Tensor = self.output((features - self.centre) / self.spread)
        return scores

    @torch.no_grad()
    def solve(
        self, features: Tensor, targets: npt.NDArray[Any], *, l2: float, weights: npt.NDArray[Any]
    ) -> bool:
        """Fit to means over the words; False if the solver did not converge.

        Args:
            features: (n_texts, dim).
            targets: Class numbers (n_texts,), or ones and zeros (n_texts, n_classes).
            l2: Half of this times the squared weights is added to the mean loss.
            weights: How much each text counts, (n_texts,), 1 on average.
        """
        self.centre.copy_(features.mean(dim=0))
        self.spread.copy_(features.var(dim=0, correction=0).mean().sqrt().clamp(min=_TINY))
        x = ((features - self.centre) / self.spread).double().numpy()
        n_classes = len(self.output.weight)
        if targets.ndim == 1:
            weight, bias, converged = fit_logistic(x, targets, n_classes, l2=l2, weights=weights)
        else:
            solved = [fit_logistic(x, column, 1, l2=l2, weights=weights) for column in targets.T.astype(int)]
            weight, bias = (np.concatenate([part[place] for part in solved]) for place in (0, 1))
            converged = all(part[2] for part in solved)
        self.output.weight.copy_(torch.from_numpy(weight))
        self.output.bias.copy_(torch.from_numpy(bias))
        return converged


def mean_over_words(x: Tensor, mask: Tensor) -> Tensor:
    """(batch, time, dim), (batch, time) -> (batch, dim)"""
    return (x * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def fit_logistic(
    x: npt.NDArray[np.float64],
    y: npt.NDArray[Any],
    n_classes: int,
    *,
    l2: float,
    weights: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], bool]:
    """Weights (n_classes, dim) and biases (n_classes,) of a logistic regression, and whether it converged.

    Args:
        n_classes: 1 for a yes-or-no decision, which has one row of weights.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    weight, bias = np.zeros((n_classes, x.shape[1])), np.full(n_classes, _RARE)
    present = np.unique(y[weights > 0])
    if len(present) == 1:
        if n_classes == 1:
            bias[:] = _RARE if present[0] == 0 else -_RARE
        else:
            bias[present] = 0.0
        return weight, bias, True
    # Two classes share one row of weights w in scikit-learn. As rows -w/2 and w/2 they cost half as much.
    share = 2.0 if len(present) == 2 and n_classes > 1 else 1.0
    strength = share / (l2 * weights.sum()) if l2 else np.inf
    model = LogisticRegression(C=strength, tol=1e-6, max_iter=_STEPS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, y, sample_weight=weights)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    if n_classes == 1:
        return model.coef_, model.intercept_, converged
    rows, offsets = model.coef_, model.intercept_
    if len(present) == 2:
        rows, offsets = np.concatenate([-rows, rows]) / 2, np.concatenate([-offsets, offsets]) / 2
    weight[present] = rows
    bias += offsets.min()
    bias[present] = offsets
    return weight, bias, converged
