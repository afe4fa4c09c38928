"""The verbs fit, predict and evaluate, on files."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import numpy as np
from rich.markup import escape

import elmokit
from elmokit.bilm.perplexity import TextPerplexity, text_perplexity
from elmokit.core.atomic import STAGED, staging
from elmokit.core.config import merge_settings
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, ModelError, RunError
from elmokit.core.formatting import join_names
from elmokit.core.model_card import origin_record
from elmokit.core.model_folder import KINDS, Model, load
from elmokit.core.names import checksum, content_checksum, read_json, resolve_name
from elmokit.core.run_folder import Inputs, open_out
from elmokit.core.tensors import fingerprint
from elmokit.tasks.classification import ClassPrediction, shorten
from elmokit.tasks.model import TaskModel, load_encoder, resolve_head
from elmokit.tasks.model_report import write_model_report
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.stack import StackFit, StackModel, fit_stack
from elmokit.tasks.task import (
    TASKS,
    AnyTask,
    Columns,
    Examples,
    Labels,
    Metrics,
    Part,
    Predictor,
    format_score_name,
    get_task,
)
from elmokit.tasks.tfidf import METHODS, TfidfModel, fit_tfidf
from elmokit.tasks.trainer import fit_task, is_single_label
from elmokit.text.predictions import OutputFormat, PredictionWriter
from elmokit.text.readers import LeftOut, format_of
from elmokit.text.rows import Row, RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates
from elmokit.vectors.foreign import open_encoder
from elmokit.vectors.mix import make_mix
from elmokit.vectors.shards import Engine, is_ray, run_shards, shard_names
from elmokit.vectors.side_by_side import join_encoders

Files = str | Path | Sequence[str | Path]
State = Literal["carried", "zero"]
_LEARNED, _FEW_ROWS = 0.8, 5000  # score of training rows below which a head underfits, if they are few


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The result of ``fit``.

    Attributes:
        model: None if fitting was interrupted.
        metrics: Of each split; empty if the model was there already (``was_done``).
    """

    folder: Path
    model: Predictor | None
    metrics: Mapping[str, Metrics] = field(default_factory=dict)
    was_done: bool = False

    @property
    def scores(self) -> Mapping[str, Mapping[str, float]]:
        """Rows and scores of each split, the most informative first."""
        return self.model.record.splits if self.model else {}

    @property
    def stopped(self) -> str:
        """How training ended: "done", "early", "time" or "interrupted"."""
        return self.model.record.stopped if self.model else "interrupted"


