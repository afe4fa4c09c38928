"""The result of a comparison: typed, built once from the finished steps."""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.comparison.data import SPLITS, Data
from elmokit.comparison.methods import Method, Plan, source_id
from elmokit.comparison.ranking import Pair, Ranking, format_rank, rank, recommend
from elmokit.comparison.statistics import score_interval
from elmokit.comparison.steps import MetricsRecord, Step, StepResult, encoder_folder, layers_id
from elmokit.comparison.verdict import describe_pair, summarize_ranking
from elmokit.core.formatting import plural
from elmokit.core.model_card import versions
from elmokit.vectors.elmo import Elmo

MAIN_SPLIT = "test"
"""The split whose scores rank the methods."""
_TOO_LATE = "The deadline had passed before it started."
_N_EXAMPLES = 12
_MAX_CHARACTERS = 400  # of an example
_Fits = Mapping[tuple[str, int], Mapping[int, StepResult]]  # by method id and number of labels, then by seed


@dataclass(frozen=True)
class Score:
    """A score of a method on ``n`` rows of a split: values by seed and, if several, their deviation."""

    n: int
    mean: float
    sd: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, records: Sequence[MetricsRecord], name: str = "") -> Score:
        """The score with this name, or the main one, over the seeds."""
        values = [record.values[name or record.main] for record in records]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(len(records[0].row_scores), float(np.mean(values)), sd, tuple(values))


@dataclass(frozen=True)
class Cost:
    """What a method needs: mean time to fit, median speed, highest memory, size of its model folder."""

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
        scores: By split, the score that ranks; ``figures`` has all scores by name.
        interval: 95% interval of the score on the test rows.
        details: The task's own record by split: fractions averaged over the seeds, all else of the first.
        mix: Weights of the layers (``MixRecord``); it and ``history`` are of the first seed.
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
    def settings(self) -> dict[str, Any]:
        """Those of its vectors and classifier."""
        return {**self.method.vectors, **self.method.classifier}

    @property
    def main(self) -> Score:
        """The score that ranks it, on the test rows."""
        return self.scores[MAIN_SPLIT]


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
class Comparison:
    """The result of a comparison.

    Attributes:
        metric: Name of the score that ranks.
        recommended: Id of the recommended method; None if none has finished.
        curve: The learning curve: scores by method id and number of labels.
        failed: Reasons by step id.
    """

    folder: Path
    plan: Plan
    title: str
    metric: str
    data: Data
    methods: tuple[MethodResult, ...]
    ranking: Ranking
    recommended: str | None
    pretraining: Pretraining | None = None
    curve: Mapping[str, Mapping[int, Score]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, int | None] = field(default_factory=dict)

    def method(self, id: str) -> MethodResult:
        """The method with this id."""
        return next(result for result in self.methods if result.method.id == id)

    @property
    def names(self) -> dict[str, str]:
        """Names of the methods by id."""
        return {result.method.id: result.method.name for result in self.methods}

    @property
    def ranked(self) -> list[MethodResult]:
        """The finished methods, best first."""
        return [self.method(id) for id in self.ranking.order]


def build_result(
    folder: Path,
    plan: Plan,
    data: Data,
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    failed: Mapping[str, str],
    *,
    encoder: Path | None = None,
    title: str = "",
    command: str = "",
) -> Comparison:
    """Put results together.

    Args:
        results: Of the finished steps, by id. Steps that neither finished nor ``failed`` had no time.
        failed: Reasons by step id.
        encoder: A biLM that was given.
    """
    fits: defaultdict[tuple[str, int], dict[int, StepResult]] = defaultdict(dict)
    for step in steps:
        if step.kind == "fit" and step.id in results:
            fits[step.method, step.n_labels][step.seed] = results[step.id]
    methods, records, notes = [], {}, []
    for method in plan.methods:
        by_seed = fits[method.id, 0]
        missing = [step.id for step in steps if step.method == method.id and step.id not in results]
        reason = next((failed[id] for id in missing if id in failed), _TOO_LATE)
        if by_seed:
            methods.append(_finished(method, by_seed, results))
            records[method.id] = [fit.metrics[MAIN_SPLIT] for fit in by_seed.values()]
            if missing:
                notes.append(f"{method.name}: {plural(len(missing), 'missing step')}. {reason}")
        else:
            methods.append(MethodResult(method, "skipped" if reason is _TOO_LATE else "failed", reason))
    ranking = rank({id: [record.row_scores for record in own] for id, own in records.items()})
    seconds = {result.method.id: result.cost.seconds for result in methods}
    has_memory = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if has_memory else None
    return Comparison(
        folder=folder,
        plan=plan,
        title=title or "Which vectors for this text?",
        metric=next((own[0].main for own in records.values()), "score"),
        data=data,
        methods=tuple(methods),
        ranking=ranking,
        recommended=recommend(ranking, seconds) if records else None,
        pretraining=_pretraining(folder / "work", plan, results, encoder),
        curve=_curve(plan, fits, len(data.splits["train"])) if plan.counts else {},
        examples=_examples(data, ranking.order, records),
        notes=tuple(notes),
        failed=failed,
        command=command,
        versions=versions("torch", "numpy"),
        machine={"cores": os.cpu_count(), "memory": memory},
    )


