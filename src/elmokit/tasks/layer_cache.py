"""Texts as ids, and an encoder's layers of them: computed batch by batch, or cached on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmokit.core.atomic import atomic_write, explain_os_errors, reserve
from elmokit.core.config import DropoutConfig
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import RunError
from elmokit.tasks.task import Inputs
from elmokit.text.batching import bucket_batches
from elmokit.vectors.encoder import Encoder, IntArray, Layers, TokenIds, find_marks

BATCH_WORDS = 8192
"""Words in a batch when nothing is learned."""
_DISK_SHARE = 0.7  # of the free disk that cached layers may take


def read_layers(encoder: Encoder, ids: TokenIds, rows: IntArray, file: Path) -> Layers:
    """The cached layers of some texts, in full precision."""
    lengths, n_numbers = ids.lengths[rows], encoder.n_layers * encoder.dim  # of a word
    values = torch.zeros(len(rows), int(lengths.max()), encoder.n_layers, encoder.dim)
    for row, length, target in zip(rows, lengths.tolist(), values, strict=True):
        # Read, not mapped: mapped pages would count as this process's memory.
        start = 2 * n_numbers * int(ids.offsets[row])
        cached = np.fromfile(file, np.float16, length * n_numbers, offset=start)
        if len(cached) < length * n_numbers:
            raise RunError(f"{file} ends too early.", remedy="Run the same command again to rebuild it.")
        target[:length] = torch.from_numpy(cached).view(length, *target.shape[1:])
    mask = torch.arange(values.shape[1]) < torch.from_numpy(lengths).unsqueeze(1)
    return Layers(tuple(values.permute(2, 0, 1, 3).contiguous()), mask, encoder.n_edge)


@torch.no_grad()
def write_layers(encoder: Encoder, ids: TokenIds, file: Path, progress: Advance) -> None:
    """Compute the layers of all texts and write them as half-precision numbers, whole or not at all."""
    with atomic_write(file) as unfinished:
        shape = (int(ids.offsets[-1]), encoder.n_layers, encoder.dim)
        values = np.memmap(unfinished, np.float16, "w+", shape=shape)
        reserve(unfinished)  # so that a full disk is noticed now, not in the middle of writing
        computed = encoder.precompute(ids)
        for rows in bucket_batches(ids.lengths, BATCH_WORDS):
            stacked = torch.stack(encoder.layers(computed, rows).values, dim=2).clamp_(-65504, 65504).half()
            for place, row in enumerate(rows):
                first, last = ids.offsets[row], ids.offsets[row + 1]
                values[first:last] = stacked[place, : last - first].numpy()
            progress(len(rows))
        values.flush()


@dataclass(frozen=True, eq=False)
class LayerSource:
    """The layers of some rows: read from cache files (one per field) if there are some, else computed.

    Attributes:
        fields: Of each field of the task, the ids of its texts; rows can share a text.
        places: Of each field, the number of each row's text.
        n_cut: Rows with a text that was longer than allowed; ``n_empty`` rows have no word.
        sentences: Of each field, the sentence vectors of its texts, (n_texts, dim); none for most heads.
        marks: Of each field, the words of each row that are read, (n_rows, 2); None for all.
    """

    encoder: Encoder
    fields: tuple[TokenIds, ...]
    places: tuple[IntArray, ...]
    n_cut: int
    n_empty: int
    files: tuple[Path, ...] = ()
    sentences: tuple[Tensor, ...] = ()
    marks: tuple[IntArray | None, ...] = ()

    def __len__(self) -> int:
        return len(self.places[0])

    def batches(self, n_words: int, rng: np.random.Generator | None = None) -> list[IntArray]:
        """Row numbers in batches of similar length, about ``n_words`` words each."""
        pairs = zip(self.fields, self.places, strict=True)
        return bucket_batches(np.sum([ids.lengths[own] for ids, own in pairs], axis=0), n_words, rng=rng)

    def batch(
        self, rows: IntArray, *, dropout: DropoutConfig | None = None, rng: torch.Generator | None = None
    ) -> list[Layers]:
        """Of each field, the layers of some rows."""
        texts = [(ids, own[rows]) for ids, own in zip(self.fields, self.places, strict=True)]
        if self.files:
            pairs = zip(texts, self.files, strict=True)
            fields = [read_layers(self.encoder, ids, some, file) for (ids, some), file in pairs]
        else:
            fields = [self.encoder.layers(ids, some, dropout=dropout, rng=rng) for ids, some in texts]
        return cut_marked(fields, self.marks, rows)

    def sentence_batch(self, rows: IntArray) -> list[Tensor]:
        """Of each field, the sentence vectors of some rows."""
        pairs = zip(self.sentences, self.places, strict=False)  # no sentences, no vectors
        return [vectors[torch.from_numpy(own[rows])] for vectors, own in pairs]

    @torch.no_grad()
    def all(self) -> Iterator[tuple[IntArray, list[Layers]]]:
        """The layers of all rows in large batches, without gradients."""
        source = self
        if not self.files:
            source = replace(self, fields=tuple(map(self.encoder.precompute, self.fields)))
        for rows in self.batches(BATCH_WORDS):
            yield rows, source.batch(rows)


def cut_marked(fields: Sequence[Layers], marks: Sequence[IntArray | None], rows: IntArray) -> list[Layers]:
    """Of each field, the layers of some rows, cut to the words that are marked."""
    pairs = zip(fields, marks, strict=True)
    return [layers if own is None else layers.part(own[rows]) for layers, own in pairs]


def number_texts(
    encoder: Encoder,
    inputs: Sequence[Inputs],
    max_words: int,
    progress: Advance = lambda amount: None,
    *,
    with_sentences: bool = False,
) -> LayerSource:
    """Turn texts into ids, cut to ``max_words``; a text object that several rows share is read once.

    Args:
        with_sentences: Compute sentence vectors, too.
    """
    n_fields = len(inputs[0]) if inputs else 1
    counts, places = np.zeros((2, n_fields, len(inputs)), dtype=np.int64)
    kept: list[list[list[str]]] = [[] for _ in range(n_fields)]

    def words(field: int) -> Iterator[list[str]]:
        first_rows = dict[int, int]()  # by the identity of texts
        for row, texts in enumerate(inputs):
            first = first_rows.setdefault(id(texts[field]), row)
            if first < row:
                counts[field, row], places[field, row] = counts[field, first], places[field, first]
            else:
                (all_words,) = encoder.words([texts[field]])
                counts[field, row], places[field, row] = len(all_words), len(first_rows) - 1
                if with_sentences:
                    kept[field].append(all_words[:max_words])
                yield all_words[:max_words]
            progress(0 if field else 1)

    fields = tuple(encoder.to_ids(words(field)) for field in range(n_fields))
    n_cut, n_empty = (counts > max_words).any(axis=0).sum(), (counts.sum(axis=0) == 0).sum()
    sentences = tuple(torch.from_numpy(encoder.sentences(words)) for words in kept if with_sentences)
    marks = tuple(find_marks([row[field] for row in inputs]) for field in range(n_fields))
    return LayerSource(
        encoder, fields, tuple(places), int(n_cut), int(n_empty), sentences=sentences, marks=marks
    )


def cached_sources(
    sources: Sequence[LayerSource], folder: Path, reporter: Reporter, *, compute: bool = True
) -> list[LayerSource]:
    """The same layers, cached in ``folder``; unchanged if the disk is too full.

    Args:
        compute: False uses only what is cached already.
    """
    encoder, all_ids = sources[0].encoder, [ids for source in sources for ids in source.fields]
    files = {ids: folder / f"layers-{ids.content_hash(encoder.fingerprint)}.f16" for ids in all_ids}
    sizes = {ids: 2 * int(ids.offsets[-1]) * encoder.n_layers * encoder.dim for ids in files}
    missing = [ids for ids, file in files.items() if not file.exists() or file.stat().st_size != sizes[ids]]
    if missing and not compute:
        return list(sources)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    if sum(sizes[ids] for ids in missing) > _DISK_SHARE * free:
        reporter.say("[yellow]Not enough disk space to cache the layers; every epoch recomputes them.[/]")
        return list(sources)
    with reporter.counting("Computing layers", total=sum(map(len, missing)), unit="texts") as advance:
        for ids in missing:
            write_layers(encoder, ids, files[ids], advance)
    return [replace(one, files=tuple(files[ids] for ids in one.fields)) for one in sources]
