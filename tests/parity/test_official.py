"""Published models of every shape, written here at random, against the numpy reference: read, converted to
our folder, and written back."""

from __future__ import annotations

import copy
import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import official_reference as reference
import pytest

import published
from elmokit import Elmo, convert, verify
from elmokit.bilm import packed_lstm
from elmokit.bilm.folder import load_bilm
from elmokit.published.official import save_official
from elmokit.text.tokenizing import SPECIALS

TOLERANCE = 1e-5
SENTENCES = [
    ["The", "cat", "sat", "on", "the", "mat", "."],
    ["naïve", "extraordinarily-long-words", "are", "cut", "日本語"],
    ["dogs"],
    ["A", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"],
    ["the", "cat", "sat"],
    [],
    ["😀", "<unk>", "U.S.", "didn't"],
]
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "The", "mat", ".", "dogs", "b"]
SHAPES: dict[str, dict[str, Any]] = {
    "residual": {},
    "not residual": {"lstm": {"use_skip_connections": False}},
    "tanh": {"char_cnn": {"activation": "tanh"}},
    "unclipped": {"lstm": {"cell_clip": None, "proj_clip": None}},
    "cells clipped": {"lstm": {"proj_clip": None}},
    "outputs clipped": {"lstm": {"cell_clip": None}},
    "without projection": {"lstm": {"dim": 4}},
    "without projection, unclipped": {"lstm": {"dim": 4, "cell_clip": None, "proj_clip": None}},
    "without projection, wide clips": {"lstm": {"dim": 4, "cell_clip": None, "proj_clip": 3}},
    "one layer": {"lstm": {"n_layers": 1}},
    "four layers": {"lstm": {"n_layers": 4}},
    "four layers, not residual, unclipped": {
        "lstm": {"n_layers": 4, "use_skip_connections": False, "cell_clip": None, "proj_clip": None}
    },
    "no highway": {"char_cnn": {"n_highway": 0}},
    "three highways": {"char_cnn": {"n_highway": 3}},
    "filters as wide as a layer": {"lstm": {"projection_dim": 12}},
    "one filter": {"char_cnn": {"filters": [[3, 6]]}},
    "seven filters": {"char_cnn": {"filters": [[n, n] for n in range(1, 8)]}},
    "fifty characters": {"char_cnn": {"max_characters_per_token": 50}},
    "seven characters": {"char_cnn": {"max_characters_per_token": 7}},
    "261 characters": {"char_cnn": {"n_characters": 261}},
}
shapes = pytest.mark.parametrize("shape", SHAPES)


@functools.cache
def model_of(shape: str) -> tuple[dict[str, Any], published.Weights]:
    options = published.options_with(**SHAPES[shape])
    return options, published.random_weights(options, seed=len(shape))


def written(shape: str, folder: Path) -> Path:
    return published.write_model(folder, *model_of(shape))


def assert_close(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


@shapes
def test_every_layer_equals_the_reference(shape: str, tmp_path: Path) -> None:
    elmo = Elmo.load(written(shape, tmp_path / "published"))
    out = elmo.embed(SENTENCES)
    assert out.tokens == SENTENCES
    assert_close(out.layers, reference.embed(SENTENCES, *model_of(shape)))


@pytest.mark.parametrize("n_rows", [1, 3])
@shapes
def test_carried_state_equals_the_reference(shape: str, n_rows: int, tmp_path: Path) -> None:
    elmo = Elmo.load(written(shape, tmp_path / "published") / "options.json")
    out = elmo.embed(SENTENCES, state="stateful", batch_size=n_rows)
    assert_close(out.layers, reference.embed(SENTENCES, *model_of(shape), n_carried=n_rows))


@shapes
def test_our_folder_gives_the_same_and_is_written_back_as_it_was(shape: str, tmp_path: Path) -> None:
    written(shape, tmp_path / "published")
    convert(tmp_path / "published", tmp_path / "ours", calibrate=[])
    assert_close(
        Elmo.load(tmp_path / "ours").embed(SENTENCES).layers, reference.embed(SENTENCES, *model_of(shape))
    )
    convert(tmp_path / "ours", tmp_path / "back", to="official")
    options, weights = model_of(shape)
    again = json.loads((tmp_path / "back" / "options.json").read_text(encoding="utf-8"))
    wanted = copy.deepcopy(options)
    wanted["char_cnn"]["n_characters"] = 262
    assert again == wanted
    found = published.read_weights(tmp_path / "back" / "weights.hdf5")
    assert found.keys() == weights.keys()
    for name, values in weights.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-7 if name.endswith("/B") else 0)
    result = verify(tmp_path / "back", tmp_path / "ours")
    assert result.passed
    assert [row.layer for row in result.differences] == 2 * list(range(options["lstm"]["n_layers"] + 1))


