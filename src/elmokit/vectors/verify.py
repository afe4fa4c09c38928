"""``verify``: compare the vectors of a model with expected ones, layer by layer."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
Sentences = list[list[str]]


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
    """The result of ``verify``: the differences of each path and layer."""

    differences: list[Difference]
    tolerance: float  # what is allowed, absolute or relative
    n_sentences: int
    state: str
    batch_size: int | None  # sentences side by side; None unless state is carried over

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
    if files and (len(lists) != len(files) or len(set(map(len, lists))) > 1):
        raise DataError(
            f"The {len(lists)} lists of sentences do not match the {len(files)} files of vectors "
            f"({files[0].name} ...).",
            remedy="Each file needs the list that it was made from, in the same order; all of one length.",
        )
    rows = [sentence for batch in zip(*lists, strict=False) for sentence in batch]  # one of each list in turn
    if not any(rows):
        raise DataError(
            f"{sentences or 'The reference'} contains no words, so there is nothing to compare.",
            remedy="Give sentences with words in them.",
        )
    size = (batch_size or len(files) or 1) if state == "stateful" else None
    if files:
        expected_layers = _read_layers(folder, files, rows)
    else:
        other = load_bilm(path)
        ours, theirs = folder.model.config, other.model.config
        if (ours.dim, ours.n_layers) != (theirs.dim, theirs.n_layers):
            raise ModelError(
                f"The models differ in shape: {ours.n_layers} layers of width {ours.dim} here, "
                f"{theirs.n_layers} of width {theirs.dim} there.",
                remedy="Compare a model with one that it was converted from or to.",
            )
        expected_layers = Elmo(other).embed(rows, state=state, batch_size=size).flat

    def compare(name: str, cache: TokenCache | None = None) -> list[Difference]:
        flat = Elmo(folder, token_cache=cache).embed(rows, state=state, batch_size=size).flat
        return _compare(name, flat, expected_layers)

    if folder.model.config.input == "word":
        return Verification(compare("words"), tolerance, len(rows), state, size)
    with tempfile.TemporaryDirectory(prefix="elmokit-") as work:
        write_token_cache(folder, itertools.chain.from_iterable(rows), Path(work) / "cache")
        cached = compare("cached tokens", TokenCache.open(Path(work) / "cache", folder))
    return Verification(compare("characters") + cached, tolerance, len(rows), state, size)


def _compare(path: str, ours: FloatArray, expected: FloatArray) -> list[Difference]:
    """The largest differences in each of the upper layers that are expected, all (n_words, layer, dim)."""
    first = ours.shape[1] - expected.shape[1]
    theirs = expected.astype(np.float64)
    apart = ours[:, first:] - theirs
    lengths = np.linalg.norm(apart, axis=2)  # (n_words, layer)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(lengths == 0.0, 0.0, lengths / np.linalg.norm(theirs, axis=2))
    largest = zip(np.abs(apart).max(axis=(0, 2)).tolist(), shares.max(axis=0).tolist(), strict=True)
    return [Difference(path, layer, *pair, len(apart)) for layer, pair in enumerate(largest, start=first)]


def _vector_files(path: Path) -> list[Path]:
    """The HDF5 files of vectors that a path names; none if it names a model."""
    if path.suffix.lower() in (".hdf5", ".h5") and "weights" not in path.name.lower():
        return [path]
    files = path.glob("*embeddings*.hdf5") if kind_of(path) is None else ()
    return sorted(files, key=lambda file: list(map(int, re.findall(r"\d+", file.name))))


def _find_sentences(path: Path, files: list[Path]) -> list[Sentences]:
    """Sentences beside the vectors or in their file; bundled ones for another model."""
    if not files:
        pipeline = TextPipeline(TextConfig())
        bundled = (sentence for text in TextSource(mini_news()) for sentence in split_sentences(text))
        return [[pipeline.words(sentence) for sentence in itertools.islice(bundled, _N_SENTENCES)]]
    if path.is_dir():
        lists = list(path.glob("*sentences*.json"))
        if len(lists) != 1:
            raise DataError(
                f"{path} holds expected vectors ({files[0].name}), but not exactly one list of sentences "
                "(*sentences*.json) to go with them.",
                remedy="Name the list with --sentences.",
            )
        return _read_sentences(lists[0])
    with open_arrays(path) as file:
        try:
            places: Any = file.read_json("sentence_to_index") if "sentence_to_index" in file.shapes else None
            by_place = {int(place): str(sentence) for sentence, place in places.items()}
            return [[by_place[place].split() for place in range(len(by_place))]]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path} does not say which sentences it holds: sentence_to_index must number them from 0.",
                remedy="Name a list of them with --sentences.",
            ) from error


def _read_sentences(path: Path) -> list[Sentences]:
    """Lists of sentences as words: one list from a text file, one or more from JSON."""
    try:
        text = path.read_text(encoding="utf-8")
        is_json = path.suffix.lower() == ".json"
        lists = json.loads(text) if is_json else [line for line in text.splitlines() if line.strip()]
        if not isinstance(lists, list):
            raise ValueError("it is not a list")
        lists = lists if lists and isinstance(lists[0], list) else [lists]
        return [[sentence.split() for sentence in sentences] for sentences in lists]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as a list of sentences: {error}.",
            remedy='Give a sentence per line, or JSON: ["words of one", "words of the next"], or a list of '
            "such lists, one for each row of the batch.",
        ) from error


def _read_layers(folder: BilmFolder, files: Sequence[Path], rows: Sentences) -> FloatArray:
    """The expected layers of all words, (n_words, layer, 2 dim): all, or the top one, whose directions may be
    separate. The sentences are taken from the files in turn."""
    dim, n_layers = folder.model.config.dim, folder.model.config.n_layers + 1
    expected: list[FloatArray] = []
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_arrays(file)) for file in files]
        for place, words in enumerate(rows):
            index, file, n_words = place // len(files), opened[place % len(files)], len(words)
            shape = file.shapes.get(str(index))
            whole, separate, top = (n_layers, n_words, 2 * dim), (2, n_words, dim), (n_words, 2 * dim)
            if shape not in (whole, separate, top):
                problem = "is missing" if shape is None else f"has shape {shape}"
                raise DataError(
                    f"{file.path}: dataset {index} {problem}; for its {n_words} words this model gives "
                    f"{whole} or {separate} or {top}.",
                    remedy="Check that sentences and model are those that the file was made from.",
                )
            values = file.read(str(index))
            if shape == separate:
                values = np.concatenate(list(values), axis=1)
            expected.append(values.transpose(1, 0, 2) if shape == whole else values[:, None])
    if len({each.shape[1] for each in expected}) > 1:
        raise DataError(
            f"{files[0]} holds all layers of some sentences only.",
            remedy="Recreate it with the same layers for all sentences.",
        )
    return np.concatenate(expected)
