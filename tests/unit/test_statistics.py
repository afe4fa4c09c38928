"""Tests and intervals of accuracies: against scipy and hand arithmetic, and by simulation of chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from elmokit.comparison.ranking import rank, recommend
from elmokit.comparison.statistics import (
    PooledVariance,
    compare_pair,
    holm,
    mcnemar,
    pool_variance,
    row_scores,
    row_values,
    score_interval,
)
from elmokit.core.errors import DataError
from reports import make_metrics

Bools = npt.NDArray[np.bool_]
FAST = 1000


def answers(
    rng: np.random.Generator,
    hardness: npt.NDArray[np.float64],
    n_seeds: int,
    *,
    skill: float = 1.3,
    seeds: float = 0.0,
    rows: float = 0.3,
) -> Bools:
    """Right or wrong, (n_seeds, n_rows): a row's hardness is shared by all methods; ``seeds`` is how much the
    skill varies from seed to seed, ``rows`` how much single answers do."""
    n_rows = len(hardness)
    own = 0.3 * rng.normal(size=n_rows)
    luck = seeds * rng.normal(size=(n_seeds, 1))
    found: Bools = skill + luck + own + rows * rng.normal(size=(n_seeds, n_rows)) > hardness
    return found


def one_sided(n_first: int, n_second: int, n_rows: int = 100) -> tuple[Bools, Bools]:
    """Answers of two methods of which each alone is right on so many rows."""
    first, second = np.ones((2, n_rows), dtype=bool)
    second[:n_first] = False
    first[n_first : n_first + n_second] = False
    return first, second


# -- single figures ---------------------------------------------------------------------------


@pytest.mark.parametrize(("n_right", "n_rows"), [(93, 100), (60, 200), (7000, 7600), (495, 500)])
def test_one_seeds_interval_is_near_the_exact_one(n_right: int, n_rows: int) -> None:
    correct = np.arange(n_rows) < n_right
    low, high = score_interval(correct)
    exact = stats.binomtest(n_right, n_rows).proportion_ci(method="wilson")
    # A row and a half apart at most: near the ends, the rows added make ours the wider one.
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=1.5 / n_rows + 0.001)


def test_a_few_right_answers_are_no_proof_of_perfection() -> None:
    low, high = score_interval(np.ones((1, 10), dtype=bool))
    assert 0.5 < low < 0.8
    assert high == 1
    nothing = compare_pair(*one_sided(0, 0))
    assert nothing.low < -0.01 < 0 < 0.01 < nothing.high


def test_seeds_that_vary_widen_the_interval_and_copies_do_not() -> None:
    rng = np.random.default_rng(0)
    alike = rng.random((1, 1000)) < 0.9
    low, high = score_interval(alike)
    assert score_interval(np.repeat(alike, 3, axis=0)) == pytest.approx((low, high), abs=0.002)
    apart = rng.random((3, 1000)) < np.array([[0.87], [0.9], [0.93]])
    wide_low, wide_high = score_interval(apart)
    assert wide_high - wide_low > 1.5 * (high - low)


@pytest.mark.parametrize("seeds", [0.0, 0.1])
def test_the_interval_holds_the_true_accuracy_nineteen_times_in_twenty(seeds: float) -> None:
    rng = np.random.default_rng(1)
    true = stats.norm.cdf(1.3 / np.sqrt(1 + 0.3**2 + 0.3**2 + seeds**2))
    held = 0
    for _ in range(300):
        correct = answers(rng, rng.normal(size=300), 3, seeds=seeds)
        low, high = score_interval(correct, n_resamples=FAST)
        held += low <= true <= high
    assert 0.92 <= held / 300 <= 0.995


def test_rows_of_accuracy_are_right_or_wrong() -> None:
    metrics = make_metrics(["a", "b", "c"], 500)
    assert row_values(metrics).tolist() == metrics.row_stats[:, 0].tolist()
    assert set(row_values(metrics)) == {0.0, 1.0}
    assert row_values(make_metrics(["a", "b"], 1)).shape == (1,)


def test_rows_of_any_other_score_give_its_bootstrap_interval() -> None:
    metrics = make_metrics(["a", "b", "c"], 400, several=True)
    values, score = row_values(metrics), metrics.values["micro_f1"]
    assert values.mean() == pytest.approx(score, abs=1e-6)
    rng = np.random.default_rng(0)
    resampled = [metrics.score(metrics.row_stats[rng.integers(0, 400, 400)].sum(axis=0)) for _ in range(4000)]
    low, high = score_interval(values)
    assert (low, high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.008)
    worse = values.copy()
    worse[:40] = 0.0
    assert compare_pair(values, worse).p < 0.001


# -- two methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_first", "n_second"), [(5, 0), (0, 5), (12, 3), (4, 4), (1, 0), (40, 60)])
def test_mcnemar_agrees_with_scipys_binomial_test(n_first: int, n_second: int) -> None:
    n = n_first + n_second
    exact = stats.binomtest(n_first, n).pvalue
    mid = exact - stats.binom.pmf(n_first, n, 0.5)
    assert mcnemar(n_first, n_second) == pytest.approx(mid if n_first != n_second else 1.0)
    found = compare_pair(*one_sided(n_first, n_second))
    assert found.p == mcnemar(n_first, n_second)
    copied = compare_pair(*(np.stack([one] * 3) for one in one_sided(n_first, n_second)))
    assert copied == found, "seeds that are copies count as one"
    assert found.difference == pytest.approx((n_first - n_second) / 100)


def test_one_seeds_interval_agrees_with_bonett_and_price() -> None:
    n_first, n_second, n_rows = 60, 40, 1000
    p, q = (n_first + 1) / (n_rows + 2), (n_second + 1) / (n_rows + 2)
    half = stats.norm.ppf(0.975) * np.sqrt((p + q - (p - q) ** 2) / (n_rows + 2))
    found = compare_pair(*one_sided(n_first, n_second, n_rows), n_resamples=40_000)
    assert (found.low, found.high) == pytest.approx((p - q - half, p - q + half), abs=0.001)


def test_several_seeds_flip_signs_as_scipys_permutation_test_does() -> None:
    rng = np.random.default_rng(3)
    hardness = rng.normal(size=60)
    # Whole rows of the seeds are swapped about, so that their accuracies are equal: no noise from seeds.
    base = answers(rng, hardness, 1, skill=0.9)[0]
    first = np.stack([base, base[::-1]])
    second = answers(rng, hardness, 1, skill=0.1)
    lead = first.mean(axis=0) - second.mean(axis=0)
    expected = stats.permutation_test(
        (lead,),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        random_state=np.random.default_rng(0),
    )
    found = compare_pair(first, second, n_resamples=20_000)
    assert found.difference == pytest.approx(lead.mean())
    assert found.p == pytest.approx(expected.pvalue, abs=0.02)


@pytest.mark.parametrize(
    ("n_a", "n_b", "spread_a", "spread_b"),
    [(1, 1, 0, 0), (3, 3, 0, 0), (3, 3, 0.2, 0.2), (3, 1, 0.2, 0)],
)
def test_false_alarms_come_five_times_in_a_hundred_at_most(
    n_a: int, n_b: int, spread_a: float, spread_b: float
) -> None:
    rng = np.random.default_rng(5)
    alarms = missed = 0
    n_trials, n_rows = 250, 300
    # The same true accuracy, whatever the spread of the seeds.
    skills = [1.3 * np.sqrt((1.18 + spread**2) / 1.18) for spread in (spread_a, spread_b)]
    for _ in range(n_trials):
        hardness = rng.normal(size=n_rows)
        a = answers(rng, hardness, n_a, seeds=spread_a, skill=skills[0])
        b = answers(rng, hardness, n_b, seeds=spread_b, skill=skills[1])
        found = compare_pair(a, b, n_resamples=FAST)
        alarms += found.p < 0.05
        missed += not found.low <= 0 <= found.high
    # Up to 8.4 %: two and a half standard errors above 5 % in 250 trials.
    assert alarms / n_trials <= 0.084
    assert missed / n_trials <= 0.084
    if (spread_a, spread_b) == (0, 0):
        assert alarms / n_trials >= 0.01, "rows are the only noise: not much below five either"


def test_the_smallest_visible_difference_is_where_a_test_begins_to_see() -> None:
    found = compare_pair(*one_sided(20, 20, 400))
    n_needed = next(n for n in range(20) if mcnemar(20 + n, 20 - n) < 0.05)
    assert found.detectable == pytest.approx([2 * n_needed / 400], abs=0.006)
    assert compare_pair(*one_sided(0, 0, 50)).detectable == (5 / 50,), "five rows, all for one side"
    assert compare_pair([True], [False]).detectable == (1,)


def test_the_smallest_visible_difference_is_corrected_as_the_verdicts_are() -> None:
    """Of six tests, three are significant: the next one has to pass 0.05 / 3."""
    rows = np.arange(400)
    close = {name: (rows < 360) ^ (rows % 40 == place) for place, name in enumerate("abc")}
    found = rank({**close, "d": rows < 200})
    assert [pair.significant for pair in found.pairs].count(True) == 3
    n_needed = next(n for n in range(20) if mcnemar(10 + n, 10 - n) < 0.05 / 3)
    assert found.detectable == pytest.approx(2 * n_needed / 400, abs=0.006)
    assert found.detectable == found.pairs[0].detectable[0]
    many = compare_pair(*one_sided(0, 0, 50), n_tests=3)
    assert many.detectable == (5 / 50, 6 / 50, 6 / 50), "0.5 ** 6 < 0.05 / 3 < 0.5 ** 5"


def test_scores_other_than_right_or_wrong_are_compared_alike() -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(0.7, 0.2, size=(3, 400))
    better, worse = rows + 0.05, rows - 0.05
    found = compare_pair(better, worse)
    assert found.difference == pytest.approx(0.1, abs=1e-3)
    assert found.low < 0.1 < found.high
    assert found.p < 0.001
    assert compare_pair(rows, rows[:, ::-1]).p == 1, "the same rows in another order"
    low, high = score_interval(rows)
    assert (high - low) == pytest.approx(2 * 1.96 * 0.2 / np.sqrt(3 * 400), rel=0.3)
    halves = np.arange(100) % 2
    assert score_interval(halves) == pytest.approx(score_interval(halves * 0.999), abs=0.005)


# -- the ranking ------------------------------------------------------------------------------


def from_counts(n_rows: int, **n_right: int) -> dict[str, Bools]:
    """One seed each; all of a method's right rows are right for the better ones too."""
    return {name: np.arange(n_rows) < n for name, n in n_right.items()}


