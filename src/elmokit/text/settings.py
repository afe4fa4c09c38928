"""How files are read, as settings (apart from the readers, so that help needs no library)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elmokit.config import Config, option

__all__ = ["LabelConfig", "ReadConfig"]


@dataclass(frozen=True, kw_only=True)
class ReadConfig(Config):
    """How files are read."""

    text_columns: str = option(
        "", "Columns that hold the text, joined by a space: names or numbers from 1, as in title,body."
    )
    header: Literal["auto", "yes", "no"] = option(
        "auto", "Whether a table's first row names its columns; auto: no if columns are numbers."
    )
    blocks: Literal["lines", "paragraphs"] = option(
        "lines", "A text in a .txt file is a line, or a paragraph between blank lines."
    )
    encoding: str = option("utf-8", "Encoding of the files.")
    errors: Literal["strict", "replace", "ignore"] = option(
        "strict", "What to do with bytes that cannot be decoded."
    )

    @property
    def columns(self) -> list[str]:
        """The columns asked for, one by one."""
        return [name.strip() for name in self.text_columns.split(",") if name.strip()]


@dataclass(frozen=True, kw_only=True)
class LabelConfig(Config):
    """Where the labels of rows stand, and what they look like."""

    label_column: str = option(
        "",
        "Column that holds the label: a name, or a number from 1. Empty: label, class, category or target.",
    )
    label_separator: str = option(
        "", "What stands between the labels of a row that can have several, as in |. Empty: one label a row."
    )
    drop_unlabelled: bool = option(False, "Leave rows without a label out instead of stopping at them.")

    def split(self, label: str) -> list[str]:
        """The labels in a cell, each once, in their order.

        >>> LabelConfig(label_separator="|").split("sport| world ||sport")
        ['sport', 'world']
        """
        parts = label.split(self.label_separator) if self.label_separator else [label]
        return list(dict.fromkeys(part.strip() for part in parts if part.strip()))
