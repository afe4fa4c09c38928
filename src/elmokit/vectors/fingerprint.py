"""A short mark of a model: vectors made by two models with the same mark can be compared."""

from __future__ import annotations

import hashlib
import json

from torch import Tensor

from elmokit.bilm.folder import BilmFolder, weights_of

__all__ = ["model_fingerprint"]


def model_fingerprint(folder: BilmFolder) -> str:
    """Changes when anything does that a vector can depend on: weights, shape, words, cleaning."""
    digest = hashlib.blake2b(digest_size=16)

    def add(name: str, value: bytes) -> None:
        digest.update(f"{name}:{len(value)}:".encode())
        digest.update(value)

    def add_tensor(name: str, tensor: Tensor) -> None:
        digest.update(f"{name}:{tuple(tensor.shape)}:".encode())
        digest.update(tensor.detach().contiguous().view(-1).numpy().data)

    config = {"model": folder.model.config.to_dict(), "text": folder.text.to_dict()}
    add("config", json.dumps(config, sort_keys=True).encode())
    add("vocabulary", "\n".join(folder.vocabulary.words).encode())
    add("tokenizer", folder.tokenizer.to_str(pretty=False).encode())
    for name, tensor in weights_of(folder.model).items():
        add_tensor(name, tensor)
    if folder.start_state is not None:
        for name, tensor in folder.start_state.tensors().items():
            add_tensor(name, tensor)
    return digest.hexdigest()
