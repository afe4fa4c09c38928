"""The verb ``distill``: learn a word table whose sums of rows point where a teacher's vectors of texts do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold, cross_val_score
from torch import nn

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.word_table import WordTable, gram_rows
from elmokit.core.atomic import explain_os_errors
from elmokit.core.config import merge_settings
from elmokit.core.console import Reporter
from elmokit.core.errors import DataError
from elmokit.core.model_card import origin_record
from elmokit.core.names import DEFAULT, read_json
from elmokit.core.ragged import Ragged
from elmokit.core.run_folder import open_out, say_done
from elmokit.core.tensors import fingerprint
from elmokit.report.document import Document, Section, make_details, make_list
from elmokit.report.render import write_report
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates
from elmokit.text.vocabulary import form_of
from elmokit.training.loop import Carry, StepResult, train
from elmokit.vectors.encoder import CHUNK, FloatArray, IntArray, SentenceEncoder, encode_chunks, unit_vectors
from elmokit.vectors.foreign import ForeignName, TextVectors, check_finite, open_encoder
from elmokit.vectors.settings import DistillConfig

_SIF = 1e-3  # the constant a of smooth inverse frequency
_SAMPLE = 50_000  # texts from which the directions to keep are computed
_RIDGE = 1.0
_N_STEPS = 25  # of conjugate gradients
_N_FOLDS = 5


@dataclass(frozen=True)
class DistillResult:
    """A model with a new sentence vector, and how near it comes to its teacher on held-out texts."""

    folder: Path
    teacher: str  # its name and width
    n_texts: int
    n_words: int
    n_new: int  # words that the table did not have before
    dim: int
    n_held_out: int
    cosine: float | None = None  # mean cosine to the teacher's vectors
    neighbors: float | None = None  # share of a text's ten nearest by the teacher that the student keeps
    spearman: float | None = None  # correlation with the scores of pairs of texts, if such were given
    accuracy: float | None = None  # logistic regression, five folds, on labeled texts, if such were given
    accuracy_before: float | None = None  # ... on the sentence vector of the language model as it was

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, for people."""
        figures = {
            "cosine to the teacher": self.cosine,
            "ten nearest neighbors kept": self.neighbors,
            "Spearman correlation with the scores of pairs": self.spearman,
            "accuracy on the labeled texts": self.accuracy,
            "accuracy with the sentence vector before": self.accuracy_before,
        }
        return [
            ("teacher", self.teacher),
            ("texts", f"{self.n_texts:,}, {self.n_held_out:,} of them held out"),
            ("words", f"{self.n_words:,}, {self.n_new:,} of them new"),
            ("width", str(self.dim)),
            *((name, f"{value:.3f}") for name, value in figures.items() if value is not None),
        ]


