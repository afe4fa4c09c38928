"""A full disk or an unwritable place is a clear error, and what was saved stays."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from elmokit.bilm.folder import load_bilm
from program import Cli, small_disk

_SHAPE = [
    "--preset",
    "tiny",
    "--dim",
    "8",
    "--set",
    "hidden_dim=8",
    "--set",
    "filters=1:4,2:4",
    "--set",
    "min_count=1",
]


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes()).hexdigest()


def test_a_disk_that_fills_up_leaves_the_checkpoint_and_the_run_goes_on_later(
    cli: Cli, tiny_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    command = ("pretrain", tiny_corpus, "--out", out, *_SHAPE, "--epochs", "2")
    with small_disk(64):  # preparing the text needs more than this
        cli(*command).check_refused("the disk is full")
    with small_disk(8_000):  # so do the checkpoints
        cli(*command).check_refused("the disk is full")
    assert not list((out / "run").glob(".*.new"))
    cli(*command).check_fine("Done.")
    before = _digest(out / "model.safetensors")
    load_bilm(out)
    with small_disk(8_000):  # a finished run asked again needs no room
        cli(*command).check_fine()
    assert _digest(out / "model.safetensors") == before


@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nothing can be written to")
def test_a_place_that_cannot_be_written_to_is_named(cli: Cli, tiny_corpus: Path) -> None:
    for out in ("/proc/elmokit-model", "/dev/null/model"):
        cli("pretrain", tiny_corpus, "--out", out, *_SHAPE).check_refused(out)
