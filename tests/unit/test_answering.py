"""Answers in passages: reading, decoding, scores, predictions and the report."""

from __future__ import annotations

import csv
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch import Tensor

import elmokit
from elmokit.bilm.folder import save_bilm
from elmokit.core.errors import DataError
from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.tasks import answering
from elmokit.tasks.answering import AnswerMetrics, SpanScores, answer_f1, best_spans, normalize_answer
from elmokit.tasks.layer_cache import number_texts
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.vectors.elmo import Elmo
from odd_texts import make_model

PASSAGE = "  The oil crisis began in October 1973. It ended in 1974."
PEOPLE, PLACES = ["Anna", "Ben", "Clara", "Dan"], ["Paris", "Rome", "Oslo", "Bonn"]


def read(path: Path) -> Examples:
    task = get_task("answer")
    config = ReadConfig(text_columns=",".join(task.fields))
    return task.read(RowSource(str(path), config, LabelConfig(), form=task.form), Labels())


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(content)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


def squad(*questions: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    qas = [
        {"id": str(place), "question": text, "answers": own} for place, (text, own) in enumerate(questions)
    ]
    return {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": PASSAGE, "qas": qas}]}]}


def words_of(examples: Examples, row: int) -> list[str]:
    first, last = examples.targets[row]
    return list(examples.inputs[row][1])[first : last + 1] if first >= 0 else []


# -- reading ----------------------------------------------------------------------------------


def test_squad_is_read_with_all_its_answers(tmp_path: Path) -> None:
    begin = PASSAGE.index("October")
    answers = [{"text": text, "answer_start": begin + PASSAGE[begin:].index(text)} for text in
               ("1973", "October 1973", "October 1973")]  # fmt: skip
    content = squad(("When did it begin?", answers), ("Why?", []))
    packed = tmp_path / "squad.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(content).encode()))
    for path in (write(tmp_path / "squad.json", content), packed):
        examples = read(path)
        assert words_of(examples, 0) == ["October", "1973"]
        assert examples.inputs[0][0].answers == ("1973", "October 1973", "October 1973")  # type: ignore[union-attr]
        assert examples.targets[1].tolist() == [-1, -1]
        assert examples.inputs[0][1].text == PASSAGE  # type: ignore[union-attr]
        assert examples.inputs[0][1] is examples.inputs[1][1]


def test_flat_rows_have_one_answer_or_several_or_none(tmp_path: Path) -> None:
    header = ["question", "passage", "answer", "answer_start"]
    rows = [
        header,
        ["When?", "in 1973, not 73", "73", ""],  # the first that stands between words
        ["When?", PASSAGE, "1974", str(PASSAGE.index("1974"))],
        ["When?", PASSAGE, "", ""],
    ]
    examples = read(write(tmp_path / "a.csv", rows))
    assert [words_of(examples, row) for row in range(3)] == [["73"], ["1974"], []]
    lists = [
        {"question": "When?", "context": PASSAGE, "answers": {"text": ["1974"], "answer_start": [52]}},
        {"question": "When?", "passage": PASSAGE, "answers": ["1974", "in 1974"]},
        {"question": "When?", "passage": "[a] 1974", "answers": "[a]"},
        {"question": "When?", "passage": "In 1974.", "answers": "197"},
    ]
    for name in ("a.jsonl", "a.json"):
        examples = read(write(tmp_path / name, lists))
        assert [words_of(examples, row) for row in range(3)] == [["1974"], ["1974"], ["[", "a", "]"]]
        assert words_of(examples, 3) == ["1974"]
        assert "Adjusted: 1 row with answers that cut a word" in examples.notes[0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Who?", "passage": " ", "answer": ""}, "2: the passage is empty"),
        ({"question": "", "passage": "a b", "answer": "a"}, "2: the question is empty"),
        ({"question": "Who?", "answer": "a"}, "2 has no field 'passage'"),
        ({"passage": "a b", "answer": "a"}, "2 has no field 'question'"),
        ({"question": "Who?", "passage": "a b", "answer": "c"}, "2: the passage does not contain .* 'c'"),
        (
            {"question": "Who?", "passage": "a b", "answer": "b", "answer_start": 0},
            "2: answer_start is 0, but",
        ),
        ({"question": "Who?", "passage": "a b", "answer": "b", "answer_start": -1}, "2: answer_start is -1"),
        (
            {"question": "Who?", "passage": "a b", "answer": "b", "answer_start": "x"},
            "invalid answer or answer_start: ..b., .x",
        ),
        (
            {"question": "Who?", "passage": "a b", "answer": [{"answer_start": 1}]},
            "invalid answer or answer_start",
        ),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = {"question": "Who?", "passage": "a b", "answer": "b"}
    for name in ("a.jsonl", "a.json"):
        with pytest.raises(DataError, match=message) as caught:
            read(write(tmp_path / name, [good, row]))
        assert name in str(caught.value)


@pytest.mark.parametrize("content", ['{"data": [{"title": "x"}]}', '{"a": 1}\n{"a": 2}', "[1, 2]", "3"])
def test_json_that_is_neither_a_list_nor_squad_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json.*(not valid JSON|neither a list|row 1: not a JSON object)"):
        read(tmp_path / "a.json")


def test_the_task_is_chosen_by_the_columns_of_any_file(tmp_path: Path) -> None:
    row = {"question": "When?", "passage": PASSAGE, "answer": "1974"}
    for name in ("a.jsonl", "a.json"):
        for n_rows in (1, 150):
            source = RowSource(write(tmp_path / name, [row] * n_rows))
            assert source.first_columns() == {*row}
    assert RowSource(write(tmp_path / "a.json", squad(("When?", [])))).first_columns() > {
        "question",
        "passage",
    }


def test_a_passage_that_rows_share_is_encoded_once(tmp_path: Path, elmo: Elmo) -> None:
    examples = read(write(tmp_path / "a.json", squad(("When?", []), ("Why, and where?", []))))
    source = number_texts(elmo, examples.inputs, 400)
    assert [len(ids.lengths) for ids in source.fields] == [2, 1]
    questions, passages = source.batch(np.array([1, 0]))
    assert len(questions.mask) == len(passages.mask) == len(source) == 2
    torch.testing.assert_close(passages.values[1][0], passages.values[1][1])
    (single, _) = replace(source, places=(source.places[0], source.places[0] * 0)).batch(np.array([1]))
    torch.testing.assert_close(single.values[1][0], questions.values[1][0])


# -- the head ---------------------------------------------------------------------------------


def test_decoding_equals_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_LONGEST", 3)
    scores = SpanScores(*torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0)))
    first, last, probabilities = best_spans(scores, 99)
    for row in range(6):
        starts, ends = (one[row].log_softmax(0).exp().tolist() for one in scores)
        pairs = [(a, b) for a in range(7) for b in range(a, min(7, a + 3))]
        masses = {(a, b): starts[a + 1] * ends[b + 1] for a, b in pairs} | {(-1, -1): starts[0] * ends[0]}
        expected = sorted(masses, key=lambda span: -masses[span])
        spans = list(zip(first[row].tolist(), last[row].tolist(), strict=True))[: len(expected)]
        assert spans == expected
        shares = [masses[span] / sum(masses.values()) for span in expected]
        np.testing.assert_allclose(probabilities[row, : len(expected)], shares, rtol=1e-4)


def run_head(questions: list[Tensor], passages: list[Tensor], extra: int = 0) -> SpanScores:
    task = get_task("answer")
    config = ClassifierConfig.from_flat(**{**task.settings, "head_dim": 5})
    torch.manual_seed(0)
    head = task.heads["bidaf"](config.head, 6, Labels())
    fields, masks = [], []
    for texts in (questions, passages):
        length = max(map(len, texts)) + extra
        fields.append(
            torch.stack([torch.cat([text, torch.full((length - len(text), 6), 9.0)]) for text in texts])
        )
        masks.append(torch.stack([torch.arange(length) < len(text) for text in texts]))
    with torch.no_grad():
        scores: SpanScores = head(fields, masks)
    return scores


def test_neither_padding_nor_other_rows_change_an_answer() -> None:
    rng = torch.Generator().manual_seed(0)
    questions, passages = (
        [torch.randn(n, 6, generator=rng) for n in sizes] for sizes in ((3, 5, 2), (9, 4, 12))
    )
    batch, padded = run_head(questions, passages), run_head(questions, passages, extra=4)
    for row, passage in enumerate(passages):
        single = run_head(questions[row : row + 1], passages[row : row + 1])
        for one, together, more in zip(single, batch, padded, strict=True):
            own = slice(0, len(passage) + 1)
            torch.testing.assert_close(together[row, own], one[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(more[row, own], one[0], rtol=1e-4, atol=1e-5)
            assert bool((more[row, len(passage) + 1 :] < -1000).all())
    (best, *_) = best_spans(run_head([torch.zeros(0, 6)], passages[:1], extra=1), 1)
    assert best.tolist() == [[-1]]  # without a question


# -- scores -----------------------------------------------------------------------------------


def test_scores_follow_the_rules_of_squad() -> None:
    assert normalize_answer("  The U.S.\tpresident's  an-swer, a") == "us presidents answer"
    assert answer_f1("the October 1973", "October, 1973!") == 1
    assert answer_f1("October 1973", "October") == pytest.approx(2 / 3)
    assert answer_f1("to be or not to be", "to be to") == pytest.approx(2 * 3 / (6 + 3))
    assert answer_f1("a", "1973") == answer_f1("May", "1973") == 0
    true = [["1973", "in October 1973"], ["Rome"], [], [], ["The"]]
    metrics = AnswerMetrics(["When?"] * 5, true, ["October 1973", "Oslo", "", "x", ""], [1.0] * 5)
    np.testing.assert_allclose(metrics.row_stats[:, 0], [0.8, 0, 1, 0, 1])
    np.testing.assert_allclose(metrics.row_stats[:, 1], [0, 0, 1, 0, 1])
    assert metrics.values["answer_f1"] == metrics.score(metrics.row_stats.sum(axis=0)) == pytest.approx(0.56)
    assert metrics.values["no_answer_accuracy"] == 0.5
    assert metrics.values["answered_f1"] == pytest.approx(0.6)


def test_questions_are_grouped_by_their_first_question_word() -> None:
    kinds = {"To whom?": "who", "In HOW many?": "how many", "How is it, and why?": "how", "Name it.": "other"}
    assert {text: answering.question_kind(text) for text in kinds} == kinds


# -- the verbs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader fitted to 80 passages; of every fifth question, the passage has no answer."""
    folder, rng = tmp_path_factory.mktemp("reader"), random.Random(0)
    rows = [["question", "passage", "answer"]]
    for number in range(80):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        question, answer = rng.choice([("Who went?", person), ("Where to?", place)])
        if number % 5 == 0:
            question, answer = "Why?", ""
        rows.append([question, f"Then {person} went to {place} .", answer])
    write(folder / "train.csv", rows)
    save_bilm(folder / "encoder", make_model())
    elmokit.fit(
        folder / "encoder",
        folder / "train.csv",
        folder / "model",
        test=folder / "train.csv",
        lr=0.02,
        head_dim=16,
        batch_words=128,
    )
    return folder


def test_a_reader_answers_with_places_in_the_untouched_passage(reader: Path) -> None:
    model: Any = elmokit.load(reader / "model")
    passage = "  Then Ben went to\tOslo ."
    who, where, why = model.predict([(text, passage) for text in ("Who went?", "Where to?", "Why?")])
    assert (who.answer.text, where.answer.text, why.answer.text) == ("Ben", "Oslo", "")
    assert passage[where.answer.start : where.answer.end] == "Oslo"
    assert why.answer.start is None
    assert 1 <= len(who.runners_up) <= 3
    assert all(0 <= other.probability <= who.answer.probability for other in who.runners_up)
    empty, blank = model.predict([("Who went?", ""), ("", passage)])
    assert empty.answer.text == blank.answer.text == ""
    (long,) = model.predict([("Who went?", "went to Rome " * 1667)])
    assert not long.n_cut


def test_the_verbs_take_a_reader(reader: Path, tmp_path: Path) -> None:
    values = elmokit.evaluate(reader / "model", reader / "train.csv").values
    assert [*values] == ["answer_f1", "exact_match", "answered_f1", "no_answer_accuracy"]
    assert values["answer_f1"] > 0.9
    report = (reader / "model" / "report.md").read_text()
    assert "Scores by question word" in report
    assert "Worst answers" in report
    rows = [["question", "passage"], ["Who went?", "  Then Dan went to Bonn ."]]
    elmokit.predict(reader / "model", write(tmp_path / "new.csv", rows), tmp_path / "out.jsonl")
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert (record["answer"], record["start"], record["end"]) == ("Dan", 7, 10)
    assert record["runners_up"][0].keys() == {"text", "start", "end", "probability"}
    elmokit.predict(reader / "model", reader / "train.csv", tmp_path / "out.csv")
    assert "answer_2" in (tmp_path / "out.csv").read_text().splitlines()[0]
    nested = squad(("When?", [{"text": "1974", "answer_start": PASSAGE.index("1974")}]))
    assert "answer_f1" in elmokit.evaluate(reader / "model", write(tmp_path / "squad.json", nested)).values


def test_the_service_answers(reader: Path) -> None:
    registry = open_registry([str(reader / "model")], ())
    passage = "Then Clara went to Paris ."
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:
        body = {"texts": [{"question": "Where to?", "passage": passage}]}
        (answer,) = client.post("/v1/predict", json=body).json()["results"]
        assert (answer["answer"], answer["start"], answer["end"]) == ("Paris", 19, 24)
        body["texts"] = [{"question": "Where to?"}]
        response = client.post("/v1/predict", json=body)
        assert response.status_code == 400
        assert "question and passage" in response.json()["error"]["message"]
