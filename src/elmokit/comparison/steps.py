"""The steps of a comparison: each is a folder that is made once, and can be interrupted and resumed.

language-model  a biLM, pretrained on the train texts
vectors         word vectors of the same texts
layers          a frozen biLM's layers of the rows, or their vectors from a foreign encoder, for all fits
fit             a model, fitted and measured; for the learning curve, on a few of the rows
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from elmokit.bilm.pretrain import pretrain
from elmokit.comparison.data import MAX_MEASURED, SPLITS, Data, draw_rows, n_words
from elmokit.comparison.methods import FAMILIES, Method, Plan
from elmokit.comparison.recipes import fitting_config, pretraining_config, vectors_config
from elmokit.comparison.statistics import row_values
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.static.train import train_vectors
from elmokit.tasks.fit import measure
from elmokit.tasks.layer_cache import cached_sources, number_texts
from elmokit.tasks.model import TaskModel, load_encoder, resolve_head
from elmokit.tasks.model_report import mix_record
from elmokit.tasks.stack import StackModel, fit_stack
from elmokit.tasks.task import Metrics, Predictor
from elmokit.tasks.tfidf import TfidfModel, fit_tfidf
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import TextConfig
from elmokit.training.machine import tuned_process
from elmokit.vectors.encoder import encode_chunks
from elmokit.vectors.foreign import TextVectors, open_encoder

_PERPLEXITY_TEXTS = 500  # validation texts that perplexity is measured on
_RESULT = "result.json"
Kind = Literal["language-model", "vectors", "layers", "fit"]
_KINDS = get_args(Kind)  # the longest chains first


@dataclass(frozen=True)
class Step:
    """One piece of work, after the steps that it ``needs``.

    Attributes:
        folder: Its name changes with the settings, so that a finished step is that of these settings.
        seed: For the learning curve, also the number of the draw of rows.
        n_labels: Rows to learn from, for the learning curve; 0 for all.
    """

    id: str
    folder: str
    kind: Kind
    method: Method
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
        guesses = predicted.tolist() if isinstance(predicted, np.ndarray) else None
        return cls(metrics.main, dict(metrics.values), metrics.to_json(), scores, guesses)


@dataclass(frozen=True)
class StepResult:
    """What a finished step leaves behind: result.json in its folder.

    Attributes:
        seconds: Time of the work itself; for a fit, without what the step ``layers`` does for it.
        peak_memory: Of the step's process, in bytes; None where the system does not tell.
        n_bytes: Size of the model folder; 0 if there is none.
        metrics: Of each split; for the learning curve, of the test split.
        history: Figures of each evaluation during training.
        mix: Weights of the layers (``MixRecord``), for biLMs.
    """

    seconds: float
    peak_memory: int | None = None
    n_bytes: int = 0
    metrics: Mapping[str, MetricsRecord] = field(default_factory=dict)
    texts_per_second: float = 0.0
    history: Sequence[Mapping[str, float]] = ()
    mix: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()

    def save(self, folder: Path) -> None:
        """Write it, which says that the step is finished."""
        write_text(folder / _RESULT, json.dumps(asdict(self)) + "\n")

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
    """What all steps share: the folder for them, the data, and a biLM that is given."""

    folder: Path
    data: Data
    encoder: Path | None = None

    def step_folder(self, name: str) -> Path:
        """The folder of a step."""
        return self.folder / "steps" / name

    def encoder_folder(self, method: Method) -> Path:
        """Where a method's encoder is: the biLM that is given, or what a step has made."""
        made = self.step_folder(method.source or method.layers) / "model"
        return self.encoder if self.encoder and method.family == "elmo" else made


def plan_steps(plan: Plan, *, cheap_first: bool = False) -> list[Step]:
    """All steps of a plan in the order in which they should start.

    Args:
        cheap_first: Seed 0 of every method first, cheap methods first, so that a deadline leaves most of
            the answer; otherwise the longest chains of steps first.
    """
    steps: dict[str, Step] = {}
    for method in plan.methods:
        needs: tuple[str, ...] = ()
        source_kind: Kind = "language-model" if method.family == "elmo" else "vectors"
        for id, kind in ((method.source, source_kind), (method.layers, _KINDS[2])):
            if id:
                steps.setdefault(id, Step(id, id, kind, method, needs=needs))
                needs = (*needs, id)
        fits = [(f"s{seed}", seed, 0) for seed in (plan.seeds if method.uses_seed else plan.seeds[:1])]
        if method.id in plan.curve:
            draws = itertools.product(plan.counts, range(plan.draws))
            fits += [(f"n{n_labels}-d{draw}", draw, n_labels) for n_labels, draw in draws]
        for name, seed, n_labels in fits:
            id = f"{method.id}-{name}"
            steps[id] = Step(id, f"{id}-{method.digest}", "fit", method, seed, n_labels, needs)

    def priority(step: Step) -> tuple[int, ...]:
        cost = FAMILIES[::-1].index(step.method.family) + bool(step.method.classifier.get("finetune"))
        return (step.n_labels > 0, *((step.seed > 0, cost) if cheap_first else ()), _KINDS.index(step.kind))

    return sorted(steps.values(), key=priority)


