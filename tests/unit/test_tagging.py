"""Tags of words: schemes, reading, scores, predictions and the report."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.core.errors import DataError
from elmokit.tasks.span_tags import Span, find_spans, guess_scheme, write_tags
from elmokit.tasks.tagging import TagMetrics
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig

CONLL = """-DOCSTART- -X- O

EU NNP I-ORG
rejects VBZ O
German JJ I-MISC
call NN O
. . O

# # O
Peter NNP I-PER
Blackburn NNP I-PER
Bonn NNP I-LOC
"""
PEOPLE, PLACES = ["Anna", "Ben", "Clara", "Dan"], ["Paris", "Rome", "Oslo", "Bonn"]


def read(path: Path, **config: Any) -> Examples:
    task = get_task("tag")
    source = RowSource(str(path), ReadConfig(**config), LabelConfig(), form=task.form)
    return task.read(source, Labels())


def tags_of(examples: Examples, row: int) -> list[str]:
    return [examples.labels.names[tag] for tag in examples.targets[row] if tag >= 0]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def random_spans(rng: random.Random, n_words: int) -> list[Span]:
    spans, place = [], 0
    while place < n_words:
        length = rng.randint(1, 3)
        if rng.random() < 0.6 and place + length <= n_words:
            spans.append(Span(place, place + length, rng.choice("AB")))
            place += length
        else:
            place += 1
    return spans


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "BIOES"])
def test_spans_survive_every_scheme(scheme: Any) -> None:
    rng = random.Random(0)
    sequences = []
    for _ in range(300):
        n_words = rng.randint(0, 9)
        spans = random_spans(rng, n_words)
        sequences.append(write_tags(spans, n_words, scheme))
        assert find_spans(sequences[-1]) == spans
    assert guess_scheme(sequences) == scheme


def test_scores_of_spans_equal_those_of_seqeval() -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    rng = random.Random(1)
    tags = ["O", *(f"{prefix}-{label}" for prefix in "BIES" for label in ("PER", "LOC"))]
    for _ in range(50):
        lengths = [rng.randint(1, 12) for _ in range(8)]
        true, given = ([[rng.choice(tags) for _ in range(n)] for n in lengths] for _ in range(2))
        metrics = TagMetrics([["w"] * n for n in lengths], true, given)
        values = metrics.values
        for name in ("precision", "recall", "f1"):
            expected = getattr(seqeval, f"{name}_score")(true, given)
            assert values[f"span_{name}"] == pytest.approx(expected)
        assert values["macro_f1"] == pytest.approx(seqeval.f1_score(true, given, average="macro"))
        assert metrics.score(metrics.row_stats.sum(axis=0)) == values["span_f1"]


def test_conll_files_are_read_in_any_scheme(tmp_path: Path) -> None:
    examples = read(write(tmp_path / "a.conll", CONLL))
    assert [list(row[0]) for row in examples.inputs][1] == ["#", "Peter", "Blackburn", "Bonn"]
    assert tags_of(examples, 0) == ["S-ORG", "O", "S-MISC", "O", "O"]
    assert tags_of(examples, 1) == ["O", "B-PER", "E-PER", "S-LOC"]
    speech = read(write(tmp_path / "b.txt", CONLL), text_columns="1")
    assert speech.labels.names == examples.labels.names
    form = get_task("tag").form
    two = RowSource(str(tmp_path / "a.conll"), ReadConfig(), LabelConfig(label_column="2"), form=form)
    assert [row.label for row in two] == ["NNP VBZ JJ NN .", "# NNP NNP NNP"]


def test_conll_u_leaves_out_comments_ranges_and_empty_nodes(tmp_path: Path) -> None:
    rest = "\t_" * 5
    lines = ["# text = vámonos al mar", "1-2\tvámonos" + "\t_" * 8, f"1\tvamos\tir\tVERB\t_{rest}"]
    lines += [f"2\tnos\tnos\tPRON\t_{rest}", "2.1\tx" + "\t_" * 8, f"3\tmar\tmar\tNOUN\t_{rest}", "", ""]
    examples = read(write(tmp_path / "a.conllu", "\n".join(lines)))
    assert [list(row[0]) for row in examples.inputs] == [["vamos", "nos", "mar"]]
    assert tags_of(examples, 0) == ["VERB", "PRON", "NOUN"]


def test_json_rows_have_tags_or_spans_of_characters(tmp_path: Path) -> None:
    rows = [
        {"tokens": ["Anna", "saw", "Rome"], "tags": ["B-PER", "O", "B-LOC"]},
        {"text": "Anna saw old Rome.", "spans": [{"start": 13, "end": 17, "label": "LOC"}]},
        {"text": "No name.", "spans": []},
        {"text": "In Romes", "spans": [{"start": 3, "end": 7, "label": "LOC"}]},
    ]
    lines = [json.dumps(row) for row in rows]
    tokens = read(write(tmp_path / "tokens.jsonl", lines[0]))
    assert tags_of(tokens, 0) == ["S-PER", "O", "S-LOC"]
    spans = read(write(tmp_path / "spans.jsonl", "\n".join(lines[1:])))
    assert tags_of(spans, 0) == ["O", "O", "O", "S-LOC", "O"]
    assert tags_of(spans, 1) == ["O", "O", "O"]
    assert tags_of(spans, 2) == ["O", "S-LOC"]
    assert "spans.jsonl, line 3: 3 to 7 cuts a word" in spans.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "EU NNP I-ORG\nrejects O\n", "line 2: 2 columns where the first word has 3"),
        ("a.conll", "EU\nrejects\n", "so none holds tags"),
        ("a.conll", "a O\nb O\n", "all rows have only the tag 'O'"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "line 1: 2 words, but 1 tag."),
        (
            "a.jsonl",
            '{"text": "a b", "spans": [{"start": 2, "end": 9, "label": "X"}]}',
            "not inside the text",
        ),
        ("a.jsonl", '{"text": "a b", "spans": [{"start": 0}]}', "a span needs start, end and label"),
        (
            "a.jsonl",
            '{"text": "a b", "spans": [{"start": 0, "end": 3, "label": "X"}, '
            '{"start": 2, "end": 3, "label": "Y"}]}',
            "two spans overlap",
        ),
        ("a.conll", "".join(f"w{n} T{n}\n" for n in range(2001)), "2,001 different tags"),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        read(write(tmp_path / name, text))


def test_tags_that_cannot_follow_each_other_are_reported(tmp_path: Path) -> None:
    text = "a B-X\nb I-X\n\nc O\nd I-X\n\ne B-X\nf O\n"
    examples = read(write(tmp_path / "a.conll", text))
    (note,) = examples.notes
    assert "Read as new spans: 1 row with invalid tag sequences" in note
    assert "(a.conll, line 4: word 2: I-X after O)" in note


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """A tagger of two kinds of names, fitted to 60 sentences."""
    folder, rng = tmp_path_factory.mktemp("tagger"), random.Random(0)
    rows = []
    for _ in range(60):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        rows.append(f"{person} B-PER\nsaw O\n{place} B-LOC\n. O\n")
    (folder / "train.conll").write_text("\n".join(rows), encoding="utf-8")
    elmokit.fit(
        encoder,
        folder / "train.conll",
        folder / "model",
        head="linear",
        lr=0.03,
        epochs=12,
        test=folder / "train.conll",
    )
    return folder


def test_a_tagger_finds_names_with_their_places_in_raw_text(tagger: Path, tmp_path: Path) -> None:
    model = elmokit.load(tagger / "model")
    (found,) = model.predict([("  Ben saw Oslo.",)])  # type: ignore[attr-defined]
    assert found.tags == ["B-PER", "O", "B-LOC", "O"]
    assert [(one.text, one.start, one.end, one.label) for one in found.entities] == [
        ("Ben", 2, 5, "PER"),
        ("Oslo", 10, 14, "LOC"),
    ]
    assert all(0.3 < share <= 1 for share in found.probabilities)
    (empty,) = model.predict([("",)])  # type: ignore[attr-defined]
    assert empty.tags == empty.entities == []
    (long,) = model.predict([(["Ben", "saw"] * 2500,)])  # type: ignore[attr-defined]
    assert len(long.tags) == 5000
    assert not long.n_cut


def test_the_verbs_take_a_tagger(tagger: Path, tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.txt", "Dan saw Bonn.\n")
    elmokit.predict(tagger / "model", raw, tmp_path / "raw.conll")
    assert (tmp_path / "raw.conll").read_text() == "Dan\tB-PER\nsaw\tO\nBonn\tB-LOC\n.\tO\n\n"
    elmokit.predict(
        tagger / "model", write(tmp_path / "raw.csv", "text\nDan saw Bonn.\n"), tmp_path / "out.jsonl"
    )
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert [entity["label"] for entity in record["entities"]] == ["PER", "LOC"]
    elmokit.predict(tagger / "model", tagger / "train.conll", tmp_path / "out.conll")
    lines = (tmp_path / "out.conll").read_text().splitlines()
    assert lines[0].split() == [lines[0].split()[0], "B-PER", "B-PER"]
    assert lines[4] == ""
    values = elmokit.evaluate(tagger / "model", tagger / "train.conll").values
    assert values["span_f1"] > 0.9
    report = (tagger / "model" / "report.md").read_text()
    assert "Scores by label" in report
    new = write(tmp_path / "new.conll", "Ben B-ORG\nsaw O\n")
    assert elmokit.evaluate(tagger / "model", new).values["span_recall"] == 0


def test_speech_is_measured_by_the_accuracy_of_words() -> None:
    true, given = [["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]]
    metrics = TagMetrics([["a", "b"], ["c"]], true, given)
    assert metrics.main == "tag_accuracy"
    assert metrics.values["tag_accuracy"] == pytest.approx(2 / 3)
    assert metrics.score(metrics.row_stats.sum(axis=0)) == pytest.approx(2 / 3)
    np.testing.assert_array_equal(metrics.row_stats, [[1, 2, 2], [1, 1, 1]])
