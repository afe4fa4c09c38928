"""How much each row counts in training."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.core.errors import ConfigError, DataError
from elmokit.tasks.model import Targets

__all__ = ["row_weights"]


def row_weights(targets: Targets, class_weights: Literal["equal", "balanced"]) -> Tensor:
    """The weight of each text, (n_texts,): as given, times that of its class; 1 on average."""
    weights = np.ones(len(targets.values)) if targets.weights is None else targets.weights.astype(float)
    if class_weights == "balanced":
        if targets.multilabel:
            raise ConfigError(
                "class_weights = 'balanced' is for one label per text, not for several.",
                remedy="Leave it out, or weigh the texts themselves (sample_weight).",
            )
        counts = np.bincount(targets.values, weights=weights, minlength=len(targets.classes))
        weights = weights / np.maximum(counts, 1e-12)[targets.values]
    if not weights.sum() > 0:
        raise DataError("All rows to train on have a weight of zero.", remedy="Give some more weight.")
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))
