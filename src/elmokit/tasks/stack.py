"""``StackModel``: several views of a text, each with a logistic regression, weighted by its predictions.

context     mean over the words of an equal mix of the encoder's layers, of length one
sentence    the encoder's sentence vector, if it has a trained one, of length one
vectors     both side by side
layers      maximum, mean and last over the words of every layer, and the sentence vector, each of length one
words       TF-IDF of words and pairs of words
characters  TF-IDF of two to five characters in a row
context-2   context and sentence of the second encoder, if there are several, and so on

Each view's penalty is chosen by the likelihood of its out-of-fold predictions. Their log-probabilities are
added with weights of zero or more, fitted to the same predictions. Then every view is fitted to all rows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import DataError
from elmokit.core.formatting import plural
from elmokit.core.model_card import Facts
from elmokit.core.model_folder import Report, explain_damage, read_record
from elmokit.core.names import resolve_name
from elmokit.tasks.classification import shorten
from elmokit.tasks.heads import mean_over_words, read_out
from elmokit.tasks.layer_cache import BATCH_WORDS
from elmokit.tasks.logistic import FEW_ROWS, Array, Design, choose_strength, fit_weights, normalize, solve
from elmokit.tasks.model import FitRecord, at_least_one_word, make_facts, read_fitted
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Inputs, join_texts
from elmokit.tasks.tfidf import LinearModel, Terms, number_classes, read_arrays, read_terms, solve_linear
from elmokit.tasks.trainer import row_weights
from elmokit.text.batching import bucket_batches
from elmokit.training.machine import tuned_process
from elmokit.vectors.encoder import Encoder, FloatArray, IntArray, SentenceEncoder, unit_vectors
from elmokit.vectors.foreign import open_encoder
from elmokit.vectors.side_by_side import Encoders

LEXICAL = {"words": ("word", (1, 2)), "characters": ("char_wb", (2, 5))}
"""Views that count terms: what a term is, and how many words or characters long."""
DENSE = ("context", "sentence", "vectors", "layers")
"""Views of an encoder; of the second one they end in -2."""
_MANY_ROWS = 5000  # up to which there are three folds or five; then one part is held out
_MOST_HELD = 5000  # rows in that part
_MOST_LAYERED = 20_000  # rows for the view of layers, which is wide
_MOST_CHARACTERS = 10_000_000  # in all texts, for the view of characters
_MOST_WEIGHTS = 2_000_000  # terms times classes, where there are too many rows to rotate
_PULL = 3.0  # strength of the penalty that keeps each view's weight near that of its score alone
_NEGLIGIBLE = 0.01  # weight of a view that is dropped
_FEW_CLASSES = 5  # up to which NB-SVM, one fit per class, is measured


@dataclass(frozen=True, eq=False)
class View:
    """One view of a text with its logistic regression.

    Attributes:
        weight: Of its log-probabilities in the stack.
        weights: (n_classes, dim).
        biases: (n_classes,).
        terms: What is counted, for a lexical view.
    """

    name: str
    weight: float
    weights: FloatArray
    biases: FloatArray
    terms: Terms | None = None


@dataclass(frozen=True)
class ViewRecord:
    """What a report says of a view: its weight in the stack, C and the share of right predictions."""

    name: str
    weight: float
    strength: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class StackModel(LinearModel):
    """A fitted stack: texts in, labels and calibrated probabilities out.

    Attributes:
        encoder: None if no view uses it.
        tried: All views that were fitted, those without weight included.
    """

    views: tuple[View, ...]
    encoder: SentenceEncoder | None
    config: ClassifierConfig
    tried: tuple[ViewRecord, ...] = ()
    kind = "stack"

    def probabilities(self, inputs: Sequence[Inputs], n_cut: IntArray | None = None) -> FloatArray:
        """The probability of each class, (n_rows, n_classes); ``n_cut`` as in ``encode``."""
        logs = self.view_logs(inputs, n_cut)
        return self.normalize(np.asarray(sum(view.weight * logs[view.name] for view in self.views)))

    def normalize(self, scores: Array) -> FloatArray:
        """Scores of the seen classes as probabilities of all, (n_rows, n_classes)."""
        from scipy.special import expit, softmax

        return self.expand(expit(scores) if self.labels.separator else softmax(scores, axis=1))

    def view_logs(self, inputs: Sequence[Inputs], n_cut: IntArray | None = None) -> dict[str, Array]:
        """Of each view, log-probabilities (of several labels, log-odds) of the seen classes."""
        texts, logs = join_texts(inputs), dict[str, Array]()
        names, limit = {view.name for view in self.views}, self.config.fit.max_words
        dense = encode(self.encoder, inputs, limit, names, n_cut=n_cut)
        for view in self.views:
            features: Any = view.terms.transform(texts) if view.terms else dense[view.name]
            scores = features @ view.weights.T.astype(np.float64) + view.biases
            logs[view.name] = normalize(scores, several=bool(self.labels.separator))
        return logs

    def facts(self) -> Facts:
        """What it is: for its card, ``elmokit inspect`` and the service."""
        used = ", ".join(f"{view.name} {view.weight:.2f}" for view in self.views)
        encoder = self.record.encoder.get("name", "") if self.encoder else "none: words and characters alone"
        rows = [
            ("encoder", str(encoder)),
            ("views", f"{used} (weights)"),
            *((view.name, f"{len(view.terms.terms):,} terms") for view in self.views if view.terms),
            *((name, f"{score:.4f} out of fold") for name, score in self.record.rivals.items()),
        ]
        return make_facts(self, "A text classifier: a stack of several views.", rows, self._header())

    def _header(self) -> dict[str, Any]:
        return {
            "task": "classify",
            "classes": list(self.labels.names),
            "multilabel": bool(self.labels.separator),
            "seen": self.seen,
            "views": [asdict(view) for view in self.tried],
            "settings": self.config.to_dict(),
        }

    def save(self, folder: str | Path, report: Report = None) -> None:
        """Write it to a folder, with its encoder if it needs one."""
        terms = {view.name: view.terms for view in self.views if view.terms}
        used, arrays = dict[str, Any](), {f"{name}.idf": counted.idf for name, counted in terms.items()}
        for view in self.views:
            n_terms, dim = len(terms[view.name].terms) if view.terms else 0, view.weights.shape[1]
            used[view.name] = {"weight": view.weight, "dim": dim, "terms": n_terms}
            arrays |= {f"{view.name}.weights": view.weights, f"{view.name}.biases": view.biases}
        record = {**self.record.to_json(), "label_separator": self.labels.separator}
        values = {**self._header(), "used": used, "record": record}
        self._write(Path(folder), values, arrays, *terms.values(), report=report)

    @classmethod
    def load(cls, folder: str | Path) -> StackModel:
        """Read a folder; anything missing, damaged, foreign or of the wrong shape is a ModelError."""
        folder = resolve_name(folder)
        values = read_record(folder, cls.kind)
        with explain_damage(folder):
            labels, seen, record = read_fitted(values)
            config = ClassifierConfig.from_dict(values["settings"])
            tried, used = tuple(ViewRecord(**entry) for entry in values["views"]), values["used"]
            if not used or not all(name in LEXICAL or is_dense(name) for name in used):
                raise ValueError("its views are unknown")
            counts = {name: entry["terms"] for name, entry in used.items() if name in LEXICAL}
            shapes: dict[str, tuple[int, ...]]
            shapes = {f"{name}.weights": (len(seen), entry["dim"]) for name, entry in used.items()}
            shapes |= {f"{name}.biases": (len(seen),) for name in used}
            arrays = read_arrays(folder, shapes | {f"{name}.idf": (count,) for name, count in counts.items()})
            words = dict(zip(counts, read_terms(folder, [*counts.values()]), strict=True))
            terms = {name: Terms(words[name], arrays[f"{name}.idf"], *LEXICAL[name]) for name in counts}
            views = []
            for name, entry in used.items():
                solution = arrays[f"{name}.weights"], arrays[f"{name}.biases"]
                views.append(View(name, entry["weight"], *solution, terms.get(name)))
        encoder = open_encoder(folder / "encoder") if any(map(is_dense, used)) else None
        return cls(labels, seen, tuple(views), encoder, config, tried, record=record)


# -- views ------------------------------------------------------------------------------------


def is_dense(name: str) -> bool:
    """True for a view of an encoder."""
    return name.partition("-")[0] in DENSE


def dense_views(encoder: SentenceEncoder | None, n_rows: int = 0) -> tuple[str, ...]:
    """The views that an encoder has. One without layers has nothing but a vector of a text."""
    if encoder is None:
        return ()
    if isinstance(encoder, Encoders):
        first, *others = encoder.parts
        more = (
            f"{name}-{number}"
            for number, other in enumerate(others, 2)
            for name in dense_views(other, n_rows)
            if name in ("context", "sentence")
        )
        return (*dense_views(first, n_rows), *more)
    if not hasattr(encoder, "batch"):
        return ("sentence",)
    both = ("sentence", "vectors") if getattr(encoder, "has_sentence_vector", False) else ()
    return ("context", *both, *(("layers",) if n_rows <= _MOST_LAYERED else ()))


def encode(
    encoder: SentenceEncoder | None,
    inputs: Sequence[Inputs],
    max_words: int,
    names: Iterable[str],
    progress: Advance = lambda amount: None,
    *,
    n_cut: IntArray | None = None,
) -> dict[str, FloatArray]:
    """The dense views of some rows, each (n_rows, dim); context and layers are of the first ``max_words``.
    ``n_cut`` gets the number of further words of each row, (n_rows,)."""
    names, texts = {*filter(is_dense, names)}, [row[0] for row in inputs]
    if encoder is None or not names:
        return {}
    if isinstance(encoder, Encoders):
        views = dict[str, FloatArray]()
        for number, part in enumerate(encoder.parts, 1):
            mark = f"-{number}" if number > 1 else ""
            own = [name.removesuffix(mark) for name in names if name.partition("-")[2] == mark[1:]]
            encoded = encode(part, inputs, max_words, own, *([] if mark else [progress]), n_cut=n_cut)
            views |= {f"{name}{mark}": vectors for name, vectors in encoded.items()}
            inputs = [(getattr(row[0], "source", row[0]),) for row in inputs]  # words are those of the first
        return views
    parts = dict[str, list[FloatArray]]()
    if names != {"sentence"}:
        words = cast(Encoder, encoder).words(texts)
        if n_cut is not None:
            np.maximum(n_cut, [len(text) - max_words for text in words], out=n_cut)
        words = [text[:max_words] for text in words]
        how = {"every_layer": "layers" in names}
        parts["context"], parts["layers"] = _read(cast(Encoder, encoder), words, progress, **how)
    if "sentence" in {*names, *dense_views(encoder)}:
        parts["sentence"] = [unit_vectors(encoder.sentences(texts))]
    parts["vectors"] = parts.get("context", []) + parts.get("sentence", [])
    parts["layers"] = parts.get("layers", []) + parts.get("sentence", [])
    return {name: np.concatenate(parts[name], axis=1) for name in DENSE if name in names}


@torch.no_grad()
def _read(
    encoder: Encoder, words: Sequence[list[str]], progress: Advance, *, every_layer: bool
) -> tuple[list[FloatArray], list[FloatArray]]:
    """The mean over the words of an equal mix of the layers; and what is read out of each layer."""
    n_blocks = (3 if encoder.directional else 2) * encoder.n_layers - int(encoder.directional)
    pooled = np.zeros((1 + every_layer * n_blocks, len(words), encoder.dim), dtype=np.float32)
    with tuned_process():
        for rows in bucket_batches([len(text) + 2 for text in words], BATCH_WORDS):
            layers = at_least_one_word(encoder.batch([words[row] for row in rows]).words())
            mixed = torch.stack(layers.values).mean(dim=0)  # (batch, time, dim)
            blocks = [mean_over_words(mixed, layers.mask)]
            for depth, layer in enumerate(layers.values if every_layer else ()):
                # The lowest layer knows no context, so its last word is only a word.
                blocks += read_out(layer, layers.mask)[: 3 if encoder.directional and depth else 2]
            pooled[:, rows] = torch.stack(blocks).numpy()
            progress(len(rows))
    units = [unit_vectors(block) for block in pooled]
    return units[:1], units[1:]


def _lexical(texts: Sequence[str], n_classes: int) -> dict[str, tuple[Terms, Any]]:
    """The lexical views of the training texts: what is counted, and the matrix, (n_texts, n_terms)."""
    many = len(texts) > _MANY_ROWS
    views = {}
    for name, (analyzer, sizes) in LEXICAL.items():
        if name == "characters" and sum(map(len, texts)) > _MOST_CHARACTERS:
            continue
        min_df = 2 if many or (name == "characters" and len(texts) >= 50) else 1
        most = max(20_000, _MOST_WEIGHTS // n_classes)
        fitted = Terms.fit(texts, analyzer, sizes, min_df=min_df, max_features=most if many else None)
        if fitted is not None:
            views[name] = fitted
    return views


# -- fitting ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StackFit:
    """A fitted stack, and its predictions for training rows that its parts had not seen.

    Attributes:
        rows: Numbers of these rows; none if every class has one row.
        probabilities: Of their classes, (n_rows, n_classes).
        lexical_score: The main score of the lexical views alone on these rows, if rivals were measured.
    """

    model: StackModel
    rows: IntArray
    probabilities: FloatArray
    lexical_score: float = 0.0

    def describe(self, score: float) -> str:
        """The stack, which has this score, beside its rivals and without its encoder, in sentences."""
        rivals, tried = self.model.record.rivals, self.model.tried
        scores = "; ".join(f"{name}: {one:.3f}" for name, one in {**rivals, "this model": score}.items())
        text = f"On the same folds: {scores} (views: {', '.join(f'{v.name} {v.score:.3f}' for v in tried)})."
        if self.lexical_score >= score and self.model.encoder is not None:
            text += f" Words and characters alone reach {self.lexical_score:.3f}: the encoder adds nothing."
        elif score < max(rivals.values(), default=0.0):
            text += " The baseline scores higher."
        return text


def make_folds(targets: npt.NDArray[Any], seed: int) -> IntArray:
    """The fold that each row is held out with, each class spread evenly; -1 for rows that never are."""
    rng, n_rows = np.random.default_rng(seed), len(targets)
    kinds = targets if targets.ndim == 1 else np.zeros(n_rows, dtype=np.int64)
    order = rng.permutation(n_rows)
    order = order[np.argsort(kinds[order], kind="stable")]  # class by class, at random within
    n_folds = 5 if n_rows <= FEW_ROWS else 3
    if n_rows > _MANY_ROWS:
        n_folds = max(5, -(-n_rows // _MOST_HELD))
    folds = np.empty(n_rows, dtype=np.int64)
    folds[order] = np.arange(n_rows) % n_folds
    return np.where(folds == 0, 0, -1) if n_rows > _MANY_ROWS else folds


def fit_stack(
    encoder: SentenceEncoder | None,
    examples: Examples,
    config: ClassifierConfig,
    *,
    count_terms: bool = True,
    rivals: bool = False,
    keep_all: bool = False,
    reporter: Reporter | None = None,
) -> StackFit:
    """Fit a stack to texts with one label each, or several.

    Args:
        encoder: None for the lexical views alone.
        count_terms: False for the encoder's views alone.
        config: Of which the stack uses ``max_words``, ``class_weights`` and ``seed``.
        rivals: Measure simple methods and the lexical views alone on the same folds, too.
        keep_all: Keep views without weight, to look at what they predict.
    """
    from threadpoolctl import threadpool_limits

    reporter, start = reporter or Reporter("silent"), time.monotonic()
    several, n_rows = bool(examples.labels.separator), len(examples)
    seen, targets = _targets(examples)
    counts = targets.sum(axis=0)
    notes = _note_rare_classes([examples.labels.names[number] for number in seen], counts)
    names, n_cut = dense_views(encoder, n_rows), np.zeros(n_rows, dtype=np.int64)
    with reporter.counting("Encoding texts", total=n_rows if names else None, unit="texts") as advance:
        dense = encode(encoder, examples.inputs, config.fit.max_words, names, advance, n_cut=n_cut)
    if n_long := np.count_nonzero(n_cut):
        limit = f"Truncated to {config.fit.max_words} words (max_words)"
        notes += (f"{limit}: {n_long:,} of {n_rows:,} rows for training.",)
    encoded = time.monotonic()
    lexical = _lexical(join_texts(examples.inputs), len(seen)) if count_terms else {}
    if not lexical and not any(np.any(features) for features in dense.values()):
        raise DataError("None of the training texts contains a word.", remedy="Check the texts first.")
    weights = row_weights(examples, config.fit.class_weights).numpy().astype(np.float64)
    folds = make_folds(examples.targets, config.fit.seed)
    known = np.ones(n_rows) if several else (targets @ counts > 1) * 1.0
    n_known = n_rows - np.count_nonzero(folds == 0)
    counted = weights * known * (folds >= 0)  # the fits that predict a class with one row have not seen it
    rows, rival_scores, lexical_score = np.flatnonzero(counted), dict[str, float](), 0.0
    score = partial(_score, targets=targets, rows=rows, several=several)
    fits, views, tried = list[_ViewFit](), list[View](), list[ViewRecord]()
    with threadpool_limits(1):  # the same bits with any number of threads
        for name, matrix in ({name: matrix for name, (_, matrix) in lexical.items()} | dense).items():
            design = Design.of(matrix.astype(np.float64 if n_rows <= FEW_ROWS else np.float32))
            chosen = choose_strength(design, targets, weights, folds, counted, several=several)
            fits.append(_ViewFit(name, design, *chosen))
        logs = {fit.name: fit.logs for fit in fits}
        shares = np.full(len(fits), 1 / len(fits))
        if len(rows):
            shares, _ = fit_weights([*logs.values()], targets, counted, several=several, pull=_PULL)
            if not shares.any():
                notes += ("No view predicts better than chance.",)
                shares += _NEGLIGIBLE
        shares = np.where(shares < _NEGLIGIBLE * shares.max(), 0.0, shares)
        for share, fit in zip(shares.tolist(), fits, strict=True):
            tried.append(ViewRecord(fit.name, share, fit.strength, score(fit.logs)))
            if share or keep_all:
                strength = fit.strength * n_known / n_rows  # as strong a penalty for each row as in the folds
                solution = solve(fit.design, targets, weights, strength, fit.start, several=several)
                terms = lexical[fit.name][0] if fit.name in lexical else None
                views.append(View(fit.name, share, *fit.design.unrotate(solution), terms))
        if rivals and len(rows) and "words" in lexical:
            some = [logs[name] for name in lexical]
            joint, _ = fit_weights(some, targets, counted, several=several)
            lexical_score = score(np.tensordot(joint, some, axes=1))
            predicted = _rivals(lexical["words"][1], targets, folds, config.fit.seed, several=several)
            rival_scores = {name: score(scores) for name, scores in predicted}
    timings = {"encoding": round(encoded - start, 2), "training": round(time.monotonic() - encoded, 2)}
    record = FitRecord(stopped="done", notes=notes, timings=timings, rivals=rival_scores)
    kept = encoder if any(is_dense(view.name) for view in views) else None
    model = StackModel(examples.labels, seen, tuple(views), kept, config, tuple(tried), record=record)
    total = np.asarray(sum(share * fit.logs for share, fit in zip(shares, fits, strict=True)))
    return StackFit(model, rows, model.normalize(total[rows]), lexical_score)


@dataclass(frozen=True, eq=False)
class _ViewFit:
    """A view before it is refitted: its C, out-of-fold log-probabilities, and a solution to start from."""

    name: str
    design: Design
    strength: float
    logs: Array
    start: Array | None


def _targets(examples: Examples) -> tuple[list[int], Array]:
    """Numbers of the classes that have rows, and ones and zeros, (n_rows, n_seen)."""
    if examples.labels.separator:
        return list(range(len(examples.labels))), examples.targets.astype(np.float64)
    seen, numbers = number_classes(examples)
    return seen, np.eye(len(seen))[numbers]


def _note_rare_classes(names: Sequence[str], counts: Array) -> tuple[str, ...]:
    """A sentence on classes with fewer rows than there are folds."""
    if counts.max() < 2:
        return ("Each class has only one row, so nothing was held out and all views have equal weight.",)
    rare = [name for name, count in zip(names, counts, strict=True) if 0 < count < 5]
    if not rare:
        return ()
    return (f"Fewer than five rows: {plural(len(rare), 'class', 'classes')} ({shorten(rare)}).",)


def _score(scores: Array, *, targets: Array, rows: IntArray, several: bool) -> float:
    """Accuracy of some rows; of several labels, micro F1."""
    if not len(rows):
        return 0.0
    scores, correct = scores[rows], targets[rows] > 0.5
    if several:
        chosen = scores > 0
        return float(2 * (chosen & correct).sum() / max(1, chosen.sum() + correct.sum()))
    return float((scores.argmax(axis=1) == correct.argmax(axis=1)).mean())


def _rivals(
    matrix: Any, targets: Array, folds: IntArray, seed: int, *, several: bool
) -> Iterator[tuple[str, Array]]:
    """Names and out-of-fold scores, (n_rows, n_classes), of simple methods on the same folds."""
    names = {"tfidf-svm": "TF-IDF + SVM"}
    if targets.shape[1] <= _FEW_CLASSES:
        names["nbsvm"] = "NB-SVM"
    problems = [*targets.T] if several else [targets.argmax(axis=1)]
    for method, name in names.items():
        scores = np.full(targets.shape, -np.inf)
        for fold, (number, problem) in itertools.product(range(int(folds.max()) + 1), enumerate(problems)):
            held, known = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            present, classes = np.unique(problem[known], return_inverse=True)
            if len(present) < 2:
                continue
            weights, intercepts, _ = solve_linear(method, matrix[known], classes, seed=seed)
            answers = matrix[held] @ weights.T + intercepts
            if not several and len(present) == 2:
                answers = np.hstack([-answers, answers])
            scores[np.ix_(held, [number] if several else present)] = answers
        yield name, scores
