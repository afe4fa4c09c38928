"""The result of a comparison: typed, built once from the finished steps."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.comparison.data import SPLITS, Data
from elmokit.comparison.methods import Method, Plan, source_id
from elmokit.comparison.ranking import Ranking, format_rank, rank, recommend
from elmokit.comparison.runner import RunSummary
from elmokit.comparison.statistics import mean_sd, score_interval
from elmokit.comparison.steps import MetricsRecord, Step, StepResult, bilm_folder, layers_id
from elmokit.comparison.verdict import describe_pair, summarize_ranking
from elmokit.core.formatting import plural
from elmokit.tasks.fit import versions
from elmokit.vectors.elmo import Elmo

MAIN_SPLIT = "test"
"""The split whose scores rank the methods."""
_N_EXAMPLES = 12
_MAX_CHARACTERS = 400  # of an example


@dataclass(frozen=True)
class Score:
    """A score of a method on ``n`` rows of a split.

    Attributes:
        sd: Standard deviation over the seeds; None for one seed.
        values: One for each seed.
    """

    n: int
    mean: float
    sd: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Cost:
    """What a method needs: mean time to fit, median speed, highest memory.

    Attributes:
        pretrain_seconds: None if nothing was pretrained.
        n_bytes: Size of the model folder.
    """

    pretrain_seconds: float | None = None
    fit_seconds: float = 0.0
    texts_per_second: float | None = None
    peak_memory: int | None = None
    n_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """Time to pretrain and fit."""
        return self.fit_seconds + (self.pretrain_seconds or 0.0)


@dataclass(frozen=True)
class MethodResult:
    """One method.

    Attributes:
        reason: Why it is not done.
        seeds: Those that finished.
        scores: Of each split, the score that ranks.
        interval: 95% interval of the score on the test rows.
        figures: Of each split, all scores by name.
        details: The task's own record by split: numbers averaged over the seeds, all else of the first one.
        history: Evaluations during training, of the first seed.
        mix: Weights of the layers (``tasks.model_report.mix_record``), of the first seed.
    """

    method: Method
    status: Literal["done", "failed", "skipped"]
    reason: str = ""
    seeds: tuple[int, ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)
    interval: tuple[float, float] = (0.0, 0.0)
    figures: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cost: Cost = Cost()
    history: Sequence[Mapping[str, float]] = ()
    mix: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()

    @property
    def main(self) -> Score:
        """The score that ranks it, on the test rows."""
        return self.scores[MAIN_SPLIT]


@dataclass(frozen=True)
class Curve:
    """The learning curve: scores by method id and number of labels."""

    draws: int
    counts: tuple[int, ...]
    scores: Mapping[str, Mapping[int, Score]]


@dataclass(frozen=True)
class Pretraining:
    """The language model of the ELMo methods; of several, the first."""

    name: str
    was_given: bool
    n_models: int
    seconds: float | None
    perplexity: float | None
    forward: float | None
    backward: float | None
    parameters: int
    words: int
    history: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Example:
    """A test text on which methods disagree: predictions by method id, and who is right and wrong."""

    text: str
    label: str
    guesses: Mapping[str, str]
    right: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class DataSummary:
    """The rows: their number and, where there are classes, rows of each class, by split."""

    rows: Mapping[str, int]
    n_unlabeled: int
    classes: tuple[str, ...]
    class_counts: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        folder: Where its report is.
        metric: Name of the score that ranks, "accuracy" or "span_f1".
        methods: In the order of the plan.
        ranking: Of the finished methods; None if there is none.
        recommended: Id of the recommended method.
        notes: On methods with missing steps.
        left_out: What was not run to save time, in sentences.
        failed: Reasons by step id.
    """

    folder: Path
    title: str
    metric: str
    data: DataSummary
    methods: tuple[MethodResult, ...]
    ranking: Ranking | None
    recommended: str | None
    pretraining: Pretraining | None = None
    curve: Curve | None = None
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, int | None] = field(default_factory=dict)

    def method(self, id: str) -> MethodResult:
        """The method with this id."""
        return next(result for result in self.methods if result.method.id == id)

    @property
    def ranked(self) -> list[MethodResult]:
        """The finished methods, best first."""
        return [] if self.ranking is None else [self.method(id) for id in self.ranking.order]


