"""New tasks go through every verb without an edit to any of them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from elmokit.comparison.compare import compare
from elmokit.comparison.recipes import make_plan
from elmokit.core.errors import DataError
from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.tasks.fit import evaluate, fit, predict
from elmokit.tasks.model import TaskModel
from elmokit.tasks.task import TASKS, Metrics
from program import Cli
from topics import EASY, OTHERS, TOPICS, flags, table
from toy_tasks import TOYS

SETTINGS = {**EASY, "epochs": 12, "cache": "yes"}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, task in TOYS.items():
        monkeypatch.setitem(TASKS, name, task)


def tagged(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Words with the topic they belong to; the second of two neighbors of a topic is inside it."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        topics = rng.choices([*TOPICS, ""], k=rng.randint(2, 6))
        words = [rng.choice(TOPICS[topic] if topic else OTHERS) for topic in topics]
        before = ["", *topics[:-1]]
        tags = [
            "O" if not topic else f"{'I' if topic == last else 'B'}-{topic}"
            for topic, last in zip(topics, before, strict=True)
        ]
        rows.append((" ".join(words), " ".join(tags)))
    return rows


def pairs(n: int, seed: int = 0) -> list[tuple[str, str, float]]:
    """Two words, and whether they have the same topic."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        topics = rng.choices(list(TOPICS), k=2)
        first, second = (rng.choice(TOPICS[topic]) for topic in topics)
        rows.append((first, second, float(topics[0] == topics[1])))
    return rows


def test_tags_with_learned_transitions_go_through_python(encoder: Path, tmp_path: Path) -> None:
    train, test = table(tmp_path / "train.csv", tagged(250)), table(tmp_path / "test.csv", tagged(60, 1))
    result = fit(encoder, train, tmp_path / "made", test=test, task="tag", **SETTINGS)
    assert result.metrics["test"].values["tag_accuracy"] > 0.9
    assert isinstance(result.model, TaskModel)
    transitions = dict(result.model.network.head.named_parameters())["transitions"]
    assert transitions.detach().abs().max() > 0.1
    again = evaluate(tmp_path / "made", test)
    assert again.values == result.metrics["test"].values
    (prediction,) = TaskModel.load(tmp_path / "made").predict([(["we", "saw", "bank", "profit"],)])
    assert prediction.tags == ["O", "O", "B-money", "I-money"]
    report = json.loads((tmp_path / "made" / "report.json").read_text(encoding="utf-8"))
    assert report["splits"]["test"]["tag_accuracy"] == result.metrics["test"].values["tag_accuracy"]
    assert 'id="tags"' in (tmp_path / "made" / "report.html").read_text(encoding="utf-8")


