"""Shards as the workers of Ray compute them, here in this process; and their stores read as one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import elmokit
from elmokit.core.errors import ConfigError, DataError, ElmokitError, MissingExtraError, RunError
from elmokit.vectors import shards
from elmokit.vectors.neighbors import find_duplicates, search
from elmokit.vectors.store import JoinedRows, VectorStore
from odd_texts import contents
from program import Cli, small_disk
from topics import rows, table


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are computed in this process, one after the other."""

    def compute(inputs: Any, known: Any, opener: Any, work: Any, out: Path, address: str) -> Iterator[Any]:
        worker = shards._Worker(opener, work, out.absolute())
        for number, one in enumerate(inputs):
            result = worker({"job": [json.dumps([number, *one, known[number]])]})
            yield json.loads(result["result"][0])

    monkeypatch.setattr(shards, "_compute", compute)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of three files, and one without rows in the middle."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, n_rows in enumerate((7, 0, 12, 5)):
        table(folder / f"{number}.csv", rows(n_rows, seed=number), head=("text", "label"))
    return folder


pytestmark = pytest.mark.usefixtures("without_ray", "single_thread")


@pytest.mark.parametrize("pool", ["none", "mean"])
def test_shards_are_stores_of_the_local_engine_and_read_as_one(
    encoder: Path, files: Path, tmp_path: Path, pool: Any
) -> None:
    out = tmp_path / "out"
    result = elmokit.embed(encoder, files, out, pool=pool, engine="ray", text_columns="text")
    whole = elmokit.embed(encoder, files, tmp_path / "whole", pool=pool, text_columns="text")
    assert (result.n_texts, result.n_words, result.n_vectors) == (24, whole.n_words, whole.n_vectors)
    for number in (0, 2, 3):
        file = files / f"{number}.csv"
        elmokit.embed(encoder, file, tmp_path / str(number), pool=pool, text_columns="text")
        assert contents(tmp_path / str(number)) == contents(out / "shards" / f"{number:05d}")
    joined, alone = VectorStore.open(out), VectorStore.open(tmp_path / "whole")
    assert (joined.ids, joined.texts, joined.words) == (alone.ids, alone.texts, alone.words)
    assert joined.offsets.tolist() == alone.offsets.tolist()
    assert (joined.vectors.shape, joined.vectors.dtype) == (alone.vectors.shape, alone.vectors.dtype)
    np.testing.assert_allclose(joined.vectors, alone.vectors, atol=1e-5)
    assert [joined.record(number) for number in (0, 7, 23, -1)] == [alone.record(n) for n in (0, 7, 23, -1)]
    for one, other in zip(joined.groups(9), alone.groups(9), strict=True):
        assert one[:2] == other[:2]
        np.testing.assert_allclose(one[2], other[2], atol=1e-5)
    np.testing.assert_allclose(joined[7], alone[7], atol=1e-5)


def test_search_duplicates_and_exports_read_shards_as_one_store(
    encoder: Path, files: Path, tmp_path: Path
) -> None:
    given: Any = {"pool": "mean", "text_columns": "text", "id_column": "text"}
    for engine in ("ray", "local"):
        exports = ["parquet", "hdf5"]
        elmokit.embed(encoder, files, tmp_path / engine, exports=exports, engine=engine, **given)
    one, other, elmo = VectorStore.open(tmp_path / "ray"), tmp_path / "local", elmokit.Elmo.load(encoder)
    assert one.ids == VectorStore.open(other).ids
    queries = ["the team won the match", "a bank raised its rates"]
    hits = [[(hit.id, round(hit.score, 4)) for hits in search(place, queries, elmo, 5) for hit in hits]
            for place in (one, other)]  # fmt: skip
    assert hits[0] == hits[1]
    pairs = [[(pair.first.index, pair.second.index) for pair in find_duplicates(place, at_least=0.99)]
             for place in (one, other)]  # fmt: skip
    assert pairs[0] == pairs[1]
    tables = [pq.read_table(tmp_path / engine / "vectors.parquet") for engine in ("ray", "local")]
    assert tables[0]["id"] == tables[1]["id"]
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "ray" / "vectors.hdf5") as file:
        np.testing.assert_array_equal(file["vectors"][:], one.vectors)


