"""A vector store, opened: read in place, every damage named; and its exports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from elmokit.core.atomic import REPLACED
from elmokit.core.errors import ConfigError, DataError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import find_duplicates, open_corpus, search, similar_words
from elmokit.vectors.store import VectorStore, array_header
from elmokit.vectors.store_writer import embed
from odd_texts import TEXTS


def test_vectors_are_mapped_and_texts_are_fetched_by_number_and_slice(odd_store: Path) -> None:
    store = VectorStore.open(odd_store)
    assert isinstance(store.vectors, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        store.vectors[0] = 1.0
    assert store.texts[-1] == TEXTS[-1]
    assert store.texts[2:5] == TEXTS[2:5]
    assert len(store.texts) == len(TEXTS)
    assert store.record(5).words == ["日", "本", "の", "銀", "行", "raised", "rates"]
    with pytest.raises(IndexError):
        store.record(len(TEXTS))


# -- damage ---------------------------------------------------------------------------------------


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change to manifest.json, which has no checksum, as in 0.1."""

    def apply(folder: Path) -> None:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        record.pop("checksum")
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
    (folder / "offsets.npy").write_bytes(array_header("npy", "int64", offsets.shape) + offsets.tobytes())


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "no folder"),
    "manifest changed": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text("utf-8").replace('"zero"', '"warm"'), "utf-8"
        ),
        "checksum",
    ),
    "manifest cut off": (cut("manifest.json"), "manifest.json"),
    "manifest of another program": (edit(lambda r: r.update(format="other")), "not written by elmokit"),
    "later version": (edit(lambda r: r.update(format_version=9)), "format version 9"),
    "not finished": (edit(lambda r: r.update(done=False)), "not finished"),
    "no settings": (edit(lambda r: r.pop("settings")), "settings"),
    "unknown setting": (edit(lambda r: r["settings"].update(pol="x")), "pol"),
    "count that is text": (edit(lambda r: r.update(n_texts="many")), "damaged"),
    "huge count": (edit(lambda r: r.update(n_vectors=10**13)), "bytes"),
    "absurd count": (edit(lambda r: r.update(n_vectors=10**30)), "damaged"),
    "one text too many": (edit(lambda r: r.update(n_texts=r["n_texts"] + 1)), "offsets.npy"),
    "another format": (edit(lambda r: r["settings"].update(format="safetensors")), "vectors.safetensors"),
    "vectors cut off": (cut("vectors.npy"), "vectors.npy"),
    "offsets missing": (lambda folder: (folder / "offsets.npy").unlink(), "offsets.npy"),
    "offsets go back": (swap_offsets, "offsets.npy"),
    "texts cut off": (cut("texts.jsonl"), "texts.jsonl"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_a_data_error_that_names_what_is_wrong(odd_store: Path, damage: str) -> None:
    apply, named = DAMAGES[damage]
    apply(odd_store)
    with pytest.raises(DataError) as caught:
        VectorStore.open(odd_store)
    assert named in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "index", "message"),
    [(b'"words"', b'"wards"', 0, "line 1: damaged"), (b"\n", b" ", -1, "line 10: damaged")],
)
def test_texts_damaged_within_are_found_when_they_are_read(
    odd_store: Path, old: bytes, new: bytes, index: int, message: str
) -> None:
    whole = (odd_store / "texts.jsonl").read_bytes()
    (odd_store / "texts.jsonl").write_bytes(whole.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        VectorStore.open(odd_store).record(index)
    with pytest.raises(DataError, match="line 1: damaged"):
        list(VectorStore.open(odd_store).records())


@pytest.mark.parametrize("file", ["vectors.npy", "texts.jsonl"])
@pytest.mark.parametrize("pool", ["mean", "none"])
def test_a_flipped_bit_is_noticed_where_all_is_read(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, file: str, pool: str
) -> None:
    out = tmp_path / "out"
    embed(elmo, odd_corpus, out, pool=pool)
    data = bytearray((out / file).read_bytes())
    data[data.index(b"bank") if file == "texts.jsonl" else -30] ^= 1
    (out / file).write_bytes(data)
    store = VectorStore.open(out)
    readers: dict[str, Callable[[], object]] = {
        "export": lambda: embed(elmo, odd_corpus, out, pool=pool, exports=["parquet"]),
        "search": lambda: search(store, ["the bank"], elmo),
        "duplicates": lambda: find_duplicates(store),
        "similar": lambda: similar_words(elmo, "the bank", store),
    }
    for name in ("export", "similar") if pool == "none" else ("export", "search", "duplicates"):
        with pytest.raises(DataError, match="damaged: the checksum"):
            readers[name]()
    assert not (out / "vectors.parquet").exists()


# -- exports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"pool": "mean"}, {"all_layers": True, "dtype": "float16"}], ids=str
)
def test_exports_hold_the_same_vectors(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr("elmokit.vectors.store._EXPORT_ROWS", 11)
    out = tmp_path / "store"
    result = embed(elmo, odd_corpus, out, **settings, exports=["parquet", "hdf5"])
    assert result.exports == [out / "vectors.parquet", out / "vectors.hdf5"]
    store = VectorStore.open(out)
    with pytest.importorskip("h5py").File(out / "vectors.hdf5") as file:
        assert file["vectors"].dtype == store.vectors.dtype
        assert np.array_equal(file["vectors"], store.vectors)
        assert np.array_equal(file["offsets"], store.offsets)
        assert [name.decode() for name in file["ids"]] == store.ids
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


def test_word2vec_text_has_a_line_for_each_text(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    embed(elmo, odd_corpus, tmp_path / "store", pool="mean", dtype="float16", exports=["word2vec"])
    store = VectorStore.open(tmp_path / "store")
    models = pytest.importorskip("gensim.models")
    table = models.KeyedVectors.load_word2vec_format(tmp_path / "store" / "vectors.vec")
    assert table.index_to_key == store.ids
    assert np.array_equal(table.vectors, np.asarray(store.vectors, np.float32))


def test_exports_that_cannot_be_are_refused(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{}, {"pool": "mean", "all_layers": True}]
    for settings in wrong:
        with pytest.raises(ConfigError, match="one vector for each text"):
            embed(elmo, odd_corpus, tmp_path / "store", exports=["word2vec"], **settings)
    assert not (tmp_path / "store").exists()
    table = tmp_path / "texts.jsonl"
    rows = [{"id": "a\0b", "text": "one"}, {"id": "two words", "text": "two"}]
    table.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    options: Any = {"pool": "mean", "id_column": "id", "text_columns": "text"}
    with pytest.raises(DataError, match="Text 1 has the id 'two words'"):
        embed(elmo, table, tmp_path / "store", exports=["hdf5", "word2vec"], **options)
    assert not (tmp_path / "store" / "vectors.vec").exists()
    with pytest.importorskip("h5py").File(tmp_path / "store" / "vectors.hdf5") as file:
        assert [name.decode() for name in file["ids"]] == ["a\N{REPLACEMENT CHARACTER}b", "two words"]


def test_a_store_that_was_cut_off_while_it_was_overwritten_is_put_back(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path
) -> None:
    for find in (VectorStore.open, lambda place: open_corpus([place])):
        out = tmp_path / f"out-{find is VectorStore.open}"
        embed(elmo, odd_corpus, out)
        (out / REPLACED).mkdir()
        (out / REPLACED / ".new.json").write_text('["manifest.json"]', encoding="utf-8")
        (out / "manifest.json").rename(out / REPLACED / "manifest.json")
        assert isinstance(find(out), VectorStore)
