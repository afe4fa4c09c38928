"""A plan cut down to a time: fewer seeds, a smaller language model, and at last fewer methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from elmokit.compare.costs import Sizes, estimate
from elmokit.compare.methods import Plan
from elmokit.compare.units import units_of

__all__ = ["planned_seconds", "within_budget"]

_SHARE = 0.85  # of the time is planned for: estimates are rough
_SMALLER = ((256, 4), (192, 3), (128, 2), (64, 2))  # width and epochs of the language model
_FIRST_TO_GO = ("elmo-finetuned", "fasttext", "cbow", "elmo-function", "elmo-frozen", "svd", "tfidf-lr")


def planned_seconds(plan: Plan, sizes: Sizes, speed: float, n_workers: int, encoder: Path | None) -> float:
    """How long a plan takes: all work shared out, and not less than the longest chain of parts."""
    units = {unit.id: unit for unit in units_of(plan, encoder)}
    costs = {id: estimate(unit, plan.method(unit.method), sizes, speed) for id, unit in units.items()}

    def chain(id: str) -> float:
        return costs[id] + max((chain(need) for need in units[id].needs), default=0.0)

    return max(sum(costs.values()) / n_workers, max(map(chain, units), default=0.0))


def within_budget(
    plan: Plan, sizes: Sizes, speed: float, budget: float, n_workers: int, encoder: Path | None
) -> Plan:
    """The first of ever smaller plans that fits; what it leaves out is said in ``left_out``."""
    smallest = plan
    for smaller in _smaller(plan, encoder is None):
        smallest = smaller
        if planned_seconds(smaller, sizes, speed, n_workers, encoder) <= _SHARE * budget:
            return smaller
    note = "Even the smallest plan is estimated to take longer: parts not begun in time are left out."
    return dataclasses.replace(smallest, left_out=(*smallest.left_out, note))


def _smaller(plan: Plan, pretrains: bool) -> Iterator[Plan]:
    yield plan
    left, said = list(plan.left_out), list[str]()
    while len(plan.seeds) > 1:
        plan = dataclasses.replace(plan, seeds=plan.seeds[:-1])
        note = f"To fit the budget, {len(plan.seeds)} seed{'s are' if len(plan.seeds) > 1 else ' is'} run."
        said = [note]
        yield dataclasses.replace(plan, left_out=(*left, *said))
    if pretrains:
        for dim, epochs in _SMALLER:
            changes = {"model": {"dim": dim, "hidden_dim": dim}, "training": {"epochs": epochs}}
            methods = tuple(
                method.changed(language_model=changes) if method.family == "elmo" else method
                for method in plan.methods
            )
            smaller = dataclasses.replace(plan, methods=methods)
            note = f"To fit the budget, the language model is {dim} wide and reads the text {epochs} times."
            yield dataclasses.replace(smaller, left_out=(*left, *said, note))
        plan = smaller
        said.append(note)
    while len(plan.methods) > 1:
        going = next(
            (id for id in _FIRST_TO_GO if any(method.id == id for method in plan.methods)),
            plan.methods[0].id,
        )
        gone = plan.method(going)
        plan = dataclasses.replace(
            plan,
            methods=tuple(method for method in plan.methods if method.id != going),
            curve=tuple(id for id in plan.curve if id != going),
        )
        said.append(f"To fit the budget, {gone.name} ({gone.id}) is left out.")
        yield dataclasses.replace(plan, left_out=(*left, *said))
