"""``verify``: compare the vectors of a model with expected ones, layer by layer."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bilm.folder import BilmFolder, load_bilm
from elmokit.core.errors import DataError, ModelError
from elmokit.core.model_folder import kind_of
from elmokit.corpora import mini_news
from elmokit.published.hdf5 import open_arrays
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline, split_sentences
from elmokit.vectors.elmo import Elmo, State
from elmokit.vectors.encoder import FloatArray
from elmokit.vectors.word_cache import TokenCache, write_token_cache

_N_SENTENCES = 30
_HDF5 = (".hdf5", ".h5")
Sentences = list[list[str]]
Layers = dict[int, FloatArray]
"""Of one sentence: depth -> (n_words, 2 dim)."""


@dataclass(frozen=True)
class Difference:
    """How far one layer is from what was expected.

    Attributes:
        path: Where word vectors came from: "characters" (or "words"), or "cached tokens".
        layer: 0 is the token encoder.
        absolute: The largest difference of two numbers.
        relative: The largest length of a difference of two word vectors, as a share of the expected one's.
    """

    path: str
    layer: int
    absolute: float
    relative: float
    n_words: int


@dataclass(frozen=True)
class Verification:
    """The result of ``verify``.

    Attributes:
        differences: Of each path and layer.
        tolerance: What is allowed, absolute or relative.
        batch_size: Sentences side by side; None unless state is carried over.
    """

    differences: list[Difference]
    tolerance: float
    n_sentences: int
    state: str
    batch_size: int | None

    @property
    def passed(self) -> bool:
        """True if each layer is within the tolerance."""
        return all(min(row.absolute, row.relative) <= self.tolerance for row in self.differences)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; numbers that are not finite become null."""
        values = asdict(self)
        for row in values["differences"]:
            for name in ("absolute", "relative"):
                row[name] = row[name] if math.isfinite(row[name]) else None
        return {**values, "passed": self.passed}


def verify(
    model: str | Path,
    expected: str | Path,
    *,
    state: State = "stateful",
    batch_size: int | None = None,
    sentences: str | Path | None = None,
    tolerance: float = 1e-5,
) -> Verification:
    """Compare the vectors of ``model`` with those expected.

    Args:
        expected: Vectors that another program made, or another model: a folder with ``*sentences*.json`` and
            ``*embeddings*.hdf5`` (one file for each row of the batch), an HDF5 file with a dataset for each
            sentence ("0", "1", ...), or a model folder.
        state: Where sentences start; the published programs carry state over ("stateful").
        batch_size: Sentences side by side, which matters where state is carried over; by default, as the
            files are laid out, or 1.
        sentences: Text for an HDF5 file or another model: a sentence per line, words between spaces; or
            JSON. By default, it is looked for in the file, or some bundled sentences are used.
        tolerance: Largest difference, absolute or relative, that passes.
    """
    folder, path = load_bilm(model), Path(expected)
    files = _vector_files(path)
    lists = _read_sentences(Path(sentences)) if sentences else _find_sentences(path, files)
    rows = [sentence for batch in zip(*lists, strict=False) for sentence in batch]  # one of each list in turn
    size = (batch_size or len(files) or 1) if state == "stateful" else None
    layers = (
        _read_layers(folder, files, lists) if files else _embed(folder, load_bilm(path), rows, state, size)
    )
    if not any(rows):
        raise DataError(
            f"{sentences or 'What to compare with'} holds no word, so there is nothing to compare.",
            remedy="Give sentences with words in them.",
        )
    is_table = folder.model.config.input == "word"
    embeddings = Elmo(folder).embed(rows, state=state, batch_size=size)
    differences = _compare("words" if is_table else "characters", embeddings.layers, layers)
    if not is_table:
        with tempfile.TemporaryDirectory(prefix="elmokit-") as work:
            write_token_cache(folder, (word for row in rows for word in row), Path(work) / "cache")
            cached = Elmo(folder, token_cache=TokenCache.open(Path(work) / "cache", folder))
            embeddings = cached.embed(rows, state=state, batch_size=size)
            differences += _compare("cached tokens", embeddings.layers, layers)
            del cached
    return Verification(differences, tolerance, len(rows), state, size)


