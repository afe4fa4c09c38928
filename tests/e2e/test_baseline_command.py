"""``elmokit baseline``, and ``elmokit similar`` on what it makes, as a person runs them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.corpora import mini_news
from elmokit.static.exchange import export_vectors, import_vectors
from elmokit.static.train import baseline
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import PIPELINES, TextConfig
from program import Cli


@pytest.fixture(scope="module")
def vectors(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static") / "vectors"
    baseline("svd", tiny_corpus, folder, dim=8)
    return folder


def test_svd_of_the_bundled_corpus_with_checks_and_exports(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("bank,rates,9\nbank,goal,2\nteam,match,8\nteam,cells,1\nx,y,3\n")
    with gzip.open(tmp_path / "questions.txt.gz", "wt") as file:
        file.write(": made up\nbank rates team match\nx y z w\n")
    out = tmp_path / "vectors"
    words = ("baseline", "svd", mini_news(), "--text-columns", "text", "--out", out, "--dim", 20)
    done = cli(*words).check_fine()
    found = WordVectors.load(out)
    assert f"{found.n_words:,} words, vectors 20 wide" in done.out
    checks = ("evaluate", out, tmp_path / "pairs.csv", tmp_path / "questions.txt.gz")
    cli(*checks).check_fine(
        "pairs.csv: Spearman ", "with 4 of 5 in the vocabulary", "questions.txt.gz: accuracy "
    )
    results = json.loads(cli(*checks, "--json").out)["intrinsic"]
    assert [result["covered"] for result in results] == [4, 1]
    cli("evaluate", out, tmp_path / "none.csv").check_refused("none.csv")
    for name in ("v.txt", "v.bin"):
        assert cli("convert", out, tmp_path / name).code == 0
    cli("convert", out, tmp_path / "v.csv").check_refused("v.csv")
    assert f"elmokit similar {out} " in done.out
    assert found.text == TextConfig(lowercase=True)
    assert found.training["method"] == "svd"
    assert found.training["command"].startswith("elmokit baseline svd mini_news.csv --text-columns")
    assert str(tmp_path) not in found.training["command"]
    for name in ("v.txt", "v.bin"):
        assert np.array_equal(import_vectors(tmp_path / name).vectors, found.vectors)
    cli(*words).check_fine("Already done", f"{found.n_words:,} words, vectors 20 wide")
    cli(*words, "--seed", 1).check_refused("already holds word vectors", "seed was 0, now 1", "--overwrite")
    again = cli(*words, "--overwrite", "--json")
    (end,) = [json.loads(line) for line in again.out.splitlines()]
    assert (end["event"], end["n_words"], end["dim"]) == ("end", found.n_words, 20)
    assert WordVectors.load(out).fingerprint == found.fingerprint


@pytest.mark.parametrize("method", ["sgns", "cbow"])
def test_word2vec_learns_from_standard_input_and_with_its_own_settings(
    cli: Cli, method: str, tiny_corpus: Path, tmp_path: Path
) -> None:
    settings = ("--dim", 6, "--epochs", 2, "--workers", 1, "--set", "negatives=3", "--pipeline", "classic")
    done = cli(
        "baseline", method, "-", "--out", tmp_path / "v", *settings,
        stdin=tiny_corpus.read_text(encoding="utf-8"),
    )  # fmt: skip
    assert done.code == 0, done.err
    found = WordVectors.load(tmp_path / "v")
    assert found.text == PIPELINES["classic"]
    assert found.training["settings"]["negatives"] == 3
    assert found.training["corpus"]["files"] == ["standard input"]


def test_without_gensim_word2vec_names_its_extra_and_svd_works(
    cli: Cli, tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim", None)
    for method in ("sgns", "cbow"):
        words = ("baseline", method, tiny_corpus, "--out", tmp_path / "v")
        cli(*words).check_refused("gensim", "pip install 'elmokit[static]'")
    assert not (tmp_path / "v").exists()
    cli("baseline", "svd", tiny_corpus, "--out", tmp_path / "v", "--dim", 4).check_fine()


def test_a_foreign_table_becomes_a_folder(cli: Cli, vectors: Path, tmp_path: Path) -> None:
    table = WordVectors.load(vectors)
    export_vectors(tmp_path / "glove.txt", table)
    lines = (tmp_path / "glove.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "glove.txt").write_text("".join(lines[1:]), encoding="utf-8")  # GloVe has no header
    cli("convert", tmp_path / "glove.txt", tmp_path / "v").check_fine()
    found = WordVectors.load(tmp_path / "v")
    assert found.fingerprint == table.fingerprint
    assert (found.training["method"], found.training["file"]) == ("import", "glove.txt")
    first = ("--max-words", 5, "--set", "tokens=whitespace")
    cli("convert", tmp_path / "glove.txt", tmp_path / "w", *first).check_fine()
    found = WordVectors.load(tmp_path / "w")
    assert (found.n_words, found.text) == (4, TextConfig(lowercase=True, tokens="whitespace"))


def test_similar_finds_the_nearest_words_and_says_that_there_is_no_context(cli: Cli, vectors: Path) -> None:
    table = WordVectors.load(vectors)
    rare = next(word for word in table.vocabulary.words[54:] if word.isalpha())  # not among the 50 first
    done = cli("similar", vectors, f"The {rare} saw [red] xyzzy!", "-k", 3).check_fine()
    head, *blocks = done.out.strip().split("\n\n")
    assert "same in every sentence" in head
    by_word = {block.splitlines()[0].strip(): block.splitlines()[1:] for block in blocks}
    assert by_word["xyzzy"] == ["  unknown to these vectors"]
    shown = [line.split()[1] for line in by_word[rare]]
    assert shown == [word for word, _ in table.neighbors(rare, 3)]
    assert "the" not in by_word

    done = cli("similar", vectors, "The fox ate Bread", "--word", "BREAD", "-k", 2, "--json")
    answer: dict[str, Any] = json.loads(done.out)
    assert (answer["query"], answer["context"]) == (["the", "fox", "ate", "bread"], False)
    (one,) = answer["words"]
    assert (one["word"], one["position"], one["known"]) == ("bread", 3, True)
    assert [hit["word"] for hit in one["found"]] == [word for word, _ in table.neighbors("bread", 2)]


def test_bad_input_is_refused_with_a_remedy(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "out")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.txt").write_text("cat 1 2\ndog 3\n")
    (tmp_path / "v.kv").write_bytes(b"\x80\x04")
    for words, said in (
        (("svdd", tiny_corpus, *out), "Did you mean 'svd'?"),
        (("glove", tiny_corpus, *out), "Choose from: svd, sgns, cbow."),
        (("svd", tmp_path / "nowhere.txt", *out), "nowhere.txt"),
        (("svd", tmp_path / "empty.txt", *out), "no word"),
        (("svd", tiny_corpus, *out, "--epochs", 3), "svd does not use --epochs"),
        (("cbow", tiny_corpus, *out, "--set", "power=1"), "cbow does not use --power"),
        (("svd", tiny_corpus, *out, "--counts", "pmi"), "Did you mean 'ppmi'?"),
        (("svd", tiny_corpus, *out, "--pipeline", "clasic"), "Did you mean 'classic'?"),
        (("svd", tiny_corpus, "--out", tiny_model), "already holds a language model"),
        (("svd", tiny_corpus, "--out", tiny_corpus), "is a file"),
    ):
        cli("baseline", *words).check_refused(said)
        assert not (tmp_path / "out").exists(), words
    for table, said in (("bad.txt", "bad.txt, line 2"), ("v.kv", "v.kv")):
        cli("convert", tmp_path / table, tmp_path / "out").check_refused(said)
        assert not (tmp_path / "out").exists(), table


def test_similar_refuses_what_only_context_can_answer(
    cli: Cli, vectors: Path, tiny_model: Path, tiny_corpus: Path
) -> None:
    for words, said in (
        ((vectors, "fox", "--in", tiny_corpus), "have no context"),
        ((vectors, "fox", "--layer", 1), "--layer"),
        ((vectors, "fox", "--state", "warm"), "--state"),
        ((vectors, "the fox", "--word", "dog"), "no word 'dog'"),
        ((vectors, " "), "no word"),
        ((tiny_model, "the fox"), "no corpus"),
    ):
        cli("similar", *words).check_refused(said)


def test_inspect_shows_a_folder_of_vectors(cli: Cli, vectors: Path) -> None:
    cli("inspect", vectors).check_fine("word vectors: one vector per word, the same in every context")
    assert json.loads(cli("inspect", vectors, "--json").out)["dim"] > 0
