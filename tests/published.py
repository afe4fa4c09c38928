"""Random ELMo models in the published format, written from its description alone, without elmokit or torch.

Weights are a dictionary of arrays under the names of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Weights = dict[str, npt.NDArray[np.float32]]


class Trap:
    """Makes a folder if its pickle is loaded."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("it-was-loaded",))


def options_with(
    lstm: Mapping[str, Any] | None = None, char_cnn: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Options of a small model with two projected, clipped, residual layers over characters, changed."""
    return {
        "lstm": {
            "dim": 7,
            "projection_dim": 4,
            "n_layers": 2,
            "cell_clip": 0.5,
            "proj_clip": 0.3,
            "use_skip_connections": True,
            **(lstm or {}),
        },
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 3},
            "filters": [[1, 3], [2, 4], [4, 5]],
            "n_highway": 1,
            "n_characters": 262,
            "max_characters_per_token": 14,
            **(char_cnn or {}),
        },
    }


def word_options(lstm: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Options of a word-input model."""
    return {"lstm": options_with(lstm)["lstm"]}


def random_weights(options: Mapping[str, Any], seed: int = 0, n_words: int = 0) -> Weights:
    """Numbers large enough that clips bite and gates open and close."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int, scale: float = 0.5) -> npt.NDArray[np.float32]:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    lstm, weights = options["lstm"], Weights()
    dim, cells = lstm["projection_dim"], lstm["dim"]
    if n_words:
        weights["embedding"] = draw(n_words, dim)
    else:
        cnn = options["char_cnn"]
        width = cnn["embedding"]["dim"]
        total = sum(count for _, count in cnn["filters"])
        weights["char_embed"] = draw(261, width)
        for number, (span, count) in enumerate(cnn["filters"]):
            weights[f"CNN/W_cnn_{number}"] = draw(1, span, width, count)
            weights[f"CNN/b_cnn_{number}"] = draw(count)
        for number in range(cnn["n_highway"]):
            for part in ("carry", "transform"):
                weights[f"CNN_high_{number}/W_{part}"] = draw(total, total, scale=0.4)
                weights[f"CNN_high_{number}/b_{part}"] = draw(total)
        if total != dim:
            weights["CNN_proj/W_proj"] = draw(total, dim, scale=0.3)
            weights["CNN_proj/b_proj"] = draw(dim)
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            home = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            weights[f"{home}/W_0"] = draw(2 * dim, 4 * cells)
            weights[f"{home}/B"] = draw(4 * cells)
            if cells != dim:
                weights[f"{home}/W_P_0"] = draw(cells, dim)
    return weights


def write_model(
    folder: Path, options: Mapping[str, Any], weights: Mapping[str, Any], words: Sequence[str] | None = None
) -> Path:
    """The files of a published model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, values in weights.items():
            file.create_dataset(name, data=values)
    if words is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder


def read_weights(file: Path) -> Weights:
    """All datasets of a file, by name."""
    weights = Weights()
    with h5py.File(file, "r") as opened:
        opened.visititems(
            lambda name, item: weights.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None
        )
    return weights
