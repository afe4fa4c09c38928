"""The whole biLM against the numpy reference: every layer, both directions, and the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import torch
from torch import Tensor

from elmokit.bilm.model import Bilm, Noise
from elmokit.bilm.settings import BilmConfig, TrainingConfig
from elmokit.bilm.state import BilmState
from elmokit.text.vocabulary import Characters

TOLERANCE = 1e-5
N_WORDS, N_PIECES = 12, 15
WORDS = ["<pad>", "<unk>", "<s>", "</s>", "a", "be", "cat", "dogs", "early", "x", "yy", "zzzzzzzz"]

SHAPES: dict[str, dict[str, Any]] = {
    "char": {"input": "char", "dim": 5, "hidden_dim": 5, "n_highway": 1},
    "char, projected and clipped": {
        "input": "char",
        "dim": 4,
        "hidden_dim": 6,
        "cell_clip": 0.2,
        "proj_clip": 0.1,
        "n_highway": 2,
        "char_activation": "tanh",
    },
    "word, not residual": {"input": "word", "dim": 5, "hidden_dim": 5, "residual": False},
    "word, projected, 3 layers": {"input": "word", "dim": 3, "hidden_dim": 5, "n_layers": 3},
    "subword": {"input": "subword", "dim": 4, "hidden_dim": 4, "n_layers": 1},
    "morpheme, max": {"input": "morpheme", "dim": 4, "hidden_dim": 4, "pooling": "max"},
}


def config_of(shape: str) -> BilmConfig:
    common = {"max_chars": 8, "char_dim": 3, "filters": ((1, 3), (3, 4))}
    return BilmConfig.from_dict({**common, **SHAPES[shape]})


def model_of(shape: str) -> Bilm:
    torch.manual_seed(7)
    model = Bilm(config_of(shape), N_WORDS, N_PIECES)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "stack" in name:
                parameter.normal_(0.0, 0.7)
    return model.eval()


def features_of(config: BilmConfig) -> Tensor:
    """A row for each of the N_WORDS words."""
    if config.input == "char":
        return torch.from_numpy(Characters(config.max_chars).rows(WORDS).astype(np.int64))
    if config.input == "word":
        return torch.arange(N_WORDS).unsqueeze(1)
    rows = torch.randint(1, N_PIECES, (N_WORDS, 3), generator=torch.Generator().manual_seed(0))
    rows[:6, 2] = 0
    rows[0] = 0
    return rows


def array(tensor: Tensor) -> reference.Array:
    return tensor.detach().double().numpy()


class Reference:
    """The reference with the weights of a model."""

    def __init__(self, model: Bilm) -> None:
        self.config = model.config
        weights = {name: array(parameter) for name, parameter in model.named_parameters()}
        clips = self.config.cell_clip, self.config.proj_clip
        self.forward = reference.stack_weights(weights, "forward_stack", *clips)
        self.backward = reference.stack_weights(weights, "backward_stack", *clips)
        prefix = "encoder."
        self.encoder = {
            name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)
        }

    def vector(self, row: reference.Ints) -> reference.Array:
        if self.config.input == "word":
            own: reference.Array = self.encoder["weight"][row[0]]
            return own
        if self.config.input == "char":
            return reference.char_cnn(
                row,
                self.encoder,
                n_filters=len(self.config.filters),
                n_highway=self.config.n_highway,
                activation=self.config.char_activation,
            )
        return reference.pool_pieces(row, self.encoder["weight"], self.config.pooling)

    def vectors(self, features: Tensor, words: Tensor) -> reference.Array:
        return np.stack([self.vector(row) for row in features[words].numpy()])


def random_state(model: Bilm, n_rows: int) -> BilmState:
    rng = torch.Generator().manual_seed(11)
    zero = model.zero_state(n_rows).tensors()
    return BilmState.from_tensors(
        {name: torch.randn(tensor.shape, generator=rng) * 0.1 for name, tensor in zero.items()}
    )


def state_row(state: BilmState, row: int) -> BilmState:
    return BilmState.from_tensors({name: tensor[row : row + 1] for name, tensor in state.tensors().items()})


def row_state(state: BilmState, row: int) -> tuple[list[reference.State], list[reference.State]]:
    forward = [(array(h[row]), array(c[row])) for h, c in state.forward]
    backward = [(array(h[row]), array(c[row])) for h, c in state.backward]
    return forward, backward


@pytest.mark.parametrize("with_state", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("lengths", [None, [5, 7, 1, 3]], ids=["full", "padded"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_layer_and_the_final_state_equal_the_reference_of_each_text_alone(
    shape: str, lengths: list[int] | None, with_state: bool
) -> None:
    model = model_of(shape)
    features = features_of(model.config)
    index = torch.randint(0, N_WORDS, (4, 7), generator=torch.Generator().manual_seed(3))
    sizes = None if lengths is None else torch.tensor(lengths)
    state = random_state(model, 4) if with_state else None
    with torch.no_grad():
        out = model(features, index, sizes, state, keep_state=True)
    assert len(out.layers) == model.config.n_layers + 1
    assert out.state is not None
    plain = Reference(model)
    for row in range(4):
        length = 7 if lengths is None else lengths[row]
        words = plain.vectors(features, index[row, :length])
        wanted, (ahead, behind) = reference.bilm(
            words,
            plain.forward,
            plain.backward,
            residual=model.config.residual,
            state=None if state is None else row_state(state, row),
        )
        for depth, layer in enumerate(wanted):
            found = array(out.layers[depth][row])
            np.testing.assert_allclose(found[:length], layer, rtol=TOLERANCE, atol=TOLERANCE)
            assert not found[length:].any()
        assert out.mask[row].tolist() == [step < length for step in range(7)]
        found_ahead, found_behind = row_state(out.state, row)
        for found_states, wanted_states in ((found_ahead, ahead), (found_behind, behind)):
            for (h, c), (wanted_h, wanted_c) in zip(found_states, wanted_states, strict=True):
                np.testing.assert_allclose(h, wanted_h, rtol=TOLERANCE, atol=TOLERANCE)
                np.testing.assert_allclose(c, wanted_c, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("shape", ["char", "char, projected and clipped"])
def test_lengths_that_fill_the_batch_equal_no_lengths(shape: str) -> None:
    model = model_of(shape)
    features = features_of(model.config)
    index = torch.randint(0, N_WORDS, (3, 6), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        full = model(features, index, torch.full((3,), 6), keep_state=True)
        none = model(features, index, keep_state=True)
    assert torch.equal(full.stacked(), none.stacked())
    assert full.state is not None
    assert none.state is not None
    pairs = zip(full.state.tensors().values(), none.state.tensors().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


@pytest.mark.parametrize("shape", ["char", "char, projected and clipped"])
def test_a_text_of_no_words_among_others_keeps_its_state_and_changes_nothing(shape: str) -> None:
    model = model_of(shape)
    features = features_of(model.config)
    index = torch.randint(0, N_WORDS, (3, 5), generator=torch.Generator().manual_seed(4))
    state = random_state(model, 3)
    with torch.no_grad():
        out = model(features, index, torch.tensor([5, 0, 2]), state, keep_state=True)
        alone = model(features, index[2:, :2], None, state_row(state, 2), keep_state=True)
    assert out.state is not None
    assert not out.stacked()[1].any()
    torch.testing.assert_close(out.stacked()[2:, :2], alone.stacked(), rtol=TOLERANCE, atol=TOLERANCE)
    before, after = state.tensors(), out.state.tensors()
    assert all(torch.equal(after[name][1], before[name][1]) for name in before)


@pytest.mark.parametrize("shape", SHAPES)
def test_stream_gives_the_top_layers_of_both_lanes_and_their_states(shape: str) -> None:
    model = model_of(shape)
    features = features_of(model.config)
    rng = torch.Generator().manual_seed(5)
    forward_index = torch.randint(0, N_WORDS, (6, 3), generator=rng)  # (time, lane)
    backward_index = torch.randint(0, N_WORDS, (6, 3), generator=rng)
    state = random_state(model, 3)
    with torch.no_grad():
        (ahead, behind), after = model.stream(features, torch.stack([forward_index, backward_index]), state)
    plain = Reference(model)
    residual = model.config.residual
    for lane in range(3):
        before_forward, before_backward = row_state(state, lane)
        words = plain.vectors(features, forward_index[:, lane])
        wanted, states = reference.lstm_stack(words, plain.forward, residual=residual, state=before_forward)
        np.testing.assert_allclose(array(ahead[:, lane]), wanted[-1], rtol=TOLERANCE, atol=TOLERANCE)
        words = plain.vectors(features, backward_index[:, lane])
        wanted, others = reference.lstm_stack(words, plain.backward, residual=residual, state=before_backward)
        np.testing.assert_allclose(array(behind[:, lane]), wanted[-1], rtol=TOLERANCE, atol=TOLERANCE)
        found = row_state(after, lane)
        for found_states, wanted_states in zip(found, (states, others), strict=True):
            for pair, wanted_pair in zip(found_states, wanted_states, strict=True):
                for one, two in zip(pair, wanted_pair, strict=True):
                    np.testing.assert_allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "where", ["dropout_word", "dropout_input", "dropout_layer", "dropout_output", "dropout_weight"]
)
def test_each_dropout_changes_the_stream_and_the_same_seed_repeats_it(where: str) -> None:
    model = model_of("char")
    features = features_of(model.config)
    index = torch.randint(0, N_WORDS, (4, 2), generator=torch.Generator().manual_seed(6))
    none = {f"dropout_{place}": 0.0 for place in ("word", "input", "layer", "output", "weight")}
    rates = TrainingConfig.from_dict({**none, where: 0.5})

    def run(config: TrainingConfig, seed: int) -> Tensor:
        noise = Noise.draw(len(features), 2, config, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            (top, _), _ = model.stream(
                features, torch.stack([index, index]), model.zero_state(2), config, noise
            )
        return top

    assert torch.equal(run(rates, 1), run(rates, 1))
    assert not torch.equal(run(rates, 1), run(rates, 2))
    assert torch.equal(run(TrainingConfig.from_dict(none), 1), run(TrainingConfig.from_dict(none), 2))


def test_the_first_rows_of_a_state_are_cut_off_from_the_graph() -> None:
    model = model_of("char")
    features = features_of(model.config)
    index = torch.randint(0, N_WORDS, (4, 3))
    _, state = model.stream(features, torch.stack([index, index]), model.zero_state(3))
    assert state.forward[0][0].requires_grad
    cut = state.rows(2)
    for name, tensor in cut.tensors().items():
        assert not tensor.requires_grad
        assert torch.equal(tensor, state.tensors()[name][:2])


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_reach_every_parameter(shape: str) -> None:
    model = model_of(shape)
    features = features_of(model.config)
    rng = torch.Generator().manual_seed(8)
    index = torch.randint(1, N_WORDS, (5, 3), generator=rng)
    (ahead, behind), _ = model.stream(features, torch.stack([index, index.flip(0)]), model.zero_state(3))
    hidden = torch.cat([ahead, behind]).flatten(0, 1)
    targets = torch.randint(1, N_WORDS, (len(hidden),), generator=rng)
    model.predictor.training_loss(hidden, targets, model.predictor.draw(rng)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        dense = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        assert dense.any(), name
        assert torch.isfinite(dense).all(), name
