"""The task "answer": the words of a passage that answer a question, or none."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.errors import DataError
from elmokit.core.formatting import percent
from elmokit.report.document import Column, Section, make_table
from elmokit.tasks.heads import BilstmHead, Head, Rng
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.task import Examples, Inputs, Labels, Part, Prediction, Task
from elmokit.text.readers import LeftOut
from elmokit.text.rows import Row
from elmokit.text.settings import RowForm
from elmokit.text.tokenizing import PlacedWords

_LONGEST = 30  # words of a predicted answer
_RUNNERS_UP = 3
_CANDIDATES = 50  # spans among which runners-up are sought; most overlap the best one
_HIDDEN = -1e4  # the score of padding: exp is zero, and sums stay finite
_WORST = 20  # answers in a report
_QUESTION_WORD = re.compile(r"\b(how many|how much|how|who|what|when|where|which|why)(?:m|se)?\b")


# -- the head ---------------------------------------------------------------------------------


class SpanScores(NamedTuple):
    """Scores of the first and the last word of the answer, (batch, 1 + time); place 0 is "no answer"."""

    starts: Tensor
    ends: Tensor


class AttentionHead(BilstmHead):
    """Attention between passage and question in both directions, a biLSTM, and scores of starts and ends.

    As in BiDAF, but without its first LSTM (the vectors are contextual already) and with the cosine of the
    mixed vectors, which shows from the first step on what the question and the passage share.
    """

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        width = 2 * config.head_dim
        super().__init__(config, 4 * width + 1, Labels(("start", "end")))
        self.project = nn.Linear(dim, width)
        self.passage_scores, self.question_scores = (nn.Linear(width, 1, bias=False) for _ in range(2))
        self.joint, self.sharpness = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.tensor(5.0))
        self.summary, self.wanted = nn.Linear(width, 1), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, 2)
        self.no_answer = nn.Linear(2 * width, 1)

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> SpanScores:
        question_mask, passage_mask = masks
        passage_mask = passage_mask & question_mask.any(dim=1, keepdim=True)  # no question: no answer
        question, passage = (torch.relu(self.project(x)) for x in mixed)
        cosine = F.normalize(mixed[1], dim=2) @ F.normalize(mixed[0], dim=2).transpose(1, 2)
        cosine = cosine.masked_fill(~question_mask.unsqueeze(1), -1.0)  # (batch, passage time, question time)
        similarity = self.passage_scores(passage) + self.question_scores(question).transpose(1, 2)
        similarity = similarity + (passage * self.joint) @ question.transpose(1, 2) + self.sharpness * cosine
        similarity = similarity.masked_fill(~question_mask.unsqueeze(1), _HIDDEN)
        attended = similarity.softmax(dim=2) @ question  # what each word of the passage finds in the question
        relevance = similarity.amax(dim=2).masked_fill(~passage_mask, _HIDDEN).softmax(dim=1)
        relevant = relevance.unsqueeze(1) @ passage  # (batch, 1, width)
        parts = [passage, attended, passage * attended, passage * relevant, cosine.amax(dim=2, keepdim=True)]
        x = self.read(torch.cat(parts, dim=2), passage_mask, rng)  # (batch, passage time, width)
        weights = self.summary(question).masked_fill(~question_mask.unsqueeze(2), _HIDDEN).softmax(dim=1)
        summary = (weights * question).sum(dim=1)
        edges = self.wanted(summary).view(len(x), -1, 2)  # (batch, width, start and end)
        scores = self.output(x) + x @ edges / math.sqrt(x.shape[2])
        scores = scores.masked_fill(~passage_mask.unsqueeze(2), _HIDDEN)
        highest = x.masked_fill(~passage_mask.unsqueeze(2), -1.0).amax(dim=1)
        no_answer = self.no_answer(torch.cat([summary, highest], dim=1)).unsqueeze(1).expand(-1, 1, 2)
        starts, ends = torch.cat([no_answer, scores], dim=1).unbind(dim=2)
        return SpanScores(starts, ends)


def best_spans(scores: SpanScores, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most probable spans of at most ``_LONGEST`` words: first words, last words (-1: no answer) and
    probabilities, each (batch, n or fewer). The probabilities of all such spans and of no answer add up to 1.
    """
    starts, ends = (one.log_softmax(dim=1) for one in scores)
    following = F.pad(ends[:, 1:], (0, _LONGEST - 1), value=2 * _HIDDEN).unfold(1, _LONGEST, 1)
    spans = (starts[:, 1:].unsqueeze(2) + following).flatten(1)  # (batch, time * _LONGEST)
    every = torch.cat([(starts[:, 0] + ends[:, 0]).unsqueeze(1), spans], dim=1).softmax(dim=1)
    probabilities, places = every.topk(min(n, every.shape[1]), dim=1)
    first = torch.where(places > 0, (places - 1) // _LONGEST, -1)
    last = torch.where(places > 0, first + (places - 1) % _LONGEST, -1)
    return first, last, probabilities


# -- scores -----------------------------------------------------------------------------------


def normalize_answer(text: str) -> str:
    """As SQuAD's evaluation does: lower case, no punctuation, no articles, single spaces.

    >>> normalize_answer("The  Eiffel-Tower!")
    'eiffeltower'
    """
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def answer_f1(answer: str, true: str) -> float:
    """How far two answers share their words; if one is empty, 1 if both are."""
    own, other = normalize_answer(answer).split(), normalize_answer(true).split()
    if not own or not other:
        return float(own == other)
    n_same = (Counter(own) & Counter(other)).total()
    return 2 * n_same / (len(own) + len(other))


@dataclass(frozen=True, eq=False)
class AnswerMetrics:
    """Exact match and F1 by the rules of SQuAD: of each row, the highest over its true answers.

    Attributes:
        true: The true answers of each row; none: the passage does not answer the question.
        probabilities: Of the predicted answers.
    """

    questions: Sequence[str]
    true: Sequence[Sequence[str]]
    predicted: Sequence[str]
    probabilities: Sequence[float]
    main: ClassVar[str] = "answer_f1"

    @property
    def n(self) -> int:
        """Rows measured."""
        return len(self.true)

    @cached_property
    def row_stats(self) -> npt.NDArray[np.float64]:
        """F1, exact match and 1 of each row, (n, 3)."""
        rows = np.ones((self.n, 3))
        for row, (answer, true) in enumerate(zip(self.predicted, self.true, strict=True)):
            golds = [gold for gold in true if normalize_answer(gold)] or [""]
            rows[row, 0] = max(answer_f1(answer, gold) for gold in golds)
            rows[row, 1] = normalize_answer(answer) in map(normalize_answer, golds)
        return rows

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """F1."""
        return float(sums[0] / max(1.0, sums[2]))

    @cached_property
    def values(self) -> Mapping[str, float]:
        """F1 and exact match; where some rows have no answer, also the F1 of the others, and the share of
        those for which none was given."""
        f1, exact, _ = self.row_stats.mean(axis=0).tolist() if self.n else (0.0, 0.0, 0.0)
        lacks = np.array([not true for true in self.true], dtype=bool)
        values = {"answer_f1": f1, "exact_match": exact}
        if lacks.any():
            answered = self.row_stats[~lacks, 0]
            values["answered_f1"] = float(answered.mean()) if len(answered) else 0.0
            values["no_answer_accuracy"] = float(self.row_stats[lacks, 0].mean())
        return values

    def to_json(self) -> dict[str, Any]:
        """For report.json; kinds of questions, the most common first."""
        rows, kinds = dict[str, list[int]](), list[dict[str, Any]]()
        for row, question in enumerate(self.questions):
            rows.setdefault(question_kind(question), []).append(row)
        for kind, own in sorted(rows.items(), key=lambda entry: -len(entry[1])):
            f1, exact, _ = self.row_stats[own].mean(axis=0).tolist()
            kinds.append({"question": kind, "answer_f1": f1, "exact_match": exact, "n": len(own)})
        return {"n": self.n, **self.values, "by_question": kinds}


def question_kind(question: str) -> str:
    """Its first question word.

    >>> question_kind("In how many cities did she live?")
    'how many'
    """
    match = _QUESTION_WORD.search(" ".join(question.lower().split()))
    return match[1] if match else "other"


# -- the task ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Words of a passage.

    Attributes:
        text: Empty if the passage has no answer.
        start: Its first character in the passage; ``end``, the character after its last. None without text.
    """

    text: str
    start: int | None
    end: int | None
    probability: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerPrediction(Prediction):
    """The most probable answer, ``words`` from the first to before the last (empty: no answer), and others
    that do not overlap it; during training, where predictions are only measured, the words alone."""

    words: slice
    answer: Answer = Answer("", None, None, 0.0)
    runners_up: list[Answer] = field(default_factory=list)


class Answering(Task[AnswerPrediction, AnswerMetrics]):
    """The words of a passage that answer a question."""

    name = "answer"
    fields = ("question", "passage")
    heads: ClassVar[Mapping[str, type[Head]]] = {"bidaf": AttentionHead}
    form = RowForm(
        label_names=("answer", "answers"),
        exact=True,
        open_labels=True,
        fields=(("question", "passage"), ("question", "context")),
        signs=(frozenset({"question", "passage"}), frozenset({"question", "context"})),
    )
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"head_layers": 1, "head_dim": 64, "dropout_head": 0.3, "batch_words": 4096}
    )
    min_epochs = 8
    part = Part("by_question", "question", ("f1", "exact_match", "count"))
    shown = ("exact_match", "answered_f1")
    cuts = False

    def prepare(self, inputs: Inputs) -> Inputs:
        """Words with their places in question and passage."""
        return tuple(map(PlacedWords.of, inputs))

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        """Questions with their passages, and the first and last word of each answer, (n, 2); -1 for none."""
        inputs, targets, passages = list[Inputs](), list[tuple[int, int]](), dict[str, PlacedWords]()
        misaligned = LeftOut("with answers that cut a word", "Adjusted")
        for row in rows:
            query, text = map(str, self.inputs(row))
            passage = passages[text] = passages.get(text) or PlacedWords.split(text)
            question = PlacedWords.split(query)
            for name, words in zip(self.fields, (question, passage), strict=True):
                if not words:
                    raise DataError(
                        f"{row.place}: the {name} is empty.", remedy="Give both, or leave the row out."
                    )
            spans = [_locate(*gold, passage, row.place) for gold in _read_golds(row, labels.separator)]
            question.answers = tuple(passage.text[start:end] for start, end in spans)
            targets.append(_place_words(_typical(spans), passage, row.place, misaligned))
            inputs.append((question, passage))
        numbers = np.array(targets, dtype=np.int32).reshape(-1, 2)
        return Examples(inputs, numbers, labels, notes=misaligned.notes())

    def loss(self, output: SpanScores, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """The negative log-likelihood of the first and of the last word."""
        places = torch.from_numpy(targets.astype(np.int64)) + 1
        starts, ends = (
            F.cross_entropy(one, own, reduction="none") for one, own in zip(output, places.T, strict=True)
        )
        return starts + ends

    def decode(
        self,
        output: SpanScores,
        masks: Sequence[Tensor],
        labels: Labels,
        inputs: Sequence[Inputs] | None = None,
    ) -> list[AnswerPrediction]:
        """The best span of each row; for ``inputs``, also its text and the runners-up."""
        columns = [one.tolist() for one in best_spans(output, 1 if inputs is None else _CANDIDATES)]
        rows = list[AnswerPrediction]()
        for row, spans in enumerate(zip(*columns, strict=True)):
            first, last, probabilities = spans
            words = slice(max(first[0], 0), last[0] + 1)
            if inputs is None:
                rows.append(AnswerPrediction(words=words))
            else:
                passage = PlacedWords.of(inputs[row][1])
                answer, *others = _distinct(zip(first, last, probabilities, strict=True), passage)
                rows.append(AnswerPrediction(words=words, answer=answer, runners_up=others))
        return rows

    def measure(self, examples: Examples, predictions: Sequence[AnswerPrediction]) -> AnswerMetrics:
        """Exact match and F1."""
        questions = [PlacedWords.of(question) for question, _ in examples.inputs]
        pairs = zip(examples.inputs, predictions, strict=True)
        predicted = [_text_of(PlacedWords.of(passage), one.words) for (_, passage), one in pairs]
        true, shares = [one.answers for one in questions], [one.answer.probability for one in predictions]
        return AnswerMetrics([one.text for one in questions], true, predicted, shares)

    def columns(self, prediction: AnswerPrediction) -> dict[str, Any]:
        """The answer with its place in the passage, and the runners-up."""
        answer = prediction.answer
        values = {"answer": answer.text, "start": answer.start, "end": answer.end}
        others = [asdict(other) for other in prediction.runners_up]
        return {**values, "probability": answer.probability, "runners_up": others}

    def sections(self, metrics: Mapping[str, AnswerMetrics]) -> list[Section]:
        """Scores by question word and the worst answers."""
        split, last = [*metrics.items()][-1]
        table = self.part.table(metrics)
        scores = Section("questions", "Scores by question word", "In percent.", (table,))
        return [scores, _worst_section(last, split)]


# -- reading ----------------------------------------------------------------------------------


def _read_golds(row: Row, separator: str) -> list[tuple[str, int | None]]:
    """The true answers of a row with their first characters, None where that is not given."""
    label, content, pairs = row.label or "", cast(Any, None), cast(Any, ())
    if label[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # an answer in brackets
            content = json.loads(label)
    if isinstance(content, dict):  # one answer, or lists side by side
        texts, starts = (content.get(name) for name in ("text", "answer_start"))
        pairs = itertools.zip_longest(texts, starts or ()) if isinstance(texts, list) else [(texts, starts)]
    elif isinstance(content, list) and all(isinstance(one, str | dict) for one in content):
        pairs = [
            (one, None) if isinstance(one, str) else (one.get("text"), one.get("answer_start"))
            for one in content
        ]
    else:
        start = (row.cells or {}).get("answer_start")
        pairs = [(text, start) for text in (label.split(separator) if separator else [label])]
    golds = list[tuple[str, int | None]]()
    for text, start in pairs:
        is_number = str(start).strip().removesuffix(".0").removeprefix("-").isdecimal()
        if not isinstance(text, str) or not (is_number or start in (None, "") or start != start):
            raise DataError(
                f"{row.place}: invalid answer or answer_start: {json.dumps([text, start])[:100]}.",
                remedy='Write answers as {"text": "1969", "answer_start": 42}; count characters from 0.',
            )
        if text.strip():
            golds.append((text.strip(), int(float(start)) if is_number else None))
    return golds


def _locate(answer: str, start: int | None, passage: PlacedWords, place: str) -> tuple[int, int]:
    """First character and end of an answer; without a start, where it first stands between words."""
    text = passage.text
    if start is None:
        matches = [match.span() for match in re.finditer(re.escape(answer), text)]
        firsts, lasts = ({offset[side] for offset in passage.offsets} for side in (0, 1))
        whole = [(first, last) for first, last in matches if first in firsts and last in lasts]
        if not matches:
            raise DataError(
                f"{place}: the passage does not contain the answer {answer[:80]!r}.",
                remedy="Copy the answer from the passage as it stands there, with its capitals and spaces; "
                "leave it empty if the passage has no answer.",
            )
        return (whole or matches)[0]
    start += len(text[max(0, start) :]) - len(text[max(0, start) :].lstrip())
    if not text.startswith(answer, start) or start < 0:
        raise DataError(
            f"{place}: answer_start is {start}, but the passage has "
            f"{text[max(0, start) : max(0, start) + len(answer)][:80]!r} there, not {answer[:80]!r}.",
            remedy="Count characters from 0, or leave answer_start out.",
        )
    return start, start + len(answer)


def _typical(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The span that shares most with all."""

    def agreement(span: tuple[int, int]) -> float:
        start, end = span
        return sum(
            max(0, min(end, last) - max(start, first)) / (end - start + last - first) for first, last in spans
        )

    return max(spans, key=agreement, default=None)


def _place_words(
    span: tuple[int, int] | None, passage: PlacedWords, place: str, misaligned: LeftOut
) -> tuple[int, int]:
    """The first and the last word of a span of characters; one that ends inside a word takes all of it."""
    if span is None:
        return -1, -1
    inside, remark = passage.between(*span)
    if remark:
        misaligned.add(place, remark)
    return (inside[0], inside[1] - 1) if inside else (-1, -1)


# -- predictions ------------------------------------------------------------------------------


def _text_of(passage: PlacedWords, words: slice) -> str:
    offsets = passage.offsets[words]
    return passage.text[offsets[0][0] : offsets[-1][1]] if offsets else ""


def _distinct(spans: Iterable[tuple[int, int, float]], passage: PlacedWords) -> Iterator[Answer]:
    """The first span, and those of the following that overlap none before, as answers."""
    taken = list[tuple[int, int]]()
    for first, last, probability in spans:
        if len(taken) > _RUNNERS_UP or last >= len(passage):  # padding
            return
        if any(first <= end and start <= last for start, end in taken):
            continue
        taken.append((first, last))
        if first < 0:
            yield Answer("", None, None, round(probability, 4))
        else:
            start, end = passage.offsets[first][0], passage.offsets[last][1]
            yield Answer(passage.text[start:end], start, end, round(probability, 4))


# -- the report -------------------------------------------------------------------------------


def _worst_section(metrics: AnswerMetrics, split: str) -> Section:
    """The answers with the lowest F1, of these the most confident ones."""
    f1 = metrics.row_stats[:, 0]
    rows = []
    for row in np.lexsort((-np.asarray(metrics.probabilities), f1))[:_WORST]:
        if f1[row] < 1:
            true = " / ".join(dict.fromkeys(metrics.true[row])) or "(no answer)"
            answer = metrics.predicted[row] or "(no answer)"
            rows.append([metrics.questions[row], true, answer, percent(metrics.probabilities[row])])
    columns = [Column("Question"), Column("True"), Column("Predicted"), Column("Probability", "right")]
    return Section("worst", f"Worst answers ({split})", "", (make_table(columns, rows),))
