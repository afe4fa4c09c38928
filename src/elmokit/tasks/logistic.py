"""Logistic regression with an L2 penalty, for many folds and penalties on the same rows.

The features are centered and rotated once, so that a row has at most as many numbers as there are rows and
its columns are orthogonal. No solution changes by that, but the curvature of the loss is then nearly
diagonal, and L-BFGS on rescaled weights needs a handful of steps for any number of classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_ROTATED = 3000
"""Rows of sparse features beyond which they are left as they are: the rotation takes cubic time."""
STRENGTHS = tuple(10.0 ** (power / 2) for power in range(-4, 8))
"""Values of C, as in scikit-learn, to choose from."""
FEW_ROWS = 1000
"""Up to which C is chosen by all folds, in double precision; then by two of them, in single."""
_START = STRENGTHS.index(10.0)
_GAIN = 1e-3  # in log-likelihood of a row, for which a larger C is preferred
_TOLERANCE, _FINAL_TOLERANCE, _STEPS = 1e-3, 1e-5, 300
_BIAS_PENALTY = 1e-6  # of the mean loss, so that the bias of a class without rows is finite
_SHARPNESS = (
    10.0  # of the weights that the stack is pulled to: times the difference in log-likelihood of a row
)
_FLOOR = -14.0  # lowest log-probability or score that counts: about one in a million


@dataclass(frozen=True, eq=False)
class Design:
    """Features of some rows, ready for many fits.

    Attributes:
        features: As given, (n, dim), an array or a sparse matrix.
        rows: Rotated, (n, n_columns); or the features themselves.
        squares: Sum of the squares of each column of ``rows``.
        basis: From columns to features, (dim, n_columns), where that is small.
        mean: Of the features, (dim,); zero if they were not centered.
    """

    features: Any
    rows: Any
    squares: Array
    basis: Array | None
    mean: Array

    @classmethod
    def of(cls, features: Any) -> Design:
        """Rotate features."""
        from scipy.sparse import issparse

        (n_rows, dim), is_sparse = features.shape, issparse(features)
        if is_sparse and n_rows > MAX_ROTATED:
            squares = np.asarray(features.multiply(features).sum(axis=0), dtype=np.float64).ravel()
            return cls(features, features, squares, None, np.zeros(dim))
        mean = np.asarray(features.mean(axis=0), dtype=np.float64).ravel()
        if not is_sparse and dim < n_rows:
            centered = features - mean.astype(features.dtype)
            squares, basis = _eigen(centered.T @ centered)
            return cls(features, centered @ basis.astype(features.dtype), squares, basis, mean)
        products = features @ features.T
        gram = np.asarray(products.toarray() if is_sparse else products, dtype=np.float64)
        means = gram.mean(axis=0)
        squares, vectors = _eigen(gram - means - means[:, None] + means.mean())
        return cls(features, (vectors * np.sqrt(squares)).astype(features.dtype), squares, None, mean)

    def unrotate(self, solution: Array) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Weights (n_classes, dim) and biases (n_classes,) for the features as they were given."""
        weights, biases = solution[:-1], solution[-1]
        if self.basis is not None:
            weights = self.basis @ weights
        elif self.rows is not self.features:
            weights = self.features.T @ (self.rows @ (weights / self.squares[:, None]))
        biases = biases - self.mean @ weights
        return np.ascontiguousarray(weights.T, dtype=np.float32), biases.astype(np.float32)


def _eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues that are not nearly zero, and their vectors."""
    from scipy.linalg import eigh

    values, vectors = eigh(np.asarray(matrix, dtype=np.float64), check_finite=False)
    kept = values > 1e-9 * max(values[-1], 1e-30)
    return values[kept], vectors[:, kept]


def normalize(scores: Array, *, several: bool) -> Array:
    """Scores as log-probabilities; of several labels, as log-odds."""
    from scipy.special import log_softmax

    return np.clip(scores if several else log_softmax(scores, axis=1), _FLOOR, -_FLOOR)


def loss_and_gradient(scores: Array, targets: Array, weights: Array, *, several: bool) -> tuple[float, Array]:
    """The weighted sum of the rows' losses, and its gradient with respect to the scores."""
    from scipy.special import expit, log_softmax

    if several:
        losses, shares = np.logaddexp(0, scores) - targets * scores, expit(scores)
    else:
        logs = log_softmax(scores, axis=1)
        losses, shares = -targets * logs, np.exp(logs)
    return float(weights @ losses.sum(axis=1)), (shares - targets) * weights[:, None]


