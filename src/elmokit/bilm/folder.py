"""A biLM as a folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``, ``vocab.txt``, README."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.bilm.state import BilmState
from elmokit.bilm.word_table import WordTable
from elmokit.core.atomic import write_text
from elmokit.core.model_card import Facts, origin_rows
from elmokit.core.model_folder import Report, explain_damage, kind_of, read_record, write_model
from elmokit.core.names import resolve_name
from elmokit.core.tensors import load_tensors, load_weights, save_tensors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import (
    Characters,
    DictionaryCharacters,
    FormIds,
    FormsAndCharacters,
    Pieces,
    Vocabulary,
    WordFeatures,
    WordIds,
    form_of,
    load_words,
)

_START, _COUNTS = "start_state.safetensors", "word_counts.safetensors"
_PARTS = {
    "encoder": "token encoder",
    "forward_stack": "forward LSTM",
    "backward_stack": "backward LSTM",
    "predictor": "word predictor",
}


@dataclass(frozen=True)
class BilmFolder:
    """A language model with all that it takes to feed it text."""

    model: Bilm
    text: TextConfig  # how raw text becomes words
    vocabulary: Vocabulary  # the words it predicts
    tokenizer: Tokenizer  # saved as tokenizer.json
    training: dict[str, Any]  # where it comes from: corpus, steps, perplexity, command
    start_state: BilmState | None = None  # what a text may start from instead of zero, one row
    word_table: WordTable | None = None  # vectors of words by form, whose sums are the vectors of texts

    @cached_property
    def pipeline(self) -> TextPipeline:
        """Raw text to words."""
        return TextPipeline(self.text)

    @cached_property
    def features(self) -> WordFeatures:
        """Words to the rows that the model's token encoder takes."""
        config = self.model.config
        if config.input == "char":
            return Characters(config.max_chars)
        if config.input == "char+word":
            table = input_table(self.model)
            forms = table.ids if table is not None else FormIds(forms_of(self.vocabulary))
            return FormsAndCharacters(forms, config.max_chars)
        if config.input == "dictionary":
            return DictionaryCharacters(self.tokenizer, self.vocabulary, config.max_chars)
        return WordIds(self.vocabulary) if config.input == "word" else Pieces(self.tokenizer)

    def facts(self) -> Facts:
        """What the model is: for its card and ``elmokit inspect``."""
        model, config, training = self.model, self.model.config, self.training
        counts = dict.fromkeys(_PARTS.values(), 0)
        for name, parameter in model.named_parameters():
            counts[_PARTS[name.partition(".")[0]]] += parameter.numel()
        parts = ", ".join(f"{part} {n:,}" for part, n in counts.items() if n)
        first_words = self.vocabulary.words[len(SPECIALS) :][:12]
        switches = ("mend", "contractions", "urls", "lowercase")
        cleaning = [name for name in switches if getattr(self.text, name)]
        cleaning += ["no punctuation"] if self.text.punctuation == "remove" else []
        rows = [
            ("input", _describe_input(config, model.n_pieces)),
            ("LSTM", _describe_lstm(config)),
            ("vectors", f"{config.n_layers + 1} layers (0 is the token encoder), {2 * config.dim} wide"),
            ("parameters", f"{sum(counts.values()):,} ({parts})"),
        ]
        if first_words:
            rows.append(("vocabulary", f"{model.n_words:,} words: {' '.join(first_words)} …"))
        if table := self.word_table:
            size = f"{table.dim} wide, the sum of {len(table.forms):,} word vectors"
            rows.append(("sentence vector", f"{size}, distilled; others by n-grams"))
        rows += [
            ("text", ", ".join([*cleaning, self.text.tokens, f"<s> per {self.text.unit}"])),
            ("softmax", "none: it gives vectors only" if config.objective == "none" else config.objective),
            *_training_rows(training),
            *origin_rows(training, "not stated: that of the corpus applies"),
        ]
        values = {
            "model": config.to_dict(),
            "text": self.text.to_dict(),
            "vector_dim": 2 * config.dim,
            "n_words": model.n_words,
            "n_pieces": model.n_pieces,
            "first_words": first_words,
            "parameters": counts,
            "n_parameters": sum(counts.values()),
            "training": training,
        }
        usage = "Open it with `elmokit inspect` or, in Python, `elmokit.load`."
        return Facts("A bidirectional language model (ELMo).", tuple(rows), values, usage)


def input_table(model: Bilm) -> WordTable | None:
    """The table that the model reads as it is; None if it reads none, or trains its own."""
    table = getattr(model.encoder, "table", None)
    return table if isinstance(table, WordTable) else None


def forms_of(vocabulary: Vocabulary) -> list[str]:
    """The distinct forms of a vocabulary: the rows of a table that is trained with the model."""
    return list(dict.fromkeys(map(form_of, vocabulary.words[len(SPECIALS) :])))


