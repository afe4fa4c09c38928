"""Words in context: where in a corpus a word is used as it is in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import ConfigError, DataError, nearest
from elmokit.text.tokenizing import SPECIALS, TextPipeline, reject_table
from elmokit.text.vocabulary import Vocabulary
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import Floats
from elmokit.vectors.neighbors import check_model, cosines, unit_rows
from elmokit.vectors.selection import selected
from elmokit.vectors.store import StoredText, VectorStore
from elmokit.vectors.store_settings import StoreConfig

__all__ = ["Occurrence", "SimilarWords", "chosen_words", "content_words", "similar_words"]

_FREQUENT = 50
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Occurrence:
    """A word of the corpus, where it stands.

    Attributes:
        score: cosine similarity to the query's word, 1 at most.
        word: the word.
        position: which word of its text it is, from 0.
        words: all words of its text.
        index: the number of its text in the corpus.
        id: of its text; the same as ``index``, unless a folder of vectors says otherwise.
    """

    score: float
    word: str
    position: int
    words: tuple[str, ...]
    index: int
    id: str


@dataclass(frozen=True)
class SimilarWords:
    """A word of the query, and the occurrences most like it.

    Attributes:
        word: the word.
        position: which word of the query it is, from 0.
        found: what is most like it, best first.
    """

    word: str
    position: int
    found: list[Occurrence] = field(default_factory=list)


@dataclass(frozen=True)
class _Part:
    """Some texts of the corpus: the number of the first, ids, words, and a vector for each word."""

    first: int
    ids: list[str]
    words: list[list[str]]
    vectors: npt.NDArray[Any]


def similar_words(
    elmo: Elmo,
    query: str,
    texts: Iterable[str] | VectorStore,
    *,
    word: str | None = None,
    layer: int | None = None,
    weights: Sequence[float] | None = None,
    state: Literal["zero", "warm"] = "zero",
    k: int = 8,
    different: bool = False,
    progress: Callable[[int], None] = lambda amount: None,
) -> list[SimilarWords]:
    """For words of ``query``, the ``k`` words of a corpus whose vectors in context are most alike.

    The corpus is gone through once, some hundred texts at a time. Copies of a text count once.

    Args:
        elmo: the model.
        query: a text with the words to compare.
        texts: the corpus: any stream of texts, or a folder with a vector for each word.
        word: this word of the query only; unless given, its content words (``content_words``).
        layer: compare by one layer, instead of a mix.
        weights: of the mix; equal unless given. A folder of vectors decides on layer or mix itself.
        state: where each text starts, "zero" or "warm"; a folder of vectors decides itself.
        k: occurrences to find for each word.
        different: leave out occurrences of the same word.
        progress: told how many texts were just done.
    """
    if k < 1:
        raise ConfigError(f"k = {k} is out of range: it must be at least 1.")
    if isinstance(texts, str):
        raise ConfigError("The corpus is one string.", remedy="Give a list of texts, or a TextSource.")
    reject_table(texts)
    config = StoreConfig(layer=layer, mix_weights=",".join(map(repr, weights or ())), state=state)
    config.check(elmo.n_layers)
    if isinstance(texts, VectorStore):
        check_model(texts, elmo)
        config = _folder_config(texts, config, elmo.n_layers)
    found = elmo.embed([query], state=config.state)
    words = found.tokens[0]
    places = chosen_words(elmo.folder.pipeline, elmo.folder.vocabulary, words, word)
    units = unit_rows(selected(found, config)[places])
    best = [_Best(words[place], k, different) for place in places]
    n_words = 0
    for part in _parts(elmo, texts, config):
        flat = [spelling for row in part.words for spelling in row]
        ends = np.cumsum([len(row) for row in part.words])
        n_words += len(flat)
        if flat:
            for one, scores in zip(best, cosines(part.vectors, units), strict=True):
                one.add(part, flat, ends, scores)
        progress(len(part.words))
    if n_words == 0:
        raise DataError("The corpus holds no word.", remedy="Give a corpus with some text in it.")
    return [SimilarWords(words[place], place, one.found) for place, one in zip(places, best, strict=True)]


def content_words(vocabulary: Vocabulary, words: Sequence[str]) -> list[int]:
    """Which words say something: those with a letter or digit that are not among the 50 most
    frequent words of the vocabulary. All that have one, if none is left."""
    frequent = set(vocabulary.words[len(SPECIALS) :][:_FREQUENT])
    spelt = [place for place, word in enumerate(words) if any(map(str.isalnum, word))]
    telling = [
        place for place in spelt if words[place] not in frequent and words[place].lower() not in frequent
    ]
    return telling or spelt


def chosen_words(
    pipeline: TextPipeline, vocabulary: Vocabulary, words: Sequence[str], word: str | None
) -> list[int]:
    """The places of a query's words to look for: those of ``word``, or of all that say something."""
    if not words:
        raise DataError("The query holds no word.", remedy="Give a sentence with the word to look for.")
    if word is None:
        return content_words(vocabulary, words) or list(range(len(words)))
    cleaned = pipeline.word(word)
    places = [place for place, one in enumerate(words) if one == cleaned]
    places = places or [place for place, one in enumerate(words) if one.casefold() == cleaned.casefold()]
    if not places:
        raise ConfigError(f"The query has no word {word!r}.", remedy=nearest(word, dict.fromkeys(words)))
    return places


