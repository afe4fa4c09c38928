"""Classifiers that are linear in features of a text: their base, and TF-IDF of words under scikit-learn's.

``LinearModel`` is the base of ``TfidfModel`` and of the stack: predictions and a folder.
"""

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
from elmokit.core.model_card import Described, Facts
from elmokit.core.model_folder import Report, explain_damage, read_record, write_model
from elmokit.core.names import resolve_name
from elmokit.core.tensors import load_weights, save_tensors
from elmokit.tasks.classification import ClassPrediction
from elmokit.tasks.model import FitRecord, chunks, make_facts, read_fitted
from elmokit.tasks.task import AnyTask, Examples, Inputs, Labels, get_task, join_texts
from elmokit.text.tokenizing import replace_surrogates
from elmokit.vectors.encoder import FloatArray, IntArray

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
    idf: FloatArray
    analyzer: str
    sizes: tuple[int, int]

    @classmethod
    def fit(
        cls, texts: Iterable[str], analyzer: str, sizes: tuple[int, int], **options: Any
    ) -> tuple[Terms, Any] | None:
        """The terms of some texts and their TF-IDF matrix, (n_texts, n_terms); None if there is no term."""
        vectorizer = _make_vectorizer(analyzer, sizes, **options)
        try:
            matrix = vectorizer.fit_transform(map(replace_surrogates, texts))
        except ValueError:  # an empty vocabulary
            return None
        terms = [str(term) for term in vectorizer.get_feature_names_out()]
        return cls(terms, vectorizer.idf_.astype(np.float32), analyzer, sizes), matrix

    def transform(self, texts: Iterable[str]) -> Any:
        """The TF-IDF matrix of texts, (n_texts, n_terms)."""
        return self._vectorizer.transform(map(replace_surrogates, texts))

    @cached_property
    def _vectorizer(self) -> Any:
        vectorizer = _make_vectorizer(self.analyzer, self.sizes, vocabulary=self.terms)
        vectorizer.idf_ = self.idf
        return vectorizer


def _make_vectorizer(analyzer: str, sizes: tuple[int, int], **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer=analyzer, ngram_range=sizes, sublinear_tf=True, **options)


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(Described):
    """A fitted classifier over features of a text.

    Attributes:
        seen: Numbers of the classes that had training rows; it never predicts another.
    """

    labels: Labels
    seen: list[int]
    record: FitRecord = field(default=FitRecord(), kw_only=True)
    kind: ClassVar[str]
    task: ClassVar[AnyTask] = get_task("classify")

    @property
    def calibrated(self) -> bool:
        """False if its probabilities only order the classes."""
        return True

    def probabilities(self, inputs: Sequence[Inputs], n_cut: IntArray | None = None) -> FloatArray:
        """The probability of each class, (n_rows, n_classes); ``n_cut`` gets the words that are not read."""
        raise NotImplementedError

    def predict(
        self, inputs: Iterable[Inputs], *, progress: Advance = lambda amount: None
    ) -> Iterator[ClassPrediction]:
        """A prediction for each row, in order. Rows are read some at a time, so memory stays flat."""
        for chunk in chunks(self.task, inputs, progress):
            n_cut, how = np.zeros(len(chunk), dtype=np.int64), {"calibrated": self.calibrated}
            for row, n in zip(self.probabilities(chunk, n_cut), n_cut.tolist(), strict=True):
                yield ClassPrediction(labels=self.labels, probabilities=row, n_cut=n, **how)

    def expand(self, shares: npt.NDArray[Any]) -> FloatArray:
        """Probabilities of the seen classes as those of all, (n_rows, n_classes)."""
        probabilities = np.zeros((len(shares), len(self.labels)), dtype=np.float32)
        probabilities[:, self.seen] = shares
        return probabilities

    def _write(
        self, folder: Path, values: dict[str, Any], arrays: dict[str, Any], *terms: Terms, report: Report
    ) -> None:
        """Write its folder, of which ``values`` are for config.json."""
        with write_model(folder, self.kind, values, card=self.facts(), report=report) as staged:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            save_tensors(staged / "model.safetensors", tensors, {})
            write_text(staged / "vocab.txt", "".join(f"{term}\n" for part in terms for term in part.terms))
            if encoder := getattr(self, "encoder", None):
                encoder.save(staged / "encoder")


def read_arrays(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, FloatArray]:
    """The arrays of a model folder, which must have these shapes."""
    with torch.device("meta"):
        expected = {name: torch.empty(shape) for name, shape in shapes.items()}
    weights = load_weights(folder / "model.safetensors", expected)
    return {name: tensor.numpy() for name, tensor in weights.items()}