def _compare(path: str, ours: list[FloatArray], expected: list[Layers]) -> list[Difference]:
    rows = []
    for layer in sorted({layer for each in expected for layer in each}):
        pairs = [
            (mine[:, layer], each[layer]) for mine, each in zip(ours, expected, strict=True) if layer in each
        ]
        theirs = np.concatenate([each for _, each in pairs]).astype(np.float64)
        apart = np.concatenate([mine for mine, _ in pairs]) - theirs
        absolute = relative = math.inf
        if np.isfinite(apart).all():
            lengths = np.linalg.norm(apart, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = np.where(lengths == 0.0, 0.0, lengths / np.linalg.norm(theirs, axis=1))
            absolute, relative = float(np.abs(apart).max(initial=0.0)), float(shares.max(initial=0.0))
        rows.append(Difference(path, layer, absolute, relative, len(apart)))
    return rows


def _vector_files(path: Path) -> list[Path]:
    """The HDF5 files of vectors that a path names; none if it names a model."""
    if not path.exists():
        raise DataError(
            f"There is no file or folder {path}.",
            remedy="Give expected vectors (an HDF5 file, a folder) or another model.",
        )
    if path.is_file():
        return [path] if path.suffix.lower() in _HDF5 and "weights" not in path.name.lower() else []
    if kind_of(path) is not None:
        return []
    files = [
        file for file in path.glob("*") if "embeddings" in file.name.lower() and file.suffix.lower() in _HDF5
    ]
    return sorted(files, key=lambda file: [int(part) for part in re.findall(r"\d+", file.name)])


def _find_sentences(path: Path, files: list[Path]) -> list[Sentences]:
    """Sentences beside the vectors or in their file; bundled ones for another model."""
    if not files:
        pipeline = TextPipeline(TextConfig())
        bundled = (sentence for text in TextSource(mini_news()) for sentence in split_sentences(text))
        return [[pipeline.words(sentence) for sentence in islice(bundled, _N_SENTENCES)]]
    if path.is_dir():
        lists = [file for file in path.glob("*.json") if "sentences" in file.name.lower()]
        if len(lists) != 1:
            raise DataError(
                f"{path} holds expected vectors ({files[0].name}), but not just one list of sentences "
                "(*sentences*.json) to go with them.",
                remedy="Name the list with --sentences.",
            )
        return _read_sentences(lists[0])
    with open_arrays(path) as file:
        try:
            is_named = file.shape("sentence_to_index") is not None
            places: Any = file.read_json("sentence_to_index") if is_named else None
            by_place = {int(place): str(sentence) for sentence, place in places.items()}
            return [[by_place[place].split() for place in range(len(by_place))]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} does not say which sentences it holds: sentence_to_index must number them from 0.",
                remedy="Name a list of them with --sentences.",
            ) from error


def _embed(
    folder: BilmFolder, other: BilmFolder, rows: Sentences, state: State, size: int | None
) -> list[Layers]:
    """What another model gives for the same sentences."""
    ours, theirs = folder.model.config, other.model.config
    if (ours.dim, ours.n_layers) != (theirs.dim, theirs.n_layers):
        raise ModelError(
            f"The models differ in shape: {ours.n_layers} layers of width {ours.dim} here, "
            f"{theirs.n_layers} of width {theirs.dim} there.",
            remedy="Compare a model with one that it was converted from or to.",
        )
    embeddings = Elmo(other).embed(rows, state=state, batch_size=size)
    return [dict(enumerate(each.transpose(1, 0, 2))) for each in embeddings.layers]


def _read_layers(folder: BilmFolder, files: Sequence[Path], lists: list[Sentences]) -> list[Layers]:
    """Vectors in HDF5 files, one for each list of sentences, which are read in turn."""
    if len(lists) != len(files):
        raise DataError(
            f"There are {len(lists)} lists of sentences for {len(files)} files of vectors "
            f"({files[0].name} ...).",
            remedy="Each file needs the list that it was made from, in the same order.",
        )
    if len({len(rows) for rows in lists}) > 1:
        raise DataError(
            "The lists of sentences are not all of one length.", remedy="Each batch takes one of each."
        )
    columns = [list(_read_file(folder, file, rows)) for file, rows in zip(files, lists, strict=True)]
    return [each for batch in zip(*columns, strict=True) for each in batch]


def _read_file(folder: BilmFolder, path: Path, rows: Sentences) -> Iterator[Layers]:
    """The expected layers of each sentence: all, or the top one, directions side by side or separate."""
    dim, n_layers = folder.model.config.dim, folder.model.config.n_layers + 1
    with open_arrays(path) as file:
        for index, row in enumerate(rows):
            shape = file.shape(str(index))
            if shape is None:
                raise DataError(
                    f"{path} has no dataset {str(index)!r}, though there are {len(rows)} sentences.",
                    remedy="Give the sentences that the file was made from.",
                )
            whole, separate, top = (n_layers, len(row), 2 * dim), (2, len(row), dim), (len(row), 2 * dim)
            if shape not in (whole, separate, top):
                raise DataError(
                    f"{path}: dataset {index} has shape {shape}; for its {len(row)} words this model gives "
                    f"{whole} or {separate} or {top}.",
                    remedy="Check that sentences and model are those that the file was made from.",
                )
            values = file.read(str(index))
            if shape == whole:
                yield dict(enumerate(values))
            else:
                yield {n_layers - 1: np.concatenate(list(values), axis=1) if shape == separate else values}


def _read_sentences(path: Path) -> list[Sentences]:
    """Lists of sentences as words: one list from a text file, one or more from JSON."""
    try:
        text = path.read_bytes().decode("utf-8")
        if path.suffix.lower() != ".json":
            return [[line.split() for line in text.splitlines() if line.strip()]]
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as a list of sentences: {error}.",
            remedy="Give a text file with a sentence per line, or a JSON list of sentences.",
        ) from error
    lists: list[Any] = content if isinstance(content, list) and content else [None]
    if not all(isinstance(each, list) and " " in "".join(map(str, each)) for each in lists):
        lists = [lists]  # a list of sentences, not of such lists
    rows = [[one.split() if isinstance(one, str) else one for one in each] for each in lists]
    if not all(
        isinstance(one, list) and all(isinstance(word, str) for word in one) for each in rows for one in each
    ):
        raise DataError(
            f"{path} is not a list of sentences.",
            remedy='Write ["words of one", "words of the next"], or a list of such lists, one for each row.',
        )
    return rows
