"""Several processes that train one model together, started by ``--processes`` or by torchrun.

Each computes the gradients of its share of the streams. The sums of all gradients are the same in all
processes, so their weights stay equal; only the first process writes. Sparse gradients travel as rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn

from elmokit.core.errors import ConfigError, RunError

_PATIENCE = timedelta(hours=1)  # with a process that is slow, or prepares the text
_GRACE = 10.0  # seconds that the others have to notice
_LOST = "cannot be reached"
_NONE, _DENSE, _ROWS = 0, 1, 2


class Processes:
    """The processes of a run, as one of them sees it. A single process needs no other, and exchanges nothing.

    Attributes:
        rank: Which of them this is, from 0.
        n_bytes: Bytes of gradients that this process has received.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.n_bytes = rank, size, 0

    @classmethod
    @contextlib.contextmanager
    def join(cls) -> Iterator[Processes]:
        """The processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, or this one alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            yield cls()
            return
        with _explain_lost_connection():
            dist.init_process_group("gloo", timeout=_PATIENCE)
        yield cls(dist.get_rank(), size)

    def part(self, n_streams: int, n_all: int) -> slice:
        """The streams of this process, of the first ``n_streams`` of ``n_all``."""
        first, last = (min(n_streams, rank * n_all // self.size) for rank in (self.rank, self.rank + 1))
        return slice(first, last)

    def in_turn(self) -> Iterator[None]:
        """Yields once in each process: in the first one, then in the first of every other machine, then in
        the rest, which find on disk what these have made."""
        is_leader = int(os.environ.get("LOCAL_RANK", "0")) == 0
        mine = 0 if self.rank == 0 else 1 if is_leader else 2
        for turn in range(3 if self.size > 1 else 1):
            if turn == mine:
                yield
            self.wait()

    def wait(self) -> None:
        """Until all processes are here."""
        self.highest([0.0])

    def highest(self, values: list[float]) -> list[float]:
        """The highest of each number in any process."""
        if self.size == 1:
            return values
        numbers = torch.tensor(values, dtype=torch.float64)
        with _explain_lost_connection():
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return numbers.tolist()

    def total(self, values: list[float]) -> list[float]:
        """The sum of each number over all processes."""
        if self.size == 1:
            return values
        numbers = torch.tensor(values, dtype=torch.float64)
        with _explain_lost_connection():
            dist.all_reduce(numbers)
        return numbers.tolist()

    def from_first(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> tuple[Any, Any]:
        """The tensors and the JSON values of the first process; what others pass is not read."""
        if self.size == 1:
            return tensors, meta
        content = save(tensors, {"meta": json.dumps(meta)}) if self.rank == 0 else b""
        message = torch.frombuffer(bytearray(content or b"0"), dtype=torch.uint8)
        size = torch.tensor(len(content))
        with _explain_lost_connection():
            dist.broadcast(size, 0)
            message = message if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(message, 0)
        if self.rank == 0:
            return tensors, meta
        content = message.numpy().tobytes()
        n_header = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + n_header])
        return load(content), json.loads(header["__metadata__"]["meta"])

    def require_same(self, what: str, checksum: str) -> None:
        """Refuse to go on if the processes do not have the same checksum."""
        number = float(int(hashlib.sha256(checksum.encode()).hexdigest()[:12], 16))
        highest, lowest = self.highest([number, -number])
        if highest != -lowest:
            raise ConfigError(
                f"The processes of this run do not see the same {what}.",
                remedy="Give all of them the same files and settings, and start with a new --out.",
            )

    def join_streams(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state (stream, ...) of all streams, from each process's own."""
        return {name: self._gather(tensor) for name, tensor in state.items()}

    def _gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in their order."""
        if self.size == 1:
            return rows
        with _explain_lost_connection():
            counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            dist.all_gather(counts, torch.tensor([len(rows)]))
            sizes = [int(count) for count in counts]
            # All messages have the size of the longest.
            message = rows.new_zeros(max(sizes), *rows.shape[1:])
            message[: len(rows)] = rows
            messages = [torch.empty_like(message) for _ in sizes]
            dist.all_gather(messages, message)
        self.n_bytes += message.nbytes * (self.size - 1)
        return torch.cat([one[:size] for one, size in zip(messages, sizes, strict=True)])

    def add_gradients(self, parameters: Mapping[str, nn.Parameter], loss: float) -> float:
        """Make every gradient the sum over all processes; returns the sum of their losses."""
        if self.size == 1:
            return loss
        own = [
            _NONE if p.grad is None else _ROWS if p.grad.is_sparse else _DENSE for p in parameters.values()
        ]
        kinds = self.highest([float(kind) for kind in own])  # a process without a stream has no gradient
        by_kind: dict[int, list[nn.Parameter]] = {_NONE: [], _DENSE: [], _ROWS: []}
        for parameter, kind in zip(parameters.values(), kinds, strict=True):
            by_kind[int(kind)].append(parameter)
        dense = by_kind[_DENSE]
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in dense]
        flat = torch.cat([torch.tensor([loss]), *(part.flatten() for part in parts)])  # one message
        with _explain_lost_connection():
            dist.all_reduce(flat)
        self.n_bytes += flat.nbytes
        sizes = [1, *(part.numel() for part in parts)]
        for parameter, total in zip(dense, flat.split(sizes)[1:], strict=True):
            parameter.grad = total.view_as(parameter)
        for parameter in by_kind[_ROWS]:
            rows, values = map(self._gather, _rows_of(parameter))
            parameter.grad = torch.sparse_coo_tensor(
                rows.unsqueeze(0), values, parameter.shape, check_invariants=False
            )
        return float(flat[0])


def _rows_of(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows of a sparse gradient, (n), and their values, (n, dim)."""
    if parameter.grad is None:
        return torch.zeros(0, dtype=torch.int64), parameter.new_zeros(0, *parameter.shape[1:]).detach()
    gradient = parameter.grad.coalesce()
    return gradient._indices()[0], gradient._values()


