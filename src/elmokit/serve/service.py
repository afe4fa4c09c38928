"""What each address of the API computes. The methods of ``Service`` are the endpoints."""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import numpy as np
import orjson
import torch
import torch.nn.functional as F
from fastapi import Request
from fastapi.responses import Response

import elmokit
from elmokit.core.errors import ConfigError, nearest
from elmokit.core.formatting import join_names, plural
from elmokit.serve import schema
from elmokit.serve.batching import Worker
from elmokit.serve.middleware import RefusedError
from elmokit.serve.registry import Registry, Served
from elmokit.serve.settings import ServeConfig
from elmokit.tasks.task import Inputs, Predictor
from elmokit.text.rows import Row
from elmokit.text.tokenizing import Text, Tokenized, n_characters, replace_surrogates
from elmokit.vectors.elmo import State
from elmokit.vectors.embeddings import Embeddings
from elmokit.vectors.encoder import FloatArray
from elmokit.vectors.neighbors import (
    LayerMix,
    Occurrence,
    Occurrences,
    align_words,
    cosines,
    map_2d,
    mix_layers,
    search,
    unit_rows,
)
from elmokit.vectors.senses import WordSenses, senses
from elmokit.vectors.settings import layer_factors

INFLUENCE_TEXTS, INFLUENCE_WORDS = 8, 200
_LIMITS = ("max_body", "max_texts", "max_characters", "max_words")  # shown to clients
_FEW_WORDS = 600  # up to this many, one core is faster than several outside the main thread
_TOKENIZE_CHARACTERS = 1 << 18  # tokenized in one batch
_INFLUENCE_BATCH = 4096  # words of an influence request computed before other requests get a turn
_JSON_NUMBERS = 4_000_000  # most numbers in a JSON answer
_SMALL_ANSWER = 1 << 18  # numbers pooled in the event loop; more are pooled in the models' thread
_CONTEXT = 15  # words shown on each side of an occurrence
_MAX_OCCURRENCES = 150  # occurrences of a word, in the texts and in the corpus each
_MAX_USES = 300  # sentences in which the senses of a word are looked for
_ALIGNED_WORDS = 200  # most words of a text to compare with those of another
_SHOWN_CHARACTERS = 2000  # of a text that was found
Words = list[list[str]]


