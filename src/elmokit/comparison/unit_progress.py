"""How far a part of a comparison is: told by its process in a small file, read by the comparison."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.core.console import Advance, Reporter

__all__ = ["FileReporter", "read_progress"]

_EVERY = 0.5  # seconds


class FileReporter(Reporter):
    """Messages go to the part's log, how far it is to a file beside it.

    Args:
        file: where.
    """

    def __init__(self, file: Path) -> None:
        super().__init__("plain")
        self._file, self._told = file, 0.0

    @contextlib.contextmanager
    def counting(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Advance]:
        """A bar elsewhere."""
        with self._bar(description, total or 0.0, 0.0) as advance:
            yield advance

    @contextlib.contextmanager
    def training(self, total: int, done: int) -> Iterator[Advance]:
        """A bar elsewhere."""
        with self._bar("training", float(total), float(done)) as advance:
            yield advance

    @contextlib.contextmanager
    def _bar(self, what: str, total: float, done: float) -> Iterator[Advance]:
        state: dict[str, Any] = {"what": what, "total": total, "done": done, "rate": "", "loss": ""}

        def advance(amount: float, **fields: Any) -> None:
            state["done"] += amount
            state.update({name: value for name, value in fields.items() if name in state})
            if time.monotonic() - self._told > _EVERY:
                self._told = time.monotonic()
                with contextlib.suppress(OSError):  # telling is not what the work is about
                    self._file.write_text(json.dumps(state), encoding="utf-8")

        yield advance


def read_progress(file: Path) -> tuple[float, str]:
    """The share of the present stage that is done, and what to show for it."""
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        share = min(1.0, state["done"] / state["total"]) if state["total"] else 0.0
        loss = f", loss {state['loss']}" if state["loss"] not in ("", "-") else ""
        return share, f"{state['what'].lower()} {share:.0%} {state['rate']}{loss}".rstrip()
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, ""
