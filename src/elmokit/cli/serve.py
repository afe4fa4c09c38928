"""``elmokit serve``: models over HTTP, and a page to explore them."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape

from elmokit.cli.options import READ, Reporter, Section, Settings, argument, flag, with_settings
from elmokit.core.config import merge_settings
from elmokit.core.errors import ConfigError, import_extra
from elmokit.core.names import DEFAULT
from elmokit.serve.settings import ServeConfig
from elmokit.text.settings import ReadConfig

_TOKEN = "ELMOKIT_TOKEN"
_MODELS = "Models of any kind (names or folders), and folders of elmokit compare. Default: the bundled one."
_CORPUS = (
    "Text to search for neighbors: files, folders or patterns; can be repeated. Default: the bundled corpus."
)
_SEARCH = (
    "Texts to search in: a file, or a folder made by elmokit embed --pool sentence with one of the models."
)


@with_settings(Section("serve", ServeConfig, "Server", ("host", "port", "token", "cors")), READ)
def command(
    models: Annotated[list[str] | None, argument("MODEL...", _MODELS)] = None,
    corpus: Annotated[list[str] | None, flag(_CORPUS, metavar="FILE")] = None,
    search: Annotated[str | None, flag(_SEARCH, metavar="FILE_OR_VECTORS")] = None,
    *,
    settings: Settings,
    reporter: Reporter,
) -> None:
    """Serve models on this machine: a page to explore them, and an HTTP API.

    [bold]elmokit serve[/] opens the bundled model: type sentences, click a word, and see the words most like
    it in context. [bold]elmokit serve english topics report[/] also serves the classifier in the folder
    topics and the report of a comparison. The HTTP API (/v1/embed, /v1/similar, /v1/predict and more) is
    described at /docs. By default, only this machine can reach it. Stop it with Ctrl-C; requests in progress
    get up to ten seconds to finish.
    """
    settings["token"] = settings.get("token") or os.environ.get(_TOKEN, "")
    configs: Any = merge_settings(settings, serve=ServeConfig(), read=ReadConfig())
    config: ServeConfig = configs["serve"]
    given = models or [DEFAULT]
    reporter.say(f"Loading {escape(', '.join(given))} ...")  # before what takes long
    uvicorn = import_extra("uvicorn", "serve", "A server")
    import_extra("fastapi", "serve", "A server")
    import_extra("orjson", "serve", "A server")

    from elmokit.corpora import mini_news
    from elmokit.serve.app import make_app
    from elmokit.serve.middleware import HeaderLimit
    from elmokit.serve.registry import open_registry
    from elmokit.text.rows import TextSource
    from elmokit.text.tokenizing import replace_surrogates

    with bind(config) as listener:  # before models are loaded: a port in use is an error at once
        if corpus:
            texts = TextSource(corpus, configs["read"], say=reporter.note)
            name = ", ".join(replace_surrogates(Path(part).name) for part in corpus)
        else:
            texts, name = TextSource([mini_news()], ReadConfig(text_columns="text")), "bundled news texts"
        registry = open_registry(
            given,
            texts,
            corpus_name=name,
            corpus_words=config.corpus_words,
            search=search,
            read=configs["read"],
            reporter=reporter,
        )
        limits: Any = {"http": HeaderLimit, "timeout_graceful_shutdown": 10, "limit_concurrency": 1000}
        quiet: Any = {"log_level": "warning", "access_log": False, "server_header": False}
        server = uvicorn.Server(uvicorn.Config(make_app(registry, config), **limits, **quiet))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)  # uvicorn raises the signal again when it is done
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        reporter.say(f"[bold green]Ready:[/] http://{escape(address)}:{port}  [dim](Ctrl-C stops it)[/]")
        if config.host not in ("127.0.0.1", "::1", "localhost") and not config.token:
            advice = f"Restrict access with --token or {_TOKEN} in the environment."
            reporter.say(f"[yellow]Anyone who can reach this address can use the models. {advice}[/]")
        server.run(sockets=[listener])
    reporter.say("Stopped.")


def bind(config: ServeConfig) -> socket.socket:
    """A socket that listens at the address of the server."""
    is_ipv6 = ":" in config.host
    family, both = (socket.AF_INET6, socket.has_dualstack_ipv6()) if is_ipv6 else (socket.AF_INET, False)
    try:
        listener = socket.create_server((config.host, config.port), family=family, dualstack_ipv6=both)
    except (OSError, TypeError, UnicodeError) as error:
        raise ConfigError(
            f"Cannot listen on {config.host} port {config.port}: {getattr(error, 'strerror', '') or error}.",
            remedy="Choose another --port (0 picks a free one), or another --host: 127.0.0.1, or 0.0.0.0 for "
            "all addresses of this machine.",
        ) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else answers are delayed
    return listener
