#!/usr/bin/env python
"""What pyproject.toml and constraints.txt ask for. As a program, it prints the lowest versions that
pyproject.toml allows, as constraints for pip; torch keeps its version of constraints.txt, as old wheels of
torch are gigabytes."""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE: list[str] = PROJECT["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = ("hub", "model2vec", "morpheme", "official", "search", "serve", "static")
"""Extras whose lower bounds are tested: all but sentence-transformers, which brings gigabytes."""


def constraints(python: str) -> list[str]:
    """constraints.txt for a Python version, without markers."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {"python_version": python}
    return [f"{one.name}{one.specifier}" for one in pins if one.marker is None or one.marker.evaluate(here)]


def lowest() -> list[str]:
    """Each requirement at its lower bound."""
    wanted = [Requirement(text) for text in [*CORE, *(text for extra in OURS for text in EXTRAS[extra])]]
    bounds = {
        one.name: next(bound.version for bound in one.specifier if bound.operator == ">=") for one in wanted
    }
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    torch = next(pin for pin in constraints(python) if pin.startswith("torch=="))
    return [torch if name == "torch" else f"{name}=={bound}" for name, bound in bounds.items()]


if __name__ == "__main__":
    print(*lowest(), sep="\n")
