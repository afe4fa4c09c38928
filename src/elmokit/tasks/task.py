"""The contract of a task: rows become examples, a head learns them, predictions are measured and reported.

A row becomes an example by ``read``. Its texts go through an encoder, a mix and one of the ``heads``; the
head's output through ``loss`` in training, else through ``decode``; predictions through ``measure``,
``columns`` and ``sections``.

A new task is one module with a ``Task`` and its heads, and an entry in ``TASKS``. The verbs fit, predict,
evaluate, compare and serve use nothing else of it.
"""

from __future__ import annotations

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from elmokit.core.errors import ConfigError, DataError, nearest
from elmokit.core.formatting import percent
from elmokit.core.model_folder import Model
from elmokit.report.document import Cell, Column, Section, Table, make_table
from elmokit.text.settings import LabelConfig, ReadConfig, RowForm

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    from elmokit.core.console import Advance
    from elmokit.tasks.heads import Head
    from elmokit.tasks.model import FitRecord
    from elmokit.text.rows import Row
    from elmokit.text.tokenizing import Text

Inputs = tuple["Text", ...]
"""The texts of a row, one for each of the task's fields."""
Output = Any
"""What a head gives for a batch: a tensor, or a NamedTuple of tensors (a CRF: emissions and transitions)."""


@dataclass(frozen=True)
class Labels:
    """The classes or tags that a model can give, in the order of the head's outputs.

    Attributes:
        names: Empty before they are learned, and for a task that predicts numbers or spans.
        separator: Stands between the labels of a row that can have several; empty for one label a row.
        scale: Mean and spread of the training rows' targets, for a task that predicts numbers.
        marked: Whether the training rows mark words, for a task that reads marks; None if it is not known.
    """

    names: tuple[str, ...] = ()
    separator: str = ""
    scale: tuple[float, float] | None = None
    marked: bool | None = None

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows that were read and checked.

    Attributes:
        targets: What to learn, one row per example: class numbers (n,), ones and zeros (n, n_classes), tags
            padded with -1 (n, time), spans (n, 2), real values (n,). Labels are numbered as in ``labels``,
            then as in ``unknown``.
        labels: Those of the model, learned from these rows if they are the first.
        unknown: Further labels in these rows, which the model cannot give.
        weights: How much each row counts in training, (n,); None if all count the same.
        notes: Remarks on the rows, in sentences.
    """

    inputs: Sequence[Inputs]
    targets: npt.NDArray[Any]
    labels: Labels
    unknown: tuple[str, ...] = ()
    weights: npt.NDArray[np.float32] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, rows: npt.NDArray[np.int64]) -> Examples:
        """Some of the rows, by number."""
        weights = None if self.weights is None else self.weights[rows]
        inputs = [self.inputs[row] for row in rows]
        return replace(self, inputs=inputs, targets=self.targets[rows], weights=weights)


def join_texts(inputs: Iterable[Inputs]) -> list[str]:
    """Each row as one text: all fields in a line, words joined by spaces."""
    from elmokit.text.tokenizing import text_of

    return [" ".join(map(text_of, row)) for row in inputs]


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """The answer for one row; tasks add fields. ``n_cut`` words beyond ``max_words`` were not read."""

    n_cut: int = 0


class Metrics(Protocol):
    """How good predictions are.

    Attributes:
        n: Rows measured.
        main: The score that ranks methods and picks the best weights, such as "accuracy"; higher is better.
        values: All scores by name, the most informative first.
        row_stats: Additive counts of each row, (n, k): right or wrong; or true positives, false ones, misses.
    """

    @property
    def n(self) -> int: ...
    @property
    def main(self) -> str: ...
    @property
    def values(self) -> Mapping[str, float]: ...
    @property
    def row_stats(self) -> npt.NDArray[np.float64]: ...

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """The main score from summed ``row_stats``, so that bootstrap and paired tests fit every task."""

    def to_json(self) -> dict[str, Any]:
        """For report.json and ``--json``. Of classes, a comparison also shows a matrix ``confusion`` with the
        names ``confusion_rows``, or a list ``confusions``."""


@dataclass(frozen=True)
class Part:
    """Scores of what a task tells apart, such as classes: a list in ``Metrics.to_json``, whose entries have a
    name, scores and a number of rows, in this order.

    Attributes:
        key: Of the list.
        title: What each entry is.
        columns: Of the scores and the number of rows.
        main: The score that comparisons show.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    main: str = "f1"

    def scores(self, record: Mapping[str, Any]) -> dict[str, list[float]]:
        """The values of each entry by its name, from what ``Metrics.to_json`` gave."""
        return {name: values for name, *values in (entry.values() for entry in record.get(self.key, ()))}

    def table(self, metrics: Mapping[str, Metrics], *, searchable: bool = False) -> Table:
        """A row for each entry, with its scores in each split in percent."""
        by_split = [self.scores(one.to_json()) for one in metrics.values()]
        heads = [Column(format_title(name), "right", split) for split in metrics for name in self.columns]
        rows, nothing = list[list[Cell | str]](), [*(0.0 for _ in self.columns[1:]), 0]
        for entry in dict.fromkeys(itertools.chain(*by_split)):
            values = itertools.chain(*(scores.get(entry, nothing) for scores in by_split))
            rows.append([entry])
            for name, value in zip(itertools.cycle(self.columns), values):
                text = f"{value:,}" if isinstance(value, int) else percent(value)
                rows[-1].append(Cell(text, value) if name == self.main and not searchable else text)
        return make_table([self.title.capitalize(), *heads], rows, searchable=searchable)


