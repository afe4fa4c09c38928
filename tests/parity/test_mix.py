"""Mixes against hand arithmetic in float64: values, gradients, penalties, and what never moves."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.core.errors import ConfigError
from elmokit.vectors.mix import FunctionMix, Mix, ScalarMix, make_mix
from elmokit.vectors.settings import MixConfig

TOLERANCE = 1e-9
DIM = 3
N_LAYERS = (1, 3, 6)
any_depth = pytest.mark.parametrize("n_layers", N_LAYERS)
forms = pytest.mark.parametrize("form", ["raw", "softmax"])

CONFIGS: dict[str, dict[str, Any]] = {
    "trainable raw": {"mix": "trainable"},
    "trainable softmax": {"mix": "trainable", "mix_form": "softmax"},
    "frozen raw": {"mix": "frozen"},
    "frozen softmax": {"mix": "frozen", "mix_form": "softmax"},
    "function relu": {"mix": "function"},
    "function tanh": {"mix": "function", "mix_activation": "tanh"},
    "function wide": {"mix": "function", "mix_activation": "tanh", "mix_width": 5},
    "function narrow": {"mix": "function", "mix_width": 1},
}
all_mixes = pytest.mark.parametrize("name", CONFIGS)


def mix_of(config: dict[str, Any], n_layers: int, *, seed: int = 0) -> Mix:
    """A mix in float64 whose parameters, unless frozen, are not where they start."""
    torch.manual_seed(seed)
    mix = make_mix(MixConfig.from_dict(config), n_layers, DIM, seed).double()
    with torch.no_grad():
        for parameter in mix.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return mix


def layers_of(n_layers: int, *shape: int, seed: int = 5) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, DIM, generator=rng, dtype=torch.float64) for _ in range(n_layers)]


def factors_of(mix: ScalarMix) -> list[float]:
    weights = mix.weights.tolist()
    if mix.gamma is None:
        return weights
    raised = [math.exp(weight) for weight in weights]
    return [mix.gamma.item() * one / sum(raised) for one in raised]


def normed(vector: list[float]) -> list[float]:
    mean = sum(vector) / len(vector)
    variance = sum((value - mean) ** 2 for value in vector) / len(vector)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in vector]


def plain_mix(mix: Mix, word: list[list[float]]) -> list[float]:
    """One word's layers, each DIM numbers, to its mixed vector."""
    if mix.config.mix_norm:
        word = [normed(layer) for layer in word]
    if isinstance(mix, ScalarMix):
        factors = factors_of(mix)
        return [sum(f * layer[place] for f, layer in zip(factors, word, strict=True)) for place in range(DIM)]
    assert isinstance(mix, FunctionMix)
    joined = [value for layer in word for value in layer]
    rows, bias = mix.linear.weight.tolist(), mix.linear.bias.tolist()
    sums = [
        sum(w * x for w, x in zip(row, joined, strict=True)) + b for row, b in zip(rows, bias, strict=True)
    ]
    if mix.config.mix_activation == "relu":
        return [max(0.0, total) for total in sums]
    return [math.tanh(total) for total in sums]