def build_result(
    folder: Path,
    plan: Plan,
    data: Data,
    summary: RunSummary,
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    *,
    encoder: Path | None = None,
    title: str = "",
    command: str = "",
) -> Comparison:
    """Put the results of the steps together.

    Args:
        folder: Of the report; its ``work`` folder holds the steps.
        results: Of the finished steps, by id.
        encoder: The biLM that was given, if any.
    """
    fits = [step for step in steps if step.kind == "fit" and step.id in results]
    whole = [step for step in fits if not step.n_labels]
    methods, row_scores = [], {}
    for method in plan.methods:
        own = {step.seed: results[step.id] for step in whole if step.method == method.id}
        if own:
            methods.append(_finished(method, own, results, given=encoder is not None))
            row_scores[method.id] = np.stack([fit.metrics[MAIN_SPLIT].row_scores for fit in own.values()])
        else:
            methods.append(_unfinished(method, summary, steps))
    ranking = rank(row_scores) if row_scores else None
    seconds = {result.method.id: result.cost.seconds for result in methods}
    return Comparison(
        folder=folder,
        title=title or "Which vectors for this text?",
        metric=results[whole[0].id].metrics[MAIN_SPLIT].main if whole else "score",
        data=_summarize_data(data, methods),
        methods=tuple(methods),
        ranking=ranking,
        recommended=recommend(ranking, seconds) if ranking is not None else None,
        pretraining=_pretraining(folder / "work", plan, results, encoder),
        curve=_curve(plan, fits, results, len(data.splits["train"])) if plan.counts else None,
        examples=_examples(data, ranking, whole, results),
        notes=tuple(_missing_steps(methods, summary, steps)),
        left_out=tuple(plan.left_out),
        failed=summary.failed,
        command=command,
        versions=versions(),
        machine={"cores": os.cpu_count(), "memory": _memory()},
    )


def _finished(
    method: Method, by_seed: Mapping[int, StepResult], results: Mapping[str, StepResult], *, given: bool
) -> MethodResult:
    fits = list(by_seed.values())
    is_elmo = method.family == "elmo"
    source = None if given and is_elmo else results.get(source_id(method))
    cached = is_elmo and not method.classifier.get("finetune")
    layers = results.get(layers_id(method)) if cached else None
    seconds = [  # the encoder's pass over the rows is made once, but every fit needs it
        fit.seconds if layers is None else fit.seconds - fit.encoding_seconds + layers.seconds for fit in fits
    ]
    memory = [result.peak_memory or 0 for result in (source, layers, *fits) if result is not None]
    cost = Cost(
        pretrain_seconds=None if source is None else source.seconds,
        fit_seconds=float(np.mean(seconds)),
        texts_per_second=float(np.median([fit.texts_per_second for fit in fits])),
        peak_memory=max(memory) or None,
        n_bytes=next((fit.n_bytes for fit in fits if fit.n_bytes), None),
    )
    records = {split: [fit.metrics[split] for fit in fits] for split in SPLITS}
    figures = {split: _figures(seeds_of) for split, seeds_of in records.items()}
    return MethodResult(
        method=method,
        status="done",
        seeds=tuple(by_seed),
        scores={split: figures[split][seeds_of[0].main] for split, seeds_of in records.items()},
        interval=score_interval(np.stack([record.row_scores for record in records[MAIN_SPLIT]])),
        figures=figures,
        details={
            split: _mean([record.details for record in seeds_of]) for split, seeds_of in records.items()
        },
        cost=cost,
        history=fits[0].history,
        mix=fits[0].mix,
        notes=fits[0].notes,
    )


def _figures(records: Sequence[MetricsRecord]) -> dict[str, Score]:
    """The scores that every seed has."""
    return {
        name: _score([record.values[name] for record in records], len(records[0].row_scores))
        for name in records[0].values
        if all(name in record.values for record in records)
    }


def _score(values: Sequence[float], n: int) -> Score:
    mean, sd = mean_sd(values)
    return Score(n, mean, sd, tuple(values))


def _mean(records: Sequence[Any]) -> Any:
    """One record of several alike: fractions are averaged, all else is that of the first."""
    first = records[0]
    if isinstance(first, Mapping):
        return {key: _mean([record[key] for record in records]) for key in first}
    if isinstance(first, list):
        return [_mean(entries) for entries in zip(*records, strict=True)]
    return float(np.mean(records)) if all(isinstance(record, float) for record in records) else first


