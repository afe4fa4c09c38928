"""What elmokit 0.1 wrote still opens, and what it computed is still computed, to the bit.

Version 0.1 wrote the folders in ``tests/fixtures/v0_1``; ``expected.json`` there records its results, and
``expected.npz`` the arrays in them. ``tests/fixtures/make_v0_1.py`` made all of it, once. On the machine that
recorded the results (see ``machine``) they must be equal to the bit, elsewhere within a tolerance; so must
what was recorded anew.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

import elmokit

FROZEN = Path(__file__).resolve().parents[1] / "fixtures" / "v0_1"
DATA = FROZEN / "data"
Array = npt.NDArray[Any]
SINCE = {"thaw": "unfreeze_every"}  # settings that have another name now

# == elmokit by its present names =================================================================
# Only this part of the file knows the names of elmokit, so only it is edited when one changes. What these
# functions take and return stays as it is.


def open_elmo(folder: Path, token_cache: Path | None = None) -> Any:
    from elmokit.vectors.elmo import Elmo

    return Elmo.load(folder, token_cache=token_cache)


def fingerprint_of(elmo: Any) -> str:
    return str(elmo.fingerprint)


def embed(elmo: Any, texts: Sequence[Any], state: str = "zero") -> tuple[list[list[str]], list[Array]]:
    """The words of each text, and its layers, (n_words, layer, dim)."""
    found = elmo.embed(texts, state=state)
    return found.tokens, found.layers


def sentence_vectors(elmo: Any, texts: Sequence[Any], pooling: str) -> Array:
    found: Array = elmo.embed(texts).sentence(pooling)
    return found


def published_mix(file: Path, elmo: Any, texts: Sequence[Any]) -> list[list[Array]]:
    """What a mix in a file makes of some texts: of each output, (n_words, dim) for each text."""
    from elmokit.vectors.mix import PublishedMix

    return PublishedMix.load(file).mixed(elmo.embed(texts))


def perplexity(folder: Path, file: Path, state: str) -> dict[str, Any]:
    from elmokit.bilm.perplexity import text_perplexity

    return dataclasses.asdict(text_perplexity(folder, [file], state=state))  # type: ignore[arg-type]


def pretrain(text: Path, out: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train a language model by a preset and changes to it, or go on; how it ended."""
    from elmokit.bilm.pretrain import pretrain
    from elmokit.bilm.settings import resolve

    done = pretrain([text], out, resolve("tiny", settings))
    return {
        "stopped": done.stopped,
        "n_steps": done.n_steps,
        "n_words": done.n_words,
        **(done.held_out or {}),
    }


def convert(source: Path, out: Path, **options: Any) -> None:
    from elmokit.published.convert import convert

    convert(source, out, **options)


def same_vectors(model: Path, expected: Path) -> bool:
    from elmokit.vectors.verify import verify

    return verify(model, expected).passed


def probabilities(folder: Path, texts: Sequence[str]) -> tuple[list[str], Array, list[str]]:
    """Of a classifier or a linear model: its classes, their probabilities, and the labels it gives."""
    from elmokit.tasks.fit import open_predictor

    predictor: Any = open_predictor(folder)
    predictions = list(predictor.predict((text,) for text in texts))
    rows = np.array([prediction.probabilities for prediction in predictions])
    return list(predictor.labels.names), rows, [prediction.label for prediction in predictions]


def open_estimator(folder: Path) -> Any:
    from elmokit.tasks.estimator import TextClassifier

    return TextClassifier.load(folder)


def fit_estimator(
    encoder: Path, texts: Sequence[str], labels: Any, out: Path, settings: Mapping[str, Any]
) -> Array:
    """Fit and save a classifier, scikit-learn's way; its probabilities for ``ROWS``."""
    from elmokit.tasks.estimator import TextClassifier

    settings = {"pool_edges": True, **{SINCE.get(name, name): value for name, value in settings.items()}}
    direct = {name for name in settings if name in TextClassifier().get_params(deep=False)}
    fitted = TextClassifier(
        encoder,
        **{name: settings[name] for name in direct},
        options={name: value for name, value in settings.items() if name not in direct},
    ).fit(texts, labels)
    fitted.save(out)
    return fitted.predict_proba(ROWS)


