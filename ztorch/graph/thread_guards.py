"""Bounds tests that a loop can drop because all of its iterations stay inside of arrays.

A row whose bounds are data clips the index of reads `x[k]` to the array, and masks writes outside
of it. Two comparisons before its loop check whether all iterations are in bounds; then neither is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ztorch.graph.thread_program import Barrier, CountedLoop, Exchange, statements_of, values_of
from ztorch.graph.value import Value


class Inside(NamedTuple):
    """Facts that hold in a loop whose counter, with each base added, is from 0 to below a count."""

    counts: dict[Value | None, int]  # by base, which the iterations do not change; None: 0
    places: dict[Value, Value]  # that are clipped, and the same ones unclipped
    truths: list[Value]  # conditions that hold


def inside(loop: CountedLoop) -> Inside | None:
    """The tests that iterations can drop; None if there are none or the loop is not an innermost
    one.

    Args:
        loop: A loop, in whose body places are clipped to arrays.
    """
    body = [*statements_of(loop.before_test), *statements_of(loop.body)]
    if any(isinstance(s, (CountedLoop, Barrier, Exchange)) for s in body):
        return None
    inner = {loop.counter, *(s.result for s in body if hasattr(s, "result"))}
    used = list(_parts([v for s in body for v in values_of(s)]))
    guards = Inside({}, {}, [])
    for v in used:
        end = _clipped_to(v)
        place = v.args[0].args[0] if end is not None else v
        if end is not None and _runs_along(place, loop.counter, inner):
            base = _base(place)
            guards.places[v] = place
            guards.counts[base] = min(end + 1, guards.counts.get(base, end + 1))
    for v in used:
        if len(v.args) == 2 and _runs_along(v.args[0], loop.counter, inner):
            count, limit = guards.counts.get(_base(v.args[0])), _known(v.args[1])
            if count is not None and limit is not None and (
                    (v.op.name == "greater_equal" and limit <= 0)
                    or (v.op.name == "less" and limit >= count)):
                guards.truths.append(v)
    return guards if guards.places else None


def _parts(values: list[Value]) -> Iterator[Value]:
    """All values that numbers of a thread are computed from."""
    visited: set[Value] = set()
    while values:
        v = values.pop()
        if v not in visited:
            visited.add(v)
            yield v
            values += v.args


def _clipped_to(v: Value) -> int | None:
    """n, if the value is a number that is clipped to 0 and n."""
    if v.op.name != "minimum" or v.args[0].op.name != "maximum":
        return None
    low, high = _known(v.args[0].args[1]), _known(v.args[1])
    return high if low == 0 and high is not None and high >= 0 else None


def _base(place: Value) -> Value | None:
    return place.args[0] if place.args else None


def _runs_along(place: Value, counter: Value, inner: set[Value]) -> bool:
    """Whether a place is the counter, or the counter and numbers that iterations do not change."""
    return place is counter or (place.op.name == "add" and place.args[1] is counter
                                and inner.isdisjoint(_parts([place.args[0]])))


def _known(v: Value) -> int | None:
    return int(v.attrs["value"]) if v.op.name == "full" and v.dtype.is_int else None