# -- values and gradients -------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "normed"])
@any_depth
@all_mixes
def test_each_words_vector_equals_hand_arithmetic(name: str, n_layers: int, norm: bool) -> None:
    mix = mix_of({**CONFIGS[name], "mix_norm": norm}, n_layers)
    layers = layers_of(n_layers, 2, 4)
    found = mix(layers)
    assert found.shape == (2, 4, mix.out_dim)
    for row, step in itertools.product(range(2), range(4)):
        wanted = plain_mix(mix, [layer[row, step].tolist() for layer in layers])
        np.testing.assert_allclose(found[row, step].tolist(), wanted, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("n_layers", [1, 3])
@all_mixes
def test_gradients_of_layers_and_parameters_equal_finite_differences(
    name: str, n_layers: int, norm: bool
) -> None:
    mix = mix_of({**CONFIGS[name], "mix_norm": norm, "mix_l2": 0.3}, n_layers)
    learnt = [(name, p) for name, p in mix.named_parameters() if p.requires_grad]
    names = [name for name, _ in learnt]
    layers = [layer.requires_grad_() for layer in layers_of(n_layers, 2)]

    def with_penalty(*values: Tensor) -> tuple[Tensor, Tensor]:
        given = dict(zip(names, values[n_layers:], strict=True))
        found = torch.func.functional_call(mix, given, (list(values[:n_layers]),))
        total = torch.func.functional_call(_Penalty(mix), {f"mix.{n}": v for n, v in given.items()}, ())
        return found, total.double()

    values = [parameter.detach().clone().requires_grad_() for _, parameter in learnt]
    assert torch.autograd.gradcheck(with_penalty, (*layers, *values))


class _Penalty(torch.nn.Module):
    """A mix's penalty as a function of its parameters."""

    def __init__(self, mix: Mix) -> None:
        super().__init__()
        self.mix = mix

    def forward(self) -> Tensor:
        return self.mix.penalty()


@all_mixes
def test_a_words_vector_does_not_depend_on_the_words_beside_it(name: str) -> None:
    mix = mix_of({**CONFIGS[name], "mix_norm": True}, 3)
    layers = layers_of(3, 2, 4)
    alone = mix([layer[1:, 2:3] for layer in layers])
    torch.testing.assert_close(mix(layers)[1:, 2:3], alone, rtol=TOLERANCE, atol=TOLERANCE)


@any_depth
def test_normed_layers_have_mean_0_and_variance_1_in_each_word(n_layers: int) -> None:
    weights = ",".join(["0"] * (n_layers - 1) + ["1"])
    mix = mix_of({"mix": "frozen", "mix_weights": weights, "mix_norm": True}, n_layers)
    layers = [layer * 1000.0 + 70.0 for layer in layers_of(n_layers, 4)]
    found = mix(layers)
    torch.testing.assert_close(found.mean(dim=-1), torch.zeros(4).double(), rtol=0, atol=1e-7)
    torch.testing.assert_close(found.var(dim=-1, unbiased=False), torch.ones(4).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["trainable raw", "trainable softmax", "function wide"])
def test_another_number_of_layers_than_the_mix_was_made_for_is_no_silent_answer(name: str) -> None:
    mix = mix_of(CONFIGS[name], 3)
    for n_layers in (2, 4):
        with pytest.raises((ValueError, RuntimeError)):
            mix(layers_of(n_layers, 2))


# -- where it starts ------------------------------------------------------------------------------


@forms
@any_depth
def test_trained_weights_start_equal(n_layers: int, form: Any) -> None:
    mix = make_mix(MixConfig(mix_form=form), n_layers, DIM)
    assert isinstance(mix, ScalarMix)
    np.testing.assert_allclose(mix.scalars().tolist(), [1 / n_layers] * n_layers, rtol=1e-6)
    assert mix.out_dim == DIM
    assert all(parameter.requires_grad for parameter in mix.parameters())


@forms
@pytest.mark.parametrize("kind", ["trainable", "frozen"])
def test_weights_given_are_where_it_starts(kind: Any, form: Any) -> None:
    given = " 0.5, -1 ,2e-1," if form == "raw" else " 0.5, 0.3 ,2e-1,"
    mix = make_mix(MixConfig(mix=kind, mix_form=form, mix_weights=given), 3, DIM)
    assert isinstance(mix, ScalarMix)
    wanted = [0.5, -1.0, 0.2] if form == "raw" else [0.5, 0.3, 0.2]
    np.testing.assert_allclose(mix.scalars().tolist(), wanted, rtol=1e-6)
    assert (mix.gamma is None) == (form == "raw")
    assert mix.weights.requires_grad == (kind == "trainable")


@forms
@any_depth
def test_frozen_weights_are_drawn_from_the_seed(n_layers: int, form: Any) -> None:
    def weights(seed: int) -> list[float]:
        state = torch.get_rng_state()
        mix = make_mix(MixConfig(mix="frozen", mix_form=form), n_layers, DIM, seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert isinstance(mix, ScalarMix)
        found: list[float] = mix.weights.tolist()
        return found

    assert weights(1) == weights(1)
    if n_layers > 1 or form == "softmax":
        assert weights(1) != weights(2)
    if form == "raw":
        assert sum(weights(1)) == pytest.approx(1.0, rel=1e-6)
        assert min(weights(1)) >= 0.0


@any_depth
def test_the_function_starts_from_the_shared_seed_and_has_the_width_asked_for(n_layers: int) -> None:
    for width, wanted in ((None, DIM), (7, 7)):
        torch.manual_seed(4)
        one = make_mix(MixConfig(mix="function", mix_width=width), n_layers, DIM)
        torch.manual_seed(4)
        two = make_mix(MixConfig(mix="function", mix_width=width), n_layers, DIM)
        assert isinstance(one, FunctionMix)
        assert isinstance(two, FunctionMix)
        assert one.out_dim == wanted
        assert one.linear.weight.shape == (wanted, n_layers * DIM)
        assert torch.equal(one.linear.weight, two.linear.weight)


# -- frozen ---------------------------------------------------------------------------------------


@forms
@pytest.mark.parametrize("weights", ["", "0.2,0.3,0.5"], ids=["drawn", "given"])
def test_no_optimiser_step_moves_frozen_weights(form: Any, weights: str) -> None:
    config = MixConfig(mix="frozen", mix_form=form, mix_weights=weights, mix_l2=0.5)
    mix = make_mix(config, 3, DIM, seed=2)
    assert not any(parameter.requires_grad for parameter in mix.parameters())
    head = torch.nn.Linear(DIM, 2)
    before = {name: tensor.clone() for name, tensor in mix.state_dict().items()}
    assert before
    moved = head.weight.detach().clone()
    everything = [*mix.parameters(), *head.parameters()]
    optimisers = (
        torch.optim.AdamW(everything, lr=0.5, weight_decay=0.5),
        torch.optim.SGD(everything, lr=0.5, weight_decay=0.5, momentum=0.9),
    )
    layers = [layer.float() for layer in layers_of(3, 4)]
    for optimiser in optimisers:
        optimiser.zero_grad()
        (head(mix(layers)).square().sum() + mix.penalty()).backward()
        optimiser.step()
    assert not torch.equal(head.weight, moved)
    for name, tensor in mix.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("name", ["trainable raw", "trainable softmax", "function relu", "function tanh"])
def test_an_optimiser_step_moves_every_trained_parameter(name: str) -> None:
    mix = mix_of(CONFIGS[name], 3)
    before = {name: tensor.clone() for name, tensor in mix.state_dict().items()}
    mix(layers_of(3, 20)).sum().backward()
    torch.optim.SGD(mix.parameters(), lr=0.1).step()
    for parameter, tensor in mix.state_dict().items():
        assert not torch.equal(tensor, before[parameter]), parameter


# -- penalty --------------------------------------------------------------------------------------


@any_depth
@forms
def test_the_penalty_is_the_squared_distance_from_where_equal_weights_are(n_layers: int, form: Any) -> None:
    mix = mix_of({"mix_form": form, "mix_l2": 0.3}, n_layers)
    assert isinstance(mix, ScalarMix)
    equal = 1 / n_layers if form == "raw" else 0.0
    apart = [weight - equal for weight in mix.weights.tolist()]
    penalty = mix.penalty()
    assert penalty.item() == pytest.approx(0.3 * sum(one * one for one in apart), rel=TOLERANCE)
    penalty.backward()
    assert mix.weights.grad is not None
    np.testing.assert_allclose(mix.weights.grad.tolist(), [0.6 * one for one in apart], rtol=TOLERANCE)
    assert mix.gamma is None or mix.gamma.grad is None
    assert make_mix(mix.config, n_layers, DIM).penalty().item() == 0.0


def test_the_penalty_of_a_function_is_the_squared_norm_of_its_matrix() -> None:
    mix = mix_of({"mix": "function", "mix_l2": 0.3}, 2)
    assert isinstance(mix, FunctionMix)
    penalty = mix.penalty()
    values = [value for row in mix.linear.weight.tolist() for value in row]
    assert penalty.item() == pytest.approx(0.3 * sum(value * value for value in values), rel=TOLERANCE)
    penalty.backward()
    assert mix.linear.weight.grad is not None
    torch.testing.assert_close(mix.linear.weight.grad, 0.6 * mix.linear.weight.detach())
    assert mix.linear.bias.grad is None


@all_mixes
def test_without_l2_or_with_frozen_weights_there_is_no_penalty(name: str) -> None:
    assert mix_of(CONFIGS[name], 3).penalty().item() == 0.0
    frozen = mix_of({**CONFIGS[name], "mix_l2": 2.0}, 3)
    if frozen.config.mix == "frozen":
        assert frozen.penalty().item() == 0.0
        assert not frozen.penalty().requires_grad
    assert torch.isfinite(mix_of(CONFIGS[name], 3)(layers_of(3, 2)).sum() + frozen.penalty())


# -- what is logged -------------------------------------------------------------------------------


@any_depth
@all_mixes
def test_values_name_every_layer_and_shares_sum_to_1(name: str, n_layers: int) -> None:
    mix = mix_of(CONFIGS[name], n_layers)
    values = mix.values()
    gamma = values.pop("mix_gamma", None)
    assert list(values) == [f"mix_{depth}" for depth in range(n_layers)]
    assert all(isinstance(value, float) for value in values.values())
    if isinstance(mix, FunctionMix):
        blocks = mix.linear.weight.detach().numpy().reshape(mix.out_dim, n_layers, DIM)
        norms = [float(np.sqrt((blocks[:, depth] ** 2).sum())) for depth in range(n_layers)]
        np.testing.assert_allclose(list(values.values()), np.array(norms) / sum(norms), rtol=1e-7)
    else:
        assert isinstance(mix, ScalarMix)
        assert (gamma is None) == (mix.gamma is None)
        scale = 1.0 if gamma is None else gamma
        np.testing.assert_allclose([scale * value for value in values.values()], factors_of(mix), rtol=1e-7)
    if "raw" not in name:
        assert sum(values.values()) == pytest.approx(1.0, rel=1e-7)


@all_mixes
def test_logging_the_values_of_a_mix_in_training_warns_of_nothing(name: str) -> None:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mix_of(CONFIGS[name], 3).values()
    finally:
        torch.set_warn_always(always)


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["trainable", "frozen"])
@pytest.mark.parametrize("weights", ["1", "0.5,0.5", "1,2,3,4"])
def test_another_number_of_weights_than_layers_is_refused(kind: Any, weights: str) -> None:
    given = len(weights.split(","))
    with pytest.raises(ConfigError, match=f"{given} weights were given for 3 layers") as caught:
        make_mix(MixConfig(mix=kind, mix_weights=weights), 3, DIM)
    assert "one weight per layer" in caught.value.remedy


@pytest.mark.parametrize("weights", ["a", "0.5;0.5", "1,x,3", "nan,1,1", "inf,1,1", "0.2 0.3"])
def test_weights_that_are_no_numbers_are_refused(weights: str) -> None:
    with pytest.raises(ConfigError, match="is not a list of numbers") as caught:
        MixConfig(mix_weights=weights)
    assert "0.2,0.3,0.5" in caught.value.remedy


@pytest.mark.parametrize(
    "settings",
    [
        {"mix": "frosen"},
        {"mix_form": "soft"},
        {"mix_activation": "gelu"},
        {"mix_width": 0},
        {"mix_l2": -1.0},
        {"mix_layers": 3},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MixConfig.from_dict(settings)
