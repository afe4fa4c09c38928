"""What the engine "ray" costs: the same files by the local engine and by one Ray actor, in turn.

    ELMOKIT_DATA=... python benchmarks/ray_overhead.py

The test rows of AG News (7,600) are split into files. Both engines get one core. Ray's steady rate is that
between its first and its last finished shard; the rest of its time is the start of Ray and of the actor.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import data_file, finish


def split(folder: Path, n_files: int) -> int:
    """Write the texts into files; return how many texts there are."""
    with gzip.open(data_file("ag_news/test.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        texts = [row[2] for row in csv.reader(file)]
    for number in range(n_files):
        with open(folder / f"{number:03d}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts[number::n_files])])
    return len(texts)


def run(folder: Path, engine: str, out: Path) -> tuple[float, float]:
    """Seconds of the command, and (of Ray) between the first and the last shard."""
    words = ["embed", "english", str(folder), "--engine", engine, "--pool", "mean", "--out", str(out)]
    command, one_core = [sys.executable, "-m", "elmokit", *words], {**os.environ, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=one_core)
    seconds = time.perf_counter() - start
    done = [file.stat().st_mtime for file in out.glob("shards/*/manifest.json")]
    return seconds, max(done) - min(done) if done else seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "files").mkdir()
        n_texts = split(home / "files", args.files)
        for number, engine in itertools.product(range(args.rounds), times):
            times[engine].append(run(home / "files", engine, home / f"{engine}{number}"))
    result: dict[str, float] = {}
    for engine, pairs in times.items():
        n_steady = n_texts if engine == "local" else n_texts * (args.files - 1) / args.files
        result[f"{engine}_seconds"] = statistics.median(pair[0] for pair in pairs)
        result[f"{engine}_texts_per_second"] = n_steady / statistics.median(pair[1] for pair in pairs)
        print(
            f"{engine:6} seconds: {', '.join(f'{pair[0]:.1f}' for pair in pairs)}; texts per second: ", end=""
        )
        print(", ".join(f"{n_steady / pair[1]:,.0f}" for pair in pairs))
    finish(result)


if __name__ == "__main__":
    main()
