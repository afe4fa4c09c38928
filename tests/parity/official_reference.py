"""The published ELMo format once more, from its description alone: the forward pass in numpy and float64, one
word and one sentence at a time.

Nothing here knows of elmokit or torch. Weights are a dictionary of arrays under the names of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
State = dict[tuple[int, int], tuple[Array, Array]]
"""(direction, layer) -> output and cell of one row of the batch."""


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def word_vector(word: str, options: Mapping[str, Any], weights: Mapping[str, Any]) -> Array:
    """A word's bytes through filters, highway layers and projection; <S> and </S> have marks of their own."""
    cnn = options["char_cnn"]
    length = cnn.get("max_characters_per_token", 50)
    inside = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode("utf-8"))[: length - 2]
    ids = [258, *inside, 259]
    ids += [260] * (length - len(ids))
    table = np.concatenate([np.zeros((1, weights["char_embed"].shape[1])), weights["char_embed"]])
    e = table[[id + 1 for id in ids]]  # (length, width)
    answers = []
    number = 0
    while f"CNN/W_cnn_{number}" in weights:
        kernel = weights[f"CNN/W_cnn_{number}"][0].astype(np.float64)  # (span, width, count)
        span = len(kernel)
        places = [
            sum(e[p + j] @ kernel[j] for j in range(span)) + weights[f"CNN/b_cnn_{number}"]
            for p in range(length - span + 1)
        ]
        answers.append(np.max(places, axis=0))
        number += 1
    x: Array = np.concatenate(answers)
    x = np.tanh(x) if cnn.get("activation") == "tanh" else np.maximum(x, 0.0)
    number = 0
    while f"CNN_high_{number}/W_carry" in weights:
        own = {
            part: weights[f"CNN_high_{number}/{part}"]
            for part in ("W_carry", "b_carry", "W_transform", "b_transform")
        }
        gate = sigmoid(x @ own["W_carry"] + own["b_carry"])
        changed = np.maximum(x @ own["W_transform"] + own["b_transform"], 0.0)
        x = gate * changed + (1.0 - gate) * x
        number += 1
    if "CNN_proj/W_proj" in weights:
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x


def run_direction(
    x: Array, direction: int, options: Mapping[str, Any], weights: Mapping[str, Any], state: State
) -> list[Array]:
    """Every layer of one direction over (time, dim), in reading order; ``state`` is changed."""
    lstm = options["lstm"]
    outputs = []
    layer = 0
    while f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_0" in weights:
        home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        kernel, bias = weights[f"{home}/W_0"].astype(np.float64), weights[f"{home}/B"].astype(np.float64)
        cells, dim = len(bias) // 4, x.shape[1]
        h, c = state.get((direction, layer), (np.zeros(dim), np.zeros(cells)))
        y = np.zeros((len(x), dim))
        for t in range(len(x)):
            i, j, f, o = np.split(np.concatenate([x[t], h]) @ kernel + bias, 4)
            c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
            if lstm.get("cell_clip"):
                c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
            h = sigmoid(o) * np.tanh(c)
            if f"{home}/W_P_0" in weights:
                h = h @ weights[f"{home}/W_P_0"].astype(np.float64)
            if lstm.get("proj_clip"):
                h = np.clip(h, -lstm["proj_clip"], lstm["proj_clip"])
            y[t] = h
        state[direction, layer] = (h, c)
        x = y + x if lstm.get("use_skip_connections") and layer else y
        outputs.append(x)
        layer += 1
    return outputs


def sentence_layers(
    vectors: Sequence[Array],
    options: Mapping[str, Any],
    weights: Mapping[str, Any],
    state: State | None = None,
) -> Array:
    """(n_words, layer, 2 dim) from the vectors of <S>, the words and </S>; both of the marks are dropped."""
    state = {} if state is None else state
    x = np.stack(vectors)
    ahead = run_direction(x, 0, options, weights, state)
    behind = [y[::-1] for y in run_direction(x[::-1], 1, options, weights, state)]
    layers = [np.concatenate([x, x], axis=1)]
    layers += [np.concatenate(pair, axis=1) for pair in zip(ahead, behind, strict=True)]
    return np.stack(layers, axis=1)[1:-1]


def embed(
    sentences: Sequence[Sequence[str]],
    options: Mapping[str, Any],
    weights: Mapping[str, Any],
    *,
    n_carried: int = 0,
    vectors: Mapping[str, Array] | None = None,
) -> list[Array]:
    """Every layer of every sentence; with ``n_carried`` rows in a batch, each goes on from its last sentence.
    ``vectors`` stand for words of a word-input model."""
    known = dict(vectors or {})
    rows: list[State] = [{} for _ in range(n_carried)]
    found = []
    for index, words in enumerate(sentences):
        own = []
        for word in ("<S>", *words, "</S>"):
            if vectors is not None:
                own.append(known.get(word, known["<UNK>"]))
            else:
                if word not in known:
                    known[word] = word_vector(word, options, weights)
                own.append(known[word])
        found.append(sentence_layers(own, options, weights, rows[index % n_carried] if n_carried else None))
    return found
