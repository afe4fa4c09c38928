"""Word vectors as a folder: they come back to the bit, or an error says what is wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer

from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import ModelError, RunError
from elmokit.core.model_folder import kind_of
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.static import folder as folder_module
from elmokit.static.card import describe, render
from elmokit.static.folder import check_out, load_vectors, save_vectors, vectors_card
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig

MADE = {
    "method": "svd",
    "corpus": {"files": ["a|b.txt"], "n_words": 1000, "n_documents": 20, "unknown_share": 0.125},
    "date": "2024-01-01",
    "command": "elmokit baseline ß",
    "seconds": 1.5,
}


def make(seed: int = 0) -> WordVectors:
    words = ["the", "cat", "naïve", "日本", "<url>", "1,000", '"', "n't"]
    rows = np.random.default_rng(seed).normal(size=(len(words), 5))
    return WordVectors.of(words, rows, TextConfig(lowercase=True, punctuation="keep"), MADE)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_vectors(tmp_path / "vectors", make())
    return tmp_path / "vectors"


def test_saved_vectors_come_back_to_the_bit(saved: Path) -> None:
    found, wanted = load_vectors(saved), make()
    assert found.fingerprint == wanted.fingerprint
    assert np.array_equal(found.vectors, wanted.vectors)
    assert found.vocabulary.words == wanted.vocabulary.words
    assert (found.text, found.training) == (wanted.text, MADE)
    assert kind_of(saved) == "word-vectors"
    assert {file.name for file in saved.iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md",
    }  # fmt: skip
    tokenizer = Tokenizer.from_file(str(saved / "tokenizer.json"))
    assert tokenizer.encode("The naïve 日 tax").ids == [
        found.vocabulary.id_of(w) for w in ("the", "naïve", "x", "x")
    ]


def test_saving_again_replaces_the_old_ones(saved: Path) -> None:
    save_vectors(saved, make(seed=1))
    assert load_vectors(saved).fingerprint == make(seed=1).fingerprint


def test_the_card_says_what_it_is(saved: Path) -> None:
    card = (saved / "README.md").read_text(encoding="utf-8")
    assert card == vectors_card("vectors", make())
    assert "| corpus | 1,000 words in 20 texts (a\\|b.txt) |" in card
    assert "| vectors | 5 wide |" in card
    assert "`elmokit baseline ß`" in card


def test_the_facts_can_be_shown(saved: Path) -> None:
    fact = {"task": "[pairs].tsv", "measure": "Spearman", "value": None, "covered": 1, "total": 2}
    settings = {"settings": {"dim": 5}, "intrinsic": [fact]}
    save_vectors(saved, replace(make(), training={**MADE, **settings}))
    facts = json.loads(json.dumps(describe(load_vectors(saved), saved)))
    assert (facts["kind"], facts["n_words"], facts["dim"]) == ("word-vectors", 8, 5)
    assert set(facts["neighbours"]) == {"naïve"}
    assert facts["bytes"] == sum(file.stat().st_size for file in saved.iterdir())
    console = Console(record=True, width=100, file=io.StringIO())
    render(facts, console)
    text = console.export_text()
    for part in ("static word vectors", "SVD of co-occurrences", "8 words, 5 wide", "naïve: ", "[pairs].tsv"):
        assert part in text
    imported = {"method": "import", "file": "[x].txt"}
    render(describe(replace(make(), training=imported), saved), console)
    assert "[x].txt" in console.export_text()


def _changed(saved: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    change(record)
    (saved / "config.json").write_text(json.dumps(record), encoding="utf-8")


def _tensors(saved: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors, _ = load_tensors(saved / "model.safetensors")
    change(tensors)
    save_tensors(saved / "model.safetensors", tensors, {})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json"),
        (lambda f: _changed(f, lambda r: r.pop("dim")), "config.json is damaged: 'dim'"),
        (lambda f: _changed(f, lambda r: r.update(text={"lower": 1})), "config.json is damaged"),
        (lambda f: _changed(f, lambda r: r.update(format_version=9)), "format version 9"),
        (lambda f: _changed(f, lambda r: r.update(kind="bilm")), "a language model"),
        (lambda f: _changed(f, lambda r: r.update(n_words=13)), "vocab.txt has 12 words"),
        (lambda f: _changed(f, lambda r: r.update(dim=4)), r"model.safetensors: vectors has shape \(12, 5\)"),
        (lambda f: (f / "vocab.txt").unlink(), "vocab.txt"),
        (lambda f: (f / "vocab.txt").write_text("cat\n"), "vocab.txt"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\0" * 40), "model.safetensors"),
        (lambda f: _tensors(f, lambda t: t.pop("vectors")), "lacks the tensor vectors"),
        (lambda f: _tensors(f, lambda t: t.update(more=torch.zeros(1))), "an unexpected tensor more"),
        (lambda f: _tensors(f, lambda t: t["vectors"].fill_(torch.nan)), "model.safetensors: .* finite"),
    ],
)
def test_every_damage_is_an_error_that_names_the_file(
    saved: Path, damage: Callable[[Path], object], said: str
) -> None:
    damage(saved)
    with pytest.raises(ModelError, match=said) as caught:
        load_vectors(saved)
    assert caught.value.remedy


def test_a_tokenizer_of_another_table_is_refused(saved: Path, tmp_path: Path) -> None:
    other = WordVectors.of(["a"], [[1.0]], TextConfig())
    save_vectors(tmp_path / "other", other)
    (saved / "tokenizer.json").write_bytes((tmp_path / "other" / "tokenizer.json").read_bytes())
    with pytest.raises(ModelError, match=r"tokenizer.json has 5 words, config.json says 12"):
        load_vectors(saved)


def test_another_kind_of_folder_is_refused_by_name(saved: Path, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not word vectors"):
        load_vectors(tiny_model)
    with pytest.raises(ModelError, match="holds word vectors"):
        load_bilm(saved)
    with pytest.raises(ModelError, match="no model folder"):
        load_vectors(tmp_path / "nowhere")


def test_what_was_saved_before_stays_when_saving_fails(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise RunError(f"Cannot write {path}: the disk is full.")

    monkeypatch.setattr(folder_module, "write_text", full)
    with pytest.raises(RunError, match="disk is full"):
        save_vectors(saved, make(seed=1))
    assert load_vectors(saved).fingerprint == make().fingerprint
    assert not (saved / ".saving").exists()


def test_only_new_empty_and_own_folders_are_written_to(saved: Path, tmp_path: Path) -> None:
    check_out(saved)
    check_out(tmp_path / "new" / "deep")
    assert not (tmp_path / "new" / "deep").exists()
    (tmp_path / "empty" / ".saving").mkdir(parents=True)
    check_out(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    for place, said in (
        ("file", "is a file"),
        ("mine", "not a folder of word vectors"),
        ("file/x", "Cannot"),
    ):
        with pytest.raises(RunError, match=said):
            check_out(tmp_path / place)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "x"
