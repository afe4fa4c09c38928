"""Seeded damage to model folders, and threads, races and kills; ``make campaign`` runs all of it.

Every function returns how many cases it ran, and raises an AssertionError for the first one that went wrong.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np

import elmokit
from elmokit.core.atomic import restore
from elmokit.core.errors import ElmokitError
from elmokit.corpora import mini_news
from elmokit.published.convert import convert
from elmokit.vectors.foreign import TextVectors
from elmokit.vectors.side_by_side import join_encoders
from program import environment

FROZEN = Path(__file__).resolve().parent / "fixtures" / "v0_1"
MODEL, VECTORS = FROZEN / "bilm" / "char", FROZEN / "vectors" / "svd"
TASKS = ("tag", "pair", "answer")
TEXTS = [f"the bank{number % 7} raised its rates by w{number} percent" for number in range(40)]
IN_ONE_GO = (
    "baseline",
    "fit",
    "fit tfidf",
    "evaluate",
    "convert",
    "export",
    "import",
    "token cache",
    "senses",
)
RUNS = (
    "embed",
    "embed export",
    "fit head",
    "fit tag",
    "fit pair",
    "fit answer",
    "pretrain",
    "distill",
    "compare",
)
VERBS = (*IN_ONE_GO, *RUNS, "table", "predict", "search")
OVERWRITES = {
    "embed": ["--dtype", "float16"],
    "baseline": ["--dim", "3"],
    "fit": ["--set", "seed=1"],
    "fit head": ["--seed", "1"],
    "pretrain": ["--seed", "1"],
    "distill": ["--seed", "1"],
}
"""Verbs, and what makes a job another one, which overwrites the first."""
REFUSALS = ("Another process is using", "already holds")


# -- mutations ------------------------------------------------------------------------------------


def make_models(folder: Path) -> dict[str, Path]:
    """A folder of each kind of model, written by this version."""
    write_rows(folder)
    old = {
        "bilm": MODEL,
        "classifier": FROZEN / "classifiers" / "pool",
        "linear": FROZEN / "linear" / "tfidf-lr",
        "word-vectors": VECTORS,
        "token-cache": MODEL,
    }
    runs, short = folder / "runs", dict[str, Any](epochs=1, head_dim=8)
    old["stack"] = elmokit.fit(MODEL, folder / "rows.csv", runs / "stack", label_column="topic").folder
    old["distilled"] = elmokit.distill(
        VECTORS, folder / "text.txt", runs / "d", from_model=MODEL, epochs=1
    ).folder
    for task in TASKS:
        old[task] = elmokit.fit(MODEL, folder / f"{task}.jsonl", runs / task, **short).folder
    for name, source in old.items():
        elmokit.load(source).save(folder / name)
    convert(folder / "token-cache", token_cache=folder / "words.txt")
    vectors = np.random.default_rng(0).normal(size=(len(TEXTS), 8)).astype(np.float32)
    TextVectors(vectors).bind(TEXTS).save(folder / "sentence-encoder")
    both: Any = join_encoders([cast(Any, elmokit.load(folder / name)) for name in ("bilm", "word-vectors")])
    both.save(folder / "encoders")
    return {name: folder / name for name in (*old, "sentence-encoder", "encoders")}


def write_rows(folder: Path) -> None:
    """What models learn from, and what commands read."""
    lines = mini_news().read_text(encoding="utf-8").splitlines()
    (folder / "rows.csv").write_text("\n".join(lines[:1] + lines[1:401:8]), encoding="utf-8")
    (folder / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (folder / "words.txt").write_text("the\nbank\nrates\n", encoding="utf-8")
    (folder / "given.txt").write_text("bank 1 2\nrates 3 4\n", encoding="utf-8")
    tags = ["O", "B-BANK", *["O"] * 6]
    makers: dict[str, Callable[[str], dict[str, Any]]] = {
        "tag": lambda text: {"tokens": text.split(), "tags": tags},
        "pair": lambda text: {"text": text, "other": "the bank", "label": "yes" if "1" in text else "no"},
        "answer": lambda text: {"question": "what rose ?", "passage": text, "answer": "rates"},
    }
    for task in TASKS:
        rows = "".join(json.dumps(makers[task](text)) + "\n" for text in TEXTS)
        (folder / f"{task}.jsonl").write_text(rows, encoding="utf-8")


def outcome(model: Any, texts: Sequence[str]) -> list[str]:
    """What a model computes of some texts."""
    if hasattr(model, "predict"):
        rows = [(text, f"by the bank {text}")[: len(model.task.fields)] for text in texts]
        return [repr(model.task.columns(one)) for one in model.predict(rows)]
    arrays = [model.embed(texts).flat] if hasattr(model, "embed") else []
    if not arrays or getattr(model, "has_sentence_vector", True):
        arrays.append(model.sentences(texts))
    return [array.tobytes().hex() for array in arrays]


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


def run_mutations(models: Mapping[str, Path], copy: Path, count: int, seed: int = 0) -> tuple[int, int]:
    """Damage model folders of every kind; how many were refused, and how many gave the same numbers."""
    rng, counts = random.Random(seed), [0, 0]
    wanted = {name: outcome(elmokit.load(folder), TEXTS[:5]) for name, folder in models.items()}
    for number in range(count):
        name = sorted(models)[number % len(models)]
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(models[name], copy)
        case = f"{number}: {name}: {mutate(copy, rng)}"
        try:
            same = outcome(elmokit.load(copy), TEXTS[:5]) == wanted[name]
        except ElmokitError as error:
            counts[0] += bool(error.remedy)
        except Exception as error:
            raise AssertionError(f"{case}: {error!r}") from error
        else:
            assert same, f"{case}: other numbers, and no error"
            counts[1] += 1
    assert sum(counts) == count, "an error without a remedy"
    return counts[0], counts[1]


def run_store_mutations(folder: Path, count: int, seed: int = 0) -> tuple[int, int]:
    """Damage vector stores; how many were refused, and how many gave the same answers."""
    rng, counts, copy = random.Random(seed), [0, 0], folder / "copy"
    elmo: Any = elmokit.load(MODEL)
    elmokit.embed(elmo, _lines(folder), folder / "texts", pool="mean", format="safetensors")
    elmokit.embed(elmo, _lines(folder), folder / "words")
    answers: dict[str, Callable[[Path], Any]] = {
        "texts": lambda store: [elmokit.search(store, TEXTS[:2], elmo, 3), elmokit.find_duplicates(store)],
        "words": lambda store: elmokit.similar_words(elmo, TEXTS[0], elmokit.VectorStore.open(store), k=3),
    }
    wanted = {name: answer(folder / name) for name, answer in answers.items()}
    for number in range(count):
        name = sorted(answers)[number % 2]
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / name, copy)
        case = f"{number}: {name}: {mutate(copy, rng)}"
        try:
            same = answers[name](copy) == wanted[name]
        except ElmokitError as error:
            counts[0] += bool(error.remedy)
        except Exception as error:
            raise AssertionError(f"{case}: {error!r}") from error
        else:
            assert same, f"{case}: other answers, and no error"
            counts[1] += 1
    assert sum(counts) == count, "an error without a remedy"
    return counts[0], counts[1]


def _lines(folder: Path) -> Path:
    (folder / "lines.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return folder / "lines.txt"


# -- threads --------------------------------------------------------------------------------------


def run_threads(models: Mapping[str, Path], store: Path, n_texts: int = 40) -> int:
    """Eight threads on fresh models of every kind, with cold and tiny caches, and on a search: equal to the
    bit to one."""
    texts = TEXTS[:n_texts]
    elmokit.embed(models["bilm"], models["bilm"].parent / "text.txt", store, pool="mean")
    openers: dict[str, Callable[[], Any]] = {
        name: lambda folder=folder: elmokit.load(folder)  # type: ignore[misc]
        for name, folder in models.items()
    }
    openers["bilm, tiny cache"] = lambda: elmokit.Elmo.load(models["bilm"], cached_words=5)
    jobs: list[tuple[str, Callable[[], Any], Callable[[Any, str], Any]]]
    jobs = [(name, opener, lambda model, text: outcome(model, [text])) for name, opener in openers.items()]
    jobs.append(("search", openers["bilm"], lambda model, text: elmokit.search(store, [text], model, 3)))
    for name, opener, answer in jobs:
        model = opener()
        wanted = [answer(model, text) for text in texts]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(answer, [opener()] * len(texts), texts)) == wanted, name
    return len(jobs) * len(texts)


# -- races and kills ------------------------------------------------------------------------------


def make_command(verb: str, folder: Path, out: Path) -> list[str]:
    """A small job of a verb that writes to ``out``."""
    rows, text, classifier = folder / "rows.csv", folder / "text.txt", FROZEN / "classifiers" / "pool"
    if not text.exists():
        write_rows(folder)
    sizes = ["--dim", "8", "--set", "hidden_dim=8", "--set", "min_count=1"]
    label, head = ["--label-column", "topic"], ["--head-dim", 8]
    commands: dict[str, list[Any]] = {
        "embed": ["embed", MODEL, text, "--pool", "mean", "--out", out],
        "embed export": [
            *("embed", MODEL, text, "--pool", "mean", "--out", out),
            *("--export", "parquet", "--export", "word2vec", "--export", "hdf5"),
        ],
        "baseline": ["baseline", "svd", text, "--dim", "4", "--min-count", "1", "--out", out],
        "fit": ["fit", MODEL, rows, *label, "--out", out],
        "fit tfidf": ["fit", "tfidf-lr", rows, *label, "--out", out],
        "fit head": ["fit", MODEL, rows, *label, "--head", "pool", "--epochs", "2", "--out", out],
        "evaluate": ["evaluate", classifier, rows, *label, "--out", out],
        "convert": ["convert", MODEL, out, "--compact"],
        "export": ["convert", MODEL, out, "--to", "official"],
        "import": ["convert", folder / "given.txt", out],
        "token cache": ["convert", MODEL, out, "--token-cache", text],
        "pretrain": ["pretrain", text, "--preset", "tiny", "--epochs", 2, *sizes, "--out", out],
        "distill": ["distill", VECTORS, text, "--from", MODEL, "--epochs", 2, "--out", out],
        "senses": ["senses", MODEL, "raised", "--in", text, "--out", out],
        "table": ["convert", VECTORS, out.with_suffix(".txt")],
        "predict": ["predict", classifier, rows, "--out", out.with_suffix(".csv")],
        "search": ["search", text, "a bank", "--model", MODEL],
        "compare": ["compare", rows, rows, *label, "--methods", "tfidf-svm,svd", "--seeds", 1, "--out", out],
    }
    for task in TASKS:
        commands[f"fit {task}"] = ["fit", MODEL, folder / f"{task}.jsonl", "--epochs", 2, *head, "--out", out]
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
    """Those that a job left in a folder, or the endings of its files."""
    beside = {path.suffix for path in out.parent.glob(f"*{out.name}.*")}
    return beside | {
        str(path.relative_to(out)) for path in out.rglob("*") if not path.name.startswith(".lock")
    }


def run_races(verbs: Sequence[str] = VERBS) -> int:
    """Two processes with one --out: one does the job, the other waits its turn or is refused."""
    with tempfile.TemporaryDirectory() as temporary:
        for verb in verbs:
            folder, out = Path(temporary), Path(temporary) / verb.replace(" ", "-")
            command = make_command(verb, folder, out)
            both = [_start(command), _start(command)]
            codes = [_check_end(f"race of {verb}", process) for process in both]
            assert 0 in codes, f"race of {verb}: {codes}"
            ends = (".saving", ".replaced", ".new", ".lock")
            left = [name for name in _files(out) if name.endswith(ends)]
            assert not left, f"race of {verb}: {left}"
    return len(verbs)


def _content(out: Path) -> dict[str, bytes]:
    """The files of a result that are the same however often it is made: those without times in them."""
    files = [path for path in out.rglob("*") if path.is_file()] + [*out.parent.glob(f"{out.name}.*")]
    kept = {str(path.relative_to(out.parent)).replace(out.name, "out", 1): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in kept.items()
        if path.name != "config.json"
        and path.suffix not in (".json", ".md", ".html", ".png", ".svg")
        and not {"run", "work", "best", ".saving", ".replaced"} & {*path.parts}
        and path.name[0] != "."
    }


def _run_and_kill(command: Sequence[str], seconds: float) -> None:
    process = _start(command)
    time.sleep(seconds)
    process.kill()
    process.communicate()


def run_kills(count: int, verbs: Sequence[str] = VERBS, seed: int = 0) -> int:
    """Kill a job at a random moment; the same command then ends well, with the same content as without."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        for verb in verbs:
            name, folder = verb.replace(" ", "-"), Path(temporary)
            start = time.monotonic()
            assert _check_end(verb, _start(make_command(verb, folder, folder / name))) == 0
            seconds = time.monotonic() - start
            for number in range(count):
                out = folder / f"{name}-{number}"
                _run_and_kill(make_command(verb, folder, out), rng.uniform(0.3, 1.0) * seconds)
                case = f"kill {number} of {verb}"
                assert _check_end(case, _start(make_command(verb, folder, out))) == 0, case
                wanted = {file for file in _files(folder / name) if "/steps/" not in file}
                assert {file for file in _files(out) if "/steps/" not in file} >= wanted, case
                _check_same(case, _content(out), _content(folder / name))
    return count * len(verbs)


