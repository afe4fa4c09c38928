"""Settings: frozen dataclasses that check themselves, and the presets built from them.

Every field carries its own help text (``option(default, help)``), which the command line shows.
A setting is resolved in this order, later wins: preset, TOML file, command-line flag.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmokit.errors import ConfigError, nearest

__all__ = [
    "PIPELINES",
    "PRESETS",
    "BilmConfig",
    "Config",
    "DropoutConfig",
    "PretrainConfig",
    "RunConfig",
    "TextConfig",
    "TrainingConfig",
    "VocabularyConfig",
    "duration",
    "option",
    "read_toml",
    "resolve",
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
class TextConfig(Config):
    """How raw text becomes words. The defaults are the ``plain`` pipeline."""

    unicode: Literal["NFC", "NFKC", "none"] = option(
        "NFC", "Unicode form the text is brought to; NFKC also folds width and ligatures."
    )
    mend: bool = option(False, "Mend feed damage: HTML entities and tags, stray backslashes, ' #39;'.")
    contractions: bool = option(False, "Expand English contractions: don't -> do not.")
    urls: bool = option(False, "Replace web and mail addresses by <url>.")
    lowercase: bool = option(False, "Lower-case everything.")
    punctuation: Literal["keep", "remove"] = option(
        "keep", "Keep punctuation marks as words of their own, or remove them."
    )
    tokens: Literal["words", "whitespace"] = option(
        "words", "Find words by rule, or trust the spaces (text that is already tokenised)."
    )
    unit: Literal["text", "sentence"] = option(
        "text", "What <s> and </s> enclose: a whole text (line, row) or each sentence in it."
    )


PIPELINES: dict[str, TextConfig] = {
    "plain": TextConfig(),
    "classic": TextConfig(mend=True, contractions=True, urls=True, lowercase=True, punctuation="remove"),
}


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Config):
    """Which words the model can predict, and the pieces that subword input is made of."""

    max_words: int = option(100_000, "Keep at most this many words; the rest is <unk>.", at_least=1)
    min_count: int = option(2, "Keep words seen at least this often; the rest is <unk>.", at_least=1)
    n_pieces: int = option(8_000, "Pieces to learn for subword input.", at_least=1)


@dataclass(frozen=True, kw_only=True)
class BilmConfig(Config):
    """The shape of a bidirectional language model."""

    input: Literal["char", "word", "subword", "morpheme", "dictionary"] = option(
        "char",
        "What a word enters as: its characters (CNN), a table row, or pooled pieces; dictionary (listed "
        "characters and a table row) in converted models only.",
    )
    dim: int = option(256, "Width of a layer in each direction; vectors are twice this.", at_least=1)
    hidden_dim: int = option(
        256, "LSTM cells per layer and direction; projected to dim if they differ.", at_least=1
    )
    n_layers: int = option(2, "LSTM layers in each direction.", at_least=1, at_most=64)
    residual: bool = option(True, "Add each LSTM layer's input to its output, from the second on.")
    cell_clip: float | None = option(None, "Limit LSTM cells to +- this.", at_least=1e-6)
    proj_clip: float | None = option(None, "Limit LSTM outputs to +- this.", at_least=1e-6)
    max_chars: int = option(50, "Characters (bytes) of a word that are read.", at_least=3, at_most=1000)
    char_dim: int = option(16, "Width of a character's vector.", at_least=1)
    filters: tuple[tuple[int, int], ...] = option(
        ((1, 32), (2, 64), (3, 128), (4, 128), (5, 160)),
        "Character filters as width:count pairs.",
    )
    n_highway: int = option(1, "Highway layers over the character filters.", at_least=0, at_most=64)
    char_activation: Literal["relu", "tanh"] = option("relu", "Activation after the filters' maximum.")
    pooling: Literal["mean", "max", "sum"] = option("mean", "How a word's pieces become one.")
    objective: Literal["sampled", "full", "adaptive", "none"] = option(
        "sampled",
        "How the next word is learnt: sampled, full or adaptive softmax; none in models that were converted "
        "and predict no word.",
    )
    n_samples: int = option(4096, "Draws per step for the sampled softmax.", at_least=1)
    tie: bool = option(False, "Use one table for input and output words (input word only).")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie and self.input != "word":
            raise ConfigError(
                f"tie = True needs input = 'word', not {self.input!r}: only a word table can be shared.",
                remedy="Leave tie out, or choose input = 'word'.",
            )
        if self.tie and self.objective == "adaptive":
            raise ConfigError(
                "tie = True does not go with objective = 'adaptive', whose tables have other widths.",
                remedy="Choose objective = 'sampled' or 'full', or leave tie out.",
            )
        widest = max(width for width, _ in self.filters)
        if self.input in ("char", "dictionary") and widest > self.max_chars:
            raise ConfigError(
                f"A character filter of width {widest} does not fit into max_chars = {self.max_chars}.",
                remedy="Raise max_chars or use narrower filters.",
            )


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


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(DropoutConfig, RunConfig):
    """How a language model is trained."""

    n_lanes: int = option(64, "Streams of text read side by side (the batch).", at_least=1)
    window: int = option(35, "Words of each lane in a step; LSTM state is carried on.", at_least=1)
    dropout_output: float = option(0.1, "Dropout before the softmax.", at_least=0, at_most=0.95)
    held_out: float = option(
        0.02, "Share of texts held out when no --valid is given.", at_least=0, at_most=0.5
    )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(Config):
    """Everything that decides what ``pretrain`` does with a text."""

    text: TextConfig = TextConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: BilmConfig = BilmConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.objective == "none" or self.model.input == "dictionary":
            name = "objective = 'none'" if self.model.objective == "none" else "input = 'dictionary'"
            raise ConfigError(
                f"{name} is for converted models, which predict no word and cannot be pretrained.",
                remedy="Choose another. A converted model embeds texts, and classifiers fit over it.",
            )


_CLASSIC = PIPELINES["classic"].to_dict()

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "vocabulary": {"max_words": 10_000},
        "model": {
            "dim": 64,
            "hidden_dim": 64,
            "filters": ((1, 16), (2, 32), (3, 48), (4, 64)),
            "objective": "full",
        },
        "training": {"n_lanes": 16, "window": 20, "lr": 4e-3},
    },
    "small": {},
    "medium": {
        "model": {
            "dim": 512,
            "hidden_dim": 512,
            "filters": ((1, 32), (2, 64), (3, 128), (4, 256), (5, 256), (6, 256)),
        },
        "training": {"lr": 1e-3},
    },
    "original": {
        "vocabulary": {"max_words": 793_471, "min_count": 3},
        "model": {
            "dim": 512,
            "hidden_dim": 4096,
            "cell_clip": 3.0,
            "proj_clip": 3.0,
            "filters": ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
            "n_highway": 2,
            "n_samples": 8192,
        },
        "training": {"n_lanes": 128, "window": 20, "lr": 1e-3, "clip_norm": 10.0},
    },
    "classic": {
        "text": _CLASSIC,
        "vocabulary": {"max_words": 30_000},
        "model": {
            "input": "word",
            "dim": 150,
            "hidden_dim": 150,
            "residual": False,
            "n_samples": 2048,
        },
        "training": {
            "lr": 4e-3,
            "dropout_input": 0.0,
            "dropout_layer": 0.0,
            "dropout_output": 0.0,
        },
    },
}
"""What each preset changes from the defaults, by section."""


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


def read_toml(path: Path) -> dict[str, dict[str, Any]]:
    """Settings from a TOML file with the sections text, vocabulary, model and training."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read settings from {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    sections = [field.name for field in dataclasses.fields(PretrainConfig)]
    for name, section in values.items():
        if name not in sections:
            raise ConfigError(
                f"{path} has a section {name!r} that means nothing here.",
                remedy=nearest(name, sections),
            )
        if not isinstance(section, dict):
            raise ConfigError(f"{name} in {path} must be a section: [{name}].")
        fields = [field.name for field in dataclasses.fields(get_type_hints(PretrainConfig)[name])]
        for key in section:
            if key not in fields:
                raise ConfigError(
                    f"{path}: there is no setting {key!r} in [{name}].", remedy=nearest(key, fields)
                )
        if isinstance(section.get("max_time"), str):
            section["max_time"] = duration(section["max_time"])
    return values


def resolve(preset: str = "small", *overrides: Mapping[str, Mapping[str, Any]]) -> PretrainConfig:
    """The preset's settings with each of ``overrides`` (by section) laid over it, in order."""
    if preset not in PRESETS:
        raise ConfigError(f"There is no preset {preset!r}.", remedy=nearest(preset, PRESETS))
    merged: dict[str, dict[str, Any]] = {field.name: {} for field in dataclasses.fields(PretrainConfig)}
    for layer in (PRESETS[preset], *overrides):
        for section, values in layer.items():
            if section not in merged:
                raise ConfigError(f"There is no section {section!r}.", remedy=nearest(section, merged))
            merged[section].update(values)
    return PretrainConfig.from_dict(merged)
