"""The steps of a comparison: each is a folder that is made once, and can be interrupted and resumed.

language-model  a biLM, pretrained on the train texts
vectors         word vectors of the same texts; of a foreign encoder, the vectors of all rows
layers          a frozen biLM's layers of the rows, cached on disk for all fits on top of it
fit             a model, fitted and measured; for the learning curve, on a few of the rows
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from elmokit.bilm.pretrain import pretrain
from elmokit.comparison.data import MAX_MEASURED, SPLITS, Data, draw_rows, n_words
from elmokit.comparison.methods import FAMILIES, Method, Plan, source_id
from elmokit.comparison.recipes import fitting_config, pretraining_config, vectors_config
from elmokit.comparison.statistics import row_values
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.static.train import train_vectors
from elmokit.tasks.layer_cache import cached_sources, number_texts
from elmokit.tasks.model import TaskModel, load_encoder
from elmokit.tasks.model_report import mix_record
from elmokit.tasks.stack import StackModel, fit_stack
from elmokit.tasks.task import Metrics, Predictor
from elmokit.tasks.tfidf import TfidfModel, fit_tfidf
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import TextConfig
from elmokit.training.machine import tuned_process
from elmokit.vectors.encoder import FloatArray, encode_chunks
from elmokit.vectors.foreign import TextVectors, open_encoder

_PERPLEXITY_TEXTS = 500  # validation texts that perplexity is measured on
_RESULT, _INPUTS = "result.json", "inputs.json"
Kind = Literal["language-model", "vectors", "layers", "fit"]
_KINDS = get_args(Kind)  # the longest chains first


@dataclass(frozen=True)
class Step:
    """One piece of work, in the folder ``id``, after the steps that it ``needs``.

    Attributes:
        seed: For the learning curve, also the number of the draw of rows.
        n_labels: Rows to learn from, for the learning curve; 0 for all.
    """

    id: str
    kind: Kind
    method: str
    seed: int = 0
    n_labels: int = 0
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricsRecord:
    """How good a method is on one split.

    Attributes:
        main: Name of the figure that ranks methods.
        values: All figures by name.
        details: As ``Metrics.to_json`` gives them.
        row_scores: What each row adds to the main figure, as ``row_values`` computes it.
        predicted: Class numbers; None for tasks without classes.
    """

    main: str
    values: Mapping[str, float]
    details: Mapping[str, Any]
    row_scores: Sequence[float]
    predicted: Sequence[int] | None = None

    @classmethod
    def from_metrics(cls, metrics: Metrics) -> MetricsRecord:
        """What a comparison keeps of some metrics."""
        scores, predicted = row_values(metrics).tolist(), getattr(metrics, "predicted", None)
        guesses = None if predicted is None else predicted.tolist()
        return cls(metrics.main, dict(metrics.values), metrics.to_json(), scores, guesses)


@dataclass(frozen=True)
class StepResult:
    """What a finished step leaves behind: result.json in its folder.

    Attributes:
        seconds: Time of the work itself; for a fit, without what the step ``layers`` does for it.
        inputs: All that decides the result.
        peak_memory: Of the step's process, in bytes; None where the system does not tell.
        n_bytes: Size of the model folder; 0 if there is none.
        metrics: Of each split; for the learning curve, of the test split.
        history: Figures of each evaluation during training.
        mix: Weights of the layers (``MixRecord``), for biLMs.
    """

    seconds: float
    inputs: Mapping[str, Any] = field(default_factory=dict)
    peak_memory: int | None = None
    n_bytes: int = 0
    metrics: Mapping[str, MetricsRecord] = field(default_factory=dict)
    texts_per_second: float = 0.0
    history: Sequence[Mapping[str, float]] = ()
    mix: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()

    def save(self, folder: Path) -> None:
        """Write it, which says that the step is finished."""
        write_text(folder / _RESULT, json.dumps(dataclasses.asdict(self)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> StepResult | None:
        """Read what ``save`` wrote; None if the step is not finished."""
        try:
            record = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
            metrics = {split: MetricsRecord(**values) for split, values in record.pop("metrics").items()}
            return cls(**record, metrics=metrics)
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True, eq=False)
class Workspace:
    """What all steps share: the folder for them, the data, and a biLM that is given, with its fingerprint."""

    folder: Path
    data: Data
    encoder: Path | None = None
    encoder_hash: str = ""

    def step_folder(self, id: str) -> Path:
        """The folder of a step."""
        return self.folder / "steps" / id

    def inputs(self, step: Step, method: Method) -> dict[str, Any]:
        """All that decides the result of a step: steps with equal inputs are the same."""
        inputs: dict[str, Any] = {"rows": self.data.fingerprints, "kind": step.kind}
        if method.family == "elmo":
            inputs["encoder"] = self.encoder_hash or method.language_model
        elif method.family == "foreign":
            inputs["vectors"] = method.vectors
        elif method.family == "static":
            inputs |= {"vectors": {"base": method.base, **method.vectors}, "cleaning": method.text}
        else:
            inputs["base"] = method.base
        if step.kind == "layers":
            inputs["max_words"] = method.classifier.get("max_words")
        elif step.kind == "fit":
            inputs |= {"classifier": method.classifier, "seed": step.seed, "n_labels": step.n_labels}
        return cast("dict[str, Any]", json.loads(json.dumps(inputs)))


def encoder_folder(work: Path, method: Method, encoder: Path | None) -> Path:
    """Where a method's encoder is: the biLM that is given, or what a step in ``work`` has made."""
    if encoder is not None and method.family == "elmo":
        return encoder
    return work / "steps" / source_id(method) / "model"


