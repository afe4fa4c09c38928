"""``elmokit demo``, the first thing a person runs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import elmokit
from program import Cli, environment


def test_the_demo_shows_senses_compares_methods_and_can_be_run_again(tmp_path: Path, encoder: Path) -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:.*\n(?:\t.*\n)*?\t@\$\(BIN\)/elmokit demo$", makefile, re.M)
    said = []
    for _ in range(2):
        done = subprocess.run(
            ["elmokit", "demo", "--model", str(encoder), "--seeds", "1"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    for part in ("One word", "1.00", "ELMo, trainable mix", "TF-IDF + SVM", "Your turn"):
        assert part in said[0]
    assert said[0].split("Your turn")[1] == said[1].split("Your turn")[1]
    assert "steps are done" in said[1]
    facts = json.loads((tmp_path / "elmokit-demo" / "report" / "report.json").read_text(encoding="utf-8"))
    assert {method["status"] for method in facts["methods"]} == {"done"}
    assert {method["splits"]["test"]["n"] for method in facts["methods"]} == {200}
    best: Any = elmokit.load(tmp_path / "elmokit-demo" / "report" / "best")
    assert len(best.labels) == 4


def test_files_of_others_are_not_touched(tmp_path: Path, encoder: Path, cli: Cli) -> None:
    (tmp_path / "train.csv").write_text("topic,text\nmine,mine\n", encoding="utf-8")
    cli("demo", "--model", encoder, "--out", tmp_path).check_refused(
        tmp_path / "train.csv", "exists with different rows"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["train.csv"]
    assert (tmp_path / "train.csv").read_text(encoding="utf-8") == "topic,text\nmine,mine\n"