def test_tags_are_learned_with_a_fine_tuned_encoder_and_cut_texts(encoder: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", tagged(120))
    settings = {**SETTINGS, "epochs": 2, "max_words": 4, "finetune": True}
    metrics: Metrics = fit(encoder, train, tmp_path / "made", task="tag", **settings).metrics["valid"]
    assert 0 < metrics.values[metrics.main] <= 1


def test_tags_go_through_the_command_line(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    train, new = table(tmp_path / "train.csv", tagged(250)), table(tmp_path / "new.csv", tagged(20, 1))
    out = tmp_path / "made"
    cli("fit", encoder, train, "--task", "tag", "-o", out, *flags(SETTINGS)).check_fine("valid: tag accuracy")
    table_of_tags = (r"(?m)^tag +accuracy +words *$", r"(?m)^B-money +[01]\.\d{4} +\d+ *$")
    shown = cli("evaluate", out, new).check_fine("tag accuracy", "(20 rows").out
    assert all(re.search(line, shown) for line in table_of_tags), shown
    assert json.loads(cli("evaluate", out, new, "--json").out)["tag_accuracy"] > 0.8
    cli("inspect", out).check_fine("tag", "crf")
    rows = list(csv.DictReader(io.StringIO(cli("predict", out, new).out)))
    assert [len(row["tags"].split()) for row in rows] == [len(row["text"].split()) for row in rows]
    empty = table(tmp_path / "empty.csv", [], ("text",))
    assert cli("predict", out, empty).out == "text,tags\n"


def test_predictions_of_any_task_are_served(encoder: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "epochs": 2}
    train = table(tmp_path / "train.csv", tagged(120))
    fit(encoder, train, tmp_path / "tags", task="tag", **settings)
    train = table(tmp_path / "pairs.csv", pairs(60), ("first", "second", "label"))
    fit(encoder, train, tmp_path / "pairs", task="similar", **settings)
    texts, two = ["we saw bank profit", "", "goal"], {"first": "bank", "second": "profit"}
    registry = open_registry([tmp_path / "tags", tmp_path / "pairs"], ["we saw a bank"])
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:

        def ask(**body: Any) -> Any:
            return client.post("/v1/predict", json=body).json()

        tags, similar = client.get("/v1/models").json()["models"]
        assert (tags["task"], tags["fields"]) == ("tag", ["text"])
        assert (similar["task"], similar["fields"]) == ("similar", ["first", "second"])
        results = TaskModel.load(tmp_path / "tags").predict([(text.split(),) for text in texts])
        answer = ask(texts=texts)
        assert answer["results"] == [{"tags": " ".join(one.tags)} for one in results]
        assert answer["notes"] == ["Texts without words, for which a prediction is meaningless: 1."]
        (value,) = TaskModel.load(tmp_path / "pairs").predict([("bank", "profit")])
        answer = ask(model="pairs", texts=[two])
        assert answer["results"] == [{"value": pytest.approx(value.value, abs=1e-5)}]
        for body, message in (
            ({"model": "pairs", "texts": [two, "bank"]}, "Text 1: the task 'similar' needs first and second"),
            ({"model": "pairs", "texts": [two, {"first": "x" * 30_000, "second": ""}]}, "Text 1 is too long"),
            ({"texts": ["we saw"], "influence": True}, "tags does not support influence"),
        ):
            assert message in ask(**body)["error"]["message"]
        answer = client.post("/v1/layers", json={"text": "we saw bank profit"}).json()
        assert (answer["label"], len(answer["layers"])) == (None, 3)


def test_tags_go_through_a_comparison(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    train, test = table(tmp_path / "train.csv", tagged(120)), table(tmp_path / "test.csv", tagged(40, 1))
    (tmp_path / "small.toml").write_text(
        "[classifier]\nepochs = 6\nlr = 0.03\nbatch_words = 256\n[method.svd.vectors]\ndim = 4\n",
        encoding="utf-8",
    )
    out = tmp_path / "report"
    words = ("compare", train, test, "--task", "tag", "-o", out, "--encoder", encoder, "--seeds", "2")
    plan = ("--methods", "elmo-trainable,elmo-linear,svd,tfidf-lr", "--config", tmp_path / "small.toml")
    cli(*words, *plan, "--curve", "30", "--draws", "2").check_fine(
        "tfidf-lr is left out: it cannot do the task 'tag'", "elmo-linear is left out", "predict"
    )
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert {method["id"]: method["status"] for method in report["methods"]} == {
        "elmo-trainable": "done",
        "svd": "done",
    }
    best = cli("evaluate", out / "best", test, "--json")
    scores = [method["splits"]["test"] for method in report["methods"]]
    assert json.loads(best.out)["tag_accuracy"] > 0.5, scores
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "tag accuracy" in text.lower()
    assert "## Scores by tag\n\nAccuracy on test, in percent. The best method for each tag is bold." in text


def test_pairs_go_through_a_comparison(encoder: Path, tmp_path: Path) -> None:
    names = ("first", "second", "label")
    train, test = (table(tmp_path / f"{seed}.csv", pairs(200, seed), names) for seed in (0, 1))
    plan = make_plan(methods=["elmo-frozen", "elmo-trainable"], seeds=1, config={"classifier": {"epochs": 2}})
    result = compare(train, test, tmp_path / "report", plan, encoder=encoder, task="similar", workers=1)
    assert result.metric == "r2"
    assert len(result.ranked) == 2


def test_pairs_of_texts_with_real_targets_need_no_labels(encoder: Path, tmp_path: Path) -> None:
    names = ("first", "second", "label")
    train, test = (table(tmp_path / f"{seed}.csv", pairs(300, seed), names) for seed in (0, 1))
    result = fit(encoder, train, tmp_path / "made", test=test, task="similar", **SETTINGS)
    assert result.metrics["test"].values["r2"] > 0.5
    assert evaluate(tmp_path / "made", test).values["r2"] == result.metrics["test"].values["r2"]
    assert "classes" not in (tmp_path / "made" / "README.md").read_text(encoding="utf-8")
    predict(tmp_path / "made", test, tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(abs(row["value"] - float(row["label"])) < 1 for row in rows[:20])
    with pytest.raises(DataError, match="1 text columns are read, but the task needs 2"):
        fit(encoder, train, tmp_path / "other", task="similar", text_columns="first", **SETTINGS)


def test_rows_that_a_task_refuses_are_named(encoder: Path, tmp_path: Path) -> None:
    bad = table(tmp_path / "bad.csv", [*tagged(5), ("three words here", "O O")])
    with pytest.raises(DataError, match=r"bad\.csv, line 7: 3 words, but 2 tags"):
        fit(encoder, bad, tmp_path / "made", task="tag")
    unknown = table(tmp_path / "unknown.csv", [("bank", "X")])
    with pytest.raises(DataError, match="validation rows have labels that the training rows do not have: X"):
        fit(encoder, table(tmp_path / "a.csv", tagged(9)), tmp_path / "made", valid=unknown, task="tag")


def test_an_unknown_task_or_head_gets_the_nearest_name(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", tagged(20))
    words = ("fit", encoder, train, "-o", tmp_path / "made")
    cli(*words, "--task", "tags").check_refused("no task 'tags'", "'tag'")
    cli(*words, "--task", "tag", "--head", "pool").check_refused("'tag' has no head 'pool'", "crf")
    cli("fit", "tfidf-svm", train, "-o", tmp_path / "made", "--task", "tag").check_refused(
        "tfidf-svm does not support the task 'tag'"
    )
