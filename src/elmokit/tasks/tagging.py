"""The task "tag": a label for each word, such as named entities, chunks and parts of speech."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.core.errors import DataError
from elmokit.core.formatting import join_names, plural
from elmokit.report.document import Column, Section, make_pairs_table, make_table
from elmokit.tasks.crf import FORBIDDEN, Crf, best_paths, marginals, negative_log_likelihood
from elmokit.tasks.heads import BilstmHead, Head, Rng
from elmokit.tasks.settings import HeadConfig
from elmokit.tasks.span_tags import (
    OUTSIDE,
    Grammar,
    Span,
    find_invalid,
    find_spans,
    guess_scheme,
    mark_spans,
    split_tag,
    write_tags,
)
from elmokit.tasks.task import Examples, Inputs, Labels, Part, Prediction, Task
from elmokit.text.readers import LeftOut
from elmokit.text.rows import Row
from elmokit.text.settings import RowForm
from elmokit.text.tokenizing import PlacedWords

_ALL_BIOES = "BIES"
_MOST_TAGS = 2000
_WORST = 20  # sentences in a report
_PAIRS = 15  # confusions in a report
_NONE = "(none)"


class CrfHead(Head):
    """A score for each tag of each word by a linear layer, and learned scores of steps between tags."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        super().__init__(config, dim, labels)
        self._add_crf(dim, labels)

    def _add_crf(self, dim: int, labels: Labels) -> None:
        n_tags, grammar = len(labels), Grammar.of(labels.names)
        self.emit = nn.Linear(dim, n_tags)
        self.starts, self.ends = nn.Parameter(torch.zeros(n_tags)), nn.Parameter(torch.zeros(n_tags))
        self.steps = nn.Parameter(torch.zeros(n_tags, n_tags))
        rules = {"starts": grammar.starts, "steps": grammar.steps, "ends": grammar.ends}
        self._penalties = {
            name: np.where(rule, 0, FORBIDDEN).astype(np.float32) for name, rule in rules.items()
        }

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Crf:
        return self._scores(mixed[0])

    def _scores(self, x: Tensor) -> Crf:
        rules = {name: torch.from_numpy(array) for name, array in self._penalties.items()}
        allowed = {name: getattr(self, name) + penalty for name, penalty in rules.items()}
        return Crf(self.emit(x), **allowed)


class BilstmCrfHead(CrfHead, BilstmHead):
    """The same on top of a biLSTM."""

    def __init__(self, config: HeadConfig, dim: int, labels: Labels) -> None:
        BilstmHead.__init__(self, config, dim, labels)
        del self.output
        self._add_crf(2 * config.head_dim, labels)

    def forward(self, mixed: Sequence[Tensor], masks: Sequence[Tensor], rng: Rng = None) -> Crf:
        return self._scores(self.read(mixed[0], masks[0], rng))


@dataclass(frozen=True)
class Entity:
    """A span of words in a text.

    Attributes:
        start: Its first character in the text; ``end``, the character after its last.
        probability: That of its least certain tag.
    """

    label: str
    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True, eq=False, kw_only=True)
