"""The verb ``senses``: a word's uses in a corpus, grouped by what their sentences are about."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.core.formatting import join_names, plural
from elmokit.core.model_card import origin_record
from elmokit.core.model_folder import load
from elmokit.core.names import checksum
from elmokit.core.run_folder import Inputs, open_out
from elmokit.core.tensors import fingerprint
from elmokit.report.document import Column, Document, Section, make_details, make_table
from elmokit.report.figures import draw_groups
from elmokit.report.render import write_report
from elmokit.text.batching import chunked
from elmokit.text.rows import RowSource
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import Tokenized, reject_table, split_sentences
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import Occurrence, cosines, map_2d, unit_rows

_MOST_SENSES = 6
_LOWEST_SILHOUETTE, _PENALTY = 0.05, 0.03  # below it, one sense; for each sense beyond two
_N_KEYWORDS, _N_EXAMPLES = 8, 3
_CHUNK = 512  # texts


@dataclass(frozen=True)
class Sense:
    """Uses of a word that belong together.

    Attributes:
        share: Of all uses that were looked at.
        keywords: Words over-represented in its sentences, the strongest first.
        examples: Its most typical uses; ``score`` is the cosine with the mean of the sense.
    """

    name: str
    n_uses: int
    share: float
    keywords: list[str]
    examples: list[Occurrence]


@dataclass(frozen=True)
class WordSenses:
    """The senses of a word, the most frequent first.

    Attributes:
        compared_by: What its uses were compared by: a layer, or the sentence vector.
        n_found: Sentences with the word in the corpus; copies count once.
        silhouette: How clear the grouping is, from -1 to 1; None for one sense, or with examples.
        uses: Each use and the name of its sense.
        points: Their places on a map, x and y; ``explained``, the share of the variance that each axis shows.
    """

    word: str
    compared_by: str
    n_found: int
    silhouette: float | None
    senses: list[Sense]
    uses: list[tuple[str, Occurrence]]
    points: list[list[float]]
    explained: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        uses = [{"sense": name, "position": use.position, "words": use.words} for name, use in self.uses]
        return {**asdict(self), "uses": uses}


def senses(  # many parameters because each is a flag of the verb
    model: Elmo | str | Path,
    word: str,
    texts: Iterable[str | Tokenized],
    *,
    k: int | None = None,
    labeled: str | Path | None = None,
    layer: int | None = None,
    at_most: int = 2000,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
) -> WordSenses:
    """Group the sentences of a corpus that use a word by the sense of the word.

    Sentences are compared by the model's sentence vector if it has one, else by the word's vector in layer 1:
    what tells senses apart best on benchmarks/senses.tsv. Groups are those of k-means.

    Args:
        texts: The corpus, read once; copies of a sentence count once. A text that is tokenized is a sentence.
        k: Number of senses; by default 1 to 6, as many as have the best silhouette.
        labeled: Rows with the columns text and sense: each use gets the sense whose examples have the
            nearest mean. If there is a column word, only rows of this word count.
        layer: Compare by the word's vector in this layer.
        at_most: Sentences to look at, drawn at random if there are more.
        out: Folder for a report with a map.
    """
    reporter = reporter or Reporter("silent")
    if (k is not None and not 1 <= k <= 100) or at_most < 2:
        raise ConfigError(
            f"k = {k}, at_most = {at_most}: out of range.", remedy="Use k from 1 to 100, at_most from 2."
        )
    if k is not None and labeled is not None:
        raise ConfigError("The number of senses comes from the examples.", remedy="Leave out k, or labeled.")
    folder = None if out is None else open_out(Path(out), "report", overwrite=overwrite)
    elmo = model if isinstance(model, Elmo) else load(model)
    if not isinstance(elmo, Elmo):
        raise ModelError(
            f"{model} has no vectors in context: a word has the same vector in every sentence.",
            remedy="Use a language model, such as english.",
        )
    reject_table(texts)
    spelled = elmo.words([word])[0]
    if len(spelled) != 1:
        raise ConfigError(f"{word!r} is not one word for this model.", remedy="Give a single word.")
    form = spelled[0].casefold()
    uses, n_found, counts = _collect(elmo, form, texts, at_most, seed, reporter)
    vectors = _vectors(elmo, uses, layer, reporter)
    if labeled is None:
        groups, silhouette = group_vectors(vectors, k, seed)
        names = [str(number + 1) for number in range(groups.max() + 1)]
    else:
        silhouette = None
        groups, names = _tag(elmo, form, labeled, layer, vectors, reporter)
    points, explained = map_2d(vectors)
    by = "sentence vector" if elmo.has_sentence_vector else "layer 1"
    result = WordSenses(
        word,
        by if layer is None else f"layer {layer}",
        n_found,
        silhouette,
        _describe(elmo, form, uses, vectors, groups, names, counts),
        [(names[group], use) for group, use in zip(groups.tolist(), uses, strict=True)],
        points.tolist(),
        explained,
    )
    if folder is not None:
        record = {**result.to_json(), **origin_record(command, "numpy", "scikit-learn")}
        job = {"senses": {"word": word, "k": k, "layer": layer, "at_most": at_most, "seed": seed}}
        inputs: Inputs = {
            "model.model": elmo.fingerprint,
            "text.content_hash": fingerprint(counts, *(repr((use.index, use.words)) for use in uses)),
            "text.labeled_rows": None if labeled is None else checksum(Path(labeled)),
        }
        with folder.lock():
            if not folder.is_done(job, inputs, reporter.say):
                write_report(folder.out, _make_report(result, command), record)
    return result


def group_vectors(
    vectors: npt.NDArray[Any], k: int | None = None, seed: int = 0
) -> tuple[npt.NDArray[np.int64], float | None]:
    """The group of each row, largest first, and the silhouette; by default, of the clearest grouping."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    units = unit_rows(vectors)
    n_distinct = len(np.unique(units.round(6), axis=0))
    best, highest, groups = None, _LOWEST_SILHOUETTE, np.zeros(len(units), np.int64)
    with threadpool_limits(1):  # so few rows: threads would only wait for each other
        for n_groups in range(2, _MOST_SENSES + 1) if k is None else [k] * (k > 1):
            if n_groups >= max(n_distinct, 2):
                break
            numbers = KMeans(n_groups, n_init=10, random_state=seed).fit_predict(units)
            score = float(silhouette_score(units, numbers))
            lead = score - _PENALTY * (n_groups - 2)
            if k is not None or lead > highest:
                best, groups, highest = score, numbers, lead
    order = np.argsort(-np.bincount(groups), kind="stable")
    return np.argsort(order)[groups], best


