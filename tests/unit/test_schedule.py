"""The learning rate over a run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.bilm.settings import TrainingConfig
from elmokit.training.schedule import learning_rate


def rates(n_steps: int, config: TrainingConfig) -> list[float]:
    return [learning_rate(step, n_steps, config) for step in range(n_steps)]


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    found = rates(100, TrainingConfig(lr=1.0, warmup=0.1))
    assert found[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


def test_cosine_follows_its_formula_after_the_warm_up() -> None:
    found = rates(100, TrainingConfig(lr=0.5, warmup=0.1))
    for step in range(10, 100):
        share = (step - 10) / 90
        assert found[step] == pytest.approx(0.5 * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2))


def test_cosine_starts_at_the_peak_without_warm_up_and_falls_to_a_hundredth() -> None:
    config = TrainingConfig(lr=2.0, warmup=0.0)
    found = rates(1000, config)
    assert found[0] == pytest.approx(2.0)
    assert found == sorted(found, reverse=True)
    assert learning_rate(1000, 1000, config) == pytest.approx(0.02)
    assert learning_rate(5000, 1000, config) == pytest.approx(0.02)


def test_constant_stays_at_the_peak_after_the_warm_up() -> None:
    found = rates(50, TrainingConfig(lr=0.3, warmup=0.2, schedule="constant"))
    assert found[9:] == pytest.approx([0.3] * 41)
    assert found[0] == pytest.approx(0.03)


def test_a_run_that_is_all_warm_up_ends_at_the_peak() -> None:
    found = rates(20, TrainingConfig(lr=1.0, warmup=1.0))
    assert found == pytest.approx([(step + 1) / 20 for step in range(20)])


def test_a_run_of_one_step_learns_at_the_peak() -> None:
    assert learning_rate(0, 1, TrainingConfig(lr=0.7)) == pytest.approx(0.7)


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
    found = rates(n_steps, config)
    assert all(0 < rate <= lr * (1 + 1e-12) for rate in found)
    summit = found.index(max(found))
    assert found[: summit + 1] == sorted(found[: summit + 1])
    assert found[summit:] == sorted(found[summit:], reverse=True)
    assert max(found) == pytest.approx(lr)
