"""The program ``elmokit``: its verbs, and how errors are shown."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import elmokit
from elmokit.core.errors import ElmokitError

VERBS = {
    "demo": "See in two minutes what contextual vectors can do.",
    "embed": "Turn texts into contextual vectors and save them.",
    "similar": "Find words in a corpus that are used like the words of your sentence.",
    "search": "Find the texts that are most like a query, or each other.",
    "senses": "Show the senses in which a word is used in a corpus.",
    "fit": "Train a model on labeled rows, on top of any encoder.",
    "predict": "Label rows with a fitted model.",
    "evaluate": "Measure a model: accuracy, perplexity or word similarity.",
    "compare": "Find out which method suits your text.",
    "pretrain": "Train a bidirectional language model (ELMo) on your own text.",
    "distill": "Train a sentence vector for a language model, with another encoder as the teacher.",
    "baseline": "Train static word vectors: SVD, skip-gram or CBOW.",
    "inspect": "Show the sizes, training and scores of a model.",
    "convert": "Convert between published models, word-vector files and elmokit folders.",
    "verify": "Check the vectors of a model against reference vectors.",
    "serve": "Explore models in the browser, or use them over HTTP.",
}
"""Verbs in the order of the help, each with its summary; its module is loaded when it is used."""

_LOOK: Any = {"add_completion": False, "rich_markup_mode": "rich", "pretty_exceptions_enable": False}


class _Verb(TyperCommand):
    """A verb whose module is not loaded yet."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = importlib.import_module(f"elmokit.cli.{self.name}").command
        app = typer.Typer(**_LOOK)
        paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
        help = "\n\n".join(" ".join(part.split()) for part in paragraphs)
        no_args = self.name not in ("demo", "serve")
        app.command(self.name, cls=_Page, no_args_is_help=no_args, help=help)(command)
        return typer.main.get_command(app).make_context(info_name, args, parent, **extra)


class _Page(TyperCommand):
    """A verb whose help has plain words for its arguments, and a type only where an option takes a value."""

    def collect_usage_pieces(self, context: Any) -> list[str]:
        params: list[Any] = [one for one in self.params if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(one.metavar if one.required else f"[{one.metavar}]" for one in params)]

    def get_params(self, context: Any) -> list[Any]:
        return _hide_types(super().get_params(context))


def _hide_types(params: list[Any]) -> list[Any]:
    """Arguments and switches are shown without a type."""
    for one in params:
        if one.param_type_name == "argument" or one.is_flag:
            one.display_type_rich = lambda ctx: ""
    return params


class _Verbs(TyperGroup):
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.commands = {name: _Verb(name, callback=None, help=summary) for name, summary in VERBS.items()}

    def get_params(self, context: Any) -> list[Any]:
        return _hide_types(super().get_params(context))

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            typer.echo("Interrupted. Finished work is saved. Run the same command again to resume.", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="elmokit",
    cls=_Verbs,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Contextual word vectors that you train on your own text, on the machine you have.",
    epilog="Start with [bold]elmokit demo[/], then [bold]elmokit pretrain my_text.txt --out my-elmo[/].",
    **_LOOK,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"elmokit {elmokit.__version__}")
        raise typer.Exit()


def main() -> None:
    """Run the program; an elmokit error is shown in two lines and ends with code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names of files need not fit the terminal's encoding
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except ElmokitError as error:
        _show(error)
        sys.exit(2)
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        problem = f"Cannot write standard output: {error.strerror}."
        _show(ElmokitError(problem, remedy="Send it to another place, or free some space."))
        sys.exit(2)


def _show(error: ElmokitError) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.remedy:
        console.print(f"  [bold]try:[/] {escape(error.remedy)}", soft_wrap=True)