# -- planning ---------------------------------------------------------------------------------


def plan_steps(plan: Plan, encoder: Path | None, *, cheap_first: bool = False) -> list[Step]:
    """All steps of a plan in the order in which they should start.

    Args:
        cheap_first: Seed 0 of every method first, cheap methods first, so that a deadline leaves most of
            the answer; otherwise the longest chains of steps first.
    """
    steps: dict[str, Step] = {}
    for method in plan.methods:
        source: tuple[str, ...] = ()
        layers: tuple[str, ...] = ()
        if method.family in ("static", "foreign") or (method.family == "elmo" and encoder is None):
            source = (source_id(method),)
            kind: Kind = "language-model" if method.family == "elmo" else "vectors"
            steps.setdefault(source[0], Step(source[0], kind, method.id))
        if method.uses_layers:
            layers = (layers_id(method),)
            steps.setdefault(layers[0], Step(layers[0], "layers", method.id, needs=source))
        for seed in plan.seeds if method.uses_seed else plan.seeds[:1]:
            id = f"{method.id}-s{seed}"
            steps[id] = Step(id, "fit", method.id, seed, needs=(*source, *layers))
        for n_labels, draw in itertools.product(plan.counts, range(plan.draws)):
            if method.id in plan.curve:
                id = f"{method.id}-n{n_labels}-d{draw}"
                steps[id] = Step(id, "fit", method.id, draw, n_labels, source)

    def priority(step: Step) -> tuple[int, ...]:
        method = plan.method(step.method)
        cost = FAMILIES[::-1].index(method.family) + bool(method.classifier.get("finetune"))
        return (step.n_labels > 0, *((step.seed > 0, cost) if cheap_first else ()), _KINDS.index(step.kind))

    return sorted(steps.values(), key=priority)


def layers_id(method: Method) -> str:
    """The step that caches the layers for a method's fits."""
    return f"layers-{source_id(method)}"


# -- doing ------------------------------------------------------------------------------------


def do_step(
    space: Workspace, step: Step, method: Method, reporter: Reporter, max_time: float | None = None
) -> None:
    """Do one step, or resume it; one started with other inputs is redone. ``max_time`` limits pretraining."""
    folder, inputs = space.step_folder(step.id), space.inputs(step, method)
    text, file, model = json.dumps(inputs, indent=1) + "\n", folder / _INPUTS, folder / "model"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        shutil.rmtree(folder)
        folder.mkdir()
    write_text(file, text)
    if step.kind == "language-model":
        result = _pretrain(space.data, method, model, reporter, max_time)
    elif step.kind == "vectors":
        make = _encode_rows if method.family == "foreign" else _train_vectors
        result = make(space.data, method, model, reporter)
    elif step.kind == "layers":
        result = _cache_layers(space, method)
    else:
        result = _fit(space, step, method, reporter)
    files = [path for path in model.rglob("*") if path.is_file() and model / "run" not in path.parents]
    n_bytes = sum(path.stat().st_size for path in files)
    replace(result, inputs=inputs, peak_memory=_peak_memory(), n_bytes=n_bytes).save(folder)
    shutil.rmtree(folder / "run", ignore_errors=True)


