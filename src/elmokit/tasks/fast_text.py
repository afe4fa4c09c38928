"""fastText supervised: words and pairs of words, through the package ``fasttext`` where there is one."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import atomic_write, explain_os_errors
from elmokit.core.errors import ConfigError, DataError, ModelError

__all__ = ["FastTextModel", "fit_fasttext", "load_fasttext"]

_LABEL = "__label__"
_DIM = 10  # as the authors take for news topics; ten times as many are no better, and take 800 MB
_BUCKET = 2_000_000
_RATE, _SMALLEST_RATE = 0.25, 0.25 / 64
_EPOCHS, _MOST_EPOCHS, _N_SEEN = 5, 200, 50_000
_WORDS = re.compile(r"[^\W_]+|[^\w\s]|_")  # an underscore stands alone, so that no text holds a label


@dataclass(frozen=True, eq=False)
class FastTextModel:
    """A fitted model.

    Attributes:
        model: the package's own object. Its ``predict`` breaks on NumPy 2, so the compiled object
            underneath is asked.
        n_classes: how many classes it knows.
    """

    model: Any
    n_classes: int

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Logarithms of the classes' probabilities, (n_texts, n_classes)."""
        found = np.full((len(texts), self.n_classes), 1e-9)
        for row, text in enumerate(texts):
            for probability, label in self.model.f.predict(
                _plain(text) + "\n", self.n_classes, 0.0, "strict"
            ):
                found[row, int(label.removeprefix(_LABEL))] = max(probability, 1e-9)
        scores: npt.NDArray[np.float64] = np.log(found)
        return scores

    @property
    def n_bytes(self) -> int:
        """Size of the vectors of words, pairs and classes."""
        given = self.model.f.getArgs()
        n_words = len(self.model.f.getVocab("strict")[0])
        return int((n_words + given.bucket + self.n_classes) * given.dim * 4)

    def save(self, file: Path) -> None:
        """Write fastText's own binary file, whole or not at all."""
        with atomic_write(file) as temporary:
            try:
                self.model.f.saveModel(str(temporary))
            except (RuntimeError, ValueError) as error:
                raise OSError(errno.EIO, str(error)) from error
            if temporary.stat().st_size < self.n_bytes:  # fastText does not notice a full disk
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fit_fasttext(
    texts: Sequence[str], targets: npt.NDArray[np.int64], seed: int
) -> tuple[FastTextModel, dict[str, Any], list[str]]:
    """Fit a model; also its settings, and what there is to say of it.

    One thread, so that a seed gives the same model every time. With one thread fastText 0.9.3 fills a tenth
    of its table with random numbers and leaves the rest as it got it from the system: noughts if the table
    is so large that it gets fresh memory, or else anything (then "Encountered NaN"). So the table is never
    smaller than the usual two million rows, however few texts there are.

    Args:
        texts: to learn from.
        targets: their classes, numbered from nought without a gap, (n_texts,).
        seed: of the first vectors and the order of texts.
    """
    fasttext = _package()
    n_epochs = min(_MOST_EPOCHS, max(_EPOCHS, round(_N_SEEN / len(texts))))
    settings = {"n_words": 2, "dim": _DIM, "bucket": _BUCKET, "epochs": n_epochs, "seed": seed}
    notes = []
    with tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        file = Path(folder) / "train.txt"
        with explain_os_errors(file), open(file, "w", encoding="utf-8", newline="\n") as lines:
            lines.writelines(
                f"{_LABEL}{target} {_plain(text)}\n" for text, target in zip(texts, targets, strict=True)
            )
        rate = _RATE
        while True:
            try:
                model = fasttext.train_supervised(
                    str(file),
                    lr=rate,
                    epoch=n_epochs,
                    wordNgrams=2,
                    dim=_DIM,
                    bucket=_BUCKET,
                    thread=1,
                    seed=seed,
                    verbose=0,
                )
                break
            except RuntimeError as error:
                if "NaN" not in str(error) or rate <= _SMALLEST_RATE:
                    raise DataError(
                        f"fastText cannot learn from these texts: {error}",
                        remedy="Leave the method fasttext out.",
                    ) from error
                rate /= 2
    if rate < _RATE:
        notes.append(f"Learning diverged and was begun again with the rate {rate:g} instead of {_RATE:g}.")
    return FastTextModel(model, len(np.unique(targets))), {**settings, "lr": rate}, notes


def load_fasttext(file: Path, n_bytes: int, n_classes: int) -> FastTextModel:
    """Read what ``FastTextModel.save`` wrote, if it is still as long as it was."""
    fresh = "The file is missing, cut off or foreign; take a fresh copy of the folder."
    if not file.is_file() or file.stat().st_size != n_bytes:
        found = f"{file.stat().st_size:,} bytes long" if file.is_file() else "missing"
        raise ModelError(f"{file} is {found}, config.json says {n_bytes:,} bytes.", remedy=fresh)
    try:
        model = _package().load_model(str(file))
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ModelError(f"{file} cannot be read: {error}.", remedy=fresh) from error
    labels = set(model.f.getLabels("strict")[0]) if n_classes else set()
    if labels != {f"{_LABEL}{number}" for number in range(n_classes)}:
        raise ModelError(f"{file} has other classes than config.json.", remedy=fresh)
    return FastTextModel(model, n_classes)


def _plain(text: str) -> str:
    """Lower-case words and marks, one space apart."""
    return " ".join(_WORDS.findall(text.lower().encode("utf-8", "replace").decode("utf-8")))


def _package() -> Any:
    try:
        import fasttext
    except ImportError as error:
        raise ConfigError(
            "The method fasttext needs the package fasttext, which is not installed.",
            remedy="Install it with: pip install fasttext (or leave the method out).",
        ) from error
    return fasttext
