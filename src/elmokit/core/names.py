"""Names of models: a bundled one, a folder, or one on a hub."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.core.atomic import restore
from elmokit.core.errors import FRESH, ModelError, import_extra, nearest

MODELS = Path(__file__).parent.parent / "models"
DEFAULT = "english"
"""The bundled model that is used where none is named."""
HUB = "hub:"
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.hdf5", "README.md"]  # never a pickle, never a program


def bundled_names() -> list[str]:
    """The models that come with elmokit."""
    return sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def resolve_name(name: str | Path) -> Path:
    """The folder of a model; if writing to it was cut short, the old model is put back.

    Args:
        name: A string is a bundled name (``"english"``), a model on a hub (``"hub:owner/name"``, downloaded
            once) or a folder. A ``Path`` is always a folder, and so is ``"./english"``.
    """
    if isinstance(name, Path):
        restore(name)
        return name
    if name in bundled_names():
        return MODELS / name
    if name.startswith(HUB):
        return _download(name)
    if name == "news" and not os.path.exists(name):
        raise ModelError(
            "The model 'news' does not come with elmokit: it is made from text that is for research only.",
            remedy="Use 'english', or make 'news' with recipes/news.py and give its folder.",
        )
    if not os.path.exists(name):  # unlike Path.exists, False for a name that is too long
        hint = nearest(name.casefold(), bundled_names())
        remedy = f"Give a model folder, published ELMo files, or a bundled model. {hint}"
        raise ModelError(f"There is no model folder {name[:500]}.", remedy=remedy)
    return resolve_name(Path(name))


def checksum(file: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def content_checksum(*paths: Path, exclude: Path | None = None) -> str:
    """Changes when a file does, or one in a folder; runs, hidden files and ``exclude`` do not count."""
    content = dict[str, str]()
    below = exclude.resolve() if exclude else None
    for number, path in enumerate(paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(path)
            is_other = "run" in name.parts[:1] or any(part[0] == "." for part in name.parts)
            if file.is_file() and not is_other and below not in file.resolve().parents:
                content[f"{number}/{name.as_posix()}"] = checksum(file)
    return record_checksum(content)


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def record_checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object without its ``checksum``, however it is laid out."""
    rest = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def verify_checksums(file: Path, record: Mapping[str, Any]) -> None:
    """Raise ModelError unless ``file``, which holds ``record``, and all that it lists are as first written.

    Folders of 0.1 have no checksum of ``file`` itself, and those of its classifiers none at all.
    """
    folder, files = file.parent, record.get("files", {})
    remedy = "Install elmokit again." if folder.parent == MODELS else FRESH
    damaged = "is damaged: its checksum does not match"
    if record.get("checksum", own := record_checksum(record)) != own or not isinstance(files, dict):
        raise ModelError(f"{file} {damaged} its content.", remedy=remedy)
    for name, expected in files.items():
        path = folder / name
        try:
            actual = checksum(path) if ".." not in Path(name).parts else ""
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            raise ModelError(f"{path} cannot be read: {problem}.", remedy=remedy) from error
        if actual != expected:
            raise ModelError(f"{path} {damaged} {file.name}.", remedy=remedy)
    for path in folder.glob("*.safetensors") if files else ():
        if path.name not in files:
            raise ModelError(
                f"{path} is not a file of this model: {file.name} does not list it.", remedy=FRESH
            )


def _download(name: str) -> Path:
    """``hub:owner/name`` or ``hub:owner/name@revision``, from the hub or its copy on disk."""
    repository, _, revision = name.removeprefix(HUB).partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ModelError(
            f"{name!r} is not the name of a model on a hub.",
            remedy="Write hub:owner/name or hub:owner/name@revision.",
        )
    hub = import_extra("huggingface_hub", "hub", "A model on a hub")
    errors = import_extra("huggingface_hub.errors", "hub", "A model on a hub")
    try:
        copy: Any = hub.snapshot_download(
            repository, revision=revision or None, allow_patterns=_HUB_FILES, library_name="elmokit"
        )
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise ModelError(
            f"The hub has no model {name.removeprefix(HUB)}, or it is private.",
            remedy="Check the name; for a private model, log in with: hf auth login",
        ) from error
    except Exception as error:  # each release has its own network errors, not all of them OSErrors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        raise ModelError(
            f"{name} is not on this machine, and the hub cannot be reached ({reason}).",
            remedy="Connect to a network, or use a bundled model: " + ", ".join(bundled_names()) + ".",
        ) from error
    return Path(copy)
