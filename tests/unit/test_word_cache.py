"""Word caches: in memory, each word is computed once; on disk, nothing foreign is used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit import Elmo
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import ModelError, RunError
from elmokit.text.tokenizing import SPECIALS
from elmokit.text.vocabulary import Rows
from elmokit.vectors import elmo as elmo_module
from elmokit.vectors.word_cache import CACHE_FOLDER, TokenCache, write_token_cache
from odd_texts import contents, make_model

TEXTS = [["the", "old", "fox"], ["unseen", "words", "the", "<s>"], []]
WORDS = ["the", "old", "fox", "the", "<unk>", "</s>", "naïve"]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_model, tmp_path / "model", ignore=shutil.ignore_patterns("run"))
    return tmp_path / "model"


def made(model: Path, words: list[str] = WORDS) -> Path:
    write_token_cache(load_bilm(model), words, model / CACHE_FOLDER)
    return model / CACHE_FOLDER


class Counted:
    """An Elmo that counts how many words are encoded each time."""

    def __init__(self, elmo: Elmo) -> None:
        self.elmo, self.words = elmo, elmo.word_cache
        self.words.keep([])  # the special words are encoded before the count begins
        self.calls: list[int] = []
        self._features, self.words._features = elmo.folder.features, self

    def rows(self, words: Sequence[str]) -> Rows:
        self.calls.append(len(words))
        return self._features.rows(words)

    @classmethod
    def of(cls, cached_words: int) -> Counted:
        return cls(Elmo(make_model(), cached_words=cached_words))

    @property
    def n_places(self) -> int:
        return len(self.words._places)

    @property
    def n_rows(self) -> int:
        return len(self.words._table)


# -- in memory ------------------------------------------------------------------------------------


def test_each_word_is_encoded_once_while_it_is_in_the_cache() -> None:
    counted = Counted.of(50)
    counted.elmo.embed(["the cat the cat", "cat of the"])
    assert counted.calls == [3]
    counted.elmo.embed(["of the cat", "of"])
    counted.elmo.embed(["cat"], state="stateful")
    assert counted.calls == [3]
    counted.elmo.embed(["the new dogs", ["<s>", "</s>", "<pad>", "<unk>"]])
    assert counted.calls == [3, 2]


@pytest.mark.parametrize("cached_words", [1, 10])
@pytest.mark.parametrize("per_text", [1, 4])
def test_the_cache_stays_bounded(cached_words: int, per_text: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elmo_module, "_BATCH_TOKENS", 3 * (per_text + 2))
    words = [f"w{number}" for number in range(40 * per_text)]
    texts = [words[first : first + per_text] for first in range(0, len(words), per_text)]
    counted = Counted.of(cached_words)
    bound = cached_words + len(SPECIALS) + 3 * per_text
    for part in (*(texts[first : first + 3] for first in range(0, len(texts), 3)), texts):
        counted.elmo.embed(part)
        assert max(counted.n_places, counted.n_rows) <= bound
    assert sum(counted.calls) <= 2 * len(words)


def test_very_long_words_do_not_stay() -> None:
    counted = Counted.of(100)
    for number in range(20):
        counted.elmo.embed([[f"{number}" + "x" * 1000]])
        assert sum(map(len, counted.words._places)) < 20 * 100 + 1100
    assert counted.words._n_letters == sum(map(len, counted.words._places))


def test_kept_words_stay_up_to_the_limit_and_others_are_forgotten() -> None:
    counted = Counted.of(5)
    counted.elmo.word_cache.keep(["the", "cat", "the", "<s>"])
    assert counted.calls == [len(SPECIALS), 2]
    counted.elmo.embed(["the cat of dogs"])
    counted.elmo.word_cache.forget()
    counted.elmo.embed(["the cat", "dogs"])
    assert counted.calls[2:] == [2, 1]
    counted.elmo.word_cache.keep([])
    counted.elmo.embed(["the"])
    assert counted.calls[4:] == [len(SPECIALS), 1]
    counted.elmo.word_cache.keep(f"w{number}" for number in range(9))
    assert counted.n_places == len(SPECIALS) + 5


# -- on disk --------------------------------------------------------------------------------------


def test_only_words_outside_it_are_computed(model: Path) -> None:
    wanted = Elmo.load(model).embed(TEXTS)
    made(model)
    counted = Counted(Elmo.load(model))
    found = counted.elmo.embed(TEXTS)
    np.testing.assert_allclose(found.flat, wanted.flat, rtol=1e-5, atol=1e-6)
    counted.elmo.embed([["the", "naïve", "fox"]])
    assert counted.calls == [2]  # unseen, words


def test_fitting_uses_it(model: Path) -> None:
    words = [["the", "naïve", "fox"], ["old"]]
    elmo = Elmo.load(model)
    wanted = elmo.precompute(elmo.to_ids(words)).vectors
    made(model)
    counted = Counted(Elmo.load(model))
    vectors = counted.elmo.precompute(counted.elmo.to_ids(words)).vectors
    assert counted.calls == [len(SPECIALS)]  # those are in no cache
    torch.testing.assert_close(vectors, wanted)


def test_it_is_found_beside_the_model_or_where_it_is_said_to_be(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert write_token_cache(load_bilm(model), WORDS, elsewhere) == 4
    cache = TokenCache.open(elsewhere, load_bilm(model))
    assert set(cache.places) == {"the", "old", "fox", "naïve"}
    wanted = Elmo.load(model).embed(TEXTS).flat
    np.testing.assert_allclose(Elmo.load(model, token_cache=elsewhere).embed(TEXTS).flat, wanted, atol=1e-6)


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


def lose_rows(folder: Path) -> None:
    """Of a cache of 0.1, which has no checksums."""
    record = json.loads((folder / "cache.json").read_text("utf-8"))
    kept = {name: value for name, value in record.items() if name not in ("files", "checksum")}
    (folder / "cache.json").write_text(json.dumps(kept), "utf-8")
    np.save(folder / "vectors.npy", np.load(folder / "vectors.npy")[:-1])


LATER = {"format": "elmokit token cache", "format_version": 2}
DAMAGES: list[Callable[[Path], Any]] = [
    lambda folder: (folder / "cache.json").write_text("{", "utf-8"),
    lambda folder: (folder / "cache.json").write_text("[]", "utf-8"),
    lambda folder: (folder / "cache.json").write_text(json.dumps(LATER), "utf-8"),
    lambda folder: (folder / "words.txt").unlink(),
    lambda folder: np.save(folder / "vectors.npy", np.array([object()] * 4), allow_pickle=True),
    lose_rows,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_refused_with_a_remedy(model: Path, damage: Callable[[Path], Any]) -> None:
    damage(made(model))
    with pytest.raises(ModelError, match=CACHE_FOLDER) as caught:
        Elmo.load(model)
    assert "elmokit convert --token-cache" in caught.value.remedy


def test_a_model_of_words_needs_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs no token cache"):
        write_token_cache(make_model(input="word"), WORDS, tmp_path / "cache")


def test_a_cache_is_replaced_and_what_is_left_of_one_is_not_used(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(model)
    monkeypatch.chdir(folder)
    with pytest.raises(RunError, match=r"already holds a token cache(.|\n)*--overwrite"):
        write_token_cache(load_bilm(model), ["the"], ".")
    assert write_token_cache(load_bilm(model), ["the"], ".", overwrite=True) == 1
    assert len(TokenCache.open(folder, load_bilm(model)).places) == 1
    (folder / "cache.json").unlink()
    Elmo.load(model)


def test_a_full_disk_is_an_error_before_anything_is_computed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    before = made(model)
    files = contents(before)
    monkeypatch.setattr("elmokit.vectors.word_cache.reserve", full)
    monkeypatch.setattr("elmokit.vectors.word_cache._encode", None)
    with pytest.raises(RunError, match="the disk is full"):
        write_token_cache(load_bilm(model), ["the"], before, overwrite=True)
    assert contents(before) == files
