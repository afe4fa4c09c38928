"""Encoders of other programs. One vector for each text is all that they have.

st:FOLDER      a sentence-transformers model (extra ``sentence-transformers``)
m2v:FOLDER     a model2vec model (extra ``model2vec``)
glove:FILE     a table of word vectors (GloVe, word2vec, .vec), of which a text gets the mean over its words
vectors:FILE   vectors computed elsewhere, one for each row: .npy, .csv or .parquet; several files joined by +
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from elmokit.core.errors import DataError, MissingExtraError, ModelError
from elmokit.core.model_card import Facts
from elmokit.core.model_folder import KINDS, explain_damage, load, read_record, write_model
from elmokit.core.names import checksum
from elmokit.core.tensors import fingerprint, load_tensors, save_tensors
from elmokit.text.tokenizing import Text, replace_surrogates
from elmokit.vectors.embeddings import TextEncoder
from elmokit.vectors.encoder import FloatArray, IntArray, SentenceEncoder

KIND = "sentence-encoder"
_PACKAGES: dict[str, tuple[str, str, dict[str, Any]]] = {  # import name, what opens a folder, its options
    "st": ("sentence_transformers", "SentenceTransformer", {"device": "cpu", "local_files_only": True}),
    "m2v": ("model2vec", "StaticModel.from_pretrained", {}),
}
_NO_KEYS = np.zeros(0, dtype=np.int64)
PREFIXES = (*_PACKAGES, "glove", "vectors")
_NOT_COPIED = (".*", "onnx", "openvino", "*.h5", "*.ot", "*.msgpack")  # hidden files, the weights once more
_TABLE = (
    "Give finite numbers, a row for each text: .npy of shape (n_texts, dim), .parquet, or .csv with a "
    "header. A table of words with their vectors is glove:FILE."
)
_ORDER = (
    "Give one vector for each row, in the order of the rows: those of the training file first, then "
    "validation if there is a file, then test."
)


@dataclass(frozen=True)
class ForeignName:
    """What a name such as ``st:FOLDER`` stands for."""

    prefix: str
    paths: tuple[Path, ...]

    @classmethod
    def parse(cls, name: str | Path) -> ForeignName | None:
        """None for a name without one of the prefixes; a missing file or package is an error."""
        prefix, colon, rest = str(name).partition(":")
        if isinstance(name, Path) or not colon or prefix not in PREFIXES:
            return None
        several = prefix == "vectors" and not os.path.exists(rest)
        paths = tuple(map(Path, rest.split("+") if several else [rest]))
        noun, exists = ("folder", os.path.isdir) if prefix in _PACKAGES else ("file", os.path.isfile)
        if missing := [path for path in paths if not exists(path)]:
            raise ModelError(f"{name}: there is no {noun} {missing[0]}.", remedy="Check the path.")
        if prefix in _PACKAGES:
            _require_package(prefix)
        return cls(prefix, paths)

    @property
    def label(self) -> str:
        """The name of the folder or file."""
        path = self.paths[0]
        return replace_surrogates(path.resolve().name if self.prefix in _PACKAGES else path.stem)

    @property
    def fingerprint(self) -> str:
        """Changes when any of the files does."""
        files = [file for path in self.paths for file in (path, *sorted(path.rglob("*"))) if file.is_file()]
        return fingerprint(self.prefix, *map(checksum, files))


def open_encoder(name: str | Path) -> SentenceEncoder:
    """A foreign encoder, or an elmokit model that makes vectors.

    Args:
        name: ``st:FOLDER``, ``m2v:FOLDER``, ``glove:FILE`` or ``vectors:FILE``; otherwise as for ``load``.
    """
    foreign = ForeignName.parse(name)
    if foreign is None:
        if Path(name).suffix.lower() in (".npy", ".csv", ".parquet") and os.path.isfile(name):
            remedy = f"If it has a vector for each text, write vectors:{name}."
            raise ModelError(f"{name} is a file, not a model folder.", remedy=remedy)
        model = load(name)
        if not hasattr(model, "sentences"):
            raise ModelError(
                f"{name} holds {KINDS[model.kind].noun}, not an encoder.",
                remedy="Give a folder made by elmokit pretrain or elmokit baseline.",
            )
        return cast(SentenceEncoder, model)
    if foreign.prefix == "glove":
        exchange = importlib.import_module("elmokit.static.exchange")  # to the right, by name
        return cast(SentenceEncoder, exchange.import_vectors(foreign.paths[0]))
    if foreign.prefix == "vectors":
        return TextVectors(read_vectors(foreign.paths), label=foreign.label)
    return PackageEncoder(foreign.prefix, foreign.paths[0], foreign.label)


class _ForeignEncoder(TextEncoder):
    """What both kinds share."""

    kind = KIND
    label, prefix, dim = "", "vectors", 0

    def facts(self) -> Facts:
        """What it is, for its card and ``elmokit inspect``."""
        source = _PACKAGES[self.prefix][0] if self.prefix in _PACKAGES else "computed elsewhere"
        rows = (("model", self.label), ("vectors", f"{source}, {self.dim} wide"))
        return Facts("A sentence encoder: one vector for each text.", rows, {"kind": KIND, **dict(rows)})

    def save(self, folder: str | Path) -> None:
        """Write it to a model folder."""
        record = {"package": self.prefix, "name": self.label}
        with write_model(Path(folder), KIND, record, card=self.facts()) as staged:
            self._write(staged)

    def _write(self, folder: Path) -> None:
        raise NotImplementedError


class PackageEncoder(_ForeignEncoder):
    """A model of another package, in a local folder."""

    def __init__(self, prefix: str, folder: Path, label: str) -> None:
        self.prefix, self.folder, self.label = prefix, folder, label
        package, maker, options = _PACKAGES[prefix]
        _require_package(prefix)
        try:
            self._model = attrgetter(maker)(importlib.import_module(package))(str(folder), **options)
            self.dim = int(np.shape(self._model.encode(["a"]))[1])
        except Exception as error:  # each package has errors of its own
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
            message = f"{package} cannot open {folder}: {reason}."
            raise ModelError(message, remedy="Give a folder that the package has saved.") from error

    @cached_property
    def fingerprint(self) -> str:
        """Changes when any file of the model does."""
        return ForeignName(self.prefix, (self.folder,)).fingerprint

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text, (n_texts, dim)."""
        if not len(texts):
            return np.zeros((0, self.dim), dtype=np.float32)
        vectors = self._model.encode(list(map(_plain, texts)), show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)

    def _write(self, folder: Path) -> None:
        shutil.copytree(self.folder, folder / "model", ignore=shutil.ignore_patterns(*_NOT_COPIED))


