from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elmokit.core.errors import DataError, ElmokitError
from elmokit.text.corpus import Corpus, CorpusSettings, Documents, load_corpus, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, TextConfig, VocabularyConfig
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK

SETTINGS = CorpusSettings(
    text=TextConfig(), vocabulary=VocabularyConfig(min_count=2), open_words=True, held_out=0.0
)
LINES = ("the cat sat", "the dog sat", "the cat ran", "a bird flew")


def source(path: Path, *lines: str) -> TextSource:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return TextSource([path])


def prepared(tmp_path: Path, settings: CorpusSettings = SETTINGS, *lines: str) -> Corpus:
    return prepare_corpus(tmp_path / "corpus", settings, source(tmp_path / "a.txt", *(lines or LINES)))


def texts(corpus: Corpus, part: Documents) -> list[str]:
    """The documents as words, <s> and </s> checked and left out."""
    result = []
    for ids in part:
        assert (ids[0], ids[-1]) == (BOS, EOS)
        result.append(" ".join(corpus.words[place] for place in ids[1:-1]))
    return result


def test_words_come_by_descending_count_and_only_frequent_ones_are_predicted(tmp_path: Path) -> None:
    corpus = prepared(tmp_path)
    assert texts(corpus, corpus.train) == list(LINES)
    assert len(corpus.valid) == 0
    assert corpus.words == [*SPECIALS, "the", "cat", "sat", "a", "bird", "dog", "flew", "ran"]
    assert corpus.counts.tolist() == [0, 0, 0, 0, 3, 2, 2, 1, 1, 1, 1, 1]
    assert corpus.vocabulary.words == [*SPECIALS, "the", "cat", "sat"]
    assert (corpus.n_words, corpus.n_types) == (12, 8)
    assert corpus.unknown_share == pytest.approx(5 / 12)
    limited = replace(SETTINGS, vocabulary=VocabularyConfig(min_count=1, max_words=2))
    assert prepared(tmp_path, limited).vocabulary.words == [*SPECIALS, "the", "cat"]


def test_closed_words_make_rare_ones_unknown(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, replace(SETTINGS, open_words=False))
    assert corpus.words == [*SPECIALS, "the", "cat", "sat"]
    assert texts(corpus, corpus.train)[3] == "<unk> <unk> <unk>"
    assert corpus.counts[UNK] == 5


def test_sentence_unit_makes_each_sentence_a_document_and_those_without_words_are_counted(
    tmp_path: Path,
) -> None:
    settings = replace(SETTINGS, text=TextConfig(unit="sentence", punctuation="remove"))
    corpus = prepared(tmp_path, settings, "The cat sat. The dog ran.", "!!!", "The cat ran.")
    assert texts(corpus, corpus.train) == ["The cat sat", "The dog ran", "The cat ran"]
    assert corpus.n_empty == 1


def test_held_out_texts_are_a_share_and_copies_stay_together(tmp_path: Path) -> None:
    lines = [f"the cat number {number}" for number in range(400)]
    corpus = prepared(tmp_path, replace(SETTINGS, held_out=0.25), *lines, *lines)
    train, valid = texts(corpus, corpus.train), texts(corpus, corpus.valid)
    assert sorted(train + valid) == sorted(lines + lines)
    assert not set(train) & set(valid)
    assert 0.15 < len(valid) / 800 < 0.35


def test_sentences_of_one_text_are_on_the_same_side(tmp_path: Path) -> None:
    settings = replace(SETTINGS, text=TextConfig(unit="sentence"), held_out=0.25)
    lines = [". ".join(f"The cat {number} sat {place}" for place in range(5)) for number in range(200)]
    corpus = prepared(tmp_path, settings, *lines)
    numbers = [{line.split()[2] for line in texts(corpus, part)} for part in (corpus.train, corpus.valid)]
    assert not numbers[0] & numbers[1]
    assert len(corpus.valid) == 5 * len(numbers[1])
    assert 30 < len(numbers[1]) < 70


