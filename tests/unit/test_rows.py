from __future__ import annotations

import datetime
import io
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit.core.errors import DataError
from elmokit.text.rows import Row, RowSource, unique
from elmokit.text.settings import LabelConfig, ReadConfig, usual_label

LABEL_SETTINGS = ("label_column", "label_separator", "drop_unlabeled")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def source(*paths: Path, labels: bool = True, keep: bool = False, **settings: Any) -> RowSource:
    where = LabelConfig.from_dict({name: settings.pop(name) for name in LABEL_SETTINGS if name in settings})
    return RowSource(list(paths), ReadConfig.from_dict(settings), where if labels else None, keep=keep)


def read(path: Path, **settings: Any) -> list[tuple[str, str | None]]:
    return [(row.text, row.label) for row in source(path, **settings)]


def lines(path: Path, **settings: Any) -> list[str]:
    return [row.place.removeprefix(f"{path}, ") for row in source(path, **settings)]


def check_refused(path: Path, *parts: str, **settings: Any) -> None:
    """Reading fails with an error that holds all these parts, and a remedy."""
    with pytest.raises(DataError) as caught:
        list(source(path, **settings))
    assert [part for part in (str(path), *parts) if part not in str(caught.value)] == []
    assert caught.value.remedy


# -- tables: columns --------------------------------------------------------------------------

NEWS = "id,title,body,topic\n1,One,first text,sport\n2,Two,second text,world\n"
BOTH = [("One first text", "sport"), ("Two second text", "world")]


def test_text_and_label_are_found_by_their_usual_names(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "label,n,text\nx,1,one\ny,2, two \n")
    assert list(source(file)) == [Row(f"{file}, line 2", "one", "x"), Row(f"{file}, line 3", "two", "y")]


@pytest.mark.parametrize("name", ["category", "class,target,label"])
def test_other_usual_names_of_labels_are_found(tmp_path: Path, name: str) -> None:
    cells = ",".join("x" * len(name.split(",")))
    assert read(write(tmp_path / "a.csv", f"text,{name}\none,{cells}\n")) == [("one", "x")]


def test_usual_name_among_the_text_columns_is_not_the_label() -> None:
    assert usual_label(["class", "target"], ["class"]) == "target"
    assert usual_label(["label", "target"], ["label"]) == "target"
    assert usual_label(["text"]) is None


@pytest.mark.parametrize(
    ("text", "label", "header"), [("2,3", "4", "yes"), ("title,3", "4", "auto"), ("2,3", "topic", "auto")]
)
def test_one_name_among_numbers_means_there_is_a_header(
    tmp_path: Path, text: str, label: str, header: str
) -> None:
    file = write(tmp_path / "a.csv", NEWS)
    assert read(file, text_columns=text, label_column=label, header=header) == BOTH


def test_a_usual_name_among_numbers_means_there_is_a_header(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.csv", "body,label\none,x\n"), text_columns="1") == [("one", "x")]
    assert read(write(tmp_path / "a.csv", "text,kind\none,x\n"), label_column="2") == [("one", "x")]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, ["4 columns", "title, body", "which hold the text?", "--text-columns"]),
        ({"text_columns": "body"}, ["4 columns", "topic", "which holds the label?", "--label-column"]),
        ({"text_columns": "body", "label_column": "topik"}, ["'topik'", "Did you mean 'topic'?"]),
        (
            {"text_columns": "2", "label_column": "5"},
            ["no column '5'", "without a header", "from: 1, 2, 3, 4"],
        ),
        ({"text_columns": "2", "label_column": "topic", "header": "no"}, ["header", "'topic'"]),
        ({"text_columns": "3,4", "label_column": "4"}, ["both as text and as label"]),
    ],
)
def test_columns_that_cannot_be_found_are_named(
    tmp_path: Path, settings: dict[str, str], parts: Sequence[str]
) -> None:
    check_refused(write(tmp_path / "a.csv", NEWS), *parts, **settings)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("names", "label"), [("Review,Category", "Category"), ("label,body", "")])
