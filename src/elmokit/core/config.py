"""Settings: frozen dataclasses that check themselves.

Every field carries its own help text (``option(default, help)``), which the command line shows.
A setting is resolved in this order, later wins: preset, TOML file, command-line flag.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.core.errors import ConfigError, nearest

__all__ = [
    "Config",
    "DropoutConfig",
    "RunConfig",
    "duration",
    "option",
]

C = TypeVar("C", bound="Config")


def option(default: Any, help: str, *, at_least: float | None = None, at_most: float | None = None) -> Any:
    """A dataclass field with a default, a help text and an allowed range (both ends included)."""
    return dataclasses.field(
        default=default, metadata={"help": help, "at_least": at_least, "at_most": at_most}
    )


class Config:
    """What all settings share: checking, and a strict way to and from plain dictionaries."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _checked(field.name, hints[field.name], getattr(self, field.name))
            low, high = field.metadata.get("at_least"), field.metadata.get("at_most")
            if value is not None and (
                (low is not None and value < low) or (high is not None and value > high)
            ):
                limits = " and ".join(
                    f"at {word} {limit:g}"
                    for word, limit in (("least", low), ("most", high))
                    if limit is not None
                )
                raise ConfigError(f"{field.name} = {value!r} is out of range: it must be {limits}.")
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


def _checked(name: str, hint: Any, value: Any) -> Any:
    """``value`` as the type ``hint`` says, or a ConfigError that names the field."""
    origin = get_origin(hint)
    if origin is Literal:
        choices = get_args(hint)
        if value in choices:
            return value
        raise ConfigError(
            f"{name} = {value!r} is not a choice.", remedy=nearest(str(value), map(str, choices))
        )
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return _checked(name, inner, value)
    if origin is tuple:
        try:
            pairs = tuple((int(width), int(count)) for width, count in value)
        except (TypeError, ValueError):
            pairs = ()
        if pairs and all(width > 0 and count > 0 for width, count in pairs):
            return pairs
        raise ConfigError(
            f"{name} = {value!r} is not a list of (width, count) pairs of positive numbers.",
            remedy="Write it as 1:32,2:32,3:64 or, in TOML, [[1, 32], [2, 32], [3, 64]].",
        )
    if isinstance(hint, type) and issubclass(hint, Config):
        if isinstance(value, Mapping):
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


@dataclass(frozen=True, kw_only=True)
class DropoutConfig(Config):
    """What is left out at random while a biLM learns."""

    dropout_word: float = option(0.0, "Share of words blanked.", at_least=0, at_most=0.95)
    dropout_input: float = option(0.1, "Dropout on word vectors.", at_least=0, at_most=0.95)
    dropout_layer: float = option(0.1, "Dropout between layers.", at_least=0, at_most=0.95)
    dropout_weight: float = option(0.0, "Dropout on recurrent weights.", at_least=0, at_most=0.95)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """What every training run has: its length, its optimiser, how often it is measured."""

    epochs: int = option(10, "Passes over the text.", at_least=1)
    max_steps: int | None = option(None, "Stop after this many steps.", at_least=1)
    max_time: float | None = option(None, "Stop after this many seconds of training.", at_least=1)
    optimizer: Literal["adamw", "adam"] = option("adamw", "AdamW, or Adam with L2.")
    lr: float = option(2e-3, "Highest learning rate.", at_least=0)
    schedule: Literal["cosine", "constant"] = option("cosine", "Learning rate after the warm-up.")
    warmup: float = option(0.05, "Share of all steps that warm up.", at_least=0, at_most=1)
    weight_decay: float = option(0.0, "Weight decay, on densely updated matrices.", at_least=0)
    clip_norm: float = option(1.0, "Gradient norm is cut to this.", at_least=0)
    ema: float = option(
        0.0, "Keep a moving average of the weights with this decay (0: off).", at_least=0, at_most=0.99999
    )
    evals_per_epoch: int = option(1, "Measure on held-out text this often per epoch.", at_least=1)
    patience: int = option(0, "Stop after this many evaluations without gain (0: never).", at_least=0)
    seed: int = option(0, "Seed of everything random.", at_least=0, at_most=2**31 - 1)


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
