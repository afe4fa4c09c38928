"""Messages and progress bars, for a person, a log file or a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Advance = Callable[..., None]
"""Called with the amount done since the last call, and fields to show."""


class Reporter:
    """Reports progress in one of four modes.

    ``live``: messages and moving bars on a terminal. ``plain``: messages only, for log files.
    ``json``: one JSON object per line on standard output, for programs.
    ``silent``: nothing, for use as a library.

    Attributes:
        console: Where messages go; print tables and other results for a person to it. It shows nothing in
            the last two modes.
    """

    def __init__(self, mode: Literal["auto", "live", "plain", "json", "silent"] = "auto") -> None:
        self.console = Console(quiet=mode in ("json", "silent"), highlight=False)
        self.mode = mode
        if mode == "auto":
            self.mode = "live" if self.console.is_terminal else "plain"
        if not self.console.is_terminal:  # a file or a pipe has room for tables
            self.console.width = max(100, self.console.width)

    def say(self, message: str) -> None:
        """A message for a person; may have rich markup."""
        self.console.print(message, soft_wrap=True)

    def note(self, note: str) -> None:
        """A side note for a person, without markup."""
        self.say(f"[dim]{escape(note)}[/]")

    def event(self, event: str, **values: Any) -> None:
        """A record for a program."""
        if self.mode == "json":
            sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
            sys.stdout.flush()

    def result(self, values: Mapping[str, Any]) -> None:
        """The whole result for a program."""
        if self.mode == "json":
            print(json.dumps(values, ensure_ascii=False))

    @contextmanager
    def progress(self, *columns: ProgressColumn, expand: bool = False) -> Iterator[Progress]:
        """Progress bars with columns of your own, shown in live mode; they disappear at the end."""
        hidden = self.mode != "live"
        console = Console(quiet=True) if hidden else self.console
        with Progress(*columns, console=console, transient=True, disable=hidden, expand=expand) as progress:
            yield progress

    @contextmanager
    def counting(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Advance]:
        """A progress bar with rate and time left; without a total, it only shows activity."""
        bar = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with self.progress(*bar, _Rate(unit), TimeElapsedColumn(), TimeRemainingColumn()) as progress:
            task = progress.add_task(description, total=total)
            yield lambda amount, **fields: progress.advance(task, amount)

    @contextmanager
    def training(self, total: int, done: int) -> Iterator[Advance]:
        """The progress bar of a training run: step, speed, loss, score on held-out data, time left."""
        bar = (TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=None))
        fields = ("{task.fields[rate]}", "loss {task.fields[loss]}", "{task.fields[held_out]}")
        times = (TimeElapsedColumn(), TextColumn("[dim]left[/]"), TimeRemainingColumn())
        with self.progress(*bar, *map(TextColumn, fields), *times, expand=True) as progress:
            task = progress.add_task("", total=total, completed=done, rate="", loss="-", held_out="")
            yield lambda amount, **fields: progress.update(task, advance=amount, **fields)


class _Rate(ProgressColumn):
    """Amount done per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """As in 1,200 texts/s; empty until it is known."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self._unit}/s" if speed else "", style="progress.data.speed")
