"""The parts of a comparison: each is a folder that is made once, and can be stopped and gone on with.

language-model  a biLM, pretrained on the train texts
vectors         word vectors of the same texts
layers          what a frozen biLM gives for the rows, kept on disk for all fits on top of it
fit, linear     a classifier, fitted and measured; for the learning curve, on a few of the rows
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from elmokit.bilm.pretraining import pretrain
from elmokit.compare.methods import Method, Plan, source_id
from elmokit.compare.rows import Rows, draw, load_rows
from elmokit.compare.unit_progress import FileReporter
from elmokit.config import PretrainConfig, TextConfig, resolve
from elmokit.embed.elmo import Elmo
from elmokit.static.folder import load_vectors, save_vectors
from elmokit.static.learning import train_vectors
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.tasks.classify import fit_classifier, keep_all_layers
from elmokit.tasks.encoders import Encoder, StaticEncoder
from elmokit.tasks.fitting import report_facts, with_train_loss
from elmokit.tasks.folder import save_classifier
from elmokit.tasks.metrics import measure
from elmokit.tasks.settings import ClassifierConfig
from elmokit.text.settings import ReadConfig
from elmokit.training.checkpoint import save_tensors, write_text
from elmokit.training.run_folder import check_unchanged

__all__ = ["RESULT", "Unit", "bilm_folder", "measured", "result_of", "run_unit", "units_of"]

Kind = Literal["language-model", "vectors", "layers", "fit", "linear"]
RESULT = "result.json"
_MEASURED = 5000  # train rows that train accuracy is measured on, at most
_TIMED = 1000  # test rows that speed is measured on
_PERPLEXED = 500  # validation texts that perplexity is measured on
_WORDS_SEEN = 14_000_000  # a language model is to read in all, in so many epochs as that takes
_EPOCHS = (4, 30)
_VECTOR_WORDS, _VECTOR_EPOCHS = 10_000_000, (5, 60)
_TEXT = TextConfig(lowercase=True, mend=True)
_FITTING_STEPS, _FITTING_EPOCHS = 250, (3, 25)


@dataclass(frozen=True)
class Unit:
    """One part of the work.

    Attributes:
        id: the name of its folder.
        kind: what is done.
        method: whose.
        seed: as it says.
        n_labels: rows to learn from; 0 for all.
        draw: which rows those are.
        needs: units that must be done before.
    """

    id: str
    kind: Kind
    method: str
    seed: int = 0
    n_labels: int = 0
    draw: int = 0
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a person reads while it is running."""
        return self.id.replace("/", " ")


def units_of(plan: Plan, encoder: Path | None) -> list[Unit]:
    """All parts of a plan; what others need comes first."""
    units: dict[str, Unit] = {}
    for method in plan.methods:
        before: tuple[str, ...] = ()
        if method.family != "linear":
            source = source_id(method)
            if method.family == "static":
                units.setdefault(source, Unit(source, "vectors", method.id))
                before = (source,)
            elif encoder is None:
                units.setdefault(source, Unit(source, "language-model", method.id))
                before = (source,)
            if method.family == "elmo" and not method.classifier.get("finetune"):
                name = f"layers-{source}"
                units.setdefault(name, Unit(name, "layers", method.id, needs=before))
                before = (*before, name)
        kind: Kind = "linear" if method.family == "linear" else "fit"
        for seed in plan.seeds if method.has_chance else plan.seeds[:1]:
            id = f"{method.id}-s{seed}"
            units[id] = Unit(id, kind, method.id, seed, needs=before)
        if method.id in plan.curve:
            for n_labels in plan.counts:
                for number in range(plan.draws):
                    id = f"{method.id}-n{n_labels}-d{number}"
                    units[id] = Unit(id, kind, method.id, number, n_labels, number, before[:1])
    order: dict[Kind, int] = {"language-model": 0, "vectors": 1, "linear": 2, "layers": 3, "fit": 4}
    return sorted(units.values(), key=lambda unit: (unit.n_labels > 0, order[unit.kind]))


