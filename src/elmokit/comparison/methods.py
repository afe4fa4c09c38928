"""The methods that can be compared, and how a comparison's settings become a plan of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from elmokit.core.errors import ConfigError, nearest

__all__ = ["CATALOGUE", "Family", "Method", "Plan", "choose", "source_id"]

Family = Literal["elmo", "static", "linear"]


@dataclass(frozen=True)
class Method:
    """One row of the ranking.

    Attributes:
        id: its short name, as in "elmo-trainable".
        name: what a reader sees.
        family: "elmo" (a biLM), "static" (one vector per word) or "linear".
        base: the id in the catalogue that it is a variant of.
        classifier: settings of mix, head and fitting, by name; for those that have a head.
        vectors: settings of the word vectors, for the static ones.
        language_model: ``preset`` and changes by section, for the biLMs.
        text: how raw text becomes words, for the static ones: as it does for the language model.
        published: what the course write-ups report for it on the full data.
    """

    id: str
    name: str
    family: Family
    base: str
    classifier: dict[str, Any] = field(default_factory=dict)
    vectors: dict[str, Any] = field(default_factory=dict)
    language_model: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    published: tuple[float, ...] = ()

    @property
    def has_chance(self) -> bool:
        """Whether another seed gives another result."""
        solved = self.family == "linear" or self.classifier.get("head") == "linear"
        return not solved or self.base == "fasttext"

    def changed(
        self,
        *,
        classifier: Mapping[str, Any] | None = None,
        vectors: Mapping[str, Any] | None = None,
        language_model: Mapping[str, Any] | None = None,
        **other: Any,
    ) -> Method:
        """The same with other settings on top of its own."""
        return dataclasses.replace(
            self,
            classifier={**self.classifier, **(classifier or {})},
            vectors={**self.vectors, **(vectors or {})},
            language_model=merged(self.language_model, language_model or {}),
            **other,
        )


def _catalogue(*methods: tuple[str, str, Family, dict[str, Any]]) -> dict[str, Method]:
    return {
        id: Method(id, name, family, id.partition("-")[0] if family == "static" else id, settings)
        for id, name, family, settings in methods
    }


CATALOGUE: dict[str, Method] = _catalogue(
    ("elmo-trainable", "ELMo, trainable mix", "elmo", {"mix": "trainable"}),
    ("elmo-frozen", "ELMo, frozen mix", "elmo", {"mix": "frozen"}),
    ("elmo-function", "ELMo, learned function", "elmo", {"mix": "function"}),
    ("elmo-linear", "ELMo + LR", "elmo", {"head": "linear"}),
    ("elmo-finetuned", "ELMo, fine-tuned", "elmo", {"finetune": True, "mix_form": "softmax"}),
    ("sgns", "Skip-gram", "static", {"mix": "frozen"}),
    ("cbow", "CBOW", "static", {"mix": "frozen"}),
    ("svd", "SVD", "static", {"mix": "frozen"}),
    ("sgns-function", "Skip-gram, learned function", "static", {"mix": "function"}),
    ("sgns-linear", "Skip-gram + LR", "static", {"head": "linear"}),
    ("tfidf-svm", "TF-IDF + SVM", "linear", {}),
    ("tfidf-lr", "TF-IDF + LR", "linear", {}),
    ("fasttext", "fastText", "linear", {}),
)
"""What can be compared, by id."""
_FAMILIES: tuple[Family, ...] = ("elmo", "static", "linear")


@dataclass(frozen=True)
class Plan:
    """All that a comparison is to do.

    Attributes:
        recipe: the name it started from.
        methods: in the order in which they are run.
        seeds: of every method that has any chance in it.
        counts: label counts of the learning curve; empty for none.
        draws: how often each count is drawn.
        curve: ids of the methods in the learning curve.
        left_out: what did not fit, in sentences.
    """

    recipe: str
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    counts: tuple[int, ...] = ()
    draws: int = 5
    curve: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def method(self, id: str) -> Method:
        """The method with this id."""
        return next(method for method in self.methods if method.id == id)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        """The inverse of ``to_dict``."""
        methods = tuple(
            Method(**{**method, "published": tuple(method["published"])}) for method in values["methods"]
        )
        lists = {name: tuple(values[name]) for name in ("seeds", "counts", "curve", "left_out")}
        return cls(values["recipe"], methods, draws=int(values["draws"]), **lists)


def choose(known: Sequence[Method], wanted: Iterable[str], usual: Iterable[str] = ()) -> list[Method]:
    """The methods asked for, by id or family, in the order of ``known``; of a family all, or those whose
    ids are ``usual``."""
    usual = set(usual)
    ids: set[str] = set()
    by_id = {method.id: method for method in known}
    for name in wanted:
        if name in by_id:
            ids.add(name)
        elif name in _FAMILIES:
            family = {method.id for method in known if method.family == name}
            ids |= (family & usual) or family
        else:
            raise ConfigError(
                f"There is no method {name!r}.",
                remedy=f"{nearest(name, [*by_id, *_FAMILIES])} All: {', '.join([*by_id, *_FAMILIES])}.",
            )
    return [method for method in known if method.id in ids]


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by section with changes on top of them."""
    result = dict(settings)
    for name, value in changes.items():
        before = result.get(name)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        result[name] = {**before, **value} if both else value  # type: ignore[dict-item]
    return result


def source_id(method: Method) -> str:
    """The name of what a method's vectors come from; methods with the same settings share it."""
    settings = method.language_model
    if method.family == "static":
        settings = {"base": method.base, **method.vectors, "text": method.text}
    mark = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=4).hexdigest()
    return f"{'elmo' if method.family == 'elmo' else method.base}-{mark}"
