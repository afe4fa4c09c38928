"""The linear models that a sensible user tries first, as one type; as a folder: ``config.json``,
``model.safetensors`` and ``vocab.txt`` (or fastText's ``model.bin``), ``README.md``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

import elmokit
from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.errors import ConfigError, DataError, ModelError, nearest
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION, read_record
from elmokit.core.tensors import check_tensors, load_tensors, save_tensors
from elmokit.tasks.fast_text import FastTextModel, fit_fasttext, load_fasttext
from elmokit.tasks.tfidf import TfidfModel, fit_tfidf

__all__ = ["LinearMethod", "LinearModel", "fit_linear"]

LinearMethod = Literal["tfidf-lr", "tfidf-svm", "fasttext"]
_SAID: dict[LinearMethod, str] = {
    "tfidf-lr": "TF-IDF of words, logistic regression",
    "tfidf-svm": "TF-IDF of words and pairs of words, linear SVM",
    "fasttext": "fastText supervised, words and pairs of words",
}
_CHUNK = 1024
_FRESH = "The files are damaged or do not belong together; take a fresh copy of the folder."


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A fitted linear model: texts in, labels out.

    Attributes:
        method: what it is.
        classes: names of all classes, in the order of the columns of ``probabilities``.
        seen: the classes (by number) that there were texts of; it never chooses another.
        core: the learnt numbers.
        settings: how it was fitted.
        notes: what there is to say of it, in sentences.
        record: where it came from, for the card: date, command.
    """

    method: LinearMethod
    classes: list[str]
    seen: list[int]
    core: TfidfModel | FastTextModel
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def has_probabilities(self) -> bool:
        """Whether ``probabilities`` may be read as such: an SVM's only order the classes."""
        return self.method != "tfidf-svm"

    @property
    def n_bytes(self) -> int:
        """Size of what was learnt."""
        return self.core.n_bytes

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """The probability of each class for each text, (n_texts, n_classes).

        For an SVM these are its scores on the same scale (softmax), see ``has_probabilities``. The
        highest of a row is that of the label chosen.
        """
        found = np.zeros((len(texts), len(self.classes)), dtype=np.float32)
        if not len(texts):
            return found
        scores = self.core.scores(texts)  # (n_texts, n_seen)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        rounded = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
        best = scores.argmax(axis=1)
        tied = np.flatnonzero(rounded.argmax(axis=1) != best)  # by rounding only
        rounded[tied, best[tied]] = np.nextafter(rounded[tied].max(axis=1), np.float32(1))
        found[:, self.seen] = rounded
        return found

    def labels(self, texts: Sequence[str]) -> list[str]:
        """The class chosen for each text."""
        return [self.classes[place] for place in self.probabilities(texts).argmax(axis=1)]

    def stream(
        self, texts: Iterable[str], progress: Callable[[int], None] = lambda amount: None
    ) -> Iterator[npt.NDArray[np.float32]]:
        """``probabilities`` for any number of texts, some at a time."""
        rest = iter(texts)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            yield self.probabilities(chunk)
            progress(len(chunk))

    def save(self, folder: str | Path) -> None:
        """Write the model into ``folder``; ``config.json`` goes first and comes last, so a folder that was
        cut short is never taken for a model."""
        folder = Path(folder)
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("config.json", "model.safetensors", "vocab.txt", "model.bin"):
                (folder / name).unlink(missing_ok=True)
        record: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": "linear",
            "elmokit_version": elmokit.__version__,
            "method": self.method,
            "classes": self.classes,
            "seen": self.seen,
            "settings": self.settings,
            "notes": self.notes,
            "record": self.record,
        }
        if isinstance(self.core, FastTextModel):
            self.core.save(folder / "model.bin")
            record["n_bytes"] = (folder / "model.bin").stat().st_size
        else:
            arrays = {name: torch.from_numpy(getattr(self.core, name)) for name in _shapes(0, 0)}
            save_tensors(folder / "model.safetensors", arrays, {})
            write_text(folder / "vocab.txt", "".join(f"{term}\n" for term in self.core.terms))
            record |= {"n_terms": len(self.core.terms), "n_words": self.core.n_words}
        write_text(folder / "README.md", self._card(folder.resolve().name))
        write_text(folder / "config.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> LinearModel:
        """Read a folder. Anything missing, damaged, foreign or of the wrong shape is an error that says
        which file and why."""
        folder = Path(folder)
        record = read_record(folder, "linear")
        try:
            method: LinearMethod = record["method"]
            classes = [str(name) for name in record["classes"]]
            seen = [int(number) for number in record["seen"]]
            settings, notes, made = dict(record["settings"]), list(record["notes"]), dict(record["record"])
            sizes = {name: int(record[name]) for name in _sizes(method)}
            if len(set(classes)) < len(classes) or seen != sorted({*seen} & {*range(len(classes))}):
                raise ValueError("its classes are not in order")
            if len(seen) < 2:
                raise ValueError("it has fewer than two classes")
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder / 'config.json'} is damaged: {error}.", remedy=_FRESH) from error
        core: TfidfModel | FastTextModel
        if method == "fasttext":
            core = load_fasttext(folder / "model.bin", sizes["n_bytes"], len(seen))
        else:
            core = _load_tfidf(folder, sizes["n_terms"], sizes["n_words"], len(seen))
        return cls(method, classes, seen, core, settings, notes, made)

    def _card(self, name: str) -> str:
        shown = ", ".join(self.classes[:20]) + (", …" if len(self.classes) > 20 else "")
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        rows = [
            ("method", _SAID[self.method]),
            ("classes", f"{len(self.classes)}: {shown}"),
            ("settings", settings),
            *(
                (label, self.record[key])
                for label, key in (("date", "date"), ("made by", "command"))
                if self.record.get(key)
            ),
        ]
        table = "\n".join(f"| {label} | {_one_line(str(value))} |" for label, value in rows)
        said = "".join(f"{note}\n\n" for note in self.notes)
        return (
            f"# {name}\n\nA linear text classifier made with elmokit {elmokit.__version__}.\n\n"
            f"| | |\n|---|---|\n{table}\n\n{said}"
            "Use it with `elmokit predict` or, in Python, `elmokit.tasks.linear.LinearModel.load`.\n"
        )


