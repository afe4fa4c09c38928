"""Texts as ids, and an encoder's layers of them: computed batch by batch, or cached on disk."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from elmokit.core.atomic import explain_os_errors, reserve, sync
from elmokit.core.config import DropoutConfig
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import RunError
from elmokit.core.formatting import format_size
from elmokit.tasks.task import Inputs
from elmokit.text.batching import bucket_batches
from elmokit.vectors.encoder import Encoder, IntArray, Layers, TokenIds
from elmokit.vectors.mix import Mix

BATCH_WORDS = 8192
"""Words in a batch when nothing is learned."""
_DISK_SHARE = 0.7  # of the free disk that cached layers may take


class LayerCache:
    """A frozen encoder's layers (or their fixed mix) of all texts, in a .npy file of half-precision numbers.

    Args:
        file: Holds an array (n_words, layer, dim).
        n_edge: As in ``Layers``.
        is_mixed: The file holds the mix instead of the layers.
    """

    def __init__(self, file: Path, ids: TokenIds, n_edge: int, *, is_mixed: bool) -> None:
        self._ids, self.n_edge, self.is_mixed = ids, n_edge, is_mixed
        mapped = np.load(file, mmap_mode="r")
        self._start, self._shape = mapped.offset, mapped.shape[1:]
        # Read, not mapped: mapped pages would count as this process's memory.
        self._stream = open(file, "rb", buffering=0)  # noqa: SIM115

    def layers(self, rows: IntArray) -> Layers:
        """The layers of some texts, in full precision."""
        lengths, n_numbers = self._ids.lengths[rows], math.prod(self._shape)  # of a word
        values = torch.zeros(len(rows), int(lengths.max()), *self._shape)
        for row, length, target in zip(rows, lengths.tolist(), values, strict=True):
            self._stream.seek(self._start + 2 * n_numbers * int(self._ids.offsets[row]))
            cached = np.fromfile(self._stream, np.float16, length * n_numbers)
            if len(cached) < length * n_numbers:
                raise RunError(
                    f"{self._stream.name} ends too early.", remedy="Run the same command again to rebuild it."
                )
            target[:length] = torch.from_numpy(cached).view(length, *self._shape)
        mask = torch.arange(values.shape[1]) < torch.from_numpy(lengths).unsqueeze(1)
        return Layers(tuple(values.permute(2, 0, 1, 3).contiguous()), mask, self.n_edge)


@torch.no_grad()
def write_layers(encoder: Encoder, ids: TokenIds, file: Path, mix: Mix | None, progress: Advance) -> None:
    """Compute the layers of all texts, or their mix, and write them to ``file``, whole or not at all."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.new")
    with explain_os_errors(file):
        shape = _shape(encoder, ids, mix)
        values = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float16, shape=shape)
        reserve(unfinished)  # a disk that fills up later could not be told from a crash
    computed = encoder.precompute(ids)
    for rows in bucket_batches(ids.lengths, BATCH_WORDS):
        layers = encoder.layers(computed, rows).values
        stacked = torch.stack((mix(layers),) if mix else layers, dim=2).clamp_(-65504, 65504).half()
        for place, row in enumerate(rows):
            first, last = ids.offsets[row], ids.offsets[row + 1]
            values[first:last] = stacked[place, : last - first].numpy()
        progress(len(rows))
    with explain_os_errors(file):
        values.flush()
        sync(unfinished)
        os.replace(unfinished, file)


def _shape(encoder: Encoder, ids: TokenIds, mix: Mix | None) -> tuple[int, int, int]:
    return (int(ids.offsets[-1]), 1 if mix else encoder.n_layers, encoder.dim)


def _is_whole(file: Path, shape: tuple[int, int, int]) -> bool:
    """False if there is no such file, or a damaged one."""
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError):
        return False
    return bool(values.shape == shape and values.dtype == np.float16)


