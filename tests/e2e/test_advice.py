"""What people are told to do suits their task and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.tasks.task import get_task
from program import Cli
from topics import table

PAIRS = [(f"a {word}", "the bank", label) for word, label in (("bank", "x"), ("goal", "y")) * 8]
CONLL = "bank B-X\na O\n\ngoal B-X\nthe O\n\n"
QUICK = ("--epochs", "1", "--set", "head_dim=4", "--set", "lr=0.000001")
pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Path]:
    """Rows of each task."""
    (tmp_path / "tag.conll").write_text(CONLL * 4, encoding="utf-8")
    asked = [{"question": "who", "passage": "a bank goal", "answer": word} for word in ("bank", "goal")]
    (tmp_path / "answer.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked * 4), "utf-8")
    pairs = table(tmp_path / "pair.csv", PAIRS, ("text", "other", "label"))
    classes = table(tmp_path / "classify.csv", [(text, label) for text, _, label in PAIRS])
    return {
        "classify": classes,
        "tag": tmp_path / "tag.conll",
        "answer": tmp_path / "answer.jsonl",
        "pair": pairs,
    }


@pytest.mark.parametrize("task", ["classify", "tag", "answer", "pair"])
def test_the_default_head_is_advised_only_where_it_is_another(
    cli: Cli, encoder: Path, rows: dict[str, Path], tmp_path: Path, task: str
) -> None:
    head = "pool" if task == "classify" else "auto"
    said = cli("fit", encoder, rows[task], "--head", head, *QUICK, "-o", tmp_path / "made").check_fine("Done")
    assert "underfits" in said.out + said.err
    assert ("--head auto" in said.out + said.err) == get_task(task).classifies_texts
    np.save(tmp_path / "a.npy", np.ones((8, 2)))
    words = ("fit", f"vectors:{tmp_path / 'a.npy'}", rows[task], "--head", head, "-o", tmp_path / "new")
    cli(*words).check_refused("no layers", "Only to classify, --head auto")


def test_files_that_are_something_else_are_known(cli: Cli, encoder: Path, rows: dict[str, Path]) -> None:
    folder, out = rows["tag"].parent, ("-o", rows["tag"].parent / "made")
    text = rows["tag"].rename(folder / "tag.txt")
    cli("fit", encoder, text, *out).check_refused("plain text", ".conll")
    cli("fit", encoder, rows["classify"], "--with", "tfidf-svm", *out).check_refused(
        "tfidf-svm cannot be combined"
    )
    cli("fit", f"vectors:{text}", rows["classify"], *out).check_refused("no .npy file", "glove:FILE")
    (folder / "a.jsonl").write_text('{"tags": ["O"]}\n', encoding="utf-8")
    cli("fit", encoder, folder / "a.jsonl", "--task", "tag", *out).check_refused("no field 'tokens'")


def test_rows_that_no_model_can_read_are_refused_by_line(
    cli: Cli, encoder: Path, rows: dict[str, Path], tmp_path: Path
) -> None:
    for task in ("answer", "tag"):
        cli("fit", encoder, rows[task], *QUICK, "-o", tmp_path / task).check_fine()
    (tmp_path / "a.txt").write_text("who is it\n", encoding="utf-8")
    refused = cli("predict", tmp_path / "answer", tmp_path / "a.txt")
    refused.check_refused("a.txt, line 1", "the columns question, passage in .csv")
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", ""]}\n', encoding="utf-8")
    cli("predict", tmp_path / "tag", tmp_path / "a.jsonl").check_refused("a.jsonl, line 1: word 2 is empty")


def test_labels_that_training_never_saw_are_named_with_their_line(
    cli: Cli, encoder: Path, rows: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "other.conll").write_text(CONLL + "rain B-NEW\nstorm I-NEW\n", encoding="utf-8")
    cli("fit", encoder, rows["tag"], *QUICK, "-o", tmp_path / "made").check_fine()
    note = "Counted as errors: 1 row with labels that never occur in training: NEW (other.conll, line 7)."
    said = cli("evaluate", tmp_path / "made", tmp_path / "other.conll").check_fine()
    assert note in " ".join(said.out.split())
    found = json.loads(cli("evaluate", tmp_path / "made", tmp_path / "other.conll", "--json").out)
    assert (found["unknown"], found["notes"]) == (["NEW"], [note])
    words = ("fit", encoder, rows["tag"], "--valid", tmp_path / "other.conll", "-o", tmp_path / "new")
    cli(*words).check_refused("other.conll, line 7: validation rows have labels", "not have: NEW.")
