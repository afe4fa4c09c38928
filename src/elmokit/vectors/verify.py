"""Whether a model gives the vectors that it should: layer by layer, the largest difference."""

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
from elmokit.published.hdf5 import ArrayFile, open_arrays
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline, split_sentences
from elmokit.vectors.elmo import Elmo, State
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.word_cache import TokenCache, write_token_cache

__all__ = ["Difference", "Verification", "verify"]

TOLERANCE = 1e-5
_N_SENTENCES = 30
_HDF5 = (".hdf5", ".h5")


@dataclass(frozen=True)
class Difference:
    """How far one layer is from what was expected.

    Attributes:
        path: how word vectors came about: "characters" (or "words"), or "cached tokens".
        layer: 0 is the token encoder.
        absolute: the largest difference of two numbers.
        relative: the largest length of a difference of two word vectors, as a share of the expected one's.
        n_words: words that were compared.
    """

    path: str
    layer: int
    absolute: float
    relative: float
    n_words: int


@dataclass(frozen=True)
class Verification:
    """What ``verify`` found.

    Attributes:
        differences: of each path and layer.
        tolerance: what is allowed, absolute or relative.
        n_sentences: sentences that were compared.
        state: where sentences started.
        batch_size: sentences side by side; None if state is not carried on, and so it does not matter.
    """

    differences: list[Difference]
    tolerance: float
    n_sentences: int
    state: str
    batch_size: int | None

    @property
    def passed(self) -> bool:
        """Whether each layer is within the tolerance."""
        return all(min(row.absolute, row.relative) <= self.tolerance for row in self.differences)

    def to_dict(self) -> dict[str, Any]:
        """All as plain values; what is not finite is null."""
        values = asdict(self)
        for row in values["differences"]:
            row |= {
                name: row[name] if math.isfinite(row[name]) else None for name in ("absolute", "relative")
            }
        return {**values, "passed": self.passed}


@dataclass(frozen=True)
class _Expected:
    """Sentences in the order in which they are read, and what each should give: layer -> (n_words, 2 dim)."""

    sentences: list[list[str]]
    layers: list[dict[int, Floats]]
    batch_size: int


