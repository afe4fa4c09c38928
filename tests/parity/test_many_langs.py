"""ELMoForManyLangs folders, made up here, against their equations written out once more; and broken ones."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from torch import Tensor

import published
from elmokit import Elmo, convert, pretrain, verify
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import ConfigError, ModelError
from elmokit.published.many_langs import read_state_dict
from elmokit.text.tokenizing import SPECIALS

DIM, CELLS, LAYERS, CHAR_DIM, WORD_DIM, MAX_CHARS = 4, 6, 2, 3, 5, 12
FILTERS = [(1, 3), (2, 4), (3, 2)]
TOTAL = sum(count for _, count in FILTERS)
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "the", "cat", "naïve", "extraordin"]
CHARS = ["<bos>", "<eos>", "<oov>", "<bow>", "<eow>", "<pad>", *"abcdehnorstxï日\u3000"]
SENTENCES = [["the", "cat"], ["naïve", "zebra", "extraordinarily"], ["日本"], ["cat", "the", "cat", "!"]]
SETTINGS = {
    "encoder": {"name": "elmo", "projection_dim": DIM, "cell_clip": 0.4, "proj_clip": 0.3, "dim": CELLS},
    "token_embedder": {"name": "cnn", "activation": "relu", "max_characters_per_token": MAX_CHARS},
    "dropout": 0.1,
}
State = dict[str, Tensor]
GATES = "forward_layer_0.input_linearity.weight"
PARTS = {  # of a layer, with the scale of its numbers
    "input_linearity.weight": ((4 * CELLS, DIM), 0.7),
    "state_linearity.weight": ((4 * CELLS, DIM), 0.7),
    "state_linearity.bias": ((4 * CELLS,), 0.5),
    "state_projection.weight": ((DIM, CELLS), 0.7),
}


def encoder_tensors() -> State:
    rng = torch.Generator().manual_seed(1)
    return OrderedDict(
        (f"{direction}_layer_{layer}.{part}", torch.randn(shape, generator=rng) * scale)
        for direction in ("forward", "backward")
        for layer in range(LAYERS)
        for part, (shape, scale) in PARTS.items()
    )


def embedder_tensors(*, words: bool = True, chars: bool = True) -> State:
    rng = torch.Generator().manual_seed(2)
    found: State = OrderedDict()
    width = 0
    if words:
        found["word_emb_layer.embedding.weight"] = torch.randn(len(WORDS), WORD_DIM, generator=rng)
        width += WORD_DIM
    if chars:
        found["char_emb_layer.embedding.weight"] = torch.randn(len(CHARS), CHAR_DIM, generator=rng)
        for number, (span, count) in enumerate(FILTERS):
            found[f"convolutions.{number}.weight"] = torch.randn(count, CHAR_DIM, span, generator=rng) * 0.6
            found[f"convolutions.{number}.bias"] = torch.randn(count, generator=rng) * 0.6
        for number in range(2):
            found[f"highways._layers.{number}.weight"] = torch.randn(2 * TOTAL, TOTAL, generator=rng) * 0.4
            found[f"highways._layers.{number}.bias"] = torch.randn(2 * TOTAL, generator=rng)
        width += TOTAL
    found["projection.weight"] = torch.randn(DIM, width, generator=rng) * 0.5
    found["projection.bias"] = torch.randn(DIM, generator=rng)
    return found


def write(folder: Path, *, legacy: bool = False, settings: Any = SETTINGS, **parts: bool) -> Path:
    (folder / "configs").mkdir(parents=True)
    record = {"seed": 1, "config_path": "some/where/cnn.json"}
    (folder / "config.json").write_text(json.dumps(record), "utf-8")
    if settings is not None:
        (folder / "configs" / "cnn.json").write_text(json.dumps(settings), "utf-8")
    for name, tensors in (
        ("encoder.pkl", encoder_tensors()),
        ("token_embedder.pkl", embedder_tensors(**parts)),
    ):
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=not legacy)
    for name, listed in (("word.dic", WORDS), ("char.dic", CHARS)):
        lines = [f"{entry}\t{place}\n" for place, entry in enumerate(listed)]
        (folder / name).write_text("".join(lines), "utf-8")
    return folder


# -- their equations ------------------------------------------------------------------------------


def token(word: str, tensors: State) -> Tensor:
    """One word's vector, in float64."""
    own = {name: tensor.double() for name, tensor in tensors.items()}
    cut = word if word in ("<bos>", "<eos>") else word[: MAX_CHARS - 2]
    parts = []
    if "word_emb_layer.embedding.weight" in own:
        place = WORDS.index(cut) if cut in WORDS else WORDS.index("<oov>")
        parts.append(own["word_emb_layer.embedding.weight"][place])
    if "char_emb_layer.embedding.weight" in own:
        inside = [cut] if word in ("<bos>", "<eos>") else list(cut)
        # The first mark is <eow> and the last <bow>: so it stands in their code.
        signs = ["<eow>", *(sign if sign in CHARS else "<oov>" for sign in inside), "<bow>"]
        signs += ["<pad>"] * (MAX_CHARS - len(signs))
        e = own["char_emb_layer.embedding.weight"][[CHARS.index(sign) for sign in signs]]
        filters = [
            (own[f"convolutions.{n}.weight"], own[f"convolutions.{n}.bias"]) for n in range(len(FILTERS))
        ]
        x = F.relu(torch.cat([F.conv1d(e.t(), *pair).amax(dim=1) for pair in filters]))
        for number in range(2):
            both = own[f"highways._layers.{number}.weight"] @ x + own[f"highways._layers.{number}.bias"]
            gate = torch.sigmoid(both[TOTAL:])
            x = gate * x + (1 - gate) * F.relu(both[:TOTAL])
        parts.append(x)
    return own["projection.weight"] @ torch.cat(parts) + own["projection.bias"]


