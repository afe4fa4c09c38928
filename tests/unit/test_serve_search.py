"""The addresses that search texts, compare two of them and find senses, compared with the same offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from elmokit.core.errors import ConfigError, ModelError
from elmokit.serve.app import make_app
from elmokit.serve.registry import Registry, Served, open_registry
from elmokit.tasks.task import Examples, Labels
from elmokit.tasks.tfidf import fit_tfidf
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import search
from elmokit.vectors.senses import senses
from elmokit.vectors.store_writer import embed
from odd_texts import TEXTS
from serving import CORPUS, save_models

QUERY = "The bank raised its rates."
PAIR = ("The bank raised its rates.", "A river bank, a bank of stone.")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("served")
    texts = home / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return {**save_models(home), "texts": texts}


@pytest.fixture(scope="module")
def registry(folders: dict[str, Path]) -> Registry:
    names = ("small", "topics", "table")
    return open_registry([folders[name] for name in names], CORPUS, search=folders["texts"])


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[TestClient]:
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def elmo(registry: Registry) -> Elmo:
    return registry.models["small"].require_elmo()


def ask(client: TestClient, address: str, **body: Any) -> Any:
    answer = client.post(address, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_hits(found: Any, wanted: list[Any]) -> None:
    assert [(one["id"], one["index"], one["text"]) for one in found] == [
        (hit.id, hit.index, hit.text) for hit in wanted
    ]
    np.testing.assert_allclose([one["score"] for one in found], [hit.score for hit in wanted], atol=1e-6)


@pytest.mark.parametrize("model", ["small", "table"])
def test_search_finds_what_it_finds_offline(client: TestClient, registry: Registry, model: str) -> None:
    encoder = registry.models[model].require_encoder()
    for texts in (None, CORPUS):
        found = ask(client, "/v1/search", query=QUERY, texts=texts, k=3, model=model)
        check_hits(found["hits"], search(texts or TEXTS, [QUERY], encoder, 3)[0])
        assert found["n_texts"] == len(texts or TEXTS)
    facts = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
    assert (facts[model]["search"], facts[model]["search_texts"]) == ("texts.jsonl", len(TEXTS))


@pytest.mark.parametrize("pool", ["sentence", "mean"])
def test_a_folder_of_vectors_is_searched_with_its_model(
    folders: dict[str, Path], elmo: Elmo, tmp_path: Path, pool: Any
) -> None:
    embed(elmo, folders["texts"], tmp_path / "vectors", pool=pool)
    places = [folders["table"], folders["small"]]
    registry = open_registry(places, [], search=tmp_path / "vectors")
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:
        found = ask(client, "/v1/search", query=QUERY, k=2, model="small")
        check_hits(found["hits"], search(tmp_path / "vectors", [QUERY], elmo, 2)[0])
        answer = client.post("/v1/search", json={"query": QUERY})
        assert (answer.status_code, "no texts that table can" in answer.text) == (400, True)
    for place, message in (
        (folders["table"], "another model"),
        (tmp_path / "counts", "vectors for searching"),
    ):
        if not place.exists():
            rows = Examples([("rates",), ("goal",)], np.array([0, 1]), Labels(("money", "sport")))
            fit_tfidf("tfidf-svm", rows).save(place)
        with pytest.raises(ModelError, match=message):
            open_registry([place], [], search=tmp_path / "vectors")


def test_of_long_texts_the_beginning_is_sent(client: TestClient) -> None:
    (hit,) = ask(client, "/v1/search", query="bank", texts=["bank " * 1000])["hits"]
    assert hit["text"] == "bank " * 400


def test_similarity_and_aligned_words_equal_those_of_plain_numpy(client: TestClient, elmo: Elmo) -> None:
    for options, weights in (
        ({}, [1 / 3] * 3),
        ({"layer": 1}, [0, 1, 0]),
        ({"weights": [1, 0, -2]}, [1, 0, -2]),
    ):
        found = ask(client, "/v1/similarity", text=PAIR[0], other=PAIR[1], **options)
        assert found["tokens"] == elmo.words(PAIR)
        assert found["score"] == pytest.approx(float(elmo.similarity(PAIR[:1], PAIR[1:])[0]), abs=1e-6)
        rows, others = (np.einsum("nld,l->nd", layers, weights) for layers in elmo.embed(PAIR).layers)
        near = rows @ others.T / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(others, axis=1)
        np.testing.assert_allclose(found["cosines"], near, atol=1e-4)
        wanted = [(r, int(o)) for r, o in enumerate(near.argmax(1)) if near[:, o].argmax() == r]
        assert [*map(tuple, found["pairs"])] == wanted
    assert found["notes"] == []


def test_similarity_of_empty_and_of_long_texts(client: TestClient) -> None:
    found = ask(client, "/v1/similarity", text="", other="a bank")
    assert (found["score"], found["pairs"], found["cosines"]) == (0, [], [])
    assert "has similarity 0" in found["notes"][0]
    found = ask(client, "/v1/similarity", text="bank " * 201, other="bank")
    assert (found["pairs"], found["cosines"]) == ([], [])
    assert "up to 200 words" in found["notes"][0]
    assert found["score"] > 0.2


def test_senses_are_those_found_offline(client: TestClient, elmo: Elmo) -> None:
    texts = ["The bank lent money. The river bank is wet.", "A bank pays interest.", "Mud covers the bank."]
    for given in (texts, None):
        wanted = senses(elmo, "bank", given or [text for text in CORPUS if elmo.words([text])[0]], k=2)
        found = ask(client, "/v1/senses", word="bank", texts=given, k=2)
        for one, other in zip(found["senses"], wanted.senses, strict=True):
            assert {name: one[name] for name in ("name", "n_uses", "keywords")} == {
                name: asdict(other)[name] for name in ("name", "n_uses", "keywords")
            }
            assert len(one["examples"]) == len(other.examples)
        assert [one["sense"] for one in found["uses"]] == [name for name, _ in wanted.uses]
        np.testing.assert_allclose([[one["x"], one["y"]] for one in found["uses"]], wanted.points, atol=1e-5)
        for one in found["uses"]:
            assert one["words"][one["position"] - one["start"]].casefold() == "bank"
        assert (found["compared_by"], found["n_found"], found["notes"]) == ("layer 1", len(found["uses"]), [])
    found = ask(client, "/v1/senses", word="bank", texts=[" ".join(f"Bank {n}." for n in range(310))])
    assert (found["n_found"], len(found["uses"])) == (310, 300)
    assert "a random sample of 300" in found["notes"][0]


@pytest.mark.parametrize(
    ("address", "body", "part"),
    [
        ("search", {"query": " "}, "no words"),
        ("search", {"query": "qzx", "texts": [""]}, "None of the texts contains a word"),
        ("similarity", {"text": "a", "other": "b", "layer": 7}, "no layer 7"),
        ("similarity", {"text": "a", "other": "b", "model": "table"}, "static word vectors"),
        ("senses", {"word": "bnak", "texts": ["A bank."]}, "Did you mean 'bank'?"),
        ("senses", {"word": "a bank"}, "Give a single word"),
        ("senses", {"word": "bank", "texts": ["A bank."], "layer": 7}, "no layer 7"),
        ("senses", {"word": "bank", "model": "table"}, "static word vectors"),
    ],
)
def test_wrong_requests(client: TestClient, address: str, body: dict[str, Any], part: str) -> None:
    answer = client.post(f"/v1/{address}", json=body)
    assert answer.status_code == 400
    assert part in " ".join(answer.json()["error"].values())


def test_many_clients_at_once_get_the_same_answers(client: TestClient) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = []
    for number in range(10):
        text = f"{TEXTS[number % len(TEXTS)]} bank {number}"
        bodies += [
            ("/v1/search", {"query": text, "k": 2}),
            ("/v1/similarity", {"text": text, "other": QUERY}),
            ("/v1/senses", {"word": "bank", "texts": [text, *CORPUS]}),
        ]
    alone = [ask(client, address, **body) for address, body in bodies]
    with ThreadPoolExecutor(12) as threads:
        together = list(threads.map(lambda one: ask(client, one[0], **one[1]), bodies))
    for one, other in zip(together, alone, strict=True):
        assert one.get("pairs") == other.get("pairs")
        for name, key in (("hits", "id"), ("senses", "keywords")):
            assert [part[key] for part in one.get(name, ())] == [part[key] for part in other.get(name, ())]
        if "cosines" in one:
            np.testing.assert_allclose(one["cosines"], other["cosines"], atol=2e-4)


def test_a_server_without_texts_says_how_to_give_some(folders: dict[str, Path]) -> None:
    registry = open_registry([folders["small"]], [])
    with pytest.raises(ConfigError, match="it counts words"):
        Served("counts").require_encoder()
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:
        for address, body, part in (
            ("/v1/search", {"query": "bank"}, "--search FILE_OR_VECTORS"),
            ("/v1/senses", {"word": "bank"}, "no corpus"),
        ):
            answer = client.post(address, json=body)
            assert (answer.status_code, part in answer.text) == (400, True)
