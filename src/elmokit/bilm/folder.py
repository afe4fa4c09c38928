"""A biLM as a folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``, ``vocab.txt``,
``README.md``. No pickle, no absolute path; loaded strictly or not at all."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

import elmokit
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.state import BilmState
from elmokit.core.atomic import staging, write_text
from elmokit.core.errors import FRESH, ConfigError, ModelError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION, kind_of, read_record
from elmokit.core.names import checksum, resolve_name
from elmokit.core.tensors import check_tensors, load_tensors, save_tensors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline, load_tokenizer
from elmokit.text.vocabulary import (
    Characters,
    DictionaryCharacters,
    Pieces,
    Vocabulary,
    WordFeatures,
    WordIds,
)

_START = "start_state.safetensors"


@dataclass(frozen=True)
class BilmFolder:
    """A language model with all that it takes to feed it text.

    Attributes:
        model: the network.
        text: how raw text becomes words.
        vocabulary: the words it predicts.
        tokenizer: the ``tokenizers`` object that is saved as ``tokenizer.json``.
        training: where it came from: corpus, steps, perplexity, command.
        start_state: what a text may start from instead of zero, one row; None if it was not measured.
    """

    model: Bilm
    text: TextConfig
    vocabulary: Vocabulary
    tokenizer: Tokenizer
    training: dict[str, Any]
    start_state: BilmState | None = None

    @cached_property
    def pipeline(self) -> TextPipeline:
        """Raw text to words."""
        return TextPipeline(self.text)

    @cached_property
    def features(self) -> WordFeatures:
        """Words to the rows that the model's token encoder takes."""
        return word_features(self.model.config, self.vocabulary, self.tokenizer)


def word_features(config: BilmConfig, vocabulary: Vocabulary, tokenizer: Tokenizer) -> WordFeatures:
    """What turns words into rows for a model of this shape."""
    if config.input == "char":
        return Characters(config.max_chars)
    if config.input == "dictionary":
        return DictionaryCharacters(tokenizer, vocabulary, config.max_chars)
    return WordIds(vocabulary) if config.input == "word" else Pieces(tokenizer)


