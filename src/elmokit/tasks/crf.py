"""Linear-chain conditional random field: the score of a sequence of tags is a sum over its tags and steps.

All functions take a batch of sequences with a mask (batch, time), which is True for a prefix of each row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FORBIDDEN = -1e4
"""Added to the score of a step that cannot be: its probability is zero in single precision."""


class Crf(NamedTuple):
    """The scores of a batch: of each tag at each word, and of steps between tags."""

    emissions: Tensor  # (batch, time, n_tags)
    starts: Tensor  # (n_tags,), of the first tag
    steps: Tensor  # (n_tags, n_tags), from one tag to the next
    ends: Tensor  # (n_tags,), of the last tag


def score_paths(crf: Crf, tags: Tensor, mask: Tensor) -> Tensor:
    """The score of one sequence of tags (batch, time) for each row, (batch,); zero for an empty row."""
    own = crf.emissions.gather(2, tags.unsqueeze(2)).squeeze(2)  # (batch, time)
    steps = crf.steps[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
    last = tags.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
    edges = crf.starts[tags[:, 0]] + crf.ends[last]
    return (own * mask).sum(dim=1) + steps.sum(dim=1) + edges * mask[:, 0]


def log_partition(crf: Crf, mask: Tensor) -> Tensor:
    """The log of the summed exponentials of all sequences' scores, (batch,); zero for an empty row."""
    paths = crf.starts + crf.emissions[:, 0]  # (batch, n_tags): of all sequences so far that end in a tag
    for step in range(1, mask.shape[1]):
        longer = (paths.unsqueeze(2) + crf.steps).logsumexp(dim=1) + crf.emissions[:, step]
        paths = torch.where(mask[:, step : step + 1], longer, paths)
    return (paths + crf.ends).logsumexp(dim=1) * mask[:, 0]


def negative_log_likelihood(crf: Crf, tags: Tensor, mask: Tensor) -> Tensor:
    """Of the true tags (batch, time), (batch,)."""
    return log_partition(crf, mask) - score_paths(crf, tags, mask)


def marginals(crf: Crf, mask: Tensor) -> Tensor:
    """The probability of each tag at each word, (batch, time, n_tags), by the forward and backward passes.

    Sums of probabilities, scaled at every word, instead of logarithms: several times as fast.
    """
    local = torch.where(mask.unsqueeze(2), _exp(crf.emissions), torch.ones((), dtype=torch.float64))
    starts, steps, ends = _exp(crf.starts), _exp(crf.steps), _exp(crf.ends)
    left = [starts * local[:, 0]]  # of all that comes before each word, with the word
    right = [ends.expand_as(left[0])]  # of all that comes after each word
    for step in range(1, mask.shape[1]):
        before, after = left[-1], right[-1] * local[:, -step]
        inside, last = mask[:, step : step + 1], mask[:, -step].unsqueeze(1)
        left.append(_scale(torch.where(inside, before @ steps, before) * local[:, step]))
        right.append(_scale(torch.where(last, after @ steps.T, right[-1])))
    shares = torch.stack(left, dim=1) * torch.stack(right[::-1], dim=1)
    return ((shares / shares.sum(dim=2, keepdim=True)) * mask.unsqueeze(2)).to(crf.emissions.dtype)


def _exp(scores: Tensor) -> Tensor:
    """In double precision, up to a factor; never zero, so that no sum is."""
    scores = scores.double()
    largest = scores.amax(dim=-1, keepdim=True) if scores.ndim == 3 else scores.max()
    return (scores - largest).exp().clamp(min=1e-100)


def _scale(sums: Tensor) -> Tensor:
    return sums / sums.sum(dim=1, keepdim=True)


def best_paths(crf: Crf, mask: Tensor) -> Tensor:
    """The sequence of tags with the highest score, (batch, time); zeros after the end of a row."""
    best = crf.starts + crf.emissions[:, 0]  # (batch, n_tags): of the best sequence that ends in a tag
    stay = torch.arange(best.shape[1]).expand_as(best)
    origins = []
    for step in range(1, mask.shape[1]):
        inside = mask[:, step : step + 1]
        longer, origin = (best.unsqueeze(2) + crf.steps).max(dim=1)
        best = torch.where(inside, longer + crf.emissions[:, step], best)
        origins.append(torch.where(inside, origin, stay))
    tags = [(best + crf.ends).argmax(dim=1, keepdim=True)]
    for origin in reversed(origins):
        tags.append(origin.gather(1, tags[-1]))
    return torch.cat(tags[::-1], dim=1) * mask
