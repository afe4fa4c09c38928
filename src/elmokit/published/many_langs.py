"""ELMoForManyLangs models: ``config.json``, ``encoder.pkl``, ``token_embedder.pkl``, ``char.dic``,
``word.dic``.

The two pickles are state dictionaries and are read by ``torch.load(weights_only=True)``, which runs no code.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import models
from torch import Tensor

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
from elmokit.core.tensors import check_tensors
from elmokit.published.hdf5 import FRESH_FILE
from elmokit.published.layout import CHAR_TABLE, WORD_TABLE, many_langs_layout
from elmokit.published.options import SAME_PLACE, read_options
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import (
    BOS_CHAR,
    CHAR_PAD,
    EOS_CHAR,
    NO_CHAR,
    UNKNOWN_CHAR,
    WORD_END,
    WORD_START,
    Vocabulary,
)

_FILES = ("encoder.pkl", "token_embedder.pkl")
_THEIR_SPECIALS = ("<pad>", "<oov>", "<bos>", "<eos>")  # in the order of ours
# Their programs use <eow> for the start of a word and <bow> for its end, in training and later.
_MARKS = {WORD_START: "<eow>", WORD_END: "<bow>", BOS_CHAR: "<bos>", EOS_CHAR: "<eos>", UNKNOWN_CHAR: "<oov>"}


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dictionary that ``torch.save`` wrote, as float32; no code in it is run."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(
            f"Cannot read {path}: {error.strerror or error}.", remedy="Check the path."
        ) from error
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} is a pickle with more than tensors, which could run any code; it was not loaded.",
            remedy="Only plain state dictionaries are read. If you trust the file, save its tensors again.",
        ) from error
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise ModelError(f"{path} cannot be read as saved tensors: {error!r}.", remedy=FRESH_FILE) from error
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
        for value in content.values()
    ):
        raise ModelError(f"{path} does not hold a dictionary of plain tensors.", remedy=FRESH_FILE)
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in content.items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor.sum(dtype=torch.float64)):
            raise ModelError(f"{path}: {name} holds numbers that are not finite.", remedy=FRESH_FILE)
    return tensors


def is_many_langs(folder: Path) -> bool:
    """True if this looks like such a folder."""
    return any((folder / name).exists() for name in _FILES)


def load_many_langs(folder: Path, *, text: TextConfig) -> BilmFolder:
    """Open such a folder; ``text`` says how raw strings become words."""
    notes: list[str] = []
    settings = _settings(folder, notes)
    theirs = read_state_dict(folder / _FILES[0]) | read_state_dict(folder / _FILES[1])
    config = _config(folder, settings, theirs)
    words = _read_list(folder / "word.dic", ["<oov>"]) if WORD_TABLE in theirs else {}
    chars = _read_list(folder / "char.dic", [*_MARKS.values(), CHAR_PAD]) if CHAR_TABLE in theirs else {}
    tables = {WORD_TABLE: words, CHAR_TABLE: chars}
    n_rows = {name: max(rows.values()) + 1 for name, rows in tables.items() if rows}
    word_dim = _size(theirs, WORD_TABLE, 1)
    layout = many_langs_layout(config, n_rows, word_dim)
    with torch.device("meta"):
        check_tensors(folder, {entry.name: torch.empty(entry.shape) for entry in layout}, theirs)
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for entry in layout
        if entry.parameters
        for name, array in zip(entry.parameters, entry.read(theirs[entry.name].numpy()), strict=True)
    }
    others = sorted(set(words).difference(_THEIR_SPECIALS, SPECIALS), key=words.__getitem__)
    vocabulary, pipeline = Vocabulary([*SPECIALS, *others]), TextPipeline(text)
    projection, bias = theirs["projection.weight"], theirs["projection.bias"]
    table = torch.zeros(len(vocabulary), config.dim)
    if words:
        rows = torch.tensor([words.get(name, -1) for name in (*_THEIR_SPECIALS, *others)])
        table = theirs[WORD_TABLE][rows.clamp(min=0)] @ projection[:, :word_dim].t()
        table = table * (rows >= 0).unsqueeze(1)
    listed: list[str] = []
    if chars:
        single = sorted((name for name in chars if len(name) == 1), key=chars.__getitem__)
        listed = [NO_CHAR, *_MARKS, *single, CHAR_PAD]
        characters = theirs[CHAR_TABLE][[chars.get(_MARKS.get(name, name), 0) for name in listed]]
        characters[0] = 0.0
        tensors |= {
            "encoder.weight": characters,
            "encoder.projection.weight": projection[:, word_dim:].contiguous(),
            "encoder.projection.bias": bias,
            "encoder.words": table,
        }
        places = {name: place for place, name in enumerate(listed)}
        tokenizer = pipeline.tokenizer(models.WordLevel(places, unk_token=UNKNOWN_CHAR))
    else:
        tensors["encoder.weight"] = table + bias
        tokenizer = pipeline.word_tokenizer(vocabulary.words)
    with torch.device("meta"):
        model = Bilm(config, len(vocabulary), len(listed))
    model.load_state_dict(tensors, strict=True, assign=True)
    source = {"format": "ELMoForManyLangs", "files": ["config.json", *_FILES], "options": settings}
    return BilmFolder(model.eval(), text, vocabulary, tokenizer, {"source": source, "notes": notes})


def _settings(folder: Path, notes: list[str]) -> dict[str, Any]:
    """The settings file that config.json names, if it is in the folder."""
    record = read_options(folder / "config.json")
    if "encoder" in record and "token_embedder" in record:
        return record
    name = str(record.get("config_path", "")).replace("\\", "/").rpartition("/")[2]
    for place in (folder, folder / "configs", folder.parent / "configs"):
        if name != "config.json" and place.is_dir() and name in os.listdir(place):
            return read_options(place / name)
    notes.append(
        f"config.json names the settings file {record.get('config_path')!r}, which is not here. Widths are "
        "read from the weights; clips of 3, relu and 50 characters are assumed, as in all published models."
    )
    return {}


def _config(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> BilmConfig:
    lstm, token = settings.get("encoder") or {}, settings.get("token_embedder") or {}
    if not isinstance(lstm, Mapping) or not isinstance(token, Mapping):
        raise ModelError(f"{folder}: the model's settings are not objects.", remedy=SAME_PLACE)
    projection = "forward_layer_0.state_projection.weight"
    if (dim := _size(tensors, projection, 0)) == _size(tensors, projection, 1) > 0:
        raise ModelError(
            f"{folder / _FILES[0]} projects {dim} cells to {dim}, which is not supported.",
            remedy="Use a model that projects to another width, as all published ones do.",
        )
    values: dict[str, Any] = {
        "objective": "none",
        "residual": True,
        "n_layers": _count(tensors, "forward_layer_{}.input_linearity.weight"),
        "hidden_dim": _size(tensors, "forward_layer_0.input_linearity.weight", 0) // 4,
        "dim": dim,
        "cell_clip": lstm.get("cell_clip", 3) or None,
        "proj_clip": lstm.get("proj_clip", 3) or None,
        "input": "word",
    }
    if CHAR_TABLE in tensors:
        kernels = [f"convolutions.{n}.weight" for n in range(_count(tensors, "convolutions.{}.weight"))]
        values |= {
            "input": "dictionary",
            "char_dim": _size(tensors, CHAR_TABLE, 1),
            "filters": [(_size(tensors, name, 2), _size(tensors, name, 0)) for name in kernels],
            "n_highway": _count(tensors, "highways._layers.{}.weight"),
            "max_chars": token.get("max_characters_per_token", 50),
            "char_activation": token.get("activation", "relu"),
        }
    try:
        return BilmConfig.from_dict(values)
    except ConfigError as error:
        problem = f"{folder} describes an impossible model: {error.message}"
        raise ModelError(problem, remedy=SAME_PLACE) from error


def _read_list(file: Path, required: list[str]) -> dict[str, int]:
    """Names and their row numbers, as their programs read them: a name of white space is U+3000."""
    rows: dict[str, int] = {}
    try:
        for line in filter(str.strip, file.read_bytes().decode("utf-8").split("\n")):
            name, _, row = line.strip().rpartition("\t")
            rows[name or "\u3000"] = int(row)
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read {file}: {error}.", remedy=SAME_PLACE) from error
    if len(set(rows.values())) < len(rows):
        raise ModelError(f"{file} has a duplicate index.", remedy=SAME_PLACE)
    if missing := [name for name in required if name not in rows]:
        raise ModelError(f"{file} lacks {', '.join(missing)}.", remedy=SAME_PLACE)
    return rows


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    """How many of ``pattern.format(0)``, ``pattern.format(1)``, ... there are."""
    return next(number for number in itertools.count() if pattern.format(number) not in tensors)


def _size(tensors: Mapping[str, Tensor], name: str, axis: int) -> int:
    """The length of an axis; 0 if there is no such tensor or axis."""
    shape = tensors[name].shape if name in tensors else ()
    return shape[axis] if axis < len(shape) else 0
