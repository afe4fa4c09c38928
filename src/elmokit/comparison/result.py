"""What the parts of a comparison found, put together for its report."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.comparison.data import SPLITS, Rows
from elmokit.comparison.doing import MEASURED
from elmokit.comparison.methods import Method, Plan, source_id
from elmokit.comparison.ranking import Pair, Ranking, format_rank, rank
from elmokit.comparison.runner import Outcome
from elmokit.comparison.statistics import mean_sd, score_interval
from elmokit.comparison.steps import Unit, bilm_folder, layers_id, result_of, units_of
from elmokit.comparison.verdict import side_by_side
from elmokit.core.tensors import load_tensors
from elmokit.vectors.elmo import Elmo

__all__ = ["comparison_facts"]

_EXAMPLES = 12
_SHOWN = 400  # characters of an example


def comparison_facts(
    work: Path, plan: Plan, rows: Rows, outcome: Outcome, encoder: Path | None
) -> dict[str, Any]:
    """What ``write_comparison`` takes, as far as the finished parts have it."""
    units = units_of(plan, encoder)
    results = {unit.id: result for unit in units if (result := result_of(work, unit)) is not None}
    answers = {
        unit.id: load_tensors(work / "units" / unit.id / "answers.safetensors")[0]
        for unit in units
        if unit.kind in ("fit", "linear") and not unit.n_labels and unit.id in results
    }
    true = np.array(
        [rows.classes.index(label) if label in rows.classes else -1 for label in rows.labels("test")]
    )
    methods, correct, guesses = [], {}, {}
    for method in plan.methods:
        own = [unit for unit in units if unit.method == method.id and unit.id in answers]
        facts = _method(method, own, results, outcome, units, given=encoder is not None)
        if facts["status"] == "done":
            given = np.stack([answers[unit.id]["test"].numpy() for unit in own])  # (n_seeds, n_rows)
            correct[method.id] = given == true
            guesses[method.id] = given[0]
            low, high = score_interval(correct[method.id])
            facts["splits"]["test"]["accuracy"] |= {"low": low, "high": high}
        methods.append(facts)
    names = {method.id: method.name for method in plan.methods}
    elmos, statics = (
        [method.id for method in plan.methods if method.id in correct and method.family == family]
        for family in ("elmo", "static")
    )
    ranking = None
    if correct:
        ranking = rank(correct, names)
        said = side_by_side(ranking, elmos, statics, names, "static method")
        ranking = dataclasses.replace(ranking, summary=(*said, *ranking.summary))
    return {
        "data": _data(rows),
        "methods": methods,
        "ranking": _ranking(ranking) if ranking is not None else None,
        "pretraining": _pretraining(work, plan, results, encoder),
        "curve": _curve(plan, units, results, rows),
        "examples": _examples(rows, true, guesses, ranking.order if ranking is not None else []),
        "left_out": [*plan.left_out],
        "notes": _missing_parts(units, methods, outcome),
        "machine": {"cores": os.cpu_count(), "memory": _memory()},
    }


def _method(
    method: Method,
    own: Sequence[Unit],
    results: Mapping[str, Any],
    outcome: Outcome,
    units: Sequence[Unit],
    *,
    given: bool,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": method.id,
        "name": method.name,
        "family": method.family,
        "seeds": [unit.seed for unit in own],
        "published": list(method.published) or None,
        "settings": {**method.vectors, **method.classifier},
    }
    if not own:
        mine = [unit.id for unit in units if unit.method == method.id and not unit.n_labels]
        left = [outcome.left_out[id] for id in mine if id in outcome.left_out]
        failed = [outcome.failed[id] for id in mine if id in outcome.failed]
        status = "failed" if failed else "left out"
        reason = (failed or left or ["It was not reached."])[0]
        return {**facts, "status": status, "reason": reason, "splits": {}}
    found = [results[unit.id] for unit in own]
    first = found[0]
    source = {} if given and method.family == "elmo" else results.get(source_id(method)) or {}
    kept = method.family == "elmo" and not method.classifier.get("finetune")
    layers = results.get(layers_id(method)) or {} if kept else {}
    seconds = [
        result["fit_seconds"] - result["encoding_seconds"] + layers["seconds"]  # each pays for the encoder's
        if "seconds" in layers and "encoding_seconds" in result  # pass over the rows, which is made once
        else result["fit_seconds"]
        for result in found
    ]
    memory = [part.get("peak_memory") or 0 for part in (source, layers, *found)]
    return {
        **facts,
        "status": "done",
        "reason": None,
        "splits": {name: _split([result["splits"][name] for result in found]) for name in SPLITS},
        "seconds": {"pretrain": source.get("seconds"), "fit": float(np.mean(seconds))},
        "documents_per_second": float(np.median([result["documents_per_second"] for result in found])),
        "peak_memory": max(memory) or None,
        "bytes": next((result["bytes"] for result in found if "bytes" in result), None),
        "history": first.get("history"),
        "mix": first.get("mix"),
        "notes": first.get("notes", []),
    }


def _missing_parts(
    units: Sequence[Unit], methods: Sequence[Mapping[str, Any]], outcome: Outcome
) -> list[str]:
    """A sentence on each finished method of which some parts are missing."""
    found = []
    for method in methods:
        reasons = [
            outcome.failed.get(unit.id) or outcome.left_out.get(unit.id)
            for unit in units
            if unit.method == method["id"] and unit.kind in ("fit", "linear")
        ]
        missing = [reason for reason in reasons if reason]
        if missing and method["status"] == "done":
            what = "1 part is" if len(missing) == 1 else f"{len(missing)} parts are"
            found.append(f"{method['name']}: {what} missing. {missing[0]}")
    return found


def _split(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One split's figures, averaged over the seeds; the confusions are those of the first."""
    values = [figures["accuracy"] for figures in found]
    mean, sd = mean_sd(values)
    first = found[0]
    names = ("precision", "recall", "f1")
    per_class = [
        {
            "name": entry["name"],
            "support": entry["support"],
            **{
                name: float(np.mean([figures["per_class"][place][name] for figures in found]))
                for name in names
            },
        }
        for place, entry in enumerate(first["per_class"])
    ]
    return {
        "n": first["n"],
        "accuracy": {"mean": mean, "sd": sd, "values": values},
        "macro": {name: float(np.mean([figures["macro"][name] for figures in found])) for name in names},
        "f1_sd": mean_sd([figures["macro"]["f1"] for figures in found])[1],
        "per_class": per_class,
        "confusion": first["confusion"],
        "confusion_classes": first["confusion_rows"],
    }