def test_shards_that_do_not_belong_together_are_refused(encoder: Path, files: Path, tmp_path: Path) -> None:
    for name, pool in (("out", "mean"), ("other", "max")):
        elmokit.embed(encoder, files, tmp_path / name, pool=pool, engine="ray", text_columns="text")
    manifest, shards = tmp_path / "out" / "manifest.json", tmp_path / "out" / "shards"
    record = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**record, "shards": 3}), encoding="utf-8")
    with pytest.raises(DataError, match="checksum"):
        VectorStore.open(tmp_path / "out")
    del record["checksum"]
    manifest.write_text(json.dumps({**record, "shards": 3}), encoding="utf-8")
    with pytest.raises(DataError, match=r"do not match manifest\.json"):
        VectorStore.open(tmp_path / "out")
    manifest.write_text(json.dumps(record), encoding="utf-8")
    shutil.rmtree(shards / "00002")
    with pytest.raises(DataError, match=r"There is no folder .*00002"):
        VectorStore.open(tmp_path / "out")
    shutil.copytree(tmp_path / "other" / "shards" / "00002", shards / "00002")
    with pytest.raises(DataError, match="00002 does not match"):
        VectorStore.open(tmp_path / "out")
    shutil.copytree(encoder, tmp_path / "copy")  # the same model by another name
    given: Any = {"pool": "mean", "engine": "ray", "text_columns": "text"}
    elmokit.embed(tmp_path / "copy", files, tmp_path / "copied", **given)
    shutil.rmtree(shards / "00002")
    shutil.copytree(tmp_path / "copied" / "shards" / "00002", shards / "00002")
    assert len(VectorStore.open(tmp_path / "out")) == 24


def test_joined_rows_are_read_like_one_array() -> None:
    parts = [
        np.arange(6.0).reshape(3, 2),
        np.empty((0, 2)),
        np.arange(6.0, 10.0).reshape(2, 2),
        np.empty((0, 2)),
    ]
    whole, joined = np.concatenate(parts), JoinedRows(parts.__getitem__, np.array([0, 3, 3, 5, 5]))
    assert (len(joined), joined.shape, joined.nbytes) == (5, (5, 2), whole.nbytes)
    for first in range(-6, 7):
        for last in range(-6, 7):
            assert joined[first:last].tolist() == whole[first:last].tolist()
    places: list[Any] = [0, 3, -1, np.int64(4), slice(None, None, 2), [4, 0], whole[:, 0] > 3, []]
    for place in places:
        assert joined[place].tolist() == whole[place].tolist()
    rows_of: Any = joined
    assert [row.tolist() for row in rows_of] == whole.tolist()
    assert joined.reshape(5, 2, 1).shape == (5, 2, 1)
    with pytest.raises(IndexError):
        joined[5]


def test_predictions_are_those_of_the_local_engine_file_by_file(
    encoder: Path, files: Path, tmp_path: Path
) -> None:
    train = table(tmp_path / "train.csv", rows(40))
    elmokit.fit(encoder, train, tmp_path / "model", head="linear", valid_share=0.2)
    summary = elmokit.predict(tmp_path / "model", files, tmp_path / "out", engine="ray")
    assert summary.n_rows == 24
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert [part.name for part in parts] == [f"part-{number:05d}.csv" for number in range(4)]
    for number, part in enumerate(parts):
        elmokit.predict(tmp_path / "model", files / f"{number}.csv", tmp_path / "one.csv", overwrite=True)
        assert part.read_bytes() == (tmp_path / "one.csv").read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["kind"], manifest["done"], manifest["n_rows"]) == ("predictions", True, 24)
    parts[0].unlink()  # only what is missing is made again
    before = parts[2].stat().st_mtime_ns
    elmokit.predict(tmp_path / "model", files, tmp_path / "out", engine="ray")
    assert parts[0].exists()
    assert parts[2].stat().st_mtime_ns == before
    table(files / "2.csv", rows(3))
    with pytest.raises(ElmokitError, match=r"2\.csv: it changed since"):
        elmokit.predict(tmp_path / "model", files, tmp_path / "out", engine="ray")
    elmokit.predict(tmp_path / "model", files, tmp_path / "out", engine="ray", overwrite=True)
    (tmp_path / "out" / "part-of-mine.txt").write_text("mine", encoding="utf-8")
    before_all = contents(tmp_path / "out")
    options: Any = {"engine": "ray", "overwrite": True}
    with pytest.raises(DataError, match=r"typo\.csv"):
        elmokit.predict(tmp_path / "model", tmp_path / "typo.csv", tmp_path / "out", **options)
    assert contents(tmp_path / "out") == before_all
    elmokit.predict(tmp_path / "model", files / "0.csv", tmp_path / "out", **options)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["manifest.json", "part-00000.csv", "part-of-mine.txt"]
    with pytest.raises(ConfigError, match="--address is for the engine 'ray'"):
        elmokit.predict(tmp_path / "model", files, tmp_path / "one.csv", address="here:1")
    with pytest.raises(RunError, match="does not hold a vector store"):
        elmokit.embed(encoder, files, tmp_path / "out", engine="ray", overwrite=True)
    with pytest.raises(ConfigError, match="writes a folder"):
        elmokit.predict(tmp_path / "model", files, engine="ray")