def _check_same(case: str, actual: Mapping[str, bytes], *wanted: Mapping[str, bytes]) -> None:
    """``actual`` is one of those that are ``wanted``."""
    names = [sorted(name for name in {*one, *actual} if one.get(name) != actual.get(name)) for one in wanted]
    assert [] in names, f"{case}: other content in {names}"


def run_overwrites(count: int, verbs: Sequence[str] = (*OVERWRITES,), seed: int = 0) -> int:
    """Kill a job that overwrites another: what is left is the old result or the new; run again, the new."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary:
        for verb in verbs:
            folder, more = Path(temporary), OVERWRITES[verb]
            old, new = (folder / f"{verb.replace(' ', '-')}-{age}" for age in ("old", "new"))
            assert _check_end(verb, _start(make_command(verb, folder, old))) == 0
            start = time.monotonic()
            assert _check_end(verb, _start([*make_command(verb, folder, new), *more])) == 0
            seconds = time.monotonic() - start
            for number in range(count):
                out, case = folder / f"{verb.replace(' ', '-')}-{number}", f"overwrite {number} of {verb}"
                shutil.copytree(old, out)
                command = [*make_command(verb, folder, out), *more, "--overwrite"]
                _run_and_kill(command, rng.uniform(0.3, 1.1) * seconds)
                restore(out)
                _check_same(case, _content(out), _content(old), _content(new))
                elmokit.VectorStore.open(out) if verb == "embed" else elmokit.load(out)
                assert _check_end(case, _start(command)) == 0, case
                _check_same(case, _content(out), _content(new))
    return count * len(verbs)


def run_shared_corpora(count: int) -> int:
    """Two pretraining runs with other settings and one folder for the prepared text, at once."""
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(count):
            folder, commands = Path(temporary), list[list[str]]()
            for held_out in ("0.1", "0.2"):
                command = make_command("pretrain", folder, folder / f"{number}-{held_out}")
                shared = ["--corpus", str(folder / f"corpus-{number}"), "--set", f"held_out={held_out}"]
                commands.append([*command, *shared])
            both = [_start(command) for command in commands]
            codes = [_check_end(f"shared corpus {number}", process) for process in both]
            assert codes == [0, 0], f"shared corpus {number}: {codes}"
    return count