def _finished(
    method: Method, by_seed: Mapping[int, StepResult], results: Mapping[str, StepResult]
) -> MethodResult:
    fits = list(by_seed.values())
    source, layers = results.get(source_id(method)), None
    seconds = float(np.mean([fit.seconds for fit in fits]))
    if method.uses_layers and (layers := results.get(layers_id(method))) is not None:
        seconds += layers.seconds  # the encoder's pass over the rows is made once, but every fit needs it
    encoding, speed = source if method.family == "foreign" else None, 0.0
    if encoding is not None:
        seconds, speed, source = seconds + encoding.seconds, encoding.texts_per_second, None
    memory = max(
        result.peak_memory or 0 for result in (source, encoding, layers, *fits) if result is not None
    )
    records = {split: [fit.metrics[split] for fit in fits] for split in SPLITS}
    return MethodResult(
        method=method,
        status="done",
        seeds=tuple(by_seed),
        scores={split: Score.of(own) for split, own in records.items()},
        interval=score_interval([record.row_scores for record in records[MAIN_SPLIT]]),
        figures={
            split: {name: Score.of(own, name) for name in own[0].values} for split, own in records.items()
        },
        details={split: _mean([record.details for record in own]) for split, own in records.items()},
        cost=Cost(
            pretrain_seconds=None if source is None else source.seconds,
            fit_seconds=seconds,
            texts_per_second=speed or float(np.median([fit.texts_per_second for fit in fits])),
            peak_memory=memory or None,
            n_bytes=max(fit.n_bytes for fit in fits) or None,
        ),
        history=fits[0].history,
        mix=fits[0].mix,
        notes=fits[0].notes,
    )


def _mean(records: Sequence[Any]) -> Any:
    """One record of several alike: fractions are averaged, all else is that of the first."""
    first = records[0]
    if isinstance(first, Mapping):
        return {key: _mean([record[key] for record in records]) for key in first}
    if isinstance(first, list):
        return [_mean(entries) for entries in zip(*records, strict=True)]
    return float(np.mean(records)) if all(isinstance(record, float) for record in records) else first


def class_counts(data: Data) -> dict[str, Counter[str]]:
    """Rows of each class by split; empty for tasks without classes."""
    counts = {}
    for split, examples in data.splits.items():
        names = (*examples.labels.names, *examples.unknown)
        if names and examples.targets.ndim == 1:
            counts[split] = Counter(names[target] for target in examples.targets.tolist())
    return counts


def _pretraining(
    work: Path, plan: Plan, results: Mapping[str, StepResult], encoder: Path | None
) -> Pretraining | None:
    methods = [method for method in plan.methods if method.family == "elmo"]
    if not methods or (encoder is None and source_id(methods[0]) not in results):
        return None
    elmo = Elmo.load(encoder_folder(work, methods[0], encoder))
    training = elmo.folder.training
    held_out = training.get("held_out") or {}
    return Pretraining(
        name=encoder.resolve().name if encoder is not None else f"{elmo.model.config.input} input",
        was_given=encoder is not None,
        n_models=len({source_id(method) for method in methods}),
        seconds=training.get("seconds"),
        **{name: held_out.get(name) for name in ("perplexity", "forward", "backward")},
        parameters=sum(parameter.numel() for parameter in elmo.model.parameters()),
        words=len(elmo.folder.vocabulary),
        history=tuple(
            {name: entry[name] for name in ("epoch", "perplexity")}
            for entry in training.get("history") or ()
            if "perplexity" in entry
        ),
    )


def _curve(plan: Plan, fits: _Fits, n_train: int) -> dict[str, dict[int, Score]]:
    curve: dict[str, dict[int, Score]] = defaultdict(dict)
    for id, n_labels in itertools.product(plan.curve, (*plan.counts, 0)):
        records = [fit.metrics[MAIN_SPLIT] for fit in fits.get((id, n_labels), {}).values()]
        if records:
            curve[id][n_labels or n_train] = Score.of(records)
    return curve


