"""Pairs of texts: reading, heads, scores, predictions, the report and the service."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from scipy.stats import pearsonr, spearmanr

import elmokit
from elmokit.comparison.statistics import row_values
from elmokit.core.errors import ConfigError, DataError
from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.fit import content_hash
from elmokit.tasks.model import TaskModel
from elmokit.tasks.pairs import AlignHead, ScoreMetrics, SiameseHead, mark_words
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig, TextConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.foreign import TextVectors
from elmokit.vectors.side_by_side import join_encoders
from folders import drop_checksums
from program import Cli
from topics import EASY, TOPICS, table

NAMES = ("text", "other", "score")


def read(path: Path, labels: Labels = Labels(), column: str = "") -> Examples:  # noqa: B008 (frozen)
    task, config = get_task("pair"), ReadConfig(text_columns="text,other")
    return task.read(RowSource(str(path), config, LabelConfig(label_column=column), form=task.form), labels)


def pairs(n: int, seed: int = 0) -> list[tuple[str, str, float]]:
    """Two texts of two words, and how often their topics agree, from 1 to 5."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        topics, others = (rng.choices(list(TOPICS), k=2) for _ in range(2))
        first, second = (" ".join(rng.choice(TOPICS[topic]) for topic in side) for side in (topics, others))
        same = sum(a in others for a in topics) + sum(b in topics for b in others)
        rows.append((first, second, 1.0 + same))
    return rows


def test_scores_are_learned_on_a_scale_of_their_own(tmp_path: Path) -> None:
    rows = [("one", "two", 1.5), ("three", "four", 4.5)]
    examples = read(table(tmp_path / "a.csv", rows, NAMES))
    assert examples.inputs == [("one", "two"), ("three", "four")]
    assert examples.labels == Labels(scale=(3.0, 1.5), marked=False)
    np.testing.assert_allclose(examples.targets, [-1, 1])
    more = read(table(tmp_path / "b.csv", [("five", "six", 6)], NAMES), examples.labels)
    assert more.targets.tolist() == [2.0]
    assert more.labels == examples.labels


