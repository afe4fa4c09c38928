"""The models and reports that a server was given, by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmokit.core.console import Reporter
from elmokit.core.errors import ModelError
from elmokit.core.model_folder import kind_of
from elmokit.core.names import HUB, resolve_name
from elmokit.tasks.model import TaskModel
from elmokit.text.tokenizing import replace_surrogates
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.mix import ScalarMix
from elmokit.vectors.neighbors import Occurrences

__all__ = ["Report", "Served", "Shelf", "open_shelf"]


@dataclass(frozen=True)
class Served:
    """A model that answers.

    Attributes:
        name: how clients ask for it.
        elmo: the biLM; None if the classifier stands on static vectors.
        classifier: the classifier, if it is one.
        occurrences: words of a corpus in context, to look for neighbours in.
    """

    name: str
    elmo: Elmo | None
    classifier: TaskModel | None = None
    occurrences: Occurrences | None = None

    def facts(self) -> dict[str, Any]:
        """What a client may know of it."""
        found: dict[str, Any] = {"name": self.name, "kind": "classifier" if self.classifier else "encoder"}
        encoder = self.elmo or (self.classifier.encoder if self.classifier else None)
        assert encoder is not None
        found |= {
            "contextual": self.elmo is not None,
            "n_layers": encoder.n_layers,
            "dim": encoder.dim,
            "classes": list(self.classifier.labels.names) if self.classifier else [],
            "multilabel": bool(self.classifier and self.classifier.labels.separator),
            "weights": self.weights(),
            "warm": bool(self.elmo and self.elmo.folder.start_state is not None),
            "corpus_texts": len(self.occurrences.texts) if self.occurrences else 0,
            "corpus": self.occurrences.name if self.occurrences else "",
        }
        training: dict[str, Any] = getattr(encoder, "training", {})
        held_out = training.get("held_out") or {}
        found["perplexity"] = held_out.get("perplexity")
        found["licence"] = training.get("license") or ""
        return found

    def weights(self) -> list[float]:
        """How much each layer counts in the mix: as learnt, or equally."""
        if self.classifier is not None and isinstance(self.classifier.network.mix, ScalarMix):
            return [float(value) for value in self.classifier.network.mix.scalars().tolist()]
        n_layers = self.elmo.n_layers if self.elmo else 1
        return [1.0 / n_layers] * n_layers


@dataclass(frozen=True)
class Report:
    """A comparison's report.

    Attributes:
        name: how clients ask for it.
        title: what it is about.
        page: its HTML file.
    """

    name: str
    title: str
    page: Path


@dataclass(frozen=True)
class Shelf:
    """All that a server has.

    Attributes:
        models: by name, the first being the one that is meant unless another is asked for.
        reports: by name.
    """

    models: dict[str, Served]
    reports: dict[str, Report] = field(default_factory=dict)


def open_shelf(
    places: Sequence[str | Path],
    texts: Iterable[str],
    *,
    corpus_name: str = "",
    corpus_words: int = 50_000,
    reporter: Reporter | None = None,
) -> Shelf:
    """Open models and reports for a server.

    Args:
        places: names or folders of models (biLMs, classifiers, published files) and of comparisons.
        texts: the corpus in which neighbours are looked for; gone through once for each language model.
        corpus_name: what it is called on the page.
        corpus_words: how much of it is read, at most.
        reporter: who is told; silent unless given.
    """
    reporter = reporter or Reporter("silent")
    models: dict[str, Served] = {}
    reports: dict[str, Report] = {}
    known: dict[str, Occurrences] = {}  # by the mark of a model: classifiers may share one
    for place in places:
        if (report := _report(place)) is not None:
            name = _new_name(report.name, reports)
            reports[name] = Report(name, report.title, report.page)
            continue
        path = resolve_name(place)
        classifier = TaskModel.load(path) if kind_of(path) == "classifier" else None
        encoder = Elmo.load(path) if classifier is None else classifier.encoder
        elmo = encoder if isinstance(encoder, Elmo) else None
        if elmo is not None and elmo.fingerprint not in known:
            with reporter.counting("Reading the corpus", unit="words") as advance:
                known[elmo.fingerprint] = Occurrences.read(
                    elmo, texts, name=corpus_name, most=corpus_words, progress=advance
                )
        name = _new_name(_name_of(place, path), models)
        models[name] = Served(name, elmo, classifier, known[elmo.fingerprint] if elmo else None)
    if not models:
        raise ModelError(
            "No model was given, only reports.", remedy="Give a model, too: elmokit serve news report"
        )
    return Shelf(models, reports)


def _report(place: str | Path) -> Report | None:
    """The report of a comparison, if that is what lies there."""
    folder = Path(place)
    page, facts = folder / "report.html", folder / "report.json"
    try:
        if not (page.is_file() and facts.is_file()) or kind_of(folder) is not None:
            return None
    except OSError:  # whoever opens it as a model says what is wrong
        return None
    try:
        title = str(json.loads(facts.read_text(encoding="utf-8")).get("title") or folder.name)
    except (OSError, ValueError, AttributeError):
        title = folder.name
    return Report(replace_surrogates(folder.resolve().name), replace_surrogates(title), page.resolve())


def _name_of(place: str | Path, path: Path) -> str:
    if isinstance(place, str) and place.startswith(HUB):
        return place.removeprefix(HUB).partition("@")[0].rpartition("/")[2]
    return replace_surrogates(path.resolve().name if path.is_dir() else path.resolve().parent.name)


def _new_name(wanted: str, taken: dict[str, Any]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
