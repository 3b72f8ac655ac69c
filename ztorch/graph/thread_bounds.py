"""The range of an integer of a thread, as far as the compiler knows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from ztorch.dtypes import i32
from ztorch.graph.value import Value

Bounds = tuple[int, int]  # the smallest and the largest number
ANY: Bounds = (-(1 << 31), (1 << 31) - 1)


def _extremes(combine: Callable[[int, int], int], *bounds: Bounds) -> Bounds:
    ends = [combine(*pair) for pair in itertools.product(*bounds)]
    return min(ends), max(ends)


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    if b[0] <= 0:
        return ANY
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


RULES: dict[str, Callable[..., Bounds]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": lambda a, b: _extremes(lambda x, y: x * y, a, b),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floor_divide": lambda a, b: _extremes(lambda x, y: x // y, a, b) if b[0] > 0 else ANY,
    "remainder": _remainder,
    "where": lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}


def bounds_of(v: Value, known: Mapping[Value, Bounds]) -> Bounds:
    """The bounds of a number.

    Args:
        v: A whole number.
        known: Bounds of the numbers that it is computed from.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> t = leaf("thread", "t", (), "int32")
    >>> bounds_of(t * 2 + 1, {t: (0, 31)})
    (1, 63)
    """
    if v in known:
        return known[v]
    if v.op.name == "full" and not v.dtype.is_float:
        return int(v.attrs["value"]), int(v.attrs["value"])
    rule = RULES.get(v.op.name)
    if v.dtype is not i32 or rule is None:
        return ANY
    low, high = rule(*(bounds_of(a, known) for a in v.args))
    return (low, high) if ANY[0] <= low and high <= ANY[1] else ANY


def trip_count_of(start: Bounds, stop: Bounds, step: int) -> int:
    """The most iterations that a loop can take.

    >>> trip_count_of((0, 63), (100, 100), 64)
    2
    """
    return max(0, -((start[0] - stop[1]) // step))


def flat(iterations: Sequence[Value], most: Sequence[int]) -> Value | int:
    """The number of an iteration of nested loops.

    Args:
        iterations: The number of the iteration of each loop, the outer one first.
        most: The most iterations of each.
    """
    place: Value | int = 0
    for iteration, n in zip(iterations, most, strict=True):
        place = place * n + iteration
    return place
