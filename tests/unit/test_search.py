"""Searching texts and folders, and near-duplicates, in Python and as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elmokit.core.errors import ElmokitError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.foreign import TextVectors
from elmokit.vectors.neighbors import cosines, find_duplicates, search, unit_rows
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_writer import embed
from odd_texts import make_model
from program import Cli

TEXTS = [
    "The bank raised its rates on Monday.",
    "A river bank is made of mud.",
    "",
    "The bank raised its rates on Monday.",
    "Nobody reads the company's letters.",
]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(make_model(0, known="the bank rates"))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    path.write_text("text,key\n" + "".join(f'"{t}",k{i}\n' for i, t in enumerate(TEXTS)), encoding="utf-8")
    return path


def test_a_list_a_file_and_a_folder_give_the_same_texts(elmo: Elmo, table: Path, tmp_path: Path) -> None:
    store = embed(elmo, table, tmp_path / "store", pool="sentence", id_column="key").folder
    assert VectorStore.open(store).config.selection == "sentence vector"
    answers = [
        search(TEXTS, [TEXTS[4], "bank"], elmo, k=3),
        search(table, [TEXTS[4], "bank"], elmo, k=3, id_column="key"),
        search(store, [TEXTS[4], "bank"], elmo, k=3),
    ]
    for answer in answers:
        assert [len(hits) for hits in answer] == [3, 3]
        assert (answer[0][0].index, answer[0][0].text) == (4, TEXTS[4])
        np.testing.assert_allclose(
            [hit.score for hits in answer for hit in hits],
            [hit.score for hits in answers[0] for hit in hits],
            atol=1e-5,
        )
    assert [answer[0][0].id for answer in answers] == ["4", "k4", "k4"]


@pytest.mark.parametrize("block", [1, 2, 100])
def test_duplicates_are_those_of_brute_force(elmo: Elmo, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.vectors.neighbors._PAIR_ROWS", block)
    vectors = elmo.sentences(TEXTS)
    scores = cosines(vectors, unit_rows(vectors))
    wanted = sorted((-scores[a, b], a, b) for a in range(5) for b in range(a + 1, 5) if scores[a, b] >= 0.2)
    pairs = find_duplicates(TEXTS, elmo, 0.2)
    assert [(pair.first.index, pair.second.index) for pair in pairs] == [(a, b) for _, a, b in wanted]
    np.testing.assert_allclose([pair.score for pair in pairs], [-score for score, _, _ in wanted], atol=1e-6)
    assert (pairs[0].first.index, pairs[0].second.index) == (0, 3)
    (best,) = find_duplicates(TEXTS, elmo, 0.2, at_most=1)
    assert best == pairs[0]


def test_pairs_below_zero_are_all_listed(elmo: Elmo) -> None:
    assert len(find_duplicates(TEXTS, elmo, -1)) == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda elmo: search(TEXTS, ["bank"], elmo, approximate=True), r"elmokit\[search\]"),
        (lambda elmo: search(TEXTS, ["bank", " "], elmo), "Query 1"),
        (lambda elmo: search(["", " "], ["bank"], elmo), "None of the texts contains a word"),
        (lambda elmo: search([], ["bank"], elmo), "None of the texts contains a word"),
        (lambda elmo: search("nowhere.txt", ["bank"], elmo), "nowhere.txt"),
        (lambda elmo: search(TEXTS, ["bank"], elmo, k=0), "k = 0"),
        (lambda elmo: find_duplicates(TEXTS, elmo, 1.5), "at_least = 1.5"),
        (lambda elmo: find_duplicates(TEXTS, elmo, at_most=0), "at_most = 0"),
        (lambda elmo: find_duplicates(TEXTS), "requires a model"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    elmo: Elmo, call: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.core.errors.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ElmokitError, match=message):
        call(elmo)


def test_approximate_search_finds_nearly_what_exact_search_does() -> None:
    pytest.importorskip("faiss", reason="the package faiss-cpu is not installed")
    texts, vectors = [f"text {n}" for n in range(2000)], np.random.default_rng(0).normal(size=(2000, 16))
    encoder = TextVectors(vectors.astype(np.float32)).bind(texts)
    exact, near = (search(texts, texts[:50], encoder, approximate=how) for how in (False, True))
    n_found = 0
    for own, other in zip(exact, near, strict=True):
        assert (own[0].index, own[0].text) == (other[0].index, other[0].text)
        scores = {hit.index: hit.score for hit in own}
        shared = [hit for hit in other if hit.index in scores]
        assert [hit.score for hit in shared] == pytest.approx([scores[hit.index] for hit in shared], abs=1e-5)
        n_found += len(shared)
    assert n_found / 500 > 0.95
    assert len(search(texts[:3], texts[:1], encoder, approximate=True)[0]) == 3


def test_sentence_vectors_have_no_layers(elmo: Elmo, table: Path, tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match="no layers"):
        embed(elmo, table, tmp_path / "x", pool="sentence", layer=1)


# -- the command ----------------------------------------------------------------------------------


def test_the_command_shows_a_table_or_json(cli: Cli, tiny_model: Path, table: Path, tmp_path: Path) -> None:
    words = ("search", table, "--model", tiny_model, "--id-column", "key", "--text-columns", "text")
    done = cli(*words, TEXTS[4], "-k", "2").check_fine(TEXTS[4], "1.000", "k4")
    assert "k0" not in done.out or "k1" not in done.out
    lines = f"{TEXTS[0]}\n\n{TEXTS[1]}\n"
    for given, stdin in (((TEXTS[0], TEXTS[1]), ""), ((), lines), (("-",), lines)):
        answer = json.loads(cli(*words, *given, "-k", "2", "--json", stdin=stdin).check_fine().out)
        assert [one["query"] for one in answer["queries"]] == TEXTS[:2]
        assert [hit["id"] for hit in answer["queries"][0]["hits"]] == ["k0", "k3"]
    cli("embed", tiny_model, table, "--pool", "sentence", "--out", tmp_path / "v").check_fine(
        "elmokit search"
    )
    cli("search", tmp_path / "v", "--model", tiny_model, TEXTS[4], "-k", "1").check_fine("1.000", TEXTS[4])


def test_closed_standard_input_holds_no_query(table: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.text.rows.sys", SimpleNamespace(stdin=None))
    cli("search", table).check_refused("Standard input (-) is closed")


def test_the_command_lists_duplicates(cli: Cli, tiny_model: Path, table: Path, tmp_path: Path) -> None:
    words = ("search", table, "--model", tiny_model, "--duplicates", "--text-columns", "text")
    cli(*words, "--at-least", "0.99999").check_fine("1.000", "1 pair")
    (pair,) = json.loads(cli(*words, "--at-least", "0.99999", "--json").check_fine().out)["duplicates"]
    assert (pair["first"]["index"], pair["second"]["index"]) == (0, 3)
    embed(tiny_model, table, tmp_path / "v", pool="mean")
    cli("search", tmp_path / "v", "--duplicates", "--at-least", "0.99999").check_fine("1 pair")


def test_bad_input_of_the_command_is_refused(cli: Cli, tiny_model: Path, table: Path, tmp_path: Path) -> None:
    embed(tiny_model, table, tmp_path / "words")
    embed(tiny_model, table, tmp_path / "texts", pool="mean")
    for words, part in (
        ((table, "x", "--duplicates"), "Leave out the queries"),
        (("-",), "standard input"),
        ((table,), "no query"),
        ((tmp_path / "nowhere.csv", "x", "--model", tiny_model), "nowhere.csv"),
        ((tmp_path / "words", "x", "--model", tiny_model), "--pool sentence"),
        ((tmp_path / "texts", "x"), "another model"),
        ((table, "x", "--model", tmp_path / "texts"), "texts"),
        ((table, "x", "--model", tiny_model, "--id-column", "nothing"), "nothing"),
    ):
        cli("search", *words).check_refused(part)
