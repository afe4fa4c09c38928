"""Texts as callers give them: raw strings, or lists of words."""

from __future__ import annotations

from collections.abc import Sequence

from elmokit.core.errors import ConfigError, DataError
from elmokit.text.tokenizing import TextPipeline

__all__ = ["Text", "n_characters", "refuse_table", "words_of"]

Text = str | Sequence[str]
"""A raw text, or a text that is already a list of words."""


def words_of(pipeline: TextPipeline, texts: Sequence[Text]) -> list[list[str]]:
    """The words of each text, cleaned; lists of words are cleaned word by word, never split or dropped."""
    if isinstance(texts, str):
        raise ConfigError("A list of texts is needed, not one string.", remedy="Put it in a list: [text].")
    refuse_table(texts)
    found = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            found.append(pipeline.words(text))
        elif isinstance(text, Sequence) and all(isinstance(word, str) for word in text):
            found.append([pipeline.word(word) for word in text])
        else:
            raise DataError(
                f"Text {index} is neither a string nor a list of strings, but {type(text).__name__}.",
                remedy="Turn missing values into empty strings first.",
            )
    return found


def refuse_table(texts: object) -> None:
    """Refuse what is not a list of texts but a table: going through one gives column names or rows."""
    if hasattr(texts, "columns") or getattr(texts, "ndim", 1) != 1:
        raise DataError(
            f"A list of texts is needed, not a table or an array of other than one axis "
            f"({type(texts).__name__}).",
            remedy='Give one column of it, as in table["text"].',
        )


def n_characters(text: Text) -> int:
    """The length of a text; 0 for what is none, which is refused later."""
    if isinstance(text, str):
        return len(text)
    return sum(len(word) for word in text if isinstance(word, str)) if isinstance(text, Sequence) else 0
