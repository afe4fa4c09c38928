"""``convert`` in Python: what it writes, its start state, and what it refuses before anything is written."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import published
from elmokit import Elmo
from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.core.errors import ConfigError, DataError, ModelError, RunError
from elmokit.published.convert import convert
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig
from odd_texts import make_model

TEXTS = [["the", "cat"], ["naïve"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = published.options_with()
    return published.write_model(tmp_path / "model", options, published.random_weights(options))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "glove.txt").write_text("cat 1 2\ndog -3 4.5\nNew York 5 6\n", encoding="utf-8")
    return tmp_path / "glove.txt"


# -- language models ------------------------------------------------------------------------------


def test_raw_text_is_split_by_rule_or_as_given(folder: Path, tmp_path: Path) -> None:
    text = "The cat didn't  sit ."
    assert Elmo.load(folder).words([text]) == [["The", "cat", "did", "n't", "sit", "."]]
    for name, settings in (
        ("object", {"text": TextConfig(tokens="whitespace", lowercase=True)}),
        ("flat", {"tokens": "whitespace", "lowercase": True}),
    ):
        convert(folder, tmp_path / name, calibrate="none", **settings)
        assert Elmo.load(tmp_path / name).words([text]) == [["the", "cat", "didn't", "sit", "."]]


def test_options_and_notes_are_kept_and_written_back(folder: Path, tmp_path: Path) -> None:
    file = folder / "options.json"
    options = {**json.loads(file.read_text("utf-8")), "n_epochs": 10, "bidirectional": True}
    (folder / "vocab.txt").write_text("the\nthe\n", "utf-8")  # a note on the repeated word
    options["lstm"]["note"] = "kept"
    file.write_text(json.dumps(options), "utf-8")
    made = convert(folder, tmp_path / "ours", calibrate="none")
    assert load_bilm(tmp_path / "ours").training["notes"] == list(made.notes)
    assert made.notes[0] in (tmp_path / "ours" / "README.md").read_text("utf-8")
    convert(tmp_path / "ours", tmp_path / "back", to="official")
    assert json.loads((tmp_path / "back" / "options.json").read_text("utf-8")) == options


def test_limits_of_other_tools_are_noted(folder: Path, tmp_path: Path) -> None:
    notes = convert(folder, tmp_path / "same", to="official").notes
    assert list(notes) == load_bilm(folder).training["notes"]
    words = ["<S>", "</S>", "<UNK>", "the"]
    weights = published.random_weights(options := published.word_options(), n_words=len(words))
    published.write_model(tmp_path / "words", options, weights, words)
    options = published.options_with({"use_skip_connections": False})
    published.write_model(tmp_path / "plain", options, published.random_weights(options))
    for name, limit in (("words", "character-input models only"), ("plain", "residual models only")):
        notes = convert(tmp_path / name, tmp_path / f"{name} again", to="official").notes
        assert any(limit in note for note in notes)


def test_a_full_disk_leaves_nothing_half_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    convert(folder, tmp_path / "ours", calibrate="none")
    for target in ("posix_fallocate", "fsync"):  # before the weights, and after each file
        with monkeypatch.context() as patch:
            patch.setattr(os, target, full, raising=False)
            with pytest.raises(RunError, match=r"weights\.hdf5: the disk is full"):
                convert(tmp_path / "ours", tmp_path / "out", to="official")
        assert not (tmp_path / "out").exists()
    (tmp_path / "out" / ".saving").mkdir(parents=True)  # left by a program that was killed
    convert(tmp_path / "ours", tmp_path / "out", to="official")  # as the error advised
    names = {"options.json", "settings.json", "vocab.txt", "weights.hdf5"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names


def test_models_that_the_official_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    save_bilm(tmp_path / "pieces", make_model(input="subword"))
    with pytest.raises(ModelError, match="subword input cannot be written"):
        convert(tmp_path / "pieces", tmp_path / "out", to="official")
    assert not (tmp_path / "out").exists()


# -- the start state ------------------------------------------------------------------------------


def test_the_start_state_is_measured_on_the_text_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The cat sat. Dogs ran away.\n" * 40, encoding="utf-8")
    convert(folder, tmp_path / "cold", calibrate="none")
    own = convert(folder, tmp_path / "own", calibrate=tmp_path / "text.txt")
    bundled = convert(folder, tmp_path / "bundled")
    assert any("80 sentences of text.txt" in note for note in own.notes)
    assert any("English sample" in note for note in bundled.notes)
    states = [load_bilm(tmp_path / name).start_state for name in ("own", "bundled")]
    assert states[0] is not None
    assert states[1] is not None
    for name, tensor in states[0].tensors().items():
        assert tensor.any()
        assert not np.allclose(tensor, states[1].tensors()[name])
    assert len(Elmo.load(tmp_path / "own").embed(TEXTS, state="warm")) == 2
    for path in (tmp_path / "cold", folder):
        with pytest.raises(ModelError, match="no start state") as caught:
            Elmo.load(path).embed(TEXTS, state="warm")
        assert "elmokit convert" in caught.value.remedy


def test_the_start_state_is_the_mean_after_each_sentence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The cat sat.\nDogs ran away.\nNo.\n", encoding="utf-8")
    (tmp_path / "blank.txt").write_text("   \n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no words"):
        convert(folder, tmp_path / "own", calibrate=[tmp_path / "blank.txt"])
    convert(folder, tmp_path / "own", calibrate=[tmp_path / "text.txt"])
    elmo = Elmo.load(tmp_path / "own")
    means: dict[str, Any] = {}
    state: Any = "stateful"
    for sentence in ("The cat sat.", "Dogs ran away.", "No."):
        state = elmo.embed([sentence], state=state).state
        for name, tensor in state.tensors().items():
            means[name] = means.get(name, 0) + tensor / 3
    assert elmo.folder.start_state is not None
    for name, tensor in elmo.folder.start_state.tensors().items():
        np.testing.assert_allclose(tensor, means[name], atol=1e-6)


# -- word vectors, token caches and wrong options -------------------------------------------------


def test_a_table_becomes_word_vectors_and_a_table_again(table: Path, tmp_path: Path) -> None:
    made = convert(table, tmp_path / "vectors", tokens="whitespace", command="elmokit convert …")
    vectors = WordVectors.load(tmp_path / "vectors")
    assert (made.path, made.n_words, vectors.n_words) == (tmp_path / "vectors", 2, 2)
    assert made.notes == ("1 words that contain a space were skipped.",)
    assert vectors.text == TextConfig(lowercase=True, tokens="whitespace")
    assert (vectors.training["file"], vectors.training["command"]) == ("glove.txt", "elmokit convert …")
    assert convert(tmp_path / "vectors", tmp_path / "back.txt").n_words == 2
    assert (tmp_path / "back.txt").read_text("utf-8").endswith("cat 1.0 2.0\ndog -3.0 4.5\n")
    assert convert(table, tmp_path / "first", max_words=1).n_words == 1


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("ours", {"to": "official", "lowercase": True}, "does not use lowercase"),
        ("ours", {"compact": True, "calibrate": "t.txt"}, "does not use calibrate"),
        ("theirs", {"to": "offical"}, "'offical' is not a valid choice"),
        ("theirs", {"max_words": 3}, "does not use max_words"),
        ("theirs", {"lowercas": True}, "no setting 'lowercas'"),
        ("theirs", {"out": None}, "OUT is missing"),
        ("table", {"compact": True, "header": "no"}, "does not use compact and header"),
    ],
    ids=str,
)
def test_options_without_effect_are_refused(
    source: str,
    options: dict[str, Any],
    error: str,
    tiny_model: Path,
    folder: Path,
    table: Path,
    tmp_path: Path,
) -> None:
    sources = {"ours": tiny_model, "theirs": folder, "table": table}
    with pytest.raises((ConfigError, ModelError, DataError), match=error):
        convert(sources[source], **{"out": tmp_path / "out", **options})
    assert not (tmp_path / "out").exists()
