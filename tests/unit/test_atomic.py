"""Files that are written whole or not at all, and read whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from elmokit.core import atomic
from elmokit.core import tensors as tensors_module
from elmokit.core.atomic import STAGED, atomic_write, staging
from elmokit.core.errors import ModelError, RunError
from elmokit.core.names import resolve_name
from elmokit.core.tensors import load_tensors, save_tensors

OLD = {"weight": torch.arange(6.0).reshape(2, 3)}
NEW = {"weight": torch.ones(2, 3)}
OLD_META = {"step": 1}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was saved before."""
    path = tmp_path / "state.safetensors"
    save_tensors(path, OLD, OLD_META)
    return path


def assert_untouched(path: Path) -> None:
    """The old contents, and nothing else in the folder."""
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    tensors, meta = load_tensors(path)
    assert torch.equal(tensors["weight"], OLD["weight"])
    assert meta == OLD_META


# -- round trip -----------------------------------------------------------------------------------


def test_tensors_of_every_kind_and_the_record_come_back_to_the_bit(tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {
        "float": torch.randn(3, 4),
        "double": torch.randn(5, dtype=torch.float64),
        "scalar": torch.tensor(7),
        "bytes": torch.randint(0, 256, (5056,), dtype=torch.uint8),
        "strided": torch.randn(4, 6).t(),
        "slice": torch.randn(10, 3)[2:5],
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "none at all": torch.empty(0, 3),
        "odd values": torch.tensor([float("nan"), float("inf"), -0.0, 1e-42]),
    }
    meta: dict[str, Any] = {"step": 3, "best": None, "history": [{"score": 0.1 + 0.2}], "text": "ß日"}
    save_tensors(tmp_path / "file", tensors, meta)
    found, record = load_tensors(tmp_path / "file")
    assert record == meta
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].numpy().tobytes() == tensor.detach().contiguous().numpy().tobytes()


def test_saving_again_replaces_the_file_and_not_what_was_loaded_from_it(file: Path) -> None:
    before, _ = load_tensors(file)
    save_tensors(file, NEW, {"step": 2})
    assert torch.equal(before["weight"], OLD["weight"])
    before["weight"].add_(1.0)
    tensors, meta = load_tensors(file)
    assert torch.equal(tensors["weight"], NEW["weight"])
    assert meta == {"step": 2}
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


# -- saving fails ---------------------------------------------------------------------------------


def half_written(error: BaseException) -> Callable[..., None]:
    """A ``save_file`` that breaks off in the middle."""

    def save_file(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half of it")
        raise error

    return save_file


_FULL = (RunError, "the disk is full", "Free some space")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), _FULL),
        (SafetensorError("Error while serializing: No space left on device (os error 28)"), _FULL),
        (PermissionError(errno.EACCES, "Denied"), (RunError, "Denied", "writable")),
        (KeyboardInterrupt(), (KeyboardInterrupt, "^$", "")),
        (ValueError("odd"), (ValueError, "odd", "")),
    ],
    ids=["ENOSPC", "safetensors", "EACCES", "Ctrl-C", "bug"],
)
def test_a_failure_in_the_middle_leaves_the_old_file_and_says_what_to_do(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    expected: tuple[type[BaseException], str, str],
) -> None:
    kind, message, remedy = expected
    monkeypatch.setattr(tensors_module, "save_file", half_written(error))
    with pytest.raises(kind, match=message) as caught:
        save_tensors(file, NEW, {})
    if isinstance(caught.value, RunError):
        assert str(file) in caught.value.message
        assert remedy in caught.value.remedy
    assert_untouched(file)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_failure_after_writing_leaves_the_old_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(RunError, match="Input/output error"):
            save_tensors(file, NEW, {})
    assert_untouched(file)


def test_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    save_tensors(tmp_path / "tensors", {"a": torch.zeros(2)}, {})
    assert (tmp_path / "tensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_old_file_is_in_place_until_the_new_one_is_whole(file: Path) -> None:
    with pytest.raises(RunError, match="nowhere"):
        save_tensors(file.parent / "nowhere" / "file", NEW, {})
    with atomic_write(file) as temporary:
        temporary.write_bytes(b"not yet")
        assert temporary.parent == file.parent
        assert torch.equal(load_tensors(file)[0]["weight"], OLD["weight"])


# -- folders --------------------------------------------------------------------------------------

OLD_FILES = {"config.json": "old", "a.txt": "old", "gone.bin": "old", "sub/b.txt": "old", "mine.md": "mine"}
NEW_FILES = {"config.json": "new", "a.txt": "new", "more.txt": "new", "sub/b.txt": "new"}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _read(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def _stage(folder: Path) -> None:
    with staging(folder, "config.json", gone=["*.bin"]) as staged:
        _write(staged, NEW_FILES)


def _open(folder: Path) -> None:
    resolve_name(folder)


def _die_at(move: int, work: Callable[[Path], None], folder: Path) -> bool:
    """Whether a process that does ``work`` was killed at a move, counted from 0, or had ended before."""
    child = os.fork()
    if child == 0:
        moves, replace = iter(range(move, -1, -1)), os.replace
        os.replace = lambda *paths: replace(*paths) if next(moves) else os._exit(9)
        try:
            work(folder)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be killed at any line")
@pytest.mark.parametrize("old", [OLD_FILES, {"mine.md": "mine"}], ids=["replaced", "first"])
def test_a_folder_whose_swap_was_killed_at_any_move_is_as_before(tmp_path: Path, old: dict[str, str]) -> None:
    new = {**{name: text for name, text in old.items() if name == "mine.md"}, **NEW_FILES}
    for move in itertools.count():
        folder = tmp_path / str(move)
        _write(folder, old)
        was_killed = _die_at(move, _stage, folder)
        for second in range(move):  # the repair can be killed as well
            if not _die_at(second, _open, folder):
                break
        _open(folder)
        files = {name: text for name, text in _read(folder).items() if name[:2] not in (".s", ".r")}
        assert files == (old if was_killed else new), move
        _stage(folder)
        assert _read(folder) == new
        assert not {*folder.glob(".*")}
        if not was_killed:
            break
    assert move > len(NEW_FILES)


# -- reading fails --------------------------------------------------------------------------------


def test_a_file_cut_off_anywhere_is_a_model_error_with_a_remedy(file: Path) -> None:
    whole = file.read_bytes()
    for size in (0, 4, 8, 20, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ModelError, match="cannot be read") as caught:
            load_tensors(file)
        assert str(file) in caught.value.message
        assert caught.value.remedy


@pytest.mark.parametrize("content", [b"{}", b"\xff" * 100, b"PK\x03\x04 as torch.save makes them " * 9, None])
def test_a_file_that_is_foreign_or_missing_and_a_folder_are_model_errors(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(ModelError):
            load_tensors(path)


def test_what_was_staged_before_stays_if_it_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    (tmp_path / STAGED).mkdir()
    (tmp_path / STAGED / "new").write_text("new", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_swap", refuse)
        with pytest.raises(RunError), staging(tmp_path, "new", is_staged=True):
            pass
    with staging(tmp_path, "new", is_staged=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
