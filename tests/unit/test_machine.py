"""Hints to the system: memory that is let go of is there again when it is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.training.machine import is_mapped, release


def resident_file_memory() -> int:
    """Bytes of mapped files that this process holds in memory."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssFile")))


def test_a_tensor_in_memory_is_left_alone() -> None:
    tensor = torch.randn(1000, 1000)
    wanted = tensor.clone()
    release(tensor)
    assert torch.equal(tensor, wanted)
    release(torch.empty(0))
    release(torch.ones(3))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux is told")
def test_a_mapped_tensor_is_dropped_and_read_again(tmp_path: Path) -> None:
    wanted = torch.randn(3000, 1000)
    save_tensors(tmp_path / "x.safetensors", {"x": wanted}, {})
    tensor = load_tensors(tmp_path / "x.safetensors")[0]["x"]
    assert torch.equal(tensor, wanted)
    before = resident_file_memory()
    assert is_mapped(tensor)
    assert not is_mapped(wanted)
    release(tensor)
    assert resident_file_memory() <= before  # how much goes is the system's affair
    assert torch.equal(tensor, wanted)


def test_changes_are_not_lost(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", {"x": torch.zeros(500, 1000)}, {})
    tensor = load_tensors(tmp_path / "x.safetensors")[0]["x"]
    tensor += 1.0
    release(tensor)
    assert bool((tensor == 1.0).all())
