"""The task "pair": two texts with a class (paraphrase, entailment) or a score (similarity)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.core.errors import DataError
from elmokit.core.formatting import join_names
from elmokit.report.document import Column, Section, make_table
from elmokit.report.figures import draw_agreement
from elmokit.tasks.classification import Classification, check_finite
from elmokit.tasks.heads import Head, Rng, read_out
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Examples, Inputs, Labels, Prediction
from elmokit.text.rows import Row
from elmokit.text.settings import RowForm
from elmokit.text.tokenizing import PlacedWords

_MOST_CLASSES = 10  # different numbers; more are scores
_COSINE_SCALE = 5.0  # so that cosines weigh as much as other features from the first step
_WORST = 20  # pairs in a report
_FIELDS = (
    ("text", "other"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("text1", "text2"),
    ("question1", "question2"),
)
_MARKS = (
    "Give start, end, other_start and other_end for each row: characters, counted from 0, and the end is the "
    "place after the last character."
)


class SiameseHead(Head):
    """Both texts pooled alike, u and v; from u, v, |u - v|, u * v and their cosine, a hidden layer.

    If the encoder has a trained sentence vector, those of both texts are compared, too.
    """

    reads_sentences = True

    def __init__(self, config: HeadConfig, dim: int, labels: Labels, sentence_dim: int = 0) -> None:
        super().__init__(config, dim, labels)
        n_outputs, n_cosines = max(1, len(labels)), 1 + (sentence_dim > 0)
        self.hidden = nn.Linear(8 * dim + 2 * sentence_dim + n_cosines, config.head_dim)
        self.output = nn.Linear(config.head_dim, n_outputs)
        self.direct = nn.Linear(n_cosines, n_outputs)  # cosines reach the output without dropout, too

    def forward(
        self,
        mixed: Sequence[Tensor],
        masks: Sequence[Tensor],
        rng: Rng = None,
        sentences: Sequence[Tensor] = (),
    ) -> Tensor:
        words = self.read(mixed, masks, rng)
        u, v = (torch.cat(read_out(x, mask)[:2], dim=1) for x, mask in zip(words, masks, strict=True))
        parts, cosines = [u, v, (u - v).abs(), u * v], [F.cosine_similarity(u, v, dim=1)]
        if sentences:
            scale = math.sqrt(sentences[0].shape[1])  # numbers of about 1, like those of the mix
            s, t = (F.normalize(x, dim=1) * scale for x in sentences)
            parts += [(s - t).abs(), s * t]
            cosines.append((s * t).mean(dim=1))
        near = _COSINE_SCALE * torch.stack(cosines, dim=1)  # (batch, n_cosines)
        x = shared_dropout(torch.cat([*parts, near], dim=1), self.dropout, rng, over=None)
        x = shared_dropout(torch.relu(self.hidden(x)), self.dropout, rng, over=None)
        return cast(Tensor, self.output(x) + self.direct(near))

    def read(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng) -> Sequence[Tensor]:
        """What is pooled of the words of each text, (batch, time, dim)."""
        return mixed


class AlignHead(SiameseHead):
    """Each word attends to the other text and is compared with what it finds there; pooled, then as above.

    Decomposable attention (Parikh et al., 2016).
    """

    def __init__(self, config: HeadConfig, dim: int, labels: Labels, sentence_dim: int = 0) -> None:
        super().__init__(config, config.head_dim, labels, sentence_dim)
        self.attend = nn.Linear(dim, config.head_dim)
        self.match = nn.Linear(4 * dim, config.head_dim)

    def read(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng) -> Sequence[Tensor]:
        """Comparisons of each word with the other text, (batch, time, head_dim)."""
        keys, matches = [self.attend(x) for x in mixed], []
        for x, key, other, other_key, other_mask in zip(
            mixed, keys, mixed[::-1], keys[::-1], masks[::-1], strict=True
        ):
            scores = key @ other_key.transpose(1, 2) / math.sqrt(key.shape[2])  # (batch, time, other time)
            scores = scores.masked_fill(~other_mask.unsqueeze(1), torch.finfo(scores.dtype).min)
            soft = torch.softmax(scores, dim=2) @ other
            matched = torch.relu(self.match(torch.cat([x, soft, (x - soft).abs(), x * soft], dim=2)))
            matches.append(shared_dropout(matched, self.dropout, rng, over=1))
        return matches


@dataclass(frozen=True, eq=False, kw_only=True)
class ScorePrediction(Prediction):
    """The score of a pair, on the scale of the training rows."""

    value: float

    def __post_init__(self) -> None:
        check_finite(np.array(self.value), "scores")


@dataclass(frozen=True, eq=False)
class ScoreMetrics:
    """How well the scores that a model gave agree with the true ones, each (n,)."""

    true: npt.NDArray[np.float64]
    given: npt.NDArray[np.float64]
    inputs: Sequence[Inputs] = ()
    main: ClassVar[str] = "pearson"

    @property
    def n(self) -> int:
        """Pairs measured."""
        return len(self.true)

    @cached_property
    def row_stats(self) -> npt.NDArray[np.float64]:
        """1, x, y, x², y², xy of each pair, (n, 6); centered, in units of the spread of the true scores."""
        spread = float(self.true.std()) or 1.0
        return _moments((self.true - self.true.mean()) / spread, (self.given - self.given.mean()) / spread)

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """The Pearson correlation from sums of ``row_stats``; 0 if all scores are the same."""
        n, x, y, xx, yy, xy = sums
        spreads = max(0.0, xx - x * x / n) * max(0.0, yy - y * y / n)
        return float((xy - x * y / n) / math.sqrt(spreads)) if spreads > 1e-18 else 0.0

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Both correlations, Pearson's first."""
        from scipy.stats import rankdata

        ranks = (rankdata(part) / self.n for part in (self.true, self.given))
        spearman = self.score(_moments(*(part - part.mean() for part in ranks)).sum(axis=0))
        return {"pearson": self.score(self.row_stats.sum(axis=0)), "spearman": spearman}

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {"n": self.n, **self.values}


