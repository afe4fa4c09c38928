"""``TfidfModel``: TF-IDF of words under an SVM or a logistic regression, fitted by scikit-learn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from elmokit.core.atomic import write_text
from elmokit.core.console import Advance
from elmokit.core.errors import FRESH, ConfigError, DataError, ModelError
from elmokit.core.formatting import join_names
from elmokit.core.model_card import Described, Facts
from elmokit.core.model_folder import explain_damage, read_record, write_model
from elmokit.core.names import resolve_name
from elmokit.core.tensors import load_weights, save_tensors
from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.model import USAGE, FitRecord, chunks, read_labels
from elmokit.tasks.task import AnyTask, Examples, Inputs, Labels, get_task, join_texts

METHODS: dict[str, str] = {
    "tfidf-svm": "TF-IDF of words and pairs of words, linear SVM",
    "tfidf-lr": "TF-IDF of words, logistic regression",
    "nbsvm": "TF-IDF of words and pairs of words times their log-count ratios, linear SVM (NB-SVM)",
}
_FEW = 10_000  # texts below which terms of a single text are worth keeping, and weights may be larger
_C_SVM, _C_SVM_FEW, _C_LOGISTIC, _C_NBSVM = 0.5, 2.0, 10.0, 1.0


@dataclass(frozen=True, eq=False)
class Terms:
    """Words or characters in a row that are counted, with their inverse document frequencies.

    Attributes:
        idf: (n_terms,).
        analyzer: "word" or "char_wb", as in scikit-learn.
        sizes: Words or characters of the shortest and the longest term.
    """

    terms: list[str]
    idf: npt.NDArray[np.float32]
    analyzer: str
    sizes: tuple[int, int]

    @classmethod
    def fit(
        cls, texts: Sequence[str], analyzer: str, sizes: tuple[int, int], **options: Any
    ) -> tuple[Terms, Any] | None:
        """The terms of some texts and their TF-IDF matrix, (n_texts, n_terms); None if there is no term."""
        vectorizer = _make_vectorizer(analyzer, sizes, **options)
        try:
            matrix = vectorizer.fit_transform(texts)
        except ValueError:  # an empty vocabulary
            return None
        terms = [str(term) for term in vectorizer.get_feature_names_out()]
        return cls(terms, vectorizer.idf_.astype(np.float32), analyzer, sizes), matrix

    def transform(self, texts: Sequence[str]) -> Any:
        """The TF-IDF matrix of texts, (n_texts, n_terms)."""
        return self._vectorizer.transform(texts)

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = _make_vectorizer(self.analyzer, self.sizes, vocabulary=self.terms)
        vectorizer.idf_ = self.idf
        return vectorizer


def _make_vectorizer(analyzer: str, sizes: tuple[int, int], **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer=analyzer, ngram_range=sizes, sublinear_tf=True, **options)


def read_terms(file: Path, counts: Sequence[int]) -> list[list[str]]:
    """The vocabularies that a file holds one after the other, of these sizes."""
    try:
        lines = file.read_bytes().decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}.", remedy=FRESH) from error
    ends = np.cumsum([0, *counts]).tolist()
    parts = [lines[first:last] for first, last in itertools.pairwise(ends)]
    n_different = sum(len({*part}) for part in parts)
    if not len(lines) == n_different == ends[-1]:
        raise ModelError(
            f"{file} has {n_different:,} different terms, config.json says {ends[-1]:,}.", remedy=FRESH
        )
    return parts


@dataclass(frozen=True, eq=False, repr=False)
class TfidfModel(Described):
    """A fitted linear model over counts of words: texts in, labels out.

    Attributes:
        seen: Numbers of the classes that had training rows; it never predicts another.
        terms: Words, or words and pairs of words, in the order of the columns.
        weights: (n_seen, n_terms); for two classes one row, which speaks for the second.
        intercepts: (n_seen,), or (1,).
    """

    method: str
    labels: Labels
    seen: list[int]
    terms: Terms
    weights: npt.NDArray[np.float32]
    intercepts: npt.NDArray[np.float32]
    settings: Mapping[str, Any] = field(default_factory=dict)
    record: FitRecord = FitRecord()  # noqa: RUF009 (frozen)
    kind = "linear"
    task: ClassVar[AnyTask] = get_task("classify")

    def predict(
        self, inputs: Iterable[Inputs], *, progress: Advance = lambda amount: None
    ) -> Iterator[ClassPrediction]:
        calibrated = self.method == "tfidf-lr"  # an SVM's scores are no probabilities
        for chunk in chunks(inputs, progress):
            for shares in self.probabilities(join_texts(chunk)):
                yield ClassPrediction(labels=self.labels, probabilities=shares, calibrated=calibrated)

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """The probability of each class, (n_texts, n_classes); for an SVM, its scores on the same scale."""
        from scipy.special import softmax

        scores = self.terms.transform(texts) @ self.weights.T + self.intercepts  # (n_texts, n_seen)
        if len(self.weights) == 1:  # two classes
            scores = np.hstack([np.zeros_like(scores), scores])
        shares = softmax(scores, axis=1).astype(np.float32)
        best = scores.argmax(axis=1)
        tied = np.flatnonzero(shares.argmax(axis=1) != best)  # by rounding only
        shares[tied, best[tied]] = np.nextafter(shares[tied].max(axis=1), np.float32(1))
        probabilities = np.zeros((len(texts), len(self.labels)), dtype=np.float32)
        probabilities[:, self.seen] = shares
        return probabilities

    def facts(self) -> Facts:
        names, record = self.labels.names, self.record
        rows = [
            ("method", METHODS[self.method]),
            ("classes", f"{len(names)}: {join_names(names, at_most=20)}"),
            ("terms", f"{len(self.terms.terms):,}"),
            ("settings", ", ".join(f"{key} {value}" for key, value in self.settings.items())),
            *record.rows(),
        ]
        values = {"kind": self.kind, "task": "classify", **self._header(), **record.to_json()}
        return Facts("A linear text classifier.", tuple(rows), values, USAGE)

    def _header(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "classes": list(self.labels.names),
            "n_terms": len(self.terms.terms),
            "settings": dict(self.settings),
        }

    def save(self, folder: str | Path) -> None:
        fitted = {"seen": self.seen, "n_words": self.terms.sizes[1], "record": self.record.to_json()}
        arrays = {"idf": self.terms.idf, "weights": self.weights, "intercepts": self.intercepts}
        with write_model(Path(folder), self.kind, self._header() | fitted, card=self.facts()) as staged:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            save_tensors(staged / "model.safetensors", tensors, {})
            write_text(staged / "vocab.txt", "".join(f"{term}\n" for term in self.terms.terms))

    @classmethod
    def load(cls, folder: str | Path) -> TfidfModel:
        """Read a folder; anything missing, damaged, foreign or of the wrong shape is a ModelError."""
        folder = resolve_name(folder)
        values = read_record(folder, cls.kind)
        if values.get("method") == "fasttext":
            raise ModelError(
                f"{folder} holds a fastText model, which elmokit 0.1 can read and this version cannot.",
                remedy="Install elmokit 0.1 to use it, or fit the rows again: elmokit fit tfidf-svm.",
            )
        with explain_damage(folder):
            labels, method, seen = read_labels(values), values["method"], values["seen"]
            if method not in METHODS:
                raise ValueError(f"there is no method {method!r}")
            if len(seen) < 2:
                raise ValueError("it has fewer than two classes")
            n_terms, n_words = int(values["n_terms"]), int(values["n_words"])
            record = FitRecord.from_json({"notes": values.get("notes", []), **values["record"]})  # as in 0.1
            settings = dict(values["settings"])
        (terms,) = read_terms(folder / "vocab.txt", [n_terms])
        file, n_rows = folder / "model.safetensors", 1 if len(seen) == 2 else len(seen)
        with torch.device("meta"):
            shapes = {"idf": torch.empty(n_terms), "weights": torch.empty(n_rows, n_terms)}
            shapes["intercepts"] = torch.empty(n_rows)
        arrays = {name: tensor.numpy() for name, tensor in load_weights(file, shapes).items()}
        counted = Terms(terms, arrays.pop("idf"), "word", (1, n_words))
        return cls(method, labels, seen, counted, **arrays, settings=settings, record=record)


def fit_tfidf(method: str, examples: Examples, *, seed: int = 0) -> TfidfModel:
    """Fit a linear model, a key of ``METHODS``, to texts with one label each."""
    if examples.labels.separator:
        raise ConfigError(
            f"{method} supports one label per row, so --label-separator does not apply.",
            remedy="Fit an encoder with a head instead: elmokit fit english TRAIN.",
        )
    start, texts = time.monotonic(), join_texts(examples.inputs)
    seen, targets = np.unique(examples.targets, return_inverse=True)
    if len(seen) < 2:
        raise DataError(
            f"All {len(texts):,} training texts have the same label.",
            remedy="Give texts of two classes or more.",
        )
    n_words = 1 if method == "tfidf-lr" else 2
    min_df = 1 if n_words == 1 or len(texts) < _FEW else 2
    counted = Terms.fit(texts, "word", (1, n_words), min_df=min_df)
    if counted is None:
        shared = " that another one has, too" if min_df > 1 else ""
        raise DataError(
            f"None of the {len(texts):,} texts has a word of two letters or more{shared}.",
            remedy="Give texts with words, or leave out the methods that count them.",
        )
    terms, rows = counted
    weights, intercepts, strength = solve_linear(method, rows, targets, seed=seed)
    timings = {"training": round(time.monotonic() - start, 2)}
    settings = {"n_words": n_words, "min_df": min_df, "sublinear_tf": True, "seed": seed, "C": strength}
    record = FitRecord(stopped="done", timings=timings)
    solution = weights.astype(np.float32), intercepts.astype(np.float32)
    return TfidfModel(method, examples.labels, seen.tolist(), terms, *solution, settings, record)


def solve_linear(
    method: str, rows: Any, targets: npt.NDArray[np.int64], *, seed: int = 0
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], float]:
    """Weights (n_classes, n_terms), intercepts (n_classes,) and C; two classes share one row, for the second.

    Args:
        rows: TF-IDF, (n_texts, n_terms).
        targets: Class numbers from 0 on, each of them present.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if method != "nbsvm":
        svm = LinearSVC(C=_C_SVM_FEW if len(targets) < _FEW else _C_SVM, random_state=seed)
        model = LogisticRegression(C=_C_LOGISTIC, max_iter=1000) if method == "tfidf-lr" else svm
        model.fit(rows, targets)
        return model.coef_, model.intercept_, model.C
    present, n_classes, solved = rows.astype(bool).astype(np.float64), int(targets.max()) + 1, []
    for number in range(1 if n_classes == 2 else 0, n_classes):
        inside = (targets == number).astype(np.float64)
        counts = [1 + present.T @ part for part in (inside, 1 - inside)]  # texts with each term, plus one
        ratios = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
        svm = LinearSVC(C=_C_NBSVM, random_state=seed).fit(rows.multiply(ratios).tocsr(), inside)
        solved.append((svm.coef_[0] * ratios, svm.intercept_[0]))
    weights, intercepts = map(np.array, zip(*solved, strict=True))
    return weights, intercepts, _C_NBSVM
