"""How the bundled model ``news`` was made, step by step.

    python benchmarks/ag_news.py prepare --work ag-news     the split of AG News
    python recipes/news.py corpus --split ag-news           texts of all sets, one on each line
    python recipes/news.py words --split ag-news            a word-table model of AG News: 77 min, 2 cores
    python recipes/news.py spell                            a character CNN learns that table: minutes
    python recipes/news.py pretrain                         the character model reads all texts
    python recipes/news.py measure                          exact perplexity, AG News and WikiText-2
    python recipes/news.py pack                             half precision, no word predictor -> the package

Data is found through ELMOKIT_DATA; a stopped step goes on when it is called again. A character model learns
slowly from its first step, a word table fast: so the two LSTM stacks begin as those of a word model, and the
character CNN begins by giving each word the vector it had there.

Into the model go: AG News train texts (73,106 of 120,000 less a twentieth that is the validation set, and
10,331 without titles), WikiText-2 train (sentences without <unk>), the Brown corpus, every second of the
Reuters-21578 articles that are in no test set, the ABC corpus, and a quarter of the IMDB reviews without
label. No line of a validation or test split is among them.
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
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.perplexity import text_perplexity
from elmokit.bilm.pretrain import pretrain, target_counts
from elmokit.bilm.settings import PretrainConfig, resolve
from elmokit.core.config import read_toml
from elmokit.core.console import Reporter
from elmokit.core.names import MODELS
from elmokit.published.convert import remove_predictor
from elmokit.text.corpus import CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import TextPipeline

PARTS = ("ag_news", "wikitext", "brown", "reuters", "abc", "imdb")
_HERE = Path(__file__).parent
_IMDB_REVIEWS = 12_500
_MOSTLY_LETTERS = 0.72
_SPELLING_STEPS = 12_000
_SPELLING_WORDS = 256  # in a step


def _data(name: str) -> Path:
    root = os.environ.get("ELMOKIT_DATA")
    if not root or not (Path(root) / name).exists():
        sys.exit(f"Set ELMOKIT_DATA to a folder that holds {name}.")
    return Path(root) / name


def ag_news(split: Path, *parts: str) -> Iterator[str]:
    """Rows as ``benchmarks/ag_news.py prepare`` splits them."""
    for part in parts:
        with open(split / f"{part}.csv", encoding="utf-8", newline="") as file:
            yield from (row["text"] for row in csv.DictReader(file))


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


def brown() -> Iterator[str]:
    """Paragraphs of the Brown corpus, without their tags."""
    with zipfile.ZipFile(_data("nltk_corpora/brown.zip")) as file:
        for name in sorted(file.namelist()):
            if re.fullmatch(r"brown/c[a-r]\d\d", name):
                for part in re.split(r"\n\s*\n\s*\n", file.read(name).decode("utf-8")):
                    text = " ".join(token.rsplit("/", 1)[0] for token in part.split())
                    yield re.sub(r"``|''", '"', text)


def reuters() -> Iterator[str]:
    """Paragraphs of every second article that is in no test set; tables left out."""
    with gzip.open(_data("reuters21578/reuters21578.jsonl.gz"), "rt", encoding="utf-8") as file:
        articles = (article for article in map(json.loads, file) if article["lewissplit"] != "TEST")
        for number, article in enumerate(articles):
            if number % 2:
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
            yield from file.read(name).decode("utf-8", "replace").splitlines()


def imdb() -> Iterator[str]:
    """The first quarter of the reviews without label."""
    with gzip.open(_data("imdb/unsup.jsonl.gz"), "rt", encoding="utf-8") as file:
        for _, line in zip(range(_IMDB_REVIEWS), file, strict=False):
            yield json.loads(line)["text"]


def corpus(work: Path, split: Path) -> None:
    """Write each part as a text file, one text on each line."""
    parts = {
        "ag_news": ag_news(split, "train", "extra"),
        "ag_news_valid": ag_news(split, "valid"),
        "ag_news_test": ag_news(split, "test"),
        "wikitext": wikitext("train"),
        "wikitext_valid": wikitext("valid"),
        "wikitext_test": wikitext("test"),
        "brown": brown(),
        "reuters": reuters(),
        "abc": abc(),
        "imdb": imdb(),
    }
    for name, texts in parts.items():
        n_texts = n_words = 0
        with open(work / f"{name}.txt", "w", encoding="utf-8") as file:
            for text in texts:
                line = " ".join(text.split())
                if line:
                    file.write(line + "\n")
                    n_texts, n_words = n_texts + 1, n_words + len(line.split())
        print(f"{name}: {n_texts:,} texts, {n_words:,} words between spaces")


def words(work: Path, split: Path) -> None:
    """Pretrain the word-table model, or go on."""
    result = pretrain(
        [split / "train.csv", split / "extra.csv"],
        work / "words",
        resolve("small", read_toml(_HERE / "news-words.toml", PretrainConfig)),
        valid=[split / "valid.csv"],
        read=ReadConfig(text_columns="text"),
        reporter=Reporter(),
        command="recipes/news.py words",
    )
    print(result.held_out)


def spell(work: Path) -> None:
    """A character model that begins where the word model ended: its LSTM layers, and a character CNN that
    was taught to give each word the vector it has in the table."""
    reporter = Reporter()
    config = resolve("small", read_toml(_HERE / "news.toml", PretrainConfig))
    known = load_bilm(work / "words")
    settings = CorpusSettings(config.text, config.vocabulary, open_words=True, held_out=0.0)
    texts = TextSource([work / f"{part}.txt" for part in PARTS])
    with reporter.counting("Preparing the text", unit="characters") as advance:
        prepared = prepare_corpus(work / "vocabulary", settings, texts, progress=advance)
    vocabulary = prepared.vocabulary
    torch.manual_seed(config.training.seed)
    model = Bilm(config.model, len(vocabulary))
    model.predictor.start_from_counts(target_counts(prepared))
    tokenizer = TextPipeline(config.text).word_tokenizer(vocabulary.words)
    made = BilmFolder(model, config.text, vocabulary, tokenizer, {"command": "recipes/news.py spell"})

    places = {word: place for place, word in enumerate(known.vocabulary.words)}
    pairs = [(i, places[word]) for i, word in enumerate(vocabulary.words) if word in places]
    here, there = (torch.tensor(side) for side in zip(*pairs, strict=True))
    print(f"{len(vocabulary):,} words, {len(here):,} of them known to the word model.")
    table = known.model.encoder.weight.detach()  # type: ignore[union-attr, operator]
    features = torch.from_numpy(made.features.rows(vocabulary.words).astype(np.int64))
    counts = torch.from_numpy(target_counts(prepared).astype(np.float64))[here]
    chances = counts**0.6  # of being drawn: a common word must be known better than a rare one
    optimizer = torch.optim.AdamW(model.encoder.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=_SPELLING_STEPS, pct_start=0.1, anneal_strategy="linear"
    )
    rng = torch.Generator().manual_seed(config.training.seed)
    scale = float(table[there].std())
    with reporter.counting("Spelling", _SPELLING_STEPS, unit="steps") as advance:
        for _ in range(_SPELLING_STEPS):
            drawn = torch.multinomial(chances, _SPELLING_WORDS, replacement=True, generator=rng)
            found = model.encoder(features[here[drawn]])
            loss = (found - table[there[drawn]]).div(scale).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.encoder.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            advance(1)
    with torch.no_grad():
        found = torch.cat([model.encoder(part) for part in features.split(4096)])
        missed = (found[here] - table[there]).square().sum(dim=1) @ counts.float()
        share = missed / (table[there].square().sum(dim=1) @ counts.float())
        print(f"Of the table's square norm, weighted by the words' counts, {share:.1%} is missed.")
        model.predictor.weight.copy_(found)  # type: ignore[union-attr, operator]
        model.predictor.weight[here] = table[there]  # type: ignore[union-attr, index]
        model.forward_stack.load_state_dict(known.model.forward_stack.state_dict())
        model.backward_stack.load_state_dict(known.model.backward_stack.state_dict())
    save_bilm(work / "spelled", made)


def train(work: Path) -> None:
    """Pretrain the character model, or go on."""
    result = pretrain(
        [work / f"{part}.txt" for part in PARTS],
        work / "model",
        resolve("small", read_toml(_HERE / "news.toml", PretrainConfig)),
        valid=[work / "ag_news_valid.txt", work / "wikitext_valid.txt"],
        from_model=work / "spelled",
        reporter=Reporter(),
        command="recipes/news.py pretrain",
    )
    print(result.held_out)


def measure(work: Path) -> None:
    """Exact perplexity on text that the model has not seen, each direction."""
    found = {
        name: asdict(text_perplexity(work / "model", [work / file]))
        for name, file in {
            "AG News, test": "ag_news_test.txt",
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
    saved.training["license"] = (
        "Apache-2.0 for the weights; of the texts they were made from, AG News, Brown, Reuters-21578, ABC "
        "and IMDB are for research and other non-commercial use, WikiText-2 is under CC BY-SA"
    )
    saved.training["notes"] = [
        "Its LSTM layers began as those of a word-table model of AG News (five passes), its character CNN by "
        "learning that model's word vectors: see recipes/news.py."
    ]
    out = MODELS / "news"
    shutil.rmtree(out, ignore_errors=True)
    save_bilm(out, remove_predictor(saved), half=True)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB")


def main() -> None:
    """One step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=["corpus", "words", "spell", "pretrain", "measure", "pack"])
    parser.add_argument("--work", type=Path, default=Path("news-work"), help="where everything is kept")
    parser.add_argument("--split", type=Path, default=Path("ag-news"), help="the split of AG News")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.step in ("corpus", "words"):
        {"corpus": corpus, "words": words}[arguments.step](arguments.work, arguments.split)
    else:
        {"spell": spell, "pretrain": train, "measure": measure, "pack": pack}[arguments.step](arguments.work)


if __name__ == "__main__":
    main()
