"""The program ``elmokit`` as tests run it: how it ended, and how to catch it at work."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

COLORS = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")  # each would put color codes into messages


@dataclass(frozen=True)
class Outcome:
    """How the program ended, and what it said."""

    code: int
    out: str
    err: str

    def check_fine(self, *parts: str | Path) -> Outcome:
        """Code 0, and all of ``parts`` said."""
        assert self.code == 0, self.err
        missing = [part for part in map(str, parts) if part not in self.out]
        assert not missing, f"{missing} not in:\n{self.out}"
        return self

    def check_refused(self, *parts: str | Path) -> None:
        """Code 2, no traceback, an error that holds all of ``parts``, and something to try."""
        assert self.code == 2, self.err
        assert "Traceback" not in self.err, self.err
        assert self.err.startswith("error:"), self.err
        assert "try:" in self.err, self.err
        missing = [part for part in map(str, parts) if part not in self.err]
        assert not missing, f"{missing} not in:\n{self.err}"


Cli = Callable[..., Outcome]
"""The fixture ``cli``: runs the program inside the test's own process, which is quicker."""

Start = Callable[..., "subprocess.Popen[str]"]
"""The fixture ``start``: starts the program in a process of its own, which can be killed."""


def environment() -> dict[str, str]:
    """For a process of its own: the elmokit under test first on the path, no colors, and one thread, as
    threads that wait for each other crawl."""
    plain = {name: value for name, value in os.environ.items() if name not in COLORS}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**plain, "PATH": path, "OMP_NUM_THREADS": "1"}


def in_its_own_process(*words: str | Path, stdin: bytes = b"") -> Outcome:
    """What a person gets."""
    command = [sys.executable, "-m", "elmokit", *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=600, env=environment())
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def small_disk(n_bytes: int) -> Iterator[None]:
    """No file may grow beyond this size, as on a disk that is full. (Python ignores SIGXFSZ.)"""
    resource = pytest.importorskip("resource", reason="the size of files cannot be limited here")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def wait_for_more(process: subprocess.Popen[str], count: Callable[[], int], than: int = 0) -> bool:
    """Wait until ``count`` finds more ``than`` that; false if the program ended first."""
    while count() <= than:
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    return True


def n_metrics(out: Path) -> int:
    """Lines of metrics that the run in ``out`` has written so far."""
    metrics = out / "run" / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0