class TagPrediction(Prediction):
    """The tag of each word, in IOB2 if tags mark spans, and its probability; the last two are empty while
    training, where predictions are only measured."""

    tags: list[str]
    spans: list[Span]
    words: list[str] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class TagMetrics:
    """Scores of tags; of tags that mark spans, precision, recall and F1 of exact spans.

    Attributes:
        words: Of each row.
        true: The true tags of each row, ``predicted`` those that the model gave.
    """

    words: Sequence[Sequence[str]]
    true: Sequence[Sequence[str]]
    predicted: Sequence[Sequence[str]]
    unknown: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows measured."""
        return len(self.true)

    @cached_property
    def has_spans(self) -> bool:
        """Whether tags mark spans."""
        return mark_spans(tag for tags in (*self.true, *self.predicted) for tag in tags)

    @property
    def main(self) -> str:
        return "span_f1" if self.has_spans else "tag_accuracy"

    @cached_property
    def row_spans(self) -> list[tuple[set[Span], set[Span]]]:
        """Of each row, the true spans and the predicted ones; a word is a span if tags mark none."""
        pairs = zip(self.true, self.predicted, strict=True)
        if self.has_spans:
            return [({*find_spans(true)}, {*find_spans(given)}) for true, given in pairs]
        return [({*_as_spans(true)}, {*_as_spans(given)}) for true, given in pairs]

    @cached_property
    def row_stats(self) -> npt.NDArray[np.float64]:
        """Right spans, predicted spans and true spans of each row, (n, 3)."""
        return np.array([[len(a & b), len(b), len(a)] for a, b in self.row_spans], dtype=float).reshape(-1, 3)

    def score(self, sums: npt.NDArray[np.float64]) -> float:
        """F1 from sums of ``row_stats``. Of tags that mark no spans, it is the accuracy."""
        right, given, true = sums
        return float(2 * right / (given + true)) if given + true else 0.0

    @cached_property
    def per_label(self) -> list[dict[str, Any]]:
        """Label, precision, recall, F1 and number of true spans; the most frequent label first."""
        counts = [Counter[str](), Counter[str](), Counter[str]()]
        for true, given in self.row_spans:
            for counter, spans in zip(counts, (true & given, given, true), strict=True):
                counter.update(span.label for span in spans)
        right, given_counts, support = counts
        rows = []
        for label in sorted({*given_counts, *support}, key=lambda label: (-support[label], label)):
            n, n_given, n_true = right[label], given_counts[label], support[label]
            shares = {"precision": n / max(1, n_given), "recall": n / max(1, n_true)}
            rows.append({"label": label, **shares, "f1": 2 * n / (n_given + n_true), "support": n_true})
        return rows

    @cached_property
    def values(self) -> Mapping[str, float]:
        """All scores, the main one first."""
        right, given, true = self.row_stats.sum(axis=0)
        pairs = [
            pair for rows in zip(self.true, self.predicted, strict=True) for pair in zip(*rows, strict=True)
        ]
        accuracy = sum(a == b for a, b in pairs) / max(1, len(pairs))
        if not self.has_spans:
            return {"tag_accuracy": accuracy, "macro_f1": self._macro()}
        return {
            "span_f1": self.score(self.row_stats.sum(axis=0)),
            "span_precision": float(right / given) if given else 0.0,
            "span_recall": float(right / true) if true else 0.0,
            "macro_f1": self._macro(),
            "tag_accuracy": accuracy,
        }

    def _macro(self) -> float:
        return float(np.mean([row["f1"] for row in self.per_label])) if self.per_label else 0.0

    def to_json(self) -> dict[str, Any]:
        """For report.json."""
        return {"n": self.n, **self.values, "per_label": self.per_label, "unknown": list(self.unknown)}


def _as_spans(tags: Sequence[str]) -> list[Span]:
    return [Span(place, place + 1, tag) for place, tag in enumerate(tags)]


class Tagging(Task[TagPrediction, TagMetrics]):
    """A label for each word."""

    name = "tag"
    heads: ClassVar[Mapping[str, type[Head]]] = {"bilstm": BilstmCrfHead, "linear": CrfHead}
    form = RowForm(
        plain="conll",
        text_names=("tokens", "words", "text"),
        label_names=("tags", "ner_tags", "labels", "label", "spans", "entities"),
        keeps_lists=True,
        signs=(
            frozenset({"conll"}),
            *(frozenset({text, tags}) for text in ("tokens", "words") for tags in ("tags", "ner_tags")),
            *(frozenset({"text", spans}) for spans in ("spans", "entities")),
        ),
    )
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"head_layers": 1, "head_dim": 200, "dropout_head": 0.4, "batch_words": 1024}
    )
    min_epochs = 12
    part = Part("per_label", "label", ("precision", "recall", "f1", "count"))
    shown = ("span_precision", "span_recall", "macro_f1")
    cuts = False

    def inputs(self, row: Row, labels: Labels = Labels()) -> Inputs:  # noqa: B008 (frozen)
        """The words of a row, with their places in the raw text."""
        return (_check_words(PlacedWords.of(list(row.words) or row.text), row),)

    def classes(self, labels: Labels) -> tuple[str, ...]:
        """The labels of spans, without the prefixes of tags."""
        if not mark_spans(labels.names):
            return labels.names
        return tuple(sorted({split_tag(tag)[1] for tag in labels.names} - {""}))

    def prepare(self, inputs: Inputs) -> Inputs:
        """Words with their places in the text."""
        return tuple(map(PlacedWords.of, inputs))

    def read(self, rows: Iterable[Row], labels: Labels) -> Examples:
        """Words and tag numbers, (n, time), padded with -1. Spans in any scheme are learned as BIOES."""
        inputs, tags, misaligned = (
            list[PlacedWords](),
            list[list[str]](),
            LeftOut("with spans that cut a word", "Adjusted"),
        )
        places = list[str]()
        for row in rows:
            words, own = self._read_row(row, misaligned)
            inputs.append(words)
            tags.append(own)
            places.append(row.place)
        notes = misaligned.notes()
        if mark_spans(tag for own in tags for tag in own):
            tags, more = _to_bioes(tags, places)
            notes += more
        used = {tag for own in tags for tag in own}
        if not labels.names:
            labels = Labels(_all_tags(used, places))
        unknown = tuple(sorted(used - {*labels.names}))
        numbers = {tag: number for number, tag in enumerate((*labels.names, *unknown))}
        dtype = np.int16 if len(numbers) < 2**15 else np.int32
        targets = np.full((len(tags), max(map(len, tags), default=1)), -1, dtype=dtype)
        for target, own in zip(targets, tags, strict=True):
            target[: len(own)] = [numbers[tag] for tag in own]
        return Examples([(words,) for words in inputs], targets, labels, unknown, notes=notes)

    def _read_row(self, row: Row, misaligned: LeftOut) -> tuple[PlacedWords, list[str]]:
        """The words and tags of a row."""
        label = row.label or ""
        if label.startswith("[{") or label == "[]":
            words = _check_words(PlacedWords.of(list(row.words) or row.text), row)
            return words, _align(json.loads(label), words, row, misaligned)
        tags = label.split()
        words = PlacedWords.join(row.words or row.text.split())
        if len(words) != len(tags):
            raise DataError(
                f"{row.place}: {plural(len(words), 'word')}, but {plural(len(tags), 'tag')}.",
                remedy="Give one tag for each word; words and tags in a text are separated by spaces.",
            )
        return _check_words(words, row), tags

    def loss(self, output: Crf, targets: npt.NDArray[Any], *, smoothing: float = 0.0) -> Tensor:
        """The negative log-likelihood of the tags, divided by the mean number of words of the batch."""
        tags = torch.from_numpy(targets[:, : output.emissions.shape[1]].astype(np.int64))
        mask = tags >= 0
        known = tags.clamp(
            min=0, max=output.emissions.shape[2] - 1
        )  # a tag that is unknown counts as another
        losses = negative_log_likelihood(output, known, mask)
        return losses / mask.sum(dim=1).float().mean().clamp(min=1)

    def decode(
        self,
        output: Crf,
        masks: Sequence[Tensor],
        labels: Labels,
        inputs: Sequence[Inputs] | None = None,
    ) -> list[TagPrediction]:
        """The best sequence of tags; for ``inputs``, also the probability of each tag."""
        mask = masks[0]
        paths, lengths = best_paths(output, mask), mask.sum(dim=1).tolist()
        has_spans, rows = mark_spans(labels.names), list[TagPrediction]()
        shares = None if inputs is None else marginals(output, mask).gather(2, paths.unsqueeze(2)).squeeze(2)
        for row, (path, length) in enumerate(zip(paths.tolist(), lengths, strict=True)):
            tags = [labels.names[tag] for tag in path[:length]]
            spans = find_spans(tags) if has_spans else []
            prediction = TagPrediction(
                tags=write_tags(spans, length, "IOB2") if has_spans else tags, spans=spans
            )
            if inputs is not None and shares is not None:
                words = PlacedWords.of(inputs[row][0])
                probabilities = shares[row, :length].clamp(0, 1).tolist()
                prediction = _place_entities(prediction, words, probabilities)
            rows.append(prediction)
        return rows

    def measure(self, examples: Examples, predictions: Sequence[TagPrediction]) -> TagMetrics:
        """Scores of exact spans, or the accuracy of tags."""
        names = (*examples.labels.names, *examples.unknown)
        has_spans = mark_spans(names)
        true = list[list[str]]()
        for row in examples.targets:
            tags = [names[tag] for tag in row if tag >= 0]
            true.append(write_tags(find_spans(tags), len(tags), "IOB2") if has_spans else tags)
        words = [row[0] for row in examples.inputs]
        unknown = self.classes(Labels(examples.unknown))
        return TagMetrics(words, true, [prediction.tags for prediction in predictions], unknown)

    def columns(self, prediction: TagPrediction) -> dict[str, Any]:
        """Words and tags; entities with their places in the text if tags mark spans."""
        entities = [vars(entity) for entity in prediction.entities]
        shares = [round(share, 4) for share in prediction.probabilities]
        return {
            "words": prediction.words,
            "tags": prediction.tags,
            "probabilities": shares,
            "entities": entities,
        }

    def sections(self, metrics: Mapping[str, TagMetrics]) -> list[Section]:
        """Scores by label, the most common confusions and the worst sentences."""
        main, last = [*metrics.items()][-1]
        lines = [f"In percent, of {'exact spans' if last.has_spans else 'words'}."]
        for split, one in metrics.items():
            if one.unknown:
                names = join_names(one.unknown, at_most=10)
                lines.append(f"- Tags of {split} rows that training never saw, counted as wrong: {names}.")
        scores = Section("labels", "Scores by label", "\n\n".join(lines), (self.part.table(metrics),))
        return [scores, _confusion_section(last, main), _worst_section(last, main)]


# -- reading ----------------------------------------------------------------------------------


def _check_words(words: PlacedWords, row: Row) -> PlacedWords:
    """The words of a row, none of which may be empty."""
    if "" in words:
        raise DataError(
            f"{row.place}: word {words.index('') + 1} is empty.", remedy="Give the word, or leave it out."
        )
    return words


def _to_bioes(
    tags: Sequence[Sequence[str]], places: Sequence[str]
) -> tuple[list[list[str]], tuple[str, ...]]:
    """Tags of spans in BIOES, and a note on those that their scheme does not allow."""
    scheme, invalid = (
        guess_scheme(tags),
        LeftOut("with invalid tag sequences", "Read as new spans"),
    )
    for place, own in zip(places, tags, strict=True):
        for number in find_invalid(own, scheme):
            before = own[number - 1] if number else "the start"
            invalid.add(place, f"word {number + 1}: {own[number]} after {before}")
            break
    return [write_tags(find_spans(own), len(own), "BIOES") for own in tags], invalid.notes()


def _all_tags(used: set[str], places: Sequence[str]) -> tuple[str, ...]:
    """The tags to learn: of spans, all four of each label, so that any span can be written."""
    place = places[0] if places else ""
    if mark_spans(used):
        kinds = Tagging().classes(Labels(tuple(used)))
        used = {OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in _ALL_BIOES)}
    elif len(used) < 2:
        raise DataError(
            f"{place}: all rows have only the tag {min(used, default='')!r}.", remedy="Check --label-column."
        )
    if len(used) > _MOST_TAGS:
        raise DataError(
            f"{place}: the rows have {len(used):,} different tags, more than {_MOST_TAGS:,}.",
            remedy="That looks like a column of words; check --label-column.",
        )
    return tuple(sorted(used))


def _align(given: Any, words: PlacedWords, row: Row, misaligned: LeftOut) -> list[str]:
    """Spans of characters as tags of words. One that ends inside a word takes all of it, with a note."""
    spans = list[Span]()
    length = len(words.text)
    for entry in given:
        try:
            start, end, label = int(entry["start"]), int(entry["end"]), str(entry["label"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{row.place}: a span needs start, end and label, not {json.dumps(entry)[:100]}.",
                remedy='Write spans as {"start": 0, "end": 5, "label": "PER"}, in characters.',
            ) from error
        if not 0 <= start < end <= length:
            raise DataError(
                f"{row.place}: the span {start} to {end} is not inside the text of {length} characters.",
                remedy="Count characters from 0; end is the place after the last character.",
            )
        inside, remark = words.between(start, end)
        if remark:
            misaligned.add(row.place, remark)
        if inside:
            spans.append(Span(*inside, label))
    spans.sort()
    for one, other in itertools.pairwise(spans):
        if other.start < one.end:
            raise DataError(
                f"{row.place}: two spans overlap ({one.label} and {other.label}).",
                remedy="Each word can have one label; leave one of the spans out.",
            )
    return write_tags(spans, len(words), "BIOES")


# -- predictions ------------------------------------------------------------------------------


def _place_entities(
    prediction: TagPrediction, words: PlacedWords, probabilities: list[float]
) -> TagPrediction:
    """The prediction with the words, and its spans with their places in the text."""
    entities = []
    for start, end, label in prediction.spans:
        first, last = words.offsets[start][0], words.offsets[end - 1][1]
        share = min(probabilities[start:end])
        entities.append(Entity(label, words.text[first:last], first, last, round(share, 4)))
    return replace(prediction, words=list(words), probabilities=probabilities, entities=entities)


# -- the report -------------------------------------------------------------------------------


def _confusion_section(metrics: TagMetrics, split: str) -> Section:
    """What was predicted in place of a span: another label at the same place, other words, or nothing."""
    pairs, totals = Counter[tuple[str, str]](), Counter[str]()
    for true, given in metrics.row_spans:
        totals.update(span.label for span in true)
        for span in true - given:
            near = [other for other in given if other.start < span.end and span.start < other.end]
            same = [other.label for other in near if other[:2] == span[:2]]
            other_words = f"{near[0].label}, other words" if near else _NONE
            pairs[span.label, same[0] if same else other_words] += 1
        for span in given - true:
            if not any(other.start < span.end and span.start < other.end for other in true):
                pairs[_NONE, span.label] += 1
    totals[_NONE] = metrics.n
    rows = [(true, given, n, totals[true]) for (true, given), n in pairs.most_common(_PAIRS)]
    tables = (make_pairs_table(rows, "", _PAIRS),) if rows else ()
    text = "" if rows else "There is no mistake."
    return Section("confusions", f"Most common confusions ({split})", text, tables)


def _worst_section(metrics: TagMetrics, split: str) -> Section:
    """The sentences with the most mistakes, true and predicted spans in brackets."""
    stats = metrics.row_stats
    n_wrong = stats[:, 1] + stats[:, 2] - 2 * stats[:, 0]
    rows = []
    for row in np.argsort(-n_wrong, kind="stable")[:_WORST]:
        if n_wrong[row]:
            spans = metrics.row_spans[row]
            rows.append([_bracket(metrics.words[row], sorted(part)) for part in spans])
    table = make_table([Column("True"), Column("Predicted")], rows)
    return Section("worst", f"Sentences with the most mistakes ({split})", "", (table,))


def _bracket(words: Sequence[str], spans: Sequence[Span]) -> str:
    """As in "[Ada Lovelace PER] wrote it ."."""
    marked = [*words]
    for start, end, label in spans:
        marked[start] = f"[{marked[start]}"
        marked[end - 1] += f" {label}]"
    return " ".join(marked)
