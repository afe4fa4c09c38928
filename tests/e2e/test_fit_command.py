"""``elmokit fit``, ``predict``, ``evaluate`` and ``inspect`` as a person runs them, on good and bad rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topics
from elmokit.tasks import fit as fitting
from elmokit.tasks.settings import ClassifierConfig
from program import Cli
from topics import TOPICS, flags, rows, several, table

EASY, QUICK = flags(topics.EASY), flags(topics.QUICK)


def objects(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture(scope="module")
def made(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good classifier. Copy it before changing anything."""
    folder = tmp_path_factory.mktemp("made")
    train, test = table(folder / "train.csv", rows(90)), table(folder / "test.csv", rows(30, 1))
    config = ClassifierConfig.from_flat(**topics.EASY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.model_report.write_report", lambda folder, document, record: None)
        fitting.fit(encoder, [train], folder / "topics", config=config, test=[test])
    return folder / "topics"


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return table(tmp_path / "train.csv", rows(60))


# -- fit --------------------------------------------------------------------------------------


def test_fit_makes_a_classifier_with_its_report_and_run_again_says_done(
    cli: Cli, encoder: Path, tmp_path: Path
) -> None:
    train, test = table(tmp_path / "train.csv", rows(90)), table(tmp_path / "test.csv", rows(30, 1))
    command = ("fit", encoder, train, "--out", tmp_path / "made", "--test", test, *EASY)
    first = cli(*command)
    first.check_fine(
        *("Rows: 81 for training, 9 for validation, 3 classes (money, sport, weather).",),
        *("9 of 90 rows were held out", "train: accuracy", "valid: accuracy", "test: accuracy"),
        *("(30 rows)", f"Done: {tmp_path / 'made'}", tmp_path / "made" / "report.html", "elmokit predict"),
    )
    report = json.loads((tmp_path / "made" / "report.json").read_text(encoding="utf-8"))
    assert report["splits"]["test"]["accuracy"] >= 0.95
    assert set(report["splits"]) == {"train", "valid", "test"}
    assert report["mix"]["names"] == ["layer 0 (token encoder)", "layer 1", "layer 2"]
    assert len(report["mix"]["history"]) == 6  # the start, and five epochs
    page = (tmp_path / "made" / "report.html").read_text(encoding="utf-8")
    assert "made" in page
    assert (tmp_path / "made" / "report.md").exists()
    again = cli(*command)
    again.check_fine("Already done")
    accuracies = [
        [line for line in said.splitlines() if "accuracy" in line] for said in (first.out, again.out)
    ]
    assert accuracies[1] == [line for line in accuracies[0] if "held out" not in line]


@pytest.mark.usefixtures("no_report")
def test_fit_takes_rows_for_validation_and_speaks_json(cli: Cli, encoder: Path, train: Path) -> None:
    valid = objects(
        train.parent / "valid.jsonl", ({"text": text, "label": topic} for text, topic in rows(9, 1))
    )
    found = cli("fit", encoder, train, "-o", train.parent / "m", "--valid", valid, "--json", *QUICK)
    assert found.code == 0
    events = [json.loads(line) for line in found.out.splitlines()]
    assert {event["event"] for event in events} == {"train", "valid", "result"}
    results = {event["split"]: event["accuracy"] for event in events if event["event"] == "result"}
    assert set(results) == {"train", "valid"}


@pytest.mark.usefixtures("no_report")
def test_columns_are_chosen_by_name_or_number(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    split = [(topic, *text.split(" ", 1)) for text, topic in rows(30)]
    file = table(tmp_path / "news.csv", split, ("topic", "title", "body"))
    columns = ("--text-columns", "title,body", "--label-column", "topic")
    cli("fit", encoder, file, "-o", tmp_path / "a", *columns, *QUICK).check_fine("3 classes (money")
    cli("evaluate", tmp_path / "a", file).check_fine("accuracy")  # they are remembered
    new = table(
        tmp_path / "new.csv", [(*cells[1:], "storm rain") for cells in split], ("title", "body", "text")
    )
    asked = cli("predict", tmp_path / "a", new, "--text-columns", "title,body").out
    assert cli("predict", tmp_path / "a", new).out == asked
    assert cli("predict", tmp_path / "a", new, "--text-columns", "text").out != asked
    other = table(tmp_path / "other.csv", [("bank profit",)], ("text",))
    cli("predict", tmp_path / "a", other).check_refused("no column 'title'", "--text-columns")
    bare = table(tmp_path / "bare.csv", split[1:], split[0])
    columns = ("--text-columns", "2,3", "--label-column", "1")
    cli("fit", encoder, bare, "-o", tmp_path / "b", *columns, *QUICK).check_fine("3 classes (money")
    cli("evaluate", tmp_path / "b", bare).check_refused("--text-columns")  # by number they are not


@pytest.mark.usefixtures("no_report")
def test_several_labels_a_row_go_through_all_commands(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    found = several(150, separator=";")
    train, test = table(tmp_path / "train.csv", found[:120]), table(tmp_path / "test.csv", found[120:])
    more = ("--label-separator", ";", "--mix", "function", "--epochs", "8", "--set", "batch_words=64")
    out = tmp_path / "made"
    cli("fit", encoder, train, "--out", out, "--test", test, *EASY, *more).check_fine("test: micro F1")
    figures = json.loads(cli("evaluate", out, test, "--json").out)
    assert figures["micro"]["f1"] >= 0.95
    half = [
        (text, f"{label};food" if place < 20 else label) for place, (text, label) in enumerate(found[120:])
    ]
    figures = json.loads(cli("evaluate", out, table(tmp_path / "half.csv", half), "--json").out)
    assert figures["unseen"] == {"food": 20}
    assert 0 < figures["subset_accuracy"] <= 0.5
    cli("evaluate", out, test).check_fine("micro F1", "accuracy", "weather")
    cli("inspect", out).check_fine("A text classifier", "function", "micro F1")
    new = table(tmp_path / "new.csv", [("bank we storm",), ("bank goal rain",)], ("text",))
    labelled = read_csv(cli("predict", out, new).out)
    assert [row["prediction"] for row in labelled] == ["money;weather", "money;sport;weather"]
    assert float(labelled[0]["probability"]) == min(
        float(labelled[0][f"p({n})"]) for n in ("money", "weather")
    )


# -- predict ----------------------------------------------------------------------------------


def check_predictions(found: list[dict[str, Any]]) -> None:
    """That nearly all predictions for ``rows`` are right."""
    wanted = [topic for _, topic in rows(len(found), 1)]
    right = [row["prediction"] == topic for row, topic in zip(found, wanted, strict=True)]
    assert sum(right) >= 0.95 * len(right)
    for row in found:
        assert float(row["probability"]) == max(float(row[f"p({name})"]) for name in TOPICS)


def test_predict_adds_columns_to_csv_on_standard_output_or_in_a_file(
    cli: Cli, made: Path, tmp_path: Path
) -> None:
    new = table(tmp_path / "new.csv", [(i, text) for i, (text, _) in enumerate(rows(30, 1))], ("id", "text"))
    shown = cli("predict", made, new)
    found = read_csv(shown.out)
    assert list(found[0]) == ["id", "text", "prediction", "probability", *(f"p({name})" for name in TOPICS)]
    assert [row["id"] for row in found] == [str(number) for number in range(30)]
    check_predictions(found)
    out = tmp_path / "out.csv"
    out.write_text("mine", encoding="utf-8")
    for file in (out, new):
        cli("predict", made, new, "--out", file).check_refused(f"{file} exists", "nothing", "--overwrite")
    assert out.read_text(encoding="utf-8") == "mine"
    for more in (["--overwrite"], []):
        cli("predict", made, new, "--out", out, *more).check_fine("30 rows", "" if more else "Already done")
        assert out.read_text(encoding="utf-8") == shown.out.replace("\r\n", "\n")


def test_predict_reads_and_writes_every_pair_of_formats(cli: Cli, made: Path, tmp_path: Path) -> None:
    texts = [text for text, _ in rows(30, 1)]
    sources = {
        "csv": table(tmp_path / "new.csv", [(text,) for text in texts], ("text",)),
        "jsonl": objects(tmp_path / "new.jsonl", ({"text": text} for text in texts)),
        "txt": tmp_path / "new.txt",
        "parquet": tmp_path / "new.parquet",
    }
    sources["txt"].write_text("\n".join(texts), encoding="utf-8")
    pq.write_table(pa.table({"text": texts}), sources["parquet"])
    for name in ("csv", "jsonl"):
        sources[f"{name}.gz"] = tmp_path / f"new.{name}.gz"
        sources[f"{name}.gz"].write_bytes(gzip.compress(sources[name].read_bytes()))
    wanted = read_csv(cli("predict", made, sources["csv"]).out)
    check_predictions(wanted)
    for name, source in sources.items():
        for format in ("csv", "jsonl"):
            out = tmp_path / f"from-{name}.{format}"
            cli("predict", made, source, "--out", out).check_fine("30 rows")
            text = out.read_text(encoding="utf-8")
            if format == "csv":
                assert read_csv(text) == wanted
                continue
            found = [json.loads(line) for line in text.splitlines()]
            assert [row["prediction"] for row in found] == [row["prediction"] for row in wanted]
            assert [f"{row['probabilities']['sport']:.6f}" for row in found] == [
                row["p(sport)"] for row in wanted
            ]
        assert cli("predict", made, source).out.startswith("{" if "jsonl" in name else "text,")
    as_json = cli("predict", made, sources["csv"], "--format", "jsonl").out
    assert json.loads(as_json.splitlines()[0])["text"] == texts[0]


def test_predict_reads_standard_input(cli: Cli, made: Path) -> None:
    done = cli("predict", made, "-", stdin="we saw rain and a storm\nthe coach\n")
    assert "standard input: plain text, a text per line" in done.err
    found = read_csv(done.out)
    assert [row["text"] for row in found] == ["we saw rain and a storm", "the coach"]


@pytest.mark.parametrize("name", ["out.csv.gz", "out.jsonl.gz", "out.parquet", "out.tsv"])
def test_predict_refuses_to_write_what_the_name_does_not_say(
    cli: Cli, made: Path, tmp_path: Path, name: str
) -> None:
    new = table(tmp_path / "new.csv", [("rain",)], ("text",))
    cli("predict", made, new, "--out", tmp_path / name).check_refused(tmp_path / name, ".csv or .jsonl")
    assert not (tmp_path / name).exists()
    cli("predict", made, new, "--format", "xml").check_refused("--format xml")


# -- evaluate and inspect ---------------------------------------------------------------------


def test_evaluate_shows_figures_lists_unseen_labels_and_writes_a_report(
    cli: Cli, made: Path, tmp_path: Path
) -> None:
    test = table(tmp_path / "test.csv", [*rows(30, 1), ("the bread", "[food]"), ("no label", "")])
    cli("evaluate", made, test).check_refused(f"{test}, line 33", "no label", "--set", "drop_unlabeled=true")
    found = cli("evaluate", made, test, "--set", "drop_unlabeled=true", "--out", tmp_path / "report")
    found.check_fine(
        *("accuracy", "(31 rows", "Left out: 1 row without a label", "weather"),
        *(
            "1 row with labels that never occur in training: [food] (test.csv, line",
            tmp_path / "report" / "report.html",
        ),
    )
    figures = json.loads(cli("evaluate", made, test, "--set", "drop_unlabeled=true", "--json").out)
    assert figures["unseen"] == {"[food]": 1}
    assert 29 / 31 <= figures["accuracy"] <= 30 / 31
    assert [entry["name"] for entry in figures["per_class"]] == list(TOPICS)
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert report["splits"]["test"]["accuracy"] == figures["accuracy"]


def test_inspect_shows_classes_mix_weights_and_accuracy(cli: Cli, made: Path) -> None:
    cli("inspect", made).check_fine(
        *("A text classifier", "3: money, sport and weather", "random (frozen, 3 layers, 24 wide)"),
        *("trainable, raw", "layer 0", "layer 1", "layer 2", "(0.333 before training)", "test", "accuracy"),
    )
    facts = json.loads(cli("inspect", made, "--json").out)
    assert facts["kind"] == "classifier"
    assert list(facts["mix"]) == ["mix_0", "mix_1", "mix_2"]
    assert all(value != pytest.approx(1 / 3) for value in facts["mix"].values())
    assert facts["splits"]["test"]["accuracy"] >= 0.95
    assert len(facts["history"]) == 5


# -- folders that are not what they should be -------------------------------------------------


def test_the_wrong_kind_of_folder_is_refused_kindly(
    cli: Cli, made: Path, encoder: Path, train: Path, tmp_path: Path
) -> None:
    cli("predict", encoder, train).check_refused(f"{encoder} holds a language model, not a fitted", "fit")
    out = tmp_path / "out"
    cli("fit", made, train, "-o", out).check_refused(f"{made} holds a classifier, not an encoder", "pretrain")
    cli("fit", tmp_path / "none", train, "-o", out).check_refused("no model folder", tmp_path / "none")
    cli("predict", tmp_path, train).check_refused(f"{tmp_path} is not an elmokit model")
    assert not out.exists()


def test_a_folder_or_file_of_someone_else_is_not_touched(
    cli: Cli, encoder: Path, train: Path, tmp_path: Path, made: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("Dear all", encoding="utf-8")
    cli("fit", encoder, train, "-o", mine, *QUICK).check_refused(mine, "nothing in it was touched")
    assert [file.name for file in mine.iterdir()] == ["letter.txt"]
    before = train.read_bytes()
    cli("fit", encoder, train, "-o", train, *QUICK).check_refused(f"{train} is a file, not a folder")
    cli("evaluate", made, train, "-o", train).check_refused(f"{train} is a file, not a folder")
    cli("predict", made, train, "-o", mine).check_refused(f"Cannot write {mine}")
    cli("fit", encoder, train, "-o", encoder, *QUICK).check_refused(encoder, "already holds a language model")
    assert train.read_bytes() == before
    assert (encoder / "config.json").exists()


# -- rows that cannot be used -----------------------------------------------------------------


def test_rows_without_columns_or_labels_are_refused(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    other = table(tmp_path / "other.csv", [("a", "x", "1")], ("title", "topic", "n"))
    hole = table(tmp_path / "hole.csv", [("a", "x"), ("b", ""), ("c", "y")])
    for file, *parts in ((other, "title, topic, n", "--text"), (hole, "line 3: the row has no label")):
        cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK).check_refused(file, *parts)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--set", "valid_share=0.9"], ["valid_share = 0.9", "at most 0.5"]),
        (["--mix", "mean"], ["mix = 'mean'"]),
        (["--set", "mix_weights=1,2"], ["2 weights were given for 3 layers"]),
        (["--head", "lstm"], ["no head 'lstm'", "'bilstm'"]),
        (["--checkpoint-every", "soon"], ["'soon' is not a length of time"]),
        (["--label-column", "text"], ["both as text and as label"]),
    ],
)
def test_wrong_settings_are_refused(
    cli: Cli, encoder: Path, train: Path, tmp_path: Path, flags: list[str], parts: list[str]
) -> None:
    found = cli("fit", encoder, train, "-o", tmp_path / "out", *flags)
    assert (found.code, [part for part in parts if part not in found.err]) == (2, [])
    assert "Traceback" not in found.err
    assert not (tmp_path / "out").exists()


# -- rows that are odd, but can be used -------------------------------------------------------


@pytest.mark.usefixtures("no_report")
def test_a_document_of_100_000_words_is_cut_with_a_note(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [*rows(30), ("rain " * 100_000, "weather")])
    found = cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK)
    found.check_fine("Truncated to 400 words (max_words): 1 of 31 rows for training and validation.")
    labelled = cli("predict", tmp_path / "out", file, "-o", tmp_path / "labelled.csv")
    labelled.check_fine("31 rows labeled")
    assert "Truncated to 400 words (max_words): 1 of 31 rows." in labelled.err
    last = read_csv((tmp_path / "labelled.csv").read_text(encoding="utf-8"))[-1]
    assert last["text"] == "rain " * 100_000
    assert last["prediction"] in TOPICS


@pytest.mark.usefixtures("no_report")
def test_text_and_labels_of_all_scripts_and_line_ends_work(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    odd = [
        ("😀👨‍👩‍👧 rain 🇩🇪", "😀"),
        ("שלום עולם, مرحبا", "أخبار"),
        ("e\u0301le\u0300ve Z\u0351\u036b\u0343a\u0300lgo", "e\u0301"),
        ("zero\u200bwidth \u202eright to left\u202c", "新聞"),
        ('quotes "and" more', "<b>&amp;"),
    ]
    ends = ["\n", "\r\n", "\n"]
    lines = [f'"{t.replace(chr(34), chr(34) * 2)}","{label}"' for t, label in odd * 4]
    text = "text,label\r\n" + "".join(line + ends[i % 3] for i, line in enumerate(lines))
    file = tmp_path / "odd.csv"
    file.write_bytes(text.encode())
    cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK).check_fine("5 classes")
    labelled = tmp_path / "labelled.jsonl"
    cli("predict", tmp_path / "out", file, "-o", labelled).check_fine("20 rows labeled")
    found = [json.loads(line) for line in labelled.read_text(encoding="utf-8").splitlines()]
    assert [(row["text"], row["label"]) for row in found] == odd * 4
    assert {row["prediction"] for row in found} <= {label for _, label in odd}
    cli("evaluate", tmp_path / "out", file).check_fine("accuracy")
    cli("inspect", tmp_path / "out").check_fine("新聞")


@pytest.mark.usefixtures("no_report")
def test_cells_that_are_missing_or_not_a_number_are_empty_texts(
    cli: Cli, encoder: Path, tmp_path: Path
) -> None:
    texts: list[Any] = [text for text, _ in rows(30)]
    labels = [label for _, label in rows(30)]
    file = objects(
        tmp_path / "a.jsonl",
        [
            *({"text": text, "label": label} for text, label in zip(texts, labels, strict=True)),
            {"text": None, "label": "sport"},
            {"text": float("nan"), "label": "sport"},
            {"text": 12, "label": "money"},
        ],
    )
    found = cli("fit", encoder, file, "-o", tmp_path / "a", *QUICK)
    found.check_fine("Without words: 2 of ")
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [*texts, None], "label": [*labels, "sport"]}), parquet)
    found = cli("fit", encoder, parquet, "-o", tmp_path / "b", *QUICK)
    found.check_fine("Without words: 1 of ")
    labelled = [json.loads(line) for line in cli("predict", tmp_path / "a", file).out.splitlines()]
    assert len(labelled) == 33
    assert labelled[-2]["prediction"] == labelled[-3]["prediction"]
