from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit.core.errors import DataError
from elmokit.text.readers import FORMATS, decode_lines, find_files, format_of
from elmokit.text.rows import RowSource, TextSource
from elmokit.text.settings import ReadConfig


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, **settings: Any) -> list[str]:
    return list(TextSource([path], ReadConfig.from_dict(settings)))


def lines_of(content: bytes) -> list[str]:
    return list(decode_lines(io.BytesIO(content), "the file"))


# -- finding files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.CSV", "csv"),
        ("a.b.jsonl.zst", "jsonl"),
        ("wiki.gz", "txt"),
        ("a.md", "txt"),
    ],
)
def test_format_is_known_by_the_name(name: str, kind: str) -> None:
    assert format_of(Path(name)) == kind


def test_folder_gives_its_text_files_in_order_without_hidden_or_other_ones(tmp_path: Path) -> None:
    names = "b.txt a/c.csv a/d.jsonl.gz .hidden/x.txt .x.txt picture.png notes a.txt.zip"
    for name in names.split():
        write(tmp_path / name, "x")
    files = [str(path.relative_to(tmp_path)) for path in find_files([tmp_path])]
    assert files == ["a/c.csv", "a/d.jsonl.gz", "b.txt"]


def test_pattern_gives_all_matches_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", "d.csv"):
        write(tmp_path / name, "x")
    assert [path.name for path in find_files([f"{tmp_path}/*.txt"])] == ["a.txt", "b.txt"]
    assert [path.name for path in find_files([f"{tmp_path}/**/c.txt"])] == ["c.txt"]


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "x")
    assert find_files([file, tmp_path, str(file), f"{tmp_path}/*.txt"]) == [file]


def test_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path / "corpus.txt", "x")
    with pytest.raises(DataError, match=r"corpsu\.txt") as caught:
        find_files([tmp_path / "corpsu.txt"])
    assert "corpus.txt" in caught.value.remedy
    with pytest.raises(DataError, match="no file or folder"):  # a name too long for a file
        find_files(["Someone gave the text itself instead of a file. " * 100])


def test_folder_without_text_says_which_endings_count(tmp_path: Path) -> None:
    write(tmp_path / "picture.png", "x")
    with pytest.raises(DataError, match="holds no text files") as caught:
        find_files([tmp_path])
    assert all(ending in caught.value.remedy for ending in FORMATS)


def test_one_name_is_a_list_of_one_and_none_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "corpus.txt", "hello\n")
    monkeypatch.chdir(tmp_path)  # a relative name: its letters, taken as names, must not reach far
    assert list(TextSource("corpus.txt")) == ["hello"]
    with pytest.raises(DataError, match="No text was given"):
        TextSource([])


# -- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("one\rtwo\r\nthree\n\nfour", ["one", "two", "three", "", "four"]),
        ("\ufeffone\n\ufefftwo", ["one", "\ufefftwo"]),
        ("one\u2028two\x0bthree\x85four\n", ["one\u2028two\x0bthree\x85four"]),
    ],
)
def test_lines_end_in_any_of_three_ways_and_a_byte_order_mark_is_dropped(
    content: str, lines: list[str]
) -> None:
    assert lines_of(content.encode()) == lines


def test_line_ends_and_characters_cut_by_the_chunk_border_are_whole() -> None:
    first = b"x" * ((1 << 20) - 1)
    assert [len(line) for line in lines_of(first + b"\r\nsecond")] == [len(first), 6]
    text = "a" + "é" * (1 << 20)
    assert "".join(lines_of(text.encode())) == text


def test_line_over_a_megabyte_comes_in_parts_cut_at_spaces() -> None:
    text = "word " * 700_000
    parts = lines_of(text.encode())
    assert len(parts) > 1
    assert max(map(len, parts)) <= 1 << 21
    assert " ".join(parts).split() == text.split()


@pytest.mark.parametrize(
    ("before", "line"), [(b"", 1), (b"one\ntwo\n", 3), (b"one\r\ntwo\r\n", 3), (b"ab\n" * 500_000, 500_001)]
)
def test_undecodable_byte_is_named_by_line_and_place(before: bytes, line: int) -> None:
    with pytest.raises(DataError) as caught:
        lines_of(before + b"caf\xe9 x\n")
    assert f"the file, line {line}, byte {len(before) + 3}: 0xe9" in caught.value.message
    assert "--encoding" in caught.value.remedy


