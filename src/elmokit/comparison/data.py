"""The rows of a comparison: read once, split once, the same for every method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.core.formatting import plural
from elmokit.core.tensors import fingerprint
from elmokit.tasks.classification import shorten
from elmokit.tasks.fit import Files, content_hash, name_fields, read_splits
from elmokit.tasks.task import AnyTask, Columns, Examples, Labels, join_texts
from elmokit.tasks.trainer import is_single_label
from elmokit.text.rows import TextSource
from elmokit.text.settings import LabelConfig, ReadConfig

SPLITS = ("train", "valid", "test")
_VALID_SHARE = 0.1


@dataclass(frozen=True)
class Sources:
    """The files of a comparison; without validation rows, a tenth of each class is held out."""

    train: Files
    test: Files
    valid: Files = ()
    unlabeled: Files = ()

    def files(self, split: str) -> list[str | Path]:
        """Those of one split."""
        files: Files = getattr(self, split)
        return [files] if isinstance(files, str | Path) else list(files)


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
        """Those of the train rows."""
        return self.splits["train"].labels

    def texts(self, split: str) -> list[str]:
        """The text of each row: all fields in a line, words joined by spaces."""
        return join_texts(self.splits[split].inputs)

    @cached_property
    def all_texts(self) -> list[str]:
        """Those to pretrain on: of the train rows, and the unlabeled ones."""
        return [*self.texts("train"), *self.unlabeled]

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """A hash of each split, which changes when any row does."""
        hashes = {split: content_hash(examples) for split, examples in self.splits.items()}
        return {**hashes, "unlabeled": fingerprint(*self.unlabeled)}


def read_data(
    sources: Sources, task: AnyTask, read: ReadConfig, labels: LabelConfig, reporter: Reporter
) -> Data:
    """Read all files and hold out validation rows."""
    if labels.label_separator:
        raise ConfigError(
            "compare is for one label a row; --label-separator is for several.",
            remedy="Leave it out, or fit such a classifier with elmokit fit.",
        )
    read = name_fields(task, read)
    files = {split: sources.files(split) for split in SPLITS}
    splits = read_splits(task, files, read, labels, reporter, valid_share=_VALID_SHARE, seed=0)
    notes = [note for examples in splits.values() for note in examples.notes]
    unlabeled = sources.files("unlabeled")
    data = Data(
        task,
        splits,
        list(TextSource(unlabeled, read)) if unlabeled else [],
        notes,
        {split: ", ".join(Path(path).name for path in paths) for split, paths in files.items() if paths},
        Columns(read.text_columns, labels.label_column),
    )
    if splits["test"].unknown:
        notes.append(_note_unknown(splits["test"], files["test"][0]))
    notes += _note_duplicates(data)
    return data


def _note_unknown(test: Examples, file: str | Path) -> str:
    """A note on test rows with unknown labels; labels that are all unknown are refused."""
    n_known = len(test.labels)
    unknown, known = (shorten([repr(name) for name in names]) for names in (test.unknown, test.labels.names))
    if not ((test.targets >= 0) & (test.targets < n_known)).any():
        raise DataError(
            f"{file}: none of its labels ({unknown}) is among those of the train rows ({known}).",
            remedy="Give both files the same labels, or name the right column: --label-column.",
        )
    n_rows = int((test.targets >= n_known).reshape(len(test), -1).any(axis=1).sum())
    return f"{n_rows:,} test rows have labels that no train row has ({unknown}): wrong for every method."


def _note_duplicates(data: Data) -> list[str]:
    """Notes on texts that are in several splits, or twice in one."""
    texts = {split: [" ".join(text.split()) for text in data.texts(split)] for split in SPLITS}
    train, test, notes = set(texts["train"]), set(texts["test"]), []
    for split, name in (("test", "test"), ("valid", "validation")):
        if n_same := sum(text in train for text in texts[split]):
            notes.append(f"Also in the train rows: {n_same:,} of the {len(texts[split]):,} {name} rows.")
    if n_repeated := len(texts["train"]) - len(train):
        notes.append(f"Repeated within the train rows: {plural(n_repeated, 'row')}.")
    if data.unlabeled:
        notes.append(f"{len(data.unlabeled):,} texts without labels are used for pretraining.")
    if n_same := sum(" ".join(text.split()) in test for text in data.unlabeled):
        notes.append(f"{n_same:,} of the texts without labels are test texts: test figures are too good.")
    return notes


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
    others = np.setdiff1d(np.arange(len(targets)), firsts)
    return np.sort(order[np.concatenate([firsts, others])[:n_labels]])
