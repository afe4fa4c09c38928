from __future__ import annotations

import pytest

from elmokit.core.console import Reporter


def test_json_mode_prints_one_object_a_line_and_plain_mode_only_messages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for mode in ("json", "plain", "silent"):
        reporter = Reporter(mode)
        reporter.say("[bold]hello[/]")
        reporter.console.print("a table")
        reporter.result({"price": "5 €"})
        reporter.event("train", step=1)
        with reporter.counting("work") as advance:
            advance(3)
    out, err = capsys.readouterr()
    assert out == '{"price": "5 €"}\n{"event": "train", "step": 1}\nhello\na table\n'
    assert not err
