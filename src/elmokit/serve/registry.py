"""The models and reports that a server was given, by name."""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, ModelError
from elmokit.core.model_folder import KINDS, kind_of, load
from elmokit.core.names import HUB, resolve_name
from elmokit.tasks.model import Network
from elmokit.tasks.task import Predictor
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import Text, Tokenized, replace_surrogates, split_sentences
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import Encoder
from elmokit.vectors.mix import ScalarMix
from elmokit.vectors.neighbors import Occurrences, TextIndex, mix_layers
from elmokit.vectors.store import VectorStore


@dataclass(frozen=True)
class Served:
    """A model that is being served.

    Attributes:
        elmo: The language model; None if the vectors are static or there are none.
        predictor: The fitted model, of any task.
        occurrences: Words of a corpus in context, to look for neighbors in.
        index: Texts to search.
    """

    name: str
    elmo: Elmo | None = None
    predictor: Predictor | None = None
    occurrences: Occurrences | None = None
    index: TextIndex | None = None

    @property
    def encoder(self) -> Encoder | None:
        """What turns its texts into vectors; None for word counts."""
        encoder = getattr(self.predictor, "encoder", self.elmo)
        return encoder if hasattr(encoder, "layers") else None

    @property
    def network(self) -> Network | None:
        """The mix and the head over the encoder."""
        return getattr(self.predictor, "network", None)

    def require_elmo(self) -> Elmo:
        """The language model, or an error if there is none."""
        if self.elmo is None:
            raise ConfigError(
                f"{self.name} has no contextual vectors: it uses static word vectors, word counts or several "
                "encoders.",
                remedy="Choose another model: see /v1/models.",
            )
        return self.elmo

    def require_encoder(self) -> Encoder:
        """What turns its texts into vectors, or an error if there is nothing of the kind."""
        if self.encoder is None:
            raise ConfigError(
                f"{self.name} has no encoder to search with: it counts words or uses foreign vectors.",
                remedy="Choose another model: see /v1/models.",
            )
        return self.encoder

    def words(self, texts: Sequence[Text]) -> list[list[str]]:
        """The words of each text, as the model sees them."""
        if self.encoder:
            return self.encoder.words(texts)
        return [replace_surrogates(text).split() if isinstance(text, str) else [*text] for text in texts]

    @cached_property
    def sentences(self) -> list[Tokenized]:
        """The sentences of the corpus, split once."""
        texts = [" ".join(words) for words in self.occurrences.texts] if self.occurrences else []
        sentences = [one for text in texts for one in split_sentences(text)]
        return [Tokenized(*pair) for pair in zip(self.words(sentences), sentences, strict=True)]

    def mix(self) -> tuple[list[float], bool]:
        """The weight of each layer, as learned or equal, and whether each layer is normalized first."""
        norm = bool(self.network and self.network.config.mix.mix_norm)
        if self.network and isinstance(self.network.mix, ScalarMix):
            return self.network.mix.scalars().tolist(), norm
        return [1.0 / self.encoder.n_layers] * self.encoder.n_layers if self.encoder else [], norm

    @torch.no_grad()
    def mix_words(self, layers: Tensor) -> Tensor:
        """The vectors of words, by its own mix: (n_words, layer, dim) -> (n_words, width)."""
        if not self.network:
            return mix_layers(layers, self.mix()[0])
        mixed: Tensor = self.network.mix(layers.float().unbind(dim=1))
        return mixed

    def facts(self) -> dict[str, Any]:
        """For /v1/models."""
        predictor, encoder, corpus = self.predictor, self.encoder, self.occurrences
        training: dict[str, Any] = getattr(encoder, "training", {})
        return {
            "name": self.name,
            "task": predictor.task.name if predictor else None,
            "fields": predictor.task.fields if predictor else (),
            "classes": predictor.task.classes(predictor.labels) if predictor else (),
            "contextual": self.elmo is not None,
            "n_layers": encoder.n_layers if encoder else 0,
            "dim": encoder.dim if encoder else 0,
            "corpus": corpus.name if corpus else "",
            "corpus_texts": len(corpus.texts) if corpus else 0,
            "search": self.index.name if self.index else "",
            "search_texts": len(self.index) if self.index else 0,
            "perplexity": (training.get("held_out") or {}).get("perplexity"),
            "license": training.get("license") or "",
        }


