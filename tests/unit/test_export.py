"""Vectors in other formats."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from elmokit.core.errors import RunError
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import VectorStore, export_npz, export_parquet
from elmokit.vectors.store_writer import embed
from odd_texts import TEXTS, contents


@pytest.mark.parametrize(
    "settings", [{}, {"pool": "mean"}, {"all_layers": True, "dtype": "float16"}], ids=str
)
def test_exports_hold_the_same_vectors(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr("elmokit.vectors.store._EXPORT_ROWS", 11)
    out = tmp_path / "store"
    result = embed(elmo, odd_corpus, out, config=StoreConfig.from_dict(settings), exports=["parquet", "npz"])
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
    embed(elmo, table, out, config=StoreConfig(id_column="key", pool="mean"), exports=["npz"])
    assert (out / "vectors.npz").stat().st_size < 200_000
    with np.load(out / "vectors.npz", allow_pickle=False) as archive:
        assert ids_in(archive) == ids


def test_an_export_that_breaks_off_leaves_nothing(odd_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = VectorStore.open(odd_store)
    before = contents(odd_store)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elmokit.vectors.store.np.savez", full)
    monkeypatch.setattr("elmokit.vectors.store._nested_lists", full)
    for export in (export_npz, export_parquet):
        with pytest.raises(RunError, match="the disk is full"):
            export(found, odd_store / "vectors.other")
    assert contents(odd_store) == before
