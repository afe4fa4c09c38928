"""A comparison's report: one page that answers which method to take, the same as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.comparison.report_markdown import comparison_markdown
from elmokit.comparison.report_page import comparison_page
from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.tasks.report import page_html, plain_facts

__all__ = ["write_comparison"]


def write_comparison(folder: Path, facts: Mapping[str, Any]) -> list[Path]:
    """Write report.json, report.md and report.html; each is written whole or not at all.

    Whatever is missing from ``facts``, or is not a number where one should be, is left out of the pages.
    They may hold:

    * ``title``: text; ``notes``, ``left_out``: sentences to be read first; ``commands``: text;
    * ``data``: rows and class_counts by split, classes, names of files, notes;
    * ``methods``: for each its id, name, family (elmo, static, linear), status (done, failed, left out),
      reason, seeds, splits, seconds, documents_per_second, peak_memory, bytes, history, mix, settings and
      published accuracies. A split has n, accuracy (mean, sd, values, low, high), macro (precision, recall,
      f1), per_class, confusion and confusion_classes;
    * ``ranking``: order and ranks by id, pairs with their difference, and a summary in sentences;
    * ``pretraining``: name, seconds, perplexity, parameters, was_given, history and the like;
    * ``curve``: draws, and for each method points of n labels with mean and sd;
    * ``examples``: texts with their label, the methods' guesses, and who was right and wrong;
    * ``intrinsic``: for each vectors and task the measure, value, covered and total;
    * ``versions``, ``machine``: plain facts.
    """
    plain = plain_facts(facts)
    page = comparison_page(plain)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = {
        "report.json": json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2) + "\n",
        "report.md": comparison_markdown(page),
        "report.html": page_html("comparison.html.j2", page, "elmokit.comparison"),
    }
    for name, text in written.items():
        write_text(folder / name, text)
    return [folder / name for name in written]
