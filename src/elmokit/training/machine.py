"""Process settings for speed and memory. Used when work starts, never at import."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from elmokit.core.threads import one_core_each

_MADV_PAGEOUT = 21
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@contextlib.contextmanager
def tuned_process() -> Iterator[None]:
    """``tuned_memory``, and inside the block, one core outside ``run_all``."""
    with tuned_memory(), one_core_each():
        yield


@contextlib.contextmanager
def tuned_memory() -> Iterator[None]:
    """Keep freed memory for reuse and, inside the block, treat denormal numbers as zero.

    By default glibc returns every large block to the system and has it zeroed again a moment later
    (``benchmarks/pretrain_speed.py`` shows what that costs).
    """
    _keep_memory()
    was_on = sys.float_info.min / 2 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


def _keep_memory() -> None:
    if sys.platform.startswith("linux"):
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return  # not glibc
        # Older glibc refuses a threshold above 32 MiB.
        _ = mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def is_mapped(tensor: Tensor) -> bool:
    """Whether a tensor is in a memory-mapped file, so that ``release`` has an effect."""
    address = tensor.data_ptr()
    # Only Linux has this file.
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, _, _, _, inode = line.split(maxsplit=5)[:5]
            low, high = (int(part, 16) for part in span.split("-"))
            if low <= address < high:
                return inode != "0"
    return False


def release(tensor: Tensor) -> None:
    """Let the system drop the memory of a tensor in a mapped file; it is read again when it is next used.
    Other tensors, and other systems than Linux, are left alone."""
    first, page = tensor.data_ptr(), mmap.PAGESIZE
    start = -(-first // page) * page
    size = (first + tensor.numel() * tensor.element_size()) // page * page - start
    if size > 0 and is_mapped(tensor):
        with contextlib.suppress(OSError, AttributeError):  # it is only a hint
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_PAGEOUT)