def do_step(space: Workspace, step: Step, reporter: Reporter, max_time: float | None = None) -> None:
    """Do one step, or resume it. ``max_time`` limits pretraining."""
    folder, method = space.step_folder(step.folder), step.method
    model = folder / "model"
    start = time.monotonic()
    if step.kind == "language-model":
        result = _pretrain(space.data, method, model, reporter, max_time)
    elif step.kind == "vectors":
        config: Any = vectors_config(method, n_words(space.data.all_texts))
        base: Any = method.base
        vectors = train_vectors(base, space.data.all_texts, config, text=TextConfig(**method.text))
        result = StepResult(round(time.monotonic() - start, 2))
        vectors.save(model)
    elif step.kind == "fit":
        result = _fit(space, step, reporter)
    elif method.family == "foreign":
        result = _encode_rows(space.data, method, model, reporter)
    else:
        config = resolve_head(space.data.task, fitting_config(method, 0, 0))  # which words are read
        encoder = load_encoder(space.encoder_folder(method))
        parts = [space.data.splits[split].inputs for split in ("train", "valid")]
        start = time.monotonic()
        with tuned_process():
            texts = [number_texts(encoder, inputs, config.fit.max_words) for inputs in parts]
            cached_sources(texts, space.folder / "layers", Reporter("silent"))
        result = StepResult(round(time.monotonic() - start, 2))
    files = [path for path in model.rglob("*") if path.is_file() and model / "run" not in path.parents]
    n_bytes = sum(path.stat().st_size for path in files)
    replace(result, peak_memory=_peak_memory(), n_bytes=n_bytes).save(folder)
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


def _encode_rows(data: Data, method: Method, out: Path, reporter: Reporter) -> StepResult:
    """The vectors of all rows, from which every fit takes those it needs."""
    encoder, vectors, seconds = open_encoder(method.base), list[Any](), list[float]()
    texts = [data.texts(split) for split in SPLITS]
    with reporter.counting("Encoding texts", sum(map(len, texts))) as advance:
        for own in texts:
            start = time.monotonic()
            vectors += encode_chunks(encoder, own, advance)
            seconds.append(time.monotonic() - start)
    TextVectors(np.concatenate(vectors), label=method.name).bind(list(itertools.chain(*texts))).save(out)
    *others, of_test = seconds
    return StepResult(round(sum(others), 2), texts_per_second=round(len(texts[-1]) / max(1e-9, of_test), 1))


def _fit(space: Workspace, step: Step, reporter: Reporter) -> StepResult:
    """Fit a model and measure it; that of the first seed is kept."""
    data, method, folder = space.data, step.method, space.step_folder(step.folder)
    train = data.splits["train"]
    few = step.n_labels > 0  # nothing is held out of a few labels, and their layers are not cached
    if few:
        train = train.select(draw_rows(train.targets, step.n_labels, step.seed))
    is_open = few or method.is_stack or not data.task.classifies_texts  # the recipes' epochs suit classes
    config = fitting_config(method, step.seed, 0 if is_open else n_words(data.texts("train")))
    model: TaskModel | TfidfModel | StackModel
    if method.family == "linear":
        model = fit_tfidf(method.base, train, seed=step.seed)
    elif method.is_stack:
        encoder = open_encoder(space.encoder_folder(method))
        model = fit_stack(encoder, train, config, count_terms=method.family != "foreign").model
    else:
        (folder / "run").mkdir(exist_ok=True)
        model = fit_task(
            data.task,
            load_encoder(space.encoder_folder(method)),
            train,
            None if few else data.splits["valid"],
            config,
            run=folder / "run",
            layers_folder=None if few else space.folder / "layers",
            reporter=reporter,
        )
        if model.record.stopped == "interrupted":
            raise KeyboardInterrupt
    metrics, speed = measure_splits(model, data, is_curve=few)
    if not few and step.seed == 0:
        scores = {split: {"n": len(record.row_scores), **record.values} for split, record in metrics.items()}
        record = replace(model.record, columns=data.columns, splits=scores)
        if isinstance(model, StackModel) and method.family == "foreign":
            model = replace(model, encoder=open_encoder(method.base))
        replace(model, record=record).save(folder / "model")
    timings = model.record.timings
    return StepResult(
        round(sum(timings[name] for name in timings if few or not method.layers or name != "encoding"), 2),
        metrics=metrics,
        texts_per_second=speed,
        history=() if method.has_linear_head else model.record.history,  # which is what was tried
        mix=asdict(mix_record(model)) if isinstance(model, TaskModel) and method.family == "elmo" else None,
        notes=model.record.notes,
    )


def measure_splits(model: Predictor, data: Data, *, is_curve: bool) -> tuple[dict[str, MetricsRecord], float]:
    """The metrics of each split, of a learning curve of the test split, and texts per second."""
    metrics, speed = {}, 0.0
    for split in ("test",) if is_curve else ("test", "train", "valid"):  # test first: no word is cached yet
        part = data.splits[split]
        if split == "train" and len(part) > MAX_MEASURED:
            part = part.select(np.sort(np.random.default_rng(0).permutation(len(part))[:MAX_MEASURED]))
        measured, rate, _ = measure(model, {split: part}, Reporter("silent"))
        speed = speed or rate
        metrics[split] = MetricsRecord.from_metrics(measured[split])
    return metrics, speed


def _peak_memory() -> int | None:
    """The largest memory of this process, in bytes, where the system tells."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
