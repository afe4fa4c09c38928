"""From texts to word vectors: the three methods, files and lists, rare words, bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.static.settings import Method, SvdConfig, Word2VecConfig
from elmokit.static.train import Sentences, train_vectors
from elmokit.text.corpus import CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig, VocabularyConfig
from elmokit.text.tokenizing import SPECIALS, UNK

CONFIGS: dict[Method, SvdConfig | Word2VecConfig] = {
    "svd": SvdConfig(dim=6),
    "sgns": Word2VecConfig(dim=6, epochs=2, workers=1),
    "cbow": Word2VecConfig(dim=6, epochs=2, workers=1),
}
EACH = pytest.mark.parametrize("method", ["svd", "sgns", "cbow"])


class Recorder(Reporter):
    """Keeps its messages."""

    def __init__(self) -> None:
        super().__init__("silent")
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


@EACH
def test_files_and_lists_give_the_same_vectors(method: Method, tiny_corpus: Path) -> None:
    texts = tiny_corpus.read_text(encoding="utf-8").splitlines()
    by_file = train_vectors(method, TextSource(tiny_corpus), CONFIGS[method], command="elmokit …")
    by_list = train_vectors(method, texts, CONFIGS[method])
    assert by_file.fingerprint == by_list.fingerprint
    made = by_file.training
    assert made["method"] == method
    assert made["settings"] == CONFIGS[method].to_dict()
    assert made["corpus"]["files"] == ["tiny.txt"]
    assert (made["corpus"]["n_documents"], made["command"]) == (60, "elmokit …")
    assert made["corpus"]["unknown_share"] == 0
    assert {"seconds", "date", "versions"} <= set(made)
    assert by_list.training["corpus"]["files"] == ["a list of 60"]


@EACH
def test_rare_words_are_learned_as_unknown_ones(method: Method) -> None:
    texts = ["the cat sat on the mat", "the dog sat on the rug", "the cow sat on the cat and the dog"] * 3
    texts += ["the xyzzy sat on the plugh", "a rare one"]
    vectors = train_vectors(method, texts, CONFIGS[method])
    assert "xyzzy" not in vectors
    assert "mat" in vectors
    assert vectors.vectors[UNK].any()
    assert not np.allclose(vectors.vectors[UNK], vectors.vectors[len(SPECIALS) :].mean(axis=0), atol=1e-4)
    assert not vectors.vectors[[0, 2, 3]].any()
    np.testing.assert_array_equal(vectors.look_up(["plugh"])[0], vectors.vectors[UNK])


@EACH
def test_where_no_word_is_rare_the_mean_stands_for_unknown_ones(method: Method) -> None:
    texts = ["the cat sat on the mat", "the dog sat on the rug", "a cat and a dog"] * 2
    vectors = train_vectors(method, texts, CONFIGS[method])
    np.testing.assert_allclose(vectors.vectors[UNK], vectors.vectors[len(SPECIALS) :].mean(axis=0), atol=1e-6)


def test_text_is_cleaned_as_asked_and_lower_cased_unless_told() -> None:
    texts = ["The CAT sat", "the Cat sat"] * 3
    assert train_vectors("svd", texts, SvdConfig(dim=1)).vocabulary.words[4:] == ["cat", "sat", "the"]
    cased = train_vectors("svd", texts, SvdConfig(dim=1), text=TextConfig())
    assert set(cased.vocabulary.words[4:]) == {"The", "the", "CAT", "Cat", "sat"}
    sentences = TextConfig(lowercase=True, unit="sentence")
    vectors = train_vectors("svd", ["One two. Two three."] * 2, SvdConfig(dim=2), text=sentences)
    assert vectors.training["corpus"]["n_documents"] == 4


def test_a_short_text_gives_narrower_svd_vectors_and_says_so() -> None:
    reporter = Recorder()
    vectors = train_vectors("svd", ["a b c d a b c d"], SvdConfig(dim=50), reporter=reporter)
    assert vectors.dim == 3
    assert any("3 dimensions instead of 50" in message for message in reporter.messages)


def test_a_short_text_is_read_more_often_and_the_record_says_how_often() -> None:
    vectors = train_vectors("cbow", ["a b c a b c"] * 3, Word2VecConfig(dim=2))
    assert vectors.training["settings"]["epochs"] == 50
    asked = train_vectors("cbow", ["a b c a b c"] * 3, Word2VecConfig(dim=2, epochs=7))
    assert asked.training["settings"]["epochs"] == 7


def test_long_documents_reach_gensim_whole_and_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("a b c d e " * 4_100 + "\n" + "a b\n", encoding="utf-8")
    settings = CorpusSettings(TextConfig(), VocabularyConfig(), open_words=False, held_out=0.0)
    seen: list[int] = []
    sentences = Sentences(prepare_corpus(tmp_path / "corpus", settings, TextSource(file)), seen.append)
    for _ in range(2):
        vectors = list(sentences)
        assert [len(words) for words in vectors] == [10_000, 10_000, 500, 2]
        assert len(sentences) == 4
        assert [word for words in vectors[:3] for word in words] == list("abcde") * 4_100
    assert sum(seen) == 2 * 20_502


def test_bad_input_is_refused() -> None:
    with pytest.raises(DataError, match="Text 1 is not a string, but NoneType"):
        train_vectors("svd", ["a b", None])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="not a single string"):
        train_vectors("svd", "a b c")
    with pytest.raises(DataError, match="not a table"):
        train_vectors("svd", np.array([["a", "b"]]))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no method 'svg'") as caught:
        train_vectors("svg", ["a b"])  # type: ignore[arg-type]
    assert "svd" in caught.value.remedy
    with pytest.raises(ConfigError, match="cbow takes a Word2VecConfig"):
        train_vectors("cbow", ["a b"], SvdConfig())
    with pytest.raises(DataError, match="a list of 2"):
        train_vectors("cbow", ["   ", "\n"])
    with pytest.raises(DataError, match="distinct words occur at least 9 times"):
        train_vectors("svd", ["a b c a b"], SvdConfig(min_count=9))
    with pytest.raises(DataError, match="nothing to learn"):
        train_vectors("svd", ["a", "b", "a", "b"])
    half = "a \ud800 b"
    assert train_vectors("svd", [half] * 3, SvdConfig(dim=1)).n_words == 3
