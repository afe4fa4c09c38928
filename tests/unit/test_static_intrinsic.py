"""Agreement with people: lists are read strictly, figures are those of a plain calculation."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from elmokit.core.errors import DataError
from elmokit.static.intrinsic import (
    IntrinsicResult,
    analogy_accuracy,
    evaluate_vectors,
    read_pairs,
    read_questions,
    similarity_correlation,
)
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig


@pytest.fixture(scope="module")
def table() -> WordVectors:
    rows = np.random.default_rng(0).normal(size=(40, 4))
    return WordVectors.of([f"w{rank}" for rank in range(40)], rows, TextConfig(lowercase=True))


def test_correlation_is_that_of_ranks(table: WordVectors) -> None:
    rng = np.random.default_rng(1)
    pairs = [(f"W{a}", f"w{b}", float(rng.integers(0, 5))) for a, b in rng.integers(0, 40, size=(30, 2))]
    result = similarity_correlation(table, [*pairs, ("w1", "nothing", 3.0), ("", "w2", 1.0)])
    cosines = np.array([table.similarity(a, b) for a, b, _ in pairs]).round(6)
    scores = np.array([score for *_, score in pairs])

    def ranks(values: np.ndarray) -> np.ndarray:
        return np.array([(values < one).sum() + ((values == one).sum() + 1) / 2 for one in values])

    expected = np.corrcoef(ranks(cosines), ranks(scores))[0, 1]
    assert result.value == pytest.approx(expected, abs=1e-3)
    assert (result.n_covered, result.n_total) == (30, 32)


@pytest.mark.parametrize(
    "pairs",
    [[("x", "y", 1.0)], [("w1", "w2", 1.0)], [("w1", "w2", 1.0), ("w3", "w4", 1.0)]],
    ids=["none known", "one", "all alike"],
)
def test_a_correlation_that_cannot_be_told_is_none(
    table: WordVectors, pairs: list[tuple[str, str, float]]
) -> None:
    assert similarity_correlation(table, pairs).value is None


def test_analogies_are_counted(table: WordVectors) -> None:
    rng = np.random.default_rng(2)
    questions = [tuple(f"w{place}" for place in rng.choice(40, size=3, replace=False)) for _ in range(300)]
    answers = [table.analogy(a, b, c, 1)[0][0] for a, b, c in questions]
    right = [(a.upper(), b, c, d) for (a, b, c), d in zip(questions, answers, strict=True)]
    wrong = [(a, b, c, a) for a, b, c in questions[:10]]
    unknown = [("w1", "w2", "w3", "nothing"), ("x", "w2", "w3", "w4")]
    result = analogy_accuracy(table, right + wrong + unknown)
    assert (result.n_covered, result.n_total) == (310, 312)
    assert result.value == pytest.approx(300 / 310)
    assert analogy_accuracy(table, unknown) == IntrinsicResult("accuracy", None, 0, 2)


@pytest.mark.parametrize(
    "content",
    [
        "love sex 6.77\n\ntiger   cat 7\n",
        "# a list\n# Word 1\tWord 2\tHuman (mean)\nlove\tsex\t6.77\ntiger\tcat\t7\n",
        "Word 1,Word 2,Human (mean)\r\nlove,sex,6.77\r\ntiger,cat,7\r\n",
    ],
)
def test_lists_of_pairs_come_in_many_forms(tmp_path: Path, content: str) -> None:
    (tmp_path / "pairs.csv").write_bytes(content.encode())
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(content.encode()))
    for name in ("pairs.csv", "pairs.csv.gz"):
        assert read_pairs(tmp_path / name) == [("love", "sex", 6.77), ("tiger", "cat", 7.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,score\n", "no pair"),
        ("a,b,c\nd,e,f\n", "line 2"),
        ("a,b,1,2\n", "line 1"),
        ("a,b,1\na,,1\n", "line 2"),
        ("a,b,1\nc,d,nan\n", "line 2"),
    ],
)
def test_bad_lists_of_pairs_are_refused_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(DataError, match=f"pairs.csv.*{message}"):
        read_pairs(tmp_path / "pairs.csv")


def test_questions_may_have_sections(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("a b c d\n: capitals of the world\nAthens Greece Oslo Norway\n\n: empty\n")
    assert read_questions(file) == [("a", "b", "c", "d"), ("Athens", "Greece", "Oslo", "Norway")]
    for content, message in (("a b c\n", "line 1: 3 words"), (": only\n", "no question")):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            read_questions(file)
    for read in (read_pairs, read_questions):
        with pytest.raises(DataError, match="Cannot open"):
            read(tmp_path / "nowhere.txt")


def test_a_file_shows_by_its_first_line_what_it_is(table: WordVectors, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("w1\tw2\t1\nw3\tw4\t2\nw5\tx\t3\n")
    (tmp_path / "sections.txt").write_text(": some\nw1 w2 w3 x\n")
    (tmp_path / "plain.txt").write_text("w1 w2 w3 x\n")
    result = evaluate_vectors(table, tmp_path / "pairs.tsv")
    assert result == similarity_correlation(table, read_pairs(tmp_path / "pairs.tsv"))
    assert (result.measure, result.n_covered, result.n_total) == ("Spearman", 2, 3)
    for name in ("sections.txt", "plain.txt"):
        result = evaluate_vectors(table, tmp_path / name)
        assert (result.measure, result.value, result.n_covered, result.n_total) == ("accuracy", None, 0, 1)
    (tmp_path / "pairs.tsv").write_text("a b\n")
    with pytest.raises(DataError, match="line 1: not two words"):
        evaluate_vectors(table, tmp_path / "pairs.tsv")
