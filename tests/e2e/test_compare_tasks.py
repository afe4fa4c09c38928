"""``elmokit compare`` with tags, pairs and answers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import elmokit
from program import Cli
from topics import OTHERS, TOPICS, rows, table

SMALL = """
[classifier]
epochs = 4
lr = 0.03
batch_words = 256
head_dim = 8
[method.svd.vectors]
dim = 4
"""


def lines(task: str, n: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows of a task that the words of the topics decide."""
    rng, found = random.Random(seed), []
    for (text, topic), (other, second) in zip(rows(n, seed), rng.sample(rows(n, seed + 9), n), strict=True):
        words = text.split()
        answer = next(word for word in words if word not in OTHERS)
        found.append(
            {
                "tag": (text, " ".join(f"B-{topic}" if word in TOPICS[topic] else "O" for word in words)),
                "pair": (text, other, "same" if topic == second else "other"),
                "score": (text, other, rng.random() + 3 * (topic == second)),
                "answer": ("what did we see", text, answer),
            }[task]
        )
    return found


@pytest.mark.parametrize(
    ("task", "names", "metric", "said"),
    [
        ("tag", ("tokens", "tags"), "span_f1", ("Scores by label", "span precision", "| money |")),
        ("pair", ("text", "other", "label"), "accuracy", ("Scores by class", "Confusion matrix")),
        ("score", ("text", "other", "score"), "pearson", ("spearman",)),
        ("answer", ("question", "passage", "answer"), "answer_f1", ("Scores by question", "exact match")),
    ],
)
def test_a_task_is_compared(
    cli: Cli, encoder: Path, tmp_path: Path, task: str, names: Any, metric: str, said: tuple[str, ...]
) -> None:
    train, test = (
        table(tmp_path / f"{name}.csv", lines(task, n, seed), names)
        for name, n, seed in (("train", 90, 0), ("test", 30, 1))
    )
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    out = tmp_path / "report"
    words = ("compare", train, test, "-o", out, "--encoder", encoder, "--config", tmp_path / "small.toml")
    plan = ("--methods", "elmo-trainable,elmo-finetuned,elmo-linear,svd,tfidf-svm", "--seeds", "1")
    done = cli(*words, *plan, "--curve", "20", "--draws", "2", "--workers", "1")
    done.check_fine(
        "elmo-linear is left out", "tfidf-svm is left out", f"Task: {task.replace('score', 'pair')}"
    )
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    methods = {method["id"]: method for method in report["methods"]}
    assert {id: one["status"] for id, one in methods.items()} == dict.fromkeys(
        ("elmo-trainable", "elmo-finetuned", "svd"), "done"
    )
    assert methods["svd"]["settings"]["head_dim"] == 8  # the user's, not the task's
    assert -1 <= methods["svd"]["splits"]["test"][metric]["mean"] <= 1
    text = (out / "report.md").read_text(encoding="utf-8")
    assert [part for part in said if part not in text] == []
    best = elmokit.evaluate(out / "best", test).values
    means = [one["splits"]["test"][metric]["mean"] for one in methods.values()]
    assert min(abs(best[metric] - mean) for mean in means) < 0.01
    cli(*words, *plan, "--curve", "20", "--draws", "2", "--workers", "1").check_fine("steps are done")
