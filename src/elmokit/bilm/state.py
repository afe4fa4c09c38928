"""The state a biLM is in, on average, when a text ends: a better start for the next than zero.

In training, texts follow one another and state is carried on, so a model hardly ever sees the zero
state that a lone text starts from. The average start puts lone texts back on familiar ground.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from elmokit.bilm.lstm import LayerState
from elmokit.bilm.model import Bilm, BilmState
from elmokit.text.corpus import Documents
from elmokit.text.vocabulary import Rows

__all__ = ["average_state", "repeated"]

_CHAINS, _TOKENS, _WINDOW = 16, 30_000, 512


@torch.no_grad()
def average_state(
    model: Bilm,
    documents: Documents,
    features: Rows,
    *,
    progress: Callable[[int], None] = lambda amount: None,
) -> BilmState:
    """The mean state after a text, over texts read one after the other in a few chains.

    Args:
        model: the language model.
        documents: ids into ``features``, ``<s>`` and ``</s>`` included; a sample of them is read.
        features: a row for each word of the corpus.
        progress: told how many words were just read.
    """
    sample = documents.spread(_TOKENS)
    n_chains = max(1, min(_CHAINS, len(sample) // 4))
    state, total, n_added = model.zero_state(n_chains), model.zero_state(1), 0
    for first in range(0, len(sample) - n_chains + 1, n_chains):
        rows = range(first, first + n_chains)
        lengths = sample.lengths[first : first + n_chains]
        ids = np.zeros((n_chains, int(lengths.max())), dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : lengths[place]] = sample.ids[sample.offsets[row] : sample.offsets[row + 1]]
        distinct, index = np.unique(ids, return_inverse=True)
        vectors = model.encoder(torch.from_numpy(features[distinct].astype(np.int64)))
        out = model.run(
            vectors,
            torch.from_numpy(index.reshape(ids.shape)),
            torch.from_numpy(lengths),
            state,
            keep_state=True,
            window=_WINDOW,
        )
        assert out.state is not None  # it was asked for
        state = out.state
        total, n_added = _added(total, state), n_added + n_chains
        progress(int(lengths.sum()))
    return _scaled(total, 1.0 / max(1, n_added))


def repeated(state: BilmState, n_rows: int) -> BilmState:
    """A state of one row, for ``n_rows`` rows."""

    def stack(layers: list[LayerState]) -> list[LayerState]:
        return [(h.expand(n_rows, -1).contiguous(), c.expand(n_rows, -1).contiguous()) for h, c in layers]

    return BilmState(stack(state.forward), stack(state.backward))


def _added(total: BilmState, state: BilmState) -> BilmState:
    def stack(sums: list[LayerState], layers: list[LayerState]) -> list[LayerState]:
        return [
            (sum_h + h.sum(dim=0, keepdim=True), sum_c + c.sum(dim=0, keepdim=True))
            for (sum_h, sum_c), (h, c) in zip(sums, layers, strict=True)
        ]

    return BilmState(stack(total.forward, state.forward), stack(total.backward, state.backward))


def _scaled(state: BilmState, factor: float) -> BilmState:
    def stack(layers: list[LayerState]) -> list[LayerState]:
        return [(h * factor, c * factor) for h, c in layers]

    return BilmState(stack(state.forward), stack(state.backward))
