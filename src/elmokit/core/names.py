"""What the name of a model stands for: one that comes with elmokit, a folder, or one on a hub."""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path

from elmokit.core.errors import MissingExtraError, ModelError

__all__ = ["HUB", "MODELS", "bundled_names", "checksum", "checksums_hold", "resolve_name"]

MODELS = Path(__file__).parent.parent / "models"
HUB = "hub:"
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.hdf5", "README.md"]  # never a pickle, never a program


def bundled_names() -> list[str]:
    """The models that come with elmokit."""
    return sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def resolve_name(name: str | Path) -> Path:
    """The folder of a model.

    Args:
        name: a string is the name of a bundled model (``"news"``), else a folder, else, with ``hub:``
            before it, a model on a hub, which is downloaded once. A ``Path`` is always a folder, and
            so is ``"./news"``.
    """
    if isinstance(name, Path):
        return name
    if name in bundled_names():
        checksums_hold(MODELS / name, "Install elmokit again.")
        return MODELS / name
    if name.startswith(HUB):
        return _downloaded(name)
    path = Path(name)
    try:
        there = path.exists()
    except OSError as error:  # such as a name longer than any file may have
        raise ModelError(
            f"There can be no model {name[:60]!r}...: {error.strerror}.",
            remedy="Give a model folder or a bundled model: " + ", ".join(bundled_names()) + ".",
        ) from error
    if not there and path.name == name:
        close = difflib.get_close_matches(name.casefold(), bundled_names(), n=1, cutoff=0.7)
        if close:
            raise ModelError(f"There is no model {name!r}.", remedy=f"Did you mean {close[0]!r}?")
    return path


def checksum(file: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with open(file, "rb") as stream:
        while part := stream.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def checksums_hold(folder: Path, remedy: str) -> None:
    """Refuse a model folder in which a file is not the one that its ``config.json`` was written with."""
    try:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        listed = dict(record.get("files", {}))
    except (OSError, ValueError, TypeError, AttributeError):
        return  # whoever opens it says what is wrong
    for file, expected in listed.items():
        path = folder / Path(str(file)).name
        if not path.is_file():
            raise ModelError(f"{path} is missing.", remedy=remedy)
        try:
            found = checksum(path)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.", remedy=remedy) from error
        if found != expected:
            raise ModelError(f"{path} is damaged: its checksum is not that of config.json.", remedy=remedy)


def _downloaded(name: str) -> Path:
    """``hub:owner/name`` or ``hub:owner/name@revision``, from the hub or its copy on disk."""
    repository, _, revision = name.removeprefix(HUB).partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ModelError(
            f"{name!r} is not the name of a model on a hub.",
            remedy="Write hub:owner/name, or hub:owner/name@revision for one state of it.",
        )
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError as error:
        raise MissingExtraError("huggingface_hub", "hub", "A model on a hub") from error
    try:
        folder = Path(
            hub.snapshot_download(
                repository, revision=revision or None, allow_patterns=_HUB_FILES, library_name="elmokit"
            )
        )
    except errors.HFValidationError as error:
        raise ModelError(f"{name!r} is not the name of a model on a hub: {error}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise ModelError(
            f"The hub has no model {name.removeprefix(HUB)}, or you may not see it.",
            remedy="Check the name; for a private model, log in with: hf auth login",
        ) from error
    except Exception as error:  # each release has its own network errors, not all of them OSErrors
        raise ModelError(
            f"{name} is not on this machine, and the hub cannot be reached ({_first_line(error)}).",
            remedy="Try again with a network, or use a bundled model: " + ", ".join(bundled_names()) + ".",
        ) from error
    checksums_hold(
        folder, "Delete the downloaded copy and try again; if it stays so, tell the model's owner."
    )
    return folder


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
