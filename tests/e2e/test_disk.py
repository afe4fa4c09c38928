"""A full disk or an unwritable place is a clear error, and what was saved stays."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit import load_bilm

# Files may grow to this size only, as on a disk that is full. (SIGXFSZ is ignored by Python.)
_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["elmokit", *sys.argv[2:]]
from elmokit.cli.main import main
main()
"""
_SHAPE = ["--preset", "tiny", "--dim", "8", "--hidden-dim", "8", "--filters", "1:4,2:4", "--min-count", "1"]


def _pretrain(limit: int, corpus: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _LIMITED, str(limit), "pretrain", str(corpus), "--out", str(out)]
    return subprocess.run([*command, *_SHAPE, *more], capture_output=True, text=True, check=False)


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes()).hexdigest()


def test_a_disk_that_fills_up_leaves_the_checkpoint_and_the_run_goes_on_later(
    tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    plenty = 1 << 30
    # Preparing the text needs more than this.
    done = _pretrain(64, tiny_corpus, out, "--epochs", "2")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the disk is full" in done.stderr
    assert "try:" in done.stderr
    # So do the checkpoints.
    done = _pretrain(8_000, tiny_corpus, out, "--epochs", "2")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the disk is full" in done.stderr
    assert not list((out / "run").glob(".*.new"))
    done = _pretrain(plenty, tiny_corpus, out, "--epochs", "2")
    assert done.returncode == 0, done.stderr
    before = _digest(out / "model.safetensors")
    load_bilm(out)
    # A finished run asked again needs no room.
    done = _pretrain(8_000, tiny_corpus, out, "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert _digest(out / "model.safetensors") == before


@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nothing can be written to")
def test_a_place_that_cannot_be_written_to_is_named(tiny_corpus: Path) -> None:
    for arguments in (["--out", "/proc/elmokit-model"], ["--out", "/dev/null/model"]):
        command = [
            sys.executable,
            "-m",
            "elmokit.cli.main",
            "pretrain",
            str(tiny_corpus),
            *arguments,
            *_SHAPE,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert arguments[1] in done.stderr
