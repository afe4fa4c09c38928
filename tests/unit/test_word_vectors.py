"""Word vectors: words looked up, neighbors and analogies; their folder; as an Encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from elmokit.core.config import DropoutConfig
from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.core.model_folder import kind_of, load
from elmokit.core.tensors import save_tensors
from elmokit.static.word_vectors import UNKNOWN_WORDS, WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK
from elmokit.vectors.encoder import Encoder
from folders import drop_checksums

TEXT = TextConfig(lowercase=True)
WORDS = ["king", "queen", "man", "woman", "apple"]
ROWS = np.array([[3.0, 1.0, 0.1], [3.0, -1.0, 0.0], [1.0, 1.0, 0.0], [1.0, -1.1, 0.0], [0.0, 0.1, 5.0]])
TRAINING = {
    "method": "svd",
    "settings": {"dim": 3},
    "corpus": {"files": ["a|b.txt"], "n_words": 1000, "n_documents": 20, "unknown_share": 0.125},
    "date": "2024-01-01",
    "command": "elmokit baseline ß",
    "seconds": 1.5,
}


@pytest.fixture
def table() -> WordVectors:
    return WordVectors.of(WORDS, ROWS, TEXT)


# -- the table ------------------------------------------------------------------------------------


def test_special_words_come_first_and_without_a_row_for_unknown_words_they_get_the_mean(
    table: WordVectors,
) -> None:
    assert table.vocabulary.words == [*SPECIALS, *WORDS]
    assert (len(table), table.n_words, table.dim) == (9, 5, 3)
    np.testing.assert_allclose(table.look_up(WORDS), ROWS, rtol=1e-6)
    np.testing.assert_allclose(table.vectors[UNK], ROWS.mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(table.look_up(["banana"])[0], table.vectors[UNK])
    assert not table.vectors[[PAD, BOS, EOS]].any()


@pytest.mark.parametrize("name", UNKNOWN_WORDS)
def test_a_row_for_unknown_words_is_used_whatever_its_name(name: str) -> None:
    table = WordVectors.of(["a", name, "b"], [[1, 0], [5, 5], [0, 1]], TEXT)
    assert table.vocabulary.words == [*SPECIALS, "a", "b"]
    assert table.look_up(["c"])[0].tolist() == table.look_up([name])[0].tolist() == [5, 5]


def test_of_several_such_rows_the_first_name_counts() -> None:
    table = WordVectors.of(["UNK", "unk", "</s>", "<unk>"], [[1], [2], [3], [4]], TEXT)
    assert table.vocabulary.words == [*SPECIALS, "UNK", "unk"]
    assert table.vectors.ravel().tolist() == [0, 4, 0, 3, 1, 2]  # </s> is not a row for unknown words


def test_special_words_in_a_text_are_unknown_words(table: WordVectors) -> None:
    vectors = table.look_up([*SPECIALS, "king"])
    assert (vectors[:4] == table.vectors[UNK]).all()
    assert "king" in table
    assert not any(word in table for word in (*SPECIALS, "King", "banana"))
    assert table.look_up([]).shape == (0, 3)


def test_neighbors_are_ranked_by_cosine_without_the_word_itself(table: WordVectors) -> None:
    neighbors = table.neighbors("king", 10)
    units = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    expected = sorted(zip(units[1:] @ units[0], WORDS[1:], strict=True), reverse=True)
    assert [word for word, _ in neighbors] == [word for _, word in expected]
    np.testing.assert_allclose([score for _, score in neighbors], [score for score, _ in expected], rtol=1e-5)
    assert table.neighbors("KING", 1) == neighbors[:1]
    assert table.similarity("king", "Man") == pytest.approx(units[0] @ units[2])


def test_an_analogy_leaves_its_own_words_out(table: WordVectors) -> None:
    assert table.analogy("man", "king", "woman", 2)[0][0] == "queen"
    assert {word for word, _ in table.analogy("man", "king", "woman")} == {"queen", "apple"}


def test_words_without_a_vector_are_named_with_similar_ones(table: WordVectors) -> None:
    with pytest.raises(DataError, match="no vector for 'quen'") as caught:
        table.neighbors("quen")
    assert "queen" in caught.value.remedy
    with pytest.raises(ConfigError, match="k = 0"):
        table.neighbors("king", 0)


def test_the_fingerprint_changes_with_anything_that_counts(table: WordVectors) -> None:
    same = WordVectors.of(WORDS, ROWS, TEXT, {"method": "svd"})
    assert same.fingerprint == table.fingerprint
    others = [
        WordVectors.of(WORDS, ROWS + 0.01, TEXT),
        WordVectors.of(WORDS[::-1], ROWS, TEXT),
        replace(table, text=TextConfig()),
    ]
    assert len({table.fingerprint, *(other.fingerprint for other in others)}) == 4


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["a"], [[1], [2]]),
        (["a", "a"], [[1], [2]]),
        ([], np.empty((0, 2))),
        (["a"], [1.0]),
        (["a"], [[]]),
        (["a"], [[np.inf]]),
    ],
    ids=["too few words", "a word twice", "empty", "flat", "no width", "infinite"],
)
def test_words_and_rows_that_do_not_fit_are_refused(words: list[str], rows: Any) -> None:
    with pytest.raises(ModelError, match="do not make word vectors"):
        WordVectors.of(words, rows, TEXT)


# -- an Encoder -----------------------------------------------------------------------------------


def test_the_layer_has_the_standardized_vectors_and_zeros_past_the_end(table: WordVectors) -> None:
    encoder: Encoder = table
    standard = table.standardize()
    own = standard.look_up(WORDS)
    np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-6)
    assert own.std() == pytest.approx(1, rel=1e-5)
    assert not standard.vectors[[PAD, BOS, EOS]].any()
    words = [["king", "apple"], ["man"], [], ["xyzzy", "<pad>"]]
    layers = encoder.batch(words)
    assert [tuple(layer.shape) for layer in layers.values] == [(4, 2, 3)]
    assert layers.mask.tolist() == [[True, True], [True, False], [True, False], [True, True]]
    for place, row in enumerate(words):
        np.testing.assert_array_equal(layers.values[0][place, : len(row)], standard.look_up(row))
        assert not layers.values[0][place, len(row) :].any()
    ids = encoder.to_ids(words)
    for some in (ids, encoder.precompute(ids)):
        assert torch.equal(encoder.layers(some, np.array([3, 0])).values[0], layers.values[0][[3, 0]])
    np.testing.assert_allclose(encoder.sentences(["king apple", ""])[0], standard.look_up(words[0]).mean(0))
    assert not encoder.sentences(["king apple", ""])[1].any()


@pytest.mark.parametrize("key", ["standardized", "levelled"])  # the second is that of 0.1
def test_a_standardized_table_stays_as_it_is(table: WordVectors, key: str) -> None:
    assert table.standardize().standardize().training == {"standardized": True}
    old = replace(table, training={key: True})
    assert old.standardize() is old
    np.testing.assert_array_equal(old.module.weight, old.vectors)


def test_training_a_copy_changes_its_vectors_only(table: WordVectors) -> None:
    copy = table.copy()
    assert copy.training == {"standardized": True, "fine_tuned": True}
    assert [name for group in copy.unfreezing_order() for name in group] == [
        name for name, _ in copy.module.named_parameters()
    ]
    copy.module.weight.mul_(2)
    np.testing.assert_array_equal(copy.vectors, 2 * table.standardize().vectors)
    np.testing.assert_array_equal(table.module.weight, table.standardize().vectors)
    np.testing.assert_array_equal(copy.copy().vectors, copy.vectors)


def test_dropout_needs_a_generator(table: WordVectors) -> None:
    ids, rows = table.to_ids([WORDS * 10]), np.arange(1)
    rates = DropoutConfig(dropout_word=0.5, dropout_input=0.0)
    assert torch.equal(table.layers(ids, rows, dropout=rates).values[0], table.layers(ids, rows).values[0])
    dropped = table.layers(ids, rows, dropout=rates, rng=torch.Generator().manual_seed(0)).values[0]
    blank = (dropped == 0).all(dim=2)
    assert 10 < blank.sum() < 40


# -- a folder -------------------------------------------------------------------------------------


def make(seed: int = 0) -> WordVectors:
    words = ["the", "cat", "naïve", "日本", "<url>", "1,000", '"', "n't"]
    rows = np.random.default_rng(seed).normal(size=(len(words), 5))
    return WordVectors.of(words, rows, TextConfig(lowercase=True, punctuation="keep"), TRAINING)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make().save(tmp_path / "vectors")
    return tmp_path / "vectors"


def test_saved_vectors_are_loaded_to_the_bit(saved: Path) -> None:
    loaded, expected = load(saved), make()
    assert isinstance(loaded, WordVectors)
    assert loaded.fingerprint == expected.fingerprint
    assert np.array_equal(loaded.vectors, expected.vectors)
    assert (loaded.text, loaded.training) == (expected.text, TRAINING)
    assert kind_of(saved) == "word-vectors"
    assert {file.name for file in saved.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md",
    }  # fmt: skip
    tokenizer = Tokenizer.from_file(str(saved / "tokenizer.json"))
    assert tokenizer.encode("The naïve 日").ids == [4, 6, UNK]
    make(seed=1).save(saved)
    assert WordVectors.load(saved).fingerprint == make(seed=1).fingerprint


def test_the_facts_and_the_card_say_what_it_is(saved: Path) -> None:
    facts = WordVectors.load(saved).facts()
    rows = dict(facts.rows)
    assert rows["method"] == "SVD of co-occurrences"
    assert rows["vectors"] == "8 words, 5 dimensions; the same in every context"
    assert rows["corpus"] == "1,000 words in 20 texts (a|b.txt)"
    assert (rows["settings"], rows["made by"]) == ("dim 3", "elmokit baseline ß")
    values = json.loads(json.dumps(facts.values))
    assert (values["kind"], values["n_words"], values["dim"]) == ("word-vectors", 8, 5)
    assert "| corpus | 1,000 words in 20 texts (a\\|b.txt) |" in (saved / "README.md").read_text("utf-8")
    imported = replace(make(), training={"method": "import", "file": "x.txt", "licence": "CC0"}).facts()
    assert {("license", "CC0"), ("method", "imported")} <= set(imported.rows)


def _change_record(saved: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    change(record)
    (saved / "config.json").write_text(json.dumps(record), encoding="utf-8")


def _fill(saved: Path, value: float) -> None:
    save_tensors(saved / "model.safetensors", {"vectors": torch.full((12, 5), value)}, {})


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda f: _change_record(f, lambda r: r.pop("dim")), "config.json is damaged: 'dim'"),
        (lambda f: _change_record(f, lambda r: r.update(n_words=13)), "vocab.txt has 12 words"),
        (lambda f: _change_record(f, lambda r: r.update(dim=4)), r"safetensors: vectors has shape \(12, 5\)"),
        (lambda f: _fill(f, torch.nan), "safetensors: .* finite"),
    ],
)
def test_every_damage_is_an_error_that_names_the_file(
    saved: Path, damage: Callable[[Path], object], error: str
) -> None:
    damage(saved)
    with pytest.raises(ModelError, match="is damaged: its checksum"):
        WordVectors.load(saved)
    drop_checksums(saved)
    with pytest.raises(ModelError, match=error) as caught:
        WordVectors.load(saved)
    assert caught.value.remedy
