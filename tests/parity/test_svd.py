"""Counts, weights and SVD against plain, dense calculations in numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from elmokit.core.errors import DataError
from elmokit.static import svd
from elmokit.static.settings import SvdConfig
from elmokit.static.svd import count_pairs, factorize, weight_counts
from elmokit.static.train import train_vectors
from elmokit.text.corpus import Documents
from elmokit.text.tokenizing import BOS, EOS, SPECIALS

N_WORDS = 30
Dense = npt.NDArray[np.float64]


def some_documents(n_documents: int = 40, seed: int = 0) -> list[list[int]]:
    """Documents of 0 to 25 ids, low ones more often."""
    rng = np.random.default_rng(seed)
    n_own = N_WORDS - len(SPECIALS)
    shares = 1 / np.arange(1, n_own + 1)
    return [
        (len(SPECIALS) + rng.choice(n_own, size=size, p=shares / shares.sum())).tolist()
        for size in rng.integers(0, 26, size=n_documents)
    ]


def flat(documents: list[list[int]]) -> Documents:
    framed = [[BOS, *words, EOS] for words in documents]
    ids = np.array([place for words in framed for place in words], dtype=np.uint16)
    offsets = np.concatenate([[0], np.cumsum([len(words) for words in framed])]).astype(np.int64)
    return Documents(ids, offsets)


def dense_counts(documents: list[list[int]], window: int, distance: str) -> Dense:
    counts = np.zeros((N_WORDS, N_WORDS))
    for words in documents:
        for place, word in enumerate(words):
            for other in range(max(0, place - window), min(len(words), place + window + 1)):
                if other != place:
                    counts[word, words[other]] += 1 if distance == "flat" else 1 / abs(other - place)
    return counts


def dense_weights(counts: Dense, config: SvdConfig) -> Dense:
    if config.counts == "raw":
        return counts
    if config.counts == "log":
        return np.log(1 + counts)
    found = np.zeros_like(counts)
    contexts = counts.sum(axis=0) ** config.smoothing * (counts.sum(axis=0) > 0)
    for word in range(N_WORDS):
        for context in range(N_WORDS):
            if counts[word, context]:
                joint = counts[word, context] / counts.sum()
                alone = counts[word].sum() / counts.sum() * contexts[context] / contexts.sum()
                found[word, context] = max(0.0, np.log(joint / alone) - np.log(config.shift))
    return found


@pytest.mark.parametrize("block", [7, 64, 1 << 22])
@pytest.mark.parametrize("distance", ["flat", "harmonic"])
@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 10**9])
def test_counts_are_those_of_two_loops(
    window: int, distance: Literal["flat", "harmonic"], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svd, "_PAIRS_AT_ONCE", block)
    documents = some_documents()
    seen: list[int] = []
    found = count_pairs(flat(documents), N_WORDS, window, distance, progress=seen.append)
    np.testing.assert_allclose(found.toarray(), dense_counts(documents, window, distance), rtol=1e-12)
    assert sum(seen) == flat(documents).n_tokens
    assert (found != found.T).nnz == 0


def test_no_pair_reaches_into_another_document() -> None:
    found = count_pairs(flat([[5, 6], [7], [], [8, 9, 8]]), N_WORDS, 10).toarray()
    assert {(int(a), int(b)) for a, b in zip(*found.nonzero(), strict=True)} == {
        (5, 6), (6, 5), (8, 9), (9, 8), (8, 8),
    }  # fmt: skip
    assert found[8, 8] == 2  # each of the two is near the other
    assert not count_pairs(flat([]), N_WORDS, 3).nnz


@pytest.mark.parametrize(
    "settings",
    [
        {"counts": "raw"},
        {"counts": "log"},
        {"smoothing": 1.0},
        {"smoothing": 0.75},
        {"smoothing": 0.0},
        {"shift": 3.0},
        {"shift": 1.5, "smoothing": 0.5, "distance": "harmonic"},
    ],
    ids=str,
)
def test_weights_and_vectors_are_those_of_dense_matrices(settings: dict[str, Any]) -> None:
    config = SvdConfig.from_dict({"dim": 6, "window": 3, **settings})
    documents = some_documents(seed=1)
    counts = count_pairs(flat(documents), N_WORDS, config.window, config.distance)
    matrix = weight_counts(counts, config)
    wanted = dense_weights(dense_counts(documents, config.window, config.distance), config)
    np.testing.assert_allclose(matrix.toarray(), wanted, rtol=1e-6, atol=1e-6)
    assert matrix.nnz == (wanted > 1e-9).sum()  # no zero is stored

    left, values, _ = np.linalg.svd(wanted)
    for power in (0.0, 0.5, 1.0):
        powered = SvdConfig.from_dict({**config.to_dict(), "power": power})
        found = factorize(matrix, powered)
        reference = left[:, :6] * values[:6] ** power
        assert found.shape == (N_WORDS, 6)
        # The sign of a singular vector is free: here its largest component is positive.
        assert (found[np.abs(found).argmax(axis=0), np.arange(6)] > 0).all()
        signs = np.sign((found * reference).sum(axis=0))
        np.testing.assert_allclose(found, reference * signs, atol=2e-3 * np.abs(reference).max())


def test_all_dimensions_give_the_matrix_back() -> None:
    config = SvdConfig(dim=N_WORDS, window=4, smoothing=1.0, power=1.0)
    matrix = weight_counts(count_pairs(flat(some_documents(80)), N_WORDS, 4), config)
    found = factorize(matrix, config)
    assert found.shape == (N_WORDS, N_WORDS - len(SPECIALS) - 1)  # there are no more to be had
    square = matrix.toarray() @ matrix.toarray().T
    np.testing.assert_allclose(found @ found.T, square, atol=0.02 * np.abs(square).max())


def test_texts_without_two_words_together_are_refused() -> None:
    config = SvdConfig(dim=2)
    for documents in ([[5], [6], [7]], []):
        with pytest.raises(DataError, match="nothing to learn"):
            factorize(weight_counts(count_pairs(flat(documents), N_WORDS, 3), config), config)


_PROGRAM = """
import sys
from elmokit.static.train import train_vectors
from elmokit.static.settings import SvdConfig
texts = open(sys.argv[1], encoding="utf-8").read().splitlines()
print(train_vectors("svd", texts, SvdConfig(dim=12, seed=3)).fingerprint)
"""


def test_the_same_seed_gives_the_same_bits_in_every_process(tiny_corpus: Path) -> None:
    texts = tiny_corpus.read_text(encoding="utf-8").splitlines()
    config = SvdConfig(dim=12, seed=3)
    ours = train_vectors("svd", texts, config).fingerprint
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tiny_corpus)], capture_output=True, text=True, check=True
    )
    assert ours == done.stdout.strip()
