"""The bidirectional language model: token encoder, two LSTM stacks, one softmax over words.

    words ── token encoder ── layer 0 ──┬── forward stack ─── layer 1 ── layer 2 ──┬── next word
                                        └── backward stack ── layer 1 ── layer 2 ──┴── previous word

The two stacks share only the token encoder and the softmax. Layer 0 of the output is [x; x],
layer l is [forward_l; backward_l]: every layer is 2 * dim wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmStack, SharedNoise, dropout_mask, shared_dropout
from elmokit.bilm.packed_lstm import can_run_packed, run_packed
from elmokit.bilm.settings import BilmConfig, TrainingConfig
from elmokit.bilm.softmax import predictor
from elmokit.bilm.state import BilmState
from elmokit.bilm.token_encoder import WordEncoder, token_encoder
from elmokit.core.config import DropoutConfig
from elmokit.core.threads import all_cores, side_by_side

Head = Callable[[int, Tensor], Tensor]
"""What to make of the top layer of a direction: from its number (0: forward) and (time, stream, dim)."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The random choices of a training step, drawn at once for all its streams.

    Attributes:
        words: What to multiply the vector of each distinct word with, (n_distinct, 1).
        rows: Whether the table's row of each distinct word is read, (n_distinct,), for input ``char+word``.
        seeds: Of each direction's own random numbers.
        part: The streams that are computed.
    """

    words: Tensor
    rows: Tensor
    seeds: list[int]
    n_streams: int
    part: slice

    @classmethod
    def draw(cls, n_words: int, n_streams: int, rates: TrainingConfig, rng: torch.Generator) -> Noise:
        """For a step whose window has so many distinct words and streams."""
        ones = torch.ones(n_words)
        words, rows = (
            dropout_mask((n_words,), share, rng) if share else ones
            for share in (rates.dropout_word, rates.dropout_row)
        )
        seeds = torch.randint(1 << 62, (2,), generator=rng).tolist()
        return cls(words.unsqueeze(1), rows > 0, seeds, n_streams, slice(None))

    def cut(self, part: slice, words: Tensor) -> Noise:
        """The same choices for some of the streams, which have the distinct words ``words``."""
        return replace(self, words=self.words[words], rows=self.rows[words], part=part)

    def of(self, direction: int) -> SharedNoise:
        """The masks of one direction."""
        rng = torch.Generator().manual_seed(self.seeds[direction])
        return SharedNoise(rng, self.part, self.n_streams)


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
        places = (index.t(), index.t().gather(0, mirror))  # of each direction, (time, batch)
        rates = dropout or DropoutConfig()
        masks: list[Tensor] = []  # what to multiply the words with, in the order of the text
        rngs: list[torch.Generator | None] = [None, None]
        if rng is not None:
            if rates.dropout_word:
                masks.append(dropout_mask((n_time, n_rows, 1), rates.dropout_word, rng))
            if rates.dropout_input:
                masks.append(dropout_mask((1, n_rows, vectors.shape[1]), rates.dropout_input, rng))
            seeds = torch.randint(1 << 62, (2,), generator=rng).tolist()
            rngs = [torch.Generator().manual_seed(seed) for seed in seeds]
        ragged = lengths if keep_state and int(lengths.min()) < n_time else None
        stacks, states = (self.forward_stack, self.backward_stack), [state.forward, state.backward]

        def run(direction: int, vectors: Tensor) -> Tensor:
            stack, state = stacks[direction], states[direction]
            x = F.embedding(places[direction], vectors)  # (time, batch, dim)
            for mask in masks:
                of_words = direction == 1 and mask.shape[2] == 1
                x = x * (mask.gather(0, mirror.unsqueeze(2)) if of_words else mask)
            if rng is None and x.numel() and can_run_packed(stack):
                outputs, states[direction] = run_packed(stack, x, lengths, state)
                return torch.stack([x, *outputs])
            parts: list[Tensor] = []
            for start in range(0, max(1, n_time), window or max(1, n_time)):
                part = x[start : start + (window or n_time)]
                part_lengths = None if ragged is None else (ragged - start).clamp(0, len(part))
                outputs, state = stack(part, state, part_lengths, rates, rngs[direction])
                parts.append(torch.stack([part, *outputs]))
            states[direction] = state
            return torch.cat(parts, dim=1)  # (layer, time, batch, dim)

        parts = [partial(run, 0), partial(run, 1)]
        if rng is None and can_run_packed(self.forward_stack):
            with all_cores():  # large weights: two directions at once would not fit the cache they share
                forward, backward = [part(vectors) for part in parts]
        else:
            forward, backward = side_by_side(parts, vectors)
        after = BilmState(*states) if keep_state else None
        return BilmOutput([*forward], [*backward], lengths, mirror, after)

    def stream(
        self,
        features: Tensor,
        index: Tensor,
        state: BilmState,
        dropout: TrainingConfig | None = None,
        noise: Noise | None = None,
        head: Head = lambda direction, top: top,
    ) -> tuple[list[Tensor], BilmState]:
        """What ``head`` makes of the top layer of each direction (time, stream, dim), for streams of running
        text, and the state after it. The directions are computed at the same time.

        The backward streams already run from right to left: ``index`` is (direction, time, stream). Without
        ``noise`` there is no dropout.
        """
        rates = dropout or TrainingConfig()
        if noise is not None and self.config.input == "char+word":
            features = torch.cat([features[:, :1] * noise.rows.unsqueeze(1), features[:, 1:]], dim=1)
        vectors = self.encode(features)  # (n_distinct, dim)
        if noise is not None and rates.dropout_word:
            vectors = vectors * noise.words
        stacks, before = (self.forward_stack, self.backward_stack), (state.forward, state.backward)
        after: list[list[LayerState]] = [[], []]

        def run(direction: int, vectors: Tensor) -> Tensor:
            rng = None if noise is None else noise.of(direction)
            x = shared_dropout(F.embedding(index[direction], vectors), rates.dropout_input, rng)
            outputs, after[direction] = stacks[direction](x, before[direction], None, rates, rng)
            return head(direction, shared_dropout(outputs[-1], rates.dropout_output, rng))

        results = side_by_side([partial(run, 0), partial(run, 1)], vectors)
        return results, BilmState(*after)

    def encode(self, features: Tensor) -> Tensor:
        """The token encoder's vectors of some words, (n_words, dim), in training computed on two cores."""
        if isinstance(self.encoder, WordEncoder) or not torch.is_grad_enabled():
            return cast(Tensor, self.encoder(features))

        def encode_half(half: Tensor, _: Tensor) -> Tensor:
            return cast(Tensor, self.encoder(half))

        halves = features.tensor_split(2)  # not by the number of threads: the same bits with any
        return torch.cat(side_by_side([partial(encode_half, half) for half in halves], features))
