"""Who may ask, and how much."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyLimit", "HostCheck", "RefusedError", "Token"]

_MOST_THROWN_AWAY = 64 << 20  # bytes
_PATIENCE = 60.0  # seconds in which the next part of a request must come


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        code: the HTTP status.
        message: what is wrong.
        remedy: what to do about it.
        headers: to go with the answer.
    """

    def __init__(
        self, code: int, message: str, remedy: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.remedy, self.headers = code, message, remedy, dict(headers or {})


class Token:
    """Lets pass whoever gives the token; everybody, if there is none."""

    def __init__(self, token: str) -> None:
        self._wanted = token.encode()

    async def __call__(self, request: Request) -> None:  # plain functions are sent to a thread each time
        """Refuse a request without the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_right = secrets.compare_digest(given.strip().encode("latin-1"), self._wanted)
        if self._wanted and not (is_right and scheme.lower() == "bearer"):
            raise RefusedError(
                401,
                "This server wants a token.",
                "Send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )


class BodyLimit:
    """Refuses requests that are too large, whatever they say of their size."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting what comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._most:
            if headers.get(b"expect", b"").lower() != b"100-continue":  # else nothing was sent yet
                await _throw_away(receive)
            await _too_large(send, self._most)
            return
        n_read = 0
        refused = is_whole = False

        async def counted() -> Message:
            nonlocal n_read, is_whole
            if is_whole:
                return await receive()
            message = await _next_part(receive)
            is_whole = not message.get("more_body")
            n_read += len(message.get("body", b""))
            if n_read > self._most:
                if message.get("more_body"):
                    await _throw_away(receive)
                raise _TooLargeError
            return message

        async def watched(message: Message) -> None:
            nonlocal refused
            if n_read <= self._most:
                await send(message)
            elif not refused:  # whatever the application makes of it
                refused = True
                await _too_large(send, self._most)

        await self._app(scope, counted, watched)


class HostCheck:
    """Refuses requests that came for another host: no other site may pose as this machine."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app, self._allowed = app, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what was meant for this machine."""
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
            if name not in self._allowed:
                await _answer(
                    send, 400, b"This server answers to " + ", ".join(self._allowed).encode() + b" only."
                )
                return
        await self._app(scope, receive, send)


class _TooLargeError(Exception):
    pass


async def _next_part(receive: Receive) -> Message:
    """The next part of a request; whoever does not send it in time counts as gone."""
    try:
        return await asyncio.wait_for(receive(), _PATIENCE)
    except (TimeoutError, asyncio.TimeoutError):
        return {"type": "http.disconnect"}


async def _throw_away(receive: Receive) -> None:
    """Read on, within reason: whoever is still sending does not listen to an answer yet."""
    n_left = _MOST_THROWN_AWAY
    while n_left > 0:
        message = await _next_part(receive)
        if not message.get("more_body"):
            return
        n_left -= len(message.get("body", b""))


async def _too_large(send: Send, most: int) -> None:
    await _answer(send, 413, b"The request is too large.", b"Send %d bytes at most." % most)


async def _answer(send: Send, code: int, message: bytes, remedy: bytes = b"") -> None:
    """An error in the form that all errors have."""
    body = b'{"error":{"message":"%b","remedy":"%b"}}' % (message, remedy)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
