"""``options.json`` of a published ELMo model: read with care, and what it lacks filled from the weights."""

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

__all__ = ["checked_layout", "model_config", "options_of", "read_options"]

_LARGEST = 1 << 20
_MOST = 64  # filters, highways, layers: far more than any model has
_FIT = "Take options and weights from the same place: they must belong together."
_ASKING = {
    "char_embed": ("char_cnn.embedding.dim",),
    "CNN": ("char_cnn.filters", "char_cnn.embedding.dim"),
    "CNN_proj": ("char_cnn.filters", "lstm.projection_dim"),
    "embedding": ("lstm.projection_dim",),
    "RNN_0": ("lstm.dim", "lstm.projection_dim", "lstm.n_layers"),
    "RNN_1": ("lstm.dim", "lstm.projection_dim", "lstm.n_layers"),
}


def read_options(path: Path, *, remedy: str = _FIT) -> dict[str, Any]:
    """The options as they stand in the file."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(
                f"{path} is {path.stat().st_size:,} bytes long: that is no options file.", remedy=remedy
            )
        options = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(options, ensure_ascii=False).encode()  # text that cannot be written is no text
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}.",
            remedy="The file is cut off, damaged or foreign; take a fresh copy of it.",
        ) from error
    if not isinstance(options, dict):
        raise ModelError(f"{path} is not a JSON object.", remedy=remedy)
    return options


class _Said:
    """What the options say; what they leave out comes from elsewhere, with a note."""

    def __init__(self, options: Mapping[str, Any], path: Path) -> None:
        self._options, self._path = options, path
        self.notes: list[str] = []

    def has(self, name: str) -> bool:
        """Whether ``section.key`` is there."""
        return self._at(name) is not _ABSENT

    def whole(self, name: str, seen: int | None, why: str = "from the weights") -> int:
        """A whole number; ``seen`` is what stands in for it."""
        if seen is None and not self.has(name):
            raise ModelError(
                f"{self._path} lacks {name}, and the weights have no dataset that would show it.", remedy=_FIT
            )
        value = self._or_seen(name, seen, why)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(name, value, "a whole number")
        return value

    def limit(self, name: str) -> float | None:
        """A clip value; null, zero and nothing at all mean no limit."""
        value = self._or_seen(name, None, "no limit")
        if value is None or value is False:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= sys.float_info.max:
            raise self.wrong(name, value, "a number above zero, or null")
        if value == 0:
            self.notes.append(f"{name} = 0 is taken as no limit.")
        return float(value) or None

    def choice(self, name: str, choices: tuple[Any, ...], seen: Any) -> Any:
        """One of some values; ``seen`` is the usual one."""
        value = self._or_seen(name, seen, "the usual")
        if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
            raise self.wrong(name, value, f"one of {', '.join(map(repr, choices))}")
        return value

    def filters(self, name: str, seen: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """(width, count) pairs."""
        value = self._or_seen(name, seen, "from the weights")
        try:
            pairs = [(width, count) for width, count in value]
        except (TypeError, ValueError):
            pairs = []
        if (
            not pairs
            or len(pairs) > _MOST
            or not all(type(n) is int and n > 0 for pair in pairs for n in pair)
        ):
            raise self.wrong(name, value, "a list of [width, count] pairs of whole numbers")
        return pairs

    def wrong(self, name: str, value: Any, wanted: str) -> ModelError:
        """The error for a value that cannot be used."""
        return ModelError(f"{self._path}: {name} = {str(value)[:80]!r} is not {wanted}.", remedy=_FIT)

    def _at(self, name: str) -> Any:
        place: Any = self._options
        for part in name.split("."):
            if place is _ABSENT or place is None:
                return _ABSENT
            if not isinstance(place, Mapping):
                raise self.wrong(name.rpartition(".")[0], place, "an object")
            place = place.get(part, _ABSENT)
        return place

    def _or_seen(self, name: str, seen: Any, why: str) -> Any:
        value = self._at(name)
        if value is not _ABSENT:
            return value
        shown = json.dumps(seen) if seen is not None else "null"
        self.notes.append(f"{name} is missing from {self._path.name}: {shown} ({why}).")
        return seen


_ABSENT = object()


def model_config(
    options: Mapping[str, Any], path: Path, weights: ArrayFile
) -> tuple[BilmConfig, int, list[str]]:
    """The model's shape, the rows of its word table (0 for character input), and notes on what was
    filled in."""
    said = _Said(options, path)
    kernel, projection = weights.shape(f"{cell(0, 0)}/W_0"), weights.shape(f"{cell(0, 0)}/W_P_0")
    seen_hidden = kernel[1] // 4 if kernel and len(kernel) == 2 else None
    seen_dim = projection[1] if projection and len(projection) == 2 else seen_hidden
    n_rows = weights.shape("char_embed")
    words = weights.shape("embedding")
    is_char = n_rows is not None or (said.has("char_cnn") and words is None)
    values: dict[str, Any] = {
        "input": "char" if is_char else "word",
        "objective": "none",
        "dim": said.whole("lstm.projection_dim", seen_dim),
        "hidden_dim": said.whole("lstm.dim", seen_hidden),
        "n_layers": said.whole("lstm.n_layers", _count(weights, "RNN_0/RNN/MultiRNNCell/Cell{}")),
        "cell_clip": said.limit("lstm.cell_clip"),
        "proj_clip": said.limit("lstm.proj_clip"),
        "residual": said.choice("lstm.use_skip_connections", (True, False), False),
    }
    if is_char:
        values |= _character_values(said, weights, n_rows)
    elif said.has("char_cnn"):
        said.notes.append(
            f"{path.name} has a char_cnn section, but {weights.path.name} holds a word table (embedding) "
            "and no characters: this is a word-input model."
        )
    if not values["residual"] and not said.has("lstm.use_skip_connections"):
        said.notes.append("Whether layers are residual cannot be seen from weights; verify the model.")
    try:
        config = BilmConfig.from_dict(values)
    except ConfigError as error:
        raise ModelError(f"{path} describes a model that cannot be: {error.message}", remedy=_FIT) from error
    if config.proj_clip is not None and config.proj_clip < 1.0 and config.hidden_dim == config.dim:
        said.notes.append(
            f"lstm.proj_clip = {config.proj_clip:g} limits outputs that are not projected; some tools "
            "apply it to projected outputs only."
        )
    return config, 0 if is_char else (words or (0,))[0], said.notes


def _character_values(said: _Said, weights: ArrayFile, n_rows: tuple[int, ...] | None) -> dict[str, Any]:
    seen_filters = []
    for number in range(_count(weights, "CNN/W_cnn_{}")):
        shape = weights.shape(f"CNN/W_cnn_{number}") or ()
        seen_filters += [(shape[1], shape[3])] if len(shape) == 4 else []
    table = n_rows if n_rows is not None and len(n_rows) == 2 else None
    n_characters = said.whole("char_cnn.n_characters", table[0] + 1 if table else N_CHARACTERS)
    n_known = {N_CHARACTERS - 1, N_CHARACTERS, *([table[0] + 1] if table else ())}
    if n_characters not in n_known:
        raise said.wrong("char_cnn.n_characters", n_characters, f"{N_CHARACTERS - 1} or {N_CHARACTERS}")
    return {
        "char_dim": said.whole("char_cnn.embedding.dim", table[1] if table else None),
        "filters": said.filters("char_cnn.filters", seen_filters),
        "n_highway": said.whole("char_cnn.n_highway", _count(weights, "CNN_high_{}")),
        "max_chars": said.whole("char_cnn.max_characters_per_token", 50, "the usual"),
        "char_activation": said.choice("char_cnn.activation", ("relu", "tanh"), "relu"),
    }


def _count(weights: ArrayFile, pattern: str) -> int:
    """How many of CNN_high_0, CNN_high_1, ... there are."""
    group, _, name = pattern.rpartition("/")
    there = set(weights.names(group))
    return next((number for number in range(_MOST + 1) if name.format(number) not in there), _MOST + 1)


def checked_layout(config: BilmConfig, n_words: int, path: Path, weights: ArrayFile) -> list[Entry]:
    """The datasets of the model, once all are there in the shapes that the options ask for; nothing is
    read before that."""
    _check_counts(config, path, weights)
    entries = layout(config, n_words)
    for entry in entries:
        shape = weights.shape(entry.name)
        wanted = entry.shape
        if shape is None:
            raise ModelError(
                f"{weights.path} lacks the dataset {entry.name}, shape {wanted}, that {path.name} asks for"
                f"{_because(entry.name, config)}.",
                remedy=_FIT,
            )
        if entry.name == "char_embed" and shape == (wanted[0] + 1, wanted[1]):
            continue  # one row more, see the loader
        if shape != wanted:
            raise ModelError(
                f"{weights.path}: {entry.name} has shape {shape}, {path.name} asks for {wanted}"
                f"{_because(entry.name, config)}.",
                remedy=_FIT,
            )
    return entries


def _check_counts(config: BilmConfig, path: Path, weights: ArrayFile) -> None:
    """Refuse weights with more layers, filters or highways than the options say."""
    asked = [
        ("lstm.n_layers", config.n_layers, "RNN_0/RNN/MultiRNNCell/Cell{}"),
        ("lstm.n_layers", config.n_layers, "RNN_1/RNN/MultiRNNCell/Cell{}"),
    ]
    if config.input == "char":
        asked += [
            ("the length of char_cnn.filters", len(config.filters), "CNN/W_cnn_{}"),
            ("char_cnn.n_highway", config.n_highway, "CNN_high_{}"),
        ]
    for name, count, pattern in asked:
        found = _count(weights, pattern)
        if found > count:
            raise ModelError(
                f"{path}: {name} is {count}, but {weights.path} has {pattern.format(0)} to "
                f"{pattern.format(found - 1)}.",
                remedy=_FIT,
            )
    total = sum(count for _, count in config.filters)
    extra = [
        (f"{cell(0, 0)}/W_P_0", "lstm.dim and lstm.projection_dim", config.hidden_dim == config.dim),
        (
            "CNN_proj/W_proj",
            "the filters and lstm.projection_dim",
            config.input == "char" and total == config.dim,
        ),
    ]
    for name, widths, is_extra in extra:
        if is_extra and weights.shape(name) is not None:
            raise ModelError(
                f"{weights.path} has the dataset {name}, but {widths} are both {config.dim} wide in "
                f"{path.name}, so that nothing is projected.",
                remedy=_FIT,
            )


def _because(dataset: str, config: BilmConfig) -> str:
    """The options that decide the shape of a dataset, as in " (lstm.dim = 64)"."""
    options = options_of(config)
    found = []
    for name in _ASKING.get(dataset.split("/")[0], ("char_cnn.filters",)):
        place: Any = options
        for part in name.split("."):
            place = place.get(part, {})
        found.append(f"{name} = {json.dumps(place)}")
    return f" ({', '.join(found)})"


def options_of(config: BilmConfig, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of a model, laid over others that are kept as they are."""
    options: dict[str, Any] = {key: value for key, value in (more or {}).items() if key != "char_cnn"}
    options["lstm"] = {
        **(options.get("lstm") or {}),
        "dim": config.hidden_dim,
        "projection_dim": config.dim,
        "n_layers": config.n_layers,
        "cell_clip": config.cell_clip,
        "proj_clip": config.proj_clip,
        "use_skip_connections": config.residual,
    }
    if config.input == "char":
        options["char_cnn"] = {
            **((more or {}).get("char_cnn") or {}),
            "activation": config.char_activation,
            "embedding": {"dim": config.char_dim},
            "filters": [list(pair) for pair in config.filters],
            "max_characters_per_token": config.max_chars,
            "n_characters": N_CHARACTERS,
            "n_highway": config.n_highway,
        }
    return options
