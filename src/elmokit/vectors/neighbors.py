"""Nearest vectors by exact cosine: texts like a text, words used alike, and a 2-D map of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.core.atomic import restore
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import FRESH, ConfigError, DataError, ModelError, import_extra, nearest
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import SPECIALS, Text, TextPipeline, reject_table, replace_surrogates, text_of
from elmokit.text.vocabulary import Vocabulary
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import FloatArray, SentenceEncoder, encode_chunks
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store import MANIFEST, StoredText, VectorStore

LayerMix = Callable[[Tensor], Tensor]
"""(n_words, layer, dim) -> (n_words, width)."""
_BLOCK_NUMBERS = 1 << 21  # 16 MB of double precision
_BLOCK_ROWS = 8192
_PAIR_ROWS = 1024
_N_FREQUENT = 50  # words of a vocabulary that say little


@dataclass(frozen=True)
class Hit:
    """A text as a result: its number ``index`` among all, and its cosine with the query."""

    id: str
    index: int
    score: float
    text: str


@dataclass(frozen=True)
class Duplicate:
    """Two texts that are much alike, and their cosine."""

    score: float
    first: Hit
    second: Hit


@dataclass(frozen=True)
class Occurrence:
    """A word of a corpus in its context; of static word vectors, just a word."""

    score: float
    word: str
    position: int = 0  # its place among the words of its text
    words: tuple[str, ...] = ()
    index: int = 0  # the number of its text in the corpus
    id: str = ""  # the id of its text in a vector store; elsewhere the number


@dataclass(frozen=True)
class SimilarWords:
    """A word of the query and the occurrences most like it, best first."""

    word: str
    position: int
    neighbors: list[Occurrence] = field(default_factory=list)
    known: bool = True  # False if static word vectors have no vector for it

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; words of static word vectors have no place."""
        hits = [{**asdict(hit), "score": round(hit.score, 6)} for hit in self.neighbors]
        hits = [hit if hit["words"] else {"score": hit["score"], "word": hit["word"]} for hit in hits]
        return {"word": self.word, "position": self.position, "known": self.known, "found": hits}


class WordTable(Protocol):
    """Word vectors without context."""

    def similar_words(self, query: str, word: str | None, k: int) -> list[SimilarWords]:
        """The nearest words of the table for words of ``query``."""


