"""``verify``: every layout of expected vectors, what it reports, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import published
from elmokit import Elmo, verify
from elmokit.core.errors import DataError, ModelError
from elmokit.vectors.verify import Verification

SENTENCES = [["the", "old", "fox"], ["nobody"], ["a", "small", "dog", "ran"], ["the", "fox"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = published.options_with()
    folder = tmp_path_factory.mktemp("published")
    return published.write_model(folder, options, published.random_weights(options))


def vectors(model: Path, batch_size: int = 1, **how: Any) -> list[Any]:
    return Elmo.load(model).embed(SENTENCES, state="stateful", batch_size=batch_size, **how).layers


def write(file: Path, arrays: list[Any], **more: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as opened:
        for place, values in enumerate(arrays):
            opened[str(place)] = values
        for name, value in more.items():
            opened[name] = value
    return file


def listed(file: Path, sentences: Any = SENTENCES) -> Path:
    lines = [" ".join(words) for words in sentences]
    file.write_text(json.dumps(lines) if file.suffix == ".json" else "\n".join(lines) + "\n", "utf-8")
    return file


def assert_met(found: Verification, layers: list[int]) -> None:
    assert found.passed
    assert [row.layer for row in found.differences] == 2 * layers
    assert {row.path for row in found.differences} == {"characters", "cached tokens"}
    assert {row.n_words for row in found.differences} == {sum(map(len, SENTENCES))}
    assert max(row.absolute for row in found.differences) < 1e-6


@pytest.mark.parametrize("name", ["sentences.txt", "sentences.json"])
def test_all_layers_in_one_file_with_a_list_of_sentences(model: Path, tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "out.hdf5", [each.transpose(1, 0, 2) for each in vectors(model)])
    assert_met(verify(model, file, sentences=listed(tmp_path / name)), [0, 1, 2])


def test_a_file_that_names_its_sentences(model: Path, tmp_path: Path) -> None:
    names = json.dumps({" ".join(words): str(place) for place, words in enumerate(SENTENCES)})
    arrays = [each.transpose(1, 0, 2) for each in vectors(model, 2)]
    file = write(tmp_path / "out.hdf5", arrays, sentence_to_index=[names])
    assert_met(verify(model, file, batch_size=2), [0, 1, 2])
    assert not verify(model, file, batch_size=1).passed
    assert not verify(model, file, state="zero").passed


def test_the_top_layer_alone(model: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "out.hdf5", [each[:, 2] for each in vectors(model)])
    assert_met(verify(model, file, sentences=listed(tmp_path / "list.txt")), [2])


def test_a_folder_with_a_file_for_each_row_of_the_batch(model: Path, tmp_path: Path) -> None:
    arrays = [np.stack(np.split(each[:, 2], 2, axis=1)) for each in vectors(model, 2)]
    for row in range(2):
        write(tmp_path / "x" / f"lm_embeddings_{row}.hdf5", arrays[row::2])
    lists = [[" ".join(words) for words in SENTENCES[row::2]] for row in range(2)]
    (tmp_path / "x" / "lm_embeddings_sentences.json").write_text(json.dumps(lists), "utf-8")
    found = verify(model, tmp_path / "x")
    assert_met(found, [2])
    assert found.batch_size == 2


def test_another_model_on_given_sentences(model: Path, tmp_path: Path) -> None:
    assert_met(verify(model, model, sentences=listed(tmp_path / "list.txt"), state="zero"), [0, 1, 2])


def test_differences_are_measured_as_said(model: Path, tmp_path: Path) -> None:
    arrays = [each.transpose(1, 0, 2).copy() for each in vectors(model)]
    arrays[2][1, 3, 5] += 0.25  # layer 1 of the fourth word of the third sentence
    file = write(tmp_path / "out.hdf5", arrays)
    found = verify(model, file, sentences=listed(tmp_path / "list.txt"))
    assert not found.passed
    for row in found.differences:
        if row.layer == 1:
            assert row.absolute == pytest.approx(0.25, abs=1e-5)
            theirs = float(np.linalg.norm(arrays[2][1, 3]))
            assert row.relative == pytest.approx(0.25 / theirs, rel=1e-4)
        else:
            assert row.absolute < 1e-6
    assert verify(model, file, sentences=tmp_path / "list.txt", tolerance=0.3).passed
    assert json.loads(json.dumps(found.to_dict()))["passed"] is False


@pytest.mark.parametrize(("name", "text"), [("a.txt", "\n"), ("a.json", '["", " "]')])
def test_nothing_to_compare_is_no_success(model: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(DataError, match=rf"{name} contains no words"):
        verify(model, model, sentences=tmp_path / name)


def test_a_vector_of_zeros_is_infinitely_far_from_any_other(model: Path, tmp_path: Path) -> None:
    arrays = [each.transpose(1, 0, 2).copy() for each in vectors(model)]
    arrays[1][:] = 0.0
    found = verify(model, write(tmp_path / "a.hdf5", arrays), sentences=listed(tmp_path / "list.txt"))
    assert all(math.isinf(row.relative) for row in found.differences)
    assert found.to_dict()["differences"][0]["relative"] is None


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ([np.zeros((3, 3, 8))], "dataset 1 is missing"),
        ([np.zeros((2, 3, 8))] * 4, "has shape (2, 3, 8); for its 3 words this model gives (3, 3, 8) or"),
        ([np.zeros((3, 3, 8)), *(np.zeros((n, 8)) for n in (1, 4, 2))], "all layers of some sentences only"),
    ],
)
def test_arrays_that_do_not_fit_are_named(model: Path, tmp_path: Path, arrays: list[Any], part: str) -> None:
    file = write(tmp_path / "out.hdf5", [np.asarray(each, dtype=np.float32) for each in arrays])
    with pytest.raises(DataError) as caught:
        verify(model, file, sentences=listed(tmp_path / "list.txt"))
    assert part in caught.value.message
    assert "sentences" in caught.value.remedy


def test_what_is_missing_is_named(model: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "out.hdf5", vectors(model))
    with pytest.raises(DataError, match="does not say which sentences"):
        verify(model, file)
    with pytest.raises(ModelError, match="nowhere"):
        verify(model, tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read as a list"):
        verify(model, file, sentences=tmp_path / "nowhere.txt")
    (tmp_path / "odd.json").write_text('{"a": 1}', "utf-8")
    with pytest.raises(DataError, match="it is not a list"):
        verify(model, file, sentences=tmp_path / "odd.json")
    write(tmp_path / "x" / "lm_embeddings_0.hdf5", vectors(model))
    with pytest.raises(DataError, match="not exactly one list of sentences"):
        verify(model, tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        verify(model, tmp_path / "empty")
    (tmp_path / "text.hdf5").write_text("no HDF5", "utf-8")
    with pytest.raises(ModelError, match="not a readable HDF5 file"):
        verify(model, tmp_path / "text.hdf5", sentences=listed(tmp_path / "list.txt"))


def test_models_of_other_shapes_are_not_compared(model: Path, tiny_model: Path) -> None:
    with pytest.raises(ModelError, match="differ in shape"):
        verify(model, tiny_model)
