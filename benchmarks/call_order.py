"""How far vectors move with the order of calls, for each start state: a picture for the docs.

The same sentences are embedded in several random orders, one at a time. A word's movement is the distance
between its vectors in two orders, as a share of their length; it is averaged over sentences and pairs of
orders, by how many words the direction concerned has read since it started. The second half asks what a start
state should be like: how far each mode is from a word's mean vector over all orders with state carried on,
which is what the model was trained to give.

Without --model, a model of the published kind (characters, 256 cells projected to 64, clips of 3) is trained
on AG News texts first, exported to the published format and converted back.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import resolve
from elmokit.core.console import Reporter
from elmokit.published.convert import convert
from elmokit.vectors.elmo import Elmo, State
from measuring import data_file, finish

MODES: tuple[State, ...] = ("zero", "warm", "stateful")
COLOURS = {"zero": "#1b6ca8", "warm": "#d9822b", "stateful": "#8a2f3c"}
_FIRST = 12  # words from the start that are shown
_SHAPE = {
    "model": {
        "dim": 64,
        "hidden_dim": 256,
        "cell_clip": 3.0,
        "proj_clip": 3.0,
        "filters": ((1, 16), (2, 32), (3, 64), (4, 64)),
        "objective": "sampled",
        "n_samples": 1024,
    },
    "vocabulary": {"max_words": 15_000},
    "training": {"n_lanes": 32, "window": 20, "lr": 3e-3, "epochs": 6},
    "text": {"mend": True},
}
Array = npt.NDArray[np.float64]


def texts(name: str, n_texts: int) -> list[str]:
    """The first AG News texts of a file."""
    with gzip.open(data_file(name), "rt", encoding="utf-8", newline="") as stream:
        return [f"{title} {text}" for _, title, text in itertools.islice(csv.reader(stream), n_texts)]


def trained(work: Path, n_texts: int, max_time: float) -> Path:
    """A converted model of the published kind; goes on where it was stopped."""
    work.mkdir(parents=True, exist_ok=True)
    lines = [" ".join(text.split()) for text in texts("ag_news/train_partial.csv.gz", n_texts + 1000)]
    (work / "train.txt").write_text("\n".join(lines[:n_texts]) + "\n", encoding="utf-8")
    (work / "calibrate.txt").write_text("\n".join(lines[n_texts:]) + "\n", encoding="utf-8")
    config = resolve("tiny", cast(Any, _SHAPE), {"training": {"max_time": max_time}})
    pretrain([work / "train.txt"], work / "own", config, reporter=Reporter("plain"))
    if not (work / "published").exists():
        convert(work / "own", work / "published", to="official")
    if not (work / "model").exists():
        convert(work / "published", work / "model", calibrate=[work / "calibrate.txt"])
    return work / "model"


def embedded(
    elmo: Elmo, sentences: list[list[str]], order: npt.NDArray[np.int64], mode: State
) -> list[Array]:
    """Layers 1 and up of each sentence, (n_words, layer, 2, dim): the two directions apart."""
    found = elmo.embed([sentences[place] for place in order], state=mode, batch_size=1)
    back = np.argsort(order)
    return [
        found[int(place)][:, 1:].astype(np.float64).reshape(-1, elmo.n_layers - 1, 2, elmo.dim // 2)
        for place in back
    ]


def apart(a: Array, b: Array) -> Array:
    """Distance of vectors as a share of their length, by words read since the start; nan where none."""
    shares = np.linalg.norm(a - b, axis=3) / np.maximum(np.linalg.norm(a, axis=3), 1e-9)  # (words, layer, 2)
    ahead, behind = shares[:, :, 0].mean(axis=1), shares[::-1, :, 1].mean(axis=1)
    found = np.full(_FIRST, np.nan)
    n = min(_FIRST, len(a))
    found[:n] = (ahead[:n] + behind[:n]) / 2
    return found


def measure(elmo: Elmo, sentences: list[list[str]], n_orders: int) -> dict[str, dict[str, Array]]:
    """Of each mode: movement between orders, and distance from the mean over orders with state carried on."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(sentences)) for _ in range(n_orders)]
    runs = {mode: [embedded(elmo, sentences, order, mode) for order in orders] for mode in MODES}
    usual = [np.mean([run[place] for run in runs["stateful"]], axis=0) for place in range(len(sentences))]
    figures: dict[str, dict[str, Array]] = {}
    for mode in MODES:
        moved = [
            apart(runs[mode][a][place], runs[mode][b][place])
            for a, b in itertools.combinations(range(n_orders), 2)
            for place in range(len(sentences))
        ]
        off = [apart(mean, run[place]) for run in runs[mode] for place, mean in enumerate(usual)]
        figures[mode] = {"moved": np.nanmean(moved, axis=0), "off": np.nanmean(off, axis=0)}
    return figures


def draw(figures: dict[str, dict[str, Array]], file: Path) -> None:
    """Two panels, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "elmokit"})
    figure, panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    titles = (
        ("moved", "between two orders of calls"),
        ("off", "from the usual vector in running text"),
    )
    steps = np.arange(1, _FIRST + 1)
    for panel, (kind, title) in zip(panels, titles, strict=True):
        for mode in MODES:
            panel.plot(
                steps,
                100 * figures[mode][kind],
                color=COLOURS[mode],
                label=mode,
                lw=4 if mode == "zero" else 2,
            )
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("words read since the start")
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xticks(steps[::2])
    panels[0].annotate("zero and warm: none", (_FIRST / 2, 0.8), fontsize=8)
    panels[0].set_ylabel("distance, % of the vector's length")
    panels[0].set_ylim(bottom=-1)
    panels[1].legend(frameon=False)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Measure it, draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, help="a converted model with a start state")
    parser.add_argument(
        "--work", type=Path, default=Path("call-order"), help="folder for the model trained here"
    )
    parser.add_argument("--train-texts", type=int, default=6000)
    parser.add_argument("--max-time", type=float, default=1800.0, help="seconds of training at most")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--orders", type=int, default=6)
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    arguments = parser.parse_args()
    model = arguments.model or trained(arguments.work, arguments.train_texts, arguments.max_time)
    elmo = Elmo.load(model)
    sentences = elmo.words(texts("ag_news/test.csv.gz", arguments.sentences))
    figures = measure(elmo, sentences, arguments.orders)
    for mode in MODES:
        moved, off = figures[mode]["moved"], figures[mode]["off"]
        print(
            f"{mode:>8}: moves {moved[0]:.2%} at the first word, {moved[4]:.2%} at the fifth, "
            f"{moved[-1]:.2%} at the {_FIRST}th; from the usual {off[0]:.2%}, {off[4]:.2%}, {off[-1]:.2%}"
        )
    if arguments.picture:
        draw(figures, arguments.picture)
    finish(
        {
            mode: {kind: each.round(5).tolist() for kind, each in found.items()}
            for mode, found in figures.items()
        }
    )


if __name__ == "__main__":
    main()
