"""The result of a comparison and its report: sentences, tables, JSON, and what may be missing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from comparisons import METHODS, Spec, make_comparison
from documents import Outline
from elmokit.comparison.ranking import rank, recommend
from elmokit.comparison.report import make_document, print_comparison, write_report
from elmokit.comparison.result import Comparison
from elmokit.comparison.verdict import answer, describe_pair, summarize_ranking
from elmokit.report.document import Document, Section, Table
from elmokit.report.render import render_html, render_markdown

SECTIONS = ["ranking", "scores", "differences", "curve", "classes", "confusion", "examples", "training"]
SECTIONS += ["mix", "pretraining", "data", "details"]


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A comparison with everything."""
    folder = tmp_path_factory.mktemp("news")
    return make_comparison(METHODS[:6], 1000, folder=folder, missing=True, curve=True)


@pytest.fixture(scope="module")
def report(news: Comparison) -> dict[str, str]:
    """The text of its files."""
    paths = write_report(news)
    assert [path.name for path in paths[:3]] == ["report.json", "report.md", "report.html"]
    splits = [(split, form) for split in ("test", "valid", "train") for form in ("svg", "png")]
    assert [path.name for path in paths[3:9]] == [f"confusion_{split}.{form}" for split, form in splits]
    assert {path.parent.name for path in paths[3:]} == {"figures"}
    return {path.name: path.read_text(encoding="utf-8") for path in paths[:3]}


def section(document: Document, id: str) -> Section:
    return next(section for section in document.sections if section.id == id)


def tables(document: Document, id: str) -> list[Table]:
    return [item for item in section(document, id).items if isinstance(item, Table)]


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


# -- the result -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([15.0, 6.0, 5.0], 0),  # nine seconds are not worth it
        ([7000.0, 15.0, 6.0], 1),  # nor here: the second has saved the time and has a higher score
        ([7000.0, 4000.0, 6.0], 2),
        ([100.0, 45.0, 39.0], 2),
    ],
)
def test_of_tied_methods_a_far_cheaper_one_is_recommended(seconds: list[float], expected: int) -> None:
    rows = np.arange(300)
    ranking = rank({"a": rows < 202, "b": rows < 201, "c": rows < 200})
    assert recommend(ranking, dict(zip("abc", seconds, strict=True))) == "abc"[expected]
    clear = rank({"a": rows < 290, "b": rows < 201, "c": rows < 200})
    assert recommend(clear, dict(zip("abc", seconds, strict=True))) == "a"


# -- sentences ------------------------------------------------------------------------------------


def test_the_answer_names_a_method_its_lead_and_its_cost(news: Comparison) -> None:
    sentences = answer(news)
    assert sentences[0] == "Recommended: ELMo, fine-tuned (accuracy 93.9% on 1,000 test rows)."
    assert sentences[2:] == [
        "Fitting takes 31 min 44 s, after 25 min 11 s of pretraining. "
        "The best method that is much faster is TF-IDF bigrams + SVM: 92.4% in 13.1 s.",
        "Failed: GloVe; the ranking gives the reason.",
        "Skipped: CoVe; the ranking gives the reason.",
    ]


def test_the_answer_says_whether_the_lead_is_significant() -> None:
    clear, tied = make_comparison({"a": 0.9, "b": 0.8}, 500), make_comparison({"a": 0.9, "b": 0.898}, 500)
    assert answer(clear)[1].startswith("Its lead over B is significant: +10.00 points (95% interval +")
    assert answer(tied)[1] == "Also not significantly different from the best: B."
    assert len(answer(make_comparison({"a": 0.9}))) == 2
    specs = [
        Spec("slow", "Slow", "elmo", 0.9, fit=5000),
        Spec("fast", "Fast", "linear", 0.898),
        Spec("other", "Other", "linear", 0.897),
    ]
    cheap = answer(make_comparison(specs, 500))
    assert cheap[0].endswith(
        " It is not significantly different from the best, Slow (90.0%), and takes far less time."
    )
    assert cheap[1] == "Also not significantly different from the best: Other."


def test_pairs_are_described_in_words() -> None:
    comparison = make_comparison({"a": 0.93, "b": 0.89, "c": 0.887}, 1000, disagreement=0.05)
    first, second, third = comparison.ranking.pairs
    assert describe_pair(comparison, first).startswith(
        "A is significantly better than B (93.00% vs. 89.00%, +4.00 points, 95% interval +2."
    )
    assert describe_pair(comparison, first).endswith(", p < 0.001).")
    assert describe_pair(comparison, second).startswith(
        "B and C are not significantly different (89.00% vs. 88.70%, +0.30 points, 95% interval "
    )
    assert (third.better, third.worse) == ("a", "c")
    summary = summarize_ranking(comparison)
    assert summary[:2] == [describe_pair(comparison, first), describe_pair(comparison, second)]
    assert any("corrected for 3 tests" in sentence for sentence in summary)
    assert any("one seed" in sentence for sentence in summary)
    assert summarize_ranking(make_comparison({"a": 0.9})) == [
        "Only one method finished, so there is nothing to compare it with."
    ]
    few = summarize_ranking(make_comparison({"a": 0.9, "b": 0.85}, 40, disagreement=0.0))
    assert any("40 test rows, differences below about 12.5 points" in sentence for sentence in few)


# -- the report -----------------------------------------------------------------------------------


