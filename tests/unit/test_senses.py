"""The senses of a word: groups, keywords, labeled examples, the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.core.errors import ElmokitError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.senses import group_vectors, senses
from odd_texts import make_model
from program import Cli

MONEY = ["The bank lent money at low interest.", "Money in the bank earns interest.", "A bank pays interest."]
RIVER = ["The river bank is wet.", "Mud of the river covers the bank.", "We sat on the bank of the river."]


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.load("english")


def test_groups_are_those_of_the_data_largest_first() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.normal(size=(n, 8), scale=0.05) + np.eye(8)[at] for at, n in enumerate((5, 9, 7))]
    )
    groups, silhouette = group_vectors(rows)
    assert groups.tolist() == [2] * 5 + [0] * 9 + [1] * 7
    assert silhouette is not None
    assert silhouette > 0.8
    assert group_vectors(rows, 2)[0].max() == 1
    for few in (np.ones((1, 3)), np.ones((20, 3)), np.zeros((3, 3)), rng.normal(size=(300, 50))):
        groups, silhouette = group_vectors(few)
        assert not groups.any()
        assert silhouette is None


def test_two_senses_with_their_keywords_and_sentences(english: Elmo, tmp_path: Path) -> None:
    texts = [*MONEY, *RIVER, MONEY[0], "Nothing to see here.", ""]
    result = senses(english, "Bank", texts, k=2, out=tmp_path / "report")
    assert result.n_found == len(result.uses) == 6, "copies count once"
    assert sorted({name for name, use in result.uses if use.index < 3}) != sorted(
        {name for name, use in result.uses if use.index >= 3}
    )
    assert {one.share for one in result.senses} == {0.5}
    keywords = {word for one in result.senses for word in one.keywords[:2]}
    assert {"interest", "river"} <= keywords
    for one in result.senses:
        assert [use.score for use in one.examples] == sorted((u.score for u in one.examples), reverse=True)
        assert all(use.words[use.position].lower() == "bank" for use in one.examples)
    names = {path.name for path in (tmp_path / "report").rglob("*")}
    assert {"report.json", "report.html", "report.md", "map.svg"} <= names
    assert json.loads((tmp_path / "report" / "report.json").read_text())["word"] == "Bank"
    before = {path: path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file()}
    assert senses(english, "Bank", texts, k=2, out=tmp_path / "report") == result
    for word, more in (("bank", texts), ("Bank", [*texts, "A bank of lights."])):
        with pytest.raises(ElmokitError, match="other settings or data"):
            senses(english, word, more, k=2, out=tmp_path / "report")
    assert {path: path.read_bytes() for path in before} == before


def test_one_use_is_one_sense_and_many_are_drawn_at_random(english: Elmo) -> None:
    (only,) = senses(english, "river", RIVER[:1]).senses
    assert (only.n_uses, only.share) == (1, 1.0)
    texts = [f"The bank number {number} is open." for number in range(40)]
    first, again, other = (
        senses(english, "bank", texts, at_most=9, seed=seed, layer=1) for seed in (0, 0, 1)
    )
    assert (first.n_found, len(first.uses), first.compared_by) == (40, 9, "layer 1")
    assert first == again
    assert {use.index for _, use in first.uses} != {use.index for _, use in other.uses}
    assert len({use.index for _, use in first.uses}) == 9


def test_labeled_examples_name_the_senses(english: Elmo, tmp_path: Path) -> None:
    file = tmp_path / "examples.csv"
    rows = [(MONEY[0], "money", "bank"), (RIVER[0], "river", "bank"), ("A bank of lights.", "row", "light")]
    file.write_text("text,sense,word\n" + "".join(f'"{t}",{s},{w}\n' for t, s, w in rows))
    result = senses(english, "bank", [*MONEY[1:], *RIVER[1:]], labeled=file)
    assert [name for name, _ in result.uses] == ["money", "money", "river", "river"]
    assert {one.name for one in result.senses} == {"money", "river"}
    assert result.silhouette is None


@pytest.mark.parametrize(
    ("word", "options", "message"),
    [
        ("bnak", {}, "'bnak' does not occur(.|\n)*'bank'"),
        ("zzzzzz", {}, "does not occur(.|\n)*another corpus"),
        ("two words", {}, "not one word"),
        (" ", {}, "not one word"),
        ("bank", {"layer": 9}, "no layer 9"),
        ("bank", {"k": 0}, "k = 0"),
        ("bank", {"at_most": 1}, "at_most = 1"),
        ("bank", {"k": 2, "labeled": "x.csv"}, "comes from the examples"),
        ("bank", {"labeled": "x.csv"}, "x.csv"),
    ],
)
def test_what_has_no_senses_is_refused(
    english: Elmo, word: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ElmokitError, match=message):
        senses(english, word, MONEY, **options)


def test_examples_of_one_sense_and_models_without_context_are_refused(
    english: Elmo, tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "one.csv"
    file.write_text(f'text,sense\n"{MONEY[0]}",money\n')
    with pytest.raises(ElmokitError, match="examples of 1 senses"):
        senses(english, "bank", MONEY, labeled=file)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join([*MONEY, *RIVER] * 3))
    cli("baseline", "svd", texts, "--out", tmp_path / "svd", "--dim", "2", "--min-count", "1").check_fine()
    cli("senses", tmp_path / "svd", "bank", "--in", texts).check_refused("no vectors in context")
    cli("senses", "english", "bank", "--in", tmp_path / "nowhere.txt").check_refused("nowhere.txt")


def test_a_model_without_sentence_vectors_uses_layer_one() -> None:
    result = senses(Elmo(make_model(0, known="the bank")), "bank", [*MONEY, *RIVER], k=2)
    assert result.compared_by == "layer 1"
    assert len(result.senses) == 2


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join([*MONEY, *RIVER]))
    words = ("senses", "english", "bank", "--in", texts, "-k", "2")
    cli(*words, "--out", tmp_path / "out").check_fine("6 of 6 sentences", "50%", "interest", "report.html")
    answer = json.loads(cli(*words, "--json").check_fine().out)
    assert [len(answer["senses"]), len(answer["uses"])] == [2, 6]
