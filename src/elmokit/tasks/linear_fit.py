"""Fitting the linear head: the texts go through the encoder once, the rest is solved at a stroke."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError
from elmokit.tasks.encoders import Encoder
from elmokit.tasks.layer_cache import Batch, Examples, KeptLayers, layers_of
from elmokit.tasks.linear_head import LinearHead, mean_over_words, minimised
from elmokit.tasks.model import PREDICT_WORDS, Network, Targets
from elmokit.tasks.row_weights import row_weights
from elmokit.tasks.settings import ClassifierConfig

__all__ = ["fit_linear"]

_SMALLER = (1.0, 0.1, 0.01, 0.001)  # times the penalty given, where there are rows to choose by
_STEADY = 1e-6


def fit_linear(
    encoder: Encoder,
    train: tuple[Examples, Targets],
    valid: tuple[Examples, Targets] | None,
    config: ClassifierConfig,
    kept: tuple[KeptLayers, KeptLayers] | None,
    reporter: Reporter,
) -> tuple[Network, list[dict[str, float]]]:
    """A network with a linear head, and the figures of all that was tried.

    With validation rows the mix and the penalty are chosen by them: each layer alone, all alike, and
    penalties down to a thousandth. Without them the top layer and the penalty given are taken. Given or
    frozen weights of a mix stay as they are.
    """
    if config.fit.finetune or config.mix.mix == "function":
        what = "--finetune" if config.fit.finetune else "--mix function"
        raise ConfigError(
            f"The linear head is solved, not trained, so {what} cannot be had with it.",
            remedy="Choose --head pool or --head bilstm.",
        )
    parts = [train] if valid is None else [train, valid]
    n_texts = sum(len(examples) for examples, _ in parts)
    with reporter.counting("Computing layers", total=n_texts, unit="texts") as advance:
        pooled = [
            _pooled(encoder, examples, config, kept[place] if kept else None, advance)
            for place, (examples, _) in enumerate(parts)
        ]
    weights = row_weights(train[1], config.fit.class_weights)
    best: tuple[float, float, Network] | None = None
    history: list[dict[str, float]] = []
    for mix in _mixes(encoder.n_layers, config, choose=valid is not None):
        changed = config
        if mix:
            chosen = replace(config.mix, mix="frozen", mix_form="raw", mix_weights=mix)
            changed = replace(config, mix=chosen)
        for factor in _SMALLER if valid is not None else _SMALLER[:1]:
            network = Network(changed, encoder.n_layers, encoder.dim, len(train[1].classes))
            l2 = factor * config.fit.l2
            _solve(network, _mixed(network, pooled[0]), train[1], weights, l2)
            figures = {"step": len(history) + 1, "epoch": len(history) + 1, "l2": l2, **network.mix.values()}
            accuracy = loss = 0.0
            if valid is not None:
                accuracy, loss = _measured(network, _mixed(network, pooled[1]), valid[1])
                figures |= {"accuracy": accuracy, "valid_loss": loss}
            history.append(figures)
            if best is None or (accuracy, -loss) > best[:2]:
                best = accuracy, -loss, network
    assert best is not None
    return best[2].eval(), history


def _mixes(n_layers: int, config: ClassifierConfig, *, choose: bool) -> list[str]:
    """Weights of the layers to try, as text; "" for what the settings say."""
    if config.mix.mix == "frozen" or config.mix.mix_weights or n_layers == 1:
        return [""]
    singles = [
        ",".join("1" if place == layer else "0" for place in range(n_layers)) for layer in range(n_layers)
    ]
    alike = ",".join([f"{1 / n_layers:.6f}"] * n_layers)
    return [*reversed(singles), alike] if choose else singles[-1:]


@torch.no_grad()
def _pooled(
    encoder: Encoder,
    examples: Examples,
    config: ClassifierConfig,
    kept: KeptLayers | None,
    advance: Callable[[int], None],
) -> Tensor:
    """The mean over the words of each layer of each text, (layer, n_texts, dim)."""
    found = torch.zeros(encoder.n_layers, len(examples), encoder.dim)
    for rows, batch in _batches(encoder, examples, kept):
        layers = batch.layers
        if config.mix.mix_norm:
            layers = tuple(torch.nn.functional.layer_norm(x, x.shape[-1:]) for x in layers)
        for depth, layer in enumerate(layers):
            found[depth, torch.from_numpy(rows)] = mean_over_words(layer, batch.mask)
        advance(len(rows))
    return found


def _batches(
    encoder: Encoder, examples: Examples, kept: KeptLayers | None
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    if kept is not None:
        for rows in examples.batches(PREDICT_WORDS):
            yield rows, kept.batch(rows)
        return
    yield from layers_of(encoder, examples, PREDICT_WORDS)


@torch.no_grad()
def _mixed(network: Network, pooled: Tensor) -> Tensor:
    """The mean of a mix is the mix of the means: (layer, n_texts, dim) -> (n_texts, dim)."""
    return network.mix.mixed(list(pooled))


@torch.no_grad()
def _solve(network: Network, features: Tensor, targets: Targets, weights: Tensor, l2: float) -> None:
    head = network.head
    assert isinstance(head, LinearHead)
    head.centre.copy_(features.mean(dim=0))
    head.spread.copy_(features.var(dim=0, correction=0).mean().sqrt().clamp(min=_STEADY))
    weight, bias = minimised(
        (features - head.centre) / head.spread,
        torch.from_numpy(targets.values),
        len(targets.classes),
        l2=l2,
        weights=weights,
    )
    head.output.weight.copy_(weight)
    head.output.bias.copy_(bias)


@torch.no_grad()
def _measured(network: Network, features: Tensor, targets: Targets) -> tuple[float, float]:
    head = network.head
    assert isinstance(head, LinearHead)
    scores = head.output((features - head.centre) / head.spread)
    wanted = torch.from_numpy(targets.values)
    if targets.multilabel:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted.float())
        return float(((scores > 0) == (wanted > 0.5)).all(dim=1).double().mean()), float(loss)
    loss = torch.nn.functional.cross_entropy(scores, wanted)
    return float((scores.argmax(dim=1) == wanted).double().mean()), float(loss)
