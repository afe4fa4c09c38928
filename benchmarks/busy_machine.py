"""How fast elmokit is beside another busy program, as on a laptop that is doing something else.

    ELMOKIT_DATA=... python benchmarks/busy_machine.py

Training (`classic`, AG News: 73,106 of the 120,000 train rows), the textbook implementation with the same
memory settings, and embedding with the bundled model: in turn, on a quiet machine and beside a process that
keeps one core busy, of which two thirds are a fair share. All rounds are shown; the median counts.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from elmokit.bilm.settings import resolve
from elmokit.text.corpus import load_corpus
from elmokit.training.machine import tuned_memory
from elmokit.vectors.elmo import Elmo
from measuring import data_file, finish
from pretrain_speed import our_steps, prepared, textbook_steps

AMOUNTS = {"training": 40, "textbook": 2, "embedding": 600}  # steps, or texts


def work(which: str, corpus: Path) -> None:
    """Answer each amount of work on standard input with words per second."""
    if which == "embedding":
        elmo = Elmo.load("english")
        with gzip.open(data_file("ag_news/test.csv.gz"), "rt", encoding="utf-8", newline="") as file:
            texts = [f"{title} {text}" for _, title, text in itertools.islice(csv.reader(file), 1000)]

        def embed(count: int) -> int:
            return sum(map(len, elmo.embed(texts[:count]).tokens))

        steps: Callable[[int], int] = embed
    elif which == "training":
        steps = our_steps(resolve("classic"), load_corpus(corpus))
    else:
        steps = textbook_steps(load_corpus(corpus))
    with tuned_memory():
        for line in sys.stdin:
            started = time.perf_counter()
            n_words = steps(int(line))
            print(n_words / (time.perf_counter() - started), flush=True)


@contextlib.contextmanager
def competitor(*, busy: bool) -> Iterator[None]:
    """Inside the block, if it is ``busy``, another process uses one core."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def measure(corpus: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Words per second of each kind of work, quiet and busy, round by round."""
    workers = {
        which: subprocess.Popen(
            [sys.executable, __file__, "--worker", which, "--corpus", str(corpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for which in AMOUNTS
    }
    rates: dict[str, dict[str, list[float]]] = {which: {"quiet": [], "busy": []} for which in AMOUNTS}
    for number in range(-1, rounds):  # the first round only warms up
        for state, (which, amount) in itertools.product(("quiet", "busy"), AMOUNTS.items()):
            stdin, stdout = workers[which].stdin, workers[which].stdout
            assert stdin is not None and stdout is not None  # noqa: PT018
            with competitor(busy=state == "busy"):
                stdin.write(f"{amount}\n")
                rate = float(stdout.readline())
            if number >= 0:
                rates[which][state].append(round(rate))
    for worker in workers.values():
        worker.communicate()
    return rates


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", choices=AMOUNTS, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.corpus)
        return
    file = data_file("ag_news/train_partial.csv.gz")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        prepared(resolve("classic"), file, corpus)
        rates = measure(corpus, options.rounds)
    shares = {}
    for which, found in rates.items():
        quiet, busy = (statistics.median(found[state]) for state in ("quiet", "busy"))
        shares[which] = round(busy / quiet, 3)
        print(f"{which}: {quiet:,.0f} words/s quiet, {busy:,.0f} beside a busy process ({busy / quiet:.0%})")
    print(f"threads: {torch.get_num_threads()}")
    finish({"share_of_quiet": shares, "words_per_second": rates})


if __name__ == "__main__":
    main()
