"""``elmokit serve`` as a person runs it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from elmokit.serve.middleware import HeaderLimit
from elmokit.vectors.elmo import Elmo
from program import Cli
from serving import CORPUS, Server, running, save_models, save_report

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("served")
    (home / "corpus.txt").write_text("\n".join(CORPUS) + "\n", encoding="utf-8")
    report = save_report(home / "report", "<p>figures</p>")
    return {**save_models(home), "report": report, "corpus": home / "corpus.txt"}


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    """All kinds of things at once, in a process of its own."""
    names = ("small", "topics", "table", "report")
    texts = ("--corpus", folders["corpus"], "--search", folders["corpus"])
    with running(*(folders[name] for name in names), *texts) as found:
        yield found


def ask(server: Server, address: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Code and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        content = body if body is None or not isinstance(body, dict) else json.dumps(body)
        headers = {"content-type": "application/json", **headers}
        connection.request("GET" if body is None else "POST", address, content, headers)
        answer = connection.getresponse()
        content = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else content.decode()
    finally:
        connection.close()


def test_it_says_where_it_is_and_answers(server: Server, folders: dict[str, Path]) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    code, found = ask(server, "/v1/models")
    assert code == 200
    assert [one["name"] for one in found["models"]] == ["small", "topics", "table"]
    assert found["models"][0]["corpus"] == folders["corpus"].name
    assert found["models"][0]["corpus_texts"] == len(CORPUS) - 1  # one holds no word
    assert found["reports"] == [{"name": "report", "address": "/reports/0"}]
    assert "figures" in ask(server, "/reports/0")[1]
    assert "<title>elmokit" in ask(server, "/")[1]
    assert ask(server, "/docs")[0] == ask(server, "/openapi.json")[0] == 200
    code, found = ask(server, "/v1/embed", {"texts": CORPUS, "vectors": "mean"})
    wanted = Elmo.load(folders["small"]).embed(CORPUS).sentence("mean")
    np.testing.assert_allclose(found["vectors"], wanted, atol=1e-5)
    code, found = ask(server, "/v1/predict", {"texts": ["the bank"], "influence": True})
    assert (code, found["model"]) == (200, "topics")
    code, found = ask(server, "/v1/search", {"query": CORPUS[-1], "k": 1})
    assert (code, found["n_texts"], found["hits"][0]["text"]) == (200, len(CORPUS), CORPUS[-1])


def test_bodies_of_any_size_get_an_answer(server: Server) -> None:
    """Also those that are refused before they are read: the answer must not get lost."""
    for size in (2 << 20, 40_000_000):
        code, found = ask(server, "/v1/embed", b"x" * size)
        assert (code, found["error"]["message"]) == (413, "The request is too large.")
        pieces = (b"x" * 65_536 for _ in range(size >> 16))
        assert ask(server, "/v1/embed", pieces)[0] == 413
    assert ask(server, "/healthz")[0] == 200


def test_it_says_at_once_that_it_is_loading(folders: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "elmokit", "serve", "--port", "0", str(folders["small"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Loading ")
        process.kill()


def test_connections_whose_headers_never_end_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a byte arrives now and then, and after a first request; slow answers are not touched."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.0 if scope["path"] == "/slow" else 0)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    monkeypatch.setattr("elmokit.serve.middleware._HEADER_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", lifespan="off", http=HeaderLimit)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            for before in (
                b"",
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n",
            ):
                with socket.create_connection(listener.getsockname(), timeout=30) as line:
                    if before:
                        line.sendall(before)
                        assert line.recv(1000).startswith(b"HTTP/1.1 204")
                    line.sendall(b"GET / HTTP/1.1\r\nX: ")
                    with contextlib.suppress(OSError):  # closed
                        for _ in range(1000):
                            line.sendall(b"x")
                            line.settimeout(0.05)
                            with contextlib.suppress(TimeoutError):
                                assert line.recv(1000) == b""
                                break
                        else:
                            raise AssertionError("still open")
        finally:
            server.should_exit = True
            thread.join()


def test_a_port_in_use(cli: Cli, server: Server, folders: dict[str, Path]) -> None:
    cli("serve", folders["small"], "--port", server.port).check_refused(str(server.port), "--port", "in use")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_when_what_is_under_way_is_done(
    folders: dict[str, Path], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str | Path] = [folders["small"], "--corpus", folders["corpus"]]
    if number == signal.SIGINT:
        monkeypatch.setenv("ELMOKIT_TOKEN", TOKEN)
    else:
        monkeypatch.setenv("ELMOKIT_TOKEN", "another")
        words += ["--token", TOKEN]
    body = json.dumps({"texts": CORPUS, "vectors": "mean"}).encode()
    with running(*words) as server:
        assert ask(server, "/v1/models")[0] == 401
        assert ask(server, "/v1/models", authorization=f"Bearer {TOKEN}")[0] == 200
        idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        idle.connect()
        head = f"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += (
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as line:
            line.sendall(head.encode())
            assert line.recv(100).startswith(b"HTTP/1.1 100"), "the server waits for the rest"
            server.process.send_signal(number)
            while _accepts(server.port):
                time.sleep(0.02)
            assert server.process.poll() is None
            line.sendall(body)
            answer = b""
            while part := line.recv(1 << 16):
                answer += part
        said, _ = server.process.communicate(timeout=120)
        idle.close()
    head, _, found = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200")
    assert len(json.loads(found)["vectors"]) == len(CORPUS)
    assert server.process.returncode == 0, said
    assert said.split() == ["Stopped."]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except ConnectionError:
        return False
    return True


def test_what_cannot_be_served(
    cli: Cli, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("serve", tmp_path / "nowhere", "--port", "0").check_refused("nowhere")
    cli("serve", folders["report"], "--port", "0").check_refused("only reports")
    cli("serve", folders["small"], "--port", "0", "--corpus", tmp_path / "no.txt").check_refused("no.txt")
    cli("serve", folders["small"], "--port", "0", "--search", tmp_path / "no.txt").check_refused("no.txt")
    cli("serve", folders["small"], "--port", "0", "--token", "two words").check_refused("token")
    cli("serve", folders["small"], "--port", "0", "--host", "no.such.host.invalid").check_refused(
        "Cannot listen", "another --host"
    )
    cli("serve", folders["small"], "--port", "0", "--host", "ü..b").check_refused("another --host")
    cli("serve", "x" * 300, "--port", "0").check_refused("There is no model")
    assert cli("serve", folders["small"], "--port", "70000").code == 2
    monkeypatch.setenv("ELMOKIT_TOKEN", "schlüssel")
    cli("serve", folders["small"], "--port", "0").check_refused("token")


@pytest.mark.parametrize("package", ["uvicorn", "fastapi", "orjson"])
def test_a_package_that_is_missing_is_named(cli: Cli, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("elmokit.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    cli("serve").check_refused(f"needs the package {package}", "pip install 'elmokit[serve]'")
