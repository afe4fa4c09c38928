"""Published mixes against their formula in numpy, from files in the names of both tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from elmokit import Elmo
from elmokit.core.errors import ModelError
from elmokit.core.tensors import save_tensors
from elmokit.vectors.embeddings import Embeddings
from elmokit.vectors.mix import PublishedMix

WEIGHTS = np.array([[0.3, -0.7, 1.1], [0.6, -1.4, 2.2]], dtype=np.float32)
GAMMAS = np.array([1.5, 0.5], dtype=np.float32)


@pytest.fixture(scope="module")
def embeddings(tiny_model: Path) -> Embeddings:
    return Elmo.load(tiny_model).embed([["the", "old", "fox"], [], ["nobody"]])


def allennlp(prefix: str = "") -> dict[str, torch.Tensor]:
    tensors = {}
    for place, (weights, gamma) in enumerate(zip(WEIGHTS, GAMMAS, strict=True)):
        name = f"{prefix}scalar_mix_{place}"
        parts = {f"scalar_parameters.{depth}": value for depth, value in enumerate(weights)}
        for part, value in {**parts, "gamma": gamma}.items():
            tensors[f"{name}.{part}"] = torch.tensor([value])
    return tensors


def write_hdf5(path: Path, names: tuple[str, str] = ("0", "1")) -> None:
    with h5py.File(path, "w") as file:
        for name, weights, gamma in zip(names, WEIGHTS, GAMMAS, strict=True):
            file[f"{name}_ELMo_W"], file[f"{name}_ELMo_gamma"] = weights, np.array([gamma])


WHOLE_MODEL = {**allennlp("text_field_embedder.elmo._elmo."), "classifier.weight": torch.ones(4, 4)}
FILES: dict[str, Callable[[Path], Any]] = {
    "mix.safetensors": lambda path: save_tensors(path, allennlp(), {"layer_norm": False}),
    "mix.hdf5": write_hdf5,
    "named.h5": lambda path: write_hdf5(path, ("input", "output")),
    "weights.th": lambda path: torch.save(WHOLE_MODEL, path),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_every_output_is_gamma_times_the_softmax_mix(
    embeddings: Embeddings, tmp_path: Path, name: str, layer_norm: bool
) -> None:
    FILES[name](tmp_path / name)
    found = PublishedMix.load(tmp_path / name, layer_norm=layer_norm).mixed(embeddings)
    layers = embeddings.flat.astype(np.float64).transpose(1, 0, 2)
    if layer_norm:  # one mean and variance of all words
        layers = np.stack([(layer - layer.mean()) / np.sqrt(layer.var() + 1e-12) for layer in layers])
    for output, weights, gamma in zip(found, WEIGHTS, GAMMAS, strict=True):
        assert [len(rows) for rows in output] == [3, 0, 1]
        shares = np.exp(weights) / np.exp(weights).sum()
        np.testing.assert_allclose(np.concatenate(output), gamma * np.tensordot(shares, layers, 1), atol=1e-5)


def test_the_layer_norm_that_a_file_names_is_used(tmp_path: Path) -> None:
    save_tensors(tmp_path / "mix.safetensors", allennlp(), {"layer_norm": True})
    assert PublishedMix.load(tmp_path / "mix.safetensors").layer_norm


def test_mixes_of_several_modules_are_not_muddled(tmp_path: Path) -> None:
    torch.save({**allennlp("a."), **allennlp("b.")}, tmp_path / "weights.th")
    with pytest.raises(ModelError, match=r"several modules: a\..*b\."):
        PublishedMix.load(tmp_path / "weights.th")


def test_files_without_a_whole_mix_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "half.hdf5", "w") as file:
        file["0_ELMo_W"] = np.zeros(3, dtype=np.float32)
    (tmp_path / "text.safetensors").write_text("no", "utf-8")
    (tmp_path / "mix.pkl").write_bytes(b"\x80\x04.")
    for name in ("half.hdf5", "text.safetensors", "mix.pkl", "nowhere.hdf5", "no.th"):
        with pytest.raises(ModelError, match=name):
            PublishedMix.load(tmp_path / name)
