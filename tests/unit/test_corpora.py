from __future__ import annotations

import csv
from collections import Counter

from elmokit.corpora import mini_news
from elmokit.text.tokenizing import split_sentences


def test_the_bundled_corpus_is_labelled_balanced_and_without_copies() -> None:
    with open(mini_news(), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert Counter(row["topic"] for row in rows) == dict.fromkeys(
        ("world", "sports", "business", "science"), 170
    )
    found = [sentence for row in rows for sentence in split_sentences(row["text"])]
    assert len(found) >= 1_000
    assert len({row["text"] for row in rows}) == len(rows)
    assert len(set(found)) == len(found)


def test_words_that_change_sense_stand_in_several_topics() -> None:
    topics: dict[str, set[str]] = {}
    with open(mini_news(), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for word in row["text"].lower().split():
                topics.setdefault(word.strip(".,;:'\""), set()).add(row["topic"])
    for word in ("bank", "pitch", "strike", "cell", "court", "apple", "match", "charge", "current", "plant"):
        assert len(topics[word]) >= 2, word
