"""The HTTP application: addresses, limits, errors. Start it with ``elmokit serve``."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

import elmokit
from elmokit.core.errors import ConfigError, ElmokitError
from elmokit.serve import schema
from elmokit.serve import service as answers
from elmokit.serve.asking import Api, cost_of
from elmokit.serve.batching import BusyError, GoneError
from elmokit.serve.middleware import BodyLimit, HostCheck, RefusedError, Token
from elmokit.serve.registry import Report, Served, Shelf
from elmokit.serve.settings import ServeConfig
from elmokit.vectors.embeddings import Embeddings
from elmokit.vectors.encoder import FloatArray

__all__ = ["make_app"]

PAGE = Path(__file__).parent / "page"
_MOST_NUMBERS = 4_000_000  # in a JSON answer
_MOST_AT_ONCE = 1 << 18  # numbers that are pooled while others wait; more than that, in the models' thread
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
        413: "Too much at once.",
        422: "The request is not of the right form.",
        503: "Too much is waiting; try again.",
    }.items()
}


def make_app(shelf: Shelf, config: ServeConfig | None = None) -> FastAPI:
    """The application over some models.

    Args:
        shelf: the models and reports.
        config: limits and who may ask.
    """
    config = config or ServeConfig()
    api = Api(shelf, config)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await api.close()

    app = FastAPI(
        title="elmokit",
        version=elmokit.__version__,
        description="Contextual word vectors, words alike in context, and text classification.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.worker = api.worker
    guard = Depends(Token(config.token))
    _add_errors(app)
    _add_pages(app, api.reports)
    _add_api(app, api, guard)
    app.add_middleware(BodyLimit, most=config.max_body)
    if config.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-elmokit-offsets"],
        )
    if config.host in ("127.0.0.1", "localhost", "::1"):  # no other site may pose as this machine
        app.add_middleware(HostCheck, allowed=("127.0.0.1", "localhost", "[::1]"))
    return app


def _texts(number: int) -> str:
    return f"{number:,} text{'s' if number > 1 else ''}"


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _add_api(app: FastAPI, api: Api, guard: Any) -> None:
    """The addresses under /v1 and /healthz."""
    described = [Depends(HTTPBearer(auto_error=False))] if api.config.token else []
    known: dict[str, Any] = {"dependencies": [guard, *described], "responses": _ERRORS}
    array = {"schema": {"type": "string", "format": "binary"}}
    both = {**_ERRORS, 200: {"content": {"application/x-npy": array}}}

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", response_model=schema.Health, tags=["server"])
    async def health() -> Response:
        """Whether the server is there."""
        return _json({"status": "ok", "version": elmokit.__version__})

    @app.get("/v1/models", response_model=schema.ModelList, tags=["server"], **known)
    async def models() -> Response:
        """The models and reports that this server has, and its limits."""
        limits = ("max_body", "max_texts", "max_characters", "max_words")
        return _json(
            {
                "version": elmokit.__version__,
                "models": [served.facts() for served in api.shelf.models.values()],
                "reports": [
                    {"name": report.name, "title": report.title, "address": f"/reports/{name}"}
                    for name, report in api.reports.items()
                ],
                "limits": {
                    **{name: getattr(api.config, name) for name in limits},
                    "influence_words": answers.INFLUENCE_WORDS,
                },
            }
        )

    @app.post("/v1/tokens", response_model=schema.TokensAnswer, tags=["vectors"], **known)
    async def tokens(request: Request, asked: schema.TokensRequest) -> Response:
        """Cut texts into words, as a model sees them."""
        served = api.model(asked.model)
        return _json({"model": served.name, "tokens": await api.words(request, served, asked.texts)})

    @app.post("/v1/embed", response_model=schema.EmbedAnswer, tags=["vectors"], **known | {"responses": both})
    async def embed(request: Request, asked: schema.EmbedRequest) -> Response:
        """Vectors of words in context, or of whole texts."""
        served, elmo = api.elmo(asked.model)
        if asked.all_layers and (asked.vectors != "words" or asked.layer is not None or asked.weights):
            raise ConfigError(
                "all_layers goes with vectors = 'words', and with neither layer nor weights.",
                remedy="Leave the others out, or all_layers.",
            )
        words = await api.words(request, served, asked.texts)
        weights = None if asked.all_layers else _mix(served, asked)
        n_rows = sum(map(len, words)) if asked.vectors == "words" else len(words)
        n_numbers = n_rows * elmo.dim * (elmo.n_layers if asked.all_layers else 1)
        if asked.format == "json" and n_numbers > _MOST_NUMBERS:
            raise RefusedError(
                413,
                f"The answer would have {n_numbers:,} numbers, which is too many for JSON.",
                "Ask for format = 'npy', for one vector per text, or for fewer texts.",
            )
        layers = await api.layers(request, served, elmo, asked.texts, words, asked.state)
        work = partial(_embed_answer, served, asked, words, layers, weights)
        n_read = sum(layer.size for layer in layers)
        return work() if n_read < _MOST_AT_ONCE else await api.worker.call(work, admitted=True)

    @app.post("/v1/similar", response_model=schema.SimilarAnswer, tags=["words in context"], **known)
    async def similar(request: Request, asked: schema.SimilarRequest) -> Response:
        """What is like a word in its context: neighbours in the corpus, the same word elsewhere, a map."""
        served, elmo = api.elmo(asked.model)
        words = await api.words(request, served, asked.texts)
        weights = answers.factors(served, asked.layer, asked.weights)
        layers = await api.layers(request, served, elmo, asked.texts, words)
        found = await api.worker.call(
            partial(
                answers.similar,
                served,
                words,
                layers,
                text=asked.text,
                position=asked.position,
                word=asked.word,
                weights=weights,
                k=asked.k,
                different=asked.different,
            ),
            admitted=True,
            gone=request.is_disconnected,
        )
        return _json(found)

    @app.post("/v1/layers", response_model=schema.LayersAnswer, tags=["words in context"], **known)
    async def layers(request: Request, asked: schema.LayersRequest) -> Response:
        """What each layer contributes to the words of a text, and, for a classifier, to its class."""
        served, elmo = api.elmo(asked.model)
        words = await api.words(request, served, [asked.text])
        found = await api.layers(request, served, elmo, [asked.text], words)
        work = partial(answers.layer_facts, served, words[0], found[0])
        cost = (
            3 * cost_of(words) if served.classifier else 1
        )  # it reads the text again, and without each layer
        return _json(await api.worker.call(work, cost=cost, admitted=True, gone=request.is_disconnected))

    @app.post("/v1/classify", response_model=schema.ClassifyAnswer, tags=["classes"], **known)
    async def classify(request: Request, asked: schema.ClassifyRequest) -> Response:
        """The classes of texts, with their probabilities and, if asked, each word's influence."""
        served = api.model(asked.model)
        if asked.model is None and served.classifier is None:
            served = next((one for one in api.shelf.models.values() if one.classifier), served)
        classifier = served.classifier
        if classifier is None:
            raise ConfigError(
                f"{served.name} is no classifier.",
                remedy="Make one with: elmokit fit MODEL rows.csv --out topics; serve it with: "
                "elmokit serve topics",
            )
        words = await api.words(request, served, asked.texts)
        longest = max(map(len, words))
        if asked.influence and (longest > answers.INFLUENCE_WORDS or len(words) > 8):
            raise RefusedError(
                413,
                f"Influence is computed for 8 texts at most, of {answers.INFLUENCE_WORDS} words at most.",
                "Send less, or leave influence out.",
            )
        predictions = await api.predictions(request, served, asked.texts, words)
        results: list[dict[str, Any]] = []
        for row, prediction in zip(words, predictions, strict=True):
            columns = classifier.task.columns(prediction)
            result: dict[str, Any] = {
                "label": columns["prediction"],
                "probabilities": columns["probabilities"],
                "influence": None,
            }
            if asked.influence:
                values = await api.influence(request, served, row)
                result["influence"] = {"tokens": row, "values": values}
            results.append(result)
        limit = classifier.config.fit.max_words
        n_cut = sum(len(row) > limit for row in words)
        notes = [f"Only the first {limit} words were read of {_texts(n_cut)}."] if n_cut else []
        n_empty = sum(not row for row in words)
        notes += [f"There is no word in {_texts(n_empty)}: the class means nothing."] if n_empty else []
        return _json({"model": served.name, "results": results, "notes": notes})


