#!/usr/bin/env python
"""Which wheels pip finds for each supported Python: a table of every core dependency, and what those need.

``pip download --only-binary=:all: --python-version VERSION`` looks for wheels only, as if it ran on that
Python. It reads markers such as ``python_version < "3.11"`` for the Python that runs it, so they are resolved
here. torch is taken without its own dependencies: those of its CUDA build are gigabytes.

    python release/wheels.py                     # the table in docs/installing.md
    python release/wheels.py --python 3.14 gensim
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from requirements import CORE, constraints

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")


def download(python: str, requirements: list[str], folder: Path, *options: str) -> str:
    """Download wheels for a Python; return pip's last error, or nothing."""
    (folder / "constraints.txt").write_text("\n".join(constraints(python)), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--python-version", python, "--dest", str(folder), *options]
    command += ["--constraint", str(folder / "constraints.txt"), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else (errors or [done.stderr.strip()])[-1]


def wheels(python: str, requirements: list[Requirement]) -> tuple[dict[str, str], int]:
    """The version of each wheel by name, and how many packages they need in all; pip's error instead of a
    version where there is none."""
    wanted = [one for one in requirements if one.marker is None or one.marker.evaluate(environment(python))]
    plain = [f"{one.name}{one.specifier}" for one in wanted]
    with tempfile.TemporaryDirectory() as temporary:
        folder, missing = Path(temporary), dict[str, str]()
        for requirement in plain:
            if error := download(python, [requirement], folder, "--no-deps"):
                missing[canonicalize_name(Requirement(requirement).name)] = error
        rest = [text for text in plain if Requirement(text).name != "torch"]
        needed = [*rest, *TORCH_NEEDS] if len(rest) < len(plain) else rest
        if not missing and (error := download(python, needed, folder)):
            missing["(all together)"] = error
        names = [parse_wheel_filename(file.name) for file in folder.glob("*.whl")]
        return {**{str(name): str(version) for name, version, *_ in names}, **missing}, len(names)


def environment(python: str) -> dict[str, str]:
    """What markers are about."""
    return {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("requirements", nargs="*", default=CORE, help="other requirements than the core ones")
    parser.add_argument("--python", action="append", help="only this Python; may be repeated")
    given = parser.parse_args()
    requirements, pythons = [Requirement(text) for text in given.requirements], given.python or PYTHONS
    columns = {}
    for python in pythons:
        print(f"looking for wheels for Python {python}", file=sys.stderr)
        columns[python] = wheels(python, requirements)
    print("|", *pythons, sep=" | ", end=" |\n")
    print("|---" * (len(pythons) + 1), end="|\n")
    for name in sorted(str(canonicalize_name(one.name)) for one in requirements):
        print(
            f"| {name}",
            *(columns[python][0].get(name, "not needed") for python in pythons),
            sep=" | ",
            end=" |\n",
        )
    print("| wheels in all", *(str(columns[python][1]) for python in pythons), sep=" | ", end=" |\n")
    errors = [found["(all together)"] for found, _ in columns.values() if "(all together)" in found]
    print(*errors, sep="\n", file=sys.stderr)
    return int(any("ERROR" in version for found, _ in columns.values() for version in found.values()))


if __name__ == "__main__":
    sys.exit(main())
