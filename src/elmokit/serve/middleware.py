"""Access control, size limits and errors of requests."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import orjson
from fastapi import Depends
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

_MAX_DISCARDED = 64 << 20  # bytes
_TIMEOUT = 60.0  # seconds to wait for the next part of a request
_HEADER_TIMEOUT = 30.0  # seconds for all headers of a request
_BEARER = HTTPBearer(auto_error=False)
_LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d*)?", re.IGNORECASE)


class RefusedError(HTTPException):
    """A request that gets an error with this HTTP status code."""

    def __init__(
        self, code: int, message: str, remedy: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code, message, headers)
        self.remedy = remedy


def error_response(
    code: int, message: str, remedy: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """An error in the form that all errors have: a message and a remedy."""
    content = orjson.dumps({"error": {"message": message[:500], "remedy": remedy[:500]}})
    return Response(content, code, headers, "application/json")


def require_token(token: str) -> Callable[..., Awaitable[None]]:
    """A dependency that refuses requests without the token in their Authorization header."""

    async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        if not given or not secrets.compare_digest(given.credentials.encode("latin-1"), token.encode()):
            raise RefusedError(
                401,
                "This server requires a token.",
                "Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )

    return check


_Protocol: Any = AutoHTTPProtocol


class HeaderLimit(_Protocol):  # type: ignore[misc]
    """The server's protocol; connections on which the headers of a request do not end in time are closed."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        """Start the clock when a request is awaited, stop it when all its headers are there."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and self._timer is not None:
            self._timer.cancel()
        if is_answering:
            self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEADER_TIMEOUT, self.transport.close)


class RequestCheck:
    """Refuses bodies that are too large, whatever length they declare, and requests for another host.

    Args:
        is_local: Answer only to names of this machine, so that no other site can pose as it.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, is_local: bool) -> None:
        self._app, self._max_bytes, self._is_local = app, max_bytes, is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then pass the request on.

        Of a body that is too large the rest is read, too, within reason: a client that is still sending does
        not read the answer yet.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        message, body, n_read = dict[str, Any](more_body=True), b"", 0
        while message.get("more_body") and n_read < _MAX_DISCARDED:
            try:
                message = dict(await asyncio.wait_for(receive(), _TIMEOUT))
            except asyncio.TimeoutError:
                message = {"type": "http.disconnect"}
            n_read += len(message.get("body", b""))
            body = body + message.get("body", b"") if n_read <= self._max_bytes else b""
        whole = [{**message, "body": body}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        app, host = self._app, dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self._is_local and not _LOCAL_HOST.fullmatch(host):
            app = error_response(400, "This server answers only to 127.0.0.1, localhost and [::1].")
        elif n_read > self._max_bytes:
            remedy = f"Send up to {self._max_bytes} bytes."
            app = error_response(413, "The request is too large.", remedy, {"connection": "close"})
        await app(scope, replay, send)
