"""``elmokit demo``, the first thing a person runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from elmokit import load_bilm
from program import environment


def test_the_demo_pretrains_saves_loads_and_describes_and_can_be_run_again(tmp_path: Path) -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:.*\n(?:\t.*\n)*?\t@\$\(BIN\)/elmokit demo$", makefile, re.M)
    for _ in range(2):
        done = subprocess.run(
            ["elmokit", "demo"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "parameters" in done.stdout
        assert "Your turn" in done.stdout
    history = load_bilm(tmp_path / "elmokit-demo").training["history"]
    assert history[-1]["perplexity"] < history[0]["perplexity"]