def _unfinished(method: Method, summary: RunSummary, steps: Sequence[Step]) -> MethodResult:
    own = [step.id for step in steps if step.method == method.id and not step.n_labels]
    failed = [summary.failed[id] for id in own if id in summary.failed]
    skipped = [summary.skipped[id] for id in own if id in summary.skipped]
    reason = (failed or skipped or ["It was not reached."])[0]
    return MethodResult(method, "failed" if failed else "skipped", reason)


def _missing_steps(
    methods: Sequence[MethodResult], summary: RunSummary, steps: Sequence[Step]
) -> Iterator[str]:
    """A sentence on each finished method of which some steps are missing."""
    reasons = {**summary.skipped, **summary.failed}
    for result in methods:
        own = [step for step in steps if step.method == result.method.id and step.kind == "fit"]
        missing = [reasons[step.id] for step in own if step.id in reasons]
        if missing and result.status == "done":
            verb = "is" if len(missing) == 1 else "are"
            yield f"{result.method.name}: {plural(len(missing), 'step')} {verb} missing. {missing[0]}"


def _summarize_data(data: Data, methods: Sequence[MethodResult]) -> DataSummary:
    counts = {}
    for split, examples in data.splits.items():
        names = (*examples.labels.names, *examples.unknown)
        if names and examples.targets.ndim == 1:
            counts[split] = dict(Counter(names[target] for target in examples.targets.tolist()))
    n_train = len(data.splits["train"])
    measured = {result.scores["train"].n for result in methods if result.status == "done"} - {n_train}
    notes = [f"Train scores are of {n:,} of the {n_train:,} train rows." for n in measured]
    return DataSummary(
        rows={split: len(examples) for split, examples in data.splits.items()},
        n_unlabeled=len(data.unlabeled),
        classes=data.labels.names,
        class_counts=counts,
        notes=(*data.notes, *notes),
        names=data.names,
    )


def _pretraining(
    work: Path, plan: Plan, results: Mapping[str, StepResult], encoder: Path | None
) -> Pretraining | None:
    methods = [method for method in plan.methods if method.family == "elmo"]
    if not methods or (encoder is None and source_id(methods[0]) not in results):
        return None
    elmo = Elmo.load(bilm_folder(work, methods[0], encoder))
    held_out = elmo.training.get("held_out") or {}
    history = elmo.training.get("history") or []
    return Pretraining(
        name=encoder.resolve().name if encoder is not None else f"{elmo.model.config.input} input",
        was_given=encoder is not None,
        n_models=len({source_id(method) for method in methods}),
        seconds=elmo.training.get("seconds"),
        perplexity=held_out.get("perplexity"),
        forward=held_out.get("forward"),
        backward=held_out.get("backward"),
        parameters=sum(parameter.numel() for parameter in elmo.model.parameters()),
        words=len(elmo.folder.vocabulary),
        history=tuple(
            {"epoch": entry["epoch"], "perplexity": entry["perplexity"]}
            for entry in history
            if "perplexity" in entry and "epoch" in entry
        ),
    )


def _curve(plan: Plan, fits: Sequence[Step], results: Mapping[str, StepResult], n_train: int) -> Curve:
    scores: dict[str, dict[int, Score]] = {id: {} for id in plan.curve}
    for id, n_labels in itertools.product(plan.curve, (*plan.counts, 0)):
        own = [step.id for step in fits if (step.method, step.n_labels) == (id, n_labels)]
        records = [results[step].metrics[MAIN_SPLIT] for step in own]
        if records:
            values = [record.values[record.main] for record in records]
            scores[id][n_labels or n_train] = _score(values, len(records[0].row_scores))
    return Curve(plan.draws, (*plan.counts, n_train), scores)


