"""Numbers and lists as text for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rich.filesize import decimal


def percent(share: float | None, places: int = 2) -> str:
    """A share as a percentage, without the sign.

    >>> percent(0.5), percent(0.12345, 1), percent(None)
    ('50.00', '12.3', '–')
    """
    return "–" if share is None else f"{share * 100:.{places}f}"


def format_duration(seconds: float) -> str:
    """A length of time.

    >>> format_duration(1.254), format_duration(75), format_duration(7500)
    ('1.25 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_size(n_bytes: float) -> str:
    """A number of bytes, as in 1.2 MB."""
    return decimal(int(n_bytes))


def format_rate(per_second: float) -> str:
    """Texts or rows per second."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def format_value(value: Any) -> str:
    """Any plain value in one line, for a table of settings."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "text"), plural(1200, "text"), plural(2, "class", "classes")
    ('1 text', '1,200 texts', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def join_names(names: Iterable[str], *, at_most: int = 0, last: str = "and") -> str:
    """Names as a list in a sentence; semicolons stand between names with commas.

    >>> join_names("abc"), join_names("ab", last="or"), join_names("abcde", at_most=2)
    ('a, b and c', 'a or b', 'a, b and 3 more')
    """
    known = list(names)
    if at_most and len(known) > at_most:
        known = [*known[:at_most], f"{len(known) - at_most:,} more"]
    comma = "; " if any("," in name for name in known) else ", "
    return f" {last} ".join([comma.join(known[:-1]), known[-1]] if len(known) > 1 else known)


_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")  # would change the direction of what follows
_UNPRINTABLE = re.compile(  # control characters, lone surrogates, the two unused code points of each plane
    "[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    + "".join(chr(end) + chr(end + 1) for end in range(0xFFFE, 0x110000, 0x10000))
    + "]"
)


def printable(text: str) -> str:
    """Text in which control characters, lone surrogates and unused code points are replaced by �."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _DIRECTIONS.sub("", text))


def one_line(text: str) -> str:
    """Printable text on one line."""
    return " ".join(printable(" ".join(text.split())).split())


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line, also in a table.

    >>> escape_markdown("a|b <unk> hidden_dim *")
    'a\\\\|b &lt;unk&gt; hidden_dim \\\\*'
    """
    text = re.sub(r"([\\`*|\[\]$~]|(?<!\w)_|_(?!\w))", r"\\\1", one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