@pytest.mark.parametrize("shape", ["residual", "unclipped", "four layers", "without projection"])
def test_the_plain_products_give_the_same_as_the_packed_ones(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = reference.embed(SENTENCES, *model_of(shape))
    monkeypatch.setattr(packed_lstm, "packing_works", lambda: False)
    assert_close(Elmo.load(written(shape, tmp_path)).embed(SENTENCES).layers, wanted)


@pytest.mark.parametrize("n_rows", [1, 5, 7, 40])
def test_long_and_many_texts_in_several_windows(n_rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [[str(word) for word in rng.choice(WORDS[3:], size)] for size in rng.integers(1, 60, n_rows)]
    elmo = Elmo.load(written("residual", tmp_path))
    assert_close(elmo.embed(texts, batch_size=n_rows).layers, reference.embed(texts, *model_of("residual")))


# -- word input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lstm", [{}, {"dim": 4, "n_layers": 1}], ids=["projected", "not projected"])
@pytest.mark.parametrize("words", [WORDS, [*WORDS[3:], *WORDS[:3]], [*WORDS[:3], "the", *WORDS[3:]]])
def test_word_input_models_there_and_back(words: list[str], lstm: dict[str, Any], tmp_path: Path) -> None:
    options = published.word_options(lstm)
    weights = published.random_weights(options, n_words=len(words))
    vectors = {word: weights["embedding"][place].astype(np.float64) for place, word in enumerate(words)}
    wanted = reference.embed(SENTENCES, options, weights, vectors=vectors)
    published.write_model(tmp_path / "published", options, weights, words)
    assert_close(Elmo.load(tmp_path / "published").embed(SENTENCES).layers, wanted)
    convert(tmp_path / "published", tmp_path / "ours", calibrate=[])
    assert_close(Elmo.load(tmp_path / "ours").embed(SENTENCES).layers, wanted)
    convert(tmp_path / "ours", tmp_path / "back", to="official")
    lines = (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["<S>", "</S>", "<UNK>"]
    assert sorted(lines) == sorted(set(words))
    assert_close(Elmo.load(tmp_path / "back").embed(SENTENCES).layers, wanted)
    assert verify(tmp_path / "back", tmp_path / "published").passed


# -- our own models -------------------------------------------------------------------------------


def test_a_model_of_our_own_is_written_so_that_the_reference_gives_its_vectors(
    tiny_model: Path, tmp_path: Path
) -> None:
    saved = load_bilm(tiny_model)
    notes = save_official(tmp_path / "published", saved)
    assert any("predictor" in note for note in notes)
    assert any("start state" in note for note in notes)
    options = json.loads((tmp_path / "published" / "options.json").read_text(encoding="utf-8"))
    weights = published.read_weights(tmp_path / "published" / "weights.hdf5")
    words = [[saved.pipeline.word(word) for word in row if word not in SPECIALS] for row in SENTENCES]
    assert_close(Elmo(saved).embed(words).layers, reference.embed(words, options, weights))
    lines = (tmp_path / "published" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["<S>", "</S>", "<UNK>", *saved.vocabulary.words[len(SPECIALS) :]]


# -- the published fixture ------------------------------------------------------------------------


@pytest.fixture
def fixture_folder() -> Path:
    root = os.environ.get("ELMOKIT_DATA")
    folder = Path(root or "") / "elmo_reference" / "bilm_tf"
    if not root or not folder.is_dir():
        pytest.skip("set ELMOKIT_DATA to a folder that holds elmo_reference")
    return folder


def test_the_published_activations_are_met_by_both_paths(fixture_folder: Path, tmp_path: Path) -> None:
    convert(fixture_folder, tmp_path / "ours", calibrate=[])
    for model in (fixture_folder, fixture_folder / "options.json", tmp_path / "ours"):
        found = verify(model, fixture_folder)
        assert found.passed
        assert found.n_sentences == 30
        assert found.batch_size == 3
        assert [(row.path, row.layer) for row in found.differences] == [
            ("characters", 2),
            ("cached tokens", 2),
        ]
        for row in found.differences:
            assert row.absolute <= 1e-6
            assert row.relative <= 1e-6


def test_zero_state_does_not_meet_the_published_activations(fixture_folder: Path) -> None:
    found = verify(fixture_folder, fixture_folder, state="zero")
    assert not found.passed
    assert found.differences[0].absolute > 0.5


def test_the_reference_here_meets_the_published_activations(fixture_folder: Path) -> None:
    options = json.loads((fixture_folder / "options.json").read_text(encoding="utf-8"))
    weights = published.read_weights(fixture_folder / "lm_weights.hdf5")
    lists = json.loads((fixture_folder / "lm_embeddings_sentences.json").read_text(encoding="utf-8"))
    sentences = [rows[index].split() for index in range(4) for rows in lists]
    found = reference.embed(sentences, options, weights, n_carried=3)
    for place, layers in enumerate(found):
        theirs = published.read_weights(fixture_folder / f"lm_embeddings_{place % 3}.hdf5")[str(place // 3)]
        np.testing.assert_allclose(layers[:, 2], np.concatenate(list(theirs), axis=1), atol=2e-6)
