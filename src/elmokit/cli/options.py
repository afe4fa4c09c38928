"""Flags made from the settings' own fields, so that each is named and explained in one place."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from elmokit.core.config import Config, duration

__all__ = ["model_folder", "with_settings"]


def model_folder(name: str) -> Path:
    """The folder of a model that is given on the command line: a bundled name, a folder, a hub name."""
    from elmokit.core.names import located

    return located(name)


def _filters(text: str) -> list[list[str]]:
    return [pair.split(":") for pair in text.split(",")]


def _flag_type(name: str, hint: Any) -> Any:
    """What typer parses the flag as; choices, pairs and durations are checked by the settings."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if name == "max_time" or get_origin(hint) in (tuple, Literal):
        return str
    return hint


def _help(field: dataclasses.Field[Any], hint: Any) -> str:
    text = str(field.metadata["help"])
    if get_origin(hint) is Literal:
        text += f" \\[{'|'.join(map(str, get_args(hint)))}]"
    default = field.default
    if default is not None and default != "" and not isinstance(default, bool | tuple):  # 0 and 1 are said
        text += f" [dim](default {default})[/]"
    return text


def with_settings(
    groups: Mapping[str, type[Config]], panels: Mapping[str, str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each field of each group.

    The command takes a last parameter ``settings``: a dictionary with the values given on the
    command line, by group and field. What was not given is not in it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "settings"
        ]
        added: list[inspect.Parameter] = []
        homes: dict[str, tuple[str, Any]] = {}
        for group, class_ in groups.items():
            hints = get_type_hints(class_)
            for field in dataclasses.fields(class_):  # type: ignore[arg-type]
                kind = _flag_type(field.name, hints[field.name])
                homes[field.name] = (group, hints[field.name])
                names = [f"--{field.name.replace('_', '-')}"]
                if kind is bool:
                    names = [f"{names[0]}/--no-{names[0][2:]}"]
                info = typer.Option(
                    *names,
                    help=_help(field, hints[field.name]),
                    rich_help_panel=panels[group],
                    show_default=False,
                )
                annotation: Any = Annotated[kind | None, info]
                added.append(
                    inspect.Parameter(
                        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                    )
                )

        def run(**values: Any) -> None:
            settings: dict[str, dict[str, Any]] = {group: {} for group in groups}
            for name, (group, hint) in homes.items():
                value = values.pop(name)
                if value is None:
                    continue
                if name == "max_time":
                    value = duration(value)
                elif get_origin(hint) is tuple:
                    value = _filters(value)
                settings[group][name] = value
            command(**values, settings=settings)

        paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in paragraphs)
        run.__name__ = command.__name__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + added
        )
        run.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
        return run

    return decorate
