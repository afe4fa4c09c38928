"""Model folders: replaced or untouched, checked, described, and loaded by their kind."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import elmokit
from elmokit.bilm.folder import load_bilm
from elmokit.bilm.perplexity import TextPerplexity
from elmokit.core.atomic import write_text
from elmokit.core.errors import ConfigError, ModelError, RunError
from elmokit.core.model_card import Facts, card_text, print_facts
from elmokit.core.model_folder import KINDS, kind_of, load, read_record, write_model
from elmokit.core.ragged import Ragged
from elmokit.core.tensors import fingerprint, load_tensors, load_weights, save_tensors
from elmokit.vectors.elmo import Elmo
from folders import drop_checksums
from program import Cli

FACTS = Facts(
    "A model of nothing.", (("size", "5 | wide"), ("note", "<unk> *"), ("note", "[red]x")), {"n": 5}
)


def write(folder: Path, value: float = 1.0, *, kind: str = "bilm", more: str = "") -> None:
    with write_model(folder, kind, {"value": value}, card=FACTS) as staged:
        save_tensors(staged / "model.safetensors", {"x": torch.full((3,), value)}, {})
        write_text(staged / "vocab.txt", f"{value}\n")
        if more:
            (staged / more).parent.mkdir(exist_ok=True)
            write_text(staged / more, str(value))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# -- writing --------------------------------------------------------------------------------------


def test_config_json_names_kind_version_and_checksums(tmp_path: Path) -> None:
    write(tmp_path / "m")
    record = read_record(tmp_path / "m", "bilm")
    names = ["format", "format_version", "kind", "elmokit_version", "value", "files", "checksum"]
    assert list(record) == names
    assert list(record["files"]) == ["model.safetensors", "vocab.txt"]
    assert (kind_of(tmp_path / "m"), record["value"]) == ("bilm", 1.0)
    (tmp_path / "other").mkdir()
    assert read_record(tmp_path / "other" / ".." / "m", "bilm") == record
    (tmp_path / "m" / "extra.safetensors").touch()
    with pytest.raises(ModelError, match=r"extra\.safetensors is not a file of this model"):
        read_record(tmp_path / "m", "bilm")
    (tmp_path / "m" / "vocab.txt").write_text("2.0\n", encoding="utf-8")
    with pytest.raises(ModelError, match=r"vocab\.txt is damaged"):
        read_record(tmp_path / "m", "bilm")
    (tmp_path / "m" / "vocab.txt").unlink()
    with pytest.raises(ModelError, match=r"vocab\.txt cannot be read"):
        read_record(tmp_path / "m", "bilm")


@pytest.mark.parametrize("name", ["encoder/config.json", "model/weights.bin"])
def test_checksums_cover_subfolders_and_config_json_itself(tmp_path: Path, name: str) -> None:
    write(tmp_path / "m", more=name)
    (tmp_path / "m" / name).write_text("2.0", encoding="utf-8")
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        read_record(tmp_path / "m", "bilm")
    file = tmp_path / "m" / "config.json"
    file.write_text(file.read_text("utf-8").replace('"value": 1.0', '"value": 2.0'), encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json is damaged: its checksum does not match its content"):
        read_record(tmp_path / "m", "bilm")
    drop_checksums(tmp_path / "m")  # as 0.1 wrote classifiers
    assert read_record(tmp_path / "m", "bilm")["value"] == 2.0


@pytest.mark.parametrize(
    "bad", [torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.inf]), torch.ones(2).long()]
)
def test_weights_that_are_not_finite_or_not_float_are_refused(tmp_path: Path, bad: torch.Tensor) -> None:
    save_tensors(tmp_path / "weights", {"x": bad}, {})
    with pytest.raises(
        ModelError, match=r"weights: x (holds numbers that are not finite|has the type torch\.int64)"
    ):
        load_weights(tmp_path / "weights", {"x": torch.ones(2)})


@pytest.mark.parametrize("name", ["README.md", "thesis.safetensors", "data.bin"])
def test_a_model_is_not_saved_beside_files_that_are_not_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=f"{name}, which is no part of a model; nothing in it was changed"):
        write(tmp_path)
    assert tree(tmp_path) == {name: b"mine"}


def test_files_beside_a_model_stay_and_a_model_of_another_kind_too(tmp_path: Path) -> None:
    write(tmp_path, more="start_state.safetensors")
    (tmp_path / "thesis.safetensors").write_text("mine", encoding="utf-8")
    before = tree(tmp_path)
    with pytest.raises(RunError, match=r"holds a language model; nothing(.|\n)*another folder"):
        write(tmp_path, kind="linear")
    with pytest.raises(RunError, match=r"holds thesis\.safetensors, which is no part of a model"):
        write(tmp_path, more="thesis.safetensors")
    assert tree(tmp_path) == before
    write(tmp_path, 2.0)
    assert (tmp_path / "thesis.safetensors").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "start_state.safetensors").exists()


def test_a_new_model_replaces_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, kind="linear", more="start_state.safetensors")
    for name in ("run/settings.json", "report.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("kept", encoding="utf-8")
    write(tmp_path, 2.0, kind="classifier", more="encoder/config.json")
    write(tmp_path, 3.0, kind="classifier", more="encoder/other.json")
    assert sorted(tree(tmp_path)) == [
        *("README.md", "config.json", "encoder/other.json", "model.safetensors"),
        *("report.html", "run/settings.json", "vocab.txt"),
    ]
    assert load_tensors(tmp_path / "model.safetensors")[0]["x"].tolist() == [3.0] * 3


@pytest.mark.parametrize("error", [RunError("Full."), OSError(28, "No space left"), KeyboardInterrupt()])
def test_when_writing_fails_the_old_model_is_untouched(tmp_path: Path, error: BaseException) -> None:
    def fail() -> None:
        with write_model(tmp_path, "bilm", {}, card=FACTS) as staged:
            write_text(staged / "vocab.txt", "half")
            raise error

    write(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(type(error)):
        fail()
    assert tree(tmp_path) == before


def test_a_swap_that_fails_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        if source.parent.name == ".saving" and source.name == "vocab.txt":
            raise OSError(5, "I/O error")
        shutil.move(source, target)

    write(tmp_path, more="encoder/config.json")
    before = tree(tmp_path)
    monkeypatch.setattr("elmokit.core.atomic.os.replace", replace)
    with pytest.raises(RunError, match="Cannot write"):
        write(tmp_path, 2.0, more="encoder/other.json")
    assert tree(tmp_path) == before
    assert not (tmp_path / ".saving").exists()
    assert not (tmp_path / ".replaced").exists()
    monkeypatch.undo()
    write(tmp_path, 2.0)
    assert read_record(tmp_path, "bilm")["value"] == 2.0


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_model_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind=kind)
    for other in {*KINDS} - {kind}:
        with pytest.raises(ModelError, match=f"holds {KINDS[kind].noun}, not {KINDS[other].noun}"):
            read_record(tmp_path, other)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "other"}', "[" * 100_000])
def test_what_is_not_a_model_has_no_kind(tmp_path: Path, content: str) -> None:
    assert kind_of(tmp_path) is kind_of(tmp_path / "nowhere") is None
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    assert kind_of(tmp_path) is None
    with pytest.raises(ModelError, match=r"config\.json"):
        read_record(tmp_path, "bilm")


def test_any_model_is_loaded_by_its_kind(tiny_model: Path, tmp_path: Path) -> None:
    elmo = load(tiny_model)
    assert isinstance(elmo, Elmo)
    assert elmo.kind == "bilm"
    elmo.save(tmp_path / "copy")
    copy = load(tmp_path / "copy")
    assert isinstance(copy, Elmo)
    assert copy.fingerprint == elmo.fingerprint
    write(tmp_path / "later", kind="tagger")
    with pytest.raises(ModelError, match="unknown kind"):
        load(tmp_path / "later")
    with pytest.raises(ModelError, match="There is no model folder"):
        load(tmp_path / "nowhere")


# -- cards ----------------------------------------------------------------------------------------


def test_a_card_shows_names_and_values_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "my model")
    card = (tmp_path / "my model" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# my model\n\nA model of nothing. Made with elmokit ")
    assert "| size | 5 \\| wide |\n| note | &lt;unk&gt; \\* |\n" in card
    assert card_text(FACTS).startswith("# \n")
    console = Console(file=io.StringIO(), record=True, width=60)
    print_facts(FACTS, console)
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert lines[-3:] == ["size  5 | wide", "note  <unk> *", "[red]x"]


def test_the_license_of_an_old_folder_is_read(tiny_model: Path, tmp_path: Path) -> None:
    load(tiny_model).save(tmp_path / "m")
    record = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))
    record["training"]["licence"] = "CC0"  # as 0.1 spelled it
    (tmp_path / "m" / "config.json").write_text(json.dumps(record), encoding="utf-8")
    drop_checksums(tmp_path / "m")
    saved = load_bilm(tmp_path / "m")
    assert saved.training["license"] == "CC0"
    assert ("license", "CC0") in saved.facts().rows


# -- fingerprints and ragged arrays ---------------------------------------------------------------


def test_fingerprints_stay_what_they_were() -> None:
    """They are in the manifests of stores, in token caches, in run settings and in names of cache files."""
    assert fingerprint() == "cae66941d9efbd404e4d88758ea67670"
    assert fingerprint(torch.arange(4.0), np.arange(3)) == fingerprint(
        np.arange(4.0, dtype="f4"), torch.arange(3)
    )
    assert fingerprint({"b": 1, "a": [2, None]}) == fingerprint(b'{"a": [2, null], "b": 1}')
    assert fingerprint("a b\0x\0", "c\0y\0z\0") == "4a132aacbc0777dda7302ce25a71ebbe"
    elmo = Elmo.load(Path(__file__).parents[1] / "fixtures" / "v0_1" / "bilm" / "char")
    assert elmo.fingerprint == "4205bd4b310c042bb716eb3ef3ff262d"
    assert fingerprint(*elmo.module.parameters()) == "afff1b77a79bb322188af1df93b41928"


def test_a_fingerprint_does_not_depend_on_the_layout_in_memory() -> None:
    x = torch.randn(4, 5)
    assert fingerprint(x.t().contiguous().t()) == fingerprint(x) != fingerprint(x.t())
    assert fingerprint(np.asfortranarray(x.numpy())) == fingerprint(x)
    assert fingerprint("\ud800") == fingerprint("?")


def test_ragged_rows() -> None:
    rows = [[1, 2, 3], [], [4]]
    ragged = Ragged.from_rows(rows, np.int32)
    assert ragged.values.dtype == np.int32
    assert (len(ragged), ragged.lengths.tolist()) == (3, [3, 0, 1])
    assert [row.tolist() for row in ragged] == rows
    assert ragged[-1].tolist() == [4]
    assert ragged.padded([2, 0]).tolist() == [[4, 0, 0], [1, 2, 3]]
    assert ragged.padded(np.array([1])).shape == (1, 0)
    assert Ragged.from_rows([np.ones((2, 5)), np.ones((1, 5))], np.float32).padded([0, 1]).shape == (2, 2, 5)
    assert len(Ragged.from_rows([], np.int64)) == 0
    for outside in (3, -4):
        with pytest.raises(IndexError):
            ragged[outside]


def test_evaluate_measures_any_model_by_its_kind(
    tiny_model: Path, tiny_corpus: Path, tmp_path: Path, cli: Cli
) -> None:
    elmo: Any = load(tiny_model)
    result = elmokit.evaluate(elmo, tiny_corpus, state="zero")
    assert isinstance(result.details, TextPerplexity)
    assert result.values["perplexity"] == result.details.perplexity > 1
    assert elmokit.evaluate(tiny_model, [tiny_corpus], state="zero").to_json() == result.to_json()
    cli("evaluate", tiny_model, tiny_corpus, "--state", "zero").check_fine(
        "Perplexity", "state zero", "words: perplexity is rough"
    )
    (tmp_path / "line.txt").write_text("the cat sat there\n", encoding="utf-8")
    cli("evaluate", tiny_model, tmp_path / "line.txt").check_fine("4 words in 1 text,")
    cli("evaluate", tiny_model, tiny_corpus, "--state", "zer").check_refused(
        "'zer' is not a valid choice", "'zero'"
    )
    vectors = elmokit.baseline("svd", tiny_corpus, tmp_path / "v", dim=4)
    first, second = vectors.vocabulary.words[-2:]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"{first},{second},9\n{first},{first},10\nx,y,1\n", encoding="utf-8")
    (entry,) = elmokit.evaluate(vectors, pairs).to_json()["intrinsic"]
    assert (entry["task"], entry["covered"], entry["total"]) == ("pairs.csv", 2, 3)
    with pytest.raises(ConfigError, match="--out is for reports on fitted models"):
        elmokit.evaluate(tiny_model, tiny_corpus, out=tmp_path / "report")
