"""The presets: all of them make a model, and the original one is as large as the published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from elmokit.bilm.lstm import LstmLayer
from elmokit.bilm.model import Bilm
from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import PRESETS, BilmConfig, PretrainConfig, resolve
from elmokit.core.errors import ConfigError


def meta_model(config: PretrainConfig, n_words: int) -> Bilm:
    """The model without memory behind it."""
    with torch.device("meta"):
        return Bilm(config.model, n_words, config.vocabulary.n_pieces)


def test_the_original_preset_has_the_published_shape_and_number_of_parameters() -> None:
    config = resolve("original")
    model = meta_model(config, config.vocabulary.max_words)
    rest = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("predictor."))
    assert rest / 1e6 == pytest.approx(93.6, abs=0.1)
    shape = model.config
    assert (shape.n_layers, shape.residual, shape.cell_clip, shape.proj_clip) == (2, True, 3.0, 3.0)
    assert (shape.max_chars, shape.char_activation) == (50, "relu")


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_makes_a_model(preset: str) -> None:
    config = resolve(preset)
    model = meta_model(config, config.vocabulary.max_words)
    for stack in (model.forward_stack, model.backward_stack):
        layers = [layer for layer in stack.modules() if isinstance(layer, LstmLayer)]
        assert [layer.hidden_dim for layer in layers] == [config.model.hidden_dim] * config.model.n_layers


def test_pretrain_takes_settings_flat_or_as_an_object(tmp_path: Path, tiny_corpus: Path) -> None:
    model: dict[str, Any] = {"dim": 4, "hidden_dim": 4, "filters": ((1, 4),)}
    training: dict[str, Any] = {"max_steps": 2, "held_out": 0.0}
    config = resolve("tiny", {"model": model, "training": training, "vocabulary": {"min_count": 1}})
    pretrain([tiny_corpus], tmp_path / "a", config)
    pretrain(tiny_corpus, tmp_path / "b", "tiny", **model, **training, min_count=1)
    sampled: PretrainConfig = replace(config, model=BilmConfig(**model))
    pretrain(tiny_corpus, tmp_path / "c", sampled, **{"model.objective": "full"})  # type: ignore[arg-type]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] == weights[2]
    with pytest.raises(ConfigError, match="no setting 'lrr'"):
        pretrain(tiny_corpus, tmp_path / "d", lrr=1)
    with pytest.raises(ConfigError, match="dim cannot be set"):
        pretrain(tiny_corpus, tmp_path / "d", from_model=tmp_path / "a", dim=8)
    assert not (tmp_path / "d").exists()
