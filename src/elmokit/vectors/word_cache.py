"""Token-encoder vectors, computed once per word: in memory, and on disk for a whole vocabulary.

A token cache on disk is a folder with ``vectors.npy`` (n_words, dim), which is memory-mapped,
``words.txt`` and ``cache.json``. Only words outside its vocabulary are computed when they appear.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.bilm.folder import BilmFolder
from elmokit.core.atomic import explain_os_errors, reserve, staging, sync, write_text
from elmokit.core.console import Advance
from elmokit.core.errors import ModelError
from elmokit.core.names import checksum, record_checksum, resolve_name, verify_checksums
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.text.tokenizing import SPECIALS, UNK
from elmokit.text.vocabulary import Rows
from elmokit.vectors.encoder import TokenIds

CACHE_FOLDER = "token_cache"
_FORMAT, _VERSION = "elmokit token cache", 1
_BLOCK = 1024  # words that go through the token encoder at a time
_MEAN_LETTERS = 20  # per cached word: texts of strangers may hold very long words
_REMAKE = "Recreate it with elmokit convert --token-cache --overwrite, or delete the folder."


class WordCache:
    """Token-encoder vectors in memory, up to a number of words. Safe to use from several threads.

    A table that ``look_up`` has returned is never overwritten.

    Args:
        capacity: Words to keep, besides the special ones.
        stored: Vectors that need not be computed.
    """

    def __init__(self, folder: BilmFolder, capacity: int, stored: TokenCache | None = None) -> None:
        self._encoder, self._features = folder.model.encoder, folder.features
        self._capacity = max(1, capacity)
        self._table = torch.empty(0, folder.model.config.dim)
        self._stored = stored or TokenCache({}, self._table.numpy())
        self._places: dict[str, int] = {}
        self._n_pinned = self._n_letters = 0
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:  # locks cannot be pickled
        return {**vars(self), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def look_up(self, words: Sequence[Sequence[str]]) -> tuple[Tensor, list[int]]:
        """A table of vectors, and the row in it of each word of all texts, one after the other."""
        with self._lock:
            if not self._places:
                self.keep(())
            places, flat = self._places, list(itertools.chain.from_iterable(words))
            n_new = sum(word not in places for word in set(flat))
            is_full = len(places) + n_new > self._capacity + len(SPECIALS)
            if is_full or self._n_letters > _MEAN_LETTERS * self._capacity:
                self.forget()
            if new := [word for word in dict.fromkeys(flat) if word not in places]:
                self._add(new)
            return self._table, [places[word] for word in flat]

    def precompute(self, ids: TokenIds) -> TokenIds:
        """Texts with the vectors of all their words: of those that are stored, the stored ones."""
        if not self._stored.places:
            return ids.with_vectors(self._encoder)
        blocks = [list(ids.words[first : first + _BLOCK]) for first in range(0, len(ids.words), _BLOCK)]
        with torch.no_grad():
            return replace(ids, vectors=torch.cat([self._vectors(words) for words in blocks]))

    def keep(self, words: Iterable[str]) -> None:
        """Compute the vectors of ``words`` now (the first ones, up to the capacity), pin them, and forget
        all others. Without words, the cache is a plain one again.

        With the same words pinned and others forgotten before each call, ``Elmo.embed`` gives the same bits,
        whatever was embedded earlier: the last bit of a word's vector can depend on the words it was computed
        along with. A special word inside a text counts as ``<unk>``.
        """
        with self._lock:
            self._n_pinned = 0
            self.forget()
            self._add(list(SPECIALS))
            self._places.update(dict.fromkeys(SPECIALS, UNK))
            new = [word for word in dict.fromkeys(words) if word not in self._places][: self._capacity]
            for first in range(0, len(new), _BLOCK):
                self._add(new[first : first + _BLOCK])
            self._n_pinned = len(self._places)

    def forget(self) -> None:
        """Forget all words but the pinned ones."""
        with self._lock:
            while len(self._places) > self._n_pinned:
                self._n_letters -= len(self._places.popitem()[0])
            self._table = self._table[: self._n_pinned]  # the rest may still be read: _add makes a new table

    @torch.inference_mode()
    def _add(self, words: list[str]) -> None:
        first = len(self._places)
        needed = first + len(words)
        if needed > len(self._table):
            n_rows = min(3 * first // 2, self._capacity + len(SPECIALS))  # grow by half, up to the limit
            table = torch.empty(max(needed, n_rows), self._table.shape[1])
            table[:first] = self._table[:first]
            self._table = table
        self._table[first:needed] = self._vectors(words)
        self._places.update(zip(words, range(first, needed), strict=True))
        self._n_letters += sum(map(len, words))

    def _vectors(self, words: list[str]) -> Tensor:
        """From disk where they are stored, else computed."""
        places = [self._stored.places.get(word, -1) for word in words]
        new = [word for word, place in zip(words, places, strict=True) if place < 0]
        if len(new) == len(words):
            return _encode(self._encoder, self._features.rows(words))
        vectors = torch.from_numpy(self._stored.vectors[places])
        if new:
            vectors[torch.tensor(places) < 0] = _encode(self._encoder, self._features.rows(new))
        return vectors


@dataclass(frozen=True, eq=False)
class TokenCache:
    """Token-encoder vectors of a vocabulary, on disk."""

    places: dict[str, int]  # the row of each word
    vectors: npt.NDArray[np.float32]  # (n_words, dim), memory-mapped

    @classmethod
    def open(cls, folder: str | Path, model: BilmFolder) -> TokenCache:
        """Open a cache that was made for ``model``; one of another model is an error."""
        folder = resolve_name(Path(folder))
        try:
            record = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
            verify_checksums(folder / "cache.json", record)
            words = (folder / "words.txt").read_bytes().decode("utf-8").split("\n")[:-1]
            vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
            if (record["format"], record["format_version"]) != (_FORMAT, _VERSION):
                raise ValueError("it has another format version")
            if vectors.shape != (len(words), model.model.config.dim):  # caches of 0.1 have no checksums
                raise ValueError(f"vectors.npy has the shape {vectors.shape}")
            encoder = record["encoder"]
        except (OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, ModelError) as error:
            problem = getattr(error, "message", f"{error}.")
            raise ModelError(
                f"{folder} cannot be read as a token cache: {problem}", remedy=_REMAKE
            ) from error
        if encoder != _encoder_fingerprint(model):
            raise ModelError(f"{folder} was made with the token encoder of another model.", remedy=_REMAKE)
        return cls({word: place for place, word in enumerate(words)}, vectors)


def write_token_cache(
    model: BilmFolder,
    words: Iterable[str],
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Advance = lambda amount: None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Write the token-encoder vectors of ``words`` to ``folder``; returns how many there are.

    Special words are left out. If ``folder`` holds just that, ``say`` gets a line. With ``overwrite``, an
    existing cache is replaced, whole or not at all.
    """
    folder, dim = Path(folder), model.model.config.dim
    if model.model.config.input == "word":
        problem = "A word-input model needs no token cache: its token encoder is a table already."
        raise ModelError(problem, remedy="Use it as it is.")
    out = open_out(folder, "token-cache", overwrite=overwrite)
    kept = [word for word in dict.fromkeys(words) if word not in SPECIALS and "\n" not in word]
    encoder = _encoder_fingerprint(model)
    record = {"format": _FORMAT, "format_version": _VERSION, "encoder": encoder}
    record |= {"n_words": len(kept), "dim": dim}
    job = {"encoder.model": encoder, "words.content_hash": fingerprint("\n".join(kept))}
    with out.lock():
        if out.is_done({}, job, say):
            return len(kept)
        with staging(folder, "cache.json") as staged, explain_os_errors(folder), torch.inference_mode():
            vectors = np.lib.format.open_memmap(staged / "vectors.npy", "w+", np.float32, (len(kept), dim))
            reserve(staged / "vectors.npy")
            for first in range(0, len(kept), _BLOCK):
                rows = model.features.rows(kept[first : first + _BLOCK])
                vectors[first : first + len(rows)] = _encode(model.model.encoder, rows).numpy()
                progress(len(rows))
            vectors.flush()
            del vectors
            sync(staged / "vectors.npy")
            write_text(staged / "words.txt", "".join(f"{word}\n" for word in kept))
            record["files"] = {name: checksum(staged / name) for name in ("vectors.npy", "words.txt")}
            record["checksum"] = record_checksum(record)
            write_text(staged / "cache.json", json.dumps(record) + "\n")
    return len(kept)


def _encode(token_encoder: nn.Module, features: Rows) -> Tensor:
    """Vectors of words. Rows are added to a multiple of 16: a product of fewer can differ in the last bit."""
    rows = torch.from_numpy(features.astype(np.int64))
    vectors: Tensor = token_encoder(torch.cat([rows, rows[-1:].expand(-len(rows) % 16, -1)]))
    return vectors[: len(rows)]


def _encoder_fingerprint(model: BilmFolder) -> str:
    """Changes when anything does that a word's own vector depends on."""
    tokenizer = "" if model.model.config.input == "char" else model.tokenizer.to_str(pretty=False)
    parts = [part for named in model.model.encoder.named_parameters() for part in named]
    return fingerprint(model.model.config.to_dict(), tokenizer, *parts)
