"""How fast and how well ``pretrain`` learns, beside the textbook way, in one run.

    ELMOKIT_DATA=... python benchmarks/pretrain_speed.py [--quick]

1. Speed: `classic` at a 30,000-word vocabulary on AG News (73,106 of the 120,000 train rows)
   against the textbook implementation, each in a process of its own, alternated, best of several;
   in real words per second. The textbook is timed once more with the memory settings that
   elmokit gives its own process, to show what they alone are worth.
2. Quality: exact held-out perplexity of both after the same epochs on the same slice.
3. How much of the machine's own matrix-product peak is used, for `classic` and a 512-wide stack.
4. Peak memory of both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elmokit import ReadConfig
from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.perplexity import perplexity
from elmokit.bilm.pretrain import LanguageModeling, target_counts
from elmokit.bilm.settings import PretrainConfig, resolve
from elmokit.bilm.softmax import sample_log_uniform
from elmokit.core.console import Reporter
from elmokit.core.threads import one_core_each
from elmokit.text.corpus import Corpus, CorpusSettings, Documents, load_corpus, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.tokenizing import TextPipeline
from elmokit.training.loop import train
from elmokit.training.machine import tuned_memory
from elmokit.training.optimizer import Optimizer
from measuring import data_file, finish, gemm_peak, peak_memory, seconds
from textbook import TextbookTrainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the training, to try it out")
    parser.add_argument("--only", choices=("speed", "quality", "peak"), help="one part only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", choices=_WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options.worker, load_corpus(options.corpus))
        return
    file = data_file("ag_news/train_partial.csv.gz")
    with tuned_memory(), tempfile.TemporaryDirectory() as folder:
        config = resolve("classic")
        corpus = prepared(config, file, Path(folder) / "corpus")
        figures: dict[str, Any] = {
            "corpus": "AG News, 73,106 of 120,000 train rows",
            "n_vocabulary": corpus.n_vocabulary,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }
        if options.only in (None, "speed"):
            figures |= _speed(Path(folder) / "corpus", options.rounds)
        if options.only in (None, "peak"):
            figures |= _peak(config, corpus, options.rounds)
        if options.only in (None, "quality"):
            figures |= _quality(config, corpus, Path(folder), options.quick)
    finish(figures)


def prepared(config: PretrainConfig, file: Path, folder: Path) -> Corpus:
    """AG News as the preset wants it."""
    source = TextSource([file], ReadConfig(text_columns="2,3"))
    is_open = config.model.input != "word"
    settings = CorpusSettings(config.text, config.vocabulary, is_open, config.training.held_out)
    return prepare_corpus(folder, settings, source)


def _task(config: PretrainConfig, corpus: Corpus) -> LanguageModeling:
    torch.manual_seed(config.training.seed)
    vocabulary = corpus.vocabulary
    model = Bilm(config.model, len(vocabulary))
    model.predictor.start_from_counts(target_counts(corpus))
    tokenizer = TextPipeline(config.text).word_tokenizer(vocabulary.words)
    saved = BilmFolder(model, config.text, vocabulary, tokenizer, {})
    return LanguageModeling(saved, corpus, config.training)


def our_steps(config: PretrainConfig, corpus: Corpus) -> Callable[[int], int]:
    """A function that does so many real training steps and returns the words they saw."""
    task = _task(config, corpus)
    optimizer = Optimizer(task.parameters(), kind="adamw", weight_decay=0.0)
    rng = torch.Generator().manual_seed(0)
    carry, done = task.start_epoch(0), 0

    def steps(count: int) -> int:
        nonlocal carry, done
        words = 0
        with one_core_each():
            for _ in range(count):
                optimizer.zero_grad()
                result = task.step(done, carry, rng)
                optimizer.clip(config.training.clip_norm)
                optimizer.step(1e-3)
                carry, done, words = result.carry, done + 1, words + result.n_words
        return words

    return steps


def textbook_steps(corpus: Corpus) -> Callable[[int], int]:
    trainer = TextbookTrainer(_arrays(corpus.train, 0, 6_000), corpus.n_vocabulary)
    batches = trainer.batches()
    return lambda count: sum(trainer.step(next(batches)) for _ in range(count))


def _arrays(documents: Documents, first: int, last: int) -> list[npt.NDArray[np.int64]]:
    return [np.asarray(documents[i], dtype=np.int64) for i in range(first, min(last, len(documents)))]


def _rate(steps: Callable[[int], int], count: int) -> float:
    words = 0

    def work() -> None:
        nonlocal words
        words = steps(count)

    taken = seconds(work)
    return words / taken


_WORKERS = ("ours", "textbook", "textbook, tuned")


def _work(which: str, corpus: Corpus) -> None:
    """Answer each number of steps on standard input with words per second and peak memory so far."""
    with contextlib.nullcontext() if which == "textbook" else tuned_memory():
        steps = our_steps(resolve("classic"), corpus) if which == "ours" else textbook_steps(corpus)
        for line in sys.stdin:
            print(json.dumps([_rate(steps, int(line)), peak_memory()]), flush=True)


class _Worker:
    """One way of training, in a process of its own."""

    def __init__(self, which: str, corpus: Path) -> None:
        command = [sys.executable, __file__, "--worker", which, "--corpus", str(corpus)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.rates: list[float] = []
        self.mib = 0.0

    def run(self, n_steps: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{n_steps}\n")
        rate, self.mib = json.loads(self._process.stdout.readline())
        self.rates.append(rate)
        return float(rate)

    def close(self) -> float:
        """Ends the process; gives its best rate after the first, which only warmed up."""
        self._process.communicate()
        return max(self.rates[1:])


def _speed(corpus: Path, rounds: int) -> dict[str, Any]:
    ours, textbook = _Worker("ours", corpus), _Worker("textbook", corpus)
    ours.run(5), textbook.run(1)
    for number in range(rounds):
        theirs, mine = textbook.run(3), ours.run(60)
        print(f"round {number + 1}: textbook {theirs:,.0f}, ours {mine:,.0f} words/s")
    our_rate, textbook_rate = ours.close(), textbook.close()
    tuned = _Worker("textbook, tuned", corpus)
    for _ in range(4):
        tuned.run(3)
    tuned_rate = tuned.close()
    ratio = our_rate / textbook_rate
    print(
        f"speed: {ratio:.1f} times the textbook's real words per second (best of {rounds}); "
        f"{our_rate / tuned_rate:.1f} times if the textbook is given our memory settings"
    )
    print(f"peak memory: ours {ours.mib:,.0f} MiB, textbook {textbook.mib:,.0f} MiB")
    return {
        "words_per_second": round(our_rate),
        "textbook_words_per_second": round(textbook_rate),
        "textbook_tuned_words_per_second": round(tuned_rate),
        "speed_ratio": round(ratio, 1),
        "speed_ratio_textbook_tuned": round(our_rate / tuned_rate, 1),
        "peak_mib": round(ours.mib),
        "textbook_peak_mib": round(textbook.mib),
    }


def _peak(config: PretrainConfig, corpus: Corpus, rounds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, wide in (("classic", 150), ("stack_512", 512)):
        shape = replace(config, model=replace(config.model, dim=wide, hidden_dim=wide))
        steps = our_steps(shape, corpus)
        _rate(steps, 5)
        rates, peaks = [], []
        for _ in range(rounds):
            peaks.append(gemm_peak())
            rates.append(_rate(steps, 60 if wide == 150 else 15))
        used = max(rates) * _flop_per_word(shape, corpus) / 1e9
        share = used / max(peaks)
        print(
            f"{name}: {max(rates):,.0f} words/s = {used:.0f} GFLOP/s in matrix products, "
            f"{share:.0%} of the machine's {max(peaks):.0f} (best of {rounds} each)"
        )
        figures[f"{name}_gemm_share"] = round(share, 3)
        figures[f"{name}_words_per_second"] = round(max(rates))
    figures["gemm_peak_gflops"] = round(max(peaks))
    return figures


def _flop_per_word(config: PretrainConfig, corpus: Corpus) -> float:
    """Multiplications and additions in matrix products, forward and backward, both directions."""
    model = config.model
    lstm = model.n_layers * 2 * 4 * model.hidden_dim * (model.dim + model.dim)
    rng = torch.Generator().manual_seed(1)
    drawn = [len(sample_log_uniform(model.n_samples, corpus.n_vocabulary, rng)) for _ in range(20)]
    softmax = 2 * model.dim * (sum(drawn) / len(drawn))
    # The LSTMs also step over the one position a text whose next word is not predicted.
    steps_per_word = corpus.train.n_tokens / (corpus.train.n_tokens - len(corpus.train))
    return 2 * 3 * (lstm * steps_per_word + softmax)


def _quality(config: PretrainConfig, corpus: Corpus, folder: Path, quick: bool) -> dict[str, Any]:
    n_train, n_valid, epochs = (400, 200, 2) if quick else (3_000, 500, 2)
    sliced = replace(
        corpus,
        train=_slice(corpus.train, 0, n_train),
        valid=_slice(corpus.train, n_train, n_train + n_valid),
    )
    # Biases start from the counts of the slice alone.
    counts = np.bincount(sliced.train.values.astype(np.int64), minlength=len(corpus.counts))
    sliced = replace(sliced, counts=counts)
    textbook = TextbookTrainer(_arrays(sliced.train, 0, n_train), corpus.n_vocabulary)
    valid = _arrays(sliced.valid, 0, n_valid)
    textbook_seconds = 0.0
    for epoch in range(epochs):
        textbook_seconds += seconds(lambda: [textbook.step(batch) for batch in textbook.batches()])
        theirs = textbook.perplexity(valid)
        print(
            f"textbook, epoch {epoch + 1}: exact held-out perplexity {theirs:,.1f} ({textbook_seconds:.0f} s)"
        )
    config = replace(config, training=replace(config.training, epochs=epochs))
    task = _task(config, sliced)
    run = folder / "run"
    run.mkdir()
    our_seconds = seconds(lambda: train(task, config.training, run, reporter=Reporter("plain")))
    found = {
        state: perplexity(task.model, sliced.valid, task.features, state=state).perplexity
        for state in ("carried", "zero")
    }
    print(
        f"ours, epoch {epochs}: exact held-out perplexity {found['carried']:,.1f} with state carried, "
        f"{found['zero']:,.1f} from zero state for every text ({our_seconds:.0f} s)"
    )
    return {
        "epochs": epochs,
        "n_train_texts": n_train,
        "textbook_perplexity": round(theirs, 1),
        "perplexity": round(found["carried"], 1),
        "perplexity_zero_state": round(found["zero"], 1),
        "perplexity_ratio": round(found["zero"] / theirs, 3),
        "textbook_seconds": round(textbook_seconds, 1),
        "seconds": round(our_seconds, 1),
    }


def _slice(documents: Documents, first: int, last: int) -> Documents:
    start, end = documents.offsets[first], documents.offsets[last]
    return Documents(documents.values[start:end], documents.offsets[first : last + 1] - start)


if __name__ == "__main__":
    main()
