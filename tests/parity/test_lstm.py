"""LstmLayer and LstmStack against the numpy reference, on the fused and on the loop path."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import LayerState, LstmLayer, LstmStack, shared_dropout
from elmokit.bilm.settings import BilmConfig

TOLERANCE = 1e-5

# dim, hidden_dim, cell_clip, proj_clip
KINDS: dict[str, tuple[int, int, float | None, float | None]] = {
    "fused": (5, 5, None, None),
    "projection": (4, 7, None, None),
    "cell clip": (5, 5, 0.3, None),
    "projection clip": (5, 5, None, 0.1),
    "projection and both clips": (4, 7, 0.3, 0.2),
}


def array(tensor: Tensor) -> reference.Array:
    return tensor.detach().double().numpy()


def arrays(module: nn.Module) -> dict[str, reference.Array]:
    return {name: array(parameter) for name, parameter in module.named_parameters()}


def layer_of(kind: str, seed: int = 0) -> LstmLayer:
    """A layer with weights large enough that clipping bites."""
    torch.manual_seed(seed)
    layer = LstmLayer(*KINDS[kind])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0.0, 0.8)
    return layer


def weights_of(layer: LstmLayer) -> reference.LstmWeights:
    own = arrays(layer)
    return reference.LstmWeights(
        own["input_weight"],
        own["recurrent_weight"],
        own["bias"],
        own.get("projection"),
        layer.cell_clip,
        layer.proj_clip,
    )


def some_state(layer: LstmLayer, n_rows: int, seed: int = 1) -> LayerState:
    rng = torch.Generator().manual_seed(seed)
    h = torch.randn(n_rows, layer.dim, generator=rng) * 0.2
    c = torch.randn(n_rows, layer.hidden_dim, generator=rng) * 0.2
    return h, c


def some_input(n_time: int, n_rows: int, dim: int, seed: int = 2) -> Tensor:
    return torch.randn(n_time, n_rows, dim, generator=torch.Generator().manual_seed(seed))


def assert_close(found: Tensor, wanted: reference.Array) -> None:
    np.testing.assert_allclose(array(found), wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_only_a_layer_without_projection_and_clips_takes_the_fused_path() -> None:
    assert {kind for kind in KINDS if layer_of(kind).fused} == {"fused"}
    assert LstmLayer(4, 4, None, 1.0).fused  # outputs are within one without a clip


@pytest.mark.parametrize("with_state", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_outputs_and_final_state_equal_the_reference(kind: str, with_state: bool) -> None:
    layer = layer_of(kind)
    x = some_input(9, 3, layer.dim)
    state = some_state(layer, 3) if with_state else layer.zero_state(3)
    y, (h, c) = layer(x, state)
    for row in range(3):
        before = array(state[0][row]), array(state[1][row])
        wanted, (last_h, last_c) = reference.lstm(array(x[:, row]), weights_of(layer), before)
        assert_close(y[:, row], wanted)
        assert_close(h[row], last_h)
        assert_close(c[row], last_c)


@pytest.mark.parametrize("kind", ["cell clip", "projection clip", "projection and both clips"])
def test_clips_change_the_result_and_bound_cell_and_output(kind: str) -> None:
    layer = layer_of(kind)
    x = some_input(12, 4, layer.dim)
    y, (_, c) = layer(x, layer.zero_state(4))
    if layer.cell_clip is not None:
        assert float(c.detach().abs().max()) == pytest.approx(layer.cell_clip)
    if layer.proj_clip is not None:
        assert float(y.detach().abs().max()) == pytest.approx(layer.proj_clip)
    own = weights_of(layer)
    free = reference.LstmWeights(own.input_weight, own.recurrent_weight, own.bias, own.projection)
    unclipped, _ = reference.lstm(array(x[:, 0]), free)
    assert np.abs(array(y[:, 0]) - unclipped).max() > 0.01


@pytest.mark.parametrize("with_state", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("kind", KINDS)
def test_padded_rows_with_lengths_equal_each_row_alone(kind: str, with_state: bool) -> None:
    layer = layer_of(kind)
    lengths = torch.tensor([4, 9, 1, 6])
    x = some_input(9, 4, layer.dim)
    state = some_state(layer, 4) if with_state else layer.zero_state(4)
    y, (h, c) = layer(x, state, lengths)
    assert y.shape == (9, 4, layer.dim)
    for row, length in enumerate(lengths.tolist()):
        before = array(state[0][row]), array(state[1][row])
        wanted, (last_h, last_c) = reference.lstm(array(x[:length, row]), weights_of(layer), before)
        assert_close(y[:length, row], wanted)
        assert_close(h[row], last_h)
        assert_close(c[row], last_c)


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_past_a_rows_end_is_without_influence(kind: str) -> None:
    layer = layer_of(kind)
    lengths = torch.tensor([2, 5])
    x = some_input(5, 2, layer.dim)
    other = x.clone()
    other[2:, 0] = 100.0
    y, state = layer(x, layer.zero_state(2), lengths)
    other_y, other_state = layer(other, layer.zero_state(2), lengths)
    assert torch.equal(y[:2, 0], other_y[:2, 0])
    assert torch.equal(y[:, 1], other_y[:, 1])
    assert all(torch.equal(one, two) for one, two in zip(state, other_state, strict=True))


@pytest.mark.parametrize("lengths", [None, [3, 7, 5]], ids=["full", "padded"])
def test_fused_and_loop_path_agree_in_outputs_state_and_gradients(lengths: list[int] | None) -> None:
    layer = layer_of("fused")
    sizes = None if lengths is None else torch.tensor(lengths)
    mask = torch.ones(7, 3) if sizes is None else (torch.arange(7).unsqueeze(1) < sizes).float()
    found: list[list[Tensor]] = []
    for fused in (True, False):
        layer.fused = fused
        layer.zero_grad()
        x = some_input(7, 3, layer.dim).requires_grad_()
        h, c = (part.requires_grad_() for part in some_state(layer, 3))
        y, after = layer(x, (h, c), sizes)
        ((y * mask.unsqueeze(2)).square().sum() + after[0].sum() + after[1].square().sum()).backward()
        grads = [leaf.grad for leaf in (x, h, c, *layer.parameters())]
        assert all(grad is not None for grad in grads)
        found.append([y * mask.unsqueeze(2), *after, *(grad for grad in grads if grad is not None)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_two_calls_with_carried_state_equal_one_call(kind: str) -> None:
    layer = layer_of(kind)
    x = some_input(10, 2, layer.dim)
    y, state = layer(x, layer.zero_state(2))
    first, between = layer(x[:4], layer.zero_state(2))
    second, end = layer(x[4:], between)
    torch.testing.assert_close(torch.cat([first, second]), y, rtol=TOLERANCE, atol=TOLERANCE)
    for one, two in zip(end, state, strict=True):
        torch.testing.assert_close(one, two, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("kind", KINDS)
def test_stack_outputs_of_every_layer_and_states_equal_the_reference(kind: str, residual: bool) -> None:
    dim, hidden_dim, cell_clip, proj_clip = KINDS[kind]
    torch.manual_seed(3)
    config = BilmConfig(
        dim=dim,
        hidden_dim=hidden_dim,
        n_layers=3,
        residual=residual,
        cell_clip=cell_clip,
        proj_clip=proj_clip,
    )
    stack = LstmStack(config)
    lengths = torch.tensor([6, 3])
    x = some_input(6, 2, dim)
    outputs, states = stack(x, stack.zero_state(2), lengths)
    named = {f"stack.{name}": value for name, value in arrays(stack).items()}
    layers = reference.stack_weights(named, "stack", cell_clip, proj_clip)
    assert len(outputs) == len(states) == len(layers) == 3
    for row, length in enumerate(lengths.tolist()):
        wanted, wanted_states = reference.lstm_stack(array(x[:length, row]), layers, residual=residual)
        for depth in range(3):
            assert_close(outputs[depth][:length, row], wanted[depth])
            for part in (0, 1):
                assert_close(states[depth][part][row], wanted_states[depth][part])


@pytest.mark.parametrize("kind", ["fused", "projection"])
def test_weight_dropout_uses_one_mask_on_the_recurrent_weights_for_the_whole_call(kind: str) -> None:
    layer = layer_of(kind)
    x = some_input(6, 2, layer.dim)
    y, _ = layer(x, layer.zero_state(2), None, 0.4, torch.Generator().manual_seed(9))
    mask = torch.empty_like(layer.recurrent_weight).bernoulli_(
        0.6, generator=torch.Generator().manual_seed(9)
    )
    own = weights_of(layer)
    thinned = reference.LstmWeights(
        own.input_weight, own.recurrent_weight * array(mask) / 0.6, own.bias, own.projection
    )
    for row in range(2):
        assert_close(y[:, row], reference.lstm(array(x[:, row]), thinned)[0])


def test_weight_dropout_without_a_generator_does_nothing() -> None:
    layer = layer_of("fused")
    x = some_input(6, 2, layer.dim)
    dropped, _ = layer(x, layer.zero_state(2), None, 0.5, None)
    plain, _ = layer(x, layer.zero_state(2))
    assert torch.equal(dropped, plain)


def test_weight_dropout_gives_dropped_weights_no_gradient() -> None:
    layer = layer_of("fused")
    x = some_input(6, 2, layer.dim)
    y, _ = layer(x, layer.zero_state(2), None, 0.5, torch.Generator().manual_seed(9))
    y.sum().backward()
    mask = torch.empty_like(layer.recurrent_weight).bernoulli_(
        0.5, generator=torch.Generator().manual_seed(9)
    )
    grad = layer.recurrent_weight.grad
    assert grad is not None
    assert torch.equal(grad != 0, mask != 0)


def test_shared_dropout_has_one_mask_for_all_steps_and_keeps_the_mean() -> None:
    x = torch.ones(5, 200, 50)
    y = shared_dropout(x, 0.25, torch.Generator().manual_seed(0))
    assert all(torch.equal(y[step], y[0]) for step in range(5))
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float(y.mean()) == pytest.approx(1.0, abs=0.02)


def test_shared_dropout_without_share_or_generator_is_the_identity() -> None:
    x = torch.randn(3, 2, 2)
    assert torch.equal(shared_dropout(x, 0.0, torch.Generator()), x)
    assert torch.equal(shared_dropout(x, 0.5, None), x)


def test_a_new_layer_starts_with_open_forget_gates_and_orthogonal_recurrence() -> None:
    layer = LstmLayer(6, 6)
    expected = torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(6)
    assert torch.equal(layer.bias.detach(), expected)
    for gate in layer.recurrent_weight.detach().chunk(4):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(6), rtol=0, atol=1e-5)
