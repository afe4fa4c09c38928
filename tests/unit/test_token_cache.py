"""Token caches: the same vectors, only what is missing computed, and nothing foreign taken."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import published
from elmokit import Elmo, ModelError, RunError, TokenCache, load_bilm, write_token_cache
from elmokit.vectors.word_cache import CACHE_FOLDER

TEXTS = [["the", "old", "fox"], ["unseen", "words", "the", "<s>"], []]
WORDS = ["the", "old", "fox", "the", "<unk>", "</s>", "naïve"]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_model, tmp_path / "model", ignore=shutil.ignore_patterns("run"))
    return tmp_path / "model"


def made(model: Path, words: list[str] = WORDS) -> Path:
    write_token_cache(load_bilm(model), words, model / CACHE_FOLDER)
    return model / CACHE_FOLDER


def watched(elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many words the token encoder was given, call by call, after the special ones."""
    elmo.keep_words([])
    counts: list[int] = []
    own = elmo.model.encoder.forward

    def forward(features: torch.Tensor) -> Any:
        counts.append(len(features))
        return own(features)

    monkeypatch.setattr(elmo.model.encoder, "forward", forward)
    return counts


def test_only_words_outside_it_are_computed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Elmo.load(model).embed(TEXTS)
    made(model)
    elmo = Elmo.load(model)
    counts = watched(elmo, monkeypatch)
    found = elmo.embed(TEXTS)
    np.testing.assert_allclose(found.flat, wanted.flat, rtol=1e-5, atol=1e-6)
    assert counts == [2]  # unseen, words
    elmo.embed([["the", "naïve", "fox"]])
    assert counts == [2]


def test_it_is_found_beside_the_model_or_where_it_is_said_to_be(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert write_token_cache(load_bilm(model), WORDS, elsewhere) == 4
    cache = TokenCache.open(elsewhere, load_bilm(model))
    assert len(cache) == 4
    assert "fox" in cache
    assert "<unk>" not in cache
    wanted = Elmo.load(model).embed(TEXTS).flat
    np.testing.assert_allclose(Elmo.load(model, token_cache=elsewhere).embed(TEXTS).flat, wanted, atol=1e-6)


def test_it_is_written_anew_over_an_older_one(model: Path) -> None:
    folder = made(model, ["the"])
    made(model, ["old", "fox"])
    assert len(TokenCache.open(folder, load_bilm(model))) == 2
    assert sorted(file.name for file in folder.iterdir()) == ["cache.json", "vectors.npy", "words.txt"]


def test_progress_is_told_and_no_words_make_an_empty_cache(model: Path, tmp_path: Path) -> None:
    done: list[int] = []
    many = [f"word{number}" for number in range(2500)]
    write_token_cache(load_bilm(model), many, tmp_path / "many", progress=done.append)
    assert done == [1024, 1024, 452]
    assert write_token_cache(load_bilm(model), [], tmp_path / "none") == 0
    assert len(Elmo.load(model, token_cache=tmp_path / "none").embed(TEXTS)) == 3


def test_a_cache_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    folder = made(model)
    saved = load_bilm(model)
    with torch.no_grad():
        next(saved.model.encoder.parameters())[5] += 1e-3
    with pytest.raises(ModelError, match="another model") as caught:
        TokenCache.open(folder, saved)
    assert "elmokit convert --token-cache" in caught.value.remedy


def change_record(folder: Path, **values: Any) -> None:
    record = json.loads((folder / "cache.json").read_text("utf-8"))
    (folder / "cache.json").write_text(json.dumps({**record, **values}), "utf-8")


def cut(folder: Path) -> None:
    data = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(data[:-4])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "cache.json").write_text("{", "utf-8"),
        lambda folder: (folder / "cache.json").write_text("[]", "utf-8"),
        lambda folder: change_record(folder, format_version=2),
        lambda folder: (folder / "words.txt").unlink(),
        lambda folder: (folder / "words.txt").write_bytes(b"\xff\n"),
        lambda folder: (folder / "words.txt").write_text("one\n", "utf-8"),
        lambda folder: (folder / "vectors.npy").write_bytes(b""),
        lambda folder: np.save(folder / "vectors.npy", np.zeros((4, 8))),
        lambda folder: np.save(folder / "vectors.npy", np.array([object()] * 4), allow_pickle=True),
        cut,
    ],
)
def test_a_damaged_cache_is_refused_with_a_remedy(model: Path, damage: Callable[[Path], Any]) -> None:
    damage(made(model))
    with pytest.raises(ModelError, match=CACHE_FOLDER) as caught:
        Elmo.load(model)
    assert "elmokit convert --token-cache" in caught.value.remedy


def test_word_tables_need_none_and_other_folders_are_not_touched(model: Path, tmp_path: Path) -> None:
    options = published.word_options()
    words = ["<S>", "</S>", "<UNK>", "the"]
    weights = published.random_weights(options, n_words=len(words))
    table = published.write_model(tmp_path / "words", options, weights, words)
    with pytest.raises(ModelError, match="needs no token cache"):
        write_token_cache(load_bilm(table), words, tmp_path / "cache")
    with pytest.raises(RunError, match="already holds a language model"):
        write_token_cache(load_bilm(model), words, model)
    assert (model / "config.json").exists()
    notes = model / CACHE_FOLDER / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine", "utf-8")
    with pytest.raises(RunError, match="nothing in it was touched"):
        made(model)
    assert notes.read_text("utf-8") == "mine"


def test_a_cache_is_replaced_and_what_is_left_of_one_is_not_used(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(model)
    monkeypatch.chdir(folder)
    assert write_token_cache(load_bilm(model), ["the"], ".") == 1
    assert len(TokenCache.open(folder, load_bilm(model))) == 1
    (folder / "cache.json").unlink()
    Elmo.load(model)


def test_an_older_cache_stays_whole_until_the_new_one_takes_its_place(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(model)
    seen: list[bool] = []
    replace = os.replace

    def watched(source: Path, target: Path) -> None:
        replace(source, target)
        if (folder / "cache.json").exists():
            seen.append(len(TokenCache.open(folder, load_bilm(model))) in (1, 4))

    monkeypatch.setattr(os, "replace", watched)
    made(model, ["old"])
    assert seen
    assert all(seen)
    assert {file.name for file in folder.iterdir()} == {"cache.json", "vectors.npy", "words.txt"}


def test_a_full_disk_is_said_before_anything_is_computed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(model)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(RunError, match="the disk has less"):
        made(model)
    assert not (model / CACHE_FOLDER).exists()
