"""A language model as a folder: it comes back to the bit, or an error says what is wrong."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.core.errors import ModelError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.text.vocabulary import Vocabulary, learn_bpe
from folders import drop_checksums
from odd_texts import make_model

TEXT = "the cat sat on a mat and dogs ran unhappily happily away from naïve cats 日本 , ."
WORDS = TEXT.split()
MORPHEME = pytest.param(
    {"input": "morpheme", "pooling": "max"},
    id="morpheme",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("morfessor") is None, reason="morfessor is not installed"
    ),
)
KINDS = [
    pytest.param({"input": "char"}, id="char"),
    pytest.param(
        {"input": "char", "hidden_dim": 9, "cell_clip": 3.0, "proj_clip": 3.0, "n_highway": 2},
        id="char projected",
    ),
    pytest.param({"input": "char+word", "table_dim": 4, "n_pieces": 1 + len(WORDS)}, id="char+word"),
    pytest.param({"input": "word", "tie": True}, id="word tied"),
    pytest.param({"input": "word", "objective": "adaptive", "n_layers": 1}, id="word adaptive"),
    pytest.param({"input": "subword", "objective": "adaptive", "pooling": "sum"}, id="subword adaptive"),
    MORPHEME,
]


def make(settings: dict[str, Any]) -> BilmFolder:
    saved = make_model(known=TEXT, text=TextConfig(lowercase=True), **settings)
    training = {"date": "2024-01-01", "history": [{"step": 1.0, "perplexity": 12.5}], "command": "x ß"}
    return replace(saved, training=training, start_state=None)


def layers(saved: BilmFolder) -> Tensor:
    """All layers for two texts, one with a word that no vocabulary knows."""
    words = ["<s>", "the", "cats", "unhappily", "xyzzy", "</s>", "日本"]
    features = torch.from_numpy(saved.features.rows(words).astype(np.int64))
    index = torch.tensor([[0, 1, 2, 3, 5], [0, 4, 6, 5, 0]])
    with torch.no_grad():
        out: Tensor = saved.model(features, index, torch.tensor([5, 4])).stacked()
    return out


@pytest.fixture
def saved_char(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_bilm(folder, make({"input": "char"}))
    return folder


# -- round trip -----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", KINDS)
def test_a_saved_model_comes_back_to_the_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    saved = make(settings)
    save_bilm(tmp_path / "model", saved)
    found = load_bilm(tmp_path / "model")
    assert found.model.config == saved.model.config
    assert (found.model.n_words, found.model.n_pieces) == (saved.model.n_words, saved.model.n_pieces)
    assert found.text == saved.text
    assert found.vocabulary.words == saved.vocabulary.words
    assert found.training == saved.training
    assert found.tokenizer.to_str() == saved.tokenizer.to_str()
    ours, theirs = dict(saved.model.named_parameters()), dict(found.model.named_parameters())
    assert list(ours) == list(theirs)
    for name, parameter in ours.items():
        assert theirs[name].dtype == parameter.dtype
        assert torch.equal(theirs[name], parameter), name
    words = [*WORDS, "xyzzy", *SPECIALS]
    assert np.array_equal(found.features.rows(words), saved.features.rows(words))
    torch.testing.assert_close(layers(found), layers(saved), rtol=1e-6, atol=1e-7)
    save_bilm(tmp_path / "again" / "model", found)
    names = sorted(file.name for file in (tmp_path / "model").iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"]
    for name in names:
        again = (tmp_path / "again" / "model" / name).read_bytes()
        assert again == (tmp_path / "model" / name).read_bytes(), name
        assert str(tmp_path).encode() not in again, name
    assert not found.model.training


@pytest.mark.parametrize("objective", ["sampled", "full"])
def test_a_tied_table_is_saved_once_and_shared_again(tmp_path: Path, objective: str) -> None:
    save_bilm(tmp_path / "model", make({"input": "word", "tie": True, "objective": objective}))
    tensors, _ = load_tensors(tmp_path / "model" / "model.safetensors")
    assert "encoder.weight" in tensors
    assert "predictor.weight" not in tensors
    model = load_bilm(tmp_path / "model").model
    assert model.predictor.weight is model.encoder.weight
    held = [*model.parameters(), *model.buffers(), model.predictor.weight]
    assert not any(isinstance(tensor, Tensor) and tensor.is_meta for tensor in held)


# -- what is not a model --------------------------------------------------------------------------


def test_a_folder_without_a_model_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        load_bilm(tmp_path)
    assert "pretrain" in caught.value.remedy
    (tmp_path / "run").mkdir()
    with pytest.raises(ModelError) as caught:
        load_bilm(tmp_path)
    assert "not finished" in caught.value.remedy


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change to config.json."""

    def apply(folder: Path) -> None:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        change(record)
        (folder / "config.json").write_text(json.dumps(record), encoding="utf-8")

    return apply


def tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    """A change to model.safetensors."""

    def apply(folder: Path) -> None:
        found, _ = load_tensors(folder / "model.safetensors")
        found = {name: tensor.clone() for name, tensor in found.items()}
        change(found)
        save_tensors(folder / "model.safetensors", found, {})

    return apply


def cut(name: str) -> Callable[[Path], object]:
    """A file that lost its second half."""
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "later format": (edit(lambda r: r.update(format_version=99)), "format version 99"),
    "config without a section": (edit(lambda r: r.pop("text")), "config.json"),
    "unknown setting": (edit(lambda r: r["model"].update(dimm=3)), "dimm"),
    "setting out of range": (edit(lambda r: r["model"].update(dim=0)), "dim"),
    "infinitely many words": (edit(lambda r: r.update(n_words=math.inf)), "config.json"),
    "other number of words": (edit(lambda r: r.update(n_words=5)), "vocab.txt"),
    "other width": (edit(lambda r: r["model"].update(dim=7, hidden_dim=7)), "shape"),
    "weights cut off": (cut("model.safetensors"), "model.safetensors"),
    "tensor missing": (tensors(lambda t: t.pop("predictor.bias")), "predictor.bias"),
    "tensor too many": (tensors(lambda t: t.update(extra=torch.ones(1))), "extra"),
    "tensor of another shape": (tensors(lambda t: t.update({"predictor.bias": torch.ones(3)})), "shape"),
    "vocabulary cut off": (cut("vocab.txt"), "vocab.txt"),
    "tokenizer cut off": (cut("tokenizer.json"), "tokenizer.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_a_model_error_that_names_what_is_wrong(saved_char: Path, damage: str) -> None:
    apply, expected = DAMAGES[damage]
    apply(saved_char)
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            load_bilm(saved_char)
        drop_checksums(saved_char)
    assert expected in str(caught.value)


def test_pieces_of_another_model_are_a_model_error(tmp_path: Path) -> None:
    save_bilm(tmp_path / "model", make({"input": "subword"}))
    vocabulary = Vocabulary([*SPECIALS, *WORDS])
    counts = np.ones(len(vocabulary), dtype=np.int64)
    other = TextPipeline(TextConfig()).tokenizer(learn_bpe(vocabulary.words, counts, 90))
    assert other.get_vocab_size() > load_bilm(tmp_path / "model").model.n_pieces
    (tmp_path / "model" / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    drop_checksums(tmp_path / "model")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_bilm(tmp_path / "model")
