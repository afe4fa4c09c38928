"""Published files, complete, unusual or damaged: what is read, and what is refused with which message."""

from __future__ import annotations

import json
import pickle
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import published
from elmokit import Elmo
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import ElmokitError, MissingExtraError, ModelError
from elmokit.published.convert import convert
from elmokit.published.official import find_official, load_official
from elmokit.text.tokenizing import SPECIALS

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
TEXTS = [["the", "cat"], ["naïve"]]
Options = dict[str, Any]
Change = Callable[[Options], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = published.options_with()
    return published.write_model(tmp_path / "model", options, published.random_weights(options))


def change_options(folder: Path, change: Change) -> None:
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    change(options)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")


def change_weights(folder: Path, change: Callable[[h5py.File], Any]) -> None:
    with h5py.File(folder / "weights.hdf5", "a") as file:
        change(file)


def put(file: h5py.File, name: str, values: Any, **more: Any) -> None:
    if name in file:
        del file[name]
    file.create_dataset(name, data=values, **more)


def refusal(path: Path) -> ModelError:
    """The error, the same from every way in, with a remedy."""
    errors = []
    for way in (load_bilm, Elmo.load, lambda path: convert(path, path.parent / "out", calibrate="none")):
        with pytest.raises(ModelError) as caught:
            way(path)
        assert caught.value.remedy
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == 1
    return errors[0]


def notes_of(folder: Path) -> str:
    return "\n".join(load_bilm(folder).training["notes"])


# -- finding the files ----------------------------------------------------------------------------


def test_the_folder_or_either_file_will_do(folder: Path) -> None:
    expected = Elmo.load(folder).embed(TEXTS).flat
    for path in (folder / "options.json", folder / "weights.hdf5", str(folder)):
        np.testing.assert_array_equal(Elmo.load(path).embed(TEXTS).flat, expected)


def test_names_with_a_prefix_tell_several_models_apart(folder: Path) -> None:
    other = published.options_with({"n_layers": 1})
    published.write_model(folder / "x", other, published.random_weights(other))
    for kind in ("options.json", "weights.hdf5"):
        (folder / kind).rename(folder / f"big_{kind}")
        (folder / "x" / kind).rename(folder / f"small_{kind}")
    assert load_bilm(folder / "big_options.json").model.config.n_layers == 2
    assert load_bilm(folder / "small_options.json").model.config.n_layers == 1
    error = refusal(folder)
    assert "more than one model" in error.message
    assert "small_weights.hdf5" in error.message


def test_weights_are_found_by_name_or_as_the_only_hdf5_file(folder: Path) -> None:
    with h5py.File(folder / "lm_embeddings_0.hdf5", "w") as file:
        file.create_dataset("0", data=np.zeros((2, 3, 4), dtype=np.float32))
    files = find_official(folder)
    assert files is not None
    assert files.weights.name == "weights.hdf5"
    (folder / "lm_embeddings_0.hdf5").unlink()
    (folder / "weights.hdf5").rename(folder / "english.h5")
    assert len(Elmo.load(folder).embed(TEXTS)) == 2


def test_other_folders_are_refused_by_what_they_lack(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    for path, problem in ((tmp_path, r"no config\.json"), (tmp_path / "nowhere", "There is no model folder")):
        for way in (load_bilm, lambda path: convert(path, tmp_path / "out")):
            with pytest.raises(ModelError, match=problem):
                way(path)
    with pytest.raises(ModelError, match="is not a published ELMo model"):
        load_official(tmp_path)


# -- files that are not what they should be -------------------------------------------------------


@pytest.mark.parametrize("name", ["model.pkl", "model.bin", "model"])
def test_a_pickle_is_refused_and_never_loaded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_bytes(pickle.dumps(published.Trap()))
    for path in (tmp_path / "model" / name, tmp_path / "model"):
        with pytest.raises(ElmokitError):
            load_bilm(path)
        with pytest.raises(ElmokitError):
            convert(path, tmp_path / "out")
    assert not (tmp_path / "it-was-loaded").exists()


def test_a_tensorflow_checkpoint_has_its_own_remedy(tmp_path: Path) -> None:
    for name in ("checkpoint", "model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001"):
        (tmp_path / name).write_bytes(b"x")
    error = refusal(tmp_path)
    assert "TensorFlow checkpoint" in error.message
    assert "dump_weights" in error.remedy


def test_without_h5py_the_extra_is_named(
    folder: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert len(Elmo.load(tiny_model).embed(TEXTS)) == 2
    for way in (
        lambda: Elmo.load(folder),
        lambda: convert(folder, tmp_path / "out"),
        lambda: convert(tiny_model, tmp_path / "out", to="official"),
    ):
        with pytest.raises(MissingExtraError, match="h5py") as caught:
            way()
        assert "pip install 'elmokit[official]'" in caught.value.remedy
    assert not (tmp_path / "out").exists()


# -- datasets -------------------------------------------------------------------------------------

_WEIGHTS = published.random_weights(published.options_with())


@pytest.mark.parametrize("name", ["char_embed", "CNN/b_cnn_1", "CNN_proj/W_proj", f"{CELL}/W_P_0"])
def test_a_dataset_that_is_missing_or_of_another_shape_is_named(folder: Path, name: str) -> None:
    shape = _WEIGHTS[name].shape
    wrong = (*shape[:-1], shape[-1] + 1)
    change_weights(folder, lambda file: put(file, name, np.zeros(wrong, dtype=np.float32)))
    message = refusal(folder).message
    assert f"{name} has shape {wrong}, but the options ask for {shape}" in message
    change_weights(folder, lambda file: file.pop(name))
    message = refusal(folder).message
    assert f"lacks the dataset {name}, shape {shape}" in message


def lstm(**values: Any) -> Change:
    return lambda options: options["lstm"].update(values)


def cnn(**values: Any) -> Change:
    return lambda options: options["char_cnn"].update(values)


WRONG: list[tuple[Change, list[str]]] = [
    (lstm(dim=9), ["lstm.dim = 9", "(8, 28)", "(8, 36)"]),
    (lstm(projection_dim=5), ["CNN_proj/W_proj", "(12, 5)"]),
    (lstm(n_layers=3), ["Cell2", "lstm.n_layers = 3"]),
    (lstm(n_layers=1), ["lstm.n_layers = 1", "Cell1"]),
    (lstm(n_layers=10**9), ["lstm.n_layers"]),
    (lstm(dim=4), ["W_P_0", "lstm.dim = 4, lstm.projection_dim = 4"]),
    (cnn(filters=[[1, 3], [2, 4]]), ["filters = [[1, 3], [2, 4]]", "W_cnn_2"]),
    (cnn(filters=[[2, 3], [2, 4], [4, 5]]), ["W_cnn_0", "(1, 2, 3, 3)"]),
    (cnn(filters=[[1, 2, 3]]), ["char_cnn.filters"]),
    (cnn(max_characters_per_token=3), ["width 4", "max_chars = 3"]),
    (cnn(embedding={"dim": 5}), ["char_embed", "(261, 5)"]),
    (cnn(n_highway=0), ["n_highway = 0", "CNN_high_0"]),
    (cnn(activation="selu"), ["char_cnn.activation = 'selu'"]),
    (lstm(dim="7"), ["lstm.dim = '7'", "type int"]),
    (lstm(cell_clip=10**400), ["lstm.cell_clip is too large"]),
    (lambda options: options.update(lstm=[1]), ["lstm", "an object"]),
    (lambda options: options["lstm"].pop("projection_dim"), ["lacks lstm.projection_dim"]),
]


@pytest.mark.parametrize(("change", "parts"), WRONG, ids=range(len(WRONG)))
def test_options_that_contradict_the_weights_are_named(
    folder: Path, change: Change, parts: list[str]
) -> None:
    change_options(folder, change)
    message = refusal(folder).message
    assert [part for part in ("options.json", *parts) if part not in message] == [], message


@pytest.mark.parametrize("text", ["", "[]", "\xff\xfe", "[" * 100_000, '{"note": "\\ud800"}'], ids=range(5))
def test_options_that_are_not_an_object_are_refused(folder: Path, text: str) -> None:
    (folder / "options.json").write_bytes(text.encode("latin-1"))
    assert "options.json" in refusal(folder).message


# -- a file that declares more than it holds ------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"chunks": (64, 64)}, {"chunks": (64, 64), "compression": "gzip"}])
def test_a_gigabyte_declared_in_a_tiny_file_is_refused_without_allocating_it(
    folder: Path, how: dict[str, Any]
) -> None:
    cells = 1 << 15  # W_0 would be (2^13, 2^17) float32: 4 GB

    def declare(name: str, shape: tuple[int, ...], **how: Any) -> None:
        del file[name]
        file.create_dataset(name, shape=shape, dtype="f4", **how)

    change_options(folder, lambda o: o["lstm"].update(dim=cells, projection_dim=1 << 12))
    with h5py.File(folder / "weights.hdf5", "a") as file:
        for direction in (0, 1):
            for layer in (0, 1):
                home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                declare(f"{home}/W_0", (1 << 13, 4 * cells), **how)
                declare(f"{home}/W_P_0", (cells, 1 << 12), **how)
                put(file, f"{home}/B", np.zeros(4 * cells, dtype=np.float32))
        declare("CNN_proj/W_proj", (12, 1 << 12))
        put(file, "CNN_proj/b_proj", np.zeros(1 << 12, dtype=np.float32))
    assert (folder / "weights.hdf5").stat().st_size < 5_000_000
    tracemalloc.start()
    try:
        message = refusal(folder).message
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert "declares shape" in message
    assert "the file holds" in message


def test_a_chunk_far_larger_than_the_file_is_not_unpacked(folder: Path) -> None:
    how: dict[str, Any] = {"maxshape": (None, None), "chunks": (2048, 2048), "compression": "gzip"}
    change_weights(folder, lambda file: put(file, "char_embed", _WEIGHTS["char_embed"], **how))
    assert "chunks (2048, 2048), 16,777,216 bytes" in refusal(folder).message


@pytest.mark.parametrize("kind", ["data", "link"])
def test_other_files_are_never_opened(folder: Path, kind: str) -> None:
    (folder / "raw.bin").write_bytes(b"\0" * 4 * 28)
    with h5py.File(folder.parent / "other.h5", "w") as file:
        file["x"] = np.zeros(28, dtype=np.float32)
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file[f"{CELL}/B"]
        if kind == "data":
            file.create_dataset(f"{CELL}/B", shape=(28,), dtype="f4", external=[("raw.bin", 0, 4 * 28)])
        else:
            file[f"{CELL}/B"] = h5py.ExternalLink("../other.h5", "/x")
    problems = {"data": "B is in another file, which is not opened", "link": f"lacks the dataset {CELL}/B"}
    assert problems[kind] in refusal(folder).message


def test_values_that_are_not_finite_floating_point_numbers_are_refused(folder: Path) -> None:
    change_weights(folder, lambda file: file[f"{CELL}/W_0"].__setitem__((3, 5), np.nan))
    assert f"{CELL}/W_0 holds numbers that are not finite" in refusal(folder).message
    wrong = np.zeros(_WEIGHTS[f"{CELL}/W_0"].shape, dtype=np.int32)
    change_weights(folder, lambda file: put(file, f"{CELL}/W_0", wrong))
    assert "not floating-point numbers" in refusal(folder).message


@pytest.mark.parametrize(
    "how",
    [{"dtype": "f8"}, {"dtype": ">f4"}, {"compression": "gzip"}, {"chunks": True}, {"dtype": "f2"}],
    ids=["double", "big-endian", "packed", "in chunks", "half"],
)
def test_the_same_numbers_stored_in_another_way_are_read(folder: Path, how: dict[str, Any]) -> None:
    expected = Elmo.load(folder).embed(TEXTS).flat
    with h5py.File(folder / "weights.hdf5", "a") as file:
        for name in (f"{CELL}/W_0", "CNN_high_0/W_carry"):
            put(file, name, _WEIGHTS[name], **how)
    vectors = Elmo.load(folder).embed(TEXTS).flat
    np.testing.assert_allclose(vectors, expected, atol=5e-3 if how.get("dtype") == "f2" else 1e-7)


# -- options that are missing ---------------------------------------------------------------------


def test_missing_options_have_their_usual_values_with_a_note(folder: Path) -> None:
    missing = {"lstm": ["cell_clip", "use_skip_connections"], "char_cnn": ["max_characters_per_token"]}
    change_options(folder, lstm(proj_clip=0))
    change_options(
        folder, lambda o: [o[section].pop(name, None) for section, names in missing.items() for name in names]
    )
    config, notes = load_bilm(folder).model.config, notes_of(folder)
    assert (config.cell_clip, config.residual, config.max_chars) == (None, False, 50)
    assert (config.proj_clip, config.dim) == (None, 4)  # a clip of 0 is none
    for name in ("lstm.cell_clip", "lstm.use_skip_connections", "char_cnn.max_characters_per_token"):
        assert f"{name} is missing" in notes


@pytest.mark.parametrize("where", ["in front", "at the end"])
def test_one_row_too_many_for_characters_is_understood(folder: Path, where: str) -> None:
    expected = Elmo.load(folder).embed(TEXTS).flat
    table, extra = _WEIGHTS["char_embed"], np.full((1, 3), where == "at the end", dtype=np.float32)
    rows = np.concatenate([extra, table] if where == "in front" else [table, extra])
    change_weights(folder, lambda file: put(file, "char_embed", rows))
    np.testing.assert_array_equal(Elmo.load(folder).embed(TEXTS).flat, expected)
    assert "262 rows instead of 261" in notes_of(folder)


# -- words ----------------------------------------------------------------------------------------


def test_a_word_list_beside_the_weights_becomes_the_vocabulary(folder: Path) -> None:
    lines = ["<S>", "</S>", "<UNK>", "the", "cat", "the", " naïve ", "!!!MAXTERMID", "<unk>", "</s>"]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert load_bilm(folder).vocabulary.words == [*SPECIALS, "cat", "the", "naïve"]
    assert "more than once" in notes_of(folder)
    (folder / "vocab.txt").write_bytes(b"the\n\xff\xfe\n")
    assert "vocab.txt is not UTF-8" in refusal(folder).message


def test_of_several_word_lists_none_is_used_unless_named(folder: Path) -> None:
    for name in ("a_vocab.txt", "b_vocab.txt"):
        (folder / name).write_text(f"<S>\n</S>\n<UNK>\n{name[0]}\n", encoding="utf-8")
    assert load_bilm(folder).vocabulary.words == list(SPECIALS)
    assert load_official(folder, vocabulary=folder / "b_vocab.txt").vocabulary.words == [*SPECIALS, "b"]


def word_model(folder: Path, words: list[str], n_rows: int) -> Path:
    options = published.word_options()
    return published.write_model(folder, options, published.random_weights(options, n_words=n_rows), words)


def test_a_word_input_model_needs_its_word_list(tmp_path: Path) -> None:
    error = refusal(word_model(tmp_path / "m", ["<S>", "</S>", "<UNK>"], 4))
    assert "vocab.txt has 3 words" in error.message
    assert "4 rows" in error.message
    (tmp_path / "m" / "vocab.txt").unlink()
    error = refusal(tmp_path / "m")
    assert "word-input" in error.message
    assert "--vocab" in error.remedy


def test_what_is_unusual_about_a_word_model_is_noted(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "m", ["the", "cat"], 2)
    assert not load_bilm(folder).model.encoder.weight[:4].any()  # type: ignore[index]
    assert "<unk>, <s>, </s>" in notes_of(folder)
    change_options(folder, lambda o: o.update(char_cnn=published.options_with()["char_cnn"]))
    change_weights(folder, lambda file: put(file, "softmax/W", np.zeros(3, dtype=np.float32)))
    assert load_bilm(folder).model.config.input == "word"
    assert "word-input model" in notes_of(folder)
    assert "also holds softmax/W" in notes_of(folder)