def solve(
    design: Design,
    targets: Array,
    weights: Array,
    strength: float,
    start: Array | None = None,
    *,
    several: bool,
    tolerance: float = _FINAL_TOLERANCE,
) -> Array:
    """Weights and, in the last row, biases: (n_columns + 1, n_classes).

    Args:
        targets: Ones and zeros, (n, n_classes).
        weights: How much each row counts, (n,); rows of weight 0 are left out.
        strength: C, as in scikit-learn.
        start: A solution to start from.
        several: A row can have several labels: a yes-or-no decision for each.
    """
    from scipy.optimize import minimize

    rows, total = design.rows, max(float(weights.sum()), 1e-12)
    shares = (weights @ targets + 0.5) / (total + 1)
    curvature = shares * (1 - shares)  # at the start
    n_rows, shape = len(targets), (len(design.squares) + 1, targets.shape[1])
    scale = np.empty(shape)
    scale[:-1] = 1 / np.sqrt(1 / strength + np.outer(design.squares * (total / n_rows), curvature))
    scale[-1] = 1 / np.sqrt(total * curvature)
    penalty = np.full((shape[0], 1), 1 / strength)
    penalty[-1] = _BIAS_PENALTY * total
    if start is None:
        start = np.zeros(shape)
        start[-1] = np.log(shares / (1 - shares)) if several else np.log(shares)

    def objective(flat: Array) -> tuple[float, Array]:
        solution = flat.reshape(shape) * scale
        scores = np.asarray(rows @ solution[:-1].astype(rows.dtype), dtype=np.float64) + solution[-1]
        loss, errors = loss_and_gradient(scores, targets, weights, several=several)
        gradient = penalty * solution
        gradient[:-1] += rows.T @ errors.astype(rows.dtype)
        gradient[-1] += errors.sum(axis=0)
        loss += 0.5 * float((penalty * solution * solution).sum())
        return loss / total, (gradient * scale).ravel() / total

    options = {"maxiter": _STEPS, "ftol": 0.0, "gtol": tolerance / np.sqrt(total), "maxcor": 8}
    minimum = minimize(objective, (start / scale).ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(minimum.x).reshape(shape) * scale


def choose_strength(
    design: Design,
    targets: Array,
    weights: Array,
    folds: npt.NDArray[np.int64],
    counted: Array,
    *,
    several: bool,
) -> tuple[float, Array, Array | None]:
    """The best C by out-of-fold likelihood, what it predicts out of fold, and a solution to start from.

    Likelihood is that of the best temperature: fits to fewer rows are less sure than they should be, and
    the weights of the stack make up for it. Without rows that count, C is the usual one.

    Args:
        folds: The fold that each row is held out with; -1 for none.
        counted: How much each row counts in the choice, (n,).
    """
    if not counted.any():
        return STRENGTHS[_START], np.zeros(targets.shape), None
    n_folds = int(folds.max()) + 1
    n_trial = n_folds if len(folds) <= FEW_ROWS else min(2, n_folds)
    trial = counted * (folds < n_trial)
    solutions: list[Array | None] = [None] * n_folds
    tried: dict[int, tuple[float, Array]] = {}

    def predict(place: int, logs: Array, numbers: Iterable[int]) -> None:
        for fold in numbers:
            held, known = folds == fold, weights * (folds != fold)
            start = solutions[fold] if solutions[fold] is not None else solutions[0]
            solution = solve(
                design, targets, known, STRENGTHS[place], start, several=several, tolerance=_TOLERANCE
            )
            solutions[fold] = solution
            logs[held] = normalize(design.rows[held] @ solution[:-1] + solution[-1], several=several)

    def likelihood(place: int) -> float:
        if place not in tried:
            logs = np.zeros(targets.shape)
            predict(place, logs, range(n_trial))
            tried[place] = -fit_weights([logs], targets, trial, several=several)[1], logs
        return tried[place][0]

    step = 1 if design.rows.shape[0] <= MAX_ROTATED else 2
    best = _START
    while best + step < len(STRENGTHS) and likelihood(best + step) > likelihood(best) + _GAIN:
        best += step
    while best == min(tried) and best >= step and likelihood(best - step) > likelihood(best):
        best -= step
    predict(best, tried[best][1], range(n_trial, n_folds))
    return STRENGTHS[best], tried[best][1], solutions[0]


def fit_weights(
    logs: Sequence[Array], targets: Array, counted: Array, *, several: bool, pull: float = 0.0
) -> tuple[Array, float]:
    """Weights, none negative, with which predictors' log-probabilities predict best together; their loss.

    Args:
        pull: Times the squared distance, beside the summed loss, from weights that add up to one, larger
            the better a predictor is alone: it keeps few rows from trusting one of them too much.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    stacked = np.stack(logs)  # (n_predictors, n, n_classes)
    total = max(float(counted.sum()), 1e-12)

    def objective(weights: Array) -> tuple[float, Array]:
        scores = np.tensordot(weights, stacked, axes=1)
        loss, errors = loss_and_gradient(scores, targets, counted, several=several)
        away = weights - start
        gradient = np.tensordot(stacked, errors, axes=2) + 2 * pull * away
        return (loss + pull * float(away @ away)) / total, gradient / total

    losses = [loss_and_gradient(log, targets, counted, several=several)[0] / total for log in logs]
    start = softmax(-_SHARPNESS * np.array(losses))
    minimum = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(logs))
    return np.asarray(minimum.x), float(minimum.fun)
