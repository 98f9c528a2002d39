"""Rectangles whose areas are in proportion to numbers."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rectangle:
    """A place in a picture, in per cent of its width and height."""

    left: float
    top: float
    width: float
    height: float


def rectangles(
    areas: Sequence[float], ratio: float, inside: Rectangle = Rectangle(0.0, 0.0, 100.0, 100.0)
) -> list[Rectangle]:
    """One rectangle for each of ``areas``, which are positive and sorted, the largest first.

    ``ratio``: of the picture's width to its height. The areas are halved, and the longer side of the place is cut,
    until one is left.
    """
    if len(areas) <= 1:
        return [inside] * len(areas)
    total, first, split = sum(areas), areas[0], 1
    while split < len(areas) - 1 and first + areas[split] / 2 < total / 2:
        first += areas[split]
        split += 1
    share = first / total
    left, top, width, height = inside.left, inside.top, inside.width, inside.height
    if width * ratio >= height:
        halves = (
            Rectangle(left, top, width * share, height),
            Rectangle(left + width * share, top, width * (1 - share), height),
        )
    else:
        halves = (
            Rectangle(left, top, width, height * share),
            Rectangle(left, top + height * share, width, height * (1 - share)),
        )
    return [*rectangles(areas[:split], ratio, halves[0]), *rectangles(areas[split:], ratio, halves[1])]