def test_numbers_are_scores_if_they_are_many(tmp_path: Path) -> None:
    names = ("text", "other", "label")
    many = [("a", "b", number / 2) for number in range(11)]
    assert read(table(tmp_path / "many.csv", many, names)).labels.scale
    few = read(table(tmp_path / "few.csv", many[:10] * 3, names))
    assert len(few.labels.names) == 10
    assert few.inputs[0] == ("a", "b")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b", 1), ("a", "", 2)], "line 3: the pair has only one text; 'other' is empty"),
        ([("a", "b", 1), (" ", "b", 2)], "line 3: the pair has only one text; 'text' is empty"),
        ([("a", "b", 1), ("", "", 2)], "line 3: both texts are empty"),
        ([("a", "b", 1), ("a", "b", "high")], "line 3: the score 'high' is not a number"),
        ([("a", "b", 1), ("a", "b", "inf")], "line 3: the score 'inf' is not a number"),
        ([("a", "b", 1), ("c", "d", 1)], r"line 2: all 2 rows have the same score"),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(tmp_path: Path, rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(table(tmp_path / "a.csv", rows, NAMES))


def test_correlations_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for shift in (0.0, 1e6):
        true = rng.integers(0, 9, 200).astype(float) + shift
        given = true + 3 * rng.normal(size=200)
        metrics = ScoreMetrics(true, given)
        assert metrics.values["pearson"] == pytest.approx(pearsonr(true, given)[0])
        assert metrics.values["spearman"] == pytest.approx(spearmanr(true, given)[0])
        assert row_values(metrics).mean() == pytest.approx(metrics.values["pearson"], abs=0.01)
    constant = ScoreMetrics(true, np.ones(200))
    assert constant.values == {"pearson": 0, "spearman": 0}


@pytest.mark.parametrize("head", [SiameseHead, AlignHead])
def test_padding_changes_no_output_and_words_align_with_the_other_text(head: type[SiameseHead]) -> None:
    torch.manual_seed(0)
    made = head(HeadConfig(head_dim=5), 4, Labels(("no", "yes")), 3)
    first, second = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    masks = [
        torch.tensor([[True] * 3, [True, True, False]]),
        torch.tensor([[True] * 5, [True] + [False] * 4]),
    ]
    sentences = [torch.randn(2, 3), torch.randn(2, 3)]
    both = made([first, second], masks, None, sentences)
    assert both.shape == (2, 2)
    alone = made(
        [first[1:, :2], second[1:, :1]],
        [masks[0][1:, :2], masks[1][1:, :1]],
        None,
        [x[1:] for x in sentences],
    )
    torch.testing.assert_close(both[1:], alone)
    masks[1][1] = False  # a text without a word
    assert made([first, second], masks, None, sentences).isfinite().all()


@pytest.fixture(scope="module", params=["siamese", "align"])
def scorer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    folder = tmp_path_factory.mktemp("scorer")
    train, test = (table(folder / f"{seed}.csv", pairs(400 - 300 * seed, seed), NAMES) for seed in (0, 1))
    settings = {**EASY, "epochs": 15, "head": request.param}
    elmokit.fit(encoder, train, folder / "model", test=test, **settings)
    return folder


def test_scores_go_through_the_verbs_and_the_service(scorer: Path, tmp_path: Path) -> None:
    values = elmokit.evaluate(scorer / "model", scorer / "1.csv").values
    assert values["pearson"] > 0.7
    assert {"pearson", "spearman"} == {*values}
    elmokit.predict(scorer / "model", scorer / "1.csv", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert 0 < np.mean([line["prediction"] for line in lines]) < 6
    report = (scorer / "model" / "report.md").read_text()
    assert "Largest errors (test)" in report
    assert "True and predicted scores" in report
    first = {name: lines[0][name] for name in ("text", "other")}
    registry = open_registry([scorer / "model"], ["we saw a bank"])
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/predict", json={"texts": [first]}).json()
        assert answer["results"] == [{"prediction": pytest.approx(lines[0]["prediction"], abs=1e-3)}]
        answer = client.post("/v1/predict", json={"texts": [{**first, "other": " "}]}).json()
        assert "text 0: the pair has only one text" in answer["error"]["message"]
        answer = client.post("/v1/predict", json={"texts": [first], "influence": True}).json()
        assert "does not support influence" in answer["error"]["message"]
        assert client.post("/v1/layers", json={"text": first["text"]}).json()["label"] is None


def test_classes_go_through_fit_and_predict(encoder: Path, tmp_path: Path) -> None:
    rows: list[Any] = [(first, second, "yes" if score > 3 else "no") for first, second, score in pairs(300)]
    train = table(tmp_path / "train.csv", rows, ("text", "other", "label"))
    fitted = elmokit.fit(encoder, train, tmp_path / "model", **{**EASY, "epochs": 10})
    assert fitted.model is not None
    assert fitted.model.task.name == "pair"
    assert fitted.metrics["train"].values["accuracy"] > 0.8
    (prediction,) = TaskModel.load(tmp_path / "model").predict([(rows[0][0], rows[0][1])])
    assert prediction.label in ("no", "yes")


# -- marked words -----------------------------------------------------------------------------

MARKED = ("text", "start", "end", "other", "other_start", "other_end", "label")


def marked(n: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Two texts of two topics each, a word in each marked, and whether the marked words share their topic."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        cells, topics = list[Any](), list[str]()
        for _ in range(2):
            own = rng.sample(list(TOPICS), 2)
            words, place = [rng.choice(TOPICS[topic]) for topic in own], rng.randrange(2)
            start = 2 + place * (len(words[0]) + 1)
            cells += [f"  {words[0]} {words[1]}", start, start + len(words[place])]
            topics.append(own[place])
        rows.append((*cells, "same" if topics[0] == topics[1] else "other"))
    return rows


@pytest.mark.parametrize("settings", [{}, {"head": "align"}, {"finetune": True}])
def test_marked_words_are_compared(encoder: Path, tmp_path: Path, settings: Any, no_report: None) -> None:
    train, test = (
        table(tmp_path / "a.csv", marked(400), MARKED),
        table(tmp_path / "b.csv", marked(60, 1), MARKED),
    )
    fitted = elmokit.fit(encoder, train, tmp_path / "model", test=test, **{**EASY, "epochs": 12, **settings})
    assert fitted.metrics["test"].values["accuracy"] > 0.9
    assert elmokit.evaluate(tmp_path / "model", test).values == fitted.metrics["test"].values
    elmokit.predict(tmp_path / "model", test, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sum(line["prediction"] == line["label"] for line in lines) > 54
    row = marked(60, 1)[0]
    model: Any = elmokit.load(tmp_path / "model")
    (prediction,) = model.predict([(mark_words(*row[:3]), mark_words(*row[3:6]))])
    with TestClient(
        make_app(open_registry([tmp_path / "model"], ["a"])), base_url="http://127.0.0.1"
    ) as client:
        given = dict(zip(MARKED[:-1], row[:-1], strict=True))
        answer = client.post("/v1/predict", json={"texts": [given]}).json()
        assert answer["results"][0]["prediction"] == prediction.label == lines[0]["prediction"]
        answer = client.post("/v1/predict", json={"texts": [{**given, "end": 99}]}).json()
        assert "text 0: characters 2 to 99 contain no word" in answer["error"]["message"] or row[1] != 2


def test_other_marks_are_another_run_and_cut_words_are_whole(tmp_path: Path) -> None:
    row, other = ("the banks", 4, 8, "a b", 2, 3, "x"), ("the banks", 0, 3, "a b", 2, 3, "y")
    first = read(table(tmp_path / "a.csv", [row, other], MARKED), column="label")
    second = read(table(tmp_path / "b.csv", [row, (*row[:6], "y")], MARKED), column="label")
    assert [[text.mark for text in row] for row in first.inputs] == [[(1, 2), (1, 2)], [(0, 1), (1, 2)]]  # type: ignore[union-attr]
    assert content_hash(first) != content_hash(second)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a b", 0, 9, "c", 0, 1), "characters 0 to 9 contain no word; the text has 3 characters"),
        (("a b", 1, 2, "c", 0, 1), "1 to 2 contain no word"),
        (("a b", 2, 1, "c", 0, 1), "2 to 1 contain no word"),
        (("a b", -1, 1, "c", 0, 1), "-1 to 1 contain no word"),
        (("a b", 0, 1, "c", 0, 0), "0 to 0 contain no word"),
        (("a b", "", 1, "c", 0, 1), "start is '', which is not a character position"),
        (("a b", 0, 1, "c", 0, 1.5), "other_end is '1.5', which is not a character position"),
    ],
)
def test_bad_marks_are_refused(cli: Cli, encoder: Path, tmp_path: Path, row: Any, message: str) -> None:
    good = ("a b", 0, 1, "c", 0, 1, "x")
    rows = table(tmp_path / "a.csv", [good, (*row, "y")], MARKED)
    cli("fit", encoder, rows, "-o", tmp_path / "model").check_refused("a.csv, line 3", message, "start, end")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("names", "lacking"),
    [(("other_start", "end"), "start and other_end"), (("start", "end"), "other_start and other_end")],
)
def test_a_missing_column_of_marks_is_named(tmp_path: Path, names: Any, lacking: str) -> None:
    rows = table(tmp_path / "a.csv", [("a", "b", 0, 1, 2.5)], ("text", "other", *names, "score"))
    with pytest.raises(DataError, match=f"line 2: missing for the marked words: {lacking}"):
        read(rows)


@pytest.mark.parametrize("is_marked", [True, False])
def test_all_rows_are_marked_or_none(cli: Cli, encoder: Path, tmp_path: Path, is_marked: bool) -> None:
    rows = [dict(zip(MARKED, row, strict=True)) for row in marked(9)]
    plain = [{name: row[name] for name in ("text", "other", "label")} for row in rows]
    own, others = (rows, plain) if is_marked else (plain, rows)
    for name, some in (("own", own), ("others", others), ("mixed", [*own, others[0]])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some), "utf-8")
    model, problem = tmp_path / "made", "no word is marked" if is_marked else "words are marked"
    words = ("--head", "siamese", "--epochs", "1", "-o")
    mixed = cli("fit", encoder, tmp_path / "mixed.jsonl", *words, model)
    mixed.check_refused("mixed.jsonl, line 10", problem, "other_start")
    cli("fit", encoder, tmp_path / "own.jsonl", *words, model).check_fine()
    for verb in ("evaluate", "predict"):
        cli(verb, model, tmp_path / "others.jsonl").check_refused("others.jsonl, line 1", problem)
        cli(verb, model, tmp_path / "own.jsonl").check_fine()
    with TestClient(make_app(open_registry([model], ["a"])), base_url="http://127.0.0.1") as client:
        given = {name: cell for name, cell in others[0].items() if name != "label"}
        answer = client.post("/v1/predict", json={"texts": [given]}).json()
        assert f"text 0: {problem}" in answer["error"]["message"]
    file = model / "config.json"  # of an earlier version, which did not say
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "marked": None}), "utf-8")
    drop_checksums(model)
    cli("predict", model, tmp_path / "others.jsonl").check_fine()


