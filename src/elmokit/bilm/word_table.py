"""``WordTable``: a vector for every word, in four bits a number.

Rows belong to forms: words in lower case with straight quotes. A word without a row is composed of the rows
of its character n-grams. The sum of its words' vectors is a fast vector of a text.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.atomic import write_text
from elmokit.core.tensors import check_numbers, load_tensors, save_tensors
from elmokit.text.vocabulary import FormIds, form_of

FloatArray = npt.NDArray[np.float32]
_GRAM_SIZES = (3, 4, 5, 6)
_LEVELS = 7  # four bits: -7 to 7 times the scale of the row


class WordTable(nn.Module):
    """Vectors of words by form, and of character n-grams for all other words.

    Attributes:
        forms: The forms, row 1 first; row 0 is zero and means "no row".
        counts: How often each form was seen in the training text, (n_forms,).
        codes: Two numbers in each byte, (1 + n_forms + n_grams, dim / 2).
        scales: A factor for each row.
    """

    codes: Tensor
    scales: Tensor

    def __init__(
        self, forms: Sequence[str], counts: npt.NDArray[np.int64], codes: Tensor, scales: Tensor
    ) -> None:
        super().__init__()
        self.forms, self.counts = list(forms), counts
        self.ids = FormIds(self.forms)
        self.n_grams = len(codes) - 1 - len(self.forms)
        self.dim = 2 * codes.shape[1]
        self.register_buffer("codes", codes, persistent=False)
        self.register_buffer("scales", scales, persistent=False)

    @classmethod
    def from_vectors(
        cls,
        forms: Sequence[str],
        counts: npt.NDArray[np.int64],
        vectors: FloatArray,
        grams: FloatArray | None = None,
    ) -> WordTable:
        """Round ``vectors`` (n_forms, dim), and those of n-grams (n_grams, dim), to four bits."""
        dim = vectors.shape[1] + vectors.shape[1] % 2
        rows = np.concatenate([np.zeros_like(vectors[:1]), vectors, vectors[:0] if grams is None else grams])
        rows = np.pad(rows, ((0, 0), (0, dim - vectors.shape[1])))
        scales = (np.abs(rows).max(axis=1) / _LEVELS).astype(np.float16).astype(np.float32)
        numbers = np.rint(rows / np.where(scales > 0, scales, 1)[:, None]).clip(-_LEVELS, _LEVELS) + 8
        numbers = numbers.astype(np.uint8)
        codes = numbers[:, 0::2] | numbers[:, 1::2] << 4
        return cls(forms, counts, torch.from_numpy(codes), torch.from_numpy(scales))

    def forward(self, ids: Tensor) -> Tensor:
        """Rows by number: (n,) -> (n, dim)"""
        codes = self.codes.index_select(0, ids)  # (n, dim / 2)
        numbers = torch.stack([codes & 15, codes >> 4], dim=2).flatten(1).float().sub_(8)
        return numbers.mul_(self.scales.index_select(0, ids).unsqueeze(1))

    @torch.no_grad()
    def vectors(self, words: Sequence[str]) -> Tensor:
        """The vector of each word, (n_words, dim); of a word without a row, the mean of its n-grams."""
        ids = torch.from_numpy(self.ids.rows(words)[:, 0].astype(np.int64))
        vectors: Tensor = self(ids)
        if self.n_grams and len(unknown := (ids == 0).nonzero()[:, 0]):
            grams = [gram_rows(form_of(words[place]), self.n_grams) for place in unknown.tolist()]
            flat = torch.from_numpy(np.concatenate(grams)) + 1 + len(self.forms)
            distinct, where = flat.unique(return_inverse=True)
            offsets = torch.tensor([0, *np.cumsum([len(row) for row in grams])[:-1]])
            vectors[unknown] = F.embedding_bag(where, self(distinct), offsets, mode="mean")
        return vectors

    @torch.no_grad()
    def sentences(self, texts: Sequence[Sequence[str]]) -> FloatArray:
        """A vector of length 1 for each text given as words, (n_texts, dim); zeros without a known word."""
        places: dict[str, int] = {}
        ids = [places.setdefault(word, len(places)) for words in texts for word in words]
        offsets = torch.tensor([0, *np.cumsum([len(words) for words in texts])[:-1]], dtype=torch.long)
        if not ids:
            return np.zeros((len(texts), self.dim), dtype=np.float32)
        sums = F.embedding_bag(torch.tensor(ids), self.vectors(list(places)), offsets, mode="sum")
        return F.normalize(sums, dim=1).numpy()

    def save(self, folder: Path, name: str) -> None:
        """Write the table into a model folder, as ``<name>.safetensors`` and ``<name>.txt``."""
        save_tensors(folder / f"{name}.safetensors", {"codes": self.codes, "scales": self.scales.half()}, {})
        lines = zip(self.forms, self.counts, strict=True)
        write_text(folder / f"{name}.txt", "".join(f"{form}\t{count}\n" for form, count in lines))

    @classmethod
    def load(cls, folder: Path, name: str) -> WordTable | None:
        """The table of a model folder; None if it has none of this name."""
        if not (file := folder / f"{name}.safetensors").exists():
            return None
        tensors, _ = load_tensors(file)
        text = file.with_suffix(".txt").read_bytes().decode("utf-8")
        pairs = [line.split("\t") for line in text.split("\n")[:-1]]
        counts = np.array([int(count) for _, count in pairs], dtype=np.int64)
        scales = check_numbers(file, "scales", tensors["scales"])
        return cls([form for form, _ in pairs], counts, tensors["codes"], scales)


def gram_rows(form: str, n_grams: int) -> npt.NDArray[np.int64]:
    """The rows of a form's character n-grams, by a hash."""
    marked = f"<{form}>".encode()
    pieces = (marked[at : at + size] for size in _GRAM_SIZES for at in range(max(1, len(marked) - size + 1)))
    return np.array([zlib.crc32(piece) % n_grams for piece in pieces], dtype=np.int64)
