"""The optimizer against the library's own Adam, AdamW, SparseAdam and clipping; the learning rate."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from elmokit.bilm.settings import TrainingConfig
from elmokit.training.optimizer import Optimizer, learning_rate

LEARNING_RATES = [1e-2, 2e-2, 5e-3, 5e-3, 1e-3, 3e-2, 1e-2, 1e-2]


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    rng = torch.Generator().manual_seed(seed)
    return {
        "matrix": nn.Parameter(torch.randn(4, 3, generator=rng)),
        "bias": nn.Parameter(torch.randn(4, generator=rng)),
        "kernel": nn.Parameter(torch.randn(2, 3, 2, generator=rng)),
        "table": nn.Parameter(torch.randn(10, 3, generator=rng)),
    }


def copies(own: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(parameter.detach().clone()) for name, parameter in own.items()}


def set_gradients(own: dict[str, nn.Parameter], step: int) -> None:
    """Gradients that depend on the step alone; those of the table are sparse, with rows twice."""
    rng = torch.Generator().manual_seed(100 + step)
    for name, parameter in own.items():
        if name != "table":
            parameter.grad = torch.randn(parameter.shape, generator=rng)
            continue
        parameter.grad = None
        ids = torch.randint(0, 9, (6,), generator=rng)  # the last row is never touched
        looks = F.embedding(torch.cat([ids, ids[:2]]), parameter, sparse=True)
        (looks * torch.randn(8, 3, generator=rng)).sum().backward()


def dense_gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def run(optimizer: Optimizer, own: dict[str, nn.Parameter], steps: range) -> None:
    for step in steps:
        set_gradients(own, step)
        optimizer.clip(1.0)
        optimizer.step(LEARNING_RATES[step % len(LEARNING_RATES)])


# -- dense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_dense_steps_equal_the_librarys_one_by_one(kind: str, weight_decay: float) -> None:
    own = {name: parameter for name, parameter in parameters().items() if name != "table"}
    theirs = copies(own)
    optimizer = Optimizer(own, kind=kind, weight_decay=weight_decay)
    class_ = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    library = class_(
        [
            {"params": [theirs["matrix"], theirs["kernel"]], "weight_decay": weight_decay},
            {"params": [theirs["bias"]], "weight_decay": 0.0},
        ],
        foreach=False,
    )
    for step, lr in enumerate(LEARNING_RATES):
        set_gradients(own, step)
        set_gradients(theirs, step)
        optimizer.step(lr)
        for group in library.param_groups:
            group["lr"] = lr
        library.step()
        for name in own:
            torch.testing.assert_close(own[name], theirs[name], rtol=1e-6, atol=1e-6)


# -- rows -----------------------------------------------------------------------------------------


def test_sparse_steps_equal_those_of_sparse_adam_one_by_one() -> None:
    own = {"table": parameters()["table"]}
    theirs = copies(own)
    optimizer = Optimizer(own, kind="adamw", weight_decay=0.1)
    library = torch.optim.SparseAdam([theirs["table"]])
    for step, lr in enumerate(LEARNING_RATES):
        set_gradients(own, step)
        set_gradients(theirs, step)
        optimizer.step(lr)
        library.param_groups[0]["lr"] = lr
        library.step()
        torch.testing.assert_close(own["table"], theirs["table"], rtol=1e-5, atol=1e-6)


# -- clipping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, 0.01, 1e4])  # 0: no limit
def test_clip_equals_the_librarys_on_dense_and_sparse_gradients(limit: float) -> None:
    own = parameters()
    theirs = copies(own)
    set_gradients(own, 0)
    for name, parameter in theirs.items():
        parameter.grad = dense_gradient(own[name]).clone()
    norm = Optimizer(own, kind="adam", weight_decay=0.0).clip(limit)
    expected = nn.utils.clip_grad_norm_(list(theirs.values()), limit or math.inf)
    assert norm == pytest.approx(float(expected), rel=1e-6)
    for name in own:
        torch.testing.assert_close(
            dense_gradient(own[name]), dense_gradient(theirs[name]), rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("where", ["matrix", "table"])
def test_clip_gives_a_norm_that_is_not_finite_if_any_gradient_is_not(where: str) -> None:
    own = parameters()
    set_gradients(own, 0)
    gradient = own[where].grad
    assert gradient is not None
    own[where].grad = gradient * math.nan
    assert not math.isfinite(Optimizer(own, kind="adam", weight_decay=0.0).clip(1.0))


# -- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize(("n_before", "n_used"), [(0, 0), (5, 3)])
def test_saved_and_loaded_state_continues_bit_for_bit(kind: str, n_before: int, n_used: int) -> None:
    own = parameters()
    optimizer = Optimizer(own, kind=kind, weight_decay=0.05)
    run(optimizer, own, range(n_before))
    saved = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    at_save = copies(own)
    run(optimizer, own, range(n_before, 12))

    other = copies(at_save)
    fresh = Optimizer(other, kind=kind, weight_decay=0.05)
    run(fresh, other, range(n_used))  # loading forgets what came before
    with torch.no_grad():
        for name, parameter in other.items():
            parameter.copy_(at_save[name])
    kept = {name: tensor.clone() for name, tensor in saved.items()}
    fresh.load_tensors(saved)
    run(fresh, other, range(n_before, 12))
    assert all(torch.equal(saved[name], kept[name]) for name in saved)  # it was copied
    assert all(torch.equal(own[name], other[name]) for name in own)
    ours, theirs = optimizer.tensors(), fresh.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


# -- learning rate ----------------------------------------------------------------------------


def rates(n_steps: int, config: TrainingConfig) -> list[float]:
    return [learning_rate(step, n_steps, config) for step in range(n_steps)]


def test_the_rate_warms_up_and_then_stays_or_follows_a_half_cosine() -> None:
    cosine, constant = (
        rates(100, TrainingConfig.from_dict({"lr": 0.5, "warmup": 0.1, "schedule": schedule}))
        for schedule in ("cosine", "constant")
    )
    warm = [0.5 * (step + 1) / 10 for step in range(10)]
    assert constant == pytest.approx([*warm, *[0.5] * 90])
    falling = [0.01 + 0.99 * (1 + math.cos(math.pi * step / 90)) / 2 for step in range(90)]
    assert cosine == pytest.approx([*warm, *(0.5 * share for share in falling)])


@settings(max_examples=50, deadline=None)
@given(
    n_steps=st.integers(1, 500),
    warmup=st.floats(0, 1),
    schedule=st.sampled_from(["cosine", "constant"]),
    lr=st.floats(1e-6, 10),
)
def test_rate_is_above_zero_never_above_the_peak_and_has_one_summit(
    n_steps: int, warmup: float, schedule: str, lr: float
) -> None:
    config = TrainingConfig.from_dict({"lr": lr, "warmup": warmup, "schedule": schedule})
    actual = rates(n_steps, config)
    assert all(0 < rate <= lr * (1 + 1e-12) for rate in actual)
    summit = actual.index(max(actual))
    assert actual[: summit + 1] == sorted(actual[: summit + 1])
    assert actual[summit:] == sorted(actual[summit:], reverse=True)
    assert max(actual) == pytest.approx(lr)