def distill(  # many parameters because each is a flag of the verb
    teacher: str | Path,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    from_model: str | Path = DEFAULT,
    similarity: str | Path | None = None,
    labeled: str | Path | None = None,
    read: ReadConfig | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> DistillResult:
    """Give a language model the sentence vector of another encoder, as a table of words.

    Called again with the same arguments, it resumes where it was stopped. On Ctrl-C it saves and raises
    KeyboardInterrupt.

    Args:
        teacher: As for ``open_encoder``; ``vectors:FILE`` has a vector for each text.
        texts: Files, folders or glob patterns.
        out: The model folder to make; its ``run`` folder holds the teacher's vectors and checkpoints.
        from_model: The language model to keep (``--from``); the new table starts from its own, if any.
        overwrite: Start over if ``out`` holds another run.
        similarity: Pairs of texts with scores, in columns text, other and score, to measure on.
        labeled: Texts with labels, in columns text and label, to measure on.
        command: The command line, for the model card.
        settings: Those of DistillConfig and ReadConfig by name.
    """
    reporter, out = reporter or Reporter("silent"), Path(out)
    configs: Any = merge_settings(settings, distill=DistillConfig(), read=read or ReadConfig())
    config, folder = configs["distill"], open_out(out, "bilm", overwrite=overwrite)
    encoder, base = open_encoder(teacher), load_bilm(from_model)
    pairs = None if similarity is None else _read_pairs(similarity)
    examples = None if labeled is None else _read_labeled(labeled)
    rows = [row.text for row in RowSource(texts, configs["read"], say=reporter.note)]
    if isinstance(encoder, TextVectors):
        encoder = encoder.bind(rows, "Give one vector for each text, in the order of the texts.")
    both = [(row, words) for row in rows if (words := base.pipeline.words(row))]
    if not any(len(words) > 1 for _, words in both):
        raise DataError(
            "None of the texts has two or more words.", remedy="Give running text, a text in each row."
        )
    rows, spelled = [row for row, _ in both], [words for _, words in both]
    counts = Counter(form_of(word) for words in spelled for word in words)
    counts = Counter({form: count for form, count in counts.items() if count >= config.min_count})
    if (start := base.word_table) is not None:
        counts.update(dict(zip(start.forms, start.counts.tolist(), strict=True)))
    with folder.lock():
        width = encoder.sentences(rows[:1]).shape[1]
        inputs = {"teacher.width": str(width), "teacher.fingerprint": encoder.fingerprint}
        weights = [*base.model.parameters(), *([start.codes, start.scales] if start is not None else [])]
        inputs |= {"text.content_hash": fingerprint("\n".join(rows)), "from.weights": fingerprint(*weights)}
        folder.require_same({"distill": config.to_dict()}, inputs)
        measured = [fingerprint(repr(some)) for some in (pairs, examples) if some is not None]
        report = read_json(out / "report.json")
        if folder.has_result() and report and {*measured} <= {*report.pop("measured", ())}:
            reporter.say(say_done(out))
            return DistillResult(**{**report, "folder": out})
        targets = _teach(encoder, width, rows, folder.run / "teacher.bin", reporter)
        table, held = learn_table(spelled, targets, counts, config, folder.run, reporter, start)
        result = DistillResult(
            folder=out,
            teacher=f"{_label(teacher)}, {width} wide",
            n_texts=len(rows),
            n_words=len(table.forms),
            n_new=len(table.forms) - (0 if start is None else len(start.forms)),
            dim=table.dim,
            n_held_out=len(held),
            **measure_table(table, [spelled[row] for row in held], targets, held),
            spearman=None if pairs is None else _correlate(pairs, base, table),
            accuracy=None if examples is None else _classify(examples, base, table),
            accuracy_before=None if examples is None or start is None else _classify(examples, base, start),
        )
        _save(base, table, result, measured, _label(from_model), command, config)
    return result


def _label(name: str | Path) -> str:
    foreign = ForeignName.parse(name)
    return replace_surrogates(Path(name).resolve().name) if foreign is None else foreign.label


def _teach(
    encoder: SentenceEncoder, dim: int, texts: Sequence[str], file: Path, reporter: Reporter
) -> FloatArray:
    """The teacher's vectors of texts, (n_texts, dim), kept in a file that grows by whole chunks."""
    with explain_os_errors(file), open(file, "ab") as stream:
        done = min(len(texts), stream.tell() // (4 * dim * CHUNK) * CHUNK)
        stream.truncate(4 * dim * done)
        with reporter.counting("Teacher's vectors", total=len(texts), unit="texts") as advance:
            advance(done)
            for vectors in encode_chunks(encoder, texts[done:], advance):
                check_finite(vectors, "The teacher")
                stream.write(vectors.astype(np.float32).tobytes())
                stream.flush()
    return np.memmap(file, dtype=np.float32, mode="r", shape=(len(texts), dim))


def measure_table(
    table: WordTable, texts: Sequence[Sequence[str]], teacher: FloatArray, rows: Sequence[int]
) -> dict[str, float]:
    """The mean cosine of the table's vectors of texts to the teacher's ``rows``, and the share of their ten
    nearest neighbors that are the same."""
    if not texts:
        return {}
    student = table.sentences(texts)
    targets = unit_vectors(teacher[rows])
    lifted = student[:, : teacher.shape[1]] @ _directions(teacher, student.shape[1]).T
    near = []
    for unit in (student, targets):
        scores = unit @ unit.T  # (n, n)
        np.fill_diagonal(scores, -np.inf)
        near.append(np.argsort(-scores, axis=1, kind="stable")[:, : min(10, len(texts) - 1)])
    kept = [len({*a} & {*b}) / max(1, len(a)) for a, b in zip(*near, strict=True)]
    return {"cosine": float((lifted * targets).sum(axis=1).mean()), "neighbors": float(np.mean(kept))}


def _read_pairs(file: str | Path) -> list[tuple[str, str, float]]:
    source = RowSource(file, ReadConfig(text_columns="text,other"), LabelConfig(label_column="score"))
    try:
        return [(row.texts[0], row.texts[1], float(row.label or "")) for row in source]
    except ValueError as error:
        raise DataError(f"{file}: {error}.", remedy="The column score must hold numbers.") from error


def _read_labeled(file: str | Path) -> list[tuple[str, str]]:
    source = RowSource(file, ReadConfig(text_columns="text"), LabelConfig(label_column="label"))
    rows = [(row.text, row.label or "") for row in source]
    if len(counts := Counter(label for _, label in rows)) < 2 or min(counts.values()) < _N_FOLDS:
        raise DataError(
            f"{file} has too few labeled texts to measure on.",
            remedy=f"Give at least two labels, and {_N_FOLDS} texts of each.",
        )
    return rows


def _classify(rows: Sequence[tuple[str, str]], base: BilmFolder, table: WordTable) -> float:
    """Accuracy of logistic regression on the vectors of texts, five folds."""
    texts, labels = zip(*rows, strict=True)
    vectors = table.sentences(list(map(base.pipeline.words, texts)))
    folds = StratifiedKFold(_N_FOLDS, shuffle=True, random_state=0)
    scores = cross_val_score(LogisticRegression(C=30.0, max_iter=1000), vectors, labels, cv=folds)
    return float(scores.mean())


def _correlate(pairs: Sequence[tuple[str, str, float]], base: BilmFolder, table: WordTable) -> float:
    first, second, scores = zip(*pairs, strict=True)
    left, right = (table.sentences(list(map(base.pipeline.words, side))) for side in (first, second))
    return float(spearmanr((left * right).sum(axis=1), scores).statistic)


def _save(
    base: BilmFolder,
    table: WordTable,
    result: DistillResult,
    measured: Sequence[str],
    origin: str,
    command: str,
    config: DistillConfig,
) -> None:
    """Write the model with its report."""
    old = [f"{origin}: {note}" for note in base.training.get("notes", [])]
    note = f"The sentence vector was distilled from {result.teacher}, with {result.n_texts:,} texts."
    record = {**base.training, **origin_record(command, "torch", "numpy"), "notes": [note, *old]}
    document = Document(
        f"{result.folder.resolve().name}: distilled sentence vectors",
        f"{note} The language model is {origin}.",
        (
            Section("figures", "Student and teacher", "On held-out texts.", (make_list(result.rows()),)),
            make_details(command, ("Settings", config.to_dict())),
        ),
    )
    figures = {**asdict(result), "measured": measured}
    del figures["folder"]
    saved = replace(base, word_table=table, training=record)
    save_bilm(result.folder, saved, report=lambda staged: write_report(staged, document, figures))


@dataclass
class Distillation:
    """Cosine between sums of rows and a teacher's vectors, for the training loop."""

    weight: nn.Parameter  # (1 + n_forms, dim); row 0 stays zero
    texts: Ragged[np.int64]  # the row of each word
    targets: FloatArray  # (n_texts, dim)
    train: IntArray  # numbers of the texts to learn from, in the order of the epoch
    held: IntArray  # numbers of the texts to measure on
    config: DistillConfig

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The table."""
        return {"weight": self.weight}

    def lr_scales(self) -> Mapping[str, float]:
        """One learning rate."""
        return {}

    def steps_per_epoch(self) -> int:
        """Batches in a pass over the texts."""
        return -(-len(self.train) // self.config.batch_texts)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle the texts."""
        self.train = np.random.default_rng([self.config.seed, epoch]).permutation(np.sort(self.train))
        return {}

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """One minus the mean cosine of a batch."""
        size = self.config.batch_texts
        rows = self.train[index * size : (index + 1) * size]
        return StepResult((1 - self._cosine(rows)).mean(), int(self.texts.lengths[rows].sum()), carry)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The mean cosine to the teacher on held-out texts."""
        if not len(self.held):
            return {}
        cosine = float(self._cosine(self.held).mean())
        return {"score": 1 - cosine, "cosine": cosine}

    def _cosine(self, rows: IntArray) -> torch.Tensor:
        """(n_rows,)"""
        parts = Ragged.from_rows([self.texts[row] for row in rows], np.int64)
        ids, offsets = torch.from_numpy(parts.values), torch.from_numpy(parts.offsets[:-1])
        sums = F.embedding_bag(ids, self.weight, offsets, mode="sum", sparse=True, padding_idx=0)
        return F.cosine_similarity(sums, torch.from_numpy(self.targets[rows]), dim=1)


def learn_table(
    texts: Sequence[Sequence[str]],
    teacher: npt.NDArray[np.floating],
    counts: Mapping[str, int],
    config: DistillConfig,
    run: Path,
    reporter: Reporter,
    start: WordTable | None = None,
) -> tuple[WordTable, list[int]]:
    """A word table whose sums of rows point where the teacher's vectors of the texts do.

    A row starts as the teacher's vector of a text that is this one word, if there is one, else as the mean of
    its vectors of the texts with this word; without the mean of all, and shorter for a frequent word. With
    another table to start from, its rows are mapped to the teacher's space.

    Args:
        texts: As words.
        teacher: A vector for each text, (n_texts, teacher_dim).
        counts: How often each form occurs in running text.
        run: The folder for checkpoints.
        start: Its forms come first, and all are kept; they have counts, too.

    Returns:
        The table, and the numbers of the held-out texts, of which not even the start knows anything.
    """
    targets = np.asarray(teacher @ _directions(teacher, config.dim), dtype=np.float32)
    old = {} if start is None else dict.fromkeys(start.forms)
    new = Counter({form: count for form, count in counts.items() if form not in old})
    forms = [*old, *(form for form, _ in new.most_common(config.max_forms))]
    known = {form: place for place, form in enumerate(forms, start=1)}
    spelled = [[form_of(word) for word in words] for words in texts]
    ids = Ragged.from_rows([[known.get(form, 0) for form in row] for row in spelled], np.int64)
    running = np.flatnonzero(ids.lengths > 1)
    training, held = np.split(running, [len(running) - min(config.held_out, len(running) // 10)])
    seen = np.setdiff1d(np.arange(len(ids)), held)
    seen_texts = [spelled[row] for row in seen]
    seen_ids = Ragged.from_rows([ids[row] for row in seen], np.int64)
    rows, single = _starting_rows(seen_texts, seen_ids, targets[seen], len(forms))
    if start is None:
        shares = np.array([counts[form] for form in forms]) / sum(counts.values())
        rows[1:] *= (_SIF / (_SIF + shares.astype(np.float32)))[:, None]
    else:
        rows[1:] = _map_rows(start, forms, seen_texts, targets[seen])
    task = Distillation(nn.Parameter(torch.from_numpy(rows)), ids, targets, training, held, config)
    result = train(task, config, run, reporter=reporter)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    vectors = result.weights["weight"].numpy()[1:]
    grams = _learn_grams([*forms, *single], np.stack([*vectors, *single.values()]), config)
    seen_often = np.array([counts[form] for form in forms], dtype=np.int64)
    return WordTable.from_vectors(forms, seen_often, vectors, grams), held.tolist()


def _directions(teacher: npt.NDArray[np.floating], dim: int) -> FloatArray:
    """The main directions of a teacher's vectors, (teacher_dim, dim)."""
    sample = np.asarray(teacher[:: max(1, len(teacher) // _SAMPLE)], dtype=np.float32)
    vectors: FloatArray = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : min(dim, teacher.shape[1])]
    return vectors.astype(np.float32)


def _map_rows(
    table: WordTable, forms: Sequence[str], texts: Sequence[Sequence[str]], targets: FloatArray
) -> FloatArray:
    """Rows of ``forms`` in the space of the targets, by ridge regression from a table's vectors of texts.

    They are as long as they were, because the learning rate suits rows of that length.
    """
    some = range(0, len(texts), max(1, len(texts) // _SAMPLE))
    sums = table.sentences([texts[row] for row in some])  # (n_some, table_dim)
    weights = np.linalg.solve(sums.T @ sums + _RIDGE * np.eye(table.dim), sums.T @ targets[some])
    rows = table.vectors(forms).numpy()
    mapped = rows @ weights
    size, new_size = (np.median(np.linalg.norm(part, axis=1)) for part in (rows, mapped))
    return np.asarray(mapped * (size / max(new_size, 1e-9)), dtype=np.float32)


def _starting_rows(
    texts: Sequence[Sequence[str]], ids: Ragged[np.int64], targets: FloatArray, n_forms: int
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Rows before training, (1 + n_forms, dim), and the vectors of single words that have no row."""
    centered = targets - targets.mean(axis=0)
    owners = np.repeat(np.arange(len(ids)), ids.lengths)
    ones = np.ones(len(owners), dtype=np.float32)
    which = csr_matrix((ones, (ids.values, owners)), shape=(1 + n_forms, len(ids)))
    rows = np.asarray(which @ centered) / np.maximum(np.asarray(which.sum(axis=1)), 1)
    alone = np.flatnonzero(ids.lengths == 1)
    singles = centered[alone] - (centered[alone].mean(axis=0) if len(alone) else 0)
    single = {}
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
    grams = Ragged.from_rows([gram_rows(word, config.n_grams) for word in words], np.int64)
    shares = np.repeat(1 / grams.lengths, grams.lengths).astype(np.float32)
    means = csr_matrix((shares, grams.values, grams.offsets), shape=(len(words), config.n_grams))
    alpha = _RIDGE / len(words) * grams.lengths.mean()
    ridge = Ridge(alpha=alpha, fit_intercept=False, solver="sparse_cg", max_iter=_N_STEPS, tol=1e-12)
    return np.asarray(config.gram_scale * ridge.fit(means, vectors).coef_.T, dtype=np.float32)