def test_of_two_columns_the_one_without_the_label_is_the_text(
    tmp_path: Path, names: str, label: str, kind: str
) -> None:
    cells = {name: "x" if name in ("Category", "label") else "one" for name in names.split(",")}
    file = tmp_path / f"a.{kind}"
    if kind == "csv":
        write(file, f"{names}\n{','.join(cells.values())}\n")
    else:
        parquet(file, **{name: [cell] for name, cell in cells.items()})
    assert read(file, label_column=label) == [("one", "x")]
    assert read(file, labels=False) == [("one", None)]


def test_column_with_the_label_or_the_id_is_not_the_text(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "Review,Topic\none,x\n")
    assert [row.text for row in RowSource(file, label_name="topic")] == ["one"]
    assert [row.text for row in RowSource(file, id_column="Topic")] == ["one"]
    assert read(write(tmp_path / "b.csv", "one,x\n"), label_column="2") == [("one", "x")]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_names_match_in_capitals_or_not_unless_two_do(tmp_path: Path, kind: str) -> None:
    def table(**cells: str) -> Path:
        lines = [",".join(cells), ",".join(cells.values())] if kind == "csv" else [json.dumps(cells)]
        return write(tmp_path / f"a.{kind}", "\n".join(lines) + "\n")

    assert read(table(n="1", TEXT="one", Label="x")) == [("one", "x")]
    assert read(table(Body="one", Topic="x", n="1"), text_columns="body", label_column="TOPIC") == [
        ("one", "x")
    ]
    assert read(table(Text="one", text="two", label="x")) == [("two", "x")]
    check_refused(table(Text="one", TEXT="two", label="x"), "2 columns called 'text'")


def test_repeated_name_of_a_column_that_is_read_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "text,label,label\none,x,y\n")
    check_refused(file, "2 columns called 'label'", "number (2 and 3)", "--label-column")
    assert read(file, label_column="3") == [("one", "y")]


@pytest.mark.parametrize(
    ("content", "settings", "line"),
    [
        ("review\none\n", {"labels": False}, "header: review; text column: review"),
        ("review\n", {"labels": False, "header": "no"}, "header: none; text column: 1"),
        (
            "a;Text;label\n1;one;x\n",
            {},
            "header: a, Text, label; text column: Text; label column: label; separator: ;",
        ),
        (
            "one,two,x\n",
            {"text_columns": "2,1", "label_column": "3"},
            "header: none; text columns: 2, 1; label column: 3",
        ),
    ],
)
def test_one_line_says_how_a_table_is_read(
    tmp_path: Path, content: str, settings: dict[str, Any], line: str
) -> None:
    said: list[str] = []
    rows = source(write(tmp_path / "a.csv", content), write(tmp_path / "b.csv", content), **settings)
    rows._say = said.append
    assert list(rows)
    assert list(rows)
    assert said == [f"a.csv: {line}"]


# -- tables: rows -----------------------------------------------------------------------------


def test_line_of_a_row_is_where_it_begins(tmp_path: Path) -> None:
    content = 'text,label\n"one\ntwo\n\nthree",x\n\n,\nfour,"y\n"\n  five,z\n'
    file = write(tmp_path / "a.csv", content)
    assert lines(file) == ["line 2", "line 8", "line 10"]
    assert read(file) == [("one\ntwo\n\nthree", "x"), ("four", "y"), ("five", "z")]