@dataclass(frozen=True, eq=False)
class LayerSource:
    """The layers of some rows: read from caches (one per field) where there are some, else computed.

    Attributes:
        fields: Of each field of the task, the ids of all rows.
        n_cut: Texts that were longer than allowed; ``n_empty`` rows have no word.
    """

    encoder: Encoder
    fields: tuple[TokenIds, ...]
    n_cut: int
    n_empty: int
    caches: tuple[LayerCache, ...] = ()

    def __len__(self) -> int:
        return len(self.fields[0])

    @property
    def is_mixed(self) -> bool:
        """True if layers come as their mix."""
        return bool(self.caches) and self.caches[0].is_mixed

    def batches(self, n_words: int, rng: np.random.Generator | None = None) -> list[IntArray]:
        """Row numbers in batches of similar length, about ``n_words`` words each."""
        return bucket_batches(np.sum([ids.lengths for ids in self.fields], axis=0), n_words, rng=rng)

    def batch(
        self, rows: IntArray, *, dropout: DropoutConfig | None = None, rng: torch.Generator | None = None
    ) -> list[Layers]:
        """Of each field, the layers of some rows."""
        if self.caches:
            return [cache.layers(rows) for cache in self.caches]
        return [self.encoder.layers(ids, rows, dropout=dropout, rng=rng) for ids in self.fields]

    @torch.no_grad()
    def all(self) -> Iterator[tuple[IntArray, list[Layers]]]:
        """The layers of all rows in large batches, without gradients."""
        source = self
        if not self.caches:
            source = replace(self, fields=tuple(map(self.encoder.precompute, self.fields)))
        for rows in self.batches(BATCH_WORDS):
            yield rows, source.batch(rows)


def number_texts(
    encoder: Encoder, inputs: Sequence[Inputs], max_words: int, progress: Advance = lambda amount: None
) -> LayerSource:
    """Turn texts into ids, cut to ``max_words``."""
    n_fields = len(inputs[0]) if inputs else 1
    counts = np.zeros((n_fields, len(inputs)), dtype=np.int64)

    def words(field: int) -> Iterator[list[str]]:
        for row, texts in enumerate(inputs):
            (all_words,) = encoder.words([texts[field]])
            counts[field, row] = len(all_words)
            yield all_words[:max_words]
            progress(0 if field else 1)

    fields = tuple(encoder.to_ids(words(field)) for field in range(n_fields))
    return LayerSource(encoder, fields, int((counts > max_words).sum()), int((counts.sum(axis=0) == 0).sum()))


def cached_sources(
    sources: Sequence[LayerSource],
    folder: Path,
    reporter: Reporter,
    *,
    mix: Mix | None = None,
    must_fit: bool = False,
    compute: bool = True,
) -> list[LayerSource]:
    """The same layers, cached in ``folder``; without caches if the disk has no room.

    Args:
        mix: A mix that never changes, so that only its result is stored.
        must_fit: A full disk is an error.
        compute: False uses only what is cached already.
    """
    encoder, all_ids = sources[0].encoder, [ids for source in sources for ids in source.fields]
    files = {ids: folder / f"layers-{ids.content_hash(encoder.fingerprint)}.npy" for ids in all_ids}
    missing = [ids for ids, file in files.items() if not _is_whole(file, _shape(encoder, ids, mix))]
    if missing and not compute:
        return list(sources)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    n_bytes = 2 * sum(math.prod(_shape(encoder, ids, mix)) for ids in missing)
    if n_bytes > _DISK_SHARE * free:
        if must_fit:
            raise RunError(
                f"Caching the encoder's layers needs {format_size(n_bytes)}, {format_size(free)} are free.",
                remedy="Free some space, or compute them in every epoch: --cache no.",
            )
        reporter.say("[yellow]The disk has no room for the layers: every epoch computes them again.[/]")
        return list(sources)
    with reporter.counting("Computing layers", total=sum(map(len, missing)), unit="texts") as advance:
        for ids in missing:
            write_layers(encoder, ids, files[ids], mix, advance)
    caches = {
        ids: LayerCache(file, ids, encoder.n_edge, is_mixed=mix is not None) for ids, file in files.items()
    }
    return [replace(one, caches=tuple(caches[ids] for ids in one.fields)) for one in sources]
