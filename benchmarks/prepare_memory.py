"""Does ten times the text take more memory?

    ELMOKIT_DATA=... python benchmarks/prepare_memory.py

Runs `elmokit pretrain` (a few steps of `tiny`, 20,000 words predicted) on a tenth and on all of the
IMDB reviews without label (50,000 texts, 11.7 M words), each in a process of its own, and compares the
most memory either held, for character input (every distinct word is kept) and word input.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from elmokit import pretrain
from elmokit.bilm.settings import resolve
from measuring import data_file, finish, peak_memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _one(*options.one)
        return
    file = data_file("imdb/unsup.jsonl.gz")
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        tenth = Path(folder) / "tenth.jsonl"
        with gzip.open(file, "rt", encoding="utf-8") as lines, open(tenth, "w", encoding="utf-8") as out:
            out.writelines(itertools.islice(lines, 5_000))
        for kind in ("char", "word"):
            peaks = []
            for name in (tenth, file):
                command = [
                    sys.executable,
                    __file__,
                    "--one",
                    kind,
                    str(name),
                    str(Path(folder) / f"{kind}-{name.stem}"),
                ]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found = json.loads(output.splitlines()[-1])
                peaks.append(found["mib"])
                print(
                    f"{kind}: {found['n_words']:,} words, {found['n_types']:,} distinct: "
                    f"{found['mib']:.0f} MiB at most, {found['seconds']:.0f} s"
                )
            figures[f"{kind}_mib"] = [round(peak) for peak in peaks]
            figures[f"{kind}_growth"] = round(peaks[1] / peaks[0] - 1, 3)
    finish(figures)


def _one(kind: str, file: str, folder: str) -> None:
    started = time.perf_counter()
    config = resolve(
        "tiny",
        {
            "model": {"input": kind},
            "vocabulary": {"max_words": 20_000},
            "training": {"max_steps": 3, "held_out": 0.001},
        },
    )
    pretrain([file], folder, config)
    manifest = json.loads((Path(folder) / "run" / "corpus" / "manifest.json").read_text(encoding="utf-8"))
    facts = {key: manifest[key] for key in ("n_words", "n_types")}
    print(json.dumps({**facts, "mib": peak_memory(), "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
