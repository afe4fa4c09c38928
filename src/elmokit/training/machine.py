"""Settings of the process that make training on a CPU faster. Called when work starts, never at import."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import torch

__all__ = ["tuned_process"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@contextlib.contextmanager
def tuned_process() -> Iterator[None]:
    """Keep freed memory for the next step and, inside the block, treat denormal numbers as zero.

    By default glibc returns every large block to the system and has it zeroed again a moment
    later (``benchmarks/pretrain_speed.py`` shows what that costs). Memory stays kept after the
    block; the caller's arithmetic is put back.
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
