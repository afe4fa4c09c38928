"""Ready plans: which methods, with which settings; and how a TOML file or a flag changes them."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import resolve
from elmokit.comparison.methods import CATALOGUE, Method, Plan, choose
from elmokit.core.errors import ConfigError, nearest
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.tasks.settings import ClassifierConfig
from elmokit.text.settings import TextConfig

__all__ = ["RECIPES", "make_plan", "read_plan_toml"]

_WORD_MODEL: dict[str, Any] = {
    "preset": "small",
    "text": {"mend": True, "lowercase": True},
    "vocabulary": {"min_count": 3, "max_words": 60_000},
    "model": {"input": "word", "tie": True, "n_samples": 1024},
    "training": {
        "weight_decay": 0.01,
        "dropout_word": 0.02,
        "dropout_input": 0.1,
        "dropout_layer": 0.15,
        "dropout_output": 0.15,
        "dropout_weight": 0.1,
    },
}
_FROZEN = {"mix_norm": True, "dropout_word": 0.0, "lr": 2e-3}
_FINETUNED = {
    "epochs": 3,
    "lr": 1e-3,
    "encoder_lr": 1e-3,
    "dropout_word": 0.1,
    "dropout_layer": 0.2,
    "dropout_weight": 0.1,
    "dropout_head": 0.3,
    "label_smoothing": 0.05,
    "ema": 0.999,
}
_WRITTEN: dict[str, tuple[float, ...]] = {
    "elmo-trainable": (0.91, 0.887),
    "elmo-frozen": (0.883,),
    "elmo-function": (0.90, 0.901),
    "svd": (0.781, 0.860),
    "sgns": (0.864, 0.889),
    "cbow": (0.875,),
}


def _with_defaults(method: Method, language_model: dict[str, Any], head: dict[str, Any]) -> Method:
    if method.family == "elmo":
        own = _FINETUNED if method.classifier.get("finetune") else {**_FROZEN, **head}
        own = {} if method.classifier.get("head") == "linear" else own
        return method.changed(classifier=own, language_model=language_model)
    if method.family == "static":
        own = {} if method.classifier.get("head") == "linear" else {**_FROZEN, **head}
        return method.changed(classifier=own, vectors={"dim": 300})
    return method


def _quick() -> Plan:
    """Small models, one pooling head for all: an answer within the hour for 80,000 texts."""
    model = {
        **_WORD_MODEL,
        "model": {**_WORD_MODEL["model"], "dim": 128, "hidden_dim": 128},
        "training": {**_WORD_MODEL["training"], "epochs": 0},
    }
    methods = [_with_defaults(m, model, {}) for m in CATALOGUE.values() if m.id != "elmo-finetuned"]
    return Plan("quick", tuple(methods), seeds=(0, 1, 2))


def _thorough() -> Plan:
    """A larger language model, the write-ups' biLSTM head, fine-tuning: hours for 80,000 texts."""
    model = {**_WORD_MODEL, "training": {**_WORD_MODEL["training"], "epochs": 0}}
    head = {"head": "bilstm", "epochs": 3}
    methods = [_with_defaults(method, model, head) for method in CATALOGUE.values()]
    return Plan("thorough", tuple(methods), seeds=(0, 1, 2))


def _write_ups() -> Plan:
    """The systems of the course write-ups with their settings, their figures beside ours."""
    word: dict[str, Any] = {"preset": "classic", "training": {"epochs": 10, "n_lanes": 32}}
    head: dict[str, Any] = {
        "head": "bilstm",
        "head_dim": 128,
        "epochs": 5,
        "lr": 1e-3,
        "mix_norm": False,
        "ema": 0.0,
    }
    head |= {"dropout_head": 0.0, "dropout_word": 0.0, "schedule": "constant", "warmup": 0.0}
    mixes = [
        CATALOGUE[f"elmo-{mix}"].changed(classifier=head, language_model=word)
        for mix in ("trainable", "frozen", "function")
    ]
    trainable = mixes[0]
    variants: list[tuple[str, str, dict[str, Any]]] = [
        ("elmo-char", "ELMo from characters", {"model": {"input": "char"}}),
        ("elmo-subword", "ELMo from subwords", {"model": {"input": "subword"}}),
        ("elmo-morpheme", "ELMo from morphemes", {"model": {"input": "morpheme"}}),
        ("elmo-deep", "ELMo, six layers", {"model": {"n_layers": 6}}),
    ]
    deeper = [
        trainable.changed(id=id, name=f"{name}, trainable mix", language_model=changes)
        for id, name, changes in variants
    ]
    statics = [
        CATALOGUE["svd"].changed(
            id=f"svd-{window}",
            name=f"SVD, window {window}",
            classifier=head,
            vectors={"window": window, "dim": 300, "counts": "raw"},
        )
        for window in (3, 4, 5)
    ]
    statics += [
        CATALOGUE[id].changed(classifier=head, vectors={"dim": 300, "epochs": 5}) for id in ("sgns", "cbow")
    ]
    methods = [
        dataclasses.replace(method, published=_WRITTEN.get(method.id, _WRITTEN.get(method.base, ())))
        for method in [*mixes, *statics]
    ]
    return Plan("write-ups", (*methods, *deeper), seeds=(0,))


