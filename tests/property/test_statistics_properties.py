"""What must hold of tests and intervals whatever the answers are."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from elmokit.comparison.ranking import rank
from elmokit.comparison.statistics import compare_pair, holm, mcnemar, score_interval

Bools = npt.NDArray[np.bool_]
FEW = 300


@st.composite
def two_methods(draw: st.DrawFn) -> tuple[Bools, Bools]:
    n_rows = draw(st.integers(1, 25))
    first, second = (
        draw(arrays.arrays(bool, (draw(st.integers(1, 4)), n_rows), elements=st.booleans())) for _ in range(2)
    )
    return first, second


@given(two_methods(), st.integers(0, 2**31))
def test_a_difference_lies_in_its_interval_and_p_is_a_probability(
    pair: tuple[Bools, Bools], seed: int
) -> None:
    found = compare_pair(*pair, seed=seed, n_resamples=FEW)
    assert 0 < found.p <= 1
    assert -1 <= found.low <= found.difference <= found.high <= 1
    assert found.low < found.high, "no test is without doubt"
    assert 0 < found.detectable[0] <= 1
    np.testing.assert_allclose(found.difference, pair[0].mean() - pair[1].mean(), atol=1e-12)


@given(two_methods())
def test_a_method_is_no_better_or_worse_than_itself(pair: tuple[Bools, Bools]) -> None:
    found = compare_pair(pair[0], pair[0], n_resamples=FEW)
    assert (found.difference, found.p) == (0, 1)


@given(two_methods())
def test_the_other_way_round_everything_is_mirrored(pair: tuple[Bools, Bools]) -> None:
    one, other = (compare_pair(*both, n_resamples=FEW) for both in (pair, pair[::-1]))
    assert one.difference == -other.difference
    assert one.p == other.p
    if one.difference:
        assert one == other.reversed()


@given(two_methods(), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_the_labels_right_and_wrong_do_not_matter(
    pair: tuple[Bools, Bools], shuffler: random.Random
) -> None:
    first, second = pair
    places = list(range(first.shape[1]))
    shuffler.shuffle(places)
    expected = compare_pair(first, second, n_resamples=FEW)
    assert compare_pair(first[:, places], second[:, places], n_resamples=FEW) == expected
    wrong = compare_pair(~first, ~second, n_resamples=FEW)
    np.testing.assert_allclose(wrong.difference, -expected.difference, atol=1e-12)


@given(two_methods())
def test_an_interval_holds_the_accuracy_and_is_never_empty(pair: tuple[Bools, Bools]) -> None:
    low, high = score_interval(pair[0], n_resamples=FEW)
    assert 0 <= low <= pair[0].mean() <= high <= 1
    assert low < high


@given(st.integers(0, 60), st.integers(0, 60))
def test_more_rows_for_the_leader_make_the_lead_less_probable_by_chance(n_first: int, n_second: int) -> None:
    p = mcnemar(n_first, n_second)
    assert 0 < p <= 1
    assert p == mcnemar(n_second, n_first)
    if n_first > n_second:
        assert mcnemar(n_first + 1, n_second) < p


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_never_lowers_a_p(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
    by_size = sorted(zip(p_values, adjusted, strict=True))
    assert [after for _, after in by_size] == sorted(adjusted)
    if p_values:
        assert min(adjusted) == min(1, len(p_values) * min(p_values))


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**31))
def test_every_rank_lies_in_its_range_and_no_p_is_lowered(n_methods: int, n_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    correct = {f"m{number}": rng.random((number % 3 + 1, n_rows)) < 0.7 for number in range(n_methods)}
    found = rank(correct, n_resamples=FEW)
    means = [correct[name].mean() for name in found.order]
    assert means == sorted(means, reverse=True)
    for place, name in enumerate(found.order, start=1):
        first, last = found.ranks[name]
        assert first <= place <= last
    for pair in found.pairs:
        assert pair.difference >= 0
        assert pair.p_adjusted >= pair.p
