"""Flags that several verbs share, and settings as flags: each is named and explained in one place."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from elmokit.bilm.settings import PretrainConfig
from elmokit.core.config import Config, duration, read_toml
from elmokit.core.errors import ConfigError, nearest
from elmokit.text.settings import LabelConfig, ReadConfig

Command = Callable[..., None]
Settings = dict[str, dict[str, Any]]
"""What was set, by section and name; what was not set is not in it."""


@dataclass(frozen=True)
class Section:
    """Settings of one kind: ``shown`` ones have a flag of their own, the others go by --set and --config."""

    name: str
    config: type[Config]
    title: str
    shown: tuple[str, ...]

    def fields(self) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
        """Each field with its type."""
        hints = get_type_hints(self.config)
        for field in dataclasses.fields(self.config):  # type: ignore[arg-type]
            yield field, hints[field.name]


READ = Section("read", ReadConfig, "Reading files", ("text_columns", "encoding"))
LABELS = Section("labels", LabelConfig, "Labels", ("label_column", "label_separator"))


def resolve_model(name: str) -> Path:
    """The folder of a model given on the command line: a bundled name, a folder or a hub name."""
    from elmokit.core.names import resolve_name

    return resolve_name(name)


Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        parser=resolve_model,
        help="A bundled model, a model folder, or published ELMo files.",
    ),
]
Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT...",
        help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for standard "
        "input.",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def command_line() -> str:
    """The command for the record: file names without their folders, which are the user's own business."""
    from elmokit.text.tokenizing import replace_surrogates

    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return replace_surrogates(shlex.join(["elmokit", *words]))


def print_json(value: Any) -> None:
    """Print one JSON object on standard output."""
    import json

    typer.echo(json.dumps(value, ensure_ascii=False))


def with_settings(*sections: Section, config: bool = True) -> Callable[[Command], Command]:
    """Give a command the flags of ``sections``, --set, --help-all and, unless ``config`` is False, --config.

    The command takes a last parameter ``settings``; flags win over --set, --set wins over the file.
    """

    def decorate(command: Command) -> Command:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "settings"
        ]
        flags = {
            field.name: (section.name, hint)
            for section in sections
            for field, hint in section.fields()
            if field.name in section.shown
        }
        added = [
            _parameter(field.name, _flag_type(field.name, hint), _flag(section, field, hint))
            for section in sections
            for field, hint in section.fields()
            if field.name in section.shown
        ]
        if config and not any(parameter.name == "config" for parameter in own):
            added.append(_parameter("config", Path, _CONFIG))
        added.append(_parameter("set_", list[str], _SET))
        added.append(_parameter("help_all", bool, _help_all(sections)))

        def run(**values: Any) -> None:
            values.pop("help_all")
            settings: Settings = {section.name: {} for section in sections}
            if config and (file := values.pop("config")) is not None:
                for name, given in read_toml(file, PretrainConfig).items():
                    settings[name].update(given)
            for item in values.pop("set_") or ():
                section, name, value = _parse_setting(item, sections)
                settings[section][name] = value
            for name, (section, hint) in flags.items():
                if (value := values.pop(name)) is not None:
                    settings[section][name] = _parse_value(name, hint, value)
            command(**values, settings=settings)

        paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in paragraphs)
        run.__name__ = command.__name__
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *added]}
        run.setting_names = [  # type: ignore[attr-defined]
            field.name for section in sections for field, _ in section.fields()
        ]
        return run

    return decorate


_CONFIG = typer.Option("--config", help="TOML file with settings; flags win over it.", show_default=False)
_SET = typer.Option(
    "--set", metavar="NAME=VALUE", help="Any other setting (see --help-all); may repeat.", show_default=False
)


def _parameter(name: str, kind: Any, info: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(section: Section, field: dataclasses.Field[Any], hint: Any) -> Any:
    name = f"--{field.name.replace('_', '-')}"
    if hint is bool:
        name = f"{name}/--no-{name[2:]}"
    return typer.Option(
        name,
        help=_help(field, hint),
        rich_help_panel=section.title,
        show_default=False,
        metavar=_metavar(hint),
    )


def _plain_type(hint: Any) -> Any:
    """The type without ``| None``."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


def _flag_type(name: str, hint: Any) -> Any:
    """What typer parses the flag as; choices, pairs and durations are checked by the settings."""
    hint = _plain_type(hint)
    return str if name == "max_time" or get_origin(hint) in (tuple, Literal) else hint


def _metavar(hint: Any) -> str | None:
    return "CHOICE" if get_origin(_plain_type(hint)) is Literal else None


def _help(field: dataclasses.Field[Any], hint: Any) -> str:
    text = str(field.metadata["help"])
    if get_origin(hint) is Literal:
        text += f" \\[{'|'.join(map(str, get_args(hint)))}]"
    default = field.default
    if default is not None and default != "" and not isinstance(default, bool | tuple):
        text += f" [dim](default {default})[/]"
    return text


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
            for field, hint in section.fields():
                table.add_row(field.name, _help(field, hint))
            console.print(f"[bold]{section.title}[/] [dim]({section.name})[/]", table, "", sep="\n")
        console.print(
            "Set any of these with --set NAME=VALUE, as in [bold]--set lr=0.001[/], or in a TOML file."
        )
        raise typer.Exit()

    return typer.Option("--help-all", help="List every setting and exit.", is_eager=True, callback=show)


def _parse_setting(item: str, sections: tuple[Section, ...]) -> tuple[str, str, Any]:
    """Section, name and value of ``lr=0.001`` or ``training.lr=0.001``."""
    path, equals, text = item.partition("=")
    where, _, name = path.strip().replace("-", "_").rpartition(".")
    known = {(section.name, field.name): hint for section in sections for field, hint in section.fields()}
    homes = [key for key in known if key[1] == name and where in ("", key[0])]
    if not homes:
        names = [".".join(key) for key in known if key[1] == name] or [key[1] for key in known]
        raise ConfigError(
            f"There is no setting {path!r}.", remedy=nearest(path if not where else name, names)
        )
    if not equals:
        raise ConfigError(f"--set {item} has no value.", remedy=f"Write --set {item}=VALUE.")
    section, _ = homes[0]
    return section, name, _parse_value(name, known[homes[0]], text.strip())


def _parse_value(name: str, hint: Any, value: Any) -> Any:
    """A value as the settings take it; what does not fit the type is left for them to refuse."""
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and hint is not _plain_type(hint):
        return None
    hint = _plain_type(hint)
    if name == "max_time":
        return duration(value)
    if get_origin(hint) is tuple:
        return [pair.split(":") for pair in value.split(",")]
    if hint is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(
            value.lower(), value
        )
    if hint in (int, float):
        try:
            return hint(value)
        except ValueError:
            return value
    return value
