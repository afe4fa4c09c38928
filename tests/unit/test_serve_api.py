"""Every address of the server, compared with the same models offline."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fastapi.testclient import TestClient

from elmokit import __version__
from elmokit.serve.app import make_app
from elmokit.serve.registry import Registry, Served, open_registry
from elmokit.tasks.model import TaskModel
from elmokit.tasks.task import Examples, Labels
from elmokit.tasks.tfidf import fit_tfidf
from elmokit.text.tokenizing import TextPipeline
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.mix import ScalarMix
from elmokit.vectors.neighbors import Occurrences, map_2d
from odd_texts import TEXTS
from serving import CLASSES, CORPUS, save_models, untrained
from topics import probabilities

BANKS = ["The bank raised its rates.", "A river bank.", "bank and bank and Bank"]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    folders = save_models(tmp_path_factory.mktemp("served"))
    return open_registry(list(folders.values()), CORPUS, corpus_name="odd texts")


def client_of(registry: Registry) -> TestClient:
    return TestClient(make_app(registry), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[TestClient]:
    with client_of(registry) as found:
        yield found


@pytest.fixture(scope="module")
def elmo(registry: Registry) -> Elmo:
    found = registry.models["small"].elmo
    assert found is not None
    return found


def ask(client: TestClient, address: str, **body: Any) -> Any:
    answer = client.post(address, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def refused(client: TestClient, code: int, address: str, **body: Any) -> str:
    answer = client.post(address, json=body)
    assert answer.status_code == code, answer.text
    error = answer.json()["error"]
    return f"{error['message']} {error['remedy']}"


def check_close(found: Any, wanted: Any) -> None:
    """Each array of two lists of them, to 1e-5."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one, dtype=np.float64).reshape(other.shape), other, atol=1e-5)


def classifier_of(registry: Registry, name: str) -> TaskModel:
    found = registry.models[name].predictor
    assert isinstance(found, TaskModel)
    return found


# -- what there is ----------------------------------------------------------------------------


def test_health_and_models(client: TestClient, registry: Registry) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "version": __version__}
    found = client.get("/v1/models").json()
    assert [one["name"] for one in found["models"]] == [*registry.models]
    assert found["models"][1]["classes"] == CLASSES
    assert found["reports"] == []
    assert found["limits"]["max_texts"] == 256


# -- vectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["zero", "warm"])
def test_vectors_of_words(client: TestClient, elmo: Elmo, state: Any) -> None:
    wanted = elmo.embed(TEXTS, state=state)
    for options, rows in (
        ({}, wanted.mixed()),
        ({"layer": 0}, wanted.layer(0)),
        ({"layer": -1}, wanted.layer(2)),
        ({"weights": [0.5, -1, 2]}, wanted.mixed([0.5, -1, 2])),
    ):
        found = ask(client, "/v1/embed", texts=TEXTS, state=state, **options)
        assert found["tokens"] == wanted.tokens
        assert found["notes"] == ["Texts without words: 1."]
        check_close(found["vectors"], rows)
        answer = client.post("/v1/embed", json={"texts": TEXTS, "state": state, "format": "npy", **options})
        assert answer.headers["content-type"] == "application/x-npy"
        whole = np.load(io.BytesIO(answer.content), allow_pickle=False)
        assert whole.dtype == np.float32
        offsets = [int(part) for part in answer.headers["x-elmokit-offsets"].split(",")]
        check_close([whole[a:b] for a, b in itertools.pairwise(offsets)], rows)


@pytest.mark.parametrize("pooling", ["mean", "max", "last", "sif"])
def test_vectors_of_texts(client: TestClient, elmo: Elmo, pooling: Any) -> None:
    offline = elmo.embed(TEXTS)
    for options in ({}, {"layer": 1}, {"weights": [0.1, 0.2, 0.3]}):
        wanted, body = offline.sentence(pooling, **options), {"texts": TEXTS, "vectors": pooling, **options}
        check_close(ask(client, "/v1/embed", **body)["vectors"], wanted)
        answer = client.post("/v1/embed", json={**body, "format": "npy"})
        assert "x-elmokit-offsets" not in answer.headers
        np.testing.assert_allclose(np.load(io.BytesIO(answer.content)), wanted, atol=1e-5)