def _pretrain(
    data: Data, method: Method, out: Path, reporter: Reporter, max_time: float | None
) -> StepResult:
    train, held_out = out.with_name("texts.jsonl"), out.with_name("held_out.jsonl")
    for file, texts in ((train, data.all_texts), (held_out, data.texts("valid")[:_PERPLEXITY_TEXTS])):
        write_text(file, "".join(json.dumps({"text": text}) + "\n" for text in texts))
    started = out / "run" / "settings.json"
    if started.exists():  # a run keeps its time limit when it is resumed
        max_time = json.loads(started.read_text(encoding="utf-8"))["training"]["max_time"]
    result = pretrain(
        train,
        out,
        pretraining_config(method, n_words(data.all_texts)),
        valid=[held_out],
        reporter=reporter,
        command="elmokit compare",
        text_columns="text",
        max_time=max_time,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    train.unlink()
    return StepResult(result.seconds)


def _train_vectors(data: Data, method: Method, out: Path, reporter: Reporter) -> StepResult:
    start = time.monotonic()
    config, text = vectors_config(method, n_words(data.all_texts)), TextConfig.from_dict(method.text)
    vectors = train_vectors(method.base, data.all_texts, config, text=text)  # type: ignore[arg-type]
    seconds = time.monotonic() - start
    vectors.save(out)
    return StepResult(round(seconds, 2))


def _encode_rows(data: Data, method: Method, out: Path, reporter: Reporter) -> StepResult:
    """The vectors of all rows, from which every fit takes those it needs."""
    encoder, vectors, seconds = open_encoder(method.base), list[FloatArray](), dict[str, float]()
    texts = {split: data.texts(split) for split in SPLITS}
    with reporter.counting("Encoding texts", sum(map(len, texts.values()))) as advance:
        for split, own in texts.items():
            start = time.monotonic()
            vectors += encode_chunks(encoder, own, advance)
            seconds[split] = time.monotonic() - start
    TextVectors(np.concatenate(vectors), label=method.name).bind(list(itertools.chain(*texts.values()))).save(
        out
    )
    speed = round(len(texts["test"]) / max(1e-9, seconds.pop("test")), 1)
    return StepResult(round(sum(seconds.values()), 2), texts_per_second=speed)


def _cache_layers(space: Workspace, method: Method) -> StepResult:
    encoder = load_encoder(encoder_folder(space.folder, method, space.encoder))
    max_words, start = fitting_config(method, 0, 0).fit.max_words, time.monotonic()
    parts = [space.data.splits[split].inputs for split in ("train", "valid")]
    with tuned_process():
        texts = [number_texts(encoder, inputs, max_words) for inputs in parts]
        cached_sources(texts, space.folder / "layers", Reporter("silent"))
    return StepResult(round(time.monotonic() - start, 2))


def _fit(space: Workspace, step: Step, method: Method, reporter: Reporter) -> StepResult:
    """Fit a model and measure it; that of the first seed is kept."""
    data, folder, train = space.data, space.step_folder(step.id), space.data.splits["train"]
    few = step.n_labels > 0  # nothing is held out of a few labels, and their layers are not cached
    if few:
        train = train.select(draw_rows(train.targets, step.n_labels, step.seed))
    model: TaskModel | TfidfModel | StackModel
    mix = None
    if method.family == "linear":
        model = fit_tfidf(method.base, train, seed=step.seed)
    elif method.is_stack:
        encoder = load_encoder(encoder_folder(space.folder, method, space.encoder))
        model = fit_stack(encoder, train, fitting_config(method, step.seed, 0)).model
    elif method.family == "foreign":
        vectors = open_encoder(encoder_folder(space.folder, method, None))
        model = fit_stack(vectors, train, fitting_config(method, 0, 0), count_terms=False).model
    else:
        (folder / "run").mkdir(exist_ok=True)
        model = fit_task(
            data.task,
            load_encoder(encoder_folder(space.folder, method, space.encoder)),
            train,
            None if few else data.splits["valid"],
            fitting_config(method, step.seed, 0 if few else n_words(data.texts("train"))),
            run=folder / "run",
            layers_folder=None if few else space.folder / "layers",
            reporter=reporter,
        )
        if model.record.stopped == "interrupted":
            raise KeyboardInterrupt
        mix = dataclasses.asdict(mix_record(model)) if method.family == "elmo" else None
    metrics, speed = measure_splits(model, data, is_curve=few)
    if not few and step.seed == 0:
        scores = {split: {"n": len(record.row_scores), **record.values} for split, record in metrics.items()}
        record = replace(model.record, columns=data.columns, splits=scores)
        if isinstance(model, StackModel) and method.family == "foreign":
            model = replace(model, encoder=open_encoder(method.base))
        replace(model, record=record).save(folder / "model")
    timings = dict(model.record.timings)
    if method.uses_layers and not few:
        timings.pop("encoding", None)
    return StepResult(
        round(sum(timings.values()), 2),
        metrics=metrics,
        texts_per_second=speed,
        history=() if method.has_linear_head else model.record.history,  # which is what was tried
        mix=mix,
        notes=model.record.notes,
    )


def measure_splits(model: Predictor, data: Data, *, is_curve: bool) -> tuple[dict[str, MetricsRecord], float]:
    """The metrics of each split, of a learning curve of the test split, and texts per second."""
    metrics, speed = {}, 0.0
    for split in ("test",) if is_curve else ("test", "train", "valid"):  # test first: no word is cached yet
        part = data.splits[split]
        if split == "train" and len(part) > MAX_MEASURED:
            part = part.select(np.sort(np.random.default_rng(0).permutation(len(part))[:MAX_MEASURED]))
        start = time.monotonic()
        predictions = list(model.predict(part.inputs))
        speed = speed or round(len(part) / max(1e-9, time.monotonic() - start), 1)
        metrics[split] = MetricsRecord.from_metrics(data.task.measure(part, predictions))
    return metrics, speed


def _peak_memory() -> int | None:
    """The largest memory of this process, in bytes, where the system tells."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
