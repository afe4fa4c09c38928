"""From files to vectors on disk: what is stored and refused, and the same bytes however often it stops."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from elmokit.core.errors import DataError, ModelError, RunError
from elmokit.vectors import store, store_writer
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_writer import embed
from odd_texts import TEXTS, contents, make_model


def expected(elmo: Elmo, config: StoreConfig, texts: list[str] = TEXTS) -> Any:
    out = elmo.embed(texts, state=config.state)
    assert config.pool != "sentence"
    if config.pool == "none":
        layers = [out.flat[:, layer] for layer in range(out.n_layers)]
    else:
        layers = [out.sentence(config.pool, layer=layer) for layer in range(out.n_layers)]
    if config.all_layers:
        return np.stack(layers, axis=1)
    if config.layer is not None:
        return layers[config.layer]
    if config.pool != "none":
        return out.sentence(config.pool, weights=config.weights)
    weights = config.weights or [1 / len(layers)] * len(layers)
    return sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


# -- what is kept ---------------------------------------------------------------------------------

HALF = {"format": "safetensors", "dtype": "float16"}
KEPT: list[dict[str, Any]] = [
    {},
    {"layer": -1, "state": "warm", **HALF},
    {"mix_weights": "0.2,0.3,0.5"},
    {"all_layers": True, **HALF},
    {"pool": "last"},
    {"pool": "max", "layer": 1, **HALF},
    {"pool": "sif", "mix_weights": "1,-1,0"},
    {"pool": "mean", "all_layers": True, "state": "warm"},
]


@pytest.mark.parametrize("settings", KEPT, ids=str)
def test_vectors_on_disk_are_those_of_embed(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = StoreConfig.from_dict(settings)
    result = embed(elmo, odd_corpus, tmp_path / "store", config=config)
    store = VectorStore.open(tmp_path / "store")
    wanted = expected(elmo, config)
    assert store.vectors.dtype == np.dtype(config.dtype)
    assert store.vectors.shape == wanted.shape
    near = 1e-5 if config.dtype == "float32" else 2e-3
    np.testing.assert_allclose(store.vectors, wanted, rtol=near, atol=near)
    words = elmo.words(TEXTS)
    assert list(store.words) == words
    assert list(store.texts) == TEXTS
    assert store.ids == [str(number) for number in range(len(TEXTS))]
    assert (len(store), store.dim, store.config) == (len(TEXTS), elmo.dim, config)
    assert store.fingerprint == elmo.fingerprint
    assert (result.n_texts, result.n_vectors, result.n_empty) == (len(TEXTS), len(wanted), 1)
    assert result.n_words == sum(map(len, words))
    assert result.n_bytes == (tmp_path / "store" / f"vectors.{config.format}").stat().st_size
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
    embed(elmo, odd_corpus, tmp_path / "b", format="safetensors")
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
    found = VectorStore.open(tmp_path / "store").vectors
    np.testing.assert_allclose(found, expected(elmo, StoreConfig(), texts), rtol=1e-4, atol=1e-5)
    path.write_text('{"text": ""}\n{"text": " "}\n', encoding="utf-8")
    for pool, shape in (("none", (0, elmo.dim)), ("mean", (2, elmo.dim))):
        result = embed(elmo, path, tmp_path / pool, pool=pool)
        store = VectorStore.open(tmp_path / pool)
        assert (result.n_empty, store.vectors.shape) == (2, shape)
        assert not store.vectors.any()


# -- ids ------------------------------------------------------------------------------------------


def test_ids_come_from_a_column_of_any_format(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("key,text\nk1,the bank\nk2,a river\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"key": 7, "text": "x"}\n{"key": 8.0, "text": ""}\n', encoding="utf-8")
    embed(elmo, [tmp_path / "a.csv", tmp_path / "b.jsonl"], tmp_path / "store", id_column="key")
    assert VectorStore.open(tmp_path / "store").ids == ["k1", "k2", "7", "8"]


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        ("a.csv", "key,text\nk1,x\n", "kee", "kee"),
        ("a.csv", "key,text\n,x\n", "key", "line 2"),
        ("a.jsonl", '{"key": 1, "text": "x"}\n{"text": "y"}\n', "key", "line 2"),
        ("a.jsonl", '{"key": [1], "text": "x"}\n', "key", "holds no id"),
        ("a.jsonl", '{"key": 1, "text": "x"}\n', "1", "'1'"),
    ],
)
def test_an_id_that_is_missing_is_named_and_no_file_is_left_behind(
    elmo: Elmo, tmp_path: Path, name: str, text: str, column: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        embed(elmo, tmp_path / name, tmp_path / "store", id_column=column)
    assert caught.value.remedy
    assert not list(tmp_path.glob("store/*"))


# -- settings -------------------------------------------------------------------------------------


def test_a_cold_model_for_a_warm_start_and_a_corpus_without_a_text_are_refused(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="start state"):
        embed(Elmo(replace(elmo.folder, start_state=None)), odd_corpus, tmp_path / "store", state="warm")
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="contains no text"):
        embed(elmo, tmp_path / "empty.txt", tmp_path / "store")
    assert not list(tmp_path.glob("store/*"))


def test_numbers_too_large_for_float16_are_refused(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="float16"):
        embed(elmo, odd_corpus, tmp_path / "store", mix_weights="1e9,1e9,1e9", dtype="float16")


# -- resuming -------------------------------------------------------------------------------------


class CutOffError(BaseException):
    """The power went."""


def cutting(calls: Iterator[bool], work: Callable[..., Any]) -> Callable[..., Any]:
    """``work`` that is cut off, before or after it is done, when ``calls`` says so."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls):
            raise CutOffError
        found = work(*args, **kwargs)
        if next(calls):
            raise CutOffError
        return found

    return wrapped


