"""A small labelled corpus that comes with the package, written for it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["mini_news"]


def mini_news() -> Path:
    """The file ``mini_news.csv``: 680 short news-like texts, columns ``topic`` and ``text``.

    Four topics (world, sports, business, science), 170 texts each, with many words that change
    their sense from topic to topic.
    """
    return Path(__file__).with_name("mini_news.csv")
