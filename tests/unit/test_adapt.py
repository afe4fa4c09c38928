"""``pretrain`` from a model: new words, a new softmax, what is kept; longer runs; word counts; its report."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit import Elmo
from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm, weights_of
from elmokit.bilm.perplexity import next_word_accuracy, text_perplexity
from elmokit.bilm.pretrain import LanguageModeling, PretrainResult, pretrain
from elmokit.bilm.settings import PretrainConfig
from elmokit.bilm.word_table import WordTable
from elmokit.core.errors import ConfigError, RunError
from elmokit.published.convert import remove_predictor
from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK
from elmokit.text.vocabulary import Vocabulary
from elmokit.training import loop
from odd_texts import make_model

QUICK: dict[str, Any] = {"n_lanes": 4, "window": 8, "max_steps": 4, "held_out": 0.0}


@pytest.fixture
def zebras(tmp_path: Path) -> Path:
    path = tmp_path / "zebras.txt"
    path.write_text("The old fox met a zebra .\nA zebra ran home .\n" * 10, encoding="utf-8")
    return path


def adapt(base: BilmFolder | Path, text: Path, out: Path, **changes: Any) -> tuple[BilmFolder, BilmFolder]:
    """The model before and after."""
    if isinstance(base, BilmFolder):
        save_bilm(out.with_name("base"), base)
        base = out.with_name("base")
    pretrain(text, out, from_model=base, **{**QUICK, **changes})
    return load_bilm(base), load_bilm(out)


def without_words(saved: BilmFolder) -> BilmFolder:
    """As bundled models are: no softmax, no vocabulary."""
    vocabulary = Vocabulary(SPECIALS)
    model = remove_predictor(saved).model
    model.n_words = len(SPECIALS)
    tokenizer = saved.pipeline.word_tokenizer(vocabulary.words)
    return replace(saved, model=model, vocabulary=vocabulary, tokenizer=tokenizer)


def char_word_model(table: WordTable) -> BilmFolder:
    saved = make_model(input="char+word", table_dim=8)
    saved.model.encoder.table = table
    return replace(saved, word_table=table)


def make_table(seed: int = 0) -> WordTable:
    vectors = np.random.default_rng(seed).normal(size=(3, 8)).astype(np.float32)
    return WordTable.from_vectors(["the", "fox", "zebra"], np.array([9, 5, 2]), vectors)


def test_a_model_without_words_gets_those_of_the_text_and_keeps_its_tables(
    tmp_path: Path, zebras: Path
) -> None:
    base = without_words(char_word_model(make_table()))
    base = replace(base, word_table=make_table(1))  # another one than it reads
    base.training["license"] = "CC0"
    old, new = adapt(base, zebras, tmp_path / "m", lr=1e-9, min_count=1)
    assert new.vocabulary.words[:6] == [*SPECIALS, ".", "zebra"]
    assert new.training["license"] == "CC0"
    assert (old.model.config.objective, new.model.config.objective) == ("none", "sampled")
    for name, weights in weights_of(old.model).items():
        torch.testing.assert_close(weights_of(new.model)[name], weights)
    texts = ["The fox ran ."]
    assert np.array_equal(Elmo(old).sentences(texts), Elmo(new).sentences(texts))
    np.testing.assert_allclose(Elmo(old).embed(texts).flat, Elmo(new).embed(texts).flat, atol=1e-5)
    assert text_perplexity(new, [zebras]).perplexity < len(new.vocabulary)


@pytest.mark.parametrize("kind", ["char", "word", "subword", "tied"])
def test_new_words_divide_the_chance_of_the_unknown_word(tmp_path: Path, zebras: Path, kind: str) -> None:
    shape: dict[str, Any] = {"input": "word", "tie": True} if kind == "tied" else {"input": kind}
    base = make_model(**shape, objective="full", known="The old fox ran home .")
    old, new = adapt(base, zebras, tmp_path / "m", lr=0.0)
    assert new.vocabulary.words == [*old.vocabulary.words, "zebra", "A", "a", "met"]
    assert new.vocabulary.counts is not None
    assert new.vocabulary.counts[-4:].tolist() == [20, 10, 10, 10]
    hidden = torch.randn(5, old.model.config.dim)

    def chances(saved: BilmFolder) -> torch.Tensor:
        rows: Any = saved.model.predictor
        return torch.softmax(hidden @ rows.weight.t() + rows.bias, dim=1)

    before, after = chances(old), chances(new)
    n_old = len(old.vocabulary)
    divided = after[:, UNK] + after[:, n_old:].sum(dim=1)
    torch.testing.assert_close(divided, before[:, UNK])
    torch.testing.assert_close(after[:, UNK + 1 : n_old], before[:, UNK + 1 :])
    torch.testing.assert_close(after[:, n_old] / after[:, n_old + 1], torch.full((5,), 20.5 / 10.5))
    texts = ["The old fox met a zebra ."]
    np.testing.assert_allclose(Elmo(old).embed(texts).flat, Elmo(new).embed(texts).flat, atol=1e-6)


def test_a_trained_table_and_an_adaptive_softmax_grow_with_the_words(tmp_path: Path, zebras: Path) -> None:
    shape: dict[str, Any] = {"dim": 8, "hidden_dim": 8, "filters": ((1, 4),), "input": "char+word"}
    first = tmp_path / "first.txt"
    first.write_text("The fox ran .\nThe dog ran .\n" * 9, encoding="utf-8")
    pretrain(first, tmp_path / "base", "tiny", objective="adaptive", **shape, **QUICK)
    old, new = adapt(tmp_path / "base", zebras, tmp_path / "m", lr=0.0)
    assert {"dog", "zebra"} < set(new.vocabulary.words)
    assert new.model.n_pieces > old.model.n_pieces
    texts = ["The dog met a zebra ."]
    np.testing.assert_allclose(Elmo(old).embed(texts).flat, Elmo(new).embed(texts).flat, atol=1e-6)


def test_unchanged_words_stay_as_they_are(tmp_path: Path, tiny_model: Path, tiny_corpus: Path) -> None:
    old, new = adapt(tiny_model, tiny_corpus, tmp_path / "m")
    assert new.vocabulary.words == old.vocabulary.words
    assert not (tmp_path / "m" / "run" / "softmax").exists()
    limited, _ = adapt(tiny_model, tiny_corpus, tmp_path / "n", max_words=1)  # the old words stay
    assert limited.vocabulary.words == old.vocabulary.words
    with pytest.raises(ConfigError, match="n_pieces and words_from cannot be set"):
        adapt(tiny_model, tiny_corpus, tmp_path / "o", n_pieces=9, words_from=tiny_model)


class CrashError(Exception):
    """What a run dies of."""


def test_a_crash_in_either_part_changes_nothing(
    tmp_path: Path, zebras: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_bilm(tmp_path / "base", without_words(make_model()))
    changes = {**QUICK, "epochs": 2, "max_steps": 10, "min_count": 1, "held_out": 0.2, "ema": 0.9}
    step, calls = LanguageModeling.step, [0]

    def crash(self: LanguageModeling, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] in (2, 7):  # while the softmax is fitted, and after that
            raise CrashError
        return step(self, *arguments)

    def go(out: Path) -> PretrainResult:
        return pretrain(zebras, out, from_model=tmp_path / "base", checkpoint_every=0.0, **changes)

    go(tmp_path / "alone")
    monkeypatch.setattr(LanguageModeling, "step", crash)
    for _ in range(2):
        with pytest.raises(CrashError):
            go(tmp_path / "crashed")
    assert go(tmp_path / "crashed").n_steps == 10
    files = [tmp_path / name / "model.safetensors" for name in ("alone", "crashed")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_finished_run_goes_on_with_more_of_any_length(
    tmp_path: Path, tiny_corpus: Path, tiny_config: Any
) -> None:
    def go(**changes: Any) -> PretrainResult:
        return pretrain(tiny_corpus, tmp_path / "m", tiny_config, **changes)

    first = go(max_steps=3)
    with pytest.raises(RunError, match="max_steps was 3, now 2"):
        go(max_steps=2)
    with pytest.raises(RunError, match="lr was"):
        go(max_steps=5, lr=0.1)
    assert go(max_steps=3).was_done
    more = go(max_steps=5)
    assert (more.n_steps, more.was_done) == (5, False)
    longest = go(epochs=2)  # without max_steps
    assert longest.n_steps > 5
    assert longest.n_words > more.n_words > first.n_words
    assert [entry["step"] for entry in load_bilm(tmp_path / "m").training["history"]][:2] == [3, 5]
    assert go(epochs=2).was_done
    (tmp_path / "m" / "config.json").unlink()  # a run that has not ended keeps its length
    with pytest.raises(RunError, match="epochs was 2, now 3"):
        go(epochs=3)


def test_weights_of_words_come_from_real_counts(tmp_path: Path, tiny_model: Path) -> None:
    saved = load_bilm(tiny_model)
    counts = saved.vocabulary.counts
    assert counts is not None
    words, n_words = saved.vocabulary.words, counts[len(SPECIALS) :].sum()
    inner = Elmo(saved).sif_weights([[words[5], "never-seen"]])
    np.testing.assert_allclose(inner, 1e-3 / (1e-3 + np.array([counts[5], 1]) / n_words), rtol=1e-6)
    save_bilm(tmp_path / "m", saved)
    assert np.array_equal(load_bilm(tmp_path / "m").vocabulary.counts, counts)  # type: ignore[arg-type]


# -- the report -----------------------------------------------------------------------------------


def test_a_report_has_figures_scores_and_a_warning(
    tmp_path: Path, tiny_corpus: Path, tiny_config: Any
) -> None:
    pretrain(tiny_corpus, tmp_path / "m", tiny_config, epochs=3)
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    record = json.loads((tmp_path / "m" / "report.json").read_text(encoding="utf-8"))
    assert [entry["epoch"] for entry in record["history"]] == [1, 2, 3]
    assert record["perplexity"] == load_bilm(tmp_path / "m").training["held_out"]
    for top_1, top_5 in record["accuracy"].values():
        assert 0 <= top_1 <= top_5 <= 1
    text = (tmp_path / "m" / "report.md").read_text(encoding="utf-8")
    assert f"Only {record['held_out']['n_words']} words are held out" in text
    pretrain(tiny_corpus, tmp_path / "n", tiny_config, held_out=0.0)
    assert "Nothing is held out" in (tmp_path / "n" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("objective", ["full", "adaptive"])
def test_accuracy_is_that_of_all_scores_sorted(objective: str) -> None:
    saved = make_model(objective=objective)
    model, hidden = saved.model, torch.randn(150, saved.model.config.dim)
    targets = torch.randint(model.n_words, (150,))
    scores = model.predictor.scores(hidden)
    losses = torch.log_softmax(scores.detach(), dim=1).gather(1, targets.unsqueeze(1)).sum()
    assert -float(losses) == pytest.approx(model.predictor.exact_loss(hidden, targets), rel=1e-5)
    order = scores.argsort(dim=1, descending=True).tolist()
    expected = [row.index(target) for row, target in zip(order, targets.tolist(), strict=True)]
    assert model.predictor.ranks(hidden, targets).tolist() == expected


def test_unknown_words_are_never_right() -> None:
    saved = make_model(objective="full", known="cat")
    with torch.no_grad():
        saved.model.predictor.bias.zero_()[UNK] = 1e4  # type: ignore[operator]
    ids = np.array([BOS, UNK, UNK, EOS])
    documents = Documents(ids, np.array([0, 4]))
    features = saved.features.rows(saved.vocabulary.words)
    accuracy = next_word_accuracy(saved.model, documents, features)
    assert [top_1 for top_1, _ in accuracy.values()] == [0, 0]
    assert [top_5 for _, top_5 in accuracy.values()] == [pytest.approx(1 / 3)] * 2  # the end of the text


def test_an_interrupted_run_that_overwrites_keeps_the_old_model_and_is_resumed_by_the_same_call(
    tiny_corpus: Path, tiny_config: PretrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m"
    pretrain(tiny_corpus, out, tiny_config, max_steps=2)
    before = (out / "config.json").read_bytes()

    @contextlib.contextmanager
    def stop_at_once(say: object) -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    given: Any = {"max_steps": 3, "overwrite": True}
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_stop_signal", stop_at_once)
        for n_steps in (1, 2):
            result = pretrain(tiny_corpus, out, tiny_config, **given)
            assert (result.stopped, result.n_steps) == ("interrupted", n_steps)
            assert (out / "config.json").read_bytes() == before
    assert pretrain(tiny_corpus, out, tiny_config, **given).n_steps == 3
    assert (out / "config.json").read_bytes() != before
