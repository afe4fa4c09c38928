"""The parts of a comparison: each is a folder that is made once, and can be stopped and gone on with.

language-model  a biLM, pretrained on the train texts
vectors         word vectors of the same texts
layers          what a frozen biLM gives for the rows, kept on disk for all fits on top of it
fit, linear     a classifier, fitted and measured; for the learning curve, on a few of the rows
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.comparison.methods import Method, Plan, source_id

__all__ = ["RESULT", "Unit", "bilm_folder", "changes_of", "made_from", "result_of", "units_of"]

Kind = Literal["language-model", "vectors", "layers", "fit", "linear"]
RESULT = "result.json"


@dataclass(frozen=True)
class Unit:
    """One part of the work.

    Attributes:
        id: the name of its folder.
        kind: what is done.
        method: whose.
        seed: as it says.
        n_labels: rows to learn from; 0 for all.
        draw: which rows those are.
        needs: units that must be done before.
    """

    id: str
    kind: Kind
    method: str
    seed: int = 0
    n_labels: int = 0
    draw: int = 0
    needs: tuple[str, ...] = ()


def units_of(plan: Plan, encoder: Path | None) -> list[Unit]:
    """All parts of a plan; what others need comes first."""
    units: dict[str, Unit] = {}
    for method in plan.methods:
        source: tuple[str, ...] = ()
        layers: tuple[str, ...] = ()
        if method.family == "static" or (method.family == "elmo" and encoder is None):
            source = (source_id(method),)
            kind: Kind = "vectors" if method.family == "static" else "language-model"
            units.setdefault(source[0], Unit(source[0], kind, method.id))
        if method.family == "elmo" and not method.classifier.get("finetune"):
            layers = (layers_id(method),)
            units.setdefault(layers[0], Unit(layers[0], "layers", method.id, needs=source))
        kind = "linear" if method.family == "linear" else "fit"
        for seed in plan.seeds if method.has_chance else plan.seeds[:1]:
            id = f"{method.id}-s{seed}"
            units[id] = Unit(id, kind, method.id, seed, needs=(*source, *layers))
        if method.id in plan.curve:
            for n_labels in plan.counts:
                for number in range(plan.draws):
                    id = f"{method.id}-n{n_labels}-d{number}"
                    units[id] = Unit(id, kind, method.id, number, n_labels, number, source)
    order: dict[Kind, int] = {"language-model": 0, "vectors": 1, "linear": 2, "layers": 3, "fit": 4}
    return sorted(units.values(), key=lambda unit: (unit.n_labels > 0, order[unit.kind]))


def layers_id(method: Method) -> str:
    """The part that keeps the layers that a method's fits read."""
    return f"layers-{source_id(method)}"


def made_from(unit: Unit, method: Method, marks: Mapping[str, str], encoder: str) -> dict[str, Any]:
    """All that decides what a part finds: two parts with equal ones are the same.

    Args:
        unit: the part.
        method: its method.
        marks: of the rows.
        encoder: the mark of a biLM that was given; "" if one is pretrained.
    """
    made: dict[str, Any] = {"rows": dict(marks), "kind": unit.kind}
    if method.family == "elmo":
        made["encoder"] = encoder or method.language_model
    elif method.family == "static":
        made |= {"vectors": {"base": method.base, **method.vectors}, "cleaning": method.text}
    else:
        made["base"] = method.base
    if unit.kind == "layers":
        made["max_words"] = method.classifier.get("max_words")
    elif unit.kind in ("fit", "linear"):
        made |= {"classifier": method.classifier, "seed": unit.seed, "labels": [unit.n_labels, unit.draw]}
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def changes_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is different, by name."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def result_of(work: Path, unit: Unit) -> dict[str, Any] | None:
    """What a finished unit found; None if it is not finished."""
    try:
        found: dict[str, Any] = json.loads((work / "units" / unit.id / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def bilm_folder(work: Path, method: Method, encoder: Path | None) -> Path:
    """Where a method's biLM is."""
    return encoder if encoder is not None else work / "units" / source_id(method) / "model"
