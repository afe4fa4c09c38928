"""How fast a tagger reads, beside a Flair tagger of the same width, in one run.

    python benchmarks/tagging_speed.py --flair PYTHON      PYTHON: of an environment with flair and torch

The Flair tagger has random weights: character language models as wide as ``english`` in each direction, and
the biLSTM and CRF of our default tagger. Both tag the test sentences of CoNLL-2003, given as words, each in a
process of its own, alternated. The models are opened before the clock starts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DIM, HEAD_DIM = 256, 200  # of a language model in each direction; of the tagger's biLSTM
TAGS = ["O", *(f"{place}-{name}" for name in ("PER", "LOC", "ORG", "MISC") for place in "BIES")]


def time_ours(model: Path, sentences: list[list[str]]) -> float:
    """Seconds for all sentences."""
    import elmokit

    tagger: Any = elmokit.load(model)
    start = time.perf_counter()
    n = sum(len(one.tags) for one in tagger.predict((words,) for words in sentences))
    seconds = time.perf_counter() - start
    assert n == sum(map(len, sentences))
    return seconds


def time_flair(sentences: list[list[str]]) -> float:
    """The same of the Flair tagger."""
    import importlib

    flair: Any = importlib.import_module("flair")
    data: Any = importlib.import_module("flair.data")
    models: Any = importlib.import_module("flair.models")
    embeddings: Any = importlib.import_module("flair.embeddings")
    flair.device = "cpu"
    characters, tags = data.Dictionary(), data.Dictionary(add_unk=False)
    for character in sorted({character for words in sentences for word in words for character in word}):
        characters.add_item(character)
    characters.add_item(" ")
    for tag in TAGS:
        tags.add_item(tag)
    both = [
        embeddings.FlairEmbeddings(models.LanguageModel(characters, ahead, DIM, 1, embedding_size=100))
        for ahead in (True, False)
    ]
    tagger = models.SequenceTagger(
        embeddings=embeddings.StackedEmbeddings(both),
        tag_dictionary=tags,
        tag_type="ner",
        tag_format="BIOES",
        hidden_size=HEAD_DIM,
        rnn_layers=1,
        use_crf=True,
        reproject_embeddings=False,
    )
    texts = [data.Sentence(words) for words in sentences]
    start = time.perf_counter()
    tagger.predict(texts, mini_batch_size=32)
    return time.perf_counter() - start


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flair", help="the Python of an environment with flair")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", choices=["ours", "flair"], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        import torch

        torch.set_num_threads(options.threads)
        sentences = json.loads((options.work / "words.json").read_text(encoding="utf-8"))
        is_ours = options.worker == "ours"
        print(time_ours(options.work / "tagger", sentences) if is_ours else time_flair(sentences))
        return
    import elmokit
    from measuring import data_file, finish

    if not options.flair:
        parser.error("--flair is needed: pip install flair into an environment of its own")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        text = gzip.decompress(data_file("conll2003/test.txt.gz").read_bytes()).decode()
        blocks = [block.splitlines() for block in text.split("\n\n") if block.strip()]
        sentences = [[line.split()[0] for line in block if line.strip()] for block in blocks]
        (work / "words.json").write_text(json.dumps(sentences), encoding="utf-8")
        train = work / "train.conll"  # some sentences with every tag: speed does not depend on the weights
        train.write_text("\n\n".join("\n".join(block) for block in blocks[1:400]) + "\n", encoding="utf-8")
        elmokit.fit("english", train, work / "tagger", epochs=1)
        seconds: dict[str, list[float]] = {"ours": [], "flair": []}
        for _ in range(options.repeats):
            for worker, own in seconds.items():
                python = sys.executable if worker == "ours" else options.flair
                call = [python, __file__, "--worker", worker, "--work", work, "--threads", options.threads]
                done = subprocess.run(list(map(str, call)), capture_output=True, text=True, check=True)
                own.append(float(done.stdout.strip().splitlines()[-1]))
    n_words = sum(map(len, sentences))
    speeds = {name: [round(n_words / one) for one in own] for name, own in seconds.items()}
    ratios = [flair / ours for ours, flair in zip(*seconds.values(), strict=True)]
    print(f"{len(sentences):,} sentences, {n_words:,} words, {options.threads} threads; words per second:")
    print(", ".join(f"{name} {min(own):,} to {max(own):,}" for name, own in speeds.items()))
    print(f"ratio {min(ratios):.1f} to {max(ratios):.1f}")
    finish({"n_words": n_words, "words_per_second": speeds, "ratios": [round(one, 2) for one in ratios]})


if __name__ == "__main__":
    main()
