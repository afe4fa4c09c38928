"""From files to vectors on disk: what is kept, under which ids, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from elmokit.core.errors import ConfigError, DataError, ModelError, RunError
from elmokit.text.settings import ReadConfig
from elmokit.vectors import store_writer
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import POOLINGS
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_writer import embed
from odd_texts import TEXTS, make_model


def expected(elmo: Elmo, config: StoreConfig, texts: list[str] = TEXTS) -> Any:
    found = elmo.embed(texts, state=config.state)
    layers = [found.flat[:, layer] for layer in range(found.n_layers)]
    if config.pool != "none":
        layers = [found.sentence(config.pool, layer=layer) for layer in range(found.n_layers)]
        if not config.all_layers:
            return found.sentence(config.pool, layer=config.layer, weights=config.weights)
    if config.all_layers:
        return np.stack(layers, axis=1)
    if config.layer is not None:
        return layers[config.layer]
    weights = config.weights or [1 / len(layers)] * len(layers)
    return sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


# -- what is kept ---------------------------------------------------------------------------------

KEPT: list[dict[str, Any]] = [
    {},
    {"layer": 0},
    {"layer": -1, "state": "warm"},
    {"mix_weights": "0.2,0.3,0.5"},
    {"all_layers": True},
    *({"pool": pool} for pool in POOLINGS),
    {"pool": "max", "layer": 1},
    {"pool": "sif", "mix_weights": "1,-1,0"},
    {"pool": "mean", "all_layers": True, "state": "warm"},
]


@pytest.mark.parametrize("settings", KEPT, ids=str)
@pytest.mark.parametrize("format", ["npy", "safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_on_disk_are_those_of_embed(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, settings: dict[str, Any], format: str, dtype: str
) -> None:
    config = StoreConfig.from_dict({**settings, "format": format, "dtype": dtype})
    result = embed(elmo, odd_corpus, tmp_path / "store", config=config)
    store = VectorStore.open(tmp_path / "store")
    wanted = expected(elmo, config)
    assert store.vectors.dtype == np.dtype(dtype)
    assert store.vectors.shape == wanted.shape
    np.testing.assert_allclose(
        store.vectors,
        wanted,
        rtol=1e-5 if dtype == "float32" else 2e-3,
        atol=1e-5 if dtype == "float32" else 1e-3,
    )
    words = elmo.words(TEXTS)
    assert list(store.words) == words
    assert list(store.texts) == TEXTS
    assert store.ids == [str(number) for number in range(len(TEXTS))]
    assert (len(store), store.dim, store.config) == (len(TEXTS), elmo.dim, config)
    assert store.fingerprint == elmo.fingerprint
    assert (result.n_texts, result.n_vectors, result.n_empty) == (len(TEXTS), len(wanted), 1)
    assert result.n_words == sum(map(len, words))
    assert result.n_bytes == (tmp_path / "store" / f"vectors.{format}").stat().st_size
    if config.pool == "none":
        assert [len(store[i]) for i in range(len(store))] == [len(row) for row in words]
        assert np.array_equal(store[-1], store.vectors[-len(words[-1]) :])
    else:
        assert np.array_equal(store[3], store.vectors[3])
        assert not np.any(store[4])  # the text without a word
    with pytest.raises(IndexError):
        store[len(TEXTS)]


def test_files_can_be_read_by_numpy_and_safetensors_alone(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path
) -> None:
    embed(elmo, odd_corpus, tmp_path / "a")
    embed(elmo, odd_corpus, tmp_path / "b", config=StoreConfig(format="safetensors"))
    plain = np.load(tmp_path / "a" / "vectors.npy", mmap_mode="r", allow_pickle=False)
    offsets = np.load(tmp_path / "a" / "offsets.npy", allow_pickle=False)
    assert np.array_equal(load_file(tmp_path / "b" / "vectors.safetensors")["vectors"], plain)
    assert np.array_equal(np.diff(offsets), [len(words) for words in elmo.words(TEXTS)])
    assert plain.offset % 64 == 0


def test_a_corpus_of_many_chunks_and_empty_texts_only(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_NUMBERS", 20 * elmo.n_layers * elmo.dim)
    texts = [TEXTS[i % len(TEXTS)] + f" {i}" for i in range(150)]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    embed(elmo, path, tmp_path / "store")
    np.testing.assert_allclose(
        VectorStore.open(tmp_path / "store").vectors,
        expected(elmo, StoreConfig(), texts),
        rtol=1e-4,
        atol=1e-5,
    )
    path.write_text('{"text": ""}\n{"text": " "}\n', encoding="utf-8")
    for pool, shape in (("none", (0, elmo.dim)), ("mean", (2, elmo.dim))):
        result = embed(elmo, path, tmp_path / pool, config=StoreConfig.from_dict({"pool": pool}))
        store = VectorStore.open(tmp_path / pool)
        assert (result.n_empty, store.vectors.shape) == (2, shape)
        assert not store.vectors.any()


def test_a_word_model_embeds_unknown_words_too(odd_corpus: Path, tmp_path: Path) -> None:
    words = Elmo(make_model(input="word"))
    embed(words, odd_corpus, tmp_path / "store")
    np.testing.assert_allclose(
        VectorStore.open(tmp_path / "store").vectors, expected(words, StoreConfig()), rtol=1e-5, atol=1e-6
    )


# -- ids ------------------------------------------------------------------------------------------


def test_ids_come_from_a_column_of_any_format(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("key,text\nk1,the bank\nk2,a river\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"key": 7, "text": "x"}\n{"key": 8.0, "text": ""}\n', encoding="utf-8")
    config = StoreConfig(id_column="key")
    embed(elmo, [tmp_path / "a.csv", tmp_path / "b.jsonl"], tmp_path / "store", config=config)
    assert VectorStore.open(tmp_path / "store").ids == ["k1", "k2", "7", "8"]
    (tmp_path / "bare.csv").write_text("k1,the bank\nk2,a river\n", encoding="utf-8")
    read = ReadConfig(text_columns="2")
    embed(elmo, tmp_path / "bare.csv", tmp_path / "bare", config=StoreConfig(id_column="1"), read=read)
    assert VectorStore.open(tmp_path / "bare").ids == ["k1", "k2"]


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        ("a.csv", "key,text\nk1,x\n", "kee", "kee"),
        ("a.csv", "key,text\nk1,x\n", "3", "3"),
        ("a.csv", "key,text\n,x\n", "key", "line 2"),
        ("a.jsonl", '{"key": 1, "text": "x"}\n{"text": "y"}\n', "key", "line 2"),
        ("a.jsonl", '{"key": null, "text": "x"}\n', "key", "holds no id"),
        ("a.jsonl", '{"key": [1], "text": "x"}\n', "key", "holds no id"),
        ("a.jsonl", '{"key": 1, "text": "x"}\n', "1", "'1'"),
        ("a.txt", "x\n", "key", "plain text"),
    ],
)
def test_an_id_that_cannot_be_had_is_named_and_nothing_is_left_behind(
    elmo: Elmo, tmp_path: Path, name: str, text: str, column: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        embed(elmo, tmp_path / name, tmp_path / "store", config=StoreConfig(id_column=column))
    assert caught.value.remedy
    assert not (tmp_path / "store").exists()


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 1, "mix_weights": "1,1,1"}, "exclude"),
        ({"layer": 0, "all_layers": True}, "exclude"),
        ({"mix_weights": "1,x,1"}, "numbers"),
        ({"mix_weights": "1,nan,1"}, "numbers"),
        ({"mix_weights": "1,1"}, "2 weights"),
        ({"layer": 3}, "no layer 3"),
        ({"layer": -4}, "no layer -4"),
        ({"pool": "median"}, "median"),
        ({"dtype": "int8"}, "int8"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_written(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        embed(elmo, odd_corpus, tmp_path / "store", config=StoreConfig.from_dict(settings))
    with pytest.raises(ConfigError, match="pickle"):
        embed(elmo, odd_corpus, tmp_path / "store", exports=["pickle"])
    assert not (tmp_path / "store").exists()


def test_a_warm_start_needs_a_model_that_has_one(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    cold = Elmo(replace(elmo.folder, start_state=None))
    with pytest.raises(ModelError, match="start state"):
        embed(cold, odd_corpus, tmp_path / "store", config=StoreConfig(state="warm"))
    assert not (tmp_path / "store").exists()


def test_a_corpus_without_a_text_is_refused(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no text"):
        embed(elmo, tmp_path / "empty.txt", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_numbers_too_large_for_float16_are_refused(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="float16"):
        embed(
            elmo,
            odd_corpus,
            tmp_path / "store",
            config=StoreConfig(mix_weights="1e9,1e9,1e9", dtype="float16"),
        )
