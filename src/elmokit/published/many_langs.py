"""ELMoForManyLangs models: ``config.json``, ``encoder.pkl``, ``token_embedder.pkl``, ``char.dic``,
``word.dic``.

The two pickles are state dictionaries and are read by ``torch.load(weights_only=True)``, which runs nothing.
"""

from __future__ import annotations

import os
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
from elmokit.published.torch_file import read_state_dict
from elmokit.text.dictionary import (
    BOS_CHAR,
    CHAR_PAD,
    EOS_CHAR,
    NO_CHAR,
    UNKNOWN_CHAR,
    WORD_END,
    WORD_START,
)
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary

__all__ = ["is_many_langs", "load_many_langs"]

_FILES = ("encoder.pkl", "token_embedder.pkl")
_USUAL: dict[str, Any] = {  # what all models that were published have, should config_path lead nowhere
    "cell_clip": 3,
    "proj_clip": 3,
    "activation": "relu",
    "max_characters_per_token": 50,
}
_DIGITS = 12  # of a place in a list
_WORDS = ("<pad>", "<oov>", "<bos>", "<eos>")  # theirs, in the order of ours
_MOST = (
    64  # times the size of the weights: a word table may grow when it is multiplied out, but not like this
)
_TOGETHER = "Take all files of the model from the same place: they must belong together."
# Their programs give a word's first mark the row named <eow> and its last mark the row named <bow>, in
# training and later alike.
_MARKS = {WORD_START: "<eow>", WORD_END: "<bow>", BOS_CHAR: "<bos>", EOS_CHAR: "<eos>", UNKNOWN_CHAR: "<oov>"}


def is_many_langs(folder: Path) -> bool:
    """Whether this looks like such a folder."""
    return any((folder / name).exists() for name in _FILES)


def load_many_langs(folder: Path, *, text: TextConfig) -> BilmFolder:
    """Open such a folder; ``text`` says how raw strings become words."""
    for name in (*_FILES, "config.json"):
        if not (folder / name).exists():
            raise ModelError(
                f"{folder} looks like an ELMoForManyLangs model but lacks {name}.", remedy=_TOGETHER
            )
    notes: list[str] = []
    said = _settings(folder, notes)
    encoder, embedder = (_Tensors(folder / name) for name in _FILES)
    config = _config(folder, said, encoder, embedder, notes)
    words = _dictionary(folder / "word.dic") if embedder.has("word_emb_layer.embedding.weight") else {}
    chars = _dictionary(folder / "char.dic") if config.input == "dictionary" else {}
    tensors = _stacks(config, encoder)
    vocabulary, rows = _vocabulary(words, folder, notes)
    total = sum(count for _, count in config.filters) if chars else 0
    projection, bias = embedder.take("projection.weight"), embedder.take("projection.bias", (config.dim,))
    word_dim = 0
    if words:
        theirs = embedder.take("word_emb_layer.embedding.weight")
        word_dim = theirs.shape[1]
        _check(embedder.file, "word_emb_layer.embedding.weight", theirs, (_n_rows(words), word_dim))
    _check(embedder.file, "projection.weight", projection, (config.dim, word_dim + total))
    n_bytes, size = 4 * len(vocabulary) * config.dim, sum((folder / name).stat().st_size for name in _FILES)
    if n_bytes > _MOST * size:
        raise ModelError(
            f"{folder}: {len(vocabulary):,} words, {config.dim:,} wide, are {n_bytes:,} bytes, but the "
            f"weights are {size:,} bytes.",
            remedy=_TOGETHER,
        )
    table = torch.zeros(len(vocabulary), config.dim)
    if words:
        index = torch.tensor(rows)
        table = theirs[index.clamp(min=0)] @ projection[:, :word_dim].t() * (index >= 0).unsqueeze(1)
    pipeline = TextPipeline(text)
    if chars:
        listed, char_rows = _characters(chars, folder)
        tensors |= _cnn(config, embedder, _n_rows(chars), char_rows)
        tensors |= {
            "encoder.projection.weight": projection[:, word_dim:].contiguous(),
            "encoder.projection.bias": bias,
            "encoder.words": table,
        }
        places = {name: place for place, name in enumerate(listed)}
        tokenizer = pipeline.tokenizer(models.WordLevel(places, unk_token=UNKNOWN_CHAR))
        model = _model(config, tensors, len(vocabulary), len(listed))
    else:
        tensors["encoder.weight"] = table + bias
        tokenizer = pipeline.word_tokenizer(vocabulary.words)
        model = _model(config, tensors, len(vocabulary), 0)
    for part in (encoder, embedder):
        part.check_all_taken()
    source = {"format": "ELMoForManyLangs", "files": ["config.json", *_FILES], "options": said}
    return BilmFolder(model, text, vocabulary, tokenizer, {"source": source, "notes": notes})


