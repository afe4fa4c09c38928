"""The average state after a text: against a plain loop, to disk and back."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.bilm import state as start_state_module
from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.state import BilmState, average_state
from elmokit.core.errors import ModelError
from elmokit.core.ragged import Ragged
from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS, SPECIALS
from elmokit.vectors.elmo import Elmo
from odd_texts import make_model

WORDS = [*SPECIALS, "the", "of", "cat", "dogs", "naïve", "rare"]
FILE = "start_state.safetensors"
SHAPES: dict[str, dict[str, Any]] = {
    "char": {"input": "char"},
    "char, projected and clipped": {"input": "char", "hidden_dim": 6, "cell_clip": 0.5, "proj_clip": 0.4},
    "word": {"input": "word", "residual": False, "n_layers": 3},
}
shapes = pytest.mark.parametrize("shape", SHAPES)


@functools.cache
def folder_of(shape: str) -> BilmFolder:
    known = " ".join(WORDS[len(SPECIALS) :])
    return replace(make_model(known=known, **{"dim": 4, "hidden_dim": 4, **SHAPES[shape]}), start_state=None)


def documents_of(n_documents: int, longest: int = 7) -> Documents:
    rng = np.random.default_rng(n_documents)
    texts = [
        [BOS, *rng.integers(EOS + 1, len(WORDS), rng.integers(1, longest + 1)), EOS]
        for _ in range(n_documents)
    ]
    rows = Ragged.from_rows(texts, np.uint16)
    return Documents(rows.values, rows.offsets)


def measured(shape: str, documents: Documents) -> BilmState:
    folder = folder_of(shape)
    return average_state(folder.model, documents, folder.features.rows(WORDS))


def plain_average(shape: str, documents: Documents, n_chains: int) -> dict[str, Tensor]:
    """Chain k reads text k, k + n_chains and so on, one at a time; incomplete rounds are left out."""
    folder = folder_of(shape)
    features = torch.from_numpy(folder.features.rows(WORDS).astype(np.int64))
    states: list[BilmState | None] = [None] * n_chains
    seen: list[dict[str, Tensor]] = []
    for number in range(len(documents) // n_chains * n_chains):
        words = documents[number]
        index = torch.tensor([[int(word) for word in words]])
        with torch.no_grad():
            out = folder.model(features, index, None, states[number % n_chains], keep_state=True)
        states[number % n_chains] = out.state
        seen.append(out.state.tensors())
    return {name: torch.stack([one[name].double() for one in seen]).mean(dim=0) for name in seen[0]}


def assert_close(found: BilmState, wanted: dict[str, Tensor]) -> None:
    assert list(found.tensors()) == list(wanted)
    for name, tensor in found.tensors().items():
        torch.testing.assert_close(tensor.double(), wanted[name], rtol=1e-5, atol=1e-5)


# -- the average ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_documents", "n_chains"), [(1, 1), (17, 4), (70, 16)])
@shapes
def test_it_is_the_mean_over_texts_read_one_after_the_other_in_chains(
    shape: str, n_documents: int, n_chains: int
) -> None:
    documents = documents_of(n_documents)
    found = measured(shape, documents)
    assert_close(found, plain_average(shape, documents, n_chains))
    for tensor in found.tensors().values():
        assert len(tensor) == 1
        assert tensor.dtype == torch.float32
        assert not tensor.requires_grad
        assert not tensor.is_inference()
        assert tensor.any()


def test_long_texts_are_read_in_windows_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, shape = documents_of(9, longest=20), "char, projected and clipped"
    plain = plain_average(shape, documents, 2)
    monkeypatch.setattr(start_state_module, "_WINDOW", 4)
    assert_close(measured(shape, documents), plain)


def test_of_a_large_text_a_spread_of_texts_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = documents_of(40)
    monkeypatch.setattr(start_state_module, "_TOKENS", documents.n_tokens // 3)
    some = Ragged.from_rows([documents[i] for i in range(0, 40, 4)], np.uint16)
    fewer = Documents(some.values, some.offsets)
    assert_close(measured("char", documents), plain_average("char", fewer, 2))


def test_no_text_at_all_gives_the_zero_state() -> None:
    nothing = Documents(np.empty(0, dtype=np.uint16), np.zeros(1, dtype=np.int64))
    assert not any(tensor.any() for tensor in measured("char", nothing).tensors().values())


# -- in the folder --------------------------------------------------------------------------------


@shapes
def test_it_comes_back_from_the_folder_to_the_bit(shape: str, tmp_path: Path) -> None:
    start = measured(shape, documents_of(9))
    with_start = replace(folder_of(shape), start_state=start)
    save_bilm(tmp_path / "model", with_start)
    found = load_bilm(tmp_path / "model").start_state
    assert found is not None
    assert found.tensors().keys() == start.tensors().keys()
    for name, tensor in start.tensors().items():
        assert found.tensors()[name].dtype == torch.float32
        assert torch.equal(found.tensors()[name], tensor), name
    texts = ["the cat of dogs", "rare", ""]
    warm = Elmo.load(tmp_path / "model").embed(texts, state="warm")
    np.testing.assert_array_equal(warm.flat, Elmo(with_start).embed(texts, state="warm").flat)
    save_bilm(tmp_path / "again", load_bilm(tmp_path / "model"))
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "model" / FILE).read_bytes()
    save_bilm(tmp_path / "again", replace(with_start, start_state=None))  # leaves none behind
    assert not (tmp_path / "again" / FILE).exists()
    with pytest.raises(ModelError, match="no start state"):
        Elmo.load(tmp_path / "again").embed(["the"], state="warm")


def test_training_a_model_measures_it(tiny_model: Path) -> None:
    elmo = Elmo.load(tiny_model)
    start = elmo.folder.start_state
    assert start is not None
    assert all(tensor.any() for tensor in start.tensors().values())
    texts = ["The old fox ran home.", "Nobody"]
    warm, again = elmo.embed(texts, state="warm"), elmo.embed(texts, state=start.repeat(2))
    np.testing.assert_allclose(again.flat, warm.flat, rtol=1e-5, atol=1e-5)
