"""``embed``: from files to vectors on disk, in two passes.

The first pass counts words, the second fills a file of known size. Killed at any moment and run again,
it resumes and ends in the same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import time
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.markup import escape

import elmokit
from elmokit.core.atomic import STAGED, atomic_write, explain_os_errors, reserve, staging, sync, write_text
from elmokit.core.config import merge_settings
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ConfigError, DataError, RunError, nearest
from elmokit.core.formatting import format_size, join_names, plural
from elmokit.core.names import checksum
from elmokit.core.run_folder import describe_changes, open_out
from elmokit.published.hdf5 import require_h5py
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import Tokenized, replace_surrogates
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.settings import EXPORTS, StoreConfig
from elmokit.vectors.shards import Engine, is_ray, run_shards
from elmokit.vectors.store import (
    MANIFEST,
    OFFSETS,
    TEXTS,
    WRITERS,
    Manifest,
    ModelRef,
    VectorStore,
    check_file,
    map_array,
    shard_folder,
)

_PROGRESS = "progress.json"
_GONE = (_PROGRESS, OFFSETS, TEXTS, "vectors.npy", "vectors.safetensors", *EXPORTS.values())
_COUNTS = ("n_texts", "n_words", "n_vectors", "n_empty")
_READ_TEXTS = 256  # texts read at a time
_CHUNK_TEXTS = 512
_CHUNK_NUMBERS = 12_000_000  # all layers of the words of a chunk: 48 MB
_PINNED_WORDS = 20_000


@dataclass(frozen=True)
class EmbedResult:
    """What ``embed`` has made."""

    folder: Path
    n_texts: int
    n_words: int
    n_vectors: int  # rows on disk
    n_empty: int  # texts without a word
    n_bytes: int  # size of the vectors
    n_resumed: int  # texts that were done before
    seconds: float  # spent embedding now
    was_done: bool  # everything was there before; nothing was embedded now
    exports: list[Path]  # files in other formats


def embed(  # many parameters because they are those of the verb
    encoder: Elmo | str | Path,
    source: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    config: StoreConfig | None = None,
    read: ReadConfig | None = None,
    exports: Sequence[str] = (),
    overwrite: bool = False,
    reporter: Reporter | None = None,
    engine: Engine = "local",
    address: str = "",
    **settings: Any,
) -> EmbedResult:
    """Embed all texts of some files into a folder that ``VectorStore.open`` opens.

    Safe to kill at any moment: the same call resumes where it stopped and ends in the same bytes. The
    size of the vectors is reported, and space for them reserved, before the first is computed. A
    model that is passed in loses the words in its cache. Vectors that are overwritten stay until the end.

    Args:
        encoder: A model, its folder, or its name.
        source: Files, folders, glob patterns, or ``-`` for standard input.
        config: Which vectors to store, and in what form.
        read: How to read the files.
        exports: Also write the vectors as "parquet", "hdf5" or, with ``pool``, "word2vec".
        overwrite: Start over if ``out`` holds other vectors.
        engine: "ray" embeds many files at a time, each into a store of its own that ``VectorStore.open``
            reads as one; ``source`` can have URIs such as ``s3://bucket/folder``. See docs/scaling.md.
        address: Of a Ray cluster; by default, this machine.
        settings: Single settings of ``config`` and ``read`` by name, such as ``pool="mean"``.
    """
    merged = merge_settings(settings, store=config or StoreConfig(), read=read or ReadConfig())
    config, read = cast(StoreConfig, merged["store"]), cast(ReadConfig, merged["read"])
    reporter, out = reporter or Reporter("silent"), Path(out)
    _check_exports(exports, config)
    with open_out(out, "vectors", overwrite=overwrite).lock():
        elmo = encoder if isinstance(encoder, Elmo) else Elmo.load(encoder)
        name = "" if isinstance(encoder, Elmo) else replace_surrogates(Path(encoder).resolve().name)
        model = ModelRef(name, elmo.fingerprint)
        config.factors(elmo.n_layers)  # checks them
        elmo.embed([], state=config.state)  # the model may have no warm state to start from
        n_layers = elmo.n_layers if config.all_layers else 1
        dim = elmo.sentences([]).shape[1] if config.pool == "sentence" else elmo.dim
        manifest = Manifest(
            elmokit.__version__, model, config, read.to_dict(), [], n_layers, dim, config.dtype
        )
        old = Manifest.read(out)
        if is_ray(engine, address):
            place = out / STAGED if overwrite and old is not None and old.done else out
            place.mkdir(exist_ok=True)
            started, was_done = time.monotonic(), place == out and old is not None and old.done
            work = functools.partial(_embed_shard, out=place.absolute(), manifest=manifest)
            job = {"kind": "vectors", **asdict(manifest)}
            options: Any = {"overwrite": overwrite}
            counts = run_shards(job, source, place, encoder, Elmo.load, work, address, reporter, **options)
            if not counts["n_texts"]:
                raise DataError("The files contain no text.", remedy="Give a file with at least one text.")
            result = EmbedResult(
                out, **counts, seconds=time.monotonic() - started, was_done=was_done, exports=[]
            )
        else:
            texts = TextSource(source, read, id_column=config.id_column, exclude=out, say=reporter.note)
            place = _choose_place(out, texts, manifest, overwrite=overwrite)
            result = _embed_texts(elmo, texts, place, manifest, reporter)
        if place != out:
            gone = [*_GONE, *(["shards"] if old and old.shards else [])]
            with staging(out, MANIFEST, gone=gone, is_staged=True):
                pass
        store = VectorStore.open(out)
        return replace(result, folder=out, exports=_write_exports(store, exports, reporter))


def _choose_place(out: Path, texts: TextSource, manifest: Manifest, *, overwrite: bool) -> Path:
    """Where to write: ``out``, or a folder in it while complete vectors are there that may be overwritten."""
    place, old = out / STAGED, Manifest.read(out)
    unfinished = Manifest.read(place)

    def is_same(before: Manifest | None) -> bool:
        return before is not None and not _find_changes(
            before, replace(manifest, files=texts.fingerprints(before.files))
        )

    if (old is None and unfinished is None) or (is_same(old) and not (overwrite and old and old.done)):
        return out
    if is_same(unfinished):
        return place
    if not overwrite:
        return out  # which is refused
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _embed_shard(
    elmo: Elmo, number: int, file: Path, known: Sequence[Any], *, out: Path, manifest: Manifest
) -> dict[str, Any]:
    """One of many files, on a worker of the engine "ray", into a store of its own."""
    folder, read, notes = shard_folder(out, number), ReadConfig.from_dict(manifest.reading), list[str]()
    texts = TextSource([file], read, id_column=manifest.settings.id_column, say=notes.append)
    with open_out(folder, "vectors").lock():
        result = _embed_texts(elmo, texts, folder, manifest, Reporter("silent"), may_be_empty=True)
        files = VectorStore.open(folder).manifest.files
    counts = {name: getattr(result, name) for name in (*_COUNTS, "n_bytes", "n_resumed")}
    return {"file": files[0][1:], "counts": counts, "notes": notes}


def _embed_texts(
    elmo: Elmo,
    texts: TextSource,
    out: Path,
    manifest: Manifest,
    reporter: Reporter,
    *,
    may_be_empty: bool = False,
) -> EmbedResult:
    """All texts into one store."""
    before = Manifest.read(out)
    if before is not None and (before.n_texts or before.shards):
        _require_same(out, before, replace(manifest, files=texts.fingerprints(before.files)))
        manifest = before
    else:
        manifest = replace(manifest, files=texts.fingerprints())
        manifest = _read_texts(elmo, texts, out, manifest, reporter, may_be_empty=may_be_empty)
    writer = _Writer(elmo, out, manifest)
    counts = {name: getattr(manifest, name) for name in _COUNTS}
    reporter.event("plan", **counts, n_bytes=writer.n_bytes)
    started, n_resumed, seconds = time.monotonic(), manifest.n_texts, 0.0
    if not manifest.done:
        reporter.say(writer.plan())
        n_resumed = writer.fill(reporter)
        vectors = map_array(writer.file, writer.header, manifest.dtype, manifest.shape)
        replace(manifest, done=True, vectors_crc32=f"{zlib.crc32(vectors):08x}").write(out)
        seconds = time.monotonic() - started
    with contextlib.suppress(OSError):
        (out / _PROGRESS).unlink(missing_ok=True)
    return EmbedResult(
        out,
        **counts,
        n_bytes=writer.n_bytes,
        n_resumed=n_resumed,
        seconds=seconds,
        was_done=manifest.done,
        exports=[],
    )


def _check_exports(exports: Sequence[str], config: StoreConfig) -> None:
    """Refuse what cannot be exported before anything is computed."""
    for name in exports:
        if name not in EXPORTS:
            raise ConfigError(f"There is no export {name!r}.", remedy=nearest(name, EXPORTS))
        if name == "word2vec" and (config.pool == "none" or config.all_layers):
            raise ConfigError(
                "The export word2vec has one vector for each text.", remedy="Set pool, and not all_layers."
            )
        if name == "hdf5":
            require_h5py()


def _find_changes(before: Manifest, now: Manifest) -> list[str]:
    """How the model, the settings or the files differ, in words."""
    changes = describe_changes(
        {"settings": before.settings.to_dict(), "reading": before.reading},
        {"settings": now.settings.to_dict(), "reading": now.reading},
    )
    if before.shards:
        changes.append("engine was 'ray', now 'local'")
    if before.model.fingerprint != now.model.fingerprint:
        changes.insert(0, "another model" + (f" (it was {before.model.name})" if before.model.name else ""))
    if before.files != now.files:
        others = [one for one in before.files + now.files if (one in before.files) != (one in now.files)]
        names = dict.fromkeys("standard input" if one[0] == "-" else str(one[0]) for one in others)
        changes.append(f"{join_names(names, at_most=5) or 'the order of the files'} changed")
    return changes


def _require_same(out: Path, before: Manifest, now: Manifest) -> None:
    """Refuse to resume with another model, other settings or other files."""
    if changes := _find_changes(before, now):
        raise RunError(
            f"{out} was written with different settings: {'; '.join(changes)}. Nothing was touched.",
            remedy="Use the same model, files and flags to resume, choose another --out, or add --overwrite.",
        )


def _read_texts(
    elmo: Elmo, texts: TextSource, out: Path, manifest: Manifest, reporter: Reporter, *, may_be_empty: bool
) -> Manifest:
    """The first pass: write ``texts.jsonl`` and ``offsets.npy``, and the manifest with the counts."""
    lengths, stream = array("q"), texts.with_ids()
    with (
        atomic_write(out / TEXTS) as temporary,
        open(temporary, "wb") as lines,
        reporter.counting("Reading texts", unit="texts") as advance,
    ):
        while batch := list(itertools.islice(stream, _READ_TEXTS)):
            words = elmo.words([text for _, text in batch])
            for (id, text), row in zip(batch, words, strict=True):
                record = {"id": id, "text": text, "words": row}
                lines.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            lengths.extend(map(len, words))
            advance(len(batch))
        if not lengths and not may_be_empty:
            raise DataError(f"{texts.name} contains no text.", remedy="Give a file with at least one text.")
        manifest.write(out)  # from now on the folder is known to be ours
    n_words = np.array(lengths, dtype=np.int64)
    per_text = n_words if manifest.settings.pool == "none" else np.ones_like(n_words)
    offsets = np.concatenate([[0], np.cumsum(per_text)]).astype("<i8")
    with atomic_write(out / OFFSETS) as temporary, open(temporary, "wb") as array_file:
        np.save(array_file, offsets)
    manifest = replace(
        manifest,
        n_texts=len(n_words),
        n_words=int(n_words.sum()),
        n_vectors=int(offsets[-1]),
        n_empty=int((n_words == 0).sum()),
        texts_bytes=(out / TEXTS).stat().st_size,
        texts_hash=checksum(out / TEXTS),
    )
    manifest.write(out)
    return manifest


class _Writer:
    """The second pass: the file of vectors, made at full size and filled chunk by chunk."""

    def __init__(self, elmo: Elmo, out: Path, manifest: Manifest) -> None:
        self.elmo, self.out, self.manifest, self.config = elmo, out, manifest, manifest.settings
        self.file, self.header = out / f"vectors.{self.config.format}", manifest.header
        self.row_bytes = np.dtype(self.config.dtype).itemsize * prod(manifest.shape[1:])
        self.n_bytes = len(self.header) + manifest.n_vectors * self.row_bytes

    def plan(self) -> str:
        """What will be written, for people."""
        manifest, config = self.manifest, self.config
        each = "one per word" if config.pool == "none" else f"one per text ({config.pool})"
        dims = " × ".join(f"{size:,}" for size in manifest.shape)
        empty = f", {manifest.n_empty:,} without words" if manifest.n_empty else ""
        return (
            f"Text: {plural(manifest.n_words, 'word')} in {plural(manifest.n_texts, 'text')}{empty}.\n"
            f"Vectors: {each}, {escape(config.selection)}, {dims} {config.dtype}.\n"
            f"Size: [bold]{format_size(self.n_bytes)} on disk[/]."
        )

    def fill(self, reporter: Reporter) -> int:
        """Compute what is missing; returns the number of texts that were done before."""
        first, row = self._read_progress()
        n_done, n_texts, word_cache = first, self.manifest.n_texts, self.elmo.word_cache
        if first:
            reporter.say(f"Resuming from text {first:,} of {n_texts:,}.")
        else:
            self._reserve_file()
        with (
            contextlib.ExitStack() as afterwards,
            explain_os_errors(self.file),
            open(self.out / TEXTS, "rb") as lines,
            open(self.file, "r+b") as vectors,
            reporter.counting("Embedding", total=n_texts - first, unit="texts") as advance,
        ):
            # The same words cached in every run, or the bits would differ; a plain word cache afterwards.
            afterwards.callback(word_cache.keep, ())
            n_pinned = min(_PINNED_WORDS, self.manifest.n_words // 10)
            word_cache.keep(self.elmo.folder.vocabulary.words[:n_pinned])
            vectors.seek(len(self.header) + row * self.row_bytes)
            for chunk in self._chunks(itertools.islice(lines, first, None)):
                values = self._compute(chunk, advance)
                vectors.write(values.tobytes())
                vectors.flush()
                os.fsync(vectors.fileno())
                n_done, row = n_done + len(chunk), row + len(values)
                progress = {"n_texts": n_done, "n_vectors": row}
                write_text(self.out / _PROGRESS, json.dumps(progress, indent=2) + "\n")
                reporter.event("progress", **progress)
        return first

    def _chunks(self, lines: Iterable[bytes]) -> Iterator[list[Tokenized]]:
        """The words of some texts at a time. Where they are cut depends on the texts alone."""
        max_words = max(1, _CHUNK_NUMBERS // (self.elmo.n_layers * self.elmo.dim))
        chunk: list[Tokenized] = []
        n_words = 0
        for record in map(json.loads, lines):
            words = Tokenized(record["words"], record["text"])
            if chunk and (len(chunk) == _CHUNK_TEXTS or n_words + len(words) > max_words):
                yield chunk
                chunk, n_words = [], 0
            chunk.append(words)
            n_words += len(words)
        if chunk:
            yield chunk

    def _compute(self, chunk: list[Tokenized], advance: Advance) -> Any:
        self.elmo.word_cache.forget()  # or the bits would depend on where the run began
        if self.config.pool == "sentence":
            vectors = self.elmo.sentences(chunk)
            advance(len(chunk))
        else:
            vectors = self.elmo.embed(chunk, state=self.config.state, progress=advance).select(self.config)
        with np.errstate(over="ignore"):
            dtype = np.dtype(self.config.dtype).newbyteorder("<")
            values = np.ascontiguousarray(vectors, dtype=dtype)
        if not np.isfinite(values).all():
            raise RunError(
                f"A vector contains a number that is not finite in {self.config.dtype}.",
                remedy="Choose --dtype float32 and another --out. If it is float32 already, the weights of "
                "the model or the mix look damaged.",
            )
        return values

    def _reserve_file(self) -> None:
        """Make the file at its full size, so that a disk that is too small is an error now."""
        with explain_os_errors(self.file):
            self.file.unlink(missing_ok=True)  # started and cut off
            needed, free = self.n_bytes, shutil.disk_usage(self.out).free
            if needed > free:
                raise RunError(
                    f"{self.out} needs {format_size(needed)} on disk, but only {format_size(free)} is free.",
                    remedy="Free some space, choose another --out, or keep less: --pool mean, "
                    "--dtype float16, one layer instead of all.",
                )
            with open(self.file, "wb") as file:
                file.write(self.header)
                file.truncate(self.n_bytes)
            reserve(self.file)
            sync(self.file)

    def _read_progress(self) -> tuple[int, int]:
        """How many texts and vectors are safely on disk."""
        file = self.out / _PROGRESS
        if not file.exists():
            return 0, 0
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            n_texts, n_vectors = int(record["n_texts"]), int(record["n_vectors"])
            check_file(self.file, self.header, self.n_bytes)
            if (known := self.manifest.texts_hash) and checksum(self.out / TEXTS) != known:
                raise ValueError(f"{TEXTS} is not as it was written.")
            if np.load(self.out / OFFSETS, mmap_mode="r")[n_texts] != n_vectors:
                raise ValueError(f"{n_texts} texts do not have {n_vectors} vectors")
            return n_texts, n_vectors
        except (OSError, ValueError, LookupError, TypeError, DataError) as error:
            raise RunError(
                f"{self.out} was changed or damaged since it was started: {error}",
                remedy="Delete the folder, or choose another --out, and start over.",
            ) from error


def _write_exports(store: VectorStore, exports: Sequence[str], reporter: Reporter) -> list[Path]:
    """Write ``vectors.parquet`` and the like into the folder, unless they are there."""
    paths = {name: store.folder / EXPORTS[name] for name in exports}
    for name, path in paths.items():
        if not path.exists():
            store.verify()
            reporter.say(f"Writing {path.name} ...")
            WRITERS[name](store, path)
    return list(paths.values())
