"""What is known of the places of elements that each thread reads or writes.

Only what every thread certainly does is judged: accesses outside of loops and branches, at places
that are sums of the numbers of the thread and its block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ztorch.graph.thread_bounds import Bounds
from ztorch.graph.value import Value, topological


@dataclass
class ThreadPlaces:
    """The numbers of a thread, and the values that differ from thread to thread."""

    counts: dict[Value, int] = field(default_factory=dict)  # how many values each number has
    read: dict[Value, Value] = field(default_factory=dict)  # elements that were read: their places

    def reach(self, place: Value) -> Bounds | None:
        """The smallest and the largest value of a place, both of which occur; None: unknown."""
        sum_ = _terms(place, self.counts)
        if sum_ is None:
            return None
        terms, low = sum_
        high = low
        for v, factor in terms.items():
            far = factor * (self.counts[v] - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        return low, high

    def collide(self, number: Value, place: Value, new: Value) -> bool:
        """Whether threads that differ in a number alone write different values to one element."""
        sum_ = _terms(place, self.counts)
        return sum_ is not None and self.counts.get(number, 1) > 1 and (
            self._depends(new, number) and not any(self._depends(v, number) for v in sum_[0]))

    def _depends(self, v: Value, number: Value) -> bool:
        return any(part is number or (part in self.read and self._depends(self.read[part], number))
                   for part in topological([v]))


def _terms(v: Value, counts: Mapping[Value, int]) -> tuple[dict[Value, int], int] | None:
    """A value as a sum of numbers times integers, and a constant; None if it is no such sum."""
    if v in counts:
        return {v: 1}, 0
    if v.op.name == "full" and v.dtype.is_int:
        return {}, int(v.attrs["value"])
    if v.op.name not in ("add", "sub", "mul"):
        return None
    a, b = (_terms(x, counts) for x in v.args)
    if a is None or b is None:
        return None
    if v.op.name == "mul":
        if a[0] and b[0]:
            return None
        (terms, const), factor = (a, b[1]) if a[0] else (b, a[1])
        return {x: c * factor for x, c in terms.items() if factor}, const * factor
    sign = -1 if v.op.name == "sub" else 1
    terms = dict(a[0])
    for x, c in b[0].items():
        terms[x] = terms.get(x, 0) + sign * c
    return {x: c for x, c in terms.items() if c}, a[1] + sign * b[1]
