"""Word vector files of other programs: word2vec text and binary, GloVe, fastText's ``.vec``."""

from __future__ import annotations

import datetime
import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np

from elmokit.core.atomic import atomic_write
from elmokit.core.errors import ConfigError, DataError
from elmokit.static.word_vectors import UNKNOWN_WORDS, WordVectors
from elmokit.text.readers import decode_lines, open_bytes
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, replace_surrogates
from elmokit.vectors.encoder import FloatArray

_FORMATS: dict[str, Literal["text", "binary"]] = {".txt": "text", ".vec": "text", ".bin": "binary"}
_PICKLES = (".kv", ".model", ".npy", ".npz", ".pkl", ".pickle", ".pt", ".pth", ".joblib")
_ARCHIVES = (".zip", ".7z", ".tar", ".bz2", ".xz", ".ftz")
_FASTTEXT = (793712314).to_bytes(4, "little")
_CHUNK = 1 << 20
_LONGEST_WORD = 10_000
_DAMAGED = "The file looks truncated or damaged; download it again."


def import_vectors(
    file: str | Path,
    *,
    max_words: int | None = None,
    encoding: str = "utf-8",
    errors: Literal["strict", "replace", "ignore"] = "strict",
    text: TextConfig | None = None,
) -> WordVectors:
    """Read a table of word vectors: word2vec text (with or without its header line, so GloVe and
    fastText's ``.vec`` too) or, if its name ends in ``.bin``, word2vec binary; also ``.gz``.

    Words that contain a space, as in GloVe's largest table, cannot be found in any text and are skipped.
    Pickles are never opened.

    Args:
        max_words: Read only the first so many words.
        encoding: Of the words.
        errors: What to do with bytes that cannot be decoded.
        text: How raw text becomes words. By default, text is lower-cased if no word of the table has an
            upper-case letter.
    """
    file = Path(file)
    if not file.is_file():
        raise DataError(f"There is no file {file}.", remedy="Check the path.")
    ending = _ending(file)
    if ending in _PICKLES:
        raise DataError(
            f"{file}: files ending in {ending} are or contain pickles, which can run any code when opened; "
            "they are not read.",
            remedy="Where it was made, write it as text: vectors.save_word2vec_format('vectors.txt').",
        )
    if ending in _ARCHIVES:
        raise DataError(
            f"{file}: files ending in {ending} are not read.", remedy="Unpack it to .txt, .vec or .bin first."
        )
    read = _read_binary if ending == ".bin" else _read_text
    table = read(file, max_words, encoding, errors)
    if not table.words:
        raise DataError(f"{file} holds no word vector.", remedy=_DAMAGED)
    if text is None:
        words = (word for word in table.words if word not in UNKNOWN_WORDS)
        text = TextConfig(lowercase=all(word == word.lower() for word in words))
    training = {
        "method": "import",
        "file": replace_surrogates(file.name),
        "n_left_out": table.n_skipped,
        "date": datetime.date.today().isoformat(),
    }
    return WordVectors.of(table.words, table.rows, text, training)


def export_vectors(file: str | Path, vectors: WordVectors, *, header: bool = True) -> None:
    """Write word vectors as word2vec text (``.txt``, ``.vec``) or binary (``.bin``), also with ``.gz``.

    ``<unk>`` comes first, then all words in their order; ``<pad>``, ``<s>`` and ``</s>`` are left out where
    they are zero. Text has enough digits to be read back to the bit.

    Args:
        header: Begin a text file with the number of words and the width, which GloVe's files do not.
    """
    file = Path(file)
    is_binary = export_format(file) == "binary"
    words = vectors.vocabulary.words
    for word in words:
        if " " in word or "\n" in word:
            raise DataError(
                f"The word {word!r} contains a space or line end, which word2vec files cannot.",
                remedy="Remove the word from the table.",
            )
    places = [place for place in (PAD, BOS, EOS) if vectors.vectors[place].any()]
    places += [UNK, *range(len(SPECIALS), len(words))]
    with atomic_write(file) as temporary, open(temporary, "wb") as raw:
        is_packed = file.suffix.lower() == ".gz"
        out: IO[bytes] = gzip.GzipFile("", "wb", 6, raw, mtime=0) if is_packed else raw  # type: ignore[assignment]
        if header or is_binary:
            out.write(f"{len(places)} {vectors.dim}\n".encode())
        for place in places:
            row = vectors.vectors[place]
            if is_binary:
                out.write(words[place].encode() + b" " + row.astype("<f4").tobytes() + b"\n")
            else:
                out.write(f"{words[place]} {' '.join(row.astype(str))}\n".encode())
        if is_packed:
            out.close()