def test_every_pair_is_tested_and_p_corrected_for_all_of_them() -> None:
    found = rank(from_counts(500, a=450, b=445, c=441, d=430))
    assert [(pair.better, pair.worse) for pair in found.pairs] == [
        *[("a", "b"), ("b", "c"), ("c", "d")],  # neighbours
        *[("a", "c"), ("a", "d"), ("b", "d")],
    ]
    assert [pair.p_adjusted for pair in found.pairs] == holm([pair.p for pair in found.pairs])
    assert found.pair("d", "b") is found.pair("b", "d") is found.pairs[-1]
    with pytest.raises(DataError, match="not two methods of the ranking") as caught:
        found.pair("b", "gone")
    assert "a, b, c, d" in caught.value.remedy


def test_the_usual_spread_is_worth_more_the_more_alike_the_methods_are() -> None:
    rng = np.random.default_rng(0)

    def pool(*spreads: float) -> PooledVariance | None:
        """Methods of three seeds each: rows right by chance, the seeds' accuracies this far apart."""
        methods = ([rng.random(1000) < 0.8 + spread * rng.normal() for _ in range(3)] for spread in spreads)
        return pool_variance(map(row_scores, methods))

    alike, unlike = pool(*[0.03] * 40), pool(*np.geomspace(0.001, 0.2, 40))
    assert alike is not None
    assert alike.variance == pytest.approx(0.03**2 + 0.8 * 0.2 / 1000, rel=0.4)
    assert alike.degrees > 5
    assert unlike is not None
    assert unlike.degrees < alike.degrees
    assert pool() is None
    one_row = np.array([[True], [False], [True]])
    assert pool_variance([row_scores(one_row)] * 4) is None, "one row has no spread"
    assert not any(pair.significant for pair in rank(dict.fromkeys("abcd", one_row)).pairs)


