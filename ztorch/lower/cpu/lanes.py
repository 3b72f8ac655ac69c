"""The lanes of vectors in schedules for a processor."""

from __future__ import annotations

from ztorch.lower.tuning import SHORTEST_VECTOR


def lanes_that_fit(extent: int, lanes: int) -> int:
    """All lanes, or half or a quarter of them where these hold so many elements.

    >>> [lanes_that_fit(n, 16) for n in (100, 9, 8, 5, 4, 1)]
    [16, 16, 8, 8, 4, 4]
    """
    while lanes > SHORTEST_VECTOR and extent <= lanes // 2:
        lanes //= 2
    return lanes


def lanes_refusal(lanes: int, most: int) -> str:
    """Why loops cannot have this many lanes; empty if they can."""
    if not 1 <= lanes <= most or lanes & (lanes - 1):
        return f"lanes({lanes}) must be a power of two, {most} at most on this target"
    return ""
