"""``Elmo.embed`` against the numpy reference: every layer of every word, whatever a text starts from."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference
import torch
from test_bilm import Reference, random_state, row_state

from elmokit.bilm.folder import BilmFolder
from elmokit.bilm.state import BilmState
from elmokit.core.errors import ModelError
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, TextPipeline
from elmokit.vectors import elmo as elmo_module
from elmokit.vectors.elmo import Elmo
from odd_texts import make_model

TOLERANCE = 1e-5
TEXT = "the cat sat on a mat and dogs ran unhappily away from naïve cats 日 本 , ."
KNOWN = TEXT.split()
MAX_CHARS = 9
SHAPES: dict[str, dict[str, Any]] = {
    "char": {"input": "char"},
    "char, not residual": {"input": "char", "residual": False, "n_layers": 3},
    "char, projected and clipped": {
        "input": "char",
        "hidden_dim": 6,
        "cell_clip": 0.3,
        "proj_clip": 0.2,
        "n_highway": 2,
        "char_activation": "tanh",
    },
    "word": {"input": "word"},
    "word, tied, clipped, not residual": {
        "input": "word",
        "residual": False,
        "cell_clip": 0.3,
        "tie": True,
        "objective": "full",
    },
    "subword": {"input": "subword"},
    "subword, max, projected, 1 layer": {
        "input": "subword",
        "pooling": "max",
        "hidden_dim": 3,
        "n_layers": 1,
    },
}
TEXTS = [
    "The cat sat on a mat.",
    "",
    "dogs",
    "Unhappily, naïve cats ran away from 日本 and extraordinarily xenophobic dogs!",
    " \t\n ",
    "שלום 😀 👨‍👩‍👧 e\u0301 \u0301 قطة",
    "the the the",
]

shapes = pytest.mark.parametrize("shape", SHAPES)
few_shapes = pytest.mark.parametrize("shape", ["char", "char, projected and clipped", "word", "subword"])


@functools.cache
def folder_of(shape: str) -> BilmFolder:
    small = {"dim": 4, "hidden_dim": 4, "max_chars": MAX_CHARS}
    made = make_model(3, known=TEXT, text=TextConfig(lowercase=True), **{**small, **SHAPES[shape]})
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            if "stack" in name:  # so large that every clip has an effect
                parameter.normal_(0.0, 0.7)
    return replace(made, start_state=random_state(made.model, 1))


def row_of(folder: BilmFolder, word: str) -> reference.Ints:
    """What the token encoder takes for a word, spelt out once more."""
    if folder.model.config.input == "word":
        words = list(SPECIALS) + KNOWN
        return np.array([words.index(word) if word in words else words.index("<unk>")])
    if folder.model.config.input == "subword":
        if word in SPECIALS:
            return np.array([SPECIALS.index(word)])
        return np.array([piece.id for piece in folder.tokenizer.model.tokenize(word)])
    marks = {"<s>": [256], "</s>": [257]}
    inside = marks.get(word) or list(word.encode())[: MAX_CHARS - 2]
    framed = [258, *inside, 259]
    return np.array([*framed, *[260] * (MAX_CHARS - len(framed))]) + 1


@functools.cache
def plain_of(shape: str) -> Reference:
    return Reference(folder_of(shape).model)


@functools.cache
def vector_of(shape: str, word: str) -> reference.Array:
    return plain_of(shape).vector(row_of(folder_of(shape), word))


PlainState = tuple[list[reference.State], list[reference.State]]


def read(
    shape: str, words: Sequence[str], state: PlainState | None = None
) -> tuple[reference.Array, PlainState]:
    """(n_words + 2, layer, 2 dim) with <s> and </s>, and both states after it."""
    plain = plain_of(shape)
    x = np.stack([vector_of(shape, word) for word in ("<s>", *words, "</s>")])
    residual = plain.config.residual
    layers, after = reference.bilm(x, plain.forward, plain.backward, residual=residual, state=state)
    return np.stack(layers, axis=1), after


def words_of(shape: str, texts: Sequence[str]) -> list[list[str]]:
    return [folder_of(shape).pipeline.words(text) for text in texts]


def assert_close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def assert_same_state(found: BilmState, row: int, wanted: PlainState) -> None:
    for found_states, wanted_states in zip(row_state(found, row), wanted, strict=True):
        for (h, c), (wanted_h, wanted_c) in zip(found_states, wanted_states, strict=True):
            assert_close(h, wanted_h)
            assert_close(c, wanted_c)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("boundaries", [False, True], ids=["words alone", "with boundaries"])
@shapes
def test_every_layer_of_every_word_equals_the_reference_of_its_text_alone(
    shape: str, boundaries: bool, batch_size: int | None
) -> None:
    elmo = Elmo(folder_of(shape))
    out = elmo.embed(TEXTS, boundaries=boundaries, batch_size=batch_size)
    config = elmo.model.config
    assert (out.n_layers, out.dim) == (elmo.n_layers, elmo.dim) == (config.n_layers + 1, 2 * config.dim)
    assert len(out) == len(TEXTS)
    for index, words in enumerate(words_of(shape, TEXTS)):
        wanted, _ = read(shape, words)
        assert out.tokens[index] == (["<s>", *words, "</s>"] if boundaries else words)
        assert_close(out[index], wanted if boundaries else wanted[1:-1])


@shapes
def test_control_words_in_a_text_count_as_unknown_and_never_as_boundaries(shape: str) -> None:
    text = ["the", "<s>", "cat", "</s>", "<pad>", "<unk>", "dogs"]
    out = Elmo(folder_of(shape)).embed([text, ["dogs"]], boundaries=True)
    assert out.tokens[0] == ["<s>", *text, "</s>"]
    unknown = ["<unk>" if word in SPECIALS else word for word in text]
    assert_close(out[0], read(shape, unknown)[0])
    assert_close(out[1], read(shape, ["dogs"])[0])


@pytest.mark.parametrize("tokens", ["words", "whitespace"])
def test_control_words_in_raw_text_are_never_boundaries(tokens: Any) -> None:
    folder = folder_of("char")
    text = TextConfig(lowercase=True, tokens=tokens)
    out = Elmo(replace(folder, text=text)).embed(["the <s> cat </s> <pad> <unk>"])
    words = TextPipeline(text).words("the <s> cat </s> <pad> <unk>")
    assert out.tokens == [words]
    wanted, _ = read("char", ["<unk>" if word in SPECIALS else word for word in words])
    assert_close(out[0], wanted[1:-1])


@shapes
def test_words_given_one_by_one_are_read_whole(shape: str) -> None:
    text = ["The", "New York", "naïve cats", "mat", "日本", "extraordinarily"]
    out = Elmo(folder_of(shape)).embed([text])
    cleaned = [word.lower() for word in text]
    assert out.tokens == [cleaned]
    assert_close(out[0], read(shape, cleaned)[0][1:-1])


# -- long texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["zero", "warm", "stateful"])
@pytest.mark.parametrize("window", [1, 5])
@few_shapes
def test_texts_read_in_windows_equal_the_reference_in_one_go(
    shape: str, window: int, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmo_module, "_WINDOW", window)
    monkeypatch.setattr(elmo_module, "_BATCH_TOKENS", 24)
    folder = folder_of(shape)
    out = Elmo(folder).embed(TEXTS[:4], state=state, boundaries=True)
    assert folder.start_state is not None
    before = row_state(folder.start_state, 0) if state == "warm" else None
    for index, words in enumerate(words_of(shape, TEXTS[:4])):
        wanted, after = read(shape, words, before)
        assert_close(out[index], wanted)
        before = after if state == "stateful" else before


def test_a_text_of_five_thousand_words_equals_the_reference() -> None:
    rng = np.random.default_rng(0)
    long, short = [str(word) for word in rng.choice(KNOWN, 5000)], ["the", "cat"]
    out = Elmo(folder_of("char")).embed([long, short, []])
    assert [len(row) for row in out.layers] == [5000, 2, 0]
    assert_close(out[0], read("char", long)[0][1:-1])
    assert_close(out[1], read("char", short)[0][1:-1])


# -- what a text starts from ----------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 3, 10])
@few_shapes
def test_stateful_carries_each_rows_state_from_batch_to_batch(shape: str, batch_size: int | None) -> None:
    out = Elmo(folder_of(shape)).embed(TEXTS, state="stateful", batch_size=batch_size, boundaries=True)
    n_rows = batch_size or 1
    states: list[PlainState | None] = [None] * n_rows
    for index, words in enumerate(words_of(shape, TEXTS)):
        wanted, states[index % n_rows] = read(shape, words, states[index % n_rows])
        assert_close(out[index], wanted)
    assert out.state is not None
    for row, state in enumerate(states):
        if state is None:
            assert not any(tensor[row].any() for tensor in out.state.tensors().values())
        else:
            assert_same_state(out.state, row, state)


@few_shapes
def test_a_state_of_several_rows_is_where_each_row_goes_on(shape: str) -> None:
    given = random_state(folder_of(shape).model, 3)
    before = {name: tensor.clone() for name, tensor in given.tensors().items()}
    out = Elmo(folder_of(shape)).embed(TEXTS[:5], state=given)
    states = [row_state(given, row) for row in range(3)]
    for index, words in enumerate(words_of(shape, TEXTS[:5])):
        wanted, states[index % 3] = read(shape, words, states[index % 3])
        assert_close(out[index], wanted[1:-1])
    assert out.state is not None
    for row in range(3):
        assert_same_state(out.state, row, states[row])
    assert all(torch.equal(before[name], tensor) for name, tensor in given.tensors().items())


@few_shapes
def test_warm_starts_every_text_from_the_folders_state(shape: str) -> None:
    folder = folder_of(shape)
    assert folder.start_state is not None
    out = Elmo(folder).embed(TEXTS, state="warm")
    for index, words in enumerate(words_of(shape, TEXTS)):
        wanted, _ = read(shape, words, row_state(folder.start_state, 0))
        assert_close(out[index], wanted[1:-1])
    assert out.state is None


@pytest.mark.parametrize(("state", "is_kept"), [("zero", False), ("warm", False), ("stateful", True)])
def test_the_end_state_is_asked_for_only_where_it_is_carried_on(
    state: Any, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    elmo = Elmo(folder_of("char"))
    run, asked = elmo.model.run, list[bool]()

    def watched(*given: Any, keep_state: bool = False, **options: Any) -> Any:
        asked.append(keep_state)
        return run(*given, keep_state=keep_state, **options)

    monkeypatch.setattr(elmo.model, "run", watched)
    elmo.embed(TEXTS, state=state)
    assert set(asked) == {is_kept}


def test_encode_gives_the_end_state_if_told_to() -> None:
    elmo = Elmo(folder_of("char"))
    given = random_state(elmo.model, 2)
    assert elmo.run_batch([["the"], ["cat", "sat"]], given).state is None
    after = elmo.run_batch([["the"], ["cat", "sat"]], given, keep_state=True).state
    assert after is not None
    for row, words in enumerate((["the"], ["cat", "sat"])):
        assert_same_state(after, row, read("char", words, row_state(given, row))[1])


def test_warm_without_a_start_state_is_refused_with_a_remedy() -> None:
    elmo = Elmo(replace(folder_of("char"), start_state=None))
    for texts in (["the cat"], []):
        with pytest.raises(ModelError, match="no start state") as caught:
            elmo.embed(texts, state="warm")
        assert "state='zero'" in caught.value.remedy
