"""Seeded damage to model folders, and threads, races and kills; ``make campaign`` runs all of it.

Every function returns how many cases it ran, and raises an AssertionError for the first one that went wrong.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from elmokit.core.errors import ElmokitError
from elmokit.corpora import mini_news
from elmokit.published.convert import convert
from elmokit.vectors.foreign import TextVectors
from program import environment

FROZEN = Path(__file__).resolve().parent / "fixtures" / "v0_1"
MODEL = FROZEN / "bilm" / "char"
TEXTS = [f"the bank{number % 7} raised its rates by w{number} percent" for number in range(40)]
IN_ONE_GO = ("baseline", "fit", "fit tfidf", "evaluate", "convert", "export", "import", "token cache")
VERBS = (*IN_ONE_GO, "embed", "fit head", "pretrain", "distill", "compare")
REFUSALS = ("Another process is using", "already holds")


# -- mutations ------------------------------------------------------------------------------------


def make_models(folder: Path) -> dict[str, Path]:
    """A folder of each kind of model, written by this version."""
    lines = mini_news().read_text(encoding="utf-8").splitlines()
    (folder / "rows.csv").write_text("\n".join(lines[:1] + lines[1:401:8]), encoding="utf-8")
    (folder / "words.txt").write_text("the\nbank\nrates\n", encoding="utf-8")
    old = {
        "bilm": MODEL,
        "classifier": FROZEN / "classifiers" / "pool",
        "linear": FROZEN / "linear" / "tfidf-lr",
    }
    for name, source in {**old, "word-vectors": FROZEN / "vectors" / "svd", "token-cache": MODEL}.items():
        elmokit.load(source).save(folder / name)
    convert(folder / "token-cache", token_cache=folder / "words.txt")
    elmokit.fit(MODEL, folder / "rows.csv", folder / "stack", label_column="topic")
    vectors = np.random.default_rng(0).normal(size=(len(TEXTS), 8)).astype(np.float32)
    TextVectors(vectors).bind(TEXTS).save(folder / "sentence-encoder")
    return {path.name: path for path in folder.iterdir() if path.is_dir()}


def outcome(folder: Path) -> bytes:
    """What a model computes."""
    model: Any = elmokit.load(folder)
    if hasattr(model, "predict"):
        rows = [one.probabilities for one in model.predict([(text,) for text in TEXTS[:5]])]
        return np.array(rows).tobytes()
    if hasattr(model, "embed"):
        found: bytes = model.embed(TEXTS[:5]).flat.tobytes()
        return found
    return bytes(model.sentences(TEXTS[:5]).tobytes())


def mutate(folder: Path, rng: random.Random) -> str:
    """Damage one file of a folder; what was done."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data)) if data else 0
    kind = rng.choice(["flip", "cut", "delete", "append", "lines", "zero", "swap"])
    if kind == "flip" and data:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "append":
        data += rng.randbytes(rng.randrange(1, 9))
    elif kind == "lines":
        lines = bytes(data).split(b"\n")
        rng.shuffle(lines)
        data = bytearray(b"\n".join(lines))
    elif kind == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif kind == "swap":
        data = bytearray(rng.choice(sorted(one for one in folder.rglob("*") if one.is_file())).read_bytes())
    if kind == "delete":
        path.unlink()
    else:
        path.write_bytes(data)
    return f"{kind} {path.relative_to(folder)} at {place}"


def run_mutations(count: int, seed: int = 0) -> tuple[int, int]:
    """Damage model folders of every kind; how many were refused, and how many gave the same numbers."""
    rng, counts = random.Random(seed), [0, 0]
    with tempfile.TemporaryDirectory() as temporary:
        models = make_models(Path(temporary))
        wanted = {name: outcome(folder) for name, folder in models.items()}
        copy = Path(temporary) / "copy"
        for number in range(count):
            name = sorted(models)[number % len(models)]
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(models[name], copy)
            case = f"{number}: {name}: {mutate(copy, rng)}"
            try:
                same = outcome(copy) == wanted[name]
            except ElmokitError as error:
                counts[0] += bool(error.remedy)
            except Exception as error:
                raise AssertionError(f"{case}: {error!r}") from error
            else:
                assert same, f"{case}: other numbers, and no error"
                counts[1] += 1
    assert sum(counts) == count, "an error without a remedy"
    return counts[0], counts[1]


# -- threads --------------------------------------------------------------------------------------


def run_threads(n_texts: int = 40) -> int:
    """Eight threads on fresh models of every kind, with cold and tiny caches: equal to the bit to one."""
    texts = TEXTS[:n_texts]
    with tempfile.TemporaryDirectory() as temporary:
        models = make_models(Path(temporary))
        openers: dict[str, Callable[[], Any]] = {
            name: lambda folder=folder: elmokit.load(folder)  # type: ignore[misc]
            for name, folder in models.items()
        }
        openers["bilm, tiny cache"] = lambda: elmokit.Elmo.load(models["bilm"], cached_words=5)
        for name, opener in openers.items():
            wanted = [_answer(opener(), text) for text in texts]
            shared = opener()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(_answer, [shared] * len(texts), texts))
            assert found == wanted, name
    return len(openers) * len(texts)


