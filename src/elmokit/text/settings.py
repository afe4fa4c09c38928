"""Settings of text: how files are read, how text becomes words, which words are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.core.config import Config, option

Format = Literal["txt", "csv", "tsv", "jsonl", "parquet", "conll", "json"]
_USUAL_LABELS = ("class", "category", "target")


@dataclass(frozen=True, kw_only=True)
class TextConfig(Config):
    """How raw text becomes words. The defaults are the ``plain`` pipeline."""

    unicode: Literal["NFC", "NFKC", "none"] = option(
        "NFC", "Unicode normalization form; NFKC also folds width and ligatures."
    )
    mend: bool = option(False, "Repair text from feeds: HTML entities and tags, stray backslashes, ' #39;'.")
    contractions: bool = option(False, "Expand English contractions: don't -> do not.")
    urls: bool = option(False, "Replace web and mail addresses with <url>.")
    lowercase: bool = option(False, "Lower-case everything.")
    punctuation: Literal["keep", "remove"] = option(
        "keep", "Keep punctuation marks as words of their own, or remove them."
    )
    tokens: Literal["words", "whitespace"] = option(
        "words", "Find words by rule, or split at spaces (text that is already tokenized)."
    )
    unit: Literal["text", "sentence"] = option(
        "text", "What <s> and </s> enclose: a whole text (line, row) or each sentence in it."
    )


PIPELINES: dict[str, TextConfig] = {
    "plain": TextConfig(),
    "classic": TextConfig(mend=True, contractions=True, urls=True, lowercase=True, punctuation="remove"),
}


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Config):
    """Which words the model can predict, and the pieces that subword input is made of."""

    max_words: int = option(100_000, "Keep at most this many words; the rest is <unk>.", at_least=1)
    min_count: int = option(2, "Keep words seen at least this often; the rest is <unk>.", at_least=1)
    n_pieces: int = option(8_000, "Pieces to learn for subword input.", at_least=1)


@dataclass(frozen=True, kw_only=True)
class ReadConfig(Config):
    """How files are read."""

    text_columns: str = option(
        "", "Text columns, by name or number (starting at 1), such as title,body; joined by a space."
    )
    header: Literal["auto", "yes", "no"] = option(
        "auto",
        "Whether a table's first row names its columns; auto: yes, unless columns are given by number.",
    )
    separator: Literal["auto", ",", ";", "tab", "|"] = option(
        "auto", "What separates the columns of a table."
    )
    quotes: Literal["auto", "yes", "no"] = option(
        "auto", 'Whether "quotes" can enclose a field; no: they are characters like any other.'
    )
    skip_bad_rows: bool = option(False, "Leave out rows that cannot be read instead of stopping at them.")
    blocks: Literal["lines", "paragraphs"] = option(
        "lines", "A text in a .txt file is a line, or a paragraph between blank lines."
    )
    encoding: str = option("utf-8", "Encoding of the files.")
    errors: Literal["strict", "replace", "ignore"] = option(
        "strict", "What to do with bytes that cannot be decoded."
    )

    def to_dict(self) -> dict[str, Any]:
        """As ever, but without settings that 0.1 did not have if they are as usual: its runs can resume."""
        usual = {"separator": "auto", "quotes": "auto", "skip_bad_rows": False}
        return {name: value for name, value in super().to_dict().items() if usual.get(name, ...) != value}

    @property
    def columns(self) -> list[str]:
        """The names in ``text_columns``."""
        return [name.strip() for name in self.text_columns.split(",") if name.strip()]


@dataclass(frozen=True, kw_only=True)
class LabelConfig(Config):
    """Where the labels of rows are, and what separates them."""

    label_column: str = option(
        "", "Label column, by name or number (starting at 1). By default: label, class, category or target."
    )
    label_separator: str = option(
        "", "Separates several labels in one row, such as |. By default, one label per row."
    )
    drop_unlabeled: bool = option(False, "Leave out rows without a label instead of stopping at them.")

    def split(self, label: str) -> list[str]:
        """The labels in a cell, each once, in their order.

        >>> LabelConfig(label_separator="|").split("sport| world ||sport")
        ['sport', 'world']
        """
        parts = label.split(self.label_separator) if self.label_separator else [label]
        return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


@dataclass(frozen=True)
class RowForm:
    """How the rows of a task look where nothing is said of their columns.

    Attributes:
        plain: How files without a known suffix are read.
        text_names: The first of these columns holds the text.
        label_names: The first of these holds the label; none: the usual ones.
        keeps_lists: Labels can be lists of tags, joined by spaces, or of spans, kept as JSON.
        exact: Texts keep the space around them, and rows all their columns: for places in a text.
        open_labels: Labels that are lists or objects are kept as JSON, and rows may lack one.
        fields: Names of the columns of several texts, the usual ones first; a file may have others of these.
        signs: Names of columns that, together, only rows of this task have.
    """

    plain: Format = "txt"
    text_names: tuple[str, ...] = ("text",)
    label_names: tuple[str, ...] = ()
    keeps_lists: bool = False
    exact: bool = False
    open_labels: bool = False
    fields: tuple[tuple[str, ...], ...] = ()
    signs: tuple[frozenset[str], ...] = ()

    def find_text(self, names: Iterable[str]) -> str | None:
        """The column that holds the text unless others are named."""
        folded = {name.casefold() for name in names}
        return next((name for name in self.text_names if name in folded), None)

    def own_names(self, wanted: list[str], names: Collection[str]) -> list[str]:
        """The text columns among those of a file, where the usual ones may have other names."""
        folded, is_usual = {name.casefold() for name in names}, tuple(wanted) in self.fields[:1]
        return next(([*own] for own in self.fields if is_usual and {*own} <= folded), wanted)

    def find_label(self, names: Collection[str], texts: Collection[str] = ()) -> str | None:
        """The column that holds the label unless another is named; never one of ``texts``."""
        known = {name.casefold(): name for name in names if name not in texts}
        usual = (known[name] for name in self.label_names if name in known)
        return next(usual, None) if self.label_names else usual_label(names, texts)


def usual_label(names: Collection[str], texts: Collection[str] = ()) -> str | None:
    """The column that is the label unless another is named; never one of ``texts``.

    >>> usual_label(["title", "body", "category"])
    'category'
    """
    names = [name for name in names if name not in texts]
    known = {name.casefold(): name for name in names} | {name: name for name in names}
    usual = [known[name] for name in _USUAL_LABELS if name in known]
    return known.get("label") or (usual[0] if len(usual) == 1 else None)