def test_character_cut_off_at_the_end_of_the_file_is_undecodable() -> None:
    with pytest.raises(DataError, match="line 2, byte 7"):
        lines_of(b"one\ncaf\xc3")


def test_encoding_and_errors_settings_make_a_file_readable(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "café\n".encode("latin-1"))
    assert read(file, encoding="latin-1") == ["café"]
    assert read(file, errors="replace") == ["caf\ufffd"]
    assert read(file, errors="ignore") == ["caf"]
    assert read(write(file, "café\n".encode("utf-16")), encoding="utf-16") == ["café"]


@pytest.mark.parametrize("encoding", ["nonsense", "rot13", "utf-16"])
def test_an_encoding_that_does_not_fit_is_a_data_error(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "a.txt", "plain old ASCII text here\n")
    with pytest.raises(DataError) as caught:
        read(file, encoding=encoding)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00" + bytes(500),
        "UTF-16 text".encode("utf-16"),
    ],
)
def test_binary_file_is_called_binary(content: bytes) -> None:
    with pytest.raises(DataError, match="binary") as caught:
        lines_of(content)
    assert caught.value.remedy


# -- plain text -------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_packed_files_are_read(tmp_path: Path, packing: str) -> None:
    parts = [b"one\n", b"two\n"]  # as made by cat a.gz b.gz
    packed = (
        b"".join(map(gzip.compress, parts))
        if packing == "gz"
        else b"".join(pa.compress(part, codec="zstd", asbytes=True) for part in parts)
    )
    name = os.fsdecode(b"\xe9.txt.") if sys.platform.startswith("linux") else "a.txt."  # need not be UTF-8
    assert read(write(tmp_path / f"{name}{packing}", packed)) == ["one", "two"]


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_cut_off_or_foreign_packed_files_are_named(tmp_path: Path, packing: str) -> None:
    text = "\n".join(f"line {number}" for number in range(5000)).encode()
    packed = gzip.compress(text) if packing == "gz" else pa.compress(text, codec="zstd", asbytes=True)
    for content in (packed[:-3], b"this is no packed file"):
        file = write(tmp_path / f"a.txt.{packing}", content)
        with pytest.raises(DataError) as caught:
            read(file)
        assert str(file) in caught.value.message
        assert caught.value.remedy


# -- standard input ---------------------------------------------------------------------------


def test_standard_input_can_be_read_twice_and_is_fingerprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    def source(text: str) -> TextSource:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return TextSource(["-"])

    one, same, other = source("one\ntwo\n"), source("one\ntwo\n"), source("one\n")
    assert list(one) == list(one) == ["one", "two"]
    assert one.fingerprints() == same.fingerprints() != other.fingerprints()
    assert list(one) == ["one", "two"]


def test_standard_input_does_not_mix_with_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be mixed"):
        TextSource(["-", write(tmp_path / "a.txt", "x")])


def test_fingerprints_change_with_the_content_and_nothing_else(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "one\n")
    before, times = TextSource([file]).fingerprints(), file.stat()
    os.utime(file, ns=(1, 1))
    assert TextSource([file]).fingerprints() == before
    write(file, "two\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert TextSource([file]).fingerprints() != before
    json.dumps(before)
    marks = [["a.txt", 4, times.st_mtime_ns]]  # as 0.1 had them
    assert TextSource([file]).fingerprints(marks) == marks


# -- tables -----------------------------------------------------------------------------------


def test_first_row_of_a_table_is_its_header_unless_it_is_said_to_be_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "one\ntwo\n")
    assert read(file) == read(file, header="yes") == ["two"]
    assert read(file, header="no") == ["one", "two"]


def test_separator_can_be_set(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "Yes; no.\nOne; two.\n")
    assert read(file, header="no", separator=",") == ["Yes; no.", "One; two."]
    assert read(file, header="no", text_columns="2") == ["no.", "two."]
    assert read(write(tmp_path / "b.csv", "n\ttext\n1\tone, two\n"), separator="tab") == ["one, two"]


def test_separator_survives_a_bad_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "n;text\n1;one\n2;two\n3;four, five;six\n")
    with pytest.raises(DataError, match="line 4: 3 fields"):
        read(file)


