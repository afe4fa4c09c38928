"""The bidirectional language model: token encoder, two LSTM stacks, one word predictor.

    words ── token encoder ── layer 0 ──┬── forward stack ─── layer 1 ── layer 2 ──┬── next word
                                        └── backward stack ── layer 1 ── layer 2 ──┴── previous word

The two stacks share only the token encoder and the predictor. Layer 0 of the output is [x; x],
layer l is [forward_l; backward_l]: every layer is 2 * dim wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmStack, shared_dropout
from elmokit.bilm.objective import predictor
from elmokit.bilm.token_encoder import token_encoder
from elmokit.config import BilmConfig, TrainingConfig

__all__ = ["Bilm", "BilmOutput", "BilmState"]


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
        depths = range(len(tensors) // 4)

        def stack(name: str) -> list[LayerState]:
            return [(tensors[f"{name}.{depth}.h"], tensors[f"{name}.{depth}.c"]) for depth in depths]

        return cls(stack("forward"), stack("backward"))

    def rows(self, n_rows: int) -> BilmState:
        """The first ``n_rows`` rows, cut off from the graph that made them."""

        def stack(layers: list[LayerState]) -> list[LayerState]:
            return [(h[:n_rows].detach(), c[:n_rows].detach()) for h, c in layers]

        return BilmState(stack(self.forward), stack(self.backward))


@dataclass(frozen=True)
class BilmOutput:
    """Every layer of a batch of texts.

    Attributes:
        layers: layer 0 (token encoder) first, each (batch, time, 2 * dim); zero past a text's end.
        mask: (batch, time), true where there is a word.
        state: the state after each text's last word, if it was asked for.
    """

    layers: tuple[Tensor, ...]
    mask: Tensor
    state: BilmState | None

    def layer(self, index: int) -> Tensor:
        """Layer ``index``, (batch, time, 2 * dim)."""
        return self.layers[index]

    def stacked(self) -> Tensor:
        """All layers, (batch, time, layer, 2 * dim)."""
        return torch.stack(self.layers, dim=2)


class Bilm(nn.Module):
    """A bidirectional language model.

    Args:
        config: its shape.
        n_words: words it predicts, specials included.
        n_pieces: pieces that words are made of, for subword and morpheme input.
    """

    def __init__(self, config: BilmConfig, n_words: int, n_pieces: int = 0) -> None:
        super().__init__()
        self.config, self.n_words, self.n_pieces = config, n_words, n_pieces
        self.encoder = token_encoder(config, n_words, n_pieces)
        self.forward_stack = LstmStack(config)
        self.backward_stack = LstmStack(config)
        shared = self.encoder.weight if config.tie else None
        self.predictor = predictor(config, n_words, shared)  # type: ignore[arg-type]

    def zero_state(self, n_rows: int) -> BilmState:
        """The state before the first word."""
        return BilmState(self.forward_stack.zero_state(n_rows), self.backward_stack.zero_state(n_rows))

    def forward(
        self,
        features: Tensor,
        index: Tensor,
        lengths: Tensor | None = None,
        state: BilmState | None = None,
        *,
        keep_state: bool = False,
    ) -> BilmOutput:
        """Every layer for a batch of texts.

        Args:
            features: one row for each distinct word, (n_distinct, width).
            index: which of them stands where, (batch, time).
            lengths: words of each text, (batch,); None if all fill the batch.
            state: zero unless given.
            keep_state: also return the state after each text's last word.
        """
        n_rows, n_time = index.shape
        vectors = self.encoder(features)  # (n_distinct, dim)
        x = F.embedding(index.t(), vectors)  # (time, batch, dim)
        state = self.zero_state(n_rows) if state is None else state
        steps = torch.arange(n_time).unsqueeze(1)  # (time, 1)
        if lengths is None:
            mask = torch.ones(n_time, n_rows, dtype=torch.bool)
            turned, ragged = x.flip(0), None
        else:
            mask = steps < lengths
            mirror = torch.where(mask, lengths - 1 - steps, steps).unsqueeze(-1)  # (time, batch, 1)
            turned = x.gather(0, mirror.expand_as(x))
            ragged = lengths if keep_state and int(lengths.min()) < n_time else None
        ahead, forward_state = self.forward_stack(x, state.forward, ragged)
        behind, backward_state = self.backward_stack(turned, state.backward, ragged)
        if lengths is None:
            behind = [y.flip(0) for y in behind]
        else:
            behind = [y.gather(0, mirror.expand_as(y)) for y in behind]
        pairs = [(x, x), *zip(ahead, behind, strict=True)]
        layers = tuple((torch.cat(pair, dim=2) * mask.unsqueeze(2)).transpose(0, 1) for pair in pairs)
        after = BilmState(forward_state, backward_state) if keep_state else None
        return BilmOutput(layers, mask.t(), after)

    def stream(
        self,
        features: Tensor,
        forward_index: Tensor,
        backward_index: Tensor,
        state: BilmState,
        dropout: TrainingConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, BilmState]:
        """The top layer of both directions for lanes of running text, state carried.

        The backward lanes already run from right to left, so both stacks just go on. Indices are
        (time, lane); outputs are (time, lane, dim). Dropout happens where ``dropout`` says, drawn
        from ``rng``; without an ``rng`` there is none.
        """
        rates = dropout or TrainingConfig()
        vectors = self.encoder(features)  # (n_distinct, dim)
        if rng is not None and rates.dropout_word:
            keep = 1.0 - rates.dropout_word
            kept = torch.empty(len(vectors), 1).bernoulli_(keep, generator=rng)
            vectors = vectors * kept.div_(keep)

        def run(stack: LstmStack, index: Tensor, before: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
            x = shared_dropout(F.embedding(index, vectors), rates.dropout_input, rng)
            outputs, after = stack(
                x,
                before,
                layer_dropout=rates.dropout_layer,
                weight_dropout=rates.dropout_weight,
                rng=rng,
            )
            return shared_dropout(outputs[-1], rates.dropout_output, rng), after

        ahead, forward_state = run(self.forward_stack, forward_index, state.forward)
        behind, backward_state = run(self.backward_stack, backward_index, state.backward)
        return ahead, behind, BilmState(forward_state, backward_state)