def test_lists_of_words_and_empty_texts(client: TestClient, elmo: Elmo) -> None:
    texts: list[str | list[str]] = [["The bank", "raised", "", " rates "], "A river.", [], ""]
    wanted = elmo.embed(texts)
    found = ask(client, "/v1/embed", texts=texts)
    assert found["tokens"] == wanted.tokens
    check_close(found["vectors"], wanted.mixed())
    answer = client.post("/v1/embed", json={"texts": [""], "format": "npy"})
    assert np.load(io.BytesIO(answer.content)).shape == (0, elmo.dim)


def test_concurrent_requests_get_the_same_answers(client: TestClient, registry: Registry, elmo: Elmo) -> None:
    rng = np.random.default_rng(0)
    topics, words = classifier_of(registry, "topics"), [word for row in elmo.words(TEXTS) for word in row]
    pairs = [[" ".join(rng.choice(words, size=rng.integers(1, 12))), "bank"] for _ in range(60)]

    def answer(number: int) -> Any:
        if number % 3 == 0:
            results = ask(client, "/v1/predict", texts=pairs[number], model="topics")["results"]
            return [list(one["probabilities"].values()) for one in results]
        state = "warm" if number % 3 == 1 else "zero"
        return ask(client, "/v1/embed", texts=pairs[number], state=state, vectors="mean")["vectors"]

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(answer, range(60)))
    for number, texts in enumerate(pairs):
        state: Any = "warm" if number % 3 == 1 else "zero"
        alone = (
            elmo.embed(texts, state=state).sentence("mean") if number % 3 else probabilities(topics, texts)
        )
        check_close(answers[number], alone)


def test_wrong_embed_requests(client: TestClient) -> None:
    for options, part in (
        ({"layer": 3}, "no layer 3"),
        ({"layer": -4}, "no layer -4"),
        ({"weights": [1.0]}, "1 weights"),
        ({"weights": []}, "0 weights"),
        ({"layer": 0, "weights": [1, 1, 1]}, "used together"),
        ({"model": "table"}, "static word vectors"),
    ):
        assert part in refused(client, 400, "/v1/embed", texts=["a"], **options)
    assert "what: Extra inputs" in refused(client, 422, "/v1/embed", texts=["a"], what=1)


def test_an_unknown_model(client: TestClient) -> None:
    message = refused(client, 404, "/v1/embed", texts=["a"], model="smoll")
    assert message == "There is no model 'smoll'. Did you mean 'small'?"


# -- words in context -------------------------------------------------------------------------


def cosine(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [1 / 3] * 3),
        ({"layer": -1}, [0.0, 0.0, 1.0]),
        ({"weights": [0.2, -0.1, 0.5]}, [0.2, -0.1, 0.5]),
    ],
)
def test_similar_words_equal_those_of_plain_numpy(
    client: TestClient, elmo: Elmo, options: dict[str, Any], weights: list[float]
) -> None:
    found = ask(client, "/v1/similar", texts=BANKS, text=1, word="BANK", k=6, **options)
    layers = [part.astype(np.float64) for part in elmo.embed(BANKS).layers]
    assert (found["word"], found["text"], found["position"]) == ("bank", 1, 2)
    assert found["tokens"] == elmo.words(BANKS)
    own = layers[1][2]
    corpus = elmo.embed([text for text in CORPUS if text != "\u200b"])
    rows = np.concatenate(corpus.layers).astype(np.float16).astype(np.float64)
    words = [(number, word) for number, row in enumerate(corpus.tokens) for word in row]
    scores = [cosine(weights @ row, weights @ own) for row in rows]
    best = sorted((s for s, (_, word) in zip(scores, words, strict=True) if word.isalnum()), reverse=True)
    assert [one["score"] for one in found["neighbors"]] == pytest.approx(best[:6], abs=1e-5)
    others = [(0, 1), (2, 0), (2, 2), (2, 4)]
    assert [(one["text"], one["position"]) for one in found["siblings"]] == others
    for one in found["siblings"]:
        other = layers[one["text"]][one["position"]]
        alike = [cosine(a, b) for a, b in zip(own, other, strict=True)]
        assert one["layers"] == pytest.approx(alike, abs=1e-5)
        assert one["score"] == pytest.approx(cosine(weights @ own, weights @ other), abs=1e-5)
    mine = [weights @ layers[text][place] for text, place in sorted([(1, 2), *others])]
    theirs = [weights @ row for row, (_, word) in zip(rows, words, strict=True) if word.casefold() == "bank"]
    points, shares = map_2d(np.stack([*mine, *theirs]))
    given = found["map"]["points"]
    assert found["map"]["explained"] == pytest.approx(shares, abs=1e-4)
    np.testing.assert_allclose([[one["x"], one["y"]] for one in given], points, atol=1e-4)
    assert [one["source"] for one in given] == ["yours"] * 5 + ["corpus"] * len(theirs)
    assert all(one["words"][one["position"]].casefold() == "bank" for one in given)
    assert found["notes"] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"mix": "function", "mix_width": 5},
        {"mix": "frozen"},
        {"mix_weights": "0.5,0.2,0.3", "mix_norm": True},
    ],
)
def test_a_classifier_compares_words_by_its_own_mix(
    tmp_path: Path, elmo: Elmo, settings: dict[str, Any]
) -> None:
    model = untrained(elmo, **settings)
    model.save(tmp_path / "model")
    registry = open_registry([tmp_path / "model"], CORPUS)
    with client_of(registry) as client:
        found = ask(client, "/v1/similar", texts=BANKS, text=1, word="bank", k=3)
        layers = ask(client, "/v1/layers", text=BANKS[1])
    corpus, mix = registry.models["model"].occurrences, model.network.mix
    assert corpus is not None
    with torch.no_grad():
        own = mix(torch.from_numpy(elmo.embed([BANKS[1]]).flat).unbind(1))[found["position"]]
        rows = mix(corpus.flat.float().unbind(1))
    words = [word for text in corpus.texts for word in text]
    scores = torch.cosine_similarity(rows, own[None]).tolist()
    best = sorted((s for s, word in zip(scores, words, strict=True) if word.isalnum()), reverse=True)
    assert [one["score"] for one in found["neighbors"]] == pytest.approx(best[:3], abs=1e-4)
    if "mix_norm" in settings:  # layers are as long as each other
        shares = np.abs(list(mix.values().values()))
        np.testing.assert_allclose(layers["shares"], [shares / shares.sum()] * 4, atol=1e-3)