class _Tensors:
    """The tensors of one file; each is asked for once, and none may be left over."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._tensors = read_state_dict(file)
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def count(self, pattern: str) -> int:
        """How many of ``pattern.format(0)``, ``pattern.format(1)``, ... there are."""
        return next(n for n in range(len(self._tensors) + 1) if pattern.format(n) not in self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape) if name in self._tensors else ()

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        if name not in self._tensors:
            raise ModelError(f"{self.file} lacks the tensor {name}.", remedy=_TOGETHER)
        tensor = self._tensors[name]
        if shape is not None:
            _check(self.file, name, tensor, shape)
        elif tensor.dim() != 2:
            raise ModelError(
                f"{self.file}: {name} has shape {tuple(tensor.shape)}, not two axes.", remedy=_TOGETHER
            )
        self._taken.add(name)
        return tensor

    def check_all_taken(self) -> None:
        if extra := sorted(set(self._tensors) - self._taken):
            raise ModelError(
                f"{self.file} has tensors that such a model does not have: {', '.join(extra[:3])}.",
                remedy=_TOGETHER,
            )


def _check(file: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ModelError(
            f"{file}: {name} has shape {tuple(tensor.shape)}, the other files ask for {shape}.",
            remedy=_TOGETHER,
        )


def _settings(folder: Path, notes: list[str]) -> dict[str, Any]:
    """The settings file that config.json names, if it is at hand in the folder."""
    record = read_options(folder / "config.json", remedy=_TOGETHER)
    if "encoder" in record and "token_embedder" in record:
        return record
    name = str(record.get("config_path", "")).replace("\\", "/").rpartition("/")[2]
    for place in (folder, folder / "configs", folder.parent / "configs"):
        if name != "config.json" and place.is_dir() and name in os.listdir(place):
            return read_options(place / name, remedy=_TOGETHER)
    notes.append(
        f"config.json names its settings as {record.get('config_path')!r}, which is not here: widths are "
        "those of the weights; clips of 3, relu and 50 characters, as in all models published, are taken for "
        "granted."
    )
    return {}


def _config(
    folder: Path, said: Mapping[str, Any], encoder: _Tensors, embedder: _Tensors, notes: list[str]
) -> BilmConfig:
    lstm, token = said.get("encoder") or {}, said.get("token_embedder") or {}
    if not isinstance(lstm, Mapping) or not isinstance(token, Mapping):
        raise ModelError(f"{folder}: the model's settings are not objects.", remedy=_TOGETHER)
    kinds = [
        ("encoder", lstm.get("name", "elmo"), "elmo", encoder.has("forward_layer_0.input_linearity.weight")),
        ("token_embedder", token.get("name", "cnn"), "cnn", not embedder.has("char_lstm.weight_ih_l0")),
    ]
    for part, kind, known, fits in kinds:
        if str(kind).lower() != known or not fits:
            raise ModelError(
                f"{folder}: its {part} is not of the kind {known!r}, the only one that is known here.",
                remedy="Use a model with a character CNN and ELMo layers, as all published ones have.",
            )
    weight, projection = "forward_layer_0.input_linearity.weight", "forward_layer_0.state_projection.weight"
    values: dict[str, Any] = {
        "objective": "none",
        "residual": True,
        "n_layers": encoder.count("forward_layer_{}.input_linearity.weight"),
        "hidden_dim": (encoder.shape(weight) or (0,))[0] // 4,
        "dim": (encoder.shape(projection) or (0,))[0],
        "cell_clip": _USUAL["cell_clip"] if "cell_clip" not in lstm else lstm["cell_clip"] or None,
        "proj_clip": _USUAL["proj_clip"] if "proj_clip" not in lstm else lstm["proj_clip"] or None,
        "input": "word",
    }
    if embedder.has("char_emb_layer.embedding.weight"):
        filters = []
        for number in range(embedder.count("convolutions.{}.weight")):
            shape = embedder.shape(f"convolutions.{number}.weight")
            filters += [(shape[2], shape[0])] if len(shape) == 3 else []
        values |= {
            "input": "dictionary",
            "char_dim": (*embedder.shape("char_emb_layer.embedding.weight"), 0)[1],
            "filters": filters,
            "n_highway": embedder.count("highways._layers.{}.weight"),
            "max_chars": token.get("max_characters_per_token", _USUAL["max_characters_per_token"]),
            "char_activation": token.get("activation", _USUAL["activation"]),
        }
    try:
        return BilmConfig.from_dict(values)
    except ConfigError as error:
        raise ModelError(
            f"{folder} describes a model that cannot be: {error.message}", remedy=_TOGETHER
        ) from error


def _dictionary(file: Path) -> dict[str, int]:
    """A list of names and their places, as their programs read it: a name of white space is U+3000."""
    try:
        lines = file.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"Cannot read {file}: {error}.", remedy=_TOGETHER) from error
    found: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, place = line.strip().rpartition("\t")
        if not place.isdecimal() or len(place) > _DIGITS:
            raise ModelError(
                f"{file}, line {number}: no name and number with a tab between.", remedy=_TOGETHER
            )
        found[name or "\u3000"] = int(place)
    if len(set(found.values())) < len(found):
        raise ModelError(f"{file} gives two names the same number.", remedy=_TOGETHER)
    return found


def _n_rows(places: Mapping[str, int]) -> int:
    """Rows of the table that a list leads into."""
    return max(places.values(), default=-1) + 1


def _vocabulary(words: Mapping[str, int], folder: Path, notes: list[str]) -> tuple[Vocabulary, list[int]]:
    """Our vocabulary, and the row of each word in their table; -1 for none."""
    if words and "<oov>" not in words:
        raise ModelError(f"{folder / 'word.dic'} lacks <oov>, the row of unknown words.", remedy=_TOGETHER)
    ours = sorted((name for name in words if name not in (*_WORDS, *SPECIALS)), key=words.__getitem__)
    rows = [words.get(name, -1) for name in (*_WORDS, *ours)]
    return Vocabulary([*SPECIALS, *ours]), rows


def _characters(chars: Mapping[str, int], folder: Path) -> tuple[list[str], list[int]]:
    """Our list of characters, "nothing" first and padding last, and the row of each in their table."""
    for name in (*_MARKS.values(), CHAR_PAD):
        if name not in chars:
            raise ModelError(f"{folder / 'char.dic'} lacks {name}.", remedy=_TOGETHER)
    ours = sorted((name for name in chars if len(name) == 1), key=chars.__getitem__)
    listed = [NO_CHAR, *_MARKS, *ours, CHAR_PAD]
    rows = [0, *(chars[name] for name in (*_MARKS.values(), *ours)), chars[CHAR_PAD]]
    return listed, rows


def _stacks(config: BilmConfig, encoder: _Tensors) -> dict[str, Tensor]:
    """The LSTM layers: gates stand in our order, and the forget gate's bias is whole."""
    found: dict[str, Tensor] = {}
    dim, cells = config.dim, 4 * config.hidden_dim
    for direction in ("forward", "backward"):
        for depth in range(config.n_layers):
            theirs, ours = f"{direction}_layer_{depth}", f"{direction}_stack.layers.{depth}"
            found[f"{ours}.input_weight"] = encoder.take(f"{theirs}.input_linearity.weight", (cells, dim))
            found[f"{ours}.recurrent_weight"] = encoder.take(f"{theirs}.state_linearity.weight", (cells, dim))
            found[f"{ours}.bias"] = encoder.take(f"{theirs}.state_linearity.bias", (cells,))
            shape = (dim, config.hidden_dim)
            projection = encoder.take(f"{theirs}.state_projection.weight", shape)
            if dim == config.hidden_dim:
                raise ModelError(
                    f"{encoder.file} projects {dim} cells to {dim}, which is not known here.",
                    remedy="Use a model that projects to another width, as all published ones do.",
                )
            found[f"{ours}.projection"] = projection
    return found


