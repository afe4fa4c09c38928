"""``elmokit convert`` and ``verify`` as a person runs them; other commands on published files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import published
from elmokit import Elmo, VectorStore
from elmokit.bilm.folder import load_bilm
from program import Cli


@pytest.fixture
def run(cli: Cli, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The program in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    return cli


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A published model in ./theirs, and a text beside it."""
    options = published.options_with()
    words = ["<S>", "</S>", "<UNK>", "the", "bank", "raised", "rates"]
    (tmp_path / "text.txt").write_text("The bank raised its rates.\nThe old fox ran home.\n" * 12, "utf-8")
    return published.write_model(tmp_path / "theirs", options, published.random_weights(options), words)


def test_there_and_back_and_verified(run: Cli) -> None:
    run("convert", "theirs", "ours").check_fine(
        "note: The start state", "Check it: elmokit verify ours theirs"
    )
    names = "README.md config.json model.safetensors settings.json start_state.safetensors tokenizer.json"
    assert sorted(file.name for file in Path("ours").iterdir()) == [*names.split(), "vocab.txt"]
    assert "elmokit convert theirs ours" in Path("ours/README.md").read_text("utf-8")
    run("convert", "ours", "back", "--to", "official").check_fine("The start state is left out")
    files = {"options.json", "weights.hdf5", "vocab.txt", "settings.json"}  # the last one is of the job
    assert {file.name for file in Path("back").iterdir()} == files
    assert Path("back/vocab.txt").read_bytes() == Path("theirs/vocab.txt").read_bytes()
    for pair in (("ours", "theirs"), ("back", "ours"), ("back", "theirs/options.json")):
        done = run("verify", *pair)
        assert done.code == 0, done.out
        assert "Passed: 30 sentences, state stateful, batches of 1, tolerance 1e-05." in done.out
        assert "cached tokens" in done.out


def test_programs_are_told_in_json(run: Cli) -> None:
    done = run("convert", "theirs", "ours", "--json", "--calibrate", "none")
    found = json.loads(done.out)
    assert found["folder"] == "ours"
    assert found["n_parameters"] == sum(p.numel() for p in load_bilm("ours").model.parameters())
    found = json.loads(run("verify", "ours", "theirs", "--json").out)
    assert found["passed"] is True
    assert [row["layer"] for row in found["differences"]] == [0, 1, 2, 0, 1, 2]
    found = json.loads(run("convert", "ours", "--token-cache", "theirs/vocab.txt", "--json").out)
    assert found["n_words"] == 4


def test_a_model_that_differs_ends_with_code_1(run: Cli, tmp_path: Path) -> None:
    options = published.options_with()
    published.write_model(tmp_path / "other", options, published.random_weights(options, seed=5))
    done = run("verify", "theirs", "other")
    assert done.code == 1
    assert "Differs: 30 sentences" in done.out
    assert run("verify", "theirs", "other", "--tolerance", "100").code == 0
    done = run("verify", "theirs", "other", "--json", "--state", "zero")
    assert done.code == 1
    assert json.loads(done.out)["batch_size"] is None


def test_a_projected_model_of_our_own_is_exported_and_verifies_against_itself(run: Cli) -> None:
    settings = ("max_steps=2", "hidden_dim=12", "cell_clip=3", "proj_clip=3", "filters=1:8,2:8")
    shape = [part for setting in settings for part in ("--set", setting)]
    run("pretrain", "text.txt", "-o", "own", "--preset", "tiny", "--dim", 8, *shape).check_fine()
    done = run("convert", "own", "exported", "--to", "official", "--json").check_fine()
    assert "AllenNLP" not in done.out
    n_parameters = sum(p.numel() for p in load_bilm("exported").model.parameters())
    assert json.loads(done.out)["n_parameters"] == n_parameters  # the word predictor is not among them
    assert run("verify", "exported", "own").code == 0
    assert run("verify", "exported", "own", "--sentences", "text.txt", "--state", "zero").code == 0
    assert run("convert", "exported", "again", "--calibrate", "none").code == 0
    assert run("verify", "again", "own", "--state", "zero").code == 0


def test_the_start_state_and_the_words_are_as_flags_say(run: Cli) -> None:
    settings = ("--set", "tokens=whitespace", "--set", "lowercase=true")
    run("convert", "theirs", "ours", "--calibrate", "text.txt", *settings).check_fine(
        "24 sentences of text.txt"
    )
    elmo = Elmo.load("ours")
    assert elmo.words(["The rates."]) == [["the", "rates."]]
    assert elmo.embed(["The rates."], state="warm").flat.shape == (2, 3, 8)


