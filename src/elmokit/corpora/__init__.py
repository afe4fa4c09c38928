"""A small labeled corpus, written for this package and part of it."""

from __future__ import annotations

import csv
from pathlib import Path


def mini_news() -> Path:
    """The file ``mini_news.csv``: 680 short news-like texts, columns ``topic`` and ``text``.

    Four topics (world, sports, business, science), 170 texts each, with many words that change
    their sense from topic to topic.
    """
    return Path(__file__).with_name("mini_news.csv")


def mini_news_split() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The rows of ``mini_news``, 480 to learn from and 200 to measure on; always the same.

    Of each topic, five texts in every seventeen are to measure on.
    """
    seen: dict[str, int] = {}
    parts: tuple[list[dict[str, str]], list[dict[str, str]]] = ([], [])
    with open(mini_news(), encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            number = seen[row["topic"]] = seen.get(row["topic"], 0) + 1
            parts[number % 17 < 5].append(row)
    return parts
