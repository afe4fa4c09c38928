"""TF-IDF of words, or of words and pairs of words, under a linear model; fitted by scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import DataError

__all__ = ["TfidfModel", "fit_tfidf"]

_FEW = 10_000  # texts below which a term of a single text is worth keeping, and weights may be larger
_C_SVM, _C_SVM_FEW, _C_LOGISTIC = 0.5, 2.0, 10.0


@dataclass(frozen=True, eq=False)
class TfidfModel:
    """The learnt numbers.

    Attributes:
        terms: words, or words and pairs of words, in the order of the columns.
        idf: inverse document frequency, (n_terms,).
        weights: (n_classes, n_terms); with two classes one row, which speaks for the second.
        intercepts: (n_classes,), or (1,).
        n_words: the longest term, in words.
    """

    terms: list[str]
    idf: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    intercepts: npt.NDArray[np.float32]
    n_words: int

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """How much speaks for each class, (n_texts, n_classes)."""
        from sklearn.preprocessing import normalize

        counts = self._counter.transform(texts)  # (n_texts, n_terms), sparse
        counts.data = (np.log(counts.data) + 1) * self.idf[counts.indices]
        found: npt.NDArray[np.float64] = normalize(counts, copy=False) @ self.weights.T + self.intercepts
        return np.hstack([np.zeros_like(found), found]) if found.shape[1] == 1 else found

    @property
    def n_bytes(self) -> int:
        """Size of terms and numbers."""
        arrays = self.idf.nbytes + self.weights.nbytes + self.intercepts.nbytes
        return arrays + sum(len(term.encode("utf-8")) + 1 for term in self.terms)

    @cached_property
    def _counter(self) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(vocabulary=self.terms, ngram_range=(1, self.n_words), dtype=np.float64)


def fit_tfidf(
    kind: Literal["lr", "svm"], texts: Sequence[str], targets: npt.NDArray[np.int64], seed: int
) -> tuple[TfidfModel, dict[str, Any], list[str]]:
    """Fit a model; also its settings, and what there is to say of it.

    Args:
        kind: logistic regression on words, or a linear SVM on words and pairs of words.
        texts: to learn from.
        targets: their classes, numbered from nought without a gap, (n_texts,).
        seed: of the order in which the SVM takes the texts.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    few = len(texts) < _FEW
    n_words, min_df = (2, 1 if few else 2) if kind == "svm" else (1, 1)
    notes = []
    try:
        vectorizer, rows = _vectorised(texts, n_words, min_df)
    except ValueError:  # all terms are too rare
        min_df = 1
        vectorizer, rows = _vectorised_or_refused(texts, n_words)
    if kind == "svm" and min_df == 1:
        notes.append("Terms that occur in one text only were kept, since there are few texts.")
    settings: dict[str, Any] = {"n_words": n_words, "min_df": min_df, "sublinear_tf": True, "seed": seed}
    if kind == "svm":
        settings["C"] = _C_SVM_FEW if few else _C_SVM
        model: Any = LinearSVC(C=settings["C"], random_state=seed)
    else:
        settings["C"] = _C_LOGISTIC
        model = LogisticRegression(C=settings["C"], max_iter=1000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(rows, targets)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        notes.append("The solver stopped before it had converged.")
    fitted = TfidfModel(
        terms=[str(term) for term in vectorizer.get_feature_names_out()],
        idf=vectorizer.idf_.astype(np.float32),
        weights=model.coef_.astype(np.float32),
        intercepts=np.atleast_1d(model.intercept_).astype(np.float32),
        n_words=n_words,
    )
    return fitted, settings, notes


def _vectorised(texts: Sequence[str], n_words: int, min_df: int) -> tuple[Any, Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, n_words), sublinear_tf=True, min_df=min_df)
    return vectorizer, vectorizer.fit_transform(texts)


def _vectorised_or_refused(texts: Sequence[str], n_words: int) -> tuple[Any, Any]:
    try:
        return _vectorised(texts, n_words, 1)
    except ValueError as error:
        raise DataError(
            f"None of the {len(texts):,} texts holds a word of two letters or more.",
            remedy="Give texts with words, or leave out the methods that count them.",
        ) from error