def fit_files(
    encoder: Path, train: Path, test: Path, out: Path, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Fit a classifier on files, or go on; its figures by split."""
    from elmokit.tasks.fit import fit

    settings = {SINCE.get(name, name): value for name, value in settings.items()}
    result = fit(encoder, train, out, test=test, label_column="topic", **settings)
    return {split: metrics.to_json() for split, metrics in result.metrics.items()}


def evaluate(folder: Path, file: Path) -> dict[str, Any]:
    from elmokit.tasks.fit import evaluate

    result: dict[str, Any] = evaluate(folder, [file]).to_json()
    return result


def open_vectors(folder: Path) -> Any:
    from elmokit.static.word_vectors import WordVectors

    return WordVectors.load(folder)


def neighbors(vectors: Any, word: str, k: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = vectors.neighbors(word, k)
    return found


def analogy(vectors: Any, a: str, b: str, c: str, k: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = vectors.analogy(a, b, c, k)
    return found


def train_vectors(method: str, texts: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[str], Array]:
    """Words and their vectors."""
    from elmokit.static.settings import SvdConfig, Word2VecConfig
    from elmokit.static.train import train_vectors

    config = SvdConfig(**settings) if method == "svd" else Word2VecConfig(**settings)
    found = train_vectors(method, texts, config)  # type: ignore[arg-type]
    return found.vocabulary.words, found.vectors


def export_vectors(vectors: Any, file: Path) -> None:
    from elmokit.static.exchange import export_vectors

    export_vectors(file, vectors)


def open_store(folder: Path) -> Any:
    from elmokit.vectors.store import VectorStore

    return VectorStore.open(folder)


def embed_files(model: Path, file: Path, out: Path, settings: Mapping[str, Any]) -> None:
    from elmokit.vectors.store_writer import embed

    embed(model, file, out, **settings)


def search(store: Any, query: str, elmo: Any, k: int) -> list[tuple[str, float]]:
    from elmokit.vectors.neighbors import search

    return [(hit.id, hit.score) for hit in search(store, [query], elmo, k)[0]]


def similar_words(elmo: Any, query: str, texts: Any, word: str, layer: int | None, k: int) -> list[list[Any]]:
    from elmokit.vectors.neighbors import similar_words

    found = similar_words(elmo, query, texts, word=word, layer=layer, k=k)
    return [[one.score, one.word, one.position, one.index, one.id] for one in found[0].neighbors]


def prepared_corpus(folder: Path) -> Any:
    """Has ``words``, ``counts``, ``n_vocabulary``; ``values`` and ``offsets`` in ``train`` and ``valid``."""
    from elmokit.text.corpus import load_corpus

    return load_corpus(folder)


def compare_words() -> list[str]:
    """A small comparison on the command line, in a folder with train.csv, test.csv and compare.toml."""
    methods = "elmo-trainable,elmo-linear,sgns,svd,tfidf-svm,tfidf-lr"
    words = ["compare", "train.csv", "test.csv", "--out", "report", "--config", "compare.toml"]
    words += ["--label-column", "topic", "--methods", methods, "--seeds", "2", "--workers", "1"]
    return [*words, "--curve", "20", "--draws", "2", "--set", "curve_methods=elmo-linear,tfidf-svm", "--json"]


def predict(folder: Path, file: Path, out: Path) -> None:
    """``elmokit predict``, inside this process, which is quicker."""
    from elmokit.cli.main import main

    words = ["elmokit", "predict", str(folder), str(file), "--text-columns", "text", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(sys, "argv", words)
        main()


def its_error() -> type[Exception]:
    from elmokit.core.errors import ElmokitError

    return ElmokitError


# == texts, settings, and how a result is recorded ===============================================

SETTINGS: dict[str, Any] = json.loads((FROZEN / "settings.json").read_text(encoding="utf-8"))
TEXTS: list[Any] = SETTINGS["texts"]
LONG = [("the", "team", "won", "a", "cup", ",", "and", "markets", "fell")[place % 9] for place in range(1100)]
ROWS: list[str] = SETTINGS["rows"]
FITS: dict[str, tuple[str, dict[str, Any]]] = SETTINGS["fits"]  # the encoder and the settings of each
STORES: dict[str, tuple[str, dict[str, Any]]] = SETTINGS["stores"]  # the data file and the settings of each

SOLVED_OTHERWISE = {"fit:linear"}  # the linear head has another solver since 0.2
# Each direction has its own random numbers since 0.2, so training with dropout or samples was recorded anew.
# So was pretrain:subword when whole texts came to be held out where each sentence is a document.
DRAWN_OTHERWISE = {
    *("pretrain:char", "pretrain:word", "pretrain:subword", "pretrain-resumed", "fit:finetuned"),
}
Measured = dict[str, Any]
"""JSON values and arrays, nested."""


@dataclass(frozen=True)
class Case:
    """How to compute a result, and its tolerance on another machine (None: compare only its keys)."""

    measure: Callable[[Path], Measured]
    tolerance: float | None


CASES: dict[str, Case] = {}


def case(
    *names: str, tolerance: float | None = 1e-5
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Register a function once for each name; it gets the part after the colon, and a folder for files."""

    def register(function: Callable[..., Measured]) -> Callable[..., Measured]:
        for name in names:
            own = name.partition(":")[2]
            CASES[name] = Case(lambda tmp, own=own: function(own, tmp), tolerance)  # type: ignore[misc]
        return function

    return register


def summary(array: Array) -> Measured:
    """Stands for an array that is too large to keep: its hash and a few numbers."""
    kept = np.ascontiguousarray(array)
    flat = kept.astype(np.float64).ravel()
    few = [float(number) for number in (*flat[:3], *flat[-3:])]
    found: Measured = {"shape": list(kept.shape), "dtype": str(kept.dtype), "sha256": sha256(kept.tobytes())}
    if not len(flat):
        return found
    return {**found, "few": few, "mean": float(flat.mean()), "norm": float(np.sqrt((flat * flat).sum()))}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def weights(file: Path) -> Measured:
    """All tensors of a safetensors file."""
    return {name: summary(array) for name, array in sorted(load_file(file).items())}


def placed(tmp: Path, *names: str) -> Path:
    """Copy data files, with the modification time that 0.1 saw; return the path of the last."""
    for name in names:
        shutil.copyfile(DATA / name, tmp / name)
        os.utime(tmp / name, ns=(SETTINGS["changed"], SETTINGS["changed"]))
    return tmp / names[-1]


def table(name: str) -> tuple[list[str], list[str]]:
    """Texts and labels of a CSV file."""
    with open(DATA / name, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["topic"] for row in rows]


def lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def run(words: Sequence[str], folder: Path) -> str:
    """What the program prints: the elmokit that is tested here, and no other."""
    home = str(Path(str(elmokit.__file__)).parents[1])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- folders written by 0.1 -----------------------------------------------------------------------


@case(
    "open:bilm/char",
    "open:bilm/word",
    "open:bilm/subword",
    "open:bilm/compact",
    "open:published/source",
    "open:published/converted",
    "open:published/written",
    "open:many_langs/source",
    "open:many_langs/converted",
)
def elmo_vectors(name: str, tmp: Path) -> Measured:
    elmo = open_elmo(FROZEN / name)
    words, layers = embed(elmo, TEXTS)
    mark = fingerprint_of(elmo)
    found: Measured = {"words": words, "layers": layers, "fingerprint": mark}
    if name == "many_langs/source":  # opening it computes weights, whose last bits depend on the machine
        found["fingerprint"] = {"sha256": mark}
    if name.partition("/")[2] in ("char", "word", "subword", "compact", "converted"):
        found["warm"] = [summary(one) for one in embed(open_elmo(FROZEN / name), TEXTS, state="warm")[1]]
    found["stateful"] = [summary(one) for one in embed(open_elmo(FROZEN / name), TEXTS, state="stateful")[1]]
    found["long"] = summary(embed(open_elmo(FROZEN / name), [LONG])[1][0])
    for pooling in ("mean", "max", "last", "sif"):
        found[pooling] = sentence_vectors(open_elmo(FROZEN / name), TEXTS, pooling)
    return found


@case("perplexity:char", "perplexity:word", "perplexity:subword")
def perplexities(name: str, tmp: Path) -> Measured:
    return {
        state: perplexity(FROZEN / "bilm" / name, DATA / "more.txt", state) for state in ("carried", "zero")
    }


@case("token_cache")
def cached_words(name: str, tmp: Path) -> Measured:
    elmo = open_elmo(FROZEN / "bilm" / "char", FROZEN / "token_cache")
    return {"layers": [summary(one) for one in embed(elmo, TEXTS)[1]]}


@case("mix:safetensors", "mix:hdf5")
def mixes(name: str, tmp: Path) -> Measured:
    found = published_mix(FROZEN / "mixes" / f"mix.{name}", open_elmo(FROZEN / "bilm" / "char"), TEXTS[:2])
    return {"outputs": [[summary(text) for text in output] for output in found]}


@case("vectors")
def word_vectors(name: str, tmp: Path) -> Measured:
    vectors = open_vectors(FROZEN / "vectors" / "svd")
    export_vectors(vectors, tmp / "vectors.txt")
    export_vectors(vectors, tmp / "vectors.bin")
    return {
        "neighbors": neighbors(vectors, "water", 8),
        "analogy": analogy(vectors, "court", "people", "water", 5),
        "text": sha256((tmp / "vectors.txt").read_bytes()),  # both formats hold the very bits
        "binary": sha256((tmp / "vectors.bin").read_bytes()),
    }


@case(*(f"classifier:{name}" for name in (*FITS, "compared", "estimator")))
def classifiers(name: str, tmp: Path) -> Measured:
    classes, found, labels = probabilities(FROZEN / "classifiers" / name, ROWS)
    return {"classes": classes, "probabilities": found, "labels": labels}


@case("linear:tfidf-svm", "linear:tfidf-lr")
def linear_models(name: str, tmp: Path) -> Measured:
    classes, found, labels = probabilities(FROZEN / "linear" / name, ROWS)
    return {"classes": classes, "probabilities": found, "labels": labels}


@case("estimator")
def estimator(name: str, tmp: Path) -> Measured:
    opened = open_estimator(FROZEN / "classifiers" / "estimator")
    return {
        "classes": opened.classes_.tolist(),
        "labels": opened.predict(ROWS).tolist(),
        "probabilities": opened.predict_proba(ROWS),
    }


@case("predict:classifiers/pool", "predict:classifiers/multilabel", "predict:linear/tfidf-svm")
def predictions(name: str, tmp: Path) -> Measured:
    """The rows that ``predict`` writes."""
    predict(FROZEN / name, DATA / "new.csv", tmp / "labels.csv")
    with open(tmp / "labels.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return {"head": rows[0], "rows": [[_number(cell) for cell in row] for row in rows[1:]]}


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


@case("evaluate")
def evaluation(name: str, tmp: Path) -> Measured:
    found = evaluate(FROZEN / "classifiers" / "pool", DATA / "test.csv")
    return {key: found[key] for key in ("n", "accuracy", "macro", "per_class", "confusion")}


@case("store:pooled", "store:tokens")
def stores(name: str, tmp: Path) -> Measured:
    """The contents of a vector store, and of one made now from the same texts."""
    elmo, store = open_elmo(FROZEN / "bilm" / "char"), open_store(FROZEN / "stores" / name)
    found = _contents(store)
    if name == "pooled":
        found["hits"] = search(store, "The bank raised its rates.", elmo, 5)
    file, settings = STORES[name]
    embed_files(FROZEN / "bilm" / "char", placed(tmp, file), tmp / "made", settings)
    return {**found, "made": _contents(open_store(tmp / "made"))}


@case("store:resumed")
def resumed_store(name: str, tmp: Path) -> Measured:
    file, settings = STORES[name]
    text = placed(tmp, file)
    with pytest.raises(its_error()):
        open_store(FROZEN / "stores" / "unfinished")
    shutil.copytree(FROZEN / "stores" / "unfinished", tmp / "store")
    embed_files(FROZEN / "bilm" / "char", text, tmp / "store", settings)
    embed_files(FROZEN / "bilm" / "char", text, tmp / "whole", settings)
    return {name: _contents(open_store(tmp / name)) for name in ("store", "whole")}


def _contents(store: Any) -> Measured:
    return {
        "vectors": summary(np.asarray(store.vectors)),
        "offsets": sha256(np.asarray(store.offsets, dtype=np.int64).tobytes()),
        "ids": sha256("\n".join(store.ids).encode()),
        "texts": sha256("\n".join(store.texts).encode()),
        "words": sha256(json.dumps(list(store.words)).encode()),
    }


@case("similar")
def words_in_context(name: str, tmp: Path) -> Measured:
    texts = table("rows.csv")[0]
    elmo = open_elmo(FROZEN / "bilm" / "char")
    query = "The bank raised its rates."
    return {
        "mix": similar_words(elmo, query, texts, "bank", None, 5),
        "layer": similar_words(elmo, query, texts, "rates", 1, 5),
    }


@case("corpus")
def corpus(name: str, tmp: Path) -> Measured:
    found = prepared_corpus(FROZEN / "runs" / "pretrain" / "run" / "corpus")
    parts = {"train": found.train, "valid": found.valid}
    return {
        "words": sha256("\n".join(found.words).encode()),
        "counts": sha256(np.asarray(found.counts, dtype=np.int64).tobytes()),
        "n_vocabulary": found.n_vocabulary,
        **{
            f"{name} ids": sha256(np.asarray(part.values, dtype=np.int64).tobytes())
            for name, part in parts.items()
        },
        **{f"{name} offsets": np.asarray(part.offsets).tolist()[-3:] for name, part in parts.items()},
    }


# -- training, new and resumed --------------------------------------------------------------------


@case("pretrain:char", "pretrain:word", "pretrain:subword", tolerance=1e-2)
def pretraining(name: str, tmp: Path) -> Measured:
    settings = with_steps(SETTINGS["pretrain"][name], SETTINGS["steps"])
    ended = pretrain(placed(tmp, "text.txt"), tmp / "model", settings)
    return {**ended, **_model_files(tmp / "model")}


@case("pretrain-resumed", tolerance=1e-2)
def resumed_pretraining(name: str, tmp: Path) -> Measured:
    """Resume a run that was killed, without preparing its corpus again."""
    text, out = placed(tmp, "text.txt"), tmp / "model"
    shutil.copytree(FROZEN / "runs" / "pretrain", out)
    corpus = out / "run" / "corpus"
    before = {file.name: file.stat().st_mtime_ns for file in corpus.iterdir()}
    ended = pretrain(text, out, with_steps(SETTINGS["pretrain"]["char"], SETTINGS["resumed_steps"]))
    assert {file.name: file.stat().st_mtime_ns for file in corpus.iterdir()} == before
    logged = map(json.loads, (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    losses = [[line["step"], line["loss"]] for line in logged if line["event"] == "train"]
    return {**ended, **_model_files(out), "losses": losses}


def with_steps(settings: Mapping[str, Mapping[str, Any]], n_steps: int) -> dict[str, Any]:
    return {**settings, "training": {**settings["training"], "max_steps": n_steps, "epochs": 4, "seed": 0}}


def _model_files(folder: Path) -> Measured:
    return {
        "weights": weights(folder / "model.safetensors"),
        "start_state": weights(folder / "start_state.safetensors"),
        "vocabulary": sha256((folder / "vocab.txt").read_bytes()),
    }


@case("train_vectors:svd", tolerance=1e-4)
@case("train_vectors:sgns", "train_vectors:cbow", tolerance=1e-2)
def trained_vectors(name: str, tmp: Path) -> Measured:
    words, vectors = train_vectors(name, lines("text.txt"), SETTINGS["vectors"][name])
    return {"words": sha256("\n".join(words).encode()), "vectors": summary(vectors)}


@case(*(f"fit:{name}" for name in FITS), tolerance=1e-2)
def fitting(name: str, tmp: Path) -> Measured:
    encoder, settings = FITS[name]
    texts, labels = table("several.csv" if name == "multilabel" else "train.csv")
    wanted: Any = labels
    if name == "multilabel":
        own = [label.split("|") for label in labels]
        topics = sorted({topic for some in own for topic in some})
        wanted = np.array([[topic in some for topic in topics] for some in own])
    found = fit_estimator(FROZEN / encoder, texts, wanted, tmp / "model", settings)
    files = ["model.safetensors", *(["encoder/model.safetensors"] if name == "finetuned" else [])]
    return {"probabilities": found, **{file: weights(tmp / "model" / file) for file in files}}


def test_a_fit_begun_by_0_1_is_refused_untouched(tmp_path: Path) -> None:
    """Its record of rows and settings is another; a new fit takes minutes."""
    out = tmp_path / "model"
    shutil.copytree(FROZEN / "runs" / "fit", out)
    before = sorted(out.rglob("*"))
    encoder, settings = FROZEN / FITS["finetuned"][0], SETTINGS["resumed_fit"]
    with pytest.raises(its_error(), match="started with different settings or data"):
        fit_files(encoder, placed(tmp_path, "train.csv"), placed(tmp_path, "test.csv"), out, settings)
    assert sorted(out.rglob("*")) == before


@case("compare", tolerance=None)
def comparison(name: str, tmp: Path) -> Measured:
    placed(tmp, "train.csv", "test.csv", "compare.toml")
    printed = run(compare_words(), tmp)
    last = json.loads(printed.splitlines()[-1])
    report = json.loads((tmp / "report" / "report.json").read_text(encoding="utf-8"))
    for pair in report["ranking"]["pairs"]:
        del pair["words"]
    return {"order": last["ranking"]["order"], "report": without(report, UNSTABLE | WORDED)}


UNSTABLE = {"seconds", "documents_per_second", "peak_memory", "bytes", "machine", "versions", "commands"}
"""Keys whose values differ from run to run."""
WORDED = {"title", "name", "names", "notes", "left_out", "summary", "reason"}
"""Keys that hold wording, which may change."""


def without(value: Any, keys: set[str]) -> Any:
    """A JSON value without some keys, wherever they stand."""
    if isinstance(value, dict):
        return {key: without(entry, keys) for key, entry in value.items() if key not in keys}
    return [without(entry, keys) for entry in value] if isinstance(value, list) else value


# -- conversion -----------------------------------------------------------------------------------


@case("convert:published", "convert:many_langs")
def converted(name: str, tmp: Path) -> Measured:
    convert(FROZEN / name / "source", tmp / "made", calibrate=[DATA / "more.txt"])
    assert same_vectors(tmp / "made", FROZEN / name / "source")
    return _model_files(tmp / "made")


@case("convert:official")
def written_as_published(name: str, tmp: Path) -> Measured:
    h5py = pytest.importorskip("h5py")
    convert(FROZEN / "bilm" / "char", tmp / "made", to="official")
    assert same_vectors(tmp / "made", FROZEN / "bilm" / "char")
    found: Measured = {}
    with h5py.File(tmp / "made" / "weights.hdf5") as file:
        file.visititems(
            lambda name, item: found.update({name: summary(item[...])}) if hasattr(item, "shape") else None
        )
    options = json.loads((tmp / "made" / "options.json").read_text(encoding="utf-8"))
    return {
        "arrays": found,
        "options": options,
        "vocabulary": sha256((tmp / "made" / "vocab.txt").read_bytes()),
    }


@case("convert:compact")
def made_compact(name: str, tmp: Path) -> Measured:
    convert(FROZEN / "bilm" / "char", tmp / "made", compact=True)
    return _model_files(tmp / "made")


# == the tests ====================================================================================


def machine() -> dict[str, str]:
    """Everything that can change the last bits of a result."""
    cpu: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            cpu.setdefault(key.strip(), value.strip())
    names = ("model name", "vendor_id", "cpu family", "model", "stepping")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": " / ".join(cpu.get(name, "") for name in names),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cpu flags": sha256(cpu.get("flags", "").encode())[:16],
        **{name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn", "gensim")},
    }


def expected() -> tuple[dict[str, Any], Mapping[str, Array]]:
    """The recorded results, and their arrays."""
    record = json.loads((FROZEN / "expected.json").read_text(encoding="utf-8"))
    with np.load(FROZEN / "expected.npz") as arrays:
        return record, {name: arrays[name] for name in arrays.files}


def encoded(value: Any, arrays: dict[str, Array]) -> Any:
    """A result as JSON; its arrays go to ``arrays``, under their hash and shape."""
    if isinstance(value, np.ndarray):
        mark = sha256(np.ascontiguousarray(value).tobytes())
        shape = "x".join(map(str, value.shape))
        arrays[f"{mark[:16]} {shape}"] = value
        return {"array": f"{mark[:16]} {shape}", "sha256": mark}
    if isinstance(value, dict):
        return {str(key): encoded(entry, arrays) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(entry, arrays) for entry in value]
    assert value is None or isinstance(value, str | bool | int | float), type(value)
    return value


def differences(
    found: Any, wanted: Any, arrays: Mapping[str, Array], tolerance: float, place: str
) -> Iterator[str]:
    """Where ``found`` is not what was ``wanted``; a tolerance of 0 asks for the same bits."""
    if isinstance(wanted, dict) and "array" in wanted:
        frozen = arrays[wanted["array"]]
        if not isinstance(found, np.ndarray) or (found.shape, found.dtype) != (frozen.shape, frozen.dtype):
            yield f"{place}: {getattr(found, 'shape', type(found))} instead of {frozen.shape}, {frozen.dtype}"
        elif tolerance and not np.allclose(found, frozen, rtol=tolerance, atol=tolerance):
            yield f"{place}: up to {np.abs(found - frozen).max():.3g} off"
        elif not tolerance and sha256(np.ascontiguousarray(found).tobytes()) != wanted["sha256"]:
            yield f"{place}: other bits, up to {np.abs(found - frozen).max():.3g} off"
    elif isinstance(wanted, dict):
        if not isinstance(found, dict) or {*map(str, found)} != {*wanted}:
            known = {*map(str, found)} if isinstance(found, dict) else {type(found).__name__}
            yield f"{place}: not the same keys: {sorted(known ^ {*wanted})}"
            return
        for key, entry in found.items():
            if not (tolerance and key == "sha256"):
                yield from differences(entry, wanted[str(key)], arrays, tolerance, f"{place}.{key}")
    elif isinstance(wanted, list):
        if not isinstance(found, list | tuple) or len(found) != len(wanted):
            yield f"{place}: {found} instead of {wanted}"
            return
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, arrays, tolerance, f"{place}[{number}]")
    elif tolerance and isinstance(wanted, float) and isinstance(found, int | float):
        if not math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance):
            yield f"{place}: {found} instead of {wanted}"
    elif repr(float(found) if isinstance(found, float) else found) != repr(wanted):
        yield f"{place}: {found!r} instead of {wanted!r}"


def form(value: Any) -> Any:
    """The keys of a result, and the types of its values."""
    if isinstance(value, dict):
        return {str(key): form(entry) for key, entry in value.items()}
    return type(value).__name__


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The number of threads changes the last bits of sums."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(n_threads)


RECORD, ARRAYS = expected() if (FROZEN / "expected.json").exists() else ({}, {})


@pytest.mark.parametrize("name", CASES)
def test_the_result_of_0_1(name: str, tmp_path: Path) -> None:
    found, wanted = CASES[name].measure(tmp_path), RECORD["results"][name]
    exact = machine() == RECORD["machine"] and name not in SOLVED_OTHERWISE | DRAWN_OTHERWISE
    tolerance = 0.0 if exact else CASES[name].tolerance
    if tolerance is None:
        assert form(found) == form(wanted)
        return
    others = list(differences(found, wanted, ARRAYS, tolerance, name))
    assert not others, "\n".join(others[:20])


def test_every_recorded_result_is_checked() -> None:
    assert {*CASES} == {*RECORD["results"]}


def test_an_unfinished_run_is_not_a_model() -> None:
    with pytest.raises(its_error()):
        open_elmo(FROZEN / "runs" / "pretrain")
    with pytest.raises(its_error()):
        probabilities(FROZEN / "runs" / "fit", ROWS)


def test_a_fasttext_folder_is_refused_by_name() -> None:
    with pytest.raises(its_error(), match=r"(?i)fasttext"):
        probabilities(FROZEN / "linear" / "fasttext", ROWS)


def test_no_fixture_holds_an_absolute_path() -> None:
    some = re.compile(rb"/(?:root|tmp|home|work)/")
    files = [file for file in FROZEN.rglob("*") if file.is_file()]
    assert not [file for file in files if some.search(file.read_bytes())]
