"""The fast way of reading: when it is taken, and that what it keeps follows the weights."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch

from elmokit.bilm import packed_lstm
from elmokit.bilm.model import Bilm
from elmokit.bilm.packed_lstm import packing_works
from elmokit.bilm.settings import BilmConfig

SHAPE: dict[str, Any] = {"input": "word", "dim": 4, "objective": "full"}
INDEX = torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0]])
LENGTHS = torch.tensor([4, 3])


def model_of(**more: Any) -> Bilm:
    torch.manual_seed(0)
    return Bilm(BilmConfig(**{**SHAPE, "hidden_dim": 6, "cell_clip": 0.5, **more}), 8).eval()


def run(model: Bilm, **how: Any) -> list[torch.Tensor]:
    return list(model(torch.arange(8)[:, None], INDEX, LENGTHS, **how).layers)


def read(model: Bilm) -> list[torch.Tensor]:
    with torch.inference_mode():
        return run(model)


def assert_close(found: list[torch.Tensor], wanted: list[torch.Tensor], atol: float = 1e-6) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("more", [{"cell_clip": None}, {"hidden_dim": 4}, {"proj_clip": 0.1}])
def test_it_gives_what_the_plain_loop_gives(more: dict[str, Any]) -> None:
    model = model_of(**more)
    assert_close(read(model), run(model))


def test_it_is_for_inference_without_the_fused_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    own = packed_lstm._run_layer
    monkeypatch.setattr(packed_lstm, "_run_layer", lambda *given: (called.append(1), own(*given))[1])  # type: ignore[func-returns-value]
    run(model_of())
    with torch.no_grad():
        run(model_of())
    read(model_of(hidden_dim=4, cell_clip=None))
    assert not called
    read(model_of())
    assert len(called) == 4  # two layers each way


def test_what_is_packed_follows_the_weights() -> None:
    model = model_of()
    before = read(model)
    with torch.no_grad():
        for parameter in model.forward_stack.parameters():
            parameter.mul_(1.5)
    after = read(model)
    assert not torch.allclose(before[1], after[1])
    assert_close(after, run(model))
    model.load_state_dict({name: tensor / 2 for name, tensor in model.state_dict().items()}, assign=True)
    assert_close(read(model), run(model))


def test_a_copy_packs_its_own_and_nothing_outlives_its_layer() -> None:
    gc.collect()
    n_before = len(packed_lstm._PACKED)
    model = model_of()
    read(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.forward_stack.layers[0].bias.add_(1.0)  # type: ignore[operator]
    assert_close(read(other), run(other))
    assert_close(read(model), run(model))
    if packing_works():
        assert len(packed_lstm._PACKED) == n_before + 8
    del model, other
    gc.collect()
    assert len(packed_lstm._PACKED) == n_before


def test_many_rows_of_few_words_and_few_rows_of_many() -> None:
    # Compared with double precision: over 900 steps the rounding errors of single precision (6e-8 each)
    # add up to about 2e-6 here and 4e-7 in the plain loop, depending on the CPU's matrix product.
    model = model_of(n_layers=3)
    exact = copy.deepcopy(model).double()
    for n_rows, n_time in ((700, 2), (1, 900), (7, 100)):
        lengths = torch.randint(1, n_time + 1, (n_rows,), generator=torch.Generator().manual_seed(1))
        lengths[0] = n_time
        index = torch.randint(4, 8, (n_rows, n_time), generator=torch.Generator().manual_seed(2))
        features = torch.arange(8)[:, None]
        with torch.inference_mode():
            found = model(features, index, lengths, keep_state=True)
        wanted = exact(features, index, lengths, keep_state=True)
        assert_close(list(found.layers), list(wanted.layers), atol=5e-6)
        for name, tensor in found.state.tensors().items():
            torch.testing.assert_close(tensor.double(), wanted.state.tensors()[name], rtol=1e-5, atol=5e-6)


def test_rows_without_a_word_keep_their_state() -> None:
    model = model_of()
    state = model.zero_state(2)
    for tensor in state.tensors().values():
        tensor.fill_(0.1)
    with torch.inference_mode():
        found = model(torch.arange(8)[:, None], INDEX, torch.tensor([4, 0]), state, keep_state=True)
    assert found.state is not None
    for tensor in found.state.tensors().values():
        assert torch.equal(tensor[1], torch.full_like(tensor[1], 0.1))
        assert not torch.equal(tensor[0], torch.full_like(tensor[0], 0.1))
