"""Every command and snippet in README and docs is run, in order, as a reader would."""

from __future__ import annotations

import json
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit.cli.main import VERBS
from elmokit.corpora import mini_news
from program import environment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(<!-- (?:not run|needs): ([^>]+) -->\n)?```(bash|python)\n(.*?)```", re.S)
_NEEDS = re.compile(r"<!-- needs: (\w+) -->")

# One process for a page: its commands go to a shell, its snippets to a Python that stays open, where each has
# to bring its own names. What is made by make is only looked up.
_READER = """
import json, subprocess, sys
look_up = ["make", "--dry-run", "--always-make", "--directory", sys.argv[1]]
for kind, text in json.load(sys.stdin):
    print("-" * 20, text, sep="\\n", flush=True)
    if kind == "python":
        exec(text, {"__name__": "__main__"})
    elif text.lstrip().startswith("make "):
        targets = [line.split()[1] for line in text.strip().splitlines()]
        subprocess.run([*look_up, *targets], check=True)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], stdin=subprocess.DEVNULL, check=True)
"""


def _blocks(page: Path, package: str = "") -> list[tuple[str, str]]:
    """The snippets of a page: those that need nothing more, or those that need this package."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(kind, text) for _, needed, kind, text in found if needed == package]


def _write_texts(folder: Path) -> None:
    lines = mini_news().read_text(encoding="utf-8").splitlines()[1:]
    for name, chosen in (("my_text.txt", lines[:80]), ("other_text.txt", lines[80:90])):
        (folder / name).write_text("\n".join(chosen) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    _run(page, _blocks(page), tmp_path)


@pytest.mark.parametrize(
    ("page", "package"),
    [(page, package) for page in PAGES for package in _NEEDS.findall(page.read_text(encoding="utf-8"))],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_snippets_that_need_another_package_run(page: Path, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    _run(page, _blocks(page, package), tmp_path)


def _run(page: Path, blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    _write_texts(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _READER, str(ROOT)],
        input=json.dumps(blocks),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout}\n{done.stderr}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_contributing_names_every_module_and_no_other() -> None:
    package, named = "", set()
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if cells := re.fullmatch(r"\| (?:`(\w+)`)? ?\| ([^|]+) \| [^|]+ \|", line):
            package = cells[1] or package
            named |= {(package, name) for name in re.findall(r"`(\w+)`", cells[2])}
    home = ROOT / "src/elmokit"
    modules = {(path.parent.name, path.stem) for path in [*home.glob("*.py"), *home.glob("*/*.py")]}
    modules = {place for place in modules if place[1] != "__init__"}
    verbs = {("cli", verb) for verb in VERBS}  # only those that do more than read options and print
    assert modules - verbs <= named <= modules


def test_the_reference_has_every_public_name() -> None:
    named = re.findall(r"^::: elmokit\.([\w.]+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.M)
    further = {*elmokit.settings.__all__} - {*elmokit.__all__}
    public = {*elmokit.__all__, *(f"settings.{name}" for name in further)}
    assert sorted(named) == sorted(public | {f"results.{name}" for name in elmokit.results.__all__})
    for name in named:
        assert operator.attrgetter(name)(elmokit).__doc__, name
