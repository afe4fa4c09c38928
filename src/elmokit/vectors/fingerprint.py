"""A short mark of a model: vectors made by two models with the same mark can be compared."""

from __future__ import annotations

import json

from torch import Tensor

from elmokit.bilm.folder import BilmFolder, weights_of
from elmokit.core.tensors import fingerprint

__all__ = ["model_fingerprint"]


def model_fingerprint(folder: BilmFolder) -> str:
    """Changes when anything does that a vector can depend on: weights, shape, words, cleaning."""
    config = {"model": folder.model.config.to_dict(), "text": folder.text.to_dict()}
    texts = {
        "config": json.dumps(config, sort_keys=True),
        "vocabulary": "\n".join(folder.vocabulary.words),
        "tokenizer": folder.tokenizer.to_str(pretty=False),
    }
    tensors = [*weights_of(folder.model).items()]
    if folder.start_state is not None:
        tensors += folder.start_state.tensors().items()
    parts: list[Tensor | str] = []
    for name, text in texts.items():
        parts += [f"{name}:{len(text.encode())}:", text]
    for name, tensor in tensors:
        parts += [f"{name}:{tuple(tensor.shape)}:", tensor]
    return fingerprint(*parts)
