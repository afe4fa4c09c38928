from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from elmokit.core.errors import ModelError
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import PAD, SPECIALS, UNK, TextPipeline
from elmokit.text.vocabulary import Characters, Pieces, Vocabulary, WordIds, learn_bpe, learn_morphemes

WORDS = [*SPECIALS, "walk", "walked", "walking", "talk", "talked", "talking", "the"]
COUNTS = np.array([0, 0, 0, 0, 9, 8, 7, 6, 5, 4, 30], dtype=np.int64)


def pieces_of(pieces: Pieces, word: str) -> list[int]:
    row: list[int] = pieces.rows([word])[0].tolist()
    return row


# -- vocabulary -------------------------------------------------------------------------------


def test_words_have_their_places_and_others_that_of_unk() -> None:
    vocabulary = Vocabulary([*SPECIALS, "the", "cat"])
    assert len(vocabulary) == 6
    assert [vocabulary.id_of(word) for word in ("<pad>", "the", "cat", "dog")] == [PAD, 4, 5, UNK]
    assert "cat" in vocabulary
    assert "dog" not in vocabulary
    assert WordIds(vocabulary).rows(["the", "dog", "<s>"]).tolist() == [[4], [UNK], [2]]


def test_vocabulary_without_its_special_words_or_with_a_word_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="must begin with"):
        Vocabulary(["<unk>", "<pad>", "<s>", "</s>"])
    with pytest.raises(ModelError, match="twice"):
        Vocabulary([*SPECIALS, "the", "the"])


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "begin with"), (b"<pad>\n<unk>\n<s>\n</s>\ncaf\xe9\n", "utf-8")]
)
def test_damaged_vocabulary_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "vocab.txt"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=reason) as caught:
        Vocabulary.load(file)
    assert str(file) in caught.value.message


# -- rows -------------------------------------------------------------------------------------


def test_character_rows_follow_the_published_scheme() -> None:
    # Bytes between 258 and 259, padded with 260, all one up, as in the published ELMo.
    rows = Characters(8).rows(["cat", "é", "<s>", "</s>", "<pad>", ""])
    assert rows.tolist() == [
        [259, 100, 98, 117, 260, 261, 261, 261],
        [259, 196, 170, 260, 261, 261, 261, 261],
        [259, 257, 260, 261, 261, 261, 261, 261],
        [259, 258, 260, 261, 261, 261, 261, 261],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [259, 260, 261, 261, 261, 261, 261, 261],
    ]


def test_long_words_are_cut_by_byte() -> None:
    rows = Characters(5).rows(["abcdef", "aéé"])
    assert rows.tolist() == [[259, 98, 99, 100, 260], [259, 98, 196, 170, 260]]


def test_subword_rows_are_pieces_padded_with_zeros() -> None:
    model = learn_bpe(WORDS, COUNTS, 40)
    pieces = Pieces(TextPipeline(TextConfig()).tokenizer(model))
    rows = pieces.rows([*SPECIALS, "the", "walker"])
    assert rows[:4, 0].tolist() == [0, 1, 2, 3]
    assert not rows[:4, 1:].any()
    assert np.count_nonzero(rows[4]) == 1  # the most frequent word is one piece
    assert np.count_nonzero(rows[5]) > 1  # an unseen word is several
    assert rows.max() < 40
    assert set(pieces_of(pieces, "жук")) == {UNK}
    assert 0 < len(pieces_of(pieces, "walk" * 2500)) <= 100
    assert len(pieces.rows([])) == len(Characters(8).rows([])) == 0


def test_learning_pieces_again_gives_the_same_pieces() -> None:
    pipeline = TextPipeline(TextConfig())
    result = {pipeline.tokenizer(learn_bpe(WORDS, COUNTS, 40)).to_str() for _ in range(20)}
    assert len(result) == 1


def test_learning_morphemes_leaves_the_shared_random_state_alone_and_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("morfessor")
    pipeline = TextPipeline(TextConfig())
    random.seed(1)
    before = random.getstate()
    first = pipeline.tokenizer(learn_morphemes(WORDS, COUNTS)).to_str()
    assert random.getstate() == before
    random.seed(2)
    assert pipeline.tokenizer(learn_morphemes(WORDS, COUNTS)).to_str() == first
    assert capfd.readouterr() == ("", "")


def test_frequent_endings_become_morphemes_and_any_known_letter_can_be_spelled() -> None:
    pytest.importorskip("morfessor")
    tokenizer = TextPipeline(TextConfig()).tokenizer(learn_morphemes(WORDS, COUNTS))
    pieces = Pieces(tokenizer)
    assert [tokenizer.token_to_id(special) for special in SPECIALS] == [0, 1, 2, 3]
    for word in (*WORDS[4:], "hat"):
        row = pieces_of(pieces, word)
        assert UNK not in row
        assert "".join(str(tokenizer.id_to_token(place)) for place in row) == word
