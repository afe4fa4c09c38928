"""Fitting a head: what learns and what stays, what is cached, what each row counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
import torch
from torch import Tensor

import topics
from elmokit.core.errors import ConfigError, DataError
from elmokit.core.tensors import load_tensors
from elmokit.tasks import layer_cache, trainer
from elmokit.tasks.layer_cache import number_texts, write_layers
from elmokit.tasks.model import Network, TaskModel
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, get_task
from elmokit.tasks.trainer import TaskTraining, fit_task
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import TokenIds
from folders import drop_checksums
from topics import examples as rows
from topics import make_elmo, make_examples, probabilities

TASK = get_task("classify")
EASY = {**topics.EASY, "epochs": 4}
PLAIN = {**EASY, "dropout_input": 0.0, "dropout_layer": 0.0, "label_smoothing": 0.0}


def texts(n: int, seed: int) -> list[str]:
    return [text for text, _ in topics.rows(n, seed)]


def fit(elmo: Elmo, config: ClassifierConfig, n: int = 60, **more: Any) -> TaskModel:
    return fit_task(TASK, elmo, rows(n), rows(30, 1), config, **more)


def settings(**values: Any) -> ClassifierConfig:
    return ClassifierConfig.from_flat(**{**EASY, **values})


def elmo_of(result: TaskModel) -> Elmo:
    """The encoder of what was fitted."""
    encoder = result.encoder
    assert isinstance(encoder, Elmo)
    return encoder


def copies(elmo: Elmo) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in elmo.model.named_parameters()}


def moved(before: dict[str, Tensor], elmo: Elmo) -> set[str]:
    """Names of the encoder's parameters that are not the same bits as before."""
    after = copies(elmo)
    return {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}


def training_of(config: ClassifierConfig, examples: Examples) -> TaskTraining:
    elmo = make_elmo()
    source = number_texts(elmo, examples.inputs, config.fit.max_words)
    torch.manual_seed(0)
    network = Network(TASK, config, elmo.n_layers, elmo.dim, examples.labels)
    return TaskTraining(TASK, network, [(examples, source), (examples, source)])


def step_losses(task: TaskTraining, epoch: int = 0) -> list[float]:
    task.start_epoch(epoch)
    rng = torch.Generator().manual_seed(0)
    return [float(task.step(index, {}, rng).loss.detach()) for index in range(task.steps_per_epoch())]


# -- what learns and what stays ---------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [{"mix_form": "softmax", "cache": "no"}, {"mix": "function"}, {"head": "bilstm", "head_dim": 8}],
    ids=["softmax", "function", "bilstm"],
)
def test_a_frozen_encoder_keeps_its_bits_while_mix_and_head_learn(more: dict[str, Any]) -> None:
    elmo, config = make_elmo(), settings(**more)
    before = copies(elmo)
    torch.manual_seed(config.fit.seed)
    fresh = dict(Network(TASK, config, 3, 24, rows(3).labels).named_parameters())
    random_state = torch.get_rng_state()
    result = fit(elmo, config, n=90)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert moved(before, elmo) == set()
    assert all(p.requires_grad for p in elmo.model.parameters())
    network, history, valid = result.network, result.record.history, rows(30, 1)
    assert [name for name, p in network.named_parameters() if torch.equal(p, fresh[name])] == []
    assert history[-1]["accuracy"] >= 0.95
    metrics = TASK.measure(valid, list(result.predict(valid.inputs)))  # what validation saw
    assert metrics.accuracy == pytest.approx(max(entry["accuracy"] for entry in history))


@pytest.mark.parametrize("input", ["word", "char"])
def test_fine_tuning_changes_the_whole_encoder_but_not_the_word_predictor(input: str) -> None:
    elmo = make_elmo(input=input, max_chars=8, char_dim=4, filters=((1, 4), (2, 4)))
    before = copies(elmo)
    result = fit(elmo, settings(finetune=True, unfreeze_every=0.0, epochs=1))
    tuned = elmo_of(result)
    assert moved(before, tuned) == {name for name in before if not name.startswith("predictor.")}
    assert not moved(before, elmo)  # the caller's stays as it is
    assert all(parameter.requires_grad for parameter in elmo.model.parameters())
    assert tuned.folder.training["fine_tuned"]
    assert tuned.folder.start_state is None


