"""Published ELMo models: ``options.json`` + ``weights.hdf5`` (+ ``vocab.txt``), in and out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.core.atomic import staging, write_text
from elmokit.core.errors import ModelError
from elmokit.published.hdf5 import ArrayFile, open_arrays, require_h5py, write_arrays
from elmokit.published.layout import Floats, layout
from elmokit.published.options import checked_layout, model_config, options_of, read_options
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, TextPipeline
from elmokit.text.vocabulary import N_CHARACTERS, Vocabulary

__all__ = [
    "TEXT",
    "THEIR_SPECIALS",
    "OfficialFiles",
    "find_official",
    "load_official",
    "read_vocabulary",
    "save_official",
]

TEXT = TextConfig(unicode="none", unit="sentence")
"""How raw text becomes words unless something else is asked for: as it stands, cut by rule."""
THEIR_SPECIALS = {"<S>": BOS, "</S>": EOS, "<UNK>": UNK}
_NO_WORD = "!!!MAXTERMID"  # a line of some vocabulary files that is not a word
_HDF5 = (".hdf5", ".h5")


@dataclass(frozen=True)
class OfficialFiles:
    """The files of one published model."""

    options: Path
    weights: Path
    vocabulary: Path | None


def find_official(path: Path) -> OfficialFiles | None:
    """The files of the published model meant by a folder, an options file or a weight file; None if
    ``path`` is nothing of the kind. Half a model, or several in one folder, is an error."""
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix.lower() not in (".json", *_HDF5):
        return None
    if not path.exists():
        return None
    files = sorted(file for file in folder.iterdir() if file.is_file())
    if path.is_file() and path.suffix.lower() == ".json":
        options = [path]
    else:
        options = [
            file for file in files if file.suffix.lower() == ".json" and "options" in file.name.lower()
        ]
    if path.is_file() and path.suffix.lower() in _HDF5:
        weights = [path]
    else:
        named = [file for file in files if file.suffix.lower() in _HDF5]
        weights = [file for file in named if "weights" in file.name.lower()] or (
            named if len(named) == 1 else []
        )
    if path.is_dir() and not options and not weights:
        return None
    if not options or not weights:
        there, lacking = (
            (weights, "options (*options*.json)") if weights else (options, "weights (*weights*.hdf5)")
        )
        raise ModelError(
            f"{folder} holds {', '.join(file.name for file in there)} but no {lacking} to go with it.",
            remedy="A published ELMo model is options.json and weights.hdf5: put both in one folder.",
        )
    pairs = [(o, w) for o in options for w in weights if _stem(o) == _stem(w)]
    if len(options) == len(weights) == 1:
        pairs = [(options[0], weights[0])]
    if len(pairs) != 1:
        shown = ", ".join(file.name for file in [*options, *weights])
        raise ModelError(
            f"{folder} holds more than one model, or files whose names do not tell which belong together: "
            f"{shown}.",
            remedy="Give the options file that you mean, as NAME_options.json beside NAME_weights.hdf5.",
        )
    vocabularies = [file for file in files if "vocab" in file.name.lower() and file.suffix.lower() == ".txt"]
    exact = [file for file in vocabularies if file.name.lower() == "vocab.txt"]
    chosen = exact or (vocabularies if len(vocabularies) == 1 else [])
    return OfficialFiles(*pairs[0], chosen[0] if chosen else None)


def _stem(file: Path) -> str:
    """A name without its ending and the words that tell options from weights."""
    return file.stem.lower().replace("options", "").replace("weights", "").strip("._-")


def load_official(
    path: str | Path, *, vocabulary: str | Path | None = None, text: TextConfig = TEXT
) -> BilmFolder:
    """Open a published model.

    Args:
        path: its folder, its options file or its weight file.
        vocabulary: its word list, if it does not lie beside them as ``vocab.txt``.
        text: how raw strings become words; lists of words are taken as they are.
    """
    files = find_official(Path(path))
    if files is None:
        raise ModelError(
            f"{path} is not a published ELMo model.",
            remedy="Give a folder that holds options.json and weights.hdf5, or one of these files.",
        )
    require_h5py()
    options = read_options(files.options)
    list_file = Path(vocabulary) if vocabulary is not None else files.vocabulary
    lines = read_vocabulary(list_file) if list_file is not None else None
    with open_arrays(files.weights) as weights:
        config, n_rows, notes = model_config(options, files.options, weights)
        entries = checked_layout(config, n_rows, files.options, weights)
        _check_words(config, n_rows, lines, list_file, files)
        tensors: dict[str, Tensor] = {}
        for entry in entries:
            values = weights.read(entry.name)
            if entry.name == "char_embed":
                values = _character_rows(values, files.weights, notes)
            for name, found in zip(entry.parameters, entry.read(values), strict=True):
                tensors[name] = torch.from_numpy(np.ascontiguousarray(found))
        notes += _unused(weights, {entry.name for entry in entries})
    words, rows = _our_words(lines or [], notes)
    if config.input == "word":
        tensors["encoder.weight"] = _our_rows(tensors["encoder.weight"], rows, notes)
    elif list_file is None:
        notes.append(
            "There is no vocab.txt beside the weights; words are read by their characters, so none is needed."
        )
    with torch.device("meta"):
        model = Bilm(config, len(words))
    model.load_state_dict(tensors, strict=True, assign=True)
    vocab = Vocabulary(words)
    source = {"format": "official", "files": [files.options.name, files.weights.name], "options": options}
    return BilmFolder(
        model.eval(),
        text,
        vocab,
        TextPipeline(text).word_tokenizer(vocab.words),
        {"source": source, "notes": notes},
    )


def read_vocabulary(path: Path) -> list[str]:
    """The words of a list, one a line, as the published tools read them."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise ModelError(
            f"Cannot read {path}: {error.strerror}.", remedy="Check the name and the folder."
        ) from error
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Give a list of words, one a line, in UTF-8.",
        ) from error
    words = [line.strip() for line in lines]
    if not words[-1]:
        words.pop()  # after the last line's end
    return [word for word in words if word != _NO_WORD]


