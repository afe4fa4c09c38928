"""``WordVectors``: a table with one vector per word, the same in every context."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.bilm.token_encoder import WordEncoder
from elmokit.core.atomic import write_text
from elmokit.core.config import DropoutConfig
from elmokit.core.errors import DataError, ModelError
from elmokit.core.model_card import Facts, origin_rows
from elmokit.core.model_folder import explain_damage, read_record, write_model
from elmokit.core.names import resolve_name
from elmokit.core.tensors import fingerprint, load_weights, save_tensors
from elmokit.static.settings import METHODS
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import SPECIALS, UNK, Text, TextPipeline, tokenize_texts
from elmokit.text.vocabulary import Vocabulary, WordIds, load_words
from elmokit.vectors.embeddings import TextEncoder
from elmokit.vectors.encoder import FloatArray, IntArray, Layers, TokenIds, number_words
from elmokit.vectors.neighbors import Occurrence, SimilarWords, nearest_rows, query_places, unit_rows

UNKNOWN_WORDS = (SPECIALS[UNK], "<UNK>", "unk", "UNK")
"""What tables call the row for words that they do not know; the first one present is used."""
Neighbors = list[tuple[str, float]]


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors(TextEncoder):
    """A vector for each word of a vocabulary, and the pipeline that finds the words of a text.

    Words without a vector get that of ``<unk>``. Tables made here learn it: rare words are replaced by
    ``<unk>`` before training. In a table from elsewhere without such a row it is the mean of all vectors.
    ``<pad>``, ``<s>`` and ``</s>`` are zero unless the table has them; inside a text they are unknown words.

    As an ``Encoder`` it has one layer, and the table is standardized first: after training on a small text
    all vectors of skip-gram and CBOW point nearly the same way, and a head would see little else.

    >>> table = WordVectors.of(["cat", "dog", "tax"], [[1, 0], [0.8, 0.6], [0, 1]], TextConfig())
    >>> table.neighbors("cat", k=1)
    [('dog', 0.800000011920929)]
    >>> table.look_up(["tax", "lion"]).shape
    (2, 2)
    """

    vocabulary: Vocabulary  # specials first
    vectors: FloatArray  # (n_words, dim), a row for each
    text: TextConfig  # how raw text becomes words
    training: dict[str, Any] = field(default_factory=dict)  # where it came from, as in config.json

    kind = "word-vectors"
    n_layers = 1
    directional = False
    has_sentence_vector = False
    n_edge = 0

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        rows: npt.ArrayLike,
        text: TextConfig,
        training: dict[str, Any] | None = None,
    ) -> WordVectors:
        """A table from distinct words, preferably most frequent first, and their rows, (n_words, dim).

        The special words are put in front. The row for unknown words may have any name in UNKNOWN_WORDS.
        """
        table = np.asarray(rows, dtype=np.float32)
        places = {word: place for place, word in enumerate(words)}
        is_table = table.ndim == 2 and table.size and np.isfinite(table).all()
        if not is_table or not len(table) == len(words) == len(places):
            raise ModelError(
                f"{len(words)} words ({len(places)} distinct) and a table of shape {table.shape} "
                "do not make word vectors.",
                remedy="Give distinct words, and a row of finite numbers for each.",
            )
        special = np.zeros((len(SPECIALS), table.shape[1]), dtype=np.float32)
        special[UNK] = table.mean(axis=0, dtype=np.float64)
        for row, name in enumerate(SPECIALS):
            names = [one for one in (UNKNOWN_WORDS if row == UNK else (name,)) if one in places]
            if names:
                special[row] = table[places.pop(names[0])]
        others = table[np.array(list(places.values()), dtype=np.int64)]
        return cls(Vocabulary([*SPECIALS, *places]), np.concatenate([special, others]), text, training or {})

    # -- the table --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __contains__(self, word: str) -> bool:
        return word in self.vocabulary and word not in SPECIALS

    @property
    def n_words(self) -> int:
        """Words with a vector of their own: all but the special ones."""
        return len(self.vocabulary) - len(SPECIALS)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.vectors.shape[1])

    @cached_property
    def pipeline(self) -> TextPipeline:
        """Raw text to words."""
        return TextPipeline(self.text)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that a vector can depend on."""
        facts = {"text": self.text.to_dict(), "words": self.vocabulary.words, "shape": self.vectors.shape}
        return fingerprint(facts, self.vectors)

    def look_up(self, words: Sequence[str]) -> FloatArray:
        """The vector of each word, (n_words, dim); that of ``<unk>`` for words without one."""
        ids = np.fromiter(map(self.vocabulary.id_of, words), dtype=np.int64, count=len(words))
        ids[ids < len(SPECIALS)] = UNK
        return self.vectors[ids]

    def find(self, word: str) -> str | None:
        """A word as the table spells it; None if the table has no vector for it."""
        return next((one for one in (word, self.pipeline.word(word)) if one in self), None)

    def neighbors(self, word: str, k: int = 10) -> Neighbors:
        """The ``k`` words with the highest cosine to ``word``, best first."""
        word = self._require(word)
        return self._nearest(self.look_up([word])[0], [word], k)

    def similar_words(self, query: str, word: str | None, k: int) -> list[SimilarWords]:
        """The nearest words of the table for words of ``query``: ``word``, or all but very frequent ones."""
        (words,) = self.words([query])
        similar = []
        for place in query_places(self.pipeline, self.vocabulary, words, word):
            near = self.neighbors(words[place], k) if words[place] in self else []
            hits = [Occurrence(score, other) for other, score in near]
            similar.append(SimilarWords(words[place], place, hits, words[place] in self))
        return similar

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> Neighbors:
        """The ``k`` words that are to ``c`` as ``b`` is to ``a``, without these three.

        By 3CosAdd: the words nearest to b - a + c, each scaled to length 1 first.
        """
        words = [self._require(word) for word in (a, b, c)]
        units = unit_rows(self.look_up(words))
        return self._nearest(units[1] - units[0] + units[2], words, k)

    def similarity(self, a: str | Sequence[Text], b: str | Sequence[Text]) -> Any:
        """The cosine of two words; of two lists of texts, that of each text and its partner, (n_texts,)."""
        if not isinstance(a, str) or not isinstance(b, str):
            return super().similarity(a, b)
        units = unit_rows(self.look_up([self._require(a), self._require(b)]))
        return float(units[0] @ units[1])

    def _require(self, word: str) -> str:
        if spelling := self.find(word):
            return spelling
        close = difflib.get_close_matches(self.pipeline.word(word), self.vocabulary.words[len(SPECIALS) :])
        remedy = f"Similar words: {', '.join(close)}." if close else "Use a word of the training text."
        raise DataError(f"There is no vector for {word!r}.", remedy=remedy)

    def _nearest(self, query: npt.NDArray[Any], without: Sequence[str], k: int) -> Neighbors:
        own = self.vectors[len(SPECIALS) :]
        rows, scores = nearest_rows(own, query[None], k + len(without) if k > 0 else k)
        words = [self.vocabulary.words[row + len(SPECIALS)] for row in rows[0]]
        return [pair for pair in zip(words, scores[0].tolist(), strict=True) if pair[0] not in without][:k]

    # -- an Encoder -------------------------------------------------------------------------------

    def standardize(self) -> WordVectors:
        """The table with mean 0 and standard deviation 1 overall; rows of zeros stay zero. A table that was
        standardized before is returned unchanged."""
        if self.training.get("standardized") or self.training.get("levelled"):  # the name in 0.1
            return self
        own = self.vectors[len(SPECIALS) :]
        center = own.mean(axis=0, dtype=np.float64)
        spread = max(float((own - center).std()), float(np.finfo(np.float32).tiny))
        table = ((self.vectors - center) / spread).astype(np.float32)
        table[~self.vectors.any(axis=1)] = 0.0
        return replace(self, vectors=table, training={**self.training, "standardized": True})

    @cached_property
    def module(self) -> WordEncoder:
        """The standardized table; training it changes ``vectors`` of a ``copy``, whose memory it shares."""
        with torch.device("meta"):
            module = WordEncoder(len(self), self.dim, sparse=True)
        module.weight = nn.Parameter(torch.from_numpy(self.standardize().vectors), requires_grad=False)
        return module.eval()

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text (a string, or a list of words), as the table knows them."""
        return tokenize_texts(self.pipeline, texts)

    def to_ids(self, words: Iterable[Sequence[str]]) -> TokenIds:
        """Texts given as words, as ids."""
        return number_words(words, WordIds(self.vocabulary))

    def layers(
        self,
        ids: TokenIds,
        rows: IntArray,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> Layers:
        """The one layer of the texts ``rows`` as one batch."""
        vectors, index, lengths = ids.batch(rows, self.module)
        mask = torch.arange(index.shape[1]) < lengths.unsqueeze(1)  # (batch, time)
        x = F.embedding(index, vectors) * mask.unsqueeze(2)  # (batch, time, dim)
        if dropout is not None:
            x = shared_dropout(x, dropout.dropout_word, rng, over=2)
            x = shared_dropout(x, dropout.dropout_input, rng, over=1)
        return Layers((x,), mask)

    def precompute(self, ids: TokenIds) -> TokenIds:
        """The same texts with the vectors of all their words; valid until the weights change."""
        return ids.with_vectors(self.module)

    @torch.no_grad()
    def batch(self, words: Sequence[Sequence[str]]) -> Layers:
        """The layer of one batch of texts given as words."""
        return self.layers(self.to_ids(words), np.arange(len(words)))

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text, (n_texts, dim): the mean over its words; zeros for a text without any."""
        means = [self.batch([words]).values[0][0].mean(dim=0).numpy() for words in self.words(texts)]
        return np.array(means, dtype=np.float32).reshape(-1, self.dim)

    def unfreezing_order(self) -> list[list[str]]:
        """The table is all there is to train."""
        return [["weight"]]

    def copy(self) -> WordVectors:
        """A standardized copy for fine-tuning."""
        table = self.standardize()
        return replace(table, vectors=table.vectors.copy(), training={**table.training, "fine_tuned": True})

    # -- a folder ---------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """What the table is, for its card and ``elmokit inspect``."""
        training, first_words = self.training, self.vocabulary.words[len(SPECIALS) :][:12]
        method = training.get("method", "unknown")
        settings = ", ".join(f"{name} {value}" for name, value in training.get("settings", {}).items())
        rows = [
            ("method", {**METHODS, "import": "imported"}.get(method, method)),
            ("vectors", f"{self.n_words:,} words, {self.dim} dimensions; the same in every context"),
            ("vocabulary", f"{' '.join(first_words)} …"),
            *([("settings", settings)] if settings else []),
            *([("training", f"{training['seconds']:,.1f} s")] if "seconds" in training else []),
            *origin_rows(training, "not stated: that of the text applies"),
        ]
        values = {"kind": self.kind, "n_words": self.n_words, "dim": self.dim, "text": self.text.to_dict()}
        values |= {"first_words": first_words, "training": training}
        usage = "Look at them with `elmokit similar` or, in Python, `elmokit.load`."
        summary = "Static word vectors: one vector per word, the same in every context."
        return Facts(summary, tuple(rows), values, usage)

    def save(self, folder: str | Path) -> None:
        """Write the table to a model folder, whole or not at all."""
        text = self.text.to_dict()
        record = {"n_words": len(self), "dim": self.dim, "text": text, "training": self.training}
        tokenizer = self.pipeline.word_tokenizer(self.vocabulary.words)
        with write_model(Path(folder), self.kind, record, card=self.facts()) as staged:
            save_tensors(staged / "model.safetensors", {"vectors": torch.from_numpy(self.vectors)}, {})
            write_text(staged / "tokenizer.json", tokenizer.to_str(pretty=False))
            write_text(staged / "vocab.txt", self.vocabulary.text())

    @classmethod
    def load(cls, name: str | Path) -> WordVectors:
        """Read a folder of word vectors."""
        folder = resolve_name(name)
        record = read_record(folder, cls.kind)
        with explain_damage(folder):
            text, training = TextConfig.from_dict(record["text"]), dict(record["training"])
            n_words, dim = int(record["n_words"]), int(record["dim"])
        vocabulary, _ = load_words(folder, n_words, n_words)
        expected = {"vectors": torch.empty(n_words, dim, device="meta")}
        weights = load_weights(folder / "model.safetensors", expected)
        return cls(vocabulary, weights["vectors"].numpy(), text, training)