def test_a_fine_tuned_classifier_predicts_with_the_new_weights_of_its_encoder() -> None:
    elmo = make_elmo()
    elmo.embed(["bank rain goal"])  # now it holds vectors of these words
    result = fit(elmo, settings(finetune=True, encoder_lr=0.05))
    fresh = replace(result, encoder=Elmo(elmo_of(result).folder))
    assert np.array_equal(probabilities(result, texts(12, 5)), probabilities(fresh, texts(12, 5)))


@pytest.mark.parametrize("n_layers", [1, 3])
def test_layers_unfreeze_from_the_top_each_in_its_time(n_layers: int, tmp_path: Path) -> None:
    for n_epochs in range(2, n_layers + 3):
        elmo, run = make_elmo(n_layers=n_layers), tmp_path / str(n_epochs)
        run.mkdir()
        before = copies(elmo)
        fit(
            elmo,
            settings(finetune=True, unfreeze_every=1.0, epochs=n_epochs, schedule="constant"),
            n=30,
            run=run,
        )
        after, _ = load_tensors(run / "checkpoint.safetensors")  # the last weights, not the best
        names = [name for name in before if not name.startswith("predictor.")]
        found = {name for name in names if not torch.equal(before[name], after[f"weights.encoder.{name}"])}
        lowest = n_layers - (n_epochs - 1)  # in the first epoch only mix and head learn
        stacks = {name for name in names for depth in range(lowest, n_layers) if f".{depth}." in name}
        assert found == (set(names) if lowest < 0 else stacks)


def test_an_unfreezing_that_would_never_come_is_refused() -> None:
    with pytest.raises(ConfigError, match="no encoder layer would learn in 2 epochs"):
        fit(make_elmo(), settings(finetune=True, unfreeze_every=2.0, epochs=2))


def test_learning_rates_fall_from_layer_to_layer() -> None:
    config = settings(finetune=True, lr=1e-2, encoder_lr=5e-3, layer_decay=0.5)
    task = training_of(config, rows(6))
    scales = task.lr_scales()
    assert scales["encoder.forward_stack.layers.1.input_weight"] == pytest.approx(0.5)
    assert scales["encoder.backward_stack.layers.0.bias"] == pytest.approx(0.25)
    assert scales["encoder.encoder.weight"] == pytest.approx(0.125)
    theirs = {f"encoder.{n}" for n, _ in task.module.named_parameters() if not n.startswith("predictor.")}
    assert set(scales) == theirs
    assert set(task.parameters()) == theirs | {name for name, _ in task.network.named_parameters()}


# -- kept layers ------------------------------------------------------------------------------


