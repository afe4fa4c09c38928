"""A model is a folder: ``config.json`` says its kind and holds the checksum of every other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from elmokit.core.errors import ModelError
from elmokit.core.names import bundled_names

FORMAT, FORMAT_VERSION = "elmokit", 1
Kind = Literal["bilm", "classifier", "word-vectors", "linear"]
_KINDS: dict[str, str] = {
    "bilm": "a language model",
    "classifier": "a classifier",
    "word-vectors": "word vectors",
    "linear": "a linear model",
}
_VERBS: dict[Kind, str] = {
    "bilm": "pretrain",
    "classifier": "fit",
    "word-vectors": "baseline",
    "linear": "compare",
}
FRESH = "The files are damaged or do not belong together; take a fresh copy of the folder."


def kind_of(folder: Path) -> str | None:
    """What kind of finished elmokit model ``folder`` holds; None if it holds none."""
    try:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    known = isinstance(record, dict) and record.get("format") == FORMAT
    return str(record.get("kind")) if known else None


def is_model_folder(folder: Path) -> bool:
    """Whether ``folder`` holds a finished elmokit model of any kind."""
    return kind_of(folder) is not None


def read_record(folder: Path, kind: Kind) -> dict[str, Any]:
    """The ``config.json`` of a model folder of this kind, or an error that says what is there."""
    file = folder / "config.json"
    verb = _VERBS[kind]
    if not file.exists():
        unfinished = (folder / "run").is_dir()
        others = ""
        if kind == "bilm":
            others = f", published ELMo files, or a bundled model ({', '.join(bundled_names())})"
        raise ModelError(
            f"{folder} is not an elmokit model: it has no config.json."
            if folder.exists()
            else f"There is no model folder {folder}.",
            remedy=f"Its training was not finished; run the same {verb} command again."
            if unfinished
            else f"Give a folder that elmokit {verb} has made{others}.",
        )
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read: {error}.", remedy=FRESH) from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ModelError(
            f"{file} was not written by elmokit.",
            remedy=f"Give a folder that elmokit {verb} has made.",
        )
    if record.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            f"{file} has format version {record.get('format_version')!r}, "
            f"this elmokit reads {FORMAT_VERSION}.",
            remedy="Install a newer elmokit.",
        )
    if record.get("kind") != kind:
        found = _KINDS.get(str(record.get("kind")), f"a {record.get('kind')!r}")
        raise ModelError(
            f"{folder} holds {found}, not {_KINDS[kind]}.",
            remedy=f"Give a folder that elmokit {verb} has made.",
        )
    return record


def check_tensors(file: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Refuse a file whose tensors are not just those expected, by name and shape."""
    for name in expected:
        if name not in found:
            raise ModelError(f"{file} lacks the tensor {name}.", remedy=FRESH)
    for name, tensor in found.items():
        if name not in expected:
            raise ModelError(f"{file} has a tensor {name} that the model does not know.", remedy=FRESH)
        if tensor.shape != expected[name].shape:
            raise ModelError(
                f"{file}: {name} has shape {tuple(tensor.shape)}, "
                f"config.json asks for {tuple(expected[name].shape)}.",
                remedy=FRESH,
            )
