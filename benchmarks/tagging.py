"""Taggers on CoNLL-2003 and CoNLL-2000: entities, chunks and parts of speech, beside skip-gram vectors.

    python benchmarks/tagging.py run --out tagging.jsonl   # english and skip-gram; all and 10 % of the labels
    python benchmarks/tagging.py table --out tagging.jsonl

Every tagger has the default head, a biLSTM with a CRF, over frozen vectors. The best weights are chosen on
the validation sentences (of CoNLL-2000, which has none, on a tenth of the training sentences); test sentences
are measured once for each fit. Skip-gram vectors are trained on the training sentences.
Every fit is one line of the result file, so that a stopped run resumes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elmokit
from few_labels import read_results
from measuring import data_file, finish

TASKS = {"ner": ("conll2003", "4"), "pos": ("conll2003", "2"), "chunks": ("conll2000", "3")}


def split_files(corpus: str, folder: Path) -> dict[str, Path]:
    """The sentences of each split of a corpus, as CoNLL files."""
    texts = {}
    if corpus == "conll2003":
        for split in ("train", "valid", "test"):
            texts[split] = gzip.decompress(data_file(f"conll2003/{split}.txt.gz").read_bytes()).decode()
    else:
        with zipfile.ZipFile(data_file("nltk_corpora/conll2000.zip")) as archive:
            for split in ("train", "test"):
                texts[split] = archive.read(f"conll2000/{split}.txt").decode()
    files = {}
    for split, text in texts.items():
        files[split] = folder / f"{corpus}-{split}.conll"
        files[split].write_text(text, encoding="utf-8")
    return files


def draw_sentences(file: Path, share: float, seed: int) -> Path:
    """A file with a random share of the sentences."""
    if share == 1:
        return file
    sentences = file.read_text(encoding="utf-8").split("\n\n")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(sentences))[: round(share * len(sentences))])
    part = file.with_name(f"{file.stem}-{share:g}-{seed}.conll")
    part.write_text("\n\n".join(sentences[row] for row in chosen) + "\n", encoding="utf-8")
    return part


def train_skip_gram(train: Path, folder: Path) -> Path:
    """Skip-gram vectors of the words of the training sentences."""
    text, vectors = folder / f"{train.stem}.txt", folder / f"{train.stem}-skip-gram"
    sentences = train.read_text(encoding="utf-8").split("\n\n")
    lines = [" ".join(line.split()[0] for line in one.splitlines() if line.strip()) for one in sentences]
    text.write_text("\n".join(lines), encoding="utf-8")
    elmokit.baseline("sgns", text, vectors, tokens="whitespace", dim=300, epochs=15, min_count=1)
    return vectors


def run(options: argparse.Namespace) -> None:
    """All fits that the result file does not have yet."""
    keys = ("task", "encoder", "share", "seed")
    done = {tuple(line[key] for key in keys) for line in read_results(options.out)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for task in options.tasks:
            corpus, column = TASKS[task]
            files = split_files(corpus, folder)
            for encoder in options.encoders:
                for share, seed in (
                    (share, seed) for seed in range(options.seeds) for share in options.shares
                ):
                    if (task, encoder, share, seed) in done:
                        continue
                    path: str | Path = encoder
                    if encoder == "skip-gram":
                        path = folder / f"{files['train'].stem}-skip-gram"
                        if not path.exists():
                            train_skip_gram(files["train"], folder)
                    start = time.process_time()
                    fitted = elmokit.fit(
                        path,
                        draw_sentences(files["train"], share, seed),
                        folder / f"{task}-{Path(encoder).name}-{share:g}-{seed}",
                        valid=files.get("valid", ()),
                        test=() if options.valid else files["test"],
                        label_column=column,
                        seed=seed,
                    )
                    line: dict[str, Any] = dict(zip(keys, (task, encoder, share, seed), strict=True))
                    line |= {split: dict(one.values) for split, one in fitted.metrics.items()}
                    line["cpu_seconds"] = round(time.process_time() - start)
                    with open(options.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    print(line, flush=True)


def table(options: argparse.Namespace) -> dict[str, Any]:
    """Mean and standard deviation over the seeds, as Markdown."""
    lines, means = read_results(options.out), {}
    print(
        "| task | encoder | labels | seeds | score | validation | test | CPU s |\n"
        "|---|---|---:|---:|---|---:|---:|---:|"
    )
    for key in dict.fromkeys((line["task"], line["encoder"], line["share"]) for line in lines):
        own = [line for line in lines if (line["task"], line["encoder"], line["share"]) == key]
        main = next(iter(own[0]["valid"]))
        cells = []
        for split in ("valid", "test"):
            values = [100 * line[split][main] for line in own if split in line]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "")
            means["/".join(map(str, (*key, split)))] = round(float(np.mean(values)), 2) if values else None
        seconds = np.mean([line["cpu_seconds"] for line in own])
        task, encoder, share = key
        name = Path(encoder).name
        print(
            f"| {task} | {name} | {share:.0%} | {len(own)} | {main} "
            f"| {cells[0]} | {cells[1]} | {seconds:,.0f} |"
        )
    return means


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("--out", type=Path, default=Path("tagging.jsonl"))
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--encoders", nargs="+", default=["english", "skip-gram"])
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--valid", action="store_true", help="leave the test sentences alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        run(options)
    finish(table(options))


if __name__ == "__main__":
    main()
