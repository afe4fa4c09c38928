"""The engine "ray" on a real cluster of two cores: same results, killed workers and programs, bad input."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.core.errors import ElmokitError
from elmokit.vectors import store_writer
from elmokit.vectors.neighbors import search
from elmokit.vectors.store import VectorStore
from odd_texts import contents
from program import Start, in_its_own_process, wait_for_more
from topics import TOPICS, rows, table

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("single_thread")
N_FILES, N_TEXTS, CHUNK = 3, 200, 16
_work = store_writer._embed_shard
# The program that takes its time, on the workers, too.
SLOWLY = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
import test_ray
test_ray.be_slow()
from elmokit.cli.main import main
main()
"""


def be_slow() -> None:
    """Embed shards slowly and in small chunks from now on."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    store_writer._embed_shard = embed_slowly


def embed_slowly(elmo: Any, number: int, *given: Any, out: Path, **named: Any) -> Any:
    """A shard, slowly; its worker leaves its number beside it."""
    (out / f"{number}.pid").write_text(str(os.getpid()))
    embed = type(elmo).embed

    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(0.1)
        return embed(elmo, *given, **named)

    elmo.embed = slow
    store_writer._CHUNK_TEXTS = CHUNK
    try:
        return _work(elmo, number, *given, out=out, **named)
    finally:
        del elmo.embed


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """The address of a small cluster, to which this process is connected."""
    ray.init(
        "local",
        num_cpus=2,
        object_store_memory=150 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files with texts of known words."""
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(7)
    words = [word for topic in TOPICS.values() for word in topic]
    for number in range(N_FILES):
        lines = (" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(N_TEXTS))
        (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture
def in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", CHUNK)


def n_done(out: Path) -> int:
    """Texts that were embedded in shards that are not finished."""
    done = 0
    for file in out.glob("shards/*/progress.json"):
        try:
            done += int(json.loads(file.read_text(encoding="utf-8"))["n_texts"])
        except (FileNotFoundError, ValueError):
            continue
    return done


def assert_same_as_local(encoder: Path, files: Path, out: Path, local: Path) -> None:
    """Each shard, to the bit."""
    for number in range(N_FILES):
        elmokit.embed(encoder, files / f"{number}.txt", local / str(number))
        assert contents(local / str(number)) == contents(out / "shards" / f"{number:05d}")


def test_shards_and_the_joined_store_are_those_of_the_local_engine(
    encoder: Path, files: Path, tmp_path: Path
) -> None:
    result = elmokit.embed(encoder, files.as_uri(), tmp_path / "out", pool="mean", engine="ray")
    assert (result.n_texts, result.n_resumed, result.was_done) == (N_FILES * N_TEXTS, 0, False)
    for number in range(N_FILES):
        elmokit.embed(encoder, files / f"{number}.txt", tmp_path / str(number), pool="mean")
        assert contents(tmp_path / str(number)) == contents(tmp_path / "out" / "shards" / f"{number:05d}")
    elmokit.embed(encoder, files, tmp_path / "whole", pool="mean")
    stores = [VectorStore.open(tmp_path / name) for name in ("out", "whole")]
    assert stores[0].ids == stores[1].ids
    assert stores[0].texts == stores[1].texts
    elmo = elmokit.Elmo.load(encoder)
    hits = [search(store, [stores[0].texts[250]], elmo, 3)[0] for store in stores]
    assert [(hit.id, round(hit.score, 4)) for hit in hits[0]] == [
        (hit.id, round(hit.score, 4)) for hit in hits[1]
    ]
    assert elmokit.embed(encoder, files.as_uri(), tmp_path / "out", pool="mean", engine="ray").was_done


@pytest.mark.usefixtures("in_small_chunks")
def test_a_killed_worker_loses_and_repeats_nothing(
    encoder: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(store_writer, "_embed_shard", embed_slowly)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def kill_one() -> None:
        while not (progress := [*out.glob("shards/*/progress.json")]):
            time.sleep(0.01)
        os.kill(int((out / f"{int(progress[0].parent.name)}.pid").read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    result = elmokit.embed(encoder, files, out, engine="ray")
    killer.join()
    assert result.n_resumed >= CHUNK
    assert not [*out.glob(".tries-*")]
    assert_same_as_local(encoder, files, out, tmp_path)


@pytest.mark.usefixtures("in_small_chunks")
def test_a_killed_program_resumes_where_it_was(
    encoder: Path, files: Path, tmp_path: Path, start: Start, cluster: str
) -> None:
    out = tmp_path / "out"
    words = ["embed", encoder, files, "--engine", "ray", "--out", out]
    process = start(*words, "--address", cluster, code=SLOWLY)
    assert wait_for_more(process, lambda: n_done(out)), process.communicate()[0]
    process.kill()
    process.communicate()
    assert not json.loads((out / "manifest.json").read_text(encoding="utf-8"))["done"]
    result = elmokit.embed(encoder, files, out, engine="ray")
    assert result.n_resumed >= CHUNK
    assert_same_as_local(encoder, files, out, tmp_path)


def test_a_bad_file_fails_alone(encoder: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\xfe not UTF-8\n")
    with pytest.raises(ElmokitError, match=r"bad\.txt.*1 of 2 files are done") as raised:
        elmokit.embed(encoder, [tmp_path / "bad.txt", files / "0.txt"], tmp_path / "out", engine="ray")
    assert "line 2" in raised.value.message
    assert VectorStore.open(tmp_path / "out" / "shards" / "00001").manifest.done


def test_predictions_are_those_of_the_local_engine(encoder: Path, files: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", rows(40))
    elmokit.fit(encoder, train, tmp_path / "model", head="linear", valid_share=0.2)
    summary = elmokit.predict(tmp_path / "model", files, tmp_path / "out", engine="ray", format="jsonl")
    assert summary.n_rows == N_FILES * N_TEXTS
    for number in range(N_FILES):
        one = tmp_path / f"{number}.jsonl"
        elmokit.predict(tmp_path / "model", files / f"{number}.txt", one)
        assert one.read_bytes() == (tmp_path / "out" / f"part-{number:05d}.jsonl").read_bytes()


def test_a_cluster_of_its_own_is_as_wide_as_the_threads_and_quiet(
    encoder: Path, files: Path, tmp_path: Path
) -> None:
    words: list[str | Path] = [
        "embed",
        encoder,
        files,
        "--engine",
        "ray",
        "--json",
        "--out",
        tmp_path / "out",
    ]
    done = in_its_own_process(*words)
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    assert (events[-1]["event"], events[-1]["n_texts"]) == ("end", N_FILES * N_TEXTS)
    assert len(done.err.splitlines()) <= 2, done.err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host:6379"])
def test_an_address_that_does_not_answer_is_refused_in_time(
    encoder: Path, files: Path, tmp_path: Path, address: str
) -> None:
    words: list[str | Path] = [
        "embed",
        encoder,
        files,
        "--engine",
        "ray",
        "--address",
        address,
        "--out",
        tmp_path / "out",
    ]
    in_its_own_process(*words).check_refused("no Ray cluster", address)
