"""The model's arithmetic once more, in numpy and float64, one word and one sequence at a time.

Nothing here knows of elmokit or torch: formulas are written out plainly so that they can be
checked by eye, and weights come in as a dictionary of arrays under the names of the saved file.
Arrays of one sequence have the shape (time, dim).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
State = tuple[Array, Array]
"""Output h (dim) and cell c (hidden_dim) of one layer for one sequence."""


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


# -- LSTM -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LstmWeights:
    """One LSTM layer; gates stand in the order input, forget, candidate, output."""

    input_weight: Array  # (4 hidden, dim)
    recurrent_weight: Array  # (4 hidden, dim)
    bias: Array  # (4 hidden)
    projection: Array | None = None  # (dim, hidden)
    cell_clip: float | None = None
    proj_clip: float | None = None


def zero_state(layer: LstmWeights) -> State:
    """The state before the first word."""
    return np.zeros(layer.input_weight.shape[1]), np.zeros(len(layer.bias) // 4)


def lstm(x: Array, layer: LstmWeights, state: State | None = None) -> tuple[Array, State]:
    """One sequence through one layer: outputs (time, dim), and the state after the last step."""
    h, c = zero_state(layer) if state is None else state
    n = len(layer.bias) // 4
    outputs = np.zeros((len(x), len(h)))
    for t in range(len(x)):
        gates = layer.input_weight @ x[t] + layer.recurrent_weight @ h + layer.bias
        take_in = sigmoid(gates[:n])
        keep = sigmoid(gates[n : 2 * n])
        candidate = np.tanh(gates[2 * n : 3 * n])
        give_out = sigmoid(gates[3 * n :])
        c = keep * c + take_in * candidate
        if layer.cell_clip is not None:
            c = np.clip(c, -layer.cell_clip, layer.cell_clip)
        h = give_out * np.tanh(c)
        if layer.projection is not None:
            h = layer.projection @ h
        if layer.proj_clip is not None:
            h = np.clip(h, -layer.proj_clip, layer.proj_clip)
        outputs[t] = h
    return outputs, (h, c)


def lstm_stack(
    x: Array, layers: Sequence[LstmWeights], *, residual: bool, state: Sequence[State] | None = None
) -> tuple[list[Array], list[State]]:
    """One sequence through a stack: every layer's output, and the states after the last step.

    With ``residual``, the second and later layers add their input to their output.
    """
    outputs: list[Array] = []
    states: list[State] = []
    for depth, layer in enumerate(layers):
        y, after = lstm(x, layer, None if state is None else state[depth])
        x = y + x if residual and depth > 0 else y
        outputs.append(x)
        states.append(after)
    return outputs, states


def backward_stack(
    x: Array, layers: Sequence[LstmWeights], *, residual: bool, state: Sequence[State] | None = None
) -> tuple[list[Array], list[State]]:
    """The same from right to left: the sequence is reversed within its own length, and back."""
    outputs, states = lstm_stack(x[::-1], layers, residual=residual, state=state)
    return [y[::-1] for y in outputs], states


def stack_weights(
    weights: Mapping[str, Array],
    prefix: str,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> list[LstmWeights]:
    """The layers of a stack from named arrays such as ``forward_stack.layers.0.bias``."""
    found: list[LstmWeights] = []
    while f"{prefix}.layers.{len(found)}.bias" in weights:
        home = f"{prefix}.layers.{len(found)}"
        found.append(
            LstmWeights(
                weights[f"{home}.input_weight"],
                weights[f"{home}.recurrent_weight"],
                weights[f"{home}.bias"],
                weights.get(f"{home}.projection"),
                cell_clip,
                proj_clip,
            )
        )
    return found


# -- token encoders -------------------------------------------------------------------------------


def char_cnn(
    chars: Ints, weights: Mapping[str, Array], *, n_filters: int, n_highway: int, activation: str
) -> Array:
    """A word's row of characters (max_chars) to its vector.

    Every one of the ``max_chars`` columns takes part, those past the word's end too. Character 0
    stands for "nothing" and has a vector of zeros.
    """
    vectors = weights["weight"][chars] * (chars != 0)[:, None]  # (max_chars, char_dim)
    pooled: list[float] = []
    for number in range(n_filters):
        kernel = weights[f"filters.{number}.weight"]  # (width, char_dim, count)
        bias = weights[f"filters.{number}.bias"]
        width, _, count = kernel.shape
        places = range(len(chars) - width + 1)
        for own in range(count):
            answers = [float((kernel[:, :, own] * vectors[p : p + width]).sum()) for p in places]
            pooled.append(max(answers) + bias[own])
    x = np.array(pooled)
    x = np.maximum(x, 0.0) if activation == "relu" else np.tanh(x)
    for number in range(n_highway):
        x = highway(x, weights, f"highways.{number}")
    if "projection.weight" in weights:
        x = weights["projection.weight"] @ x + weights["projection.bias"]
    return x


def highway(x: Array, weights: Mapping[str, Array], prefix: str) -> Array:
    """g * relu(transform(x)) + (1 - g) * x with g = sigmoid(carry(x))."""
    gate = sigmoid(weights[f"{prefix}.carry.weight"] @ x + weights[f"{prefix}.carry.bias"])
    changed = np.maximum(weights[f"{prefix}.transform.weight"] @ x + weights[f"{prefix}.transform.bias"], 0.0)
    return gate * changed + (1.0 - gate) * x


def pool_pieces(pieces: Ints, table: Array, pooling: str) -> Array:
    """The vectors of a word's pieces as one; piece 0 is none. No piece at all gives zeros."""
    vectors = [table[piece] for piece in pieces if piece != 0]
    if not vectors:
        return np.zeros(table.shape[1])
    if pooling == "max":
        largest: Array = np.max(vectors, axis=0)
        return largest
    total: Array = np.sum(vectors, axis=0)
    return total / len(vectors) if pooling == "mean" else total


