from __future__ import annotations

import csv
import datetime
import json
import math
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from elmokit.core.errors import DataError, RunError
from elmokit.text.predictions import PredictionWriter
from elmokit.text.rows import Row

CLASSES = ["sport", "world"]
ODD = ['a, "b"', "two\nlines", "a\rreturn", "  spaces ", "tab\t", "👩‍👩‍👧 🇫🇷", "שלום", "e\u0301", "'=1+1", ""]


def row(**cells: Any) -> Row:
    return Row("a.csv, line 2", "the text", None, cells)


def answer(label: str, values: list[float]) -> dict[str, Any]:
    """A prediction as a classifier gives it."""
    shares = dict(zip([label] if len(values) == 1 else CLASSES, map(float, values), strict=True))
    return {"prediction": label, "probability": shares[label], "probabilities": shares}


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_and_fail(out: Path | None, n_rows: int, kind: type[BaseException]) -> None:
    with PredictionWriter(out, "jsonl", overwrite=True) as writer:
        for _ in range(n_rows):
            writer.write(row(a="sport" * 20), answer("x", [1]))
        assert out is None or out.read_text() == "old"
        raise kind


# -- CSV --------------------------------------------------------------------------------------


def test_csv_has_the_columns_as_they_were_and_then_the_predictions(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with PredictionWriter(out, "csv") as writer:
        writer.write(row(id="01", text="one, two"), answer("world", [0.12345678, 0.87654322]))
        writer.write(row(id="02", text=""), answer("sport", [1.0, 1e-9]))
    assert out.read_text() == (
        "id,text,prediction,probability,p(sport),p(world)\n"
        '01,"one, two",world,0.876543,0.123457,0.876543\n'
        "02,,sport,1.000000,1.000000,0.000000\n"
    )


def test_new_column_whose_name_is_taken_gets_a_number(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    columns = ["prediction", "probability_2", "probability", "p(sport)"]
    with PredictionWriter(out, "csv") as writer:
        writer.write(row(**dict.fromkeys(columns, "old")), answer("sport", [1, 0]))
    (result,) = table(out)
    assert list(result) == [*columns, "prediction_2", "probability_3", "p(sport)_2", "p(world)"]
    assert [result[name] for name in columns] == ["old"] * 4


def test_csv_without_rows_still_has_a_header(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with PredictionWriter(out, "csv") as writer:
        writer.write_header(answer("sport", [1, 0]), ["text"])
    assert out.read_text() == "text,prediction,probability,p(sport),p(world)\n"


def test_values_of_other_types_become_cells(tmp_path: Path) -> None:
    values = [None, math.nan, True, 3, 0.5, ["a", None], {"é": math.inf}, datetime.date(2020, 1, 2), b"x\xff"]
    cells = ["", "", "true", "3", "0.5", '["a", null]', '{"é": null}', "2020-01-02", "x\ufffd"]
    names = [f"c{number}" for number in range(len(values))]
    with PredictionWriter(tmp_path / "out.csv", "csv") as writer:
        writer.write(row(**dict(zip(names, values, strict=True))), answer("sport", [1, 0]))
    assert list(table(tmp_path / "out.csv")[0].values())[: len(cells)] == cells


def test_column_that_came_later_is_named_and_one_that_lacks_is_blank(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path / "out.csv", "csv") as writer:
        writer.write(row(id=1, text="one"), answer("sport", [1, 0]))
        writer.write(row(text="two"), answer("sport", [1, 0]))
        with pytest.raises(DataError, match=r"a\.csv, line 2.*'late'.*id, text") as caught:
            writer.write(row(text="three", late="x"), answer("sport", [1, 0]))
    assert "JSON lines" in caught.value.remedy
    assert [each["id"] for each in table(tmp_path / "out.csv")] == ["1", ""]


# -- JSON lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_round_trip_keeps_every_cell(tmp_path: Path, format: Literal["csv", "jsonl"]) -> None:
    out = tmp_path / f"out.{format}"
    records = [{"text": f"text {number}", "note, odd": cell} for number, cell in enumerate(ODD)]
    with PredictionWriter(out, format) as writer:
        for record in records:
            writer.write(row(**record), {"prediction": "x"})
    expected = [{**record, "prediction": "x"} for record in records]
    assert (table if format == "csv" else objects)(out) == expected
    assert "שלום" in out.read_text(encoding="utf-8")


def test_json_names_that_are_taken_get_a_number(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with PredictionWriter(out, "jsonl") as writer:
        writer.write(row(prediction="old"), answer("sport", [1, 0]))
    assert list(objects(out)[0]) == ["prediction", "prediction_2", "probability", "probabilities"]
    assert objects(out)[0]["prediction"] == "old"


def test_what_json_cannot_hold_is_written_as_null_or_text(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    cells = {"a": math.nan, "b": [math.inf], "c": datetime.date(2020, 1, 2), "d": b"\xffx", "e": "\ud83d"}
    with PredictionWriter(out, "jsonl") as writer:
        writer.write(row(**cells), answer("sport", [1, 0]))
    (result,) = objects(out)
    assert [result[name] for name in "abcde"] == [None, [None], "2020-01-02", "\ufffdx", "?"]


# -- other tasks ------------------------------------------------------------------------------


def test_predictions_of_other_tasks_are_written_as_they_are(tmp_path: Path) -> None:
    values = {"tags": ["O", "B"], "value": 1 / 3, "scores": {"a": 0.5, "b": 1}}
    for format in ("csv", "jsonl"):
        with PredictionWriter(tmp_path / f"out.{format}", format) as writer:
            writer.write(row(), values)
    expected = {"tags": '["O", "B"]', "value": "0.333333", "score(a)": "0.500000", "score(b)": "1"}
    assert table(tmp_path / "out.csv") == [expected]
    assert objects(tmp_path / "out.jsonl") == [{**values, "value": 0.333333}]


# -- files and standard output ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, kind: type[BaseException]) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    with pytest.raises(kind):
        write_and_fail(out, 5000, kind)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("name", "remedy"), [("missing/out.csv", "Make the folder"), ("folder", "the name of a file")]
)
def test_place_that_cannot_be_written_to_is_refused_at_the_start(
    tmp_path: Path, name: str, remedy: str
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=name) as caught:
        PredictionWriter(tmp_path / name, "csv").__enter__()
    assert remedy in caught.value.remedy


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    with PredictionWriter(tmp_path / "link.csv", "csv", overwrite=True) as writer:
        writer.write(row(), answer("x", [1]))
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "prediction,probability,p(x)\nx,1.000000,1.000000\n"


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs a device file")
def test_device_is_written_to_and_not_replaced() -> None:
    with PredictionWriter(Path("/dev/null"), "csv") as writer:
        writer.write(row(), answer("x", [1]))
    assert not Path("/dev/null").is_file()


def test_standard_output_gets_every_row_at_once_and_is_left_open(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with PredictionWriter(None, "csv") as writer:
        writer.write(row(a="x"), answer("é", [1]))
        early = capfdbinary.readouterr().out.decode()
        assert early == "a,prediction,probability,p(é)\nx,é,1.000000,1.000000\n"
    print("still open")
    assert capfdbinary.readouterr().out == b"still open\n"


def test_rows_before_a_failure_reach_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(RuntimeError):
        write_and_fail(None, 3, RuntimeError)
    assert capfdbinary.readouterr().out.count(b"\n") == 3
