"""The learning rate at each step."""

from __future__ import annotations

import math

from elmokit.core.config import RunConfig

__all__ = ["learning_rate"]

_FLOOR = 0.01


def learning_rate(step: int, n_steps: int, config: RunConfig) -> float:
    """Linear warm-up, then constant or a half cosine down to a hundredth of the peak.

    Args:
        step: steps already done, from 0.
        n_steps: steps in the whole run.
        config: peak, warm-up share and kind of schedule.
    """
    n_warm = round(config.warmup * n_steps)
    if step < n_warm:
        return config.lr * (step + 1) / n_warm
    if config.schedule == "constant":
        return config.lr
    done = min(1.0, (step - n_warm) / max(1, n_steps - n_warm))
    return config.lr * (_FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))