@dataclass(frozen=True, eq=False)
class TextIndex:
    """Texts with a vector each, and how queries become vectors of the same kind."""

    matrix: npt.NDArray[Any]  # (n_texts, dim)
    record: Callable[[int], StoredText]
    embed: Callable[[Sequence[Text]], FloatArray]
    name: str = ""

    @classmethod
    def open(
        cls,
        store: VectorStore | str | Path | Sequence[Text],
        encoder: SentenceEncoder | None,
        read: ReadConfig | None = None,
        id_column: str = "",
        reporter: Reporter | None = None,
    ) -> TextIndex:
        """Vectors where they lie on disk, or those of the texts of a file, computed now."""
        reporter = reporter or Reporter("silent")
        name = replace_surrogates(Path(store).name) if isinstance(store, Path | str) else ""
        if isinstance(store, Path | str) and Path(store).is_dir():
            store = VectorStore.open(store)
        if isinstance(store, VectorStore):
            _check_store(store, encoder if encoder else store, pooled=True)
            width, config = math.prod(store.vectors.shape[1:]), store.config

            def embed(queries: Sequence[Text]) -> FloatArray:
                assert isinstance(encoder, Elmo)  # or its fingerprint would be another
                if config.pool == "sentence":
                    return encoder.sentences(queries)
                return encoder.embed(queries, state=config.state).select(config).reshape(-1, width)

            return cls(store.vectors.reshape(len(store), width), store.record, embed, name)
        if encoder is None:
            raise ConfigError("Comparing texts requires a model.", remedy="Give an encoder.")
        if isinstance(store, Path | str):
            source = TextSource(store, read, id_column=id_column, say=reporter.note)
            records = [StoredText(*pair, []) for pair in source.with_ids()]
            store = [record.text for record in records]
        else:
            reject_table(store)
            records = [StoredText(str(number), text_of(text), []) for number, text in enumerate(store)]
        texts = store
        with reporter.counting("Sentence vectors", len(texts), unit="texts") as advance:
            matrix = np.concatenate([encoder.sentences([]), *encode_chunks(encoder, texts, advance)])
        if not matrix.any():
            raise DataError("None of the texts contains a word.", remedy="Give a file with some text in it.")
        return cls(matrix, records.__getitem__, encoder.sentences, name)

    def __len__(self) -> int:
        return len(self.matrix)

    def search(self, queries: Sequence[Text], k: int, faiss: Any = None) -> list[list[Hit]]:
        """The ``k`` texts that are most like each query, best first; with ``faiss``, approximately."""
        vectors = self.embed(queries)
        for number, vector in enumerate(vectors):
            if not vector.any():
                raise DataError(
                    f"Query {number} ({text_of(queries[number])!r}) contains no words that the model knows.",
                    remedy="Each query needs at least one word.",
                )
        rows, scores = (
            nearest_rows(self.matrix, vectors, k) if faiss is None else _look_up(faiss, self, vectors, k)
        )
        return [
            [self.hit(row, score) for row, score in zip(*pair, strict=True) if row >= 0]
            for pair in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def hit(self, index: int, score: float) -> Hit:
        """A text as a result."""
        record = self.record(index)
        return Hit(record.id, index, score, record.text)


def search(
    store: VectorStore | str | Path | Sequence[Text],
    queries: Sequence[Text],
    encoder: SentenceEncoder,
    k: int = 10,
    *,
    approximate: bool = False,
    read: ReadConfig | None = None,
    id_column: str = "",
    reporter: Reporter | None = None,
) -> list[list[Hit]]:
    """The ``k`` texts that are most like each query, best first.

    Every text is compared, in blocks, so the answer is exact and memory stays flat. Texts of a file and
    of a list are compared by the encoder's sentence vectors; those of a vector store by what it holds, with
    queries embedded the same way (with all layers, side by side).

    Args:
        store: A folder made with ``elmokit embed --pool sentence`` or another pooling, a file of texts, or
            a list of texts.
        encoder: An ``Elmo`` or another encoder; for a vector store, the model that it was made with.
        approximate: Look in a graph of neighbors instead (faiss, extra ``search``), for very many queries.
        read: How a file is read.
        id_column: Column of a file that holds ids; empty: texts are numbered from 0.
    """
    _check_k(k)
    faiss = import_extra("faiss", "search", "Approximate search") if approximate else None
    return TextIndex.open(store, encoder, read, id_column, reporter).search(queries, k, faiss)


def find_duplicates(
    store: VectorStore | str | Path | Sequence[str],
    encoder: SentenceEncoder | None = None,
    at_least: float = 0.9,
    *,
    at_most: int = 1000,
    read: ReadConfig | None = None,
    id_column: str = "",
    reporter: Reporter | None = None,
) -> list[Duplicate]:
    """Pairs of texts whose cosine is ``at_least`` so high, the most alike first.

    Args:
        store, read, id_column: As for ``search``. A vector store needs no encoder.
        at_most: Pairs to keep.
    """
    if not -1 <= at_least <= 1 or at_most < 1:
        raise ConfigError(
            f"at_least = {at_least}, at_most = {at_most}: out of range.",
            remedy="A cosine is between -1 and 1, and at least one pair must be kept.",
        )
    index = TextIndex.open(store, encoder, read, id_column, reporter)
    n, best = len(index.matrix), np.zeros((0, 3))  # score, first, second
    with (reporter or Reporter("silent")).counting("Comparing", n, unit="texts") as advance:
        for first in range(0, n, _PAIR_ROWS):
            rows = unit_rows(index.matrix[first : first + _PAIR_ROWS])
            for second in range(first, n, _PAIR_ROWS):
                scores = cosines(index.matrix[second : second + _PAIR_ROWS], rows)
                alike = scores >= np.float32(at_least)
                left, right = np.nonzero(np.triu(alike, 1) if first == second else alike)
                pairs = np.stack([scores[left, right], left + first, right + second], axis=1)
                best = np.concatenate([best, pairs])
                best = best[np.lexsort((best[:, 2], best[:, 1], -best[:, 0]))][:at_most]
            advance(len(rows))
    return [
        Duplicate(score, index.hit(int(a), 1.0), index.hit(int(b), score)) for score, a, b in best.tolist()
    ]


def _look_up(
    faiss: Any, index: TextIndex, queries: FloatArray, k: int
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """As ``nearest_rows``, by a navigable graph; rows that it does not reach are -1."""
    graph = faiss.IndexHNSWFlat(queries.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efSearch = max(64, 2 * k)
    for first in range(0, len(index.matrix), _BLOCK_ROWS):
        graph.add(unit_rows(index.matrix[first : first + _BLOCK_ROWS]).astype(np.float32))
    scores, rows = graph.search(unit_rows(queries).astype(np.float32), min(k, len(index.matrix)))
    return rows, scores


def open_corpus(
    places: Sequence[str | Path], read: ReadConfig | None = None, **options: Any
) -> TextSource | VectorStore:
    """The texts of files, folders and patterns (a TextSource with ``options``), or one folder of vectors."""
    for place in places:
        restore(Path(place))
    stores = [place for place in places if place != "-" and (Path(place) / MANIFEST).is_file()]
    if stores and len(places) > 1:
        raise ConfigError(
            f"{stores[0]} is a folder of vectors, which cannot be mixed with other inputs.",
            remedy="Give it alone, or give the text files.",
        )
    return VectorStore.open(stores[0]) if stores else TextSource(places, read, **options)


def similar_words(
    model: Elmo | WordTable,
    query: str,
    texts: Iterable[str] | VectorStore | None = None,
    *,
    word: str | None = None,
    layer: int | None = None,
    weights: Sequence[float] | None = None,
    state: Literal["zero", "warm"] = "zero",
    k: int = 8,
    different: bool = False,
    progress: Advance = lambda amount: None,
) -> list[SimilarWords]:
    """For words of ``query``, the ``k`` words of a corpus whose vectors in context are most like theirs.

    The corpus is read once, a few hundred texts at a time. Copies of a text count once. Static word
    vectors know no context: for them, the nearest words of their own vocabulary, without a corpus.

    Args:
        texts: The corpus, or a vector store with a vector for each word.
        word: Only this word of the query; by default, all but punctuation and very frequent words.
        layer: Compare by one layer instead of a mix. A vector store decides on layer or mix itself.
        different: Leave out occurrences of the same word.
        progress: Called with the number of texts just done.
    """
    _check_k(k)
    config = StoreConfig(layer=layer, mix_weights=",".join(map(repr, weights or ())), state=state)
    if not isinstance(model, Elmo):
        if texts is not None or config != StoreConfig():
            raise ConfigError(
                "Static word vectors have no context.",
                remedy="Leave out --in, --layer, --mix-weights and --state: no corpus is needed.",
            )
        return model.similar_words(query, word, k)
    if texts is None or isinstance(texts, str):
        raise ConfigError("There is no corpus.", remedy="Give texts, or name files with --in.")
    reject_table(texts)
    config.factors(model.n_layers)  # checks them
    if isinstance(texts, VectorStore):
        config = _store_config(texts, config, model)
    embeddings = model.embed([query], state=config.state)
    words = embeddings.tokens[0]
    places = query_places(model.folder.pipeline, model.folder.vocabulary, words, word)
    units = unit_rows(embeddings.select(config)[places])
    similar = [SimilarWords(words[place], place) for place in places]
    has_words = False
    for part, vectors in _parts(model, texts, config):
        has_words |= len(vectors) > 0
        for one, scores in zip(similar, cosines(vectors, units), strict=True):
            _add_best(one.neighbors, part, scores, k, one.word if different else "")
        progress(len(part.texts))
    if not has_words:
        raise DataError("The corpus contains no words.", remedy="Give a corpus with some text in it.")
    return similar


def nearest_rows(
    matrix: npt.NDArray[Any], queries: npt.NDArray[Any], k: int
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """The ``k`` rows of ``matrix`` with the highest cosine to each query, and the cosines.

    Both results are (n_queries, min(k, n_rows)), best first; of equal rows the first comes first. A
    zero vector has the cosine 0 with everything. The matrix may be a memory map: it is read in blocks.

    >>> rows, scores = nearest_rows(np.eye(3), np.array([[0.0, 2.0, 1.0]]), k=2)
    >>> rows.tolist(), scores.round(2).tolist()
    ([[1, 2]], [[0.8899999856948853, 0.44999998807907104]])
    """
    _check_k(k)
    units, size = unit_rows(queries), max(1, _BLOCK_NUMBERS // max(1, matrix.shape[1]))
    rows = np.empty((len(queries), 0), dtype=np.int64)
    scores = np.empty((len(queries), 0), dtype=np.float32)
    for first in range(0, len(matrix), size):
        near = cosines(matrix[first : first + size], units)
        places = np.broadcast_to(np.arange(first, first + near.shape[1]), near.shape)
        rows, scores = np.concatenate([rows, places], axis=1), np.concatenate([scores, near], axis=1)
        # The best so far come first and sorting is stable, so the lower row wins a tie.
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return rows, scores


def unit_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Rows of length 1, in double precision; zero rows stay zero."""
    values = np.asarray(rows, dtype=np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", values, values))
    if not np.isfinite(lengths).all():
        raise DataError("A vector holds a number that is not finite.", remedy=FRESH)
    units: npt.NDArray[np.float64] = values / np.where(lengths > 0, lengths, 1.0)[:, None]
    return units


def cosines(rows: npt.NDArray[Any], units: npt.NDArray[np.float64]) -> FloatArray:
    """Cosine of each query (of length 1, see ``unit_rows``) with each row, (n_queries, n_rows).

    Computed in double and rounded to single precision, so that equal rows have equal cosines,
    wherever in a block they stand.
    """
    products = (units @ unit_rows(rows).T).astype(np.float32)
    return np.clip(products, -1.0, 1.0)


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(f"k = {k} is out of range: it must be at least 1.")


def _check_store(store: VectorStore, encoder: SentenceEncoder | VectorStore, *, pooled: bool) -> None:
    """Refuse a store of another model, a damaged one, or one of words where texts are needed."""
    if (store.config.pool != "none") != pooled:
        kind, other, pool = ("text", "word", "sentence") if pooled else ("word", "text", "none")
        raise ConfigError(
            f"{store.folder} holds a vector for each {other}, not for each {kind}.",
            remedy=f"Make one with: elmokit embed MODEL FILES --pool {pool} --out FOLDER.",
        )
    if store.fingerprint != encoder.fingerprint:
        raise ModelError(
            f"{store.folder} was made with another model ({store.manifest.model.name or 'not named'}).",
            remedy="Use that model, or embed the texts again with this one: elmokit embed.",
        )
    store.verify()


def query_places(
    pipeline: TextPipeline, vocabulary: Vocabulary, words: Sequence[str], word: str | None
) -> list[int]:
    """The places of a query's words to look for: those of ``word``, or the words that say something: those
    with a letter or digit that are not among the 50 most frequent words of the vocabulary."""
    if not words:
        raise DataError("The query contains no words.", remedy="Give a sentence with the word to look for.")
    if word is None:
        frequent = set(vocabulary.words[len(SPECIALS) :][:_N_FREQUENT])
        spelled = [place for place, one in enumerate(words) if _is_spelled(one)]
        rare = [place for place in spelled if frequent.isdisjoint((words[place], words[place].lower()))]
        return rare or spelled or list(range(len(words)))
    cleaned = pipeline.word(word)
    fold: Callable[[str], str] = str if cleaned in words else str.casefold
    places = [place for place, one in enumerate(words) if fold(one) == fold(cleaned)]
    if not places:
        raise ConfigError(f"The query has no word {word!r}.", remedy=nearest(word, dict.fromkeys(words)))
    return places


def _is_spelled(word: str) -> bool:
    """Whether it has a letter or digit."""
    return any(map(str.isalnum, word))


def _store_config(store: VectorStore, config: StoreConfig, elmo: Elmo) -> StoreConfig:
    """Layer or mix to compare by, which must be what the store holds."""
    _check_store(store, elmo, pooled=False)
    stored = store.config
    if config.layer is None and config.weights is None:
        return replace(config, layer=stored.layer, mix_weights=stored.mix_weights, state=stored.state)
    if not stored.all_layers and stored.factors(elmo.n_layers) != config.factors(elmo.n_layers):
        raise ConfigError(
            f"{store.folder} holds the {stored.selection}, not the {config.selection}.",
            remedy="Leave out --layer and --mix-weights, or embed again with them (--all-layers fits any).",
        )
    return replace(config, state=stored.state)


class _Texts:
    """The words of some texts of a corpus, from text ``first`` on; a word is named by its place in all of
    them. Ids are numbers by default."""

    def __init__(self, texts: Sequence[Sequence[str]], first: int = 0, ids: Sequence[str] = ()) -> None:
        self.texts, self._first, self._ids = [tuple(words) for words in texts], first, ids
        self._offsets = np.cumsum([0, *map(len, texts)])

    def at(self, place: int, score: float = 1.0) -> Occurrence:
        """The word at a place."""
        text = int(np.searchsorted(self._offsets, place, side="right")) - 1
        words, position, index = self.texts[text], place - int(self._offsets[text]), self._first + text
        id = self._ids[text] if self._ids else str(index)
        return Occurrence(score, words[position], position, words, index, id)


def _parts(
    elmo: Elmo, texts: Iterable[str] | VectorStore, config: StoreConfig
) -> Iterator[tuple[_Texts, npt.NDArray[Any]]]:
    """Some texts of a corpus at a time, with a vector for each word."""
    first = 0
    if isinstance(texts, VectorStore):
        for first, records, vectors in texts.groups(_BLOCK_ROWS):
            if texts.config.all_layers:
                vectors = mix_layers(torch.tensor(vectors), config.factors(elmo.n_layers)).numpy()
            yield _Texts([one.words for one in records], first, [one.id for one in records]), vectors
    else:
        for embeddings in elmo.chunks(texts, state=config.state):
            yield _Texts(embeddings.tokens, first), embeddings.select(config)
            first += len(embeddings)


def _add_best(
    top: list[Occurrence], part: _Texts, scores: FloatArray, k: int, excluded: str, *, any_word: bool = True
) -> None:
    """Add what is better to the ``k`` best so far; of copies of a text and of equals, the first stays.

    The word ``excluded`` is left out and, unless ``any_word``, those without a letter or digit.
    """
    distinct = {(one.words, one.position): one for one in top}
    most = len(distinct) + k
    for place in np.argsort(-scores, kind="stable").tolist():
        one = part.at(place, float(scores[place]))
        if one.word.casefold() != excluded.casefold() and (any_word or _is_spelled(one.word)):
            distinct.setdefault((one.words, one.position), one)
        if len(distinct) == most:
            break
    top[:] = sorted(distinct.values(), key=lambda one: -one.score)[:k]


class Occurrences(_Texts):
    """Every word of a small corpus with all its layers, in memory: answers at once, by any mix.

    ``flat`` is all layers of all words, (n_words, layer, dim), in half precision.
    """

    def __init__(self, name: str, texts: Sequence[Sequence[str]], flat: Tensor) -> None:
        super().__init__(texts)
        self.name, self.flat = name, flat

    @classmethod
    def read(
        cls,
        elmo: Elmo,
        texts: Iterable[str],
        *,
        name: str = "",
        most: int = 50_000,
        progress: Advance = lambda n: None,
    ) -> Occurrences:
        """Embed the first ``most`` words of a corpus; copies of a text count once."""
        kept: dict[tuple[str, ...], Tensor] = {}
        n_words = 0
        for embeddings in elmo.chunks(texts):
            for words, layers in zip(map(tuple, embeddings.tokens), embeddings.layers, strict=True):
                if words and n_words < most and words not in kept:
                    kept[words] = torch.from_numpy(layers[: most - n_words]).half()
                    n_words += len(kept[words])
                    progress(len(kept[words]))
            if n_words >= most:
                break
        flat = torch.cat([torch.zeros(0, elmo.n_layers, elmo.dim).half(), *kept.values()])
        return cls(name, [words[: len(layers)] for words, layers in kept.items()], flat)

    def nearest(
        self, vector: FloatArray, mix: LayerMix, k: int, *, different_from: str = ""
    ) -> list[Occurrence]:
        """The ``k`` words whose mixed vectors are most like ``vector``, (dim,)."""
        unit = torch.from_numpy(unit_rows(vector[None])).float()
        blocks = (mix(block) for block in self.flat.split(_BLOCK_ROWS))
        scores = torch.cat([F.cosine_similarity(block, unit) for block in blocks])
        neighbors: list[Occurrence] = []
        _add_best(neighbors, self, scores.numpy(), k, different_from, any_word=False)
        return neighbors

    def of_word(self, word: str, most: int) -> list[int]:
        """The first ``most`` places of a word in the corpus, whatever its case."""
        words = enumerate(itertools.chain.from_iterable(self.texts))
        places = (place for place, one in words if one.casefold() == word.casefold())
        return list(itertools.islice(places, most))

    def mixed(self, places: Sequence[int], mix: LayerMix) -> FloatArray:
        """The mixed vectors of some places, (n, dim)."""
        return mix(self.flat[list(places)]).numpy()


def mix_layers(layers: Tensor, weights: Sequence[float]) -> Tensor:
    """(n_words, layer, dim) -> (n_words, dim)."""
    return torch.einsum("nld,l->nd", layers.float(), torch.tensor(weights))


def align_words(rows: npt.NDArray[Any], others: npt.NDArray[Any]) -> tuple[list[tuple[int, int]], FloatArray]:
    """The words of two texts that are nearest to each other, as pairs of places, and all cosines.

    >>> align_words(np.eye(3)[[0, 1]], np.eye(3)[[2, 1, 0]])[0]
    [(0, 2), (1, 1)]
    """
    near = cosines(others, unit_rows(rows))  # (n_rows, n_others)
    if not near.size:
        return [], near
    best, best_back = near.argmax(axis=1).tolist(), near.argmax(axis=0).tolist()
    return [(row, other) for row, other in enumerate(best) if best_back[other] == row], near


def map_2d(vectors: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], list[float]]:
    """Points in the plane in which rows of length 1 differ most, (n, dim) -> (n, 2), by PCA.

    Also the share of the variance that each axis shows. The larger end of each axis is positive.
    """
    from sklearn.decomposition import PCA

    units = unit_rows(vectors)
    points, shares = np.zeros((len(units), 2)), [0.0, 0.0]
    if units.var(axis=0).sum() * len(units) > 1e-12:
        pca = PCA(min(2, *units.shape), svd_solver="full")
        for axis, column in enumerate(pca.fit_transform(units).T):
            points[:, axis] = column * np.sign(column[np.abs(column).argmax()] or 1.0)
            shares[axis] = float(pca.explained_variance_ratio_[axis])
    return points, shares
