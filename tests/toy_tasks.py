"""Two toy tasks that prove the contract: tags with learned transitions, and similarities of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.core.errors import DataError
from elmokit.report.document import Section
from elmokit.tasks.heads import Head, mean_over_words
from elmokit.tasks.task import AnyTask, Examples, Inputs, Labels, Part, Prediction, Task
from elmokit.text.rows import Row

Array = npt.NDArray[Any]


class Crf(NamedTuple):
    emissions: Tensor  # (batch, time, n_tags)
    transitions: Tensor  # (n_tags, n_tags), from and to


class CrfHead(Head):
    """A linear layer per word, and a learned score for each pair of neighboring tags."""

    def __init__(self, config: Any, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.output = nn.Linear(dim, len(labels))
        self.transitions = nn.Parameter(torch.zeros(len(labels), len(labels)))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Any = None) -> Crf:
        return Crf(self.output(mixed[0]), self.transitions)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tags(Prediction):
    tags: list[str]


@dataclass(frozen=True, eq=False)
class ToyMetrics:
    n: int
    main: str
    row_stats: Array
    values: dict[str, float] = field(default_factory=dict)
    by_tag: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values[self.main] = self.score(self.row_stats.sum(axis=0))

    def score(self, sums: Array) -> float:
        if self.main == "tag_accuracy":
            return float(sums[0] / max(1, sums[1]))
        n, true, squares, errors = sums  # R squared
        return float(1 - errors / max(1e-9, squares - true**2 / n))

    def to_json(self) -> dict[str, Any]:
        return {"n": self.n, **self.values, "by_tag": self.by_tag}


class Tagging(Task[Tags, ToyMetrics]):
    """One tag for each word; text and tags of a row are separated by spaces."""

    name, fields, heads = "tag", ("text",), {"crf": CrfHead}
    part = Part("by_tag", "tag", ("accuracy", "words"), "accuracy")

    def inputs(self, row: Row, labels: Labels = Labels()) -> Inputs:  # noqa: B008 (frozen)
        return (row.text.split(),)

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        found = [(row, self.inputs(row)[0], (row.label or "").split()) for row in rows]
        for row, words, tags in found:
            if len(words) != len(tags):
                raise DataError(f"{row.place}: {len(words)} words, but {len(tags)} tags.")
        used = {tag for _, _, tags in found for tag in tags}
        labels = labels if labels.names else Labels(tuple(sorted(used)))
        unknown = tuple(sorted(used - set(labels.names)))
        numbers = {tag: number for number, tag in enumerate((*labels.names, *unknown))}
        targets = np.full((len(found), max(len(tags) for _, _, tags in found)), -1)
        for place, (_, _, tags) in enumerate(found):
            targets[place, : len(tags)] = [numbers[tag] for tag in tags]
        return Examples([(words,) for _, words, _ in found], targets, labels, unknown)

    def loss(self, output: Crf, targets: Array, *, smoothing: float = 0.0) -> Tensor:
        tags = torch.from_numpy(targets[:, : output.emissions.shape[1]])
        inside, tags = tags >= 0, tags.clamp(min=0)
        gold = (output.emissions.gather(2, tags.unsqueeze(2)).squeeze(2) * inside).sum(dim=1)
        gold = gold + (output.transitions[tags[:, :-1], tags[:, 1:]] * inside[:, 1:]).sum(dim=1)
        paths = output.emissions[:, 0]  # log of the summed scores of all paths that end in each tag
        for step in range(1, tags.shape[1]):
            further = (paths.unsqueeze(2) + output.transitions).logsumexp(dim=1) + output.emissions[:, step]
            paths = torch.where(inside[:, step : step + 1], further, paths)
        return (paths.logsumexp(dim=1) - gold) * inside[:, 0]

    def decode(self, output: Crf, masks: Sequence[Tensor], labels: Labels, inputs: Any = None) -> list[Tags]:
        predictions = []
        for scores, length in zip(output.emissions, masks[0].sum(dim=1).tolist(), strict=True):
            best, pointers = scores[0], []
            for step in range(1, length):
                value, pointer = (best.unsqueeze(1) + output.transitions).max(dim=0)
                best = value + scores[step]
                pointers.append(pointer)
            path = [int(best.argmax())]
            for pointer in reversed(pointers):
                path.append(int(pointer[path[-1]]))
            predictions.append(Tags(tags=[labels.names[tag] for tag in reversed(path[:length])]))
        return predictions

    def measure(self, examples: Examples, predictions: Sequence[Tags]) -> ToyMetrics:
        names, stats = (*examples.labels.names, *examples.unknown), []
        right, counts = Counter[str](), Counter[str]()
        for row, prediction in zip(examples.targets, predictions, strict=True):
            true = [names[tag] for tag in row if tag >= 0]
            same = [a for a, b in zip(true, prediction.tags) if a == b]  # noqa: B905 (cut)
            right.update(same)
            counts.update(true)
            stats.append([len(same), len(true)])
        by_tag = [{"tag": tag, "accuracy": right[tag] / n, "n": n} for tag, n in counts.items()]
        return ToyMetrics(len(examples), "tag_accuracy", np.array(stats, dtype=float), by_tag=by_tag)

    def columns(self, prediction: Tags) -> dict[str, Any]:
        return {"tags": " ".join(prediction.tags)}

    def sections(self, metrics: Mapping[str, ToyMetrics]) -> list[Section]:
        return [Section("tags", "Tags", "", (self.part.table(metrics),))]


class DotHead(Head):
    def __init__(self, config: Any, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.output = nn.Linear(dim, 8)

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Any = None) -> Tensor:
        first, second = (self.output(mean_over_words(x, mask)) for x, mask in zip(mixed, masks, strict=True))
        scores: Tensor = (first * second).sum(dim=1)
        return scores


@dataclass(frozen=True, eq=False, kw_only=True)
class Value(Prediction):
    value: float


class Similarity(Task[Value, ToyMetrics]):
    """A number for two texts: several fields, real targets, no labels."""

    name, fields, heads = "similar", ("first", "second"), {"dot": DotHead}

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        found = [(self.inputs(row), float(row.label or "nan")) for row in rows]
        return Examples([inputs for inputs, _ in found], np.array([y for _, y in found], np.float32), labels)

    def loss(self, output: Tensor, targets: Array, *, smoothing: float = 0.0) -> Tensor:
        return (output - torch.from_numpy(targets)).square()

    def decode(self, output: Tensor, masks: Any, labels: Labels, inputs: Any = None) -> list[Value]:
        return [Value(value=value) for value in output.tolist()]

    def measure(self, examples: Examples, predictions: Sequence[Value]) -> ToyMetrics:
        true, found = examples.targets, np.array([prediction.value for prediction in predictions])
        stats = np.stack([np.ones(len(true)), true, true**2, (true - found) ** 2], axis=1)
        return ToyMetrics(len(examples), "r2", stats)

    def columns(self, prediction: Value) -> dict[str, Any]:
        return {"value": prediction.value}


TOYS: dict[str, AnyTask] = {"tag": Tagging(), "similar": Similarity()}
