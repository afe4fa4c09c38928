"""The one rule for ``--out``, the lock, and the settings of a run."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from elmokit.core.errors import RunError
from elmokit.core.model_card import Facts
from elmokit.core.model_folder import kind_of, read_record, write_model
from elmokit.core.run_folder import RunFolder, describe_changes, open_file, open_out

KINDS = ("bilm", "classifier", "comparison", "word-vectors", "vectors", "token-cache", "report")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_new_and_empty_folders_are_taken_and_nothing_is_made_yet(tmp_path: Path, kind: str) -> None:
    assert open_out(tmp_path / "new" / "deep", kind).out == tmp_path / "new" / "deep"
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty" / ".saving").mkdir(parents=True)  # left by a program that was killed
    (tmp_path / "empty" / ".manifest.json.new").write_text("{", encoding="utf-8")
    open_out(tmp_path / "empty", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_somebody_else_has_there_is_not_touched(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place, message in (("file", "is a file, not a folder"), ("file/sub", "Cannot write")):
        with pytest.raises(RunError, match=message):
            open_out(tmp_path / place, kind)
    mine = tmp_path / "mine"
    for names in (["notes.txt"], ["run/notes.txt"], ["work/notes.txt"], ["config.json", "manifest.json"]):
        for name in names:
            (mine / name).parent.mkdir(parents=True, exist_ok=True)
            (mine / name).write_text('{"format": "another"}', encoding="utf-8")
        before = tree(mine)
        with pytest.raises(RunError, match="nothing in it was touched") as caught:
            open_out(mine, kind)
        assert str(mine) in caught.value.message
        assert caught.value.remedy
        assert tree(mine) == before


@pytest.mark.parametrize("kind", ["bilm", "classifier", "comparison"])
def test_a_run_is_resumed_by_its_own_kind_only(tmp_path: Path, kind: str) -> None:
    with open_out(tmp_path / "out", kind).lock():
        pass
    (tmp_path / "out" / "report.html").write_text("made by a run", encoding="utf-8")
    open_out(tmp_path / "out", kind)
    for other in {*KINDS} - {kind}:
        with pytest.raises(RunError, match="nothing in it was touched"):
            open_out(tmp_path / "out", other)


def test_a_run_of_an_earlier_version_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("", encoding="utf-8")
    open_out(tmp_path, "bilm")
    (tmp_path / "run" / "settings.json").write_text("{}", encoding="utf-8")
    open_out(tmp_path, "classifier")


def test_a_model_is_replaced_by_its_own_kind_only(tmp_path: Path) -> None:
    with write_model(tmp_path / "m", "word-vectors", {}, card=Facts("A table.", ())):
        pass
    with pytest.raises(RunError, match=r"already holds word vectors; nothing(.|\n)*--overwrite"):
        open_out(tmp_path / "m", "word-vectors")  # by which job is not known
    open_out(tmp_path / "m", "word-vectors", overwrite=True)
    for other in {*KINDS} - {"word-vectors"}:
        with pytest.raises(RunError, match="already holds word vectors"):
            open_out(tmp_path / "m", other)


def make_fitted(out: Path, kind: str, *, kill: bool = False, **options: bool) -> None:
    """A fitted model; or be killed before its end."""
    folder = open_out(out, kind, **options)
    with folder.lock():
        if kind == "classifier":
            folder.require_same({"training": {"lr": 0.1}}, {})
        else:
            folder.is_done({}, {})
        if kill:
            os._exit(9)
        with write_model(out, kind, {}, card=Facts("A classifier.", ())):
            pass


@pytest.mark.parametrize(("old", "new"), [("classifier", "stack"), ("stack", "classifier")])
def test_models_of_fit_may_overwrite_each_other(tmp_path: Path, old: str, new: str) -> None:
    make_fitted(tmp_path, old)
    with pytest.raises(RunError, match=r"already holds a classifier; nothing(.|\n)*--overwrite"):
        open_out(tmp_path, new)
    with pytest.raises(RunError, match=r"already holds a classifier; nothing"):
        open_out(tmp_path, "bilm", overwrite=True)
    process = multiprocessing.get_context("fork").Process(
        target=make_fitted, args=(tmp_path, new), kwargs={"kill": True, "overwrite": True}
    )
    process.start()
    process.join()
    assert (process.exitcode, kind_of(tmp_path)) == (9, old)
    make_fitted(tmp_path, new)
    assert kind_of(tmp_path) == new
    assert (tmp_path / "run").exists() == (new == "classifier")


def test_a_finished_model_without_its_run_is_not_trained_over(tmp_path: Path) -> None:
    with write_model(tmp_path, "bilm", {}, card=Facts("A model.", ())):
        pass
    with pytest.raises(RunError, match="finished model without its training run") as caught:
        open_out(tmp_path, "bilm")
    assert "--from" in caught.value.remedy


def _try_lock(out: str, results: multiprocessing.Queue[str]) -> None:
    try:
        with open_out(Path(out), "bilm").lock():
            results.put("locked")
    except RunError as error:
        results.put(error.message)


def test_two_processes_do_not_work_in_the_same_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[str] = context.Queue()
    for is_held in (True, False):
        process = context.Process(target=_try_lock, args=(str(tmp_path / "m"), results))
        if is_held:
            with open_out(tmp_path / "m", "bilm").lock():
                process.start()
                assert results.get(timeout=60) == f"Another process is using {tmp_path / 'm'}."
                process.join()
        else:
            process.start()
            assert results.get(timeout=60) == "locked"
            process.join()


def test_the_lock_of_a_model_folder_leaves_nothing_and_what_was_finished_meanwhile_is_kept(
    tmp_path: Path,
) -> None:
    first, second = (open_out(tmp_path / "m", "word-vectors") for _ in range(2))
    with first.lock():
        assert [path.name for path in (tmp_path / "m").iterdir()] == [".lock"]
        with pytest.raises(RunError, match="Another process is using"), second.lock():
            pass
    assert not (tmp_path / "m").exists()
    with first.lock(), write_model(tmp_path / "m", "word-vectors", {}, card=Facts("A table.", ())):
        pass
    assert sorted(tree(tmp_path / "m")) == ["README.md", "config.json"]
    with pytest.raises(RunError, match="already holds word vectors"), second.lock():
        pass
    with open_out(tmp_path / "m", "word-vectors", overwrite=True).lock():
        assert kind_of(tmp_path / "m") == "word-vectors"  # until the new ones replace it


def train_model(out: Path, lr: float = 0.1, *, kill: bool = False, overwrite: bool = False) -> bool:
    """A run, which may be killed before its end; whether it had to be done."""
    folder = open_out(out, "bilm", overwrite=overwrite)
    with folder.lock():
        folder.require_same({"training": {"lr": lr}}, {})
        if folder.has_result():
            return False
        (folder.run / "checkpoint").write_text(str(lr), encoding="utf-8")
        if not kill:
            with write_model(out, "bilm", {"lr": lr}, card=Facts("A model.", ())):
                pass
        return True


def test_a_run_that_is_overwritten_goes_at_its_start_and_its_model_when_the_new_one_is_there(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    for again in (False, True):
        assert train_model(out) is not again
    (out / "run" / "corpus").mkdir()
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    before = tree(out)
    with open_out(out, "bilm", overwrite=True).lock():
        assert tree(out) == before  # the files that it reads may be missing
    assert train_model(out, overwrite=True, kill=True)
    assert (out / "run" / "corpus").exists()
    assert {**tree(out), ".outdated": b""} == {**before, ".outdated": b""}
    assert read_record(out, "bilm")["lr"] == 0.1
    for again in (False, True):
        assert train_model(out) is not again
    assert train_model(out, 0.2, overwrite=True, kill=True)
    assert (out / "run" / "checkpoint").read_text(encoding="utf-8") == "0.2"
    (out / "run" / "more").touch()
    assert train_model(out, 0.2, overwrite=True, kill=True)
    assert (out / "run" / "more").exists()  # the same command resumes
    for again in (False, True):
        assert train_model(out, 0.2) is not again
    assert read_record(out, "bilm")["lr"] == 0.2
    assert (out / "mine.txt").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine", encoding="utf-8")
    for kind in KINDS:
        with pytest.raises(RunError, match="nothing in it was touched"):
            open_out(tmp_path / "other", kind, overwrite=True)


# -- jobs that are done in one go -----------------------------------------------------------------


def do_job(out: Path, dim: int = 4, content: str = "abc", *, kill: str = "", **options: bool) -> list[str]:
    """Make word vectors, or be killed before they are written or after; what the job said."""
    said: list[str] = []
    folder = open_out(out, "word-vectors", **options)
    with folder.lock():
        if not folder.is_done({"training": {"dim": dim}}, {"text.content_hash": content}, said.append):
            if kill == "before":
                os._exit(9)
            with write_model(out, "word-vectors", {"dim": dim}, card=Facts("A table.", ())):
                pass
            if kill == "after":
                os._exit(9)
    return said


def test_the_same_job_is_done_once_and_another_one_is_refused(tmp_path: Path) -> None:
    assert do_job(tmp_path) == []
    before = tree(tmp_path)
    assert sorted(before) == ["README.md", "config.json", "settings.json"]
    assert do_job(tmp_path) == [f"Already done: {tmp_path} holds the result of the same command."]
    for change, message in (({"dim": 8}, "dim was 4, now 8"), ({"content": "x"}, "the text changed")):
        with pytest.raises(RunError, match=rf"other settings or data: {message}; nothing(.|\n)*--overwrite"):
            do_job(tmp_path, **change)
    assert tree(tmp_path) == before
    assert do_job(tmp_path, 8, overwrite=True) == []
    assert do_job(tmp_path, 8)
    with write_model(tmp_path, "word-vectors", {"dim": 9}, card=Facts("Saved by hand.", ())):
        pass
    with pytest.raises(RunError, match="already holds word vectors; nothing"):
        do_job(tmp_path, 8)


@pytest.mark.parametrize("kill", ["before", "after"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_that_was_killed_is_done_when_it_is_run_again(
    tmp_path: Path, kill: str, is_first: bool
) -> None:
    out = tmp_path / "out"
    if not is_first:
        do_job(out, 8)
    process = multiprocessing.get_context("fork").Process(
        target=do_job, args=(out,), kwargs={"kill": kill, "overwrite": not is_first}
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert do_job(out) == []
    assert do_job(out)
    assert read_record(out, "word-vectors")["dim"] == 4


@pytest.mark.parametrize("old", ["no", "", "new", "old", "ne", "newer"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_replaced_by_other_content_only_if_that_was_asked_for(
    tmp_path: Path, old: str, overwrite: bool
) -> None:
    file, said = tmp_path / "labeled.csv", list[str]()
    if old != "no":
        file.write_text(old)

    def write() -> None:
        with open_file(file, overwrite=overwrite, say=said.append) as stream:
            with pytest.raises(RunError, match="Another process is using"), open_file(file, overwrite=True):
                pass
            stream.write(b"ne")
            stream.write(b"w")

    if old in ("old", "ne", "newer") and not overwrite:
        with pytest.raises(RunError, match=r"labeled\.csv exists(.|\n)*nothing in it(.|\n)*--overwrite"):
            write()
        assert file.read_text() == old
    else:
        write()
        assert file.read_text() == "new"
    is_same = old == "new" and not overwrite
    assert said == [f"Already done: {file} holds the result of the same command."] * is_same
    assert list(tmp_path.iterdir()) == [file]


# -- settings -------------------------------------------------------------------------------------


def test_settings_are_recorded_once_and_must_stay_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, tmp_path, "bilm")
    inputs = {"corpus.content_hash": "abc", "start_from.weights": None}
    folder.require_same({"training": {"lr": 0.1, "filters": (1, 2)}}, inputs)
    record = json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))
    assert record["training"] == {"lr": 0.1, "filters": [1, 2]}
    assert (record["corpus"], record["start_from"]) == ({"content_hash": "abc"}, {"weights": None})
    folder.require_same({"training": {"lr": 0.1, "filters": (1, 2)}}, inputs)
    with pytest.raises(RunError) as caught:
        folder.require_same({"training": {"lr": 0.2, "filters": (1, 2)}}, {**inputs, "text.test_rows": "x"})
    assert "lr was 0.1, now 0.2; the test rows changed." in caught.value.message
    for content in ("{", '{"training": 1}'):
        (tmp_path / "settings.json").write_text(content, encoding="utf-8")
        with pytest.raises(RunError, match=r"settings\.json cannot be read"):
            folder.require_same({}, {})


def test_changes_are_described_in_words() -> None:
    before = {"a": {"x": 1, "gone": 2}, "text": {"content_hash": "1"}}
    now = {"a": {"x": 1, "new": 3}, "text": {"content_hash": "2"}, "more": {"weights": "w"}}
    assert describe_changes(before, now) == [
        "gone was 2, now None",
        "new was None, now 3",
        "the text changed",
        "the model it started from changed",
    ]
