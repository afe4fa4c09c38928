"""Does ten times the text take more memory?

    ELMOKIT_DATA=... python benchmarks/prepare_memory.py

Runs `elmokit pretrain` (a few steps of `tiny`, 20,000 words predicted) on a tenth and on all of the
IMDB reviews without label (50,000 texts, 11.7 M words), each in a process of its own, and compares the
most memory either held, for character input (every distinct word is kept) and word input. Then the first 500
reviews are prepared once, ten and a hundred times over: words per second, and memory.
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
from elmokit.text.corpus import CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
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
                found = _run(kind, name, Path(folder) / f"{kind}-{name.stem}")
                peaks.append(found["mib"])
                print(
                    f"{kind}: {found['n_words']:,} words, {found['n_types']:,} distinct: "
                    f"{found['mib']:.0f} MiB at most, {found['seconds']:.0f} s"
                )
            figures[f"{kind}_mib"] = [round(peak) for peak in peaks]
            figures[f"{kind}_growth"] = round(peaks[1] / peaks[0] - 1, 3)
        figures["prepared"] = []
        for times in (1, 10, 100):
            repeated = Path(folder) / f"{times}.jsonl"
            with open(tenth, encoding="utf-8") as lines, open(repeated, "w", encoding="utf-8") as out:
                out.writelines(list(itertools.islice(lines, 500)) * times)
            found = _run("prepare", repeated, Path(folder) / f"prepared-{times}")
            figures["prepared"].append(found)
            rate = found["n_words"] / found["seconds"]
            print(
                f"{found['n_words']:,} words: {rate:,.0f} prepared per second, {found['mib']:.0f} MiB at most"
            )
    finish(figures)


def _run(kind: str, file: Path, folder: Path) -> dict[str, Any]:
    """The figures of one process."""
    command = [sys.executable, __file__, "--one", kind, str(file), str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _one(kind: str, file: str, folder: str) -> None:
    if kind == "prepare":
        config, source = resolve("small"), TextSource([file])
        settings = CorpusSettings(config.text, config.vocabulary, open_words=True, held_out=0.01)
        started = time.perf_counter()
        n_words = prepare_corpus(Path(folder), settings, source).n_words
        seconds = time.perf_counter() - started
        print(json.dumps({"n_words": n_words, "mib": peak_memory(), "seconds": seconds}))
        return
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