def test_a_cache_is_found_and_used_by_other_commands(run: Cli) -> None:
    assert run("embed", "theirs", "text.txt", "-o", "before").code == 0
    run("convert", "theirs", "--token-cache", "theirs/vocab.txt").check_fine(
        "They are used whenever the model is opened"
    )
    assert run("embed", "theirs", "text.txt", "-o", "after").code == 0
    before, after = (VectorStore.open(name).vectors for name in ("before", "after"))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    done = run("convert", "theirs/options.json", "--token-cache", "theirs/vocab.txt")
    done.check_refused("is a file", "OUT")
    assert run("convert", "theirs/options.json", "elsewhere", "--token-cache", "theirs/vocab.txt").code == 0


def test_other_commands_take_published_files(run: Cli, tmp_path: Path) -> None:
    for path in ("theirs", "theirs/options.json"):
        run("inspect", path).check_fine("options.json, weights.hdf5 (official)")
    assert run("similar", "theirs", "The bank raised rates", "--in", "text.txt", "--word", "bank").code == 0
    rows = "".join(f"{label},{text}\n" for label, text in [("a", "the bank"), ("b", "old fox")] * 20)
    (tmp_path / "train.csv").write_text("label,text\n" + rows, "utf-8")
    run("fit", "theirs", "train.csv", "-o", "topics", "--epochs", 1, "--head", "pool").check_fine()
    run("evaluate", "theirs", "text.txt").check_refused("no word predictor")
    run("pretrain", "text.txt", "-o", "more", "--from", "theirs", "--set", "max_steps=2").check_fine(
        "one is fitted to the words of the text first"
    )
    run("pretrain", "text.txt", "-o", "more", "--set", "objective=none").check_refused("cannot be pretrained")


# -- bad input ------------------------------------------------------------------------------------


def test_files_that_are_missing_cut_or_foreign(run: Cli) -> None:
    run("convert", "nowhere", "ours").check_refused("no model folder nowhere")
    options, weights = Path("theirs/options.json"), Path("theirs/weights.hdf5")
    whole, said = weights.read_bytes(), options.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    run("convert", "theirs", "ours").check_refused("weights.hdf5 is truncated")
    weights.write_text("not HDF5", "utf-8")
    run("inspect", "theirs").check_refused("weights.hdf5 is not a readable HDF5 file")
    weights.unlink()
    run("convert", "theirs", "ours").check_refused("options.json", "no weights")
    run("verify", "theirs", "theirs").check_refused("no weights")
    weights.write_bytes(whole)
    options.unlink()
    run("convert", "theirs", "--token-cache", "theirs/vocab.txt").check_refused("weights.hdf5", "no options")
    options.write_bytes(said.replace(b'"dim": 7', b'"dim": 9'))
    run("convert", "theirs", "ours").check_refused("W_0", "(8, 28)", "(8, 36)", "lstm.dim = 9")
    assert not Path("ours").exists()


def test_flags_that_make_no_sense(run: Cli, tiny_model: Path) -> None:
    run("convert", "theirs", "theirs").check_refused("theirs", "nothing in it was touched")
    run("convert", "theirs", "ours", "--to", "offical").check_refused("offical", "official")
    run("convert", tiny_model, "ours").check_refused("already an elmokit folder", "--to official")
    run("convert", tiny_model, "out", "--to", "official", "--set", "lowercase=true").check_refused(
        "does not use lowercase"
    )
    run("convert", "theirs", "text.txt/ours").check_refused("Cannot write text.txt/ours")
    run("convert", "theirs", "ours", "--calibrate", "nowhere.txt").check_refused("nowhere.txt")
    run("convert", "theirs", "ours", "--vocab", "nowhere.txt").check_refused("nowhere.txt")
    run("convert", "theirs", "ours", "--set", "unicode=NFX").check_refused("NFX")
    run("verify", "theirs", "theirs", "--state", "hot").check_refused("hot")
    run("verify", "theirs", "nowhere").check_refused("nowhere")
    run("convert", "theirs", "--token-cache", "nowhere.txt").check_refused("nowhere.txt")
    run("convert", "nowhere", "--token-cache", "theirs/vocab.txt").check_refused(
        "no model folder nowhere", "published ELMo"
    )
    Path("none.txt").write_text("<S>\n\n", "utf-8")
    run("convert", "theirs", "--token-cache", "none.txt").check_refused("none.txt has no words")
    run("convert", "theirs", "theirs", "--token-cache", "theirs/vocab.txt").check_refused(
        "does not hold a token cache"
    )
    assert not Path("ours").exists()
