"""``elmokit fit``, ``predict``, ``evaluate`` and ``inspect`` as a person runs them, on good and bad rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
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
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of it, free to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


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
        *("Rows: 81 to train on, 9 for validation, 3 classes (money, sport, weather).",),
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
    cli("predict", made, new, "--out", tmp_path / "out.csv").check_fine("30 rows labeled")
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == shown.out.replace("\r\n", "\n")


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
    found = read_csv(cli("predict", made, "-", stdin="we saw rain and a storm\nthe coach\n").out)
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
        *("accuracy", "(31 rows", "1 row without a label left out", "weather"),
        *("never seen in training, counted as wrong: [food] (1)", tmp_path / "report" / "report.html"),
    )
    assert {file.name for file in (tmp_path / "report").iterdir()} >= {
        "report.html",
        "report.md",
        "report.json",
    }
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


def test_a_folder_without_its_encoder_is_refused(cli: Cli, copy: Path, train: Path) -> None:
    shutil.rmtree(copy / "encoder")
    for verb in ("predict", "evaluate"):
        cli(verb, copy, train).check_refused("without its encoder", copy / "encoder", "whole folder")
    cli("inspect", copy).check_refused("without its encoder")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'{"format": "elmokit", "format_version": 9}'])
def test_a_damaged_config_is_refused(cli: Cli, copy: Path, train: Path, content: bytes) -> None:
    (copy / "config.json").write_bytes(content)
    cli("predict", copy, train).check_refused(copy / "config.json")


@pytest.mark.parametrize("part", ["model.safetensors", "encoder/model.safetensors"])
def test_damaged_weights_are_refused(cli: Cli, copy: Path, train: Path, part: str) -> None:
    whole = (copy / part).read_bytes()
    (copy / part).write_bytes(whole[: len(whole) // 2])
    cli("predict", copy, train).check_refused(copy / part)
    (copy / part).unlink()
    cli("predict", copy, train).check_refused(copy / part)


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
    cli("predict", made, train, "-o", mine).check_refused(f"{mine}: it is a folder")
    cli("fit", encoder, train, "-o", encoder, *QUICK).check_refused(encoder, "already holds a language model")
    assert train.read_bytes() == before
    assert (encoder / "config.json").exists()


# -- rows that cannot be used -----------------------------------------------------------------


Refused = Callable[..., None]


@pytest.fixture
def refused(cli: Cli, encoder: Path, tmp_path: Path) -> Refused:
    """Checks that fitting a file is refused with a message that names the file, and nothing is begun."""

    def check(file: Path, *parts: str | Path, flags: Sequence[str | Path] = ()) -> None:
        cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK, *flags).check_refused(file, *parts)
        assert not (tmp_path / "out").exists()

    return check


def test_one_class_only_is_refused(refused: Refused, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [("one", "x"), ("two", "x")])
    refused(file, "all other rows (2) have the label 'x'", "--label-column")


def test_a_file_without_rows_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    refused(tmp_path / "empty.csv", "no labeled rows")
    refused(tmp_path / "empty.jsonl", "no labeled rows")
    refused(table(tmp_path / "head.csv", []), "no labeled rows")


def test_texts_that_are_all_empty_are_refused(refused: Refused, tmp_path: Path) -> None:
    refused(table(tmp_path / "a.csv", [("", "x"), (" ", "y")] * 4), "all 8 texts are empty", "--text-columns")


def test_validation_without_a_row_is_refused(
    refused: Refused, cli: Cli, encoder: Path, tmp_path: Path
) -> None:
    file = table(tmp_path / "a.csv", [("one", "x"), ("two", "y")])
    refused(file, "one row of each class", "--valid")
    none = table(tmp_path / "none.csv", [])
    found = cli("fit", encoder, table(tmp_path / "b.csv", rows(9)), "-o", tmp_path / "out", "--valid", none)
    found.check_refused(none, "no labeled rows")


def test_missing_columns_are_refused_with_what_there_is(refused: Refused, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [("one", "x", "1")], ("headline", "topic", "n"))
    refused(file, "headline, topic, n", "--text-columns")
    refused(file, "'headlin'", "Did you mean 'headline'?", flags=["--text-columns", "headlin"])
    refused(file, "which holds the label?", "--label-column", flags=["--text-columns", "headline"])
    flags = ["--text-columns", "headline", "--label-column", "topics"]
    refused(file, "'topics'", "Did you mean 'topic'?", flags=flags)
    lines = objects(tmp_path / "a.jsonl", [{"text": "one", "label": "x"}, {"title": "two", "label": "y"}])
    refused(lines, "line 2", "no field 'text'", "--text-columns")


def test_missing_labels_are_refused_by_line(refused: Refused, tmp_path: Path) -> None:
    some = [{"text": text, "label": topic} for text, topic in rows(30)]
    for number, blank in enumerate(("", "  ", None, float("nan"), "nan")):
        file = objects(tmp_path / f"{number}.jsonl", [*some[:9], {"text": "hm", "label": blank}, *some[9:]])
        refused(file, f"{file}, line 10: the row has no label", "--set", "drop_unlabeled=true")
    absent = objects(tmp_path / "absent.jsonl", [*some[:9], {"text": "hm"}, *some[9:]])
    refused(absent, "line 10", "no field 'label'", "--set", "drop_unlabeled=true")
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", "two", "three"], "label": ["x", None, "y"]}), parquet)
    refused(parquet, f"{parquet}, row 2: the row has no label")


@pytest.mark.usefixtures("no_report")
def test_rows_without_a_label_are_dropped_if_asked(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [*rows(30), ("hm", ""), ("hm hm", "nan")])
    found = cli("fit", encoder, file, "-o", tmp_path / "out", "--set", "drop_unlabeled=true", *QUICK)
    found.check_fine("2 rows without a label left out", "3 classes")


def test_validation_labels_that_training_never_saw_are_refused(
    cli: Cli, encoder: Path, train: Path, tmp_path: Path
) -> None:
    valid = table(tmp_path / "valid.csv", [*rows(6, 1), ("the bread", "food")])
    found = cli("fit", encoder, train, "-o", tmp_path / "out", "--valid", valid, *QUICK)
    found.check_refused(
        "validation rows have labels that the training rows do not have: food", "training rows"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("weights", ["1,2", "1,2,3,4", "1,two,3", "nan,1,1"])
def test_wrong_mix_weights_are_refused_before_anything_is_begun(
    cli: Cli, encoder: Path, train: Path, tmp_path: Path, weights: str
) -> None:
    out = tmp_path / "out"
    cli("fit", encoder, train, "-o", out, "--mix-weights", weights, *QUICK).check_refused("weights")
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--set", "valid_share=0.9"], ["valid_share = 0.9", "at most 0.5"]),
        (["--mix", "mean"], ["mix = 'mean'"]),
        (["--head", "lstm"], ["no head 'lstm'", "'bilstm'"]),
        (["--checkpoint-every", "soon"], ["'soon' is not a length of time"]),
        (["--label-column", "text"], ["both as text and as label"]),
    ],
    ids=lambda value: value[0] if str(value[0]).startswith("--") else "",
)
def test_wrong_settings_are_refused(
    cli: Cli, encoder: Path, train: Path, tmp_path: Path, flags: list[str], parts: list[str]
) -> None:
    found = cli("fit", encoder, train, "-o", tmp_path / "out", *flags)
    assert found.code == 2
    assert "Traceback" not in found.err
    assert [part for part in parts if part not in found.err] == []
    assert not (tmp_path / "out").exists()


# -- rows that are odd, but can be used -------------------------------------------------------


@pytest.mark.usefixtures("no_report")
def test_a_class_with_one_row_works_with_a_note(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [*rows(30), ("the bread", "food")])
    cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK).check_fine(
        "Only one row has the label food", "4 classes"
    )


@pytest.mark.usefixtures("no_report")
def test_a_document_of_100_000_words_is_cut_with_a_note(cli: Cli, encoder: Path, tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [*rows(30), ("rain " * 100_000, "weather")])
    found = cli("fit", encoder, file, "-o", tmp_path / "out", *QUICK)
    found.check_fine("Cut after 400 words (max_words): 1 text.")
    labelled = cli("predict", tmp_path / "out", file, "-o", tmp_path / "labelled.csv")
    labelled.check_fine("31 rows labeled")
    assert "Of 1 row only the first 400 words were read" in labelled.err
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
    found.check_fine("Without a word, and so alike to the model: 2 texts.")
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [*texts, None], "label": [*labels, "sport"]}), parquet)
    found = cli("fit", encoder, parquet, "-o", tmp_path / "b", *QUICK)
    found.check_fine("alike to the model: 1 text.")
    labelled = [json.loads(line) for line in cli("predict", tmp_path / "a", file).out.splitlines()]
    assert len(labelled) == 33
    assert labelled[-2]["prediction"] == labelled[-3]["prediction"]
