"""Several encoders as one: their vectors of each word, or of each text, side by side.

The words of a text are those of the first encoder; the others read these words, cleaned by their own rules.
Layer k is layer k of each encoder; one that has fewer layers repeats its top one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from elmokit.core.config import DropoutConfig
from elmokit.core.model_card import Facts
from elmokit.core.model_folder import Model, explain_damage, read_record, write_model
from elmokit.core.tensors import fingerprint
from elmokit.text.tokenizing import Text
from elmokit.vectors.embeddings import TextEncoder
from elmokit.vectors.encoder import Encoder, FloatArray, IntArray, Layers, SentenceEncoder, TokenIds
from elmokit.vectors.foreign import TextVectors, open_encoder

KIND = "encoders"


@dataclass(frozen=True, eq=False, repr=False)
class Encoders(TextEncoder):
    """Some encoders, each with a vector of a text."""

    parts: tuple[SentenceEncoder, ...]
    kind = KIND

    @property
    def dim(self) -> int:
        """The sum of their widths."""
        return sum(part.dim for part in self.parts)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with that of any of them."""
        return fingerprint(*(part.fingerprint for part in self.parts))

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text, (n_texts, dim)."""
        return _join_sentences(self.parts, texts)

    def bind(self, texts: Sequence[Text]) -> SentenceEncoder:
        """With the texts that vectors from files belong to."""
        return join_encoders([one.bind(texts) if isinstance(one, TextVectors) else one for one in self.parts])

    def facts(self) -> Facts:
        """What they are, for a card and ``elmokit inspect``."""
        own = [cast(Model, part).facts() for part in self.parts]
        rows = [
            (f"encoder {number}", f"{facts.summary} {part.dim} wide.")
            for number, (part, facts) in enumerate(zip(self.parts, own, strict=True), 1)
        ]
        values = {"kind": KIND, "dim": self.dim, "encoders": [dict(facts.values) for facts in own]}
        return Facts(f"{len(rows)} encoders side by side.", tuple(rows), values)

    def save(self, folder: str | Path) -> None:
        """Write them to a folder, each in a folder of its own."""
        record = {"n_encoders": len(self.parts)}
        with write_model(Path(folder), KIND, record, card=self.facts()) as staged:
            for number, part in enumerate(self.parts, 1):
                cast(Model, part).save(staged / str(number))


class LayeredEncoders(Encoders):
    """Encoders with layers, which make an ``Encoder`` together.

    If any has directions, the first half of a vector holds the forward halves of these, the second half the
    backward ones.
    """

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The parts, all of which have layers."""
        return cast(tuple[Encoder, ...], self.parts)

    @property
    def n_layers(self) -> int:
        """As many as the deepest has."""
        return max(one.n_layers for one in self.encoders)

    @property
    def n_edge(self) -> int:
        """1 if any reads edges; others have zeros there."""
        return max(one.n_edge for one in self.encoders)

    @property
    def directional(self) -> bool:
        """True if any is."""
        return any(one.directional for one in self.encoders)

    @property
    def has_sentence_vector(self) -> bool:
        """True if any has one."""
        return any(one.has_sentence_vector for one in self.encoders)

    @cached_property
    def module(self) -> nn.Module:
        """All their modules."""
        return nn.ModuleList(one.module for one in self.encoders)

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """The trained sentence vectors; if there is none, the means over the words."""
        trained = [one for one in self.encoders if one.has_sentence_vector]
        return _join_sentences(trained or self.encoders, texts)

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text, as the first encoder sees them."""
        return self.encoders[0].words(texts)

    def to_ids(self, words: Iterable[Sequence[str]]) -> TokenIds:
        """Texts given as words, as ids of each encoder beside those of one that has all edges."""
        parts = tuple(one.to_ids(own) for one, own in self._own_words([*words]))
        pairs = zip(self.encoders, parts, strict=True)
        edged = next(ids for one, ids in pairs if one.n_edge == self.n_edge)
        return replace(edged, parts=parts)

    def layers(
        self,
        ids: TokenIds,
        rows: IntArray,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> Layers:
        """All layers of the texts ``rows`` as one batch."""
        pairs = zip(self.encoders, ids.parts, strict=True)
        return self._join([one.layers(own, rows, dropout=dropout, rng=rng) for one, own in pairs])

    def precompute(self, ids: TokenIds) -> TokenIds:
        """The texts with what is the same in every batch, for each encoder."""
        pairs = zip(self.encoders, ids.parts, strict=True)
        return replace(ids, parts=tuple(one.precompute(own) for one, own in pairs))

    def batch(self, words: Sequence[Sequence[str]]) -> Layers:
        """All layers of one batch of texts given as words, without gradients."""
        return self._join([one.batch(own) for one, own in self._own_words(words)])

    def unfreezing_order(self) -> list[list[str]]:
        """The top layers of all first."""
        groups = (
            [[f"{number}.{name}" for name in group] for group in one.unfreezing_order()]
            for number, one in enumerate(self.encoders)
        )
        return [[*itertools.chain(*depth)] for depth in itertools.zip_longest(*groups, fillvalue=[])]

    def copy(self) -> LayeredEncoders:
        """Copies of all for fine-tuning."""
        return LayeredEncoders(tuple(one.copy() for one in self.encoders))

    def _own_words(self, words: Sequence[Sequence[str]]) -> list[tuple[Encoder, Any]]:
        """Each encoder with the words of the first, cleaned by its own rules."""
        first, *others = self.encoders
        return [(first, words), *((one, one.words([[*row] for row in words])) for one in others)]

    def _join(self, given: Sequence[Layers]) -> Layers:
        """The layers of all encoders, each (batch, time, dim), side by side."""
        n_edge = self.n_edge
        mask = next(layers.mask for layers in given if layers.n_edge == n_edge)
        pairs = [*zip(self.encoders, given, strict=True)]
        pairs.sort(key=lambda pair: not pair[0].directional)  # their halves go to both ends
        stacks = []
        for _, layers in pairs:
            edge = n_edge - layers.n_edge  # a text without a word has a step there and none here
            stacks.append([F.pad(one, (0, 0, edge, edge))[:, : mask.shape[1]] for one in layers.values])
        n_directional, joined = sum(one.directional for one, _ in pairs), []
        for depth in range(self.n_layers):
            own = [stack[min(depth, len(stack) - 1)] for stack in stacks]
            blocks = [*own[:n_directional], torch.cat([*own[n_directional:], own[0][:, :, :0]], dim=2)]
            halves = [block.tensor_split([block.shape[2] // 2], dim=2) for block in blocks]
            joined.append(torch.cat([half for side in zip(*halves, strict=True) for half in side], dim=2))
        return Layers(tuple(joined), mask, n_edge)


def join_encoders(encoders: Sequence[SentenceEncoder]) -> SentenceEncoder:
    """Several encoders as one, which has layers if all have them; a single one as it is."""
    parts = tuple(part for one in encoders for part in (one.parts if isinstance(one, Encoders) else (one,)))
    if len(parts) == 1:
        return parts[0]
    return (LayeredEncoders if all(hasattr(part, "layers") for part in parts) else Encoders)(parts)


def read_encoders(folder: Path) -> SentenceEncoder:
    """Read what ``save`` wrote."""
    record = read_record(folder, KIND)
    with explain_damage(folder):
        numbers = range(1, int(record["n_encoders"]) + 1)
    return join_encoders([open_encoder(folder / str(number)) for number in numbers])


def _join_sentences(parts: Sequence[SentenceEncoder], texts: Sequence[Text]) -> FloatArray:
    return np.concatenate([part.sentences(texts) for part in parts], axis=1)
