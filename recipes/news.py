"""How the bundled model ``news`` was made, step by step.

    python recipes/news.py corpus      texts from the data sets, one on each line
    python recipes/news.py pretrain    about two hours on two cores; a stopped run goes on
    python recipes/news.py measure     exact perplexity on AG News and WikiText-2, each direction
    python recipes/news.py pack        half precision, no word predictor -> src/elmokit/models/news

Data is found through ELMOKIT_DATA. Into the model go: AG News train texts (73,106 of 120,000 less a
twentieth that is the validation set of ``benchmarks/ag_news.py``, and 10,331 without titles), WikiText-2
train (sentences without <unk>), Reuters-21578 (all but its test articles), the ABC corpus, and a quarter of
the IMDB reviews without label. No line of a validation or test split is among them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elmokit.bilm.conversion import without_predictor
from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.bilm.measuring import text_perplexity
from elmokit.bilm.names import MODELS
from elmokit.bilm.pretraining import pretrain
from elmokit.config import read_toml, resolve
from elmokit.text.settings import ReadConfig
from elmokit.training.progress import Reporter

PARTS = ("ag_news", "reuters", "wikitext", "abc", "imdb")
_IMDB_REVIEWS = 12_500
_MOSTLY_LETTERS = 0.72


def _data(name: str) -> Path:
    root = os.environ.get("ELMOKIT_DATA")
    if not root or not (Path(root) / name).exists():
        sys.exit(f"Set ELMOKIT_DATA to a folder that holds {name}.")
    return Path(root) / name


def _rows(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="") as file:
        yield from (row["text"] for row in csv.DictReader(file))


def ag_news(split: Path) -> dict[str, Iterator[str]]:
    """Train rows without the validation set, as ``benchmarks/ag_news.py prepare`` splits them."""
    names = {
        "ag_news.txt": ("train", "extra"),
        "ag_news_valid.txt": ("valid",),
        "ag_news_test.txt": ("test",),
    }
    return {
        file: (text for part in parts for text in _rows(split / f"{part}.csv"))
        for file, parts in names.items()
    }


def wikitext(name: str) -> Iterator[str]:
    """Paragraphs, their marks of tokenisation undone, without sentences that hold <unk>."""
    with gzip.open(_data(f"wikitext2/{name}.txt.gz"), "rt", encoding="utf-8") as file:
        for line in file:
            if not line.strip() or line.strip().startswith("= "):
                continue
            line = re.sub(r" @([-,.])@ ", r"\1", line.strip())
            kept = [one for one in re.split(r"(?<= [.!?]) ", line) if "<unk>" not in one]
            if kept:
                yield " ".join(kept)


def reuters() -> Iterator[str]:
    """Titles and paragraphs of articles that are in no test set; tables left out."""
    with gzip.open(_data("reuters21578/reuters21578.jsonl.gz"), "rt", encoding="utf-8") as file:
        for line in file:
            article = json.loads(line)
            if article["lewissplit"] == "TEST":
                continue
            body = re.sub(r"\s*reuter\s*(&#3;)?\s*$", "", article["body"], flags=re.IGNORECASE)
            for part in re.split(r"\n\s{3,}", body):
                text = " ".join(part.split())
                letters = sum(char.isalpha() or char == " " for char in text)
                if len(text) > 40 and letters > _MOSTLY_LETTERS * len(text):
                    yield text


def abc() -> Iterator[str]:
    """Lines of the ABC corpus (Australian rural and science news)."""
    with zipfile.ZipFile(_data("nltk_corpora/abc.zip")) as file:
        for name in ("abc/rural.txt", "abc/science.txt"):
            yield from filter(None, map(str.strip, file.read(name).decode("utf-8", "replace").splitlines()))


def imdb() -> Iterator[str]:
    """The first quarter of the reviews without label."""
    with gzip.open(_data("imdb/unsup.jsonl.gz"), "rt", encoding="utf-8") as file:
        for _, line in zip(range(_IMDB_REVIEWS), file, strict=False):
            yield json.loads(line)["text"]


def corpus(work: Path, split: Path) -> None:
    """Write each part as a text file, one text on each line."""
    work.mkdir(parents=True, exist_ok=True)
    parts = {
        **ag_news(split),
        "wikitext.txt": wikitext("train"),
        "wikitext_valid.txt": wikitext("valid"),
        "wikitext_test.txt": wikitext("test"),
        "reuters.txt": reuters(),
        "abc.txt": abc(),
        "imdb.txt": imdb(),
    }
    for name, texts in parts.items():
        n_texts = n_words = 0
        with open(work / name, "w", encoding="utf-8") as file:
            for text in texts:
                line = " ".join(text.split())
                if line:
                    file.write(line + "\n")
                    n_texts, n_words = n_texts + 1, n_words + len(line.split())
        print(f"{name}: {n_texts:,} texts, {n_words:,} words between spaces")


def train(work: Path) -> None:
    """Pretrain, or go on."""
    config = resolve("small", read_toml(Path(__file__).with_suffix(".toml")))
    result = pretrain(
        [work / f"{part}.txt" for part in PARTS],
        work / "model",
        config,
        valid=[work / "ag_news_valid.txt", work / "wikitext_valid.txt"],
        read=ReadConfig(),
        reporter=Reporter(),
        command="recipes/news.py pretrain",
    )
    print(result.held_out)


def measure(work: Path) -> None:
    """Exact perplexity on text that the model has not seen, each direction."""
    found = {
        name: text_perplexity(work / "model", [work / file])
        for name, file in {
            "AG News, validation": "ag_news_valid.txt",
            "AG News, test": "ag_news_test.txt",
            "WikiText-2, validation, sentences without <unk>": "wikitext_valid.txt",
            "WikiText-2, test, sentences without <unk>": "wikitext_test.txt",
        }.items()
    }
    (work / "perplexity.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, figures in found.items():
        print(
            f"{name}: {figures['perplexity']:.1f} (forward {figures['forward']:.1f}, backward "
            f"{figures['backward']:.1f}); unknown words {figures['unknown_share']:.2%}"
        )


def pack(work: Path) -> None:
    """Write the model that is shipped."""
    saved = load_bilm(work / "model")
    found = json.loads((work / "perplexity.json").read_text(encoding="utf-8"))
    saved.training["perplexities"] = {
        name: {key: round(figures[key], 2) for key in ("perplexity", "forward", "backward")}
        for name, figures in found.items()
    }
    saved.training["licence"] = (
        "Apache-2.0 for the weights; the texts they were made from (AG News, Reuters-21578, WikiText-2, ABC, "
        "IMDB) are for research and non-commercial use, or CC BY-SA"
    )
    out = MODELS / "news"
    shutil.rmtree(out, ignore_errors=True)
    save_bilm(out, without_predictor(saved), half=True)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")


def main() -> None:
    """One step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=["corpus", "pretrain", "measure", "pack"])
    parser.add_argument("--work", type=Path, default=Path("news-work"))
    parser.add_argument("--split", type=Path, default=Path("ag-news"), help="the split of AG News")
    arguments = parser.parse_args()
    if arguments.step == "corpus":
        corpus(arguments.work, arguments.split)
    else:
        {"pretrain": train, "measure": measure, "pack": pack}[arguments.step](arguments.work)


if __name__ == "__main__":
    main()