@pytest.mark.parametrize("start", [0, 1, 2])
def test_cut_off_at_any_step_and_run_again_it_ends_in_the_same_bytes(
    odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    configs = [StoreConfig(), StoreConfig(pool="sif", format="safetensors"), StoreConfig(all_layers=True)]
    config = configs[start]
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 4)
    model = make_model()
    embed(Elmo(model), odd_corpus, tmp_path / "whole", config=config)
    n_cuts = 0
    for at in range(start, 1000, 3):
        out = tmp_path / f"cut{at}"
        calls = (number == at for number in range(10**6))
        with monkeypatch.context() as patch:
            steps = ((store, "write_text"), (store_writer, "write_text"), (os, "fsync"), (Elmo, "embed"))
            for module, name in steps:
                patch.setattr(module, name, cutting(calls, getattr(module, name)))
            try:
                embed(Elmo(model), odd_corpus, out, config=config)
            except CutOffError:
                n_cuts += 1
            else:
                break
        result = embed(Elmo(model), odd_corpus, out, config=config)
        assert contents(out) == contents(tmp_path / "whole"), at
        assert result.n_texts == len(TEXTS)
    assert n_cuts > 5


def test_old_vectors_stay_until_those_that_overwrite_them_are_complete(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 4)
    embed(elmo, odd_corpus, whole)
    embed(elmo, odd_corpus, out, pool="mean", format="safetensors", exports=["parquet"])
    before = contents(out)
    with pytest.raises(DataError, match=r"typo\.csv"):
        embed(elmo, tmp_path / "typo.csv", out, overwrite=True)
    assert contents(out) == before
    stop_after(2, monkeypatch, elmo, odd_corpus, out, overwrite=True)
    assert contents(out) == before
    assert embed(elmo, odd_corpus, out, pool="mean", format="safetensors").was_done
    with pytest.raises(RunError, match="pool was 'mean', now 'max'"):
        embed(elmo, odd_corpus, out, pool="max")
    (out / "vectors.mine").write_bytes(b"mine")
    assert embed(elmo, odd_corpus, out, overwrite=True).n_resumed == 8
    (out / "vectors.mine").unlink()
    assert contents(out) == contents(whole)


