"""Word vectors as the encoder of a classifier, and the linear head on top of either kind of encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.heads import LinearHead
from elmokit.tasks.layer_cache import cached_sources, number_texts
from elmokit.tasks.model import TaskModel, load_encoder
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import TextConfig
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import Encoder
from topics import EASY, TOPICS, examples, make_elmo, probabilities, rows

TASK = get_task("classify")

WORDS = ["the", "a", "we", "saw", "bank", "profit", "goal", "coach", "rain", "storm"]
CLASSES = sorted(TOPICS)


@pytest.fixture
def static() -> WordVectors:
    table = np.random.default_rng(0).normal(size=(len(WORDS), 9)).astype(np.float32)
    return WordVectors.of(WORDS, table, TextConfig(), {"method": "svd"}).standardize()


@pytest.fixture
def elmo() -> Elmo:
    return make_elmo()


def accuracy(model: TaskModel, part: Examples) -> float:
    return float(TASK.measure(part, list(model.predict(part.inputs))).accuracy)


def fit(encoder: Encoder, *, valid: bool = True, n: int = 60, **settings: Any) -> TaskModel:
    config = ClassifierConfig.from_flat(**{**EASY, **settings})
    return fit_task(TASK, encoder, examples(n), examples(30, 1) if valid else None, config)


# -- word vectors -----------------------------------------------------------------------------


def test_numbered_texts_give_what_a_batch_of_words_gives(static: WordVectors) -> None:
    texts = ["we saw the storm", "", "profit xyzzy", "a"]
    numbered = number_texts(static, [(text,) for text in texts], 400)
    (ids,) = numbered.fields
    assert ids.lengths.tolist() == [4, 1, 2, 1]
    assert numbered.n_empty == 1
    out = static.layers(ids, np.arange(4))
    wanted = static.batch(static.words(texts))
    assert torch.equal(out.values[0], wanted.values[0])
    assert torch.equal(out.mask, wanted.mask)


@pytest.mark.parametrize("head", ["pool", "bilstm", "linear"])
def test_word_vectors_feed_the_same_heads(static: WordVectors, head: str, tmp_path: Path) -> None:
    before = static.vectors.copy()
    result = fit(static, head=head, mix="frozen", n=90, epochs=10)
    assert max(entry["accuracy"] for entry in result.record.history) >= 0.95
    np.testing.assert_array_equal(static.vectors, before)
    result.save(tmp_path / "model")
    texts = [text for text, _ in rows(20, 3)] + ["", "xyzzy"]
    found = probabilities(TaskModel.load(tmp_path / "model"), texts)
    np.testing.assert_array_equal(found, probabilities(result, texts))


def test_fine_tuning_moves_a_copy_of_the_table(static: WordVectors, tmp_path: Path) -> None:
    before = static.vectors.copy()
    assert static.training["standardized"]
    tuned = fit(static, finetune=True, unfreeze_every=0.0, dropout_word=0.1, dropout_input=0.1).encoder
    assert isinstance(tuned, WordVectors)
    np.testing.assert_array_equal(static.vectors, before)
    assert not np.array_equal(tuned.vectors, before)
    tuned.save(tmp_path / "tuned")
    again = load_encoder(tmp_path / "tuned")
    assert isinstance(again, WordVectors)
    np.testing.assert_array_equal(again.vectors, tuned.vectors)
    assert again.training["fine_tuned"]


# -- no validation rows -----------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["auto", "no"])
def test_without_validation_rows_the_last_weights_count(elmo: Elmo, cache: str) -> None:
    result = fit(elmo, valid=False, cache=cache, n=90)
    assert result.record.history == []
    assert accuracy(result, examples(30, 1)) >= 0.95


# -- the linear head --------------------------------------------------------------------------


def test_the_linear_head_takes_the_top_layer_or_with_validation_rows_tries_layers_and_penalties(
    elmo: Elmo,
) -> None:
    result = fit(elmo, head="linear", valid=False)
    assert result.network.mix.values() == {"mix_0": 0.0, "mix_1": 0.0, "mix_2": 1.0}
    assert [entry["l2"] for entry in result.record.history] == [2.0]
    result = fit(elmo, head="linear", l2=1.0)
    assert len(result.record.history) == 4 * 4
    assert {entry["l2"] for entry in result.record.history} == {1.0, 0.1, 0.01, 0.001}
    best = max(entry["accuracy"] for entry in result.record.history)
    assert accuracy(result, examples(30, 1)) == pytest.approx(best)


def test_given_and_frozen_mixes_stay_with_the_linear_head(elmo: Elmo) -> None:
    mix = fit(elmo, head="linear", mix_weights="0.5,0.2,0.3").network.mix.values()
    assert list(mix.values()) == pytest.approx([0.5, 0.2, 0.3])
    frozen = fit(elmo, head="linear", mix="frozen", seed=3, l2=0.0).network.mix.values()
    assert sum(frozen.values()) == pytest.approx(1)


@pytest.mark.parametrize("more", [{"finetune": True}, {"mix": "function"}])
def test_the_linear_head_refuses_what_needs_training(elmo: Elmo, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="does not support --"):
        fit(elmo, head="linear", **more)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("l2", [2.0, 0.01])
def test_the_solution_minimizes_the_mean_loss_and_the_penalty(elmo: Elmo, several: bool, l2: float) -> None:
    one, rng = examples(60), np.random.default_rng(0)
    table = np.pad(np.eye(3, dtype=np.float32)[one.targets], ((0, 0), (0, 1)))  # and a class without rows
    labels, targets = Labels((*CLASSES, "none"), "|" if several else ""), table if several else one.targets
    weights = rng.uniform(0, 2, size=60).astype(np.float32)
    part = Examples(one.inputs, targets, labels, weights=weights)
    model = fit_task(TASK, elmo, part, None, ClassifierConfig.from_flat(head="linear", l2=l2))
    head = model.network.head
    assert isinstance(head, LinearHead)
    scores, _ = model.network([elmo.batch(elmo.words([text for (text,) in part.inputs]))])
    losses = F.cross_entropy(scores, torch.from_numpy(one.targets), reduction="none")
    if several:
        losses = F.binary_cross_entropy_with_logits(scores, torch.from_numpy(table), reduction="none").sum(1)
    loss = (losses * torch.from_numpy(weights / weights.mean())).mean()
    loss = loss + l2 / 2 * head.output.weight.square().sum()
    slopes = torch.autograd.grad(loss, (head.output.weight, head.output.bias))
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-4
    assert np.all(probabilities(model, [text for (text,) in part.inputs])[:, 3] < 0.01)
    assert accuracy(model, part) > 0.95 or l2 > 1


def test_cached_layers_serve_the_linear_head(elmo: Elmo, tmp_path: Path) -> None:
    config, parts = ClassifierConfig.from_flat(head="linear"), (examples(60), examples(30, 1))
    plain = fit_task(TASK, elmo, *parts, config)
    cached_sources([number_texts(elmo, part.inputs, 400) for part in parts], tmp_path, Reporter("silent"))
    assert len(list(tmp_path.glob("layers-*"))) == 2
    cached = fit_task(TASK, elmo, *parts, config, layers_folder=tmp_path)
    texts = [text for text, _ in rows(30, 1)]
    found, wanted = (probabilities(result, texts) for result in (cached, plain))
    np.testing.assert_allclose(found, wanted, atol=5e-3)
