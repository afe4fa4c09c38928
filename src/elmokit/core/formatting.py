"""Numbers and lists as text for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any


def percent(share: float | None, places: int = 2) -> str:
    """A share as a percentage, without the sign.

    >>> percent(0.5), percent(0.12345, 1), percent(None)
    ('50.00', '12.3', '–')
    """
    return "–" if share is None else f"{share * 100:.{places}f}"


def format_duration(seconds: float, *, rough: bool = False) -> str:
    """A length of time; ``rough`` in one unit, which is easier to compare.

    >>> format_duration(1.254), format_duration(75), format_duration(7500)
    ('1.25 s', '1 min 15 s', '2 h 5 min')
    >>> [format_duration(seconds, rough=True) for seconds in (0.532, 61, 1511, 9000)]
    ['0.53 s', '1.0 min', '25 min', '2.5 h']
    """
    if rough:
        for size, unit in ((3600, "h"), (60, "min")):
            if seconds >= 0.995 * size:
                amount = seconds / size
                return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_size(n_bytes: float) -> str:
    """A number of bytes.

    >>> format_size(999), format_size(1_234_000)
    ('999 bytes', '1.2 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes:,.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 1000:
            return f"{n_bytes:,.1f} {unit}"
    return f"{n_bytes / 1000:,.1f} TB"


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
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "text"), plural(1200, "text"), plural(2, "class", "classes")
    ('1 text', '1,200 texts', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def join_names(names: Iterable[str], *, at_most: int = 0, last: str = "and") -> str:
    """Names as a list in a sentence.

    >>> join_names("abc"), join_names("ab", last="or"), join_names("abcde", at_most=2)
    ('a, b and c', 'a or b', 'a, b and 3 more')
    """
    known = list(names)
    if at_most and len(known) > at_most:
        known = [*known[:at_most], f"{len(known) - at_most:,} more"]
    return f" {last} ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def escape_markdown(text: str) -> str:
    """Text as one line that Markdown shows as it is, also in a table.

    >>> escape_markdown("a|b\\n<unk> hidden_dim *")
    'a\\\\|b &lt;unk> hidden_dim \\\\*'
    """
    text = re.sub(r"([\\`*|\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))
    return text.replace("<", "&lt;")
