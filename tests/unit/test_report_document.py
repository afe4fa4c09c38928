"""A Document as HTML and Markdown, and the figures in it."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from documents import HOSTILE, Outline, make_document, make_figures
from elmokit.core.errors import RunError
from elmokit.report.document import Document, Section, make_confusion_table
from elmokit.report.figures import Line, draw_lines, shorten
from elmokit.report.render import render_html, render_markdown, to_json, write_report

# -- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["World", "Sports"], HOSTILE], ids=["plain", "hostile"])
def test_page_is_closed_unique_escaped_and_needs_nothing_from_outside(names: list[str]) -> None:
    page = render_html(make_document(names))
    outline = Outline(page)
    assert [name for name in outline.ids if name in ("values", "figures", "confusion", "details")]
    assert len(outline.ids) == len(set(outline.ids)), "every id is used once"
    assert outline.tags.count("svg") == 4
    assert not {"script", "link", "img", "iframe", "image", "object"} & set(outline.tags)
    assert not re.search(r'(?:src|href)="(?!#)', page.replace("http://www.w3.org/2000/svg", ""))
    page.encode("utf-8")
    assert not set(page) & {"\x00", "\ud800", "\uffff", "\u202e"}


def test_page_shows_every_part() -> None:
    page = render_html(make_document(["World", "Sports"]))
    words = " ".join(Outline(page).words)
    for text in ("The answer is World.", "And more.", "91.2%", "on test", "90–92", "Command and Settings"):
        assert text in words, text
    assert "--part: 91%" in page
    for tag in ('class="highlight"', "<details>", 'colspan="2">test</th>'):
        assert page.count(tag) == 1, tag


# -- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["train", "valid"], HOSTILE], ids=["plain", "hostile"])
def test_figures_are_svg_in_the_colors_of_the_page_and_say_what_they_show(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = make_figures(names)
    for figure in figures:
        root = ElementTree.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert "var(--" in figure.svg
        assert not re.findall(r"(?<!, )#[0-9a-f]{6}", figure.svg), "a color is not a variable of the page"
        assert "font-family:" not in figure.svg
        assert figure.alt
    assert "0.5000 at epoch 1" in figures[0].alt
    assert "50.00% at rows 10" in figures[1].alt
    assert "33% to 67%, mean 41.0%: 35.0% of 1,200 right." in figures[3].alt
    assert "0% to 33%" not in figures[3].alt, "a range without predictions"


def test_long_line_is_described_by_a_dozen_values() -> None:
    figure = draw_lines([Line("loss", range(40), [abs(x - 30) for x in range(40)])], x_label="step")
    assert "30.0000 at step 0, 26.0000 at step 4, " in figure.alt
    assert figure.alt.endswith(", 9.0000 at step 39.")


def test_confusion_matrices_are_written_as_svg_and_png_up_to_thirty_classes(tmp_path: Path) -> None:
    many = [str(number) for number in range(31)]
    tables = [
        make_confusion_table(np.eye(len(names), dtype=int).tolist(), names, names, picture=picture)
        for names, picture in ((HOSTILE, "test"), (many, "many"), (["a", "b"], ""))
    ]
    document = Document("t", "", (Section("s", "s", items=tuple(tables)),))
    svg, png = write_report(tmp_path, document, {})[3:]
    assert {*(tmp_path / "figures").iterdir()} == {svg, png}
    assert (svg.name, png.name) == ("test.svg", "test.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    shown = ElementTree.parse(svg).getroot()
    assert "predicted" in [text.text for text in shown.iter("{http://www.w3.org/2000/svg}text")]
    again = write_report(tmp_path / "again", document, {})[3:]
    assert [path.read_bytes() for path in again] == [svg.read_bytes(), png.read_bytes()]


def test_figures_are_also_files_of_their_own_in_fixed_colors(tmp_path: Path) -> None:
    paths = write_report(tmp_path, make_document(["a", "b"]), {})[3:]
    names = ["figures", "figures-2", "figures-3", "figures-4"]
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
    for svg, png in zip(paths[::2], paths[1::2], strict=True):
        text = svg.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text
        assert "#5d6671" in text
        assert png.read_bytes().startswith(b"\x89PNG")
    again = write_report(tmp_path / "again", make_document(["a", "b"]), {})[3:]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("short", "short"), ("x" * 20, "x" * 9 + "…"), ("新聞" * 5, "新聞新聞…"), ("a\nb", "a b")],
)
def test_names_are_cut_by_columns(text: str, expected: str) -> None:
    assert shorten(text, 10) == expected


# -- Markdown and JSON ----------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["World", "Sports"], HOSTILE], ids=["plain", "hostile"])
def test_markdown_has_every_row_on_one_line(names: list[str]) -> None:
    text = render_markdown(make_document(names))
    text.encode("utf-8")
    assert "<script>" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for line in tables:
        assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4, len(names) + 2), line
    assert "| Class | test F1 | test Support |" in text
    assert "````\nelmokit fit <x> && echo ```\n````" in text
    assert "- Accuracy: 91.2% (on test)" in text


def test_markdown_leaves_out_tables_that_are_too_wide() -> None:
    names = [str(number) for number in range(40)]
    wide = make_confusion_table(np.eye(40, dtype=int).tolist(), names, names)
    text = render_markdown(Document("t", "", (Section("s", "s", items=(wide,)),)))
    assert "This table has 40 rows and 41 columns; see report.html." in text


def test_report_is_three_files_and_strict_json(tmp_path: Path) -> None:
    record = {"nan": float("nan"), "array": np.arange(3), "path": Path("a"), "1": ("\ud800", np.float32(0.5))}
    paths = write_report(tmp_path / "deep" / "er", make_document(["a", "b"]), record)
    assert [path.name for path in paths[:3]] == ["report.json", "report.md", "report.html"]
    expected = {"nan": None, "array": [0, 1, 2], "path": "a", "1": ["\N{REPLACEMENT CHARACTER}", 0.5]}
    assert json.loads(paths[0].read_text(encoding="utf-8")) == expected == to_json(record)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match="Cannot write"):
        write_report(tmp_path / "file", make_document(["a", "b"]), {})