def _moments(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)


class Pairs(Classification):
    """Two texts with a class, or with a score: more than ten different numbers, or a column named "score"."""

    name = "pair"
    fields = ("text", "other")
    further = ("start", "end", "other_start", "other_end")
    heads: ClassVar[Mapping[str, type[Head]]] = {"siamese": SiameseHead, "align": AlignHead}
    form = RowForm(
        label_names=("label", "score", "class", "category", "target"),
        exact=True,
        fields=_FIELDS,
        signs=tuple(map(frozenset, _FIELDS)),
    )
    shown = (*Classification.shown, "spearman")
    classifies_texts = False

    def inputs(self, row: Row, labels: Labels = Labels()) -> Inputs:  # noqa: B008 (frozen)
        """Both texts; neither may be empty. If columns mark a word in each, its words and the mark."""
        texts, cells = super().inputs(row), _marks(row)
        if blank := [name for name, text in zip(self.fields, row.texts, strict=True) if not text.strip()]:
            raise DataError(
                f"{row.place}: the pair has only one text; {blank[0]!r} is empty."
                if len(blank) == 1
                else f"{row.place}: both texts are empty.",
                remedy="Give two texts, or remove the row.",
            )
        if labels.marked not in (None, bool(cells)):
            problem = "words are" if cells else "no word is"
            raise DataError(
                f"{row.place}: {problem} marked, unlike in the first training row.",
                remedy=f"Remove or rename the columns {join_names(cells)}." if cells else _MARKS,
            )
        if not cells:
            return texts
        if missing := [name for name in self.further if name not in cells]:
            problem = f"missing for the marked words: {join_names(missing)}"
            remedy = f"{_MARKS} Rename columns of these names that mark nothing."
            raise DataError(f"{row.place}: {problem}.", remedy=remedy)
        places = [_to_place(row.place, name, cells[name]) for name in self.further]
        both = zip(texts, places[::2], places[1::2], strict=True)
        return tuple(mark_words(cast(str, text), start, end, row.place) for text, start, end in both)

    def prepare(self, inputs: Inputs) -> Inputs:
        """Texts with marks as they were given."""
        pairs = ((text, getattr(text, "source", None)) for text in inputs)
        return tuple(source if isinstance(source, PlacedWords) else text for text, source in pairs)

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        """Class numbers as of single texts, or scores with mean 0 and spread 1 in the training rows."""
        known = list(rows)
        if labels.marked is None:
            labels = replace(labels, marked=bool(known and _marks(known[0])))
        inputs = [self.inputs(row, labels) for row in known]
        if not (labels.scale or (not labels.names and _are_scores(known))):
            return replace(super().read(known, labels), inputs=inputs)
        scores = np.array([_to_score(row) for row in known])
        if not labels.scale:
            if len(known) and scores.min() == scores.max():
                raise DataError(
                    f"{known[0].place}: all {len(known):,} rows have the same score.",
                    remedy="Give rows with different scores; check --label-column.",
                )
            labels = replace(labels, scale=(float(scores.mean()), float(scores.std())))
        mean, spread = cast(tuple[float, float], labels.scale)
        return Examples(inputs, (scores - mean) / spread, labels)

    def loss(self, output: Tensor, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """The squared error of scores; of classes, the cross-entropy."""
        if targets.dtype != np.float64:
            return super().loss(output, targets, smoothing=smoothing)
        return (output.squeeze(1) - torch.from_numpy(targets).float()).square()

    def decode(
        self,
        output: Tensor,
        masks: Sequence[Tensor],
        labels: Labels,
        inputs: Sequence[Inputs] | None = None,
    ) -> list[Any]:
        """Scores on the scale of the training rows, or probabilities of classes."""
        if labels.scale is None:
            return super().decode(output, masks, labels, inputs)
        mean, spread = labels.scale
        return [ScorePrediction(value=mean + spread * value) for value in output.squeeze(1).tolist()]

    def measure(self, examples: Examples, predictions: Sequence[Any]) -> Any:
        """Correlations of scores; of classes, accuracy and its relatives."""
        if examples.labels.scale is None:
            return super().measure(examples, predictions)
        mean, spread = examples.labels.scale
        values = np.array([prediction.value for prediction in predictions])
        return ScoreMetrics(mean + spread * examples.targets, values, examples.inputs)

    def columns(self, prediction: Any) -> dict[str, Any]:
        """The score; or the class and the probability of each class."""
        if isinstance(prediction, ScorePrediction):
            return {"prediction": float(f"{prediction.value:.6g}")}
        return super().columns(prediction)

    def sections(self, metrics: Mapping[str, Any]) -> list[Section]:
        """True and predicted scores and the largest errors; of classes, as of single texts."""
        split, last = [*metrics.items()][-1]
        if not isinstance(last, ScoreMetrics):
            return super().sections(metrics)
        figure = draw_agreement(last.true.tolist(), last.given.tolist(), caption=split)
        rows = []
        for row in np.argsort(-np.abs(last.true - last.given), kind="stable")[:_WORST]:
            texts = (text if isinstance(text, str) else " ".join(text) for text in last.inputs[row])
            rows.append([f"{last.true[row]:.3g}", f"{last.given[row]:.3g}", *texts])
        columns = [Column("True", "right"), Column("Predicted", "right"), Column("Text"), Column("Other")]
        return [
            Section("agreement", f"True and predicted scores ({split})", "", (figure,)),
            Section("worst", f"Largest errors ({split})", "", (make_table(columns, rows),)),
        ]


def mark_words(text: str, start: int, end: int, place: str = "") -> PlacedWords:
    """A text of a pair of which the words from character ``start`` to before ``end`` are compared.

    >>> mark_words("He sat on the bank.", 14, 18).mark
    (4, 5)
    """
    words = PlacedWords.split(text)
    if 0 <= start < end <= len(words.text) and (mark := words.between(start, end)[0]):
        words.mark = mark
        return words
    problem = f"characters {start} to {end} contain no word; the text has {len(text):,} characters"
    raise DataError(f"{place}: {problem}." if place else f"{problem}.", remedy=_MARKS)


def _marks(row: Row) -> dict[str, Any]:
    """The cells of a row that mark words."""
    cells = {name.casefold(): cell for name, cell in (row.cells or {}).items()}
    return {name: cells[name] for name in Pairs.further if name in cells}


def _to_place(place: str, name: str, cell: Any) -> int:
    number = _to_number(str(cell))
    if number is None or number != int(number):
        raise DataError(f"{place}: {name} is {cell!r}, which is not a character position.", remedy=_MARKS)
    return int(number)


def _are_scores(rows: Sequence[Row]) -> bool:
    """Whether the labels are scores to predict, not classes."""
    if rows and rows[0].label_name.casefold() == "score":
        return True
    return len({number for row in rows if (number := _to_number(row.label)) is not None}) > _MOST_CLASSES


def _to_score(row: Row) -> float:
    if (number := _to_number(row.label)) is None:
        raise DataError(
            f"{row.place}: the score {row.label!r} is not a number.",
            remedy="Give numbers only; a column of classes must not be named score, nor hold many numbers.",
        )
    return number


def _to_number(label: str | None) -> float | None:
    try:
        number = float(label or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
