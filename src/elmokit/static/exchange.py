"""Word vectors in other programs' formats: word2vec text and binary, GloVe, fastText's .vec, gensim."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from elmokit.core.atomic import atomic_write
from elmokit.core.errors import ConfigError, DataError
from elmokit.static.foreign_tables import ForeignTable, binary_table, text_table
from elmokit.static.word_vectors import UNKNOWN_WORDS, WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, replace_surrogates
from elmokit.vectors.embeddings import Floats

__all__ = ["export_format", "export_vectors", "from_gensim", "import_vectors", "to_gensim"]

_FORMATS: dict[str, Literal["text", "binary"]] = {".txt": "text", ".vec": "text", ".bin": "binary"}
_PICKLES = (".kv", ".model", ".npy", ".npz", ".pkl", ".pickle", ".pt", ".pth", ".joblib")


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

    Words that hold a space, which GloVe's largest table has some of, cannot be found in any text and
    are left out. Pickles are never opened.

    Args:
        file: the table.
        max_words: read no more than the first so many words.
        encoding: of the words.
        errors: what to do with bytes that cannot be decoded.
        text: how raw text becomes words. Unless given, words are lower-cased if no word of the
            table holds an upper-case letter.
    """
    file = Path(file)
    if not file.is_file():
        raise DataError(f"There is no file {file}.", remedy="Check the name and the folder.")
    kind = _ending(file)
    if kind in _PICKLES:
        raise DataError(
            f"{file}: files ending in {kind} are or hold pickles, which can run any program when opened; "
            "they are not read.",
            remedy="Where it was made, write it as text: vectors.save_word2vec_format('vectors.txt').",
        )
    if kind in (".zip", ".7z", ".tar", ".bz2", ".xz", ".ftz"):
        raise DataError(
            f"{file}: files ending in {kind} are not read.", remedy="Unpack it to .txt, .vec or .bin first."
        )
    read = binary_table if kind == ".bin" else text_table
    return _imported(read(file, max_words, encoding, errors), replace_surrogates(file.name), text)


def export_vectors(file: str | Path, vectors: WordVectors, *, header: bool = True) -> None:
    """Write word vectors as word2vec text (``.txt``, ``.vec``) or binary (``.bin``), also with ``.gz``.

    ``<unk>`` comes first, then all words in their order; ``<pad>``, ``<s>`` and ``</s>`` are left out
    where they are zero. Text holds as many digits as it takes to come back to the bit.

    Args:
        file: where to.
        vectors: what.
        header: begin a text file with the number of words and the width; GloVe's have no such line.
    """
    file = Path(file)
    kind = export_format(file)
    words, rows = _exported(vectors)
    with atomic_write(file) as temporary, open(temporary, "wb") as raw:
        packed = file.suffix.lower() == ".gz"
        out: IO[bytes] = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else raw  # type: ignore[assignment]
        if header or kind == "binary":
            out.write(f"{len(words)} {vectors.dim}\n".encode())
        for word, row in zip(words, rows, strict=True):
            if kind == "binary":
                out.write(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n")
            else:
                out.write(f"{word} {' '.join(row.astype(str))}\n".encode())
        if packed:
            out.close()


def export_format(file: Path) -> Literal["text", "binary"]:
    """What ``export_vectors`` writes into a file of this name."""
    kind = _FORMATS.get(_ending(file))
    if kind is None:
        raise ConfigError(
            f"{file.name}: its ending does not say what to write.",
            remedy="End it in .txt or .vec (word2vec text) or .bin (word2vec binary), or these with .gz.",
        )
    return kind


def to_gensim(vectors: WordVectors) -> Any:
    """The same as ``gensim.models.KeyedVectors``: the words that ``export_vectors`` would write."""
    from gensim.models import KeyedVectors

    words, rows = _exported(vectors)
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(words, rows)
    return keyed


def from_gensim(keyed: Any, *, text: TextConfig | None = None) -> WordVectors:
    """Word vectors from ``gensim.models.KeyedVectors`` (of a model: its ``wv``).

    Args:
        keyed: gensim's table.
        text: how raw text becomes words; see ``import_vectors``.
    """
    table = ForeignTable(Path("KeyedVectors"), int(keyed.vector_size), "word")
    for number, (word, row) in enumerate(zip(keyed.index_to_key, keyed.vectors, strict=True), start=1):
        if not isinstance(word, str):
            raise DataError(
                f"KeyedVectors, word {number}: the key {word!r} is not a string.", remedy="Key them by words."
            )
        table.add(number, word, np.asarray(row, dtype=np.float32))
    return _imported(table, "gensim", text)


def _imported(table: ForeignTable, source: str, text: TextConfig | None) -> WordVectors:
    table.check()
    if text is None:
        words = (word for word in table.words if word not in UNKNOWN_WORDS)
        text = TextConfig(lowercase=all(word == word.lower() for word in words))
    made = {
        "method": "import",
        "file": source,
        "n_left_out": table.n_left_out,
        "date": datetime.date.today().isoformat(),
    }
    return WordVectors.of(table.words, table.rows, text, made)


def _exported(vectors: WordVectors) -> tuple[list[str], Floats]:
    """The words that others should know, and their rows: all but special ones that are zero."""
    words = vectors.vocabulary.words
    for word in words:
        if " " in word or "\n" in word:
            raise DataError(
                f"The word {word!r} holds a space or a line end, which word2vec files cannot.",
                remedy="Leave the word out of the table.",
            )
    kept = [place for place in range(len(words)) if place >= len(SPECIALS) or place == UNK]
    kept = [place for place in (PAD, BOS, EOS) if vectors.vectors[place].any()] + kept
    return [words[place] for place in kept], vectors.vectors[kept]


def _ending(file: Path) -> str:
    """The ending of a file's name in lower case, looking through ``.gz``."""
    name = Path(file.stem) if file.suffix.lower() == ".gz" else file
    return name.suffix.lower()
