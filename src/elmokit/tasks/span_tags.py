"""Spans as tags of words, in the schemes IOB1, IOB2 and BIOES, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Scheme = Literal["IOB1", "IOB2", "BIOES"]
OUTSIDE = "O"
_BILOU = {"L": "E", "U": "S"}  # other letters for the same


class Span(NamedTuple):
    """The words from ``start`` up to, not including, ``end``."""

    start: int
    end: int
    label: str


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and label of a tag; "O" has no label.

    >>> split_tag("B-LOC"), split_tag("U-LOC"), split_tag("O")
    (('B', 'LOC'), ('S', 'LOC'), ('O', ''))
    """
    prefix, _, label = tag.partition("-")
    return _BILOU.get(prefix, prefix), label


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether these are tags of spans, rather than one kind of tag for each word, such as parts of speech."""
    pairs = [split_tag(tag) for tag in {*tags}]
    return any(label for _, label in pairs) and all(
        (prefix in "BIES" and prefix and label) or (prefix == OUTSIDE and not label)
        for prefix, label in pairs
    )


def find_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence in any of the schemes. Tags that cannot follow each other begin a new span.

    >>> find_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Span(start=0, end=2, label='PER'), Span(start=3, end=4, label='LOC'), Span(start=4, end=5, label='LOC')]
    """
    spans, before, label_before = list[Span](), OUTSIDE, ""
    for place, tag in enumerate(tags):
        prefix, label = split_tag(tag)
        if prefix != OUTSIDE:
            if prefix in "BS" or before in "OES" or label != label_before:
                spans.append(Span(place, place + 1, label))
            else:
                spans[-1] = spans[-1]._replace(end=place + 1)
        before, label_before = prefix, label
    return spans


def write_tags(spans: Iterable[Span], n_words: int, scheme: Scheme) -> list[str]:
    """The tags of spans that do not overlap, in order.

    >>> write_tags([Span(0, 2, "PER"), Span(2, 3, "PER")], 4, "BIOES")
    ['B-PER', 'E-PER', 'S-PER', 'O']
    >>> write_tags([Span(0, 2, "PER"), Span(2, 3, "PER")], 4, "IOB1")
    ['I-PER', 'I-PER', 'B-PER', 'O']
    """
    tags, before = [OUTSIDE] * n_words, Span(-1, -1, "")
    for span in spans:
        start, end, label = span
        tags[start:end] = [f"I-{label}"] * (end - start)
        touches = before.end == start and before.label == label
        if scheme != "IOB1" or touches:
            tags[start] = f"B-{label}"
        if scheme == "BIOES":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{label}"
        before = span
    return tags


def guess_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that some sequences are written in."""
    n_begun, n_entered = 0, 0  # spans after another label or none, by "B" and by "I"
    for tags in sequences:
        before = (OUTSIDE, "")
        for prefix, label in map(split_tag, tags):
            if prefix in ("E", "S"):
                return "BIOES"
            if prefix != OUTSIDE and before[1] != label:
                n_begun, n_entered = n_begun + (prefix == "B"), n_entered + (prefix == "I")
            before = prefix, label
    return "IOB1" if n_entered > n_begun else "IOB2"


def find_invalid(tags: Sequence[str], scheme: Scheme) -> Iterator[int]:
    """The places of tags that differ from how the spans they stand for are written in the scheme."""
    proper = write_tags(find_spans(tags), len(tags), scheme)
    for place, (tag, expected) in enumerate(zip(tags, proper, strict=True)):
        if split_tag(tag) != split_tag(expected):
            yield place


@dataclass(frozen=True)
class Grammar:
    """Which tags can begin a sequence, follow each other and end it."""

    starts: npt.NDArray[np.bool_]  # (n_tags,)
    steps: npt.NDArray[np.bool_]  # (n_tags, n_tags)
    ends: npt.NDArray[np.bool_]  # (n_tags,)

    @classmethod
    def of(cls, tags: Sequence[str]) -> Grammar:
        """For tags in BIOES; all is allowed for tags that do not mark spans."""
        if not mark_spans(tags):
            return cls(
                np.ones(len(tags), bool), np.ones((len(tags), len(tags)), bool), np.ones(len(tags), bool)
            )
        pairs = [split_tag(tag) for tag in tags]
        is_open = np.array([prefix in "BI" for prefix, _ in pairs])  # something of the span must follow
        enters = np.array([prefix in "OBS" for prefix, _ in pairs])
        same = np.array([[one == other for _, other in pairs] for _, one in pairs])
        steps = np.where(is_open[:, None], same & ~enters, enters)
        return cls(enters, steps, ~is_open)
