"""The verb ``distill``: learn a word table whose sums of rows point where a teacher's vectors of texts do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import nn

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.word_table import WordTable, gram_rows
from elmokit.core.atomic import explain_os_errors
from elmokit.core.config import merge_settings
from elmokit.core.console import Reporter
from elmokit.core.errors import DataError
from elmokit.core.formatting import format_value
from elmokit.core.model_card import origin_record
from elmokit.core.names import DEFAULT
from elmokit.core.ragged import Ragged
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.report.document import Code, Document, Section, make_list
from elmokit.report.render import write_report
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates
from elmokit.text.vocabulary import form_of
from elmokit.training.loop import Carry, StepResult, train
from elmokit.vectors.encoder import SentenceEncoder
from elmokit.vectors.foreign import CHUNK, ForeignName, TextVectors, check_finite, encode_chunks, open_encoder
from elmokit.vectors.settings import DistillConfig

FloatArray = npt.NDArray[np.float32]
_SIF = 1e-3  # the constant a of smooth inverse frequency
_SAMPLE = 50_000  # texts from which the directions to keep are computed
_RIDGE = 1.0
_N_STEPS = 25  # of conjugate gradients


@dataclass(frozen=True)
class DistillResult:
    """A model with a new sentence vector, and how near it comes to its teacher.

    Attributes:
        teacher: Its name and width.
        n_new: Words that the table did not have before.
        n_held_out: Texts that the following figures are measured on; None if there are none.
        cosine: Mean cosine to the teacher's vectors.
        neighbors: Share of each text's ten nearest neighbors by the teacher that are so by the student.
        spearman: Correlation with the scores of pairs of texts, if such were given.
    """

    folder: Path
    teacher: str
    n_texts: int
    n_words: int
    n_new: int
    dim: int
    n_held_out: int
    cosine: float | None = None
    neighbors: float | None = None
    spearman: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, for people."""
        figures = {
            "cosine to the teacher": self.cosine,
            "ten nearest neighbors kept": self.neighbors,
            "Spearman correlation with the scores of pairs": self.spearman,
        }
        return [
            ("teacher", self.teacher),
            ("texts", f"{self.n_texts:,}, {self.n_held_out:,} of them held out"),
            ("words", f"{self.n_words:,}, {self.n_new:,} of them new"),
            ("width", str(self.dim)),
            *((name, f"{value:.3f}") for name, value in figures.items() if value is not None),
        ]


