"""What a release promises: one version, supported Pythons, extras that errors name."""

from __future__ import annotations

import re
from pathlib import Path

import elmokit
from elmokit.core.config import read_toml

ROOT = Path(__file__).parents[2]
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]


def test_the_version_is_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8").replace("cff-version:", "")
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert latest
    assert latest[1] == elmokit.__version__


def test_checks_of_a_release_cover_every_extra() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    package = (ROOT / "release" / "package.py").read_text("utf-8")
    assert {*re.findall(r'^        "([\w-]+)": \("?', package, re.M)} == extras - {
        "hub"
    }  # tokenizers brings it
    (oldest,) = re.findall(r"-e '\.\[(.*)\]' pytest ", (ROOT / "Makefile").read_text("utf-8"))
    requirements = (ROOT / "release" / "requirements.py").read_text("utf-8")
    (ours,) = re.findall(r"^OURS = \((.*)\)", requirements, re.M)
    assert (
        {*oldest.split(",")}
        == {*re.findall(r'"([\w-]+)"', ours)}
        == extras
        - {
            "ray",
            "sentence-transformers",
        }
    )


def test_every_supported_python_is_named_alike() -> None:
    versions = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if ":: 3." in name]
    assert versions == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    for page in ("README.md", "docs/installing.md"):
        assert f"{versions[0]} to {versions[-1]}" in (ROOT / page).read_text(encoding="utf-8")


def test_the_core_does_not_need_gensim_and_every_extra_is_documented() -> None:
    assert not [name for name in PROJECT["dependencies"] if name.startswith("gensim")]
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    assert not [name for name in extras if f"`{name}`" not in page]
    sources = (ROOT / "src" / "elmokit").rglob("*.py")
    named = {
        name
        for path in sources
        for name in re.findall(
            r'(?:import_extra|MissingExtraError)\("[\w.]+", "([\w-]+)"', path.read_text("utf-8")
        )
    }
    assert named <= extras
