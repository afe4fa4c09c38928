"""Reading the tables that word2vec, GloVe, fastText and gensim write, row by row and with care."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import DataError
from elmokit.text.readers import decode_lines, open_bytes
from elmokit.vectors.embeddings import Floats

__all__ = ["ForeignTable", "binary_table", "text_table"]

_FASTTEXT = (793712314).to_bytes(4, "little")
_CHUNK = 1 << 20
_LONGEST_WORD = 10_000
_CUT = "The file looks cut off or damaged; take a fresh copy."


@dataclass
class ForeignTable:
    """A table as it is read.

    Attributes:
        file: where from.
        dim: width of a row.
        unit: what its rows are counted in, for errors: "line" or "word".
        words: so far.
        n_left_out: words left out because no text can hold them.
    """

    file: Path
    dim: int
    unit: str = "line"
    words: list[str] = field(default_factory=list)
    n_left_out: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    _values: bytearray = field(default_factory=bytearray)

    @property
    def rows(self) -> Floats:
        """(n_words, dim)."""
        return np.frombuffer(self._values, dtype=np.float32).reshape(-1, self.dim)

    def place(self, number: int) -> str:
        """Where a row stands, for an error."""
        return f"{self.file}, {self.unit} {number}"

    def add(self, number: int, word: str, row: npt.NDArray[np.float32]) -> None:
        """Take in the row of this number."""
        if not word:
            raise DataError(f"{self.place(number)}: there is no word before the numbers.", remedy=_CUT)
        if word in self._places:
            raise DataError(
                f"{self.place(number)}: the word {word!r} stands there a second time "
                f"(first: {self.unit} {self._places[word]}).",
                remedy="Keep one of the two.",
            )
        if not np.isfinite(row).all():
            raise DataError(
                f"{self.place(number)}: the vector of {word!r} holds a value that is not a finite number.",
                remedy="Leave the word out, or take a fresh copy of the file.",
            )
        self._places[word] = number
        self.words.append(word)
        self._values += row.tobytes()

    def check(self, promised: int | None = None, n_found: int = 0) -> None:
        """Refuse a table without a word, or with another number of them than its header says."""
        if not self.words:
            raise DataError(f"{self.file} holds no word vector.", remedy=_CUT)
        if promised is not None and promised != n_found:
            raise DataError(
                f"{self.file}, line 1: the header promises {promised:,} words, but there are {n_found:,}.",
                remedy=_CUT
                if n_found < promised
                else "Mend the header: it is the number of words and the width.",
            )


def text_table(file: Path, max_words: int | None, encoding: str, errors: str) -> ForeignTable:
    """A table of lines: a word, then its numbers, one space between any two."""
    table: ForeignTable | None = None
    promised, n_found = None, 0
    with open_bytes(file) as stream, np.errstate(over="ignore"):  # what is too large is refused by add
        lines = decode_lines(stream, str(file), encoding=encoding, errors=errors, whole=True)
        for number, line in enumerate(lines, start=1):
            if "\t" in line:
                raise DataError(
                    f"{file}, line {number}: there is a tab; words and numbers are separated by one space.",
                    remedy="Replace the tabs by spaces.",
                )
            fields = line.rstrip(" ").split(" ")
            if fields == [""]:
                continue
            if number == 1 and len(fields) == 2 and all(map(str.isdecimal, fields)):
                promised, table = int(fields[0]), ForeignTable(file, _width(int(fields[1]), file))
                continue
            table = table or ForeignTable(file, _width(len(fields) - 1, file))
            if max_words is not None and n_found == max_words:
                promised = None
                break
            n_found += 1
            _add_line(table, number, fields)
    if table is None:
        raise DataError(f"{file} is empty.", remedy="Give a table of word vectors.")
    table.check(promised, n_found)
    return table


def _width(dim: int, file: Path) -> int:
    if dim < 1:
        raise DataError(
            f"{file}, line 1: it holds no number after its word.",
            remedy="Each line must be a word and its numbers, with a space between any two.",
        )
    return dim


def _add_line(table: ForeignTable, number: int, fields: list[str]) -> None:
    surplus = len(fields) - 1 - table.dim
    if surplus > 0 and not all(map(_is_number, fields[1 : 1 + surplus])):
        table.n_left_out += 1  # a word with spaces in it
        return
    if surplus:
        raise DataError(
            f"{table.place(number)}: {len(fields) - 1} numbers where {table.dim} are expected.",
            remedy=_CUT,
        )
    try:
        row = np.array(fields[1:], dtype=np.float32)
    except ValueError:
        wrong = next(value for value in fields[1:] if not _is_number(value))
        raise DataError(f"{table.place(number)}: {wrong!r} is not a number.", remedy=_CUT) from None
    table.add(number, fields[0], row)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def binary_table(file: Path, max_words: int | None, encoding: str, errors: str) -> ForeignTable:
    """A table of a header line, then for each word its bytes, a space, and little-endian floats."""
    with open_bytes(file) as stream:
        source = _Bytes(stream, file)
        header = source.until(b"\n", 100)
        if header.startswith(_FASTTEXT):
            raise DataError(
                f"{file} is a fastText model, not a word2vec table.",
                remedy="Take the .vec file that fastText writes beside it.",
            )
        fields = header.split()
        if len(fields) != 2 or not all(map(bytes.isdigit, fields)):
            raise DataError(
                f"{file}, line 1: word2vec binary files begin with the number of words and the width.",
                remedy="If it is a text file, let its name end in .txt or .vec.",
            )
        promised = int(fields[0])
        table = ForeignTable(file, _width(int(fields[1]), file), "word")
        n_read = promised if max_words is None else min(promised, max_words)
        for number in range(1, n_read + 1):
            name = source.until(b" ", _LONGEST_WORD).lstrip(b"\n")
            row = np.frombuffer(source.exactly(4 * table.dim), dtype="<f4").astype(np.float32)
            try:
                word = name.decode(encoding, errors)
            except (UnicodeDecodeError, LookupError) as error:
                raise DataError(
                    f"{table.place(number)}: {name[:40]!r} cannot be read as {encoding} ({error}).",
                    remedy="Say the file's encoding (--encoding latin-1, ...), "
                    "or replace what cannot be read (--errors replace).",
                ) from error
            table.add(number, word, row)
        if n_read == promised and source.rest().strip(b"\n"):
            raise DataError(
                f"{file}: there is more in it than the {promised:,} words that its header promises.",
                remedy="Mend the header, or take a fresh copy of the file.",
            )
    return table


class _Bytes:
    """A stream of bytes, read up to a mark or by number."""

    def __init__(self, stream: IO[bytes], file: Path) -> None:
        self._stream, self._file = stream, file
        self._held, self._place = b"", 0

    def _more(self) -> bool:
        try:
            chunk = self._stream.read(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self._file} cannot be decompressed or read to its end: {error}.", remedy=_CUT
            ) from error
        self._held, self._place = self._held[self._place :] + bytes(chunk), 0
        return bool(chunk)

    def until(self, mark: bytes, at_most: int) -> bytes:
        """What comes before the next ``mark``, which is passed over."""
        while (end := self._held.find(mark, self._place)) < 0:
            if len(self._held) - self._place > at_most or not self._more():
                break
        if end < 0 or end - self._place > at_most:
            raise DataError(f"{self._file} is not a word2vec binary file, or is cut off.", remedy=_CUT)
        found = self._held[self._place : end]
        self._place = end + 1
        return found

    def exactly(self, n_bytes: int) -> bytes:
        """The next ``n_bytes``."""
        while len(self._held) - self._place < n_bytes:
            if not self._more():
                raise DataError(f"{self._file} is cut off in the middle of a vector.", remedy=_CUT)
        found = self._held[self._place : self._place + n_bytes]
        self._place += n_bytes
        return found

    def rest(self) -> bytes:
        """Some of what is left; empty only at the end."""
        if self._place == len(self._held):
            self._more()
        return self._held[self._place :]
