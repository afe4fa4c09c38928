"""Names beside the points of a picture, where nothing is in their way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from elmokit.tasks.drawing import FONT, columns_of

__all__ = ["Box", "along_line", "place_labels", "text_width", "touch"]

Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in picture units."""

_ADVANCE = 0.53  # the width of a column in font sizes: a little more than most fonts take
_REACHES = (9, 14, 22, 32, 44, 58, 74, 92, 112, 134, 158)
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def text_width(text: str) -> float:
    """About how wide a text is in a picture."""
    return columns_of(text) * FONT * _ADVANCE


def place_labels(
    names: Sequence[str], spots: Sequence[tuple[float, float]], frame: Box, lines: Sequence[Box] = ()
) -> list[Box]:
    """Where each name stands: near its spot, inside the frame, on no other name and on no spot.

    Each tries the places around its spot, from near to far; at each distance rather one that is on none
    of ``lines``. What finds none at all keeps the nearest.
    """
    dots = [(x - 7, y - 7, x + 7, y + 7) for x, y in spots]
    near = [sum(math.dist(spot, other) < 60 for other in spots) for spot in spots]
    found: dict[int, Box] = {}
    for row in sorted(range(len(spots)), key=lambda row: -near[row]):
        width, height = text_width(names[row]) + 4, FONT + 3
        taken = [*dots, *found.values()]
        choices = [_beside(spots[row], width, height, reach, side) for reach in _REACHES for side in _SIDES]
        free = [
            box for box in choices if _inside(box, frame) and not any(touch(box, other) for other in taken)
        ]
        clear = [box for box in free if not any(touch(box, line) for line in lines)]
        far = len(choices) // 2  # a name is better on a line than far away
        close = [box for box in clear if box in choices[:far]]
        found[row] = next(iter(close or free or choices))
    return [found[row] for row in range(len(spots))]


def touch(one: Box, other: Box) -> bool:
    """Whether two boxes have anything in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def along_line(start: tuple[float, float], end: tuple[float, float]) -> list[Box]:
    """Small boxes that cover a straight line."""
    n = max(1, math.ceil(math.dist(start, end) / 5))
    steps = [
        (start[0] + (end[0] - start[0]) * k / n, start[1] + (end[1] - start[1]) * k / n) for k in range(n + 1)
    ]
    return [(x - 1.5, y - 1.5, x + 1.5, y + 1.5) for x, y in steps]


def _beside(
    spot: tuple[float, float], width: float, height: float, reach: float, side: tuple[int, int]
) -> Box:
    across, up = side
    x = spot[0] + across * (reach * (0.7 if up else 1.0) + width / 2)
    y = spot[1] + up * (reach * (0.7 if across else 1.0) + height / 2)
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _inside(box: Box, frame: Box) -> bool:
    return frame[0] <= box[0] and box[2] <= frame[2] and frame[1] <= box[1] and box[3] <= frame[3]