def _examples(
    data: Data, order: Sequence[str], records: Mapping[str, Sequence[MetricsRecord]]
) -> tuple[Example, ...]:
    """Test texts on which the methods disagree: half of them only the best gets right, half it gets wrong."""
    predicted = [records[id][0].predicted for id in order]
    if len(order) < 2 or any(row is None for row in predicted):
        return ()
    examples, texts, answers = data.splits[MAIN_SPLIT], data.texts(MAIN_SPLIT), np.array(predicted)
    right = answers == examples.targets  # (n_methods, n_rows)
    n_right = right.sum(axis=0)
    ahead = np.flatnonzero(right[0] & (n_right < len(order)))
    behind = np.flatnonzero(~right[0] & (n_right > 0))
    ahead = ahead[np.argsort(n_right[ahead], kind="stable")][: _N_EXAMPLES // 2]
    behind = behind[np.argsort(-n_right[behind], kind="stable")][: _N_EXAMPLES // 2]
    names = (*examples.labels.names, *examples.unknown)
    chosen = []
    for row in (*ahead, *behind):
        text, label = texts[row], names[examples.targets[row]]
        if len(text) > _MAX_CHARACTERS:
            text = f"{text[:_MAX_CHARACTERS]}…"
        guesses = {id: names[answer] for id, answer in zip(order, answers[:, row], strict=True)}
        sides = (tuple(id for id in order if (guesses[id] == label) is side) for side in (True, False))
        chosen.append(Example(text, label, guesses, *sides))
    return tuple(chosen)


# -- report.json ----------------------------------------------------------------------------------


def to_json(comparison: Comparison) -> dict[str, Any]:
    """What report.json holds, with the keys of 0.1."""
    data, plan, ranking = comparison.data, comparison.plan, comparison.ranking
    record: dict[str, Any] = {
        **{name: getattr(comparison, name) for name in ("title", "notes", "machine", "versions")},
        "data": {
            "rows": {split: len(examples) for split, examples in data.splits.items()},
            "unlabelled": len(data.unlabeled),
            "classes": data.labels.names,
            "class_counts": class_counts(data),
            "notes": data.notes,
            "names": data.names,
        },
        "methods": [_method_json(result, comparison.metric) for result in comparison.methods],
        "ranking": None,
        "pretraining": asdict(comparison.pretraining) if comparison.pretraining else None,
        "curve": None,
        "examples": [asdict(example) for example in comparison.examples],
        "intrinsic": [],
        "left_out": plan.left_out,
        "commands": [comparison.command] if comparison.command else [],
    }
    if ranking.order:
        record["ranking"] = {
            "order": ranking.order,
            "ranks": {id: format_rank(ranks) for id, ranks in ranking.ranks.items()},
            "pairs": [_pair_json(comparison, pair) for pair in ranking.pairs],
            "summary": summarize_ranking(comparison),
            "visible": ranking.detectable,
        }
    if comparison.curve:
        points = {
            id: [asdict(score) | {"n": n_labels} for n_labels, score in scores.items()]
            for id, scores in comparison.curve.items()
        }
        record["curve"] = {
            "draws": plan.draws,
            "counts": [*plan.counts, len(data.splits["train"])],
            "methods": {id: {"name": comparison.names[id], "points": own} for id, own in points.items()},
        }
    return record


def _pair_json(comparison: Comparison, pair: Pair) -> dict[str, Any]:
    record = asdict(pair) | {"real": pair.significant, "words": describe_pair(comparison, pair)}
    return record | {"visible": record.pop("detectable")}


def _method_json(result: MethodResult, metric: str) -> dict[str, Any]:
    method, cost = result.method, result.cost
    return {
        **{name: getattr(method, name) for name in ("id", "name", "family")},
        **{name: getattr(result, name) for name in ("seeds", "settings", "mix", "notes")},
        "published": None,
        "status": "left out" if result.status == "skipped" else result.status,
        "reason": result.reason or None,
        "splits": {split: _split_json(result, split, metric) for split in result.scores},
        "seconds": {"pretrain": cost.pretrain_seconds, "fit": cost.fit_seconds},
        "documents_per_second": cost.texts_per_second,
        "peak_memory": cost.peak_memory,
        "bytes": cost.n_bytes,
        "history": result.history if method.family != "linear" else None,
    }


def _split_json(result: MethodResult, split: str, metric: str) -> dict[str, Any]:
    details, score = result.details[split], asdict(result.scores[split])
    record = {"n": score.pop("n"), metric: score}
    if split == MAIN_SPLIT:
        score["low"], score["high"] = result.interval
    if "confusion" not in details:
        return {**details, **record}
    return record | {
        **{name: details[name] for name in ("macro", "per_class", "confusion")},
        "f1_sd": result.figures[split]["macro_f1"].sd,
        "confusion_classes": details["confusion_rows"],
    }