def test_more_of_a_small_text_is_held_out(tmp_path: Path) -> None:
    lines = [f"the cat number {number}" for number in range(4000)]
    few = replace(SETTINGS, held_out=0.02)

    def n_held_out(settings: CorpusSettings, *lines: str) -> int:
        return len(prepared(tmp_path, settings, *lines).valid)

    assert n_held_out(few, *lines) < 120
    assert 0.02 < n_held_out(replace(few, min_held_out=1000), *lines) / 4000 < 0.1
    assert 0.08 < n_held_out(replace(few, min_held_out=10**6), *lines[:3999]) / 4000 < 0.12
    assert n_held_out(replace(SETTINGS, min_held_out=1000), *lines[:3998]) == 0


def test_only_training_text_decides_what_is_predicted(tmp_path: Path) -> None:
    valid = source(tmp_path / "v.txt", "zebra zebra zebra cat")
    settings = replace(SETTINGS, held_out=0.5)  # without effect if there is a validation text
    corpus = prepare_corpus(tmp_path / "corpus", settings, source(tmp_path / "a.txt", *LINES), valid)
    assert texts(corpus, corpus.train) == list(LINES)
    assert "zebra" not in corpus.vocabulary
    assert "zebra" in corpus.words
    assert texts(corpus, corpus.valid) == ["zebra zebra zebra cat"]
    assert corpus.counts[corpus.words.index("zebra")] == 0


def test_fixed_words_keep_their_places(tmp_path: Path) -> None:
    fixed = (*SPECIALS, "sat", "zebra")
    corpus = prepared(tmp_path, replace(SETTINGS, fixed=fixed))
    assert corpus.vocabulary.words == list(fixed)
    assert texts(corpus, corpus.train) == list(LINES)
    closed = prepared(tmp_path, replace(SETTINGS, fixed=fixed, open_words=False))
    assert closed.words == list(fixed)


def test_only_text_there_is_is_trained_on_even_if_its_hash_says_held_out(tmp_path: Path) -> None:
    settings = replace(SETTINGS, vocabulary=VocabularyConfig(min_count=1), held_out=0.02)
    candidates = (f"the cat number {number} saw the dog" for number in range(10_000))
    line = next(line for line in candidates if zlib.crc32(line.encode()) < 0.02 * 2**32)
    corpus = prepared(tmp_path, settings, line)
    assert texts(corpus, corpus.train) == [line]


# -- what cannot be used ----------------------------------------------------------------------


@pytest.mark.parametrize("lines", [[], ["\u200b \u200b", "\u3000\x7f"]])
def test_text_without_any_word_is_refused(tmp_path: Path, lines: list[str]) -> None:
    good, blank = source(tmp_path / "a.txt", *LINES), source(tmp_path / "b.txt", "", *lines)
    for train, valid in ((blank, None), (good, blank)):
        with pytest.raises(DataError, match=r"b\.txt\) contains no words") as caught:
            prepare_corpus(tmp_path / "corpus", SETTINGS, train, valid)
        assert caught.value.remedy
        assert not list((tmp_path / "corpus").iterdir())  # nothing half-made is left


def test_words_all_below_the_threshold_are_refused_with_the_numbers(tmp_path: Path) -> None:
    settings = replace(SETTINGS, vocabulary=VocabularyConfig(min_count=5))
    with pytest.raises(DataError, match="Only 0 of 8 distinct words occur at least 5 times") as caught:
        prepared(tmp_path, settings)
    assert "min_count" in caught.value.remedy
    with pytest.raises(DataError, match="Only 1 of 1 distinct words"):
        prepared(tmp_path, SETTINGS, "cat cat cat", "cat")


# -- made once, used again --------------------------------------------------------------------


