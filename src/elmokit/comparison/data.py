"""The rows of a comparison: read once, split once, written where every method reads the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import atomic_write
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, RunError
from elmokit.core.tensors import fingerprint
from elmokit.tasks.fit import content_hash, read_examples, refuse_unknown, validation_split
from elmokit.tasks.task import AnyTask, Examples, Labels, get_task
from elmokit.text.rows import Row, TextSource
from elmokit.text.settings import LabelConfig, ReadConfig

__all__ = ["Rows", "draw", "load_rows", "n_words", "read_rows", "save_rows"]

SPLITS = ("train", "valid", "test")
_VALID_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Data:
    """All rows of a comparison, read once.

    Attributes:
        splits: Examples of train, valid and test; those of train have the labels.
        unlabeled: Further texts, for pretraining only.
        notes: What a person should know about the rows.
        names: The names of each split's files, for the report.
    """

    task: AnyTask
    splits: Mapping[str, Examples]
    unlabeled: Sequence[str] = ()
    notes: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> Labels:
        """Those of the train rows."""
        return self.splits["train"].labels

    def texts(self, split: str) -> list[str]:
        """The text of each row: all fields in a line, words joined by spaces."""
        return [
            " ".join(text if isinstance(text, str) else " ".join(text) for text in inputs)
            for inputs in self.splits[split].inputs
        ]


@dataclass(frozen=True)
class Rows:
    """All rows of a comparison.

    Attributes:
        parts: examples of train, valid and test.
        classes: the names of the classes in the train rows, sorted.
        unlabelled: further texts, for pretraining alone.
        notes: what a person should know of them.
    """

    parts: dict[str, Examples]
    classes: list[str]
    unlabelled: list[str]
    notes: list[str]

    def texts(self, split: str) -> list[str]:
        """The texts of a split."""
        return [str(inputs[0]) for inputs in self.parts[split].inputs]

    def labels(self, split: str) -> list[str]:
        """The label of each text of a split."""
        names = (*self.parts[split].labels.names, *self.parts[split].unknown)
        return [names[number] for number in self.parts[split].targets]

    def marks(self) -> dict[str, str]:
        """A mark of each split, which changes when any row of it does."""
        marks = {name: content_hash(self.parts[name]) for name in SPLITS}
        return {**marks, "unlabelled": fingerprint(*self.unlabelled)}


def read_rows(
    train: Sequence[str | Path],
    test: Sequence[str | Path],
    valid: Sequence[str | Path] = (),
    unlabelled: Sequence[str | Path] = (),
    *,
    read: ReadConfig,
    labels: LabelConfig,
    reporter: Reporter,
) -> Rows:
    """Read all files; without validation rows, set a tenth of each class of the train rows aside."""
    if labels.label_separator:
        raise ConfigError(
            "compare is for one label a row; --label-separator is for several.",
            remedy="Leave it out, or fit such a classifier with elmokit fit.",
        )
    task = get_task("classify")
    found = read_examples(task, train, read, labels, Labels(), reporter)
    known = found.labels
    parts = {"train": found, "test": read_examples(task, test, read, labels, known, reporter)}
    notes = [*found.notes, *parts["test"].notes]
    _check_labels(parts["test"], test, notes)
    if valid:
        parts["valid"] = read_examples(task, valid, read, labels, known, reporter)
        refuse_unknown(parts["valid"], "validation")
        notes += parts["valid"].notes
    else:
        held = validation_split(found.targets, _VALID_SHARE, 0)
        if not held.any():
            raise DataError(
                f"{train[0]} has one row of each class: none can be set aside for validation.",
                remedy="Give more rows, or rows for validation (TRAIN VALID TEST).",
            )
        parts |= {"train": found.select(np.flatnonzero(~held)), "valid": found.select(np.flatnonzero(held))}
        notes.append(f"{int(held.sum()):,} of the {len(held):,} train rows were set aside for validation.")
    _note_duplicates(parts, notes)
    more = list(TextSource(unlabelled, read)) if unlabelled else []
    if more:
        notes.append(f"{len(more):,} texts without labels are used for pretraining.")
        _note_leaks(more, parts, notes)
    return Rows({name: parts[name] for name in SPLITS}, list(known.names), more, notes)


def _check_labels(test: Examples, files: Sequence[str | Path], notes: list[str]) -> None:
    n_known = len(test.labels)
    unknown = int((test.targets >= n_known).sum())
    if unknown == len(test):
        shown = ", ".join(map(repr, test.unknown[:5]))
        known = ", ".join(map(repr, test.labels.names[:5]))
        raise DataError(
            f"{files[0]}: none of its labels ({shown}) is among those of the train rows ({known}).",
            remedy="Give both files the same labels, or name the right column: --label-column.",
        )
    if unknown:
        listed = ", ".join(test.unknown[:5]) + (", …" if len(test.unknown) > 5 else "")
        notes.append(
            f"{unknown:,} test rows have labels that no train row has ({listed}): wrong for every method."
        )


def n_words(texts: Iterable[str]) -> int:
    """About how many words there are, counted by their spaces."""
    return sum(text.count(" ") + 1 for text in texts)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _plain_texts(examples: Examples) -> list[str]:
    return [_plain(str(inputs[0])) for inputs in examples.inputs]


def _note_duplicates(parts: dict[str, Examples], notes: list[str]) -> None:
    train = set(_plain_texts(parts["train"]))
    for name, word in (("test", "test"), ("valid", "validation")):
        n_same = sum(text in train for text in _plain_texts(parts[name]))
        if n_same:
            some = "1 row stands" if n_same == 1 else f"{n_same:,} rows stand"
            notes.append(f"{some} in train and {word} alike, of {len(parts[name]):,} {word} rows.")
    n_twice = len(parts["train"]) - len(train)
    if n_twice:
        notes.append(f"{n_twice:,} train rows are repeats of others.")


def _note_leaks(more: list[str], parts: dict[str, Examples], notes: list[str]) -> None:
    test = set(_plain_texts(parts["test"]))
    n_same = sum(_plain(text) in test for text in more)
    if n_same:
        notes.append(f"{n_same:,} of the texts without labels are test texts: test figures are too good.")


def save_rows(folder: Path, rows: Rows) -> None:
    """Write the rows as files that every part of the comparison reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        with atomic_write(folder / f"{name}.jsonl") as file, open(file, "w", encoding="utf-8") as stream:
            for text, label in zip(rows.texts(name), rows.labels(name), strict=True):
                stream.write(json.dumps({"text": text, "label": label}) + "\n")
    with atomic_write(folder / "unlabelled.jsonl") as file, open(file, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"text": text}) + "\n" for text in rows.unlabelled)


def load_rows(folder: Path) -> Rows:
    """Read what ``save_rows`` wrote."""
    parts = {}
    task, labels = get_task("classify"), Labels()
    try:
        for name in SPLITS:
            rows = (Row("", row["text"], row["label"]) for row in _objects(folder / f"{name}.jsonl"))
            parts[name] = task.read(rows, labels)
            labels = parts["train"].labels
        unlabelled = [row["text"] for row in _objects(folder / "unlabelled.jsonl")]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The rows in {folder} cannot be read: {error}.", remedy="Run the comparison again."
        ) from error
    return Rows(parts, list(labels.names), unlabelled, [])


def _objects(file: Path) -> list[dict[str, Any]]:
    with open(file, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def draw(values: npt.NDArray[np.int64], n_labels: int, number: int) -> npt.NDArray[np.int64]:
    """The places of ``n_labels`` rows drawn at random, one of each class at least where it goes, in order.
    Draw ``number`` is the same for every method."""
    order = np.random.default_rng([n_labels, number]).permutation(len(values))
    _, firsts = np.unique(values[order], return_index=True)
    others = np.setdiff1d(np.arange(len(values)), firsts)
    return np.sort(order[np.concatenate([firsts, others])[:n_labels]])