def _check_words(
    config: BilmConfig, n_rows: int, lines: list[str] | None, list_file: Path | None, files: OfficialFiles
) -> None:
    if config.input != "word":
        return
    if lines is None:
        raise ModelError(
            f"{files.weights} is a word-input model, whose rows mean nothing without its word list, and "
            f"there is no vocab.txt in {files.weights.parent}.",
            remedy="Put the model's vocab.txt beside it, or name it with --vocab.",
        )
    if len(lines) != n_rows:
        raise ModelError(
            f"{list_file} has {len(lines):,} words, but embedding in {files.weights} has {n_rows:,} rows.",
            remedy="Give the word list that the model was trained with.",
        )


def _character_rows(table: Floats, file: Path, notes: list[str]) -> Floats:
    """The 261 rows of characters. Some files have one more: a row for "no character" in front, or one that
    no character uses at the end."""
    if len(table) == N_CHARACTERS - 1:
        return table
    in_front = not table[0].any()
    notes.append(
        f"char_embed in {file.name} has {len(table)} rows instead of {N_CHARACTERS - 1}: the "
        + ("first, all zero, stands for no character." if in_front else "last is used by no character.")
    )
    return table[1:] if in_front else table[:-1]


def _our_words(lines: list[str], notes: list[str]) -> tuple[list[str], list[int]]:
    """Our vocabulary, specials first, and the line that each word comes from; -1 for none."""
    places: dict[str, int] = {}
    lower = {name.lower(): place for name, place in THEIR_SPECIALS.items()} | {SPECIALS[PAD]: PAD}
    specials = [-1] * len(SPECIALS)
    n_twice = 0
    for line, word in enumerate(lines):
        if word in THEIR_SPECIALS:
            specials[THEIR_SPECIALS[word]] = line
        elif word not in lower:
            n_twice += word in places
            places[word] = line  # of two equal words the published tools take the last
    for line, word in enumerate(lines):
        if word in lower and specials[lower[word]] < 0:
            specials[lower[word]] = line
    if n_twice:
        notes.append(f"{n_twice:,} words stand in the word list more than once; the last place counts.")
    ordered = sorted(places, key=places.__getitem__)
    return [*SPECIALS, *ordered], [*specials, *(places[word] for word in ordered)]