def test_kept_layers_give_what_layers_computed_anew_do() -> None:
    with_dropout = {"dropout_head": 0.2, "dropout_word": 0.1, "head": "bilstm", "head_dim": 8}
    kept, anew = (fit(make_elmo(), settings(**with_dropout, cache=cache)) for cache in ("yes", "no"))
    losses = [[entry["valid_loss"] for entry in model.record.history] for model in (kept, anew)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # kept in half precision
    both = [probabilities(model, texts(20, 7)) for model in (kept, anew)]
    np.testing.assert_allclose(both[0], both[1], atol=2e-2)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each pass of an encoder over texts to be kept."""
    passes: list[int] = []
    plain = Elmo.precompute

    def precompute(elmo: Elmo, ids: TokenIds) -> TokenIds:
        passes.append(len(ids))
        return plain(elmo, ids)

    monkeypatch.setattr(Elmo, "precompute", precompute)
    return passes


def test_layers_in_a_folder_serve_the_next_fit_which_computes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, shared = counted(monkeypatch), tmp_path / "shared" / "layers"
    first = fit(make_elmo(), settings(), layers_folder=shared)
    again = fit(make_elmo(), settings(), layers_folder=shared)
    fit(make_elmo(), settings(mix="frozen", head="bilstm", head_dim=4, epochs=2), layers_folder=shared)
    assert passes == [60, 30]
    assert again.record.history == first.record.history
    # Other texts or another encoder are other layers; damaged files are made anew.
    fit(make_elmo(), settings(epochs=2), n=45, layers_folder=shared)
    fit(make_elmo(n_layers=1), settings(epochs=2), layers_folder=shared)
    assert passes == [60, 30, 45, 60, 30]
    for file in shared.iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    assert fit(make_elmo(), settings(), layers_folder=shared).record.history == again.record.history
    assert passes == [60, 30, 45, 60, 30, 60, 30]


def test_auto_keeps_layers_only_if_they_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Path] = []

    def write(*args: Any) -> None:
        kept.append(args[2])
        write_layers(*args)

    monkeypatch.setattr(layer_cache, "write_layers", write)
    fit(make_elmo(), settings(epochs=1, cache="auto"))
    fit(make_elmo(), settings(epochs=2, cache="no"))
    fit(make_elmo(), settings(epochs=1, cache="yes", finetune=True))
    assert kept == []
    fit(make_elmo(), settings(epochs=2, cache="auto"))
    assert len(kept) == 2


def test_layers_that_do_not_fit_on_the_disk_are_computed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = fit(make_elmo(), settings(cache="no")).record.history

    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    assert fit(make_elmo(), settings(cache="auto")).record.history == wanted


# -- what each row counts ---------------------------------------------------------------------


def single_batch(**values: Any) -> ClassifierConfig:
    return ClassifierConfig.from_flat(**{**PLAIN, "batch_words": 10_000, **values})


def scores_of(task: TaskTraining) -> Tensor:
    with torch.no_grad():
        scores, _ = task.network(task.layers.batch(np.arange(len(task.examples))))
        return Tensor(scores).double()


def softmax_losses(scores: Tensor) -> npt.NDArray[np.float64]:
    """Minus the logarithm of each class's probability."""
    return -np.asarray(scipy.special.log_softmax(scores.numpy(), axis=1))


def test_the_loss_with_label_smoothing_is_what_a_hand_makes_it() -> None:
    task = training_of(single_batch(label_smoothing=0.2), rows(9))
    wanted = np.eye(3)[task.examples.targets] * 0.8 + 0.2 / 3
    by_hand = (wanted * softmax_losses(scores_of(task))).sum(axis=1).mean()
    assert step_losses(task) == [pytest.approx(by_hand, rel=1e-5)]
    values = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=np.float32)  # several labels
    task = training_of(single_batch(label_smoothing=0.2), make_examples(texts(4, 0), values))
    chances, wanted = 1 / (1 + np.exp(-scores_of(task).numpy())), values * 0.8 + 0.1
    by_hand = -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances)).mean()
    assert step_losses(task) == [pytest.approx(by_hand, rel=1e-5)]


def test_balanced_classes_count_the_same_however_many_rows_they_have() -> None:
    targets = np.repeat([0, 1, 2], [6, 3, 1])
    examples = make_examples(texts(10, 0), targets)
    task = training_of(single_batch(class_weights="balanced"), examples)
    losses = softmax_losses(scores_of(task))[np.arange(10), targets]
    by_class = [losses[targets == place].mean() for place in range(3)]
    assert step_losses(task) == [pytest.approx(np.mean(by_class), rel=1e-5)]
    equal = training_of(single_batch(), examples)
    assert step_losses(equal) == [pytest.approx(losses.mean(), rel=1e-5)]


@pytest.mark.parametrize("class_weights", ["equal", "balanced"])
def test_a_row_of_weight_zero_counts_like_one_left_out_and_of_weight_two_like_two(class_weights: str) -> None:
    config = single_batch(class_weights=class_weights)
    weights = np.array([1, 0, 1, 2, 1, 1, 0, 2, 1], dtype=np.float32)
    weighted = training_of(config, replace(rows(9), weights=weights))
    repeated = training_of(config, rows(9).select(np.repeat(np.arange(9), weights.astype(int))))
    assert step_losses(weighted) == [pytest.approx(step_losses(repeated)[0], rel=1e-5)]


def test_weights_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="zero"):
        training_of(settings(), replace(rows(6), weights=np.zeros(6, dtype=np.float32)))
    several = make_examples(texts(6, 0), np.eye(3, dtype=np.float32)[np.arange(6) % 3])
    with pytest.raises(ConfigError, match="exactly one label"):
        training_of(settings(class_weights="balanced"), several)


