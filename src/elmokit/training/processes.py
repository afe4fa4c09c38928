"""Several processes that train one model together, started by ``--processes`` or by torchrun.

Each computes the gradients of its share of the streams. The sums of all gradients are the same in all
processes, so their weights stay equal; only the first process writes. Sparse gradients travel as rows.
"""

from __future__ import annotations

import contextlib
import ctypes
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
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn

from elmokit.core.errors import ConfigError, RunError

_JOINING, _LATE = timedelta(minutes=5), 5.0  # for all to start; seconds until that is said
_PATIENCE = timedelta(days=30)  # with a process that is slow, or prepares the text, while its machine answers
_SILENCE = 60  # seconds without an answer, after which a machine is lost
_GRACE = 10.0  # seconds that the others have to notice
_LOST = "cannot be reached"
_PR_SET_PDEATHSIG = 1


class Processes:
    """The processes of a run, as one of them sees it. A single process needs no other, and exchanges nothing.

    Attributes:
        rank: Which of them this is, from 0.
        n_bytes: Bytes of gradients that this process has received.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.n_bytes = rank, size, 0
        self._group: dist.ProcessGroup | None = None
        self._is_table: dict[str, bool] = {}  # parameters with sparse gradients

    @classmethod
    @contextlib.contextmanager
    def join(cls, say: Callable[[str], None] = lambda line: None) -> Iterator[Processes]:
        """The processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, or this one alone.

        Args:
            say: Told what is waited for, if that takes long.
        """
        rank, size = own_place()
        if size == 1:
            yield cls()
            return
        # Imported later (by torch's optimizers), its default arguments would keep the connections and their
        # threads until Python ends, which they can abort.
        import torch.distributed.nn.functional  # noqa: F401

        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        late = threading.Timer(_LATE, say, [f"Process {rank + 1} of {size} waits for the others at {place}."])
        late.start()
        try:
            with _explain_lost_connection(f"Start all {size} within five minutes; they meet at {place}."):
                dist.init_process_group("gloo", timeout=_JOINING)
        finally:
            late.cancel()
        processes = cls(rank, size)
        try:
            with _explain_lost_connection():
                processes._group = dist.new_group(timeout=_PATIENCE)
            _watch_connections()
            yield processes
        finally:
            processes._group = None
            dist.destroy_process_group()

    def part(self, n_streams: int, n_all: int) -> slice:
        """The streams of this process, of the first ``n_streams`` of ``n_all``."""
        first, last = (min(n_streams, rank * n_all // self.size) for rank in (self.rank, self.rank + 1))
        return slice(first, last)

    def in_turn(self) -> Iterator[None]:
        """Yields once in each process: in the first one, then in the first of every other machine, then in
        the rest, which find on disk what these have made."""
        is_leader = os.environ.get("LOCAL_RANK", "0") == "0"
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
        return self._reduce(values, dist.ReduceOp.MAX)

    def total(self, values: list[float]) -> list[float]:
        """The sum of each number over all processes."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def _reduce(self, values: list[float], operation: Any) -> list[float]:
        if self.size == 1:
            return values
        numbers = torch.tensor(values, dtype=torch.float64)
        with _explain_lost_connection():
            dist.all_reduce(numbers, operation, self._group)
        return numbers.tolist()

    def from_first(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> tuple[Any, Any]:
        """The tensors and the JSON values of the first process; what others pass is not read."""
        if self.size == 1:
            return tensors, meta
        content = save(tensors, {"meta": json.dumps(meta)}) if self.rank == 0 else b""
        message = torch.frombuffer(bytearray(content or b"0"), dtype=torch.uint8)
        size = torch.tensor(len(content))
        with _explain_lost_connection():
            dist.broadcast(size, 0, self._group)
            message = message if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(message, 0, self._group)
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
        return {name: self._join_rows(rows) for name, rows in state.items()}

    def _join_rows(self, rows: Tensor) -> Tensor:
        if self.size == 1:
            return rows
        counts = self.total([float(len(rows) * (rank == self.rank)) for rank in range(self.size)])
        parts = self._gather(rows.flatten(), [int(count) * math.prod(rows.shape[1:]) for count in counts])
        return torch.cat(parts).view(-1, *rows.shape[1:])

    def _gather(self, numbers: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """The numbers of each process. All messages have the size of the longest."""
        messages, own = numbers.new_empty(self.size, max(sizes)), numbers.new_zeros(max(sizes))
        own[: len(numbers)] = numbers
        with _explain_lost_connection():
            dist.all_gather([*messages], own, self._group)
        self.n_bytes += own.nbytes * (self.size - 1)
        return [message[:size] for message, size in zip(messages, sizes, strict=True)]

    def add_gradients(self, parameters: Mapping[str, nn.Parameter], values: list[float]) -> list[float]:
        """Make every gradient the sum over all processes; returns the sums of ``values``.

        Two messages: one of all dense gradients, which also says how many rows of tables follow, and these.
        """
        if self.size == 1:
            return values
        if not parameters.keys() <= self._is_table.keys():
            sparse = [float(p.grad is not None and p.grad.is_sparse) for p in parameters.values()]
            self._is_table |= zip(parameters, map(bool, self.highest(sparse)), strict=True)
        tables = [parameter for name, parameter in parameters.items() if self._is_table[name]]
        dense = [parameter for name, parameter in parameters.items() if not self._is_table[name]]
        rows = [_rows_of(table) for table in tables]
        counts = torch.zeros(self.size, len(tables))
        counts[self.rank] = torch.tensor([float(len(some)) for some, _ in rows])
        # A process without a stream has no gradient; if none has one, the optimizer must see that.
        present = torch.tensor([float(p.grad is not None) for p in dense])
        head = [torch.tensor(values), present, counts.flatten()]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in dense]
        flat = torch.cat([*head, *(grad.flatten() for grad in grads)])
        with _explain_lost_connection():
            dist.all_reduce(flat, group=self._group)
        sizes = [len(part) for part in head] + [grad.numel() for grad in grads]
        sums, present, counts, *totals = flat.split(sizes)
        for parameter, is_present, total in zip(dense, present.tolist(), totals, strict=True):
            parameter.grad = total.view_as(parameter) if is_present else None
        self.n_bytes += flat.nbytes
        if tables:
            self._add_rows(tables, rows, counts.view(self.size, -1).int().tolist())
        return [float(total) for total in sums]

    def _add_rows(
        self, tables: list[nn.Parameter], rows: list[tuple[Tensor, Tensor]], counts: list[list[int]]
    ) -> None:
        """Make the gradient of each table the sum of the rows of all processes; ``counts`` of each."""
        parts = [part for some, values in rows for part in (some.int().view(torch.float), values.flatten())]
        widths = [table[0].numel() for table in tables]
        sizes = [
            [n * size for n, width in zip(own, widths, strict=True) for size in (1, width)] for own in counts
        ]
        messages = self._gather(torch.cat(parts), [sum(some) for some in sizes])
        received = [message.split(some) for message, some in zip(messages, sizes, strict=True)]
        for place, table in enumerate(tables):
            some = torch.cat([one[2 * place].view(torch.int) for one in received]).long()
            values = torch.cat([one[2 * place + 1] for one in received]).view(-1, *table.shape[1:])
            table.grad = torch.sparse_coo_tensor(
                some.unsqueeze(0), values, table.shape, check_invariants=False
            )


def _rows_of(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows of a sparse gradient, (n), and their values, (n, dim)."""
    if parameter.grad is None:
        return torch.zeros(0, dtype=torch.int64), parameter.new_zeros(0, *parameter.shape[1:]).detach()
    gradient = parameter.grad.coalesce()
    return gradient._indices()[0], gradient._values()


def own_place() -> tuple[int, int]:
    """Which process this is, and of how many, as the environment says."""
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return 0, 1
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ConfigError(
            f"RANK={rank} and WORLD_SIZE={size} in the environment are not one of several processes.",
            remedy="Let torchrun or --processes set them, or unset both.",
        )
    return int(rank), int(size)


def stop_signals() -> list[int]:
    """What ends a program in an orderly way: Ctrl-C, kill, and unless ignored (nohup), a closed terminal."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
        numbers.append(hang_up)
    return numbers


def _watch_connections() -> None:
    """Have the system (Linux) ask whether the machines at the other ends are still there, and close the
    connections to one that is not. A slow process is waited for: its machine answers."""
    for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # most are no connections
            one = socket.socket(fileno=int(name))
            stack.callback(one.detach)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE // 3)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE // 6)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@contextlib.contextmanager
def _explain_lost_connection(
    remedy: str = "Check their output. The same command resumes from the last checkpoint.",
) -> Iterator[None]:
    """Turn a lost connection into a RunError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        traceback.clear_frames(error.__traceback__)  # they would keep the connections
        cause = re.sub(r"\s*\[[^]]*\]:?\d*", "", str(error)).strip().split(". ")[0]
        raise RunError(f"The other processes of this run {_LOST}: {cause}.", remedy=remedy) from error


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
        for number in stop_signals():
            signal.signal(number, forward)
        # If this process is killed, the system (Linux) ends them.
        watch = partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)
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
                    preexec_fn=watch if sys.platform == "linux" else None,
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
