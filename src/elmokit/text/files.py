"""Finding, opening, decompressing and decoding files, with errors that name file, line and byte."""

from __future__ import annotations

import codecs
import glob
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, cast

import pyarrow as pa

from elmokit.core.errors import DataError, nearest

__all__ = ["FORMATS", "decoded_lines", "find_files", "format_of", "open_bytes"]

Format = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {
    ".txt": "txt", ".text": "txt", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_PACKED = (".gz", ".zst")
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 20
_UNREADABLE = {".zip", ".tar", ".7z", ".rar", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".bz2", ".xz"}


def format_of(path: Path) -> Format:
    """The format a file's name promises; a name that promises nothing is plain text."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return FORMATS.get(suffixes[-1], "txt") if suffixes else "txt"


def _is_text(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in FORMATS


def find_files(sources: Sequence[str | Path], outside: Path | None = None) -> list[Path]:
    """The files meant by names, folders and glob patterns, each once, in a stable order.

    Of folders and patterns, files below ``outside`` (where a run writes) are left out.
    """

    def own(file: Path) -> bool:
        return outside is not None and outside.resolve() in file.resolve().parents

    found: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        try:
            exists, is_dir = path.exists(), path.is_dir()
        except OSError:  # a name too long for a file, for one
            exists = is_dir = False
        if is_dir:
            inside = [
                file
                for file in sorted(path.rglob("*"))
                if file.is_file()
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
                and _is_text(file)
                and not own(file)
            ]
            if not inside:
                raise DataError(
                    f"The folder {path} holds no text files.",
                    remedy=f"Files are known by their ending: {', '.join(FORMATS)} (also .gz, .zst).",
                )
            found.update(dict.fromkeys(inside))
        elif exists:
            if not path.is_file():
                raise DataError(
                    f"{path} is neither a file nor a folder; texts are read more than once.",
                    remedy="Pipe it in as standard input: ... | elmokit pretrain -",
                )
            if path.suffix.lower() in _UNREADABLE:
                raise DataError(
                    f"{path}: files ending in {path.suffix} are not read.",
                    remedy="Unpack or export it first to .txt, .csv, .tsv, .jsonl or .parquet.",
                )
            found[path] = None
        else:
            matches = sorted(glob.glob(str(source), recursive=True))
            files = [Path(match) for match in matches if Path(match).is_file() and not own(Path(match))]
            if not files:
                siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
                hint = nearest(path.name, siblings) if 0 < len(siblings) < 200 else ""
                raise DataError(
                    f"There is no file or folder {str(source)!r}.",
                    remedy=hint if hint.startswith("Did") else "Check the name and the folder.",
                )
            found.update(dict.fromkeys(files))
    return list(found)


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz or .zst."""
    try:
        if path.suffix.lower() == ".zst":
            return cast(IO[bytes], pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd"))
        if path.suffix.lower() == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"Cannot open {path}: {error.strerror or error}.") from error


def _chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{name} cannot be decompressed or read to its end: {error}.",
                remedy="The file looks cut off or damaged; take a fresh copy.",
            ) from error
        if not chunk:
            return
        yield bytes(chunk)


def _binary(text: str) -> bool:
    sample = text[:65536]
    odd = sum(1 for char in sample if char < " " and char not in "\t\n\r\f\v\x1b")
    return odd * 100 > len(sample)


def decoded_lines(
    stream: IO[bytes], name: str, *, encoding: str = "utf-8", errors: str = "strict", whole: bool = False
) -> Iterator[str]:
    """Lines without their ends (``\\n``, ``\\r\\n`` or ``\\r``), decoded strictly unless told.

    Memory does not grow with the stream: a line over a megabyte comes in parts cut at spaces,
    unless lines must be ``whole`` (records).
    """
    try:
        "a".encode(encoding)  # a LookupError for rot13, hex and the like
        decoder = codecs.getincrementaldecoder(encoding)(errors)
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"There is no encoding {encoding!r}.", remedy="Common ones: utf-8, latin-1, cp1252, utf-16."
        ) from error
    line, n_bytes, pending, first = 1, 0, "", True
    for chunk in _chunks(stream, name):
        try:
            text = decoder.decode(chunk)
        except UnicodeDecodeError as error:
            raise _undecodable(error, name, encoding, line, n_bytes, len(chunk), first) from error
        except UnicodeError as error:
            raise DataError(
                f"{name} is not {encoding} text: {error}.",
                remedy="Say the file's encoding (--encoding utf-8, ...).",
            ) from error
        n_bytes += len(chunk)
        if first:
            if _binary(text):
                raise _not_text(name)
            text, first = text.removeprefix("\ufeff"), False
        pending += text
        held = "\r" if pending.endswith("\r") else ""  # it may be half of \r\n
        body = pending[: len(pending) - len(held)]
        if "\r" in body:
            body = body.replace("\r\n", "\n").replace("\r", "\n")
        lines = body.split("\n")
        pending = lines.pop() + held
        line += len(lines)
        yield from lines
        while len(pending) > _LONGEST_LINE and not whole:
            cut = pending.rfind(" ", 0, _LONGEST_LINE)
            cut = cut if cut > 0 else _LONGEST_LINE
            yield pending[:cut]
            pending = pending[cut:].removeprefix(" ")
    try:
        pending += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _undecodable(error, name, encoding, line, n_bytes, 0, first) from error
    if pending.rstrip("\r"):
        yield pending.rstrip("\r")


def _not_text(name: str) -> DataError:
    return DataError(
        f"{name} looks like a binary file, not text.",
        remedy="Give text in .txt, .csv, .tsv, .jsonl or .parquet (also .gz, .zst); "
        "for UTF-16 text say --encoding utf-16.",
    )


def _undecodable(
    error: UnicodeDecodeError, name: str, encoding: str, line: int, n_bytes: int, size: int, first: bool
) -> DataError:
    """The error, with its place in the whole file worked out from its place in the chunk."""
    seen = bytes(error.object)
    if first and seen[:65536].count(0) * 100 > len(seen[:65536]):
        return _not_text(name)
    before = seen[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    place = n_bytes + size - len(seen) + error.start
    return DataError(
        f"{name}, line {line + before.count(10)}, byte {place}: "
        f"0x{seen[error.start]:02x} is not valid {encoding} ({error.reason}).",
        remedy="Say the file's encoding (--encoding latin-1, cp1252, ...), "
        "or replace what cannot be read (--errors replace).",
    )