def weights_of(model: Bilm) -> dict[str, Tensor]:
    """All parameters by name; a table that two parts share stands once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_bilm(folder: str | Path, saved: BilmFolder, *, half: bool = False) -> None:
    """Write the model into ``folder``: all files aside first, then each in its place. ``config.json``
    goes first and comes last, so a folder that was cut short is never taken for a model.

    Args:
        folder: where to.
        saved: the model.
        half: keep numbers in half precision, which takes half the space; they are single when read.
    """
    folder, model = Path(folder), saved.model
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": "bilm",
        "elmokit_version": elmokit.__version__,
        "model": model.config.to_dict(),
        "n_words": model.n_words,
        "n_pieces": model.n_pieces,
        "text": saved.text.to_dict(),
        "training": saved.training,
    }
    with staging(folder, "config.json", gone=[_START]) as staged:
        kept = torch.float16 if half else torch.float32
        weights = {name: tensor.to(kept) for name, tensor in weights_of(model).items()}
        save_tensors(staged / "model.safetensors", weights, {})
        write_text(staged / "tokenizer.json", saved.tokenizer.to_str(pretty=False))
        write_text(staged / "vocab.txt", saved.vocabulary.text())
        if saved.start_state is not None:
            save_tensors(staged / _START, saved.start_state.tensors(), {})
        record["files"] = {file.name: checksum(file) for file in sorted(staged.iterdir())}
        write_text(staged / "README.md", model_card(folder.resolve().name, saved))
        write_text(staged / "config.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def load_bilm(folder: str | Path) -> BilmFolder:
    """Read a model folder, or published ELMo files. Anything missing, damaged, foreign or of the wrong shape
    is an error that says which file and why.

    Args:
        folder: where it is, or its name (``elmokit.core.names.resolve_name``).
    """
    folder = resolve_name(folder)
    if kind_of(folder) is None:
        published = importlib.import_module("elmokit.published.convert")  # to the right, by name
        foreign: BilmFolder | None = published.load_foreign(folder)
        if foreign is not None:
            return foreign
    record = read_record(folder, "bilm")
    try:
        config = BilmConfig.from_dict(record["model"])
        text = TextConfig.from_dict(record["text"])
        n_words, n_pieces = int(record["n_words"]), int(record["n_pieces"])
        training = dict(record["training"])
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise ModelError(f"{folder / 'config.json'} is damaged: {error}", remedy=FRESH) from error
    vocabulary = Vocabulary.load(folder / "vocab.txt")
    if len(vocabulary) != n_words:
        raise ModelError(
            f"{folder / 'vocab.txt'} has {len(vocabulary)} words, config.json says {n_words}.",
            remedy="The files do not belong together; take a fresh copy of the folder.",
        )
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    if n_pieces and tokenizer.get_vocab_size() != n_pieces:
        raise ModelError(
            f"{folder / 'tokenizer.json'} has {tokenizer.get_vocab_size()} pieces, "
            f"config.json says {n_pieces}.",
            remedy=FRESH,
        )
    tensors, _ = load_tensors(folder / "model.safetensors")
    with torch.device("meta"):
        model = Bilm(config, n_words, n_pieces)
    check_tensors(folder / "model.safetensors", dict(model.named_parameters()), tensors)
    loaded = {name: tensor.float() for name, tensor in tensors.items()}
    model.load_state_dict(loaded, strict=False, assign=True)
    if config.tie:
        model.predictor.weight = model.encoder.weight
    model.eval()
    start_state = None
    if (folder / _START).exists():
        start, _ = load_tensors(folder / _START)
        check_tensors(folder / _START, model.zero_state(1).tensors(), start)
        start_state = BilmState.from_tensors({name: tensor.float() for name, tensor in start.items()})
    return BilmFolder(model, text, vocabulary, tokenizer, training, start_state)


def model_card(name: str, saved: BilmFolder) -> str:
    """The model's README.md."""
    model, training = saved.model, saved.training
    config = model.config
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    valid = training.get("held_out")
    lines = [
        f"# {name}",
        "",
        f"A bidirectional language model (ELMo) made with elmokit {elmokit.__version__}.",
        "",
        "| | |",
        "|---|---|",
        f"| input | {config.input} |",
        f"| layers | token encoder + {config.n_layers} LSTM layers each way, vectors {2 * config.dim} wide |",
        f"| parameters | {n_parameters:,} |",
        f"| {'vocabulary' if config.objective == 'none' else 'words predicted'} | {model.n_words:,} |",
    ]
    corpus = training.get("corpus", {})
    if corpus:
        lines.append(
            f"| corpus | {corpus['n_words']:,} words in {corpus['n_documents']:,} texts "
            f"({', '.join(corpus['files'])}) |"
        )
        lines.append(f"| unknown words in it | {corpus['unknown_share']:.2%} |")
    if valid and math.isfinite(valid["perplexity"]):
        lines.append(
            f"| held-out perplexity (exact) | {valid['perplexity']:.2f} "
            f"(forward {valid['forward']:.2f}, backward {valid['backward']:.2f}) |"
        )
    for text, figures in training.get("perplexities", {}).items():
        lines.append(
            f"| perplexity (exact), {text.replace('<', '&lt;')} | {figures['perplexity']:.2f} "
            f"(forward {figures['forward']:.2f}, backward {figures['backward']:.2f}) |"
        )
    if training.get("fine_tuned"):
        lines.append("| fine-tuned | as the encoder of a classifier: no longer a language model |")
    if source := training.get("source"):
        lines.append(f"| converted from | {', '.join(source['files'])} ({source['format']}) |")
    lines += [f"| note | {note} |" for note in training.get("notes", [])]
    for label, key in (("date", "date"), ("made by", "command")):
        if training.get(key):
            lines.append(f"| {label} | `{training[key]}` |")
    lines += [
        f"| licence | {training.get('licence') or 'not stated: that of the corpus applies'} |",
        "",
        "Open it with `elmokit inspect` or, in Python, `elmokit.load_bilm`.",
        "",
    ]
    return "\n".join(lines)