def fit(  # long because it is the whole verb; # many parameters because each is a flag
    encoder: str | Path,
    train: Files,
    out: str | Path,
    *,
    with_: str | Path | Sequence[str | Path] = (),
    valid: Files = (),
    test: Files = (),
    task: str = "auto",
    checkpoint_every: float = 60.0,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> FittedModel:
    """Fit a model on files of labeled rows and write it with its report.

    Called again with the same arguments, it resumes where it was stopped.

    Args:
        encoder: A model that ``pretrain`` or ``baseline`` has made, or a bundled one; a foreign one, such as
            "st:FOLDER"; or "tfidf-svm", "tfidf-lr" or "nbsvm", for a linear model over counts of words.
        with_: Further encoders, whose vectors stand beside those of the first.
        train: Files, folders or glob patterns.
        valid: Rows to choose the best weights by; without them a share of each class is held out.
        test: Test rows, measured at the end for the report.
        task: A key of ``elmokit.tasks.task.TASKS``; "auto" decides by the columns of the rows.
        overwrite: Start over if ``out`` holds another model.
        settings: By name, such as ``head="linear"`` or ``label_column="topic"``; or as objects, ``config``
            (ClassifierConfig), ``read`` (ReadConfig) and ``labels`` (LabelConfig).
    """
    reporter, out = reporter or Reporter("silent"), Path(out)
    problem = choose_task(task, train, _merge_configs(settings)[1], reporter)
    config, read, label_config = _merge_configs(settings, problem)
    read, kind, task = name_fields(problem, read), "classifier", problem.name
    if problem.classifies_texts and (encoder in METHODS or config.is_stack):
        kind = "linear" if encoder in METHODS else "stack"
    elif encoder in METHODS:
        raise ConfigError(
            f"{encoder} does not support the task {task!r}.", remedy="Use an encoder, such as english."
        )
    names = [encoder, *_files(with_)]
    if len(names) > 1 and (alone := [name for name in names if name in METHODS]):
        raise ConfigError(f"{alone[0]} cannot be combined with other encoders.", remedy="Leave out --with.")
    folder = open_out(out, kind, overwrite=overwrite)
    loaded, share = cast(Any, None), 0.0
    if kind == "classifier":
        loaded = cast(Any, join_encoders([*map(load_encoder, names)]))
        config, share = resolve_head(problem, config), config.fit.valid_share
        make_mix(config.mix, loaded.n_layers, loaded.dim)  # wrong weights are refused before a run is started
    elif kind == "stack":
        loaded = join_encoders([*map(open_encoder, names)])
    files = {"train": train, "valid": valid, "test": test}
    parts = read_splits(problem, files, read, label_config, reporter, valid_share=share, seed=config.fit.seed)
    _announce(problem, parts, reporter)
    origin = origin_record(command, "torch", "numpy")
    origin["columns"] = Columns(read.text_columns, label_config.label_column)
    lasting = config.to_dict()
    del lasting["fit"]["cache"]  # where layers are cached makes no difference
    inputs: dict[str, Any] = {f"text.{split}_rows": content_hash(part) for split, part in parts.items()}
    if hasattr(loaded, "bind"):  # vectors from files
        loaded = loaded.bind([row[0] for part in parts.values() for row in part.inputs])
    with folder.lock():
        if kind != "classifier":
            inputs["encoder.weights"] = str(encoder) if loaded is None else loaded.fingerprint
            if folder.is_done({**lasting, "columns": asdict(origin["columns"])}, inputs):
                return FittedModel(out, cast(Predictor, load(out)), was_done=True)
        if loaded is None:
            linear = fit_tfidf(str(encoder), parts["train"], seed=config.fit.seed)
            return _finish(out, linear, parts, origin, reporter)
        origin["encoder"] = describe_encoder(loaded, names)
        if kind == "stack":
            stack = fit_stack(loaded, parts["train"], config, rivals=True, reporter=reporter)
            return _finish(out, stack.model, parts, origin, reporter, stack)
        inputs["encoder.weights"] = fingerprint(*loaded.module.parameters())
        inputs.pop("text.test_rows", None)  # they can be measured on later
        folder.require_same(lasting, inputs)
        if folder.has_result():
            if test:
                reporter.say("[yellow]The model is already fitted; use elmokit evaluate to measure it.[/]")
            return FittedModel(out, TaskModel.load(out), was_done=True)
        options: dict[str, Any] = {"checkpoint_every": checkpoint_every, "reporter": reporter}
        model = fit_task(problem, loaded, parts["train"], parts["valid"], config, run=folder.run, **options)
        if model.record.stopped == "interrupted":
            return FittedModel(out, None)
        origin["rivals"] = measure_rival(parts, problem, config.fit.seed)
        finished = _finish(out, model, parts, origin, reporter)
        judge(model, finished.metrics, origin["rivals"], reporter)
        return finished


def describe_encoder(encoder: Model, names: Sequence[str | Path]) -> dict[str, Any]:
    """For the record of a fit: what the encoder was called, and a few facts."""
    label = " + ".join(replace_surrogates(Path(name).resolve().name) for name in names)
    return {"name": label, **dict(encoder.facts().rows[:6])}


def measure_rival(parts: Mapping[str, Examples], task: AnyTask, seed: int) -> dict[str, float]:
    """The main score of a simple method on the validation rows, for texts with one label."""
    train, valid = parts["train"], parts["valid"]
    if task.classifies_texts and not train.labels.separator:
        with contextlib.suppress(DataError):  # no word
            rival = fit_tfidf("tfidf-svm", train, seed=seed)
            metrics = task.measure(valid, list(rival.predict(valid.inputs)))
            return {"TF-IDF + SVM": metrics.values[metrics.main]}
    return {}


def judge(
    model: TaskModel, metrics: Mapping[str, Metrics], rivals: Mapping[str, float], reporter: Reporter
) -> None:
    """Compare a trained head with a baseline, and say if it underfits."""
    train, valid = metrics["train"], metrics["valid"]
    mine, learned = valid.values[valid.main], train.values[train.main]
    for name, score in rivals.items():
        advice = " The baseline scores higher; try --head auto." if score > mine else ""
        reporter.say(f"On the validation rows: {name}: {score:.3f}; this model: {mine:.3f}.{advice}")
    if learned < _LEARNED and train.n <= _FEW_ROWS and model.record.stopped == "done":
        share = f"training {format_score_name(train.main)} {learned:.3f}"
        other = " or use --head auto" if model.task.classifies_texts else ""
        reporter.say(f"[yellow]The model underfits: {share}. Raise --epochs{other}.[/]")


def judge_stack(stack: StackFit, train: Examples, reporter: Reporter) -> dict[str, Metrics]:
    """The metrics of the out-of-fold predictions, if there are any; say how they stand beside rivals."""
    if not len(stack.rows):
        return {}
    answers = [ClassPrediction(labels=train.labels, probabilities=row) for row in stack.probabilities]
    held_out = stack.model.task.measure(train.select(stack.rows), answers)
    reporter.say(stack.describe(held_out.values[held_out.main]))
    return {"out-of-fold": held_out}


def _announce(task: AnyTask, parts: Mapping[str, Examples], reporter: Reporter) -> None:
    """Say what is about to be learned."""
    names = task.classes(parts["train"].labels)
    others = f", {len(parts['valid']):,} for validation" if "valid" in parts else ""
    classes = f", {len(names)} classes ({escape(shorten(names))})" if names else ""
    reporter.say(f"Rows: {len(parts['train']):,} for training{others}{classes}.")
    for note in parts["train"].notes:
        reporter.note(note)


def _finish(
    out: Path,
    model: TaskModel | TfidfModel | StackModel,
    parts: Mapping[str, Examples],
    origin: dict[str, Any],
    reporter: Reporter,
    stack: StackFit | None = None,
) -> FittedModel:
    """Measure a fitted model, of a ``stack`` the out-of-fold predictions, and write it with its report."""
    for note in model.record.notes:
        reporter.say(f"[yellow]{escape(note)}[/]")
    metrics, train = dict[str, Metrics](), parts["train"]
    if stack is not None and (metrics := judge_stack(stack, train, reporter)):
        parts = {split: part for split, part in parts.items() if split != "train"}
    measured, speed, cut = measure(model, parts, reporter)
    metrics |= measured
    record = replace(
        model.record,
        **origin,
        timings={**model.record.timings, **({"documents_per_second": speed} if speed else {})},
        notes=[*train.notes, *model.record.notes, *cut],
        splits={split: {"n": one.n, **one.values} for split, one in metrics.items()},
    )
    model = replace(model, record=record)
    title = out.resolve().name
    model.save(out, lambda staged: write_model_report(staged, model, metrics, title))
    return FittedModel(out, model, metrics)


def _merge_configs(
    settings: Mapping[str, Any], task: AnyTask | None = None
) -> tuple[ClassifierConfig, ReadConfig, LabelConfig]:
    """Settings by name, merged into those given as objects, or into the usual ones of a task."""
    config = ClassifierConfig.from_flat(**task.settings) if task else ClassifierConfig()
    usual = {"config": config, "read": ReadConfig(), "labels": LabelConfig()}
    given: Any = {name: settings.get(name) or default for name, default in usual.items()}
    named = {name: value for name, value in settings.items() if name not in usual}
    return tuple(merge_settings(named, **given).values())  # type: ignore[return-value]


def choose_task(name: str, files: Files, read: ReadConfig, reporter: Reporter) -> AnyTask:
    """The task of that name; "auto" is the one that the columns of the first file belong to."""
    if name != "auto":
        return get_task(name)
    columns = set[str]() if "-" in map(str, _files(files)) else RowSource(files, read).first_columns()
    for other in map(get_task, TASKS):
        can_be = not read.columns or len(other.fields) in (1, len(read.columns))
        for sign in other.form.signs:
            if can_be and sign <= columns:
                what = "a CoNLL file" if sign == {"conll"} else f"columns {join_names(sorted(sign))}"
                reporter.say(f"Task: {other.name} ({what}); choose another with --task.")
                return other
    if len(read.columns) > 1:
        more = "; use --task pair to compare them" if len(read.columns) == 2 else ""
        reporter.say(f"Texts: {escape(' + '.join(read.columns))}, joined into one{more}.")
    return get_task("classify")


def name_fields(task: AnyTask, read: ReadConfig) -> ReadConfig:
    """With the columns of a task that reads several texts, unless others are named."""
    is_named = len(task.fields) == 1 or read.columns
    return read if is_named else replace(read, text_columns=",".join(task.fields))


def _files(files: Files) -> list[str | Path]:
    return [files] if isinstance(files, str | Path) else list(files)


def read_examples(
    task: AnyTask,
    files: Files,
    read: ReadConfig,
    config: LabelConfig,
    labels: Labels,
    reporter: Reporter,
    *,
    only_known: bool = False,
) -> Examples:
    """All labeled rows of some files; ``labels`` as for ``Task.read``. Rows with others have a note; they are
    refused if ``only_known``."""
    source, rows = RowSource(files, read, config, say=reporter.note, form=task.form), list[Row]()
    with reporter.counting("Reading rows", unit="rows") as advance:
        for row in source:
            rows.append(row)
            advance(1)
    if not any(row.text.strip() for row in rows):
        raise DataError(
            f"{source.name} contains no labeled rows with a text ({len(rows):,} without).",
            remedy="Give texts with labels, and name their columns: --text-columns, --label-column.",
        )
    examples = task.read(rows, labels)
    names = shorten(task.classes(Labels(examples.unknown)))
    unseen = LeftOut(f"with labels that never occur in training: {names}", "Counted as errors")
    targets, n_known = examples.targets, len(examples.labels)
    wrong = targets[:, n_known:] > 0 if labels.separator else targets >= n_known
    for number in np.flatnonzero(wrong.reshape(len(rows), -1).any(axis=1)) if names else ():
        if only_known:
            problem = f"validation rows have labels that the training rows do not have: {names}"
            remedy = "Correct them, or give training rows for them."
            raise DataError(f"{rows[number].place}: {problem}.", remedy=remedy)
        unseen.add(rows[number].place)
    return replace(examples, notes=(*examples.notes, *unseen.notes(), *source.notes()))


def read_splits(
    task: AnyTask,
    files: Mapping[str, Files],
    read: ReadConfig,
    config: LabelConfig,
    reporter: Reporter,
    *,
    valid_share: float,
    seed: int,
) -> dict[str, Examples]:
    """The rows of "train", "valid" and "test"; without those for validation, a share is held out if not 0."""
    parts, labels = dict[str, Examples](), Labels(separator=config.label_separator)
    for split, some in files.items():
        if some:
            only_known = split == "valid" and valid_share > 0
            parts[split] = read_examples(task, some, read, config, labels, reporter, only_known=only_known)
            labels = parts["train"].labels
    if not valid_share or "valid" in parts:
        return parts
    train, valid = hold_out(parts["train"], valid_share, seed)
    if not len(valid):
        raise DataError(
            f"{_files(files['train'])[0]} has one row of each class: none can be held out for validation.",
            remedy="Give more rows, or rows for validation (--valid; in compare, a second file).",
        )
    note = f"{len(valid):,} of {len(train) + len(valid):,} rows were held out for validation."
    train = replace(train, notes=(*train.notes, note))
    rest = {split: part for split, part in parts.items() if split != "train"}
    return {"train": train, "valid": valid, **rest}  # the last split is the one that counts


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Rows to train on and rows for validation: a share of all and, as far as possible, of each class."""
    targets, n_rows = examples.targets, len(examples)
    held = np.zeros(n_rows, dtype=bool)
    if n_rows > 1 and not is_single_label(targets):
        from sklearn.model_selection import train_test_split

        held[train_test_split(np.arange(n_rows), test_size=share, random_state=seed)[1]] = True
    elif n_rows > 1:
        rng = np.random.default_rng(seed)
        labels, counts = np.unique(targets, return_counts=True)
        shares = np.minimum(share * counts, counts - 1)  # at least one row stays to train on
        quotas = np.floor(shares).astype(int)
        # What rounding leaves over goes to the classes that lost most by it.
        spare = max(1, round(share * n_rows)) - int(quotas.sum())
        order = np.argsort(quotas - shares, kind="stable")
        quotas[order[counts[order] - 1 > quotas[order]][: max(0, spare)]] += 1
        for label, quota in zip(labels, quotas, strict=True):
            held[rng.permutation(np.flatnonzero(targets == label))[:quota]] = True
    valid = replace(examples.select(np.flatnonzero(held)), notes=(), weights=None)
    return examples.select(np.flatnonzero(~held)), valid


def content_hash(examples: Examples) -> str:
    """Changes when any text, mark in it, target or label does."""
    rows = [
        [
            text if isinstance(text, str) else [*text, *map("mark {}".format, getattr(text, "mark", ()))]
            for text in row
        ]
        for row in examples.inputs
    ]
    header = {"n_rows": len(rows), "labels": [*examples.labels.names, *examples.unknown]}
    return fingerprint(header, *map(json.dumps, rows), examples.targets)


def measure(
    model: Predictor, parts: Mapping[str, Examples], reporter: Reporter
) -> tuple[dict[str, Metrics], float, tuple[str, ...]]:
    """The metrics of some splits, rows per second, and notes on rows that were cut, unless the model's record
    counts them."""
    start, n_rows = time.monotonic(), sum(map(len, parts.values()))
    with reporter.counting("Measuring", total=n_rows, unit="rows") as advance:
        answers = {name: list(model.predict(part.inputs, progress=advance)) for name, part in parts.items()}
    speed = round(n_rows / max(1e-9, time.monotonic() - start), 1)
    metrics = {name: model.task.measure(part, answers[name]) for name, part in parts.items()}
    notes, splits = list[str](), ("valid", "test") if isinstance(model, StackModel) else ("test",)
    for name, own in ((name, answers[name]) for name in splits if name in answers):
        notes += _cut_notes(model, sum(one.n_cut > 0 for one in own), len(own), f"{name} rows")
    return metrics, speed, tuple(notes)


def _cut_notes(model: Any, n_cut: int, n_rows: int, rows: str = "rows") -> tuple[str, ...]:
    """A sentence on the rows that were too long, if there were any."""
    if not n_cut:
        return ()
    return (f"Truncated to {model.config.fit.max_words} words (max_words): {n_cut:,} of {n_rows:,} {rows}.",)


def open_predictor(model: str | Path | Model) -> Predictor:
    """A fitted model, or an error that says what was given instead."""
    loaded: Any = load(model) if isinstance(model, str | Path) else model
    if not hasattr(loaded, "predict"):
        raise ModelError(
            f"{model} holds {KINDS[loaded.kind].noun}, not a fitted model.",
            remedy="Give a folder made by elmokit fit or compare.",
        )
    return cast(Predictor, loaded)


@dataclass(frozen=True)
class PredictionSummary:
    """How many rows ``predict`` has written, and remarks on them."""

    n_rows: int
    notes: tuple[str, ...]


def predict(
    model: str | Path | Predictor,
    files: Files,
    out: str | Path | None = None,
    *,
    format: OutputFormat | Literal[""] = "",
    overwrite: bool = False,
    reporter: Reporter | None = None,
    engine: Engine = "local",
    address: str = "",
    **settings: Any,
) -> PredictionSummary:
    """Write rows with their predictions, to a file or to standard output; files of any length are streamed.

    Args:
        files: Files, folders or glob patterns, or "-" for standard input.
        format: Unless given, as the ending of ``out`` or of the first file says.
        overwrite: Replace ``out`` if it is a file that holds something else.
        engine: "ray" labels many files at a time; ``out`` is a folder then, with a file for each.
        address: Of a Ray cluster; by default, this machine.
        settings: Those of ReadConfig by name, or ``read`` as an object. Columns that were named to fit are
            read here, too, unless others are given.
    """
    reporter, target = reporter or Reporter("silent"), None if out is None else Path(out)
    kind = _choose_format(None if is_ray(engine, address) else target, format, _files(files)[0])
    predictor = open_predictor(model)
    if is_ray(engine, address):
        return _predict_shards(model, files, target, kind, overwrite, address, reporter, settings)
    task, columns = predictor.task, predictor.record.columns
    read = columns.reading(_merge_configs(settings)[1])
    raw = replace(task.form, plain="txt")  # what has no labels is raw text
    lines, n_rows, n_cut = list[str](), 0, 0
    source = RowSource(files, read, keep=True, say=lines.append, label_name=columns.label, form=raw)
    rows, kept = itertools.tee(source)
    with (
        PredictionWriter(target, kind, overwrite=overwrite, say=reporter.say) as writer,
        reporter.counting("Predicting", unit="rows") as advance,
    ):
        inputs = (task.inputs(row, predictor.labels) for row in rows)
        predictions = predictor.predict(inputs, progress=advance)
        for prediction, row in zip(predictions, kept, strict=True):
            writer.write(row, task.columns(prediction))
            n_rows += 1
            n_cut += prediction.n_cut > 0
        if not n_rows:
            (blank,) = predictor.predict([("",) * len(task.fields)])
            writer.write_header(task.columns(blank), source.column_names)
    notes = (*lines, *source.notes(), *_cut_notes(predictor, n_cut, n_rows))
    return PredictionSummary(n_rows, notes)


def _predict_shards(
    model: str | Path | Predictor,
    files: Files,
    out: Path | None,
    kind: OutputFormat,
    overwrite: bool,
    address: str,
    reporter: Reporter,
    settings: Mapping[str, Any],
) -> PredictionSummary:
    """Predict each file into one of its own, by the engine "ray"."""
    if out is None:
        raise ConfigError("The engine 'ray' writes a folder.", remedy="Name it with --out.")
    with open_out(out, "predictions", overwrite=overwrite).lock():
        old = read_json(out / "manifest.json")
        place = out / STAGED if overwrite and old.get("done") else out
        place.mkdir(exist_ok=True)
        content = content_checksum(resolve_name(model)) if isinstance(model, str | Path) else ""
        job = {
            "kind": "predictions",
            "elmokit_version": elmokit.__version__,
            "model": {"name": Path(str(model)).resolve().name, "fingerprint": content},
            "settings": {"format": kind},
            "reading": _merge_configs(settings)[1].to_dict(),
            "n_rows": 0,
        }
        work = functools.partial(_predict_shard, out=place.absolute(), kind=kind, settings=settings)
        options: Any = {"overwrite": overwrite}
        counts = run_shards(job, files, place, model, open_predictor, work, address, reporter, **options)
        if place != out:
            with staging(out, "manifest.json", gone=shard_names(old), is_staged=True):
                pass
    return PredictionSummary(counts["n_rows"], ())


def _predict_shard(
    model: Predictor,
    number: int,
    file: Path,
    known: Sequence[Any],
    *,
    out: Path,
    kind: OutputFormat,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """One of many files, on a worker; ``known`` is its name and, if it is done, its content hash and rows."""
    part, content = out / f"part-{number:05d}.{kind}", checksum(file)
    if known[1] not in ("", content):
        problem = f"it changed since {part} was written"
        raise RunError(problem, remedy="Choose another --out, or add --overwrite.")
    if known[1] and part.exists():
        return {"file": known[1:], "counts": {"n_rows": known[2]}, "notes": []}
    summary = predict(model, [file], part, format=kind, overwrite=True, **settings)
    return {"file": [content, summary.n_rows], "counts": {"n_rows": summary.n_rows}, "notes": summary.notes}


def _choose_format(out: Path | None, given: str, first: str | Path) -> OutputFormat:
    """The format of predictions: as given, or as the ending of ``out`` or of the first file says."""
    suffix = out.suffix.lower() if out else ""
    if suffix in (".gz", ".zst") or (not given and suffix in (".tsv", ".parquet")):
        raise ConfigError(
            f"Predictions cannot be written as {suffix} files: {out}.",
            remedy="Use a name that ends in .csv or .jsonl (for tags, also .conll).",
        )
    if given not in ("", "csv", "jsonl", "conll"):
        raise ConfigError(f"--format {given} is not a valid choice.", remedy="Choose csv, jsonl or conll.")
    name = f".{given}" if given else suffix or re.sub(r"\.(gz|zst)$", "", str(first).lower())
    if format_of(Path(f"file{name}")) == "conll":
        return "conll"
    return "jsonl" if name.endswith((".jsonl", ".ndjson", ".json")) else "csv"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a model is.

    Attributes:
        values: Figures by name: "accuracy", "perplexity", or the correlation with each file of word pairs.
        details: ``Metrics`` of a fitted model, ``TextPerplexity`` of a language model, or an
            ``IntrinsicResult`` for each file of word pairs.
        speed: Rows per second, for fitted models.
        notes: Remarks on the rows, such as how many were truncated.
        part: What the metrics of a fitted model tell apart.
    """

    values: Mapping[str, float]
    details: Metrics | TextPerplexity | dict[str, Any]
    speed: float = 0.0
    notes: tuple[str, ...] = ()
    part: Part | None = None

    def to_json(self) -> Any:
        """For ``--json``."""
        if isinstance(self.details, TextPerplexity):
            return asdict(self.details)
        if isinstance(self.details, dict):
            return {"intrinsic": [{"task": name, **one.to_json()} for name, one in self.details.items()]}
        return {**self.details.to_json(), "documents_per_second": self.speed, "notes": list(self.notes)}


def evaluate(
    model: str | Path | Model,
    files: Files,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    state: State = "carried",
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> Evaluation:
    """Measure a model, as its kind demands.

    Fitted models are measured on labeled rows, language models by their perplexity on texts, word vectors
    on files of word pairs with similarity scores or of analogies.

    Args:
        out: Folder for a report on a fitted model; with ``overwrite``, one with an earlier report, too.
        state: For a language model: carry the state from text to text, or start each from zero.
        settings: Those of ReadConfig and LabelConfig by name, or ``read`` and ``labels`` as objects.
    """
    reporter = reporter or Reporter("silent")
    _, read, label_config = _merge_configs(settings)
    loaded: Any = load(model) if isinstance(model, str | Path) else model
    if loaded.kind in ("bilm", "word-vectors") and out is not None:
        raise ConfigError("--out is for reports on fitted models.", remedy="Leave it out.")
    if loaded.kind == "bilm":
        perplexity = text_perplexity(loaded.folder, _files(files), read=read, state=state, reporter=reporter)
        figures = asdict(perplexity).items()
        return Evaluation({name: value for name, value in figures if isinstance(value, float)}, perplexity)
    if loaded.kind == "word-vectors":
        from elmokit.static.intrinsic import evaluate_vectors

        results = {Path(file).name: evaluate_vectors(loaded, file) for file in _files(files)}
        values = {name: result.value for name, result in results.items() if result.value is not None}
        return Evaluation(values, results)
    report = None if out is None else open_out(Path(out), "report", overwrite=overwrite)
    with report.lock() if report else contextlib.nullcontext():
        predictor = cast(Predictor, loaded)
        read = predictor.record.columns.reading(read)
        label_config = predictor.record.columns.labeling(label_config, predictor.labels)
        rows = read_examples(predictor.task, files, read, label_config, predictor.labels, reporter)
        if report is not None:
            content = uuid4().hex  # a model in memory is never the same as before
            if isinstance(model, str | Path):
                content = content_checksum(resolve_name(model), exclude=report.out)
            inputs: Inputs = {"model.model": content, "text.test_rows": content_hash(rows)}
            report = None if report.is_done({}, inputs, reporter.say) else report
        metrics, speed, cut = measure(predictor, {"test": rows}, reporter)
        notes = (*rows.notes, *cut)
        if report is not None:
            origin = origin_record(command, "torch", "numpy")
            changes = {**origin, "notes": notes, "timings": {"documents_per_second": speed}, "rivals": {}}
            loaded = replace(loaded, record=replace(predictor.record, **changes))
            write_model_report(report.out, loaded, metrics, report.out.resolve().name)
        return Evaluation(metrics["test"].values, metrics["test"], speed, notes, predictor.task.part)