def _collect(
    elmo: Elmo, form: str, texts: Iterable[str | Tokenized], at_most: int, seed: int, reporter: Reporter
) -> tuple[list[Occurrence], int, Counter[str]]:
    """The sentences with a word, at most so many; how many there are; in how many sentences each word is."""
    rng, seen, counts = np.random.default_rng(seed), set[int](), Counter[str]()
    kept: list[Occurrence] = []
    with reporter.counting("Reading the corpus", unit="texts") as advance:
        for chunk in chunked(enumerate(texts), _CHUNK):
            parts = [[text] if isinstance(text, Tokenized) else split_sentences(text) for _, text in chunk]
            numbered = [(index, one) for (index, _), part in zip(chunk, parts, strict=True) for one in part]
            for (index, _), words in zip(numbered, elmo.words([one for _, one in numbered]), strict=True):
                folded = [one.casefold() for one in words]
                counts.update({*folded})
                if form not in folded or hash(tuple(words)) in seen:
                    continue
                seen.add(hash(tuple(words)))
                use = Occurrence(
                    1.0, words[folded.index(form)], folded.index(form), tuple(words), index, str(index)
                )
                place = len(kept) if len(kept) < at_most else int(rng.integers(len(seen)))
                kept[place : place + 1] = [use] if place < at_most else kept[place : place + 1]
            advance(len(chunk))
    if not kept:
        near = difflib.get_close_matches(form, [one for one in counts if one.isalpha()], n=3)
        hint = (
            f"Did you mean {join_names(map(repr, near), last='or')}?" if near else "Look in another corpus."
        )
        raise DataError(f"{form!r} does not occur in the corpus.", remedy=hint)
    return kept, len(seen), counts


def _vectors(
    elmo: Elmo, uses: Sequence[Occurrence], layer: int | None, reporter: Reporter
) -> npt.NDArray[np.float64]:
    """A vector for each use, (n_uses, dim)."""
    parts = []
    with reporter.counting("Embedding its sentences", len(uses), unit="sentences") as advance:
        for part in chunked(uses, _CHUNK):
            texts = [use.words for use in part]
            if layer is None and elmo.has_sentence_vector:
                parts.append(elmo.sentences(texts))
            else:
                rows = elmo.embed(texts).layer(1 if layer is None else layer)
                parts.append(np.stack([row[use.position] for row, use in zip(rows, part, strict=True)]))
            advance(len(part))
    return np.concatenate(parts).astype(np.float64)


