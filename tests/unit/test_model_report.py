"""What the report of a fitted model says, from metrics that the code itself has made."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.report.document import Document, Figure, Section, Table
from elmokit.report.render import render_html, render_markdown
from elmokit.tasks.fit import predict
from elmokit.tasks.metrics import ClassificationMetrics
from elmokit.tasks.model_report import model_document, report_record, write_model_report
from elmokit.tasks.task import Examples, Labels, Metrics
from elmokit.tasks.tfidf import fit_tfidf
from reports import make_fitted, make_metrics

NEWS = ("World", "Sports", "Business", "Sci/Tech")
HOSTILE = ("<script>alert('class')</script>", "a|b\nc", "$x_1$", "long " * 40, "新聞", "\x00\ud800\uffff")


def report(classes: tuple[str, ...] = NEWS, **options: Any) -> Document:
    metrics = {split: make_metrics(classes, n, **options) for split, n in (("train", 90), ("test", 60))}
    several = options.get("several", False)
    model = make_fitted(classes, several=several)
    return model_document(model, metrics, "A title")


def section(document: Document, id: str) -> Section:
    return next(section for section in document.sections if section.id == id)


def cells(table: Table | Any) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_a_report_has_all_its_parts() -> None:
    document = report()
    names = ["scores", "confusion", "classes", "calibration", "mistakes", "training", "mix", "details"]
    assert [section.id for section in document.sections] == names
    assert document.context == "Measured on the test split: 60 rows, 4 classes."
    assert [fact.label for fact in document.facts][:2] == ["Accuracy", "Macro F1"]
    assert document.notes == ("Read me first.",)
    n_figures = {part.id: sum(isinstance(item, Figure) for item in part.items) for part in document.sections}
    assert [n_figures[name] for name in ("calibration", "training", "mix")] == [1, 2, 1]
    text = render_markdown(document)
    assert "1 min 15 s" in text
    assert "not learned" not in text


def test_scores_and_matrix_are_those_of_the_metrics() -> None:
    metrics: Any = {"test": make_metrics(NEWS, 60)}
    model = make_fitted(NEWS)
    document = model_document(model, metrics, "A title")
    scores = cells(section(document, "scores").items[0])
    assert scores[:2] == [["Rows", "60"], ["Accuracy", f"{metrics['test'].accuracy:.2%}"]]
    matrix = cells(section(document, "confusion").items[0])
    assert [line[0] for line in matrix] == list(NEWS)
    assert [[int(count) for count in line[1:]] for line in matrix] == metrics["test"].confusion.tolist()
    by_class = cells(section(document, "classes").items[0])
    assert [line[4] for line in by_class] == [str(entry.support) for entry in metrics["test"].per_class]


def test_hostile_names_stay_text() -> None:
    document = replace(report(HOSTILE), title="<img src=x onerror=alert(1)>")
    page, text = render_html(document), render_markdown(document)
    assert not re.search(r"<(script|img|b)\b", page)
    assert "&lt;script&gt;" in page
    for table in re.findall(r"(?:^\|.*\|$\n?)+", text, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_unseen_labels_are_noted_and_have_their_row() -> None:
    document = report(unseen="Art")
    assert (
        "test rows that training never saw, counted as wrong: Art (1)." in section(document, "classes").text
    )
    assert cells(section(document, "confusion").items[0])[-1][0] == "Art"


def test_several_labels_a_row_have_neither_matrix_nor_mistakes() -> None:
    document = report(several=True)
    assert not {"confusion", "calibration", "mistakes"} & {section.id for section in document.sections}
    assert document.facts[0].label == "Micro F1"
    render_html(document)


@pytest.mark.parametrize(("n_classes", "n_tables"), [(4, 2), (20, 3), (70, 1)])
def test_many_classes_list_confusions_and_too_many_only_that(n_classes: int, n_tables: int) -> None:
    part = section(report(tuple(f"class {number}" for number in range(n_classes))), "confusion")
    assert len(part.items) == n_tables
    captions = [item.caption for item in part.items]
    assert ("Most common confusions (test)" in captions) == (n_classes > 5)
    assert ("too many for a matrix" in part.text) == (n_classes > 50)


def test_a_report_of_20_000_classes_needs_less_than_100_mb(tmp_path: Path) -> None:
    names, n_rows = tuple(f"class {number}" for number in range(20_000)), 200
    numbers = np.random.default_rng(0)
    chances, true = (
        numbers.random((n_rows, len(names)), dtype=np.float32),
        numbers.integers(0, 20_000, n_rows),
    )
    model = make_fitted(names)
    tracemalloc.start()
    metrics: Any = {"test": ClassificationMetrics(names, (), chances, true, True, ["a text"] * n_rows)}
    write_model_report(tmp_path, model, metrics, "report")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert sum(file.stat().st_size for file in tmp_path.glob("report.*")) < 15e6
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<input type="search"') == 1
    assert all(f">{name}</th>" in page for name in names[::997])
    record = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["splits"]["test"]
    assert "confusion" not in record
    wrong = (chances.argmax(axis=1) != true).sum()
    assert sum(n for *_, n, _ in record["confusions"]) == wrong


@pytest.mark.parametrize(("mix", "words"), [("frozen", "not learned."), ("function", "A learned function")])
def test_each_kind_of_mix_is_explained(mix: str, words: str) -> None:
    model = make_fitted(NEWS, mix=mix)
    part = section(model_document(model, {"test": make_metrics(NEWS, 30)}, "A title"), "mix")
    assert words in part.text
    assert [row[0] for row in cells(part.items[-1])][1:] == ["layer 1", "layer 2"]


def test_a_linear_head_has_no_curves() -> None:
    model = make_fitted(NEWS, head="linear")
    document = model_document(model, {"test": make_metrics(NEWS, 30)}, "A title")
    assert "training" not in [section.id for section in document.sections]
    assert not any(isinstance(item, Figure) for item in section(document, "mix").items)


def test_the_scores_of_an_svm_are_not_written_as_probabilities(tmp_path: Path) -> None:
    texts = [("one good",), ("two bad",), ("good",)]
    examples = Examples(texts, np.array([0, 1, 1]), Labels(("a", "b")))
    for method, calibrated in (("tfidf-svm", False), ("nbsvm", False), ("tfidf-lr", True)):
        model = fit_tfidf(method, Examples(texts[:2], np.array([0, 1]), examples.labels))
        metrics: dict[str, Metrics] = {"test": model.task.measure(examples, list(model.predict(texts)))}
        document, record = model_document(model, metrics, "x"), report_record(model, metrics, "x")
        assert not {"training", "mix"} & {part.id for part in document.sections}
        mistake = record["mistakes"]["test"][0]
        assert (mistake["probability"] is not None) == calibrated
        part = section(document, "mistakes")
        assert ("probability" in part.text) == calibrated
        assert ("calibration" in [section.id for section in document.sections]) == calibrated
        assert any(cell.note for table in part.items for row in table.rows for cell in row) == calibrated  # type: ignore[union-attr]
        assert ("robabilit" in render_markdown(document)) == calibrated
        rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
        rows.write_text("text\ngood\n", encoding="utf-8")
        predict(model, rows, out, overwrite=True)
        columns = ["probability", "p(a)", "p(b)"] if calibrated else ["score", "score(a)", "score(b)"]
        assert out.read_text(encoding="utf-8").splitlines()[0].split(",") == ["text", "prediction", *columns]


def test_report_json_has_the_keys_of_0_1() -> None:
    model = make_fitted(NEWS)
    record = report_record(model, {"test": make_metrics(NEWS, 30)}, "A title")
    known = {"title", "classes", "multilabel", "splits", "history", "mix", "settings", "mistakes"}
    assert known | {"encoder", "timings", "versions", "command", "notes"} <= set(record)
    assert set(record["mix"]) == {"kind", "form", "names", "values", "gamma", "history", "epochs"}
    mistake = record["mistakes"]["test"][0]
    assert set(mistake) == {"text", "true", "predicted", "probability", "probability_true"}