def test_of_long_texts_only_the_context_is_sent(client: TestClient) -> None:
    long = " ".join(["the"] * 40 + ["bank"] + ["fell"] * 40)
    found = ask(client, "/v1/similar", texts=[long, "bank on it", "my bank"], word="bank", k=4)
    assert (found["position"], len(found["tokens"][0])) == (40, 81)
    mine = found["map"]["points"][0]
    assert (mine["position"], mine["start"], len(mine["words"])) == (40, 25, 31)
    for one in [*found["map"]["points"], *found["neighbors"]]:
        word = one["words"][one["position"] - one["start"]]
        assert word.casefold() == one.get("word", "bank").casefold()


def test_position_k_and_different(client: TestClient) -> None:
    found = ask(client, "/v1/similar", texts=BANKS, text=2, position=4, k=3, different=True)
    assert (found["word"], len(found["neighbors"])) == ("Bank", 3)
    assert "bank" not in {one["word"].casefold() for one in found["neighbors"]}


def test_words_that_are_too_rare_or_too_frequent_for_a_map(client: TestClient) -> None:
    texts = ["xyzzy here", "xyzzy there", "Xyzzy"]
    found = ask(client, "/v1/similar", texts=texts[:2], word="xyzzy")
    assert found["map"] == {"points": [], "explained": []}
    assert "three occurrences" in found["notes"][0]
    assert len(ask(client, "/v1/similar", texts=texts, word="xyzzy")["map"]["points"]) == 3
    found = ask(client, "/v1/similar", texts=["bank " * 4000] * 2, text=1, position=3999)
    yours = [one for one in found["map"]["points"] if one["source"] == "yours"]
    assert (len(yours), len(found["siblings"])) == (150, 149)
    assert (yours[-1]["text"], yours[-1]["position"]) == (1, 3999), "the chosen one is among them"
    assert found["notes"] == ["The word occurs 8,000 times in the texts; 150 are shown."]


def test_wrong_similar_requests(client: TestClient) -> None:
    for options, part in (
        ({"word": "banc"}, "no word 'banc'. Did you mean 'bank'?"),
        ({"position": 99}, "no word 99"),
        ({"position": 0, "word": "bank"}, "not both"),
        ({}, "not both"),
        ({"text": 3, "position": 0}, "no text 3"),
        ({"position": 0, "layer": 5}, "no layer 5"),
        ({"position": 0, "model": "table"}, "static word vectors"),
    ):
        assert part in refused(client, 400, "/v1/similar", texts=BANKS, **options)
    refused(client, 400, "/v1/similar", texts=[""], position=0)
    refused(client, 400, "/v1/similar", texts=[""], word="bank")


