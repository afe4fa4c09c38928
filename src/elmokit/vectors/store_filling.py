"""The second pass of embedding files: a file of known size, filled chunk by chunk."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.core.atomic import explain_os_errors, reserve, sync
from elmokit.core.console import Reporter
from elmokit.core.errors import RunError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store_card import size_text
from elmokit.vectors.store_files import PROGRESS, TEXTS, export_path, header, row_bytes, write_json
from elmokit.vectors.store_size import store_size

__all__ = ["Filling"]

_CHUNK_TEXTS = 512
_CHUNK_NUMBERS = 12_000_000  # all layers of the words of a chunk: 48 MB
_MOST_KEPT = 20_000


class Filling:
    """The file of vectors, made at full size and filled chunk by chunk."""

    def __init__(
        self,
        elmo: Elmo,
        out: Path,
        config: StoreConfig,
        manifest: dict[str, Any],
        exports: Sequence[str] = (),
    ) -> None:
        self.elmo, self.out, self.config, self.manifest = elmo, out, config, manifest
        layers = (manifest["layers"],) if config.all_layers else ()
        self.shape = (manifest["n_vectors"], *layers, manifest["dim"])
        self.file = out / f"vectors.{config.format}"
        self.header = header(config.format, config.dtype, self.shape)
        self.size = store_size(manifest, config, self.shape, exports)

    def fill(self, reporter: Reporter) -> int:
        """Do what is left to do; gives the number of texts that were done before."""
        done = self._done()
        if done is None:
            with explain_os_errors(self.file):
                self.file.unlink(missing_ok=True)  # begun and cut off
        self.check_room(fresh=done is None)
        if done is None:
            self._set_aside()
            done = (0, 0)
        first, (n_done, row) = done[0], done
        n_texts = self.manifest["n_texts"]
        if first:
            reporter.say(f"Going on from text {first:,} of {n_texts:,}.")
        with (
            self._frequent_words_kept(),
            explain_os_errors(self.file),
            open(self.out / TEXTS, "rb") as lines,
            open(self.file, "r+b") as vectors,
            reporter.counting("Embedding", total=n_texts - first, unit="texts") as advance,
        ):
            for chunk in self._chunks(itertools.islice(lines, first, None)):
                values = self._computed(chunk, advance)
                vectors.seek(len(self.header) + row * row_bytes(self.config.dtype, self.shape))
                vectors.write(values.tobytes())
                vectors.flush()
                os.fsync(vectors.fileno())
                n_done, row = n_done + len(chunk), row + len(values)
                write_json(self.out / PROGRESS, {"n_texts": n_done, "n_vectors": row})
                reporter.event("progress", n_texts=n_done, n_vectors=row)
        if (n_done, row) != (n_texts, self.shape[0]):
            raise self._damaged(TEXTS)
        return first

    @contextlib.contextmanager
    def _frequent_words_kept(self) -> Iterator[None]:
        """The same words kept in every run, or the bits would differ; a plain word cache afterwards."""
        vocabulary = self.elmo.folder.vocabulary.words
        try:
            self.elmo.keep_words(vocabulary[: min(_MOST_KEPT, self.manifest["n_words"] // 10)])
            yield
        finally:
            self.elmo.keep_words(())

    def _chunks(self, lines: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
        """Texts, some at a time. Where they are cut depends on the texts alone."""
        most_words = max(1, _CHUNK_NUMBERS // (self.elmo.n_layers * self.elmo.dim))
        chunk: list[dict[str, Any]] = []
        n_words = 0
        for line in lines:
            try:
                record = json.loads(line)
                more = len(record["words"])
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(TEXTS) from error
            if chunk and (len(chunk) == _CHUNK_TEXTS or n_words + more > most_words):
                yield chunk
                chunk, n_words = [], 0
            chunk.append(record)
            n_words += more
        if chunk:
            yield chunk

    def _computed(self, chunk: list[dict[str, Any]], advance: Any) -> Any:
        self.elmo.forget_words()  # or the bits would depend on where the run began
        texts = [record["text"] for record in chunk]
        found = self.elmo.embed(texts, state=self.config.state, progress=advance)
        if [record["words"] for record in chunk] != found.tokens:
            raise self._damaged(TEXTS)
        with np.errstate(over="ignore"):
            kind = np.dtype(self.config.dtype).newbyteorder("<")
            values = np.ascontiguousarray(found.select(self.config), dtype=kind)
        if not np.isfinite(values).all():
            raise RunError(
                "A vector holds a number that is not finite"
                + (" in float16." if self.config.dtype == "float16" else "."),
                remedy="Choose --dtype float32 and another --out."
                if self.config.dtype == "float16"
                else "The weights of the model or the mix look damaged; try another model.",
            )
        return values.reshape(-1, *self.shape[1:])

    def _done(self) -> tuple[int, int] | None:
        """How many texts and vectors are safely on disk; None if the file was not even set aside."""
        file = self.out / PROGRESS
        if not file.exists():
            return None
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            done = int(record["n_texts"]), int(record["n_vectors"])
            with open(self.file, "rb") as vectors:
                same = vectors.read(len(self.header)) == self.header
            same &= self.file.stat().st_size == self.size.vectors
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"{PROGRESS} or {self.file.name}") from error
        if not same or not 0 <= done[0] <= self.manifest["n_texts"] or not 0 <= done[1] <= self.shape[0]:
            raise self._damaged(f"{PROGRESS} or {self.file.name}")
        return done

    def _damaged(self, what: str) -> RunError:
        return RunError(
            f"{what} in {self.out} was changed or damaged since it was begun.",
            remedy="Delete the folder, or choose another --out, and start anew.",
        )

    def check_room(self, fresh: bool) -> None:
        """Refuse a disk without room for what is not on it yet: exports and, if ``fresh``, vectors."""
        needed = self.size.vectors if fresh else 0
        for name, n_bytes in self.size.exports.items():
            needed += 0 if export_path(self.out, name).exists() else n_bytes
        with explain_os_errors(self.out):
            free = shutil.disk_usage(self.out).free
        if needed > free:
            raise RunError(
                f"{self.out} needs {size_text(needed)} more on disk, but only {size_text(free)} are free.",
                remedy="Free some space, choose another --out, or keep less: --pool mean, --dtype float16, "
                "one layer instead of all, no --export.",
            )

    def _set_aside(self) -> None:
        """Make the file at its full size, so that a disk that is too small says so now."""
        with explain_os_errors(self.file):
            with open(self.file, "wb") as file:
                file.write(self.header)
                file.truncate(self.size.vectors)
            reserve(self.file)
            sync(self.file)
        with contextlib.suppress(OSError):
            sync(self.out)
        write_json(self.out / PROGRESS, {"n_texts": 0, "n_vectors": 0})