def test_a_bad_file_is_named_and_the_others_are_kept(
    cli: Cli, encoder: Path, files: Path, tmp_path: Path
) -> None:
    good = (files / "2.csv").read_bytes()
    (files / "2.csv").write_bytes(b'text,label\n"never closed,a\n')
    words = ["embed", encoder, files, "--pool", "mean", "--engine", "ray", "--out", tmp_path / "out"]
    cli(*words).check_refused("2.csv", "3 of 4 files are done", "line 2", "Run the same command again")
    with pytest.raises(DataError, match="not finished"):
        VectorStore.open(tmp_path / "out")
    kept = contents(tmp_path / "out" / "shards" / "00003")
    (files / "2.csv").write_bytes(good)
    cli(*words).check_fine("Done.")
    assert contents(tmp_path / "out" / "shards" / "00003") == kept
    cli(*words).check_fine("Already done.")
    cli(*words[:-2], "--dtype=float16", *words[-2:]).check_refused("dtype was 'float32', now 'float16'")
    cli(*words[:5], *words[-2:]).check_refused("engine was 'ray', now 'local'")
    (files / "3.csv").unlink()
    cli(*words).check_refused("the input files changed")
    assert len(VectorStore.open(tmp_path / "out")) == 24


def test_a_full_disk_fails_the_shards_that_do_not_fit(
    cli: Cli, encoder: Path, files: Path, tmp_path: Path
) -> None:
    words = ["embed", encoder, files, "--all-layers", "--engine", "ray", "--out", tmp_path / "out"]
    cli(*words, "--set=pool=none").check_fine()
    sizes = [path.stat().st_size for path in sorted((tmp_path / "out").glob("shards/*/vectors.npy"))]
    shutil.rmtree(tmp_path / "out")
    with small_disk(sorted(sizes)[-1] - 1):
        cli(*words).check_refused("2.csv: Cannot write", "disk is full", "3 of 4 files are done")
    cli(*words).check_fine()


def test_a_shard_that_kills_its_workers_is_given_up(
    encoder: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, killed = shards._Worker._run, KeyboardInterrupt()  # as if the process ended there

    def die(worker: Any, number: int, *given: Any) -> Any:
        if number == 2:
            raise killed
        return run(worker, number, *given)

    monkeypatch.setattr(shards._Worker, "_run", die)
    worker = shards._Worker(lambda: object(), lambda *given: {}, tmp_path)
    job = {"job": [json.dumps([2, str(files / "2.csv"), "", ["2.csv", ""]])]}
    for _ in range(shards._MOST_TRIES):
        with pytest.raises(KeyboardInterrupt):
            worker(job)
    assert "workers died" in worker(job)["result"][0]


def test_uris_are_listed_and_fetched(encoder: Path, files: Path, tmp_path: Path) -> None:
    os.rename(files / "3.csv", files / "with space.csv")
    (files / "notes.md").write_text("no input")
    uri = files.as_uri()
    for number, source in enumerate(
        [uri, f"{uri}/*.csv", [f"{uri}/{n}.csv" for n in range(3)] + [f"{uri}/w*"]]
    ):
        out = tmp_path / str(number)
        elmokit.embed(encoder, source, out, pool="mean", engine="ray", text_columns="text")
        store = VectorStore.open(out)
        assert [file[0] for file in store.manifest.files] == ["0.csv", "1.csv", "2.csv", "with space.csv"]
        assert len(store) == 24
    memory = pytest.importorskip("fsspec").filesystem("memory")  # pyarrow does not know it
    memory.pipe("/folder/a.txt", b"one\ntwo\n")
    elmokit.embed(encoder, "memory://folder", tmp_path / "memory", engine="ray")
    assert VectorStore.open(tmp_path / "memory").texts == ["one", "two"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("file:///no/such/folder", "no text files at file:///no/such/folder"),
        ("sftp://host/folder", "cannot be read: .*paramiko"),
        ("nothing://folder", "nothing://folder cannot be read: Protocol not known"),
        ("-", "cannot read standard input"),
        ([], "No text was given"),
    ],
)
def test_sources_that_cannot_be_read_are_refused(
    encoder: Path, tmp_path: Path, source: Any, problem: str
) -> None:
    with pytest.raises(ElmokitError, match=problem):
        elmokit.embed(encoder, source, tmp_path / "out", engine="ray")


def test_what_the_engine_cannot_do_is_refused(files: Path, encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model in memory"):
        elmokit.embed(elmokit.Elmo.load(encoder), files, tmp_path / "out", engine="ray", text_columns="text")
    engine: Any = "rai"
    with pytest.raises(ConfigError, match="no engine 'rai'"):
        elmokit.embed(encoder, files, tmp_path / "out", engine=engine)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="contain no text"):
        elmokit.embed(encoder, tmp_path / "empty.txt", tmp_path / "empty", engine="ray")


def test_a_missing_package_is_named_with_its_extra(
    encoder: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # no fixture that computes without it
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[ray\]'"):
        elmokit.embed(encoder, files, tmp_path / "out", engine="ray", text_columns="text")
