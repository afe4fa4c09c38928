"""Models that others made: what a path holds, and who opens it."""

from __future__ import annotations

from pathlib import Path

from elmokit.bilm.folder import BilmFolder
from elmokit.core.errors import ModelError
from elmokit.published.hdf5 import PICKLED
from elmokit.published.many_langs import is_many_langs, load_many_langs
from elmokit.published.official import TEXT, find_official, load_official
from elmokit.text.settings import TextConfig

__all__ = ["load_foreign"]

_PICKLES = {".pkl", ".pickle", ".pt", ".pth", ".th", ".bin", ".ckpt", ".joblib"}


def load_foreign(
    path: Path, *, vocabulary: str | Path | None = None, text: TextConfig = TEXT
) -> BilmFolder | None:
    """The model of a folder or file that elmokit did not write; None if there is nothing known.

    Args:
        path: a folder, or a file of a published model.
        vocabulary: the word list of a published model that does not lie beside it.
        text: how raw strings become words.
    """
    if not path.exists():
        return None
    if path.is_dir() and is_many_langs(path):
        return load_many_langs(path, text=text)
    if find_official(path) is not None:
        return load_official(path, vocabulary=vocabulary, text=text)
    _refuse_pickles(path)
    return None


def _refuse_pickles(path: Path) -> None:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    checkpoints = [file.name for file in files if file.name == "checkpoint" or ".ckpt" in file.name]
    if path.is_dir() and checkpoints:
        raise ModelError(
            f"{path} holds a TensorFlow checkpoint ({', '.join(checkpoints[:3])}), not published weights.",
            remedy="Write weights.hdf5 with the dump_weights program of bilm-tf first.",
        )
    pickles = [file.name for file in files if file.is_file() and _is_pickle(file)]
    if pickles:
        raise ModelError(
            f"{path} is a pickle, which can run any code and is never loaded."
            if path.is_file()
            else f"{path} holds no model but pickles ({', '.join(pickles[:3])}), which can run any code and "
            "are never loaded.",
            remedy="Give options.json and weights.hdf5, an elmokit folder, or an ELMoForManyLangs folder.",
        )


def _is_pickle(file: Path) -> bool:
    if file.suffix.lower() in _PICKLES:
        return True
    try:
        with open(file, "rb") as stream:
            return stream.read(2) in PICKLED
    except OSError:
        return False