def _cnn(config: BilmConfig, embedder: _Tensors, n_chars: int, rows: list[int]) -> dict[str, Tensor]:
    """Characters, filters and highway layers. Their highway gate lets the input through, ours the change."""
    name = "char_emb_layer.embedding.weight"
    table = embedder.take(name, (n_chars, config.char_dim))[rows]
    table[0] = 0.0
    found = {"encoder.weight": table}
    for number, (width, count) in enumerate(config.filters):
        kernel = embedder.take(f"convolutions.{number}.weight", (count, config.char_dim, width))
        found[f"encoder.filters.{number}.weight"] = kernel.permute(2, 1, 0).contiguous()
        found[f"encoder.filters.{number}.bias"] = embedder.take(f"convolutions.{number}.bias", (count,))
    total = sum(count for _, count in config.filters)
    for number in range(config.n_highway):
        theirs, ours = f"highways._layers.{number}", f"encoder.highways.{number}"
        weight = embedder.take(f"{theirs}.weight", (2 * total, total))
        bias = embedder.take(f"{theirs}.bias", (2 * total,))
        found[f"{ours}.transform.weight"] = weight[:total].contiguous()
        found[f"{ours}.transform.bias"] = bias[:total].contiguous()
        found[f"{ours}.carry.weight"], found[f"{ours}.carry.bias"] = -weight[total:], -bias[total:]
    return found


def _model(config: BilmConfig, tensors: dict[str, Tensor], n_words: int, n_pieces: int) -> Bilm:
    with torch.device("meta"):
        model = Bilm(config, n_words, n_pieces)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()
