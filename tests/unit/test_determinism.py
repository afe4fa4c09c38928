"""Same seed, same machine, same bits: also with another number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig


@pytest.mark.parametrize("objective", ["sampled", "full", "adaptive"])
def test_gradients_are_the_same_bits_every_time(objective: str) -> None:
    torch.manual_seed(0)
    config = BilmConfig.from_dict(
        {"input": "word", "dim": 64, "hidden_dim": 64, "objective": objective, "n_samples": 512}
    )
    model = Bilm(config, n_words=3_000)
    words = torch.randint(4, 3_000, (35, 64)).clamp(max=400)  # many words many times
    targets = torch.randint(1, 200, (2 * words.numel(),))

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        distinct, index = words.unique(return_inverse=True)
        (ahead, behind), _ = model.stream(
            distinct[:, None], torch.stack([index, index]), model.zero_state(64)
        )
        hidden = torch.cat([ahead.flatten(0, 1), behind.flatten(0, 1)])
        samples = model.predictor.draw(torch.Generator().manual_seed(1))
        model.predictor.training_loss(hidden, targets, samples).backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {name: grad.to_dense() if grad.is_sparse else grad for name, grad in found.items()}

    first = gradients()
    for _ in range(8):
        for name, gradient in gradients().items():
            assert torch.equal(gradient, first[name]), name