def test_numbers_are_numbers(client: TestClient) -> None:
    found = ask(client, "/v1/similar", texts=BANKS, text=1.0, position=2.0, k=3.0)
    assert (found["word"], len(found["neighbors"])) == ("bank", 3)
    for wrong in ({"position": True}, {"position": "0"}, {"different": 1}, {"texts": ["a"] * 51}):
        refused(client, 422, "/v1/similar", **({"texts": BANKS, "position": 0} | wrong))


# -- layers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "topics", "tags", "learned"])
def test_layer_facts(client: TestClient, registry: Registry, elmo: Elmo, name: str) -> None:
    text = "The bank raised its rates, and a river flows."
    found = ask(client, "/v1/layers", text=text, model=name)
    classifier: Any = registry.models[name].predictor
    weights = [1 / 3] * 3
    if classifier is not None and name != "learned":
        weights = list(classifier.network.mix.values().values())
    layers = elmo.embed([text]).layers[0].astype(np.float64)  # (n_words, layer, dim)
    lengths = np.linalg.norm(layers, axis=2)
    shares = lengths * np.abs(weights) / (lengths * np.abs(weights)).sum(axis=1, keepdims=True)
    assert found["tokens"] == elmo.words([text])[0]
    np.testing.assert_allclose(found["shares"], shares, atol=1e-5)
    assert [one["weight"] for one in found["layers"]] == pytest.approx(weights)
    assert [one["share"] for one in found["layers"]] == pytest.approx(shares.mean(axis=0), abs=1e-5)
    assert found["layers"][0]["turn"] is None
    for depth in (1, 2):
        turns = [1 - cosine(row[depth - 1], row[depth]) for row in layers]
        assert found["layers"][depth]["turn"] == pytest.approx(np.mean(turns), abs=1e-5)
    if classifier is None:
        assert (found["mix"], found["label"], found["probability"]) == ("equal", None, None)
        return
    whole = probabilities(classifier, [text])[0]
    assert found["mix"] == classifier.network.config.mix.mix
    assert found["label"] == CLASSES[whole.argmax()]
    assert found["probability"] == pytest.approx(whole.max(), abs=1e-5)
    for depth in range(3):
        without = copy.deepcopy(classifier.network)
        if isinstance(without.mix, ScalarMix):
            without.mix.weights.data[depth] = 0
        else:
            matrix: Any = without.mix.linear
            matrix.weight.data[:, depth * elmo.dim : (depth + 1) * elmo.dim] = 0
        rival = replace(classifier, encoder=elmo, network=without)
        wanted = probabilities(rival, [text])[0, whole.argmax()]
        assert found["layers"][depth]["without"] == pytest.approx(wanted, abs=1e-5)


def test_layers_of_an_empty_text_and_of_static_vectors(client: TestClient) -> None:
    for name in ("small", "topics"):
        found = ask(client, "/v1/layers", text="", model=name)
        assert (found["tokens"], found["shares"]) == ([], [])
        assert [one["share"] for one in found["layers"]] == [0, 0, 0]
    assert "static word vectors" in refused(client, 400, "/v1/layers", text="a", model="table")


# -- classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["topics", "tags", "learned", "table"])
def test_classes(client: TestClient, registry: Registry, name: str) -> None:
    classifier = classifier_of(registry, name)
    wanted = probabilities(classifier, TEXTS)
    found = ask(client, "/v1/predict", texts=TEXTS, model=name)
    assert [one["prediction"] for one in found["results"]] == [
        p.label for p in classifier.predict((text,) for text in TEXTS)
    ]
    check_close([list(one["probabilities"].values()) for one in found["results"]], list(wanted))
    assert all(list(one["probabilities"]) == CLASSES for one in found["results"])
    assert all("influence" not in one for one in found["results"])
    cut = [len(row) - 6 for row in classifier.encoder.words(TEXTS) if len(row) > 6]
    notes = [f"{len(cut)} texts were truncated ({sum(cut)} words over the limit)."]
    notes = notes if name == "learned" else []
    empty = "Texts without words, for which a prediction is meaningless: 1."
    assert found["notes"] == [*notes, empty]