def export_format(file: Path) -> Literal["text", "binary"]:
    """What ``export_vectors`` writes into a file of this name."""
    if _ending(file) not in _FORMATS:
        raise ConfigError(
            f"{file.name}: this ending is not that of a word vector file.",
            remedy="End it in .txt or .vec (word2vec text) or .bin (word2vec binary), or these with .gz.",
        )
    return _FORMATS[_ending(file)]


def _ending(file: Path) -> str:
    """The ending of a file's name in lower case, ignoring ``.gz``."""
    name = Path(file.stem) if file.suffix.lower() == ".gz" else file
    return name.suffix.lower()


@dataclass
class _Table:
    """A table as it is read; ``unit`` is what its rows are counted in, for errors."""

    file: Path
    dim: int
    unit: Literal["line", "word"]
    words: list[str] = field(default_factory=list)
    n_skipped: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    _values: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise DataError(
                f"{self.file}, line 1: there is no number after the word.",
                remedy="Each line must be a word and its numbers, with a space between any two.",
            )

    @property
    def rows(self) -> FloatArray:
        """(n_words, dim)"""
        return np.frombuffer(self._values, dtype=np.float32).reshape(-1, self.dim)

    def error(self, number: int, problem: str, remedy: str = _DAMAGED) -> DataError:
        return DataError(f"{self.file}, {self.unit} {number}: {problem}.", remedy=remedy)

    def add(self, number: int, word: str, row: FloatArray) -> None:
        if not word:
            raise self.error(number, "there is no word before the numbers")
        if word in self._places:
            problem = f"the word {word!r} was in {self.unit} {self._places[word]} already"
            raise self.error(number, problem, "Keep one of the two.")
        if not np.isfinite(row).all():
            raise self.error(
                number,
                f"the vector of {word!r} has a value that is not a finite number",
                "Remove the word, or download the file again.",
            )
        self._places[word] = number
        self.words.append(word)
        self._values += row.tobytes()


def _read_text(file: Path, max_words: int | None, encoding: str, errors: str) -> _Table:
    """Lines of a word and its numbers, one space between any two."""
    table: _Table | None = None
    n_declared, n_lines = None, 0
    with open_bytes(file) as stream, np.errstate(over="ignore"):  # numbers too large are refused by add
        lines = decode_lines(stream, str(file), encoding=encoding, errors=errors, whole=True)
        for number, line in enumerate(lines, start=1):
            if "\t" in line:
                raise DataError(
                    f"{file}, line {number}: there is a tab; words and numbers must be separated by a space.",
                    remedy="Replace the tabs by spaces.",
                )
            fields = line.rstrip(" ").split(" ")
            if fields == [""]:
                continue
            if number == 1 and len(fields) == 2 and all(map(str.isdecimal, fields)):
                n_declared, table = int(fields[0]), _Table(file, int(fields[1]), "line")
                continue
            table = table or _Table(file, len(fields) - 1, "line")
            if max_words is not None and n_lines == max_words:
                n_declared = None
                break
            n_lines += 1
            _add_line(table, number, fields)
    if table is None:
        raise DataError(f"{file} is empty.", remedy="Give a table of word vectors.")
    if n_declared not in (None, n_lines):
        raise DataError(
            f"{file}, line 1: the header declares {n_declared:,} words, but there are {n_lines:,}.",
            remedy="If the file is complete, correct the header; otherwise download it again.",
        )
    return table