def test_seeds_of_other_methods_make_three_seeds_tell_more() -> None:
    rows = np.arange(400)
    methods = {
        f"m{place}": np.stack([rows < 335 + place + more for more in (-15 - place, 0, 15)])
        for place in range(8)
    }
    methods["bad"] = np.stack([rows < n for n in (240, 255, 270)])
    usual = pool_variance(map(row_scores, methods.values()))
    assert usual is not None
    alone = compare_pair(methods["m0"], methods["bad"])
    together = compare_pair(methods["m0"], methods["bad"], pooled=usual)
    assert together.p < alone.p / 2
    assert together.difference == alone.difference
    assert alone.p > 0.05 / 36, "for 36 pairs its own seeds would not do"
    assert all(rank(methods).pair(f"m{place}", "bad").significant for place in range(8))


def test_a_method_that_varies_far_more_is_judged_by_its_own_seeds() -> None:
    rows = np.arange(400)
    wild, calm = np.stack([rows < n for n in (399, 300, 350)]), np.stack([rows < n for n in (251, 250, 249)])
    usual = PooledVariance(variance=1e-6, degrees=20.0)
    assert compare_pair(wild, calm, pooled=usual).p == pytest.approx(compare_pair(wild, calm).p, abs=0.02)


def test_ranks_say_what_is_significant_where_ties_are_not_transitive() -> None:
    """``a`` is better than ``b``; ``c`` scores less than ``b``, but differs from both on many rows."""
    rows = np.arange(1000)
    found = rank({"a": rows < 700, "b": rows < 680, "c": rows >= 322})
    assert [pair.significant for pair in found.pairs] == [True, False, False]
    assert found.ranks == {"a": (1, 2), "b": (2, 3), "c": (1, 3)}
    assert found.tied_with_best == ("a", "c")
    assert recommend(found, {"a": 500.0, "b": 1.0, "c": 20.0}) == "c"


def test_ties_are_ordered_by_name_and_share_their_ranks() -> None:
    found = rank(from_counts(50, z=40, m=40, a=40))
    assert found.order == ("a", "m", "z") == found.tied_with_best
    assert set(found.ranks.values()) == {(1, 3)}
    assert all(pair.p == 1 and not pair.significant for pair in found.pairs)
    alone = rank({"a": [True, False]})
    assert (alone.order, alone.ranks, alone.pairs, alone.detectable) == (("a",), {"a": (1, 1)}, (), None)


def test_a_ranking_does_not_depend_on_the_order_of_methods_or_rows() -> None:
    rng = np.random.default_rng(8)
    hardness, skills = rng.normal(size=400), {"a": (1.3, 3), "b": (1.25, 1), "c": (0.9, 2), "d": (0.9, 3)}
    methods = {name: answers(rng, hardness, n, skill=skill) for name, (skill, n) in skills.items()}
    expected = rank(methods)
    assert rank(dict(reversed(methods.items()))) == expected
    places = rng.permutation(400)
    assert rank({name: rows[:, places] for name, rows in methods.items()}) == expected
    assert rank(methods, seed=1) != expected
