"""``elmokit compare`` from files to a report: the whole road, interrupted and resumed, and bad input."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit.comparison.runner import Runner
from program import Cli, Start, environment
from topics import rows, table

SMALL = """
[classifier]
epochs = 4
lr = 0.03
batch_words = 256
head_dim = 8
[language_model]
preset = "tiny"
[language_model.model]
dim = 8
hidden_dim = 8
tie = false
objective = "full"
[language_model.training]
epochs = 1
n_lanes = 4
window = 8
[method.sgns.vectors]
dim = 8
epochs = 2
[method.svd.vectors]
dim = 4
[method.cbow.vectors]
dim = 8
epochs = 2
"""
Compare = Callable[..., list[str]]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """The words of a comparison of small methods on a small task."""
    table(tmp_path / "train.csv", rows(80))
    table(tmp_path / "test.csv", rows(40, 1))
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")

    def words(methods: str, out: str = "report", *more: str | Path) -> list[str]:
        given = ["--methods", methods, "--seeds", "2", "--workers", "1"]
        given += ["--config", str(tmp_path / "small.toml")]
        files = [str(tmp_path / "train.csv"), str(tmp_path / "test.csv")]
        return ["compare", *files, "--out", str(tmp_path / out), *given, *map(str, more)]

    return words


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


def figures(folder: Path) -> dict[str, Any]:
    """What a comparison found, without what depends on the clock."""
    return {
        method["id"]: {name: split["accuracy"]["values"] for name, split in method["splits"].items()}
        for method in facts(folder)["methods"]
    }


def test_from_two_files_to_a_report_and_no_part_is_done_twice(
    cli: Cli, compare: Compare, tmp_path: Path
) -> None:
    command = compare("elmo-trainable,elmo-linear,sgns,tfidf-svm,stack,nbsvm")
    out = tmp_path / "report"
    cli(*command).check_fine(
        "72 for training, 8 for validation, 40 for testing", out / "report.html", "Use it: elmokit predict"
    )
    found = facts(out)
    done = {method["id"]: method for method in found["methods"]}
    assert {method["status"] for method in done.values()} == {"done"}
    assert sorted(found["ranking"]["order"]) == sorted(done)
    assert done["elmo-trainable"]["seeds"] == [0, 1]
    assert done["tfidf-svm"]["seeds"] == [0]
    assert all(method["peak_memory"] > 0 and method["bytes"] > 0 for method in done.values())
    assert done["elmo-trainable"]["seconds"]["pretrain"] > 0
    assert done["elmo-trainable"]["mix"]["names"]
    assert found["pretraining"]["perplexity"] > 1
    assert found["versions"]["torch"]
    assert "elmokit compare" in found["commands"][0]
    assert not (out / "work" / "layers").exists()

    labeled = tmp_path / "labeled.csv"
    cli(
        "predict", out / "best", tmp_path / "test.csv", "--text-columns", "text", "--out", labeled
    ).check_fine()
    assert len(labeled.read_text(encoding="utf-8").splitlines()) == 41

    stamps = {file: file.stat().st_mtime_ns for file in out.glob("work/steps/*/result.json")}
    more = command[: command.index("--seeds")]
    more[more.index("--methods") + 1] += ",svd"
    cli(*more, *command[command.index("--seeds") :]).check_fine("steps are done")
    assert {method["id"] for method in facts(out)["methods"]} == {*done, "svd"}
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in stamps.items())


def test_a_comparison_goes_on_without_gensim_and_says_what_was_left_out(
    cli: Cli, compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim", None)
    left_out = "sgns and cbow are left out: the package gensim is missing."
    cli(*compare("sgns,cbow,svd,tfidf-lr")).check_fine(left_out, "elmokit[static]")
    assert [method["id"] for method in facts(tmp_path / "report")["methods"]] == ["svd", "tfidf-lr"]
    assert left_out in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    cli(*compare("sgns", "other")).check_refused("gensim", "pip install 'elmokit[static]'")
    assert not (tmp_path / "other").exists()


def test_a_given_encoder_is_not_trained_and_a_curve_has_a_point_for_each_count_and_one_for_all(
    cli: Cli, compare: Compare, encoder: Path, tmp_path: Path
) -> None:
    more = ["--encoder", encoder, "--curve", "12,24,500", "--draws", "2"]
    cli(*compare("elmo-linear,tfidf-svm", "report", *more)).check_fine()
    found = facts(tmp_path / "report")
    assert found["pretraining"]["was_given"]
    assert found["methods"][0]["splits"]["test"]["accuracy"]["mean"] > 0.4
    assert not list((tmp_path / "report" / "work" / "steps").glob("elmo-????????"))
    assert found["curve"]["counts"] == [12, 24, 72]
    for method in found["curve"]["methods"].values():
        assert [point["n"] for point in method["points"]] == [12, 24, 72]
        assert [len(point["values"]) for point in method["points"]] == [2, 2, 1]
    cli(*compare("elmo-linear")).check_refused("the model it started from changed")
    table(tmp_path / "test.csv", rows(40, 7))
    cli(*compare("elmo-linear", "report", *more)).check_refused("the test rows changed")


def test_killed_in_the_middle_it_goes_on_and_ends_the_same(
    cli: Cli, start: Start, compare: Compare, tmp_path: Path
) -> None:
    cli(*compare("elmo-trainable,sgns", "whole")).check_fine()
    process = start(*compare("elmo-trainable,sgns", "broken"))
    steps = tmp_path / "broken" / "work" / "steps"
    while process.poll() is None and len(list(steps.glob("*/result.json"))) < 3:
        time.sleep(0.01)
    pids = descendants(process.pid)
    process.kill()
    process.wait()
    _wait_until_gone(pids)
    n_done = len(list(steps.glob("*/result.json")))
    again = compare("elmo-trainable,sgns", "broken", "--workers", "2")
    cli(*again).check_fine(f"{n_done} of" if n_done else "")
    assert figures(tmp_path / "broken") == figures(tmp_path / "whole")


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    children = {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and parent_of(int(entry.name)) == pid
    }
    return children.union(*map(descendants, children))


def parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0  # it is gone


def _wait_until_gone(pids: set[int]) -> None:
    for _ in range(200):
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not alive:
            return
        time.sleep(0.05)
    pytest.fail(f"Processes outlive their comparison: {alive}")


def test_interrupted_it_saves_and_says_how_to_go_on(start: Start, compare: Compare, tmp_path: Path) -> None:
    process = start(*compare("elmo-trainable,sgns"))
    steps = tmp_path / "report" / "work" / "steps"
    while process.poll() is None and not list(steps.glob("*")):
        time.sleep(0.01)
    pids = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Run the same command again" in said
    _wait_until_gone(pids)


def test_a_step_whose_process_is_killed_is_reported_and_the_others_finish(
    start: Start, compare: Compare, tmp_path: Path
) -> None:
    process = start(*compare("sgns,tfidf-lr"))
    killed: set[int] = set()
    while process.poll() is None and not killed:
        killed = {pid for pid in descendants(process.pid) if parent_of(pid) not in (process.pid, 0)}
        time.sleep(0.01)
    os.kill(min(killed), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "failed: Its process was killed, as happens when memory runs out." in said
    status = {method["id"]: method["status"] for method in facts(tmp_path / "report")["methods"]}
    assert status == {"sgns": "failed", "tfidf-lr": "done"}


def test_a_script_needs_no_guard_around_a_comparison(compare: Compare, tmp_path: Path) -> None:
    compare("")  # writes the files
    script = tmp_path / "script.py"
    script.write_text(
        "import elmokit\n"
        "result = elmokit.compare('train.csv', 'test.csv', 'report', methods='tfidf-lr', workers=1)\n"
        "print(result.recommended)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "tfidf-lr\n", done.stderr


def test_at_the_deadline_no_further_step_starts_and_a_new_budget_finishes_the_rest(
    cli: Cli, compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_step = Runner._start

    def start_last_step(runner: Runner, *arguments: Any) -> None:
        start_step(runner, *arguments)
        runner.deadline = 0.0  # it passes while the first step runs

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_start", start_last_step)
        cli(*compare("sgns,linear", "report", "--budget", "1h")).check_fine("Use it: elmokit predict")
    status = {method["id"]: method["status"] for method in facts(tmp_path / "report")["methods"]}
    assert status == {"sgns": "left out", "tfidf-svm": "done", "tfidf-lr": "left out"}
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "The deadline had passed before it started." in page
    cli(*compare("sgns,linear", "report", "--budget", "1h")).check_fine("1 of")
    assert {method["status"] for method in facts(tmp_path / "report")["methods"]} == {"done"}


def test_pretraining_has_half_of_the_time_until_the_deadline(
    cli: Cli, compare: Compare, tmp_path: Path
) -> None:
    cli(*compare("elmo-frozen", "report", "--budget", "10m", "--seeds", "1")).check_fine()
    (model,) = (tmp_path / "report" / "work" / "steps").glob("elmo-????????/model")
    assert 200 < json.loads((model / "config.json").read_text())["training"]["settings"]["max_time"] < 300


def test_a_method_that_fails_says_why_and_one_with_other_settings_is_fitted_again(
    cli: Cli, compare: Compare, encoder: Path, tmp_path: Path
) -> None:
    config, out, counts = tmp_path / "small.toml", tmp_path / "report", list[int]()
    for weights in ("1,2", "1,2,3", "3,2,1"):  # the first are wrong
        config.write_text(
            f'{SMALL}[method.elmo-frozen.classifier]\nmix_weights = "{weights}"\n', encoding="utf-8"
        )
        done = cli(*compare("elmo-frozen,tfidf-lr", "report", "--encoder", encoder))
        assert done.code == (weights == "1,2"), done.err
        counts.append(len(list((out / "work" / "steps").glob("*/result.json"))))
        if weights == "1,2":
            assert "elmo-frozen-s0 failed" in done.out
            frozen, linear = facts(out)["methods"]
            assert (frozen["status"], linear["status"]) == ("failed", "done")
            assert "2 weights were given for 3 layers" in frozen["reason"]
            assert frozen["reason"] in (out / "report.html").read_text(encoding="utf-8")
    assert counts == [2, 4, 6]


def test_several_language_models_and_one_that_is_given_do_not_go_together(
    cli: Cli, compare: Compare, encoder: Path
) -> None:
    refused = cli(*compare("elmo-char,elmo-deep", "report", "--recipe", "write-ups", "--encoder", encoder))
    refused.check_refused("different language models")


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("methods", "more", "words"),
    [
        ("elmo-trainabel", (), ("'elmo-trainabel'", "elmo-trainable")),
        ("svd", ("--recipe", "quik"), ("'quik'", "quick")),
        ("svd", ("train.csv", "test.csv"), ("two or three files",)),
        ("svd", ("--curve", "a,b"), ("--curve a,b", "100,300,1000")),
        ("svd", ("--curve", "1,100"), ("--curve 1,100",)),
        ("svd", ("--label-separator", "|"), ("one label per row", "elmokit fit")),
    ],
)
def test_what_cannot_be_compared_is_refused(
    cli: Cli, compare: Compare, methods: str, more: tuple[str, ...], words: tuple[str, ...]
) -> None:
    cli(*compare(methods, "report", *more)).check_refused(*words)


def test_test_rows_with_other_columns_are_refused_by_name(cli: Cli, compare: Compare, tmp_path: Path) -> None:
    table(tmp_path / "test.csv", rows(9), head=("body", "label"))
    cli(*compare("svd", "report", "--text-columns", "text")).check_refused("test.csv", "text", "body")
    assert not (tmp_path / "report").exists()


def test_a_folder_with_a_work_of_its_own_is_left_alone(cli: Cli, compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "report" / "work").mkdir(parents=True)
    (tmp_path / "report" / "work" / "thesis.txt").write_text("dear", encoding="utf-8")
    cli(*compare("tfidf-lr")).check_refused("does not hold a comparison")
