"""What lies below a classifier: a biLM, or word vectors. The same heads, loop and reports serve both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.core.model_folder import kind_of
from elmokit.core.names import resolve_name
from elmokit.static.word_vectors import WordVectors
from elmokit.vectors.elmo import Elmo

Encoder = Elmo | WordVectors


def load_encoder(folder: str | Path) -> Encoder:
    """Open a model by name, or a folder that ``pretrain`` or ``baseline`` has made."""
    folder = resolve_name(folder)
    if kind_of(folder) == "word-vectors":
        return WordVectors.load(folder)
    return Elmo(load_bilm(folder))


def save_encoder(folder: Path, encoder: Encoder) -> None:
    """Write an encoder as a model folder."""
    if isinstance(encoder, WordVectors):
        encoder.save(folder)
    else:
        save_bilm(folder, encoder.folder)


def encoder_facts(encoder: Encoder, name: str) -> dict[str, Any]:
    """An encoder in a few plain facts."""
    training = encoder.training
    held_out = training.get("held_out") or {}
    return {
        "name": name,
        "input": "word vectors" if isinstance(encoder, WordVectors) else encoder.model.config.input,
        "layers": encoder.n_layers,
        "width": encoder.dim,
        "parameters": sum(parameter.numel() for parameter in encoder.module.parameters()),
        "held-out perplexity": held_out.get("perplexity"),
        "pretraining seconds": training.get("seconds"),
    }
