"""The word predictors: losses, gradients, sampling, and the exact likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.bilm import softmax as objective
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.softmax import (
    AdaptivePredictor,
    TablePredictor,
    log_chance,
    predictor,
    sample_log_uniform,
)
from elmokit.text.tokenizing import PAD

DIM = 6
Loss = Callable[..., Tensor]
sampled_loss: Loss = objective._SampledLoss.apply


def array(tensor: Tensor) -> reference.Array:
    return tensor.detach().double().numpy()


def table(objective: str, n_words: int, n_samples: int = 8) -> TablePredictor:
    torch.manual_seed(0)
    config = BilmConfig.from_dict(
        {"dim": DIM, "hidden_dim": DIM, "objective": objective, "n_samples": n_samples}
    )
    found = predictor(config, n_words, None)
    assert isinstance(found, TablePredictor)
    with torch.no_grad():
        found.bias.normal_()
    return found


def problem(n: int, n_words: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, DIM, generator=rng, dtype=torch.float64).to(dtype).requires_grad_()
    targets = torch.randint(1, n_words, (n,), generator=rng)
    return hidden, targets


# -- full softmax -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 31, 150], ids=["one row", "one block", "blocks and a rest"])
def test_full_loss_equals_the_reference_and_its_gradients_cross_entropy(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "_BLOCK", 1)  # blocks of 32 rows
    own = table("full", 40)
    hidden, targets = problem(n, 40)
    loss = own.training_loss(hidden.t().contiguous().t(), targets)  # of any stride
    wanted = reference.full_loss(array(hidden), array(own.weight), array(own.bias), targets.numpy())
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-5)
    leaves = (hidden, own.weight, own.bias)
    plain = F.cross_entropy(hidden @ own.weight.t() + own.bias, targets, reduction="sum")
    gradients = (torch.autograd.grad(3.0 * one, leaves) for one in (loss, plain))
    for found, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["full", "sampled"])
def test_losses_and_gradients_stay_finite_with_huge_logits(name: str) -> None:
    own = table(name, 20)
    hidden, targets = problem(8, 20)
    loss = own.training_loss(hidden * 1e4, targets, own.draw(torch.Generator()))
    loss.backward()
    assert hidden.grad is not None
    assert torch.isfinite(torch.cat([loss.detach().reshape(1), hidden.grad.flatten()])).all()


# -- sampled softmax --------------------------------------------------------------------------------


def plain_sampled(
    hidden: Tensor, rows: Tensor, bias: Tensor, own_rows: Tensor, own_bias: Tensor, hit: Tensor
) -> Tensor:
    """The same loss with all logits at once, left to autograd."""
    own = (hidden * own_rows).sum(dim=1) + own_bias
    logits = hidden @ rows.t() + bias
    struck = torch.arange(len(rows)) == hit.unsqueeze(1)
    logits = torch.cat([logits.masked_fill(struck, -math.inf), own.unsqueeze(1)], dim=1)
    return -F.log_softmax(logits, dim=1)[:, -1].sum()


def sampled_leaves(n: int, n_samples: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(2)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_()

    hit = torch.randint(-1, n_samples, (n,), generator=rng)
    assert n == 1 or ((hit == -1).any() and (hit >= 0).any())
    return leaf(n, DIM), leaf(n_samples, DIM), leaf(n_samples), leaf(n, DIM), leaf(n), hit


@pytest.mark.parametrize("n", [1, 31, 150], ids=["one row", "one block", "blocks and a rest"])
def test_sampled_loss_and_gradients_equal_plain_autograd(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "_BLOCK", 1)
    leaves = sampled_leaves(n, 7, torch.float32)
    loss, plain = sampled_loss(*leaves), plain_sampled(*leaves)
    torch.testing.assert_close(loss, plain, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(0.5 * loss, leaves[:-1])
    wanted = torch.autograd.grad(0.5 * plain, leaves[:-1])
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_samples", [1, 8, 64])
def test_sampled_loss_equals_the_reference_and_its_gradients_plain_autograd(n_samples: int) -> None:
    n_words = 50
    own = table("sampled", n_words, n_samples)
    hidden, targets = problem(40, n_words)
    loss = own.training_loss(hidden, targets, own.draw(torch.Generator().manual_seed(5)))
    loss.backward()
    assert own.weight.grad is not None
    assert own.weight.grad.is_sparse
    found = [hidden.grad, own.weight.grad.to_dense(), own.bias.grad]

    samples = sample_log_uniform(n_samples, n_words, torch.Generator().manual_seed(5))
    tensors = array(hidden), array(own.weight), array(own.bias)
    by_hand = reference.sampled_loss(*tensors, targets.numpy(), samples.numpy(), n_samples)
    assert float(loss.detach()) == pytest.approx(by_hand, rel=1e-5)
    correction = torch.tensor(
        [0.0, *(math.log(reference.chance(word, n_samples, n_words)) for word in range(1, n_words))]
    )
    logits = hidden @ own.weight.t() + own.bias - correction
    inside = torch.zeros(40, n_words, dtype=torch.bool)
    inside[:, samples] = True
    inside[torch.arange(40), targets] = True
    plain = F.cross_entropy(logits.masked_fill(~inside, -math.inf), targets, reduction="sum")
    wanted = torch.autograd.grad(plain, (hidden, own.weight, own.bias))
    for one, two in zip(found, wanted, strict=True):
        assert one is not None
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_sampled_loss_with_every_word_drawn_equals_the_full_loss_over_all_but_padding() -> None:
    n_words, n_samples = 20, 5000
    own = table("sampled", n_words, n_samples)
    rng = torch.Generator().manual_seed(3)
    assert sample_log_uniform(n_samples, n_words, torch.Generator().manual_seed(3)).tolist() == list(
        range(1, n_words)
    )
    hidden, targets = problem(60, n_words)
    loss = own.training_loss(hidden, targets, own.draw(rng))
    wanted = F.cross_entropy(hidden @ own.weight[1:].t() + own.bias[1:], targets - 1, reduction="sum")
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-4)
    with torch.no_grad():
        own.bias[PAD] = -20.0
    assert float(loss.detach()) == pytest.approx(own.exact_loss(hidden, targets), rel=1e-5)


def test_losses_of_no_positions_are_zero_with_zero_gradients() -> None:
    empty, targets = torch.empty(0, DIM, requires_grad=True), torch.empty(0, dtype=torch.long)
    for name in ("full", "sampled"):
        own = table(name, 30)
        loss = own.training_loss(empty, targets, own.draw(torch.Generator()))
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert own.bias.grad is not None
        assert not own.bias.grad.any()
        assert own.exact_loss(empty, targets) == 0.0
    assert adaptive(30).exact_loss(empty, targets) == 0.0


# -- drawing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_words", [2, 5, 100, 50_000])
@pytest.mark.parametrize("n_draws", [1, 7, 4096])
def test_log_chance_equals_direct_computation(n_words: int, n_draws: int) -> None:
    ids = torch.arange(1, min(n_words, 300))
    if n_words > 300:
        ids = torch.cat([ids, torch.tensor([n_words // 2, n_words - 1])])
    with np.errstate(divide="ignore"):
        wanted = [math.log(reference.chance(int(word), n_draws, n_words)) for word in ids]
    np.testing.assert_allclose(log_chance(ids, n_draws, n_words).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_log_chance_equals_the_share_of_draws_that_hold_the_word() -> None:
    n_words, n_draws, n_repeats = 40, 10, 6000
    rng = torch.Generator().manual_seed(8)
    seen = torch.zeros(n_words)
    for _ in range(n_repeats):
        seen[sample_log_uniform(n_draws, n_words, rng)] += 1
    assert seen[0] == 0
    share = (seen[1:] / n_repeats).numpy()
    wanted = log_chance(torch.arange(1, n_words), n_draws, n_words).exp().numpy()
    spread = np.sqrt(wanted * (1 - wanted) / n_repeats)
    assert (np.abs(share - wanted) < 4.5 * spread + 1e-3).all()


def test_drawn_ids_are_sorted_distinct_and_never_padding() -> None:
    for seed in range(20):
        ids = sample_log_uniform(500, 90, torch.Generator().manual_seed(seed))
        assert torch.equal(ids, ids.unique(sorted=True))
        assert int(ids.min()) >= 1
        assert int(ids.max()) <= 89


# -- exact likelihood -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "sampled"])
@pytest.mark.parametrize("n", [1, 150])
def test_exact_loss_of_a_table_equals_full_log_softmax(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "_BLOCK", 1)
    own = table(name, 60)
    hidden, targets = problem(n, 60)
    wanted = reference.full_loss(array(hidden), array(own.weight), array(own.bias), targets.numpy())
    assert own.exact_loss(hidden, targets) == pytest.approx(wanted, rel=1e-5)


def adaptive(n_words: int, dim: int = DIM) -> AdaptivePredictor:
    torch.manual_seed(0)
    config = BilmConfig(dim=dim, hidden_dim=dim, objective="adaptive")
    found = predictor(config, n_words, None)
    assert isinstance(found, AdaptivePredictor)
    return found


@pytest.mark.parametrize("n_words", [5, 30, 3000], ids=["tiny", "small", "with the usual cut"])
def test_adaptive_losses_equal_minus_log_prob(n_words: int) -> None:
    own = adaptive(n_words)
    hidden, targets = problem(25, n_words)
    log_p = own.softmax.log_prob(hidden).gather(1, targets.unsqueeze(1))
    wanted = -float(log_p.detach().double().sum())
    assert own.exact_loss(hidden, targets) == pytest.approx(wanted, rel=1e-5)
    training = own.training_loss(hidden, targets)
    assert float(training.detach()) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("dim", "n_words"), [(3, 100), (32, 80_000), (8, 100)])
def test_every_adaptive_tail_can_tell_its_words_apart(dim: int, n_words: int) -> None:
    """A tail of width zero gives all its words the same probability for ever."""
    own = adaptive(n_words, dim)
    hidden = torch.randn(4, dim)
    with torch.no_grad():
        log_p = own.softmax.log_prob(hidden)
    rare = log_p[:, int(0.8 * n_words) :]
    assert float((rare.amax(dim=1) - rare.amin(dim=1)).min()) > 0


def test_starting_from_counts_gives_log_frequencies_and_no_chance_to_padding() -> None:
    own = table("full", 6)
    counts = np.array([0, 3, 0, 7, 20, 10])
    own.start_from_counts(counts)
    shares = (counts + 0.5) / (counts.sum() + 3.0)
    np.testing.assert_allclose(array(own.bias)[1:], np.log(shares)[1:], rtol=1e-5)
    assert float(own.bias[PAD].detach()) == -20.0


def test_a_shared_table_is_the_very_same_parameter() -> None:
    shared = torch.nn.Parameter(torch.randn(10, DIM))
    config = BilmConfig(input="word", dim=DIM, hidden_dim=DIM, tie=True)
    found = predictor(config, 10, shared)
    assert isinstance(found, TablePredictor)
    assert found.weight is shared
