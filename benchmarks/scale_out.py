"""What a second core is worth to ``pretrain``: as a second process, and as a second thread.

    ELMOKIT_DATA=... python benchmarks/scale_out.py

`classic` and `small` on AG News (73,106 of the 120,000 train rows), in turn: one process with one thread, two
processes with one thread each (``--processes 2``), and one process with two threads. Words per second, bytes
of gradients that a process receives per word of the run, and the peak memory of a process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.pretrain import LanguageModeling, target_counts
from elmokit.bilm.settings import resolve
from elmokit.text.corpus import load_corpus
from elmokit.text.tokenizing import TextPipeline
from elmokit.training.machine import tuned_process
from elmokit.training.optimizer import Optimizer
from elmokit.training.processes import Processes
from measuring import data_file, finish, peak_memory
from pretrain_speed import prepared

SHAPES = {"1 process, 1 thread": (1, 1), "2 processes, 1 thread": (2, 1), "1 process, 2 threads": (1, 2)}
WARM_UP = 5


def work(preset: str, corpus_folder: Path, n_steps: int) -> None:
    """Train for some steps as one of the processes; the first one prints the figures."""
    config, corpus = resolve(preset), load_corpus(corpus_folder)
    torch.manual_seed(config.training.seed)
    model = Bilm(config.model, len(corpus.vocabulary))
    model.predictor.start_from_counts(target_counts(corpus))
    tokenizer = TextPipeline(config.text).word_tokenizer(corpus.vocabulary.words)
    saved = BilmFolder(model, config.text, corpus.vocabulary, tokenizer, {})
    with Processes.join() as processes, tuned_process():
        task = LanguageModeling(saved, corpus, config.training, processes=processes)
        parameters = dict(task.parameters())
        optimizer = Optimizer(parameters, kind="adamw", weight_decay=0.0)
        rng, carry, n_words, started = torch.Generator().manual_seed(0), task.start_epoch(0), 0, 0.0
        for step in range(WARM_UP + n_steps):
            if step == WARM_UP:
                n_words, processes.n_bytes, started = 0, 0, time.perf_counter()
            optimizer.zero_grad()
            result = task.step(step, carry, rng)
            processes.add_gradients(parameters, [float(result.loss)])
            optimizer.clip(config.training.clip_norm)
            optimizer.step(1e-3)
            carry, n_words = result.carry, n_words + result.n_words
        taken = time.perf_counter() - started
        if processes.rank == 0:
            figures = {
                "words_per_second": n_words / taken,
                "bytes_per_word": processes.n_bytes / n_words,
                "mib": peak_memory(),
            }
            print(json.dumps(figures), flush=True)


def measure(preset: str, corpus: Path, n_steps: int, n_processes: int, n_threads: int) -> dict[str, float]:
    """The figures of one run."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    shared = {"WORLD_SIZE": n_processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared["OMP_NUM_THREADS"] = n_threads
    command = [sys.executable, __file__, "--worker", preset, "--corpus", str(corpus), "--steps", str(n_steps)]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **{name: str(value) for name, value in {**shared, "RANK": rank}.items()}},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(n_processes)
    ]
    said = [process.communicate()[0] for process in started]
    found: dict[str, float] = json.loads(said[0])
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--presets", nargs="+", default=["classic", "small"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.corpus, options.steps)
        return
    file = data_file("ag_news/train_partial.csv.gz")
    figures: dict[str, Any] = {}
    for preset in options.presets:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in SHAPES}
        with tempfile.TemporaryDirectory() as folder:
            prepared(resolve(preset), file, Path(folder) / "corpus")
            for _ in range(options.rounds):
                for name, shape in SHAPES.items():
                    found[name].append(measure(preset, Path(folder) / "corpus", options.steps, *shape))
        one = statistics.median(run["words_per_second"] for run in found["1 process, 1 thread"])
        for name, runs in found.items():
            rates = sorted(run["words_per_second"] for run in runs)
            print(
                f"{preset}, {name}: {rates[0]:,.0f} to {rates[-1]:,.0f} words/s, "
                f"{statistics.median(rates) / one:.2f} times one; "
                f"{runs[0]['bytes_per_word']:,.0f} bytes per word, "
                f"{runs[0]['mib']:,.0f} MiB in a process"
            )
        figures[preset] = found
    finish(figures)


if __name__ == "__main__":
    main()