def test_the_page_has_all_its_sections(report: dict[str, str]) -> None:
    outline = Outline(report["report.html"])
    assert [id for id in outline.ids if id in SECTIONS] == SECTIONS
    assert not {"script", "link", "img", "iframe"} & set(outline.tags)
    assert '<details class="roomy"><summary dir="auto">Every pair</summary>' in report["report.html"]
    for title in ("Significant differences", "Confusion matrix", "Learning curve", "Scores by class"):
        assert f"## {title}\n" in report["report.md"]


def test_the_ranking_has_all_figures(news: Comparison, report: dict[str, str]) -> None:
    row = next(
        line for line in report["report.md"].splitlines() if line.startswith("| ELMo, trainable mix |")
    )
    score = news.method("elmo-trainable").main
    low, high = news.method("elmo-trainable").interval
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    interval = f"({low * 100:.1f} to {high * 100:.1f})"
    assert cells[2] == f"{score.mean * 100:.2f} ± 0.20 {interval}"
    assert cells[-5:] == ["25 min 11 s", "4 min 2 s", "228", "1.5 GB", "69.8 MB"]
    assert "ublished" not in report["report.md"], "figures of other data"
    (ranking, missing) = tables(make_document(news), "ranking")
    assert (ranking.highlight, list(news.failed)) == (0, ["glove-s0"])
    assert texts(missing) == [
        ["GloVe", "failed", "glove.txt, line 17: 99 numbers, not 100."],
        ["CoVe", "skipped", "The deadline had passed before it started."],
    ]


def test_many_classes_have_the_worst_pairs_and_no_matrix(tmp_path: Path) -> None:
    names = [str(n) for n in range(51)]
    comparison = make_comparison({"a": 0.9, "b": 0.8}, 400, folder=tmp_path, classes=names, n_seeds=2)
    document = make_document(comparison)
    (pairs,) = tables(document, "confusion")
    assert 1 < len(pairs.rows) <= 50
    assert "51 classes are too many" in section(document, "confusion").text
    (classes,) = tables(document, "classes")
    assert (classes.searchable, len(classes.rows)) == (True, 51)
    write_report(comparison)
    test = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["methods"][0]["splits"]["test"]
    assert "confusion" not in test
    assert sum(n for *_, n, _ in test["confusions"]) == pytest.approx(40, abs=15)


def test_examples_are_texts_on_which_methods_disagree(news: Comparison) -> None:
    assert 6 < len(news.examples) <= 12
    best = news.ranking.order[0]
    assert all(best in example.right for example in news.examples[:6])
    assert all(best in example.wrong for example in news.examples[6:])
    for example in news.examples:
        assert {example.guesses[id] for id in example.right} == {example.label}
        assert example.label not in {example.guesses[id] for id in example.wrong}
    (table,) = tables(make_document(news), "examples")
    assert len(table.rows) == len(news.examples)


def test_a_given_encoder_is_told_apart_from_a_pretrained_one(news: Comparison) -> None:
    for given, words in (("", "pretrained on the train texts"), ("english", "pretrained on other text")):
        document = make_document(replace(news, given=given))
        assert words in section(document, "pretraining").text
        assert "vocabulary" in [name for name, _ in texts(tables(document, "pretraining")[0])]


def test_one_or_two_methods_or_none_have_a_report(news: Comparison) -> None:
    two = make_document(make_comparison({"a": 0.9, "b": 0.8}, 300))
    ((ranking,), (classes,)) = (tables(two, id) for id in ("ranking", "classes"))
    titles = [column.title for column in ranking.columns]
    assert titles[:5] == ["Method", "Rank", "Test", "Valid", "Train"]
    assert "Pretrain" not in titles, "columns that no method fills are left out"
    assert [column.title for column in classes.columns] == ["Class", "A", "B"]
    assert all(any(cell.bold for cell in row) for row in classes.rows)
    (scatter,) = section(two, "scores").items
    assert re.search("1, A: 90.0%, interval .* to .*%, 10 s. 2, B: 80.0%", getattr(scatter, "alt", ""))
    alone = make_document(make_comparison({"a": 0.9}))
    assert "scores" not in [section.id for section in alone.sections]
    nothing = make_comparison({}, missing=True)
    assert (nothing.ranking.order, nothing.recommended, nothing.ranked) == ((), None, [])
    assert answer(nothing)[0] == "No method finished, so there is nothing to rank."
    document = make_document(nothing)
    assert [section.id for section in document.sections] == ["ranking", "data", "details"]
    render_html(alone), render_markdown(document)


# -- the terminal ---------------------------------------------------------------------------------


def test_the_terminal_shows_the_ranking_and_the_answer(news: Comparison) -> None:
    out = io.StringIO()
    first = replace(news.ranked[0], method=replace(news.ranked[0].method, name="[red]a\x07\nb"))
    methods = (first, *(result for result in news.methods if result is not news.ranked[0]))
    print_comparison(replace(news, methods=methods), Console(file=out, width=100))
    text = out.getvalue()
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(len(line) for line in lines[: len(news.ranked) + 3]) <= 100
    assert re.search(r"TF-IDF bigrams \+ SVM +\S+ +92\.40 .* 13.1 s +228 +69\.8 MB", text)
    assert "GloVe failed: glove.txt, line 17" in text
    assert "Recommended: [red]a� b (accuracy" in text, "names are plain text"