def _our_rows(table: Tensor, rows: list[int], notes: list[str]) -> Tensor:
    """A word table in our order; a special word that the list lacks gets a row of zeros."""
    index = torch.tensor(rows)
    found = table[index.clamp(min=0)] * (index >= 0).unsqueeze(1)
    lacking = [SPECIALS[place] for place in (UNK, BOS, EOS) if rows[place] < 0]
    if lacking:
        notes.append(f"The word list lacks {', '.join(lacking)}: a vector of zeros stands for it.")
    return found


def _unused(weights: ArrayFile, used: set[str]) -> list[str]:
    tops = {name.split("/")[0] for name in used}
    extra = sorted(set(weights.names()) - tops)
    return [f"{weights.path.name} also holds {', '.join(extra)}, which is not used."] if extra else []


def save_official(folder: str | Path, saved: BilmFolder) -> list[str]:
    """Write a model as ``options.json``, ``weights.hdf5`` and ``vocab.txt`` for tools that read these.

    Returns:
        What a person should know: what the format cannot hold, or some tools cannot read.
    """
    folder, config = Path(folder), saved.model.config
    if config.input not in ("char", "word"):
        raise ModelError(
            f"A model with {config.input} input cannot be written as a published ELMo model: that format "
            "knows character input (bytes) and word tables only.",
            remedy="Pretrain with --input char or --input word to have a model that can be exported.",
        )
    require_h5py()
    words, rows = _their_words(saved.vocabulary)
    parameters = dict(saved.model.named_parameters())
    entries = layout(config, len(rows))

    def arrays() -> Iterator[tuple[str, Floats]]:
        for entry in entries:
            values: list[Any] = [parameters[name].detach().numpy() for name in entry.parameters]
            if entry.name == "embedding":
                values = [values[0][rows]]
            yield entry.name, entry.write(*values)

    source = saved.training.get("source") or {}
    more = source.get("options") if source.get("format") == "official" else None
    n_bytes = 4 * sum(math.prod(entry.shape) for entry in entries)
    options = json.dumps(options_of(config, more), indent=2, ensure_ascii=False) + "\n"
    with staging(folder, "options.json") as staged:
        write_arrays(staged / "weights.hdf5", arrays(), n_bytes)
        write_text(staged / "vocab.txt", "".join(f"{word}\n" for word in words))
        write_text(staged / "options.json", options)
    return _lost(saved)


def _their_words(vocabulary: Vocabulary) -> tuple[list[str], list[int]]:
    """The lines of their word list, and the place in ours that each has."""
    words, rows = list(THEIR_SPECIALS), list(THEIR_SPECIALS.values())
    for place, word in enumerate(vocabulary.words[len(SPECIALS) :], start=len(SPECIALS)):
        if word not in THEIR_SPECIALS and word.strip() == word and word != _NO_WORD:
            words.append(word)
            rows.append(place)
    return words, rows


def _lost(saved: BilmFolder) -> list[str]:
    config, notes = saved.model.config, []
    if config.objective != "none":
        notes.append("The word predictor is left out: the format has no place for it.")
    if saved.start_state is not None:
        notes.append("The start state is left out: the format has no place for it.")
    if saved.text != TEXT:
        notes.append(
            "How text was cleaned and cut into words is left out: give the other tool the same words."
        )
    total = sum(count for _, count in config.filters)
    if config.hidden_dim <= config.dim:
        notes.append(
            "The LSTMs do not project to a narrower width; AllenNLP reads projected models only"
            + (", and so does bilm-tf." if config.hidden_dim < config.dim else ".")
        )
    if not config.residual:
        notes.append("The layers are not residual; AllenNLP reads residual models only.")
    if config.input == "word":
        notes.append("Words go in by a table; AllenNLP reads models with character input only.")
    if config.input == "char" and total <= config.dim:
        notes.append("The filters are no wider than a layer; the other tools expect them to be wider.")
    return notes