class Service:
    """The API over some models."""

    def __init__(self, registry: Registry, config: ServeConfig) -> None:
        self.registry, self.config = registry, config
        self.reports = {  # by address, which is a secret if there is a token: a frame cannot send one
            f"/reports/{number}{f'-{secrets.token_urlsafe(12)}' if config.token else ''}": report
            for number, report in enumerate(registry.reports.items())
        }
        n_threads = torch.get_num_threads()

        def set_threads(n_words: int) -> None:
            torch.set_num_threads(1 if n_words <= _FEW_WORDS else n_threads)

        self.worker = Worker(max_waiting=config.max_waiting, before=set_threads)
        self.tokenizer = Worker(max_batch=_TOKENIZE_CHARACTERS, max_waiting=8 * config.max_body)

    async def close(self) -> None:
        """Finish the requests in progress."""
        await self.tokenizer.close()
        await self.worker.close()

    async def health(self) -> Response:
        """Whether the server is up."""
        return json_response({"status": "ok", "version": elmokit.__version__})

    async def models(self) -> Response:
        """The models and reports of this server, and its limits."""
        limits = {name: getattr(self.config, name) for name in _LIMITS}
        return json_response(
            {
                "version": elmokit.__version__,
                "models": [served.facts() for served in self.registry.models.values()],
                "reports": [{"name": one[0], "address": address} for address, one in self.reports.items()],
                "limits": {**limits, "influence_words": INFLUENCE_WORDS},
            }
        )

    async def tokens(self, request: Request, body: schema.TokensRequest) -> Response:
        """Split texts into words, as a model sees them."""
        served = self._model(body.model)
        tokens = await self._words(request, served, body.texts)
        return json_response({"model": served.name, "tokens": tokens})

    async def embed(self, request: Request, body: schema.EmbedRequest) -> Response:
        """Vectors of words in context, or of whole texts."""
        served = self._model(body.model)
        elmo = served.require_elmo()
        weights = layer_factors(elmo.n_layers, body.layer, body.weights)
        tokens = await self._words(request, served, body.texts)
        n_numbers = elmo.dim * (sum(map(len, tokens)) if body.vectors == "words" else len(tokens))
        if body.format == "json" and n_numbers > _JSON_NUMBERS:
            raise RefusedError(
                413,
                f"The answer would have {n_numbers:,} numbers, which is too many for JSON.",
                "Use format = 'npy', ask for one vector per text, or send fewer texts.",
            )
        layers = await self._layers(request, served, tokens, body.state)

        def respond() -> Response:
            offsets = np.cumsum([0, *map(len, tokens)])
            shares = elmo.sif_weights(tokens) if body.vectors == "sif" else np.ones(0, np.float32)
            out = Embeddings(tokens, np.concatenate(layers), offsets, shares)
            rows: Any = out.mixed(weights)
            if body.vectors != "words":
                rows = out.sentence(body.vectors, weights=weights)
            if body.format == "json":
                n_empty = sum(not row for row in tokens)
                notes = [f"Texts without words: {n_empty:,}."] if n_empty else []
                vectors = [np.ascontiguousarray(row) for row in rows]
                return json_response(
                    {"model": served.name, "tokens": tokens, "vectors": vectors, "notes": notes}
                )
            content = io.BytesIO()
            np.save(content, np.vstack(rows), allow_pickle=False)
            headers = {"X-Elmokit-Offsets": ",".join(map(str, offsets))} if body.vectors == "words" else {}
            return Response(content.getvalue(), media_type="application/x-npy", headers=headers)

        if sum(layer.size for layer in layers) < _SMALL_ANSWER:
            return respond()
        return await self.worker.call(respond, admitted=True)

    async def similar(self, request: Request, body: schema.SimilarRequest) -> Response:
        """Words like a word in its context: neighbors in the corpus, the same word elsewhere, a map."""
        served = self._model(body.model)
        served.require_elmo()
        tokens = await self._words(request, served, body.texts)
        mix = _mix(served, body)
        layers = await self._layers(request, served, tokens)
        work = partial(_similar, served, body, tokens, layers, mix)
        return json_response(await self.worker.call(work, admitted=True, gone=request.is_disconnected))

    async def search(self, request: Request, body: schema.SearchRequest) -> Response:
        """The texts most like a query, of those in the request or those that the server was given."""
        served = self._model(body.model)
        encoder = served.require_encoder()
        query = await self._words(request, served, [body.query])
        if not query[0]:
            raise ConfigError("The query contains no words.", remedy="Give a text to look for.")
        options: Any = {"cost": _cost(query), "gone": request.is_disconnected}
        if body.texts is not None:
            texts = await self._words(request, served, body.texts)
            options["cost"] += _cost(texts)
            work = partial(search, texts, query, encoder, body.k)
            n_texts, hits = len(texts), (await self.worker.call(work, **options))[0]
        elif (index := served.index) is not None:
            key, look = ("search", served.name, body.k), partial(index.search, k=body.k)
            n_texts, hits = len(index), (await self.worker.do(key, query, look, **options))[0]
        else:
            raise ConfigError(
                f"There are no texts that {served.name} can search.",
                remedy="Send texts, or start the server with --search FILE_OR_VECTORS.",
            )
        rows = [asdict(replace(hit, text=hit.text[:_SHOWN_CHARACTERS])) for hit in hits]
        return json_response({"model": served.name, "n_texts": n_texts, "hits": rows})

    async def similarity(self, request: Request, body: schema.SimilarityRequest) -> Response:
        """How similar two texts are, and which of their words correspond."""
        served = self._model(body.model)
        elmo, mix = served.require_elmo(), _mix(served, body)
        tokens, notes = await self._words(request, served, [body.text, body.other]), list[str]()
        if not all(tokens):
            notes.append("A text without words has similarity 0 to every other text.")
        aligned = tokens
        if max(map(len, tokens)) > _ALIGNED_WORDS:
            notes.append(f"Words are compared in texts of up to {_ALIGNED_WORDS} words.")
            aligned = [[], []]
        layers = await self._layers(request, served, aligned)

        def work() -> dict[str, Any]:
            score = float(elmo.similarity(tokens[:1], tokens[1:])[0])
            pairs, near = align_words(*(mix(torch.from_numpy(part)).numpy() for part in layers))
            cosines = near.astype(np.float64).round(4)
            answer = {"model": served.name, "tokens": tokens, "score": score, "notes": notes}
            return {**answer, "pairs": pairs, "cosines": cosines}

        options: Any = {"cost": _cost(tokens), "admitted": True, "gone": request.is_disconnected}
        return json_response(await self.worker.call(work, **options))

    async def senses(self, request: Request, body: schema.SensesRequest) -> Response:
        """The senses in which texts use a word, with typical uses and a map."""
        served = self._model(body.model)
        elmo, corpus = served.require_elmo(), served.occurrences
        if body.texts is None and not (corpus and corpus.texts):
            raise ConfigError("This server has no corpus.", remedy="Send texts.")
        words = await self._words(request, served, body.texts or [body.word])

        def work() -> WordSenses:
            texts = body.texts or served.sentences
            return senses(elmo, body.word, texts, k=body.k, layer=body.layer, at_most=_MAX_USES)

        options: Any = {"cost": _MAX_USES + _cost(words), "gone": request.is_disconnected}
        result = await self.worker.call(work, **options)
        sample = f"The word occurs in {result.n_found:,} sentences; a random sample of {_MAX_USES} was used."
        places = zip(result.uses, result.points, strict=True)
        names = ("word", "compared_by", "n_found", "silhouette", "explained")
        return json_response(
            {
                "model": served.name,
                **{name: getattr(result, name) for name in names},
                "senses": [
                    {**asdict(one), "examples": [*map(_neighbor, one.examples)]} for one in result.senses
                ],
                "uses": [{"sense": name, "x": x, "y": y, **_snippet(use)} for (name, use), (x, y) in places],
                "notes": [sample] if result.n_found > len(result.uses) else [],
            }
        )

    async def layers(self, request: Request, body: schema.LayersRequest) -> Response:
        """What each layer contributes to the words of a text and, for a classifier, to its class."""
        served = self._model(body.model)
        served.require_elmo()
        tokens = await self._words(request, served, [body.text])
        layers = await self._layers(request, served, tokens)
        work = partial(_layer_facts, served, tokens[0], layers[0])
        cost = 3 * _cost(tokens) if served.predictor else 1  # it reads the text again, without each layer
        facts = await self.worker.call(work, cost=cost, admitted=True, gone=request.is_disconnected)
        return json_response(facts)

    async def predict(self, request: Request, body: schema.PredictRequest) -> Response:
        """Predictions for texts, with the columns that ``elmokit predict`` writes for the model's task."""
        served = self._model(body.model)
        if body.model is None:  # the first model that can
            served = next((one for one in self.registry.models.values() if one.predictor), served)
        if served.predictor is None:
            raise ConfigError(
                f"{served.name} makes no predictions.",
                remedy="Fit a model with elmokit fit MODEL rows.csv --out topics, "
                "then serve it with elmokit serve topics.",
            )
        task = served.predictor.task
        if body.influence and not task.classifies_texts:
            raise ConfigError(
                f"{served.name} does not support influence, which is for classes of single texts.",
                remedy="Leave out influence.",
            )
        rows = [_inputs(served.predictor, place, texts) for place, texts in enumerate(body.texts)]
        n_fields = len(task.fields)
        words = await self._words(request, served, [text for row in rows for text in row], n_fields)
        if body.influence and (len(rows) > INFLUENCE_TEXTS or max(map(len, words)) > INFLUENCE_WORDS):
            raise RefusedError(
                413,
                f"Influence is limited to {INFLUENCE_TEXTS} texts of up to {INFLUENCE_WORDS} words.",
                "Send fewer or shorter texts, or leave out influence.",
            )
        if served.encoder:  # else it does not read these words
            rows = list(zip(*[iter(words)] * n_fields, strict=True))
        predictions = await self._predictions(request, served, rows, _cost(words))
        results: list[dict[str, Any]] = [dict(task.columns(one)) for one in predictions]
        if body.influence:
            for row, result in zip(words, results, strict=True):
                result["influence"] = {"tokens": row, "values": await self._influence(request, served, row)}
        notes = []
        if n_cut := sum(one.n_cut > 0 for one in predictions):
            n_words = plural(sum(one.n_cut for one in predictions), "word")
            verb = "was" if n_cut == 1 else "were"
            notes.append(f"{plural(n_cut, 'text')} {verb} truncated ({n_words} over the limit).")
        if n_empty := sum(not any(words[n : n + n_fields]) for n in range(0, len(words), n_fields)):
            notes.append(f"Texts without words, for which a prediction is meaningless: {n_empty:,}.")
        if not getattr(predictions[0], "calibrated", True):
            notes.append("The scores are not probabilities: they only rank the classes.")
        return json_response({"model": served.name, "results": results, "notes": notes})

    def _model(self, name: str | None) -> Served:
        """The model of that name; the first without a name."""
        models = self.registry.models
        if name is not None and name not in models:
            raise RefusedError(404, f"There is no model {name!r}.", nearest(name, models))
        return models[name if name is not None else next(iter(models))]

    async def _words(
        self, request: Request, served: Served, texts: Sequence[Text], n_fields: int = 1
    ) -> Words:
        """The words of texts, which are refused if they are too many or too long.

        Args:
            n_fields: How many of the texts make a row.
        """
        limits = self.config
        if (n_texts := len(texts) // n_fields) > limits.max_texts:
            raise RefusedError(413, f"{n_texts:,} texts are too many.", f"Send up to {limits.max_texts:,}.")
        for place, text in enumerate(texts):
            if max(n_characters(text), len(text)) > limits.max_characters:
                raise RefusedError(
                    413,
                    f"Text {place // n_fields} is too long.",
                    f"Send up to {limits.max_characters:,} characters, or use the command line.",
                )
        cost = sum(map(n_characters, texts))
        tokens = await self.tokenizer.do(served.name, texts, served.words, cost=cost)
        words: Words = [Tokenized(row, text) for row, text in zip(tokens, texts, strict=True)]
        if (n_words := sum(map(len, words))) > limits.max_words:
            raise RefusedError(413, f"{n_words:,} words are too many.", f"Send up to {limits.max_words:,}.")
        return words

    async def _layers(
        self, request: Request, served: Served, tokens: Words, state: State = "zero"
    ) -> Sequence[FloatArray]:
        """All layers of each text, (n_words, layer, dim)."""
        key, embed = ("embed", served.name, state), partial(served.require_elmo().embed, state=state)
        gone = request.is_disconnected
        return await self.worker.do(
            key, tokens, lambda batch: embed(batch).layers, cost=_cost(tokens), gone=gone
        )

    async def _predictions(
        self, request: Request, served: Served, rows: Sequence[Inputs], cost: int, *, admitted: bool = False
    ) -> Sequence[Any]:
        key, predictor = ("predict", served.name), cast(Predictor, served.predictor)
        options: Any = {"cost": cost, "admitted": admitted, "gone": request.is_disconnected}
        return await self.worker.do(key, rows, lambda batch: list(predictor.predict(batch)), **options)

    async def _influence(self, request: Request, served: Served, words: list[str]) -> list[float]:
        """How much each word adds to the probability of the class; in batches, so that others get a turn."""
        texts = [words, *(words[:place] + words[place + 1 :] for place in range(len(words)))]
        size = max(1, _INFLUENCE_BATCH // (len(words) + 2))
        predictions: list[Any] = []
        for first in range(0, len(texts), size):
            part = texts[first : first + size]
            rows = [(row,) for row in part]
            predictions += await self._predictions(request, served, rows, _cost(part), admitted=True)
        whole, *rest = [one.probabilities for one in predictions]
        best = int(whole.argmax())
        return [float(whole[best] - without[best]) for without in rest]


def json_response(value: Any) -> Response:
    """JSON, also of NumPy arrays."""
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def _cost(words: Words) -> int:
    """Words to compute: a text has a start and an end besides."""
    return sum(len(row) + 2 for row in words)


def _inputs(predictor: Predictor, place: int, given: str | dict[str, str | int]) -> Inputs:
    """What a model reads of one text, or of an object with a text for each field."""
    task = predictor.task
    by_field: dict[str, str | int] = {task.fields[0]: given} if isinstance(given, str) else given
    if {*by_field} - {*task.further} != {*task.fields}:
        raise ConfigError(
            f"Text {place}: the task {task.name!r} needs {join_names(task.fields)}.",
            remedy=f"Send an object: {{{', '.join(f'{field!r}: ...' for field in task.fields)}}}.",
        )
    texts = tuple(replace_surrogates(str(by_field[field])) for field in task.fields)
    row = Row(f"text {place}", " ".join(texts), None, dict(by_field), texts=texts)
    return task.inputs(row, predictor.labels)


def _mix(served: Served, body: schema.SimilarRequest | schema.SimilarityRequest) -> LayerMix:
    """What words are compared by: the layer or mix of the request, else the model's own mix."""
    if body.layer is None and body.weights is None:
        return served.mix_words
    weights = layer_factors(served.require_elmo().n_layers, body.layer, body.weights)
    return partial(mix_layers, weights=weights)


def _similar(
    served: Served,
    body: schema.SimilarRequest,
    tokens: Words,
    layers: Sequence[FloatArray],
    mix: LayerMix,
) -> dict[str, Any]:
    corpus = served.occurrences
    assert corpus is not None
    position, notes = _position(body, tokens), list[str]()
    word, chosen = tokens[body.text][position], sum(map(len, tokens[: body.text])) + position
    own = Occurrences("", tokens, torch.from_numpy(np.concatenate(layers)))
    same = own.of_word(word, len(own.flat))
    if len(same) > _MAX_OCCURRENCES:
        notes.append(f"The word occurs {len(same):,} times in the texts; {_MAX_OCCURRENCES} are shown.")
        same = sorted([chosen, *(place for place in same if place != chosen)][:_MAX_OCCURRENCES])
    mixed, here = own.mixed(same, mix), same.index(chosen)
    scores = cosines(mixed, unit_rows(mixed[here : here + 1]))[0].tolist()
    by_layer = F.cosine_similarity(own.flat[same], own.flat[chosen], dim=2).tolist()
    neighbors = corpus.nearest(mixed[here], mix, body.k, different_from=word if body.different else "")
    elsewhere = corpus.of_word(word, _MAX_OCCURRENCES)
    points, explained = list[dict[str, Any]](), list[float]()
    if len(same) + len(elsewhere) < 3:
        notes.append("A map needs at least three occurrences of the word, in your sentences or the corpus.")
    else:
        spots, explained = map_2d(np.concatenate([mixed, corpus.mixed(elsewhere, mix)]))
        occurrences = [("yours", own.at(place)) for place in same]
        occurrences += [("corpus", corpus.at(place)) for place in elsewhere]
        points = [
            {"x": x, "y": y, "source": source, **_snippet(one)}
            for (x, y), (source, one) in zip(spots.tolist(), occurrences, strict=True)
        ]
    return {
        "model": served.name,
        "tokens": tokens,
        "word": word,
        "text": body.text,
        "position": position,
        "neighbors": [*map(_neighbor, neighbors)],
        "siblings": [
            {"text": one.index, "position": one.position, "word": one.word, "layers": alike, "score": score}
            for one, alike, score in zip(map(own.at, same), by_layer, scores, strict=True)
            if (one.index, one.position) != (body.text, position)
        ],
        "map": {"points": points, "explained": explained},
        "notes": notes,
    }


def _position(body: schema.SimilarRequest, tokens: Words) -> int:
    """The place of the word that is asked for in its text."""
    if body.text >= len(tokens):
        raise ConfigError(f"There is no text {body.text}: {len(tokens)} were given, counted from 0.")
    if (body.position is None) == (body.word is None):
        raise ConfigError("Give either position or word, not both.")
    row, word = tokens[body.text], (body.word or "").casefold()
    for position, other in enumerate(row):
        if position == body.position or other.casefold() == word:
            return position
    remedy = f"It has {plural(len(row), 'word')}, counted from 0."
    if body.word and row:
        remedy = nearest(body.word, dict.fromkeys(row))
    name = body.position if body.word is None else repr(body.word)
    raise ConfigError(f"Text {body.text} has no word {name}.", remedy=remedy)


def _neighbor(one: Occurrence) -> dict[str, Any]:
    return {"score": one.score, "word": one.word, **_snippet(one)}


def _snippet(one: Occurrence) -> dict[str, Any]:
    """A word with the words around it."""
    start = max(0, one.position - _CONTEXT)
    around = one.words[start : one.position + _CONTEXT + 1]
    return {"text": one.index, "position": one.position, "start": start, "words": around}


def _layer_facts(served: Served, words: list[str], values: FloatArray) -> dict[str, Any]:
    """What each layer contributes to the vectors of a text, (n_words, layer, dim), and to its class."""
    weights, norm = served.mix()
    layers, n = torch.from_numpy(values), max(1, len(words))
    if norm:
        layers = F.layer_norm(layers, layers.shape[-1:])
    parts = layers.norm(dim=2) * torch.tensor(weights).abs()  # (n_words, layer)
    shares = parts / parts.sum(dim=1, keepdim=True).clamp(min=1e-12)
    turns = 1 - F.cosine_similarity(layers[:, :-1], layers[:, 1:], dim=2)  # (n_words, layer - 1)
    label, probability, without = _without_layers(served, words)
    return {
        "model": served.name,
        "mix": served.network.config.mix.mix if served.network else "equal",
        "tokens": words,
        "layers": [
            {
                "layer": depth,
                "name": f"LSTM layer {depth}" if depth else "token encoder",
                "weight": weight,
                "share": float(shares[:, depth].sum()) / n,
                "turn": float(turns[:, depth - 1].mean()) if depth and words else None,
                "without": without[depth] if without else None,
            }
            for depth, weight in enumerate(weights)
        ],
        "shares": shares.tolist(),
        "label": label,
        "probability": probability,
    }


@torch.no_grad()
def _without_layers(served: Served, words: list[str]) -> tuple[str | None, float | None, list[float]]:
    """The most probable class, its probability, and that with each layer set to zero."""
    predictor, network = served.predictor, served.network
    if predictor is None or network is None or not predictor.task.classifies_texts:
        return None, None, []
    out = served.require_elmo().batch([words[: network.config.fit.max_words]])
    predictions: list[Any] = []
    for gone in (None, *range(len(out.values))):
        values = tuple(x * (depth != gone) for depth, x in enumerate(out.values))
        output, masks = network([replace(out, values=values)])
        predictions += predictor.task.decode(output, masks, predictor.labels)
    whole, *rest = [one.probabilities for one in predictions]
    best = int(whole.argmax())
    return predictor.labels.names[best], float(whole[best]), [float(without[best]) for without in rest]
