"""Fit the linear head: texts go through the encoder once, then mix and penalty are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ConfigError
from elmokit.tasks.heads import LinearHead, mean_over_words
from elmokit.tasks.layer_cache import LayerSource
from elmokit.tasks.model import Network
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import AnyTask, Examples

_L2_FACTORS = (1.0, 0.1, 0.01, 0.001)  # times the penalty given, where there are rows to choose by


def fit_linear(
    task: AnyTask,
    parts: Sequence[Examples],
    sources: Sequence[LayerSource],
    config: ClassifierConfig,
    weights: Tensor,
    reporter: Reporter,
) -> tuple[Network, list[dict[str, float]], bool]:
    """A network with a linear head, the figures of all that was tried, and whether every solution converged.

    With validation rows (a second part), mix and penalty are chosen by them: each layer alone, all layers
    equally, and penalties down to a thousandth. Without them the top layer and the given penalty are used.
    Given or frozen weights of a mix stay as they are.
    """
    unsupported = {"--finetune": config.fit.finetune, "--mix function": config.mix.mix == "function"}
    for flag, given in unsupported.items():
        if given:
            raise ConfigError(
                f"The linear head does not support {flag}.", remedy="Use --head pool or --head bilstm."
            )
    train, encoder, chooses = parts[0], sources[0].encoder, len(parts) > 1
    with reporter.counting("Computing layers", total=sum(map(len, parts)), unit="texts") as advance:
        pooled = [_pool(source, config, advance) for source in sources]
    history: list[dict[str, float]] = []
    best: tuple[float, float, Network] | None = None
    converged = True
    for mix_weights in _candidate_mixes(encoder.n_layers, config, choose=chooses):
        candidate = config
        if mix_weights:
            mix = replace(config.mix, mix="frozen", mix_form="raw", mix_weights=mix_weights)
            candidate = replace(config, mix=mix)
        for factor in _L2_FACTORS if chooses else _L2_FACTORS[:1]:
            network = Network(task, candidate, encoder.n_layers, encoder.dim, train.labels)
            head = network.head
            assert isinstance(head, LinearHead)
            # The mean of a mix is the mix of the means.
            features = [network.mix.mixed(list(part)).detach() for part in pooled]
            l2 = factor * config.fit.l2
            converged &= head.solve(features[0], train.targets, l2=l2, weights=weights.numpy())
            figures = {"step": len(history) + 1, "epoch": len(history) + 1, "l2": l2, **network.mix.values()}
            main = loss = 0.0
            if chooses:
                with torch.no_grad():
                    output = head.scores(features[1])
                    loss = float(task.loss(output, parts[1].targets).mean())
                metrics = task.measure(parts[1], task.decode(output, [], train.labels))
                main = metrics.score(metrics.row_stats.sum(axis=0))
                figures |= {metrics.main: main, "valid_loss": loss}
            history.append(figures)
            if best is None or (main, -loss) > best[:2]:
                best = main, -loss, network
    assert best is not None
    return best[2], history, converged


def _candidate_mixes(n_layers: int, config: ClassifierConfig, *, choose: bool) -> list[str]:
    """Weights of the layers to try, as text; "" for those of the settings."""
    if config.mix.mix == "frozen" or config.mix.mix_weights or n_layers == 1:
        return [""]
    singles = [
        ",".join("1" if place == layer else "0" for place in range(n_layers)) for layer in range(n_layers)
    ]
    equal = ",".join([f"{1 / n_layers:.6f}"] * n_layers)
    return [*reversed(singles), equal] if choose else singles[-1:]


def _pool(source: LayerSource, config: ClassifierConfig, advance: Advance) -> Tensor:
    """The mean over the words of each layer of each text, (layer, n_texts, dim)."""
    pooled = torch.zeros(source.encoder.n_layers, len(source.texts), source.encoder.dim)
    for rows, (layers,) in source.all():
        for depth, layer in enumerate(layers.values):
            if config.mix.mix_norm:
                layer = F.layer_norm(layer, layer.shape[-1:])
            pooled[depth, torch.from_numpy(rows)] = mean_over_words(layer, layers.mask)
        advance(len(rows))
    return pooled
