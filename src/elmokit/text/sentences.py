"""Cutting a text into sentences by rule."""

from __future__ import annotations

import re

__all__ = ["sentences"]

_END = re.compile(r"""(?:[.!?…]+|[。！？।؟])["'’”»)\]]*""")
_NEXT = re.compile(r"\s*(.{0,2})", re.DOTALL)
_ABBREVIATIONS = {
    "mr", "mrs", "ms", "dr", "prof", "rev", "gen", "col", "lt", "sgt", "capt", "st", "sr", "jr", "vs",
    "etc", "inc", "ltd", "co", "corp", "no", "vol", "fig", "al", "eg", "ie", "jan", "feb", "mar", "apr",
    "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "approx", "dept", "est", "gov", "sen",
    "rep", "mt",
}  # fmt: skip


def sentences(text: str) -> list[str]:
    """The sentences of ``text``. Nothing is lost but the white space between them.

    >>> sentences('Mr. Fox paid $3.50. "Why?" he asked. 本当。はい。')
    ['Mr. Fox paid $3.50.', '"Why?" he asked.', '本当。', 'はい。']
    """
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        end = match.end()
        if match.group()[0] in "。！？":
            pass  # written without spaces
        elif end < len(text) and not text[end].isspace():
            continue  # 3.50, example.org
        else:
            ahead = _NEXT.match(text, end)
            following = (ahead[1] if ahead else "").lstrip("\"'“‘«([")
            if following and following[0].islower():
                continue
            if match.group()[0] == ".":
                before = text[start : match.start()].rsplit(None, 1)[-1:] or [""]
                word = before[0].lower().lstrip("(\"'“‘")
                short = all(len(part) <= 2 for part in word.split("."))  # J. or e.g.
                if word in _ABBREVIATIONS or (
                    word[:1].isalpha() and short and (len(word) == 1 or "." in word)
                ):
                    if following:
                        continue
        if text[start:end].strip():
            found.append(text[start:end].strip())
        start = end
    if text[start:].strip():
        found.append(text[start:].strip())
    return found
