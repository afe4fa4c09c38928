"""Token-encoder vectors of a whole vocabulary, computed once and kept on disk beside the model.

A folder with ``vectors.npy`` (n_words, dim), mapped and not read, ``words.txt`` and ``cache.json``. Words
outside the vocabulary are computed when they come, and only these.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.bilm.folder import BilmFolder
from elmokit.core.atomic import explain_os_errors, sync, write_text
from elmokit.core.errors import ModelError, RunError
from elmokit.core.tensors import fingerprint
from elmokit.text.tokenizing import SPECIALS

__all__ = ["CACHE_FOLDER", "TokenCache", "write_token_cache"]

CACHE_FOLDER = "token_cache"
_FORMAT, _VERSION = "elmokit token cache", 1
_FILES = {"cache.json", "vectors.npy", "words.txt"}
_AT_A_TIME = 1024
_ANEW = "Make it anew with elmokit cache, or delete the folder."


class TokenCache:
    """Vectors of known words.

    Args:
        words: one for each row.
        vectors: (n_words, dim).
    """

    def __init__(self, words: list[str], vectors: npt.NDArray[np.float32]) -> None:
        self._places = {word: place for place, word in enumerate(words)}
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, word: str) -> bool:
        return word in self._places

    def rows(self, words: list[str]) -> Tensor:
        """The vectors of words that are all known, (n_words, dim)."""
        return torch.from_numpy(self._vectors[[self._places[word] for word in words]])

    @classmethod
    def open(cls, folder: str | Path, model: BilmFolder) -> TokenCache:
        """Open a cache that was made for ``model``; one of another model is refused."""
        folder = Path(folder)
        try:
            record = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
            words = (folder / "words.txt").read_bytes().decode("utf-8").split("\n")[:-1]
            vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
            known = isinstance(record, dict) and (record.get("format"), record.get("format_version"))
        except (OSError, ValueError, EOFError) as error:
            raise ModelError(f"{folder} cannot be read as a token cache: {error}.", remedy=_ANEW) from error
        if known != (_FORMAT, _VERSION):
            raise ModelError(f"{folder} is not a token cache that this elmokit reads.", remedy=_ANEW)
        if record.get("encoder") != encoder_mark(model):
            raise ModelError(f"{folder} was made with the token encoder of another model.", remedy=_ANEW)
        shape = (len(words), model.model.config.dim)
        if vectors.shape != shape or vectors.dtype != np.float32:
            raise ModelError(
                f"{folder / 'vectors.npy'} has shape {vectors.shape} and type {vectors.dtype}, "
                f"words.txt and the model ask for {shape} and float32.",
                remedy=_ANEW,
            )
        return cls(words, vectors)


def write_token_cache(
    model: BilmFolder,
    words: Iterable[str],
    folder: str | Path,
    *,
    progress: Callable[[int], None] = lambda amount: None,
) -> int:
    """Compute the vectors of ``words`` and keep them in ``folder``, whole or not at all.

    Args:
        model: whose token encoder.
        words: as they stand in texts; each is kept once, specials are left out.
        folder: what to make; a cache that was there is replaced.
        progress: told how many words were just done.

    Returns:
        How many words are kept.
    """
    folder = Path(folder)
    if model.model.config.input == "word":
        raise ModelError(
            "A word-input model needs no token cache: its token encoder is a table already.",
            remedy="Use it as it is.",
        )
    if folder.exists() and not (folder.is_dir() and {file.name for file in folder.iterdir()} <= _FILES):
        raise RunError(
            f"{folder} exists and is not a token cache; nothing in it was touched.",
            remedy="Choose another --out.",
        )
    kept = [word for word in dict.fromkeys(words) if word not in SPECIALS and "\n" not in word]
    dim = model.model.config.dim
    home = folder.resolve()
    new, old = (home.with_name(f".{home.name}.{state}") for state in ("new", "old"))
    try:
        with explain_os_errors(folder):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            needed = 4 * len(kept) * dim
            if shutil.disk_usage(new).free < needed:
                raise RunError(
                    f"{folder} will take {needed / 1e6:,.1f} MB, and the disk has less.",
                    remedy="Free some space, or choose another --out.",
                )
            vectors = np.lib.format.open_memmap(new / "vectors.npy", "w+", np.float32, (len(kept), dim))
            with torch.inference_mode():
                for first in range(0, len(kept), _AT_A_TIME):
                    part = kept[first : first + _AT_A_TIME]
                    rows = torch.from_numpy(model.features.rows(part).astype(np.int64))
                    vectors[first : first + len(part)] = model.model.encoder(rows).numpy()
                    progress(len(part))
            vectors.flush()
            del vectors
            write_text(new / "words.txt", "".join(f"{word}\n" for word in kept))
            record = {"format": _FORMAT, "format_version": _VERSION, "encoder": encoder_mark(model)}
            write_text(new / "cache.json", json.dumps({**record, "n_words": len(kept), "dim": dim}) + "\n")
            sync(new / "vectors.npy")
            shutil.rmtree(old, ignore_errors=True)
            if folder.exists():
                os.replace(home, old)  # never half a cache under the name
            os.replace(new, home)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return len(kept)


def encoder_mark(model: BilmFolder) -> str:
    """Changes when anything does that a word's own vector depends on."""
    has_pieces = model.model.config.input != "char"
    tokenizer = model.tokenizer.to_str(pretty=False) if has_pieces else ""
    parts: list[Tensor | str] = []
    for name, parameter in model.model.encoder.named_parameters():
        parts += [name, parameter]
    return fingerprint(model.model.config.to_dict(), tokenizer, *parts)
