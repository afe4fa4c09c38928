"""A text prepared for training: word ids on disk, memory-mapped, made once and used again.

The folder holds ``manifest.json`` (settings, counts, hashes), ``words.txt`` (every distinct word, the most
frequent first; the line number is the id), ``counts.npy``, and for each part (``train``, ``valid``) the ids
of all documents in one flat file with their offsets beside it. Documents are stored as ``<s> ... </s>``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import REPLACED, STAGED, explain_os_errors, locked, staging, sync
from elmokit.core.errors import DataError, RunError
from elmokit.core.ragged import Ragged
from elmokit.text.batching import chunked
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig, VocabularyConfig
from elmokit.text.tokenizing import (
    BOS,
    EOS,
    SPECIALS,
    UNK,
    TextPipeline,
    encode,
    replace_surrogates,
    split_sentences,
)
from elmokit.text.vocabulary import Vocabulary

_VERSION = 1
_BATCH_CHARS = 1 << 21
_MAX_TYPES = 2_000_000
_MOST_HELD_OUT = 0.1
_MANIFEST = "manifest.json"
_FILES = {
    _MANIFEST, "words.txt", "counts.npy", REPLACED, STAGED,
    "train.ids", "train.offsets.npy", "valid.ids", "valid.offsets.npy",
}  # fmt: skip


class Documents(Ragged[Any]):
    """Documents as word ids, ``<s>`` and ``</s>`` included."""

    @property
    def n_tokens(self) -> int:
        """All ids, ``<s>`` and ``</s>`` included."""
        return int(self.offsets[-1])

    @property
    def n_words(self) -> int:
        """All words, without ``<s>`` and ``</s>``."""
        return self.n_tokens - 2 * len(self)

    def unknown_share(self, n_vocabulary: int) -> float:
        """The share of words that a model with this vocabulary cannot predict."""
        n_unknown = int(((self.values >= n_vocabulary) | (self.values == UNK)).sum())
        return n_unknown / max(1, self.n_words)

    def spread(self, n_tokens: int) -> Documents:
        """Every k-th document, so that there are about ``n_tokens`` ids at most."""
        step = -(-self.n_tokens // n_tokens)
        if step <= 1:
            return self
        rows = Ragged.from_rows([self[row] for row in range(0, len(self), step)], self.values.dtype)
        return Documents(rows.values, rows.offsets)


@dataclass(frozen=True)
class Corpus:
    """A prepared text. Ids below ``n_vocabulary`` are words the model predicts; larger ones are rarer words,
    known by their spelling, that count as ``<unk>`` when predicted."""

    words: list[str]  # every distinct word, by id
    counts: npt.NDArray[np.int64]  # how often each occurs in the training text
    n_vocabulary: int
    train: Documents
    valid: Documents
    content_hash: str  # changes with the text, not with the vocabulary
    n_words: int  # of the training text
    n_types: int  # distinct words
    n_empty: int  # texts without a word, which were left out
    unknown_share: float  # of the training words, those that count as <unk>
    has_valid: bool  # a validation text was given; otherwise ``valid`` is a share of the text

    @property
    def vocabulary(self) -> Vocabulary:
        """The words the model predicts."""
        return Vocabulary(self.words[: self.n_vocabulary], self.counts[: self.n_vocabulary])

    def record(self, source: TextSource) -> dict[str, Any]:
        """Where a model comes from, as JSON values for its folder."""
        return {
            "files": [replace_surrogates(path.name) for path in source.files][:20] or [source.name],
            "n_words": self.n_words,
            "n_documents": len(self.train),
            "unknown_share": self.unknown_share,
            "content_hash": self.content_hash,
        }


@dataclass(frozen=True)
class CorpusSettings:
    """What decides how a corpus is prepared, besides the text itself."""

    text: TextConfig
    vocabulary: VocabularyConfig
    open_words: bool  # keep every distinct word (character and piece input), or only the vocabulary
    held_out: float  # share of documents held out for validation when no validation text is given
    fixed: tuple[str, ...] = ()  # words of a model; they keep their ids
    extend: bool = False  # predict further frequent words after the fixed ones
    min_held_out: int = 0  # hold out at least this many words, if that is at most a tenth of the text

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the fixed vocabulary as a hash."""
        return {
            "text": self.text.to_dict(),
            "max_words": self.vocabulary.max_words,
            "min_count": self.vocabulary.min_count,
            "open_words": self.open_words,
            "held_out": self.held_out,
            "fixed": _hash("\n".join(self.fixed)) if self.fixed else None,
            **({"extend": True} if self.extend else {}),
        }


