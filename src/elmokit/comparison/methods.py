"""The methods that can be compared, and the settings and the plan of a comparison."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmokit.core.config import Config, duration, option, read_toml
from elmokit.core.errors import ConfigError, nearest
from elmokit.tasks.task import AnyTask

Family = Literal["elmo", "static", "foreign", "linear"]
FAMILIES: tuple[Family, ...] = ("elmo", "static", "foreign", "linear")


@dataclass(frozen=True)
class Method:
    """One row of the ranking.

    Attributes:
        family: "elmo" (a biLM), "static" (one vector per word), "foreign" (an encoder of another program) or
            "linear" (TF-IDF).
        base: What makes the vectors, such as "elmo", "svd" or "st:FOLDER"; for linear models, the model.
        classifier: Settings of mix, head and fitting by name, for methods with a head.
        vectors: Settings of the word vectors, for static methods; the fingerprint of a foreign encoder.
        language_model: ``preset``, and changes by section; only ``fingerprint`` if a biLM is given.
        text: How raw text becomes words, for static methods: the same as for the language model.
    """

    id: str
    name: str
    family: Family
    base: str
    classifier: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, Any] = field(default_factory=dict)
    language_model: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)

    @property
    def has_linear_head(self) -> bool:
        """True for logistic regression on averaged vectors, which is solved and not trained."""
        return self.classifier.get("head") == "linear"

    @property
    def is_stack(self) -> bool:
        """True for logistic regressions on views of a text, which have no settings."""
        return self.base == "stack" or self.family == "foreign"

    @property
    def uses_seed(self) -> bool:
        """True if the result depends on the seed."""
        return self.family not in ("linear", "foreign") and not self.has_linear_head

    @property
    def source(self) -> str:
        """The step that trains its encoder, shared by methods with the same settings; "" if there is none."""
        if self.family == "static":
            return f"{self.base}-{_digest({'base': self.base, **self.vectors, 'text': self.text})}"
        is_trained = self.family == "elmo" and "fingerprint" not in self.language_model
        return f"elmo-{_digest(self.language_model)}" if is_trained else ""

    @property
    def layers(self) -> str:
        """The step that encodes the rows once for all its fits; "" if every fit does that itself."""
        if self.family == "foreign":
            return f"{self.id}-{_digest(self.vectors)}"
        given = self.classifier
        if self.family != "elmo" or self.is_stack or given.get("finetune") or given.get("cache") == "no":
            return ""
        return f"layers-{_digest({**self.language_model, 'max_words': given.get('max_words')})}"

    @property
    def digest(self) -> str:
        """Changes with any setting, but not with the place of a foreign encoder."""
        base = self.base if self.family != "foreign" else ""
        return _digest({**vars(self), "id": "", "name": "", "base": base})

    def can_do(self, task: AnyTask) -> bool:
        """True if it can be fitted to this task: TF-IDF, stacks and logistic regression only classify."""
        is_linear = self.family == "linear" or self.is_stack or self.has_linear_head
        return task.classifies_texts or not is_linear

    def vary(self, **changes: Any) -> Method:
        """A copy with other fields; dictionaries are merged into those that it has."""
        return dataclasses.replace(self, **_merge(vars(self), changes))


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**old, **new}
    for name in old.keys() & new.keys():
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            merged[name] = _merge(old[name], new[name])
    return merged


@functools.cache
def catalog() -> dict[str, Method]:
    """All methods by id."""
    methods = read_toml(Path(__file__).with_name("methods.toml"))
    return {id: Method(id, **settings) for id, settings in methods.items()}


@dataclass(frozen=True)
class Plan:
    """Everything that a comparison will do.

    Attributes:
        seeds: For every method that uses them; others are fitted once.
        counts: Label counts of the learning curve; empty for none.
        draws: How often each count is drawn.
        curve: Ids of the methods in the learning curve.
        left_out: Which methods were left out and why, in sentences.
    """

    recipe: str
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    counts: tuple[int, ...] = ()
    draws: int = 5
    curve: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompareConfig(Config):
    """What is compared, and how."""

    recipe: str = option(
        "quick", "Set of methods: quick, thorough, or write-ups (systems from class projects)."
    )
    methods: str = option(
        "",
        "Only these, separated by commas: elmo, static, linear; ids, as in svd,tfidf-svm; foreign encoders: "
        "st:FOLDER, m2v:FOLDER, glove:FILE, vectors:FILE.",
    )
    config: str = option("", "TOML file that changes settings or adds variants.")
    seeds: int = option(0, "Number of random seeds per method (0: as in the recipe).", at_least=0)
    curve: str = option("", "Learning curve over these numbers of labels, such as 100,300,1000,3000.")
    draws: int = option(5, "Random samples of rows for each point of the curve.", at_least=1)
    curve_methods: str = option("", "Methods in the learning curve, separated by commas.")
    budget: float | None = option(
        None, "Deadline, such as 30m: steps that have not started by then are skipped.", parse=duration
    )
    workers: int = option(0, "Steps to run in parallel, one core each (0: one per core).", at_least=0)
    task: str = option("auto", "What to learn: classify, tag, answer or pair; auto decides by the columns.")
    title: str = option("", "Title of the report.")


def choose_methods(known: Sequence[Method], names: Iterable[str], usual: Sequence[str] = ()) -> list[Method]:
    """The methods with these ids, names of foreign encoders or families, in the order of ``known``.

    Of a family, the ``usual`` methods if any.
    """
    groups, chosen = dict[str, set[str]](), set[str]()
    for family in dict.fromkeys(method.family for method in known):
        ids = {method.id for method in known if method.family == family}
        groups[family] = ids.intersection(usual) or ids
    groups |= {method.base: {method.id} for method in known if method.family == "foreign"}
    groups |= {method.id: {method.id} for method in known}
    for name in names:
        if name not in groups:
            remedy = f"{nearest(str(name), groups)} All: {', '.join(groups)}."
            raise ConfigError(f"There is no method {name!r}.", remedy=remedy)
        chosen |= groups[name]
    return [method for method in known if method.id in chosen]