def _examples(
    data: Data, ranking: Ranking | None, fits: Sequence[Step], results: Mapping[str, StepResult]
) -> tuple[Example, ...]:
    """Test texts on which the methods disagree: half of them only the best gets right, half it gets wrong."""
    order = ranking.order if ranking is not None else ()
    firsts = [next(step.id for step in fits if step.method == id) for id in order]
    predicted = [results[id].metrics[MAIN_SPLIT].predicted for id in firsts]
    examples = data.splits[MAIN_SPLIT]
    names = (*examples.labels.names, *examples.unknown)
    answers = np.array([row for row in predicted if row is not None])  # (n_methods, n_rows)
    if len(answers) < max(2, len(order)):
        return ()
    right = answers == examples.targets
    n_right = right.sum(axis=0)
    ahead = np.flatnonzero(right[0] & (n_right < len(order)))
    behind = np.flatnonzero(~right[0] & (n_right > 0))
    ahead = ahead[np.argsort(n_right[ahead], kind="stable")][: _N_EXAMPLES // 2]
    behind = behind[np.argsort(-n_right[behind], kind="stable")][: _N_EXAMPLES // 2]
    texts = data.texts(MAIN_SPLIT)
    return tuple(
        Example(
            text=texts[row][:_MAX_CHARACTERS] + ("…" if len(texts[row]) > _MAX_CHARACTERS else ""),
            label=names[examples.targets[row]],
            guesses={id: names[answer] for id, answer in zip(order, answers[:, row], strict=True)},
            right=tuple(id for id, is_right in zip(order, right[:, row], strict=True) if is_right),
            wrong=tuple(id for id, is_right in zip(order, right[:, row], strict=True) if not is_right),
        )
        for row in (*ahead.tolist(), *behind.tolist())
    )


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


# -- report.json ----------------------------------------------------------------------------------


def to_json(comparison: Comparison) -> dict[str, Any]:
    """What report.json holds, with the keys of 0.1."""
    data, curve, ranking = asdict(comparison.data), comparison.curve, comparison.ranking
    data["unlabelled"] = data.pop("n_unlabeled")
    record: dict[str, Any] = {
        "title": comparison.title,
        "data": data,
        "methods": [_method_json(result, comparison.metric) for result in comparison.methods],
        "ranking": None if ranking is None else _ranking_json(comparison, ranking),
        "pretraining": None if comparison.pretraining is None else asdict(comparison.pretraining),
        "curve": None,
        "examples": [asdict(example) for example in comparison.examples],
        "intrinsic": [],
        "left_out": comparison.left_out,
        "notes": comparison.notes,
        "machine": comparison.machine,
        "commands": [comparison.command] if comparison.command else [],
        "versions": comparison.versions,
    }
    if curve is not None:
        lines = {
            id: {
                "name": comparison.method(id).method.name,
                "points": [{"n": n, **_score_json(score)} for n, score in scores.items()],
            }
            for id, scores in curve.scores.items()
        }
        record["curve"] = {"draws": curve.draws, "counts": curve.counts, "methods": lines}
    return record


def _method_json(result: MethodResult, metric: str) -> dict[str, Any]:
    method, cost = result.method, result.cost
    record = {
        "id": method.id,
        "name": method.name,
        "family": method.family,
        "seeds": result.seeds,
        "published": method.published or None,
        "settings": {**method.vectors, **method.classifier},
        "status": "left out" if result.status == "skipped" else result.status,
        "reason": result.reason or None,
        "splits": {split: _split_json(result, split, metric) for split in result.scores},
    }
    if result.status != "done":
        return record
    return record | {
        "seconds": {"pretrain": cost.pretrain_seconds, "fit": cost.fit_seconds},
        "documents_per_second": cost.texts_per_second,
        "peak_memory": cost.peak_memory,
        "bytes": cost.n_bytes,
        "history": result.history if method.family != "linear" else None,
        "mix": result.mix,
        "notes": result.notes,
    }


def _split_json(result: MethodResult, split: str, metric: str) -> dict[str, Any]:
    score, figures, details = result.scores[split], result.figures[split], result.details[split]
    record: dict[str, Any] = {"n": score.n, metric: _score_json(score)}
    if split == MAIN_SPLIT:
        record[metric] |= dict(zip(("low", "high"), result.interval, strict=True))
    if "confusion" not in details:
        return {**details, **record}
    return record | {
        "macro": {name: figures[f"macro_{name}"].mean for name in ("precision", "recall", "f1")},
        "f1_sd": figures["macro_f1"].sd,
        "per_class": details["per_class"],
        "confusion": details["confusion"],
        "confusion_classes": details["confusion_rows"],
    }


def _score_json(score: Score) -> dict[str, Any]:
    return {"mean": score.mean, "sd": score.sd, "values": score.values}


def _ranking_json(comparison: Comparison, ranking: Ranking) -> dict[str, Any]:
    pairs = []
    for pair in ranking.pairs:
        record = asdict(pair)
        record["visible"] = record.pop("detectable")
        pairs.append(record | {"real": pair.significant, "words": describe_pair(comparison, pair)})
    return {
        "order": ranking.order,
        "ranks": {id: format_rank(ranks) for id, ranks in ranking.ranks.items()},
        "pairs": pairs,
        "summary": summarize_ranking(comparison),
        "visible": ranking.detectable,
    }