@dataclass(frozen=True)
class Registry:
    """Models by name, the first one being the default, and pages of comparisons by their folder."""

    models: dict[str, Served]
    reports: Mapping[str, Path] = field(default_factory=dict)


def open_registry(
    places: Sequence[str | Path],
    texts: Iterable[str],
    *,
    corpus_name: str = "",
    corpus_words: int = 50_000,
    search: str | Path | None = None,
    read: ReadConfig | None = None,
    reporter: Reporter | None = None,
) -> Registry:
    """Open models and reports for a server.

    Args:
        places: Names or folders of models of any kind, and folders of comparisons.
        texts: The corpus to look for neighbors in; read once for each language model.
        corpus_name: Its name on the page.
        corpus_words: How much of it is read.
        search: Texts to search: a file, read as ``read`` says, or a folder of vectors of one of the models.
    """
    reporter = reporter or Reporter("silent")
    models: dict[str, Served] = {}
    reports: dict[str, Path] = {}
    corpora: dict[str, Occurrences] = {}  # by the fingerprint of a language model: classifiers may share one
    for place in places:
        page = Path(place).resolve() / "report.html"
        if os.path.isfile(page) and kind_of(page.parent) is None:  # a model may have a report, too
            reports[_unused(page.parent.name, reports)] = page
            continue
        path = resolve_name(place)
        model: Any = load(path)
        encoder = getattr(model, "encoder", model)
        elmo = encoder if hasattr(encoder, "embed") else None
        predictor = model if hasattr(model, "predict") else None
        if elmo is None and predictor is None:
            raise ModelError(
                f"{place} holds {KINDS[model.kind].noun}, which cannot be served.",
                remedy="Give a language model, or a model made by elmokit fit.",
            )
        if elmo is not None and elmo.fingerprint not in corpora:
            with reporter.counting("Reading the corpus", unit="words") as advance:
                corpora[elmo.fingerprint] = Occurrences.read(
                    elmo, texts, name=corpus_name, most=corpus_words, progress=advance
                )
        folder = path.resolve() if path.is_dir() else path.resolve().parent
        is_remote = str(place).startswith(HUB)
        name = _unused(Path(str(place).partition("@")[0]).name if is_remote else folder.name, models)
        models[name] = Served(name, elmo, predictor, corpora[elmo.fingerprint] if elmo else None)
    if not models:
        raise ModelError(
            "No model was given, only reports.", remedy="Add a model, as in: elmokit serve english report"
        )
    if search is not None:
        models = _add_index(models, search, read, reporter)
    return Registry(models, reports)


def _add_index(
    models: Mapping[str, Served], place: str | Path, read: ReadConfig | None, reporter: Reporter
) -> dict[str, Served]:
    """The models with texts to search, by their own vectors; a folder of vectors belongs to one encoder."""
    encoders = {one.encoder.fingerprint: one.encoder for one in models.values() if one.encoder}
    if not encoders:
        raise ModelError(
            "None of the models has vectors for searching.",
            remedy="Add a language model, as in: elmokit serve english --search texts.txt",
        )
    if Path(place).is_dir() and (own := encoders.get(VectorStore.open(place).fingerprint)):
        encoders = {own.fingerprint: own}
    opened = {key: TextIndex.open(place, one, read, reporter=reporter) for key, one in encoders.items()}
    keys = {name: one.encoder.fingerprint for name, one in models.items() if one.encoder}
    return {name: replace(one, index=opened.get(keys.get(name, ""))) for name, one in models.items()}


def _unused(name: str, taken: Container[str]) -> str:
    """``name``, with a number if it is taken."""
    name = replace_surrogates(name)
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(other for other in names if other not in taken)
