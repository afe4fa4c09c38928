"""A worker of a comparison: told over standard input what to do, it does one part at a time.

``main``, in a process with the work folder as its argument, reads a JSON object a line and answers each
with one. Libraries are loaded once; each part then has a process of its own (where there is fork), so that
its memory can be measured and a crash hurts nothing else. When the comparison ends or is killed, so is its
worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main"]

DONE, INTERRUPTED, FAILED = 0, 130, 1


def main() -> None:
    """Serve until standard input ends."""
    work = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the part in hand is told, not the worker
    import torch

    from elmokit.comparison import doing  # noqa: F401 (loaded now, used in the parts)

    torch.set_num_threads(1)
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # loads much, which no part is to be charged with
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    tasks: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer(event="ready")
    while True:
        task = json.loads(tasks.get())
        code = _in_a_process(work, task) if hasattr(os, "fork") else _do(work, task)
        answer(event="ended", unit=task["unit"]["id"], code=code)


def _listen(tasks: queue.Queue[str]) -> None:
    """Pass on what is asked; when nobody is left to ask, end at once, with the part in hand."""
    for line in sys.stdin:
        tasks.put(line)
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)  # a worker is the first of its own process group
    os._exit(DONE)


def _in_a_process(work: Path, task: dict[str, Any]) -> int:
    worker = os.getpid()
    child = os.fork()
    if child == 0:
        threading.Thread(target=_outlive_not, args=(worker,), daemon=True).start()
        code = FAILED
        try:
            code = _do(work, task)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _outlive_not(worker: int) -> None:
    """End this part when its worker is gone."""
    while os.getppid() == worker:
        time.sleep(1.0)
    os._exit(FAILED)


def _do(work: Path, task: dict[str, Any]) -> int:
    from elmokit.comparison.doing import run_unit
    from elmokit.comparison.methods import Method
    from elmokit.comparison.steps import Unit
    from elmokit.core.atomic import write_text
    from elmokit.core.errors import ElmokitError

    unit = Unit(**{**task["unit"], "needs": tuple(task["unit"]["needs"])})
    method = Method(**{**task["method"], "published": tuple(task["method"]["published"])})
    encoder = Path(task["encoder"]) if task["encoder"] else None
    folder = work / "units" / unit.id
    folder.mkdir(parents=True, exist_ok=True)
    failed = folder / "failed.txt"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        open(folder / "log.txt", "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            failed.unlink(missing_ok=True)
            run_unit(work, unit, method, encoder, task["mark"])
        except KeyboardInterrupt:
            return INTERRUPTED
        except ElmokitError as error:
            write_text(failed, f"{error.message} {error.remedy}".strip() + "\n")
            return FAILED
        except Exception as error:
            traceback.print_exc()
            write_text(failed, f"{type(error).__name__}: {error}\n")
            return FAILED
    return DONE
