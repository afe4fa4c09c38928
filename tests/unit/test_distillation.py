"""``distill``: a student's sentence vector from a teacher's, resumed runs, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.core.console import Reporter
from elmokit.vectors import distillation, foreign
from elmokit.vectors import encoder as encoders
from elmokit.vectors.distillation import distill
from program import Cli
from topics import table

WORDS = [f"word{number}" for number in range(40)]
FAST: dict[str, Any] = {"epochs": 4, "lr": 0.02, "dim": 12, "n_grams": 64, "batch_texts": 64}


def make_texts(n: int = 700, seed: int = 0) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Texts, and vectors that are sums of vectors of their words."""
    rng, rows = np.random.default_rng(seed), np.random.default_rng(5).normal(size=(40, 16))
    picks = [rng.integers(40, size=rng.integers(2, 9)) for _ in range(n)]
    vectors = np.array([rows[pick].sum(axis=0) for pick in picks], dtype=np.float32)
    return [" ".join(WORDS[number] for number in pick) for pick in picks], vectors


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of texts; their vectors are beside it in ``vectors.npy``."""
    lines, vectors = make_texts()
    np.save(tmp_path / "vectors.npy", vectors)
    return table(tmp_path / "texts.csv", [[line] for line in lines], ["text"])


def flags() -> list[str]:
    return [word for name, value in FAST.items() for word in ("--set", f"{name}={value}")]


def test_a_student_learns_its_teacher_and_the_next_one_starts_from_it(
    cli: Cli, tmp_path: Path, texts: Path, tiny_model: Path
) -> None:
    lines, vectors = make_texts(40, seed=9)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = (unit[:20] * unit[20:]).sum(axis=1)
    pairs = table(
        tmp_path / "pairs.csv", zip(lines[:20], lines[20:], scores, strict=True), ["text", "other", "score"]
    )
    teacher, out = f"vectors:{tmp_path / 'vectors.npy'}", tmp_path / "student"
    sides = np.where(vectors[:, 0] > np.median(vectors[:, 0]), "high", "low")
    labeled = table(tmp_path / "labeled.csv", zip(lines, sides, strict=True), ["text", "label"])
    words = ["distill", teacher, texts, "--from", tiny_model, "--out", out, *flags()]
    cli(*words, "--similarity", pairs, "--labeled", labeled).check_fine(
        "vectors, 16 wide", "700, 70 of them held out", "40 of them new", "Spearman"
    )
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for more in (["--similarity", pairs], []):  # of what was measured
        cli(*words, *more).check_fine("Already done", "Spearman")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
    first: Any = elmokit.load(out)
    before: Any = elmokit.load(tiny_model)
    assert first.has_sentence_vector
    assert first.sentences(["word1 word2"]).shape == (1, 12)
    assert np.array_equal(first.embed(["My sister ran"]).flat, before.embed(["My sister ran"]).flat)
    assert "distilled from vectors, 16 wide, with 700 texts" in (out / "README.md").read_text()
    report = json.loads((out / "report.json").read_text())
    assert report["cosine"] > 0.85
    assert report["neighbors"] > 0.6
    assert report["spearman"] > 0.8
    assert report["accuracy"] > 0.7
    assert report["accuracy_before"] is None  # it had no sentence vector
    for name in ("config.json", "report.md", "report.json"):
        assert str(tmp_path) not in (out / name).read_text()
    again = tmp_path / "again"
    lines = [" ".join(np.random.default_rng(seed).choice(WORDS[:12], 4)) for seed in range(30)]
    new = table(tmp_path / "new.csv", [*([line] for line in lines), ["heron heron"], [" "]], ["text"])
    result = distill(out, new, again, from_model=out, **{**FAST, "lr": 1e-5})
    assert (result.n_texts, result.n_new, result.n_words) == (31, 1, 41)
    assert result.cosine is not None
    assert result.cosine > 0.9  # although most rows belong to words that these texts do not have
    second: Any = elmokit.load(again)
    cosines = (
        second.sentences(lines) @ second.sentences(lines).T,
        first.sentences(lines) @ first.sentences(lines).T,
    )
    assert np.corrcoef(cosines[0].ravel(), cosines[1].ravel())[0, 1] > 0.9
    assert second.folder.word_table.counts[:40].sum() > first.folder.word_table.counts.sum()


def test_a_run_that_was_stopped_resumes_exactly(
    tmp_path: Path, texts: Path, tiny_model: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (encoders, distillation):
        monkeypatch.setattr(module, "CHUNK", 64)
    whole = distill(encoder, texts, tmp_path / "a", from_model=tiny_model, **FAST)
    calls = 0

    def stop(self: Reporter, *names: Any, **values: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(distillation, "check_finite", stop)
    with pytest.raises(KeyboardInterrupt):
        distill(encoder, texts, tmp_path / "b", from_model=tiny_model, **FAST)
    size = (tmp_path / "b" / "run" / "teacher.bin").stat().st_size
    assert size == 4 * 64 * 4 * 24
    monkeypatch.setattr(distillation, "check_finite", foreign.check_finite)
    resumed = distill(encoder, texts, tmp_path / "b", from_model=tiny_model, **FAST)
    assert resumed.cosine == whole.cosine
    first, second = (elmokit.load(tmp_path / name) for name in "ab")
    assert torch.equal(first.folder.word_table.codes, second.folder.word_table.codes)  # type: ignore[attr-defined]


def test_bad_input_is_refused(cli: Cli, tmp_path: Path, texts: Path, tiny_model: Path) -> None:
    _, vectors = make_texts()
    files = {
        "few": vectors[:50],
        "narrow": vectors[:, :6],
        "nan": np.where(np.arange(700)[:, None] == 7, np.nan, vectors),
        "one": vectors[:1],
    }
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    ends = ["--from", tiny_model, "--out", tmp_path / "out", *flags()]

    def teacher(name: str) -> str:
        return f"vectors:{tmp_path / name}.npy"

    cli("distill", teacher("few"), texts, *ends).check_refused("50 vectors, but there are 700 texts")
    cli("distill", teacher("nan"), texts, *ends).check_refused("vector 8 has a value that is not a finite")
    cli("distill", f"st:{tmp_path / 'none'}", texts, *ends).check_refused("there is no folder")
    empty = table(tmp_path / "empty.csv", [["", 1]], ["text", "number"])
    cli("distill", teacher("one"), empty, *ends).check_refused("None of the texts has two or more words")
    pairs = table(tmp_path / "pairs.csv", [["a", "b", "high"]], ["text", "other", "score"])
    cli("distill", teacher("vectors"), texts, *ends, "--similarity", pairs).check_refused("score")
    few = table(tmp_path / "labeled.csv", [["a", "x"], ["b", "y"]], ["text", "label"])
    cli("distill", teacher("vectors"), texts, *ends, "--labeled", few).check_refused("too few labeled texts")
    assert not (tmp_path / "out").exists()
    cli("distill", teacher("vectors"), texts, *ends).check_fine()
    cli("distill", teacher("narrow"), texts, *ends).check_refused("width was '16', now '6'")
    cli("distill", teacher("vectors"), texts, *ends, "--epochs", "2").check_refused("epochs was 4, now 2")
