"""Encoders side by side: their layers as one encoder's, folders, and every task with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import elmokit
from elmokit.core.errors import ConfigError
from elmokit.serve.app import make_app
from elmokit.serve.registry import open_registry
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.estimator import TextClassifier
from elmokit.tasks.fit import open_predictor
from elmokit.tasks.stack import StackModel
from elmokit.text.settings import TextConfig
from elmokit.vectors.encoder import Encoder
from elmokit.vectors.side_by_side import Encoders, LayeredEncoders, join_encoders
from program import Cli
from topics import EASY, OTHERS, TOPICS, make_elmo, rows, table

WORDS = [*OTHERS, *(word for words in TOPICS.values() for word in words)]
TEXTS = ["We saw the bank", "", "zzz goal", "a"]
DIM = 5


def make_vectors(seed: int = 0) -> WordVectors:
    numbers = np.random.default_rng(seed).normal(size=(len(WORDS), DIM))
    return WordVectors.of(WORDS, numbers, TextConfig(lowercase=True))


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    make_vectors().save(tmp_path / "my-sgns")
    return tmp_path / "my-sgns"


def test_layers_are_those_of_each_encoder_with_the_halves_of_directions_at_both_ends() -> None:
    elmo, static, other = make_elmo(), make_vectors(), make_vectors(1)
    joint: Any = join_encoders([static, elmo, other])
    encoder: Encoder = joint
    assert isinstance(encoder, LayeredEncoders)
    assert (encoder.n_layers, encoder.dim, encoder.n_edge) == (3, elmo.dim + 2 * DIM, 1)
    words, half = encoder.words(TEXTS), elmo.dim // 2
    assert words == static.words(TEXTS)
    ids, order = encoder.to_ids(iter(words)), np.array([2, 0, 1])
    some = [words[row] for row in order]
    with torch.no_grad():
        ways = [encoder.layers(ids, order), encoder.layers(encoder.precompute(ids), order)]
    for layers in (*ways, encoder.batch(some)):
        inner, contextual, table = layers.words(), elmo.batch(some).words(), static.batch(some).values[0]
        assert torch.equal(inner.mask, contextual.mask)
        assert len(inner.values) == 3
        for mine, theirs in zip(inner.values, contextual.values, strict=True):
            both = torch.cat([mine[:, :, :half], mine[:, :, half + DIM : -DIM]], dim=2)
            torch.testing.assert_close(both, theirs, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(mine[:, :, half : half + DIM], table * inner.mask.unsqueeze(2))
    assert encoder.batch([[], []]).words().mask.shape == (2, 0)
    plain = join_encoders([static, other])
    assert isinstance(plain, LayeredEncoders)
    assert not plain.directional
    assert plain.batch([["bank"], []]).values[0].shape == (2, 1, 2 * DIM)


def test_a_folder_opens_by_itself(tmp_path: Path) -> None:
    joint: Any = join_encoders([make_elmo(), make_vectors()])
    joint.save(tmp_path / "both")
    loaded: Any = elmokit.load(tmp_path / "both")
    assert loaded.fingerprint == joint.fingerprint
    assert join_encoders([joint, make_vectors(1)]).dim == joint.dim + DIM
    assert np.array_equal(loaded.sentences(TEXTS), joint.sentences(TEXTS))
    assert loaded.sentences([]).shape == (0, joint.dim)
    assert "2 encoders side by side" in repr(loaded)


TAGS = ("text", "tags", [(text, " ".join("TOPIC" if word in WORDS[4:] else "O" for word in text.split()))
                         for text, _ in rows(60)])  # fmt: skip
TASKS: dict[str, tuple[tuple[str, ...], list[Any]]] = {
    "tag": (("text", "tags"), TAGS[2]),
    "pair": (
        ("text", "other", "label"),
        [
            (a, b, "same" if x == y else "no")
            for (a, x), (b, y) in zip(rows(60), rows(60, 1)[::-1], strict=True)
        ],
    ),
    "answer": (
        ("question", "passage", "answer"),
        [
            ("Which topic?", text, next(word for word in text.split() if word in WORDS[4:]))
            for text, _ in rows(60)
        ],
    ),
    "classify": (("text", "label"), rows(60)),
}


@pytest.mark.parametrize("finetune", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_fitted_saved_and_served(
    task: str, finetune: bool, encoder: Path, vectors: Path, tmp_path: Path, no_report: None
) -> None:
    names, lines = TASKS[task]
    data = table(tmp_path / "rows.csv", lines, names)
    settings = {**EASY, "epochs": 3, "finetune": finetune, "head": "pool" if task == "classify" else "auto"}
    fitted = elmokit.fit(encoder, data, tmp_path / "made", with_=vectors, task=task, **settings)
    fields = open_predictor(tmp_path / "made").task.fields
    texts = [tuple(row[: len(fields)]) for row in lines[:6]]
    assert fitted.model is not None
    wanted, loaded = (
        list(model.predict(texts)) for model in (fitted.model, open_predictor(tmp_path / "made"))
    )
    columns = fitted.model.task.columns
    assert [str(columns(one)) for one in loaded] == [str(columns(one)) for one in wanted]
    assert fitted.model.record.encoder["name"] == f"{encoder.name} + my-sgns"
    assert elmokit.fit(encoder, data, tmp_path / "made", with_=vectors, task=task, **settings).was_done
    registry = open_registry([tmp_path / "made"], ["we saw a bank"])
    with TestClient(make_app(registry), base_url="http://127.0.0.1") as client:
        given = [dict(zip(fields, row, strict=True)) for row in texts]
        answer = client.post("/v1/predict", json={"texts": given}).json()
        assert len(answer["results"]) == len(texts)
        assert set(answer["results"][0]) == set(columns(wanted[0]))


def test_the_stack_has_views_of_each_encoder(encoder: Path, vectors: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "rows.csv", rows(60))
    np.save(tmp_path / "given.npy", np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
    others: list[str | Path] = [vectors, f"vectors:{tmp_path / 'given.npy'}"]
    elmokit.fit(encoder, data, tmp_path / "made", with_=others)
    model = elmokit.load(tmp_path / "made")
    assert isinstance(model, StackModel)
    names = [view.name for view in model.tried]
    assert names == ["words", "characters", "context", "layers", "context-2", "sentence-3"]
    assert type(model.encoder) is Encoders
    (prediction,) = model.predict([(rows(1)[0][0],)])
    assert prediction.label == rows(1)[0][1]
    assert elmokit.fit(encoder, data, tmp_path / "made", with_=others).was_done
    only = elmokit.fit(vectors, data, tmp_path / "static", with_=encoder).model
    assert isinstance(only, StackModel)
    assert [view.name for view in only.tried][2:] == ["context", "layers", "context-2"]


def test_the_command_line_takes_several(cli: Cli, encoder: Path, vectors: Path, tmp_path: Path) -> None:
    make_vectors(1).save(tmp_path / "more")
    data, out = table(tmp_path / "rows.csv", TASKS["tag"][1], ("text", "tags")), tmp_path / "made"
    words = ("--task", "tag", "--head", "linear", "--epochs", "2", "-o", out)
    cli("fit", encoder, data, "--with", vectors, "--with", tmp_path / "more", *words).check_fine("Done")
    facts = json.loads(cli("inspect", out, "--json").out)
    assert facts["encoder"]["name"] == f"{encoder.name} + my-sgns + more"
    cli("fit", "tfidf-svm", data, "--with", vectors, "-o", tmp_path / "new").check_refused(
        "cannot be combined"
    )
    np.save(tmp_path / "a.npy", np.ones((60, 2)))
    cli(
        "fit", encoder, data, "--with", f"vectors:{tmp_path / 'a.npy'}", "--task", "tag", "-o", out
    ).check_refused("one vector for each text and no layers")
    with pytest.raises(ConfigError, match="no contextual vectors"):
        open_registry([out], ["we saw"]).models["made"].require_elmo()


@pytest.mark.parametrize("head", ["auto", "linear"])
def test_the_estimator_takes_several(encoder: Path, vectors: Path, tmp_path: Path, head: str) -> None:
    texts, labels = zip(*rows(30), strict=True)
    several: Any = clone(TextClassifier(encoder, with_=vectors, head=head))
    with pytest.raises(NotFittedError):
        several.predict(texts)
    several.fit(texts, labels)
    assert len(several.model_.encoder.parts) == 2
    several.save(tmp_path / "made")
    again = TextClassifier.load(tmp_path / "made")
    assert np.array_equal(again.predict_proba(texts), several.predict_proba(texts))
    assert type(again.fit(texts, labels).model_.encoder) is LayeredEncoders
