"""Access control and size limits of requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_DISCARDED = 64 << 20  # bytes
_TIMEOUT = 60.0  # seconds to wait for the next part of a request


class RefusedError(Exception):
    """A request that gets an error with this HTTP status code."""

    def __init__(
        self, code: int, message: str, remedy: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy, self.headers = code, message, remedy, dict(headers or {})


class Token:
    """Requires the token in the Authorization header; an empty token admits everybody."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def __call__(self, request: Request) -> None:  # async: FastAPI runs plain functions in threads
        """Refuse a request without the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_right = secrets.compare_digest(given.strip().encode("latin-1"), self._token)
        if self._token and not (is_right and scheme.lower() == "bearer"):
            raise RefusedError(
                401,
                "This server requires a token.",
                "Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )


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
            message = dict(await _receive_part(receive))
            is_complete = not message.get("more_body")
            n_read += len(message.get("body", b""))
            too_large = too_large or n_read > self._max_bytes
            body = b"" if too_large else body + message.get("body", b"")
        if too_large:
            await _send_error(send, 413, "The request is too large.", f"Send up to {self._max_bytes} bytes.")
            return
        whole = [{**message, "body": body}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)


class HostCheck:
    """Refuses requests for another host, so that no other site can pose as this machine."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests for an allowed host."""
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
            if name not in self._allowed:
                await _send_error(send, 400, f"This server answers only to {', '.join(self._allowed)}.")
                return
        await self._app(scope, receive, send)


async def _receive_part(receive: Receive) -> Message:
    """The next part of a request; after the timeout the client counts as disconnected."""
    try:
        return await asyncio.wait_for(receive(), _TIMEOUT)
    except (TimeoutError, asyncio.TimeoutError):
        return {"type": "http.disconnect"}


async def _send_error(send: Send, code: int, message: str, remedy: str = "") -> None:
    """An error in the form that all errors have."""
    body = orjson.dumps({"error": {"message": message, "remedy": remedy}})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
