"""The rows of a comparison: read once, split once, written where every method reads the same ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import atomic_write
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, RunError
from elmokit.tasks.estimator import validation_split
from elmokit.tasks.fit import LabelledTexts, class_names, class_numbers, read_labelled
from elmokit.tasks.model import Targets
from elmokit.text.rows import TextSource
from elmokit.text.settings import LabelConfig, ReadConfig

__all__ = ["Rows", "draw", "load_rows", "n_words", "read_rows", "save_rows"]

SPLITS = ("train", "valid", "test")
_VALID_SHARE = 0.1


@dataclass(frozen=True)
class Rows:
    """All rows of a comparison.

    Attributes:
        parts: texts and labels of train, valid and test.
        classes: the names of the classes in the train rows, sorted.
        unlabelled: further texts, for pretraining alone.
        notes: what a person should know of them.
    """

    parts: dict[str, LabelledTexts]
    classes: list[str]
    unlabelled: list[str]
    notes: list[str]

    def texts(self, split: str) -> list[str]:
        """The texts of a split."""
        return self.parts[split].texts

    def labels(self, split: str) -> list[str]:
        """The label of each text of a split."""
        return [labels[0] for labels in self.parts[split].labels]

    def targets(self, split: str, chosen: Sequence[int] | None = None) -> Targets:
        """What a classifier is to learn from a split, or from some rows of it."""
        values = class_numbers(self.parts[split], self.classes, False, split)
        return Targets(self.classes, values if chosen is None else values[np.asarray(chosen)])

    def marks(self) -> dict[str, str]:
        """A mark of each split, which changes when any row of it does."""
        marks = {name: self.parts[name].content_hash() for name in SPLITS}
        texts = LabelledTexts(self.unlabelled, [[]] * len(self.unlabelled), [])
        return {**marks, "unlabelled": texts.content_hash()}


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
    found = read_labelled(train, read, labels, reporter)
    classes = class_names(found, train, reporter)
    parts = {"train": found, "test": read_labelled(test, read, labels, reporter)}
    notes = [*found.notes, *parts["test"].notes]
    _check_labels(parts["test"], classes, test, notes)
    if valid:
        parts["valid"] = read_labelled(valid, read, labels, reporter)
        notes += parts["valid"].notes
    else:
        held = validation_split(class_numbers(found, classes, False, "train"), _VALID_SHARE, 0)
        if not held.any():
            raise DataError(
                f"{train[0]} has one row of each class: none can be set aside for validation.",
                remedy="Give more rows, or rows for validation (TRAIN VALID TEST).",
            )
        parts |= {"train": found.some(~held), "valid": found.some(held)}
        notes.append(f"{int(held.sum()):,} of the {len(held):,} train rows were set aside for validation.")
    class_numbers(parts["valid"], classes, False, "valid")
    _note_duplicates(parts, notes)
    more = list(TextSource(unlabelled, read)) if unlabelled else []
    if more:
        notes.append(f"{len(more):,} texts without labels are used for pretraining.")
        _note_leaks(more, parts, notes)
    return Rows({name: parts[name] for name in SPLITS}, classes, more, notes)


def _check_labels(
    test: LabelledTexts, classes: list[str], files: Sequence[str | Path], notes: list[str]
) -> None:
    counts = Counter(labels[0] for labels in test.labels)
    unseen = sorted(set(counts) - set(classes))
    if len(unseen) == len(counts):
        shown = ", ".join(map(repr, unseen[:5]))
        known = ", ".join(map(repr, classes[:5]))
        raise DataError(
            f"{files[0]}: none of its labels ({shown}) is among those of the train rows ({known}).",
            remedy="Give both files the same labels, or name the right column: --label-column.",
        )
    if unseen:
        n_rows = sum(counts[name] for name in unseen)
        listed = ", ".join(unseen[:5]) + (", …" if len(unseen) > 5 else "")
        notes.append(
            f"{n_rows:,} test rows have labels that no train row has ({listed}): wrong for every method."
        )


def n_words(texts: Iterable[str]) -> int:
    """About how many words there are, counted by their spaces."""
    return sum(text.count(" ") + 1 for text in texts)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _note_duplicates(parts: dict[str, LabelledTexts], notes: list[str]) -> None:
    train = {_plain(text) for text in parts["train"].texts}
    for name, word in (("test", "test"), ("valid", "validation")):
        n_same = sum(_plain(text) in train for text in parts[name].texts)
        if n_same:
            some = "1 row stands" if n_same == 1 else f"{n_same:,} rows stand"
            notes.append(f"{some} in train and {word} alike, of {len(parts[name].texts):,} {word} rows.")
    n_twice = len(parts["train"].texts) - len(train)
    if n_twice:
        notes.append(f"{n_twice:,} train rows are repeats of others.")


def _note_leaks(more: list[str], parts: dict[str, LabelledTexts], notes: list[str]) -> None:
    test = {_plain(text) for text in parts["test"].texts}
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
    try:
        for name in SPLITS:
            found = _objects(folder / f"{name}.jsonl")
            texts, labels = [row["text"] for row in found], [[row["label"]] for row in found]
            parts[name] = LabelledTexts(texts, labels, [])
        unlabelled = [row["text"] for row in _objects(folder / "unlabelled.jsonl")]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(
            f"The rows in {folder} cannot be read: {error}.", remedy="Run the comparison again."
        ) from error
    classes = sorted({labels[0] for labels in parts["train"].labels})
    return Rows(parts, classes, unlabelled, [])


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