def expected(sentence: Sequence[str], **parts: bool) -> Any:
    encoder, embedder = encoder_tensors(), embedder_tensors(**parts)
    x = torch.stack([token(word, embedder) for word in ("<bos>", *sentence, "<eos>")])

    def layer(home: str) -> reference.LstmWeights:
        weights: Any = [encoder[f"{home}.{part}"].double().numpy() for part in PARTS]
        return replace(reference.LstmWeights(*weights), cell_clip=0.4, proj_clip=0.3)

    stacks = [[layer(f"{way}_layer_{n}") for n in range(LAYERS)] for way in ("forward", "backward")]
    wanted, _ = reference.bilm(x.numpy(), *stacks, residual=True)
    return np.stack(wanted, axis=1)[1:-1]


def assert_right(elmo: Elmo, sentences: list[list[str]] = SENTENCES, **parts: bool) -> None:
    for found, sentence in zip(elmo.embed(sentences).layers, sentences, strict=True):
        np.testing.assert_allclose(found, expected(sentence, **parts), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_every_layer_is_that_of_their_equations(tmp_path: Path, legacy: bool) -> None:
    assert_right(Elmo.load(write(tmp_path / "theirs", legacy=legacy)))


@pytest.mark.parametrize("parts", [{"words": False}, {"chars": False}], ids=["characters", "words"])
def test_either_input_alone(tmp_path: Path, parts: dict[str, bool]) -> None:
    elmo = Elmo.load(write(tmp_path / "theirs", **parts))
    assert elmo.model.config.input == ("dictionary" if "words" in parts else "word")
    assert_right(elmo, SENTENCES if "words" in parts else SENTENCES[::3], **parts)


def test_our_folder_gives_the_same(tmp_path: Path) -> None:
    write(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "ours")
    assert made.notes[-1].startswith("The start state")
    elmo = Elmo.load(tmp_path / "ours")
    assert_right(elmo)
    assert elmo.folder.vocabulary.words == [*SPECIALS, *WORDS[4:]]
    assert len(elmo.embed(SENTENCES, state="warm")) == len(SENTENCES)
    assert verify(tmp_path / "ours", tmp_path / "theirs").passed
    with pytest.raises(ModelError, match="dictionary input cannot be written"):
        convert(tmp_path / "ours", tmp_path / "out", to="official")


def test_it_cannot_be_trained_further(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be pretrained"):
        pretrain(tmp_path, tmp_path / "out", from_model=write(tmp_path / "model"))
    assert not (tmp_path / "out").exists()


def test_without_its_settings_file_the_usual_is_taken_with_a_note(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", settings=None)
    saved = load_bilm(folder)
    assert (saved.model.config.cell_clip, saved.model.config.max_chars) == (3.0, 50)
    assert "some/where/cnn.json" in saved.training["notes"][0]


# -- what is wrong --------------------------------------------------------------------------------


def refusal(folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load_bilm(folder)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("name", ["token_embedder.pkl", "config.json", "char.dic"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "theirs")
    (folder / name).unlink()
    assert name in refusal(folder).message


@pytest.mark.parametrize(
    ("name", "what", "part"),
    [
        ("encoder.pkl", lambda t: t.pop("backward_layer_1.state_linearity.bias"), "backward_layer_1"),
        ("encoder.pkl", lambda t: t.update({"forward_layer_1.extra": torch.ones(2)}), "layer_1.extra"),
        ("encoder.pkl", lambda t: t.update({"backward_layer_0.state_linearity.bias": torch.ones(2)}), "(2,)"),
        ("encoder.pkl", lambda t: t.update({GATES: torch.ones(2)}), "impossible"),
        ("encoder.pkl", lambda t: t["forward_layer_0.state_linearity.bias"].fill_(torch.nan), "not finite"),
        ("token_embedder.pkl", lambda t: t.pop("projection.bias"), "projection.bias"),
        ("token_embedder.pkl", lambda t: t.update({"char_lstm.weight_ih_l0": torch.ones(2)}), "char_lstm"),
        ("token_embedder.pkl", lambda t: t.update({"projection.weight": torch.ones(DIM, 3)}), "(4, 3)"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, name: str, what: Callable[[State], Any], part: str
) -> None:
    folder = write(tmp_path / "theirs")
    tensors = torch.load(folder / name, weights_only=True)
    what(tensors)
    torch.save(tensors, folder / name)
    assert part in refusal(folder).message


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("token_embedder", "activation", "selu"),
        ("encoder", "cell_clip", 10**400),
        ("token_embedder", "max_characters_per_token", 10**9),
    ],
)
def test_settings_that_no_model_has_are_refused(tmp_path: Path, part: str, key: str, value: Any) -> None:
    settings = json.loads(json.dumps(SETTINGS))
    settings[part][key] = value
    refusal(write(tmp_path / "theirs", settings=settings))


@pytest.mark.parametrize("text", ["the\n", "the\tx\n", "\xff\xfe", "a\t0\nb\t0\n"])
def test_word_lists_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "theirs")
    (folder / "word.dic").write_bytes(text.encode("latin-1"))
    assert "word.dic" in refusal(folder).message


def test_a_mark_that_a_list_of_characters_lacks_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs")
    text = (folder / "char.dic").read_text("utf-8").replace("<bow>", "q")
    (folder / "char.dic").write_text(text, "utf-8")
    assert "<bow>" in refusal(folder).message


@pytest.mark.parametrize("how", ["bare", "zip", "legacy"])
def test_a_pickle_that_would_run_code_is_refused_and_not_loaded(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "theirs")
    monkeypatch.chdir(tmp_path)
    if how == "bare":
        (folder / "encoder.pkl").write_bytes(pickle.dumps(published.Trap()))
    else:
        torch.save(
            {"a": published.Trap()}, folder / "encoder.pkl", _use_new_zipfile_serialization=how == "zip"
        )
    error = refusal(folder)
    assert "encoder.pkl" in error.message
    assert not (tmp_path / "it-was-loaded").exists()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_files_that_are_cut_off_are_refused(tmp_path: Path, legacy: bool) -> None:
    folder = write(tmp_path / "theirs", legacy=legacy)
    data = (folder / "encoder.pkl").read_bytes()
    for length in (0, len(data) // 2):
        (folder / "encoder.pkl").write_bytes(data[:length])
        assert "encoder.pkl" in refusal(folder).message


def test_tensors_that_share_their_numbers_and_half_floats_are_read(tmp_path: Path) -> None:
    table = torch.arange(2000.0)
    torch.save({"a": table, "b": table, "c": table[:7], "d": table[:5].half()}, tmp_path / "x.pkl")
    found = read_state_dict(tmp_path / "x.pkl")
    assert [tensor.tolist() for tensor in found.values()] == [
        tensor.tolist() for tensor in (table, table, table[:7], table[:5])
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, {"a": torch.eye(2).to_sparse()}], ids=str)
def test_what_is_no_dictionary_of_tensors_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pkl")
    with pytest.raises(ModelError, match="dictionary of plain tensors"):
        read_state_dict(tmp_path / "x.pkl")
