"""A look at the real data sets, where they are at hand (ELMOKIT_DATA)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elmokit import ReadConfig
from elmokit.text.rows import TextSource
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline

_ROOT = os.environ.get("ELMOKIT_DATA")


def _file(name: str) -> Path:
    if not _ROOT or not (Path(_ROOT) / name).exists():
        pytest.skip(f"set ELMOKIT_DATA to a folder that holds {name}")
    return Path(_ROOT) / name


def test_our_part_of_ag_news_is_read_whole_and_mended() -> None:
    source = TextSource([_file("ag_news/train_partial.csv.gz")], ReadConfig(text_columns="2,3"))
    texts = list(source)
    assert len(texts) == 73_106  # of the 120,000 in the full train file
    damaged = [text for text in texts[:5_000] if "#39;" in text or "&lt;" in text or "\\" in text]
    assert len(damaged) > 100
    pipeline = TextPipeline(TextConfig(mend=True))
    for text in damaged:
        words = pipeline.words(text)
        assert "39" not in words or "#39;" not in text
        assert not {"lt", "gt", "quot", "\\"} & set(words)


def test_wikitext_is_read_as_it_was_tokenised() -> None:
    pipeline = TextPipeline(TextConfig(tokens="whitespace"))
    words = [word for text in TextSource([_file("wikitext2/test.txt.gz")]) for word in pipeline.words(text)]
    # The published 241,211 words, less the empty lines: nothing was split or lost.
    assert "<unk>" in words
    assert "@-@" in words
    assert len(words) == 241_211