def _mix(served: Served, asked: schema.EmbedRequest) -> list[float]:
    """As ``Elmo.embed``: equal weights unless told otherwise, also for a classifier's encoder."""
    if asked.layer is None and asked.weights is None:
        n_layers = len(served.weights())
        return [1.0 / n_layers] * n_layers
    return answers.factors(served, asked.layer, asked.weights)


def _embed_answer(
    served: Served,
    asked: schema.EmbedRequest,
    words: list[list[str]],
    layers: Sequence[FloatArray],
    weights: list[float] | None,
) -> Response:
    assert served.elmo is not None
    flat: FloatArray = np.concatenate(layers)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in words])]).astype(np.int64)
    found = Embeddings(words, flat, offsets, served.elmo.sif_weights(words))
    rows: Any
    if weights is None:
        rows = found.layers
    elif asked.vectors == "words":
        rows = found.mixed(weights)
    else:
        rows = found.sentence(asked.vectors, weights=weights)
    n_empty = sum(not row for row in words)
    if asked.format == "json":
        return _json(
            {
                "model": served.name,
                "tokens": words,
                "vectors": [np.ascontiguousarray(row) for row in rows],
                "notes": [f"There is no word in {_texts(n_empty)}."] if n_empty else [],
            }
        )
    whole = rows if isinstance(rows, np.ndarray) else np.concatenate(rows)
    body = io.BytesIO()
    np.save(body, np.ascontiguousarray(whole, dtype=np.float32), allow_pickle=False)
    headers = {"X-Elmokit-Offsets": ",".join(map(str, offsets))} if asked.vectors == "words" else {}
    return Response(body.getvalue(), media_type="application/x-npy", headers=headers)