def n_read(tmp_path: Path, settings: CorpusSettings = SETTINGS) -> int:
    """Characters that are read when the corpus is prepared again: 0 if it was ready."""
    amounts: list[int] = []
    text = TextSource([tmp_path / "a.txt"])
    corpus = prepare_corpus(tmp_path / "corpus", settings, text, progress=amounts.append)
    assert texts(corpus, corpus.train)[0] == LINES[0]
    return sum(amounts)


def test_the_same_text_and_settings_are_prepared_once_and_others_again(tmp_path: Path) -> None:
    first = prepared(tmp_path).content_hash
    assert n_read(tmp_path) == 0
    assert n_read(tmp_path, replace(SETTINGS, vocabulary=VocabularyConfig(min_count=1)))
    source(tmp_path / "a.txt", *LINES, "one more")
    assert n_read(tmp_path)
    assert load_corpus(tmp_path / "corpus").content_hash != first


@pytest.mark.parametrize("name", ["manifest.json", "words.txt", "counts.npy", "train.ids"])
@pytest.mark.parametrize("damage", ["missing", "halved"])
def test_damaged_prepared_corpus_is_prepared_again(tmp_path: Path, name: str, damage: str) -> None:
    prepared(tmp_path)
    file = tmp_path / "corpus" / name
    content = file.read_bytes()
    file.unlink()
    if damage == "halved":
        file.write_bytes(content[: len(content) // 4 * 2])
    assert n_read(tmp_path) == 2 * sum(map(len, LINES))  # counted, then encoded


def test_two_runs_that_share_a_folder_prepare_it_one_after_the_other(tmp_path: Path) -> None:
    results = list[Corpus]()

    def prepare(settings: CorpusSettings, progress: Callable[[int], object] = lambda amount: None) -> None:
        text = source(tmp_path / "text.txt", "a b a b", "a b c d")
        results.append(prepare_corpus(tmp_path / "corpus", settings, text, progress=progress))

    def interfere(amount: int) -> None:
        if not other.ident:
            other.start()
            other.join(0.5)

    other = threading.Thread(target=prepare, args=(replace(SETTINGS, open_words=False),))
    prepare(SETTINGS, interfere)
    other.join()
    assert [len(corpus.words) for corpus in results] == [len(SPECIALS) + 4, len(SPECIALS) + 2]


def test_folder_that_is_no_prepared_corpus_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    precious = tmp_path / "corpus" / "thesis.txt"
    precious.write_text("years of work", encoding="utf-8")
    with pytest.raises(ElmokitError):
        prepared(tmp_path)
    assert precious.read_text(encoding="utf-8") == "years of work"


def test_more_than_65536_distinct_words_keep_their_ids(tmp_path: Path) -> None:
    line = " ".join(f"w{number}" for number in range(70_000))
    assert prepared(tmp_path).train.values.dtype == np.uint16
    corpus = prepared(tmp_path, SETTINGS, "a a b b", line)
    assert texts(corpus, corpus.train)[1] == line


def test_other_reading_settings_are_prepared_again(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("title,body\n" + "red red blue,green green gold\n" * 4, encoding="utf-8")
    settings = replace(SETTINGS, vocabulary=VocabularyConfig(min_count=1))
    result = []
    for column in ("title", "body", "title"):
        source = TextSource([table], ReadConfig(text_columns=column))
        result.append(prepare_corpus(tmp_path / "corpus", settings, source))
    assert result[0].words[4:] == ["red", "blue"]
    assert result[1].words[4:] == ["green", "gold"]
    assert result[0].content_hash == result[2].content_hash != result[1].content_hash


def test_a_spread_takes_documents_from_everywhere() -> None:
    documents = Documents(np.arange(100, dtype=np.uint16), np.arange(0, 101, 5))
    few = documents.spread(25)
    assert few.values.tolist() == [i for start in (0, 20, 40, 60, 80) for i in range(start, start + 5)]
    assert few.n_tokens == 25
    assert documents.spread(100) is documents
