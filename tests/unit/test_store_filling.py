"""Vectors on disk end in the same bytes, however often the work was cut off, and fit the disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.bilm.folder import save_bilm
from elmokit.core.console import Reporter
from elmokit.core.errors import DataError, RunError
from elmokit.core.formatting import format_size
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import SPECIALS
from elmokit.vectors import store, store_writer
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import OFFSETS, Manifest, VectorStore
from elmokit.vectors.store import TEXTS as TEXTS_FILE
from elmokit.vectors.store_writer import EmbedResult, embed
from odd_texts import KNOWN, TEXTS, contents, make_model


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
    config = [StoreConfig(), StoreConfig(pool="sif", format="safetensors"), StoreConfig(all_layers=True)][
        start
    ]
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 4)
    model = make_model()
    embed(Elmo(model), odd_corpus, tmp_path / "whole", config=config)
    n_cuts = 0
    for at in range(start, 1000, 3):
        out = tmp_path / f"cut{at}"
        calls = (number == at for number in range(10**6))
        with monkeypatch.context() as patch:
            for module, name in (
                (store, "write_text"),
                (store_writer, "write_text"),
                (os, "fsync"),
                (Elmo, "embed"),
            ):
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


def test_bytes_of_a_chunk_that_was_not_recorded_are_written_again(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 2)
    embed(elmo, odd_corpus, tmp_path / "whole")
    stop_after(2, monkeypatch, elmo, odd_corpus, tmp_path / "cut")
    done = json.loads((tmp_path / "cut" / "progress.json").read_text(encoding="utf-8"))
    assert done["n_texts"] == 4
    with open(tmp_path / "cut" / "vectors.npy", "r+b") as file:
        file.seek(128 + done["n_vectors"] * elmo.dim * 4)
        file.write(b"\xff" * 50)
    with pytest.raises(DataError, match="not finished") as caught:
        VectorStore.open(tmp_path / "cut")
    assert "same elmokit embed command" in caught.value.remedy
    result = embed(elmo, odd_corpus, tmp_path / "cut")
    assert (result.n_resumed, result.was_done) == (4, False)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def stop_after(n_chunks: int, monkeypatch: pytest.MonkeyPatch, elmo: Elmo, corpus: Path, out: Path) -> None:
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
            embed(elmo, corpus, out)


def test_a_finished_folder_is_left_alone_and_can_get_an_export_later(
    elmo: Elmo, odd_corpus: Path, odd_store: Path
) -> None:
    before = contents(odd_store)
    result = embed(elmo, odd_corpus, odd_store)
    assert result.was_done
    assert contents(odd_store) == before
    result = embed(elmo, odd_corpus, odd_store, exports=["npz"])
    assert result.exports == [odd_store / "vectors.npz"]
    assert {name: data for name, data in contents(odd_store).items() if name != "vectors.npz"} == before


CHANGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "another model": lambda corpus: {"model": Elmo(make_model(seed=1))},
    "pool was 'none', now 'mean'": lambda corpus: {"config": StoreConfig(pool="mean")},
    "layer was None, now 1": lambda corpus: {"config": StoreConfig(layer=1)},
    "dtype was 'float32', now 'float16'": lambda corpus: {"config": StoreConfig(dtype="float16")},
    "encoding was 'utf-8', now 'latin-1'": lambda corpus: {"read": ReadConfig(encoding="latin-1")},
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
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, finished: bool
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    if finished:
        embed(elmo, odd_corpus, out)
    else:
        stop_after(2, monkeypatch, elmo, odd_corpus, out)
    before = contents(out)
    other = CHANGES[change](odd_corpus)
    with pytest.raises(RunError, match="different settings") as caught:
        embed(
            other.get("model", elmo),
            other.get("files", odd_corpus),
            out,
            config=other.get("config"),
            read=other.get("read"),
        )
    assert change in caught.value.message
    assert caught.value.remedy
    assert contents(out) == before


def test_a_folder_cut_off_while_texts_were_read_takes_any_other_start(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path
) -> None:
    embed(elmo, odd_corpus, tmp_path / "whole")
    out = tmp_path / "store"
    out.mkdir()
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text(encoding="utf-8"))
    for name in ("n_texts", "n_words", "n_vectors", "n_empty", "texts_bytes", "ids_bytes"):
        del manifest[name]
    manifest.update(done=False, settings={})
    (out / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (out / ".texts.jsonl.new").write_text("half", encoding="utf-8")
    embed(elmo, odd_corpus, out)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("foreign", ["a note", "a file", "a model", "a broken manifest", "another manifest"])
def test_a_folder_that_is_not_ours_is_refused(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, foreign: str
) -> None:
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
        embed(elmo, odd_corpus, out)
    assert "--out" in caught.value.remedy
    assert (contents(out) if out.is_dir() else out.read_bytes()) == before


@pytest.mark.parametrize("damage", ["vectors cut", "vectors gone", "progress", "texts"])
def test_going_on_in_a_damaged_folder_is_refused(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(store_writer, "_CHUNK_TEXTS", 2)
    out = tmp_path / "store"
    stop_after(2, monkeypatch, elmo, odd_corpus, out)
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
        embed(elmo, odd_corpus, out)
    assert "--out" in caught.value.remedy


def test_a_disk_that_is_too_small_is_said_before_anything_is_computed(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(RunError, match=r"only 1\.0 kB are free") as caught:
            embed(elmo, odd_corpus, tmp_path / "store")
    assert "--pool mean" in caught.value.remedy
    embed(elmo, odd_corpus, tmp_path / "store")  # there is room now
    assert len(VectorStore.open(tmp_path / "store")) == len(TEXTS)


@pytest.mark.parametrize("cached_words", [3, 100])
def test_the_callers_word_cache_is_a_plain_one_afterwards(
    odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_words: int
) -> None:
    mine = Elmo(make_model(), cached_words=cached_words)
    kept: list[int] = []

    def watched() -> None:
        kept.append(mine._words._n_pinned)
        mine._words.forget()

    monkeypatch.setattr(mine, "forget_words", watched)
    many = tmp_path / "many.txt"
    many.write_text(f"{KNOWN}\n" * 20, encoding="utf-8")
    embed(mine, many, tmp_path / "store")
    assert len(SPECIALS) < kept[0] <= cached_words + len(SPECIALS)
    assert mine._words._n_pinned == len(mine._words._places) == len(SPECIALS)
    stop_after(0, monkeypatch, mine, odd_corpus, tmp_path / "cut")
    assert mine._words._n_pinned == len(SPECIALS)


def test_a_folder_within_the_texts_does_not_read_itself(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> None:
    def run() -> EmbedResult:
        return embed(elmo, tmp_path, tmp_path / "store")

    assert run().n_texts == len(TEXTS)
    assert run().was_done


# -- size on disk ---------------------------------------------------------------------------------


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
    embed(elmo, table, out, config=config, reporter=heard)
    names = (f"vectors.{config.format}", OFFSETS, TEXTS_FILE)
    total = sum((out / name).stat().st_size for name in names)
    assert heard.events["plan"]["n_bytes_total"] == total
    assert f"[bold]{format_size(total)} on disk[/]" in heard.said[0]

    heard, out = Heard(), tmp_path / "exported"
    embed(elmo, table, out, config=config, reporter=heard, exports=["parquet", "npz", "npz"])
    exported = [(out / f"vectors.{name}").stat().st_size for name in ("parquet", "npz")]
    assert "about" in heard.said[0]
    manifest = Manifest.read(out)
    assert manifest is not None
    size = store_writer._Writer(elmo, out, manifest, ["parquet", "npz"])
    assert heard.events["plan"]["n_bytes_total"] == size.total_bytes
    most = 2 * exported[0] + 8192 + manifest.texts_bytes // 2  # they shrink
    assert exported[0] <= size.exports["parquet"] <= most
    assert 0 <= size.exports["npz"] - exported[1] <= 8192


def test_exports_count_when_the_disk_is_too_small(
    elmo: Elmo, odd_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "store"
    embed(elmo, odd_corpus, tmp_path / "other")
    n_bytes = (tmp_path / "other" / "vectors.npy").stat().st_size
    usage = shutil.disk_usage(tmp_path)._replace(free=n_bytes + 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(RunError, match="more on disk") as caught:
        embed(elmo, odd_corpus, out, exports=["npz"])
    assert "--export" in caught.value.remedy
    embed(elmo, odd_corpus, out)
    with pytest.raises(RunError, match="more on disk"):  # the vectors are there, but not this
        embed(elmo, odd_corpus, out, exports=["parquet", "npz"])
    assert not (out / "vectors.npz").exists()
    assert embed(elmo, odd_corpus, out).was_done
