"""Vectors on disk: what comes back is what was computed, however often the work was cut off."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from elmokit.bilm.folder import BilmFolder, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.config import BilmConfig, TextConfig
from elmokit.embed import store_filling, store_writing
from elmokit.embed.elmo import Elmo
from elmokit.embed.embeddings import POOLINGS
from elmokit.embed.export import export_npz, export_parquet
from elmokit.embed.fingerprint import model_fingerprint
from elmokit.embed.store import VectorStore
from elmokit.embed.store_card import size_text
from elmokit.embed.store_files import OFFSETS, header
from elmokit.embed.store_files import TEXTS as TEXTS_FILE
from elmokit.embed.store_settings import StoreConfig
from elmokit.embed.store_size import store_size
from elmokit.embed.store_writing import EmbedResult, embed_files
from elmokit.errors import ConfigError, DataError, ModelError, RunError
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenising import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.progress import Reporter

KNOWN = "the bank raised its rates and a river flows under bridge of stone , ."
TEXTS = [
    "The bank raised its rates.",
    "A river flows under the bridge of stone.",
    "😀 👩‍👩‍👧 naïve cafe\u0301 — ok?",
    "שלום עולם, the bank",
    "\u200b",  # no word
    "日本の銀行 raised rates",
    "x" * 300 + " and its bank",
    'a "quoted" word\u2028and a line separator',
    "rates",
    "The river bank, the river bank, the river bank.",
]
SMALL = {"dim": 6, "hidden_dim": 6, "max_chars": 10, "char_dim": 3, "filters": ((1, 3), (2, 4))}


def make_model(seed: int = 0, input: str = "char") -> BilmFolder:
    torch.manual_seed(seed)
    config = BilmConfig.from_dict({**SMALL, "input": input})
    vocabulary = Vocabulary([*SPECIALS, *KNOWN.split()])
    tokenizer = TextPipeline(TextConfig()).word_tokenizer(vocabulary.words)
    model = Bilm(config, len(vocabulary), 0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    start = model.zero_state(1)
    for tensor in start.tensors().values():
        tensor.fill_(0.25)
    return BilmFolder(model, TextConfig(), vocabulary, tokenizer, {}, start)


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(make_model())


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def store(elmo: Elmo, corpus: Path, tmp_path: Path) -> Path:
    embed_files(elmo, corpus, tmp_path / "store")
    return tmp_path / "store"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


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
    {"mix": "0.2,0.3,0.5"},
    {"all_layers": True},
    *({"pool": pool} for pool in POOLINGS),
    {"pool": "max", "layer": 1},
    {"pool": "sif", "mix": "1,-1,0"},
    {"pool": "mean", "all_layers": True, "state": "warm"},
]


@pytest.mark.parametrize("settings", KEPT, ids=str)
@pytest.mark.parametrize("format", ["npy", "safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_on_disk_are_those_of_embed(
    elmo: Elmo, corpus: Path, tmp_path: Path, settings: dict[str, Any], format: str, dtype: str
) -> None:
    config = StoreConfig.from_dict({**settings, "format": format, "dtype": dtype})
    result = embed_files(elmo, corpus, tmp_path / "store", config)
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
    assert store.fingerprint == elmo.fingerprint == model_fingerprint(elmo.folder)
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


def test_files_can_be_read_by_numpy_and_safetensors_alone(elmo: Elmo, corpus: Path, tmp_path: Path) -> None:
    embed_files(elmo, corpus, tmp_path / "a")
    embed_files(elmo, corpus, tmp_path / "b", StoreConfig(format="safetensors"))
    plain = np.load(tmp_path / "a" / "vectors.npy", mmap_mode="r", allow_pickle=False)
    offsets = np.load(tmp_path / "a" / "offsets.npy", allow_pickle=False)
    assert np.array_equal(load_file(tmp_path / "b" / "vectors.safetensors")["vectors"], plain)
    assert np.array_equal(np.diff(offsets), [len(words) for words in elmo.words(TEXTS)])
    assert plain.offset % 64 == 0


def test_vectors_are_mapped_and_cannot_be_written_to(store: Path) -> None:
    found = VectorStore.open(store)
    assert isinstance(found.vectors, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.vectors[0] = 1.0


def test_texts_are_fetched_by_number_and_slice(store: Path) -> None:
    found = VectorStore.open(store)
    assert found.texts[-1] == TEXTS[-1]
    assert found.texts[2:5] == TEXTS[2:5]
    assert len(found.texts) == len(TEXTS)
    assert found.record(5).words == ["日", "本", "の", "銀", "行", "raised", "rates"]
    with pytest.raises(IndexError):
        found.texts[len(TEXTS)]


@pytest.mark.parametrize("shape", [(0,), (7,), (0, 3), (5, 3), (10**12, 3, 1024)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_headers_are_what_numpy_reads(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    head = header("npy", dtype, shape)
    assert len(head) == 128
    path = tmp_path / "a.npy"
    path.write_bytes(head)
    with open(path, "rb") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        found, in_fortran_order, kind = np.lib.format.read_array_header_1_0(file)
    assert (found, in_fortran_order, kind) == (shape, False, np.dtype(dtype))


def test_a_corpus_of_many_chunks_and_empty_texts_only(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_filling, "_CHUNK_NUMBERS", 20 * elmo.n_layers * elmo.dim)
    texts = [TEXTS[i % len(TEXTS)] + f" {i}" for i in range(150)]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    embed_files(elmo, path, tmp_path / "store")
    np.testing.assert_allclose(
        VectorStore.open(tmp_path / "store").vectors,
        expected(elmo, StoreConfig(), texts),
        rtol=1e-4,
        atol=1e-5,
    )
    path.write_text('{"text": ""}\n{"text": " "}\n', encoding="utf-8")
    for pool, shape in (("none", (0, elmo.dim)), ("mean", (2, elmo.dim))):
        result = embed_files(elmo, path, tmp_path / pool, StoreConfig.from_dict({"pool": pool}))
        store = VectorStore.open(tmp_path / pool)
        assert (result.n_empty, store.vectors.shape) == (2, shape)
        assert not store.vectors.any()


def test_a_word_model_embeds_unknown_words_too(corpus: Path, tmp_path: Path) -> None:
    words = Elmo(make_model(input="word"))
    embed_files(words, corpus, tmp_path / "store")
    np.testing.assert_allclose(
        VectorStore.open(tmp_path / "store").vectors, expected(words, StoreConfig()), rtol=1e-5, atol=1e-6
    )


# -- ids ------------------------------------------------------------------------------------------


def test_ids_come_from_a_column_of_any_format(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("key,text\nk1,the bank\nk2,a river\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"key": 7, "text": "x"}\n{"key": 8.0, "text": ""}\n', encoding="utf-8")
    config = StoreConfig(id_column="key")
    embed_files(elmo, [tmp_path / "a.csv", tmp_path / "b.jsonl"], tmp_path / "store", config)
    assert VectorStore.open(tmp_path / "store").ids == ["k1", "k2", "7", "8"]
    (tmp_path / "bare.csv").write_text("k1,the bank\nk2,a river\n", encoding="utf-8")
    read = ReadConfig(text_columns="2")
    embed_files(elmo, tmp_path / "bare.csv", tmp_path / "bare", StoreConfig(id_column="1"), read=read)
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
        embed_files(elmo, tmp_path / name, tmp_path / "store", StoreConfig(id_column=column))
    assert caught.value.remedy
    assert not (tmp_path / "store").exists()


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": 1, "mix": "1,1,1"}, "exclude"),
        ({"layer": 0, "all_layers": True}, "exclude"),
        ({"mix": "1,x,1"}, "numbers"),
        ({"mix": "1,nan,1"}, "numbers"),
        ({"mix": "1,1"}, "2 weights"),
        ({"layer": 3}, "no layer 3"),
        ({"layer": -4}, "no layer -4"),
        ({"pool": "median"}, "median"),
        ({"dtype": "int8"}, "int8"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_written(
    elmo: Elmo, corpus: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        embed_files(elmo, corpus, tmp_path / "store", StoreConfig.from_dict(settings))
    with pytest.raises(ConfigError, match="pickle"):
        embed_files(elmo, corpus, tmp_path / "store", exports=["pickle"])
    assert not (tmp_path / "store").exists()


def test_a_warm_start_needs_a_model_that_has_one(elmo: Elmo, corpus: Path, tmp_path: Path) -> None:
    cold = Elmo(replace(elmo.folder, start_state=None))
    with pytest.raises(ModelError, match="start state"):
        embed_files(cold, corpus, tmp_path / "store", StoreConfig(state="warm"))
    assert not (tmp_path / "store").exists()


def test_a_corpus_without_a_text_is_refused(elmo: Elmo, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no text"):
        embed_files(elmo, tmp_path / "empty.txt", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_numbers_too_large_for_float16_are_refused(elmo: Elmo, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="float16"):
        embed_files(elmo, corpus, tmp_path / "store", StoreConfig(mix="1e9,1e9,1e9", dtype="float16"))


# -- cut off, and run again -----------------------------------------------------------------------


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
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    config = [StoreConfig(), StoreConfig(pool="sif", format="safetensors"), StoreConfig(all_layers=True)][
        start
    ]
    monkeypatch.setattr(store_filling, "_CHUNK_TEXTS", 4)
    model = make_model()
    embed_files(Elmo(model), corpus, tmp_path / "whole", config)
    n_cuts = 0
    for at in range(start, 1000, 3):
        out = tmp_path / f"cut{at}"
        calls = (number == at for number in range(10**6))
        with monkeypatch.context() as patch:
            for module, name in (
                (store_writing, "write_json"),
                (store_writing, "write_text"),
                (store_filling, "write_json"),
                (os, "fsync"),
                (Elmo, "embed"),
            ):
                patch.setattr(module, name, cutting(calls, getattr(module, name)))
            try:
                embed_files(Elmo(model), corpus, out, config)
            except CutOffError:
                n_cuts += 1
            else:
                break
        result = embed_files(Elmo(model), corpus, out, config)
        assert contents(out) == contents(tmp_path / "whole"), at
        assert result.n_texts == len(TEXTS)
    assert n_cuts > 5


def test_bytes_of_a_chunk_that_was_not_recorded_are_written_again(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_filling, "_CHUNK_TEXTS", 2)
    embed_files(elmo, corpus, tmp_path / "whole")
    stop_after(2, monkeypatch, elmo, corpus, tmp_path / "cut")
    done = json.loads((tmp_path / "cut" / "progress.json").read_text(encoding="utf-8"))
    assert done["n_texts"] == 4
    with open(tmp_path / "cut" / "vectors.npy", "r+b") as file:
        file.seek(128 + done["n_vectors"] * elmo.dim * 4)
        file.write(b"\xff" * 50)
    with pytest.raises(DataError, match="not finished") as caught:
        VectorStore.open(tmp_path / "cut")
    assert "same elmokit embed command" in caught.value.remedy
    result = embed_files(elmo, corpus, tmp_path / "cut")
    assert (result.n_resumed, result.was_done) == (4, False)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def stop_after(n_chunks: int, monkeypatch: pytest.MonkeyPatch, elmo: Elmo, corpus: Path, out: Path) -> None:
    """Begin, and be interrupted after some chunks."""
    embed = elmo.embed
    left = iter([False] * (n_chunks + 1))  # the first call asks for the state only

    def limited(*args: Any, **kwargs: Any) -> Any:
        if next(left, True):
            raise KeyboardInterrupt
        return embed(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(elmo, "embed", limited)
        with pytest.raises(KeyboardInterrupt):
            embed_files(elmo, corpus, out)


def test_a_finished_folder_is_left_alone_and_can_get_an_export_later(
    elmo: Elmo, corpus: Path, store: Path
) -> None:
    before = contents(store)
    result = embed_files(elmo, corpus, store)
    assert result.was_done
    assert contents(store) == before
    result = embed_files(elmo, corpus, store, exports=["npz"])
    assert result.exports == [store / "vectors.npz"]
    assert {name: data for name, data in contents(store).items() if name != "vectors.npz"} == before


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "another model": lambda corpus: {"model": Elmo(make_model(seed=1))},
    "pool was 'none', is 'mean'": lambda corpus: {"config": StoreConfig(pool="mean")},
    "layer was None, is 1": lambda corpus: {"config": StoreConfig(layer=1)},
    "dtype was 'float32', is 'float16'": lambda corpus: {"config": StoreConfig(dtype="float16")},
    "encoding was 'utf-8', is 'latin-1'": lambda corpus: {"read": ReadConfig(encoding="latin-1")},
    "texts.jsonl changed": lambda corpus: {"changed": corpus.write_text('"other"\n', encoding="utf-8")},
    "more.txt": lambda corpus: {"files": [corpus, more(corpus)]},
}


def more(corpus: Path) -> Path:
    path = corpus.with_name("more.txt")
    path.write_text("more\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_going_on_with_something_else_is_refused_and_touches_nothing(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, finished: bool
) -> None:
    monkeypatch.setattr(store_filling, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    if finished:
        embed_files(elmo, corpus, out)
    else:
        stop_after(2, monkeypatch, elmo, corpus, out)
    before = contents(out)
    other = CHANGES[change](corpus)
    with pytest.raises(RunError, match="something else") as caught:
        embed_files(
            other.get("model", elmo),
            other.get("files", corpus),
            out,
            other.get("config"),
            read=other.get("read"),
        )
    assert change in caught.value.message
    assert caught.value.remedy
    assert contents(out) == before


def test_a_folder_cut_off_while_texts_were_read_takes_any_other_start(
    elmo: Elmo, corpus: Path, tmp_path: Path
) -> None:
    embed_files(elmo, corpus, tmp_path / "whole")
    out = tmp_path / "store"
    out.mkdir()
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text(encoding="utf-8"))
    for name in ("n_texts", "n_words", "n_vectors", "n_empty", "texts_bytes", "ids_bytes"):
        del manifest[name]
    manifest.update(done=False, settings={})
    (out / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (out / ".texts.jsonl.new").write_text("half", encoding="utf-8")
    embed_files(elmo, corpus, out)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("foreign", ["a note", "a file", "a model", "a broken manifest", "another manifest"])
def test_a_folder_that_is_not_ours_is_refused(elmo: Elmo, corpus: Path, tmp_path: Path, foreign: str) -> None:
    out = tmp_path / "store"
    if foreign == "a file":
        out.write_text("mine", encoding="utf-8")
    else:
        out.mkdir()
    if foreign == "a note":
        (out / "note.txt").write_text("mine", encoding="utf-8")
    elif foreign == "a model":
        save_bilm(out, elmo.folder)
    elif foreign == "a broken manifest":
        (out / "manifest.json").write_text("{", encoding="utf-8")
    elif foreign == "another manifest":
        (out / "manifest.json").write_text('{"format": "other"}', encoding="utf-8")
    before = contents(out) if out.is_dir() else out.read_bytes()
    with pytest.raises(RunError) as caught:
        embed_files(elmo, corpus, out)
    assert "--out" in caught.value.remedy
    assert (contents(out) if out.is_dir() else out.read_bytes()) == before


@pytest.mark.parametrize("damage", ["vectors cut", "vectors gone", "progress", "texts"])
def test_going_on_in_a_damaged_folder_is_refused(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(store_filling, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    stop_after(2, monkeypatch, elmo, corpus, out)
    if damage == "vectors cut":
        with open(out / "vectors.npy", "r+b") as file:
            file.truncate(200)
    elif damage == "vectors gone":
        (out / "vectors.npy").unlink()
    elif damage == "progress":
        (out / "progress.json").write_text('{"n_texts": 99, "n_vectors": 1}', encoding="utf-8")
    else:
        lines = (out / "texts.jsonl").read_bytes().splitlines(keepends=True)
        (out / "texts.jsonl").write_bytes(b"".join([*lines[:4], b'{"id": "4", "text": "x", "words": []}\n']))
    with pytest.raises(RunError, match="changed or damaged") as caught:
        embed_files(elmo, corpus, out)
    assert "--out" in caught.value.remedy


def test_a_disk_that_is_too_small_is_said_before_anything_is_computed(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(RunError, match=r"only 1\.0 kB are free") as caught:
            embed_files(elmo, corpus, tmp_path / "store")
    assert "--pool mean" in caught.value.remedy
    embed_files(elmo, corpus, tmp_path / "store")  # there is room now
    assert len(VectorStore.open(tmp_path / "store")) == len(TEXTS)


class Heard(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__("silent")
        self.said: list[str] = []
        self.events: dict[str, dict[str, Any]] = {}

    def say(self, message: str) -> None:
        self.said.append(message)

    def event(self, event: str, **values: Any) -> None:
        self.events[event] = values


@pytest.mark.parametrize(
    "settings",
    [{}, {"pool": "mean"}, {"all_layers": True, "dtype": "float16"}, {"format": "safetensors"}],
    ids=str,
)
def test_the_size_said_beforehand_is_that_of_all_files(
    elmo: Elmo, tmp_path: Path, settings: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    words = KNOWN.split()
    table = tmp_path / "many.jsonl"
    rows = [{"key": f"k{'é' * (i % 9)}{i}", "text": " ".join(rng.choice(words, 40))} for i in range(400)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = StoreConfig.from_dict({**settings, "id_column": "key"})
    heard, out = Heard(), tmp_path / "plain"
    embed_files(elmo, table, out, config, reporter=heard)
    names = (f"vectors.{config.format}", OFFSETS, TEXTS_FILE)
    total = sum((out / name).stat().st_size for name in names)
    assert heard.events["plan"]["n_bytes_total"] == total
    assert f"[bold]{size_text(total)} on disk[/]" in heard.said[0]

    heard, out = Heard(), tmp_path / "exported"
    embed_files(elmo, table, out, config, reporter=heard, exports=["parquet", "npz", "npz"])
    exported = [(out / f"vectors.{name}").stat().st_size for name in ("parquet", "npz")]
    assert "about" in heard.said[0]
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    size = store_size(manifest, config, VectorStore.open(out).vectors.shape, ["parquet", "npz"])
    assert heard.events["plan"]["n_bytes_total"] == size.total
    assert exported[0] <= size.exports["parquet"] <= 2 * exported[0] + 8192 + size.texts // 2  # they shrink
    assert 0 <= size.exports["npz"] - exported[1] <= 8192


def test_exports_count_when_the_disk_is_too_small(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "store"
    embed_files(elmo, corpus, tmp_path / "other")
    n_bytes = (tmp_path / "other" / "vectors.npy").stat().st_size
    usage = shutil.disk_usage(tmp_path)._replace(free=n_bytes + 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(RunError, match="more on disk") as caught:
        embed_files(elmo, corpus, out, exports=["npz"])
    assert "--export" in caught.value.remedy
    embed_files(elmo, corpus, out)
    with pytest.raises(RunError, match="more on disk"):  # the vectors are there, but not this
        embed_files(elmo, corpus, out, exports=["parquet", "npz"])
    assert not (out / "vectors.npz").exists()
    assert embed_files(elmo, corpus, out).was_done


@pytest.mark.parametrize("cached_words", [3, 100])
def test_the_callers_word_cache_is_a_plain_one_afterwards(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_words: int
) -> None:
    mine = Elmo(make_model(), cached_words=cached_words)
    kept: list[int] = []

    def watched() -> None:
        kept.append(mine._words._n_kept)
        mine._words.forget()

    monkeypatch.setattr(mine, "forget_words", watched)
    many = tmp_path / "many.txt"
    many.write_text(f"{KNOWN}\n" * 20, encoding="utf-8")
    embed_files(mine, many, tmp_path / "store")
    assert len(SPECIALS) < kept[0] <= cached_words + len(SPECIALS)
    assert mine._words._n_kept == len(mine._words._places) == len(SPECIALS)
    stop_after(0, monkeypatch, mine, corpus, tmp_path / "cut")
    assert mine._words._n_kept == len(SPECIALS)


def test_a_folder_within_the_texts_does_not_read_itself(elmo: Elmo, corpus: Path, tmp_path: Path) -> None:
    def run() -> EmbedResult:
        return embed_files(elmo, tmp_path, tmp_path / "store")

    assert run().n_texts == len(TEXTS)
    assert run().was_done


# -- opening --------------------------------------------------------------------------------------


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change to manifest.json."""

    def apply(folder: Path) -> None:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        change(record)
        (folder / "manifest.json").write_text(json.dumps(record), encoding="utf-8")

    return apply


