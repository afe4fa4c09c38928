"""The model that comes with the package: there, whole, small, free to use, and able to tell senses apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmokit import Elmo, ElmokitError
from elmokit.bilm.folder import load_bilm
from elmokit.bilm.settings import resolve
from elmokit.core.config import read_toml
from elmokit.core.names import DEFAULT, bundled_names, read_json, record_checksum, resolve_name
from elmokit.vectors.neighbors import unit_rows
from program import Cli

MEGABYTES = 16


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load("english")


def test_it_is_there_and_small() -> None:
    assert bundled_names() == [DEFAULT] == ["english"]
    files = [file for file in resolve_name("english").iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MEGABYTES * 1e6


def test_the_former_model_says_how_to_make_it() -> None:
    with pytest.raises(ElmokitError, match="research only") as caught:
        Elmo.load("news")
    assert "recipes/news.py" in str(caught.value)


def test_its_card_says_what_it_is_made_of(cli: Cli) -> None:
    training = load_bilm("english").training
    for figures in (training["held_out"], *training["perplexities"].values()):
        assert set(figures) >= {"perplexity", "forward", "backward"}
    assert len(training["perplexities"]) == 8
    card = (resolve_name("english") / "README.md").read_text(encoding="utf-8")
    for name in ("Standard Ebooks", "CC BY-SA 4.0", "Changelog", "OpenStax", "MDN", "MiniLM"):
        assert name in card
    assert "non-commercial" not in card
    assert cli("inspect", "english", "--json").code == 0
    shown = " ".join(cli("inspect", "english").out.split())
    for credit in (
        "© Changelog Media LLC and contributors",
        "© The Kubernetes Authors",
        "© GitHub, Inc.",
        "© Microsoft Corporation",
        "MDN contributors",
        "Access for free at https://openstax.org",
        "Principles of Economics 3e",
    ):
        assert credit in shown
        assert credit in card


def test_its_config_is_whole() -> None:
    record = read_json(resolve_name("english") / "config.json")
    assert record["checksum"] == record_checksum(record)


def test_a_word_is_most_like_itself_in_the_same_sense(english: Elmo) -> None:
    senses = {
        "river": ["He sat on the bank of the river.", "Reeds grow along the bank of the stream."],
        "money": [
            "The bank raised its rates on Thursday.",
            "Shares in the bank fell after it warned on profits.",
        ],
    }
    texts = [text for part in senses.values() for text in part]
    embeddings = english.embed(texts)
    rows = [
        row[[word.lower() for word in words].index("bank")]
        for row, words in zip(embeddings.mixed(), embeddings.tokens, strict=True)
    ]
    alike = unit_rows(np.stack(rows)) @ unit_rows(np.stack(rows)).T
    for place in range(4):
        other = np.delete(alike[place], place)
        assert np.delete(np.arange(4), place)[other.argmax()] // 2 == place // 2


def test_its_sentence_vectors_know_paraphrases(english: Elmo) -> None:
    assert english.has_sentence_vector
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "Shares fell sharply in Tokyo."]
    first, second, third = english.sentences(texts)
    assert first @ second > 0.4 > first @ third


def test_the_recipe_is_the_one_it_was_made_with() -> None:
    recipe = resolve("small", read_toml(Path(__file__).parents[2] / "recipes" / "english.toml"))
    saved = load_bilm("english")
    assert saved.text == recipe.text
    made, asked = saved.model.config.to_dict(), recipe.model.to_dict()
    different = {name for name in asked if made[name] != asked[name]}
    assert different == {"input", "objective"}  # --words-from sets the input; no softmax is shipped


def test_case_and_spelling_matter(english: Elmo) -> None:
    """Characters tell "May" from "may"; an unknown word is most like the word it is made from."""
    upper, lower = np.concatenate(english.embed([["May"], ["may"]]).layer(0))
    assert not np.allclose(upper, lower)
    table = english.folder.word_table
    assert table is not None
    pairs = {"presidentt": "president", "reborrowing": "borrowing", "guitarlike": "guitar"}
    assert not set(pairs) & set(table.forms)
    vectors = [unit_rows(table.vectors(list(side)).numpy()) for side in (pairs, pairs.values())]
    assert (vectors[0] @ vectors[1].T).argmax(axis=1).tolist() == [0, 1, 2]
