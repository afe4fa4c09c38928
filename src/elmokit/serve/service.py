"""What the models have to say: the computation behind each address, apart from HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from elmokit.core.errors import ConfigError, nearest
from elmokit.serve.registry import Served
from elmokit.tasks.model import TaskModel
from elmokit.vectors.encoder import FloatArray
from elmokit.vectors.neighbors import map_2d, unit_rows
from elmokit.vectors.settings import layer_factors

__all__ = ["INFLUENCE_WORDS", "factors", "layer_facts", "similar"]

INFLUENCE_WORDS = 200
_AROUND = 15  # words of a text that are shown on each side of an occurrence
_MOST_ALIKE = 150  # occurrences of a word, of the texts and of the corpus, that are looked at


def factors(served: Served, layer: int | None, weights: Sequence[float] | None) -> list[float]:
    """How much each layer counts: one alone, as given, or as in the model's own mix."""
    if layer is None and weights is None:
        return served.weights()
    return list(layer_factors(len(served.weights()), layer, weights))


def similar(
    served: Served,
    tokens: list[list[str]],
    layers: Sequence[FloatArray],
    *,
    text: int,
    position: int | None,
    word: str | None,
    weights: Sequence[float],
    k: int,
    different: bool,
) -> dict[str, Any]:
    """Neighbours, siblings and the map of a word.

    Args:
        served: the model.
        tokens: the words of each text.
        layers: their vectors, each (n_words, layer, dim).
        text: which text the word is in.
        position: which word of it; or else ``word``.
        word: the word itself.
        weights: how much each layer counts.
        k: neighbours to find.
        different: leave out the same word among them.
    """
    assert served.occurrences is not None
    place = _position(tokens, text, position, word)
    chosen = tokens[text][place]
    largest = max(map(abs, weights)) or 1.0  # only directions count here, so no weight need be tiny
    weights = [weight / largest for weight in weights]
    share = np.asarray(weights, dtype=np.float32)
    own = layers[text][place]  # (layer, dim)
    mixed = np.einsum("ld,l->d", own, share)
    same = [
        (number, spot)
        for number, row in enumerate(tokens)
        for spot, one in enumerate(row)
        if one.casefold() == chosen.casefold()
    ]
    notes = []
    if len(same) > _MOST_ALIKE:
        notes.append(f"The word stands in the texts {len(same):,} times; {_MOST_ALIKE} of them are shown.")
        same = sorted({(text, place), *[one for one in same if one != (text, place)][: _MOST_ALIKE - 1]})
    siblings = []
    for number, spot in same:
        if (number, spot) != (text, place):
            other = layers[number][spot]
            pairs = [*zip(own, other, strict=True), (mixed, np.einsum("ld,l->d", other, share))]
            cosines = [_cosine(a, b) for a, b in pairs]
            siblings.append(
                {
                    "text": number,
                    "position": spot,
                    "word": tokens[number][spot],
                    "layers": cosines[:-1],
                    "score": cosines[-1],
                }
            )
    neighbours = served.occurrences.nearest(mixed, weights, k, different_from=chosen if different else "")
    points, explained = _map(served, tokens, layers, same, chosen, share)
    if not points:
        notes.append("A map needs the word three times or more, in your sentences or the corpus.")
    return {
        "model": served.name,
        "tokens": tokens,
        "word": chosen,
        "text": text,
        "position": place,
        "neighbours": [
            {"score": one.score, "word": one.word, **_shown(one.index, one.position, one.words)}
            for one in neighbours
        ],
        "siblings": siblings,
        "map": {"points": points, "explained": explained},
        "notes": notes,
    }


def _position(tokens: list[list[str]], text: int, position: int | None, word: str | None) -> int:
    if text >= len(tokens):
        raise ConfigError(f"There is no text {text}: {len(tokens)} were given, counted from 0.")
    row = tokens[text]
    if (position is None) == (word is None):
        raise ConfigError("Which word? Give position or word, one of them.")
    if word is not None:
        places = [spot for spot, one in enumerate(row) if one.casefold() == word.casefold()]
        if not places:
            raise ConfigError(
                f"Text {text} has no word {word!r}.", remedy=nearest(word, dict.fromkeys(row)) if row else ""
            )
        return places[0]
    assert position is not None
    if position >= len(row):
        raise ConfigError(f"There is no word {position}: text {text} has {len(row)}, counted from 0.")
    return position


