"""``options.json`` of a published ELMo model: checked against the weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
from elmokit.published.hdf5 import FRESH_FILE, ArrayFile
from elmokit.published.layout import Entry, official_layout
from elmokit.text.vocabulary import N_CHARACTERS

SAME_PLACE = "Take all files of the model from the same place: they must belong together."

_NAMES = {  # of their options, and of our settings
    "lstm.dim": "hidden_dim",
    "lstm.projection_dim": "dim",
    "lstm.n_layers": "n_layers",
    "lstm.cell_clip": "cell_clip",
    "lstm.proj_clip": "proj_clip",
    "lstm.use_skip_connections": "residual",
    "char_cnn.embedding.dim": "char_dim",
    "char_cnn.filters": "filters",
    "char_cnn.n_highway": "n_highway",
    "char_cnn.max_characters_per_token": "max_chars",
    "char_cnn.activation": "char_activation",
}
_USUAL = {"cell_clip": None, "proj_clip": None, "residual": False, "max_chars": 50, "char_activation": "relu"}


def read_options(path: Path) -> dict[str, Any]:
    """The options as they are in the file."""
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(options, ensure_ascii=False).encode()  # refuses lone surrogates, which cannot be saved
        if not isinstance(options, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}.", remedy=FRESH_FILE) from error
    return options


def model_config(
    options: Mapping[str, Any], path: Path, weights: ArrayFile
) -> tuple[BilmConfig, int, list[str]]:
    """The model's shape, the rows of its word table (0 for character input), and notes on what the
    options leave open."""
    words, notes = weights.shapes.get("embedding"), list[str]()
    is_char = "char_embed" in weights.shapes or ("char_cnn" in options and words is None)
    if "char_cnn" in options and not is_char:
        notes.append(
            f"{path.name} has a char_cnn section, but {weights.path.name} has a word table (embedding) "
            "and no characters: this is a word-input model."
        )
    given = _by_dotted_name(options, path)
    values: dict[str, Any] = {"input": "char" if is_char else "word", "objective": "none"}
    for theirs, ours in _NAMES.items():
        if not is_char and theirs.startswith("char_cnn"):
            continue
        if theirs not in given and ours not in _USUAL:
            raise ModelError(f"{path} lacks {theirs}.", remedy=SAME_PLACE)
        values[ours] = given.get(theirs, _USUAL.get(ours))
        if theirs not in given:
            notes.append(f"{theirs} is missing from {path.name}: {json.dumps(values[ours])} is assumed.")
    for name in ("cell_clip", "proj_clip"):
        values[name] = values[name] or None
    try:
        config = BilmConfig.from_dict(values)
    except ConfigError as error:
        theirs = {ours: theirs for theirs, ours in _NAMES.items()}.get(error.setting, error.setting)
        problem = error.message.replace(error.setting, theirs, 1)
        raise ModelError(f"{path} describes an impossible model: {problem}", remedy=SAME_PLACE) from error
    return config, words[0] if words and not is_char else 0, notes


def _by_dotted_name(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What describes the model, by names such as "char_cnn.embedding.dim"."""
    values = {name: options[name] for name in ("lstm", "char_cnn") if name in options}
    for section in ("lstm", "char_cnn", "char_cnn.embedding"):
        content = {} if values.get(section) is None else values[section]
        if not isinstance(content, Mapping):
            problem = f"{path}: {section} = {str(content)[:80]!r} is not an object."
            raise ModelError(problem, remedy=SAME_PLACE)
        values |= {f"{section}.{name}": value for name, value in content.items()}
    return values


def checked_layout(config: BilmConfig, n_words: int, path: Path, weights: ArrayFile) -> list[Entry]:
    """The datasets of the model, after checking that all of them, and no others, have the shapes that the
    options ask for. Nothing is read before that."""
    entries = official_layout(config, n_words)
    expected = {entry.name: entry.shape for entry in entries}
    for name in (*sorted(weights.shapes.keys() - expected), *expected):
        shape = weights.shapes.get(name)
        if name not in expected:
            if not name.startswith(("CNN", "RNN")):
                continue
            problem = f"the dataset {name} has no place in this model"
        elif shape is None:
            problem = f"it lacks the dataset {name}, shape {expected[name]}"
        # One more row for characters is dropped when it is read.
        elif shape == expected[name] or (name == "char_embed" and shape == (N_CHARACTERS, config.char_dim)):
            continue
        else:
            problem = f"{name} has shape {shape}, but the options ask for {expected[name]}"
        section = "lstm" if name.startswith(("RNN", "embedding")) else "char_cnn"
        options = options_of(config)[section].items()
        reasons = ", ".join(f"{section}.{option} = {json.dumps(value)}" for option, value in options)
        raise ModelError(f"{weights.path}: {problem} ({path.name}: {reasons}).", remedy=SAME_PLACE)
    return entries


def options_of(config: BilmConfig, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a model; those in ``more`` that say nothing about its shape are kept."""
    is_char = config.input == "char"
    options = {name: value for name, value in (more or {}).items() if is_char or name != "char_cnn"}
    values = {theirs: getattr(config, ours) for theirs, ours in _NAMES.items()}
    for name, value in {**values, "char_cnn.n_characters": N_CHARACTERS}.items():
        if is_char or name.startswith("lstm."):
            *sections, last = name.split(".")
            place = options
            for section in sections:
                place[section] = dict(place.get(section) or {})
                place = place[section]
            place[last] = value
    return options
