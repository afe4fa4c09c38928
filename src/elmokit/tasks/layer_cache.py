"""Texts made ready for training: numbered words, and a frozen encoder's layers kept on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.core.atomic import explain_os_errors, reserve, sync
from elmokit.core.errors import RunError
from elmokit.tasks.encoders import Encoder
from elmokit.text.batching import bucket_batches
from elmokit.text.tokenizing import Text
from elmokit.vectors.encoder import TokenIds
from elmokit.vectors.mix import Mix

__all__ = ["Batch", "Examples", "KeptLayers", "keep_layers", "layers_of", "number_texts"]

_ROOM = 0.7  # of the free disk may be used for kept layers


@dataclass(frozen=True)
class Examples:
    """Texts as ids.

    Attributes:
        n_cut: texts that were longer than allowed.
        n_empty: texts without a word.
    """

    ids: TokenIds
    n_cut: int
    n_empty: int

    def __len__(self) -> int:
        return len(self.ids)

    def batches(self, n_words: int, rng: np.random.Generator | None = None) -> list[npt.NDArray[np.int64]]:
        """Texts of like length together, about ``n_words`` words in a batch."""
        return bucket_batches(self.ids.lengths, n_words, rng=rng)


def number_texts(
    encoder: Encoder,
    texts: Sequence[Text],
    max_words: int,
    progress: Callable[[int], None] = lambda amount: None,
) -> Examples:
    """Turn texts into ids, cut to ``max_words``."""
    n_cut = n_empty = 0

    def cut() -> Iterator[list[str]]:
        nonlocal n_cut, n_empty
        for text in texts:
            (words,) = encoder.words([text])
            n_cut += len(words) > max_words
            n_empty += not words
            yield words[:max_words]
            progress(1)

    ids = encoder.to_ids(cut())
    return Examples(ids, n_cut, n_empty)


@dataclass(frozen=True)
class Batch:
    """Some texts' layers: each (batch, time, dim), and where there is a word, (batch, time)."""

    layers: tuple[Tensor, ...]
    mask: Tensor


class KeptLayers:
    """A frozen encoder's layers (or their fixed mix) for all texts, in a file of half-precision numbers.

    Args:
        file: where.
        examples: whose.
        values: (n_words, layer, dim), as the file has them.
        is_mixed: it is the mix that is kept.
    """

    def __init__(
        self, file: Path, examples: Examples, values: npt.NDArray[np.float16], is_mixed: bool
    ) -> None:
        self._file, self._examples, self._shape = file, examples, values.shape
        self.is_mixed = is_mixed
        # Read, not mapped: what is mapped would count as this process's memory.
        self._start = getattr(values, "offset", 0)
        self._stream = open(file, "rb", buffering=0) if len(values) else None  # noqa: SIM115

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """The layers of some texts, in full precision."""
        lengths, offsets = self._examples.ids.lengths[rows], self._examples.ids.offsets
        n_time = int(lengths.max())
        _, n_layers, dim = self._shape
        values = torch.zeros(n_layers, len(rows), n_time, dim)
        for place, row in enumerate(rows):
            kept = torch.from_numpy(self._read(int(offsets[row]), int(lengths[place])))
            values[:, place, : lengths[place]] = kept.transpose(0, 1)
        mask = torch.arange(n_time) < torch.from_numpy(lengths).unsqueeze(1)
        return Batch(tuple(values), mask)

    def _read(self, first: int, n_words: int) -> npt.NDArray[np.float16]:
        assert self._stream is not None
        found = np.empty((n_words, *self._shape[1:]), dtype=np.float16)
        self._stream.seek(self._start + first * found[0].nbytes)
        room = memoryview(found.data).cast("B")
        while room:
            n_read = self._stream.readinto(room)
            if not n_read:
                raise RunError(
                    f"{self._file} ends too early.", remedy="Run the same command again: it is made anew."
                )
            room = room[n_read:]
        return found

    def discard(self) -> None:
        """Delete the file."""
        if self._stream is not None:
            self._stream.close()
        self._file.unlink(missing_ok=True)


def keep_layers(
    encoder: Encoder,
    examples: Examples,
    file: Path,
    mix: Mix | None,
    batch_words: int,
    progress: Callable[[int], None],
    *,
    must_fit: bool,
) -> KeptLayers | None:
    """Compute all layers once and keep them in ``file``.

    Args:
        encoder: whose layers.
        examples: the texts.
        file: where to keep them; used as it is if it is there.
        mix: a mix that never changes, so that only its result need be kept; else None.
        batch_words: words in a batch.
        progress: told how many texts were just done.
        must_fit: a full disk is an error; otherwise None is returned.
    """
    shape = (int(examples.ids.offsets[-1]), 1 if mix else encoder.n_layers, encoder.dim)
    values: npt.NDArray[np.float16] | None = None
    if not len(examples):
        return KeptLayers(file, examples, np.zeros(shape, dtype=np.float16), mix is not None)
    if file.exists():
        with contextlib.suppress(OSError, EOFError, ValueError):  # a damaged file is made anew
            values = np.load(file, mmap_mode="r", allow_pickle=False)
        if values is not None and values.shape == shape and values.dtype == np.float16:
            progress(len(examples))
            return KeptLayers(file, examples, values, mix is not None)
    n_bytes = 2 * int(np.prod(shape, dtype=np.int64))
    with explain_os_errors(file):
        free = shutil.disk_usage(file.parent).free
    if n_bytes > _ROOM * free:
        if must_fit:
            raise RunError(
                f"Keeping the encoder's layers needs {n_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free.",
                remedy="Free some space, or compute them anew in every epoch: --cache no.",
            )
        return None
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.new")
    with explain_os_errors(file):
        values = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.float16, shape=shape)
        reserve(unfinished)  # a disk that is full later could not be told from a crash
    for rows, out in layers_of(encoder, examples, batch_words):
        layers = (mix(out.layers),) if mix else out.layers
        stacked = torch.stack(layers, dim=2).clamp_(-65504, 65504).to(torch.float16)
        for place, row in enumerate(rows):
            first, last = examples.ids.offsets[row : row + 2]
            values[first:last] = stacked[place, : last - first].numpy()
        progress(len(rows))
    with explain_os_errors(file):
        values.flush()
        sync(unfinished)
        os.replace(unfinished, file)
    return KeptLayers(file, examples, values, mix is not None)


@torch.no_grad()
def layers_of(
    encoder: Encoder, examples: Examples, batch_words: int
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """All layers of all texts, batch by batch; each distinct word through the token encoder once."""
    ids = encoder.precompute(examples.ids)
    for rows in examples.batches(batch_words):
        layers = encoder.layers(ids, rows)
        yield rows, Batch(layers.values, layers.mask)
