"""How the bundled model ``news`` was made.

    python benchmarks/ag_news.py prepare --work ag-news     the split of AG News (data through ELMOKIT_DATA)
    python recipes/news.py pretrain --split ag-news         77 minutes on two cores; a stopped run goes on
    python recipes/news.py pack                             -> src/elmokit/models/news

Into the model go AG News train texts: 73,106 of 120,000 less a twentieth that is the validation set, and
10,331 without titles. No line of a validation or test split is among them. Packing keeps the most frequent
words of the table, brings numbers to half precision and leaves the word predictor out.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from pathlib import Path

import torch

from elmokit.bilm.conversion import calibrated, without_predictor
from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.names import MODELS
from elmokit.bilm.pretraining import pretrain
from elmokit.config import read_toml, resolve
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenising import SPECIALS
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.progress import Reporter

_KEPT_WORDS = 13_000


def train(work: Path, split: Path) -> None:
    """Pretrain, or go on."""
    result = pretrain(
        [split / "train.csv", split / "extra.csv"],
        work,
        resolve("small", read_toml(Path(__file__).with_suffix(".toml"))),
        valid=[split / "valid.csv"],
        read=ReadConfig(text_columns="text"),
        reporter=Reporter(),
        command="recipes/news.py pretrain",
    )
    print(result.held_out)


def with_fewer_words(saved: BilmFolder, n_words: int) -> BilmFolder:
    """The model with the most frequent words of its table alone; the others are read as <unk>."""
    saved = without_predictor(saved)
    words = saved.vocabulary.words[: len(SPECIALS) + n_words]
    with torch.device("meta"):
        model = Bilm(saved.model.config, len(words))
    weights = {name: weight.detach() for name, weight in saved.model.named_parameters()}
    weights["encoder.weight"] = weights["encoder.weight"][: len(words)].clone()
    model.load_state_dict(weights, strict=False, assign=True)
    return dataclasses.replace(saved, model=model.eval(), vocabulary=Vocabulary(words))


def pack(work: Path) -> None:
    """Write the model that is shipped."""
    saved, _ = calibrated(with_fewer_words(load_bilm(work), _KEPT_WORDS))
    saved.training["licence"] = (
        "Apache-2.0 for the weights; AG News, from whose texts they were made, is for research and other "
        "non-commercial activity"
    )
    saved.training["command"] = "recipes/news.py pretrain; recipes/news.py pack"
    saved.training["notes"] = [
        f"Perplexity was measured before packing, with all words; {_KEPT_WORDS:,} of them are kept."
    ]
    out = MODELS / "news"
    shutil.rmtree(out, ignore_errors=True)
    save_bilm(out, saved, half=True)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")


def main() -> None:
    """One step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=["pretrain", "pack"])
    parser.add_argument("--work", type=Path, default=Path("news-work"), help="the model with all its words")
    parser.add_argument("--split", type=Path, default=Path("ag-news"), help="the split of AG News")
    arguments = parser.parse_args()
    if arguments.step == "pretrain":
        train(arguments.work, arguments.split)
    else:
        pack(arguments.work)


if __name__ == "__main__":
    main()
