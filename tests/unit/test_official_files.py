"""Published files that are whole, odd or broken: what is read, what is refused, and what is said."""

from __future__ import annotations

import errno
import json
import os
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
from elmokit import ConfigError, Elmo, MissingExtraError, ModelError, RunError, TextConfig, convert, load_bilm
from elmokit.published.official import find_official, load_official
from elmokit.text.tokenizing import SPECIALS

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
TEXTS = [["the", "cat"], ["naïve"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = published.options_with()
    return published.write_model(tmp_path / "model", options, published.random_weights(options))


def options_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    return found


def change_options(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    options = options_in(folder)
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
    """The error, the same from every way in, with something to try."""
    errors = []
    for way in (load_bilm, Elmo.load, lambda path: convert(path, path.parent / "out", calibrate=[])):
        with pytest.raises(ModelError) as caught:
            way(path)
        assert caught.value.remedy
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == 1
    return errors[0]


# -- which files are meant ------------------------------------------------------------------------


def test_the_folder_or_either_file_will_do(folder: Path) -> None:
    wanted = Elmo.load(folder).embed(TEXTS).flat
    for path in (folder / "options.json", folder / "weights.hdf5", str(folder)):
        np.testing.assert_array_equal(Elmo.load(path).embed(TEXTS).flat, wanted)


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


def test_other_hdf5_files_beside_the_weights_do_not_confuse(folder: Path) -> None:
    with h5py.File(folder / "lm_embeddings_0.hdf5", "w") as file:
        file.create_dataset("0", data=np.zeros((2, 3, 4), dtype=np.float32))
    files = find_official(folder)
    assert files is not None
    assert files.weights.name == "weights.hdf5"


def test_a_lone_hdf5_file_of_any_name_is_the_weights(folder: Path) -> None:
    (folder / "weights.hdf5").rename(folder / "english.h5")
    assert len(Elmo.load(folder).embed(TEXTS)) == 2


@pytest.mark.parametrize(
    ("gone", "kept"), [("weights.hdf5", "options.json"), ("options.json", "weights.hdf5")]
)
def test_half_a_model_is_refused(folder: Path, gone: str, kept: str) -> None:
    (folder / gone).unlink()
    for path in (folder, folder / kept):
        error = refusal(path)
        assert kept in error.message
        assert f"no {gone.split('.')[0]}" in error.message
        assert "options.json and weights.hdf5" in error.remedy


def test_a_folder_of_something_else_is_named_as_before(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_bilm(tmp_path)
    with pytest.raises(ModelError, match="There is no model folder"):
        load_bilm(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="does not hold a known model"):
        convert(tmp_path, tmp_path / "out")
    with pytest.raises(ModelError, match="There is no file or folder"):
        convert(tmp_path / "nowhere", tmp_path / "out")


# -- files that are not what they should be -------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def foreign(file: Path) -> None:
    file.write_text("this is no HDF5 file, whatever its name says\n", encoding="utf-8")


def its_head_damaged(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8:96] = b"\xff" * 88
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [cut, emptied, foreign, its_head_damaged])
def test_weights_that_are_no_whole_hdf5_file_are_refused(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    damage(folder / "weights.hdf5")
    error = refusal(folder)
    assert "weights.hdf5" in error.message
    assert "download it again" in error.remedy
    assert ("is truncated" in error.message) == (damage is cut)


@pytest.mark.parametrize("size", range(0, 6000, 700))
def test_weights_cut_anywhere_never_crash(folder: Path, size: int) -> None:
    file = folder / "weights.hdf5"
    file.write_bytes(file.read_bytes()[: -size - 1])
    assert "weights.hdf5" in refusal(folder).message


class _Trap:
    """A pickle of it would leave a mark if it were loaded."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("it-was-loaded",))


@pytest.mark.parametrize("name", ["model.pkl", "model.pt", "weights.th", "model.bin", "model"])
def test_a_pickle_is_refused_and_never_loaded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / name
    file.write_bytes(pickle.dumps(_Trap()))
    for path in (file, tmp_path / "model"):
        error = refusal(path)
        assert "pickle" in error.message
        assert "never loaded" in error.message
    assert not (tmp_path / "it-was-loaded").exists()


def test_a_pickle_under_the_name_of_weights_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "weights.hdf5").write_bytes(pickle.dumps(_Trap()))
    assert "looks like a pickle" in refusal(folder).message
    assert not (folder / "it-was-loaded").exists()


def test_a_tensorflow_checkpoint_is_told_how_to_become_weights(tmp_path: Path) -> None:
    for name in ("checkpoint", "model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001"):
        (tmp_path / name).write_bytes(b"x")
    error = refusal(tmp_path)
    assert "TensorFlow checkpoint" in error.message
    assert "dump_weights" in error.remedy


def test_without_h5py_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    for way in (Elmo.load, lambda path: convert(path, path / "out")):
        with pytest.raises(MissingExtraError, match="h5py") as caught:
            way(folder)
        assert "pip install 'elmokit[official]'" in caught.value.remedy


def test_without_h5py_our_models_open_but_are_not_written(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert len(Elmo.load(tiny_model).embed(TEXTS)) == 2
    with pytest.raises(MissingExtraError, match="h5py"):
        convert(tiny_model, tmp_path / "out", to="official")
    assert not (tmp_path / "out").exists()


# -- datasets -------------------------------------------------------------------------------------

_OPTIONS = published.options_with()


@pytest.mark.parametrize("name", sorted(published.random_weights(_OPTIONS)))
def test_a_missing_dataset_is_named(folder: Path, name: str) -> None:
    change_weights(folder, lambda file: file.pop(name))
    error = refusal(folder)
    assert name in error.message
    assert "lacks the dataset" in error.message or "lacks lstm" in error.message


@pytest.mark.parametrize("name", sorted(published.random_weights(_OPTIONS)))
def test_a_dataset_of_another_shape_is_named_with_both_shapes(folder: Path, name: str) -> None:
    shape = published.random_weights(_OPTIONS)[name].shape
    wrong = (*shape[:-1], shape[-1] + 1)
    change_weights(folder, lambda file: put(file, name, np.zeros(wrong, dtype=np.float32)))
    error = refusal(folder)
    assert name in error.message
    assert str(wrong) in error.message
    assert str(shape) in error.message
    assert "the options ask for" in error.message


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {
    "wider cells": (lambda o: o["lstm"].update(dim=9), ["lstm.dim = 9", "(8, 28)", "(8, 36)"]),
    "another projection": (lambda o: o["lstm"].update(projection_dim=5), ["CNN_proj/W_proj", "(12, 5)"]),
    "more layers": (lambda o: o["lstm"].update(n_layers=3), ["Cell2", "lstm.n_layers = 3"]),
    "fewer layers": (lambda o: o["lstm"].update(n_layers=1), ["lstm.n_layers = 1", "Cell1"]),
    "no layers": (lambda o: o["lstm"].update(n_layers=0), ["n_layers = 0"]),
    "many layers": (lambda o: o["lstm"].update(n_layers=10**9), ["n_layers"]),
    "as wide as projected": (
        lambda o: o["lstm"].update(dim=4),
        ["W_P_0", "lstm.dim = 4, lstm.projection_dim = 4"],
    ),
    "fewer filters": (lambda o: o["char_cnn"]["filters"].pop(), ["filters = [[1, 3], [2, 4]]", "W_cnn_2"]),
    "more filters": (lambda o: o["char_cnn"]["filters"].append([5, 2]), ["W_cnn_3"]),
    "a wider filter": (
        lambda o: o["char_cnn"]["filters"].__setitem__(0, [2, 3]),
        ["W_cnn_0", "(1, 2, 3, 3)"],
    ),
    "filters in another order": (lambda o: o["char_cnn"]["filters"].reverse(), ["W_cnn_0", "(1, 4, 3, 5)"]),
    "filters wider than words": (
        lambda o: o["char_cnn"].update(max_characters_per_token=3),
        ["width 4", "max_chars = 3"],
    ),
    "other characters' width": (
        lambda o: o["char_cnn"]["embedding"].update(dim=5),
        ["char_embed", "(261, 5)"],
    ),
    "other characters": (lambda o: o["char_cnn"].update(n_characters=300), ["n_characters = '300'"]),
    "more highways": (lambda o: o["char_cnn"].update(n_highway=2), ["CNN_high_1/W_carry"]),
    "fewer highways": (lambda o: o["char_cnn"].update(n_highway=0), ["n_highway = 0", "CNN_high_0"]),
    "an unknown activation": (
        lambda o: o["char_cnn"].update(activation="selu"),
        ["activation = 'selu'", "relu"],
    ),
    "text for a number": (lambda o: o["lstm"].update(dim="7"), ["lstm.dim = '7'", "whole number"]),
    "a truth for a number": (lambda o: o["lstm"].update(n_layers=True), ["lstm.n_layers = 'True'"]),
    "a number for a truth": (
        lambda o: o["lstm"].update(use_skip_connections=1),
        ["use_skip_connections = '1'"],
    ),
    "a negative clip": (lambda o: o["lstm"].update(cell_clip=-3), ["lstm.cell_clip = '-3'"]),
    "a clip beyond all numbers": (lambda o: o["lstm"].update(cell_clip=10**400), ["lstm.cell_clip = '1000"]),
    "words without end": (
        lambda o: o["char_cnn"].update(max_characters_per_token=10**9),
        ["max_chars = 1000000000", "at most 1000"],
    ),
    "filters that are none": (lambda o: o["char_cnn"].update(filters=[[1, 2, 3]]), ["char_cnn.filters"]),
    "a section that is none": (lambda o: o.update(lstm=[1]), ["lstm", "an object"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_options_that_disagree_with_the_weights_are_named(folder: Path, what: str) -> None:
    change, parts = WRONG[what]
    change_options(folder, change)
    error = refusal(folder)
    assert "options.json" in error.message
    assert [part for part in parts if part not in error.message] == [], error.message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"lstm"', "\xff\xfe", "[" * 100_000, '{"note": "\\ud800"}']
)
def test_options_that_are_no_object_are_refused(folder: Path, text: str) -> None:
    (folder / "options.json").write_bytes(text.encode("latin-1"))
    assert "options.json" in refusal(folder).message


def test_a_config_that_nests_without_end_is_none_of_ours(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000, encoding="utf-8")
    assert len(Elmo.load(folder).embed(TEXTS)) == 2
    (folder / "options.json").unlink()
    (folder / "weights.hdf5").unlink()
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        load_bilm(folder)


def test_options_of_many_megabytes_are_not_read(folder: Path) -> None:
    (folder / "options.json").write_text(" " * 2_000_000 + "{}", encoding="utf-8")
    assert "too many for an options file" in refusal(folder).message


# -- a file that declares more than it holds ------------------------------------------------------


def declare(file: h5py.File, name: str, shape: tuple[int, ...], **how: Any) -> None:
    del file[name]
    file.create_dataset(name, shape=shape, dtype="f4", **how)


@pytest.mark.parametrize("how", [{}, {"chunks": (64, 64)}, {"chunks": (64, 64), "compression": "gzip"}])
def test_a_gigabyte_declared_in_a_tiny_file_is_refused_without_allocating_it(
    folder: Path, how: dict[str, Any]
) -> None:
    cells = 1 << 15  # W_0 would be (2^13, 2^17) float32: 4 GB
    change_options(folder, lambda o: o["lstm"].update(dim=cells, projection_dim=1 << 12))
    with h5py.File(folder / "weights.hdf5", "a") as file:
        for direction in (0, 1):
            for layer in (0, 1):
                home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                declare(file, f"{home}/W_0", (1 << 13, 4 * cells), **how)
                declare(file, f"{home}/W_P_0", (cells, 1 << 12), **how)
                put(file, f"{home}/B", np.zeros(4 * cells, dtype=np.float32))
        declare(file, "CNN_proj/W_proj", (12, 1 << 12))
        put(file, "CNN_proj/b_proj", np.zeros(1 << 12, dtype=np.float32))
    assert (folder / "weights.hdf5").stat().st_size < 5_000_000
    tracemalloc.start()
    try:
        error = refusal(folder)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert "declares shape" in error.message
    assert "the file holds" in error.message


def test_a_packed_dataset_that_unpacks_to_far_more_is_refused(folder: Path) -> None:
    change_options(folder, lambda o: o["char_cnn"]["embedding"].update(dim=100_000))
    zeros = np.zeros((261, 100_000), dtype=np.float32)
    change_weights(folder, lambda file: put(file, "char_embed", zeros, compression="gzip"))
    for number, (width, count) in enumerate(options_in(folder)["char_cnn"]["filters"]):
        with h5py.File(folder / "weights.hdf5", "a") as file:
            declare(file, f"CNN/W_cnn_{number}", (1, width, 100_000, count))
    assert "char_embed declares shape (261, 100000)" in refusal(folder).message


def test_data_in_other_files_is_not_followed(folder: Path) -> None:
    (folder / "raw.bin").write_bytes(b"\0" * 4 * 28)
    with h5py.File(folder / "weights.hdf5", "a") as file:
        del file[f"{CELL}/B"]
        file.create_dataset(f"{CELL}/B", shape=(28,), dtype="f4", external=[("raw.bin", 0, 4 * 28)])
    assert "is in another file" in refusal(folder).message


def test_links_to_other_files_are_not_followed(folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = np.zeros(28, dtype=np.float32)
    (folder / "other.h5").rename(folder.parent / "other.h5")

    def link(file: h5py.File) -> None:
        del file[f"{CELL}/B"]
        file[f"{CELL}/B"] = h5py.ExternalLink("../other.h5", "/x")

    change_weights(folder, link)
    assert "is in another file (../other.h5)" in refusal(folder).message


def test_a_link_within_the_file_that_leads_out_of_it_is_not_followed(folder: Path) -> None:
    with h5py.File(folder.parent / "other.h5", "w") as file:
        file["x"] = np.zeros(28, dtype=np.float32)

    def link(file: h5py.File) -> None:
        del file[f"{CELL}/B"]
        file["way"] = h5py.ExternalLink("../other.h5", "/")
        file[f"{CELL}/B"] = h5py.SoftLink("/way/x")

    change_weights(folder, link)
    assert f"{CELL}/B is a link to another place" in refusal(folder).message


def test_a_chunk_far_larger_than_the_file_is_not_unpacked(folder: Path) -> None:
    with h5py.File(folder / "weights.hdf5", "a") as file:
        values = file["char_embed"][()]
        del file["char_embed"]
        how: dict[str, Any] = {"maxshape": (None, None), "chunks": (2048, 2048), "compression": "gzip"}
        file.create_dataset("char_embed", data=values, **how)
    error = refusal(folder)
    assert "chunks of shape (2048, 2048), 16,777,216 bytes each" in error.message


@pytest.mark.parametrize("kind", [np.int32, np.uint8, "S4"])
def test_values_that_are_no_floating_point_numbers_are_refused(folder: Path, kind: Any) -> None:
    change_weights(folder, lambda file: put(file, f"{CELL}/B", np.zeros(28, dtype=kind)))
    assert "not floating-point numbers" in refusal(folder).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(folder: Path, value: float) -> None:
    def spoil(file: h5py.File) -> None:
        file[f"{CELL}/W_0"][3, 5] = value

    change_weights(folder, spoil)
    error = refusal(folder)
    assert f"{CELL}/W_0" in error.message
    assert "not finite" in error.message


@pytest.mark.parametrize(
    "how",
    [{"dtype": "f8"}, {"dtype": ">f4"}, {"compression": "gzip"}, {"chunks": True}, {"dtype": "f2"}],
    ids=["double", "big-endian", "packed", "in chunks", "half"],
)
def test_the_same_numbers_stored_in_another_way_are_read(folder: Path, how: dict[str, Any]) -> None:
    wanted = Elmo.load(folder).embed(TEXTS).flat
    values = published.read_weights(folder / "weights.hdf5")
    for name in (f"{CELL}/W_0", "CNN_high_0/W_carry"):
        with h5py.File(folder / "weights.hdf5", "a") as file:
            put(file, name, values[name], **how)
    found = Elmo.load(folder).embed(TEXTS).flat
    np.testing.assert_allclose(found, wanted, atol=5e-3 if how.get("dtype") == "f2" else 1e-7)


# -- options that are missing ---------------------------------------------------------------------

SEEN = ["dim", "projection_dim", "n_layers"]
SEEN_CHARACTERS = ["embedding", "filters", "n_highway", "n_characters"]


def test_missing_options_are_filled_from_the_weights_with_a_note(folder: Path) -> None:
    wanted = load_bilm(folder)

    def change(options: dict[str, Any]) -> None:
        for name in SEEN:
            del options["lstm"][name]
        for name in SEEN_CHARACTERS:
            del options["char_cnn"][name]

    change_options(folder, change)
    found = load_bilm(folder)
    assert found.model.config == wanted.model.config
    notes = "\n".join(found.training["notes"])
    for name in SEEN:
        assert f"lstm.{name} is missing" in notes
    assert (
        "char_cnn.filters is missing from options.json: [[1, 3], [2, 4], [4, 5]] (from the weights)" in notes
    )
    assert "char_cnn.embedding.dim is missing" in notes


def test_what_weights_do_not_show_is_the_usual_with_a_note(folder: Path) -> None:
    (folder / "options.json").write_text("{}", encoding="utf-8")
    found = load_bilm(folder)
    config, notes = found.model.config, "\n".join(found.training["notes"])
    assert (config.cell_clip, config.proj_clip, config.residual) == (None, None, False)
    assert (config.max_chars, config.char_activation) == (50, "relu")
    for name in ("cell_clip", "proj_clip", "use_skip_connections"):
        assert f"lstm.{name} is missing" in notes
    assert "max_characters_per_token is missing" in notes
    assert "Weights do not show whether layers are residual" in notes


def test_notes_are_kept_with_the_converted_model_and_shown(folder: Path, tmp_path: Path) -> None:
    change_options(folder, lambda o: o["lstm"].pop("n_layers"))
    made = convert(folder, tmp_path / "ours", calibrate=[])
    assert any("lstm.n_layers is missing" in note for note in made.notes)
    assert load_bilm(tmp_path / "ours").training["notes"] == list(made.notes)
    assert "lstm.n_layers is missing" in (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("clip", [0, None, False])
def test_no_clip_is_said_in_several_ways(folder: Path, clip: Any) -> None:
    change_options(folder, lambda o: o["lstm"].update(cell_clip=clip))
    assert load_bilm(folder).model.config.cell_clip is None


def test_whole_numbers_and_tiny_ones_are_clips(folder: Path) -> None:
    change_options(folder, lambda o: o["lstm"].update(cell_clip=3, proj_clip=0.01))
    config = load_bilm(folder).model.config
    assert (config.cell_clip, config.proj_clip) == (3.0, 0.01)


@pytest.mark.parametrize("where", ["in front", "at the end"])
def test_one_row_too_many_for_characters_is_understood(folder: Path, where: str) -> None:
    wanted = Elmo.load(folder).embed(TEXTS).flat
    table = published.read_weights(folder / "weights.hdf5")["char_embed"]
    extra = np.full((1, 3), where == "at the end", dtype=np.float32)
    rows = np.concatenate([extra, table] if where == "in front" else [table, extra])
    change_weights(folder, lambda file: put(file, "char_embed", rows))
    found = Elmo.load(folder)
    np.testing.assert_array_equal(found.embed(TEXTS).flat, wanted)
    assert any("262 rows instead of 261" in note for note in found.folder.training["notes"])


def test_what_is_not_used_is_noted(folder: Path) -> None:
    change_weights(folder, lambda file: put(file, "softmax/W", np.zeros(3, dtype=np.float32)))
    assert any("also holds softmax" in note for note in load_bilm(folder).training["notes"])


def test_training_options_are_kept_and_written_back(folder: Path, tmp_path: Path) -> None:
    change_options(folder, lambda o: o.update(n_epochs=10, dropout=0.1, bidirectional=True))
    change_options(folder, lambda o: o["lstm"].update(note="kept"))
    wanted = options_in(folder)
    convert(folder, tmp_path / "ours", calibrate=[])
    convert(tmp_path / "ours", tmp_path / "back", to="official")
    assert options_in(tmp_path / "back") == wanted


# -- words ----------------------------------------------------------------------------------------


def test_a_word_list_beside_the_weights_becomes_the_vocabulary(folder: Path) -> None:
    lines = ["<S>", "</S>", "<UNK>", "the", "cat", "the", " naïve ", "!!!MAXTERMID", "<unk>", "</s>"]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = load_bilm(folder)
    assert found.vocabulary.words == [*SPECIALS, "cat", "the", "naïve"]
    assert any("more than once" in note for note in found.training["notes"])


def test_of_several_word_lists_none_is_chosen_unless_named(folder: Path) -> None:
    for name in ("a_vocab.txt", "b_vocab.txt"):
        (folder / name).write_text(f"<S>\n</S>\n<UNK>\n{name[0]}\n", encoding="utf-8")
    assert load_bilm(folder).vocabulary.words == list(SPECIALS)
    found = load_official(folder, vocabulary=folder / "b_vocab.txt")
    assert found.vocabulary.words == [*SPECIALS, "b"]


def test_a_word_list_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "vocab.txt").write_bytes(b"the\n\xff\xfe\n")
    assert "vocab.txt is not UTF-8" in refusal(folder).message


def word_model(folder: Path, words: list[str], n_rows: int) -> Path:
    options = published.word_options()
    return published.write_model(folder, options, published.random_weights(options, n_words=n_rows), words)


def test_a_word_input_model_needs_its_word_list(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "m", [], 4)
    (folder / "vocab.txt").unlink()
    error = refusal(folder)
    assert "word-input" in error.message
    assert "--vocab" in error.remedy


def test_a_word_list_of_another_length_is_refused(tmp_path: Path) -> None:
    error = refusal(word_model(tmp_path / "m", ["<S>", "</S>", "<UNK>"], 4))
    assert "vocab.txt has 3 words" in error.message
    assert "4 rows" in error.message


def test_special_words_that_a_list_lacks_are_zeros_with_a_note(tmp_path: Path) -> None:
    found = load_bilm(word_model(tmp_path / "m", ["the", "cat"], 2))
    assert not found.model.encoder.weight[:4].any()  # type: ignore[index]
    assert any("<unk>, <s>, </s>" in note for note in found.training["notes"])


def test_a_char_section_without_characters_is_a_word_model_with_a_note(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "m", ["<S>", "</S>", "<UNK>", "the"], 4)
    change_options(folder, lambda o: o.update(char_cnn=published.options_with()["char_cnn"]))
    found = load_bilm(folder)
    assert found.model.config.input == "word"
    assert any("word-input model" in note for note in found.training["notes"])


# -- converting -----------------------------------------------------------------------------------


def test_raw_text_is_cut_by_rule_or_as_asked_for(folder: Path, tmp_path: Path) -> None:
    text = "The cat didn't  sit ."
    assert Elmo.load(folder).words([text]) == [["The", "cat", "did", "n't", "sit", "."]]
    convert(folder, tmp_path / "ours", text=TextConfig(tokens="whitespace", lowercase=True), calibrate=[])
    assert Elmo.load(tmp_path / "ours").words([text]) == [["the", "cat", "didn't", "sit", "."]]


def test_what_is_there_is_never_touched(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for name in ("there", "file", "model"):
        with pytest.raises(RunError):
            convert(folder, tmp_path / name)
    assert [file.name for file in (tmp_path / "there").iterdir()] == ["mine.txt"]
    assert sorted(file.name for file in folder.iterdir()) == ["options.json", "weights.hdf5"]


def test_a_disk_that_is_full_leaves_nothing_half_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    convert(folder, tmp_path / "ours", calibrate=[])
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full, raising=False)
        with pytest.raises(RunError, match="the disk is full") as caught:
            convert(tmp_path / "ours", tmp_path / "out", to="official")
    assert "weights.hdf5" in caught.value.message
    assert not list((tmp_path / "out").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("elmokit.published.official.write_text", full)  # once the weights are there
        with pytest.raises(OSError, match="No space left"):
            convert(tmp_path / "ours", tmp_path / "out", to="official")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "out" / ".saving").mkdir()  # left by a program that was killed
    convert(tmp_path / "ours", tmp_path / "out", to="official")  # as the error told
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "options.json",
        "vocab.txt",
        "weights.hdf5",
    }


def test_what_cannot_be_converted_is_refused(tiny_model: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="an elmokit folder already") as caught:
        convert(tiny_model, tmp_path / "out")
    assert "--to official" in caught.value.remedy
    with pytest.raises(ConfigError, match="text has no effect"):
        convert(tiny_model, tmp_path / "out", to="official", text=TextConfig())
    with pytest.raises(ConfigError, match="vocab has no effect"):
        convert(tiny_model, tmp_path / "out", to="official", vocab=folder / "vocab.txt")
    with pytest.raises(ConfigError, match="not a choice"):
        convert(folder, tmp_path / "out", to="offical")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_what_other_tools_cannot_read_is_said(folder: Path, tmp_path: Path) -> None:
    notes = convert(folder, tmp_path / "same", to="official").notes
    assert list(notes) == load_bilm(folder).training["notes"]
    options = published.options_with({"use_skip_connections": False})
    plain = published.write_model(tmp_path / "plain", options, published.random_weights(options))
    shown = "\n".join(convert(plain, tmp_path / "out", to="official").notes)
    assert "AllenNLP reads residual models only" in shown
    options, words = published.word_options(), ["<S>", "</S>", "<UNK>", "the"]
    weights = published.random_weights(options, n_words=len(words))
    table = published.write_model(tmp_path / "words", options, weights, words)
    shown = "\n".join(convert(table, tmp_path / "more", to="official").notes)
    assert "character input only" in shown


def test_pieces_have_no_place_in_the_published_format(tiny_model: Path, tmp_path: Path) -> None:
    from elmokit import pretrain, resolve

    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 30, encoding="utf-8")
    shape = {"input": "subword", "dim": 4, "hidden_dim": 4}
    config = resolve("tiny", {"model": shape, "training": {"max_steps": 1}, "vocabulary": {"n_pieces": 60}})
    pretrain([tmp_path / "text.txt"], tmp_path / "pieces", config)
    with pytest.raises(ModelError, match="subword input cannot be written"):
        convert(tmp_path / "pieces", tmp_path / "out", to="official")
    assert not (tmp_path / "out").exists()


def test_the_start_state_is_measured_on_the_text_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The cat sat. Dogs ran away.\n" * 40, encoding="utf-8")
    convert(folder, tmp_path / "cold", calibrate=[])
    own = convert(folder, tmp_path / "own", calibrate=[tmp_path / "text.txt"])
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
    convert(folder, tmp_path / "own", calibrate=[tmp_path / "text.txt"])
    elmo = Elmo.load(tmp_path / "own")
    sums: dict[str, Any] = {}
    state: Any = "stateful"
    for sentence in ("The cat sat.", "Dogs ran away.", "No."):
        state = elmo.embed([sentence], state=state).state
        for name, tensor in state.tensors().items():
            sums[name] = sums.get(name, 0) + tensor / 3
    assert elmo.folder.start_state is not None
    for name, tensor in elmo.folder.start_state.tensors().items():
        np.testing.assert_allclose(tensor, sums[name], atol=1e-6)


def test_text_without_a_word_cannot_be_measured_on(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("   \n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no word"):
        convert(folder, tmp_path / "own", calibrate=[tmp_path / "text.txt"])
    assert not (tmp_path / "own").exists()


def test_a_model_without_a_predictor_says_so(folder: Path, tmp_path: Path) -> None:
    from elmokit import pretrain, text_perplexity

    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 30, encoding="utf-8")
    with pytest.raises(ModelError, match="no word predictor"):
        text_perplexity(folder, [tmp_path / "text.txt"])
    with pytest.raises(ConfigError, match="cannot be pretrained"):
        pretrain([tmp_path / "text.txt"], tmp_path / "more", start_from=folder)
