"""Rows of different lengths in one flat array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

D = TypeVar("D", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Ragged(Generic[D]):
    """Row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: npt.NDArray[D]  # all rows, one after the other, (n_values, ...); may be a memory map
    offsets: npt.NDArray[np.int64]  # where each row starts, and where the last one ends, (n_rows + 1,)

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike], dtype: npt.DTypeLike) -> Ragged[Any]:
        """Join rows that may be lists or arrays."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        lengths = [len(row) for row in arrays]
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
        return Ragged(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[D]:
        row = range(len(self))[row]  # counts from the end if negative; IndexError outside
        return self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def __iter__(self) -> Iterator[npt.NDArray[D]]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of each row, (n_rows,)."""
        return np.diff(self.offsets)

    def padded(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[D]:
        """Some rows with zeros at their ends, (len(rows), longest, ...)."""
        lengths = self.lengths[rows]
        shape = (len(rows), int(lengths.max(initial=0)), *self.values.shape[1:])
        result = np.zeros(shape, dtype=self.values.dtype)
        for place, row in enumerate(rows):
            result[place, : lengths[place]] = self[row]
        return result
