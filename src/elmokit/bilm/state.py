"""The recurrent state of a biLM, and the average state after a text.

In training, texts follow one another and state is carried from one to the next, so a model hardly ever sees
the zero state that a lone text starts from. The average state is a better start for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.bilm.lstm import LayerState
from elmokit.text.corpus import Documents
from elmokit.text.vocabulary import Rows

if TYPE_CHECKING:
    from elmokit.bilm.model import Bilm

_CHAINS, _TOKENS, _WINDOW = 16, 30_000, 512


@dataclass(frozen=True)
class BilmState:
    """What both stacks remember: a (h, c) pair for each layer."""

    forward: list[LayerState]
    backward: list[LayerState]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, for a checkpoint."""
        return {
            f"{name}.{depth}.{part}": tensor
            for name, stack in (("forward", self.forward), ("backward", self.backward))
            for depth, pair in enumerate(stack)
            for part, tensor in zip("hc", pair, strict=True)
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> BilmState:
        """The inverse of ``tensors``."""
        stacks = (
            [
                (tensors[f"{name}.{depth}.h"], tensors[f"{name}.{depth}.c"])
                for depth in range(len(tensors) // 4)
            ]
            for name in ("forward", "backward")
        )
        return cls(*stacks)

    def map(self, change: Callable[[Tensor], Tensor]) -> BilmState:
        """The state with every tensor replaced by ``change(tensor)``."""
        return self.from_tensors({name: change(tensor) for name, tensor in self.tensors().items()})

    def rows(self, last: int, first: int = 0) -> BilmState:
        """The rows from ``first`` up to ``last``, detached from the graph."""
        return self.map(lambda tensor: tensor[first:last].detach())

    def repeat(self, n_rows: int) -> BilmState:
        """A state of one row, copied to ``n_rows`` rows."""
        return self.map(lambda tensor: tensor.expand(n_rows, -1).contiguous())


def distinct_words(ids: npt.NDArray[np.integer[Any]], features: Rows) -> tuple[Tensor, Tensor]:
    """The features of each distinct id, (n_distinct, width), and the place of every id among them."""
    distinct, index = np.unique(ids, return_inverse=True)
    return torch.from_numpy(features[distinct].astype(np.int64)), torch.from_numpy(index.reshape(ids.shape))


@torch.no_grad()
def average_state(
    model: Bilm,
    documents: Documents,
    features: Rows,
    *,
    progress: Callable[[int], None] = lambda amount: None,
) -> BilmState:
    """The mean state after a text, over a sample of ``documents`` (ids into ``features``), read one after
    the other in a few chains. ``progress`` is called with the number of words just read."""
    sample = documents.spread(_TOKENS)
    n_chains = max(1, min(_CHAINS, len(sample) // 4))
    state, n_added = model.zero_state(n_chains), 0
    total = model.zero_state(1).tensors()
    for first in range(0, len(sample) - n_chains + 1, n_chains):
        rows, index = distinct_words(sample.padded(np.arange(first, first + n_chains)), features)
        lengths = torch.from_numpy(sample.lengths[first : first + n_chains])
        out = model.run(model.encoder(rows), index, lengths, state, keep_state=True, window=_WINDOW)
        assert out.state is not None
        state = out.state
        for name, tensor in state.tensors().items():
            total[name] = total[name] + tensor.sum(dim=0, keepdim=True)
        n_added += n_chains
        progress(int(lengths.sum()))
    return BilmState.from_tensors(total).map(lambda tensor: tensor * (1.0 / max(1, n_added)))
