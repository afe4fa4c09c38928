"""The server against its own OpenAPI schema: never a 5xx code, and answers as described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.serve.settings import ServeConfig
from serving import CORPUS, save_models

schemathesis = pytest.importorskip("schemathesis", reason="the package schemathesis is not installed")

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.schemas import BaseSchema

GETS = ["/healthz", "/v1/models"]
POSTS = ["/v1/tokens", "/v1/embed", "/v1/similar", "/v1/layers", "/v1/predict"]
POSTS += ["/v1/search", "/v1/similarity", "/v1/senses"]
MODELS = ["small", "topics", "table"]
some = settings(max_examples=30, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> BaseSchema:
    folders = save_models(tmp_path_factory.mktemp("served"))
    registry = open_registry([folders[name] for name in MODELS], CORPUS)
    app = make_app(registry, ServeConfig(host="0.0.0.0"))  # the test client uses another host name
    found: BaseSchema = schemathesis.openapi.from_asgi("/openapi.json", app)
    return found


def answer(case: Case[Any], *left_out: Any) -> int:
    """The status code, after checking code, content type, headers and body against the schema."""
    return case.call_and_validate(excluded_checks=list(left_out)).status_code


@pytest.mark.parametrize("address", POSTS)
def test_valid_requests(api: BaseSchema, address: str) -> None:
    # What the schema cannot express gets a 400: a layer that the model lacks, a word and its position.
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    codes: list[int] = []

    @given(api[address]["POST"].as_strategy(), st.sampled_from(["topics", *MODELS, ""]), st.integers(0, 3))
    @some
    def ask(case: Case[Any], model: str, layer: int) -> None:
        body: Any = case.body
        if model and isinstance(body, dict):  # most requests would fail at the name of the model
            body["model"] = model
            if address in ("/v1/embed", "/v1/similar", "/v1/similarity"):
                body |= {"layer": layer, "weights": None}
            if address == "/v1/similar":
                body |= {"text": 0, "position": 0, "word": None}
                body["texts"][0] += " bank"
            if address in ("/v1/search", "/v1/senses"):
                body |= {"query": f"bank {body['query']}"} if "query" in body else {"word": "bank"}
                body["texts"] = ["a bank", *(body.get("texts") or [])]
            if address == "/v1/predict":
                body["texts"] = [text if isinstance(text, str) else "bank" for text in body["texts"]]
        codes.append(answer(case, positive_data_acceptance))

    ask()
    assert set(codes) <= {200, 400, 404, 413}
    assert codes.count(200) > 5


@pytest.mark.parametrize("address", POSTS)
def test_invalid_requests(api: BaseSchema, address: str) -> None:
    codes: set[int] = set()

    @given(api[address]["POST"].as_strategy(schemathesis.GenerationMode.NEGATIVE))
    @some
    def ask(case: Case[Any]) -> None:
        codes.add(answer(case))

    ask()
    assert codes <= {400, 404, 413, 422}


@pytest.mark.parametrize("address", GETS)
def test_get_requests(api: BaseSchema, address: str) -> None:
    assert answer(api[address]["GET"].Case()) == 200


def test_the_schema_describes_every_address(api: BaseSchema) -> None:
    assert sorted(api) == sorted([*GETS, *POSTS])
    for operations in api.values():
        for operation in operations.values():
            assert operation.definition.raw["description"]
