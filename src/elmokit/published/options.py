"""``options.json`` of a published ELMo model: checked, and completed from the weights where it is silent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import BilmConfig
from elmokit.core.errors import ConfigError, ModelError
from elmokit.published.hdf5 import ArrayFile
from elmokit.published.layout import Entry, cell, layout
from elmokit.text.vocabulary import N_CHARACTERS

_LARGEST = 1 << 20  # bytes of an options file
_MOST = 64  # filters, highways, layers: far more than any model has
_SAME_PLACE = "Take options and weights from the same place: they must belong together."
_MISSING = object()


def read_options(path: Path, *, remedy: str = _SAME_PLACE) -> dict[str, Any]:
    """The options as they are in the file."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(
                f"{path} has {path.stat().st_size:,} bytes, too many for an options file.", remedy=remedy
            )
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


class _Options:
    """Checked access to options by dotted name; a default stands in for what is missing, with a note."""

    def __init__(self, options: Mapping[str, Any], path: Path) -> None:
        self._options, self._path = options, path
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        return self._get(name) is not _MISSING

    def integer(self, name: str, default: int | None, source: str = "from the weights") -> int:
        if default is None and not self.has(name):
            raise ModelError(
                f"{self._path} lacks {name}, and the weights have no dataset that would show it.",
                remedy=_SAME_PLACE,
            )
        value = self._get_or(name, default, source)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(name, value, "a whole number")
        return value

    def limit(self, name: str) -> float | None:
        """A clip value; null, zero and a missing option mean no limit."""
        value = self._get_or(name, None, "no limit")
        if value is None or value is False:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= sys.float_info.max:
            raise self.error(name, value, "a number above zero, or null")
        if value == 0:
            self.notes.append(f"{name} = 0 is read as no limit.")
        return float(value) or None

    def choice(self, name: str, choices: tuple[Any, ...], default: Any) -> Any:
        value = self._get_or(name, default, "the usual value")
        if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
            raise self.error(name, value, f"one of {', '.join(map(repr, choices))}")
        return value

    def pairs(self, name: str, default: list[tuple[int, int]]) -> list[tuple[int, int]]:
        value = self._get_or(name, default, "from the weights")
        try:
            pairs = [(width, count) for width, count in value]
        except (TypeError, ValueError):
            pairs = []
        are_positive = all(type(number) is int and number > 0 for pair in pairs for number in pair)
        if not 0 < len(pairs) <= _MOST or not are_positive:
            raise self.error(name, value, "a list of [width, count] pairs of whole numbers")
        return pairs

    def error(self, name: str, value: Any, expected: str) -> ModelError:
        return ModelError(
            f"{self._path}: {name} = {str(value)[:80]!r} is not {expected}.", remedy=_SAME_PLACE
        )

    def _get(self, name: str) -> Any:
        place: Any = self._options
        for part in name.split("."):
            if place is _MISSING or place is None:
                return _MISSING
            if not isinstance(place, Mapping):
                raise self.error(name.rpartition(".")[0], place, "an object")
            place = place.get(part, _MISSING)
        return place

    def _get_or(self, name: str, default: Any, source: str) -> Any:
        value = self._get(name)
        if value is _MISSING:
            self.notes.append(f"{name} is missing from {self._path.name}: {json.dumps(default)} ({source}).")
            return default
        return value


def model_config(
    options: Mapping[str, Any], path: Path, weights: ArrayFile
) -> tuple[BilmConfig, int, list[str]]:
    """The model's shape, the rows of its word table (0 for character input), and notes on what the
    options leave open."""
    given = _Options(options, path)
    kernel, projection = weights.shape(f"{cell(0, 0)}/W_0"), weights.shape(f"{cell(0, 0)}/W_P_0")
    hidden = kernel[1] // 4 if kernel and len(kernel) == 2 else None
    dim = projection[1] if projection and len(projection) == 2 else hidden
    words = weights.shape("embedding")
    is_char = weights.shape("char_embed") is not None or (given.has("char_cnn") and words is None)
    values: dict[str, Any] = {
        "input": "char" if is_char else "word",
        "objective": "none",
        "dim": given.integer("lstm.projection_dim", dim),
        "hidden_dim": given.integer("lstm.dim", hidden),
        "n_layers": given.integer("lstm.n_layers", _count(weights, "RNN_0/RNN/MultiRNNCell/Cell{}")),
        "cell_clip": given.limit("lstm.cell_clip"),
        "proj_clip": given.limit("lstm.proj_clip"),
        "residual": given.choice("lstm.use_skip_connections", (True, False), False),
    }
    if is_char:
        values |= _character_values(given, weights)
    elif given.has("char_cnn"):
        given.notes.append(
            f"{path.name} has a char_cnn section, but {weights.path.name} has a word table (embedding) "
            "and no characters: this is a word-input model."
        )
    if not given.has("lstm.use_skip_connections"):
        given.notes.append("Weights do not show whether layers are residual; verify the model.")
    try:
        config = BilmConfig.from_dict(values)
    except ConfigError as error:
        raise ModelError(
            f"{path} describes an impossible model: {error.message}", remedy=_SAME_PLACE
        ) from error
    if config.proj_clip is not None and config.proj_clip < 1.0 and config.hidden_dim == config.dim:
        given.notes.append(
            f"lstm.proj_clip = {config.proj_clip:g} limits outputs that are not projected; some tools "
            "apply it to projected outputs only."
        )
    return config, 0 if is_char else (words or (0,))[0], given.notes


