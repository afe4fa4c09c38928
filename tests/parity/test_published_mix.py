"""The published mix against its formula in numpy, and its files in the names of both tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elmokit import Elmo
from elmokit.core.errors import ConfigError, ModelError
from elmokit.vectors.mix import PublishedMix

RNG = np.random.default_rng(0)
LAYERS = RNG.standard_normal((3, 2, 5, 4)).astype(np.float32) * 3 + 1  # (layer, batch, time, dim)
MASK = np.array([[True, True, True, False, False], [True] * 5])


def softmax(w: Any) -> Any:
    return np.exp(w) / np.exp(w).sum()


def normalised(layer: Any, mask: Any) -> Any:
    """One mean and variance of all unmasked numbers."""
    n = mask.sum() * layer.shape[-1]
    masked = layer * mask[..., None]
    mean = masked.sum() / n
    variance = (((masked - mean) * mask[..., None]) ** 2).sum() / n
    return (layer - mean) / np.sqrt(variance + 1e-12)


def trained(n_outputs: int = 2, **more: Any) -> PublishedMix:
    mix = PublishedMix(3, n_outputs, **more)
    with torch.no_grad():
        for place in range(n_outputs):
            mix.weights[place] = torch.tensor([0.3, -0.7, 1.1]) * (place + 1)
            mix.gammas[place] = 1.5 - place
    return mix


@pytest.mark.parametrize("kind", [torch.bool, torch.long])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 2, 3])
def test_every_output_is_gamma_times_the_softmax_mix(
    n_outputs: int, layer_norm: bool, kind: torch.dtype
) -> None:
    mix = trained(n_outputs, layer_norm=layer_norm)
    found = mix([torch.from_numpy(layer) for layer in LAYERS], torch.from_numpy(MASK).to(kind))
    assert len(found) == n_outputs
    layers = [normalised(layer.astype(np.float64), MASK) if layer_norm else layer for layer in LAYERS]
    for place, out in enumerate(found):
        shares = softmax(np.array([0.3, -0.7, 1.1]) * (place + 1))
        wanted = (1.5 - place) * sum(share * layer for share, layer in zip(shares, layers, strict=True))
        np.testing.assert_allclose(out.detach()[MASK], wanted[MASK], rtol=1e-5, atol=1e-5)


def test_it_starts_with_equal_shares_and_learns() -> None:
    mix = PublishedMix(3, 2, l2=0.1)
    assert mix.values() == [{**{f"mix_{n}": pytest.approx(1 / 3) for n in range(3)}, "mix_gamma": 1.0}] * 2
    assert mix.penalty().item() == 0.0
    optimiser = torch.optim.SGD(mix.parameters(), lr=0.1)
    layers = [torch.from_numpy(layer) for layer in LAYERS]
    losses = []
    for _ in range(30):
        first, second = mix(layers)
        loss = (first - layers[2]).square().mean() + (second - layers[0]).square().mean() + mix.penalty()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    values = mix.values()
    assert values[0]["mix_2"] > 0.4
    assert values[1]["mix_0"] > 0.4
    np.testing.assert_allclose(
        mix.penalty().item(), 0.1 * float((mix.weights.detach() ** 2).sum()), rtol=1e-6
    )


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_it_mixes_what_embed_gives(tiny_model: Path, to: Any) -> None:
    out = Elmo.load(tiny_model).embed([["the", "old", "fox"], [], ["nobody"]], to=to)
    mix = trained()
    first, second = mix.mixed(out)
    shares = softmax(np.array([0.3, -0.7, 1.1]))
    np.testing.assert_allclose(first[0], out.mixed(shares.tolist(), gamma=1.5)[0], rtol=1e-5, atol=1e-6)
    assert [len(rows) for rows in second] == [3, 0, 1]
    assert type(first[0]) is type(out[0])
    normed = trained(layer_norm=True).mixed(out)[0]
    flat = np.asarray(out.flat, dtype=np.float64)
    layers = [normalised(flat[:, depth], np.ones(len(flat), dtype=bool)) for depth in range(3)]
    wanted = 1.5 * sum(share * layer for share, layer in zip(shares, layers, strict=True))
    np.testing.assert_allclose(np.concatenate([np.asarray(rows) for rows in normed]), wanted, atol=1e-5)


def test_other_layers_than_it_was_made_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 layers were given to a mix of 3"):
        trained()([torch.zeros(1, 4)] * 2)
    with pytest.raises(ConfigError, match="at least 1"):
        PublishedMix(0)


# -- files ----------------------------------------------------------------------------------------


def assert_same(found: PublishedMix, wanted: PublishedMix) -> None:
    torch.testing.assert_close(found.weights, wanted.weights)
    torch.testing.assert_close(found.gammas, wanted.gammas)


@pytest.mark.parametrize("name", ["mix.safetensors", "mix.hdf5", "mix.h5"])
@pytest.mark.parametrize("n_outputs", [1, 2, 12])
def test_what_is_written_is_read_again(tmp_path: Path, name: str, n_outputs: int) -> None:
    mix = trained(n_outputs, layer_norm=True)
    mix.save(tmp_path / name)
    found = PublishedMix.load(tmp_path / name, l2=0.5)
    assert_same(found, mix)
    assert found.l2 == 0.5
    assert found.layer_norm == name.endswith(".safetensors")
    assert PublishedMix.load(tmp_path / name, layer_norm=False).layer_norm is False


def test_the_names_are_those_of_the_tools(tmp_path: Path) -> None:
    trained(2).save(tmp_path / "mix.safetensors")
    named = load_file(tmp_path / "mix.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in named.items()} == {
        f"scalar_mix_{output}.{part}": (1,)
        for output in (0, 1)
        for part in ("gamma", *(f"scalar_parameters.{depth}" for depth in range(3)))
    }
    trained(1).save(tmp_path / "mix.hdf5")
    with h5py.File(tmp_path / "mix.hdf5") as file:
        assert {name: file[name].shape for name in file} == {"0_ELMo_W": (3,), "0_ELMo_gamma": (1,)}


def test_a_mix_inside_the_weights_of_a_whole_allennlp_model_is_found(tmp_path: Path) -> None:
    mix = trained(1)
    tensors = {
        **{
            f"text_field_embedder.elmo._elmo.scalar_mix_0.scalar_parameters.{n}": mix.weights[
                0, n : n + 1
            ].detach()
            for n in range(3)
        },
        "text_field_embedder.elmo._elmo.scalar_mix_0.gamma": mix.gammas.detach(),
        "classifier.weight": torch.ones(4, 4),
    }
    torch.save(tensors, tmp_path / "weights.th")
    assert_same(PublishedMix.load(tmp_path / "weights.th"), mix)


def test_mixes_of_several_modules_are_not_muddled(tmp_path: Path) -> None:
    one = {f"scalar_mix_0.scalar_parameters.{n}": torch.zeros(1) for n in range(3)}
    one["scalar_mix_0.gamma"] = torch.ones(1)
    tensors = {f"{module}.{name}": value.clone() for module in ("a", "b") for name, value in one.items()}
    torch.save(tensors, tmp_path / "weights.th")
    with pytest.raises(ModelError, match=r"several modules: a\., b\."):
        PublishedMix.load(tmp_path / "weights.th")


def test_named_outputs_of_bilm_tf_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "mix.hdf5", "w") as file:
        for name, weight in (("input", 0.5), ("output", -0.5)):
            file[f"{name}_ELMo_W"] = np.full(3, weight, dtype=np.float32)
            file[f"{name}_ELMo_gamma"] = np.array([weight + 1], dtype=np.float32)
    found = PublishedMix.load(tmp_path / "mix.hdf5")
    assert found.gammas.tolist() == [1.5, 0.5]


def test_files_without_a_whole_mix_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "half.hdf5", "w") as file:
        file["0_ELMo_W"] = np.zeros(3, dtype=np.float32)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["x"] = np.zeros(3, dtype=np.float32)
    (tmp_path / "text.hdf5").write_text("no", "utf-8")
    (tmp_path / "text.safetensors").write_text("no", "utf-8")
    (tmp_path / "mix.pkl").write_bytes(b"\x80\x04.")
    for name in (
        "half.hdf5",
        "other.hdf5",
        "text.hdf5",
        "text.safetensors",
        "mix.pkl",
        "nowhere.hdf5",
        "no.th",
    ):
        with pytest.raises(ModelError, match=name):
            PublishedMix.load(tmp_path / name)
    with pytest.raises(ConfigError, match=r"mix\.json"):
        trained().save(tmp_path / "mix.json")
