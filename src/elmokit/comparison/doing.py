"""Doing one part of a comparison, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import PretrainConfig, resolve
from elmokit.comparison.data import Rows, draw, load_rows, n_words
from elmokit.comparison.methods import Method, source_id
from elmokit.comparison.steps import RESULT, Unit, bilm_folder, made_from
from elmokit.comparison.unit_progress import FileReporter
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.core.tensors import save_tensors
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.static.train import train_vectors
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.layer_cache import cached_sources, number_texts
from elmokit.tasks.model_report import mix_record
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Predictor, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import ReadConfig, TextConfig
from elmokit.training.machine import tuned_process
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import Encoder

__all__ = ["fitting_epochs", "measured", "pretraining_config", "run_unit", "vector_epochs"]

MEASURED = 5000
"""Train rows that train accuracy is measured on, at most."""
_PERPLEXED = 500  # validation texts that perplexity is measured on
_WORDS_SEEN, _EPOCHS = (
    14_000_000,
    (4, 30),
)  # words a language model is to read, in so many epochs as that takes
_VECTOR_WORDS, _VECTOR_EPOCHS = 10_000_000, (5, 60)
_FITTING_STEPS, _FITTING_EPOCHS = 250, (3, 25)
_MADE = "made.json"


def run_unit(work: Path, unit: Unit, method: Method, encoder: Path | None, mark: str) -> None:
    """Do one part, or go on with it; its result is written last.

    Args:
        work: the comparison's work folder.
        unit: the part.
        method: its method.
        encoder: a biLM folder that was given.
        mark: its mark.
    """
    folder = work / "units" / unit.id
    folder.mkdir(parents=True, exist_ok=True)
    rows = load_rows(work / "rows")
    made = made_from(unit, method, rows.marks(), mark)
    _begin(folder, made)
    begun = time.monotonic()
    if unit.kind == "language-model":
        result = _language_model(work, folder, method, rows)
    elif unit.kind == "vectors":
        result = _vectors(folder, method, rows)
    elif unit.kind == "layers":
        result = _layers(work, method, rows, encoder)
    elif unit.kind == "linear":
        result = _linear(folder, unit, method, rows)
    else:
        result = _fit(work, folder, unit, method, rows, encoder)
    result = {"made": made, "wall": round(time.monotonic() - begun, 2), **result}
    result["peak_memory"] = _peak_memory()
    write_text(folder / RESULT, json.dumps(result, indent=1) + "\n")
    shutil.rmtree(folder / "run", ignore_errors=True)


def _begin(folder: Path, made: dict[str, Any]) -> None:
    """Note what the part is made from; what was begun from something else is thrown away."""
    file = folder / _MADE
    before = None
    with contextlib.suppress(OSError, ValueError):
        before = json.loads(file.read_text(encoding="utf-8"))
    if before is not None and before != made:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "log.txt":
                path.unlink()
    write_text(file, json.dumps(made, indent=1) + "\n")


def pretraining_config(method: Method, n_read: int) -> PretrainConfig:
    """The settings of a method's language model; 0 epochs are as many as suit so many words."""
    changes = dict(method.language_model)
    preset, training = changes.pop("preset", "small"), dict(changes.pop("training", {}))
    if training.get("epochs", 0) == 0:
        fewest, most = _EPOCHS
        training["epochs"] = min(most, max(fewest, -(-_WORDS_SEEN // max(1, n_read))))
    return resolve(preset, changes, {"training": training})


def vector_epochs(n_read: int) -> int:
    """Epochs in which skip-gram and CBOW read so many words."""
    fewest, most = _VECTOR_EPOCHS
    return min(most, max(fewest, -(-_VECTOR_WORDS // max(1, n_read))))


def fitting_epochs(config: ClassifierConfig, n_fitted: int) -> int:
    """Epochs of a fit on so many words; 0 of them in the settings are as many as a comparison needs."""
    fewest, most = _FITTING_EPOCHS
    n_steps = max(1, n_fitted // config.fit.batch_words)
    return config.fit.epochs or min(most, max(fewest, -(-_FITTING_STEPS // n_steps)))


def _language_model(work: Path, folder: Path, method: Method, rows: Rows) -> dict[str, Any]:
    held = folder / "held_out.jsonl"
    texts = rows.texts("valid")[:_PERPLEXED]
    write_text(held, "".join(json.dumps({"text": text}) + "\n" for text in texts))
    sources: list[str | Path] = [work / "rows" / "train.jsonl"]
    if rows.unlabelled:
        sources.append(work / "rows" / "unlabelled.jsonl")
    result = pretrain(
        sources,
        folder / "model",
        pretraining_config(method, n_words(rows.texts("train")) + n_words(rows.unlabelled)),
        read=ReadConfig(text_columns="text"),
        valid=[held],
        reporter=FileReporter(folder / "progress.json"),
        command="elmokit compare",
    )
    _stop_if(result.stopped)
    model = Elmo.load(folder / "model")
    return {
        "seconds": result.seconds,
        "parameters": sum(parameter.numel() for parameter in model.model.parameters()),
        "words": len(model.folder.vocabulary),
        "training": model.training,
        "bytes": _n_bytes(folder / "model", without="run"),
    }


def _vectors(folder: Path, method: Method, rows: Rows) -> dict[str, Any]:
    class_ = SvdConfig if method.base == "svd" else Word2VecConfig
    texts = [*rows.texts("train"), *rows.unlabelled]
    settings = dict(method.vectors)
    if method.base != "svd":
        settings = {"workers": 1, "epochs": vector_epochs(n_words(texts)), **settings}
    config = class_.from_dict(settings)
    begun = time.monotonic()
    vectors = train_vectors(method.base, texts, config, text=TextConfig.from_dict(method.text))  # type: ignore[arg-type]
    seconds = time.monotonic() - begun
    vectors.save(folder / "model")
    return {
        "seconds": round(seconds, 2),
        "words": len(vectors.vocabulary),
        "dim": vectors.dim,
        "bytes": _n_bytes(folder / "model"),
    }


def _layers(work: Path, method: Method, rows: Rows, encoder: Path | None) -> dict[str, Any]:
    elmo = Elmo.load(bilm_folder(work, method, encoder))
    config = ClassifierConfig.from_flat(**method.classifier)
    begun = time.monotonic()
    texts = [number_texts(elmo, rows.parts[name].inputs, config.fit.max_words) for name in ("train", "valid")]
    if config.fit.cache != "no":
        with tuned_process():
            must_fit = config.fit.cache == "yes"
            cached_sources(elmo, texts, work / "layers", Reporter("silent"), must_fit=must_fit)
    return {"seconds": round(time.monotonic() - begun, 2)}


def _fit(
    work: Path, folder: Path, unit: Unit, method: Method, rows: Rows, given: Path | None
) -> dict[str, Any]:
    encoder: Encoder
    if method.family == "static":
        encoder = WordVectors.load(work / "units" / source_id(method) / "model")
    else:
        encoder = Elmo.load(bilm_folder(work, method, given))
    chosen = _chosen(unit, rows)
    texts = rows.texts("train")
    config = ClassifierConfig.from_flat(**{**method.classifier, "seed": unit.seed})
    if not unit.n_labels:
        config = replace(config, fit=replace(config.fit, epochs=fitting_epochs(config, n_words(texts))))
    run = folder / "run"
    run.mkdir(exist_ok=True)
    result = fit_task(
        get_task("classify"),
        encoder,
        rows.parts["train"].select(chosen),
        None if unit.n_labels else rows.parts["valid"],
        config,
        run=run,
        layers_folder=None if unit.n_labels else work / "layers",
        reporter=FileReporter(folder / "progress.json"),
    )
    _stop_if(result.stopped)
    classifier, record = result.model, result.model.record
    solved = config.head.head == "linear"  # its history is what was tried, not a course of training
    mix = asdict(mix_record(classifier)) if method.family == "elmo" else None
    found: dict[str, Any] = {
        "fit_seconds": round(sum(record.timings.values()), 2),
        "encoding_seconds": record.timings.get("encoding", 0.0),
        "history": [] if solved else list(record.history),
        "mix": mix,
        "settings": classifier.config.to_dict(),
        "notes": list(record.notes),
    }
    found |= measured(folder, unit, rows, classifier)
    if unit.n_labels == 0 and unit.seed == 0:
        classifier.save(folder / "model")
        found["bytes"] = _n_bytes(folder / "model")
    return found


def _linear(folder: Path, unit: Unit, method: Method, rows: Rows) -> dict[str, Any]:
    from elmokit.tasks.tfidf import fit_tfidf

    examples = rows.parts["train"].select(_chosen(unit, rows))
    begun = time.monotonic()
    model = fit_tfidf(method.base, examples, seed=unit.seed)
    seconds = round(time.monotonic() - begun, 2)
    found: dict[str, Any] = {"fit_seconds": seconds, "notes": list(model.record.notes)}
    found |= measured(folder, unit, rows, model)
    if unit.n_labels == 0 and unit.seed == 0:
        model.save(folder / "model")
        found["bytes"] = _n_bytes(folder / "model")
    return found


def _chosen(unit: Unit, rows: Rows) -> npt.NDArray[np.int64]:
    values = rows.parts["train"].targets
    return draw(values, unit.n_labels, unit.draw) if unit.n_labels else np.arange(len(values))


def measured(folder: Path, unit: Unit, rows: Rows, model: Predictor) -> dict[str, Any]:
    """Figures of each split and the answers themselves; of the learning curve, for the test alone."""
    splits: dict[str, Any] = {}
    answers: dict[str, torch.Tensor] = {}
    speed = 0.0
    for name in ("test",) if unit.n_labels else ("test", "train", "valid"):  # test first, words not yet known
        part = rows.parts[name]
        if name == "train" and len(part) > MEASURED:
            part = part.select(np.sort(np.random.default_rng(0).permutation(len(part))[:MEASURED]))
        begun = time.monotonic()
        predictions = list(model.predict(part.inputs))
        speed = speed or len(part) / max(1e-9, time.monotonic() - begun)
        metrics = model.task.measure(part, predictions)
        answers[name] = torch.from_numpy(metrics.predicted.astype(np.int32))
        kept = ("n", "accuracy", "macro", "weighted", "per_class", "confusion", "confusion_rows")
        splits[name] = {key: value for key, value in metrics.to_json().items() if key in kept}
    save_tensors(folder / "answers.safetensors", answers, {})
    return {"splits": splits, "documents_per_second": round(speed, 1)}


def _stop_if(stopped: str) -> None:
    if stopped == "interrupted":
        raise KeyboardInterrupt


def _n_bytes(folder: Path, without: str = "") -> int:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files if file.relative_to(folder).parts[0] != without)


def _peak_memory() -> int | None:
    """The most memory this process has had, in bytes, where that can be known."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
