"""The model that comes with the package: there, whole, small, and able to tell senses apart."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from elmokit import Elmo
from elmokit.bilm.folder import load_bilm
from elmokit.core.names import bundled_names, resolve_name
from elmokit.vectors.neighbors import unit_rows
from program import Cli

MEGABYTES = 12


@pytest.fixture(scope="module")
def news() -> Elmo:
    return Elmo.load("news")


def test_it_is_there_and_small() -> None:
    assert bundled_names() == ["news"]
    files = [file for file in resolve_name("news").iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MEGABYTES * 1e6


def test_its_card_says_what_it_is_made_of(cli: Cli) -> None:
    training = load_bilm("news").training
    assert len(training["corpus"]["files"]) == 6
    assert not any(part in file for file in training["corpus"]["files"] for part in ("valid", "test"))
    assert "non-commercial" in training["license"]
    for figures in (training["held_out"], *training["perplexities"].values()):
        assert set(figures) >= {"perplexity", "forward", "backward"}
    assert {name.partition(",")[0] for name in training["perplexities"]} == {"AG News", "WikiText-2"}
    card = (resolve_name("news") / "README.md").read_text(encoding="utf-8")
    assert "non-commercial" in card
    assert cli("inspect", "news", "--json").code == 0


def test_a_word_is_most_like_itself_in_the_same_sense(news: Elmo) -> None:
    senses = {
        "river": ["He sat on the bank of the river.", "Reeds grow along the bank of the stream."],
        "money": [
            "The bank raised its rates on Thursday.",
            "Shares in the bank fell after it warned on profits.",
        ],
    }
    texts = [text for part in senses.values() for text in part]
    found = news.embed(texts)
    rows = [
        row[[w.lower() for w in words].index("bank")]
        for row, words in zip(found.mixed(), found.tokens, strict=True)
    ]
    alike = unit_rows(np.stack(rows)) @ unit_rows(np.stack(rows)).T
    for place in range(4):
        other = np.delete(alike[place], place)
        assert np.delete(np.arange(4), place)[other.argmax()] // 2 == place // 2


def test_the_recipe_is_the_one_it_was_made_with() -> None:
    from elmokit.bilm.settings import PretrainConfig, resolve
    from elmokit.core.config import read_toml

    file = Path(__file__).parents[2] / "recipes" / "news.toml"
    recipe = resolve("small", read_toml(file, get_type_hints(PretrainConfig)))
    saved = load_bilm("news")
    assert saved.text == recipe.text
    made, asked = saved.model.config.to_dict(), recipe.model.to_dict()
    assert [name for name in made if made[name] != asked[name]] == ["objective"]


def test_it_reads_words_by_their_letters(news: Elmo) -> None:
    """Words it has never seen are most like the words they are made from."""
    pairs = {"presidentt": "president", "reborrowing": "borrowing", "goverment": "government"}
    assert not any(word in load_bilm("news").vocabulary for word in pairs)
    found = [
        np.concatenate(news.embed([[word] for word in side]).layer(0)) for side in (pairs, pairs.values())
    ]
    alike = unit_rows(found[0]) @ unit_rows(found[1]).T
    assert alike.argmax(axis=1).tolist() == [0, 1, 2]
