"""What a part of a comparison will cost: counted in operations, turned into seconds by this machine's speed.

Estimates serve the progress bar and ``--budget``; half or double the true time is good enough for both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from elmokit.comparison.doing import fitting_epochs, pretraining_config, vector_epochs
from elmokit.comparison.methods import Method
from elmokit.comparison.steps import Unit
from elmokit.tasks.settings import ClassifierConfig

__all__ = ["Sizes", "estimate", "operations_per_second"]

_START = 2.0  # seconds that any part takes
_SHARE = 0.6  # of the speed of large products that training reaches
_VECTORS = {"svd": 2e-5, "sgns": 1.2e-5, "cbow": 4e-6}  # seconds a word, and epoch
_SOLVING = 5000  # operations for each text and number of its vector
_LINEAR = {"tfidf-svm": 4e-6, "tfidf-lr": 6e-6, "fasttext": 1.5e-6}  # seconds a word


@dataclass(frozen=True)
class Sizes:
    """How much there is to do: words of the train texts, of further texts, and of the other rows."""

    n_train: int
    n_more: int
    n_other: int
    n_texts: int


def operations_per_second(seconds: float = 0.2) -> float:
    """Floating-point operations in a second on one core, in products like those of training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        x, y = torch.randn(256, 512), torch.randn(512, 1024)
        begun, n_done = time.monotonic(), 0
        while (spent := time.monotonic() - begun) < seconds or n_done < 3:
            x @ y
            n_done += 1
    finally:
        torch.set_num_threads(threads)
    return n_done * 2 * x.numel() * y.shape[1] / max(spent, 1e-9)


def estimate(unit: Unit, method: Method, sizes: Sizes, speed: float) -> float:
    """Seconds that a part will take on one core."""
    n_words = sizes.n_train + sizes.n_more
    if unit.kind == "vectors":
        epochs = 1 if method.base == "svd" else method.vectors.get("epochs") or vector_epochs(n_words)
        return _START + n_words * epochs * _VECTORS[method.base]
    if unit.kind == "linear":
        share = min(1.0, unit.n_labels / max(1, sizes.n_texts)) if unit.n_labels else 1.0
        return _START + (sizes.n_train * share + sizes.n_other) * _LINEAR[method.base]
    speed *= _SHARE
    once = _encoder_operations(method, n_words) if method.family == "elmo" else 0.0
    if unit.kind == "language-model":
        config = pretraining_config(method, n_words)
        return _START + 3 * once * n_words * config.training.epochs / speed
    if unit.kind == "layers":
        return _START + once * (sizes.n_train + sizes.n_other) / speed
    config_of_fit = ClassifierConfig.from_flat(**method.classifier)
    head = _head_operations(config_of_fit, method)
    n_fitted = sizes.n_train
    if unit.n_labels:
        n_fitted = max(1, sizes.n_train * unit.n_labels // max(1, sizes.n_texts))
    if config_of_fit.head.head == "linear":
        tried = 1 if unit.n_labels else 16 if method.family == "elmo" else 4
        n_texts = unit.n_labels or sizes.n_texts
        solving = tried * _SOLVING * n_texts * _width(method)
        return _START + (solving + once * (sizes.n_other + (n_fitted if unit.n_labels else 0))) / speed
    epochs = fitting_epochs(config_of_fit, n_fitted)
    learnt = 3 * (head + (once if config_of_fit.fit.finetune else 0.0)) * n_fitted * epochs
    return _START + (learnt + (head + once) * sizes.n_other) / speed


def _encoder_operations(method: Method, n_words: int) -> float:
    """Operations a word takes on its way through a biLM, softmax left out."""
    model = pretraining_config(method, n_words).model
    inner = 4 * model.hidden_dim * (2 * model.dim)
    if model.hidden_dim != model.dim:
        inner += model.hidden_dim * model.dim
    return 2.0 * 2 * (model.n_layers * inner + model.dim * min(model.n_samples, 2048) / 3)


def _width(method: Method) -> int:
    """The width of a method's vectors."""
    if method.family == "elmo":
        return 2 * pretraining_config(method, 1).model.dim
    return int(method.vectors.get("dim", 100))


def _head_operations(config: ClassifierConfig, method: Method) -> float:
    """Operations a word takes on its way through mix and head."""
    dim = _width(method)
    width = config.head.head_dim
    if config.head.head == "pool":
        return 500.0 * dim * (3 if method.family == "elmo" else 1)  # memory is what takes the time
    widths = [dim] + [2 * width] * (config.head.head_layers - 1)
    return 2.0 * 2 * sum(4 * width * (size + width) for size in widths)
