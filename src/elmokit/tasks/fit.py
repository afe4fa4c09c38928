"""From files of labelled rows to a classifier folder with its report; and measuring one on other rows."""

from __future__ import annotations

import datetime
import json
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.markup import escape

import elmokit
from elmokit.core.atomic import explain_os_errors
from elmokit.core.console import Reporter
from elmokit.core.errors import DataError, RunError
from elmokit.core.model_folder import is_model_folder, kind_of
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.tasks.encoders import encoder_facts, load_encoder
from elmokit.tasks.estimator import validation_split
from elmokit.tasks.folder import load_classifier, save_classifier
from elmokit.tasks.metrics import confident_mistakes, measure, measure_multilabel
from elmokit.tasks.model import Targets, TextClassifier
from elmokit.tasks.report import write_report
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.trainer import FitResult, fit_classifier
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates
from elmokit.vectors.mix import make_mix

__all__ = [
    "FittedFolder",
    "LabelledTexts",
    "class_names",
    "class_numbers",
    "evaluate_files",
    "fit_files",
    "read_labelled",
    "with_train_loss",
]

_MISTAKES = 20


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their labels, and notes on what was left out."""

    texts: list[str]
    labels: list[list[str]]
    notes: list[str]

    def content_hash(self) -> str:
        """Changes when any text or label does."""
        rows = zip(self.texts, self.labels, strict=True)
        return fingerprint(*("\0".join([text, *labels, ""]) for text, labels in rows))

    def some(self, chosen: npt.NDArray[np.bool_]) -> LabelledTexts:
        """The rows for which ``chosen`` is true."""
        places = np.flatnonzero(chosen)
        return LabelledTexts([self.texts[i] for i in places], [self.labels[i] for i in places], [])


@dataclass(frozen=True)
class FittedFolder:
    """What ``fit_files`` leaves behind: the folder, how fitting went, and the figures by split."""

    folder: Path
    result: FitResult
    splits: dict[str, dict[str, Any]]


def read_labelled(
    sources: Sequence[str | Path], read: ReadConfig, labels: LabelConfig, reporter: Reporter
) -> LabelledTexts:
    """All rows of some files."""
    source = RowSource(sources, read, labels)
    texts: list[str] = []
    found: list[list[str]] = []
    with reporter.counting("Reading rows", unit="rows") as advance:
        for row in source:
            texts.append(row.text)
            found.append(labels.split(row.label or ""))
            advance(1)
    if not texts:
        raise DataError(f"{source.name} holds no labelled rows.", remedy="Give a file with text and labels.")
    if not any(map(str.strip, texts)):
        raise DataError(
            f"{source.name}: all {len(texts):,} texts are empty.",
            remedy="Look at the file, and name the columns that hold the text: --text-columns.",
        )
    dropped = f"{source.n_dropped:,} rows without a label were left out." if source.n_dropped else ""
    return LabelledTexts(texts, found, [dropped] if dropped else [])


def fit_files(
    encoder: str | Path,
    train: str | Path | Sequence[str | Path],
    out: str | Path,
    config: ClassifierConfig | None = None,
    *,
    valid: str | Path | Sequence[str | Path] = (),
    test: str | Path | Sequence[str | Path] = (),
    read: ReadConfig | None = None,
    labels: LabelConfig | None = None,
    checkpoint_every: float = 60.0,
    reporter: Reporter | None = None,
    command: str = "",
) -> FittedFolder:
    """Fit a classifier on files of labelled rows and write it with its report.

    Called again with the same arguments, it goes on where it was stopped.

    Args:
        encoder: a folder that ``pretrain`` (or ``baseline``) has made.
        train: files, folders or glob patterns of labelled rows.
        out: the classifier folder to make.
        config: all settings.
        valid: rows to choose the best weights by; without them a share of each class is set aside.
        test: rows to measure on at the very end, for the report.
        read: how files are read.
        labels: where labels stand.
        checkpoint_every: seconds between checkpoints.
        reporter: who is told; silent unless given.
        command: the command line, for the card and the report.
    """
    config, reporter = config or ClassifierConfig(), reporter or Reporter("silent")
    read, labels, out = read or ReadConfig(), labels or LabelConfig(), Path(out)
    train, valid, test = (
        [files] if isinstance(files, str | Path) else list(files) for files in (train, valid, test)
    )
    loaded = load_encoder(encoder)
    fitting = read_labelled(train, read, labels, reporter)
    multilabel = bool(labels.label_separator)
    classes = class_names(fitting, train, reporter)
    values = class_numbers(fitting, classes, multilabel, "train")
    parts = {"train": fitting}
    notes = list(fitting.notes)
    if valid:
        parts["valid"] = read_labelled(valid, read, labels, reporter)
    else:
        held = validation_split(values, config.fit.valid_share, config.fit.seed)
        parts = {"train": fitting.some(~held), "valid": fitting.some(held)}
        notes.append(f"{int(held.sum()):,} of {len(held):,} rows were set aside for validation.")
        if not held.any():
            raise DataError(
                f"{train[0]} has one row of each class: none can be set aside for validation.",
                remedy="Give more rows, or rows for validation with --valid.",
            )
    targets = {
        name: Targets(classes, class_numbers(part, classes, multilabel, name)) for name, part in parts.items()
    }
    tested = read_labelled(test, read, labels, reporter) if test else None
    make_mix(
        config.mix, loaded.n_layers, loaded.dim
    )  # so that wrong weights are refused before a run is begun
    folder = open_out(out, "classifier", resume=True)
    run = folder.run
    with folder.lock():
        inputs = {f"text.{name}_rows": part.content_hash() for name, part in parts.items()}
        weights = fingerprint(*loaded.module.parameters())
        folder.require_same(_lasting(config), {**inputs, "encoder.weights": weights})
        reporter.say(
            f"Rows: {len(parts['train'].texts):,} to train on, {len(parts['valid'].texts):,} for validation, "
            f"{len(classes)} classes ({escape(_listed(classes))}).\n"
            f"Model: {'fine-tuned' if config.fit.finetune else 'frozen'} encoder ({loaded.n_layers} layers, "
            f"{loaded.dim} wide), {config.mix.mix} mix, {config.head.head} head."
        )
        for note in notes:
            reporter.say(f"[dim]{note}[/]")
        result = fit_classifier(
            loaded,
            (parts["train"].texts, targets["train"]),
            (parts["valid"].texts, targets["valid"]),
            config,
            run=run,
            checkpoint_every=checkpoint_every,
            reporter=reporter,
        )
        if result.stopped == "interrupted":
            return FittedFolder(out, result, {})
        if result.was_done and is_model_folder(out):
            record = load_classifier(out).record
            if test:
                reporter.say(
                    "[yellow]It was fitted before; measure it on other rows with elmokit evaluate.[/]"
                )
            return FittedFolder(out, result, record.get("splits", {}))
        for note in result.notes:
            reporter.say(f"[yellow]{note}[/]")
        if tested is not None:
            parts["test"] = tested
        splits, mistakes, speed = _measured(result.classifier, parts, reporter)
        timings: dict[str, Any] = {**result.seconds, "documents_per_second": round(speed, 1)}
        made = {
            "date": datetime.date.today().isoformat(),
            "command": replace_surrogates(command),
            "stopped": result.stopped,
            "label_separator": labels.label_separator,
            "columns": {"text": read.text_columns, "label": labels.label_column},
            "history": with_train_loss(run, result.history),
            "mix_start": result.mix_start,
            "timings": timings,
            "notes": [*notes, *result.notes, *(cut_note(result.classifier) if tested is not None else [])],
            "encoder": encoder_facts(loaded, Path(encoder).resolve().name),
            "versions": versions(),
            "splits": {
                name: {
                    key: value for key, value in figures.items() if key in ("n", "accuracy", "macro", "micro")
                }
                for name, figures in splits.items()
            },
        }
        classifier = replace(result.classifier, record=made)
        write_report(out, report_facts(classifier, splits, mistakes, title=out.resolve().name))
        save_classifier(out, classifier)  # last: what it makes is what says that all is done
        return FittedFolder(out, result, splits)


def evaluate_files(
    model: str | Path,
    files: Sequence[str | Path],
    *,
    read: ReadConfig | None = None,
    labels: LabelConfig | None = None,
    out: Path | None = None,
    name: str = "test",
    reporter: Reporter | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Measure a classifier on labelled rows; with ``out``, write a report there."""
    reporter = reporter or Reporter("silent")
    if out is not None and out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder.", remedy="Choose another --out.")
    if out is not None and kind_of(out) is not None:
        raise RunError(
            f"{out} holds a model: a report there would replace its own.", remedy="Choose another --out."
        )
    classifier = load_classifier(model)
    read, labels = classifier.reading(read or ReadConfig()), classifier.labelling(labels or LabelConfig())
    rows = read_labelled(files, read, labels, reporter)
    splits, mistakes, speed = _measured(classifier, {name: rows}, reporter)
    notes = [*rows.notes, *cut_note(classifier)]
    figures = {**splits[name], "documents_per_second": round(speed, 1), "notes": notes}
    if out is not None:
        facts = report_facts(classifier, splits, mistakes, title=Path(model).resolve().name)
        facts |= {
            "command": replace_surrogates(command),
            "notes": notes,
            "versions": versions(),
            "timings": {"documents_per_second": round(speed, 1)},
        }
        with explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        write_report(out, facts)
    return figures


