"""Learn a word table from a teacher: the sum of a text's rows points where the teacher's vector points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import nn

from elmokit.bilm.word_table import WordTable, gram_rows
from elmokit.core.console import Reporter
from elmokit.core.ragged import Ragged
from elmokit.text.vocabulary import form_of
from elmokit.training.loop import Carry, StepResult, train
from elmokit.vectors.settings import DistillConfig

FloatArray = npt.NDArray[np.float32]
_SIF = 1e-3  # the constant a of smooth inverse frequency
_SAMPLE = 50_000  # texts from which the directions to keep are computed
_RIDGE = 1.0
_N_STEPS = 25  # of conjugate gradients


class Distillation:
    """Cosine between sums of rows and a teacher's vectors, for the training loop."""

    def __init__(
        self, rows: FloatArray, texts: Ragged[np.int64], targets: FloatArray, config: DistillConfig
    ) -> None:
        self.weight = nn.Parameter(torch.from_numpy(rows))  # (1 + n_forms, dim); row 0 stays zero
        self.texts, self.targets, self.config = texts, targets, config
        self.n_train = len(texts) - min(config.held_out, len(texts) // 10)
        self._order = np.arange(self.n_train)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The table."""
        return {"weight": self.weight}

    def lr_scales(self) -> Mapping[str, float]:
        """One learning rate."""
        return {}

    def steps_per_epoch(self) -> int:
        """Batches in a pass over the texts."""
        return -(-self.n_train // self.config.batch_texts)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle the texts."""
        self._order = np.random.default_rng([self.config.seed, epoch]).permutation(self.n_train)
        return {}

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """One minus the mean cosine of a batch."""
        size = self.config.batch_texts
        rows = self._order[index * size : (index + 1) * size]
        cosine = self._cosine(rows)
        return StepResult((1 - cosine).mean(), int(self.texts.lengths[rows].sum()), carry)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The mean cosine to the teacher on held-out texts."""
        rows = np.arange(self.n_train, len(self.texts))
        if not len(rows):
            return {}
        cosine = float(self._cosine(rows).mean())
        return {"score": 1 - cosine, "cosine": cosine}

    def _cosine(self, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        """(n_rows,)"""
        parts = [self.texts[row] for row in rows]
        offsets = torch.tensor([0, *np.cumsum([len(part) for part in parts])[:-1]])
        ids = torch.from_numpy(np.concatenate(parts))
        sums = F.embedding_bag(ids, self.weight, offsets, mode="sum", sparse=True, padding_idx=0)
        return F.cosine_similarity(sums, torch.from_numpy(self.targets[rows]), dim=1)


def learn_table(
    texts: Sequence[Sequence[str]],
    teacher: npt.NDArray[np.floating],
    counts: Mapping[str, int],
    config: DistillConfig,
    run: Path,
    reporter: Reporter,
) -> tuple[WordTable, dict[str, float]]:
    """A word table whose sums of rows point where the teacher's vectors of the texts do.

    A row starts as the teacher's vector of a text that is this one word, if there is one, else as the mean of
    its vectors of the texts with this word; without the mean of all, and shorter for a frequent word.

    Args:
        texts: As words.
        teacher: A vector for each text, (n_texts, teacher_dim).
        counts: How often each form occurs in running text.
        run: The folder for checkpoints.

    Returns:
        The table, and how well it does on held-out texts.
    """
    dim = min(config.dim, teacher.shape[1])
    sample = np.asarray(teacher[:: max(1, len(teacher) // _SAMPLE)], dtype=np.float32)
    directions = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, :dim]  # (teacher_dim, dim)
    targets = np.asarray(teacher @ directions.astype(np.float32), dtype=np.float32)
    forms = [form for form, count in Counter(dict(counts)).most_common(config.max_forms)]
    known = {form: place for place, form in enumerate(forms, start=1)}
    spelled = [[form_of(word) for word in words] for words in texts]
    ids = Ragged.from_rows([[known.get(form, 0) for form in row] for row in spelled], np.int64)
    rows, single = _starting_rows(spelled, ids, targets, len(forms))
    total = sum(counts.values())
    shares = np.array([counts[form] / total for form in forms], dtype=np.float32)
    rows[1:] *= (_SIF / (_SIF + shares))[:, None]
    running = np.flatnonzero(ids.lengths > 1).tolist()
    task = Distillation(
        rows,
        Ragged.from_rows([ids[row] for row in running], np.int64),
        targets[running],
        config,
    )
    result = train(task, config, run, reporter=reporter)
    vectors = result.weights["weight"].numpy()[1:]
    grams = _learn_grams([*forms, *single], np.stack([*vectors, *single.values()]), config)
    seen = np.array([counts[form] for form in forms], dtype=np.int64)
    history = result.position.history
    return WordTable.from_vectors(forms, seen, vectors, grams), (history[-1] if history else {})


def _starting_rows(
    texts: Sequence[Sequence[str]], ids: Ragged[np.int64], targets: FloatArray, n_forms: int
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Rows before training, (1 + n_forms, dim), and the vectors of single words that have no row."""
    centered = targets - targets.mean(axis=0)
    owners = np.repeat(np.arange(len(ids)), ids.lengths)
    which = scipy.sparse.csr_matrix(
        (np.ones(len(owners), dtype=np.float32), (ids.values, owners)), shape=(1 + n_forms, len(ids))
    )
    rows = np.asarray(which @ centered) / np.maximum(np.asarray(which.sum(axis=1)), 1)
    alone = np.flatnonzero(ids.lengths == 1)
    singles = centered[alone] - (centered[alone].mean(axis=0) if len(alone) else 0)
    single: dict[str, FloatArray] = {}
    for text, vector in zip(alone.tolist(), singles, strict=True):
        if place := int(ids[text][0]):
            rows[place] = vector
        else:
            single[texts[text][0]] = vector
    rows[0] = 0
    return rows.astype(np.float32), single


def _learn_grams(words: Sequence[str], vectors: FloatArray, config: DistillConfig) -> FloatArray:
    """Rows of character n-grams whose means come near the directions of words: ridge regression."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.maximum(norms, 1e-9) * np.median(norms[len(norms) // 2 :])  # as long as rare words
    places = [gram_rows(word, config.n_grams) for word in words]
    lengths = np.array([len(row) for row in places])
    shape = (len(words), config.n_grams)
    flat = np.concatenate(places), np.concatenate([[0], np.cumsum(lengths)])
    means = scipy.sparse.csr_matrix((np.repeat(1 / lengths, lengths).astype(np.float32), *flat), shape=shape)
    solution = np.zeros((config.n_grams, vectors.shape[1]), dtype=np.float32)
    residual = np.asarray(means.T @ vectors)
    direction, size = residual, (residual**2).sum(axis=0)
    for _ in range(_N_STEPS):  # conjugate gradients, every column a problem of its own
        product = means.T @ (means @ direction) + _RIDGE / len(lengths) * lengths.mean() * direction
        step = size / np.maximum((direction * product).sum(axis=0), 1e-12)
        solution += step * direction
        residual = residual - step * product
        new_size = (residual**2).sum(axis=0)
        direction = residual + new_size / np.maximum(size, 1e-12) * direction
        size = new_size
    return np.asarray(config.gram_scale * solution, dtype=np.float32)