def read_terms(folder: Path, counts: Sequence[int]) -> list[list[str]]:
    """The vocabularies that a model folder holds one after the other, of these sizes."""
    file = folder / "vocab.txt"
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
class TfidfModel(LinearModel):
    """A fitted linear model over counts of words: texts in, labels out.

    Attributes:
        terms: Words, or words and pairs of words, in the order of the columns.
        weights: (n_seen, n_terms); for two classes one row, which speaks for the second.
        intercepts: (n_seen,), or (1,).
    """

    method: str
    terms: Terms
    weights: FloatArray
    intercepts: FloatArray
    settings: Mapping[str, Any] = field(default_factory=dict)
    kind = "linear"

    @property
    def calibrated(self) -> bool:
        """False for an SVM, whose scores are no probabilities."""
        return self.method == "tfidf-lr"

    def probabilities(self, inputs: Sequence[Inputs], n_cut: IntArray | None = None) -> FloatArray:
        """The probability of each class, (n_rows, n_classes); for an SVM, its scores on the same scale."""
        from scipy.special import softmax

        scores = (
            self.terms.transform(join_texts(inputs)) @ self.weights.T + self.intercepts
        )  # (n_rows, n_seen)
        if len(self.weights) == 1:  # two classes
            scores = np.hstack([np.zeros_like(scores), scores])
        shares = softmax(scores, axis=1).astype(np.float32)
        best = scores.argmax(axis=1)
        tied = np.flatnonzero(shares.argmax(axis=1) != best)  # by rounding only
        shares[tied, best[tied]] = np.nextafter(shares[tied].max(axis=1), np.float32(1))
        return self.expand(shares)

    def facts(self) -> Facts:
        """What it is: for its card, ``elmokit inspect`` and the service."""
        rows = [
            ("method", METHODS[self.method]),
            ("terms", f"{len(self.terms.terms):,}"),
            ("settings", ", ".join(f"{key} {value}" for key, value in self.settings.items())),
        ]
        return make_facts(self, "A linear text classifier.", rows, {"task": "classify", **self._header()})

    def _header(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "classes": list(self.labels.names),
            "n_terms": len(self.terms.terms),
            "settings": dict(self.settings),
        }

    def save(self, folder: str | Path, report: Report = None) -> None:
        """Write it to a folder."""
        fitted = {"seen": self.seen, "n_words": self.terms.sizes[1], "record": self.record.to_json()}
        arrays = {"idf": self.terms.idf, "weights": self.weights, "intercepts": self.intercepts}
        self._write(Path(folder), self._header() | fitted, arrays, self.terms, report=report)

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
            labels, seen, record = read_fitted(values)
            if values["method"] not in METHODS or len(seen) < 2:
                raise ValueError("its method or its classes are unknown")
            n_terms, n_rows = int(values["n_terms"]), 1 if len(seen) == 2 else len(seen)
            shapes = {"idf": (n_terms,), "weights": (n_rows, n_terms), "intercepts": (n_rows,)}
            arrays, (terms,) = read_arrays(folder, shapes), read_terms(folder, [n_terms])
            counted = Terms(terms, arrays.pop("idf"), "word", (1, int(values["n_words"])))
            settings = dict(values["settings"])
        return cls(labels, seen, values["method"], counted, **arrays, settings=settings, record=record)


def fit_tfidf(method: str, examples: Examples, *, seed: int = 0) -> TfidfModel:
    """Fit a linear model, a key of ``METHODS``, to texts with one label each."""
    if examples.labels.separator:
        raise ConfigError(
            f"{method} supports one label per row, so --label-separator does not apply.",
            remedy="Fit an encoder with a head instead: elmokit fit english TRAIN.",
        )
    start, texts = time.monotonic(), join_texts(examples.inputs)
    seen, targets = number_classes(examples)
    n_words = 1 if method == "tfidf-lr" else 2
    min_df = 1 if n_words == 1 or len(texts) < _FEW else 2
    counted = Terms.fit(texts, "word", (1, n_words), min_df=min_df)
    if counted is None:
        shared = " that another one has, too" if min_df > 1 else ""
        raise DataError(
            f"None of the {len(texts):,} texts contains a word of two letters or more{shared}.",
            remedy="Give texts with words, or leave out the methods that count them.",
        )
    terms, rows = counted
    weights, intercepts, strength = solve_linear(method, rows, targets, seed=seed)
    timings = {"training": round(time.monotonic() - start, 2)}
    settings = {"n_words": n_words, "min_df": min_df, "sublinear_tf": True, "seed": seed, "C": strength}
    record = FitRecord(stopped="done", timings=timings)
    solution = weights.astype(np.float32), intercepts.astype(np.float32)
    return TfidfModel(examples.labels, seen, method, terms, *solution, settings, record=record)


def number_classes(examples: Examples) -> tuple[list[int], npt.NDArray[np.int64]]:
    """The classes that have rows, two or more, and of each row the place of its class among them."""
    seen, places = np.unique(examples.targets, return_inverse=True)
    if len(seen) < 2:
        raise DataError(
            f"All {len(examples):,} training texts have the same label.",
            remedy="Give texts of two classes or more.",
        )
    return seen.tolist(), places


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
