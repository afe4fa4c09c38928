"""ELMoForManyLangs models: ``config.json``, ``encoder.pkl``, ``token_embedder.pkl``, ``char.dic``,
``word.dic``.

The two pickles are state dictionaries and are read by ``torch.load(weights_only=True)``, which runs no code.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import models
from torch import Tensor

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
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
_WORD_TABLE, _CHAR_TABLE = "word_emb_layer.embedding.weight", "char_emb_layer.embedding.weight"
_MAX_DIGITS = 12  # of a row number in a list
_THEIR_SPECIALS = ("<pad>", "<oov>", "<bos>", "<eos>")  # in the order of ours
# Their programs give the start of a word the row named <eow> and its end the row named <bow>, in training
# and later alike.
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
            f"{path} is a pickle that holds more than tensors, which could run any code; it was not loaded.",
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


class _Tensors:
    """The tensors of one file; each is taken once, and none may be left over."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._tensors = read_state_dict(file)
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def count(self, pattern: str) -> int:
        """How many of ``pattern.format(0)``, ``pattern.format(1)``, ... there are."""
        return next(n for n in range(len(self._tensors) + 1) if pattern.format(n) not in self._tensors)

    def size(self, name: str, axis: int) -> int:
        """The length of an axis; 0 if there is no such tensor or axis."""
        shape = self._tensors[name].shape if name in self._tensors else ()
        return shape[axis] if axis < len(shape) else 0

    def take(self, name: str, *shape: int) -> Tensor:
        if name not in self._tensors:
            raise ModelError(f"{self.file} lacks the tensor {name}.", remedy=_SAME_PLACE)
        tensor = self._tensors[name]
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.file}: {name} has shape {tuple(tensor.shape)}, the other files ask for {shape}.",
                remedy=_SAME_PLACE,
            )
        self._taken.add(name)
        return tensor

    def check_all_taken(self) -> None:
        if extra := sorted(set(self._tensors) - self._taken):
            raise ModelError(
                f"{self.file} has tensors that such a model does not have: {', '.join(extra[:3])}.",
                remedy=_SAME_PLACE,
            )


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
    encoder, embedder = (_Tensors(folder / name) for name in _FILES)
    config = _config(folder, settings, encoder, embedder)
    words = _read_list(folder / "word.dic", ["<oov>"]) if embedder.has(_WORD_TABLE) else {}
    vocabulary = _vocabulary(words)
    word_dim = embedder.size(_WORD_TABLE, 1)
    width = sum(count for _, count in config.filters) if config.input == "dictionary" else 0
    projection = embedder.take("projection.weight", config.dim, word_dim + width)
    bias = embedder.take("projection.bias", config.dim)
    table = torch.zeros(len(vocabulary), config.dim)
    if words:
        theirs = embedder.take(_WORD_TABLE, _n_rows(words), word_dim)
        names = (*_THEIR_SPECIALS, *vocabulary.words[len(SPECIALS) :])
        index = torch.tensor([words.get(name, -1) for name in names])
        table = theirs[index.clamp(min=0)] @ projection[:, :word_dim].t() * (index >= 0).unsqueeze(1)
    tensors = _stacks(config, encoder)
    pipeline, n_pieces = TextPipeline(text), 0
    if config.input == "dictionary":
        chars = _read_list(folder / "char.dic", [*_MARKS.values(), CHAR_PAD])
        ours = sorted((name for name in chars if len(name) == 1), key=chars.__getitem__)
        listed = [NO_CHAR, *_MARKS, *ours, CHAR_PAD]
        rows = [0, *(chars[name] for name in (*_MARKS.values(), *ours, CHAR_PAD))]
        tensors |= _cnn(config, embedder, _n_rows(chars), rows)
        tensors |= {
            "encoder.projection.weight": projection[:, word_dim:].contiguous(),
            "encoder.projection.bias": bias,
            "encoder.words": table,
        }
        places = {name: place for place, name in enumerate(listed)}
        tokenizer = pipeline.tokenizer(models.WordLevel(places, unk_token=UNKNOWN_CHAR))
        n_pieces = len(listed)
    else:
        tensors["encoder.weight"] = table + bias
        tokenizer = pipeline.word_tokenizer(vocabulary.words)
    for part in (encoder, embedder):
        part.check_all_taken()
    with torch.device("meta"):
        model = Bilm(config, len(vocabulary), n_pieces)
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


