"""From files to vectors on disk, in two passes: words are counted first, then the file, of known
size, is filled. Killed at any moment and run again, it goes on to the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from elmokit.core.atomic import atomic_write, explain_os_errors, write_text
from elmokit.core.console import Reporter
from elmokit.core.errors import DataError, RunError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION
from elmokit.text.rows import IdentifiedTexts
from elmokit.text.settings import ReadConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.export import check_exports, write_exports
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_card import card, plan
from elmokit.vectors.store_files import (
    KIND,
    MANIFEST,
    OFFSETS,
    PROGRESS,
    README,
    TEXTS,
    header,
    read_manifest,
    write_json,
)
from elmokit.vectors.store_filling import Filling

__all__ = ["EmbedResult", "embed_files"]

_READ_AT_ONCE = 256
_COUNTS = ("n_texts", "n_words", "n_vectors", "n_empty")


@dataclass(frozen=True)
class EmbedResult:
    """What ``embed_files`` leaves behind.

    Attributes:
        folder: where the vectors are.
        n_texts: texts, empty ones included.
        n_words: words in them.
        n_vectors: rows on disk.
        n_empty: texts that hold no word.
        n_bytes: size of the vectors.
        n_resumed: texts that were done before.
        seconds: time spent embedding now.
        was_done: all was there before; nothing was embedded now.
        exports: files written in other formats.
    """

    folder: Path
    n_texts: int
    n_words: int
    n_vectors: int
    n_empty: int
    n_bytes: int
    n_resumed: int
    seconds: float
    was_done: bool
    exports: list[Path]


def embed_files(
    model: Elmo | str | Path,
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    config: StoreConfig | None = None,
    *,
    read: ReadConfig | None = None,
    exports: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> EmbedResult:
    """Embed all texts of some files into a folder that ``VectorStore.open`` opens.

    Safe to kill at any moment: the same call goes on where it was and ends in the same bytes. The
    size on disk is known and said, and room for the vectors set aside, before the first is computed. A
    model that is given loses the words in its cache, which is a plain one again afterwards.

    Args:
        model: a model, or the folder of one.
        files: files, folders, glob patterns, or ``-`` for standard input.
        out: the folder to make.
        config: which vectors to keep, and in what form.
        read: how the files are read.
        exports: write the vectors as "parquet" or "npz", too.
        reporter: who is told; silent unless given.
    """
    config, read, reporter = config or StoreConfig(), read or ReadConfig(), reporter or Reporter("silent")
    files = [files] if isinstance(files, str | Path) else list(files)
    out = Path(out)
    check_exports(exports)
    before = _opened(out)
    name = "" if isinstance(model, Elmo) else Path(model).resolve().name
    elmo = model if isinstance(model, Elmo) else Elmo.load(model)
    config.factors(elmo.n_layers)  # checks them
    elmo.embed([], state=config.state)  # the model may have no warm state to start from
    texts = IdentifiedTexts(files, read, config.id_column, exclude=out)
    wanted = _identity(elmo, name, config, read, texts)
    if before is not None and "n_texts" in before:
        _check_same(out, before, wanted)
        manifest = before
    else:
        manifest = _read(elmo, texts, out, wanted, reporter)
    store = Filling(elmo, out, config, manifest, exports)
    was_done = manifest["done"]
    n_resumed, seconds = manifest["n_texts"], 0.0
    size = store.size
    reporter.event(
        "plan", **{key: manifest[key] for key in _COUNTS}, n_bytes=size.vectors, n_bytes_total=size.total
    )
    if was_done:
        store.check_room(fresh=False)
    else:
        reporter.say(plan(manifest, config, store.shape, size))
        begun = time.monotonic()
        n_resumed = store.fill(reporter)
        seconds = time.monotonic() - begun
        write_text(out / README, card(manifest, config))
        manifest["done"] = True
        write_json(out / MANIFEST, manifest)
    with contextlib.suppress(OSError):
        (out / PROGRESS).unlink(missing_ok=True)
    written = write_exports(VectorStore.open(out), exports, reporter)
    counts = {key: manifest[key] for key in _COUNTS}
    return EmbedResult(
        out,
        **counts,
        n_bytes=size.vectors,
        n_resumed=n_resumed,
        seconds=seconds,
        was_done=was_done,
        exports=written,
    )


# -- the folder -----------------------------------------------------------------------------------


def _opened(out: Path) -> dict[str, Any] | None:
    """The manifest in ``out``, if there is one; an error if the folder is somebody else's."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder.", remedy="Choose another --out.")
    if not out.exists():
        return None
    try:
        found = read_manifest(out)
        names = {file.name for file in out.iterdir()}
    except (DataError, OSError):
        found, names = None, {"something else"}
    if found is None and not names <= {f".{MANIFEST}.new"}:
        raise RunError(
            f"{out} exists and does not hold vectors of elmokit embed; nothing in it was touched.",
            remedy="Choose another --out, or empty the folder yourself.",
        )
    return found


