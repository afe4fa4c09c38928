"""Plans: a recipe, changes to it from a TOML file, and how many epochs the size of the text asks for."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.bilm.settings import PretrainConfig, resolve
from elmokit.comparison.methods import Method, Plan, catalog, choose_methods
from elmokit.core.config import read_toml
from elmokit.core.errors import ConfigError, MissingExtraError, nearest
from elmokit.core.formatting import join_names
from elmokit.static.settings import SvdConfig, Word2VecConfig
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import AnyTask
from elmokit.text.settings import TextConfig

_RECIPES = Path(__file__).with_name("recipes.toml")
_CURVE = ("elmo-linear", "elmo-trainable", "sgns-linear", "tfidf-svm")  # the usual methods of a curve
_LINEAR_HEAD = ("head", "mix", "mix_form", "finetune")  # settings that would make it another head
_EXTRAS = {"gensim": "static", "morfessor": "morpheme"}  # by the package that a method may need
_FOREIGN = {
    "elmo": ("vectors",),
    "static": ("language_model",),
    "foreign": ("classifier", "language_model"),
    "linear": ("classifier", "vectors", "language_model"),
}


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
        methods: Ids, families or foreign encoders, as a list or separated by commas; all of the recipe's
            unless given.
        config: A TOML file, or what it would hold.
        curve: Label counts of a learning curve, each drawn ``draws`` times.
        curve_methods: The methods in it; unless given, ELMo and skip-gram with the linear head, ELMo with
            the trainable mix and the SVM, if they are among the methods.
    """
    recipes = read_toml(_RECIPES)
    if recipe not in recipes:
        raise ConfigError(f"There is no recipe {recipe!r}.", remedy=nearest(recipe, recipes))
    base = recipes[recipe]
    changes = config if isinstance(config, Mapping) else _read_changes(Path(config)) if config else {}
    varied = _vary_methods(_vary_methods(catalog(), base), changes)
    names, counts = _split(methods) or changes.get("methods", []), _parse_counts(curve)
    known = [varied[id] for id in dict.fromkeys([*base["methods"], *varied])]
    usual = [method.id for method in known if method.id in base["methods"] or method.id not in catalog()]
    requested = choose_methods([*known, *_foreign_methods(names)], names or usual, usual)
    model = next((method for method in requested if method.family == "elmo"), varied["elmo-trainable"])
    for method in (*requested, model):
        _check_settings(method)
    chosen, left_out = _leave_out(requested)
    in_curve = [method for method in chosen if method.id in _CURVE or method.family == "foreign"]
    if listed := _split(curve_methods):
        in_curve = [method for method in choose_methods(requested, listed) if method in chosen]
    return Plan(
        recipe,
        tuple(with_text(chosen, pretraining_config(model, 1).text)),
        seeds=tuple(range(seeds or changes.get("seeds") or base["seeds"])),
        counts=counts,
        draws=draws,
        curve=tuple(method.id for method in in_curve or chosen[:3]) if counts else (),
        left_out=tuple(left_out),
    )


def _leave_out(methods: list[Method]) -> tuple[list[Method], list[str]]:
    """The methods whose packages are installed, and a sentence on the others for each package."""
    sentences = []
    for package, extra in _EXTRAS.items():
        if importlib.util.find_spec(package) is None:
            lacking = [method for method in methods if _package(method) == package]
            methods = [method for method in methods if method not in lacking]
            if lacking and not methods:
                raise MissingExtraError(package, extra, f"The method {lacking[0].id}")
            if lacking:
                names = f"{join_names(m.id for m in lacking)} {'is' if len(lacking) == 1 else 'are'} left out"
                remedy = f"Install it with: pip install 'elmokit[{extra}]'"
                sentences.append(f"{names}: the package {package} is missing. {remedy}")
    return methods, sentences


def _package(method: Method) -> str:
    """The optional package that a method needs, or ""."""
    if method.base in ("sgns", "cbow"):
        return "gensim"
    return "morfessor" if pretraining_config(method, 1).model.input == "morpheme" else ""


def _foreign_methods(names: Iterable[str]) -> list[Method]:
    """A method for each foreign encoder among some names."""
    from elmokit.vectors.foreign import ForeignName

    methods = list[Method]()
    for name in dict.fromkeys(names):
        if (foreign := ForeignName.parse(name)) is not None:
            id = re.sub(r"[^\w.-]+", "-", f"{foreign.prefix}-{foreign.label}")
            id += f"-{len(methods)}" if any(method.id == id for method in methods) else ""
            title, vectors = f"{foreign.label} ({foreign.prefix}) + LR", {"fingerprint": foreign.fingerprint}
            methods.append(Method(id, title, "foreign", name, vectors=vectors))
    return methods


