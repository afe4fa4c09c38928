from __future__ import annotations

import json
from pathlib import Path

import pytest

from elmokit.core.console import MetricsLog, Reporter


def test_damaged_and_later_records_go_on_resuming(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = [json.dumps({"event": "train", "step": step}) for step in (1, 2, 3)]
    file.write_bytes("\n".join(good).encode() + b'\n\0\0\0\0\n[1]\n{"step": 2')
    log = MetricsLog(file, upto=2)
    assert [json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()] == [1, 2]
    log.add("train", 3, loss=0.5)
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[-1]) == {
        "event": "train",
        "step": 3,
        "loss": 0.5,
    }


def test_tensorboard_files_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = MetricsLog(tmp_path / "metrics.jsonl", upto=0, tensorboard=tmp_path / "tensorboard")
    log.add("train", 1, loss=0.5)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_json_mode_prints_one_object_a_line_and_plain_mode_only_messages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for mode in ("json", "plain", "silent"):
        reporter = Reporter(mode)
        reporter.say("[bold]hello[/]")
        reporter.event("train", step=1)
        with reporter.counting("work") as advance:
            advance(3)
    out = capsys.readouterr().out
    assert out == '{"event": "train", "step": 1}\nhello\n'
