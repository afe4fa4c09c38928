"""Ready plans: which methods with which settings, how many epochs, and changes from a TOML file."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import PretrainConfig, resolve
from elmokit.comparison.methods import CATALOG, Method, Plan, choose_methods
from elmokit.core.config import read_toml
from elmokit.core.errors import ConfigError, nearest
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import AnyTask
from elmokit.text.settings import TextConfig

# -- settings ---------------------------------------------------------------------------------

_LARGE_MODEL: dict[str, Any] = {
    "preset": "small",
    "text": {"mend": True, "lowercase": True},
    "vocabulary": {"min_count": 3, "max_words": 60_000},
    "model": {"input": "word", "tie": True, "n_samples": 1024},
    "training": {
        "epochs": 0,
        "weight_decay": 0.01,
        "dropout_word": 0.02,
        "dropout_input": 0.1,
        "dropout_layer": 0.15,
        "dropout_output": 0.15,
        "dropout_weight": 0.1,
    },
}
_SMALL_MODEL = {**_LARGE_MODEL, "model": {**_LARGE_MODEL["model"], "dim": 128, "hidden_dim": 128}}
_COURSE_MODEL = {"preset": "classic", "training": {"epochs": 10, "n_lanes": 32}}
_FROZEN = {"mix_norm": True, "dropout_word": 0.0, "lr": 2e-3}
_BILSTM = {"head": "bilstm", "epochs": 3}
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
_COURSE_HEAD = {
    "head": "bilstm",
    "head_dim": 128,
    "epochs": 5,
    "lr": 1e-3,
    "mix_norm": False,
    "ema": 0.0,
    "dropout_head": 0.0,
    "dropout_word": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
}
_PUBLISHED: dict[str, tuple[float, ...]] = {
    "elmo-trainable": (0.91, 0.887),
    "elmo-frozen": (0.883,),
    "elmo-function": (0.90, 0.901),
    "svd": (0.781, 0.860),
    "sgns": (0.864, 0.889),
    "cbow": (0.875,),
}
_COURSE_INPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "elmo-char": ("ELMo from characters, trainable mix", {"input": "char"}),
    "elmo-subword": ("ELMo from subwords, trainable mix", {"input": "subword"}),
    "elmo-morpheme": ("ELMo from morphemes, trainable mix", {"input": "morpheme"}),
    "elmo-deep": ("ELMo, six layers, trainable mix", {"n_layers": 6}),
}


def _with_defaults(method: Method, language_model: dict[str, Any], head: dict[str, Any]) -> Method:
    classifier = {**_FROZEN, **head}
    if method.classifier.get("head") == "linear":
        classifier = {}
    elif method.classifier.get("finetune"):
        classifier = _FINETUNED
    if method.family == "elmo":
        return method.vary(classifier=classifier, language_model=language_model)
    return method.vary(classifier=classifier, vectors={"dim": 300}) if method.family == "static" else method


def _quick() -> Plan:
    """Small models, one pooling head for all: an answer within the hour for 80,000 texts."""
    methods = [_with_defaults(m, _SMALL_MODEL, {}) for m in CATALOG.values() if m.id != "elmo-finetuned"]
    return Plan("quick", tuple(methods), seeds=(0, 1, 2))


def _thorough() -> Plan:
    """A larger language model, the write-ups' biLSTM head, fine-tuning: hours for 80,000 texts."""
    methods = [_with_defaults(method, _LARGE_MODEL, _BILSTM) for method in CATALOG.values()]
    return Plan("thorough", tuple(methods), seeds=(0, 1, 2))


def _write_ups() -> Plan:
    """The systems of the course write-ups with their settings, their figures beside ours."""
    methods = [
        CATALOG[f"elmo-{mix}"].vary(classifier=_COURSE_HEAD, language_model=_COURSE_MODEL)
        for mix in ("trainable", "frozen", "function")
    ]
    deeper = [
        methods[0].vary(id=id, name=name, language_model={"model": model})
        for id, (name, model) in _COURSE_INPUTS.items()
    ]
    for window in (3, 4, 5):
        vectors = {"window": window, "dim": 300, "counts": "raw"}
        svd = CATALOG["svd"].vary(id=f"svd-{window}", name=f"SVD, window {window}")
        methods.append(svd.vary(classifier=_COURSE_HEAD, vectors=vectors))
    for id in ("sgns", "cbow"):
        methods.append(CATALOG[id].vary(classifier=_COURSE_HEAD, vectors={"dim": 300, "epochs": 5}))
    methods = [dataclasses.replace(method, published=_PUBLISHED[method.base]) for method in methods]
    return Plan("write-ups", (*methods, *deeper), seeds=(0,))


RECIPES = {"quick": _quick, "thorough": _thorough, "write-ups": _write_ups}
"""Functions that make a plan, by name."""

# -- epochs -----------------------------------------------------------------------------------


def pretraining_config(method: Method, n_words: int) -> PretrainConfig:
    """Settings of a method's language model; 0 epochs become as many as a text of this size needs."""
    changes = dict(method.language_model)
    preset, training = changes.pop("preset", "small"), dict(changes.pop("training", {}))
    if not training.get("epochs"):
        training["epochs"] = _n_epochs(14_000_000, n_words, 4, 30)
    return resolve(preset, changes, {"training": training})