def verify(
    model: str | Path | BilmFolder,
    expected: str | Path | BilmFolder,
    *,
    state: State = "stateful",
    batch_size: int | None = None,
    sentences: str | Path | None = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """Compare the vectors of ``model`` with those expected.

    Args:
        model: any model that can be opened.
        expected: vectors that another program made, or another model:
            a folder with ``*sentences*.json`` and ``*embeddings*.hdf5`` (one file for each row of the batch),
            an HDF5 file with a dataset for each sentence ("0", "1", ...), or a model folder.
        state: where sentences start; the published programs carry state on ("stateful").
        batch_size: sentences side by side, which matters where state is carried on; as the files are laid
            out, else 1.
        sentences: text that goes with an HDF5 file or another model: a sentence a line, words between spaces;
            or JSON. Left out, it is looked for in the file, or some bundled sentences are taken.
        tolerance: largest difference, absolute or relative, that passes.
    """
    saved = model if isinstance(model, BilmFolder) else load_bilm(model)
    wanted = _expected(saved, expected, state, batch_size, sentences)
    if not any(wanted.sentences):
        raise DataError(
            f"{sentences or 'What to compare with'} holds no word, so that there is nothing to compare.",
            remedy="Give sentences with words in them.",
        )
    size = (batch_size or wanted.batch_size) if state == "stateful" else None
    is_table = saved.model.config.input == "word"
    differences = _differences("words" if is_table else "characters", Elmo(saved), wanted, state, size)
    if not is_table:
        with tempfile.TemporaryDirectory(prefix="elmokit-") as work:
            folder = Path(work) / "cache"
            write_token_cache(saved, (word for row in wanted.sentences for word in row), folder)
            cached = Elmo(saved, token_cache=TokenCache.open(folder, saved))
            differences += _differences("cached tokens", cached, wanted, state, size)
            del cached
    return Verification(differences, tolerance, len(wanted.sentences), state, size)


def _differences(
    path: str, elmo: Elmo, wanted: _Expected, state: State, size: int | None
) -> list[Difference]:
    found = elmo.embed(wanted.sentences, state=state, batch_size=size)
    rows = []
    for layer in sorted({layer for each in wanted.layers for layer in each}):
        absolute = relative = 0.0
        n_words = 0
        for index, each in enumerate(wanted.layers):
            if layer not in each:
                continue
            theirs = each[layer].astype(np.float64)
            apart = found[index][:, layer].astype(np.float64) - theirs
            n_words += len(apart)
            if not np.isfinite(apart).all():
                absolute = relative = math.inf
                continue
            lengths = np.linalg.norm(apart, axis=1), np.linalg.norm(theirs, axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = np.where(lengths[0] == 0.0, 0.0, lengths[0] / lengths[1])
            absolute = max(absolute, float(np.abs(apart).max(initial=0.0)))
            relative = max(relative, float(shares.max(initial=0.0)))
        rows.append(Difference(path, layer, absolute, relative, n_words))
    return rows


def _expected(
    saved: BilmFolder,
    expected: str | Path | BilmFolder,
    state: State,
    batch_size: int | None,
    sentences: str | Path | None,
) -> _Expected:
    given = None if sentences is None else _sentences(Path(sentences))
    if isinstance(expected, BilmFolder):
        return _from_model(saved, expected, given, state, batch_size)
    path = Path(expected)
    if path.is_file() and path.suffix.lower() in _HDF5 and "weights" not in path.name.lower():
        return _from_files(saved, [path], given)
    if path.is_dir() and kind_of(path) is None:
        files = sorted(
            (
                file
                for file in path.iterdir()
                if file.suffix.lower() in _HDF5 and "embeddings" in file.name.lower()
            ),
            key=lambda file: [int(part) for part in re.findall(r"\d+", file.name)],
        )
        lists = sorted(file for file in path.glob("*.json") if "sentences" in file.name.lower())
        if files:
            if given is None and len(lists) != 1:
                raise DataError(
                    f"{path} holds expected vectors ({files[0].name}), but not just one list of sentences "
                    "(*sentences*.json) to go with them.",
                    remedy="Name the list with --sentences.",
                )
            return _from_files(saved, files, given if given is not None else _sentences(lists[0]))
    if not path.exists():
        raise DataError(
            f"There is no file or folder {path}.",
            remedy="Give expected vectors (an HDF5 file, a folder) or another model.",
        )
    return _from_model(saved, load_bilm(path), given, state, batch_size)


def _from_model(
    saved: BilmFolder,
    other: BilmFolder,
    given: list[list[list[str]]] | None,
    state: State,
    batch_size: int | None,
) -> _Expected:
    """What another model gives for the same sentences."""
    ours, theirs = saved.model.config, other.model.config
    if (ours.dim, ours.n_layers) != (theirs.dim, theirs.n_layers):
        raise ModelError(
            f"The models have other shapes: {ours.n_layers} layers of width {ours.dim} here, "
            f"{theirs.n_layers} of width {theirs.dim} there.",
            remedy="Compare a model with one that it was converted from or to.",
        )
    rows = _merged(given) if given is not None else _bundled()
    size = (batch_size or 1) if state == "stateful" else None
    found = Elmo(other).embed(rows, state=state, batch_size=size)
    layers = [{depth: each[:, depth] for depth in range(found.n_layers)} for each in found.layers]
    return _Expected(rows, layers, batch_size or 1)


def _from_files(saved: BilmFolder, files: Sequence[Path], given: list[list[list[str]]] | None) -> _Expected:
    """Vectors in HDF5 files, one for each list of sentences."""
    if given is None:
        with open_arrays(files[0]) as file:
            given = [_indexed(file)]
    if len(given) != len(files):
        raise DataError(
            f"There are {len(given)} lists of sentences for {len(files)} files of vectors "
            f"({files[0].name} ...).",
            remedy="Each file needs the list that it was made from, in the same order.",
        )
    columns = [list(_arrays(saved, file, rows)) for file, rows in zip(files, given, strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise DataError(
            "The lists of sentences are not all of one length.", remedy="Each batch takes one of each."
        )
    # The batch is one sentence of each list.
    layers = [column[index] for index in range(len(columns[0])) for column in columns]
    return _Expected(_merged(given), layers, len(files))


def _arrays(saved: BilmFolder, path: Path, rows: Sequence[Sequence[str]]) -> Iterator[dict[int, Floats]]:
    """The expected layers of each sentence: all of them, or the top one, directions side by side or apart."""
    dim, n_layers = saved.model.config.dim, saved.model.config.n_layers + 1
    with open_arrays(path) as file:
        for index, row in enumerate(rows):
            if file.shape(str(index)) is None:
                raise DataError(
                    f"{path} has no dataset {str(index)!r}, though there are {len(rows)} sentences.",
                    remedy="Give the sentences that the file was made from.",
                )
            shape = file.shape(str(index))
            known = {
                (n_layers, len(row), 2 * dim): "all",
                (2, len(row), dim): "apart",
                (len(row), 2 * dim): "top",
            }
            if shape not in known:
                raise DataError(
                    f"{path}: dataset {index} has shape {shape}; for its {len(row)} words this model gives "
                    f"{' or '.join(map(str, known))}.",
                    remedy="Check that sentences and model are those that the file was made from.",
                )
            values = file.read(str(index))
            if known[shape] == "all":
                yield dict(enumerate(values))
            else:
                top = np.concatenate(list(values), axis=1) if known[shape] == "apart" else values
                yield {n_layers - 1: top}


def _indexed(file: ArrayFile) -> list[list[str]]:
    """The sentences that a file itself names, as the program of AllenNLP writes them."""
    if file.shape("sentence_to_index") is None:
        raise DataError(
            f"{file.path} does not say which sentences it holds.",
            remedy="Name a list of them with --sentences.",
        )
    places = file.read_json("sentence_to_index")
    try:
        by_place = {int(place): str(sentence) for sentence, place in places.items()}
        return [by_place[place].split() for place in range(len(by_place))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{file.path}: sentence_to_index does not number its sentences from 0.",
            remedy="Name a list of them with --sentences.",
        ) from error


def _sentences(path: Path) -> list[list[list[str]]]:
    """Lists of sentences as words: one list from a text file, one or more from JSON."""
    try:
        text = path.read_bytes().decode("utf-8")
        if path.suffix.lower() != ".json":
            return [[line.split() for line in text.splitlines() if line.strip()]]
        found = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as a list of sentences: {error}.",
            remedy="Give a text file with a sentence a line, or a JSON list of sentences.",
        ) from error

    def words(sentence: Any) -> list[str]:
        if isinstance(sentence, str):
            return sentence.split()
        if isinstance(sentence, list) and all(isinstance(word, str) for word in sentence):
            return sentence
        raise DataError(
            f"{path} is not a list of sentences.",
            remedy='Write ["words of one", "words of the next"], or a list of such lists, one for each row.',
        )

    if not isinstance(found, list) or not found:
        words(None)
    if all(isinstance(each, list) and " " in "".join(map(str, each)) for each in found):
        return [[words(sentence) for sentence in each] for each in found]
    return [[words(sentence) for sentence in found]]


def _merged(lists: list[list[list[str]]]) -> list[list[str]]:
    """One sentence of each list in turn."""
    return [rows[index] for index in range(min(map(len, lists))) for rows in lists]


def _bundled() -> list[list[str]]:
    pipeline = TextPipeline(TextConfig())
    sentences = (sentence for text in TextSource(mini_news()) for sentence in split_sentences(text))
    return [pipeline.words(sentence) for sentence in islice(sentences, _N_SENTENCES)]
