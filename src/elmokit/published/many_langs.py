"""ELMoForManyLangs models: ``config.json``, ``encoder.pkl``, ``token_embedder.pkl``, ``char.dic``,
``word.dic``.

The two pickles are state dictionaries and are read by ``torch.load(weights_only=True)``, which runs no code.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
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
from elmokit.published.layout import CHAR_TABLE, WORD_TABLE, Entry, many_langs_layout
from elmokit.published.options import read_options
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
_MAX_DIGITS = 12  # of a row number in a list
_THEIR_SPECIALS = ("<pad>", "<oov>", "<bos>", "<eos>")  # in the order of ours
# Their programs use <eow> for the start of a word and <bow> for its end, in training and later.
_MARKS = {WORD_START: "<eow>", WORD_END: "<bow>", BOS_CHAR: "<bos>", EOS_CHAR: "<eos>", UNKNOWN_CHAR: "<oov>"}
_SAME_PLACE = "Take all files of the model from the same place: they must belong together."
_FRESH = "The file is truncated, damaged or not a model; download it again."


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
        raise ModelError(f"{path} cannot be read as saved tensors: {error!r}.", remedy=_FRESH) from error
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) and _is_plain(value)
        for name, value in content.items()
    ):
        raise ModelError(f"{path} does not hold a dictionary of plain tensors.", remedy=_FRESH)
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in content.items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor.sum(dtype=torch.float64)):
            raise ModelError(f"{path}: {name} holds numbers that are not finite.", remedy=_FRESH)
    return tensors


def _is_plain(tensor: Tensor) -> bool:
    odd = tensor.is_quantized or tensor.is_nested or tensor.is_complex()
    return tensor.layout == torch.strided and tensor.device.type == "cpu" and not odd


def is_many_langs(folder: Path) -> bool:
    """True if this looks like such a folder."""
    return any((folder / name).exists() for name in _FILES)


def load_many_langs(folder: Path, *, text: TextConfig) -> BilmFolder:
    """Open such a folder; ``text`` says how raw strings become words."""
    for name in (*_FILES, "config.json"):
        if not (folder / name).exists():
            raise ModelError(
                f"{folder} looks like an ELMoForManyLangs model but lacks {name}.", remedy=_SAME_PLACE
            )
    notes: list[str] = []
    settings = _settings(folder, notes)
    encoder, embedder = (read_state_dict(folder / name) for name in _FILES)
    config = _config(folder, settings, encoder, embedder)
    words = _read_list(folder / "word.dic", ["<oov>"]) if WORD_TABLE in embedder else {}
    chars = _read_list(folder / "char.dic", [*_MARKS.values(), CHAR_PAD]) if CHAR_TABLE in embedder else {}
    listed = [NO_CHAR, *_MARKS, *_in_order(chars, lambda name: len(name) == 1), CHAR_PAD] if chars else []
    others = _in_order(words, lambda name: name not in (*_THEIR_SPECIALS, *SPECIALS))
    vocabulary = Vocabulary([*SPECIALS, *others])
    with torch.device("meta"):
        model = Bilm(config, len(vocabulary), len(listed))
    word_dim = _size(embedder, WORD_TABLE, 1)
    n_rows = {
        name: max(rows.values()) + 1 for name, rows in ((WORD_TABLE, words), (CHAR_TABLE, chars)) if rows
    }
    layouts = many_langs_layout(config, n_rows, word_dim)
    tensors = {
        name: tensor
        for file, layout, theirs in zip(_FILES, layouts, (encoder, embedder), strict=True)
        for name, tensor in _read_entries(folder / file, layout, theirs).items()
    }
    projection, bias = embedder["projection.weight"], embedder["projection.bias"]
    table = torch.zeros(len(vocabulary), config.dim)
    if words:
        rows = torch.tensor([words.get(name, -1) for name in (*_THEIR_SPECIALS, *others)])
        table = embedder[WORD_TABLE][rows.clamp(min=0)] @ projection[:, :word_dim].t()
        table = table * (rows >= 0).unsqueeze(1)
    pipeline = TextPipeline(text)
    if chars:
        characters = embedder[CHAR_TABLE][[chars.get(_MARKS.get(name, name), 0) for name in listed]]
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
    model.load_state_dict(tensors, strict=True, assign=True)
    source = {"format": "ELMoForManyLangs", "files": ["config.json", *_FILES], "options": settings}
    return BilmFolder(model.eval(), text, vocabulary, tokenizer, {"source": source, "notes": notes})


def _settings(folder: Path, notes: list[str]) -> dict[str, Any]:
    """The settings file that config.json names, if it is in the folder."""
    record = read_options(folder / "config.json", remedy=_SAME_PLACE)
    if "encoder" in record and "token_embedder" in record:
        return record
    name = str(record.get("config_path", "")).replace("\\", "/").rpartition("/")[2]
    for place in (folder, folder / "configs", folder.parent / "configs"):
        if name != "config.json" and place.is_dir() and name in os.listdir(place):
            return read_options(place / name, remedy=_SAME_PLACE)
    notes.append(
        f"config.json names the settings file {record.get('config_path')!r}, which is not here. Widths are "
        "read from the weights; clips of 3, relu and 50 characters are assumed, as in all published models."
    )
    return {}


def _config(
    folder: Path,
    settings: Mapping[str, Any],
    encoder: Mapping[str, Tensor],
    embedder: Mapping[str, Tensor],
) -> BilmConfig:
    lstm, token = settings.get("encoder") or {}, settings.get("token_embedder") or {}
    if not isinstance(lstm, Mapping) or not isinstance(token, Mapping):
        raise ModelError(f"{folder}: the model's settings are not objects.", remedy=_SAME_PLACE)
    weight, projection = "forward_layer_0.input_linearity.weight", "forward_layer_0.state_projection.weight"
    for part, kind, known, fits in (
        ("encoder", lstm.get("name", "elmo"), "elmo", weight in encoder),
        ("token_embedder", token.get("name", "cnn"), "cnn", "char_lstm.weight_ih_l0" not in embedder),
    ):
        if str(kind).lower() != known or not fits:
            raise ModelError(
                f"{folder}: its {part} is not of the kind {known!r}, the only one supported.",
                remedy="Use a model with a character CNN and ELMo layers, as all published ones have.",
            )
    if (dim := _size(encoder, projection, 0)) == _size(encoder, projection, 1) > 0:
        raise ModelError(
            f"{folder / _FILES[0]} projects {dim} cells to {dim}, which is not supported.",
            remedy="Use a model that projects to another width, as all published ones do.",
        )
    values: dict[str, Any] = {
        "objective": "none",
        "residual": True,
        "n_layers": _count(encoder, "forward_layer_{}.input_linearity.weight"),
        "hidden_dim": _size(encoder, weight, 0) // 4,
        "dim": dim,
        "cell_clip": lstm.get("cell_clip", 3) or None,
        "proj_clip": lstm.get("proj_clip", 3) or None,
        "input": "word",
    }
    if CHAR_TABLE in embedder:
        kernels = [f"convolutions.{n}.weight" for n in range(_count(embedder, "convolutions.{}.weight"))]
        values |= {
            "input": "dictionary",
            "char_dim": _size(embedder, CHAR_TABLE, 1),
            "filters": [(_size(embedder, name, 2), _size(embedder, name, 0)) for name in kernels],
            "n_highway": _count(embedder, "highways._layers.{}.weight"),
            "max_chars": token.get("max_characters_per_token", 50),
            "char_activation": token.get("activation", "relu"),
        }
    try:
        return BilmConfig.from_dict(values)
    except ConfigError as error:
        raise ModelError(
            f"{folder} describes an impossible model: {error.message}", remedy=_SAME_PLACE
        ) from error


def _read_list(file: Path, required: list[str]) -> dict[str, int]:
    """Names and their row numbers, as their programs read them: a name of white space is U+3000."""
    try:
        lines = file.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"Cannot read {file}: {error}.", remedy=_SAME_PLACE) from error
    rows: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, row = line.strip().rpartition("\t")
        if not row.isdecimal() or len(row) > _MAX_DIGITS:
            raise ModelError(
                f"{file}, line {number}: expected a name, a tab and a number.", remedy=_SAME_PLACE
            )
        rows[name or "\u3000"] = int(row)
    if len(set(rows.values())) < len(rows):
        raise ModelError(f"{file} gives two names the same number.", remedy=_SAME_PLACE)
    if missing := [name for name in required if name not in rows]:
        raise ModelError(f"{file} lacks {', '.join(missing)}.", remedy=_SAME_PLACE)
    return rows


def _in_order(rows: Mapping[str, int], keep: Callable[[str], bool]) -> list[str]:
    """Some names of a list, by row."""
    return sorted(filter(keep, rows), key=rows.__getitem__)


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    """How many of ``pattern.format(0)``, ``pattern.format(1)``, ... there are."""
    return next(number for number in range(len(tensors) + 1) if pattern.format(number) not in tensors)


def _size(tensors: Mapping[str, Tensor], name: str, axis: int) -> int:
    """The length of an axis; 0 if there is no such tensor or axis."""
    shape = tensors[name].shape if name in tensors else ()
    return shape[axis] if axis < len(shape) else 0


def _read_entries(file: Path, layout: list[Entry], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, after checking that the file has all tensors, and no others, in the right shapes."""
    with torch.device("meta"):
        check_tensors(file, {entry.name: torch.empty(entry.shape) for entry in layout}, tensors)
    return {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for entry in layout
        if entry.parameters
        for name, array in zip(entry.parameters, entry.read(tensors[entry.name].numpy()), strict=True)
    }