def _answer(model: Any, text: str) -> bytes:
    if hasattr(model, "predict"):
        (one,) = model.predict([(text,)])
        return bytes(one.probabilities.tobytes())
    return bytes((model.embed([text]).flat if hasattr(model, "embed") else model.sentences([text])).tobytes())


# -- races and kills ------------------------------------------------------------------------------


def make_command(verb: str, folder: Path, out: Path) -> list[str]:
    """A small job of a verb that writes to ``out``."""
    rows, text, classifier = folder / "rows.csv", folder / "text.txt", FROZEN / "classifiers" / "pool"
    if not text.exists():
        lines = mini_news().read_text(encoding="utf-8").splitlines()
        rows.write_text("\n".join(lines[:1] + lines[1:401:8]), encoding="utf-8")
        text.write_text("\n".join(TEXTS), encoding="utf-8")
        (folder / "table.txt").write_text("bank 1 2\nrates 3 4\n", encoding="utf-8")
    sizes = ["--dim", "8", "--set", "hidden_dim=8", "--set", "min_count=1"]
    label = ["--label-column", "topic"]
    commands: dict[str, list[Any]] = {
        "embed": ["embed", MODEL, text, "--pool", "mean", "--out", out],
        "baseline": ["baseline", "svd", text, "--dim", "4", "--min-count", "1", "--out", out],
        "fit": ["fit", MODEL, rows, *label, "--out", out],
        "fit tfidf": ["fit", "tfidf-lr", rows, *label, "--out", out],
        "fit head": ["fit", MODEL, rows, *label, "--head", "pool", "--epochs", "2", "--out", out],
        "evaluate": ["evaluate", classifier, rows, *label, "--out", out],
        "convert": ["convert", MODEL, out, "--compact"],
        "export": ["convert", MODEL, out, "--to", "official"],
        "import": ["convert", folder / "table.txt", out],
        "token cache": ["convert", MODEL, out, "--token-cache", text],
        "pretrain": ["pretrain", text, "--preset", "tiny", "--epochs", 2, *sizes, "--out", out],
        "distill": [
            "distill",
            FROZEN / "vectors" / "svd",
            text,
            "--from",
            MODEL,
            "--epochs",
            2,
            "--out",
            out,
        ],
        "compare": ["compare", rows, rows, *label, "--methods", "tfidf-svm,svd", "--seeds", 1, "--out", out],
    }
    return [sys.executable, "-m", "elmokit", *map(str, commands[verb])]


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, env=environment(), **pipes)


def _check_end(case: str, process: subprocess.Popen[str]) -> int:
    said, _ = process.communicate(timeout=600)
    is_refused = process.returncode == 2 and any(part in said for part in REFUSALS)
    assert process.returncode == 0 or is_refused, f"{case}: {process.returncode}: {said}"
    assert "Traceback" not in said, f"{case}: {said}"
    return process.returncode


def _files(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*") if not path.name.startswith(".lock")}


def run_races(verbs: Sequence[str] = VERBS) -> int:
    """Two processes with one --out: one does the job, the other waits its turn or is refused."""
    with tempfile.TemporaryDirectory() as temporary:
        for verb in verbs:
            folder, out = Path(temporary), Path(temporary) / verb.replace(" ", "-")
            command = make_command(verb, folder, out)
            both = [_start(command), _start(command)]
            codes = [_check_end(f"race of {verb}", process) for process in both]
            assert 0 in codes, f"race of {verb}: {codes}"
            left = [
                name
                for name in _files(out)
                if name.split("/")[-1] in (".saving", ".replaced") or ".new" in name
            ]
            assert not left, f"race of {verb}: {left}"
    return len(verbs)


def run_kills(count: int, verbs: Sequence[str] = VERBS, seed: int = 0) -> int:
    """Kill a job at a random moment; the same command then ends well, with the same files as without."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        for verb in verbs:
            name, folder = verb.replace(" ", "-"), Path(temporary)
            start = time.monotonic()
            assert _check_end(verb, _start(make_command(verb, folder, folder / name))) == 0
            seconds = time.monotonic() - start
            for number in range(count):
                out = folder / f"{name}-{number}"
                process = _start(make_command(verb, folder, out))
                time.sleep(rng.uniform(0.3, 1.0) * seconds)
                process.kill()
                process.communicate()
                case = f"kill {number} of {verb}"
                assert _check_end(case, _start(make_command(verb, folder, out))) == 0, case
                wanted = {file for file in _files(folder / name) if "/steps/" not in file}
                assert {file for file in _files(out) if "/steps/" not in file} >= wanted, case
    return count * len(verbs)
