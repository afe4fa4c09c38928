"""``TextClassifier`` with a head and a mix of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

import topics
from elmokit import TextClassifier, load
from elmokit.core.errors import ConfigError, ModelError
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Labels
from elmokit.vectors.settings import MixConfig

TEXTS, LABELS = map(list, zip(*topics.rows(90), strict=True))
EASY: dict[str, Any] = {"epochs": 5, "lr": 0.03, "options": {"batch_words": 128, "ema": 0.0}}


class Attention(nn.Module):
    """A head: a weighted mean over the words, with learned weights."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__()
        self.score, self.output = nn.Linear(dim, 1), nn.Linear(dim, len(labels))
        self.dropout = nn.Dropout(config.dropout_head)

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Any = None) -> Tensor:
        scores = self.score(mixed[0])[:, :, 0].masked_fill(~masks[0], -1e9)
        pooled = torch.einsum("bt,btd->bd", torch.softmax(scores, dim=1), mixed[0])
        out: Tensor = self.output(self.dropout(pooled))
        return out


class Gate(nn.Module):
    """A mix: the top layer and the token encoder, through a gate, half as wide."""

    def __init__(self, config: MixConfig, n_layers: int, dim: int) -> None:
        super().__init__()
        self.out_dim = dim // 2
        self.gate, self.narrow = nn.Linear(dim, dim), nn.Linear(dim, self.out_dim)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        share = torch.sigmoid(self.gate(layers[0]))
        out: Tensor = self.narrow(share * layers[0] + (1 - share) * layers[-1])
        return out


class Normed(Attention):
    """A head with buffers, which are not kept."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self.norm = nn.BatchNorm1d(dim)


class Tagger(nn.Module):
    """A head that gives scores of every word."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__()
        self.output = nn.Linear(dim, len(labels))

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Any = None) -> Any:
        return self.output(mixed[0])


@pytest.mark.parametrize("parts", [{"head": Attention}, {"mix": Gate}, {"head": Attention, "mix": Gate}])
def test_own_parts_learn_and_are_saved_without_code(
    encoder: Path, parts: dict[str, Any], tmp_path: Path
) -> None:
    made = clone(TextClassifier(encoder, **parts, **EASY)).fit(TEXTS, LABELS)
    assert made.score(TEXTS, LABELS) >= 0.95
    expected = made.predict_proba(TEXTS)
    assert np.array_equal(made.predict_proba(TEXTS), expected)  # no dropout
    assert all(part.__name__ in repr(made) for part in parts.values())
    made.save(tmp_path / "made")
    card = (tmp_path / "made" / "README.md").read_text(encoding="utf-8")
    assert "a class that is not stored here" in card
    again = TextClassifier.load(tmp_path / "made", **parts)
    assert np.array_equal(again.predict_proba(TEXTS), expected)
    assert {name: again.get_params()[name] for name in parts} == parts
    joblib.dump(made, tmp_path / "made.joblib")
    assert np.array_equal(joblib.load(tmp_path / "made.joblib").predict_proba(TEXTS), expected)


def test_a_folder_with_own_parts_says_how_to_load_it(encoder: Path, tmp_path: Path) -> None:
    made = TextClassifier(encoder, head=Attention, **{**EASY, "epochs": 1}).fit(TEXTS, LABELS)
    made.save(tmp_path / "made")
    for call in (load, TextClassifier.load):
        with pytest.raises(ModelError) as caught:
            call(tmp_path / "made")
        assert "TextClassifier.load(folder, head=Attention)" in (caught.value.remedy or "")
    with pytest.raises(ModelError, match="other classes"):
        TextClassifier.load(tmp_path / "made", head=Tagger)
    usual = TextClassifier(encoder, head="pool", **{**EASY, "epochs": 1}).fit(TEXTS, LABELS)
    usual.save(tmp_path / "usual")
    with pytest.raises(ModelError, match="other classes"):
        TextClassifier.load(tmp_path / "usual", head=Attention)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"head": Normed}, "the buffer 'head.norm.running_mean'"),
        ({"head": Tagger}, "the head gave scores of shape"),
        ({"head": "linear", "mix": Gate}, "linear head does not train a mix"),
    ],
)
def test_parts_that_do_not_fit_are_refused(encoder: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextClassifier(encoder, **parts, **EASY).fit(TEXTS, LABELS)
