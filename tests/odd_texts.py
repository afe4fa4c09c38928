"""Odd texts, and a small model without training that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.model import Bilm
from elmokit.bilm.settings import BilmConfig
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary, learn_bpe, learn_morphemes

KNOWN = "the bank raised its rates and a river flows under bridge of stone , ."
TEXTS = [
    "The bank raised its rates.",
    "A river flows under the bridge of stone.",
    "😀 👩‍👩‍👧 naïve cafe\u0301 — ok?",
    "שלום עולם, the bank",
    "\u200b",  # no word
    "日本の銀行 raised rates",
    "x" * 300 + " and its bank",
    'a "quoted" word\u2028and a line separator',
    "rates",
    "The river bank, the river bank, the river bank.",
]
SMALL = {"dim": 6, "hidden_dim": 6, "max_chars": 10, "char_dim": 3, "filters": ((1, 3), (2, 4))}


def make_model(
    seed: int = 0,
    input: str = "char",
    known: str = KNOWN,
    text: TextConfig | None = None,
    n_pieces: int = 0,
    **shape: Any,
) -> BilmFolder:
    """A small model with random weights and a start state."""
    torch.manual_seed(seed)
    config, pipeline = (
        BilmConfig.from_dict({**SMALL, "input": input, **shape}),
        TextPipeline(text or TextConfig()),
    )
    vocabulary = Vocabulary([*SPECIALS, *known.split()])
    tokenizer = pipeline.word_tokenizer(vocabulary.words)
    counts = np.arange(len(vocabulary), 0, -1, dtype=np.int64)
    if input == "subword":
        tokenizer = pipeline.tokenizer(learn_bpe(vocabulary.words, counts, 40))
    elif input == "morpheme":
        tokenizer = pipeline.tokenizer(learn_morphemes(vocabulary.words, counts))
    n_pieces = tokenizer.get_vocab_size() if input in ("subword", "morpheme") else n_pieces
    model = Bilm(config, len(vocabulary), n_pieces).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    start = model.zero_state(1)
    for tensor in start.tensors().values():
        tensor.fill_(0.25)
    return BilmFolder(model, text or TextConfig(), vocabulary, tokenizer, {}, start)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