P = TypeVar("P", bound=Prediction)
M = TypeVar("M", bound=Metrics)


class Task(ABC, Generic[P, M]):
    """One kind of supervised problem, with predictions ``P`` and metrics ``M``; ``AnyTask`` is any of them.

    Attributes:
        name: Its key in ``TASKS``, in config.json and for ``--task``.
        fields: The texts of a row: ("text",), or ("question", "passage").
        further: Other columns that rows can have.
        heads: By name, the default first.
        form: How rows look where nothing is said of their columns.
        settings: Settings by name that differ from those of classification unless a user sets them.
        min_epochs: Passes over the rows at least, unless the user says how many.
        part: What its metrics tell apart.
        shown: Scores that a comparison shows beside the main one.
        cuts: False if texts are read whole, whatever ``max_words`` says.
        classifies_texts: True if single texts get classes, as stacks and linear models can learn them, too.
        own_mix: A mix of the user's, in place of those of elmokit.
        own_parts: Names of the user's classes, by what they are; a model that was fitted with them can be
            loaded only where they are given again.
    """

    name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ("text",)
    further: ClassVar[tuple[str, ...]] = ()
    heads: ClassVar[Mapping[str, type[Head]]]
    form: ClassVar[RowForm] = RowForm()
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    min_epochs: ClassVar[int] = 5
    part: ClassVar[Part | None] = None
    shown: ClassVar[tuple[str, ...]] = ()
    cuts: ClassVar[bool] = True
    classifies_texts: ClassVar[bool] = False
    own_mix: type[nn.Module] | None = None
    own_parts: Mapping[str, str] = MappingProxyType({})

    def inputs(self, row: Row, labels: Labels = Labels()) -> Inputs:  # noqa: B008 (frozen)
        """One text for each field; for a single field all text columns, joined; ``labels`` as in ``read``."""
        texts, wanted = (row.text,) if len(self.fields) == 1 else row.texts, self.fields
        if len(texts) != len(wanted):
            raise DataError(
                f"{row.place}: {len(texts)} text columns are read, but the task needs {len(wanted)}.",
                remedy=f"Give rows with the columns {', '.join(wanted)} in .csv, .tsv, .jsonl or .parquet; "
                "name others with --text-columns, in this order.",
            )
        return texts

    def classes(self, labels: Labels) -> tuple[str, ...]:
        """The labels as people name them."""
        return labels.names

    def prepare(self, inputs: Inputs) -> Inputs:
        """Texts as the task reads them, such as words with their places; unchanged if they are already so."""
        return inputs

    @abstractmethod
    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        """Check rows; learn the labels if ``labels`` has no names. Errors name the row."""

    @abstractmethod
    def loss(self, output: Output, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """The loss of each row, (batch,)."""

    @abstractmethod
    def decode(
        self,
        output: Output,
        masks: Sequence[Tensor],
        labels: Labels,
        inputs: Sequence[Inputs] | None = None,
    ) -> list[P]:
        """One prediction for each row of a batch.

        Args:
            masks: Of each field, (batch, time), as the head got them.
            inputs: The rows; None during training, where predictions are only measured.
        """

    @abstractmethod
    def measure(self, examples: Examples, predictions: Sequence[P]) -> M:
        """How good the predictions are."""

    @abstractmethod
    def columns(self, prediction: P) -> dict[str, Any]:
        """What predict writes and the service answers. A mapping inside becomes one CSV column per key."""

    def sections(self, metrics: Mapping[str, M]) -> list[Section]:
        """This task's part of a report, besides the scores, from the metrics of each split."""
        return []


def validation_scores(
    task: AnyTask, examples: Examples, predictions: Sequence[Any], losses: Tensor
) -> dict[str, float]:
    """The main score, the mean loss, and a "score" to minimize, in which the loss breaks ties."""
    metrics, loss = task.measure(examples, predictions), float(losses.mean())
    main = metrics.score(metrics.row_stats.sum(axis=0))
    return {"score": 1.0 - main + 1e-6 * loss, metrics.main: main, "valid_loss": loss}


def format_scores(scores: Mapping[str, float], at_most: int = 2) -> str:
    """The first scores, as in "accuracy 0.9012, macro F1 0.8954"."""
    names = [name for name in scores if name != "n"][:at_most]
    return ", ".join(f"{format_score_name(name)} {scores[name]:.4f}" for name in names)


def format_score_name(name: str) -> str:
    """As in "macro F1" for "macro_f1"."""
    return name.replace("_", " ").replace("f1", "F1").replace("ece", "ECE")


def format_title(name: str) -> str:
    """The same at the start of a line."""
    title = format_score_name(name)
    return title[0].upper() + title[1:]


AnyTask = Task[Any, Any]
TASKS: dict[str, AnyTask | str] = {
    "classify": "elmokit.tasks.classification:Classification",
    "tag": "elmokit.tasks.tagging:Tagging",
    "answer": "elmokit.tasks.answering:Answering",
    "pair": "elmokit.tasks.pairs:Pairs",
}
"""Tasks by name: an instance, or where its class is (module:name)."""


def get_task(name: str) -> AnyTask:
    """The task of that name."""
    if name not in TASKS:
        raise ConfigError(f"There is no task {name!r}.", remedy=nearest(name, TASKS))
    task = TASKS[name]
    if isinstance(task, str):
        module, _, attribute = task.partition(":")
        task = TASKS[name] = getattr(importlib.import_module(module), attribute)()
    return task


@dataclass(frozen=True)
class Columns:
    """The columns that a model was fitted on, to be read again unless others are given."""

    text: str = ""
    label: str = ""

    def reading(self, given: ReadConfig) -> ReadConfig:
        """Where the texts are. Numbers count for the fitted file only: others may lack the label column."""
        fitted = ReadConfig(text_columns=self.text)
        if given.columns or given.header == "no" or any(map(str.isdecimal, fitted.columns)):
            return given
        return replace(given, text_columns=self.text)

    def labeling(self, given: LabelConfig, labels: Labels) -> LabelConfig:
        """Where the labels are, and what separates them."""
        column = given.label_column or ("" if self.label.isdecimal() else self.label)
        return replace(given, label_column=column, label_separator=given.label_separator or labels.separator)


class Predictor(Model, Protocol):
    """A fitted model that predicts; ``record`` says how it was fitted."""

    @property
    def task(self) -> AnyTask: ...
    @property
    def labels(self) -> Labels: ...
    @property
    def record(self) -> FitRecord: ...

    def predict(self, inputs: Iterable[Inputs], *, progress: Advance = lambda amount: None) -> Iterator[Any]:
        """A prediction for each row, in order; reads and answers some rows at a time."""