def _identity(
    elmo: Elmo, name: str, config: StoreConfig, read: ReadConfig, texts: IdentifiedTexts
) -> dict[str, Any]:
    """All that decides what the vectors are."""
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": KIND,
        "elmokit_version": elmokit.__version__,
        "model": {"name": name, "fingerprint": elmo.fingerprint},
        "settings": config.to_dict(),
        "reading": read.to_dict(),
        "files": texts.fingerprints(),
        "layers": elmo.n_layers if config.all_layers else 1,
        "dim": elmo.dim,
        "dtype": config.dtype,
        "done": False,
    }
    return dict(json.loads(json.dumps(record)))


def _check_same(out: Path, before: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with another model, other settings or other files."""
    changes = []
    if before.get("model", {}).get("fingerprint") != wanted["model"]["fingerprint"]:
        was = before.get("model", {}).get("name")
        changes.append("another model" + (f" (it was {was})" if was else ""))
    for section in ("settings", "reading"):
        old, new = before.get(section, {}), wanted[section]
        changes += [
            f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key)
        ]
    old_files, new_files = before.get("files", []), wanted["files"]
    if old_files != new_files:
        names = dict.fromkeys(mark[0] for mark in [*old_files, *new_files])
        other = [
            "standard input" if name == "-" else str(name)
            for name in names
            if [mark for mark in old_files if mark[0] == name]
            != [mark for mark in new_files if mark[0] == name]
        ]
        shown = ", ".join(other[:5]) + (", …" if len(other) > 5 else "")
        changes.append(
            f"other text: {shown} changed, came or went" if other else "the files stand in another order"
        )
    if changes:
        raise RunError(
            f"{out} holds vectors of something else: {'; '.join(changes)}. Nothing was touched.",
            remedy="Choose another --out, or give the same model, files and flags as before.",
        )


# -- first pass: words ----------------------------------------------------------------------------


def _read(
    elmo: Elmo, texts: IdentifiedTexts, out: Path, wanted: dict[str, Any], reporter: Reporter
) -> dict[str, Any]:
    """Write ``texts.jsonl`` and ``offsets.npy``; the manifest gets the counts."""
    was_there = out.exists()
    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / PROGRESS).unlink(missing_ok=True)
    write_json(out / MANIFEST, wanted)  # from now on the folder is known to be ours
    try:
        counts = _write_texts(elmo, texts, out, wanted["settings"]["pool"] != "none", reporter)
    except BaseException:
        with contextlib.suppress(OSError):
            (out / MANIFEST).unlink(missing_ok=True)
            for name in (TEXTS, OFFSETS):
                (out / name).unlink(missing_ok=True)
            if not was_there:
                out.rmdir()
        raise
    manifest = {**wanted, **counts}
    write_json(out / MANIFEST, manifest)
    return manifest


def _write_texts(
    elmo: Elmo, texts: IdentifiedTexts, out: Path, pooled: bool, reporter: Reporter
) -> dict[str, int]:
    n_texts = n_words = n_empty = n_vectors = ids_bytes = 0
    with contextlib.ExitStack() as stack:
        new_texts = stack.enter_context(atomic_write(out / TEXTS))
        new_offsets = stack.enter_context(atomic_write(out / OFFSETS))
        advance = stack.enter_context(reporter.counting("Reading the texts", unit="texts"))
        with open(new_texts, "wb") as lines, open(new_offsets, "wb") as places:
            places.write(header("npy", "int64", (0,)))
            places.write(np.int64(0).astype("<i8").tobytes())
            for batch in _batches(texts):
                for (id, text), words in zip(batch, elmo.words([text for _, text in batch]), strict=True):
                    record = {"id": id, "text": text, "words": words}
                    lines.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                    n_texts += 1
                    ids_bytes += len(id.encode())
                    n_words += len(words)
                    n_empty += not words
                    n_vectors += 1 if pooled else len(words)
                    places.write(np.int64(n_vectors).astype("<i8").tobytes())
                advance(len(batch))
            if n_texts == 0:
                raise DataError(f"{texts.name} holds no text.", remedy="Give a file with at least one text.")
            texts_bytes = lines.tell()
            places.seek(0)
            places.write(header("npy", "int64", (n_texts + 1,)))
    return {
        "n_texts": n_texts,
        "n_words": n_words,
        "n_vectors": n_vectors,
        "n_empty": n_empty,
        "texts_bytes": texts_bytes,
        "ids_bytes": ids_bytes,
    }


def _batches(texts: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    stream = iter(texts)
    while batch := list(itertools.islice(stream, _READ_AT_ONCE)):
        yield batch
