"""What each word adds to a prediction: the probability that is lost without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def drop_each_word(words: list[str]) -> list[list[str]]:
    """A text, and the text without each of its words."""
    return [words, *([*words[:place], *words[place + 1 :]] for place in range(len(words)))]


def word_influence(probabilities: Sequence[npt.NDArray[np.floating[Any]]]) -> list[float]:
    """How much each word adds to the probability of the text's most probable class.

    Args:
        probabilities: Of each class, for the texts that ``drop_each_word`` gives.
    """
    whole, *rest = probabilities
    best = int(whole.argmax())
    return [float(whole[best] - without[best]) for without in rest]
