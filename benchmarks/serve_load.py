"""What ``elmokit serve`` bears, and what batches that grow with the load are worth.

A server runs in a process of its own; this one asks /v1/embed for mean vectors of AG News test texts (found
through ELMOKIT_DATA; of the bundled corpus where that is absent), over connections that stay open. Every
answer is compared with the offline one, which is computed beforehand. First many clients at once for a
minute: answers a second, the time that one takes, errors, the server's memory. Then many and a single one in
turn, which asks again as soon as it has its answer, in short rounds: the best of each, and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.corpora import mini_news
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import FloatArray
from measuring import finish

_CLOSE = 1e-5
_PORT = re.compile(r"http://\S+:(\d+)")


@dataclass
class Load:
    """What came of some time under load.

    Attributes:
        seconds: how long it lasted.
        latencies: of each answer, in seconds.
        errors: what went wrong.
        difference: largest distance of a number from the offline one.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    difference: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def milliseconds(self, share: float) -> float:
        """The time within which this share of the answers came."""
        return 1000 * float(np.quantile(self.latencies, share)) if self.latencies else float("nan")


@dataclass(frozen=True)
class Question:
    """A request as it goes over the line, and the right answer."""

    request: bytes
    answer: FloatArray


def texts(n_texts: int) -> list[str]:
    """AG News test texts, or else those of the bundled corpus."""
    file = Path(os.environ.get("ELMOKIT_DATA", "")) / "ag_news/test.csv.gz"
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
            return [f"{title} {text}" for _, title, text in itertools.islice(csv.reader(stream), n_texts)]
    return list(itertools.islice(TextSource([mini_news()], ReadConfig(text_columns="text")), n_texts))


def questions(model: str, n_texts: int) -> list[Question]:
    """Requests for one vector each, and the offline answers."""
    chosen = texts(n_texts)
    vectors = Elmo.load(model).embed(chosen).sentence("mean")
    found = []
    for text, vector in zip(chosen, vectors, strict=True):
        body = json.dumps({"texts": [text], "vectors": "mean"}).encode()
        head = "POST /v1/embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        found.append(Question(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, vector))
    return found


@contextmanager
def serving(model: str) -> Iterator[tuple[int, int]]:
    """The server at work: its process and its port."""
    command = [sys.executable, "-m", "elmokit", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = next((found[1] for line in process.stdout if (found := _PORT.search(line))), None)
        try:
            if port is None:
                sys.exit("the server did not start")
            yield process.pid, int(port)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()
    if process.returncode:
        sys.exit(f"the server ended with code {process.returncode}")


def memory(process: int) -> float:
    """What a process holds, in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Question, load: Load
) -> None:
    """One question; the answer is checked."""
    started = time.perf_counter()
    writer.write(question.request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    body = await reader.readexactly(int(length[1]) if length else 0)
    took = time.perf_counter() - started
    if not head.startswith(b"HTTP/1.1 200"):
        load.errors.append(head.decode("latin-1").splitlines()[0])
        return
    (vector,) = json.loads(body)["vectors"]
    difference = float(np.abs(np.asarray(vector) - question.answer).max())
    load.difference = max(load.difference, difference)
    if not difference <= _CLOSE:
        load.errors.append(f"off by {difference}")
    load.latencies.append(took)


async def client(port: int, asked: Iterator[Question], until: float, load: Load) -> None:
    """Asks one question after another over one connection."""
    while time.perf_counter() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while time.perf_counter() < until:
                await ask(reader, writer, next(asked), load)
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            load.errors.append(repr(error))
        finally:
            writer.close()


async def under_load(port: int, asked: Iterator[Question], n_clients: int, seconds: float) -> Load:
    """Some clients at once for some time."""
    load = Load()
    started = time.perf_counter()
    await asyncio.gather(*(client(port, asked, started + seconds, load) for _ in range(n_clients)))
    load.seconds = time.perf_counter() - started
    return load


async def measure(process: int, port: int, known: list[Question], options: Any) -> dict[str, Any]:
    """The long load, then the short rounds."""
    asked = itertools.cycle(known)
    await under_load(port, asked, options.clients, options.warm_up)
    before = memory(process)
    long = await under_load(port, asked, options.clients, options.seconds)
    after = memory(process)
    figures: dict[str, Any] = {
        "clients": options.clients,
        "seconds": long.seconds,
        "answers": len(long.latencies),
        "answers_per_second": long.rate,
        "p50_ms": long.milliseconds(0.5),
        "p99_ms": long.milliseconds(0.99),
        "errors": len(long.errors),
        "largest_difference": long.difference,
        "memory_before_mib": before,
        "memory_after_mib": after,
    }
    print(
        f"{options.clients} clients, {long.seconds:.0f} s: {len(long.latencies):,} answers, {long.rate:,.0f} "
        f"a second; half within {figures['p50_ms']:.0f} ms, 99 of 100 within {figures['p99_ms']:.0f} ms\n"
        f"errors: {len(long.errors)}; largest difference from offline: {long.difference:.1e}; memory of the "
        f"server: {before:,.0f} MiB, then {after:,.0f} MiB"
    )
    best = {"many": Load(1.0), "one": Load(1.0)}
    errors = list(long.errors)
    for _ in range(options.rounds):
        for name, n_clients in (("many", options.clients), ("one", 1)):
            found = await under_load(port, asked, n_clients, options.round_seconds)
            errors += found.errors
            best[name] = max(best[name], found, key=lambda load: load.rate)
    figures |= {
        "best_per_second": best["many"].rate,
        "one_by_one_per_second": best["one"].rate,
        "one_by_one_p50_ms": best["one"].milliseconds(0.5),
        "ratio": best["many"].rate / max(best["one"].rate, 1e-9),
        "all_errors": len(errors),
        "memory_at_the_end_mib": memory(process),
    }
    print(
        f"in turn, best of {options.rounds}: {figures['best_per_second']:,.0f} answers a second for "
        f"{options.clients} clients, {figures['one_by_one_per_second']:,.0f} one request at a time (half "
        f"within {figures['one_by_one_p50_ms']:.1f} ms), ratio {figures['ratio']:.1f}"
    )
    for error in sorted(set(errors))[:5]:
        print(f"error: {error}")
    return figures


def main() -> None:
    """Start a server, ask it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", default="english", help="name or folder of a language model")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the long load")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before anything is measured")
    parser.add_argument("--rounds", type=int, default=4, help="of many clients and one in turn")
    parser.add_argument("--round-seconds", type=float, default=5.0)
    parser.add_argument("--texts", type=int, default=1000)
    options = parser.parse_args()
    known = questions(options.model, options.texts)
    with serving(options.model) as (process, port):
        figures = asyncio.run(measure(process, port, known, options))
    finish(figures)


if __name__ == "__main__":
    main()
