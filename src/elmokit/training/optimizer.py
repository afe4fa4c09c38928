"""Adam, with row-wise updates for large tables; the learning rate at each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from elmokit.core.config import RunConfig
from elmokit.core.threads import run_all

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8
_FLOOR = 0.01


class Optimizer:
    """torch's Adam or AdamW for dense gradients; for sparse ones the same rule, applied only to the rows that
    have a gradient, so that the cost of a step does not grow with a table.

    Args:
        kind: "adam" (L2 in the gradient) or "adamw" (decoupled decay).
        weight_decay: For matrices only, never for biases or row-wise tables.
        lr_scales: Factors for the learning rates of some parameters, by name.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        kind: str,
        weight_decay: float,
        lr_scales: Mapping[str, float] | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self._scales = dict(lr_scales or {})
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in self.parameters.items():
            decay = weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((decay, self._scales.get(name, 1.0)), []).append(parameter)
        settings = [
            {"params": members, "weight_decay": decay, "scale": scale}
            for (decay, scale), members in groups.items()
        ]
        class_ = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
        self._dense = class_(settings, betas=(_BETA1, _BETA2), eps=_EPS, fused=True)
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}
        self._n_steps = 0

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def clip(self, limit: float) -> float:
        """Scale all gradients so that their joint norm is at most ``limit`` (0: no limit).

        Returns the norm before scaling; not finite if any gradient is not.
        """
        values = []
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                values.append(parameter.grad._values())
            elif parameter.grad is not None:
                values.append(parameter.grad)
        if not values:
            return 0.0
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values))))
        if 0 < limit < norm:
            torch._foreach_mul_(values, limit / norm)
        return norm

    def step(self, lr: float) -> None:
        """One update with learning rate ``lr``."""
        self._n_steps += 1
        jobs: list[Callable[[], object]] = [self._dense.step]
        for name, parameter in self.parameters.items():
            if parameter.grad is not None and parameter.grad.is_sparse:
                rate = lr * self._scales.get(name, 1.0)
                jobs.append(partial(self._step_rows, name, parameter, parameter.grad, rate))
                parameter.grad = None  # the dense step leaves this parameter out
        for group in self._dense.param_groups:
            group["lr"] = lr * group["scale"]
        run_all(jobs)

    @torch.no_grad()
    def _step_rows(self, name: str, parameter: nn.Parameter, gradient: Tensor, lr: float) -> None:
        gradient = gradient.coalesce()
        rows, values = gradient._indices()[0], gradient._values()  # (rows), (rows, dim)
        if name not in self._rows:
            self._rows[name] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        mean, square = self._rows[name]
        row_mean = mean.index_select(0, rows).lerp_(values, 1 - _BETA1)
        row_square = square.index_select(0, rows).mul_(_BETA2).addcmul_(values, values, value=1 - _BETA2)
        mean.index_copy_(0, rows, row_mean)
        square.index_copy_(0, rows, row_square)
        scale = (1 - _BETA2**self._n_steps) ** 0.5
        change = row_mean.div_(row_square.sqrt_().div_(scale).add_(_EPS))
        parameter.index_add_(0, rows, change, alpha=-lr / (1 - _BETA1**self._n_steps))

    def tensors(self) -> dict[str, Tensor]:
        """All state by name, for a checkpoint."""
        state = {"n_steps": torch.tensor(self._n_steps)}
        for name, (mean, square) in self._rows.items():
            state[f"rows.{name}.mean"], state[f"rows.{name}.square"] = mean, square
        for name, parameter in self.parameters.items():
            for key, value in self._dense.state.get(parameter, {}).items():
                state[f"dense.{name}.{key}"] = value
        return state

    def load_tensors(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        self._n_steps = int(state["n_steps"])
        self._rows = {
            name: (state[f"rows.{name}.mean"].clone(), state[f"rows.{name}.square"].clone())
            for name in self.parameters
            if f"rows.{name}.mean" in state
        }
        self._dense.state.clear()
        for name, parameter in self.parameters.items():
            if f"dense.{name}.step" in state:
                keys = ("step", "exp_avg", "exp_avg_sq")
                self._dense.state[parameter] = {key: state[f"dense.{name}.{key}"].clone() for key in keys}


def learning_rate(step: int, n_steps: int, config: RunConfig) -> float:
    """Linear warm-up, then constant or a half cosine down to a hundredth of the peak; ``step`` are done."""
    n_warm = round(config.warmup * n_steps)
    if step < n_warm:
        return config.lr * (step + 1) / n_warm
    if config.schedule == "constant":
        return config.lr
    done = min(1.0, (step - n_warm) / max(1, n_steps - n_warm))
    return config.lr * (_FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))
