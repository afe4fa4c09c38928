"""A model is a folder: ``config.json`` says its kind and holds the checksum of every other file."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import elmokit
from elmokit.core.atomic import staging, write_text
from elmokit.core.errors import FRESH, ConfigError, ModelError, RunError
from elmokit.core.model_card import Facts, card_text
from elmokit.core.names import (
    bundled_names,
    checksum,
    read_json,
    record_checksum,
    resolve_name,
    verify_checksums,
)

FORMAT, FORMAT_VERSION = "elmokit", 1
_CONFIG, _CARD = "config.json", "README.md"
_OLD_FILES = ("model.safetensors", "model.bin", "vocab.txt", "encoder")  # of 0.1, where they are not listed
FITTED = {"classifier", "stack", "linear"}  # of fit, which may replace each other
OUTDATED = ".outdated"  # in a folder whose model is of an earlier run; goes with that model
Report = Callable[[Path], object] | None  # writes to the staging folder of a model, to arrive with it


class Kind(NamedTuple):
    """A kind of model: what it is called, which command makes it, and what reads its folder."""

    noun: str
    verb: str
    loader: str  # module:name, imported when it is needed


KINDS = {
    "bilm": Kind("a language model", "pretrain", "elmokit.vectors.elmo:Elmo.load"),
    "classifier": Kind("a classifier", "fit", "elmokit.tasks.model:TaskModel.load"),
    "word-vectors": Kind("word vectors", "baseline", "elmokit.static.word_vectors:WordVectors.load"),
    "stack": Kind("a classifier", "fit", "elmokit.tasks.stack:StackModel.load"),
    "encoders": Kind("several encoders", "fit", "elmokit.vectors.side_by_side:read_encoders"),
    "sentence-encoder": Kind("a sentence encoder", "fit", "elmokit.vectors.foreign:read_encoder"),
    "linear": Kind("a linear model", "fit", "elmokit.tasks.tfidf:TfidfModel.load"),
}


class Model(Protocol):
    """What every kind of model can do."""

    @property
    def kind(self) -> str:
        """Its kind: a key of ``KINDS``."""

    def facts(self) -> Facts:
        """What it is: for its card, ``elmokit inspect`` and the service."""

    def save(self, folder: str | Path) -> None:
        """Write it to ``folder``, from which ``load`` reads it."""


def load(name: str | Path) -> Model:
    """Load any model.

    Args:
        name: A bundled name (``"english"``), a folder, ``"hub:owner/name"``, or published ELMo files.
    """
    folder = resolve_name(name)
    kind = KINDS.get(kind_of(folder) or "bilm")  # published files are language models
    if kind is None:
        raise ModelError(
            f"{folder / _CONFIG} names an unknown kind of model.", remedy="Install a newer elmokit."
        )
    module, _, loader = kind.loader.partition(":")
    return cast(Model, attrgetter(loader)(importlib.import_module(module))(folder))


def kind_of(folder: Path) -> str | None:
    """The kind of model that ``folder`` holds; None if it holds no finished model."""
    record = read_json(folder / _CONFIG)
    return str(record.get("kind")) if record.get("format") == FORMAT else None


def read_record(folder: Path, kind: str) -> dict[str, Any]:
    """``config.json`` of a model of this kind; ModelError if ``folder`` holds none or is damaged."""
    file = folder / _CONFIG
    noun, verb, _ = KINDS[kind]
    remedy = f"Give a folder made by elmokit {verb}."
    if not file.exists():
        if (folder / "run").is_dir():
            remedy = "Its training was not finished; run the same command again."
        elif kind == "bilm":
            names = ", ".join(bundled_names())
            remedy = f"{remedy[:-1]}, published ELMo files, or a bundled model ({names})."
        missing = f"{folder} is not an elmokit model: it has no {_CONFIG}."
        raise ModelError(missing if folder.exists() else f"There is no model folder {folder}.", remedy=remedy)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read: {error}.", remedy=FRESH) from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ModelError(f"{file} was not written by elmokit.", remedy=remedy)
    if record.get("format_version") != FORMAT_VERSION:
        raise ModelError(
            f"{file} has format version {record.get('format_version')!r}, "
            f"this elmokit reads {FORMAT_VERSION}.",
            remedy="Install a newer elmokit.",
        )
    if record.get("kind") != kind:
        other = KINDS[record["kind"]].noun if record.get("kind") in KINDS else f"a {record.get('kind')!r}"
        raise ModelError(f"{folder} holds {other}, not {noun}.", remedy=remedy)
    verify_checksums(file, record)
    return record


@contextlib.contextmanager
def explain_damage(folder: Path) -> Iterator[None]:
    """Turn an error over values that config.json cannot have into a ModelError that names the file."""
    try:
        yield
    except (
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        RuntimeError,
        ConfigError,
    ) as error:
        raise ModelError(f"{folder / _CONFIG} is damaged: {error}.", remedy=FRESH) from error


@contextlib.contextmanager
def write_model(
    folder: Path, kind: str, record: Mapping[str, Any], *, card: Facts, report: Report = None
) -> Iterator[Path]:
    """A staging folder to write the files of a model to.

    At the end checksums are taken, ``README.md`` and, last, ``config.json`` are written, and all of it
    replaces the model that ``folder`` held before. On an error the old model is untouched. A model of another
    kind, and files that are not those of a model, of a run or of a job at work in ``folder``, are an error.

    Args:
        folder: The model folder; other files in it (a run, a report) stay.
        record: What ``config.json`` holds besides format, kind, version and checksums.
    """
    gone = list[str]()
    with staging(folder, _CONFIG, gone=gone) as staged:
        yield staged
        gone += find_replaced(folder, kind, {_CARD, _CONFIG, *(path.name for path in staged.iterdir())})
        config = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": kind,
            "elmokit_version": elmokit.__version__,
            **record,
            "files": {file.relative_to(staged).as_posix(): checksum(file) for file in _own_files(staged)},
        }
        config["checksum"] = record_checksum(json.loads(json.dumps(config)))
        if report:
            report(staged)
        write_text(staged / _CARD, card_text(replace(card, title=card.title or folder.resolve().name)))
        write_text(staged / _CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def find_replaced(folder: Path, kind: str, new: set[str]) -> set[str]:
    """The files of the model that one with the files ``new`` replaces; RunError if there are others."""
    old, present = kind_of(folder), {path.name for path in folder.iterdir()}
    has_run, own = (folder / "run" / ".lock").exists(), set[str]()
    touched = set[str]() if has_run or ".lock" in present else present
    if old is not None:
        listed = read_json(folder / _CONFIG).get("files")
        names = listed if isinstance(listed, dict) else _OLD_FILES
        own = {_CARD, _CONFIG, OUTDATED, *(name.partition("/")[0] for name in names)}
        own |= {"run"} if old == "classifier" != kind and has_run else set()
        touched = new & present
    foreign = [name for name in sorted(touched - own) if name[0] != "."]
    is_other = old not in (None, kind) and not {old, kind} <= FITTED
    if is_other or foreign:
        noun = KINDS[old].noun if old in KINDS else "another model"
        what = f"{foreign[0]}, which is no part of a model" if foreign else noun
        remedy = "Choose another folder, or move what is there away."
        raise RunError(f"{folder} holds {what}; nothing in it was changed.", remedy=remedy)
    return own & present


def _own_files(folder: Path) -> Iterator[Path]:
    """All files but cards; of a model inside, its config.json, which has the checksums of the others."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from [path / _CONFIG] if kind_of(path) else _own_files(path)
        elif path.name != _CARD:
            yield path