def report_facts(
    classifier: TextClassifier, splits: dict[str, Any], mistakes: dict[str, Any], title: str
) -> dict[str, Any]:
    """What ``write_report`` takes."""
    config, record = classifier.network.config, classifier.record
    names = [
        "layer 0 (token encoder)",
        *(f"layer {depth}" for depth in range(1, classifier.encoder.n_layers)),
    ]
    values = classifier.network.mix.values()
    history = record.get("history", [])
    keys = [key for key in values if key != "mix_gamma"]
    per_epoch = len([entry for entry in history if entry["epoch"] == 1]) or 1
    measured = [{**entry, "epoch": (place + 1) / per_epoch} for place, entry in enumerate(history)]
    start = {"epoch": 0.0, **record.get("mix_start", {})}
    along = [entry for entry in [start, *measured] if all(key in entry for key in keys)]
    return {
        "title": title,
        "classes": classifier.classes,
        "multilabel": classifier.multilabel,
        "splits": splits,
        "mistakes": mistakes,
        "history": [{k: v for k, v in entry.items() if not k.startswith("mix_")} for entry in history],
        "mix": {
            "kind": config.mix.mix,
            "form": config.mix.mix_form,
            "names": names,
            "values": [values[key] for key in keys],
            "gamma": values.get("mix_gamma"),
            "history": [[entry[key] for key in keys] for entry in along],
            "epochs": [round(entry["epoch"], 2) for entry in along],
        },
        "settings": {**config.mix.to_dict(), **config.head.to_dict(), **config.fit.to_dict()},
        **{
            key: record[key]
            for key in ("encoder", "timings", "versions", "command", "notes")
            if key in record
        },
    }


