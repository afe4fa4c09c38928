"""A classifier's report: one page to read, the same tables as Markdown, and all facts as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.tasks.report_markdown import page_markdown
from elmokit.tasks.report_page import classifier_page, known_splits

__all__ = ["page_html", "plain_facts", "write_report"]


def write_report(folder: Path, facts: Mapping[str, Any]) -> list[Path]:
    """Write report.json, report.md and report.html; each is written whole or not at all.

    Whatever is missing from ``facts`` is left out of the pages. They may hold:

    * ``title``, ``command``: text; ``notes``: a list of sentences to be read first;
    * ``classes``: their names; ``multilabel``: whether a text may have several;
    * ``splits``: what ``measure`` or ``measure_multilabel`` gave, under train, valid and test;
    * ``history``: for each epoch, a dictionary with epoch, train_loss, valid_loss, accuracy and the like;
    * ``mix``: kind, form, names, values and history of the layers' weights, the first being the start;
    * ``mistakes``: what ``confident_mistakes`` gave, by split;
    * ``encoder``, ``settings``, ``versions``: plain facts; ``timings``: seconds by phase, and
      documents_per_second.
    """
    plain = plain_facts(facts)
    splits, notes = known_splits(plain)
    plain |= {"splits": splits, "notes": [*map(str, plain.get("notes") or []), *notes]}
    page = classifier_page(plain)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = {
        "report.json": json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2) + "\n",
        "report.md": page_markdown(page),
        "report.html": page_html("classifier.html.j2", page),
    }
    for name, text in written.items():
        write_text(folder / name, text)
    return [folder / name for name in written]


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as JSON knows them: no arrays, no paths, no NaN (None instead), no broken characters."""
    plain: dict[str, Any] = _plain(facts)
    return plain


def page_html(template: str, page: Mapping[str, Any], room: str = "elmokit.tasks") -> str:
    """Fill one of a room's templates with a page's facts; all text in them is escaped.

    A template of another room may build on those here.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(name) for name in dict.fromkeys([room, "elmokit.tasks"])])
    filler = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return filler.get_template(template).render(page=page) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", str(value))