def plan_for_task(plan: Plan, task: AnyTask) -> Plan:
    """The plan without methods that cannot do a task, with a head and the settings that suit it."""
    methods, left_out = [], list(plan.left_out)
    usual = _vary_methods(catalog(), read_toml(_RECIPES)[plan.recipe])
    for method in plan.methods:
        if not method.can_do(task):
            left_out.append(f"{method.id} is left out: it cannot do the task {task.name!r}.")
        else:
            own = usual[method.id].classifier if method.id in usual else {}
            changes = {**task.settings, **({} if task.classifies_texts else {"epochs": 0})}
            for name, value in method.classifier.items():  # what a user has set counts
                if name in changes and value != own.get(name):
                    del changes[name]
            if method.classifier.get("head", "auto") not in ("auto", *task.heads):
                changes["head"] = "auto"
            methods.append(method.vary(classifier=changes) if changes else method)
    if not methods:
        raise ConfigError(
            f"None of the methods can do the task {task.name!r}.", remedy="Choose others: --methods elmo."
        )
    curve = tuple(method.id for method in methods if method.id in plan.curve)
    return dataclasses.replace(plan, methods=tuple(methods), curve=curve, left_out=tuple(left_out))


def with_text(methods: Sequence[Method], text: TextConfig) -> list[Method]:
    """The methods; static vectors clean text like this."""
    return [m.vary(text=text.to_dict()) if m.family == "static" else m for m in methods]


def _split(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return [name for name in names if name]


def _parse_counts(curve: str | Sequence[int]) -> tuple[int, ...]:
    parts = _split(curve) if isinstance(curve, str) else list(map(str, curve))
    if not all(part.isdecimal() and int(part) >= 2 for part in parts):
        message = f"--curve {curve} must be a list of whole numbers, each at least 2."
        raise ConfigError(message, remedy="Write it as 100,300,1000.")
    return tuple(sorted(set(map(int, parts))))


def _vary_methods(methods: Mapping[str, Method], changes: Mapping[str, Any]) -> dict[str, Method]:
    """The methods with the settings of a recipe or file, and its variants of them."""
    varied = dict(methods)
    for id, method in methods.items():
        common = changes.get("classifier", {})
        if method.has_linear_head:
            common = {name: value for name, value in common.items() if name not in _LINEAR_HEAD}
        elif method.family == "linear" or method.is_stack:
            common = {}
        elif not method.classifier.get("finetune"):
            common = {**changes.get("head", {}), **common}
        model = changes.get("language_model", {}) if method.family == "elmo" else {}
        varied[id] = method.vary(classifier=common, language_model=model)
    for id, settings in changes.get("method", {}).items():
        like = settings.get("like", id)
        if like not in varied:
            raise ConfigError(
                f"The method {id!r} is like {like!r}, which does not exist.", remedy=nearest(like, varied)
            )
        fields = {name: value for name, value in settings.items() if name != "like"}
        new = {} if like == id else {"name": id}
        varied[id] = varied[like].vary(**{**new, **fields, "id": id})
    return varied


def _check_settings(method: Method) -> None:
    """Refuse settings that make no sense, before anything is trained."""
    foreign = [section for section in _FOREIGN[method.family] if getattr(method, section)]
    try:
        if not re.fullmatch(r"\w[\w.-]*", method.id):
            raise ConfigError("this name is not allowed.", remedy="Use letters, digits, dots and hyphens.")
        if foreign:
            raise ConfigError(f"the family {method.family} has no {foreign[0]}.", remedy="Leave it out.")
        if "seed" in method.classifier:
            raise ConfigError("a method has no seed of its own.", remedy="Set their number: seeds = 3.")
        for name, section in method.language_model.items():
            if name != "preset" and not isinstance(section, Mapping):
                raise ConfigError(f"language_model.{name} must be a section.")
        fitting_config(method, 0, 0)
        pretraining_config(method, 1)
        if method.family == "static":
            vectors_config(method, 1)
    except ConfigError as error:
        raise ConfigError(f"Method {method.id}: {error.message}", remedy=error.remedy) from error


_FILE = {"seeds": int, "methods": list, "classifier": dict, "language_model": dict, "method": dict}
_METHOD = {"like": str, "name": str, "classifier": dict, "vectors": dict, "language_model": dict}
_TYPE_NAMES = {int: "a number", str: "text", list: 'a list, as in ["elmo", "svd"]', dict: "a section"}


def _read_changes(path: Path) -> dict[str, Any]:
    """Changes to a recipe from a TOML file, checked by name and type."""
    values = read_toml(path)
    _check_table(f"{path}:", values, _FILE)
    if values.get("seeds", 1) < 1:
        raise ConfigError(f"{path}: seeds must be at least 1.")
    methods = values.get("method", {})
    _check_table(f"{path}, [method]:", methods, dict.fromkeys(methods, dict))
    for id, settings in methods.items():
        _check_table(f"{path}, [method.{id}]:", settings, _METHOD)
    return values


def _check_table(place: str, values: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, value in values.items():
        if name not in types:
            raise ConfigError(f"{place} there is no setting {name!r}.", remedy=nearest(name, types))
        if not isinstance(value, types[name]):
            raise ConfigError(f"{place} {name} must be {_TYPE_NAMES[types[name]]}.")
