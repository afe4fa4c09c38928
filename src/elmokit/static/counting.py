"""How often two words stand near each other, as a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import sparse

from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS

__all__ = ["Counts", "count_pairs"]

Counts = Any
"""A ``scipy.sparse.csr_array`` of shape (n_words, n_words)."""
_PAIRS_AT_ONCE = 1 << 22


def count_pairs(
    documents: Documents,
    n_words: int,
    window: int,
    distance: Literal["flat", "harmonic"] = "flat",
    *,
    progress: Callable[[int], None] = lambda amount: None,
) -> Counts:
    """How often each word stands at most ``window`` words to either side of each other.

    The matrix is symmetric. No pair reaches from one document into another, and ``<s>`` and
    ``</s>`` are no words. Memory grows with the number of distinct pairs, not with the text.

    Args:
        documents: word ids below ``n_words``, each document between ``<s>`` and ``</s>``.
        n_words: rows and columns of the matrix.
        window: how far apart two words may stand.
        distance: each pair counts as 1, or as 1 over the distance of its words.
        progress: told how many ids were just done.
    """
    longest = int(documents.lengths.max(initial=0))
    window = min(window, max(1, longest))  # words further apart never share a document
    size = max(1, _PAIRS_AT_ONCE // window)
    parts: list[Counts] = []
    for first in range(0, len(documents.ids), size):
        parts.append(
            _ahead(np.asarray(documents.ids[first : first + size + window]), size, n_words, window, distance)
        )
        # Parts of like size are added up, so that no large one is copied often.
        while len(parts) > 1 and parts[-2].nnz <= 2 * parts[-1].nnz:
            parts.append(parts.pop() + parts.pop())
        progress(min(size, len(documents.ids) - first))
    total: Counts = sparse.csr_array((n_words, n_words), dtype=np.float64)
    for part in reversed(parts):
        total = total + part
    total = (total + total.T).tocsr()
    total.sort_indices()
    return total


def _ahead(ids: Any, size: int, n_words: int, window: int, distance: str) -> Counts:
    """The pairs whose first word is among the first ``size`` of ``ids``, by (first, second) word."""
    document = np.cumsum(ids == BOS)
    edge = (ids == BOS) | (ids == EOS)
    document[edge] = -np.arange(1, edge.sum() + 1)  # an edge is in no document
    words = ids.astype(np.int32)
    before, after, weights = [], [], []
    for step in range(1, min(window, len(ids) - 1) + 1):
        together = np.flatnonzero(document[:-step][:size] == document[step:][:size])
        before.append(words[together])
        after.append(words[together + step])
        weights.append(np.full(len(together), 1.0 if distance == "flat" else 1.0 / step))
    if not before:
        return sparse.csr_array((n_words, n_words), dtype=np.float64)
    places = (np.concatenate(before), np.concatenate(after))
    return sparse.coo_array((np.concatenate(weights), places), shape=(n_words, n_words)).tocsr()