def load_corpus(folder: Path) -> Corpus:
    """Open a prepared corpus; ids stay on disk."""
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    words = (folder / "words.txt").read_bytes().decode("utf-8").split("\n")[:-1]
    counts = np.load(folder / "counts.npy")
    parts = {}
    for name in ("train", "valid"):
        offsets = np.load(folder / f"{name}.offsets.npy")
        ids = np.empty(0, dtype=manifest["dtype"])
        if offsets[-1] > 0:  # an empty file cannot be mapped
            ids = np.memmap(folder / f"{name}.ids", manifest["dtype"], mode="r")
        if len(ids) != offsets[-1] or len(words) != len(counts):
            raise ValueError("the files do not belong together")
        parts[name] = Documents(ids, offsets)
    names = ("n_vocabulary", "content_hash", "n_words", "n_types", "n_empty", "unknown_share")
    figures: dict[str, Any] = {name: manifest[name] for name in names} | parts
    return Corpus(words, counts, has_valid=bool(manifest["marks"]["valid"]), **figures)


def prepare_corpus(
    folder: Path,
    settings: CorpusSettings,
    train: TextSource,
    valid: TextSource | None = None,
    *,
    progress: Callable[[int], object] = lambda amount: None,
) -> Corpus:
    """The corpus in ``folder``; it is prepared unless it is there, made from the same text and settings.

    Args:
        progress: Called with the number of characters just read; the text is read more than once.
    """
    reading = {**settings.to_dict(), "reading": train.config.to_dict()}
    header = {
        "format_version": _VERSION,
        "settings": reading,
        "settings_hash": _hash(json.dumps(reading, sort_keys=True)),
        "min_held_out": settings.min_held_out,
    }
    parts = {"train": train, "valid": valid}
    folder = folder.absolute()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):  # several runs may share it
        with contextlib.suppress(
            OSError, EOFError, ValueError, LookupError, TypeError
        ):  # else prepared again
            manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            old = {"min_held_out": settings.min_held_out, **manifest}  # 0.1 does not have it
            marks = {name: one.fingerprints(old["marks"][name]) if one else [] for name, one in parts.items()}
            if all(old.get(key) == value for key, value in {**header, "marks": marks}.items()):
                return load_corpus(folder)
        header["marks"] = {name: one.fingerprints() if one else [] for name, one in parts.items()}
        if folder.exists() and not (folder.is_dir() and {file.name for file in folder.iterdir()} <= _FILES):
            raise RunError(
                f"{folder} exists and is not a prepared corpus; nothing in it was touched.",
                remedy="Choose another folder for the prepared text.",
            )
        with staging(folder, _MANIFEST) as staged, explain_os_errors(folder):
            held_out = 0.0 if valid else settings.held_out
            manifest = header | _Builder(staged, settings, train, valid, progress, held_out).build()
            text = json.dumps(manifest, indent=2) + "\n"  # ASCII: file names need not be valid Unicode
            (staged / _MANIFEST).write_text(text, encoding="utf-8")
            for file in staged.iterdir():
                sync(file)
        return load_corpus(folder)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass
