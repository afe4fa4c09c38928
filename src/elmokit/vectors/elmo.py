"""``Elmo``: a trained biLM that turns texts into contextual vectors."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.bilm.folder import BilmFolder, input_table, load_bilm, save_bilm, weights_of
from elmokit.bilm.model import Bilm, BilmOutput
from elmokit.bilm.state import BilmState
from elmokit.core.config import DropoutConfig
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, ModelError, nearest
from elmokit.core.model_card import Facts
from elmokit.core.names import resolve_name
from elmokit.core.tensors import fingerprint
from elmokit.text.batching import bucket_batches, chunked
from elmokit.text.tokenizing import BOS, EOS, PAD, SPECIALS, UNK, Text, n_characters, tokenize_texts
from elmokit.training.machine import tuned_process
from elmokit.vectors.embeddings import Embeddings, TextEncoder
from elmokit.vectors.encoder import FloatArray, IntArray, Layers, TokenIds, encode_chunks, number_words
from elmokit.vectors.word_cache import CACHE_FOLDER, TokenCache, WordCache

State = Literal["zero", "warm", "stateful"]
_BATCH_TOKENS = 8192
_CHUNK_TEXTS = 512
_WINDOW = 1024
_CACHED_WORDS = 100_000
_SIF = 1e-3  # the constant a of smooth inverse frequency


class Elmo(TextEncoder):
    """Contextual word vectors from a trained biLM.

    >>> elmo = Elmo.load("english")                                 # doctest: +SKIP
    >>> out = elmo.embed(["He sat on the bank of the river ."])     # doctest: +SKIP
    >>> out.tokens, out.layer(1), out.mixed(), out.sentence("mean") # doctest: +SKIP

    Args:
        folder: The model with its vocabulary and tokenizer.
        cached_words: How many words' token-encoder vectors to keep from call to call.
        token_cache: Vectors of a vocabulary, from ``elmokit convert --token-cache``.

    Attributes:
        model: The network, in evaluation mode; ``module`` is the same, for fine-tuning.
        n_layers: Number of layers, token encoder included.
        dim: Width of a layer: both directions side by side.
    """

    kind = "bilm"
    directional = True
    n_edge = 1

    def __init__(
        self, folder: BilmFolder, *, cached_words: int = _CACHED_WORDS, token_cache: TokenCache | None = None
    ) -> None:
        self.folder = folder
        self.model = self.module = folder.model.eval()
        self.n_layers, self.dim = self.model.config.n_layers + 1, 2 * self.model.config.dim
        self.word_cache = WordCache(folder, cached_words, token_cache)

    @classmethod
    def load(
        cls, folder: str | Path, *, cached_words: int = _CACHED_WORDS, token_cache: str | Path | None = None
    ) -> Elmo:
        """Open a bundled model, a model folder, published ELMo files, or a model on a hub.

        Args:
            folder: A bundled name (``"english"``), a folder (of a published model, the folder or its options
                file), or ``"hub:owner/name"``, ``"hub:owner/name@revision"``. A ``Path`` is always a folder.
            token_cache: A folder made with ``elmokit convert --token-cache``; by default, the one in the
                model folder, if there is one.
        """
        home = resolve_name(folder)
        saved = load_bilm(home)
        own_cache = resolve_name((home if home.is_dir() else home.parent) / CACHE_FOLDER)
        if token_cache is None and (own_cache / "cache.json").exists():
            token_cache = own_cache
        stored = None if token_cache is None else TokenCache.open(token_cache, saved)
        return cls(saved, cached_words=cached_words, token_cache=stored)

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints, comparable vectors. Computed once: weights must not change."""
        folder, start = self.folder, self.folder.start_state
        config = {"model": folder.model.config.to_dict(), "text": folder.text.to_dict()}
        strings = {
            "config": json.dumps(config, sort_keys=True),
            "vocabulary": "\n".join(folder.vocabulary.words),
            "tokenizer": folder.tokenizer.to_str(pretty=False),
        }
        parts: list[str | Tensor] = []
        for name, text in strings.items():
            parts += [f"{name}:{len(text.encode())}:", text]
        tensors = {**weights_of(folder.model), **(start.tensors() if start else {})}
        for name, table in (("input", input_table(folder.model)), ("sentence", folder.word_table)):
            if table is not None:
                parts.append(f"{name}:" + "\n".join(table.forms))
                tensors |= {f"{name}.codes": table.codes, f"{name}.scales": table.scales}
        for name, tensor in tensors.items():
            parts += [f"{name}:{tuple(tensor.shape)}:", tensor]
        return fingerprint(*parts)

    def facts(self) -> Facts:
        """What the model is: for ``elmokit inspect`` and the service."""
        return self.folder.facts()

    def save(self, folder: str | Path) -> None:
        """Write the model to ``folder``."""
        save_bilm(folder, self.folder)

    @property
    def training(self) -> dict[str, Any]:
        """Where the model came from: corpus, settings, perplexity."""
        return self.folder.training

    def embed(
        self,
        texts: Sequence[Text],
        *,
        state: State | BilmState = "zero",
        batch_size: int | None = None,
        boundaries: bool = False,
        progress: Callable[[int], None] = lambda amount: None,
    ) -> Embeddings:
        """Every layer of every word of ``texts``.

        The result depends neither on the order of the texts nor on the batch size, except with
        ``state="stateful"``.

        Args:
            texts: Raw strings, or lists of words (cleaned word by word, never split or dropped).
            state: Where each text starts: "zero"; "warm", the average state after a text; "stateful",
                each batch continuing from the state of the one before, as the first ELMo did; or a state
                from an earlier result, to continue from there.
            batch_size: Texts at a time; by default, chosen by length (1 for "stateful").
            boundaries: Keep the vectors of ``<s>`` and ``</s>``, too. A text without a word, which
                otherwise has no rows, has just these two, and its sentence vector pools them.
            progress: Called with the number of texts just done.
        """
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"batch_size = {batch_size} is out of range: it must be at least 1.")
        words, skip = self.words(texts), 0 if boundaries else 1
        counts = np.array([len(row) + 2 - 2 * skip for row in words], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = torch.empty(int(offsets[-1]), self.n_layers, self.dim)
        start, n_rows = self._start(state, batch_size)
        if start and min(n_rows, len(words)) > (n_known := len(start.forward[0][0])):
            raise ConfigError(
                f"The state has {n_known} rows, the batch has {min(n_rows, len(words))}.",
                remedy="Continue with the batch size that the state came from.",
            )
        batches = [np.arange(len(words))] if n_rows else bucket_batches(counts + 2 * skip, _BATCH_TOKENS)
        if size := n_rows or batch_size:
            batches = [rows[first : first + size] for rows in batches for first in range(0, len(rows), size)]
        with tuned_process(), torch.inference_mode():
            for rows in batches:
                n = len(rows)
                begin = start and (start.rows(n) if n_rows else start.repeat(n))
                out = self.run_batch([words[row] for row in rows], begin, keep_state=n_rows > 0)
                for row, vectors in zip(rows, out.ragged(skip).split(counts[rows].tolist()), strict=True):
                    flat[offsets[row] : offsets[row + 1]] = vectors
                if start and out.state:
                    old, new = start.tensors(), out.state.tensors()
                    after = {name: torch.cat([new[name], old[name][n:]]) for name in old}
                    start = BilmState.from_tensors(after)
                progress(n)
        if boundaries:
            words = [[SPECIALS[BOS], *row, SPECIALS[EOS]] for row in words]
        weights = self.sif_weights(words)
        if boundaries:
            weights[offsets[:-1]] = weights[offsets[1:] - 1] = self._sif_table[BOS]
        # Training can use no inference tensors.
        last = start.map(lambda x: x.detach().clone()) if start and n_rows else None
        return Embeddings(words, flat.numpy(), offsets, weights, last)

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text, as the model sees them."""
        return tokenize_texts(self.folder.pipeline, texts)

    def to_ids(self, words: Iterable[Sequence[str]]) -> TokenIds:
        """Texts given as words, as ids between ``<s>`` and ``</s>``."""
        return number_words(words, self.folder.features, (BOS, EOS))

    def layers(
        self,
        ids: TokenIds,
        rows: IntArray,
        *,
        dropout: DropoutConfig | None = None,
        rng: torch.Generator | None = None,
    ) -> Layers:
        """All layers of the texts ``rows`` as one batch. Without an ``rng`` there is no dropout."""
        vectors, index, lengths = ids.batch(rows, self.model.encoder)
        out = self.model.run(vectors, index, lengths, dropout=dropout, rng=rng)
        return Layers(out.layers, out.mask, self.n_edge)

    def precompute(self, ids: TokenIds) -> TokenIds:
        """The same texts with the token encoder's vectors of all their words, until weights change."""
        return self.word_cache.precompute(ids)

    @property
    def has_sentence_vector(self) -> bool:
        """True if ``sentences`` gives vectors that were distilled from a sentence encoder."""
        return self.folder.word_table is not None

    def sentences(self, texts: Sequence[Text]) -> FloatArray:
        """One vector per text: the distilled one, or the mean of all layers over its words."""
        if (table := self.folder.word_table) is not None:
            return table.sentences(self.words(texts))
        parts = [out.sentence("mean") for out in self.chunks(texts)]
        return np.concatenate([np.zeros((0, self.dim), dtype=np.float32), *parts])

    def encode(
        self,
        sentences: str | Sequence[Text] | npt.NDArray[Any],
        batch_size: int = _CHUNK_TEXTS,
        *,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | torch.device | None = None,
    ) -> FloatArray | Tensor:
        """``sentences``, called as in sentence-transformers, for tools that expect one of its models.

        Args:
            sentences: One text, for one vector, (dim,); or several, for a row each, (n_texts, dim).
            batch_size: Accepted for callers that pass it, like ``convert_to_numpy`` and ``device``; it
                changes nothing, as vectors are computed on the CPU.
            normalize_embeddings: Scale vectors to length 1; those of texts without a word stay zero.
            convert_to_tensor: Return a tensor, not an array.
        """
        texts: Any = [sentences] if isinstance(sentences, str) else sentences
        reporter = Reporter("auto" if show_progress_bar else "silent")
        with reporter.counting("Encoding", total=len(texts), unit="texts") as advance:
            vectors = np.concatenate([self.sentences([]), *encode_chunks(self, texts, advance)])
        if normalize_embeddings:
            vectors = F.normalize(torch.from_numpy(vectors), dim=1).numpy()
        chosen = vectors[0] if isinstance(sentences, str) else vectors
        return torch.from_numpy(chosen) if convert_to_tensor else chosen

    def unfreezing_order(self) -> list[list[str]]:
        """Names of the parameters that fine-tuning trains, top layer first."""
        names = [name for name, _ in self.model.named_parameters()]
        depths = reversed(range(self.model.config.n_layers))
        stacks = [[name for name in names if f"_stack.layers.{depth}." in name] for depth in depths]
        return [*stacks, [name for name in names if name.startswith("encoder.")]]

    def copy(self) -> Elmo:
        """A frozen copy to fine-tune, without figures that will no longer be true of it."""
        model: Bilm = copy.deepcopy(self.model).requires_grad_(False)
        outdated = ("held_out", "history")
        training = {name: value for name, value in self.folder.training.items() if name not in outdated}
        training |= {"fine_tuned": True}
        return Elmo(replace(self.folder, model=model, training=training, start_state=None))

    def run_batch(
        self, words: Sequence[Sequence[str]], state: BilmState | None = None, *, keep_state: bool = False
    ) -> BilmOutput:
        """Both stacks over one batch of texts given as words, between ``<s>`` and ``</s>``.

        Args:
            state: Where the texts start, a row for each; zero by default.
            keep_state: Return the state after each text, too, which is slower.
        """
        vectors, places = self.word_cache.look_up(words)
        n_words = np.array([len(row) for row in words])[:, None]  # (batch, 1)
        steps = np.arange(n_words.max() + 2)
        index = np.where(steps == n_words + 1, EOS, PAD)  # (batch, time)
        index[:, 0] = BOS
        index[(steps > 0) & (steps <= n_words)] = places
        lengths = torch.from_numpy(n_words[:, 0] + 2)
        with torch.inference_mode():
            return self.model.run(
                vectors, torch.from_numpy(index), lengths, state, keep_state=keep_state, window=_WINDOW
            )

    def batch(self, words: Sequence[Sequence[str]]) -> Layers:
        """All layers of one batch of texts given as words, without gradients; for prediction."""
        out = self.run_batch(words)
        return Layers(out.layers, out.mask, self.n_edge)

    def chunks(self, texts: Iterable[Text], state: Literal["zero", "warm"] = "zero") -> Iterator[Embeddings]:
        """``embed`` for a stream of texts, a few hundred at a time, so that memory stays flat."""
        for chunk in chunked(texts, _CHUNK_TEXTS, n_characters, 400 * _CHUNK_TEXTS):
            yield self.embed(chunk, state=state)

    def sif_weights(self, words: list[list[str]]) -> FloatArray:
        """The weight of each word of some texts in "sif" pooling, (n_words,)."""
        flat = [word for row in words for word in row]
        if (table := self.folder.word_table) is not None:
            ids = table.ids.rows(flat)[:, 0].astype(np.int64) + len(SPECIALS) - 1  # row 0: unknown
        else:
            ids = np.array([self.folder.vocabulary.id_of(word) for word in flat], dtype=np.int64)
        return self._sif_table[np.where(ids < len(SPECIALS), UNK, ids)]

    @cached_property
    def _sif_table(self) -> FloatArray:
        """a / (a + p) of special words, then of all known ones, most frequent first; p comes from counts or,
        without them, from the rank by Zipf's law. Edges are as frequent as the first word."""
        vocabulary, table = self.folder.vocabulary, self.folder.word_table
        counts = None if vocabulary.counts is None else vocabulary.counts[len(SPECIALS) :]
        counts = counts if table is None else table.counts
        if counts is not None and len(counts):
            known, rarest = np.maximum(counts, 1).astype(np.float64), 1.0
        else:
            known = 1.0 / np.arange(1, max(1, len(vocabulary) - len(SPECIALS)) + 1)
            rarest = known[-1]
        special = np.full(len(SPECIALS), known[0])
        special[UNK] = rarest
        share = np.concatenate([special, known]) / known.sum()
        weights: FloatArray = (_SIF / (_SIF + share)).astype(np.float32)
        return weights

    def _start(self, state: State | BilmState, batch_size: int | None) -> tuple[BilmState | None, int]:
        """Where texts start (None: zeros), and how many side by side carry their state over (0: none)."""
        if isinstance(state, BilmState):
            both = (state.tensors(), self.model.zero_state(1).tensors())
            theirs, ours = ([tensor.shape[1:] for tensor in tensors.values()] for tensors in both)
            if ours != theirs:
                raise ConfigError(
                    "The state does not fit this model: it has another number of layers, or other widths.",
                    remedy="Pass a state returned by this model.",
                )
            return state, batch_size or len(state.forward[0][0])
        if state not in get_args(State):
            remedy = nearest(str(state), get_args(State))
            raise ConfigError(f"state = {state!r} is not a valid choice.", remedy=remedy)
        if state == "stateful":
            return self.model.zero_state(batch_size or 1), batch_size or 1
        if state == "warm" and self.folder.start_state is None:
            raise ModelError(
                "This model has no start state for state='warm'.",
                remedy="Use state='zero', or a model made by elmokit pretrain or elmokit convert.",
            )
        return self.folder.start_state if state == "warm" else None, 0