def test_rows_with_too_few_texts_are_refused(scorer: Path) -> None:
    model: Any = elmokit.load(scorer / "model")
    for row in (("one",), "ab"):
        with pytest.raises(DataError, match="Row 1 is no tuple of 2 texts"):
            list(model.predict([("one", "two"), row]))


def test_the_cosine_of_sentence_vectors_needs_no_training(elmo: Elmo) -> None:
    cosines = elmo.similarity(["a plane takes off", "one", ""], ["a plane takes off", "two words", "x"])
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert -1 <= cosines[1] < 1
    assert cosines[2] == 0
    vectors = elmo.sentences(["one", "two words"])
    assert cosines[1] == pytest.approx(vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1)))
    with pytest.raises(ConfigError, match="2 texts and 1 others"):
        elmo.similarity(["a", "b"], ["c"])


def test_every_encoder_compares_texts(elmo: Elmo) -> None:
    table = WordVectors.of(["bank", "goal"], [[1, 0], [0, 1]], TextConfig())
    given = TextVectors(np.eye(2, dtype=np.float32)).bind(["bank", "goal"])
    for encoder in (elmo, table, given, join_encoders([table, given])):
        cosines = cast(Any, encoder).similarity(["bank", "bank"], ["bank", "goal"])
        assert cosines[0] == pytest.approx(1, abs=1e-5)
        assert cosines[1] < 1
    assert table.similarity("bank", "goal") == 0


