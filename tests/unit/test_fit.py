"""From files of labelled rows to a classifier folder, and back from it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, ModelError, RunError
from elmokit.core.model_card import print_facts
from elmokit.core.model_folder import kind_of
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.tasks.fit import FittedModel, content_hash, read_examples
from elmokit.tasks.fit import fit as fit_files
from elmokit.tasks.model import TaskModel
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.text.settings import LabelConfig, ReadConfig
from folders import drop_checksums
from topics import EASY, QUICK, rows, table


def settings(**values: Any) -> ClassifierConfig:
    return ClassifierConfig.from_flat(**{**EASY, **values})


class Said(Reporter):
    """A reporter that keeps what it was told, as a person would see it."""

    def __init__(self) -> None:
        super().__init__("plain")
        self.screen = io.StringIO()
        self.console = Console(file=self.screen, highlight=False, width=200)

    @property
    def text(self) -> str:
        return self.screen.getvalue()


Fit = Callable[..., FittedModel]


@pytest.fixture
def fit(encoder: Path, tmp_path: Path, no_report: None) -> Fit:
    """Fits the rows given."""

    def run(train: Iterable[tuple[str, str]], out: str = "made", **options: Any) -> FittedModel:
        config = options.pop("config", settings(**QUICK))
        return fit_files(
            encoder, [table(tmp_path / "train.csv", train)], tmp_path / out, config=config, **options
        )

    return run


@pytest.fixture(scope="module")
def made(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> FittedModel:
    """A classifier with everything in its folder. Copy it before changing anything."""
    folder = tmp_path_factory.mktemp("made")
    train, test = table(folder / "train.csv", rows(90)), table(folder / "test.csv", rows(30, 1))
    return fit_files(
        encoder, [train], folder / "topics", config=settings(), test=[test], command="elmokit fit ..."
    )


@pytest.fixture
def copy(made: FittedModel, tmp_path: Path) -> Path:
    """A copy of it, free to be damaged."""
    return Path(shutil.copytree(made.folder, tmp_path / "copy"))


# -- reading ----------------------------------------------------------------------------------


def test_rows_are_read_with_their_labels_and_a_note_on_what_was_left_out(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [("one", "x|y"), ("two", ""), ("three", "y"), ("", "x")])
    config = LabelConfig(label_separator="|", drop_unlabeled=True)
    task, labels = get_task("classify"), Labels(separator="|")
    found = read_examples(task, [file], ReadConfig(), config, labels, Reporter("silent"))
    assert found.inputs == [("one",), ("three",), ("",)]
    assert found.targets.tolist() == [[1, 1], [0, 1], [1, 0]]
    assert found.notes == ("Left out: 1 row without a label (a.csv, line 3).",)
    more = table(tmp_path / "b.csv", [("four", "z|x")])
    other = read_examples(task, more, ReadConfig(), config, found.labels, Reporter("silent"))
    assert (other.targets.tolist(), other.unknown) == ([[1, 0, 1]], ("z",))


def test_the_content_hash_changes_with_any_text_or_label() -> None:
    def examples(
        texts: list[str], targets: list[int], notes: tuple[str, ...] = (), names: tuple[str, ...] = ("x", "y")
    ) -> Examples:
        return Examples([(text,) for text in texts], np.array(targets), Labels(names), notes=notes)

    rows = [examples([*"ab"], [0, 1]), examples([*"ac"], [0, 1]), examples([*"ab"], [0, 0])]
    rows += [examples(["ab", ""], [0, 1]), examples(["", "ab"], [0, 1])]  # otherwise divided
    rows += [examples([*"ab"], [0, 1], names=("x", "z"))]
    assert len({content_hash(part) for part in rows}) == len(rows)
    assert content_hash(rows[0]) == content_hash(examples(["a", "b"], [0, 1], ("a note",)))


# -- what a fit leaves behind -----------------------------------------------------------------


def test_a_fit_leaves_a_whole_folder_with_record_card_and_report(made: FittedModel) -> None:
    assert {file.name for file in made.folder.iterdir()} >= {
        *("config.json", "model.safetensors", "README.md", "encoder", "run"),
        *("report.html", "report.md", "report.json"),
    }
    sizes = [(name, metrics.n) for name, metrics in made.metrics.items()]
    assert sizes == [("train", 81), ("valid", 9), ("test", 30)]  # the last one is the headline of the report
    assert made.metrics["test"].values["accuracy"] >= 0.95
    record = TaskModel.load(made.folder).record
    assert record.notes == ["9 of 90 rows were held out for validation."]
    assert record.splits == made.scores
    assert record.splits["test"]["accuracy"] == made.metrics["test"].values["accuracy"]
    assert [entry["epoch"] for entry in record.history] == [1, 2, 3, 4, 5]
    losses = [entry["train_loss"] for entry in record.history]
    assert losses == sorted(losses, reverse=True)
    assert list(record.mix_start.values()) == pytest.approx([1 / 3] * 3)
    assert record.command == "elmokit fit ..."
    card = (made.folder / "README.md").read_text(encoding="utf-8")
    assert "(30 rows)" in card
    assert "3: money, sport and weather" in card


def test_no_file_names_the_place_it_was_made_in(made: FittedModel) -> None:
    for file in made.folder.rglob("*"):
        if file.is_file():
            assert str(made.folder.parent).encode() not in file.read_bytes(), file


def test_run_again_it_is_done_and_no_file_changes(fit: Fit, tmp_path: Path) -> None:
    first = fit(rows(30))
    before = {file: file.read_bytes() for file in (tmp_path / "made").rglob("*") if file.is_file()}
    again = fit(rows(30))
    assert again.was_done
    assert not first.was_done
    assert again.scores == first.scores
    assert {file: file.read_bytes() for file in (tmp_path / "made").rglob("*") if file.is_file()} == before


def test_cut_off_after_training_it_is_finished_without_training_again(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fit(rows(30), "whole")

    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TaskModel, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(rows(30))
    run = tmp_path / "made" / "run"
    for name in ("layers-train.npy", ".layers-valid.npy.new"):  # as if killed while it still needed them
        (run / name).write_bytes(b"0" * 100)
    assert kind_of(tmp_path / "made") is None
    again = fit(rows(30))
    assert again.scores["valid"] == wanted.scores["valid"]
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "made")]
    assert both[0] == both[1]
    assert not [file for file in run.iterdir() if "layers" in file.name]


def test_labels_that_look_like_markup_are_shown_as_they_are(fit: Fit, tmp_path: Path) -> None:
    hostile, said = {"money": "[/b]", "sport": "[red]sport[/red]", "weather": "a|b\nc"}, Said()
    fit([*((text, hostile[label]) for text, label in rows(30)), ("we", "[bold")], reporter=said)
    assert "4 classes ([/b], [bold, [red]sport[/red], a|b" in said.text
    assert "Labels with a single row, which cannot be held out: [bold." in said.text
    console = Console(file=io.StringIO(), width=200)
    print_facts(TaskModel.load(tmp_path / "made").facts(), console)
    assert isinstance(console.file, io.StringIO)
    assert "[red]sport[/red]" in console.file.getvalue()


# -- what is refused, before anything is begun ------------------------------------------------


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([("a", "x"), ("b", "x")], "all 2 rows have the label 'x'"),
        ([("a", "x"), ("b", "y")], "one row of each class"),
        ([("", "x"), (" ", "y")] * 3, "no labeled rows with a text (6 without)"),
        (
            [(f"text {number}", f"{number}") for number in range(1001)],
            "the 1,001 rows have 1,001 different labels",
        ),
        ([], "no labeled rows"),
    ],
    ids=["one class", "one row each", "no text", "far too many classes", "no rows"],
)
def test_rows_that_teach_nothing_are_refused_by_the_name_of_their_file(
    fit: Fit, tmp_path: Path, train: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        fit(train)
    assert message in caught.value.message
    assert str(tmp_path / "train.csv") in caught.value.message
    assert caught.value.remedy
    assert not (tmp_path / "made").exists()


def test_what_was_refused_leaves_the_way_free_for_the_right_command(fit: Fit, tmp_path: Path) -> None:
    strange = table(tmp_path / "v.csv", [*rows(6, 1), ("a b", "food")])
    with pytest.raises(
        DataError, match="validation rows have labels that the training rows do not have: food"
    ):
        fit(rows(30), valid=[strange])
    with pytest.raises(ConfigError, match="2 weights were given for 3 layers"):
        fit(rows(30), config=settings(**QUICK, mix_weights="1,2"))
    assert not (tmp_path / "made").exists()
    assert fit(rows(30)).stopped == "done"


def test_a_run_goes_on_only_with_its_own_settings_rows_and_encoder(
    fit: Fit, tmp_path: Path, encoder: Path
) -> None:
    fit(rows(30))
    for change, message in (
        ({"config": settings(**{**QUICK, "lr": 0.1})}, "lr was 0.03, now 0.1"),
        ({"train": rows(33)}, "the train rows changed"),
    ):
        with pytest.raises(RunError) as caught:
            fit(**{"train": rows(30), **change})
        assert f"{tmp_path / 'made'} was started with different settings or data: {message}" in str(
            caught.value
        )
    other = shutil.copytree(encoder, tmp_path / "other")
    tensors, meta = load_tensors(other / "model.safetensors")
    save_tensors(other / "model.safetensors", {n: t * 1.5 for n, t in tensors.items()}, meta)
    drop_checksums(other)
    with pytest.raises(RunError, match="the model it started from changed"):
        fit_files(other, [tmp_path / "train.csv"], tmp_path / "made", config=settings(**QUICK))


# -- the folder -------------------------------------------------------------------------------


def test_a_classifier_whose_encoder_is_missing_is_refused(copy: Path) -> None:
    shutil.rmtree(copy / "encoder")
    with pytest.raises(ModelError, match=r"encoder/config\.json cannot be read"):
        TaskModel.load(copy)
    drop_checksums(copy)
    with pytest.raises(ModelError, match="There is no model folder") as caught:
        TaskModel.load(copy)
    assert str(copy / "encoder") in caught.value.message


def test_a_damaged_config_and_weights_that_do_not_fit_are_refused_by_name(copy: Path) -> None:
    file, config = copy / "model.safetensors", copy / "config.json"
    tensors, meta = load_tensors(file)
    drop_checksums(copy)
    record = json.loads(config.read_text(encoding="utf-8"))
    for change in ({"classes": 3}, {"settings": {**record["settings"], "head": {"head": "mlp"}}}):
        config.write_text(json.dumps(record | change), encoding="utf-8")
        with pytest.raises(ModelError, match=r"config\.json is damaged"):
            TaskModel.load(copy)
    config.write_text(json.dumps(record), encoding="utf-8")
    for changed, message in (
        ({name: t for name, t in tensors.items() if name != "head.output.bias"}, "lacks the tensor"),
        ({**tensors, "more": torch.zeros(1)}, "an unexpected tensor"),
        ({**tensors, "head.output.bias": torch.zeros(4)}, "shape"),
    ):
        save_tensors(file, changed, meta)
        with pytest.raises(ModelError, match=message) as caught:
            TaskModel.load(copy)
        assert str(file) in caught.value.message


@pytest.mark.parametrize("more", [{"mix": "frozen"}, {"mix_form": "softmax"}, {"mix": "function"}])
def test_the_card_shows_every_kind_of_mix(fit: Fit, tmp_path: Path, more: dict[str, Any]) -> None:
    fit(rows(30), config=settings(**QUICK, **more))
    facts = TaskModel.load(tmp_path / "made").facts()
    shown = "".join(value for _, value in facts.rows)
    assert all(f"layer {depth}" in shown for depth in range(3))
    assert ("gamma" in shown) is ("mix_form" in more)
    json.dumps(facts.values)


def test_each_note_on_long_rows_says_which_rows_it_counts(fit: Fit, tmp_path: Path) -> None:
    long = [("rain " * 50, "weather")]
    test = table(tmp_path / "test.csv", [*rows(9, 1), *long, *long])
    made = fit([*rows(30), *long], test=[test], config=settings(**QUICK, max_words=20))
    assert made.model is not None
    assert [note for note in made.model.record.notes if "max_words" in note] == [
        "Truncated to 20 words (max_words): 1 of 31 rows for training and validation.",
        "Truncated to 20 words (max_words): 2 of 11 test rows.",
    ]