class _Builder:
    """Writes the files of a corpus besides its manifest."""

    folder: Path
    settings: CorpusSettings
    train: TextSource
    valid: TextSource | None
    progress: Callable[[int], object]
    held_out: float

    def build(self) -> dict[str, Any]:
        """Write the files; return the figures for the manifest."""
        pipeline = TextPipeline(self.settings.text)
        words = self._words(pipeline)
        tokenizer = pipeline.word_tokenizer(words)
        dtype = np.dtype(np.uint16 if len(words) <= 1 << 16 else np.uint32)
        counts = np.zeros(len(words), dtype=np.int64)
        lengths = {"train": array("q"), "valid": array("q")}
        digest = hashlib.blake2b(digest_size=16)
        n_empty = 0
        first, last = np.array([[BOS], [EOS]], dtype=np.uint32)
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(open(self.folder / f"{name}.ids", "wb")) for name in lengths}
            for batch in chunked(self._parts(), _BATCH_CHARS, lambda part: len(part[1]), _BATCH_CHARS):
                encoded = encode(tokenizer, [text for _, text in batch])
                content = "".join(f"{name if self.valid else ''}\0{text}\0" for name, text in batch)
                digest.update(content.encode("utf-8", "replace"))
                n_empty += sum(not len(ids) for ids in encoded)
                for part, sizes in lengths.items():
                    pairs = zip(batch, encoded, strict=True)
                    kept = [ids for (name, _), ids in pairs if name == part and len(ids)]
                    flat = np.concatenate([first[:0], *(some for ids in kept for some in (first, ids, last))])
                    files[part].write(flat.astype(dtype).tobytes())
                    sizes.extend(len(ids) + 2 for ids in kept)
                    if part == "train":
                        counts += np.bincount(flat, minlength=len(words))
        counts[[BOS, EOS]] = 0
        for name, sizes in lengths.items():
            offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            np.save(self.folder / f"{name}.offsets.npy", offsets)
        n_words, n_held_out = int(counts.sum()), sum(lengths["valid"]) - 2 * len(lengths["valid"])
        share = self.held_out
        if not lengths["train"] and not self.valid:
            share = 0.0  # the hashes of all texts hold them out
        elif 0 < share == self.settings.held_out and n_held_out < self.settings.min_held_out:
            enough = 1.2 * self.settings.min_held_out / (n_words + n_held_out)  # hashes are not exact
            share = max(share, min(_MOST_HELD_OUT, enough))
        if share != self.held_out:
            self.held_out = share
            return self.build()
        for source, sizes in ((self.train, lengths["train"]), (self.valid, lengths["valid"])):
            if source and not sizes:
                raise DataError(
                    f"The text ({source.name}) contains no words: it is empty or blank, or nothing is "
                    "left after cleaning.",
                    remedy="Check the file, the column and the cleaning settings.",
                )
        fixed, extend = self.settings.fixed, self.settings.extend
        n_vocabulary = self._n_predicted(counts) if extend or not fixed else len(fixed)
        (self.folder / "words.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
        np.save(self.folder / "counts.npy", counts)
        return {
            "content_hash": digest.hexdigest(),
            "dtype": dtype.name,
            "n_vocabulary": n_vocabulary,
            "n_types": int((counts > 0).sum()),
            "n_words": n_words,
            "n_documents": {name: len(sizes) for name, sizes in lengths.items()},
            "n_empty": n_empty,
            "unknown_share": int(counts[n_vocabulary:].sum() + counts[UNK]) / n_words,
        }

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Every document, with the part it belongs to."""
        for source in filter(None, (self.train, self.valid)):
            for text in source:
                # By the text's own hash: its sentences, and copies of it, are always in the same part.
                is_held_out = zlib.crc32(text.encode("utf-8", "replace")) < self.held_out * 2**32
                for document in split_sentences(text) if self.settings.text.unit == "sentence" else [text]:
                    yield "valid" if is_held_out or source is self.valid else "train", document
                self.progress(len(text))

    def _words(self, pipeline: TextPipeline) -> list[str]:
        """All distinct words. Only the training text decides what is predicted; words that occur in held-out
        text alone come last, for the sake of their spelling."""
        open_words, limits = self.settings.open_words, self.settings.vocabulary
        words = dict.fromkeys(self.settings.fixed)
        parts = ["train"] if open_words or self.settings.extend or not self.settings.fixed else []
        if open_words and (self.held_out or self.valid):
            parts.append("valid")
        for name in parts:
            frequent = pipeline.frequent_words(
                (text for part, text in self._parts() if part == name),
                at_most=_MAX_TYPES if open_words else limits.max_words,
                min_count=1 if open_words else limits.min_count,
            )
            words.update(dict.fromkeys(frequent))
        return list(words)

    def _n_predicted(self, counts: npt.NDArray[np.int64]) -> int:
        """The size of the vocabulary."""
        limits, n_fixed = self.settings.vocabulary, max(len(SPECIALS), len(self.settings.fixed))
        words = counts[n_fixed:]
        n_frequent = min(int((words >= limits.min_count).sum()), limits.max_words)
        if n_frequent <= 1 and n_fixed == len(SPECIALS):
            raise DataError(
                f"Only {n_frequent} of {int((words > 0).sum())} distinct words "
                f"occur at least {limits.min_count} times: nothing can be learned from that.",
                remedy="Use more text, or lower min_count (--set min_count=1).",
            )
        return n_fixed + n_frequent