def _add_pages(app: FastAPI, reports: Mapping[str, Report]) -> None:
    """The page, its files, and reports. Nothing that a client sends is ever a path."""
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    files = {file.name: file for file in PAGE.iterdir() if file.suffix in kinds}

    def page(name: str) -> HTMLResponse:
        text = (PAGE / name).read_text(encoding="utf-8")
        return HTMLResponse(text, headers=_headers(_PAGE_POLICY))

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page("index.html")

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> Response:
        return page("docs.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "There is no such page.")
        kind = kinds[files[name].suffix]
        return FileResponse(files[name], media_type=kind, headers=_headers(_PAGE_POLICY))

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return FileResponse(files["icon.svg"], media_type="image/svg+xml")

    @app.get("/reports/{name}", include_in_schema=False)
    async def report(name: str) -> Response:
        if name not in reports or not os.path.isfile(reports[name].page):
            raise RefusedError(404, "There is no such report.")
        return FileResponse(reports[name].page, media_type="text/html", headers=_headers(_REPORT_POLICY))


def _headers(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def _add_errors(app: FastAPI) -> None:
    """Every error has one form: a message, and what to do."""

    def problem(code: int, message: str, remedy: str = "", headers: Any = None) -> Response:
        body = orjson.dumps({"error": {"message": message[:500], "remedy": remedy[:500]}})
        return Response(body, code, headers=headers, media_type="application/json")

    @app.exception_handler(ElmokitError)
    async def ours(request: Request, error: ElmokitError) -> Response:
        return problem(400, error.message, error.remedy)

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return problem(error.code, error.message, error.remedy, error.headers)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return problem(503, "Too much is waiting.", "Try again in a moment.", {"Retry-After": "1"})

    @app.exception_handler(GoneError)
    async def gone(request: Request, error: GoneError) -> Response:
        return problem(400, "You left before the answer was there.")

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        message = f"{where}: {first['msg']}." if where else f"{first['msg']}."
        if first["type"] == "json_invalid":
            message = f"The request is not JSON: it cannot be read at character {where}."
        remedy = "See /docs for what can be asked."
        if first["type"] == "model_attributes_type" and "json" not in request.headers.get("content-type", ""):
            remedy = "Send JSON with the header Content-Type: application/json."
        return problem(422, message, remedy)
