"""Tables made at random are read as the csv module reads them: 100 here, 2,000 with ELMOKIT_CAMPAIGN=1."""

from __future__ import annotations

import csv
import gzip
import io
import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from elmokit.core.errors import DataError
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig

N_TABLES = 2000 if os.environ.get("ELMOKIT_CAMPAIGN") else 100
N_PARTS = 10
_NAMES = ("Review", "body", "Stars", "topic", "TITLE", "date", "Größe", "評価")
_PARTS = (
    *(
        "a good film",
        "bad",
        "1,5",
        "x;y",
        "p|q",
        "tab\there",
        'a "quoted" word',
        '"',
        '""',
        "'",
        "two\nlines",
    ),
    *("\r\nend", "é", "日本", "👩", "\u2028", "#", "\\", "\\n", " ", "0", "nan", "=1+1", "\x0b", "-"),
)


@dataclass(frozen=True)
class Table:
    content: str
    separator: str
    has_header: bool
    read: ReadConfig
    labels: LabelConfig
    n_ragged: int
    name: str

    def write(self, folder: Path) -> Path:
        content, path = self.content.encode(), folder / self.name
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    def rows(self) -> list[list[str]]:
        """As the csv module reads them, without blank ones."""
        text = io.StringIO(self.content.removeprefix("\ufeff"), newline=None)
        return [row for row in csv.reader(text, delimiter=self.separator) if any(map(str.strip, row))]


def make_table(rng: random.Random) -> Table:
    width, separator, has_header = rng.randint(2, 5), rng.choice(",;\t|"), rng.random() < 0.8
    names = rng.sample(_NAMES, width)
    rows = [names] if has_header else []
    rows += [
        ["".join(rng.choices(_PARTS, k=rng.randint(0, 4))) for _ in names[1:]] + [rng.choice("xyz")]
        for _ in range(rng.choice((1, 3, 20, 150)))
    ]
    bad = [index for index in range(1, len(rows)) if rng.random() < 0.05] if rng.random() < 0.3 else []
    for index in bad:
        rows[index] = rows[index][:-1] if rng.random() < 0.5 else [*rows[index], "more"]
    # A row that is shorter may be blank, and is then none.
    n_ragged = sum(any(map(str.strip, rows[index])) for index in bad)
    lines = io.StringIO(newline="")
    quoting: Any = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    end = rng.choice(("\n", "\r\n"))
    csv.writer(lines, delimiter=separator, quoting=quoting, lineterminator=end).writerows(rows)
    content = (
        rng.choice(("", "\ufeff")) + rng.choice(("", "", end)) + lines.getvalue() + rng.choice(("", end))
    )
    chosen = rng.sample(range(width - 1), rng.randint(1, width - 1))
    by_name = has_header and rng.random() < 0.7
    given = [rng.choice((str.lower, str.upper, str))(names[c]) if by_name else str(c + 1) for c in chosen]
    label = names[-1] if by_name else str(width)
    if width == 2 and rng.random() < 0.5:
        given = []  # the column that is not the label
    read = ReadConfig(
        text_columns=",".join(given),
        header="yes" if has_header and not by_name else rng.choice(("auto", "yes" if has_header else "no")),
        separator="auto" if has_header else {"\t": "tab"}.get(separator, separator),  # type: ignore[arg-type]
        skip_bad_rows=rng.random() < 0.5,
    )
    suffix = rng.choice((".csv", ".tsv", ".csv.gz"))
    return Table(
        content, separator, has_header, read, LabelConfig(label_column=label), n_ragged, f"a{suffix}"
    )


def check(table: Table, folder: Path) -> str:
    """How the table was read."""
    source = RowSource(table.write(folder), table.read, table.labels, keep=True)
    try:
        rows = list(source)
    except DataError as error:
        message = str(error)
        assert table.name in message
        assert error.remedy  # noqa: PT017 (some tables are refused, others not)
        if "each line up to there may be a row" in message:
            assert table.separator == "\t"
            check(replace(table, read=replace(table.read, quotes="yes")), folder)
            return "refused: quotes may be text"
        assert table.n_ragged
        assert not table.read.skip_bad_rows
        assert " where the first row has" in message
        return "refused: ragged"
    expected = table.rows()
    width = len(expected[0])
    names = expected.pop(0) if table.has_header else [str(number + 1) for number in range(width)]
    whole = [row for row in expected if len(row) == width]
    assert len(expected) - len(whole) == table.n_ragged
    assert [list((row.cells or {}).values()) for row in rows] == whole
    assert all(list(row.cells or {}) == names for row in rows)
    lowered = [name.casefold() for name in names]
    texts = [
        lowered.index(name.casefold()) if name.casefold() in lowered else int(name) - 1
        for name in table.read.columns
    ] or [0]
    for row, cells in zip(rows, whole, strict=True):
        assert row.text == " ".join(filter(None, (cells[place].strip() for place in texts)))
        assert row.label == cells[-1]
    assert bool(source.notes()) == bool(table.n_ragged)
    return "read without bad rows" if table.n_ragged else "read"


@pytest.mark.parametrize("part", range(N_PARTS))
def test_tables_are_read_as_the_csv_module_reads_them(part: int, tmp_path: Path) -> None:
    outcomes = Counter[str]()
    for number in range(part, N_TABLES, N_PARTS):
        outcomes[check(make_table(random.Random(number)), tmp_path)] += 1
    print(dict(outcomes))
    assert sum(outcomes.values()) == N_TABLES // N_PARTS
    assert outcomes["refused: quotes may be text"] <= 0.05 * N_TABLES // N_PARTS + 1
