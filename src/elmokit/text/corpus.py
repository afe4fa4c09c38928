"""A text prepared for training: word ids on disk, memory-mapped, made once and used again.

The folder holds ``manifest.json`` (settings, counts, hashes), ``words.txt`` (every distinct word,
most frequent first; the line number is the id), ``counts.npy``, and for each part (``train``,
``valid``) the ids of all documents in one flat file with the documents' boundaries beside it.
Every document is stored as ``<s> ... </s>``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import explain_os_errors, sync
from elmokit.core.errors import DataError, RunError
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig, VocabularyConfig
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK, TextPipeline, encode, split_sentences
from elmokit.text.vocabulary import Vocabulary

__all__ = ["Corpus", "CorpusSettings", "Documents", "load_corpus", "prepare_corpus"]

_VERSION = 1
_BATCH_CHARS = 1 << 21
_MAX_TYPES = 2_000_000
_FILES = {
    "manifest.json", "words.txt", "counts.npy",
    "train.ids", "train.offsets.npy", "valid.ids", "valid.offsets.npy",
}  # fmt: skip
Counter = Callable[[str, int], None]
"""Called with the phase ("counting" or "encoding") and the number of characters just done."""


@dataclass(frozen=True)
class Documents:
    """Documents as ids: document i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: npt.NDArray[np.unsignedinteger[Any]]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """All ids, ``<s>`` and ``</s>`` included."""
        return int(self.offsets[-1])

    def spread(self, n_tokens: int) -> Documents:
        """Every k-th document, so that there are about ``n_tokens`` ids at most."""
        every = -(-self.n_tokens // n_tokens)
        if every <= 1:
            return self
        bounds = [(self.offsets[i], self.offsets[i + 1]) for i in range(0, len(self), every)]
        ids = np.concatenate([self.ids[first:last] for first, last in bounds])
        lengths = np.array([last - first for first, last in bounds])
        return Documents(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Ids of each document."""
        return np.diff(self.offsets)

    def padded(self, rows: Iterable[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Some documents as a matrix (document, time), zero past their ends, and their lengths."""
        rows = np.fromiter(rows, dtype=np.int64)
        firsts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - firsts
        ids = np.zeros((len(rows), int(lengths.max())), dtype=np.int64)
        for row, first, length in zip(ids, firsts, lengths, strict=True):
            row[:length] = self.ids[first : first + length]
        return ids, lengths


@dataclass(frozen=True)
class Corpus:
    """A prepared text. Ids below ``n_vocabulary`` are words the model predicts; larger ones are
    rarer words, known by their spelling, that count as ``<unk>`` when predicted."""

    words: list[str]
    counts: npt.NDArray[np.int64]
    n_vocabulary: int
    train: Documents
    valid: Documents
    manifest: dict[str, Any]

    @property
    def vocabulary(self) -> Vocabulary:
        """The words the model predicts."""
        return Vocabulary(self.words[: self.n_vocabulary])


@dataclass(frozen=True)
class CorpusSettings:
    """All that decides what a prepared corpus looks like, besides the text itself.

    Args:
        text: cleaning and word-finding.
        vocabulary: which words are predicted.
        open_words: keep every distinct word by its spelling (character and piece input), or only
            the vocabulary (word input).
        held_out: share of documents set aside for validation when no validation text is given.
        fixed: words of a model that is trained further; they keep their places.
    """

    text: TextConfig
    vocabulary: VocabularyConfig
    open_words: bool
    held_out: float
    fixed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the fixed vocabulary as a hash."""
        return {
            "text": self.text.to_dict(),
            "max_words": self.vocabulary.max_words,
            "min_count": self.vocabulary.min_count,
            "open_words": self.open_words,
            "held_out": self.held_out,
            "fixed": _hash("\n".join(self.fixed)) if self.fixed else None,
        }


def load_corpus(folder: Path) -> Corpus:
    """Open a prepared corpus; ids stay on disk."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))

    def part(name: str) -> Documents:
        offsets = np.load(folder / f"{name}.offsets.npy")
        if offsets[-1] == 0:
            return Documents(np.empty(0, dtype=manifest["dtype"]), offsets)
        return Documents(np.memmap(folder / f"{name}.ids", manifest["dtype"], mode="r"), offsets)

    corpus = Corpus(
        words=(folder / "words.txt").read_bytes().decode("utf-8").split("\n")[:-1],
        counts=np.load(folder / "counts.npy"),
        n_vocabulary=manifest["n_vocabulary"],
        train=part("train"),
        valid=part("valid"),
        manifest=manifest,
    )
    if len(corpus.words) != len(corpus.counts) or any(
        len(documents.ids) != documents.n_tokens for documents in (corpus.train, corpus.valid)
    ):
        raise ValueError("the files do not belong together")
    return corpus


def prepare_corpus(
    folder: Path,
    settings: CorpusSettings,
    train: TextSource,
    valid: TextSource | None = None,
    *,
    progress: Counter | None = None,
) -> Corpus:
    """The corpus in ``folder``, prepared now unless it was, from the same text and settings."""
    if valid and valid.is_stdin and train.is_stdin:
        raise DataError("Standard input (-) cannot be both the text and the held-out text.")
    chosen = {**settings.to_dict(), "reading": train.config.to_dict()}
    wanted = {
        "format_version": _VERSION,
        "settings": chosen,
        "settings_hash": _hash(json.dumps(chosen, sort_keys=True)),
        "marks": {"train": train.fingerprints(), "valid": valid.fingerprints() if valid else []},
    }
    manifest_file = folder / "manifest.json"
    if manifest_file.exists():
        try:
            manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
            if all(manifest.get(key) == value for key, value in wanted.items()):
                return load_corpus(folder)
        except (OSError, EOFError, ValueError, KeyError):
            pass  # damaged: prepared again
    folder = folder.absolute()
    if folder.exists() and not (folder.is_dir() and {file.name for file in folder.iterdir()} <= _FILES):
        raise RunError(
            f"{folder} exists and is not a prepared corpus; nothing in it was touched.",
            remedy="Choose another folder for the prepared text.",
        )
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        with explain_os_errors(folder):
            building.mkdir(parents=True)
            _build(building, settings, train, valid, wanted, progress or (lambda phase, n: None))
            for file in building.iterdir():
                sync(file)
            shutil.rmtree(folder, ignore_errors=True)
            building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return load_corpus(folder)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _build(
    folder: Path,
    settings: CorpusSettings,
    train: TextSource,
    valid: TextSource | None,
    wanted: dict[str, Any],
    progress: Counter,
) -> None:
    pipeline = TextPipeline(settings.text)
    held_out = 0.0 if valid else settings.held_out
    by_sentence = settings.text.unit == "sentence"

    def documents(source: TextSource, phase: str) -> Iterator[str]:
        for text in source:
            yield from split_sentences(text) if by_sentence else (text,)
            progress(phase, len(text))

    def parts(phase: str) -> Iterator[tuple[str, str]]:
        for text in documents(train, phase):
            yield ("valid" if _is_held_out(text, held_out) else "train"), text
        if valid:
            for text in documents(valid, phase):
                yield "valid", text

    # 1. Which words are there? Only the training text decides what is predicted; words that
    # occur in held-out text alone come after them, for the sake of their spelling.
    limits = settings.vocabulary

    def words_of(wanted_part: str) -> list[str]:
        return pipeline.frequent_words(
            (text for part, text in parts("counting") if part == wanted_part),
            at_most=_MAX_TYPES if settings.open_words else limits.max_words,
            min_count=1 if settings.open_words else limits.min_count,
        )

    found = list(settings.fixed)
    if not settings.fixed or settings.open_words:
        _extend(found, words_of("train"))
    if settings.open_words and (held_out or valid):
        _extend(found, words_of("valid"))

    # 2. The text as their ids.
    tokenizer = pipeline.word_tokenizer(found)
    dtype = np.dtype(np.uint16 if len(found) <= 1 << 16 else np.uint32)
    counts = np.zeros(len(found), dtype=np.int64)
    writers = {name: _PartWriter(folder, name, dtype) for name in ("train", "valid")}
    digest = hashlib.blake2b(digest_size=16)
    n_empty = 0

    for batch in _batches(parts("encoding")):
        encoded = encode(tokenizer, [text for _, text in batch])
        for (name, text), ids in zip(batch, encoded, strict=True):
            digest.update(f"{name if valid else ''}\0{text}\0".encode("utf-8", "replace"))
            if len(ids):
                writers[name].add(ids)
            else:
                n_empty += 1
        trained = [ids for (name, _), ids in zip(batch, encoded, strict=True) if name == "train"]
        if trained:
            counts += np.bincount(np.concatenate(trained), minlength=len(found))
    for writer in writers.values():
        writer.close()

    # 3. How much of it can be predicted?
    n_words = int(counts.sum())
    if n_words == 0 and writers["valid"].n_documents and not valid:  # its hash holds all of it out
        _build(folder, replace(settings, held_out=0.0), train, valid, wanted, progress)
        return
    if n_words == 0:
        raise DataError(
            f"There is no word in the text given ({train.name}): it is empty, blank, or cleaned away.",
            remedy="Check the file and the column, and the cleaning switches.",
        )
    if valid and not writers["valid"].n_documents:
        raise DataError(
            f"There is no word in the held-out text ({valid.name}).",
            remedy="Check --valid, or leave it out to hold out a share of the text.",
        )
    n_vocabulary = len(settings.fixed) or _n_predicted(counts, limits)
    if n_vocabulary <= len(SPECIALS) + 1 and not settings.fixed:
        n_types = int((counts[len(SPECIALS) :] > 0).sum())
        raise DataError(
            f"Only {max(0, n_vocabulary - len(SPECIALS))} of {n_types} distinct words "
            f"occur at least {limits.min_count} times: nothing can be learnt from that.",
            remedy="Give more text, or lower --min-count.",
        )
    (folder / "words.txt").write_bytes("".join(f"{word}\n" for word in found).encode())
    np.save(folder / "counts.npy", counts)
    n_unknown = int(counts[n_vocabulary:].sum() + counts[UNK])
    manifest = {
        **wanted,
        "content_hash": digest.hexdigest(),
        "dtype": dtype.name,
        "n_vocabulary": n_vocabulary,
        "n_types": int((counts > 0).sum()),
        "n_words": n_words,
        "n_documents": {name: writer.n_documents for name, writer in writers.items()},
        "n_empty": n_empty,
        "unknown_share": n_unknown / n_words,
    }
    text = json.dumps(manifest, indent=2) + "\n"  # ASCII: file names need not be valid Unicode
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def _n_predicted(counts: npt.NDArray[np.int64], limits: VocabularyConfig) -> int:
    words = counts[len(SPECIALS) :]
    return len(SPECIALS) + min(int((words >= limits.min_count).sum()), limits.max_words)


def _extend(words: list[str], more: list[str]) -> None:
    known = set(words)
    words.extend(word for word in more if word not in known)


def _is_held_out(text: str, share: float) -> bool:
    """By the text's own hash: copies of a text always fall on the same side."""
    return share > 0 and zlib.crc32(text.encode("utf-8", "replace")) < share * 2**32


def _batches(parts: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch: list[tuple[str, str]] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part[1])
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _PartWriter:
    """Appends documents to one flat file of ids."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self._ids = open(folder / f"{name}.ids", "wb")  # noqa: SIM115 (closed by close)
        self._offsets_file = folder / f"{name}.offsets.npy"
        self._dtype = dtype
        self._lengths: list[npt.NDArray[np.int64]] = []
        self._recent: list[int] = []
        self.n_documents = 0

    def add(self, ids: npt.NDArray[np.uint32]) -> None:
        document = np.empty(len(ids) + 2, dtype=self._dtype)
        document[0], document[1:-1], document[-1] = BOS, ids, EOS
        self._ids.write(document.tobytes())
        self._recent.append(len(document))
        self.n_documents += 1
        if len(self._recent) == 1 << 16:
            self._lengths.append(np.array(self._recent, dtype=np.int64))
            self._recent = []

    def close(self) -> None:
        self._ids.close()
        lengths = np.concatenate([*self._lengths, np.array(self._recent, dtype=np.int64)])
        np.save(self._offsets_file, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
