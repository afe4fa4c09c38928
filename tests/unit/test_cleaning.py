from __future__ import annotations

import pytest

from elmokit.text.cleaning import normalizer
from elmokit.text.settings import PIPELINES, TextConfig


def clean(config: TextConfig, text: str) -> str:
    """The cleaned text, with single spaces: how many there are does not matter to any splitter."""
    return " ".join(str(normalizer(config).normalize_str(text)).split())


def test_plain_cleaning_keeps_case_marks_entities_and_addresses() -> None:
    text = "Don't read &quot;http://x.org/a&quot;, O'Neill: mail me@site.org!"
    assert clean(TextConfig(), text) == text


@pytest.mark.parametrize(
    ("config", "text", "cleaned"),
    [
        (TextConfig(), "a\x00b\x07c\x7fd\u200be\ufefff\u2060g\x85h", "a b c d e f g h"),
        (TextConfig(), "می\u200cخواهم 👩\u200d👧", "می\u200cخواهم 👩\u200d👧"),
        (TextConfig(), "cafe\u0301", "caf\u00e9"),
        (TextConfig(unicode="NFKC"), "ﬁne ２", "fine 2"),
        (TextConfig(unicode="none"), "cafe\u0301 ﬁ", "cafe\u0301 ﬁ"),
    ],
)
def test_control_characters_go_and_unicode_is_normalized(config: TextConfig, text: str, cleaned: str) -> None:
    assert clean(config, text) == cleaned


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("company #39;s", "company's"),
        ("company &#039;s", "company's"),
        ("&quot;yes&quot;", '"yes"'),
        ("quot;yes quot;", '"yes "'),
        ("AT&amp;T", "AT&T"),
        ("&amp;quot;yes&amp;quot;", '"yes"'),
        ("caf&eacute; &#233; &#xe9;", "café é é"),
        ("&lt;b&gt;bold&lt;/b&gt;", "bold"),
        ('<a href="x">link</a> text', "link text"),
        ("one\\two", "one two"),
        ("5 &lt; 6", "5 < 6"),
        ("one&nbsp;two&#160;three", "one two three"),
        ("wait&hellip; &#8212; so", "wait... - so"),
    ],
)
def test_mending_undoes_feed_damage(damaged: str, mended: str) -> None:
    assert clean(TextConfig(mend=True), damaged) == mended


@pytest.mark.parametrize("text", ["a < b > c", "C# 10; x", "3 <4", "R&D; AT&T", "#tag"])
def test_mending_leaves_sound_text_alone(text: str) -> None:
    assert clean(TextConfig(mend=True), text) == text


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("don't", "do not"),
        ("Won't", "will not"),
        ("it's", "it is"),
        ("let's", "let us"),
        ("you'll", "you will"),
        ("he'd", "he would"),
        ("DON'T", "do not"),
        ("WON'T", "will not"),
    ],
)
def test_contractions_are_expanded_whatever_their_case(short: str, long: str) -> None:
    assert clean(TextConfig(contractions=True), short).lower() == long


@pytest.mark.parametrize("text", ["John's", "the dogs' house", "rock'n'roll", "O'Neill"])
def test_possessives_and_names_are_no_contractions(text: str) -> None:
    assert clean(TextConfig(contractions=True), text) == text


@pytest.mark.parametrize(
    "address",
    ["http://x.org/a?b=c", "https://x.org", "ftp://x.org/f", "www.x.org/a", "first.last+tag@mail.x.org"],
)
def test_addresses_become_url(address: str) -> None:
    assert clean(TextConfig(urls=True), f"see {address} now") == "see <url> now"


@pytest.mark.parametrize("text", ["a@b", "@user", "example", "http:"])
def test_what_only_resembles_an_address_stays(text: str) -> None:
    assert clean(TextConfig(urls=True), text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("the U.S. is", "the us is"),
        ("company's", "company s"),
        ("O'Neill", "oneill"),
        ("“well-known” (so!)", "well known so"),
        ("<url> <unk> <b>", "<url> <unk> b"),
        ("!?...", ""),
        ("good 😀 day", "good day"),
    ],
)
def test_punctuation_is_removed_but_not_the_special_words(text: str, cleaned: str) -> None:
    assert clean(TextConfig(punctuation="remove", lowercase=True), text) == cleaned


@pytest.mark.parametrize("text", ["the <unk> of rome", "see <url> now"])
def test_special_words_that_stand_in_the_text_are_no_tags_to_the_classic_pipeline(text: str) -> None:
    assert clean(PIPELINES["classic"], text) == text
