#!/usr/bin/env python
"""Build the wheel and the sdist, check what they hold, and use the wheel in an empty environment elsewhere.

python release/package.py              # or: make package
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from requirements import ROOT

BESIDES = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md"}
BESIDES |= {"constraints.txt", "pyproject.toml", "setup.cfg"}  # what an sdist holds besides src/
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "word_table.safetensors"}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="elmokit-package-") as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder)
        check_contents(wheel, sdist)
        environment = Environment(folder / "environment", folder / "elsewhere")
        environment.pip("-c", str(ROOT / "constraints.txt"), str(wheel))
        use(environment)
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        (ROOT / "dist").mkdir()
        for file in (wheel, sdist):
            shutil.copy(file, ROOT / "dist")
    print(f"==> fine: dist/{sdist.name} and dist/{wheel.name}")


class Environment:
    """A virtual environment, and an empty folder to run things in."""

    def __init__(self, home: Path, cwd: Path) -> None:
        venv.create(home, with_pip=True)
        cwd.mkdir(exist_ok=True)
        self.bin, self.cwd = home / ("Scripts" if os.name == "nt" else "bin"), cwd

    def pip(self, *words: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)

    def run(self, *words: str, code: int = 0, says: str = "") -> str:
        """Run a program of the environment; stop unless it ends with this code and says this."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        clean["PATH"] = f"{self.bin}{os.pathsep}{clean['PATH']}"
        command = [str(self.bin / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=self.cwd, env=clean, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode != code or " ".join(says.split()) not in " ".join(output.split()):
            sys.exit(
                f"{' '.join(words)}\nended with {done.returncode}, not {code}, or lacks {says!r}:\n{output}"
            )
        return output


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist, from a copy of the files that git knows."""
    print("==> building")
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    builder = Environment(folder / "builder", folder)
    builder.pip("build")
    builder.run("python", "-m", "build", "--outdir", str(folder / "dist"), str(source))
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def tracked() -> set[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def check_contents(wheel: Path, sdist: Path) -> None:
    """The package as it is in the repository, bundled model and all, and nothing else."""
    package = {name for name in tracked() if name.startswith("src/elmokit/")}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {f"src/{name}" for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    in_sdist = {name for name in names if not name.startswith("src/elmokit.egg-info/")}
    for held, expected in ((in_wheel, package), (in_sdist, package | BESIDES)):
        if held != expected:
            sys.exit(f"missing: {sorted(expected - held)}\ntoo much: {sorted(held - expected)}")
    if lacking := {f"src/elmokit/models/english/{name}" for name in MODEL} - in_wheel:
        sys.exit(f"The bundled model lacks {sorted(lacking)}.")
    for file, held in ((wheel, in_wheel), (sdist, in_sdist)):
        print(f"    {file.name}: {len(held)} files, {file.stat().st_size / 1e6:.1f} MB")


def use(environment: Environment) -> None:
    """What a new user does, without extras."""
    run, cwd = environment.run, environment.cwd
    print("==> import elmokit")
    look = (
        "import sys, elmokit; assert 'torch' not in sys.modules; print(elmokit.__version__, elmokit.__file__)"
    )
    version, _, place = run("python", "-c", look).strip().partition(" ")
    if not Path(place).resolve().is_relative_to(environment.bin.parent.resolve()):
        sys.exit(f"elmokit was imported from {place}.")
    run("elmokit", "--version", says=f"elmokit {version}")
    print("==> elmokit demo")
    run("elmokit", "demo", says="sgns and cbow are left out: the package gensim is missing.")
    print("==> embed, fit, predict, baseline svd")
    with (cwd / "elmokit-demo" / "test.csv").open(newline="", encoding="utf-8") as file:
        n_rows = len(list(csv.DictReader(file)))
    files = ("elmokit-demo/train.csv", "elmokit-demo/test.csv")
    run(
        "elmokit",
        "embed",
        "english",
        files[1],
        "--text-columns",
        "text",
        "--pool",
        "mean",
        "--out",
        "vectors",
    )
    load = "import elmokit; print(len(elmokit.VectorStore.open('vectors')))"
    run("python", "-c", load, says=str(n_rows))
    run("elmokit", "fit", "english", files[0], "--label-column", "topic", "--out", "topics")
    run("elmokit", "predict", "topics", files[1], "--text-columns", "text", "--out", "labeled.csv")
    run("elmokit", "baseline", "svd", files[0], "--text-columns", "text", "--out", "svd", "--dim", "20")
    print("==> what needs an extra says which")
    for extra, words in {
        "static": ("baseline", "sgns", files[0], "--text-columns", "text", "--out", "x"),
        "serve": ("serve", "english"),
        "morpheme": ("pretrain", files[0], "--text-columns", "text", "--out", "x", "--input", "morpheme"),
        "official": (
            "embed",
            "english",
            files[1],
            "--text-columns",
            "text",
            "--out",
            "x",
            "--export",
            "hdf5",
        ),
        "ray": ("embed", "english", files[1], "--text-columns", "text", "--out", "x", "--engine", "ray"),
        "search": ("search", files[1], "a match", "--approximate", "--text-columns", "text"),
        "model2vec": ("fit", "m2v:.", files[0], "--label-column", "topic", "--out", "x"),
        "sentence-transformers": ("fit", "st:.", files[0], "--label-column", "topic", "--out", "x"),
    }.items():
        run("elmokit", *words, code=2, says=f"pip install 'elmokit[{extra}]'")


if __name__ == "__main__":
    main()
