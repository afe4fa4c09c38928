"""Heads of the classification task: pooling with a hidden layer, a biLSTM, logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ConfigError
from elmokit.core.threads import side_by_side
from elmokit.tasks.layer_cache import LayerSource
from elmokit.tasks.logistic import Design, solve
from elmokit.tasks.model import Network
from elmokit.tasks.settings import ClassifierConfig, HeadConfig
from elmokit.tasks.task import AnyTask, Examples, Labels, Output, validation_scores
from elmokit.vectors.mix import make_mix

_TINY = 1e-6
_L2_FACTORS = (1.0, 0.1, 0.01, 0.001)  # times the penalty given, where there are rows to choose by

Rng = torch.Generator | None


class Head(nn.Module):
    """Turns the mixed vectors of a batch into a task's output; a text may have no word."""

    directional = True  # the vectors are [forward; backward]
    reads_sentences = False  # ``forward`` also takes sentence vectors, ``__init__`` their width

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__()
        self.dropout = config.dropout_head

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        """Takes vectors (batch, time, dim) and masks (batch, time) of each field; no ``rng``, no dropout."""
        raise NotImplementedError


def mean_over_words(x: Tensor, mask: Tensor) -> Tensor:
    """(batch, time, dim), (batch, time) -> (batch, dim)"""
    return (x * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def read_out(x: Tensor, mask: Tensor, *, directional: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, mean and last of (batch, time, dim) over each text's words, each (batch, dim).

    "Last" is where each direction has read everything: the forward half of the last word, the backward
    half of the first; if vectors have no directions, the last word. All are zero for a text without words.
    """
    lengths = mask.sum(dim=1)
    empty = (lengths == 0).unsqueeze(1)
    highest = x.masked_fill(~mask.unsqueeze(2), torch.finfo(x.dtype).min).amax(dim=1)
    half, rows = x.shape[2] // (2 if directional else 1), torch.arange(len(x))
    last = torch.cat([x[rows, lengths - 1, :half], x[:, 0, half:]], dim=1)
    return highest.masked_fill(empty, 0.0), mean_over_words(x, mask), last.masked_fill(empty, 0.0)


class PoolHead(Head):
    """Maximum, mean and last over the words, a hidden layer, class scores (batch, n_classes)."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.hidden = nn.Linear(3 * dim, config.head_dim)
        self.output = nn.Linear(config.head_dim, len(labels))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        pooled = torch.cat(read_out(mixed[0], masks[0], directional=self.directional), dim=1)
        pooled = shared_dropout(pooled, self.dropout, rng, over=None)
        return self.output(shared_dropout(torch.relu(self.hidden(pooled)), self.dropout, rng, over=None))


class BilstmHead(Head):
    """A bidirectional LSTM over the words; the maximum and the last of its outputs, class scores."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        widths = [dim] + [2 * config.head_dim] * (config.head_layers - 1)
        # Model files have these two names; ``forward`` is taken.
        self.ahead = nn.ModuleList(nn.LSTM(width, config.head_dim) for width in widths)
        self.behind = nn.ModuleList(nn.LSTM(width, config.head_dim) for width in widths)
        self.output = nn.Linear(4 * config.head_dim, len(labels))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        highest, _, last = read_out(self.read(mixed[0], masks[0], rng), masks[0])
        return self.output(shared_dropout(torch.cat([highest, last], dim=1), self.dropout, rng, over=None))

    def read(self, x: Tensor, mask: Tensor, rng: Rng) -> Tensor:
        """(batch, time, dim) -> (batch, time, 2 * head_dim)"""
        n_rows, n_time = mask.shape
        lengths, steps = mask.sum(dim=1), torch.arange(n_time).unsqueeze(1)
        # Each text is reversed within its own length, so that padding always comes last.
        mirror = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (time, batch)
        places = (mirror * n_rows + torch.arange(n_rows)).flatten()

        def reverse(y: Tensor) -> Tensor:
            return y.flatten(0, 1).index_select(0, places).view(y.shape)

        def run(lstm: nn.Module, order: Callable[[Tensor], Tensor], steps_first: Tensor) -> Tensor:
            outputs: Tensor = lstm(order(steps_first))[0]
            return order(outputs)

        for forward, backward in zip(self.ahead, self.behind, strict=True):
            steps_first = shared_dropout(x, self.dropout, rng, over=1).transpose(0, 1).contiguous()
            parts = [partial(run, forward, lambda y: y), partial(run, backward, reverse)]
            x = torch.cat(side_by_side(parts, steps_first), dim=2).transpose(0, 1)  # (batch, time, 2 * width)
        return x


class LinearHead(Head):
    """Logistic regression on the mean over a text's words: what a few dozen labels can support.

    The mean is centered, and all its numbers are divided by one spread. ``fit_linear`` finds the weights:
    the minimum of a convex function, so no seed matters.
    """

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.centre = nn.Parameter(torch.zeros(dim), requires_grad=False)  # a name in model files
        self.spread = nn.Parameter(torch.ones(()), requires_grad=False)
        self.output = nn.Linear(dim, len(labels))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        return self.scores(mean_over_words(mixed[0], masks[0]))

    def scores(self, features: Tensor) -> Output:
        """From means over the words, (batch, dim), to class scores, (batch, n_classes)."""
        return self.output((features - self.centre) / self.spread)


@torch.no_grad()
def fit_linear(
    task: AnyTask,
    parts: Sequence[Examples],
    sources: Sequence[LayerSource],
    config: ClassifierConfig,
    weights: Tensor,
    reporter: Reporter,
) -> tuple[Network, list[dict[str, float]]]:
    """A network with a linear head, and the scores of all that was tried.

    With validation rows (a second part), mix and penalty are chosen by them: each layer alone, all layers
    equally, and penalties down to a thousandth. Without them the top layer and the given penalty are used.
    Given or frozen weights of a mix stay as they are.
    """
    if config.fit.finetune or config.mix.mix == "function":
        flag = "--finetune" if config.fit.finetune else "--mix function"
        raise ConfigError(
            f"The linear head does not support {flag}.", remedy="Use --head pool or --head bilstm."
        )
    train, encoder, chooses = parts[0], sources[0].encoder, len(parts) > 1
    several, counted = train.targets.ndim == 2, weights.double().numpy()
    targets = train.targets.astype(float) if several else np.eye(len(train.labels))[train.targets]
    with reporter.counting("Computing layers", total=sum(map(len, parts)), unit="texts") as advance:
        pooled = [_pool(source, config, advance) for source in sources]
    history: list[dict[str, float]] = []
    ranked: list[tuple[float, Network]] = []
    for candidate in _candidate_mixes(encoder.n_layers, config, choose=chooses):
        mix = make_mix(candidate.mix, encoder.n_layers, encoder.dim, config.fit.seed)
        features = [mix.mixed(list(part)) for part in pooled]  # the mean of a mix is the mix of the means
        centre = features[0].mean(dim=0)
        spread = features[0].var(dim=0, correction=0).mean().sqrt().clamp(min=_TINY)
        design = Design.of(((features[0] - centre) / spread).double().numpy())
        for l2 in (factor * config.fit.l2 for factor in (_L2_FACTORS if chooses else _L2_FACTORS[:1])):
            strength = 1 / (l2 * counted.sum()) if l2 else np.inf
            solution = design.unrotate(solve(design, targets, counted, strength, several=several))
            weight, bias = map(torch.from_numpy, solution)
            bias = bias if several else bias - bias.mean()  # which changes no probability
            network = Network(task, candidate, encoder.n_layers, encoder.dim, train.labels)
            head, step, scores = cast(LinearHead, network.head), len(history) + 1, {"score": 0.0}
            head.load_state_dict(
                {"centre": centre, "spread": spread, "output.weight": weight, "output.bias": bias}
            )
            if chooses:
                output = head.scores(features[1])
                losses = task.loss(output, parts[1].targets)
                scores = validation_scores(task, parts[1], task.decode(output, [], train.labels), losses)
            ranked.append((scores.pop("score"), network))
            history.append({"step": step, "epoch": step, "l2": l2, **mix.values(), **scores})
    return min(ranked, key=lambda entry: entry[0])[1], history


def _candidate_mixes(n_layers: int, config: ClassifierConfig, *, choose: bool) -> list[ClassifierConfig]:
    """The settings with each mix to try."""
    if config.mix.mix == "frozen" or config.mix.mix_weights or n_layers == 1:
        return [config]
    rows = [*np.eye(n_layers)[::-1].tolist(), [1 / n_layers] * n_layers]  # the top layer first
    texts = [",".join(f"{weight:.6g}" for weight in row) for row in (rows if choose else rows[:1])]
    mixes = [replace(config.mix, mix="frozen", mix_form="raw", mix_weights=text) for text in texts]
    return [replace(config, mix=mix) for mix in mixes]


def _pool(source: LayerSource, config: ClassifierConfig, advance: Advance) -> Tensor:
    """The mean over the words of each layer of each text, (layer, n_texts, dim)."""
    pooled = torch.zeros(source.encoder.n_layers, len(source), source.encoder.dim)
    for rows, (layers,) in source.all():
        layers = layers if config.head.pool_edges else layers.words()
        for depth, layer in enumerate(layers.values):
            if config.mix.mix_norm:
                layer = F.layer_norm(layer, layer.shape[-1:])
            pooled[depth, torch.from_numpy(rows)] = mean_over_words(layer, layers.mask)
        advance(len(rows))
    return pooled