def distill(  # many parameters because each is an argument or flag of the command
    teacher: str | Path,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    from_model: str | Path = DEFAULT,
    similarity: str | Path | None = None,
    read: ReadConfig | None = None,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> DistillResult:
    """Give a language model the sentence vector of another encoder, as a table of words.

    Called again with the same arguments, it resumes where it was stopped. On Ctrl-C it saves and raises
    KeyboardInterrupt.

    Args:
        teacher: ``vectors:FILE`` with a vector for each text, ``st:FOLDER``, ``m2v:FOLDER``, or an elmokit
            model.
        texts: Files, folders or glob patterns.
        out: The model folder to make; its ``run`` folder holds the teacher's vectors and checkpoints.
        from_model: The language model to keep (``--from``); the new table starts from its own, if any.
        similarity: Pairs of texts with scores, in columns text, other and score, to measure on.
        command: The command line, for the model card.
        settings: Those of DistillConfig and ReadConfig by name.
    """
    reporter, out = reporter or Reporter("silent"), Path(out)
    configs: Any = merge_settings(settings, distill=DistillConfig(), read=read or ReadConfig())
    config, folder = configs["distill"], open_out(out, "bilm", resume=True)
    encoder, base = open_encoder(teacher), load_bilm(from_model)
    pairs = None if similarity is None else _read_pairs(similarity)
    rows = [row.text for row in RowSource(texts, configs["read"])]
    if isinstance(encoder, TextVectors):
        encoder = encoder.bind(rows)
    words = [base.pipeline.words(row) for row in rows]
    kept = [row for row, own in enumerate(words) if own]
    if not any(len(words[row]) > 1 for row in kept):
        raise DataError("None of the texts has two words.", remedy="Give running text, a text in each row.")
    rows, words = [rows[row] for row in kept], [words[row] for row in kept]
    counts = Counter(form_of(word) for own in words for word in own)
    counts = Counter({form: count for form, count in counts.items() if count >= config.min_count})
    if (start := base.word_table) is not None:
        counts.update(dict(zip(start.forms, start.counts.tolist(), strict=True)))
    with folder.lock():
        width = encoder.sentences(rows[:1]).shape[1]
        inputs = {"teacher.width": str(width), "teacher.fingerprint": encoder.fingerprint}
        inputs |= {"text.content_hash": fingerprint("\n".join(rows)), "from.weights": _fingerprint(base)}
        folder.require_same({"distill": config.to_dict()}, inputs)
        targets = _teach(encoder, width, rows, folder.run / "teacher.bin", reporter)
        table, _ = learn_table(words, targets, counts, config, folder.run, reporter, start)
        n_held = min(config.held_out, sum(len(own) > 1 for own in words) // 10)
        held = [row for row, own in enumerate(words) if len(own) > 1][-n_held:] if n_held else []
        result = DistillResult(
            folder=out,
            teacher=f"{_label(teacher)}, {width} wide",
            n_texts=len(rows),
            n_words=len(table.forms),
            n_new=len(table.forms) - (0 if start is None else len(start.forms)),
            dim=table.dim,
            n_held_out=n_held,
            **_measure(table.sentences([words[row] for row in held]), targets, held),
            spearman=None if pairs is None else _correlate(pairs, base, table),
        )
        _save(base, table, result, _label(from_model), replace_surrogates(command), config)
    return result


def _label(name: str | Path) -> str:
    foreign = ForeignName.parse(name)
    return Path(name).resolve().name if foreign is None else foreign.label


def _fingerprint(base: BilmFolder) -> str:
    table = [] if base.word_table is None else [base.word_table.codes, base.word_table.scales]
    return fingerprint(*base.model.parameters(), *table)


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


def _measure(student: FloatArray, targets: FloatArray, rows: Sequence[int]) -> dict[str, float]:
    """The mean cosine of the student's vectors to the teacher's, and the share of ten neighbors kept."""
    if not rows:
        return {}
    teacher = targets[rows] / np.maximum(np.linalg.norm(targets[rows], axis=1, keepdims=True), 1e-9)
    lifted = student[:, : targets.shape[1]] @ _directions(targets, student.shape[1]).T
    near = []
    for unit in (student, teacher):
        scores = unit @ unit.T  # (n, n)
        np.fill_diagonal(scores, -np.inf)
        near.append(np.argsort(-scores, axis=1, kind="stable")[:, : min(10, len(rows) - 1)])
    kept = [len({*a} & {*b}) / max(1, len(a)) for a, b in zip(*near, strict=True)]
    return {"cosine": float((lifted * teacher).sum(axis=1).mean()), "neighbors": float(np.mean(kept))}


def _read_pairs(file: str | Path) -> list[tuple[str, str, float]]:
    source = RowSource(file, ReadConfig(text_columns="text,other"), LabelConfig(label_column="score"))
    try:
        return [(row.texts[0], row.texts[1], float(row.label or "")) for row in source]
    except ValueError as error:
        raise DataError(f"{file}: {error}.", remedy="The column score must hold numbers.") from error


def _correlate(pairs: Sequence[tuple[str, str, float]], base: BilmFolder, table: WordTable) -> float:
    from scipy.stats import spearmanr

    first, second, scores = zip(*pairs, strict=True)
    left, right = (table.sentences(list(map(base.pipeline.words, side))) for side in (first, second))
    return float(spearmanr((left * right).sum(axis=1), scores).statistic)


def _save(
    base: BilmFolder,
    table: WordTable,
    result: DistillResult,
    origin: str,
    command: str,
    config: DistillConfig,
) -> None:
    """Write the report, then the model: it says that all is done."""
    old = [f"{origin}: {note}" for note in base.training.get("notes", [])]
    note = f"The sentence vector was distilled from {result.teacher}, with {result.n_texts:,} texts."
    record = {**base.training, **origin_record(command, "torch", "numpy"), "notes": [note, *old]}
    settings = ((name, format_value(value)) for name, value in config.to_dict().items())
    document = Document(
        f"{result.folder.resolve().name}: distilled sentence vectors",
        f"{note} The language model is {origin}.",
        (
            Section("figures", "Student and teacher", "On held-out texts.", (make_list(result.rows()),)),
            Section("details", "How it was made", "", (Code(command), make_list(settings)), folded=True),
        ),
    )
    write_report(result.folder, document, asdict(result))
    save_bilm(result.folder, replace(base, word_table=table, training=record))


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
    start: WordTable | None = None,
) -> tuple[WordTable, dict[str, float]]:
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
        The table, and how well it does on held-out texts.
    """
    targets = np.asarray(teacher @ _directions(teacher, config.dim), dtype=np.float32)
    old = {} if start is None else dict.fromkeys(start.forms)
    new = Counter({form: count for form, count in counts.items() if form not in old})
    forms = [*old, *(form for form, count in new.most_common(config.max_forms))]
    known = {form: place for place, form in enumerate(forms, start=1)}
    spelled = [[form_of(word) for word in words] for words in texts]
    ids = Ragged.from_rows([[known.get(form, 0) for form in row] for row in spelled], np.int64)
    running = np.flatnonzero(ids.lengths > 1)
    n_held = min(config.held_out, len(running) // 10)  # of the last texts not even the start knows anything
    known_texts = np.setdiff1d(np.arange(len(ids)), running[len(running) - n_held :]).tolist()
    seen_ids = Ragged.from_rows([ids[row] for row in known_texts], np.int64)
    seen_texts, seen_targets = [spelled[row] for row in known_texts], targets[known_texts]
    rows, single = _starting_rows(seen_texts, seen_ids, seen_targets, len(forms))
    total = sum(counts.values())
    shares = np.array([counts[form] / total for form in forms], dtype=np.float32)
    rows[1:] *= (_SIF / (_SIF + shares))[:, None]
    if start is not None:
        rows[1:] = _map_rows(start, forms, seen_texts, seen_targets)
    task = Distillation(
        rows,
        Ragged.from_rows([ids[row] for row in running.tolist()], np.int64),
        targets[running],
        config,
    )
    result = train(task, config, run, reporter=reporter)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    vectors = result.weights["weight"].numpy()[1:]
    grams = _learn_grams([*forms, *single], np.stack([*vectors, *single.values()]), config)
    seen = np.array([counts[form] for form in forms], dtype=np.int64)
    history = result.position.history
    return WordTable.from_vectors(forms, seen, vectors, grams), (history[-1] if history else {})


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