@contextlib.contextmanager
def _explain_lost_connection() -> Iterator[None]:
    """Turn a lost connection into a RunError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        cause = re.sub(r"\[[^]]*\]:?\d*\s*", "", str(error)).strip().split(". ")[0]
        raise RunError(
            f"The other processes of this run {_LOST}: {cause}.",
            remedy="Check their output. The same command resumes from the last checkpoint.",
        ) from error


def launch(size: int) -> int:
    """Run this command line in ``size`` processes on this machine; returns the exit code of the first.

    Shows the progress of the first one, and the errors of the others.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared["OMP_NUM_THREADS"] = max(1, torch.get_num_threads() // size)
    arguments = [*sys.argv[1:]]
    while "--threads" in arguments:  # the shares of this number are in the environment
        place = arguments.index("--threads")
        del arguments[place : place + 2]
    arguments = [word for word in arguments if not word.startswith("--threads=")]
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None = None) -> None:
        for child in children:
            child.send_signal(number)

    with contextlib.ExitStack() as stack:
        stack.callback(forward, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, forward)
        messages = []
        for rank in range(size):
            own = {**shared, "RANK": rank, "LOCAL_RANK": rank}
            messages.append(stack.enter_context(tempfile.TemporaryFile()))
            children.append(
                subprocess.Popen(
                    [sys.executable, "-m", "elmokit", *arguments],
                    env={**os.environ, **{name: str(value) for name, value in own.items()}},
                    stdout=subprocess.DEVNULL if rank else None,
                    stderr=messages[rank] if rank else None,
                    start_new_session=True,  # Ctrl-C reaches this process, which passes it on
                )
            )
        first = _wait(children)
        for message in messages:
            message.seek(0)
            text = message.read().decode("utf-8", "replace")
            if first and _LOST not in text:
                sys.stderr.write(text)
    if first is not None and (code := children[first].returncode) < 0:
        raise RunError(
            f"Process {first + 1} of {size} was killed ({signal.Signals(-code).name}).",
            remedy="Run the same command again; it resumes from the last checkpoint.",
        )
    return children[first or 0].returncode


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Until all have ended; which failed first, if any. The others of a failed one have some seconds."""
    first, deadline = None, math.inf
    while any(child.poll() is None for child in children):
        time.sleep(0.05)
        failed = [rank for rank, child in enumerate(children) if child.poll()]
        if failed and first is None:
            first, deadline = failed[0], time.monotonic() + _GRACE
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
    return first if first is not None else next((n for n, one in enumerate(children) if one.returncode), None)
