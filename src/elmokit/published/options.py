"""``options.json`` of a published ELMo model: checked, and completed from the weights where it is silent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
from elmokit.published.hdf5 import FRESH_FILE, ArrayFile
from elmokit.published.layout import Entry, cell, official_layout
from elmokit.text.vocabulary import N_CHARACTERS

SAME_PLACE = "Take all files of the model from the same place: they must belong together."
_MAX_BYTES = 1 << 20  # of an options file
_MAX_COUNT = 64  # filters, highways, layers: far more than any model has

_N_CHARACTERS = "char_cnn.n_characters"
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
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large for an options file")
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
    words, shown, notes = weights.shape("embedding"), _shown_by(weights), list[str]()
    is_char = weights.shape("char_embed") is not None or ("char_cnn" in options and words is None)
    if "char_cnn" in options and not is_char:
        notes.append(
            f"{path.name} has a char_cnn section, but {weights.path.name} has a word table (embedding) "
            "and no characters: this is a word-input model."
        )
    given = _by_dotted_name(options, path)
    values: dict[str, Any] = {"input": "char" if is_char else "word", "objective": "none"}
    for theirs in [*_NAMES, _N_CHARACTERS] if is_char else [name for name in _NAMES if "lstm" in name]:
        ours = _NAMES.get(theirs, theirs)
        if theirs in given:
            values[ours] = given[theirs]
        else:
            values[ours] = _USUAL.get(ours, shown.get(ours))
            if values[ours] is None and ours not in _USUAL:
                problem = f"{path} lacks {theirs}, and the weights have no dataset that would show it."
                raise ModelError(problem, remedy=SAME_PLACE)
            origin = "the usual value" if ours in _USUAL else "from the weights"
            notes.append(f"{theirs} is missing from {path.name}: {json.dumps(values[ours])} ({origin}).")
            if ours == "residual":
                notes.append("Weights do not show whether layers are residual; verify the model.")
    for name in ("cell_clip", "proj_clip"):
        if values[name] == 0 and values[name] is not False:
            notes.append(f"lstm.{name} = 0 is read as no limit.")
        values[name] = values[name] or None
    n_characters = values.pop(_N_CHARACTERS, N_CHARACTERS)
    if n_characters not in (N_CHARACTERS - 1, N_CHARACTERS, shown[_N_CHARACTERS]):
        problem = f"{_N_CHARACTERS} = {n_characters!r} is not {N_CHARACTERS - 1} or {N_CHARACTERS}."
        raise ModelError(f"{path}: {problem}", remedy=SAME_PLACE)
    try:
        config = BilmConfig.from_dict(values)
    except ConfigError as error:  # its message begins with the name of a setting
        name, _, problem = error.message.partition(" ")
        name = next((theirs for theirs, ours in _NAMES.items() if ours == name), name)
        message = f"{path} describes an impossible model: {name} {problem}"
        raise ModelError(message, remedy=SAME_PLACE) from error
    if config.proj_clip is not None and config.proj_clip < 1.0 and config.hidden_dim == config.dim:
        notes.append(
            f"lstm.proj_clip = {config.proj_clip:g} limits outputs that are not projected; some tools "
            "apply it to projected outputs only."
        )
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


def _shown_by(weights: ArrayFile) -> dict[str, Any]:
    """Our settings, as far as the shapes of the weights show them."""

    def size(name: str, axis: int, n_axes: int = 2) -> int:
        shape = weights.shape(name) or ()
        return shape[axis] if len(shape) == n_axes else 0

    def count(group: str, name: str) -> int:
        names = weights.names(group)
        return next((n for n in range(_MAX_COUNT) if f"{name}{n}" not in names), _MAX_COUNT + 1)

    hidden_dim = size(f"{cell(0, 0)}/W_0", 1) // 4
    kernels = [f"CNN/W_cnn_{number}" for number in range(count("CNN", "W_cnn_"))]
    filters = [(size(name, 1, 4), size(name, 3, 4)) for name in kernels]
    return {
        "hidden_dim": hidden_dim or None,
        "dim": size(f"{cell(0, 0)}/W_P_0", 1) or hidden_dim or None,
        "n_layers": count("RNN_0/RNN/MultiRNNCell", "Cell"),
        "char_dim": size("char_embed", 1) or None,
        "filters": [pair for pair in filters if all(pair)],
        "n_highway": count("", "CNN_high_"),
        _N_CHARACTERS: (size("char_embed", 0) or N_CHARACTERS - 1) + 1,
    }


def checked_layout(config: BilmConfig, n_words: int, path: Path, weights: ArrayFile) -> list[Entry]:
    """The datasets of the model, after checking that all of them, and no others, have the shapes that the
    options ask for. Nothing is read before that."""

    def require(is_right: bool, dataset: str, problem: str) -> None:
        if is_right:
            return
        section = "lstm" if dataset.startswith(("RNN", "embedding")) else "char_cnn"
        options = options_of(config)[section].items()
        reasons = ", ".join(f"{section}.{name} = {json.dumps(value)}" for name, value in options)
        raise ModelError(f"{weights.path}: {problem} ({path.name}: {reasons}).", remedy=SAME_PLACE)

    # Datasets that a model with one more layer, filter, highway or projection would have.
    unexpected = [f"{cell(direction, config.n_layers)}/W_0" for direction in (0, 1)]
    if config.hidden_dim == config.dim:
        unexpected.append(f"{cell(0, 0)}/W_P_0")
    if config.input == "char":
        unexpected += [f"CNN/W_cnn_{len(config.filters)}", f"CNN_high_{config.n_highway}/W_carry"]
        if sum(count for _, count in config.filters) == config.dim:
            unexpected.append("CNN_proj/W_proj")
    for name in unexpected:
        require(weights.shape(name) is None, name, f"the dataset {name} has no place in this model")
    entries = official_layout(config, n_words)
    for entry in entries:
        name, shape, expected = entry.name, weights.shape(entry.name), entry.shape
        require(shape is not None, name, f"it lacks the dataset {name}, shape {expected}")
        # One more row for characters is dropped when it is read.
        is_right = shape == expected or (name == "char_embed" and shape == (expected[0] + 1, expected[1]))
        require(is_right, name, f"{name} has shape {shape}, but the options ask for {expected}")
    return entries


def options_of(config: BilmConfig, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a model; those in ``more`` that say nothing about its shape are kept."""
    is_char = config.input == "char"
    options = {name: value for name, value in (more or {}).items() if is_char or name != "char_cnn"}
    values = {theirs: getattr(config, ours) for theirs, ours in _NAMES.items()}
    for name, value in {**values, _N_CHARACTERS: N_CHARACTERS}.items():
        if is_char or name.startswith("lstm."):
            *sections, last = name.split(".")
            place = options
            for section in sections:
                place[section] = dict(place.get(section) or {})
                place = place[section]
            place[last] = value
    return options
