"""``elmokit serve``: models over HTTP, and a page on which to see them think."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from elmokit.cli.options import READ, Section, Settings, with_settings
from elmokit.core.errors import ConfigError, MissingExtraError
from elmokit.serve.settings import ServeConfig
from elmokit.text.settings import ReadConfig

if TYPE_CHECKING:
    from elmokit.core.console import Reporter

_TOKEN = "ELMOKIT_TOKEN"


@with_settings(Section("serve", ServeConfig, "Server", ("host", "port", "token", "cors")), READ)
def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models and classifiers (names or folders), and folders of elmokit compare; else the "
            "bundled model.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="Text in which neighbours are looked for: files, folders or patterns; may repeat. Else the "
            "bundled corpus.",
            show_default=False,
        ),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Serve models on this machine: a page to explore them, and an API for programs.

    [bold]elmokit serve[/] opens the bundled model; type sentences, click a word, and see what is like it
    in its context. [bold]elmokit serve topics[/] adds the classifier in the folder topics,
    [bold]elmokit serve news report[/] the report of a comparison. Programs find /v1/embed, /v1/similar,
    /v1/classify and more, described at /docs. Nothing leaves this machine; stop it with Ctrl-C.
    """
    token = settings["serve"].pop("token", "") or os.environ.get(_TOKEN, "")
    config = ServeConfig.from_dict({**settings["serve"], "token": token})
    read = ReadConfig.from_dict(settings["read"])
    try:
        import uvicorn

        from elmokit.serve.app import make_app
    except ImportError as error:
        raise MissingExtraError(str(error.name), "serve", "A server") from error

    from elmokit.core.console import Reporter
    from elmokit.corpora import mini_news
    from elmokit.serve.registry import open_shelf
    from elmokit.text.rows import TextSource
    from elmokit.text.tokenizing import replace_surrogates

    reporter = Reporter()
    with _bound(config) as listener:  # first of all: whoever cannot have the port shall not wait for models
        if corpus:
            texts = TextSource(corpus, read)
            name = ", ".join(replace_surrogates(Path(part).name) for part in corpus)
        else:
            texts, name = TextSource([mini_news()], ReadConfig(text_columns="text")), "bundled news texts"
        shelf = open_shelf(
            models or ["news"], texts, corpus_name=name, corpus_words=config.corpus_words, reporter=reporter
        )
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(shelf, config),
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=10,
                limit_concurrency=1000,
                server_header=False,
            )
        )
        with _explained(config):
            listener.listen()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)  # the server hands signals back when it is done
        _announce(config, listener, reporter)
        server.run(sockets=[listener])
    reporter.say("Stopped.")


def _bound(config: ServeConfig) -> socket.socket:
    with _explained(config):
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        # Said to be TCP, its connections send at once; else the loop leaves answers to wait for company.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((config.host, config.port))
        except BaseException:
            listener.close()
            raise
        return listener


@contextlib.contextmanager
def _explained(config: ServeConfig) -> Iterator[None]:
    try:
        yield
    except (OSError, TypeError, UnicodeError) as error:
        no_host = isinstance(error, TypeError | UnicodeError | socket.gaierror)
        raise ConfigError(
            f"Cannot listen on {config.host} port {config.port}: {getattr(error, 'strerror', '') or error}.",
            remedy="Choose another --host: 127.0.0.1, or 0.0.0.0 for all of this machine's addresses."
            if no_host
            else "Choose another --port (0 takes a free one), or stop what is using it.",
        ) from error


def _announce(config: ServeConfig, listener: socket.socket, reporter: Reporter) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    reporter.say(f"[bold green]Ready:[/] http://{escape(shown)}:{port}  [dim](Ctrl-C stops it)[/]")
    if config.host not in ("127.0.0.1", "::1", "localhost") and not config.token:
        reporter.say(
            "[yellow]Anybody who can reach this address may ask: there is no --token (or "
            f"{_TOKEN} in the environment).[/]"
        )
