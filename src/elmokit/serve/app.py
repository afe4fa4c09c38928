"""The HTTP application: addresses, pages, errors. Start it with ``elmokit serve``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

import elmokit
from elmokit.core.errors import ElmokitError
from elmokit.serve import schema
from elmokit.serve.batching import BusyError, GoneError
from elmokit.serve.middleware import BodyLimit, HostCheck, RefusedError, Token
from elmokit.serve.registry import Registry, Report
from elmokit.serve.service import Service, json_response
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
        description="Contextual word vectors, similar words in context, and predictions.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.worker = service.worker
    _add_errors(app)
    _add_pages(app, service.reports)
    _add_api(app, service)
    app.add_middleware(BodyLimit, max_bytes=config.max_body)
    if config.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-elmokit-offsets"],
        )
    if config.host in ("127.0.0.1", "localhost", "::1"):
        app.add_middleware(HostCheck, allowed=("127.0.0.1", "localhost", "[::1]"))
    return app


def _add_api(app: FastAPI, service: Service) -> None:
    """The addresses under /v1, and /healthz."""
    token = service.config.token
    shown = [Depends(HTTPBearer(auto_error=False))] if token else []  # for the schema only
    guarded: dict[str, Any] = {"dependencies": [Depends(Token(token)), *shown], "responses": _ERRORS}
    array: dict[int | str, Any] = {
        200: {"content": {"application/x-npy": {"schema": {"type": "string", "format": "binary"}}}}
    }
    app.get("/healthz", response_model=schema.Health, tags=["server"])(service.health)
    app.head("/healthz", include_in_schema=False)(service.health)
    app.get("/v1/models", response_model=schema.ModelList, tags=["server"], **guarded)(service.models)
    for name, answer, tag in (
        ("tokens", schema.TokensAnswer, "vectors"),
        ("embed", schema.EmbedAnswer, "vectors"),
        ("similar", schema.SimilarAnswer, "words in context"),
        ("layers", schema.LayersAnswer, "words in context"),
        ("predict", schema.PredictAnswer, "predictions"),
    ):
        options = {**guarded, "responses": {**_ERRORS, **array}} if name == "embed" else guarded
        app.post(f"/v1/{name}", response_model=answer, tags=[tag], **options)(getattr(service, name))


def _add_pages(app: FastAPI, reports: Mapping[str, Report]) -> None:
    """The page, its files, and reports. Nothing that a client sends is ever used as a path."""
    files = {file.name: file for file in PAGE.iterdir() if file.suffix in _TYPES}

    def page(file: Path, policy: str = _PAGE_POLICY) -> Response:
        headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }
        return FileResponse(file, media_type=_TYPES.get(file.suffix, "text/html"), headers=headers)

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return page(PAGE / "docs.html")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return page(files["icon.svg"])

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "There is no such page.")
        return page(files[name])

    @app.get("/reports/{name}", include_in_schema=False)
    async def report(name: str) -> Response:
        if name not in reports or not reports[name].page.is_file():
            raise RefusedError(404, "There is no such report.")
        return page(reports[name].page, _REPORT_POLICY)


def _add_errors(app: FastAPI) -> None:
    """Every error has the same form: a message and a remedy."""
    busy = (503, "Too many requests are waiting.", "Try again in a moment.", {"Retry-After": "1"})
    gone = (400, "The client disconnected before the answer was ready.", "", None)
    kinds: dict[type[Exception], Callable[[Any], tuple[int, str, str, Any]]] = {
        ElmokitError: lambda error: (400, error.message, error.remedy, None),
        RefusedError: lambda error: (error.code, error.message, error.remedy, error.headers),
        BusyError: lambda error: busy,
        GoneError: lambda error: gone,
        HTTPException: lambda error: (error.status_code, str(error.detail), "", error.headers),
        RequestValidationError: _describe_invalid,
    }

    async def respond(request: Request, error: Exception) -> Response:
        describe = next(describe for kind, describe in kinds.items() if isinstance(error, kind))
        code, message, remedy, headers = describe(error)
        response = json_response({"error": {"message": message[:500], "remedy": remedy[:500]}})
        response.status_code = code
        response.headers.update(headers or {})
        return response

    for kind in kinds:
        app.add_exception_handler(kind, respond)


def _describe_invalid(error: RequestValidationError) -> tuple[int, str, str, Any]:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    message = f"{where}: {first['msg']}." if where else f"{first['msg']}."
    if first["type"] == "json_invalid":
        message = f"The request is not valid JSON: it cannot be parsed at character {where}."
    remedy = "See /docs for the fields."
    if first["type"] == "model_attributes_type":
        remedy = "Send a JSON object with the header Content-Type: application/json."
    return 422, message, remedy, None