def _character_values(given: _Options, weights: ArrayFile) -> dict[str, Any]:
    table = weights.shape("char_embed") or ()
    n_rows, char_dim = table if len(table) == 2 else (N_CHARACTERS - 1, None)
    shapes = [weights.shape(f"CNN/W_cnn_{n}") or () for n in range(_count(weights, "CNN/W_cnn_{}"))]
    n_characters = given.integer("char_cnn.n_characters", n_rows + 1)
    if n_characters not in (N_CHARACTERS - 1, N_CHARACTERS, n_rows + 1):
        raise given.error("char_cnn.n_characters", n_characters, f"{N_CHARACTERS - 1} or {N_CHARACTERS}")
    return {
        "char_dim": given.integer("char_cnn.embedding.dim", char_dim),
        "filters": given.pairs("char_cnn.filters", [(s[1], s[3]) for s in shapes if len(s) == 4]),
        "n_highway": given.integer("char_cnn.n_highway", _count(weights, "CNN_high_{}")),
        "max_chars": given.integer("char_cnn.max_characters_per_token", 50, "the usual value"),
        "char_activation": given.choice("char_cnn.activation", ("relu", "tanh"), "relu"),
    }


def _count(weights: ArrayFile, pattern: str) -> int:
    """How many of CNN_high_0, CNN_high_1, ... there are."""
    group, _, name = pattern.rpartition("/")
    names = set(weights.names(group))
    return next((number for number in range(_MOST + 1) if name.format(number) not in names), _MOST + 1)


def checked_layout(config: BilmConfig, n_words: int, path: Path, weights: ArrayFile) -> list[Entry]:
    """The datasets of the model, after checking that all are there in the shapes that the options ask
    for, and none too many. Nothing is read before that."""

    def error(dataset: str, problem: str) -> ModelError:
        section = "lstm" if dataset.startswith(("RNN", "embedding")) else "char_cnn"
        options = options_of(config)[section].items()
        reasons = ", ".join(f"{section}.{name} = {json.dumps(value)}" for name, value in options)
        return ModelError(f"{weights.path}: {problem} ({path.name}: {reasons}).", remedy=_SAME_PLACE)

    for name in _unexpected(config):
        if weights.shape(name) is not None:
            raise error(name, f"the dataset {name} has no place in this model")
    entries = layout(config, n_words)
    for entry in entries:
        shape, expected = weights.shape(entry.name), entry.shape
        if shape is None:
            raise error(entry.name, f"it lacks the dataset {entry.name}, shape {expected}")
        has_extra_row = entry.name == "char_embed" and shape == (expected[0] + 1, expected[1])
        if shape != expected and not has_extra_row:  # the loader drops that row
            raise error(entry.name, f"{entry.name} has shape {shape}, but the options ask for {expected}")
    return entries


def _unexpected(config: BilmConfig) -> list[str]:
    """Datasets that a model with one more layer, filter, highway or projection would have."""
    names = [f"{cell(direction, config.n_layers)}/W_0" for direction in (0, 1)]
    if config.hidden_dim == config.dim:
        names.append(f"{cell(0, 0)}/W_P_0")
    if config.input == "char":
        names += [f"CNN/W_cnn_{len(config.filters)}", f"CNN_high_{config.n_highway}/W_carry"]
        if sum(count for _, count in config.filters) == config.dim:
            names.append("CNN_proj/W_proj")
    return names


def options_of(config: BilmConfig, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a model; those in ``more`` that say nothing about its shape are kept."""
    more = more or {}
    options = {name: value for name, value in more.items() if name != "char_cnn"}
    options["lstm"] = {
        **(more.get("lstm") or {}),
        "dim": config.hidden_dim,
        "projection_dim": config.dim,
        "n_layers": config.n_layers,
        "cell_clip": config.cell_clip,
        "proj_clip": config.proj_clip,
        "use_skip_connections": config.residual,
    }
    if config.input == "char":
        options["char_cnn"] = {
            **(more.get("char_cnn") or {}),
            "activation": config.char_activation,
            "embedding": {"dim": config.char_dim},
            "filters": [list(pair) for pair in config.filters],
            "max_characters_per_token": config.max_chars,
            "n_characters": N_CHARACTERS,
            "n_highway": config.n_highway,
        }
    return options
