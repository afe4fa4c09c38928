"""The result of a comparison: typed, built once from the finished steps."""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.comparison.data import SPLITS, Data
from elmokit.comparison.methods import Method, Plan
from elmokit.comparison.ranking import Pair, Ranking, format_rank, rank, recommend
from elmokit.comparison.statistics import score_interval
from elmokit.comparison.steps import MetricsRecord, Step, StepResult, Workspace
from elmokit.comparison.verdict import describe_pair, summarize_ranking
from elmokit.core.formatting import plural
from elmokit.core.model_card import versions
from elmokit.vectors.elmo import Elmo

MAIN_SPLIT = "test"
"""The split whose scores rank the methods."""
_TOO_LATE = "The deadline had passed before it started."
_N_EXAMPLES = 12
_MAX_CHARACTERS = 400  # of an example


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
    """One method; ``fits`` are by seed, ``interval`` is the 95% interval of the score on the test rows."""

    method: Method
    status: Literal["done", "failed", "skipped"]
    reason: str = ""
    fits: Mapping[int, StepResult] = field(default_factory=dict)
    interval: tuple[float, float] = (0.0, 0.0)
    cost: Cost = Cost()

    @cached_property
    def records(self) -> dict[str, list[MetricsRecord]]:
        """The metrics of every seed by split."""
        return {split: [fit.metrics[split] for fit in self.fits.values()] for split in SPLITS if self.fits}

    @property
    def scores(self) -> dict[str, Score]:
        """By split, the score that ranks."""
        return {split: Score.of(records) for split, records in self.records.items()}

    @property
    def main(self) -> Score:
        """The score that ranks it, on the test rows."""
        return Score.of(self.records[MAIN_SPLIT])

    @cached_property
    def details(self) -> dict[str, Mapping[str, Any]]:
        """The task's own record by split: fractions averaged over the seeds, all else of the first."""
        return {split: _mean([record.details for record in own]) for split, own in self.records.items()}

    @property
    def first(self) -> StepResult:
        """The fit of the first seed, with its history, mix and notes."""
        return next(iter(self.fits.values()), StepResult(0.0))

    @property
    def settings(self) -> dict[str, Any]:
        """Those of its vectors and classifier."""
        return {**self.method.vectors, **self.method.classifier}


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
        recommended: Id of the recommended method; None if none has finished.
        encoder: The language model of the ELMo methods; of several, the first.
        given: Its name if it was given and not pretrained.
        curve: The learning curve: scores by method id and number of labels.
        failed: Reasons by step id.
    """

    folder: Path
    plan: Plan
    title: str
    data: Data
    methods: tuple[MethodResult, ...]
    ranking: Ranking
    recommended: str | None
    encoder: Elmo | None = None
    given: str = ""
    curve: Mapping[str, Mapping[int, Score]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def method(self, id: str) -> MethodResult:
        """The method with this id."""
        return next(result for result in self.methods if result.method.id == id)

    @property
    def metric(self) -> str:
        """Name of the score that ranks."""
        return self.ranked[0].records[MAIN_SPLIT][0].main if self.ranked else "score"

    @property
    def names(self) -> dict[str, str]:
        """Names of the methods by id."""
        return {result.method.id: result.method.name for result in self.methods}

    @property
    def ranked(self) -> list[MethodResult]:
        """The finished methods, best first."""
        return [self.method(id) for id in self.ranking.order]


def build_result(
    space: Workspace,
    plan: Plan,
    steps: Sequence[Step],
    results: Mapping[str, StepResult],
    failed: Mapping[str, str],
    *,
    title: str = "",
    command: str = "",
) -> Comparison:
    """Put results together.

    Args:
        results: Of the finished steps, by id. Steps that neither finished nor ``failed`` had no time.
        failed: Reasons by step id.
    """
    fits: defaultdict[tuple[str, int], dict[int, StepResult]] = defaultdict(dict)
    for step in steps:
        if step.kind == "fit" and step.id in results:
            fits[step.method.id, step.n_labels][step.seed] = results[step.id]
    methods, notes = [], []
    for method in plan.methods:
        missing = [step.id for step in steps if step.method.id == method.id and step.id not in results]
        reason = next((failed[id] for id in missing if id in failed), _TOO_LATE)
        if by_seed := fits[method.id, 0]:
            rows = [fit.metrics[MAIN_SPLIT].row_scores for fit in by_seed.values()]
            cost = _cost(method, list(by_seed.values()), results)
            methods.append(MethodResult(method, "done", "", by_seed, score_interval(rows), cost))
            if missing:
                notes.append(f"{method.name}: {plural(len(missing), 'missing step')}. {reason}")
        else:
            methods.append(MethodResult(method, "skipped" if reason is _TOO_LATE else "failed", reason))
    done = {result.method.id: result for result in methods if result.fits}
    ranking = rank(
        {id: [record.row_scores for record in one.records[MAIN_SPLIT]] for id, one in done.items()}
    )
    curve: dict[str, dict[int, Score]] = defaultdict(dict)
    for id, n_labels in itertools.product(plan.curve, (*plan.counts, 0)):
        if drawn := [fit.metrics[MAIN_SPLIT] for fit in fits[id, n_labels].values()]:
            curve[id][n_labels or len(space.data.splits["train"])] = Score.of(drawn)
    sources = [method for method in plan.methods if method.family == "elmo"]
    has_encoder = sources and (not sources[0].source or sources[0].source in results)
    return Comparison(
        folder=space.folder.parent,
        plan=plan,
        title=title or "Which vectors for this text?",
        data=space.data,
        methods=tuple(methods),
        ranking=ranking,
        recommended=recommend(ranking, {id: one.cost.seconds for id, one in done.items()}) if done else None,
        encoder=Elmo.load(space.encoder_folder(sources[0])) if has_encoder else None,
        given=space.encoder.resolve().name if space.encoder else "",
        curve=curve,
        examples=_examples(space.data, [done[id] for id in ranking.order]),
        notes=tuple(notes),
        failed=failed,
        command=command,
    )


def _cost(method: Method, fits: Sequence[StepResult], results: Mapping[str, StepResult]) -> Cost:
    source, encoding = results.get(method.source), results.get(method.layers)
    seconds, speed = float(np.mean([fit.seconds for fit in fits])), 0.0
    if encoding is not None:  # made once, but every fit needs it
        seconds, speed = seconds + encoding.seconds, encoding.texts_per_second
    used = [result for result in (source, encoding, *fits) if result is not None]
    return Cost(
        pretrain_seconds=None if source is None else source.seconds,
        fit_seconds=seconds,
        texts_per_second=speed or float(np.median([fit.texts_per_second for fit in fits])),
        peak_memory=max(result.peak_memory or 0 for result in used) or None,
        n_bytes=max(fit.n_bytes for fit in fits) or None,
    )


def _mean(records: Sequence[Any]) -> Any:
    """One record of several alike: fractions are averaged, all else is that of the first."""
    first = records[0]
    if isinstance(first, Mapping):
        return {key: _mean([record[key] for record in records]) for key in first}
    if isinstance(first, list) and {*map(len, records)} == {len(first)}:
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


def _examples(data: Data, ranked: Sequence[MethodResult]) -> tuple[Example, ...]:
    """Test texts on which the methods disagree: half of them only the best gets right, half it gets wrong."""
    predicted = [result.records[MAIN_SPLIT][0].predicted for result in ranked]
    if len(ranked) < 2 or any(row is None for row in predicted):
        return ()
    examples, texts, answers = data.splits[MAIN_SPLIT], data.texts(MAIN_SPLIT), np.array(predicted)
    right = answers == examples.targets  # (n_methods, n_rows)
    n_right, half = right.sum(axis=0), _N_EXAMPLES // 2
    fewest, most = (np.argsort(sign * n_right, kind="stable") for sign in (1, -1))
    wins = [row for row in fewest if right[0, row] and n_right[row] < len(ranked)][:half]
    losses = [row for row in most if not right[0, row] and n_right[row] > 0][:half]
    names, ids = (*examples.labels.names, *examples.unknown), [result.method.id for result in ranked]
    chosen = []
    for row in (*wins, *losses):
        text, label = texts[row], names[examples.targets[row]]
        text = f"{text[:_MAX_CHARACTERS]}…" if len(text) > _MAX_CHARACTERS else text
        guesses = {id: names[answer] for id, answer in zip(ids, answers[:, row], strict=True)}
        sides = (tuple(id for id in ids if (guesses[id] == label) is side) for side in (True, False))
        chosen.append(Example(text, label, guesses, *sides))
    return tuple(chosen)


def machine() -> dict[str, int | None]:
    """Cores and bytes of memory of this machine, as far as the system tells."""
    tells = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if tells else None
    return {"cores": os.cpu_count(), "memory": memory}


def to_json(comparison: Comparison) -> dict[str, Any]:
    """What report.json holds, with the keys of 0.1."""
    data, plan, ranking = comparison.data, comparison.plan, comparison.ranking
    curve = {
        id: {
            "name": comparison.names[id],
            "points": [asdict(score) | {"n": n_labels} for n_labels, score in scores.items()],
        }
        for id, scores in comparison.curve.items()
    }
    counts = [*plan.counts, len(data.splits["train"])]
    return {
        "title": comparison.title,
        "notes": comparison.notes,
        "machine": machine(),
        "versions": versions("torch", "numpy"),
        "data": {
            "rows": {split: len(examples) for split, examples in data.splits.items()},
            "unlabelled": len(data.unlabeled),
            "classes": data.labels.names,
            "class_counts": class_counts(data),
            "notes": data.notes,
            "names": data.names,
        },
        "methods": [_method_json(result, comparison.metric) for result in comparison.methods],
        "ranking": {
            "order": ranking.order,
            "ranks": {id: format_rank(ranks) for id, ranks in ranking.ranks.items()},
            "pairs": [_pair_json(comparison, pair) for pair in ranking.pairs],
            "summary": summarize_ranking(comparison),
            "visible": ranking.detectable,
        }
        if ranking.order
        else None,
        "pretraining": _encoder_json(comparison, comparison.encoder) if comparison.encoder else None,
        "curve": {"draws": plan.draws, "counts": counts, "methods": curve} if curve else None,
        "examples": [asdict(example) for example in comparison.examples],
        "intrinsic": [],
        "left_out": plan.left_out,
        "commands": [comparison.command] if comparison.command else [],
    }


def held_out_history(encoder: Elmo) -> list[dict[str, float]]:
    """Perplexity by epoch of pretraining, as far as it is known."""
    entries = encoder.training.get("history") or ()
    return [{key: one[key] for key in ("epoch", "perplexity")} for one in entries if "perplexity" in one]


def _encoder_json(comparison: Comparison, encoder: Elmo) -> dict[str, Any]:
    held_out, methods = encoder.training.get("held_out") or {}, comparison.plan.methods
    return {
        "name": comparison.given or f"{encoder.model.config.input} input",
        "was_given": bool(comparison.given),
        "n_models": len({method.source for method in methods if method.family == "elmo"}),
        "seconds": encoder.training.get("seconds"),
        **{name: held_out.get(name) for name in ("perplexity", "forward", "backward")},
        "parameters": encoder.facts().values["n_parameters"],
        "words": len(encoder.folder.vocabulary),
        "history": held_out_history(encoder),
    }


def _pair_json(comparison: Comparison, pair: Pair) -> dict[str, Any]:
    record = asdict(pair) | {"real": pair.significant, "words": describe_pair(comparison, pair)}
    return record | {"visible": record.pop("detectable")[0]}


def _method_json(result: MethodResult, metric: str) -> dict[str, Any]:
    method, cost, first = result.method, result.cost, result.first
    return {
        **{name: getattr(method, name) for name in ("id", "name", "family")},
        "seeds": list(result.fits),
        "settings": result.settings,
        "mix": first.mix,
        "notes": first.notes,
        "published": None,
        "status": "left out" if result.status == "skipped" else result.status,
        "reason": result.reason or None,
        "splits": {split: _split_json(result, split, metric) for split in result.records},
        "seconds": {"pretrain": cost.pretrain_seconds, "fit": cost.fit_seconds},
        "documents_per_second": cost.texts_per_second,
        "peak_memory": cost.peak_memory,
        "bytes": cost.n_bytes,
        "history": first.history if method.family != "linear" else None,
    }


def _split_json(result: MethodResult, split: str, metric: str) -> dict[str, Any]:
    details, score = result.details[split], asdict(result.scores[split])
    record = {"n": score.pop("n"), metric: score}
    if split == MAIN_SPLIT:
        score["low"], score["high"] = result.interval
    if not {"confusion", "confusions"} & details.keys():
        return {**details, **record}
    names = {"confusion_rows": "confusion_classes"}  # in 0.1
    kept = ("macro", "per_class", "confusion", "confusions", "confusion_rows")
    return record | {
        **{names.get(name, name): details[name] for name in kept if name in details},
        "f1_sd": Score.of(result.records[split], "macro_f1").sd,
    }
