"""Heads against plain references, one text at a time: padding and company never count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmokit.tasks.heads import BilstmHead, PoolHead, read_out
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Labels, get_task

DIM, N_CLASSES = 6, 4
LENGTHS = (5, 1, 9, 2, 9)
CONFIGS = [
    pytest.param(HeadConfig(head="pool", head_dim=7), id="pool"),
    pytest.param(HeadConfig(head="bilstm", head_dim=3, head_layers=1), id="bilstm of one layer"),
    pytest.param(HeadConfig(head="bilstm", head_dim=3, head_layers=3), id="bilstm of three layers"),
]


def make(config: HeadConfig) -> PoolHead | BilstmHead:
    torch.manual_seed(0)
    head = get_task("classify").heads[config.head](config, DIM, Labels(tuple("abcd")))
    assert isinstance(head, PoolHead | BilstmHead)
    return head


def batch(noise: float = 0.0, longer: int = 0) -> tuple[tuple[Tensor], tuple[Tensor]]:
    """Texts of ``LENGTHS`` words, with ``noise`` where there is no word and ``longer`` padding."""
    numbers = torch.Generator().manual_seed(1)
    n_time = max(LENGTHS) + longer
    x = noise * torch.randn(len(LENGTHS), n_time, DIM, generator=torch.Generator().manual_seed(2))
    for row, length in enumerate(LENGTHS):
        x[row, :length] = torch.randn(length, DIM, generator=numbers)
    return (x,), (torch.arange(n_time) < torch.tensor(LENGTHS).unsqueeze(1),)


def reference(head: PoolHead | BilstmHead, words: Tensor) -> Tensor:
    """The scores of one text, (time, dim), without any batch."""
    if isinstance(head, PoolHead):
        x = words.numpy()
        half = DIM // 2
        last = np.concatenate([x[-1, :half], x[0, half:]])
        pooled = np.concatenate([x.max(axis=0), x.mean(axis=0), last])
        weights = {name: p.detach().numpy() for name, p in head.named_parameters()}
        hidden = np.maximum(weights["hidden.weight"] @ pooled + weights["hidden.bias"], 0)
        return torch.from_numpy(weights["output.weight"] @ hidden + weights["output.bias"])
    width = head.output.in_features // 4
    lstm = nn.LSTM(DIM, width, num_layers=len(head.ahead), bidirectional=True)
    with torch.no_grad():
        for depth, (ahead, behind) in enumerate(zip(head.ahead, head.behind, strict=True)):
            for name, parameter in ahead.named_parameters():
                getattr(lstm, f"{name[:-1]}{depth}").copy_(parameter)
            for name, parameter in behind.named_parameters():
                getattr(lstm, f"{name[:-1]}{depth}_reverse").copy_(parameter)
        outputs, (states, _) = lstm(words)
        scores: Tensor = head.output(torch.cat([outputs.amax(dim=0), states[-2], states[-1]]))
        return scores


@pytest.mark.parametrize("config", CONFIGS)
def test_a_batch_gives_what_each_text_gives_alone_in_a_plain_implementation(config: HeadConfig) -> None:
    """Whatever stands in the padding, and however long it is."""
    head, ((x,), (mask,)) = make(config), batch(noise=1e4, longer=7)
    with torch.no_grad():
        found = head([x], [mask])
        assert found.shape == (len(LENGTHS), N_CLASSES)
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(found[row], reference(head, x[row, :length]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS)
def test_gradients_reach_every_weight_and_every_word_but_no_padding(config: HeadConfig) -> None:
    head, ((x,), (mask,)) = make(config), batch(noise=1.0)
    x.requires_grad_(True)
    head([x], [mask]).square().sum().backward()
    assert x.grad is not None
    assert [name for name, p in head.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert (x.grad != 0).any(dim=2).equal(mask)


@pytest.mark.parametrize("config", CONFIGS)
def test_dropout_needs_a_generator_and_is_the_same_for_the_same_seed(config: HeadConfig) -> None:
    head, (x, mask) = make(config), batch()
    with torch.no_grad():
        plain = head(x, mask)
        assert torch.equal(head(x, mask), plain)
        one, again, other = (head(x, mask, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, plain)
    assert not torch.equal(one, other)


def test_the_last_of_vectors_without_directions_is_the_last_word() -> None:
    (x,), (mask,) = batch()
    _, _, last = read_out(x, mask, directional=False)
    for row, length in enumerate(LENGTHS):
        wanted = x[row, length - 1] if length else torch.zeros(DIM)
        assert torch.equal(last[row], wanted)