def test_bad_rows_are_left_out_counted_and_named(tmp_path: Path) -> None:
    said: list[str] = []
    files = [
        write(tmp_path / "a.csv", "n,text\n1,one\n2\n" + "3,x,y\n" * 6 + "4,four\n"),
        write(tmp_path / "b.jsonl", '{"text": "five"}\n{"text"\n7\n'),
    ]
    texts = TextSource(files, ReadConfig(skip_bad_rows=True), say=said.append)
    assert list(texts) == list(texts) == ["one", "four", "five"]
    assert len(said) == 2
    assert said[0] == "a.csv: header: n, text; text column: text"
    assert said[1].startswith(
        "Left out: 9 rows that could not be read (a.csv, line 3: 1 field where the first"
    )
    assert said[1].endswith("; and 4 more).")


def test_quotes_that_would_swallow_rows_of_a_tab_separated_file_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", 'n\ttext\n1\t"odd quote\n2\ttwo\n3\tthe end"\n')
    with pytest.raises(DataError, match=r"line 2: a quoted field ends on line 4") as caught:
        read(file)
    assert "--set quotes=no" in caught.value.remedy
    assert read(file, quotes="no") == ['"odd quote', "two", 'the end"']
    assert read(file, quotes="yes") == ["odd quote\n2\ttwo\n3\tthe end"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_record_over_a_megabyte_is_read_whole(tmp_path: Path, name: str) -> None:
    text = "word " * 700_000
    record = f"n,text\n1,{text}\n" if name == "a.csv" else json.dumps({"text": text})
    assert read(write(tmp_path / name, record)) == [text.strip()]


# -- JSON lines -------------------------------------------------------------------------------


def test_fields_of_json_lines_are_joined(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "one", "title": "T"}\n\n{"text": null, "title": "U"}\n')
    assert read(file) == ["one", ""]
    assert read(file, text_columns="title,text") == ["T one", "U"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("not json", ["line 3", "JSON"]),
        ("[1, 2]", ["line 3", "object"]),
        ('{"txt": "two"}', ["line 3", "'text'", "Did you mean 'txt'?"]),
        ("[" * 100_000, ["line 3", "JSON"]),
    ],
)
def test_bad_json_line_is_named_with_a_remedy(tmp_path: Path, line: str, parts: Sequence[str]) -> None:
    file = write(tmp_path / "a.jsonl", f'{{"text": "one"}}\n\n{line}\n')
    with pytest.raises(DataError) as caught:
        read(file)
    assert [part for part in (str(file), *parts) if part not in str(caught.value)] == []
    assert caught.value.remedy


# -- Parquet ----------------------------------------------------------------------------------


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_text_stored_as_bytes_is_decoded(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", text=pa.array(["café".encode()], pa.binary()))
    assert read(file) == ["café"]
    file = parquet(tmp_path / "b.parquet", text=pa.array([b"one", b"caf\xe9"], pa.binary()))
    with pytest.raises(DataError, match=r"b\.parquet, row 2: not valid utf-8 .*0xe9"):
        read(file)
    assert read(file, encoding="latin-1") == ["one", "café"]


def test_file_that_is_no_parquet_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.parquet cannot be read") as caught:
        read(write(tmp_path / "a.parquet", "text\none\n"))
    assert caught.value.remedy


def test_cell_that_is_not_a_number_adds_nothing(tmp_path: Path) -> None:
    assert read(parquet(tmp_path / "a.parquet", text=[1.5, float("nan")])) == ["1.5", ""]
    assert read(write(tmp_path / "a.jsonl", '{"text": NaN}\n{"text": "nan"}\n')) == ["", "nan"]


def test_times_that_python_cannot_hold_are_no_problem(tmp_path: Path) -> None:
    times = {
        "fine": pa.array([1_577_836_800_000_000_001], pa.timestamp("ns")),
        "late": pa.array([1 << 40], pa.timestamp("s")),
        "clock": pa.array([1001], pa.time64("ns")),
        "span": pa.array([1001], pa.duration("ns")),
        "nested": pa.array([{"at": 1}], pa.struct([("at", pa.timestamp("ns"))])),
    }
    file = parquet(tmp_path / "a.parquet", text=["one"], **times)
    assert read(file) == ["one"]
    (row,) = RowSource(file, keep=True)
    assert row.cells is not None
    assert row.cells["fine"] == "2020-01-01 00:00:00.000000001"
    assert list(row.cells) == ["text", *times]
