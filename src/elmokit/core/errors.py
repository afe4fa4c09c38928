"""Every error elmokit raises on purpose.

    ElmokitError
    ├── ConfigError         a setting is wrong, unknown or contradicts another
    ├── DataError           an input file cannot be used (names file and line)
    ├── ModelError          a model folder is missing, damaged or not ours
    ├── RunError            a run cannot start, resume or be saved
    └── MissingExtraError   an optional package is needed and not installed

A message says what is wrong and where; ``remedy`` says what to do about it. The command line
prints both and exits with code 2.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable
from typing import Any

FRESH = "The files are damaged or do not belong together; take a fresh copy of the folder."
"""The remedy for a model folder that cannot be read."""


class ElmokitError(Exception):
    """Base of all elmokit errors.

    Args:
        message: What is wrong, and where.
        remedy: How to fix it.
    """

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class ConfigError(ElmokitError):
    """A setting is wrong, unknown, or contradicts another; ``setting`` names the one that is wrong alone."""

    setting = ""


class DataError(ElmokitError):
    """An input file or text cannot be used."""


class ModelError(ElmokitError):
    """A model folder is missing, damaged, or not an elmokit model."""


class RunError(ElmokitError):
    """A run cannot start, resume, or be saved."""


class MissingExtraError(ElmokitError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed.",
            remedy=f"Install it with: pip install 'elmokit[{extra}]'",
        )


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """A module of an optional package, or an error that names the extra to install."""
    if importlib.util.find_spec(package := module.partition(".")[0]) is None:
        raise MissingExtraError(package, extra, purpose)
    return importlib.import_module(module)


def nearest(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    """A hint such as ``Did you mean 'hidden_dim'?``; if nothing is near, ``otherwise``, or the choices."""
    known = list(choices)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return otherwise or f"Choose from: {', '.join(known)}."