def _tag(
    elmo: Elmo, form: str, file: str | Path, layer: int | None, vectors: npt.NDArray[Any], reporter: Reporter
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The sense of each use by the nearest mean of labeled examples, and the names of the senses."""
    config, labels = ReadConfig(text_columns="text"), LabelConfig(label_column="sense")
    examples: list[tuple[str, Occurrence]] = []
    for row in RowSource(file, config, labels, keep=True, say=reporter.note):
        words = elmo.words([row.text])[0]
        folded = [one.casefold() for one in words]
        if str((row.cells or {}).get("word", form)).casefold() == form and form in folded:
            place = folded.index(form)
            examples.append((row.label or "", Occurrence(1.0, words[place], place, tuple(words))))
    names = list(dict.fromkeys(name for name, _ in examples))
    if len(names) < 2:
        raise DataError(
            f"{file} has examples of {len(names)} senses of {form!r}; two are needed.",
            remedy="Give rows with the columns text and sense, whose texts use the word.",
        )
    units = unit_rows(_vectors(elmo, [use for _, use in examples], layer, reporter))
    means = [
        np.mean([unit for unit, (own, _) in zip(units, examples, strict=True) if own == name], axis=0)
        for name in names
    ]
    return cosines(vectors, unit_rows(np.stack(means))).argmax(axis=0), names


def _describe(
    elmo: Elmo,
    form: str,
    uses: Sequence[Occurrence],
    vectors: npt.NDArray[Any],
    groups: npt.NDArray[np.int64],
    names: Sequence[str],
    counts: Counter[str],
) -> list[Sense]:
    """Each sense with its keywords: words of more of its sentences than of the others or, if there is but one
    sense, of the corpus."""
    bags = [{one.casefold() for one in use.words} for use in uses]
    total = Counter(one for bag in bags for one in bag) if groups.any() else counts
    n_total = len(bags) if groups.any() else max(1, max(counts.values()))
    result = []
    for number, name in enumerate(names):
        members = np.flatnonzero(groups == number).tolist()
        if not members:
            continue
        inside = Counter(one for place in members for one in bags[place])
        candidates = [one for one, n in inside.items() if n > 1 and one.isalpha() and one != form]
        strength = {}
        for one, weight in zip(candidates, elmo.sif_weights([candidates]).tolist(), strict=True):
            others = (total[one] - inside[one] + 0.5) / (n_total - len(members) + 1)
            if weight > 0.5 and (ratio := inside[one] / len(members) / others) > 1:  # not too frequent
                strength[one] = weight * inside[one] * math.log(ratio)
        best = sorted(strength, key=lambda one: (-strength[one], one))[:_N_KEYWORDS]
        units = unit_rows(vectors[members])
        scores = cosines(vectors[members], unit_rows(units.mean(axis=0, keepdims=True)))[0]
        order = np.argsort(-scores, kind="stable")[:_N_EXAMPLES].tolist()
        typical = [replace(uses[members[place]], score=float(scores[place])) for place in order]
        result.append(Sense(name, len(members), len(members) / len(uses), best, typical))
    return sorted(result, key=lambda sense: -sense.n_uses)


def _make_report(result: WordSenses, command: str) -> Document:
    """The senses, the map and typical sentences."""
    rows = [
        [one.name, f"{one.share:.1%}", f"{one.n_uses:,}", ", ".join(one.keywords)] for one in result.senses
    ]
    columns = (Column("sense"), Column("share", "right"), Column("uses", "right"), Column("keywords"))
    names, points = [one.name for one in result.senses], np.array(result.points)
    groups = {name: points[[own == name for own, _ in result.uses]] for name in names}
    caption = f"Uses of “{result.word}” in two dimensions ({sum(result.explained):.0%} of the variance)"
    figure = draw_groups(groups, caption=caption)
    examples = [
        Section(
            f"sense-{number}",
            f"Sense {one.name}",
            "\n".join(f"- {' '.join(use.words)}" for use in one.examples),
        )
        for number, one in enumerate(result.senses, 1)
    ]
    silhouette = "" if result.silhouette is None else f" Silhouette: {result.silhouette:.2f}."
    counted = f"{plural(len(names), 'sense')} of “{result.word}” in {len(result.uses):,}"
    return Document(
        f"Senses of “{result.word}”",
        f"{counted} of {result.n_found:,} sentences.\n\nCompared by: {result.compared_by}.{silhouette}",
        (
            Section("senses", "Senses", "", (make_table(columns, rows),)),
            Section("map", "Map", "Each point is a sentence; near points are alike.", (figure,)),
            *examples,
            *([make_details(command)] if command else []),
        ),
    )