def cut(name: str) -> Callable[[Path], None]:
    """A file that lost its second half."""

    def apply(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return apply


def swap_offsets(folder: Path) -> None:
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    offsets[[1, 2]] = offsets[[2, 1]]
    (folder / "offsets.npy").write_bytes(header("npy", "int64", offsets.shape) + offsets.tobytes())


def pickled(folder: Path) -> None:
    wanted = (folder / "vectors.npy").stat().st_size
    np.save(folder / "vectors.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with open(folder / "vectors.npy", "r+b") as file:
        file.truncate(wanted)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
    "manifest cut off": (cut("manifest.json"), "manifest.json"),
    "manifest of another program": (edit(lambda r: r.update(format="other")), "not written by elmokit"),
    "a model's record": (edit(lambda r: r.update(kind="bilm")), "not written by elmokit"),
    "later version": (edit(lambda r: r.update(format_version=9)), "format version 9"),
    "not finished": (edit(lambda r: r.update(done=False)), "not finished"),
    "no settings": (edit(lambda r: r.pop("settings")), "settings"),
    "unknown setting": (edit(lambda r: r["settings"].update(pol="x")), "pol"),
    "no model": (edit(lambda r: r.pop("model")), "model"),
    "count that is text": (edit(lambda r: r.update(n_texts="many")), "damaged"),
    "negative count": (edit(lambda r: r.update(n_vectors=-1)), "damaged"),
    "huge count": (edit(lambda r: r.update(n_vectors=10**13)), "bytes"),
    "huge width": (edit(lambda r: r.update(dim=10**13)), "bytes"),
    "absurd count": (edit(lambda r: r.update(n_vectors=10**30)), "damaged"),
    "one text too many": (edit(lambda r: r.update(n_texts=r["n_texts"] + 1)), "offsets.npy"),
    "another dtype": (edit(lambda r: r["settings"].update(dtype="float16")), "vectors.npy"),
    "another format": (edit(lambda r: r["settings"].update(format="safetensors")), "vectors.safetensors"),
    "vectors cut off": (cut("vectors.npy"), "vectors.npy"),
    "vectors missing": (lambda folder: (folder / "vectors.npy").unlink(), "vectors.npy"),
    "vectors pickled": (pickled, "vectors.npy"),
    "offsets cut off": (cut("offsets.npy"), "offsets.npy"),
    "offsets missing": (lambda folder: (folder / "offsets.npy").unlink(), "offsets.npy"),
    "offsets go back": (swap_offsets, "offsets.npy"),
    "texts cut off": (cut("texts.jsonl"), "texts.jsonl"),
    "texts missing": (lambda folder: (folder / "texts.jsonl").unlink(), "texts.jsonl"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_a_data_error_that_names_what_is_wrong(store: Path, damage: str) -> None:
    apply, named = DAMAGES[damage]
    apply(store)
    with pytest.raises(DataError) as caught:
        VectorStore.open(store)
    assert named in caught.value.message
    assert caught.value.remedy


def test_texts_damaged_within_are_found_when_they_are_read(store: Path) -> None:
    whole = (store / "texts.jsonl").read_bytes()
    (store / "texts.jsonl").write_bytes(whole.replace(b'"words"', b'"wards"', 1))
    with pytest.raises(DataError, match="line 1"):
        VectorStore.open(store).texts[0]
    (store / "texts.jsonl").write_bytes(whole.replace(b"\n", b" ", 1))
    with pytest.raises(DataError, match="lines"):
        VectorStore.open(store).texts[-1]


def test_a_folder_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder") as caught:
        VectorStore.open(tmp_path / "nowhere")
    assert "elmokit embed" in caught.value.remedy


# -- exports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"pool": "mean"}, {"all_layers": True, "dtype": "float16"}], ids=str
)
def test_exports_hold_the_same_vectors(
    elmo: Elmo, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr("elmokit.embed.export._ROWS_AT_ONCE", 11)
    out = tmp_path / "store"
    result = embed_files(elmo, corpus, out, StoreConfig.from_dict(settings), exports=["parquet", "npz"])
    assert result.exports == [out / "vectors.parquet", out / "vectors.npz"]
    store = VectorStore.open(out)
    table = pq.read_table(out / "vectors.parquet")
    rows = np.array(table["vector"].to_pylist(), dtype=np.float32)
    assert np.array_equal(rows, np.asarray(store.vectors, np.float32))
    if store.config.pool == "none":
        assert table.column_names == ["id", "position", "word", "vector"]
        flat = [(str(i), p, word) for i, row in enumerate(store.words) for p, word in enumerate(row)]
        columns = zip(*(table[name].to_pylist() for name in ("id", "position", "word")), strict=True)
        assert list(columns) == flat
    else:
        assert table.column_names == ["id", "text", "vector"]
        assert table["text"].to_pylist() == TEXTS
    with np.load(out / "vectors.npz", allow_pickle=False) as archive:
        assert np.array_equal(archive["vectors"], store.vectors)
        assert np.array_equal(archive["offsets"], store.offsets)
        assert ids_in(archive) == store.ids


def ids_in(archive: Any) -> list[str]:
    ids, bounds = archive["ids"], archive["id_offsets"]
    assert (ids.dtype, bounds.dtype) == (np.uint8, np.int64)
    return [bytes(ids[first:last]).decode() for first, last in itertools.pairwise(bounds)]


def test_one_long_id_does_not_make_all_others_long(elmo: Elmo, tmp_path: Path) -> None:
    ids = ["é" * 50_000, *(f"日{number}" for number in range(300))]
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps({"key": id, "text": "the"}) + "\n" for id in ids), encoding="utf-8")
    out = tmp_path / "store"
    embed_files(elmo, table, out, StoreConfig(id_column="key", pool="mean"), exports=["npz"])
    assert (out / "vectors.npz").stat().st_size < 200_000
    with np.load(out / "vectors.npz", allow_pickle=False) as archive:
        assert ids_in(archive) == ids


def test_an_export_that_breaks_off_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = VectorStore.open(store)
    before = contents(store)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elmokit.embed.export.np.savez", full)
    monkeypatch.setattr("elmokit.embed.export._lists", full)
    for export in (export_npz, export_parquet):
        with pytest.raises(RunError, match="the disk is full"):
            export(found, store / "vectors.other")
    assert contents(store) == before
