"""Word vector files of other programs: word2vec text and binary, GloVe, fastText's ``.vec``."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import ConfigError, DataError
from elmokit.core.run_folder import open_file
from elmokit.static.word_vectors import UNKNOWN_WORDS, WordVectors
from elmokit.text.readers import decode_lines, open_bytes, read_chunks
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, replace_surrogates

_LONGEST_HEADER = 100
_DAMAGED = "The file looks truncated or damaged; download it again."
_Record = tuple[int, str, npt.NDArray[Any]]
"""The number of a line or word, the word, its vector."""


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
    ending = Path(file.name.lower().removesuffix(".gz")).suffix
    unit, read = ("word", _read_binary) if ending == ".bin" else ("line", _read_text)
    numbers: dict[str, int] = {}
    values, n_skipped = bytearray(), 0
    for number, word, row in read(file, max_words, encoding, errors):
        problem = ""
        if not word:
            problem = "there is no word before the numbers"
        elif word in numbers:
            problem = f"the word {word!r} was in {unit} {numbers[word]} already"
        elif not np.isfinite(row).all():
            problem = f"the vector of {word!r} has a value that is not a finite number"
        if problem:
            remedy = "Remove this word, or download the file again."
            raise DataError(f"{file}, {unit} {number}: {problem}.", remedy=remedy)
        if " " in word:
            n_skipped += 1
        else:
            numbers[word] = number
            values += row.tobytes()
    if not numbers:
        raise DataError(f"{file} contains no word vectors.", remedy=_DAMAGED)
    if text is None:
        words = (word for word in numbers if word not in UNKNOWN_WORDS)
        text = TextConfig(lowercase=all(word == word.lower() for word in words))
    training = {
        "method": "import",
        "file": replace_surrogates(file.name),
        "n_left_out": n_skipped,
        "date": datetime.date.today().isoformat(),
    }
    table = np.frombuffer(values, dtype=np.float32).reshape(len(numbers), -1)
    return WordVectors.of(list(numbers), table, text, training)


def export_vectors(file: str | Path, vectors: WordVectors, **options: Any) -> None:
    """Write word vectors as word2vec text (``.txt``, ``.vec``) or binary (``.bin``).

    ``<unk>`` comes first, then all words in their order; ``<pad>``, ``<s>`` and ``</s>`` are left out where
    they are zero. Text has enough digits to be read back to the bit. ``options`` are those of ``open_file``.
    """
    file = Path(file)
    is_binary = export_format(file) == ".bin"
    words = vectors.vocabulary.words
    if wrong := [word for word in words if " " in word or "\n" in word]:
        problem = f"The word {wrong[0]!r} contains a space or line end, which word2vec files do not allow."
        raise DataError(problem, remedy="Remove the word from the table.")
    places = [place for place in (PAD, BOS, EOS) if vectors.vectors[place].any()]
    places += [UNK, *range(len(SPECIALS), len(words))]
    with open_file(file, **options) as out:
        out.write(f"{len(places)} {vectors.dim}\n".encode())
        for place in places:
            row = vectors.vectors[place]
            if is_binary:
                out.write(words[place].encode() + b" " + row.astype("<f4").tobytes() + b"\n")
            else:
                out.write(f"{words[place]} {' '.join(row.astype(str))}\n".encode())


def export_format(file: Path) -> str:
    """The ending of a file that ``export_vectors`` can write."""
    ending = file.suffix.lower()
    if ending not in (".txt", ".vec", ".bin"):
        raise ConfigError(
            f"{file.name}: this is not the name of a word vector file.",
            remedy="Use a name that ends in .txt or .vec (word2vec text) or .bin (word2vec binary).",
        )
    return ending


def _read_text(file: Path, max_words: int | None, encoding: str, errors: str) -> Iterator[_Record]:
    """Lines of a word and its numbers, one space between any two."""
    dim, n_declared, n_lines = None, None, 0
    with open_bytes(file) as stream, np.errstate(over="ignore"):  # a number too large becomes inf
        lines = decode_lines(stream, str(file), encoding=encoding, errors=errors, whole=True)
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip(" ").split(" ")
            if fields == [""]:
                continue
            is_header = number == 1 and len(fields) == 2 and all(map(str.isdecimal, fields))
            if is_header and len(line) <= _LONGEST_HEADER:
                n_declared, dim = int(fields[0]), _require_dim(file, int(fields[1]))
                continue
            dim = dim or _require_dim(file, len(fields) - 1)
            if n_lines == max_words:
                return
            n_lines += 1
            extra = fields[1:-dim]  # parts of a word that contains spaces, or too many numbers
            try:
                if len(fields) <= dim or (extra and None not in map(to_number, extra)):
                    raise ValueError(f"{len(fields) - 1} numbers where {dim} are expected")
                yield number, " ".join(fields[:-dim]), np.array(fields[-dim:], dtype=np.float32)
            except ValueError as error:
                raise DataError(f"{file}, line {number}: {error}.", remedy=_DAMAGED) from error
    if dim is None:
        raise DataError(f"{file} is empty.", remedy="Give a table of word vectors.")
    if n_declared not in (None, n_lines):
        raise DataError(
            f"{file}, line 1: the header declares {n_declared:,} words, but there are {n_lines:,}.",
            remedy="If the file is complete, correct the header; otherwise download it again.",
        )


def _require_dim(file: Path, dim: int) -> int:
    if dim < 1:
        raise DataError(
            f"{file}, line 1: there is no number after the word.",
            remedy="Each line must be a word and its numbers, with one space (no tab) between any two.",
        )
    return dim


def to_number(text: str) -> float | None:
    """The finite number that a text is, or None."""
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    return None


def _read_binary(file: Path, max_words: int | None, encoding: str, errors: str) -> Iterator[_Record]:
    """A header line, then for each word its bytes, a space, and little-endian floats."""
    with open_bytes(file) as stream:
        chunks = read_chunks(stream, str(file))
        header, _, rest = next(chunks, b"").partition(b"\n")
        fields = header.split()
        if len(header) > _LONGEST_HEADER or len(fields) != 2 or not all(map(bytes.isdigit, fields)):
            raise DataError(
                f"{file}, line 1: word2vec binary files begin with the number of words and the width.",
                remedy="Rename a text file to end in .txt or .vec; for a fastText model, use its .vec file.",
            )
        n_words, dim = int(fields[0]), _require_dim(file, int(fields[1]))
        limit, number, buffer = min(n_words, max_words or n_words), 0, bytearray()
        for chunk in itertools.chain([rest], chunks):
            buffer += chunk
            start = 0
            while number < limit and (space := buffer.find(b" ", start)) >= 0:
                end = space + 1 + 4 * dim
                if end > len(buffer):
                    break
                number += 1
                name = bytes(buffer[start:space]).lstrip(b"\n")
                try:
                    word = name.decode(encoding, errors)
                except (UnicodeDecodeError, LookupError) as error:
                    raise DataError(
                        f"{file}, word {number}: {name[:40]!r} cannot be read as {encoding} ({error}).",
                        remedy="Give the file's encoding (--encoding latin-1, ...), or replace what cannot "
                        "be read (--set errors=replace).",
                    ) from error
                yield number, word, np.frombuffer(buffer[space + 1 : end], dtype="<f4").astype(np.float32)
                start = end
            del buffer[:start]
            if number == limit:
                return
    raise DataError(f"{file} is truncated after {number:,} of {n_words:,} words.", remedy=_DAMAGED)
