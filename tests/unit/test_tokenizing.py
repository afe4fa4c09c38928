from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.core.errors import ModelError
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, UNK, TextPipeline, encode, load_tokenizer, split_sentences

PLAIN = TextPipeline(TextConfig())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S. team.", ["The", "U.S.", "team", "."]),
        ("I can't, don’t", ["I", "ca", "n't", ",", "do", "n’t"]),
        ("company's they'll", ["company", "'s", "they", "'ll"]),
        ("O'Neill rock'n'roll", ["O'Neill", "rock'n'roll"]),
        ("well-known -- so...", ["well-known", "--", "so", "..."]),
        ("1,000.50 at 10:30 on 1/2", ["1,000.50", "at", "10:30", "on", "1/2"]),
        ("the 1980s, 3rd \ud83d", ["the", "1980s", ",", "3rd", "\ufffd"]),
        ("日本 カナ", ["日", "本", "カ", "ナ"]),
        ("हिन्दी है", ["हिन्दी", "है"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("👩\u200d👩\u200d👧👍🏽 ok", ["👩\u200d👩\u200d👧", "👍🏽", "ok"]),
        ("a <unk> <url>", ["a", "<unk>", "<url>"]),
        ("", []),
    ],
)
def test_words_are_found_by_rule(text: str, words: list[str]) -> None:
    assert PLAIN.words(text) == words


def test_whitespace_tokens_trust_the_spaces() -> None:
    pipeline = TextPipeline(TextConfig(tokens="whitespace"))
    assert pipeline.words("U.S. don't\t(well)  end.") == ["U.S.", "don't", "(well)", "end."]


def test_encode_gives_unk_for_control_words_in_the_text() -> None:
    pipeline = TextPipeline(TextConfig(tokens="whitespace"))
    tokenizer = pipeline.word_tokenizer([*SPECIALS, "a"])
    encoded = encode(tokenizer, ["<s> a </s> <pad> <unk>", "", "a", "  "])
    assert [ids.tolist() for ids in encoded] == [[UNK, 4, UNK, UNK, UNK], [], [4], []]


@pytest.mark.parametrize(
    ("texts", "at_most", "min_count", "words"),
    [
        (["b a c", "c b d", "c"], 100, 1, ["c", "b", "a", "d"]),
        (["a a a b b c"], 100, 2, ["a", "b"]),
        (["a a a b b c"], 1, 1, ["a"]),
        (["<unk> <unk> a"], 100, 1, ["a"]),
    ],
)
def test_frequent_words_come_by_descending_count_then_spelling(
    texts: list[str], at_most: int, min_count: int, words: list[str]
) -> None:
    assert PLAIN.frequent_words(texts, at_most=at_most, min_count=min_count) == [*SPECIALS, *words]


def test_a_megabyte_without_a_space_is_one_word() -> None:
    assert PLAIN.words("x" * 1_000_000) == ["x" * 1_000_000]


@pytest.mark.parametrize("content", [None, "", '{"version": "1.0"}'])
def test_a_damaged_or_missing_tokenizer_file_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read as a tokenizer file") as caught:
        load_tokenizer(file)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One ran. Two sat! Three? Yes", ["One ran.", "Two sat!", "Three?", "Yes"]),
        ("Mr. Fox met Dr. Ox. They ran.", ["Mr. Fox met Dr. Ox.", "They ran."]),
        ("J. K. Rowling wrote. It sold.", ["J. K. Rowling wrote.", "It sold."]),
        ("The U.S. Army won. Good.", ["The U.S. Army won.", "Good."]),
        ("It cost $3.50. Cheap.", ["It cost $3.50.", "Cheap."]),
        ("Wait... what? No!!! Yes.", ["Wait... what?", "No!!!", "Yes."]),
        ('"Why?" he asked. (So.) Then "Go." Fine.', ['"Why?" he asked.', "(So.)", 'Then "Go."', "Fine."]),
        ("本当。はい！え？", ["本当。", "はい！", "え？"]),
        ("", []),
        ("...", ["..."]),
        ("He works at Acme Inc.", ["He works at Acme Inc."]),
        ("It was 1984. He was 12.5. Then it ended.", ["It was 1984.", "He was 12.5.", "Then it ended."]),
    ],
)
def test_split_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences
