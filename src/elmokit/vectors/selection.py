"""From all layers of every word to just the vectors that were asked for."""

from __future__ import annotations

import numpy as np

from elmokit.vectors.embeddings import Embeddings, Floats
from elmokit.vectors.store_settings import StoreConfig

__all__ = ["selected"]


def selected(found: Embeddings[Floats], config: StoreConfig) -> Floats:
    """The rows ``config`` asks for: (n_words or n_texts, dim), or (..., layer, dim) with all layers."""
    if config.pool != "none":
        if not config.all_layers:
            return found.sentence(config.pool, layer=config.layer, weights=config.weights)
        layers = [found.sentence(config.pool, layer=layer) for layer in range(found.n_layers)]
        return np.stack(layers, axis=1)
    if config.all_layers:
        return found.flat
    if config.layer is not None:
        return np.concatenate(found.layer(config.layer))
    return np.concatenate(found.mixed(config.weights))
