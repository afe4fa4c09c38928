"""Word vectors by truncated SVD of a matrix of co-occurrences."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import ArpackError, svds

from elmokit.core.errors import DataError, RunError
from elmokit.static.counting import Counts
from elmokit.static.settings import SvdConfig
from elmokit.text.tokenizing import SPECIALS
from elmokit.vectors.embeddings import Floats

__all__ = ["factorised", "weighted"]


def weighted(counts: Counts, config: SvdConfig) -> Counts:
    """What is factorised: the counts as they are, their logarithm, or PPMI.

    PPMI of a word w and a context c is max(0, log(p(w, c) / (p(w) p(c))) - log(shift)), with p(c) in
    proportion to the count of c to the power ``smoothing``. Nothing is ever added where the count
    is zero, so the matrix stays as sparse as it was.
    """
    found = counts.tocoo()
    if config.counts == "raw":
        values = found.data
    elif config.counts == "log":
        values = np.log1p(found.data)
    else:
        seen = np.asarray(counts.sum(axis=1)).ravel()
        contexts = np.zeros(len(seen))
        contexts[seen > 0] = seen[seen > 0] ** config.smoothing
        contexts /= contexts.sum() or 1.0
        row, column = found.coords
        values = np.log(found.data / (seen[row] * contexts[column])) - math.log(config.shift)
        values = np.maximum(values, 0.0)
    kept = values > 0
    places = tuple(axis[kept] for axis in found.coords)
    return sparse.coo_array((values[kept].astype(np.float32), places), shape=counts.shape).tocsr()


def factorised(matrix: Counts, config: SvdConfig) -> Floats:
    """The left singular vectors of the ``dim`` largest singular values, each times its value to the
    power ``power``: (n_words, dim), largest first.

    The largest component of each is positive, which a singular vector alone leaves open, so that
    the same matrix and seed give the same vectors. A vocabulary of n words has n - 1 dimensions to
    give at most.
    """
    n_words = matrix.shape[0]
    if matrix.nnz == 0:
        raise DataError(
            "No two words stand together more often than by chance: there is nothing to learn.",
            remedy="Give more text, or longer texts; or lower --shift.",
        )
    dim = min(config.dim, n_words - len(SPECIALS) - 1)
    start = np.random.default_rng(config.seed).standard_normal(n_words).astype(np.float32)
    try:
        left, values, _ = svds(matrix, k=dim, v0=start, return_singular_vectors="u")
    except ArpackError as error:
        raise RunError(
            f"The SVD did not come to an end: {error}.", remedy="Lower --dim, or choose other counts."
        ) from error
    order = np.argsort(-values, kind="stable")
    left, values = left[:, order], values[order]
    largest = np.abs(left).argmax(axis=0)
    signs = np.where(left[largest, np.arange(len(values))] < 0, -1.0, 1.0)
    scale = signs * np.maximum(values, 0.0) ** config.power
    return np.ascontiguousarray(left * scale, dtype=np.float32)