class TextVectors(_ForeignEncoder):
    """Vectors computed elsewhere, found by the text; equal texts have the vector of the first.

    Args:
        vectors: One for each text, (n_texts, dim).
        keys: Numbers of the texts, (n_texts,); none until ``bind`` says which texts they are.
    """

    def __init__(self, vectors: FloatArray, keys: IntArray = _NO_KEYS, label: str = "") -> None:
        self.vectors, self.keys, self.label, self.dim = vectors, keys, label, int(vectors.shape[1])
        self._rows = {key: row for row, key in reversed([*enumerate(self.keys.tolist())])}

    def bind(self, texts: Sequence[Text], remedy: str = _ORDER) -> TextVectors:
        """With the texts that the vectors belong to, in order; ``remedy`` is what to do if they differ in
        number."""
        if len(texts) != len(self.vectors):
            raise DataError(
                f"{self.label} holds {len(self.vectors):,} vectors, but there are {len(texts):,} texts.",
                remedy=remedy,
            )
        keys = np.array([_key(_plain(text)) for text in texts], dtype=np.int64)
        return TextVectors(self.vectors, keys, self.label)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with any vector or text."""
        return fingerprint(self.keys, self.vectors)

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """The vector of each text; zeros for an empty one without a vector."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for place, text in enumerate(map(_plain, texts)):
            if (row := self._rows.get(_key(text))) is not None:
                vectors[place] = self.vectors[row]
            elif text.strip():
                raise DataError(
                    f"{self.label} has no vector for the text {text[:60]!r}.",
                    remedy="Vectors from a file cover the rows that they came with; for other texts, use the "
                    "encoder itself (st:, m2v: or glove:).",
                )
        return vectors

    def _write(self, folder: Path) -> None:
        tensors = {"vectors": torch.tensor(self.vectors), "keys": torch.tensor(self.keys)}
        save_tensors(folder / "model.safetensors", tensors, {})


def read_encoder(folder: Path) -> PackageEncoder | TextVectors:
    """Read what ``save`` wrote."""
    record = read_record(folder, KIND)
    with explain_damage(folder):
        package, label = str(record["package"]), str(record["name"])
        if package in _PACKAGES:
            return PackageEncoder(package, folder / "model", label)
        tensors, _ = load_tensors(folder / "model.safetensors")
        return TextVectors(tensors["vectors"].numpy(), tensors["keys"].numpy(), label)


def read_vectors(files: Sequence[Path]) -> FloatArray:
    """The vectors in some files, one after the other, (n, dim): finite numbers, all of one width."""
    names = " and ".join(map(str, files))
    try:
        parts = [_read_array(file) for file in files]
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if vectors.ndim != 2 or not vectors.size or vectors.dtype.kind not in "fiu":
            raise ValueError(f"{vectors.dtype} of shape {vectors.shape}")
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{names}: cannot be read as vectors: {error}.", remedy=_TABLE) from error
    check_finite(vectors, names)
    return np.asarray(vectors, dtype=np.float32)


def _read_array(file: Path) -> npt.NDArray[Any]:
    import pyarrow as pa
    from pyarrow import csv, parquet

    if file.suffix.lower() not in (".csv", ".parquet"):
        with file.open("rb") as stream:
            if stream.read(6) != b"\x93NUMPY":
                raise ValueError("it is no .npy file")
        return cast("npt.NDArray[Any]", np.load(file, mmap_mode="r", allow_pickle=False))
    with open(file, "rb") as stream:  # a name need not be text
        columns = (csv.read_csv if file.suffix.lower() == ".csv" else parquet.read_table)(stream).columns
    if lists := [one for one in columns if pa.types.is_nested(one.type)]:  # as elmokit embed exports them
        return np.array(lists[0].to_pylist(), dtype=np.float32)
    return np.stack([one.to_numpy() for one in columns], axis=1)


def check_finite(vectors: npt.NDArray[Any], name: str) -> None:
    """Raise DataError that names the first vector with NaN or infinity."""
    wrong = ~np.isfinite([vectors.min(axis=1), vectors.max(axis=1)]).all(axis=0)
    if wrong.any():
        problem = f"{name}: vector {wrong.argmax() + 1} has a value that is not a finite number."
        raise DataError(problem, remedy=_TABLE)


def _plain(text: Text) -> str:
    return replace_surrogates(text if isinstance(text, str) else " ".join(text))


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _require_package(prefix: str) -> None:
    """An error that names the extra if the package is missing."""
    if importlib.util.find_spec(_PACKAGES[prefix][0]) is None:
        package = _PACKAGES[prefix][0].replace("_", "-")
        raise MissingExtraError(package, package, f"{prefix}:FOLDER")
