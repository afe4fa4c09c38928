from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from elmokit.text.batching import Streams, bucket_batches
from elmokit.text.cleaning import normalizer
from elmokit.text.corpus import Documents
from elmokit.text.settings import PIPELINES
from elmokit.text.tokenizing import SPECIALS, TextPipeline, split_sentences
from elmokit.text.vocabulary import N_CHARACTERS, Characters, Vocabulary

Ints = npt.NDArray[np.int64]
Pairs = Counter[tuple[int, int]]

PIPELINE = {name: TextPipeline(config) for name, config in PIPELINES.items()}
# Any text at all, and text thick with what the patterns look for.
_PARTS = (
    *("a", "I", "it's", "don't", "N'T", "U.S.", "1,000", "10:30", "co-op", "--", "...", "http://", "www."),
    *("me@x.org", "@", "&", "&amp;", "&#39;", "#39;", "quot;", "lt;", "<b>", "</b>", "<", ">", "<unk>"),
    *("<url>", "<s>", "\\", "'", "’", '"', "。", "本", "カ", "\u0301", "\u200d", "\u200c", "\u200b"),
    *("\x00", "\x85", "👩", "🏽", "❤️", "ﬁ", "İ", " ", "\n", "\t", "\u3000"),
)
texts = st.text() | st.lists(st.sampled_from(_PARTS), max_size=30).map("".join)


# -- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
@given(text=texts)
@example("👩\u200d👩\u200d👧👍🏽\x00\x1f\x7f\x9f\u2028\ufeff")
@example("n't" * 50 + "'s" * 50 + "a." * 50)
@settings(max_examples=200)
def test_any_text_gives_words_without_white_space_and_always_the_same(name: str, text: str) -> None:
    words = PIPELINE[name].words(text)
    assert words == PIPELINE[name].words(text)
    assert all(word and word.split() == [word] for word in words)
    if not text.split():
        assert words == []


@given(texts)
@settings(max_examples=200)
def test_plain_words_hold_every_character_of_the_cleaned_text(text: str) -> None:
    cleaned = str(normalizer(PIPELINES["plain"]).normalize_str(text))
    assert "".join(PIPELINE["plain"].words(text)) == "".join(cleaned.split())


@given(texts)
@settings(max_examples=200)
def test_classic_words_are_clean_already(text: str) -> None:
    words = [word for word in PIPELINE["classic"].words(text) if word not in ("<url>", "<unk>")]
    assert [word for word in words if word != word.lower()] == []
    assert PIPELINE["classic"].words(" ".join(words)) == words


@pytest.mark.parametrize("name", PIPELINES)
@given(known=texts, text=texts)
@settings(max_examples=50)
def test_tokenizer_file_gives_identical_ids(name: str, known: str, text: str) -> None:
    pipeline = PIPELINE[name]
    words = [*SPECIALS, *sorted(set(pipeline.words(known)) - set(SPECIALS))]
    tokenizer = pipeline.word_tokenizer(words)
    again = Tokenizer.from_str(tokenizer.to_str())
    ids = again.encode(known + " " + text).ids
    assert ids == tokenizer.encode(known + " " + text).ids
    vocabulary = Vocabulary(words)
    assert ids == [vocabulary.id_of(word) for word in pipeline.words(known + " " + text)]


@given(texts | st.text(alphabet="ab .!?。…\"'(”) \nMr"))
def test_sentences_lose_nothing_but_white_space(text: str) -> None:
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


# -- rows and vocabularies --------------------------------------------------------------------


@given(st.lists(st.text(max_size=30).filter(lambda word: word not in SPECIALS)), st.integers(3, 60))
def test_character_rows_decode_to_the_bytes_of_the_word(words: list[str], max_chars: int) -> None:
    rows = Characters(max_chars).rows(words)
    assert rows.shape == (len(words), max_chars)
    for word, row in zip(words, rows.tolist(), strict=True):
        assert all(0 < place < N_CHARACTERS for place in row)
        start, end = row.index(259), row.index(260)  # word start and word end, one up
        assert start == 0
        assert bytes(place - 1 for place in row[1:end]) == word.encode()[: max_chars - 2]
        assert set(row[end + 1 :]) <= {261}


# -- streams ------------------------------------------------------------------------------------


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[list[int]], list[int], int, int]:
    """Documents, the order they are read in, streams and steps."""
    documents = draw(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=20), max_size=12))
    order = draw(st.permutations(range(len(documents))))
    return documents, list(order), draw(st.integers(1, 20)), draw(st.integers(1, 12))


def stored(documents: list[list[int]]) -> Documents:
    flat = [place for document in documents for place in document]
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    return Documents(np.array(flat, dtype=np.uint16), offsets)


def pairs(inputs: Ints, targets: Ints) -> Iterator[tuple[int, int]]:
    return zip(inputs.flatten().tolist(), targets.flatten().tolist(), strict=True)


def pairs_in_stream(documents: list[list[int]]) -> Pairs:
    stream = [place for document in documents for place in document]
    return Counter(itertools.pairwise(stream))


@given(passes())
@settings(max_examples=300)
def test_streams_lose_and_invent_no_pair_either_way(
    case: tuple[list[list[int]], list[int], int, int],
) -> None:
    documents, order, n_streams, n_steps = case
    streams = Streams(stored(documents), n_streams, n_steps, np.array(order, dtype=np.int64))
    forward: Pairs = Counter()
    backward: Pairs = Counter()
    for index in range(len(streams)):
        window = streams.window(index)
        _, n_times, n_wide = window[:, 1:].shape
        assert 1 <= n_times <= n_steps
        assert 1 <= n_wide <= n_streams
        forward.update(pairs(window[0, :-1], window[0, 1:]))
        backward.update(pairs(window[1, :-1], window[1, 1:]))
    ordered = [documents[place] for place in order]
    assert forward == pairs_in_stream(ordered)
    assert backward == pairs_in_stream([document[::-1] for document in ordered])


@given(passes())
def test_each_stream_is_one_unbroken_stretch_of_the_text(
    case: tuple[list[list[int]], list[int], int, int],
) -> None:
    documents, order, n_streams, n_steps = case
    streams = Streams(stored(documents), n_streams, n_steps, np.array(order, dtype=np.int64))
    inputs: list[list[int]] = [[] for _ in range(streams.n_streams)]
    for index in range(len(streams)):
        for stream, column in enumerate(streams.window(index)[0, :-1].T.tolist()):
            inputs[stream] += column
    text = [id_ for place in order for id_ in documents[place]]
    assert [id_ for column in inputs for id_ in column] == text[:-1]
    assert max(map(len, inputs)) - min(map(len, inputs)) <= 1


# -- buckets ----------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(0, 100), max_size=60),
    token_budget=st.integers(1, 300),
    seed=st.none() | st.integers(0, 1000),
)
@settings(max_examples=300)
def test_batches_hold_every_text_once_within_the_budget(
    lengths: list[int], token_budget: int, seed: int | None
) -> None:
    rng = None if seed is None else np.random.default_rng(seed)
    batches = [batch.tolist() for batch in bucket_batches(lengths, token_budget, rng=rng)]
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(max(1, lengths[place]) for place in batch)
        assert len(batch) == 1 or longest * len(batch) <= token_budget
