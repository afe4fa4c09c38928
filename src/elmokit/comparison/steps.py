"""The parts of a comparison: each is a folder that is made once, and can be stopped and gone on with.

language-model  a biLM, pretrained on the train texts
vectors         word vectors of the same texts
layers          what a frozen biLM gives for the rows, kept on disk for all fits on top of it
fit, linear     a classifier, fitted and measured; for the learning curve, on a few of the rows
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from elmokit.comparison.methods import Method, Plan, source_id
from elmokit.core.atomic import write_text
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.tasks.task import Metrics

Kind = Literal["language-model", "vectors", "layers", "fit", "linear"]
RESULT, ANSWERS = "result.json", "answers.safetensors"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Step:
    """One piece of work, in a folder of its own.

    Attributes:
        id: The name of its folder.
        n_labels: Rows to learn from, for the learning curve; 0 for all.
        draw: Which rows those are.
        needs: Ids of the steps that come before.
    """

    id: str
    kind: Literal["language-model", "vectors", "layers", "fit"]
    method: str
    seed: int = 0
    n_labels: int = 0
    draw: int = 0
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MetricsRecord:
    """How good a method is on one split.

    Attributes:
        main: Name of the figure that ranks methods.
        values: All figures by name.
        details: As ``Metrics.to_json`` gives them.
        row_stats: As in ``Metrics``, (n, k).
        row_scores: The share of each row in the main figure, (n,); its mean is that figure. For accuracy,
            right (1) or wrong (0); otherwise jackknife pseudo-values.
        predicted: Class numbers, (n,); None for tasks without classes.
    """

    main: str
    values: Mapping[str, float]
    details: Mapping[str, Any]
    row_stats: Array
    row_scores: Array
    predicted: Array | None = None

    @classmethod
    def from_metrics(cls, metrics: Metrics) -> MetricsRecord:
        """What a comparison keeps of some metrics."""
        stats, sums = metrics.row_stats, metrics.row_stats.sum(axis=0)
        n = len(stats)
        scores = stats[:, 0]
        if stats.shape[1] != 2 or not (stats[:, 1] == 1).all():  # more than a mean over the rows
            without = np.array([metrics.score(sums - row) for row in stats])
            scores = n * metrics.score(sums) - (n - 1) * without
        predicted = getattr(metrics, "predicted", None)
        if predicted is not None and predicted.ndim > 1:
            predicted = None
        return cls(metrics.main, dict(metrics.values), metrics.to_json(), stats, scores, predicted)

    @property
    def score(self) -> float:
        """The main figure."""
        return self.values[self.main]


@dataclass(frozen=True, eq=False)
class StepResult:
    """What a finished step leaves behind: result.json and, for fits, answers.safetensors in its folder.

    Attributes:
        inputs: All that decides the result; a step whose inputs changed is another one.
        seconds: Time of the work itself: pretraining, training vectors, computing layers or fitting.
        encoding_seconds: Of ``seconds``, the encoder's pass over the rows; 0 if it was cached before.
        peak_memory: Of the step's process, in bytes; None where the system does not tell.
        n_bytes: Size of the model folder; 0 if there is none.
        metrics: Of each split; for the learning curve, of the test split.
        history: Figures of each evaluation during training.
        mix: Weights of the layers (``tasks.model_report.mix_record``), for biLMs.
        parameters: Of a language model.
        words: In the vocabulary of a language model or of word vectors.
    """

    inputs: Mapping[str, Any]
    seconds: float
    encoding_seconds: float = 0.0
    peak_memory: int | None = None
    n_bytes: int = 0
    metrics: Mapping[str, MetricsRecord] = field(default_factory=dict)
    texts_per_second: float = 0.0
    history: Sequence[Mapping[str, float]] = ()
    mix: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    parameters: int = 0
    words: int = 0

    def save(self, folder: Path) -> None:
        """Write it; result.json comes last and says that the step is finished."""
        arrays, record = {}, {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        record["metrics"] = {}
        for split, metrics in self.metrics.items():
            values = {entry.name: getattr(metrics, entry.name) for entry in dataclasses.fields(metrics)}
            for name in ("row_stats", "row_scores", "predicted"):
                array = values.pop(name)
                if array is not None:
                    arrays[f"{split}.{name}"] = torch.from_numpy(np.ascontiguousarray(array))
            record["metrics"][split] = values
        if arrays:
            save_tensors(folder / ANSWERS, arrays, {})
        write_text(folder / RESULT, json.dumps(record, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> StepResult | None:
        """Read what ``save`` wrote; None if the step is not finished."""
        try:
            record = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        arrays: dict[str, dict[str, Any]] = {split: {} for split in record["metrics"]}
        for name, tensor in load_tensors(folder / ANSWERS)[0].items() if arrays else ():
            split, _, kind = name.partition(".")
            arrays[split][kind] = tensor.numpy()
        metrics = {
            split: MetricsRecord(**values, **arrays[split]) for split, values in record["metrics"].items()
        }
        return cls(**{**record, "metrics": metrics})


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
