"""Settings: frozen dataclasses that validate themselves.

Every field has a help text (``option(default, help)``), which the command line shows. Settings come from
a preset, a TOML file and flags; later ones win.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.core.errors import ConfigError, nearest

C = TypeVar("C", bound="Config")


def option(
    default: Any,
    help: str,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """A dataclass field with a help text, an allowed range (both ends included) and a way to read strings."""
    return dataclasses.field(
        default=default, metadata={"help": help, "parse": parse, "range": (at_least, at_most)}
    )


class Config:
    """Base of all settings: validation, and strict conversion from and to dictionaries."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, parse = getattr(self, field.name), field.metadata.get("parse")
            try:
                value = parse(value) if parse is not None and isinstance(value, str) else value
                value = _validate(field.name, hints[field.name], value)
                low, high = field.metadata.get("range", (-math.inf, math.inf))
                if isinstance(value, int | float) and not low <= value <= high:
                    limits = [f"at least {low:g}"] if low > -math.inf else []
                    limits += [f"at most {high:g}"] if high < math.inf else []
                    problem = f"it must be {' and '.join(limits)}."
                    raise ConfigError(f"{field.name} = {value!r} is out of range: {problem}")
            except ConfigError as error:
                error.setting = error.setting or field.name
                raise
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Build from a dictionary; an unknown key is an error that names the nearest field."""
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in names:
                raise ConfigError(
                    f"There is no setting {key!r} in {cls.__name__}.", remedy=nearest(key, names)
                )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary that ``from_dict`` turns back into an equal object."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


def _validate(name: str, hint: Any, value: Any) -> Any:
    """``value`` converted to the type ``hint``, or a ConfigError that names the field."""
    origin = get_origin(hint)
    if origin is Literal:
        choices = get_args(hint)
        if value in choices:
            return value
        remedy = nearest(str(value), map(str, choices))
        raise ConfigError(f"{name} = {value!r} is not a valid choice.", remedy=remedy)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return _validate(name, inner, value)
    if origin is tuple:
        try:
            rows = [pair.split(":") for pair in value.split(",")] if isinstance(value, str) else value
            pairs = tuple((int(width), int(count)) for width, count in rows)
        except (TypeError, ValueError, OverflowError):
            pairs = ()
        if pairs and all(width > 0 and count > 0 for width, count in pairs):
            return pairs
        raise ConfigError(
            f"{name} = {value!r} is not a list of (width, count) pairs of positive numbers.",
            remedy="Write it as 1:32,2:32,3:64 or, in TOML, [[1, 32], [2, 32], [3, 64]].",
        )
    if issubclass(hint, Config) and isinstance(value, Mapping):
        return hint.from_dict(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{name} is too large a number.") from error
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        if hint is float and value != value:
            raise ConfigError(f"{name} is not a number (nan).")
        return value
    raise ConfigError(f"{name} = {value!r} must be of type {hint.__name__}.")


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Seconds from 90, 90s, 45m, 1.5h or 1h30m."""
    text = text.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"{text!r} is not a length of time.", remedy="Write 90s, 45m, 1.5h or 1h30m.")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, kw_only=True)
class DropoutConfig(Config):
    """Dropout while a biLM is trained."""

    dropout_word: float = option(0.0, "Share of words dropped.", at_least=0, at_most=0.95)
    dropout_input: float = option(0.1, "Dropout on word vectors.", at_least=0, at_most=0.95)
    dropout_layer: float = option(0.1, "Dropout between layers.", at_least=0, at_most=0.95)
    dropout_weight: float = option(0.0, "Dropout on recurrent weights.", at_least=0, at_most=0.95)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Settings of every training run: length, optimizer, evaluation."""

    epochs: int = option(10, "Passes over the text.", at_least=1)
    max_steps: int | None = option(None, "Stop after this many steps.", at_least=1)
    max_time: float | None = option(
        None, "Stop after this much training time (90s, 45m, 1h30m).", at_least=1, parse=duration
    )
    optimizer: Literal["adamw", "adam"] = option("adamw", "AdamW, or Adam with L2.")
    lr: float = option(2e-3, "Highest learning rate.", at_least=0, at_most=1000)
    schedule: Literal["cosine", "constant"] = option("cosine", "Learning rate schedule after warm-up.")
    warmup: float = option(0.05, "Share of all steps used for warm-up.", at_least=0, at_most=1)
    weight_decay: float = option(0.0, "Weight decay, on densely updated matrices.", at_least=0)
    clip_norm: float = option(1.0, "Clip the gradient norm to this.", at_least=0)
    ema: float = option(
        0.0, "Keep a moving average of the weights with this decay (0: off).", at_least=0, at_most=0.99999
    )
    evals_per_epoch: int = option(1, "Evaluations on held-out data per epoch.", at_least=1)
    patience: int = option(0, "Stop after this many evaluations without improvement (0: never).", at_least=0)
    seed: int = option(0, "Random seed.", at_least=0, at_most=2**31 - 1)


def read_toml(path: Path, sections: Mapping[str, type[Config]] | None = None) -> dict[str, Any]:
    """Read a TOML file; with ``sections``, any other section or name is an error that names the nearest."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read settings from {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    if sections is None:
        return values
    for section, settings in values.items():
        if section not in sections:
            raise ConfigError(f"{path}: unknown section {section!r}.", remedy=nearest(section, sections))
        if not isinstance(settings, dict):
            raise ConfigError(f"{section} in {path} must be a section: [{section}].")
        known = get_type_hints(sections[section])
        for name in settings:
            if name not in known:
                message = f"{path}: there is no setting {name!r} in [{section}]."
                raise ConfigError(message, remedy=nearest(name, known))
    return values


def setting_paths(config: Config | type[Config]) -> Iterator[tuple[str, ...]]:
    """The path to every setting within nested settings, such as ("training", "lr")."""
    for name, hint in get_type_hints(config if isinstance(config, type) else type(config)).items():
        if isinstance(hint, type) and issubclass(hint, Config):
            yield from ((name, *path) for path in setting_paths(hint))
        else:
            yield (name,)


def merge_settings(settings: Mapping[str, Any], **configs: Config) -> dict[str, Config]:
    """Put settings by name (``lr``) or, where several have that name, by path (``training.lr``) in their
    places within ``configs``, which may be nested; what is not named stays as it is.

    >>> merge_settings({"lr": 0.1}, training=RunConfig())["training"].lr
    0.1
    """
    paths = [(name, *path) for name, config in configs.items() for path in setting_paths(config)]
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        parts = tuple(name.split("."))
        matches = [path for path in paths if path[-len(parts) :] == parts]
        if not matches:
            known = [path[-1] if len(parts) == 1 else ".".join(path) for path in paths]
            raise ConfigError(f"There is no setting {name!r}.", remedy=nearest(name, known))
        if len(matches) > 1:
            choices = " or ".join(".".join(path) for path in matches)
            raise ConfigError(f"Several settings are called {name!r}.", remedy=f"Write {choices}.")
        *sections, last = matches[0]
        place = changes
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return {name: _apply(config, changes.get(name, {})) for name, config in configs.items()}


def _apply(config: Config, changes: Mapping[str, Any]) -> Config:
    """A copy with all changes made at once, so that settings that belong together are checked together."""
    values = {
        name: _apply(old, value) if isinstance(old := getattr(config, name), Config) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **values) if values else config  # type: ignore[type-var]
