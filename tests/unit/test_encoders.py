"""Word vectors as the encoder of a classifier, and the linear head on top of either kind of encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from elmokit.core.errors import ConfigError
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.encoders import Encoder, load_encoder
from elmokit.tasks.encoders import save_encoder as write_encoder
from elmokit.tasks.folder import load_classifier, save_classifier
from elmokit.tasks.layer_cache import number_texts
from elmokit.tasks.linear_head import minimised
from elmokit.tasks.model import Targets
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.trainer import FitResult, fit_classifier, keep_all_layers
from elmokit.text.settings import TextConfig
from elmokit.vectors.elmo import Elmo
from topics import EASY, TOPICS, rows, save_encoder

WORDS = ["the", "a", "we", "saw", "bank", "profit", "goal", "coach", "rain", "storm"]
CLASSES = sorted(TOPICS)


@pytest.fixture
def static() -> WordVectors:
    table = np.random.default_rng(0).normal(size=(len(WORDS), 9)).astype(np.float32)
    return WordVectors.of(WORDS, table, TextConfig(), {"method": "svd"}).standardize()


@pytest.fixture
def elmo(tmp_path: Path) -> Elmo:
    save_encoder(tmp_path / "elmo")
    return Elmo.load(tmp_path / "elmo")


def targets(n: int, seed: int = 0) -> tuple[list[str], Targets]:
    found = rows(n, seed)
    return [text for text, _ in found], Targets(CLASSES, np.array([CLASSES.index(y) for _, y in found]))


def fit(encoder: Encoder, *, valid: bool = True, n: int = 60, **settings: Any) -> FitResult:
    config = ClassifierConfig.from_flat(**{**EASY, **settings})
    return fit_classifier(encoder, targets(n), targets(30, 1) if valid else None, config)


# -- word vectors -----------------------------------------------------------------------------


def test_a_static_batch_holds_the_words_vectors_and_zeros_past_the_end(static: WordVectors) -> None:
    words = [["the", "bank"], ["rain"], [], ["xyzzy", "<pad>"]]
    out = static.batch(words)
    assert [tuple(layer.shape) for layer in out.values] == [(4, 2, 9)]
    wanted = static.look_up(["the", "bank"])
    np.testing.assert_array_equal(out.values[0][0].numpy(), wanted)
    np.testing.assert_array_equal(out.values[0][1, 0].numpy(), static.vector("rain"))
    assert not out.values[0][1, 1].any()
    assert not out.values[0][2].any()
    assert out.mask.tolist() == [[True, True], [True, False], [True, False], [True, True]]
    np.testing.assert_array_equal(out.values[0][3, 0].numpy(), static.vector("<unk>"))


def test_numbered_texts_give_what_a_batch_of_words_gives(static: WordVectors) -> None:
    texts = ["we saw the storm", "", "profit xyzzy", "a"]
    numbered = number_texts(static, texts, 400)
    assert numbered.ids.lengths.tolist() == [4, 1, 2, 1]
    assert numbered.n_empty == 1
    out = static.layers(numbered.ids, np.arange(4))
    wanted = static.batch(static.words(texts))
    assert torch.equal(out.values[0], wanted.values[0])
    assert torch.equal(out.mask, wanted.mask)


@pytest.mark.parametrize("head", ["pool", "bilstm", "linear"])
def test_word_vectors_feed_the_same_heads(static: WordVectors, head: str, tmp_path: Path) -> None:
    before = static.vectors.copy()
    result = fit(static, head=head, mix="frozen", n=90, epochs=10)
    assert max(entry["accuracy"] for entry in result.history) >= 0.95
    np.testing.assert_array_equal(static.vectors, before)
    save_classifier(tmp_path / "model", result.classifier)
    texts = [text for text, _ in rows(20, 3)] + ["", "xyzzy"]
    wanted = result.classifier.probabilities(texts)
    np.testing.assert_array_equal(load_classifier(tmp_path / "model").probabilities(texts), wanted)


def test_fine_tuning_moves_a_copy_of_the_table(static: WordVectors, tmp_path: Path) -> None:
    before = static.vectors.copy()
    assert static.training["standardized"]
    tuned = fit(static, finetune=True, thaw=0.0, dropout_word=0.1, dropout_input=0.1).classifier.encoder
    assert isinstance(tuned, WordVectors)
    np.testing.assert_array_equal(static.vectors, before)
    assert not np.array_equal(tuned.vectors, before)
    write_encoder(tmp_path / "tuned", tuned)
    again = load_encoder(tmp_path / "tuned")
    assert isinstance(again, WordVectors)
    np.testing.assert_array_equal(again.vectors, tuned.vectors)
    assert again.training["fine_tuned"]


def test_layers_of_word_vectors_are_kept_only_when_asked_for(static: WordVectors, tmp_path: Path) -> None:
    config = ClassifierConfig.from_flat(**{**EASY, "mix": "frozen"})
    fit_classifier(static, targets(30), targets(30, 1), config, layers_folder=tmp_path / "layers")
    assert not (tmp_path / "layers").exists()


def test_the_same_seed_gives_the_same_bits(static: WordVectors) -> None:
    first, second = (fit(static, mix="frozen", dropout_head=0.2, epochs=2) for _ in range(2))
    assert first.history == second.history


def test_a_table_that_points_one_way_is_levelled_once(tmp_path: Path) -> None:
    table = 5 + 0.01 * np.random.default_rng(0).normal(size=(len(WORDS), 9)).astype(np.float32)
    encoder = WordVectors.of(WORDS, table, TextConfig(), {}).standardize()
    own = encoder.look_up(WORDS)
    np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-4)
    assert own.std() == pytest.approx(1, rel=1e-3)
    assert not encoder.vectors[0].any()
    assert encoder.standardize() is encoder
    assert max(entry["accuracy"] for entry in fit(encoder, mix="frozen", n=90, epochs=10).history) >= 0.9
    write_encoder(tmp_path / "saved", encoder)
    again = load_encoder(tmp_path / "saved")
    assert isinstance(again, WordVectors)
    np.testing.assert_array_equal(again.vectors, encoder.vectors)


# -- no validation rows -----------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["auto", "no"])
def test_without_validation_rows_the_last_weights_count(elmo: Elmo, cache: str) -> None:
    result = fit(elmo, valid=False, cache=cache, n=90)
    assert result.history == []
    texts, wanted = targets(30, 1)
    assert (result.classifier.probabilities(texts).argmax(axis=1) == wanted.values).mean() >= 0.95


# -- the linear head --------------------------------------------------------------------------


def test_the_solution_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 12))
    y = (x[:, :3] + rng.normal(size=(200, 3))).argmax(axis=1)
    weight, bias = minimised(
        torch.from_numpy(x).float(), torch.from_numpy(y), 3, l2=0.1, weights=torch.ones(200)
    )
    reference = LogisticRegression(C=1 / (200 * 0.1), tol=1e-10, max_iter=5000).fit(x.astype(np.float32), y)
    np.testing.assert_allclose(weight.numpy(), reference.coef_, atol=2e-4)
    gap = (bias.numpy() - bias.numpy().mean()) - (reference.intercept_ - reference.intercept_.mean())
    np.testing.assert_allclose(gap, 0, atol=5e-4)


def test_weights_of_rows_count_as_repeated_rows_do() -> None:
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.normal(size=(40, 5))).float(), torch.from_numpy(rng.integers(0, 2, 40))
    weights = torch.ones(40)
    weights[:10] = 3
    repeated = torch.cat([x, x[:10], x[:10]]), torch.cat([y, y[:10], y[:10]])
    once = minimised(x, y, 2, l2=0.5, weights=weights / weights.mean())
    thrice = minimised(*repeated, 2, l2=0.5, weights=torch.ones(60))
    torch.testing.assert_close(once[0], thrice[0], atol=1e-4, rtol=0)


def test_without_validation_rows_the_linear_head_takes_the_top_layer(elmo: Elmo) -> None:
    result = fit(elmo, head="linear", valid=False)
    assert result.classifier.network.mix.values() == {"mix_0": 0.0, "mix_1": 0.0, "mix_2": 1.0}
    assert [entry["l2"] for entry in result.history] == [2.0]


def test_with_validation_rows_it_tries_layers_and_penalties(elmo: Elmo) -> None:
    result = fit(elmo, head="linear", l2=1.0)
    assert len(result.history) == 4 * 4
    assert {entry["l2"] for entry in result.history} == {1.0, 0.1, 0.01, 0.001}
    best = max(entry["accuracy"] for entry in result.history)
    texts, wanted = targets(30, 1)
    found = result.classifier.probabilities(texts).argmax(axis=1) == wanted.values
    assert found.mean() == pytest.approx(best)


def test_given_and_frozen_mixes_stay_with_the_linear_head(elmo: Elmo) -> None:
    mix = fit(elmo, head="linear", mix_weights="0.5,0.2,0.3").classifier.network.mix.values()
    assert list(mix.values()) == pytest.approx([0.5, 0.2, 0.3])
    frozen = fit(elmo, head="linear", mix="frozen", seed=3).classifier.network.mix.values()
    assert sum(frozen.values()) == pytest.approx(1)


@pytest.mark.parametrize("more", [{"finetune": True}, {"mix": "function"}])
def test_the_linear_head_refuses_what_needs_training(elmo: Elmo, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="solved, not trained"):
        fit(elmo, head="linear", **more)


def test_the_linear_head_learns_several_labels(elmo: Elmo) -> None:
    texts, one = targets(60)
    values = np.eye(3, dtype=np.float32)[one.values]
    config = ClassifierConfig.from_flat(head="linear", l2=0.01)
    result = fit_classifier(elmo, (texts, Targets(CLASSES, values)), None, config)
    assert ((result.classifier.probabilities(texts) > 0.5) == (values > 0.5)).mean() > 0.95


def test_layers_kept_beforehand_serve_the_linear_head(elmo: Elmo, tmp_path: Path) -> None:
    config = ClassifierConfig.from_flat(head="linear")
    parts = [targets(60), targets(30, 1)]
    plain = fit_classifier(elmo, parts[0], parts[1], config)
    files = keep_all_layers(elmo, [texts for texts, _ in parts], config, tmp_path)
    assert all(file.exists() for file in files)
    kept = fit_classifier(elmo, parts[0], parts[1], config, layers_folder=tmp_path)
    texts = parts[1][0]
    np.testing.assert_allclose(
        kept.classifier.probabilities(texts), plain.classifier.probabilities(texts), atol=5e-3
    )