def _add_line(table: _Table, number: int, fields: list[str]) -> None:
    surplus = len(fields) - 1 - table.dim
    if surplus > 0 and not all(map(_is_number, fields[1 : 1 + surplus])):
        table.n_skipped += 1  # a word with spaces in it
        return
    if surplus:
        raise table.error(number, f"{len(fields) - 1} numbers where {table.dim} are expected")
    try:
        row = np.array(fields[1:], dtype=np.float32)
    except ValueError:
        wrong = next(value for value in fields[1:] if not _is_number(value))
        raise table.error(number, f"{wrong!r} is not a number") from None
    table.add(number, fields[0], row)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_binary(file: Path, max_words: int | None, encoding: str, errors: str) -> _Table:
    """A header line, then for each word its bytes, a space, and little-endian floats."""
    with open_bytes(file) as stream:
        source = _Bytes(stream, file)
        header = source.until(b"\n", 100)
        if header.startswith(_FASTTEXT):
            raise DataError(
                f"{file} is a fastText model, not a word2vec table.",
                remedy="Use the .vec file that fastText writes beside it.",
            )
        fields = header.split()
        if len(fields) != 2 or not all(map(bytes.isdigit, fields)):
            raise DataError(
                f"{file}, line 1: word2vec binary files begin with the number of words and the width.",
                remedy="If it is a text file, rename it to end in .txt or .vec.",
            )
        n_words = int(fields[0])
        table = _Table(file, int(fields[1]), "word")
        for number in range(1, min(n_words, max_words or n_words) + 1):
            name = source.until(b" ", _LONGEST_WORD).lstrip(b"\n")
            row = np.frombuffer(source.exactly(4 * table.dim), dtype="<f4").astype(np.float32)
            try:
                word = name.decode(encoding, errors)
            except (UnicodeDecodeError, LookupError) as error:
                raise table.error(
                    number,
                    f"{name[:40]!r} cannot be read as {encoding} ({error})",
                    "Give the file's encoding (--encoding latin-1, ...), or replace what cannot be read "
                    "(--errors replace).",
                ) from error
            table.add(number, word, row)
        if len(table.words) == n_words and source.rest().strip(b"\n"):
            raise DataError(
                f"{file}: there is more in it than the {n_words:,} words that its header declares.",
                remedy="Correct the header, or download the file again.",
            )
    return table


class _Bytes:
    """A stream of bytes, read up to a mark or by number."""

    def __init__(self, stream: IO[bytes], file: Path) -> None:
        self._stream, self._file = stream, file
        self._buffer, self._place = b"", 0

    def _more(self) -> bool:
        try:
            chunk = self._stream.read(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self._file} cannot be decompressed or read to its end: {error}.", remedy=_DAMAGED
            ) from error
        self._buffer, self._place = self._buffer[self._place :] + bytes(chunk), 0
        return bool(chunk)

    def until(self, mark: bytes, at_most: int) -> bytes:
        """The bytes before the next ``mark``, which is skipped."""
        while (end := self._buffer.find(mark, self._place)) < 0:
            if len(self._buffer) - self._place > at_most or not self._more():
                break
        if end < 0 or end - self._place > at_most:
            raise DataError(f"{self._file} is not a word2vec binary file, or truncated.", remedy=_DAMAGED)
        start, self._place = self._place, end + 1
        return self._buffer[start:end]

    def exactly(self, n_bytes: int) -> bytes:
        """The next ``n_bytes``."""
        while len(self._buffer) - self._place < n_bytes:
            if not self._more():
                raise DataError(f"{self._file} is truncated in the middle of a vector.", remedy=_DAMAGED)
        start, self._place = self._place, self._place + n_bytes
        return self._buffer[start : self._place]

    def rest(self) -> bytes:
        """Some of what is left; empty only at the end."""
        if self._place == len(self._buffer):
            self._more()
        return self._buffer[self._place :]
