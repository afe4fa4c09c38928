"""``Elmo`` as an encoder: ids, layers of a batch, edges, unfreezing, a copy to fine-tune."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elmokit.core.config import DropoutConfig
from elmokit.text.tokenizing import BOS, EOS, PAD, UNK
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import Encoder, number_words
from odd_texts import make_model

TEXTS = ["the cat sat on the mat", "", "a dog <unk> zyx", "the cat"]


@pytest.fixture(params=["char", "word"])
def elmo(request: pytest.FixtureRequest) -> Elmo:
    return Elmo(make_model(input=request.param))


def test_ids_stand_between_the_edges_and_specials_in_a_text_are_unknown(elmo: Elmo) -> None:
    encoder: Encoder = elmo
    ids = encoder.to_ids(iter([["the", "cat", "the"], [], ["<s>"]]))
    assert ids.values.tolist() == [BOS, 4, 5, 4, EOS, BOS, EOS, BOS, UNK, EOS]
    assert ids.offsets.tolist() == [0, 5, 7, 10]
    assert len(ids.features) == 6
    without_edges = number_words([[], ["cat"]], elmo.folder.features)
    assert without_edges.values.tolist() == [PAD, 4]  # a text without a word is one <pad>


def test_all_ways_to_the_layers_agree(elmo: Elmo) -> None:
    words = elmo.words(TEXTS)
    ids, rows = elmo.to_ids(words), np.array([3, 0, 1])
    wanted = elmo.batch([words[row] for row in rows])
    with torch.no_grad():
        ways = [elmo.layers(ids, rows), elmo.layers(elmo.precompute(ids), rows)]
    for found in ways:
        assert found.n_edge == wanted.n_edge == 1
        assert torch.equal(found.mask, wanted.mask)
        for mine, theirs in zip(found.values, wanted.values, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    embedded = elmo.embed([words[row] for row in rows])
    inner = wanted.words()
    assert inner.mask.sum(dim=1).tolist() == [2, 6, 0]
    for place in range(3):
        stacked = torch.stack([layer[place][inner.mask[place]] for layer in inner.values], dim=1)
        np.testing.assert_allclose(stacked.numpy(), embedded[place], rtol=1e-5, atol=1e-6)
    assert not any(layer[~inner.mask].any() for layer in inner.values)


def test_dropout_needs_a_generator(elmo: Elmo) -> None:
    ids, rows = elmo.to_ids(elmo.words(TEXTS)), np.arange(4)
    rates = DropoutConfig(dropout_input=0.5)
    plain = elmo.layers(ids, rows, dropout=rates)
    dropped = elmo.layers(ids, rows, dropout=rates, rng=torch.Generator().manual_seed(0))
    again = elmo.layers(ids, rows, dropout=rates, rng=torch.Generator().manual_seed(0))
    assert torch.equal(dropped.values[0], again.values[0])
    assert not torch.equal(dropped.values[0], plain.values[0])
    assert plain.values[-1].requires_grad


def test_the_content_hash_changes_with_any_word_and_with_the_salt(elmo: Elmo) -> None:
    ids, other = elmo.to_ids([["the", "cat"]]), elmo.to_ids([["the", "dog"]])
    hashes = {ids.content_hash("a"), ids.content_hash("b"), elmo.to_ids([["the", "cat"]]).content_hash("a")}
    assert len(hashes) == 2
    if elmo.model.config.input == "char":
        assert other.content_hash("a") not in hashes


def test_sentences_are_means_of_the_equal_mix(elmo: Elmo) -> None:
    np.testing.assert_array_equal(elmo.sentences(TEXTS), elmo.embed(TEXTS).sentence("mean"))
    assert elmo.sentences([]).shape == (0, elmo.dim)


def test_unfreezing_goes_from_the_top_layer_down_to_the_token_encoder(elmo: Elmo) -> None:
    groups = elmo.unfreezing_order()
    assert len(groups) == elmo.n_layers
    assert all("_stack.layers.1." in name for name in groups[0])
    assert all(name.startswith("encoder.") for name in groups[-1])
    names = [name for group in groups for name in group]
    known = [name for name, _ in elmo.module.named_parameters() if not name.startswith("predictor.")]
    assert sorted(names) == sorted(known)


def test_a_copy_is_frozen_and_leaves_the_original_as_it_is(elmo: Elmo) -> None:
    elmo.folder.training.update(held_out={"perplexity": 3.0}, command="pretrain")
    mark, copied = elmo.fingerprint, elmo.copy()
    assert copied.folder.training == {"command": "pretrain", "fine_tuned": True}
    assert copied.folder.start_state is None
    assert not any(parameter.requires_grad for parameter in copied.module.parameters())
    with torch.no_grad():
        for parameter in copied.module.parameters():
            parameter.zero_()
    assert Elmo(elmo.folder).fingerprint == mark
    assert not copied.embed(["the cat"]).flat.any()
