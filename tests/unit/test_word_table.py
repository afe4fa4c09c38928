"""Word tables: rounding, unknown words, sums, folders; and what reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.bilm.folder import save_bilm
from elmokit.bilm.word_table import WordTable, gram_rows

FORMS = ["the", "cat", "it's", "dog"]


def make_table(dim: int = 8) -> WordTable:
    rng = np.random.default_rng(0)
    vectors, grams = rng.normal(size=(4, dim)), rng.normal(size=(50, dim))
    return WordTable.from_vectors(
        FORMS, np.array([9, 5, 2, 1]), vectors.astype(np.float32), grams.astype(np.float32)
    )


def test_rounding_to_four_bits_is_within_half_a_step() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    table = WordTable.from_vectors([f"w{i}" for i in range(40)], np.ones(40, dtype=np.int64), vectors)
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 7
    assert (np.abs(table(torch.arange(1, 41)).numpy() - vectors) <= 0.502 * steps).all()
    assert not table(torch.tensor([0])).any()


def test_words_are_found_by_form_and_spelled_otherwise() -> None:
    table = make_table()
    cat, shouted, quoted, unknown, special = table.vectors(["cat", "CAT", "it’s", "catfish", "<s>"])
    assert torch.equal(cat, shouted)
    assert torch.equal(quoted, table(torch.tensor([3]))[0])
    rows = torch.from_numpy(gram_rows("catfish", 50)) + 1 + len(FORMS)
    torch.testing.assert_close(unknown, table(rows).mean(dim=0))
    assert special.isfinite().all()


def test_a_sentence_is_the_normalized_sum_of_its_words_whatever_stands_beside_it() -> None:
    table = make_table()
    texts = [["the", "cat"], [], ["a", "catfish"]]
    together = table.sentences(texts)
    expected = torch.nn.functional.normalize(table.vectors(["the", "cat"]).sum(dim=0), dim=0)
    np.testing.assert_allclose(together[0], expected.numpy(), atol=1e-6)
    assert not together[1].any()
    for text, row in zip(texts, together, strict=True):
        assert np.array_equal(table.sentences([text])[0], row)


def test_a_table_comes_back(tmp_path: Path) -> None:
    table = make_table()
    assert WordTable.load(tmp_path, "words") is None
    table.save(tmp_path, "words")
    back = WordTable.load(tmp_path, "words")
    assert back is not None
    assert back.forms == FORMS
    assert np.array_equal(back.counts, table.counts)
    words = ["the", "cat", "heron"]
    assert torch.equal(back.vectors(words), table.vectors(words))


def test_characters_with_a_word_table_can_be_pretrained_from_static_vectors_and_from_a_table(
    tmp_path: Path,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat .\nA dog ran to the cat .\n" * 30, encoding="utf-8")
    small: dict[str, Any] = {"dim": 8, "hidden_dim": 8, "filters": ((1, 4), (2, 4)), "max_steps": 3}
    elmokit.baseline("svd", [text], tmp_path / "svd", dim=6)
    elmokit.pretrain([text], tmp_path / "a", "tiny", words_from=tmp_path / "svd", lr=0.0, **small)
    first, svd = elmokit.load(tmp_path / "a"), elmokit.load(tmp_path / "svd")
    assert isinstance(first, elmokit.Elmo)
    assert isinstance(svd, elmokit.WordVectors)
    assert not first.has_sentence_vector
    assert first.model.config.table_dim == 6
    rows = first.folder.features.rows(["cat", "dog"])[:, 0]
    table: Any = first.model.encoder.table
    places = [svd.vocabulary.words.index(word) for word in ("cat", "dog")]
    np.testing.assert_array_equal(table.weight[rows].detach(), svd.vectors[places])
    with_table = tmp_path / "with table"
    save_bilm(with_table, replace(first.folder, word_table=make_table()))
    elmokit.pretrain([text], tmp_path / "c", "tiny", words_from=with_table, **small)
    third = elmokit.load(tmp_path / "c")
    assert isinstance(third, elmokit.Elmo)
    assert third.sentences(["the cat", "a heron"]).shape == (2, 8)
    assert third.embed(["the cat sat"]).layer(1)[0].shape == (3, 16)
    weights = third.sif_weights([["the", "cat", "heron"]])
    assert weights[0] < weights[1] < weights[2]
    save_bilm(tmp_path / "d", replace(third.folder, word_table=make_table(4)))  # another sentence vector
    fourth = elmokit.load(tmp_path / "d")
    assert isinstance(fourth, elmokit.Elmo)
    assert np.array_equal(fourth.embed(["a cat"]).layer(2)[0], third.embed(["a cat"]).layer(2)[0])
    assert fourth.sentences(["the cat"]).shape == (1, 4)
    with pytest.raises(elmokit.ElmokitError, match="no word vectors"):
        elmokit.pretrain([text], tmp_path / "b", "tiny", words_from=tmp_path / "a", **small)