RECIPES = {"quick": _quick, "thorough": _thorough, "write-ups": _write_ups}
"""Functions that give a plan, by name."""


def make_plan(
    recipe: str = "quick",
    *,
    methods: Sequence[str] = (),
    n_seeds: int = 0,
    changes: Mapping[str, Any] | None = None,
    counts: Sequence[int] = (),
    draws: int = 5,
    curve: Sequence[str] = (),
) -> Plan:
    """A recipe's plan with what was asked for laid over it.

    Args:
        recipe: "quick", "thorough" or "write-ups".
        methods: ids or families; all of the recipe's unless given.
        n_seeds: how many; as the recipe says unless given.
        changes: what ``read_plan_toml`` gave.
        counts: label counts of a learning curve.
        draws: how often each is drawn.
        curve: the methods in it; unless given, ELMo and skip-gram with the linear head, ELMo with the
            trainable mix and the SVM, as far as they are among the methods.
    """
    if recipe not in RECIPES:
        raise ConfigError(f"There is no recipe {recipe!r}.", remedy=nearest(recipe, RECIPES))
    plan = RECIPES[recipe]()
    changes = changes or {}
    known = _varied(plan.methods, changes)
    wanted = list(methods) or list(changes.get("methods", []))
    usual = [method.id for method in known if method.id not in _unasked(plan, known)]
    chosen = choose(known, wanted or usual, usual)
    for method in chosen:
        check_settings(method)
    missing = {method.id: package for method in chosen if (package := _missing(method))}
    asked = {method.id for method in chosen} & set(wanted)
    chosen = [method for method in chosen if method.id not in missing or method.id in asked]
    n_seeds = n_seeds or int(changes.get("seeds", 0)) or len(plan.seeds)
    chosen = with_text(chosen, _text_of(chosen))
    in_curve = choose(chosen, curve) if curve else _usual_curve(chosen)
    return dataclasses.replace(
        plan,
        methods=tuple(chosen),
        seeds=tuple(range(n_seeds)),
        counts=tuple(sorted(set(counts))),
        draws=draws,
        curve=tuple(method.id for method in in_curve) if counts else (),
        left_out=tuple(
            f"{id} is left out: the package {package} is not there."
            for id, package in missing.items()
            if id not in asked
        ),
    )


def _missing(method: Method) -> str:
    """The package that a method needs and that is not there; "" if nothing is missing."""
    needed = {"fasttext": "fasttext"}.get(method.base, "")
    if method.language_model.get("model", {}).get("input") == "morpheme":
        needed = "morfessor"
    return needed if needed and importlib.util.find_spec(needed) is None else ""


def _unasked(plan: Plan, known: Sequence[Method]) -> set[str]:
    """Methods of the catalogue that a recipe does not run unless they are named."""
    own = {method.id for method in plan.methods}
    return {method.id for method in known if method.id not in own and method.id in CATALOGUE}


def _usual_curve(methods: Sequence[Method]) -> list[Method]:
    """The best-known of each family: few rows of labels are fitted many times."""
    order = ("elmo-linear", "elmo-trainable", "sgns-linear", "tfidf-svm")
    found = [method for id in order for method in methods if method.id == id]
    return found or list(methods[:3])


def _varied(methods: Sequence[Method], changes: Mapping[str, Any]) -> list[Method]:
    """A recipe's methods with a file's settings, those of the catalogue, and new variants of them."""
    known = {method.id: method for method in methods}
    sample = next(m for m in methods if m.family == "elmo")
    for id, method in CATALOGUE.items():
        if id not in known:
            head = {key: value for key, value in sample.classifier.items() if key not in ("mix", "mix_form")}
            known[id] = _with_defaults(method, sample.language_model, head)
    for id, method in known.items():
        if method.family == "elmo":
            known[id] = method = method.changed(language_model=changes.get("language_model"))
        fixed = method.classifier.get("head") == "linear"  # its name says so
        given = {k: v for k, v in changes.get("classifier", {}).items() if not (fixed and k in _OF_TRAINING)}
        if method.family != "linear":
            known[id] = method.changed(classifier=given)
    for id, settings in changes.get("method", {}).items():
        settings = dict(settings)
        like = settings.pop("like", id)
        if like not in known:
            raise ConfigError(
                f"The method {id!r} is like {like!r}, which there is not.", remedy=nearest(like, known)
            )
        name = settings.pop("name", known[like].name if like == id else id)
        known[id] = known[like].changed(**settings, id=id, name=name)
    return list(known.values())


