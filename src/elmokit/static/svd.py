"""Word vectors by truncated SVD of a matrix of co-occurrence counts."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import ArpackError, svds

from elmokit.core.console import Advance
from elmokit.core.errors import DataError, RunError
from elmokit.static.settings import SvdConfig
from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS, SPECIALS
from elmokit.vectors.encoder import FloatArray

Counts = Any
"""A ``scipy.sparse.csr_array`` of shape (n_words, n_words)."""
_PAIRS_AT_ONCE = 1 << 22


def count_pairs(
    documents: Documents,
    n_words: int,
    window: int,
    distance: Literal["flat", "harmonic"] = "flat",
    *,
    progress: Advance = lambda amount: None,
) -> Counts:
    """How often each word occurs at most ``window`` words to either side of each other, (n_words, n_words).

    The matrix is symmetric. No pair reaches from one document into another, and ``<s>`` and ``</s>`` do not
    count as words. Memory grows with the number of distinct pairs, not with the text.

    Args:
        distance: Each pair counts as 1, or as 1 over the distance of its words.
    """
    longest = int(documents.lengths.max(initial=0))
    window = min(window, max(1, longest))  # words further apart never share a document
    size = max(1, _PAIRS_AT_ONCE // window)
    parts: list[Counts] = []
    for first in range(0, len(documents.values), size):
        ids = np.asarray(documents.values[first : first + size + window])
        parts.append(_count_forward(ids, size, n_words, window, distance))
        # Parts of similar size are added up, so that no large one is copied often.
        while len(parts) > 1 and parts[-2].nnz <= 2 * parts[-1].nnz:
            parts.append(parts.pop() + parts.pop())
        progress(min(size, len(documents.values) - first))
    total: Counts = sum(reversed(parts), sparse.csr_array((n_words, n_words), dtype=np.float64))
    total = (total + total.T).tocsr()
    total.sort_indices()
    return total


def _count_forward(ids: Any, size: int, n_words: int, window: int, distance: str) -> Counts:
    """Pairs (word, later word) whose first word is among the first ``size`` of ``ids``."""
    document = np.cumsum(ids == BOS)
    edge = (ids == BOS) | (ids == EOS)
    document[edge] = -np.arange(1, edge.sum() + 1)  # an edge is in no document
    words = ids.astype(np.int32)
    before, after, weights = [words[:0]], [words[:0]], [np.empty(0)]
    for step in range(1, min(window, len(ids) - 1) + 1):
        together = np.flatnonzero(document[:-step][:size] == document[step:][:size])
        before.append(words[together])
        after.append(words[together + step])
        weights.append(np.full(len(together), 1.0 if distance == "flat" else 1.0 / step))
    places = (np.concatenate(before), np.concatenate(after))
    return sparse.coo_array((np.concatenate(weights), places), shape=(n_words, n_words)).tocsr()


def weight_counts(counts: Counts, config: SvdConfig) -> Counts:
    """The matrix to factorize: the counts as they are, their logarithm, or PPMI.

    PPMI of a word w and a context c is max(0, log(p(w, c) / (p(w) p(c))) - log(shift)), with p(c)
    proportional to the count of c to the power ``smoothing``. Zero counts stay zero, so the matrix stays as
    sparse as it was.
    """
    entries = counts.tocoo()
    if config.counts == "raw":
        values = entries.data
    elif config.counts == "log":
        values = np.log1p(entries.data)
    else:
        totals = np.asarray(counts.sum(axis=1)).ravel()
        contexts = np.zeros(len(totals))
        contexts[totals > 0] = totals[totals > 0] ** config.smoothing
        contexts /= contexts.sum() or 1.0
        row, column = entries.coords
        values = np.log(entries.data / (totals[row] * contexts[column])) - math.log(config.shift)
        values = np.maximum(values, 0.0)
    positive = values > 0
    places = tuple(axis[positive] for axis in entries.coords)
    return sparse.coo_array((values[positive].astype(np.float32), places), shape=counts.shape).tocsr()


def factorize(matrix: Counts, config: SvdConfig) -> FloatArray:
    """The left singular vectors of the ``dim`` largest singular values, each times its value to the power
    ``power``: (n_words, dim), largest first.

    The largest component of each is positive; the sign of a singular vector is otherwise arbitrary, and so
    the same matrix and seed give the same vectors. n words have at most n - 1 dimensions.
    """
    n_words = matrix.shape[0]
    if matrix.nnz == 0:
        raise DataError(
            "No two words occur together more often than by chance: there is nothing to learn.",
            remedy="Give more text, or longer texts; or lower --shift.",
        )
    dim = min(config.dim, n_words - len(SPECIALS) - 1)
    start = np.random.default_rng(config.seed).standard_normal(n_words).astype(np.float32)
    try:
        left, values, _ = svds(matrix, k=dim, v0=start, return_singular_vectors="u")
    except ArpackError as error:
        raise RunError(
            f"The SVD did not converge: {error}.", remedy="Lower --dim, or choose other --counts."
        ) from error
    order = np.argsort(-values, kind="stable")
    left, values = left[:, order], values[order]
    largest = np.abs(left).argmax(axis=0)
    signs = np.where(left[largest, np.arange(len(values))] < 0, -1.0, 1.0)
    scale = signs * np.maximum(values, 0.0) ** config.power
    return np.ascontiguousarray(left * scale, dtype=np.float32)