def test_error_in_a_row_names_the_line_where_it_begins(tmp_path: Path) -> None:
    check_refused(write(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\n"three\nfour",\n'), "line 4: ")
    check_refused(write(tmp_path / "b.csv", 'text,label\n"one\ntwo",x\n"three\nfour"\n'), "line 4: 1 field")
    check_refused(write(tmp_path / "c.csv", "text,label\none,x,y\n"), "line 2: 3 fields")
    file = write(tmp_path / "d.csv", 'text,label\none,x\n"two\nthree,y\n')
    check_refused(file, "begins on line 3", "quote")
    check_refused(write(tmp_path / "e.csv", 'text,label\n1,"one"x\n'), "line 2", "quote")


def test_all_columns_are_kept_as_they_are_if_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "id, text ,label,id\n 1,  one ,x,\n")
    cells = {"id": " 1", "text": "  one ", "label": "x", "id_2": ""}
    assert list(source(file, keep=True)) == [Row(f"{file}, line 2", "one", "x", cells)]


def test_repeated_names_are_told_apart() -> None:
    assert unique(["a", "a", "a_2", "a", "", ""]) == ["a", "a_3", "a_2", "a_4", "", "_2"]


# -- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["  ", "NaN", "<NA>"])
def test_blank_label_is_an_error_unless_dropped(tmp_path: Path, cell: str) -> None:
    file = write(tmp_path / "a.csv", f"text,label\none,x\ntwo,{cell}\nthree,y\n")
    check_refused(file, "line 3: the row has no label", "--set", "drop_unlabeled=true")
    assert read(file, drop_unlabeled=True) == [("one", "x"), ("three", "y")]


@pytest.mark.parametrize("cell", ["NA", "null", "0"])
def test_word_that_may_be_a_class_is_a_label(tmp_path: Path, cell: str) -> None:
    assert read(write(tmp_path / "a.csv", f"text,label\none, {cell} \n")) == [("one", cell)]


def test_several_labels_stay_one_text_and_are_split_by_the_settings(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "text,label\none,a|b\ntwo,c\n")
    assert read(file, label_separator="|") == [("one", "a|b"), ("two", "c")]
    assert LabelConfig(label_separator="|").split(" b|a||b ") == ["b", "a"]
    assert LabelConfig().split("a|b ") == ["a|b"]
    check_refused(write(tmp_path / "b.csv", "text,label\none,| |\n"), "no label", label_separator="|")


# -- JSON lines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ('" x "', "x"),
        ("3.0", "3"),
        ("-0.5", "-0.5"),
        ("1e300", "1e+300"),
        ("true", "true"),
        ('"\\ud83d"', "\ufffd"),
    ],
)
def test_json_labels_of_other_types_become_text(tmp_path: Path, cell: str, label: str) -> None:
    assert read(write(tmp_path / "a.jsonl", f'{{"text": "one", "label": {cell}}}\n')) == [("one", label)]


@pytest.mark.parametrize("rest", [', "label": null', ', "label": NaN', ""])
def test_missing_json_label_is_an_error_unless_dropped(tmp_path: Path, rest: str) -> None:
    file = write(tmp_path / "a.jsonl", f'{{"text": "one", "label": "x"}}\n\n{{"text": "two"{rest}}}\n')
    check_refused(file, "line 3", "--set", "drop_unlabeled=true")
    assert read(file, drop_unlabeled=True) == [("one", "x")]


def test_list_of_json_labels_needs_a_separator(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "one", "label": ["a", 2, null]}\n')
    check_refused(file, "line 1", "list", "--label-separator")
    assert read(file, label_separator="|") == [("one", "a|2")]


@pytest.mark.parametrize(
    ("cell", "part"),
    [
        ('{"a": 1}', "an object"),
        ('[["a"]]', "a list"),
        ('["a|b"]', "'a|b' contains the separator"),
        ("[]", "no label"),
    ],
)
def test_odd_json_labels_are_refused(tmp_path: Path, cell: str, part: str) -> None:
    file = write(tmp_path / "a.jsonl", f'{{"text": "one", "label": {cell}}}\n')
    check_refused(file, "line 1", part, label_separator="|")


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, ["which holds the label?", "text, lable", "--label-column"]),
        ({"label_column": "labels"}, ["'labels'", "Did you mean 'lable'?", "--label-column"]),
        ({"text_columns": "1", "label_column": "lable"}, ["no field '1'", "text, lable"]),
        ({"text_columns": "txt", "label_column": "lable"}, ["'txt'", "Did you mean 'text'?"]),
        ({"label_column": "text"}, ["both as text and as label"]),
    ],
)
def test_json_fields_that_cannot_be_found_are_named(
    tmp_path: Path, settings: dict[str, str], parts: Sequence[str]
) -> None:
    check_refused(write(tmp_path / "a.jsonl", '{"text": "one", "lable": "x"}\n'), *parts, **settings)