def _describe_input(config: BilmConfig, n_pieces: int) -> str:
    filters = " ".join(f"{width}×{n}" for width, n in config.filters) + f", {config.n_highway} highway"
    if config.input == "char":
        return f"characters: filters {filters}, words up to {config.max_chars} bytes"
    if config.input == "char+word":
        table = f"{n_pieces:,} rows, trained" if n_pieces else "distilled, fixed"
        return f"characters: filters {filters}; and a word table, {config.table_dim} wide ({table})"
    if config.input == "word":
        return "word table" + (", shared with the output" if config.tie else "")
    if config.input == "dictionary":
        return f"{n_pieces:,} listed characters: filters {filters}; and a word table"
    return f"{n_pieces:,} {config.input} pieces, {config.pooling}"


def _describe_lstm(config: BilmConfig) -> str:
    clips = {"cells": config.cell_clip, "outputs": config.proj_clip}
    parts = [
        f"{config.n_layers} + {config.n_layers} layers, {config.dim} wide each way",
        f"{config.hidden_dim} cells projected" if config.hidden_dim != config.dim else "",
        "residual" if config.residual else "",
        *(f"{name} within ±{clip:g}" for name, clip in clips.items() if clip is not None),
    ]
    return ", ".join(filter(None, parts))


def _training_rows(training: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if training.get("n_steps"):
        time = f"{training['seconds']:,.0f} s"
        yield "training", f"{training['n_steps']:,} steps, {training['n_words']:,} words, {time}"
    scores = {"held-out text": training.get("held_out"), **training.get("perplexities", {})}
    for text, score in scores.items():
        if score and math.isfinite(score["perplexity"]):
            both = f"forward {score['forward']:,.2f}, backward {score['backward']:,.2f}"
            yield "perplexity", f"{score['perplexity']:,.2f} on {text} ({both}; exact)"
    if training.get("fine_tuned"):
        yield "fine-tuned", "as the encoder of a classifier: no longer a language model"


def weights_of(model: Bilm) -> dict[str, Tensor]:
    """All parameters by name; a table that two parts share is there once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_bilm(folder: str | Path, saved: BilmFolder, *, half: bool = False, report: Report = None) -> None:
    """Write a model folder, with numbers in half precision or single; they are single when read."""
    model = saved.model
    record = {
        "model": model.config.to_dict(),
        "n_words": model.n_words,
        "n_pieces": model.n_pieces,
        "text": saved.text.to_dict(),
        "training": saved.training,
    }
    with write_model(Path(folder), "bilm", record, card=saved.facts(), report=report) as staged:
        dtype = torch.float16 if half else torch.float32
        weights = {name: tensor.to(dtype) for name, tensor in weights_of(model).items()}
        save_tensors(staged / "model.safetensors", weights, {})
        write_text(staged / "tokenizer.json", saved.tokenizer.to_str(pretty=False))
        write_text(staged / "vocab.txt", saved.vocabulary.text())
        if (counts := saved.vocabulary.counts) is not None:
            save_tensors(staged / _COUNTS, {"counts": torch.from_numpy(counts)}, {})
        if saved.word_table is not None:
            saved.word_table.save(staged, "word_table")
        if (table := input_table(model)) is not None and table is not saved.word_table:
            table.save(staged, "input_table")
        if saved.start_state is not None:
            save_tensors(staged / _START, saved.start_state.tensors(), {})


def load_bilm(folder: str | Path) -> BilmFolder:
    """Read a model folder, by path or name, or published ELMo files; errors name the file that is wrong."""
    folder = resolve_name(folder)
    if kind_of(folder) is None:
        published = importlib.import_module("elmokit.published.convert")  # to the right, by name
        foreign: BilmFolder | None = published.load_foreign(folder)
        if foreign is not None:
            return foreign
    record = read_record(folder, "bilm")
    with explain_damage(folder):
        config, text = BilmConfig.from_dict(record["model"]), TextConfig.from_dict(record["text"])
        n_words, n_pieces = int(record["n_words"]), int(record["n_pieces"])
        training = dict(record["training"])
        if "licence" in training:  # as 0.1 spelled it
            training["license"] = training.pop("licence")
    vocabulary, tokenizer = load_words(folder, n_words, n_pieces if config.input != "char+word" else 0)
    if (folder / _COUNTS).exists():
        vocabulary.counts = load_tensors(folder / _COUNTS)[0]["counts"].numpy()
    with torch.device("meta"):
        model = Bilm(config, n_words, n_pieces)
    weights = load_weights(folder / "model.safetensors", dict(model.named_parameters()))
    model.load_state_dict(weights, strict=False, assign=True)
    table = WordTable.load(folder, "word_table")
    if config.input == "char+word" and not n_pieces:
        model.encoder.table = WordTable.load(folder, "input_table") or table  # type: ignore[assignment]
    if config.tie:
        model.predictor.weight = model.encoder.weight
    model.eval()
    start_state = None
    if (folder / _START).exists():
        start_state = BilmState.from_tensors(load_weights(folder / _START, model.zero_state(1).tensors()))
    return BilmFolder(model, text, vocabulary, tokenizer, training, start_state, table)