def fit_linear(
    method: LinearMethod,
    texts: Sequence[str],
    labels: Sequence[str],
    *,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> LinearModel:
    """Fit a linear model.

    Args:
        method: ``tfidf-lr`` (words, logistic regression), ``tfidf-svm`` (words and pairs of words, linear
            SVM) or ``fasttext`` (words and pairs of words, if the package is there).
        texts: to learn from; some may be empty.
        labels: the class of each.
        classes: all classes, in the order wanted, if there are more than ``labels`` has, or in another order.
        seed: of everything random. The first two methods have next to no chance in them.
    """
    if method not in get_args(LinearMethod):
        raise ConfigError(
            f"There is no linear method {method!r}.", remedy=nearest(str(method), get_args(LinearMethod))
        )
    if len(texts) != len(labels):
        raise DataError(
            f"There are {len(texts):,} texts and {len(labels):,} labels.",
            remedy="Give one label for each text.",
        )
    names = sorted(set(labels)) if classes is None else list(classes)
    places = {name: place for place, name in enumerate(names)}
    if unknown := sorted(set(labels) - set(names)):
        raise DataError(
            f"The label {unknown[0]!r} is none of the classes.", remedy="Name all labels among the classes."
        )
    seen = sorted({places[label] for label in labels})
    if len(seen) < 2:
        found = f"only the class {names[seen[0]]!r}" if seen else "no class at all"
        raise DataError(
            f"The {len(texts):,} texts to learn from have {found}.",
            remedy="Give texts of two classes or more.",
        )
    targets = np.searchsorted(seen, [places[label] for label in labels])
    core: TfidfModel | FastTextModel
    if method == "fasttext":
        core, settings, notes = fit_fasttext(texts, targets, seed)
    else:
        core, settings, notes = fit_tfidf("lr" if method == "tfidf-lr" else "svm", texts, targets, seed)
    return LinearModel(method, names, seen, core, settings, notes)


def _sizes(method: str) -> tuple[str, ...]:
    if method not in get_args(LinearMethod):
        raise ValueError(f"there is no linear method {method!r}")
    return ("n_bytes",) if method == "fasttext" else ("n_terms", "n_words")


def _shapes(n_terms: int, n_rows: int) -> dict[str, tuple[int, ...]]:
    return {"idf": (n_terms,), "weights": (n_rows, n_terms), "intercepts": (n_rows,)}


def _load_tfidf(folder: Path, n_terms: int, n_words: int, n_classes: int) -> TfidfModel:
    file, vocabulary = folder / "model.safetensors", folder / "vocab.txt"
    try:
        terms = vocabulary.read_bytes().decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{vocabulary} cannot be read: {error}.", remedy=_FRESH) from error
    if len(terms) != n_terms or len(set(terms)) != n_terms:
        raise ModelError(
            f"{vocabulary} has {len(set(terms)):,} different terms, config.json says {n_terms:,}.",
            remedy=_FRESH,
        )
    tensors, _ = load_tensors(file)
    shapes = _shapes(n_terms, 1 if n_classes == 2 else n_classes)
    with torch.device("meta"):
        check_tensors(file, {name: torch.empty(shape) for name, shape in shapes.items()}, tensors)
    arrays = {name: tensors[name].float().numpy() for name in shapes}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ModelError(f"{file} holds values that are not numbers.", remedy=_FRESH)
    return TfidfModel(terms, **arrays, n_words=n_words)


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
