"""``options.json`` of a published ELMo model: checked, and completed from the weights where it is silent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
from elmokit.published.hdf5 import ArrayFile
from elmokit.published.layout import Entry, cell, official_layout
from elmokit.text.vocabulary import N_CHARACTERS

_MAX_BYTES = 1 << 20  # of an options file
_MAX_COUNT = 64  # filters, highways, layers: far more than any model has
_SAME_PLACE = "Take options and weights from the same place: they must belong together."
_MISSING = object()


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


def read_options(path: Path, *, remedy: str = _SAME_PLACE) -> dict[str, Any]:
    """The options as they are in the file."""
    try:
        if (n_bytes := path.stat().st_size) > _MAX_BYTES:
            raise ModelError(f"{path} has {n_bytes:,} bytes, too many for an options file.", remedy=remedy)
        options = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(options, ensure_ascii=False).encode()  # refuses lone surrogates, which cannot be saved
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}.",
            remedy="The file is truncated, damaged or not a model's; download it again.",
        ) from error
    if not isinstance(options, dict):
        raise ModelError(f"{path} is not a JSON object.", remedy=remedy)
    return options


def _find(options: Mapping[str, Any], name: str, path: Path) -> Any:
    """An option by its dotted name; ``_MISSING`` if there is none."""
    place: Any = options
    for part in name.split("."):
        if place is _MISSING or place is None:
            return _MISSING
        if not isinstance(place, Mapping):
            section = name.rpartition(".")[0]
            raise ModelError(f"{path}: {section} = {str(place)[:80]!r} is not an object.", remedy=_SAME_PLACE)
        place = place.get(part, _MISSING)
    return place


def model_config(
    options: Mapping[str, Any], path: Path, weights: ArrayFile
) -> tuple[BilmConfig, int, list[str]]:
    """The model's shape, the rows of its word table (0 for character input), and notes on what the
    options leave open."""
    words, notes = weights.shape("embedding"), list[str]()
    has_characters = _find(options, "char_cnn", path) is not _MISSING
    is_char = weights.shape("char_embed") is not None or (has_characters and words is None)
    shown = _shown_by(weights)
    if has_characters and not is_char:
        notes.append(
            f"{path.name} has a char_cnn section, but {weights.path.name} has a word table (embedding) "
            "and no characters: this is a word-input model."
        )
    values: dict[str, Any] = {"input": "char" if is_char else "word", "objective": "none"}
    for theirs in [*_NAMES, _N_CHARACTERS] if is_char else [name for name in _NAMES if "lstm" in name]:
        ours, given = _NAMES.get(theirs, theirs), _find(options, theirs, path)
        value = given
        if given is _MISSING:
            value = _USUAL.get(ours, shown.get(ours))
            if value is None and ours not in _USUAL:
                raise ModelError(
                    f"{path} lacks {theirs}, and the weights have no dataset that would show it.",
                    remedy=_SAME_PLACE,
                )
            origin = "the usual value" if ours in _USUAL else "from the weights"
            notes.append(f"{theirs} is missing from {path.name}: {json.dumps(value)} ({origin}).")
            if ours == "residual":
                notes.append("Weights do not show whether layers are residual; verify the model.")
        if ours.endswith("clip") and not value:
            value = None
            notes += [f"{theirs} = 0 is read as no limit."] if given == 0 and given is not False else []
        values[ours] = value
    n_characters = values.pop(_N_CHARACTERS, N_CHARACTERS)
    if n_characters not in (N_CHARACTERS - 1, N_CHARACTERS, shown[_N_CHARACTERS]):
        problem = f"{_N_CHARACTERS} = {n_characters!r} is not {N_CHARACTERS - 1} or {N_CHARACTERS}."
        raise ModelError(f"{path}: {problem}", remedy=_SAME_PLACE)
    try:
        config = BilmConfig.from_dict(values)
    except ConfigError as error:  # its message begins with the name of a setting
        name, _, problem = error.message.partition(" ")
        name = next((theirs for theirs, ours in _NAMES.items() if ours == name), name)
        raise ModelError(
            f"{path} describes an impossible model: {name} {problem}", remedy=_SAME_PLACE
        ) from error
    if config.proj_clip is not None and config.proj_clip < 1.0 and config.hidden_dim == config.dim:
        notes.append(
            f"lstm.proj_clip = {config.proj_clip:g} limits outputs that are not projected; some tools "
            "apply it to projected outputs only."
        )
    return config, 0 if is_char else (words or (0,))[0], notes


def _shown_by(weights: ArrayFile) -> dict[str, Any]:
    """Our settings, as far as the shapes of the weights show them."""

    def size(name: str, axis: int, n_axes: int = 2) -> int | None:
        shape = weights.shape(name) or ()
        return shape[axis] if len(shape) == n_axes else None

    def count(group: str, name: str) -> int:
        names = set(weights.names(group))
        numbers = range(_MAX_COUNT + 1)
        return next((n for n in numbers if f"{name}{n}" not in names), _MAX_COUNT + 1)

    n_gates = size(f"{cell(0, 0)}/W_0", 1)
    hidden_dim = None if n_gates is None else n_gates // 4
    kernels = [f"CNN/W_cnn_{number}" for number in range(count("CNN", "W_cnn_"))]
    filters = [(size(name, 1, 4), size(name, 3, 4)) for name in kernels]
    return {
        "hidden_dim": hidden_dim,
        "dim": size(f"{cell(0, 0)}/W_P_0", 1) or hidden_dim,
        "n_layers": count("RNN_0/RNN/MultiRNNCell", "Cell"),
        "char_dim": size("char_embed", 1),
        "filters": [pair for pair in filters if pair[0]],
        "n_highway": count("", "CNN_high_"),
        _N_CHARACTERS: (size("char_embed", 0) or N_CHARACTERS - 1) + 1,
    }


def checked_layout(config: BilmConfig, n_words: int, path: Path, weights: ArrayFile) -> list[Entry]:
    """The datasets of the model, after checking that all of them, and no others, have the shapes that the
    options ask for. Nothing is read before that."""

    def error(dataset: str, problem: str) -> ModelError:
        section = "lstm" if dataset.startswith(("RNN", "embedding")) else "char_cnn"
        options = options_of(config)[section].items()
        reasons = ", ".join(f"{section}.{name} = {json.dumps(value)}" for name, value in options)
        return ModelError(f"{weights.path}: {problem} ({path.name}: {reasons}).", remedy=_SAME_PLACE)

    # Datasets that a model with one more layer, filter, highway or projection would have.
    unexpected = [f"{cell(direction, config.n_layers)}/W_0" for direction in (0, 1)]
    if config.hidden_dim == config.dim:
        unexpected.append(f"{cell(0, 0)}/W_P_0")
    if config.input == "char":
        unexpected += [f"CNN/W_cnn_{len(config.filters)}", f"CNN_high_{config.n_highway}/W_carry"]
        if sum(count for _, count in config.filters) == config.dim:
            unexpected.append("CNN_proj/W_proj")
    for name in unexpected:
        if weights.shape(name) is not None:
            raise error(name, f"the dataset {name} has no place in this model")
    entries = official_layout(config, n_words)
    for entry in entries:
        shape, expected = weights.shape(entry.name), entry.shape
        if shape is None:
            raise error(entry.name, f"it lacks the dataset {entry.name}, shape {expected}")
        has_extra_row = entry.name == "char_embed" and shape == (expected[0] + 1, expected[1])
        if shape != expected and not has_extra_row:  # the loader drops that row
            raise error(entry.name, f"{entry.name} has shape {shape}, but the options ask for {expected}")
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
