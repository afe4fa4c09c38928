from __future__ import annotations

import numpy as np
import pytest

from elmokit.text.batching import Streams, bucket_batches, chunked
from elmokit.text.corpus import Documents


def documents(*texts: list[int]) -> Documents:
    lengths = [len(text) for text in texts]
    ids = np.array([place for text in texts for place in text], dtype=np.uint16)
    return Documents(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


TWO = documents([2, 10, 11, 3], [2, 20, 21, 22, 3])


def test_one_stream_reads_forwards_and_each_document_backwards() -> None:
    forward, backward = Streams(TWO, 1, 100).window(0)
    assert forward[:, 0].tolist() == [2, 10, 11, 3, 2, 20, 21, 22, 3]
    assert backward[:, 0].tolist() == [3, 11, 10, 2, 3, 22, 21, 20, 2]


@pytest.mark.parametrize("texts", [[], [[5]]])
def test_text_without_a_pair_has_no_window(texts: list[list[int]]) -> None:
    assert len(Streams(documents(*texts), 4, 8)) == 0


@pytest.mark.parametrize("index", [-1, 2])
def test_window_outside_the_pass_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        Streams(TWO, 3, 2).window(index)


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([9, 1, 8, 2, 1], 18, [[1, 4, 3], [2, 0]]),
        ([3, 50, 60], 10, [[0], [1], [2]]),  # longer than the budget
        ([], 10, []),
    ],
)
def test_batches_hold_texts_of_similar_length(
    lengths: list[int], budget: int, batches: list[list[int]]
) -> None:
    assert [batch.tolist() for batch in bucket_batches(lengths, budget)] == batches


def test_generator_shuffles_batches_and_is_all_that_does() -> None:
    lengths = [1 + number % 7 for number in range(200)]
    plain, again = bucket_batches(lengths, 20), bucket_batches(lengths, 20)
    first, second, other = (
        bucket_batches(lengths, 20, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert [batch.tolist() for batch in plain] == [batch.tolist() for batch in again]
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]
    assert [batch.tolist() for batch in first] != [batch.tolist() for batch in other]


def test_chunks_end_with_their_number_of_items_or_once_they_are_too_large() -> None:
    assert [*chunked(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [*chunked(["a", "bb", "ccc", "d", "e", "f", "g"], 3, len, 3)] == [
        ["a", "bb", "ccc"],
        ["d", "e", "f"],
        ["g"],
    ]
    assert [*chunked(["four", "a", "b", "long"], 9, len, 3)] == [["four"], ["a", "b", "long"]]
    assert [*chunked([], 2)] == []
