"""Predicting the next word: full, sampled and adaptive softmax, and the exact likelihood.

Both directions share one predictor. Losses are sums over positions, in nats. The full and the sampled softmax
compute their gradients while the logits of a block are still in cache, so no matrix of positions by words is
ever kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.token_encoder import random_normal
from elmokit.core.errors import ModelError
from elmokit.text.tokenizing import PAD

_BLOCK = 1 << 18  # logits held at a time: they stay in the second-level cache
_TINY = 1e-37


def _block_rows(n_columns: int) -> int:
    return max(32, _BLOCK // max(1, n_columns))


class _FullLoss(torch.autograd.Function):
    """Sum of -log softmax(hidden @ weight.T + bias)[target], block by block."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        # hidden (n, dim), weight (words, dim), bias (words), targets (n)
        d_hidden = torch.empty_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        loss = hidden.new_zeros(())
        rows = _block_rows(len(weight))
        for h, t, dh in zip(hidden.split(rows), targets.split(rows), d_hidden.split(rows), strict=True):
            log_p = F.log_softmax(torch.addmm(bias, h, weight.t()), dim=1)  # (rows, words)
            loss -= log_p.gather(1, t.unsqueeze(1)).sum()
            p = log_p.exp_()
            p[torch.arange(len(t)), t] -= 1.0
            torch.mm(p, weight, out=dh)
            d_weight.addmm_(p.t(), h)
            d_bias += p.sum(dim=0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return (*(saved * grad for saved in ctx.saved_tensors), None)


class _SampledLoss(torch.autograd.Function):
    """Sum of -log softmax over [own target, samples] at the target, block by block."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (n, dim)
        sample_rows: Tensor,  # (samples, dim)
        sample_bias: Tensor,  # (samples), corrected
        target_rows: Tensor,  # (n, dim)
        target_bias: Tensor,  # (n), corrected
        hit: Tensor,  # (n): which sample is the target itself, or -1
    ) -> Tensor:
        n_samples = len(sample_rows)
        d_hidden, d_target = torch.empty_like(hidden), torch.empty_like(target_bias)
        d_rows, d_bias = torch.zeros_like(sample_rows), torch.zeros_like(sample_bias)
        loss = hidden.new_zeros(())
        own = (hidden * target_rows).sum(dim=1) + target_bias  # (n)
        size = _block_rows(n_samples)
        buffer = hidden.new_empty(min(size, len(hidden)), n_samples + 1)
        for first in range(0, len(hidden), size):
            block = slice(first, first + size)
            h, own_hit = hidden[block], hit[block]
            logits = buffer[: len(h)]  # (rows, samples + 1): the target's own logit comes last
            torch.addmm(sample_bias, h, sample_rows.t(), out=logits[:, :n_samples])
            logits[:, n_samples] = own[block]
            struck = (own_hit >= 0).nonzero()[:, 0]
            logits[struck, own_hit[struck]] = -math.inf
            p = torch.softmax(logits, dim=1)
            own_p, p = p[:, n_samples], p[:, :n_samples]
            loss -= own_p.clamp(min=_TINY).log().sum()
            torch.sub(own_p, 1.0, out=d_target[block])
            torch.mm(p, sample_rows, out=d_hidden[block])
            d_rows.addmm_(p.t(), h)
            d_bias += p.sum(dim=0)
        d_hidden.addcmul_(target_rows, d_target.unsqueeze(1))
        ctx.save_for_backward(hidden, d_hidden, d_rows, d_bias, d_target)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        hidden, d_hidden, d_rows, d_bias, d_target = ctx.saved_tensors
        d_target = d_target * grad
        return (d_hidden * grad, d_rows * grad, d_bias * grad, hidden * d_target.unsqueeze(1), d_target, None)


def sample_log_uniform(n_draws: int, n_words: int, rng: torch.Generator) -> Tensor:
    """The distinct ids of ``n_draws`` random draws, sorted. Ids go from 1 (the most frequent) to n_words - 1;
    id k has probability log((k + 1) / k) / log(n_words)."""
    draws = torch.rand(n_draws, dtype=torch.float64, generator=rng)
    ids = (draws * math.log(n_words)).exp().long().clamp_(1, n_words - 1)
    distinct: Tensor = ids.unique(sorted=True)
    return distinct


def log_chance(ids: Tensor, n_draws: int, n_words: int) -> Tensor:
    """log P(drawn at least once) = log(1 - (1 - q)^n_draws) for each id."""
    rank = ids.to(torch.float64)
    q = ((rank + 1) / rank).log() / math.log(n_words)
    return torch.log(-torch.expm1(n_draws * torch.log1p(-q))).float()


class Predictor(nn.Module):
    """Predicts the next word. The base class is that of models without a softmax, which have vectors only."""

    def __init__(self, n_words: int) -> None:
        super().__init__()
        self.n_words = n_words

    def scores(self, hidden: Tensor) -> Tensor:
        """What orders the words by probability, (n, words): logits or log-probabilities."""
        raise ModelError(
            "This model has no word predictor: it has no perplexity, and it cannot be trained further as a "
            "language model.",
            remedy="Published files and compact folders hold none. Embed texts with it, or fit a classifier.",
        )

    def draw(self, rng: torch.Generator) -> Tensor | None:
        """The random words that all predictions of a step are compared with, if the loss is an estimate."""
        return None

    def training_loss(self, hidden: Tensor, targets: Tensor, samples: Tensor | None = None) -> Tensor:
        """The sum to minimize over ``hidden`` (n, dim) and ``targets`` (n), with the words of ``draw``."""
        return F.cross_entropy(self.scores(hidden), targets, reduction="sum")

    @torch.no_grad()
    def exact_loss(self, hidden: Tensor, targets: Tensor) -> float:
        """The exact sum of -log P(target), whatever the training loss was."""
        blocks = self._blocks(hidden, targets)
        return sum(float((scores.logsumexp(dim=1) - own).double().sum()) for scores, own in blocks)

    @torch.no_grad()
    def ranks(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """How many words are more probable than each target, (n,)."""
        blocks = self._blocks(hidden, targets)
        return torch.cat([(scores > own.unsqueeze(1)).sum(dim=1) for scores, own in blocks])

    def _blocks(self, hidden: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """A few positions at a time: the scores of all words (rows, words), and of the targets (rows)."""
        size = _block_rows(self.n_words)
        for h, t in zip(hidden.split(size), targets.split(size), strict=True):
            scores = self.scores(h)
            yield scores, scores.gather(1, t.unsqueeze(1))[:, 0]

    def start_from_counts(self, counts: npt.NDArray[np.int64]) -> None:
        """Start from the words' frequencies, where the softmax allows it."""


class TablePredictor(Predictor):
    """A row and a bias for each word; trained with the full or the sampled softmax.

    Args:
        weight: The input table if it is shared; None for a table of its own.
    """

    def __init__(self, config: BilmConfig, n_words: int, weight: nn.Parameter | None) -> None:
        super().__init__(n_words)
        self.objective, self.n_samples = config.objective, config.n_samples
        own = random_normal(n_words, config.dim, scale=config.dim**-0.5)
        self.weight = nn.Parameter(own) if weight is None else weight
        self.bias = nn.Parameter(torch.zeros(n_words))

    def start_from_counts(self, counts: npt.NDArray[np.int64]) -> None:
        """Biases become log frequencies: the first step already knows which words are frequent."""
        shares = torch.from_numpy((counts + 0.5) / (counts.sum() + 0.5 * len(counts)))
        with torch.no_grad():
            self.bias.copy_(shares.log())
            self.bias[PAD] = -20.0

    def draw(self, rng: torch.Generator) -> Tensor | None:
        """Log-uniform samples."""
        return None if self.objective == "full" else sample_log_uniform(self.n_samples, self.n_words, rng)

    def training_loss(self, hidden: Tensor, targets: Tensor, samples: Tensor | None = None) -> Tensor:
        """Full softmax, or sampled: the samples are shared by all positions, each logit corrected by the log
        of the probability that its word is sampled at least once."""
        if samples is None:
            return _FullLoss.apply(hidden, self.weight, self.bias, targets)  # type: ignore[no-any-return, no-untyped-call]
        candidates, place = torch.cat([samples, targets]).unique(sorted=True, return_inverse=True)
        rows = F.embedding(candidates, self.weight, sparse=True)  # (candidates, dim)
        bias = self.bias.index_select(0, candidates) - log_chance(candidates, self.n_samples, self.n_words)
        of_sample, of_target = place[: len(samples)], place[len(samples) :]
        where = torch.searchsorted(samples, targets).clamp_(max=len(samples) - 1)
        hit = torch.where(samples[where] == targets, where, -1)
        # index_select, not indexing: its gradient is summed in one order, whatever the threads do.
        return _SampledLoss.apply(  # type: ignore[no-any-return, no-untyped-call]
            hidden,
            rows.index_select(0, of_sample),
            bias.index_select(0, of_sample),
            rows.index_select(0, of_target),
            bias.index_select(0, of_target),
            hit,
        )

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits."""
        return torch.addmm(self.bias, hidden, self.weight.t())


class AdaptivePredictor(Predictor):
    """Frequent words in a head, rare ones in narrower tails; exact, and cheap for large vocabularies."""

    def __init__(self, config: BilmConfig, n_words: int) -> None:
        super().__init__(n_words)
        cutoffs = [cut for cut in (2_000, 10_000, 60_000) if cut < n_words * 0.8] or [max(1, n_words // 2)]
        narrower = 4.0
        while config.dim // narrower ** len(cutoffs) < 1:
            narrower /= 2
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(config.dim, n_words, cutoffs, div_value=narrower)

    def training_loss(self, hidden: Tensor, targets: Tensor, samples: Tensor | None = None) -> Tensor:
        """The exact loss."""
        log_p: Tensor = self.softmax(hidden, targets).output
        return -log_p.sum()

    @torch.no_grad()
    def exact_loss(self, hidden: Tensor, targets: Tensor) -> float:
        """The exact loss."""
        return -float(self.softmax(hidden, targets).output.double().sum())

    def scores(self, hidden: Tensor) -> Tensor:
        """Log-probabilities."""
        return self.softmax.log_prob(hidden)


def predictor(config: BilmConfig, n_words: int, shared: nn.Parameter | None) -> Predictor:
    """The predictor that ``config`` asks for."""
    if config.objective == "none":
        return Predictor(n_words)
    if config.objective == "adaptive":
        return AdaptivePredictor(config, n_words)
    return TablePredictor(config, n_words, shared)
