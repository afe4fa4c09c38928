"""The program ``elmokit``: its verbs, and how errors are shown."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import elmokit
from elmokit.cli import (
    baseline,
    cache,
    compare,
    convert,
    demo,
    embed,
    evaluate,
    fit,
    inspect,
    perplexity,
    predict,
    pretrain,
    serve,
    similar,
    verify,
)
from elmokit.core.errors import ElmokitError

__all__ = ["app", "main"]

app = typer.Typer(
    name="elmokit",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Contextual word vectors that you train on your own text, on the machine you have.",
    epilog="Start with [bold]elmokit demo[/], then [bold]elmokit pretrain my_text.txt --out my-elmo[/].",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"elmokit {elmokit.__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command("pretrain", no_args_is_help=True)(pretrain.command)
app.command("perplexity", no_args_is_help=True)(perplexity.command)
app.command("fit", no_args_is_help=True)(fit.command)
app.command("predict", no_args_is_help=True)(predict.command)
app.command("evaluate", no_args_is_help=True)(evaluate.command)
app.command("compare", no_args_is_help=True)(compare.command)
app.command("embed", no_args_is_help=True)(embed.command)
app.command("baseline", no_args_is_help=True)(baseline.command)
app.command("similar", no_args_is_help=True)(similar.command)
app.command("inspect", no_args_is_help=True)(inspect.command)
app.command("convert", no_args_is_help=True)(convert.command)
app.command("verify", no_args_is_help=True)(verify.command)
app.command("cache", no_args_is_help=True)(cache.command)
app.command("serve")(serve.command)
app.command("demo")(demo.command)


def main() -> None:
    """Run the program; an elmokit error is shown in two lines and ends with code 2."""
    try:
        app()
    except ElmokitError as error:
        console = Console(stderr=True, highlight=False)
        console.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
        if error.remedy:
            console.print(f"  [bold]try:[/] {escape(error.remedy)}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted. What was saved stays; run the same command to go on.")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
