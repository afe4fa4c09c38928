"""What verbs share: arguments, flags, settings as flags, and how results are printed."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import shlex
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from elmokit.core.config import Config, read_toml
from elmokit.core.errors import ConfigError, nearest
from elmokit.core.names import resolve_name
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


FILES = "Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for standard input."
ROWS = "Labeled rows: .csv .tsv .jsonl .parquet."
Model = Annotated[
    Path,
    argument("MODEL", "A bundled model, a model folder, or published ELMo files.", parser=resolve_name),
]
Texts = Annotated[list[str], argument("TEXT...", FILES)]
Out = Annotated[Path, flag("Folder to write.", "--out", "-o")]
Json = Annotated[bool, flag("Print JSON, for programs.", "--json")]
CheckpointEvery = Annotated[str, typer.Option(help="Time between checkpoints.")]


def command_line() -> str:
    """The command for the record, without the folders of files."""
    from elmokit.text.tokenizing import replace_surrogates

    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return replace_surrogates(shlex.join(["elmokit", *words]))


def next_command(*words: str | Path) -> str:
    """A command to type next, escaped for the shell and for rich markup."""
    from rich.markup import escape

    return escape(shlex.join(["elmokit", *map(str, words)]))


def print_json(value: Any) -> None:
    """Print one JSON object on standard output."""
    import json

    typer.echo(json.dumps(value, ensure_ascii=False))


@dataclass(frozen=True)
class Section:
    """Settings of one kind: ``shown`` ones have a flag of their own, the others need --set or --config."""

    name: str
    config: type[Config]
    title: str
    shown: tuple[str, ...] = ()

    def settings(self) -> list[_Setting]:
        """Every setting, in order."""
        hints = get_type_hints(self.config)
        fields = dataclasses.fields(self.config)  # type: ignore[arg-type]
        return [_Setting(self, field, hints[field.name]) for field in fields]


READ = Section("read", ReadConfig, "Reading files", ("text_columns", "encoding"))
LABELS = Section("labels", LabelConfig, "Labels", ("label_column", "label_separator"))
TEXT = Section("text", TextConfig, "Cleaning and words")


class _Setting:
    def __init__(self, section: Section, field: dataclasses.Field[Any], hint: Any) -> None:
        self.section, self.name = section, field.name
        self.is_optional = get_origin(hint) in (Union, types.UnionType)
        self.type = next(one for one in get_args(hint) if one is not type(None)) if self.is_optional else hint
        self.choices = get_args(hint) if get_origin(hint) is Literal else ()
        self.help = str(field.metadata["help"])
        if self.choices:
            self.help += f" \\[{'|'.join(map(str, self.choices))}]"
        if field.default not in (None, "") and not isinstance(field.default, bool | tuple):
            self.help += f" [dim](default {field.default})[/]"

    def parameter(self) -> inspect.Parameter:
        """Its flag. All but switches are strings here, because ``Config`` has the better error messages."""
        name, panel = f"--{self.name.replace('_', '-')}", self.section.title
        if self.type is bool:
            switch = flag(self.help, f"{name}/--no-{name[2:]}", rich_help_panel=panel)
            return _parameter(self.name, bool, switch)
        numbers = {int: "INT", float: "NUMBER"}
        metavar = "CHOICE" if self.choices else numbers.get(self.type, "TEXT")
        return _parameter(self.name, str, flag(self.help, name, rich_help_panel=panel, metavar=metavar))

    def parse(self, text: str) -> Any:
        """The value of a string; one that does not fit the type is left for ``Config`` to refuse."""
        if self.is_optional and text.lower() == "none":
            return None
        if self.type is bool:
            words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            return words.get(text.lower(), text)
        with contextlib.suppress(ValueError):
            return self.type(text) if self.type in (int, float) else text
        return text


def with_settings(*sections: Section) -> Callable[[Command], Command]:
    """Add the flags of ``sections``, --config, --set and --help-all to a command.

    It gets what was given as ``settings``: flags win over --set, --set over the file, the file over
    --pipeline, which comes with the section TEXT. A command may have a --config of its own.
    """
    known = [setting for section in sections for setting in section.settings()]

    def decorate(command: Command) -> Command:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["settings"]
        shown = {setting.name: setting for setting in known if setting.name in setting.section.shown}
        shared = {"pipeline": _PIPELINE} if TEXT in sections else {}
        shared |= {} if "config" in {*own, *shown} else {"config": _CONFIG}
        shared |= {"set_": _SET, "help_all": _parameter("help_all", bool, _help_all(sections))}

        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in (*shared, *shown)}
            settings = _expand_pipeline(given.get("pipeline"))
            if file := given.get("config"):
                configs = {section.name: section.config for section in sections}
                for part in read_toml(file, configs).values():
                    settings |= part
            settings |= dict(_parse_item(item, known) for item in given["set_"] or ())
            for name, setting in shown.items():
                if (value := given[name]) is not None:
                    settings[name] = setting.parse(value) if isinstance(value, str) else value
            command(**values, settings=settings)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.values()]
        parameters += [*(setting.parameter() for setting in shown.values()), *shared.values()]
        paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in paragraphs)
        run.__name__ = command.__name__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.setting_names = [setting.name for setting in known]  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter(name: str, kind: Any, info: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONFIG = _parameter("config", Path, flag("TOML file with settings; flags win over it.", "--config"))
_SET = _parameter(
    "set_", list[str], flag("Any other setting (see --help-all); may repeat.", "--set", metavar="NAME=VALUE")
)
_PIPELINE = _parameter(
    "pipeline", str, flag(f"Ready-made cleaning \\[{'|'.join(PIPELINES)}]; single settings win over it.")
)


def _expand_pipeline(name: str | None) -> Settings:
    if name is None:
        return {}
    if name not in PIPELINES:
        raise ConfigError(f"There is no pipeline {name!r}.", remedy=nearest(name, PIPELINES))
    return PIPELINES[name].to_dict()


def _parse_item(item: str, known: Iterable[_Setting]) -> tuple[str, Any]:
    """Name and value of ``lr=0.001`` or ``training.lr=0.001``."""
    path, equals, text = item.partition("=")
    place, _, name = path.strip().replace("-", "_").rpartition(".")
    matches = [setting for setting in known if setting.name == name]
    if not matches:
        names = [setting.name for setting in known]
        raise ConfigError(f"There is no setting {path!r}.", remedy=nearest(name, names))
    (setting,) = matches
    if place not in ("", setting.section.name):
        full_name = f"{setting.section.name}.{name}"
        raise ConfigError(f"There is no setting {path!r}.", remedy=f"Did you mean {full_name!r}?")
    if not equals:
        raise ConfigError(f"--set {item} has no value.", remedy=f"Write --set {item}=VALUE.")
    return name, setting.parse(text.strip())


def _help_all(sections: tuple[Section, ...]) -> Any:
    def show(value: bool) -> None:
        if not value:
            return
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False)
        for section in sections:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 1))
            table.add_column(style="cyan", no_wrap=True)
            table.add_column()
            for setting in section.settings():
                table.add_row(setting.name, setting.help)
            console.print(f"[bold]{section.title}[/] [dim]({section.name})[/]", table, "", sep="\n")
        console.print(
            "Set any of these with --set NAME=VALUE, as in [bold]--set lr=0.001[/], or in a TOML file."
        )
        raise typer.Exit()

    return flag("List every setting and exit.", "--help-all", is_eager=True, callback=show)
