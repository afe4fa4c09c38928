"""What the benchmarks share: the data, the machine's peak, fair timing, and the closing JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["data_file", "finish", "gemm_peak", "peak_memory", "seconds"]


def data_file(name: str) -> Path:
    """A real data file, found through ELMOKIT_DATA; the benchmark ends here if it is absent."""
    root = os.environ.get("ELMOKIT_DATA")
    if not root or not (Path(root) / name).exists():
        print(f"skipped: set ELMOKIT_DATA to a folder that holds {name}")
        finish({"skipped": True})
        sys.exit(0)
    return Path(root) / name


def seconds(work: Callable[[], Any]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def gemm_peak(size: int = 1536, repeats: int = 12) -> float:
    """The machine's best speed in a plain fp32 matrix product, in GFLOP/s."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    best = min(seconds(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def peak_memory() -> float:
    """The most memory this process has held, in MiB. (ru_maxrss would count the parent's, too.)"""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def finish(figures: dict[str, Any]) -> None:
    """The last line of every benchmark: one JSON object."""
    print(json.dumps(figures))