def cut_note(classifier: TextClassifier) -> list[str]:
    """A sentence on the texts that were too long, if there were any."""
    if not classifier.n_cut:
        return []
    limit, some = (
        classifier.network.config.fit.max_words,
        "1 text" if classifier.n_cut == 1 else (f"{classifier.n_cut:,} texts"),
    )
    return [f"Of {some} only the first {limit} words were read (max_words)."]


def versions() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "elmokit": elmokit.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _lasting(config: ClassifierConfig) -> dict[str, Any]:
    """All settings that a resumed run must agree on: where layers are kept is not among them."""
    settings = config.to_dict()
    del settings["fit"]["cache"]
    return settings


def _measured(
    classifier: TextClassifier, parts: dict[str, LabelledTexts], reporter: Reporter
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Figures and most confident mistakes of each part, and texts per second."""
    splits: dict[str, Any] = {}
    mistakes: dict[str, Any] = {}
    begun, n_texts = time.monotonic(), sum(len(part.texts) for part in parts.values())
    with reporter.counting("Measuring", total=n_texts, unit="texts") as advance:
        shares = {name: classifier.probabilities(part.texts, advance) for name, part in parts.items()}
    speed = n_texts / max(1e-9, time.monotonic() - begun)
    for name, part in parts.items():
        found = shares[name]
        if classifier.multilabel:
            unseen = Counter(
                sorted(c for labels in part.labels for c in labels if c not in classifier.classes)
            )
            classes = [*classifier.classes, *unseen]
            wanted = np.array([[c in labels for c in classes] for labels in part.labels])
            found = np.pad(found, ((0, 0), (0, len(unseen))))  # never predicted
            figures = measure_multilabel(wanted, found, classes)
            splits[name] = {**figures, "accuracy": figures["subset_accuracy"], "unseen": dict(unseen)}
            continue
        true, guessed = [labels[0] for labels in part.labels], classifier.labels(found)
        splits[name] = measure(true, guessed, found, classifier.classes)
        mistakes[name] = confident_mistakes(part.texts, true, guessed, found, classifier.classes, n=_MISTAKES)
    return splits, mistakes, speed


def with_train_loss(run: Path, history: list[dict[str, float]]) -> list[dict[str, float]]:
    """The history with each epoch's mean training loss, from the run's metrics."""
    losses: dict[int, list[float]] = {}
    if not (run / "metrics.jsonl").exists():  # a head that is solved at a stroke
        return [dict(entry) for entry in history]
    step = 0
    bounds = [int(entry["step"]) for entry in history]
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record.get("event") == "train":
            step = next((place for place, last in enumerate(bounds) if record["step"] <= last), len(bounds))
            losses.setdefault(step, []).append(record["loss"])
    return [
        {**entry, "train_loss": float(np.mean(losses[place]))} if place in losses else dict(entry)
        for place, entry in enumerate(history)
    ]


def class_names(rows: LabelledTexts, train: Sequence[str | Path], reporter: Reporter) -> list[str]:
    """The classes of the rows to train on, sorted; fewer than two, or far too many, are refused."""
    counts: dict[str, int] = {}
    for labels in rows.labels:
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
    if len(counts) < 2:
        only = f"one class only ({next(iter(counts))!r})" if counts else "no labels"
        raise DataError(
            f"{train[0]} holds {only}.",
            remedy="A classifier needs rows of at least two classes; check --label-column.",
        )
    if len(counts) > 1000 and len(counts) * 2 > len(rows.labels):
        raise DataError(
            f"{train[0]}: {len(counts):,} different labels in {len(rows.labels):,} rows.",
            remedy="That looks like a column of texts or numbers; check --label-column.",
        )
    single = [label for label, count in counts.items() if count == 1]
    if single:
        reporter.say(
            f"[yellow]One row only for {escape(_listed(single))}: "
            "such a class is trained on, not validated.[/]"
        )
    return sorted(counts)


def class_numbers(rows: LabelledTexts, classes: list[str], multilabel: bool, name: str) -> Any:
    """What ``Targets`` holds as values; a label that is no class is refused (``name`` says whose)."""
    places = {label: place for place, label in enumerate(classes)}
    unseen = sorted({label for labels in rows.labels for label in labels if label not in places})
    if unseen:
        raise DataError(
            f"The {name} rows have labels that the training rows have not: {_listed(unseen)}.",
            remedy="Mend them, or give training rows for them.",
        )
    if multilabel:
        wanted = np.zeros((len(rows.labels), len(classes)), dtype=np.float32)
        for row, labels in enumerate(rows.labels):
            wanted[row, [places[label] for label in labels]] = 1.0
        return wanted
    return np.array([places[labels[0]] for labels in rows.labels], dtype=np.int64)


def _listed(names: list[str]) -> str:
    shown = ", ".join(name if len(name) < 40 else f"{name[:39]}…" for name in names[:8])
    return shown + (f", … and {len(names) - 8} more" if len(names) > 8 else "")
