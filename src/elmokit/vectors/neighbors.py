"""The nearest vectors, exactly: texts that are like a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.text.tokenizing import reject_table
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.selection import selected
from elmokit.vectors.store import VectorStore

__all__ = ["Hit", "cosines", "nearest_rows", "search", "unit_rows"]

_BLOCK_NUMBERS = 1 << 21  # 16 MB of double precision


@dataclass(frozen=True)
class Hit:
    """A text that was found.

    Attributes:
        id: of the text.
        index: its number in the folder.
        score: cosine similarity to the query, 1 at most.
        text: the text itself.
    """

    id: str
    index: int
    score: float
    text: str


def search(
    store: VectorStore | str | Path, queries: Sequence[str], elmo: Elmo, k: int = 10
) -> list[list[Hit]]:
    """The ``k`` texts of an embedded folder that are most like each query, best first.

    Queries are embedded just as the texts of the folder were. Every text is compared, in blocks, so
    the answer is exact and memory stays flat. With all layers, layers are compared side by side.

    Args:
        store: a folder made with ``elmokit embed --pool mean`` or another pooling, opened or not.
        queries: texts to look for.
        elmo: the model that the folder was made with.
        k: texts to find for each.
    """
    if isinstance(queries, str):
        raise ConfigError(
            "search takes a list of queries, not one string.", remedy="Put it in a list: [query]."
        )
    reject_table(queries)
    store = store if isinstance(store, VectorStore) else VectorStore.open(store)
    check_model(store, elmo)
    if store.config.pool == "none":
        raise ConfigError(
            f"{store.folder} holds a vector for each word, not for each text.",
            remedy="Make one with: elmokit embed MODEL FILES --pool mean --out FOLDER "
            "(or look for words: elmokit similar).",
        )
    queries = list(queries)
    if not queries:
        return []
    found = elmo.embed(queries, state=store.config.state)
    for number, words in enumerate(found.tokens):
        if not words:
            raise DataError(f"Query {number} ({queries[number]!r}) holds no word.", remedy="Ask for words.")
    wanted = selected(found, store.config)
    matrix = store.vectors.reshape(len(store), -1)
    rows, scores = nearest_rows(matrix, wanted.reshape(len(queries), -1), k)
    hits = []
    for nearest, similar in zip(rows.tolist(), scores.tolist(), strict=True):
        records = [store.record(row) for row in nearest]
        found_ones = zip(records, nearest, similar, strict=True)
        hits.append([Hit(record.id, row, score, record.text) for record, row, score in found_ones])
    return hits


def check_model(store: VectorStore, elmo: Elmo) -> None:
    """Refuse a folder whose vectors another model has made: they cannot be compared."""
    if store.fingerprint != elmo.fingerprint:
        name = store.manifest["model"].get("name")
        raise ModelError(
            f"{store.folder} was made with another model{f' ({name})' if name else ''}.",
            remedy="Use that model, or embed the texts again with this one: elmokit embed.",
        )


def nearest_rows(
    matrix: npt.NDArray[Any], queries: npt.NDArray[Any], k: int, block: int | None = None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The ``k`` rows of ``matrix`` with the highest cosine to each query, and the cosines.

    Both results are (n_queries, min(k, n_rows)), best first; of equal rows the first comes first. A
    zero vector has the cosine 0 with everything. The matrix may be a memory map: only ``block`` rows
    of it are in memory at a time.

    >>> rows, scores = nearest_rows(np.eye(3), np.array([[0.0, 2.0, 1.0]]), k=2)
    >>> rows.tolist(), scores.round(2).tolist()
    ([[1, 2]], [[0.8899999856948853, 0.44999998807907104]])
    """
    if k < 1:
        raise ConfigError(f"k = {k} is out of range: it must be at least 1.")
    if matrix.ndim != 2 or queries.ndim != 2 or matrix.shape[1] != queries.shape[1]:
        raise ConfigError(
            f"Rows of shape {matrix.shape} and queries of shape {queries.shape} cannot be compared.",
            remedy="Both must have two axes, and the same width.",
        )
    if block is not None and block < 1:
        raise ConfigError(f"block = {block} is out of range: it must be at least 1.")
    size = block or max(1, _BLOCK_NUMBERS // max(1, matrix.shape[1]))
    units = unit_rows(queries)
    rows = np.empty((len(queries), 0), dtype=np.int64)
    scores = np.empty((len(queries), 0), dtype=np.float32)
    for first in range(0, len(matrix), size):
        near = cosines(matrix[first : first + size], units)
        # The best so far come first and sorting is stable, so the lower row wins a tie.
        scores = np.concatenate([scores, near], axis=1)
        places = np.broadcast_to(np.arange(first, first + near.shape[1]), near.shape)
        rows = np.concatenate([rows, places], axis=1)
        best = _best(scores, k)
        rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return rows, scores


def _best(scores: Floats, k: int) -> npt.NDArray[np.int64]:
    """Where the ``k`` highest of each row stand, highest first, the earlier first among equals."""
    if scores.shape[1] <= 4 * k:
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]
    floor = np.partition(scores, -k, axis=1)[:, -k]  # the k-th highest
    found = np.empty((len(scores), k), dtype=np.int64)
    for row, (values, least) in enumerate(zip(scores, floor, strict=True)):
        able = np.flatnonzero(values >= least)
        found[row] = able[np.argsort(-values[able], kind="stable")[:k]]
    return found


def unit_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Rows of length 1, in double precision; zero rows stay zero."""
    values = np.asarray(rows, dtype=np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", values, values))
    found: npt.NDArray[np.float64] = values / np.where(lengths > 0, lengths, 1.0)[:, None]
    return found


def cosines(rows: npt.NDArray[Any], units: npt.NDArray[np.float64]) -> Floats:
    """Cosine of each query (of length 1, see ``unit_rows``) with each row, (n_queries, n_rows).

    Computed in double and rounded to single precision, so that equal rows have equal cosines,
    wherever in a block they stand.
    """
    found = (units @ unit_rows(rows).T).astype(np.float32)
    return np.clip(np.nan_to_num(found, copy=False), -1.0, 1.0)