def result_of(work: Path, unit: Unit) -> dict[str, Any] | None:
    """What a finished unit found; None if it is not finished."""
    try:
        found: dict[str, Any] = json.loads((work / "units" / unit.id / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def bilm_folder(work: Path, method: Method, encoder: Path | None) -> Path:
    """Where a method's biLM is."""
    return encoder if encoder is not None else work / "units" / source_id(method) / "model"


def run_unit(work: Path, unit: Unit, method: Method, encoder: Path | None) -> None:
    """Do one part, or go on with it; its result is written last."""
    folder = work / "units" / unit.id
    folder.mkdir(parents=True, exist_ok=True)
    rows = load_rows(work / "rows")
    settings = {
        "unit": {key: value for key, value in asdict(unit).items() if key != "needs"},
        "method": {name: json.dumps(value, sort_keys=True) for name, value in asdict(method).items()},
        "text": {f"{name}_rows": mark for name, mark in rows.marks().items()},
    }
    check_unchanged(folder, settings)
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
    result = {"rows": rows.marks(), "wall": round(time.monotonic() - begun, 2), **result}
    result["peak_memory"] = _peak_memory()
    write_text(folder / RESULT, json.dumps(result, indent=1) + "\n")


def pretraining_config(method: Method, n_words: int, seconds: float | None = None) -> PretrainConfig:
    """The settings of a method's language model; 0 epochs are as many as suit so many words."""
    changes = dict(method.language_model)
    preset, training = changes.pop("preset", "small"), dict(changes.pop("training", {}))
    if training.get("epochs", 0) == 0:
        fewest, most = _EPOCHS
        training["epochs"] = min(most, max(fewest, -(-_WORDS_SEEN // max(1, n_words))))
    if seconds is not None:
        training["max_time"] = seconds
    return resolve(preset, changes, {"training": training})


def fitting_epochs(config: ClassifierConfig, n_words: int) -> int:
    """Epochs of a fit on so many words; 0 of them in the settings are as many as a comparison needs."""
    fewest, most = _FITTING_EPOCHS
    n_steps = max(1, n_words // config.fit.batch_words)
    return config.fit.epochs or min(most, max(fewest, -(-_FITTING_STEPS // n_steps)))


def _language_model(work: Path, folder: Path, method: Method, rows: Rows) -> dict[str, Any]:
    held = folder / "held_out.jsonl"
    texts = rows.texts("valid")[:_PERPLEXED]
    write_text(held, "".join(json.dumps({"text": text}) + "\n" for text in texts))
    sources: list[str | Path] = [work / "rows" / "train.jsonl"]
    if rows.unlabelled:
        sources.append(work / "rows" / "unlabelled.jsonl")
    n_words = sum(text.count(" ") + 1 for text in (*rows.texts("train"), *rows.unlabelled))
    seconds = method.language_model.get("training", {}).get("max_time")
    result = pretrain(
        sources,
        folder / "model",
        pretraining_config(method, n_words, seconds),
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
        n_words = sum(text.count(" ") + 1 for text in texts)
        fewest, most = _VECTOR_EPOCHS
        epochs = min(most, max(fewest, -(-_VECTOR_WORDS // n_words)))
        settings = {"workers": 1, "epochs": epochs, **settings}
    config = class_.from_dict(settings)
    begun = time.monotonic()
    vectors = train_vectors(method.base, texts, config, text=_TEXT)  # type: ignore[arg-type]
    seconds = time.monotonic() - begun
    save_vectors(folder / "model", vectors)
    return {
        "seconds": round(seconds, 2),
        "words": len(vectors.vocabulary),
        "dim": vectors.dim,
        "bytes": _n_bytes(folder / "model"),
    }


def _layers(work: Path, method: Method, rows: Rows, encoder: Path | None) -> dict[str, Any]:
    elmo = Elmo.load(bilm_folder(work, method, encoder))
    config = ClassifierConfig.from_flat(**method.classifier)
    texts = [rows.texts("train"), rows.texts("valid")]
    kept = keep_all_layers(elmo, texts, config, work / "layers")
    return {"bytes": sum(file.stat().st_size for file in kept)}


def _fit(
    work: Path, folder: Path, unit: Unit, method: Method, rows: Rows, given: Path | None
) -> dict[str, Any]:
    encoder: Encoder
    if method.family == "static":
        encoder = StaticEncoder(load_vectors(work / "units" / source_id(method) / "model"))
    else:
        encoder = Elmo.load(bilm_folder(work, method, given))
    chosen = _chosen(unit, rows)
    texts = rows.texts("train")
    config = ClassifierConfig.from_flat(**{**method.classifier, "seed": unit.seed})
    if not unit.n_labels:
        n_words = sum(text.count(" ") + 1 for text in texts)
        config = replace(config, fit=replace(config.fit, epochs=fitting_epochs(config, n_words)))
    run = folder / "run"
    run.mkdir(exist_ok=True)
    result = fit_classifier(
        encoder,
        ([texts[place] for place in chosen], rows.targets("train", chosen)),
        None if unit.n_labels else (rows.texts("valid"), rows.targets("valid")),
        config,
        run=run,
        layers_folder=None if unit.n_labels else work / "layers",
        reporter=FileReporter(folder / "progress.json"),
    )
    _stop_if(result.stopped)
    made = {"history": with_train_loss(run, result.history), "mix_start": result.mix_start}
    classifier = replace(result.classifier, record=made)
    solved = config.head.head == "linear"  # its history is what was tried, not a course of training
    mix = report_facts(classifier, {}, {}, title=method.id)["mix"] if method.family == "elmo" else None
    if mix is not None and solved:
        mix |= {"history": [], "epochs": []}
    found: dict[str, Any] = {
        "fit_seconds": round(sum(result.seconds.values()), 2),
        "seconds": result.seconds,
        "history": [] if solved else made["history"],
        "mix": mix,
        "settings": classifier.network.config.to_dict(),
        "notes": result.notes,
    }
    found |= measured(folder, unit, rows, lambda part: classifier.probabilities(part))
    if unit.n_labels == 0 and unit.seed == 0:
        save_classifier(folder / "model", classifier)
        found["bytes"] = _n_bytes(folder / "model")
    shutil.rmtree(run)
    return found


def _linear(folder: Path, unit: Unit, method: Method, rows: Rows) -> dict[str, Any]:
    from elmokit.compare.linear import fit_linear

    chosen = _chosen(unit, rows)
    texts, labels = rows.texts("train"), rows.labels("train")
    begun = time.monotonic()
    model = fit_linear(
        method.base,  # type: ignore[arg-type]
        [texts[place] for place in chosen],
        [labels[place] for place in chosen],
        seed=unit.seed,
        classes=rows.classes,
    )
    found: dict[str, Any] = {"fit_seconds": round(time.monotonic() - begun, 2), "notes": list(model.notes)}
    found |= measured(folder, unit, rows, model.probabilities)
    if unit.n_labels == 0 and unit.seed == 0:
        model.save(folder / "model")
        found["bytes"] = _n_bytes(folder / "model")
    return found


def _chosen(unit: Unit, rows: Rows) -> list[int]:
    values = rows.targets("train").values
    if unit.n_labels:
        return [int(place) for place in draw(values, unit.n_labels, unit.draw)]
    return list(range(len(values)))


def measured(folder: Path, unit: Unit, rows: Rows, probabilities: Any) -> dict[str, Any]:
    """Figures of each split and the answers themselves; of the learning curve, for the test alone."""
    splits: dict[str, Any] = {}
    answers: dict[str, torch.Tensor] = {}
    for name in ("test",) if unit.n_labels else ("train", "valid", "test"):
        texts, labels = rows.texts(name), rows.labels(name)
        if name == "train" and len(texts) > _MEASURED:
            places = np.sort(np.random.default_rng(0).permutation(len(texts))[:_MEASURED])
            texts, labels = [texts[place] for place in places], [labels[place] for place in places]
        found = probabilities(texts)
        guessed = found.argmax(axis=1)
        answers[name] = torch.from_numpy(guessed.astype(np.int32))
        figures = measure(labels, [rows.classes[place] for place in guessed], found, rows.classes)
        kept = ("n", "accuracy", "macro", "weighted", "per_class", "confusion", "confusion_rows")
        splits[name] = {key: value for key, value in figures.items() if key in kept}
    save_tensors(folder / "answers.safetensors", answers, {})
    part = rows.texts("test")[:_TIMED]
    begun = time.monotonic()
    probabilities(part)
    return {"splits": splits, "documents_per_second": round(len(part) / (time.monotonic() - begun), 1)}


def _stop_if(stopped: str) -> None:
    if stopped == "interrupted":
        raise KeyboardInterrupt


def _n_bytes(folder: Path, without: str = "") -> int:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files if file.relative_to(folder).parts[0] != without)


def _peak_memory() -> int:
    """The most memory this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
