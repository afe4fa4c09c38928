"""What the addresses of the API share: finding a model, keeping to the limits, having work done."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from fastapi import Request

from elmokit.core.errors import ConfigError, nearest
from elmokit.serve.batching import Worker
from elmokit.serve.middleware import RefusedError
from elmokit.serve.registry import Report, Served, Shelf
from elmokit.serve.settings import ServeConfig
from elmokit.tasks.influence import drop_each_word, word_influence
from elmokit.tasks.model import TaskModel
from elmokit.tasks.task import Prediction
from elmokit.text.tokenizing import Text, n_characters
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.encoder import FloatArray

__all__ = ["Api", "cost_of"]

_LITTLE = 600  # words that one core computes faster than several, outside the main thread
_MOST_CUT = 1 << 18  # characters that are cut into words in one go
_PORTION = 4096  # words that one request for influence may have computed before others get their turn


class Api:
    """What the addresses share: finding models, checking limits, working."""

    def __init__(self, shelf: Shelf, config: ServeConfig) -> None:
        self.shelf, self.config = shelf, config
        self.worker = Worker(waiting=config.max_waiting, before=_Threads())
        self.cutter = Worker(most=_MOST_CUT, waiting=8 * config.max_body)  # costs are characters here
        self.reports: dict[str, Report] = {}  # by the last part of the address
        for number, report in enumerate(shelf.reports.values()):
            # A frame cannot send a token, so where there is one the address is a secret of its own.
            secret = f"-{secrets.token_urlsafe(12)}" if config.token else ""
            self.reports[f"{number}{secret}"] = report

    async def close(self) -> None:
        """Finish what waits."""
        await self.cutter.close()
        await self.worker.close()

    def model(self, name: str | None) -> Served:
        """The model asked for."""
        models = self.shelf.models
        if name is None:
            return next(iter(models.values()))
        if name not in models:
            raise RefusedError(404, f"There is no model {name!r}.", nearest(name, models))
        return models[name]

    def elmo(self, name: str | None) -> tuple[Served, Elmo]:
        """The model asked for, which must know context."""
        served = self.model(name)
        if served.elmo is None:
            raise ConfigError(
                f"{served.name} stands on static word vectors, which know no context.",
                remedy="Choose another model: see /v1/models.",
            )
        return served, served.elmo

    async def words(
        self, request: Request, served: Served, texts: Sequence[str | list[str]]
    ) -> list[list[str]]:
        """The words of texts that are neither too many nor too long; cut in a thread of its own."""
        if len(texts) > self.config.max_texts:
            raise RefusedError(
                413, f"{len(texts):,} texts are too many.", f"Send {self.config.max_texts:,} at most."
            )
        for place, text in enumerate(texts):
            if n_characters(text) > self.config.max_characters or len(text) > self.config.max_characters:
                raise RefusedError(
                    413,
                    f"Text {place} is too long.",
                    f"Send {self.config.max_characters:,} characters at most, or use the command line.",
                )
        encoder = served.elmo or (served.classifier.encoder if served.classifier else None)
        assert encoder is not None
        words = list(
            await self.cutter.do(
                served.name,
                texts,
                encoder.words,
                cost=sum(map(n_characters, texts)),
                gone=request.is_disconnected,
            )
        )
        total = sum(map(len, words))
        if total > self.config.max_words:
            raise RefusedError(
                413, f"{total:,} words are too many.", f"Send {self.config.max_words:,} at most."
            )
        return words

    async def layers(
        self,
        request: Request,
        served: Served,
        elmo: Elmo,
        texts: Sequence[Text],
        words: list[list[str]],
        state: str = "zero",
    ) -> Sequence[FloatArray]:
        """Every layer of texts, each (n_words, layer, dim), perhaps computed along with others' texts."""
        return await self.worker.do(
            ("embed", served.name, state),
            texts,
            partial(_embedded, elmo, state),
            cost=cost_of(words),
            gone=request.is_disconnected,
        )

    async def predictions(
        self,
        request: Request,
        served: Served,
        texts: Sequence[Text],
        words: list[list[str]],
        *,
        admitted: bool = False,
    ) -> Sequence[Prediction]:
        """A prediction for each text."""
        assert served.classifier is not None
        return await self.worker.do(
            ("classify", served.name),
            texts,
            partial(_classified, served.classifier),
            cost=cost_of(words),
            admitted=admitted,
            gone=request.is_disconnected,
        )

    async def influence(self, request: Request, served: Served, words: list[str]) -> list[float]:
        """What each word adds to the probability of a text's class. The texts without each word go in
        portions, so that others need not wait for all of them."""
        texts = drop_each_word(words)
        n_together = max(1, _PORTION // (len(words) + 2))
        predictions: list[Any] = []
        for first in range(0, len(texts), n_together):
            part = texts[first : first + n_together]
            predictions += await self.predictions(request, served, part, part, admitted=True)
        return word_influence([one.probabilities for one in predictions])


class _Threads:
    """How many cores compute a batch. Outside the main thread, cores wait for one another slowly: by
    measurement a short batch is faster on one."""

    def __init__(self) -> None:
        self.all = torch.get_num_threads()

    def __call__(self, n_words: int) -> None:
        torch.set_num_threads(1 if n_words <= _LITTLE else self.all)


def cost_of(words: list[list[str]]) -> int:
    """What texts weigh beside others: their words, and a start and an end each."""
    return sum(len(row) + 2 for row in words)


def _embedded(elmo: Elmo, state: Any, texts: list[Text]) -> list[FloatArray]:
    return elmo.embed(texts, state=state).layers


def _classified(classifier: TaskModel, texts: list[Text]) -> list[Prediction]:
    return list(classifier.predict((text,) for text in texts))
