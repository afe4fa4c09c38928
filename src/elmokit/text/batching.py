"""Batches for language modeling (streams), for tasks (texts of similar length), and of whatever is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from elmokit.core.ragged import Ragged

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


def chunked(
    items: Iterable[T], at_most: int, size: Callable[[T], int] = lambda item: 0, limit: int = 0
) -> Iterator[list[T]]:
    """Lists of ``at_most`` items; one ends sooner if the sizes in it add up to more than ``limit``."""
    chunk, total = list[T](), 0
    for item in items:
        chunk.append(item)
        total += size(item)
        if len(chunk) == at_most or total > limit:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


class Streams:
    """One pass over documents as ``n_streams`` streams side by side, cut into windows of ``n_steps``.

    The documents, in the given order, form one sequence of N ids with N - 1 (word, next word) pairs. Each
    pair is in exactly one stream and one window: nothing is lost, added or padded. Streams differ in length
    by one at most, so the last window may have fewer of them.

    Backward, the documents come in the same order, each read from its end.
    """

    def __init__(
        self, documents: Ragged[Any], n_streams: int, n_steps: int, order: Ints | None = None
    ) -> None:
        self._ids = documents.values
        order = np.arange(len(documents)) if order is None else order
        lengths = documents.lengths[order]
        self._firsts = documents.offsets[:-1][order]  # where each document is on disk
        self._lasts = self._firsts + lengths - 1
        self._starts = np.concatenate([[0], np.cumsum(lengths)])  # ... and in this pass
        self._n_pairs = max(0, int(self._starts[-1]) - 1)
        self.n_streams = max(1, min(n_streams, self._n_pairs))
        self._n_steps = n_steps
        self._length, self._longer = divmod(self._n_pairs, self.n_streams)
        stream = np.arange(self.n_streams, dtype=np.int64)
        self._stream_starts = stream * self._length + np.minimum(stream, self._longer)
        self._n_even = -(-self._length // n_steps)

    def __len__(self) -> int:
        """Windows in the pass."""
        return self._n_even + (1 if self._longer else 0)

    def window(self, index: int) -> Ints:
        """A few steps of every stream, (direction, time + 1, stream): each word is followed by its target."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index < self._n_even:
            first = index * self._n_steps
            steps = np.arange(first, min(first + self._n_steps, self._length), dtype=np.int64)
            starts = self._stream_starts
        else:  # the one step that only the longer streams have
            steps = np.array([self._length], dtype=np.int64)
            starts = self._stream_starts[: self._longer]
        places = np.append(steps, steps[-1] + 1)[:, None] + starts[None, :]  # (time + 1, stream)
        document = np.searchsorted(self._starts, places, side="right") - 1
        within = places - self._starts[document]
        both = np.stack([self._firsts[document] + within, self._lasts[document] - within])
        ids: Ints = self._ids[both].astype(np.int64)
        return ids


def bucket_batches(
    lengths: Sequence[int] | npt.NDArray[Any],
    token_budget: int,
    *,
    rng: np.random.Generator | None = None,
) -> list[Ints]:
    """Indices of texts in batches of similar length, each at most ``token_budget`` padded tokens.

    Every index is in exactly one batch. A text longer than the budget is a batch by itself. An
    ``rng`` shuffles the batches, and texts of equal length.
    """
    sizes = np.maximum(np.asarray(lengths, dtype=np.int64), 1)
    ties = rng.permutation(len(sizes)) if rng is not None else np.arange(len(sizes))
    by_length = ties[np.argsort(sizes[ties], kind="stable")]
    batches: list[Ints] = []
    first = 0
    for end in range(1, len(by_length) + 1):
        if end == len(by_length) or (end + 1 - first) * sizes[by_length[end]] > token_budget:
            batches.append(by_length[first:end])
            first = end
    if rng is not None:
        batches = [batches[place] for place in rng.permutation(len(batches))]
    return batches
