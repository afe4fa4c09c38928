from __future__ import annotations

import pytest

from elmokit.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One ran. Two sat! Three? Yes", ["One ran.", "Two sat!", "Three?", "Yes"]),
        ("Mr. Fox met Dr. Ox. They ran.", ["Mr. Fox met Dr. Ox.", "They ran."]),
        ("J. K. Rowling wrote. It sold.", ["J. K. Rowling wrote.", "It sold."]),
        ("The U.S. Army won. Good.", ["The U.S. Army won.", "Good."]),
        ("It cost $3.50. Cheap.", ["It cost $3.50.", "Cheap."]),
        ("See example.org for more. Now.", ["See example.org for more.", "Now."]),
        ("Wait... what? No!!! Yes.", ["Wait... what?", "No!!!", "Yes."]),
        ('"Why?" he asked. (So.) Then "Go." Fine.', ['"Why?" he asked.', "(So.)", 'Then "Go."', "Fine."]),
        ("本当。はい！え？", ["本当。", "はい！", "え？"]),
        ("क्या। हाँ।", ["क्या।", "हाँ।"]),
        ("no end at all", ["no end at all"]),
        ("", []),
        (" \n\t ", []),
        ("...", ["..."]),
    ],
)
def test_text_is_cut_into_sentences(text: str, found: list[str]) -> None:
    assert sentences(text) == found


def test_a_text_that_ends_in_an_abbreviation_ends_a_sentence() -> None:
    assert sentences("He works at Acme Inc.") == ["He works at Acme Inc."]


def test_a_number_that_ends_a_sentence_is_no_abbreviation() -> None:
    assert sentences("It was 1984. He was 12.5. Then it ended.") == [
        "It was 1984.",
        "He was 12.5.",
        "Then it ended.",
    ]
