"""A plan cut down to a time: fewer seeds, a smaller language model, and at last fewer methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from elmokit.comparison.costs import Sizes, estimate
from elmokit.comparison.doing import pretraining_config
from elmokit.comparison.methods import Method, Plan
from elmokit.comparison.steps import units_of

__all__ = ["planned_seconds", "within_budget"]

_SHARE = 0.85  # of the time is planned for: estimates are rough
_SMALLER = ((192, 4), (128, 3), (128, 2), (64, 2), (64, 1))  # width and epochs of the language model


def planned_seconds(plan: Plan, sizes: Sizes, speed: float, n_workers: int, encoder: Path | None) -> float:
    """How long a plan takes: all work shared out, and not less than the longest chain of parts."""
    units = {unit.id: unit for unit in units_of(plan, encoder)}
    costs = {id: estimate(unit, plan.method(unit.method), sizes, speed) for id, unit in units.items()}

    def chain(id: str) -> float:
        return costs[id] + max((chain(need) for need in units[id].needs), default=0.0)

    return max(sum(costs.values()) / n_workers, max(map(chain, units), default=0.0))


def total_seconds(plan: Plan, sizes: Sizes, speed: float, encoder: Path | None) -> float:
    """All work of a plan, one part after the other."""
    return sum(estimate(unit, plan.method(unit.method), sizes, speed) for unit in units_of(plan, encoder))


def within_budget(
    plan: Plan, sizes: Sizes, speed: float, budget: float, n_workers: int, encoder: Path | None
) -> Plan:
    """The first of ever smaller plans that fits; what it leaves out is said in ``left_out``."""
    smallest = plan
    for smaller in _smaller(plan, sizes, speed, encoder):
        smallest = smaller
        if planned_seconds(smaller, sizes, speed, n_workers, encoder) <= _SHARE * budget:
            return smaller
    note = "Even the smallest plan is estimated to take longer: parts not begun in time are left out."
    return dataclasses.replace(smallest, left_out=(*smallest.left_out, note))


def _smaller(plan: Plan, sizes: Sizes, speed: float, encoder: Path | None) -> Iterator[Plan]:
    yield plan
    left, said = list(plan.left_out), list[str]()
    while len(plan.seeds) > 1:
        plan = dataclasses.replace(plan, seeds=plan.seeds[:-1])
        said = [f"To fit the budget, {len(plan.seeds)} seed{'s are' if len(plan.seeds) > 1 else ' is'} run."]
        yield dataclasses.replace(plan, left_out=(*left, *said))
    if encoder is None and any(method.family == "elmo" for method in plan.methods):
        note = ""
        for dim, epochs in _SMALLER:
            smaller = dataclasses.replace(
                plan, methods=tuple(_narrower(method, dim, epochs, sizes) for method in plan.methods)
            )
            if smaller == plan:
                continue
            plan = smaller
            note = (
                f"To fit the budget, language models are at most {dim} wide and read the text {epochs} times."
            )
            yield dataclasses.replace(plan, left_out=(*left, *said, note))
        said += [note] if note else []
    while len(plan.methods) > 1:

        def cost(method: Method, plan: Plan = plan) -> float:
            """Of a method by itself, with its language model or vectors."""
            alone = dataclasses.replace(plan, methods=(method,), curve=())
            return total_seconds(alone, sizes, speed, encoder)

        going = max(reversed(plan.methods), key=cost)
        said.append(f"To fit the budget, {going.name} ({going.id}) is left out.")
        plan = dataclasses.replace(
            plan,
            methods=tuple(method for method in plan.methods if method is not going),
            curve=tuple(id for id in plan.curve if id != going.id),
        )
        yield dataclasses.replace(plan, left_out=(*left, *said))


def _narrower(method: Method, dim: int, epochs: int, sizes: Sizes) -> Method:
    """A method with a language model that is no wider and no more often read than this."""
    if method.family != "elmo":
        return method
    config = pretraining_config(method, sizes.n_train + sizes.n_more)
    model = {name: min(getattr(config.model, name), dim) for name in ("dim", "hidden_dim")}
    fewer = {"epochs": min(config.training.epochs, epochs)}
    if model["dim"] == config.model.dim and fewer["epochs"] == config.training.epochs:
        return method
    return method.changed(language_model={"model": model, "training": fewer})
