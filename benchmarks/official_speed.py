"""How fast a published model of the original size (4096 cells, 512 wide, 93.6 million parameters) runs.

The rival is the same equations written down straightforwardly: texts in the given order, padded to the
longest of the batch; the character CNN on every token; a loop over time with the whole product [x; h] W in
every step. Weights are random, which does not change the time. Both give the same vectors (checked). Then:
peak memory of either in a process of its own, and how long published files and our folder take to open.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.published.convert import convert
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline
from elmokit.text.vocabulary import Characters
from elmokit.training.machine import tuned_memory
from elmokit.vectors.elmo import Elmo
from measuring import data_file, finish, peak_memory

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
SIZES = {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1), "tiny": (64, 16, 1)}
_BATCH = 32


class Plain:
    """The straightforward way, from the published files."""

    def __init__(self, folder: Path) -> None:
        self.options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
        self.weights: dict[str, Tensor] = {}
        with h5py.File(folder / "weights.hdf5") as file:
            file.visititems(
                lambda name, item: (
                    self.weights.update({name: torch.from_numpy(item[...])})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
        self._characters = Characters(self.options["char_cnn"]["max_characters_per_token"])

    def word_vectors(self, chars: Tensor) -> Tensor:
        """(tokens, 50) -> (tokens, dim)"""
        table = torch.cat([torch.zeros(1, self.weights["char_embed"].shape[1]), self.weights["char_embed"]])
        x = F.embedding(chars, table).transpose(1, 2)  # (tokens, char_dim, 50)
        parts = []
        for number in range(len(self.options["char_cnn"]["filters"])):
            kernel = self.weights[f"CNN/W_cnn_{number}"][0].permute(2, 1, 0)
            answers = F.conv1d(x, kernel, self.weights[f"CNN/b_cnn_{number}"])
            parts.append(torch.relu(answers.amax(dim=2)))
        y = torch.cat(parts, dim=1)
        for number in range(self.options["char_cnn"]["n_highway"]):
            own = f"CNN_high_{number}"
            gate = torch.sigmoid(y @ self.weights[f"{own}/W_carry"] + self.weights[f"{own}/b_carry"])
            changed = torch.relu(y @ self.weights[f"{own}/W_transform"] + self.weights[f"{own}/b_transform"])
            y = gate * changed + (1.0 - gate) * y
        return y @ self.weights["CNN_proj/W_proj"] + self.weights["CNN_proj/b_proj"]

    def direction(self, x: Tensor, number: int) -> list[Tensor]:
        """Every layer over (batch, time, dim)."""
        lstm = self.options["lstm"]
        layers = []
        for depth in range(lstm["n_layers"]):
            own = f"RNN_{number}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
            kernel, bias = self.weights[f"{own}/W_0"], self.weights[f"{own}/B"]
            projection = self.weights[f"{own}/W_P_0"]
            h, c = torch.zeros(len(x), lstm["projection_dim"]), torch.zeros(len(x), lstm["dim"])
            outputs = []
            for step in range(x.shape[1]):
                i, j, f, o = (torch.cat([x[:, step], h], dim=1) @ kernel + bias).chunk(4, dim=1)
                c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j)
                c = c.clamp(-lstm["cell_clip"], lstm["cell_clip"])
                h = (torch.sigmoid(o) * torch.tanh(c)) @ projection
                h = h.clamp(-lstm["proj_clip"], lstm["proj_clip"])
                outputs.append(h)
            y = torch.stack(outputs, dim=1)
            x = y + x if depth else y
            layers.append(x)
        return layers

    @torch.inference_mode()
    def embed(self, texts: list[list[str]], batch_size: int) -> list[Tensor]:
        """All layers of every text, (n_words, layer, 2 dim) each."""
        found = []
        for first in range(0, len(texts), batch_size):
            batch = [["<s>", *words, "</s>"] for words in texts[first : first + batch_size]]
            lengths = torch.tensor([len(words) for words in batch])
            longest = int(lengths.max())
            padded = [word for words in batch for word in [*words, *["<pad>"] * (longest - len(words))]]
            chars = torch.from_numpy(self._characters.rows(padded).astype(np.int64))
            x = self.word_vectors(chars).view(len(batch), longest, -1)
            steps = torch.arange(longest)
            mirror = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
            index = mirror[:, :, None].expand_as(x)
            ahead = self.direction(x, 0)
            behind = [layer.gather(1, index) for layer in self.direction(x.gather(1, index), 1)]
            pairs = [(x, x), *zip(ahead, behind, strict=True)]
            layers = torch.stack([torch.cat(pair, dim=2) for pair in pairs], dim=2)
            found += [layers[row, 1 : len(words) - 1] for row, words in enumerate(batch)]
        return found


def write_model(folder: Path, size: str) -> int:
    """A published model with random weights; how many numbers it has."""
    cells, dim, n_highway = SIZES[size]
    rng = np.random.default_rng(0)
    total = sum(count for _, count in FILTERS)
    options = {
        "lstm": {
            "dim": cells,
            "projection_dim": dim,
            "n_layers": 2,
            "cell_clip": 3,
            "proj_clip": 3,
            "use_skip_connections": True,
        },
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 16},
            "filters": FILTERS,
            "n_highway": n_highway,
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 16)}
    for number, (width, count) in enumerate(FILTERS):
        shapes |= {f"CNN/W_cnn_{number}": (1, width, 16, count), f"CNN/b_cnn_{number}": (count,)}
    for number in range(n_highway):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{number}/W_{part}": (total, total), f"CNN_high_{number}/b_{part}": (total,)}
    shapes |= {"CNN_proj/W_proj": (total, dim), "CNN_proj/b_proj": (dim,)}
    for direction in (0, 1):
        for depth in (0, 1):
            own = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
            shapes |= {
                f"{own}/W_0": (2 * dim, 4 * cells),
                f"{own}/B": (4 * cells,),
                f"{own}/W_P_0": (cells, dim),
            }
    folder.mkdir(parents=True)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, shape in shapes.items():
            spread = max(shape[:-1], default=1) ** -0.5
            file.create_dataset(name, data=rng.standard_normal(shape, dtype=np.float32) * np.float32(spread))
    return sum(int(np.prod(shape)) for shape in shapes.values())


def sentences(n_texts: int) -> list[list[str]]:
    """AG News test texts as words."""
    with gzip.open(data_file("ag_news/test.csv.gz"), "rt", encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[:n_texts]
    pipeline = TextPipeline(TextConfig(mend=True))
    return [pipeline.words(f"{title} {text}") for _, title, text in rows]


def both(work: Path, texts: list[list[str]], batch_size: int, repeats: int, clock: Any) -> dict[str, float]:
    """Tokens a second, both ways, alternated, best of several; each of our runs starts with no word known."""
    ours, plain = Elmo.load(work / "ours"), Plain(work / "published")
    few = texts[: min(batch_size, 8)]
    found = ours.embed(few).layers
    worst = max(
        float(np.abs(a - b.numpy()).max(initial=0))
        for a, b in zip(found, plain.embed(few, len(few)), strict=True)
    )
    n_words = sum(map(len, texts))
    times: dict[str, list[float]] = {"ours": [], "plain": []}

    def embed() -> None:
        elmo = Elmo(ours.folder)
        if batch_size > 1:
            elmo.embed(texts, batch_size=batch_size)
        else:
            for words in texts:
                elmo.embed([words])

    with tuned_memory():  # the same memory settings for both
        for _ in range(repeats):
            for name, work_ in (("ours", embed), ("plain", lambda: plain.embed(texts, batch_size))):
                started = clock()
                work_()
                times[name].append(clock() - started)
    ratios = [b / a for a, b in zip(times["ours"], times["plain"], strict=True)]
    figures = {
        "words": n_words,
        "ours_words_per_second": n_words / min(times["ours"]),
        "plain_words_per_second": n_words / min(times["plain"]),
        "ratio": min(times["plain"]) / min(times["ours"]),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "largest_difference": worst,
    }
    print(
        f"batch {batch_size}: elmokit {figures['ours_words_per_second']:,.0f} words/s, plain "
        f"{figures['plain_words_per_second']:,.0f} words/s, ratio {figures['ratio']:.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}); largest difference {worst:.1e}",
        flush=True,
    )
    return figures


def memory(work: Path, who: str, batch_size: int, n_texts: int, threads: int) -> float:
    """Peak memory of opening the model and embedding, in a process of its own."""
    command = [sys.executable, __file__, "--worker", who, "--work", str(work), "--batch", str(batch_size)]
    command += ["--texts", str(n_texts), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def opening(work: Path, repeats: int, clock: Any) -> dict[str, float]:
    """Seconds to open the published files and our folder, and until the first sentence is done."""
    figures: dict[str, float] = {}
    for name in ("published", "ours"):
        figures |= {f"open_{name}_seconds": float("inf"), f"first_{name}_seconds": float("inf")}
    for _ in range(repeats):
        for name in ("published", "ours"):
            started = clock()
            elmo = Elmo.load(work / name)
            opened = clock()
            elmo.embed([["The", "bank", "raised", "its", "rates", "."]])
            figures[f"open_{name}_seconds"] = min(figures[f"open_{name}_seconds"], opened - started)
            figures[f"first_{name}_seconds"] = min(figures[f"first_{name}_seconds"], clock() - started)
            del elmo
    print(
        f"opening: published files {figures['open_published_seconds']:.2f} s, our folder "
        f"{figures['open_ours_seconds']:.2f} s; with a first sentence "
        f"{figures['first_published_seconds']:.2f} s and {figures['first_ours_seconds']:.2f} s",
        flush=True,
    )
    return figures


def main() -> None:
    """Measure it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="original")
    parser.add_argument("--texts", type=int, default=256, help="for batches of 32")
    parser.add_argument("--single", type=int, default=24, help="texts one by one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count processor time, not wall time: for a busy machine, with --threads 1",
    )
    parser.add_argument("--worker", choices=["ours", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.worker:
        texts = sentences(arguments.texts)
        if arguments.worker == "plain":
            with tuned_memory():  # as when it is timed
                Plain(arguments.work / "published").embed(texts, arguments.batch)
        else:
            Elmo.load(arguments.work / "ours").embed(texts, batch_size=arguments.batch)
        print(peak_memory())
        return
    clock = time.process_time if arguments.processor_time else time.perf_counter
    texts = sentences(arguments.texts)
    figures: dict[str, Any] = {"size": arguments.size, "threads": arguments.threads}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        figures["parameters"] = write_model(work / "published", arguments.size)
        convert(work / "published", work / "ours", calibrate=[])
        n_bytes = (work / "published" / "weights.hdf5").stat().st_size
        print(
            f"{figures['parameters']:,} numbers, {n_bytes / 1e6:,.0f} MB, {arguments.threads} threads",
            flush=True,
        )
        figures |= opening(work, arguments.repeats, clock)
        figures["batch_32"] = both(work, texts, _BATCH, arguments.repeats, clock)
        figures["batch_1"] = both(work, texts[: arguments.single], 1, arguments.repeats, clock)
        for batch_size, n_texts in ((_BATCH, 4 * _BATCH), (1, 4)):
            peaks = {
                who: memory(work, who, batch_size, n_texts, arguments.threads) for who in ("ours", "plain")
            }
            figures[f"batch_{batch_size}"] |= {f"{who}_peak_mib": peak for who, peak in peaks.items()}
            print(
                f"batch {batch_size}: peak memory {peaks['ours']:,.0f} MiB, plain {peaks['plain']:,.0f} MiB",
                flush=True,
            )
    finish(figures)


if __name__ == "__main__":
    main()
