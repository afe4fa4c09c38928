"""Logistic regression on the mean over a text's words: what a few dozen labels can bear.

Nothing is left to chance: the weights are the minimum of a convex function, found by L-BFGS.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["LinearHead", "mean_over_words", "minimised"]

_STEPS = 100


class LinearHead(nn.Module):
    """The mean over the words, brought to mean 0 and, all numbers alike, to spread 1, and class scores."""

    def __init__(self, dim: int, n_classes: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(dim), requires_grad=False)
        self.spread = nn.Parameter(torch.ones(()), requires_grad=False)
        self.output = nn.Linear(dim, n_classes)

    def forward(self, x: Tensor, mask: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """(batch, time, dim), (batch, time) -> (batch, n_classes)"""
        scores: Tensor = self.output((mean_over_words(x, mask) - self.centre) / self.spread)
        return scores


def mean_over_words(x: Tensor, mask: Tensor) -> Tensor:
    """(batch, time, dim), (batch, time) -> (batch, dim)"""
    return (x * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def minimised(
    features: Tensor, wanted: Tensor, n_classes: int, *, l2: float, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (n_classes, dim) and biases (n_classes,) of a logistic regression.

    They minimise the mean loss plus ``l2 / 2`` times the squared norm of the weights.

    Args:
        features: (n_texts, dim).
        wanted: class numbers, (n_texts,), or ones and zeros, (n_texts, n_classes).
        n_classes: as it says.
        l2: as said above.
        weights: how much each text counts, (n_texts,), 1 on average.
    """
    x, shares = features.double(), weights.double()
    weight = torch.zeros(n_classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(n_classes, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        scores = x @ weight.t() + bias
        if wanted.ndim == 1:
            losses = F.cross_entropy(scores, wanted, reduction="none")
        else:
            losses = F.binary_cross_entropy_with_logits(scores, wanted.double(), reduction="none").sum(dim=1)
        total = (losses * shares).mean() + l2 / 2 * weight.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimiser.step(loss)
    return weight.detach().float(), bias.detach().float()