def _ranking(ranking: Ranking) -> dict[str, Any]:
    return {
        "order": list(ranking.order),
        "ranks": {id: format_rank(ranks) for id, ranks in ranking.ranks.items()},
        "pairs": [_pair(pair) for pair in ranking.pairs],
        "summary": list(ranking.summary),
        "visible": ranking.detectable,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "better": pair.better,
        "worse": pair.worse,
        "difference": pair.difference,
        "low": pair.low,
        "high": pair.high,
        "p": pair.p,
        "visible": pair.detectable,
        "p_adjusted": pair.p_adjusted,
        "real": pair.significant,
        "words": pair.sentence,
    }


def _data(rows: Rows) -> dict[str, Any]:
    return {
        "rows": {name: len(rows.texts(name)) for name in SPLITS},
        "unlabelled": len(rows.unlabelled),
        "classes": rows.classes,
        "class_counts": {name: dict(Counter(rows.labels(name))) for name in SPLITS},
        "notes": [*rows.notes, *_on_train(rows)],
    }


def _on_train(rows: Rows) -> list[str]:
    n_rows = len(rows.texts("train"))
    return [f"Train accuracy is of {MEASURED:,} of the {n_rows:,} train rows."] if n_rows > MEASURED else []


def _pretraining(
    work: Path, plan: Plan, results: Mapping[str, Any], encoder: Path | None
) -> dict[str, Any] | None:
    """The language model that the mixes share (of several, the first)."""
    method = next((method for method in plan.methods if method.family == "elmo"), None)
    if method is None:
        return None
    folder = bilm_folder(work, method, encoder)
    if encoder is None and source_id(method) not in results:
        return None
    elmo = Elmo.load(folder)
    held_out = elmo.training.get("held_out") or {}
    history = elmo.training.get("history") or []
    return {
        "name": encoder.resolve().name if encoder is not None else f"{elmo.model.config.input} input",
        "was_given": encoder is not None,
        "n_models": len({source_id(one) for one in plan.methods if one.family == "elmo"}),
        "seconds": elmo.training.get("seconds"),
        "perplexity": held_out.get("perplexity"),
        "forward": held_out.get("forward"),
        "backward": held_out.get("backward"),
        "parameters": sum(parameter.numel() for parameter in elmo.model.parameters()),
        "words": len(elmo.folder.vocabulary),
        "history": [
            {"epoch": entry["epoch"], "perplexity": entry["perplexity"]}
            for entry in history
            if "perplexity" in entry and "epoch" in entry
        ],
    }


def _curve(
    plan: Plan, units: Sequence[Unit], results: Mapping[str, Any], rows: Rows
) -> dict[str, Any] | None:
    if not plan.counts:
        return None
    methods = {}
    for id in plan.curve:
        points = []
        for n_labels in [*plan.counts, 0]:
            own = [unit for unit in units if unit.method == id and unit.n_labels == n_labels]
            values = [
                results[unit.id]["splits"]["test"]["accuracy"]
                for unit in own
                if unit.kind in ("fit", "linear") and unit.id in results
            ]
            if values:
                mean, sd = mean_sd(values)
                n = n_labels or len(rows.texts("train"))
                points.append({"n": n, "mean": mean, "sd": sd, "values": values})
        methods[id] = {"name": plan.method(id).name, "points": points}
    return {"draws": plan.draws, "counts": [*plan.counts, len(rows.texts("train"))], "methods": methods}


def _examples(
    rows: Rows,
    true: npt.NDArray[np.int64],
    guesses: Mapping[str, npt.NDArray[np.int32]],
    order: Sequence[str],
) -> list[dict[str, Any]]:
    """Test texts on which the methods part: first where the best alone is right, then where it is wrong."""
    if len(order) < 2:
        return []
    best = order[0]
    right = {id: guesses[id] == true for id in order}
    n_right = np.sum([right[id] for id in order], axis=0)
    alone = np.flatnonzero(right[best] & (n_right < len(order)))
    missed = np.flatnonzero(~right[best] & (n_right > 0))
    alone = alone[np.argsort(n_right[alone], kind="stable")][: _EXAMPLES // 2]
    missed = missed[np.argsort(-n_right[missed], kind="stable")][: _EXAMPLES // 2]
    texts, labels = rows.texts("test"), rows.labels("test")
    return [
        {
            "text": texts[place][:_SHOWN] + ("…" if len(texts[place]) > _SHOWN else ""),
            "label": labels[place],
            "guesses": {id: rows.classes[guesses[id][place]] for id in order},
            "right": [id for id in order if right[id][place]],
            "wrong": [id for id in order if not right[id][place]],
        }
        for place in (*alone, *missed)
    ]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
