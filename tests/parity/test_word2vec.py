"""Skip-gram and CBOW are gensim's own, and tables go to gensim and back unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from gensim.models import KeyedVectors, Word2Vec

from elmokit.static.exchange import export_vectors, import_vectors
from elmokit.static.settings import Word2VecConfig
from elmokit.static.train import train_vectors
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, UNK

Kind = Literal["sgns", "cbow"]
CONFIG = Word2VecConfig(dim=8, window=3, min_count=1, epochs=3, lr=0.04, workers=1, seed=5)


def some_texts() -> list[str]:
    """Texts in which no two words occur equally often, so that there is one order by frequency."""
    words = [word for rank in range(1, 31) for word in [f"w{rank:02}"] * (100 - 3 * rank)]
    np.random.default_rng(0).shuffle(words)
    ends = np.cumsum(np.random.default_rng(1).integers(2, 20, size=200))
    return [" ".join(part) for part in np.split(np.array(words), ends[ends < len(words)])]


@pytest.fixture(scope="module")
def table() -> WordVectors:
    words = [
        SPECIALS[UNK],
        "fox",
        "naïve",
        "日本",
        "n't",
        "1,000",
        "😀",
        *(f"w{rank}" for rank in range(200)),
    ]
    rows = np.random.default_rng(2).normal(size=(len(words), 12)).astype(np.float32)
    return WordVectors.of(words, rows, TextConfig(lowercase=True))


def keyed_vectors(table: WordVectors) -> KeyedVectors:
    """The same in gensim: the words that ``export_vectors`` writes."""
    keyed = KeyedVectors(table.dim)
    places = [UNK, *range(len(SPECIALS), len(table))]
    keyed.add_vectors([table.vocabulary.words[place] for place in places], table.vectors[places])
    return keyed


@pytest.mark.parametrize("kind", ["sgns", "cbow"])
def test_vectors_are_those_that_gensim_learns(kind: Kind) -> None:
    texts = some_texts()
    found = train_vectors(kind, texts, CONFIG, text=TextConfig())
    model = Word2Vec(
        [text.split() for text in texts],
        sg=int(kind == "sgns"),
        vector_size=8,
        window=3,
        min_count=1,
        negative=5,
        sample=1e-3,
        alpha=0.04,
        epochs=3,
        workers=1,
        seed=5,
    )
    assert found.vocabulary.words[len(SPECIALS) :] == model.wv.index_to_key
    assert np.array_equal(found.vectors[len(SPECIALS) :], model.wv.vectors)


_PROGRAM = """
import sys
from elmokit.static.train import train_vectors
from elmokit.static.settings import Word2VecConfig
texts = open(sys.argv[1], encoding="utf-8").read().splitlines()
config = Word2VecConfig(dim=8, min_count=1, epochs=3, lr=0.04, workers=1, seed=5)
print(*(train_vectors(kind, texts, config).fingerprint for kind in ("sgns", "cbow")))
"""


def test_one_worker_gives_the_same_bits_in_every_process(tiny_corpus: Path) -> None:
    said = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tiny_corpus)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""  # gensim keeps quiet
        said.append(done.stdout.split())
    assert said[0] == said[1]
    assert said[0][0] != said[0][1]


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_gensim_reads_what_is_exported(table: WordVectors, tmp_path: Path, name: str) -> None:
    export_vectors(tmp_path / name, table)
    keyed = KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    assert keyed.index_to_key == ["<unk>", *table.vocabulary.words[len(SPECIALS) :]]
    assert np.array_equal(keyed.vectors, table.vectors[[UNK, *range(len(SPECIALS), len(table))]])
    for word in ("fox", "naïve", "日本"):
        wanted = [(near, score) for near, score in keyed.most_similar(word, topn=6) if near != "<unk>"][:5]
        found = table.neighbors(word, 5)
        assert [near for near, _ in found] == [near for near, _ in wanted]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in wanted], atol=1e-5)
        assert table.similarity(word, "w7") == pytest.approx(keyed.similarity(word, "w7"), abs=1e-5)


def test_analogies_are_those_of_gensim(table: WordVectors) -> None:
    keyed = keyed_vectors(table)
    for a, b, c in (("fox", "w1", "w2"), ("naïve", "w3", "fox"), ("w4", "w5", "w6")):
        wanted = keyed.most_similar(positive=[b, c], negative=[a], topn=6)
        found = table.analogy(a, b, c, 5)
        assert [near for near, _ in found] == [near for near, _ in wanted if near != "<unk>"][:5]


@pytest.mark.parametrize("binary", [False, True])
def test_what_gensim_writes_is_read(table: WordVectors, tmp_path: Path, binary: bool) -> None:
    file = tmp_path / ("v.bin" if binary else "v.txt")
    keyed_vectors(table).save_word2vec_format(str(file), binary=binary)
    found = import_vectors(file)
    assert found.vocabulary.words == table.vocabulary.words
    assert np.array_equal(found.vectors, table.vectors)
