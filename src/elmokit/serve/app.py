"""The HTTP application: addresses, pages, errors. Start it with ``elmokit serve``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

import elmokit
from elmokit.core.errors import ElmokitError
from elmokit.serve import schema
from elmokit.serve.middleware import RequestCheck, error_response, require_token
from elmokit.serve.registry import Registry
from elmokit.serve.service import Service
from elmokit.serve.settings import ServeConfig

PAGE = Path(__file__).parent / "page"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "sandbox allow-scripts; frame-ancestors 'self'"
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": schema.ErrorAnswer, "description": text}
    for code, text in {
        400: "The request cannot be answered; the message says why.",
        401: "The token is missing or wrong.",
        404: "There is no such model.",
        413: "The request is too large.",
        422: "The request does not match the schema.",
        503: "Too many requests are waiting; try again.",
    }.items()
}
_ARRAY = {"content": {"application/x-npy": {"schema": {"type": "string", "format": "binary"}}}}
_ENDPOINTS = {  # answer and tag
    "tokens": (schema.TokensAnswer, "vectors"),
    "embed": (schema.EmbedAnswer, "vectors"),
    "similar": (schema.SimilarAnswer, "words in context"),
    "search": (schema.SearchAnswer, "texts and senses"),
    "similarity": (schema.SimilarityAnswer, "texts and senses"),
    "senses": (schema.SensesAnswer, "texts and senses"),
    "layers": (schema.LayersAnswer, "words in context"),
    "predict": (schema.PredictAnswer, "predictions"),
}


def make_app(registry: Registry, config: ServeConfig | None = None) -> FastAPI:
    """The application over some models."""
    config = config or ServeConfig()
    service = Service(registry, config)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="elmokit",
        version=elmokit.__version__,
        description="Contextual word vectors, similar words and texts, senses of words, and predictions.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((ElmokitError, HTTPException, RequestValidationError), _explain),
    )
    app.state.worker = service.worker
    app.get("/healthz", response_model=dict[str, str], tags=["server"])(service.health)
    app.head("/healthz", include_in_schema=False)(service.health)
    api: Any = {"dependencies": [Depends(require_token(config.token))] if config.token else []}
    # Each route belongs to the app itself: a router of its own would cost every request time.
    app.get("/v1/models", response_model=schema.ModelList, tags=["server"], responses=_ERRORS, **api)(
        service.models
    )
    for name, (answer, tag) in _ENDPOINTS.items():
        responses: Any = _ERRORS | ({200: _ARRAY} if name == "embed" else {})
        app.post(f"/v1/{name}", response_model=answer, tags=[tag], responses=responses, **api)(
            getattr(service, name)
        )
    # Nothing that a client sends is ever used as a path.
    pages = {"/": PAGE / "index.html", "/docs": PAGE / "docs.html", "/favicon.ico": PAGE / "icon.svg"}
    pages |= {f"/page/{file.name}": file for file in PAGE.iterdir() if file.suffix in _TYPES}
    for address, file in pages.items():
        app.add_route(address, partial(_send_page, file, _PAGE_POLICY), include_in_schema=False)
    for address, (_, file) in service.reports.items():
        app.add_route(address, partial(_send_page, file, _REPORT_POLICY), include_in_schema=False)
    is_local = config.host in ("127.0.0.1", "localhost", "::1")
    app.add_middleware(RequestCheck, max_bytes=config.max_body, is_local=is_local)
    if config.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[site.strip().rstrip("/") for site in config.cors.split(",")],
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-elmokit-offsets"],
        )
    return app


async def _send_page(file: Path, policy: str, request: Request) -> Response:
    if not file.is_file():
        raise HTTPException(404)
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return FileResponse(file, media_type=_TYPES.get(file.suffix, "text/html"), headers=headers)


async def _explain(request: Request, error: Any) -> Response:
    """The response to a request that failed."""
    if isinstance(error, ElmokitError):
        return error_response(400, error.message, error.remedy)
    if isinstance(error, HTTPException):
        return error_response(error.status_code, error.detail, getattr(error, "remedy", ""), error.headers)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    message = f"{where}: {first['msg']}." if where else f"{first['msg']}."
    remedy = "See /docs for the fields."
    if first["type"] == "json_invalid":
        message = f"The request is not valid JSON: it cannot be parsed at character {where}."
    if first["type"] == "model_attributes_type":
        remedy = "Send a JSON object with the header Content-Type: application/json."
    return error_response(422, message, remedy)