# -- Parquet ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([3.0, 0.5]), ["3", "0.5"]),
        (pa.array([b"x", "é".encode()]), ["x", "é"]),
        (pa.array([datetime.date(2020, 1, 2)] * 2), ["2020-01-02"] * 2),
    ],
)
def test_parquet_labels_of_all_types_become_text(tmp_path: Path, column: Any, labels: list[str]) -> None:
    rows = source(parquet(tmp_path / "a.parquet", text=["one", "two"], label=column))
    assert [row.label for row in rows] == labels
    assert [row.place for row in rows] == [f"{rows.name}, row 1", f"{rows.name}, row 2"]


@pytest.mark.parametrize("column", [pa.array(["x", None]).dictionary_encode(), [1.0, math.nan]], ids=str)
def test_missing_parquet_label_is_an_error_unless_dropped(tmp_path: Path, column: Any) -> None:
    file = parquet(tmp_path / "a.parquet", text=["one", "two"], label=column)
    check_refused(file, "row 2: the row has no label", "--set", "drop_unlabeled=true")
    assert [row.text for row in source(file, drop_unlabeled=True)] == ["one"]


def test_parquet_cells_are_kept_if_asked_for(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", label=["x"], n=[1.5], title=["T"], text=[None])
    (row,) = source(file, keep=True, text_columns="title,4")
    assert row == Row(f"{file}, row 1", "T", "x", {"label": "x", "n": 1.5, "title": "T", "text": None})
    assert read(file, text_columns="title,4") == read(file, text_columns="4,3") == [("T", "x")]


def test_parquet_columns_of_one_name_are_all_kept(tmp_path: Path) -> None:
    columns = [pa.array(["one"]), pa.array(["two"]), pa.array(["x"])]
    pq.write_table(pa.table(columns, names=["text", "text", "label"]), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", text_columns="2") == [("two", "x")]
    check_refused(tmp_path / "a.parquet", "2 columns called 'text'", "number (1 and 2)")
    (row,) = source(tmp_path / "a.parquet", keep=True, text_columns="1")
    assert row.cells == {"text": "one", "text_2": "two", "label": "x"}


# -- plain text, several files ----------------------------------------------------------------


def test_plain_text_holds_no_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "\n one \n\ntwo\nthree")
    check_refused(file, "no labels", ".csv")
    assert read(file, labels=False) == [("one", None), ("two", None), ("three", None)]
    assert [row.cells for row in source(file, labels=False, keep=True)][:2] == [
        {"text": " one "},
        {"text": "two"},
    ]
    assert lines(file, labels=False) == ["line 2", "line 4", "line 5"]
    assert read(file, labels=False, blocks="paragraphs") == [("one", None), ("two three", None)]
    assert lines(file, labels=False, blocks="paragraphs") == ["line 2", "line 4"]


def test_standard_input_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    rows = RowSource("-")
    assert [row.place for row in rows] == ["standard input, line 1", "standard input, line 2"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    with pytest.raises(DataError, match="Standard input is plain text"):
        RowSource("-", None, LabelConfig())


def test_files_of_all_kinds_follow_each_other_again_and_again(tmp_path: Path) -> None:
    rows = source(
        write(tmp_path / "a.csv", "text,label\none,x\n"),
        write(tmp_path / "b.jsonl", '{"label": "y", "text": "two"}\n'),
        parquet(tmp_path / "c.parquet", label=["z"], text=["three"]),
    )
    expected = [("one", "x"), ("two", "y"), ("three", "z")]
    assert [(row.text, row.label) for row in rows] == [(row.text, row.label) for row in rows] == expected
    assert rows.name == f"{tmp_path / 'a.csv'} and 2 more files"
    assert [name for name, *_ in rows.fingerprints()] == ["a.csv", "b.jsonl", "c.parquet"]