@pytest.mark.parametrize("name", ["topics", "tags", "learned", "table"])
def test_influence_is_the_loss_without_a_word(client: TestClient, registry: Registry, name: str) -> None:
    classifier = classifier_of(registry, name)
    texts = ["The bank raised its rates again.", "river", ""]
    found = ask(client, "/v1/predict", texts=texts, model=name, influence=True)["results"]
    for text, one in zip(texts, found, strict=True):
        words = classifier.encoder.words([text])[0]
        whole = probabilities(classifier, [words])[0]
        costs = []
        for place in range(len(words)):
            rest = probabilities(classifier, [words[:place] + words[place + 1 :]])[0]
            costs.append(whole[whole.argmax()] - rest[whole.argmax()])
        assert one["influence"]["tokens"] == words
        assert one["influence"]["values"] == pytest.approx(costs, abs=1e-5)


@pytest.mark.parametrize("method", ["tfidf-svm", "tfidf-lr"])
def test_word_counts_predict_and_have_no_vectors(tmp_path: Path, method: str) -> None:
    rows = [("rates rose", "money"), ("the bank cut rates", "money"), ("a late goal", "sport")]
    labels, texts = Labels(("money", "sport")), [(text,) for text, _ in rows]
    model = fit_tfidf(method, Examples(texts, np.array([0, 0, 1]), labels))
    model.save(tmp_path / "counts")
    with client_of(open_registry([tmp_path / "counts"], CORPUS)) as client:
        facts = client.get("/v1/models").json()["models"][0]
        assert (facts["task"], facts["contextual"], facts["n_layers"]) == ("classify", False, 0)
        answer = ask(client, "/v1/predict", texts=["Rates didn't rise.", "goal"], influence=True)
        name = "scores" if method == "tfidf-svm" else "probabilities"
        shares = [[*one[name].values()] for one in answer["results"]]
        check_close(shares, probabilities(model, ["Rates didn't rise.", "goal"]))
        influence = answer["results"][0]["influence"]
        assert influence["tokens"] == ["Rates", "didn't", "rise."]
        assert influence["values"][0] > 0
        assert ("not probabilities" in str(answer["notes"])) == (method == "tfidf-svm")
        assert "word counts" in refused(client, 400, "/v1/embed", texts=["a"])


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/v1/embed", {"texts": ["The bank didn't fall.", "A river."]}),
        ("/v1/similar", {"texts": ["The bank didn't fall.", "A river."], "position": 1}),
        ("/v1/predict", {"texts": ["The bank didn't fall.", "A river."], "model": "topics"}),
    ],
)
def test_every_text_is_tokenized_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, address: str, body: dict[str, Any]
) -> None:
    split, seen = TextPipeline.words, list[str]()

    def watch(pipeline: TextPipeline, text: str) -> list[str]:
        seen.append(text)
        return split(pipeline, text)

    monkeypatch.setattr(TextPipeline, "words", watch)
    ask(client, address, **body)
    assert seen == body["texts"]


def test_a_tagger_has_no_classes_to_explain(client: TestClient) -> None:
    facts = ask(client, "/v1/layers", text="The bank fell.", model="names")
    assert (facts["label"], facts["probability"], facts["layers"][0]["without"]) == (None, None, None)
    message = refused(client, 400, "/v1/predict", texts=["The bank fell."], model="names", influence=True)
    assert "does not support influence" in message


def test_the_first_predictor_is_the_default(client: TestClient) -> None:
    assert ask(client, "/v1/predict", texts=["a"])["model"] == "topics"
    assert "makes no predictions" in refused(client, 400, "/v1/predict", texts=["a"], model="small")


def test_limits_of_influence(client: TestClient) -> None:
    ask(client, "/v1/predict", texts=["bank " * 201])
    assert "200 words" in refused(client, 413, "/v1/predict", texts=["bank " * 201], influence=True)
    assert "8 texts" in refused(client, 413, "/v1/predict", texts=["bank"] * 9, influence=True)


def test_a_model_without_corpus_and_start_state(elmo: Elmo) -> None:
    cold = Elmo(replace(elmo.folder, start_state=None))
    served = Served("bare", cold, None, Occurrences.read(cold, []))
    with client_of(Registry({"bare": served})) as client:
        found = ask(client, "/v1/similar", texts=BANKS, word="bank")
        assert found["neighbors"] == []
        assert len(found["map"]["points"]) == 5
        assert "makes no predictions" in refused(client, 400, "/v1/predict", texts=["a"])
        assert "no start state" in refused(client, 400, "/v1/embed", texts=["a"], state="warm")
