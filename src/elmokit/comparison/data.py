"""The rows of a comparison: read once, split once, the same for every method."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.core.formatting import join_names
from elmokit.core.tensors import fingerprint
from elmokit.tasks.fit import Files, content_hash, name_fields, read_splits
from elmokit.tasks.task import AnyTask, Columns, Examples, Labels, join_texts
from elmokit.tasks.trainer import is_single_label
from elmokit.text.rows import TextSource
from elmokit.text.settings import LabelConfig, ReadConfig

SPLITS = ("train", "valid", "test")
MAX_MEASURED = 5000
"""Train rows that methods are measured on."""
_VALID_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Data:
    """All rows of a comparison.

    Attributes:
        splits: Examples of train, valid and test.
        unlabeled: Further texts, for pretraining only.
        names: The names of each split's files, for the report.
    """

    task: AnyTask
    splits: Mapping[str, Examples]
    unlabeled: Sequence[str] = ()
    notes: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    columns: Columns = Columns()  # noqa: RUF009 (frozen)

    @property
    def labels(self) -> Labels:
        """Those of the training rows."""
        return self.splits["train"].labels

    def texts(self, split: str) -> list[str]:
        """The text of each row: all fields in a line, words joined by spaces."""
        return join_texts(self.splits[split].inputs)

    @cached_property
    def all_texts(self) -> list[str]:
        """Those to pretrain on: of training rows, and the unlabeled ones. A text that pairs share is one."""
        own, n_fields = self.texts("train"), len(self.task.fields)
        if n_fields > 1:
            inputs = self.splits["train"].inputs
            own = [*dict.fromkeys(join_texts((text,) for row in inputs for text in row))]
        return [*own, *self.unlabeled]

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """A hash of each split, which changes when any row does."""
        hashes = {split: content_hash(examples) for split, examples in self.splits.items()}
        return {**hashes, "unlabeled": fingerprint(*map(json.dumps, self.unlabeled))}


def read_data(
    sources: Mapping[str, Files], task: AnyTask, read: ReadConfig, labels: LabelConfig, reporter: Reporter
) -> Data:
    """Read the files of each split and the ``unlabeled``; without validation rows, some are held out."""
    if labels.label_separator:
        raise ConfigError(
            "compare supports one label per row, so --label-separator does not apply.",
            remedy="Leave it out, or use elmokit fit for rows with several labels.",
        )
    read = name_fields(task, read)
    files = {part: [some] if isinstance(some, str | Path) else list(some) for part, some in sources.items()}
    more = TextSource(files["unlabeled"], read, say=reporter.note) if files["unlabeled"] else ()
    unlabeled = list(more)
    del files["unlabeled"]
    splits = read_splits(task, files, read, labels, reporter, valid_share=_VALID_SHARE, seed=0)
    notes = [note for examples in splits.values() for note in examples.notes]
    names = {split: ", ".join(Path(path).name for path in paths) for split, paths in files.items() if paths}
    data = Data(task, splits, unlabeled, notes, names, Columns(read.text_columns, labels.label_column))
    _check_labels(splits["test"], files["test"][0])
    if (n_train := len(splits["train"])) > MAX_MEASURED:
        notes.append(f"Training scores use a sample of {MAX_MEASURED:,} of the {n_train:,} training rows.")
    train, test, other = (
        [" ".join(text.split()) for text in texts]
        for texts in (data.texts("train"), data.texts("test"), unlabeled)
    )
    if n_same := sum(map(set(train).__contains__, test)):
        notes.append(f"{n_same:,} of the {len(test):,} test rows also occur in the training rows.")
    if other:
        n_same = sum(map(set(test).__contains__, other))
        notes.append(f"{len(other):,} unlabeled texts are used for pretraining; {n_same:,} are test texts.")
    return data


def _check_labels(test: Examples, file: str | Path) -> None:
    """Refuse test rows of which all labels are unknown."""
    if test.unknown and not ((test.targets >= 0) & (test.targets < len(test.labels))).any():
        names = (test.unknown, test.labels.names)
        unknown, known = (join_names(map(repr, some), at_most=8) for some in names)
        raise DataError(
            f"{file}: none of its labels ({unknown}) is among those of the training rows ({known}).",
            remedy="Give both files the same labels, or name the right column: --label-column.",
        )


def n_words(texts: Iterable[str]) -> int:
    """About how many words there are, counted by their spaces."""
    return sum(text.count(" ") + 1 for text in texts)


def draw_rows(targets: npt.NDArray[Any], n_labels: int, number: int) -> npt.NDArray[np.int64]:
    """Numbers of ``n_labels`` random rows, in order, with at least one row of each class if they suffice.

    Draw ``number`` has the same rows for every method.
    """
    order = np.random.default_rng([n_labels, number]).permutation(len(targets))
    firsts = np.zeros(0, dtype=np.int64)
    if is_single_label(targets):
        _, firsts = np.unique(targets[order], return_index=True)
        firsts.sort()  # with fewer labels than classes, classes are drawn at random, too
    others = np.setdiff1d(np.arange(len(targets)), firsts)
    return np.sort(order[np.concatenate([firsts, others])[:n_labels]])
