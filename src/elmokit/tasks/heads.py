"""Heads of the classification task: pooling with a hidden layer, a biLSTM, logistic regression."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ConfigError
from elmokit.tasks.layer_cache import LayerSource
from elmokit.tasks.model import Network
from elmokit.tasks.settings import ClassifierConfig, HeadConfig
from elmokit.tasks.task import AnyTask, Examples, Labels, Output, validation_scores

_STEPS = 1000
_RARE = -14.0  # score of a class without rows: a probability of about one in a million
_TINY = 1e-6
_L2_FACTORS = (1.0, 0.1, 0.01, 0.001)  # times the penalty given, where there are rows to choose by

Rng = torch.Generator | None


class Head(nn.Module):
    """Turns the mixed vectors of a batch into a task's output; a text may have no word."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__()
        self.dropout = config.dropout_head

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        """Takes vectors (batch, time, dim) and masks (batch, time) of each field; no ``rng``, no dropout."""
        raise NotImplementedError


def mean_over_words(x: Tensor, mask: Tensor) -> Tensor:
    """(batch, time, dim), (batch, time) -> (batch, dim)"""
    return (x * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def read_out(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, mean and last of (batch, time, 2 * dim) over each text's words, each (batch, 2 * dim).

    "Last" is where each direction has read everything: the forward half of the last word, the backward
    half of the first. All are zero for a text without words.
    """
    lengths = mask.sum(dim=1)
    empty = (lengths == 0).unsqueeze(1)
    highest = x.masked_fill(~mask.unsqueeze(2), torch.finfo(x.dtype).min).amax(dim=1)
    half, rows = x.shape[2] // 2, torch.arange(len(x))
    last = torch.cat([x[rows, lengths - 1, :half], x[:, 0, half:]], dim=1)
    return highest.masked_fill(empty, 0.0), mean_over_words(x, mask), last.masked_fill(empty, 0.0)


class PoolHead(Head):
    """Maximum, mean and last over the words, a hidden layer, class scores (batch, n_classes)."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.hidden = nn.Linear(3 * dim, config.head_dim)
        self.output = nn.Linear(config.head_dim, len(labels))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        pooled = torch.cat(read_out(mixed[0], masks[0]), dim=1)
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
        return self.output(shared_dropout(torch.cat([highest, last], dim=1), self.dropout, rng, over=None))


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

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Output:
        return self.scores(mean_over_words(mixed[0], masks[0]))

    def scores(self, features: Tensor) -> Tensor:
        """From means over the words, (batch, dim), to class scores, (batch, n_classes)."""
        return cast(Tensor, self.output((features - self.centre) / self.spread))

    @torch.no_grad()
    def solve(
        self, features: Tensor, targets: npt.NDArray[Any], *, l2: float, weights: npt.NDArray[Any]
    ) -> bool:
        """Fit to means over the words; False if the solver did not converge.

        Args:
            features: (n_texts, dim).
            l2: Half of this times the squared weights is added to the mean loss.
            weights: How much each text counts, (n_texts,), 1 on average.
        """
        self.centre.copy_(features.mean(dim=0))
        self.spread.copy_(features.var(dim=0, correction=0).mean().sqrt().clamp(min=_TINY))
        x = ((features - self.centre) / self.spread).double().numpy()
        if targets.ndim == 1:
            rows, biases, converged = fit_logistic(
                x, targets, len(self.output.weight), l2=l2, weights=weights
            )
        else:  # For each class, the row of "yes" less that of "no", which costs half as much as the two.
            columns = targets.T.astype(int)
            solved = [fit_logistic(x, column, 2, l2=2 * l2, weights=weights) for column in columns]
            rows, biases = (np.concatenate([np.diff(part[n], axis=0) for part in solved]) for n in (0, 1))
            converged = all(part[2] for part in solved)
        self.output.weight.copy_(torch.from_numpy(rows))
        self.output.bias.copy_(torch.from_numpy(biases))
        return converged


def converges(model: Any, x: Any, y: Any, **options: Any) -> bool:
    """Fit a model of scikit-learn; False if its solver did not converge."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, y, **options)
    return not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def fit_logistic(
    x: npt.NDArray[np.float64],
    y: npt.NDArray[Any],
    n_classes: int,
    *,
    l2: float,
    weights: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], bool]:
    """Weights (n_classes, dim) and biases (n_classes,) of a logistic regression, and whether it converged."""
    from sklearn.linear_model import LogisticRegression

    weight, bias = np.zeros((n_classes, x.shape[1])), np.full(n_classes, _RARE)
    present = np.unique(y[weights > 0])
    if len(present) == 1:
        bias[present] = 0.0
        return weight, bias, True
    # Two classes share one row of weights w in scikit-learn. As rows -w/2 and w/2 they cost half as much.
    is_split = len(present) == 2
    strength = (2.0 if is_split else 1.0) / (l2 * weights.sum()) if l2 else np.inf
    model = LogisticRegression(C=strength, tol=1e-6, max_iter=_STEPS)
    converged = converges(model, x, y, sample_weight=weights)
    rows, offsets = model.coef_, model.intercept_
    if is_split:
        rows, offsets = np.concatenate([-rows, rows]) / 2, np.concatenate([-offsets, offsets]) / 2
    bias += offsets.min()
    weight[present], bias[present] = rows, offsets
    return weight, bias, converged


def fit_linear(
    task: AnyTask,
    parts: Sequence[Examples],
    sources: Sequence[LayerSource],
    config: ClassifierConfig,
    weights: Tensor,
    reporter: Reporter,
) -> tuple[Network, list[dict[str, float]], bool]:
    """A network with a linear head, the scores of all that was tried, and whether every solution converged.

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
    with reporter.counting("Computing layers", total=sum(map(len, parts)), unit="texts") as advance:
        pooled = [_pool(source, config, advance) for source in sources]
    history: list[dict[str, float]] = []
    ranked: list[tuple[float, Network]] = []
    converged = True
    mixes = _candidate_mixes(encoder.n_layers, config, choose=chooses)
    for candidate, factor in itertools.product(mixes, _L2_FACTORS if chooses else _L2_FACTORS[:1]):
        network = Network(task, candidate, encoder.n_layers, encoder.dim, train.labels)
        head, l2, step = cast(LinearHead, network.head), factor * config.fit.l2, len(history) + 1
        # The mean of a mix is the mix of the means.
        features = [network.mix.mixed(list(part)).detach() for part in pooled]
        converged &= head.solve(features[0], train.targets, l2=l2, weights=weights.numpy())
        scores = {"score": 0.0}
        if chooses:
            with torch.no_grad():
                output = head.scores(features[1])
            losses = task.loss(output, parts[1].targets)
            scores = validation_scores(task, parts[1], task.decode(output, [], train.labels), losses)
        ranked.append((scores.pop("score"), network))
        history.append({"step": step, "epoch": step, "l2": l2, **network.mix.values(), **scores})
    _, best = min(ranked, key=lambda entry: entry[0])
    return best, history, converged


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