# -- the whole model ------------------------------------------------------------------------------


def bilm(
    x: Array,
    forward: Sequence[LstmWeights],
    backward: Sequence[LstmWeights],
    *,
    residual: bool,
    state: tuple[Sequence[State], Sequence[State]] | None = None,
) -> tuple[list[Array], tuple[list[State], list[State]]]:
    """Every layer (time, 2 dim) of one sequence of word vectors (time, dim), and both states."""
    before = (None, None) if state is None else state
    ahead, ahead_state = lstm_stack(x, forward, residual=residual, state=before[0])
    behind, behind_state = backward_stack(x, backward, residual=residual, state=before[1])
    layers = [np.concatenate([x, x], axis=1)]
    layers += [np.concatenate(pair, axis=1) for pair in zip(ahead, behind, strict=True)]
    return layers, (ahead_state, behind_state)


# -- objectives -----------------------------------------------------------------------------------


def log_softmax(logits: Array) -> Array:
    """log(exp(logits) / sum(exp(logits))) of one vector."""
    top = float(logits.max())
    return logits - top - math.log(float(np.exp(logits - top).sum()))


def full_loss(hidden: Array, weight: Array, bias: Array, targets: Ints) -> float:
    """Sum of -log softmax over all words at the targets."""
    total = 0.0
    for h, target in zip(hidden, targets, strict=True):
        total -= float(log_softmax(weight @ h + bias)[target])
    return total


def draw_probability(word: int, n_words: int) -> float:
    """Chance that one log-uniform draw gives ``word``, for words from 1 to n_words - 1."""
    return (math.log(word + 1) - math.log(word)) / math.log(n_words)


def chance(word: int, n_draws: int, n_words: int) -> float:
    """Chance that ``word`` is among ``n_draws`` draws: 1 - (1 - q)^n_draws."""
    return 1.0 - (1.0 - draw_probability(word, n_words)) ** n_draws


def sampled_loss(
    hidden: Array, weight: Array, bias: Array, targets: Ints, samples: Ints, n_draws: int
) -> float:
    """Sum of -log softmax at the target, over the target and the other sampled words.

    Each logit is lowered by the log of its word's chance of being drawn.
    """
    total = 0.0
    for h, target in zip(hidden, targets, strict=True):
        words = [int(target), *(int(word) for word in samples if word != target)]
        logits = [
            float(weight[word] @ h) + float(bias[word]) - math.log(chance(word, n_draws, len(bias)))
            for word in words
        ]
        total -= float(log_softmax(np.array(logits))[0])
    return total