# -- the same every time ----------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"finetune": True}, {"head": "bilstm", "cache": "no"}])
def test_the_same_seed_gives_the_same_bits_and_another_other_ones(more: dict[str, Any]) -> None:
    config = {"dropout_head": 0.3, "dropout_word": 0.1, "epochs": 2, "head_dim": 8, **more}
    torch.manual_seed(4)
    first = fit(make_elmo(), settings(**config))
    torch.manual_seed(5)  # what the generator of all has drawn before does not count
    again = fit(make_elmo(), settings(**config))
    other = fit(make_elmo(), settings(**config, seed=1))
    assert first.record.history == again.record.history
    wanted, same, others = (probabilities(result, texts(20, 3)) for result in (first, again, other))
    assert np.array_equal(same, wanted)
    assert not np.array_equal(others, wanted)


def test_order_and_company_of_texts_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for head in ("pool", "bilstm"):
        model = fit(make_elmo(), settings(head=head, head_dim=8, epochs=1))
        some = [*texts(30, 2), "", "bank " * 60, "rain"]
        wanted = probabilities(model, some)
        np.testing.assert_allclose(wanted.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(probabilities(model, some[::-1])[::-1], wanted, atol=1e-5)
        alone = np.concatenate([probabilities(model, [text]) for text in some])
        np.testing.assert_allclose(alone, wanted, atol=1e-5)
        monkeypatch.setattr("elmokit.tasks.model.BATCH_WORDS", 40)
        monkeypatch.setattr("elmokit.tasks.model._CHUNK_ROWS", 7)
        done: list[int] = []
        streamed = model.predict(((text,) for text in some), progress=done.append)
        np.testing.assert_allclose([one.probabilities for one in streamed], wanted, atol=1e-5)
        assert done == [7, 7, 7, 7, 5]
        monkeypatch.undo()


# -- texts of every kind ----------------------------------------------------------------------


def test_long_texts_are_cut_and_empty_ones_kept_and_both_are_told() -> None:
    train = make_examples(["rain " * 5_000, "", *texts(30, 0)[2:]], rows(30).targets)
    result = fit_task(TASK, make_elmo(), train, rows(9, 1), settings(epochs=1, max_words=20))
    assert result.record.notes == (
        "Truncated to 20 words (max_words): 1 of 39 rows for training and validation.",
        "Without words: 1 of 39 rows for training and validation.",
    )
    long, cut = "bank goal " * 10 + "rain storm " * 5_000, "bank goal " * 10
    both = list(result.predict([(long,), (cut,)]))
    np.testing.assert_allclose(both[0].probabilities, both[1].probabilities, atol=1e-6)
    assert [prediction.n_cut for prediction in both] == [10_000, 0]


@pytest.mark.parametrize("head", ["pool", "bilstm", "linear"])
def test_heads_read_words_and_no_edges(head: str, tmp_path: Path) -> None:
    model = fit(make_elmo(), settings(head=head, head_dim=8, epochs=1))
    words = model.encoder.batch([["rain", "we"], ["bank"], []])
    noisy = tuple(layer.clone() for layer in words.values)
    for layer in noisy:
        layer[:, 0] += 9.0  # <s>
        layer[[0, 1, 2], [3, 2, 1]] -= 9.0  # </s>
    with torch.no_grad():
        output, (mask,) = model.network([words])
        assert torch.equal(model.network([replace(words, values=noisy)])[0], output)
        empty, _ = model.network([model.encoder.batch([[]])])
    assert mask.tolist() == [[True, True], [True, False], [False, False]]
    torch.testing.assert_close(output[2:], empty)
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["settings"]["head"].pop("pool_edges") is False
    file.write_text(json.dumps(record), encoding="utf-8")  # as 0.1 wrote it
    drop_checksums(tmp_path / "model")
    assert TaskModel.load(tmp_path / "model").network([words])[1][0].tolist() == words.mask.tolist()


def test_epochs_are_chosen_by_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    few = fit(make_elmo(), settings(epochs=0, max_steps=3), n=6)
    assert few.config.fit.epochs == trainer._MOST_EPOCHS
    config = settings(epochs=0, max_steps=3, batch_words=8)
    monkeypatch.setattr(trainer, "_VISITS", 1500)  # a step holds one text, yet each is read ten times
    assert fit(make_elmo(), config, n=150).config.fit.epochs == 10
    monkeypatch.setattr(trainer, "_VISITS", 500)
    assert fit(make_elmo(), config, n=150).config.fit.epochs == 5