def stop_after(
    n_chunks: int,
    monkeypatch: pytest.MonkeyPatch,
    elmo: Elmo,
    corpus: Path,
    out: Path,
    *,
    overwrite: bool = False,
) -> None:
    """Begin, and be interrupted after some chunks."""
    work = elmo.embed
    left = iter([False] * (n_chunks + 1))  # the first call asks for the state only

    def limited(*args: Any, **kwargs: Any) -> Any:
        if next(left, True):
            raise KeyboardInterrupt
        return work(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(elmo, "embed", limited)
        with pytest.raises(KeyboardInterrupt):
            embed(elmo, corpus, out, overwrite=overwrite)


def test_a_finished_folder_is_left_alone_and_can_get_an_export_later(
    elmo: Elmo, odd_corpus: Path, odd_store: Path
) -> None:
    before = contents(odd_store)
    result = embed(elmo, odd_corpus, odd_store)
    assert result.was_done
    assert contents(odd_store) == before
    result = embed(elmo, odd_corpus, odd_store, exports=["parquet"])
    assert result.exports == [odd_store / "vectors.parquet"]
    assert {name: data for name, data in contents(odd_store).items() if name != "vectors.parquet"} == before


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "dtype was 'float32', now 'float16'": lambda corpus: {"config": StoreConfig(dtype="float16")},
    "encoding was 'utf-8', now 'latin-1'": lambda corpus: {"encoding": "latin-1"},
    "texts.jsonl changed": lambda corpus: {
        "source": corpus if corpus.write_text('"other"\n', "utf-8") else ""
    },
    "more.txt": lambda corpus: {"source": [corpus, more(corpus)]},
}


def more(corpus: Path) -> Path:
    path = corpus.with_name("more.txt")
    path.write_text("more\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_resuming_with_something_else_is_refused_and_touches_nothing(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    stop_after(2, monkeypatch, elmo, odd_corpus, out)
    before = contents(out)
    other = CHANGES[change](odd_corpus)
    with pytest.raises(RunError, match="different settings") as caught:
        embed(**{"encoder": elmo, "source": odd_corpus, "out": out, **other})
    assert change in caught.value.message
    assert caught.value.remedy
    assert contents(out) == before


def change_texts(out: Path) -> None:
    data = (out / "texts.jsonl").read_bytes()
    (out / "texts.jsonl").write_bytes(data.replace(b"bank", b"bang"))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "vectors cut": lambda out: os.truncate(out / "vectors.npy", 200),
    "progress": lambda out: (out / "progress.json").write_text('{"n_texts": 99, "n_vectors": 1}', "utf-8"),
    "progress cut": lambda out: (out / "progress.json").write_text('{"n_texts":', "utf-8"),
    "texts cut": lambda out: os.truncate(out / "texts.jsonl", (out / "texts.jsonl").stat().st_size - 9),
    "texts of the same size": change_texts,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_resuming_in_a_damaged_folder_is_refused(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    stop_after(2, monkeypatch, elmo, odd_corpus, out)
    DAMAGES[damage](out)
    with pytest.raises(RunError, match="changed or damaged") as caught:
        embed(elmo, odd_corpus, out)
    assert "--out" in caught.value.remedy


def test_a_folder_within_the_texts_does_not_read_itself(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    assert embed(elmo, tmp_path, tmp_path / "store").n_texts == len(TEXTS)
    assert embed(elmo, tmp_path, tmp_path / "store").was_done


# -- size on disk ---------------------------------------------------------------------------------


def test_a_disk_that_is_too_small_is_an_error_before_anything_is_computed(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "store"
    embed(elmo, odd_corpus, tmp_path / "other")
    n_bytes = (tmp_path / "other" / "vectors.npy").stat().st_size
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=n_bytes - 1))
    with pytest.raises(RunError, match=r"on disk, but only \d\.\d kB is free") as caught:
        embed(elmo, odd_corpus, out)
    assert "--pool mean" in caught.value.remedy
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=n_bytes))
    embed(elmo, odd_corpus, out)
    assert embed(elmo, odd_corpus, out).was_done
