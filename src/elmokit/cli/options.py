"""What verbs share: arguments, flags, and settings as flags."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from elmokit.core.config import Config, duration, read_toml
from elmokit.core.console import Reporter as Reporter
from elmokit.core.errors import ConfigError, nearest
from elmokit.core.names import MODELS, resolve_name
from elmokit.text.settings import PIPELINES, LabelConfig, ReadConfig, TextConfig

Command = Callable[..., None]
Settings = dict[str, Any]
"""The settings that were given, by name, as the verbs of the library take them."""


def argument(metavar: str, help: str, **options: Any) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **options)


def flag(help: str, *names: str, **options: Any) -> Any:
    """A flag without a default to show; it is named after its parameter unless ``names`` are given."""
    return typer.Option(*names, help=help, show_default=False, **options)


ROWS = "Labeled rows: .csv .tsv .jsonl .json .parquet .conll .conllu."
_TEXTS = "Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for standard input."
_MODEL = "A bundled model, a model folder, or published ELMo files."
_THREADS = "Processor threads to use; by default, one per core."
_OVERWRITE = "Replace earlier results in the output folder, or the output file."
Model = Annotated[Path, argument("MODEL", _MODEL, parser=resolve_name)]
Texts = Annotated[list[str], argument("TEXT...", _TEXTS)]
Out = Annotated[Path, flag("Output folder.", "--out", "-o", metavar="FOLDER")]
Json = Annotated[bool, flag("Print the result as JSON.", "--json")]
_TIME: Any = {"parser": lambda text: duration(str(text)), "metavar": "TIME", "hidden": True}
CheckpointEvery = Annotated[float, flag("Time between checkpoints [dim](default 60s)[/].", **_TIME)]
_ENGINE = "Where to compute: \\[local|ray]; ray: one file per core, on this machine or a cluster."
_ADDRESS = "Address of a Ray cluster (HOST:6379); by default, this machine."
Engine = Annotated[str, flag(_ENGINE, metavar="CHOICE")]
Address = Annotated[str, flag(_ADDRESS, metavar="HOST:PORT")]


def command_line() -> str:
    """The command for the record, without the folders of files."""
    from elmokit.text.tokenizing import replace_surrogates

    name = r"^(?:--[\w-]+=|-\w(?=/))(?:(?:st|m2v|glove|vectors):)?|(?:^|,)(?:st|m2v|glove|vectors):"
    words = [re.sub(rf"({name})?[^,]*/", r"\1", word.rstrip("/")) for word in sys.argv[1:]]
    return replace_surrogates(shlex.join(["elmokit", *words]))


def next_command(*words: str | Path) -> str:
    """A command to type next, escaped for the shell and for rich markup; bundled models go by their names."""
    names = [word.name if isinstance(word, Path) and word.parent == MODELS else str(word) for word in words]
    return escape(shlex.join(["elmokit", *names]))


@dataclass(frozen=True)
class Section:
    """Settings of one kind. Each is a flag; --help shows those in ``shown``, --help-all all of them."""

    name: str
    config: type[Config]
    title: str
    shown: tuple[str, ...] = ()

    def settings(self) -> list[Setting]:
        """Every setting, in order."""
        hints = get_type_hints(self.config)
        fields = dataclasses.fields(self.config)  # type: ignore[arg-type]
        return [Setting(self, field, hints[field.name]) for field in fields]


READ = Section("read", ReadConfig, "Reading files", ("text_columns",))
LABELS = Section("labels", LabelConfig, "Labels", ("label_column", "label_separator"))
TEXT = Section("text", TextConfig, "Cleaning and words")


class Setting:
    """A field of a ``Config`` on the command line."""

    def __init__(self, section: Section, field: dataclasses.Field[Any], hint: Any) -> None:
        self.section, self.name, self.help = section, field.name, str(field.metadata["help"])
        self.types = get_args(hint) or (hint,)  # the choices of a Literal; a type, and that of None
        self.metavar = {int: "INT", float: "NUMBER"}.get(self.types[0], "TEXT")
        if field.metadata["parse"] is duration:
            self.metavar = "TIME"
        if get_origin(hint) is Literal:
            self.metavar = "CHOICE"
            self.help += f" \\[{'|'.join(self.types)}]"
        if field.default not in (None, "") and not isinstance(field.default, bool | tuple):
            self.help += f" [dim](default {field.default})[/]"

    def parameter(self) -> inspect.Parameter:
        """Its flag. All but switches are strings here, because ``Config`` has the better error messages."""
        name = self.name.replace("_", "-")
        options: Any = {
            "rich_help_panel": f"{self.section.title} \\[{self.section.name}]",
            "hidden": self.name not in self.section.shown,
        }
        if bool in self.types:
            return _parameter(self.name, bool, self.help, f"--{name}/--no-{name}", **options)
        return _parameter(self.name, str, self.help, f"--{name}", metavar=self.metavar, **options)

    def parse(self, text: str) -> Any:
        """The value of a string; one that does not fit the type is left for ``Config`` to refuse."""
        if bool in self.types:
            words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            return words.get(text.lower(), text)
        if type(None) in self.types and text.lower() == "none":
            return None
        with contextlib.suppress(ValueError):
            return self.types[0](text) if self.types[0] in (int, float) else text
        return text


def _parameter(name: str, kind: Any, help: str, *flags: str, **options: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind | None, flag(help, *flags, **options)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help_all(context: typer.Context, value: bool) -> None:
    if value:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit()


_CONFIG = _parameter(
    "config", Path, "TOML file with \\[sections] of settings; flags override it.", metavar="FILE"
)
_SET = _parameter(
    "set_", list[str], "Any setting (see --help-all); can be repeated.", "--set", metavar="NAME=VALUE"
)
_HELP_ALL = _parameter(
    "help_all",
    bool,
    "Show this message with all flags and exit.",
    "--help-all",
    is_eager=True,
    callback=_help_all,
)
_PIPELINE = _parameter(
    "pipeline",
    str,
    f"Ready-made cleaning \\[{'|'.join(PIPELINES)}]; single settings override it.",
    metavar="CHOICE",
)


def with_settings(*sections: Section, overwrite: bool = False) -> Callable[[Command], Command]:
    """Add --threads to a command and, if there are ``sections``, their flags, --config, --set and --help-all.

    It gets what was given as ``settings``: flags win over --set, --set over the file, the file over
    --pipeline, which comes with the section TEXT. A section may have a setting ``config`` of its own. Its
    parameter ``reporter`` gets one that suits --json.
    """
    known = {setting.name: setting for section in sections for setting in section.settings()}
    added = [setting.parameter() for setting in known.values()]
    if sections:
        added += [_PIPELINE] if TEXT in sections else []
        added += [_CONFIG] if "config" not in known else []
        added += [_SET, _HELP_ALL]
    if overwrite:
        added.append(_parameter("overwrite", bool, _OVERWRITE, "--overwrite"))
    added.append(_parameter("threads", int, _THREADS, "--threads", metavar="INT", min=1))

    def collect(given: Settings) -> Settings:
        settings: Settings = {}
        if pipeline := given.get("pipeline"):
            if pipeline not in PIPELINES:
                raise ConfigError(f"There is no pipeline {pipeline!r}.", remedy=nearest(pipeline, PIPELINES))
            settings = PIPELINES[pipeline].to_dict()
        if "config" not in known and given["config"]:
            configs = {section.name: section.config for section in sections}
            for part in read_toml(given["config"], configs).values():
                settings |= part
        settings |= dict(_parse_item(item, known) for item in given["set_"] or ())
        settings |= {"overwrite": True} if given.get("overwrite") else {}
        for name, setting in known.items():
            if (value := given[name]) is not None:
                settings[name] = setting.parse(value) if isinstance(value, str) else value
        return settings

    def decorate(command: Command) -> Command:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        filled = {name for name in ("settings", "reporter") if own.pop(name, None)}
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own.values(), *added)]

        def run(**values: Any) -> None:
            given = {one.name: values.pop(one.name) for one in added}
            if threads := given["threads"]:
                os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
                import torch

                torch.set_num_threads(threads)
            if "settings" in filled:
                values["settings"] = collect(given)
            if "reporter" in filled:
                values["reporter"] = Reporter("json" if values.get("as_json") else "auto")
            command(**values)

        run.__doc__, run.__annotations__ = command.__doc__, {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _parse_item(item: str, known: dict[str, Setting]) -> tuple[str, Any]:
    """Name and value of ``lr=0.001`` or ``training.lr=0.001``."""
    path, equals, text = item.partition("=")
    section, _, name = path.strip().replace("-", "_").rpartition(".")
    setting = known.get(name)
    if setting is None or section not in ("", setting.section.name):
        remedy = f"Did you mean '{setting.section.name}.{name}'?" if setting else nearest(name, known)
        raise ConfigError(f"There is no setting {path!r}.", remedy=remedy)
    if not equals:
        raise ConfigError(f"--set {item} has no value.", remedy=f"Write --set {item}=VALUE.")
    return name, setting.parse(text.strip())