def _map(
    served: Served,
    tokens: list[list[str]],
    layers: Sequence[FloatArray],
    same: Sequence[tuple[int, int]],
    word: str,
    share: FloatArray,
) -> tuple[list[dict[str, Any]], list[float]]:
    assert served.occurrences is not None
    places = served.occurrences.of_word(word, _MOST_ALIKE)
    if len(same) + len(places) < 3:
        return [], []
    rows = [np.einsum("ld,l->d", layers[number][spot], share) for number, spot in same]
    vectors = np.concatenate([np.stack(rows), served.occurrences.mixed(places, share.tolist())])
    spots, explained = map_2d(vectors)
    entries: list[dict[str, Any]] = [
        {"source": "yours", **_shown(number, spot, tokens[number])} for number, spot in same
    ]
    for place in places:
        found = served.occurrences.at(place)
        entries.append({"source": "corpus", **_shown(found.index, found.position, found.words)})
    points = [{"x": float(x), "y": float(y), **entry} for (x, y), entry in zip(spots, entries, strict=True)]
    return points, explained


def _shown(text: int, position: int, words: Sequence[str]) -> dict[str, Any]:
    """A word with what stands around it; texts may be long, and there may be many."""
    start = max(0, position - _AROUND)
    return {
        "text": text,
        "position": position,
        "start": start,
        "words": list(words[start : position + _AROUND + 1]),
    }


def _cosine(a: FloatArray, b: FloatArray) -> float:
    return float(unit_rows(a[None])[0] @ unit_rows(b[None])[0])


def layer_facts(served: Served, words: list[str], layers: FloatArray) -> dict[str, Any]:
    """What each layer contributes to a text's vectors, (n_words, layer, dim), and to its class."""
    weights = served.weights()
    lengths = np.linalg.norm(layers.astype(np.float64), axis=2)  # (n_words, layer)
    parts = lengths * np.abs(weights)
    shares = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-12)
    classifier = served.classifier
    found, label, probability = None, None, None
    if classifier is not None:
        found, label, probability = _without_layers(classifier, words)
    facts = []
    for depth, weight in enumerate(weights):
        turn = None
        if depth and len(words):
            units = [unit_rows(layers[:, at]) for at in (depth - 1, depth)]
            turn = 1.0 - float(np.einsum("nd,nd->n", *units).mean())
        facts.append(
            {
                "layer": depth,
                "name": "token encoder" if depth == 0 else f"LSTM layer {depth}",
                "weight": weight,
                "length": float(lengths[:, depth].mean()) if len(words) else 0.0,
                "share": float(shares[:, depth].mean()) if len(words) else 0.0,
                "turn": turn,
                "without": None if found is None else found[depth],
            }
        )
    mix = "equal"
    if classifier is not None:
        mix = classifier.config.mix.mix
    return {
        "model": served.name,
        "mix": mix,
        "tokens": words,
        "layers": facts,
        "shares": shares.tolist(),
        "label": label,
        "probability": probability,
    }


@torch.no_grad()
def _without_layers(classifier: TaskModel, words: list[str]) -> tuple[list[float], str, float]:
    """The chosen class's probability with each layer set to zero; the class, and its probability."""
    (prediction,) = classifier.predict([(words,)])
    whole = prediction.probabilities
    best = int(whole.argmax())
    out = classifier.encoder.batch([words[: classifier.config.fit.max_words]])
    found = []
    for depth in range(len(out.values)):
        layers = tuple(
            torch.zeros_like(layer) if at == depth else layer for at, layer in enumerate(out.values)
        )
        output, masks = classifier.network([replace(out, values=layers)])
        (without,) = classifier.task.decode(output, masks, classifier.labels)
        found.append(float(without.probabilities[best]))
    return found, classifier.labels.names[best], float(whole[best])