def vectors_config(method: Method, n_words: int) -> SvdConfig | Word2VecConfig:
    """Settings of a method's word vectors."""
    if method.base == "svd":
        return SvdConfig.from_dict(method.vectors)
    epochs = _n_epochs(10_000_000, n_words, 5, 60)
    return Word2VecConfig.from_dict({"workers": 1, "epochs": epochs, **method.vectors})


def fitting_config(method: Method, seed: int, n_words: int) -> ClassifierConfig:
    """Settings of a method's fit; for ``n_words`` = 0, a few labels, the number of epochs is left open."""
    config = ClassifierConfig.from_flat(**{**method.classifier, "seed": seed})
    if not n_words or config.fit.epochs:
        return config
    epochs = _n_epochs(250, max(1, n_words // config.fit.batch_words), 3, 25)
    return dataclasses.replace(config, fit=dataclasses.replace(config.fit, epochs=epochs))


def _n_epochs(goal: int, size: int, fewest: int, most: int) -> int:
    """Epochs in which at least ``goal`` words or steps are read, within bounds."""
    return min(most, max(fewest, -(-goal // max(1, size))))


# -- plans ------------------------------------------------------------------------------------


def make_plan(
    recipe: str = "quick",
    *,
    methods: str | Sequence[str] = (),
    seeds: int = 0,
    config: str | Path | Mapping[str, Any] = "",
    curve: str | Sequence[int] = (),
    draws: int = 5,
    curve_methods: str | Sequence[str] = (),
) -> Plan:
    """A recipe's plan with changes.

    Args:
        recipe: "quick", "thorough" or "write-ups".
        methods: Ids or families, as a list or separated by commas; all of the recipe's unless given.
        seeds: How many; as many as the recipe has unless given.
        config: A TOML file, or what ``read_plan_toml`` reads from one.
        curve: Label counts of a learning curve.
        draws: How often each is drawn.
        curve_methods: The methods in it; unless given, ELMo and skip-gram with the linear head, ELMo with
            the trainable mix and the SVM, if they are among the methods.
    """
    if recipe not in RECIPES:
        raise ConfigError(f"There is no recipe {recipe!r}.", remedy=nearest(recipe, RECIPES))
    plan = RECIPES[recipe]()
    changes = config if isinstance(config, Mapping) else read_plan_toml(Path(config)) if config else {}
    known = _vary_methods(plan.methods, changes)
    wanted = _split(methods) or list(changes.get("methods", []))
    own = {method.id for method in plan.methods}
    usual = [method.id for method in known if method.id in own or method.id not in CATALOG]
    chosen = choose_methods(known, wanted or usual, usual)
    for method in chosen:
        _check_settings(method)
    missing = {method.id: package for method in chosen if (package := _missing_package(method))}
    missing = {id: package for id, package in missing.items() if id not in wanted}
    chosen = with_text([method for method in chosen if method.id not in missing], _text_config(chosen))
    in_curve = choose_methods(chosen, _split(curve_methods)) if curve_methods else _usual_curve(chosen)
    counts = _parse_counts(curve)
    return dataclasses.replace(
        plan,
        methods=tuple(chosen),
        seeds=tuple(range(seeds or int(changes.get("seeds", 0)) or len(plan.seeds))),
        counts=tuple(sorted(set(counts))),
        draws=draws,
        curve=tuple(method.id for method in in_curve) if counts else (),
        left_out=tuple(
            f"{id} is left out: the package {package} is missing." for id, package in missing.items()
        ),
    )


def _split(names: str | Sequence[str]) -> list[str]:
    return (
        [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    )


def _parse_counts(curve: str | Sequence[int]) -> list[int]:
    try:
        counts = [int(part) for part in _split(curve)] if isinstance(curve, str) else list(curve)
    except ValueError:
        counts = [0]
    if any(count < 2 for count in counts):
        raise ConfigError(
            f"--curve {curve} is not a list of numbers of at least 2.", remedy="Write it as in 100,300,1000."
        )
    return counts


def plan_for_task(plan: Plan, task: AnyTask) -> Plan:
    """The plan without methods that cannot do a task, and with a head that the task has."""
    able = [method for method in plan.methods if method.can_do(task)]
    if not able:
        raise ConfigError(
            f"None of the methods can do the task {task.name!r}.", remedy="Choose others: --methods elmo."
        )
    methods = [
        method.vary(classifier={"head": "auto"})
        if method.classifier.get("head", "auto") not in ("auto", *task.heads)
        else method
        for method in able
    ]
    left_out = [
        f"{m.id} is left out: it cannot do the task {task.name!r}." for m in plan.methods if m not in able
    ]
    curve = tuple(method.id for method in able if method.id in plan.curve)
    return dataclasses.replace(
        plan, methods=tuple(methods), curve=curve, left_out=(*plan.left_out, *left_out)
    )


def _missing_package(method: Method) -> str:
    """The package that a method needs and that is not installed; "" if there is none."""
    needs = method.language_model.get("model", {}).get("input") == "morpheme"
    return "morfessor" if needs and importlib.util.find_spec("morfessor") is None else ""


def _usual_curve(methods: Sequence[Method]) -> list[Method]:
    """The best-known of each family: few rows of labels are fitted many times."""
    order = ("elmo-linear", "elmo-trainable", "sgns-linear", "tfidf-svm")
    return [method for id in order for method in methods if method.id == id] or list(methods[:3])


def _vary_methods(methods: Sequence[Method], changes: Mapping[str, Any]) -> list[Method]:
    """A recipe's methods and the rest of the catalog with a file's settings, and new variants of them."""
    sample = next(method for method in methods if method.family == "elmo")
    head = {name: value for name, value in sample.classifier.items() if name not in ("mix", "mix_form")}
    known = {method.id: method for method in methods}
    for id, method in CATALOG.items():
        known.setdefault(id, _with_defaults(method, sample.language_model, head))
    for id, method in known.items():
        if method.family == "elmo":
            method = method.vary(language_model=changes.get("language_model"))
        if method.family != "linear":
            fixed = _HEAD_SETTINGS if method.classifier.get("head") == "linear" else ()  # its name says so
            common = changes.get("classifier", {}).items()
            method = method.vary(classifier={name: value for name, value in common if name not in fixed})
        known[id] = method
    for id, settings in changes.get("method", {}).items():
        like = settings.get("like", id)
        if like not in known:
            raise ConfigError(
                f"The method {id!r} is like {like!r}, which does not exist.", remedy=nearest(like, known)
            )
        names = {"name": known[like].name if like == id else id, **settings, "id": id}
        known[id] = known[like].vary(**{key: value for key, value in names.items() if key != "like"})
    return list(known.values())


def _text_config(methods: Sequence[Method]) -> TextConfig:
    """How the first language model cleans text, so that static vectors see the same words."""
    model = next((method.language_model for method in methods if method.family == "elmo"), _LARGE_MODEL)
    return resolve(model.get("preset", "small"), {"text": model.get("text", {})}).text


def with_text(methods: Sequence[Method], text: TextConfig) -> list[Method]:
    """The methods; static vectors clean text like this."""
    return [
        dataclasses.replace(method, text=text.to_dict()) if method.family == "static" else method
        for method in methods
    ]


# -- TOML -------------------------------------------------------------------------------------

_FILE = {"seeds": int, "methods": list, "classifier": dict, "language_model": dict, "method": dict}
_METHOD = {"like": str, "name": str, "classifier": dict, "vectors": dict, "language_model": dict}
_TYPE_NAMES = {int: "a number", str: "text", list: 'a list, as in ["elmo", "svd"]', dict: "a section"}
_FOREIGN = {
    "elmo": ("vectors",),
    "static": ("language_model",),
    "linear": ("classifier", "vectors", "language_model"),
}
_HEAD_SETTINGS = ("head", "mix", "mix_form", "finetune")


def _check_settings(method: Method) -> None:
    """Refuse settings that make no sense, before anything is trained."""
    try:
        if not re.fullmatch(r"\w[\w.-]*", method.id):
            raise ConfigError(
                f"{method.id!r} cannot be the name of a method.",
                remedy="Use letters, digits, dots and hyphens.",
            )
        for section in _FOREIGN[method.family]:
            if getattr(method, section):
                raise ConfigError(
                    f"methods of the family {method.family} have no {section}.", remedy="Leave it out."
                )
        if "seed" in method.classifier:
            raise ConfigError("a method has no seed of its own.", remedy="Set how many: seeds = 3.")
        if method.family != "linear":
            config = fitting_config(method, 0, 0)
            if config.head.head == "linear" and (config.fit.finetune or config.mix.mix == "function"):
                raise ConfigError(
                    "the linear head supports neither finetune nor the function mix.",
                    remedy="Use the head pool or bilstm.",
                )
        if method.family == "static":
            vectors_config(method, 1)
        if method.family == "elmo":
            for name, section in method.language_model.items():
                if name != "preset" and not isinstance(section, Mapping):
                    raise ConfigError(f"language_model.{name} must be a section.")
            pretraining_config(method, 1)
    except ConfigError as error:
        raise ConfigError(f"Method {method.id}: {error.message}", remedy=error.remedy) from error


def read_plan_toml(path: Path) -> dict[str, Any]:
    """Changes to a recipe from a TOML file, checked by name and type."""
    values = read_toml(path)
    _check_table(f"{path}:", values, _FILE)
    if values.get("seeds", 1) < 1:
        raise ConfigError(f"{path}: seeds must be at least 1.")
    for id, settings in values.get("method", {}).items():
        _check_table(f"{path}, [method]:", {id: settings}, {id: dict})
        _check_table(f"{path}, [method.{id}]:", settings, _METHOD)
    return values


def _check_table(place: str, values: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, value in values.items():
        if name not in types:
            raise ConfigError(f"{place} there is no setting {name!r}.", remedy=nearest(name, types))
        if not isinstance(value, types[name]):
            raise ConfigError(f"{place} {name} must be {_TYPE_NAMES[types[name]]}.")
