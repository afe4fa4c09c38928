"""Access control, size limits and errors of requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_DISCARDED = 64 << 20  # bytes
_TIMEOUT = 60.0  # seconds to wait for the next part of a request
_CLOSE = {"connection": "close"}


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


class Token(HTTPBearer):
    """Requires a token in the Authorization header."""

    def __init__(self, token: str) -> None:
        super().__init__(scheme_name="HTTPBearer", auto_error=False)
        self._token = token.encode()

    async def __call__(self, request: HTTPConnection) -> HTTPAuthorizationCredentials | None:
        """Refuse a request without the token."""
        given = await super().__call__(request)
        if not given or not secrets.compare_digest(given.credentials.encode("latin-1"), self._token):
            raise RefusedError(
                401,
                "This server requires a token.",
                "Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )
        return given


class BodyLimit:
    """Refuses bodies that are too large, whatever length they declare."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then pass the request on.

        Of a body that is too large the rest is read, too, within reason: a client that is still sending does
        not read the answer yet.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        too_large = length.isdigit() and int(length) > self._max_bytes
        is_complete = too_large and headers.get(b"expect", b"").lower() == b"100-continue"  # not sent yet
        message, body, n_read = dict[str, Any](), b"", 0
        while not is_complete and n_read < _MAX_DISCARDED:
            try:
                message = dict(await asyncio.wait_for(receive(), _TIMEOUT))
            except asyncio.TimeoutError:
                message = {"type": "http.disconnect"}
            part = message.get("body", b"")
            is_complete = not message.get("more_body")
            n_read += len(part)
            too_large = too_large or n_read > self._max_bytes
            body = b"" if too_large else body + part
        whole = [{**message, "body": body}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        app = self._app
        if too_large:
            remedy = f"Send up to {self._max_bytes} bytes."
            app = error_response(413, "The request is too large.", remedy, _CLOSE)
        await app(scope, replay, send)


class HostCheck:
    """Refuses requests for another host, so that no other site can pose as this machine."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests for an allowed host."""
        app = self._app
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
            if name not in self._allowed:
                message = f"This server answers only to {', '.join(self._allowed)}."
                app = error_response(400, message, headers=_CLOSE)
        await app(scope, receive, send)
