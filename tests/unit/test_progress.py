from __future__ import annotations

import pytest

from elmokit.core.console import Reporter


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