def _config(folder: Path, settings: Mapping[str, Any], encoder: _Tensors, embedder: _Tensors) -> BilmConfig:
    lstm, token = settings.get("encoder") or {}, settings.get("token_embedder") or {}
    if not isinstance(lstm, Mapping) or not isinstance(token, Mapping):
        raise ModelError(f"{folder}: the model's settings are not objects.", remedy=_SAME_PLACE)
    weight, projection = "forward_layer_0.input_linearity.weight", "forward_layer_0.state_projection.weight"
    for part, kind, known, fits in (
        ("encoder", lstm.get("name", "elmo"), "elmo", encoder.has(weight)),
        ("token_embedder", token.get("name", "cnn"), "cnn", not embedder.has("char_lstm.weight_ih_l0")),
    ):
        if str(kind).lower() != known or not fits:
            raise ModelError(
                f"{folder}: its {part} is not of the kind {known!r}, the only one supported.",
                remedy="Use a model with a character CNN and ELMo layers, as all published ones have.",
            )
    values: dict[str, Any] = {
        "objective": "none",
        "residual": True,
        "n_layers": encoder.count("forward_layer_{}.input_linearity.weight"),
        "hidden_dim": encoder.size(weight, 0) // 4,
        "dim": encoder.size(projection, 0),
        "cell_clip": lstm.get("cell_clip", 3) or None,
        "proj_clip": lstm.get("proj_clip", 3) or None,
        "input": "word",
    }
    if embedder.has(_CHAR_TABLE):
        kernels = [f"convolutions.{n}.weight" for n in range(embedder.count("convolutions.{}.weight"))]
        values |= {
            "input": "dictionary",
            "char_dim": embedder.size(_CHAR_TABLE, 1),
            "filters": [(embedder.size(name, 2), embedder.size(name, 0)) for name in kernels],
            "n_highway": embedder.count("highways._layers.{}.weight"),
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


def _n_rows(rows: Mapping[str, int]) -> int:
    """Rows of the table that a list points into."""
    return max(rows.values()) + 1


def _vocabulary(words: Mapping[str, int]) -> Vocabulary:
    ours = (name for name in words if name not in (*_THEIR_SPECIALS, *SPECIALS))
    return Vocabulary([*SPECIALS, *sorted(ours, key=words.__getitem__)])


def _stacks(config: BilmConfig, encoder: _Tensors) -> dict[str, Tensor]:
    """The LSTM layers. Their gates have our order, and their forget bias is complete."""
    dim, hidden = config.dim, config.hidden_dim
    if dim == hidden:
        raise ModelError(
            f"{encoder.file} projects {dim} cells to {dim}, which is not supported.",
            remedy="Use a model that projects to another width, as all published ones do.",
        )
    tensors: dict[str, Tensor] = {}
    for direction in ("forward", "backward"):
        for depth in range(config.n_layers):
            theirs, ours = f"{direction}_layer_{depth}", f"{direction}_stack.layers.{depth}"
            tensors |= {
                f"{ours}.input_weight": encoder.take(f"{theirs}.input_linearity.weight", 4 * hidden, dim),
                f"{ours}.recurrent_weight": encoder.take(f"{theirs}.state_linearity.weight", 4 * hidden, dim),
                f"{ours}.bias": encoder.take(f"{theirs}.state_linearity.bias", 4 * hidden),
                f"{ours}.projection": encoder.take(f"{theirs}.state_projection.weight", dim, hidden),
            }
    return tensors


def _cnn(config: BilmConfig, embedder: _Tensors, n_chars: int, rows: list[int]) -> dict[str, Tensor]:
    """Characters, filters and highway layers. Their highway gate passes the input on, ours the change."""
    table = embedder.take(_CHAR_TABLE, n_chars, config.char_dim)[rows]
    table[0] = 0.0
    tensors = {"encoder.weight": table}
    for number, (span, count) in enumerate(config.filters):
        theirs, ours = f"convolutions.{number}", f"encoder.filters.{number}"
        kernel = embedder.take(f"{theirs}.weight", count, config.char_dim, span)
        tensors[f"{ours}.weight"] = kernel.permute(2, 1, 0).contiguous()
        tensors[f"{ours}.bias"] = embedder.take(f"{theirs}.bias", count)
    width = sum(count for _, count in config.filters)
    for number in range(config.n_highway):
        theirs, ours = f"highways._layers.{number}", f"encoder.highways.{number}"
        weight = embedder.take(f"{theirs}.weight", 2 * width, width)
        bias = embedder.take(f"{theirs}.bias", 2 * width)
        tensors[f"{ours}.transform.weight"] = weight[:width].contiguous()
        tensors[f"{ours}.transform.bias"] = bias[:width].contiguous()
        tensors[f"{ours}.carry.weight"], tensors[f"{ours}.carry.bias"] = -weight[width:], -bias[width:]
    return tensors
