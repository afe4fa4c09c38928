"""Access, limits and hostile requests."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from elmokit.cli.serve import bind
from elmokit.serve import middleware
from elmokit.serve.app import PAGE, make_app
from elmokit.serve.registry import Registry, open_registry
from elmokit.serve.settings import ServeConfig
from elmokit.vectors.elmo import Elmo
from serving import CORPUS, save_models, save_report

LOOPBACK = "http://127.0.0.1"
ADDRESSES = ["/v1/tokens", "/v1/embed", "/v1/similar", "/v1/layers", "/v1/predict"]
ADDRESSES += ["/v1/search", "/v1/similarity", "/v1/senses"]
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\x00\x01\x02\x1b[31m\x7f\x85 \x0b \u2028 \ufeff",
    "\u202eright to left\u202c \u200b\u200d \ufffe" + "e" + "\u0301" * 500 + "🏳️‍🌈" * 50,
    "../../etc/passwd \\\\host\\share file:///etc/passwd",
    "<pad> <s> </s> <unk> &lt;b&gt; &#0; &#x110000;",
    "x" * 19_000,
    "- " * 9_000,
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    folder = tmp_path_factory.mktemp("served")
    folders = save_models(folder)
    report = save_report(folder / "report", "<p>figures</p>")
    other = save_report(folder / "other", "<p>more figures</p>")
    return open_registry([folders["small"], folders["topics"], report, other], CORPUS)


@contextmanager
def serving(registry: Registry, **settings: Any) -> Iterator[TestClient]:
    with TestClient(make_app(registry, ServeConfig(**settings)), base_url=LOOPBACK) as client:
        yield client


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[TestClient]:
    with serving(registry) as found:
        yield found


def body_of(address: str, text: str = "the bank") -> dict[str, Any]:
    """A plain request."""
    if address == "/v1/layers":
        return {"text": text, "model": "topics"}
    if address == "/v1/search":
        return {"query": f"a {text}", "texts": [f"a {text}"]}
    if address == "/v1/similarity":
        return {"text": text, "other": text}
    if address == "/v1/senses":
        return {"word": "bank", "texts": [f"a bank {text}"]}
    return {"texts": [text]} | ({"position": 0} if address == "/v1/similar" else {})


def error_of(answer: Any, *codes: int) -> str:
    """The message of an error; all errors have the same form."""
    assert answer.status_code in codes, answer.text[:500]
    assert set(answer.json()["error"]) == {"message", "remedy"}
    assert "Traceback" not in answer.text
    assert len(answer.content) < 2000
    return str(answer.json()["error"]["message"])


# -- limits -----------------------------------------------------------------------------------


def test_limits_on_texts(registry: Registry) -> None:
    with serving(registry, max_texts=3, max_characters=40, max_words=12) as client:
        for address in ("/v1/tokens", "/v1/embed", "/v1/similar", "/v1/predict"):
            more = {"position": 0} if address == "/v1/similar" else {}
            for texts, part in (
                (["a"] * 4, "4 texts"),
                (["a", "a" * 41], "Text 1 is too long"),
                (["a a a a a"] * 3, "15 words"),
            ):
                assert part in error_of(client.post(address, json={"texts": texts, **more}), 413)
            assert client.post(address, json={"texts": ["a a a a"] * 3, **more}).status_code == 200
        assert client.post("/v1/layers", json={"text": "a" * 40}).status_code == 200
        error_of(client.post("/v1/layers", json={"text": "a" * 41}), 413)
        for address in ("/v1/search", "/v1/similarity", "/v1/senses"):
            error_of(client.post(address, json=body_of(address, "a" * 41)), 413)
        for address, query in (("/v1/search", {"query": "a"}), ("/v1/senses", {"word": "a"})):
            assert "4 texts" in error_of(client.post(address, json={"texts": ["a"] * 4, **query}), 413)
        for words in ([""] * 41, ["a" * 21] * 2, ["a"] * 13):
            error_of(client.post("/v1/embed", json={"texts": [words]}), 413)


def test_an_answer_too_large_for_json(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.serve.service._JSON_NUMBERS", 5 * 12)
    with serving(registry) as client:
        assert client.post("/v1/embed", json={"texts": ["a a a a a"]}).status_code == 200
        assert "72 numbers" in error_of(client.post("/v1/embed", json={"texts": ["a " * 6]}), 413)
        for body in ({"format": "npy"}, {"vectors": "mean"}):
            assert client.post("/v1/embed", json={"texts": ["a " * 6], **body}).status_code == 200


def in_pieces(size: int) -> Iterator[bytes]:
    yield b'{"texts": ["'
    for _ in range(size // 1000):
        yield b"a" * 1000
    yield b'"]}'


def test_limits_on_bodies(registry: Registry) -> None:
    kind = {"content-type": "application/json"}
    with serving(registry, max_body=10_000) as client:
        for content, more in (
            (b"x" * 10_001, {}),
            (in_pieces(20_000), {}),  # without a declared length
            (in_pieces(20_000), {"content-length": "10"}),  # with a false one
        ):
            answer = client.post("/v1/tokens", content=content, headers={**kind, **more})
            assert "too large" in error_of(answer, 413)
        answer = client.post("/v1/tokens", content=in_pieces(8_000), headers=kind)
        assert "content-length" not in answer.request.headers
        assert answer.status_code == 200


def test_a_request_that_never_ends_times_out(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_TIMEOUT", 0.05)
    parts: list[Any] = [{"type": "http.request", "body": b'{"texts": ["a', "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not parts:
            await asyncio.sleep(60)
        return parts.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/tokens", "query_string": b"", "headers": headers}
    asyncio.run(asyncio.wait_for(make_app(registry)(scope, receive, send), 30))
    assert sent[0]["status"] == 400


def test_too_much_waiting(registry: Registry) -> None:
    hold, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        hold.wait(60)

    app = make_app(registry, ServeConfig(max_waiting=3))
    with TestClient(app, base_url=LOOPBACK) as client:
        assert client.portal is not None
        client.portal.start_task_soon(app.state.worker.call, work)
        assert begun.wait(60)
        second = client.portal.start_task_soon(app.state.worker.call, work)  # waits, at a cost of 1
        try:
            answer = client.post("/v1/embed", json={"texts": ["a"]})
            assert "Too many requests are waiting" in error_of(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert client.get("/healthz").status_code == 200
        finally:
            hold.set()
        second.result(60)
        assert client.post("/v1/embed", json={"texts": ["a"]}).status_code == 200


# -- access -----------------------------------------------------------------------------------


def test_a_token(registry: Registry) -> None:
    requests = [("GET", "/v1/models", None), *(("POST", address, body_of(address)) for address in ADDRESSES)]
    with serving(registry, token="s3cret~") as client:
        for method, address, body in requests:
            for wrong in ("", "s3cret~", "Bearer", "Bearer s3cret", "Bearer s3cret~~", "Basic s3cret~", "ü"):
                headers: Any = {"authorization": wrong.encode("latin-1")} if wrong else {}
                answer = client.request(method, address, json=body, headers=headers)
                assert "requires a token" in error_of(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
            answer = client.request(method, address, json=body, headers={"authorization": "bearer s3cret~"})
            assert answer.status_code == 200
        for address in ("/", "/docs", "/healthz", "/page/app.js", "/openapi.json"):
            assert client.get(address).status_code == 200, "the page asks for the token"
        described = client.get("/openapi.json").json()
        assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
        assert described["paths"]["/v1/embed"]["post"]["security"] == [{"HTTPBearer": []}]


def test_with_a_token_report_addresses_are_secret(registry: Registry) -> None:
    seen = set()
    for _ in range(2):
        with serving(registry, token="s3cret~") as client:
            assert client.get("/reports/0").status_code == 404
            found = client.get("/v1/models", headers={"authorization": "Bearer s3cret~"}).json()["reports"]
            assert "figures" in client.get(found[0]["address"]).text
            seen |= {one["address"] for one in found}
    assert len(seen) == 4
    assert all(re.fullmatch(r"/reports/[01]-[\w-]{16}", address) for address in seen)


def test_other_sites_need_permission(registry: Registry) -> None:
    origin = {"origin": "https://a.example"}
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    with serving(registry) as client:
        for answer in (
            client.options("/v1/embed", headers={**preflight, **origin}),
            client.post("/v1/embed", json={"texts": ["a"]}, headers=origin),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control")]
    with serving(registry, cors="https://a.example/, http://b.example:81", max_body=1024) as client:
        for site in ("https://a.example", "http://b.example:81"):
            answer = client.options("/v1/embed", headers={**preflight, "origin": site})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, site)
        for content, code in ((b'{"texts": ["a"]}', 200), (b"x" * 2000, 413)):
            headers = {**origin, "content-type": "application/json"}
            answer = client.post("/v1/embed", content=content, headers=headers)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
                code,
                *origin.values(),
            )
        for other in ("https://c.example", "null", "http://a.example", "https://a.example.evil.example"):
            answer = client.options("/v1/embed", headers={**preflight, "origin": other})
            assert answer.status_code == 400
            assert "access-control-allow-origin" not in answer.headers


def test_only_names_of_this_machine_are_accepted_as_host(registry: Registry) -> None:
    with serving(registry) as client:
        for host in ("evil.example", "127.0.0.1.evil.example", "testserver", "0.0.0.0", "x@127.0.0.1"):
            answer = client.post("/v1/tokens", json={"texts": ["a"]}, headers={"host": host})
            assert "answers only to 127.0.0.1" in error_of(answer, 400)
            assert client.get("/", headers={"host": host}).status_code == 400
        for host in ("127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"):
            assert client.get("/healthz", headers={"host": host}).status_code == 200
    with serving(registry, host="0.0.0.0") as client:
        assert client.get("/healthz", headers={"host": "box.example"}).status_code == 200


# -- the page, reports and paths  -----------------------------------------------


def test_the_page_and_its_files(client: TestClient) -> None:
    kinds = {
        "/page/app.js": "text/javascript",
        "/page/style.css": "text/css",
        "/favicon.ico": "image/svg+xml",
    }
    for address in ("/", "/docs", "/page/docs.js", "/page/icon.svg", *kinds):
        answer = client.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kinds.get(address, ""))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    for file in PAGE.iterdir():
        links = re.findall(r"(?:https?:)?//[\w.-]+", file.read_text(encoding="utf-8"))
        assert set(links) <= {"http://www.w3.org"}, f"{file.name} asks nobody else"
    for address in ("/page/index.html", "/page/", "/nothing", "/v1/embeds"):
        error_of(client.get(address), 404)
    error_of(client.get("/v1/embed"), 405)


def test_reports(client: TestClient, registry: Registry) -> None:
    found = client.get("/v1/models").json()["reports"]
    assert found == [
        {"name": "report", "address": "/reports/0"},
        {"name": "other", "address": "/reports/1"},
    ]
    for one, words in zip(found, ("figures", "more figures"), strict=True):
        answer = client.get(one["address"])
        assert words in answer.text
        assert "sandbox allow-scripts" in answer.headers["content-security-policy"], "a stranger to the page"
    for wrong in ("2", "-1", "00", "9" * 5000, "report", "%00"):
        error_of(client.get(f"/reports/{wrong}"), 404)
    page = registry.reports["other"]
    page.rename(page.with_suffix(".gone"))
    error_of(client.get("/reports/1"), 404)
    page.with_suffix(".gone").rename(page)


def test_names_and_paths_of_a_client_lead_nowhere(
    client: TestClient, registry: Registry, tmp_path: Path
) -> None:
    secret, home = tmp_path / "secret.txt", registry.reports["report"].parent
    secret.write_text("secret", encoding="utf-8")
    for name in ("../small", str(home.parent / "small"), str(secret), "hub:a/b", "english", "small\x00", "~"):
        for address in ADDRESSES:
            error_of(client.post(address, json={**body_of(address), "model": name}), 404)
    up = ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "//etc/passwd", f"%2f{secret}"]
    for address in [f"/{kind}/{path}" for kind in ("page", "reports") for path in up]:
        answer = client.get(address)
        assert answer.status_code == 404, address
        assert "secret" not in answer.text


# -- hostile --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_plain_texts(client: TestClient, registry: Registry, text: str) -> None:
    elmo = registry.models["small"].elmo
    assert isinstance(elmo, Elmo)
    words = elmo.words([text])[0]
    for address in ADDRESSES:
        answer = client.post(address, json=body_of(address, text))
        assert answer.status_code == 200, answer.text[:300]
        assert answer.headers["content-type"] == "application/json"
        if address in ("/v1/tokens", "/v1/embed", "/v1/similar"):
            assert answer.json()["tokens"] == [words]
    influence = client.post("/v1/predict", json={"texts": [text], "influence": True})
    assert influence.status_code == (200 if len(words) <= 200 else 413)
    error_of(client.post("/v1/similar", json={"texts": [text], "word": "q" + text[:150]}), 400)
    error_of(client.post("/v1/embed", json={"texts": ["a"], "model": text[:200]}), 404)
    error_of(client.post("/v1/embed", json={"texts": ["a"], text: 1}), 422)


ILL_FORMED = [  # the schema's own tests send wrong types
    b"",
    b"\xff\xfe\x00",
    b'{"texts": ["a"',
    b'{"texts": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"texts": ["a"], "text": "a", "model": "\\ud800"}',
    b'{"texts": ["a"], "text": "a", "\\ud800": 1}',
    b'{"texts": ["a"], "text": "a", "influence": Infinity, "layer": NaN}',
    b'{"texts": ["a"], "text": "a", "layer": %s, "weights": [1e400]}' % (b"9" * 6000),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_malformed_requests_are_refused(client: TestClient, address: str) -> None:
    for content in ILL_FORMED:
        answer = client.post(address, content=content, headers={"content-type": "application/json"})
        error_of(answer, 400, 422)
    error_of(client.post(address, data={"a": "1"}), 422)


def test_lone_surrogates_are_replaced(client: TestClient) -> None:
    content = b'{"texts": ["a \\ud83d bank \\ude00 \\ud83d\\ude00"]}'
    answer = client.post("/v1/tokens", content=content, headers={"content-type": "application/json"})
    assert answer.json()["tokens"] == [["a", "\ufffd", "bank", "\ufffd", "😀"]]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_the_ipv6_wildcard_is_reached_by_ipv4_too() -> None:
    with bind(ServeConfig(host="::", port=0)) as listener:
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_answers_are_sent_without_delay() -> None:
    with bind(ServeConfig(port=0)) as listener:
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
