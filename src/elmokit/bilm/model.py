"""The bidirectional language model: token encoder, two LSTM stacks, one softmax over words.

    words ── token encoder ── layer 0 ──┬── forward stack ─── layer 1 ── layer 2 ──┬── next word
                                        └── backward stack ── layer 1 ── layer 2 ──┴── previous word

The two stacks share only the token encoder and the softmax. Layer 0 of the output is [x; x],
layer l is [forward_l; backward_l]: every layer is 2 * dim wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmStack, dropout_mask, shared_dropout
from elmokit.bilm.packed_lstm import can_run_packed, run_packed
from elmokit.bilm.settings import BilmConfig, TrainingConfig
from elmokit.bilm.softmax import predictor
from elmokit.bilm.state import BilmState
from elmokit.bilm.token_encoder import token_encoder
from elmokit.core.config import DropoutConfig


@dataclass(frozen=True, eq=False)
class BilmOutput:
    """Every layer of a batch of texts."""

    forward: list[Tensor]  # layer 0 (token encoder) and those of the stack, each (time, batch, dim)
    backward: list[Tensor]  # the same, in its own order: step 0 is a text's last word
    lengths: Tensor  # words of each text, (batch,)
    mirror: Tensor  # the step at which the other stack read the same word, (time, batch)
    state: BilmState | None  # after each text's last word; None unless keep_state

    @cached_property
    def mask(self) -> Tensor:
        """(batch, time), true where there is a word."""
        return torch.arange(len(self.mirror)) < self.lengths.unsqueeze(1)

    @cached_property
    def layers(self) -> tuple[Tensor, ...]:
        """Layer 0 (token encoder) first, each (batch, time, 2 * dim); zero past a text's end."""
        n_rows = len(self.lengths)
        back = (self.mirror * n_rows + torch.arange(n_rows)).flatten()  # (time * batch)
        mask = self.mask.t().unsqueeze(2)  # (time, batch, 1)
        layers = []
        for x, y in zip(self.forward, self.backward, strict=True):
            y = y.flatten(0, 1).index_select(0, back).view_as(y)
            layers.append((torch.cat([x, y], dim=2) * mask).transpose(0, 1))
        return tuple(layers)

    def stacked(self) -> Tensor:
        """All layers, (batch, time, layer, 2 * dim)."""
        return torch.stack(self.layers, dim=2)

    @torch.no_grad()
    def ragged(self, skip: int = 0) -> Tensor:
        """All words of all texts, one after the other, (n_words, layer, 2 * dim).

        Args:
            skip: Leave out this many words at both ends of each text (<s> and </s>).
        """
        n_rows, dim = len(self.lengths), self.forward[0].shape[2]
        counts = (self.lengths - 2 * skip).clamp(min=0)
        row = torch.repeat_interleave(torch.arange(n_rows), counts)  # (n_words)
        firsts = counts.cumsum(0) - counts
        step = torch.arange(len(row)) - firsts[row] + skip
        there, back = step * n_rows + row, (self.lengths[row] - 1 - step) * n_rows + row
        words = self.forward[0].new_empty(len(row), len(self.forward), 2 * dim)
        for depth, (x, y) in enumerate(zip(self.forward, self.backward, strict=True)):
            words[:, depth, :dim] = x.flatten(0, 1).index_select(0, there)
            words[:, depth, dim:] = y.flatten(0, 1).index_select(0, back)
        return words


class Bilm(nn.Module):
    """A bidirectional language model.

    Args:
        n_words: Words it predicts, specials included.
        n_pieces: Pieces that words are made of, for subword and morpheme input.
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
        """Every layer for a batch of texts whose words have ``features`` (n_distinct, width); see ``run``."""
        return self.run(self.encoder(features), index, lengths, state, keep_state=keep_state)

    def run(
        self,
        vectors: Tensor,
        index: Tensor,
        lengths: Tensor | None = None,
        state: BilmState | None = None,
        *,
        keep_state: bool = False,
        window: int | None = None,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> BilmOutput:
        """Both stacks over a batch of texts.

        Args:
            vectors: One for each distinct word, (n_distinct, dim).
            index: The vector of each word, (batch, time).
            lengths: Words of each text, (batch,); None if all fill the batch.
            state: Zero unless given.
            keep_state: Also return the state after each text's last word.
            window: Read longer texts this many words at a time: less memory, and the same numbers.
            rng: Generator for dropout; None disables it.
        """
        n_rows, n_time = index.shape
        state = self.zero_state(n_rows) if state is None else state
        steps = torch.arange(n_time).unsqueeze(1)  # (time, 1)
        lengths = torch.full((n_rows,), n_time) if lengths is None else lengths
        mirror = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (time, batch)
        x = F.embedding(index.t(), vectors)  # (time, batch, dim)
        reversed_x = F.embedding(index.t().gather(0, mirror), vectors)
        rates = dropout or DropoutConfig()
        if rng is not None and rates.dropout_word:
            keep = dropout_mask((n_time, n_rows), rates.dropout_word, rng)
            x, reversed_x = x * keep.unsqueeze(2), reversed_x * keep.gather(0, mirror).unsqueeze(2)
        if rng is not None and rates.dropout_input:
            keep = dropout_mask((1, n_rows, x.shape[2]), rates.dropout_input, rng)
            x, reversed_x = x * keep, reversed_x * keep
        ragged = lengths if keep_state and int(lengths.min()) < n_time else None
        window = window or n_time

        def run(
            stack: LstmStack, x: Tensor, state: list[LayerState]
        ) -> tuple[list[Tensor], list[LayerState]]:
            if rng is None and x.numel() and can_run_packed(stack):
                return run_packed(stack, x, lengths, state)
            parts: list[list[Tensor]] = []
            for start in range(0, max(1, n_time), window):
                part_lengths = None if ragged is None else (ragged - start).clamp(0, window)
                outputs, state = stack(x[start : start + window], state, part_lengths, rates, rng)
                parts.append(outputs)
            return [torch.cat(layer) for layer in zip(*parts, strict=True)], state

        forward, forward_state = run(self.forward_stack, x, state.forward)
        backward, backward_state = run(self.backward_stack, reversed_x, state.backward)
        after = BilmState(forward_state, backward_state) if keep_state else None
        return BilmOutput([x, *forward], [reversed_x, *backward], lengths, mirror, after)

    def stream(
        self,
        features: Tensor,
        index: Tensor,
        state: BilmState,
        dropout: TrainingConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> tuple[list[Tensor], BilmState]:
        """The top layer of both directions for streams of running text, and the state after it.

        The backward streams already run from right to left: ``index`` is (direction, time, stream), each of
        the two outputs (time, stream, dim). Without an ``rng`` there is no dropout.
        """
        rates = dropout or TrainingConfig()
        if rng is not None and rates.dropout_row and self.config.input == "char+word":
            features = features.clone()
            features[:, 0] *= dropout_mask((len(features),), rates.dropout_row, rng) > 0
        vectors = shared_dropout(self.encoder(features), rates.dropout_word, rng, over=1)  # (n_distinct, dim)
        tops, after = [], []
        stacks = ((self.forward_stack, state.forward), (self.backward_stack, state.backward))
        for (stack, before), places in zip(stacks, index, strict=True):
            x = shared_dropout(F.embedding(places, vectors), rates.dropout_input, rng)
            outputs, new_state = stack(x, before, None, rates, rng)
            tops.append(shared_dropout(outputs[-1], rates.dropout_output, rng))
            after.append(new_state)
        return tops, BilmState(*after)