def _folder_config(store: VectorStore, config: StoreConfig, n_layers: int) -> StoreConfig:
    """Layer or mix to compare by, which must be what the folder holds."""
    held = store.config
    if held.pool != "none":
        raise ConfigError(
            f"{store.folder} holds a vector for each text, not for each word.",
            remedy="Make one with: elmokit embed MODEL FILES --pool none --out FOLDER "
            "(or look for texts: elmokit.search).",
        )
    if config.layer is None and config.weights is None:
        if held.all_layers:
            return StoreConfig(state=held.state)
        return StoreConfig(layer=held.layer, mix_weights=held.mix_weights, state=held.state)
    asked = StoreConfig(layer=config.layer, mix_weights=config.mix_weights, state=held.state)
    if not held.all_layers and _factors(held, n_layers) != _factors(asked, n_layers):
        raise ConfigError(
            f"{store.folder} holds the {held.kept()}, not the {asked.kept()}.",
            remedy="Leave --layer and --mix-weights out, or embed again with them (--all-layers serves any).",
        )
    return asked


def _factors(config: StoreConfig, n_layers: int) -> tuple[float, ...]:
    """How much each layer counts."""
    if config.layer is not None:
        return tuple(float(layer == config.layer % n_layers) for layer in range(n_layers))
    return config.weights or (1.0 / n_layers,) * n_layers


def _parts(elmo: Elmo, texts: Iterable[str] | VectorStore, config: StoreConfig) -> Iterator[_Part]:
    if isinstance(texts, VectorStore):
        yield from _stored_parts(texts, config, elmo.n_layers)
        return
    first = 0
    for found in elmo.chunks(iter(texts), state=config.state):
        ids = [str(first + place) for place in range(len(found))]
        yield _Part(first, ids, found.tokens, selected(found, config))
        first += len(found)


def _stored_parts(store: VectorStore, config: StoreConfig, n_layers: int) -> Iterator[_Part]:
    offsets = store.offsets
    factors = np.array(_factors(config, n_layers), dtype=np.float32)

    def part(first: int, records: list[StoredText]) -> _Part:
        vectors = store.vectors[int(offsets[first]) : int(offsets[first + len(records)])]
        if store.config.all_layers:
            vectors = np.einsum("nld,l->nd", np.asarray(vectors, np.float32), factors)
        return _Part(first, [one.id for one in records], [one.words for one in records], vectors)

    first, records = 0, list[StoredText]()
    for index, record in enumerate(store.records()):
        if records and offsets[index + 1] - offsets[first] > _ROWS_AT_ONCE:
            yield part(first, records)
            first, records = index, []
        records.append(record)
    if records:
        yield part(first, records)


class _Best:
    """The best occurrences so far of one word."""

    def __init__(self, word: str, k: int, different: bool) -> None:
        self.found: list[Occurrence] = []
        self._same = word.casefold() if different else None
        self._k = k

    def add(self, part: _Part, flat: list[str], ends: npt.NDArray[Any], scores: Floats) -> None:
        """Take in what is better than the worst so far; the earlier wins a tie."""
        able: Any = np.arange(len(scores))
        if len(self.found) == self._k:
            able = np.flatnonzero(scores > self.found[-1].score)
        for place in able[np.argsort(-scores[able], kind="stable")].tolist():
            score = float(scores[place])
            if len(self.found) == self._k and score <= self.found[-1].score:
                return
            if flat[place].casefold() == self._same:
                continue
            text = int(np.searchsorted(ends, place, side="right"))
            words = part.words[text]
            position = place - (int(ends[text]) - len(words))
            if any(one.position == position and list(one.words) == words for one in self.found):
                continue
            found = Occurrence(score, flat[place], position, tuple(words), part.first + text, part.ids[text])
            self.found.append(found)
            self.found.sort(key=lambda one: -one.score)
            del self.found[self._k :]