@pytest.mark.parametrize(
    "names", [("sentence1", "sentence2"), ("Premise", "Hypothesis"), ("question1", "question2")]
)
def test_pairs_are_known_by_their_columns(
    cli: Cli, encoder: Path, tmp_path: Path, names: Any, no_report: None
) -> None:
    few = pairs(12)
    train = table(tmp_path / "a.csv", few, (*names, "score"))
    said = cli("fit", encoder, train, "--epochs", "1", "-o", tmp_path / "made").check_fine()
    assert "Task: pair" in said.out
    usual = table(tmp_path / "b.csv", few, NAMES)
    assert (
        elmokit.evaluate(tmp_path / "made", usual).values == elmokit.evaluate(tmp_path / "made", train).values
    )


def test_two_columns_that_are_joined_are_said_to_be(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    rows = [(first, second, "yes" if score > 3 else "no") for first, second, score in pairs(30)]
    words = ("fit", encoder, table(tmp_path / "a.csv", rows, ("claim", "proof", "label")))
    cli(*words, "-o", tmp_path / "a").check_refused("which hold the text?")
    named = (*words, "--text-columns", "claim,proof", "-o", tmp_path / "a")
    cli(*named).check_fine("Texts: claim + proof, joined into one; use --task pair to compare them.")
    other = table(tmp_path / "b.csv", rows, ("text1", "text2", "label"))
    said = cli("fit", encoder, other, "-o", tmp_path / "b", "--text-columns", "text1").check_fine()
    assert "Task: pair" not in said.out
