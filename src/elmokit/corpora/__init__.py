"""A small labeled corpus, written for this package and part of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.errors import RunError


def mini_news() -> Path:
    """The file ``mini_news.csv``: 680 short news-like texts, columns ``topic`` and ``text``.

    Four topics (world, sports, business, science), 170 texts each, with many words that change
    their sense from topic to topic.
    """
    return Path(__file__).with_name("mini_news.csv")


def mini_news_split() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The rows of ``mini_news``, 480 for training and 200 for testing; always the same.

    Of each topic, five texts in every seventeen are for testing.
    """
    seen: dict[str, int] = {}
    parts: tuple[list[dict[str, str]], list[dict[str, str]]] = ([], [])
    with open(mini_news(), encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            number = seen[row["topic"]] = seen.get(row["topic"], 0) + 1
            parts[number % 17 < 5].append(row)
    return parts


def write_mini_news_split(folder: Path) -> tuple[Path, Path]:
    """Write ``train.csv`` and ``test.csv``; RunError if a different file is in the way."""
    contents = {}
    for name, rows in zip(("train.csv", "test.csv"), mini_news_split(), strict=True):
        text = io.StringIO()
        writer = csv.DictWriter(text, ["topic", "text"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        contents[folder / name] = text.getvalue()
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        if file.exists() and (not file.is_file() or file.read_text("utf-8", "replace") != content):
            raise RunError(
                f"{file} already exists with different rows; nothing was touched.",
                remedy="Choose another --out.",
            )
    for file, content in contents.items():
        if not file.exists():
            write_text(file, content)
    train, test = contents
    return train, test