def _text_of(methods: Sequence[Method]) -> TextConfig:
    """How the first language model cleans text; static vectors are to see the same words."""
    method = next((method for method in methods if method.family == "elmo"), None)
    settings = method.language_model if method is not None else _WORD_MODEL
    return resolve(settings.get("preset", "small"), {"text": settings.get("text", {})}).text


def with_text(methods: Sequence[Method], text: TextConfig) -> list[Method]:
    """The methods, those with static vectors cleaning text like this."""
    return [
        dataclasses.replace(method, text=text.to_dict()) if method.family == "static" else method
        for method in methods
    ]


def check_settings(method: Method) -> None:
    """Refuse settings that mean nothing, before anything is trained."""
    try:
        if not re.fullmatch(r"\w[\w.-]*", method.id):
            raise ConfigError(
                f"{method.id!r} is no name for a method.", remedy="Use letters, digits, dots and hyphens."
            )
        for section in _FOREIGN[method.family]:
            if getattr(method, section):
                raise ConfigError(
                    f"{section} means nothing for it: it is of the family {method.family}.",
                    remedy="Leave that section out.",
                )
        if method.family != "linear":
            if "seed" in method.classifier:
                raise ConfigError("seed is not set for a method.", remedy="Say how many: seeds = 3.")
            config = ClassifierConfig.from_flat(**method.classifier)
            if config.head.head == "linear" and (config.fit.finetune or config.mix.mix == "function"):
                raise ConfigError(
                    "the linear head is solved, not trained: no finetune and no function mix goes with it.",
                    remedy="Choose the head pool or bilstm.",
                )
        if method.family == "static":
            (SvdConfig if method.base == "svd" else Word2VecConfig).from_dict(method.vectors)
        if method.family == "elmo":
            model = dict(method.language_model)
            for name, section in model.items():
                if name != "preset" and not isinstance(section, dict):
                    raise ConfigError(f"language_model.{name} must be a section.")
            training = dict(model.pop("training", {}))
            if training.get("epochs") == 0:
                del training["epochs"]
            resolve(model.pop("preset", "small"), model, {"training": training})
    except ConfigError as error:
        raise ConfigError(f"Method {method.id}: {error.message}", remedy=error.remedy) from error


_SECTIONS = ("seeds", "methods", "classifier", "language_model", "method")
_FOREIGN = {
    "elmo": ("vectors",),
    "static": ("language_model",),
    "linear": ("classifier", "vectors", "language_model"),
}
_OF_TRAINING = ("head", "mix", "mix_form", "finetune")
_OF_A_METHOD = ("like", "name", "classifier", "vectors", "language_model")


def read_plan_toml(path: Path) -> dict[str, Any]:
    """Changes to a recipe from a TOML file: ``seeds``, ``methods``, [classifier], [language_model] and
    [method.ID] with ``like``, ``name``, [.classifier], [.vectors] and [.language_model]."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read settings from {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    for name, value in values.items():
        if name not in _SECTIONS:
            raise ConfigError(
                f"{path} has {name!r}, which means nothing here.", remedy=nearest(name, _SECTIONS)
            )
        if name in ("classifier", "language_model", "method") and not isinstance(value, dict):
            raise ConfigError(f"{name} in {path} must be a section: [{name}].")
    if not isinstance(values.get("seeds", 1), int) or values.get("seeds", 1) < 1:
        raise ConfigError(f"{path}: seeds must be a number of at least 1.")
    methods = values.get("methods", [])
    if not isinstance(methods, list) or not all(isinstance(name, str) for name in methods):
        raise ConfigError(f'{path}: methods must be a list of names, as in ["elmo", "svd"].')
    for id, settings in values.get("method", {}).items():
        if not isinstance(settings, dict):
            raise ConfigError(f"method.{id} in {path} must be a section: [method.{id}].")
        for name, value in settings.items():
            if name not in _OF_A_METHOD:
                raise ConfigError(
                    f"{path}: [method.{id}] has {name!r}, which means nothing there.",
                    remedy=nearest(name, _OF_A_METHOD),
                )
            if not isinstance(value, str if name in ("like", "name") else dict):
                kind = "text" if name in ("like", "name") else f"a section: [method.{id}.{name}]"
                raise ConfigError(f"{path}: {name} of the method {id!r} must be {kind}.")
    return values
