"""The conditional random field against all sequences of tags, one by one."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from elmokit.tasks.crf import Crf, best_paths, log_partition, marginals, negative_log_likelihood, score_paths
from elmokit.tasks.span_tags import Grammar, find_invalid

N_TAGS = 3
LENGTHS = (4, 1, 3, 0, 2)


def random_crf(seed: int, n_time: int = max(LENGTHS)) -> tuple[Crf, Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    crf = Crf(draw(len(LENGTHS), n_time, N_TAGS), draw(N_TAGS), draw(N_TAGS, N_TAGS), draw(N_TAGS))
    return crf, torch.arange(n_time) < torch.tensor(LENGTHS).unsqueeze(1)


def every_path(crf: Crf, row: int) -> dict[tuple[int, ...], float]:
    """The score of each sequence of tags of a row, added up by hand."""
    scores = {}
    for tags in itertools.product(range(N_TAGS), repeat=LENGTHS[row]):
        score = float(crf.starts[tags[0]] + crf.ends[tags[-1]])
        score += sum(float(crf.emissions[row, place, tag]) for place, tag in enumerate(tags))
        score += sum(float(crf.steps[one, other]) for one, other in itertools.pairwise(tags))
        scores[tags] = score
    return scores


@pytest.mark.parametrize("seed", range(5))
def test_sums_probabilities_and_best_paths_are_those_of_all_paths(seed: int) -> None:
    crf, mask = random_crf(seed)
    totals, shares, paths = log_partition(crf, mask), marginals(crf, mask), best_paths(crf, mask)
    for row, length in enumerate(LENGTHS):
        if not length:
            assert totals[row] == 0
            continue
        scores = every_path(crf, row)
        values = torch.tensor([*scores.values()], dtype=torch.float64)
        torch.testing.assert_close(totals[row], values.logsumexp(dim=0))
        assert tuple(paths[row, :length].tolist()) == max(scores, key=lambda tags: scores[tags])
        weights = values.softmax(dim=0)
        for place, tag in itertools.product(range(length), range(N_TAGS)):
            wanted = sum(float(w) for w, tags in zip(weights, scores, strict=True) if tags[place] == tag)
            assert float(shares[row, place, tag]) == pytest.approx(wanted)
    assert not shares[~mask].any()
    assert not paths[~mask].any()


def test_the_loss_is_the_log_of_the_true_path_s_probability() -> None:
    crf, mask = random_crf(7)
    tags = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 0], [1, 1, 0, 0], [0] * 4, [2, 2, 0, 0]])
    losses = negative_log_likelihood(crf, tags, mask)
    for row, length in enumerate(LENGTHS):
        if length:
            scores = every_path(crf, row)
            own = scores[tuple(tags[row, :length].tolist())]
            assert float(score_paths(crf, tags, mask)[row]) == pytest.approx(own)
            total = torch.tensor([*scores.values()]).logsumexp(dim=0)
            assert float(losses[row]) == pytest.approx(float(total) - own, rel=1e-5)
    assert losses[LENGTHS.index(0)] == 0


def test_padding_and_other_rows_change_nothing() -> None:
    crf, mask = random_crf(1)
    row, length = 2, LENGTHS[2]
    alone = crf._replace(emissions=crf.emissions[row : row + 1, :length])
    whole = torch.ones(1, length, dtype=torch.bool)
    torch.testing.assert_close(log_partition(alone, whole)[0], log_partition(crf, mask)[row])
    torch.testing.assert_close(marginals(alone, whole)[0], marginals(crf, mask)[row, :length])
    assert torch.equal(best_paths(alone, whole)[0], best_paths(crf, mask)[row, :length])


def test_the_grammar_allows_just_the_sequences_that_are_valid() -> None:
    tags = ["O", *(f"{prefix}-{label}" for label in ("A", "B") for prefix in "BIES")]
    grammar = Grammar.of(tags)
    for length in (1, 2, 3):
        for path in itertools.product(range(len(tags)), repeat=length):
            allowed = grammar.starts[path[0]] and grammar.ends[path[-1]]
            allowed = allowed and all(grammar.steps[one, other] for one, other in itertools.pairwise(path))
            assert allowed == (not [*find_invalid([tags[place] for place in path], "BIOES")]), path


def test_probabilities_stay_finite_where_scores_are_extreme() -> None:
    crf, mask = random_crf(3)
    crf = crf._replace(emissions=crf.emissions * 1e5, steps=crf.steps - 1e4 * torch.eye(N_TAGS))
    shares = marginals(crf, mask)
    torch.testing.assert_close(shares.sum(dim=2), mask.double())
