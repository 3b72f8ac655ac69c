"""What is known of the places of elements that each thread reads or writes.

Only what every thread certainly does is judged: accesses outside of loops and branches, at places
that are computed from the numbers of the thread and its block alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch.graph.thread_bounds import Bounds
from ztorch.graph.value import Value, topological
from ztorch.kernels.source import Source

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative,
    "floor_divide": np.floor_divide, "remainder": np.remainder, "bitwise_xor": np.bitwise_xor,
    "minimum": np.minimum, "maximum": np.maximum}


@dataclass(frozen=True)
class Access:
    """What each thread of a block does to one element of an array."""

    source: Source
    node: ast.expr
    writes: bool
    threads: dict[int, int]  # a thread by its place; the last one of several

    @property
    def verb(self) -> str:
        return "writes" if self.writes else "reads"

    @property
    def line(self) -> int:
        """The line in the user's file."""
        return self.source.first_line + self.node.lineno - 1


@dataclass
class ThreadPlaces:
    """The numbers of a thread, and the values that differ from thread to thread."""

    counts: dict[Value, int] = field(default_factory=dict)  # how many values each number has
    read: dict[Value, Value] = field(default_factory=dict)  # elements that were read: their places
    # The values that numbers have in the threads of the first block.
    values: dict[Value, np.ndarray] = field(default_factory=dict)
    # What all threads did since they last met, by the name of the array.
    accesses: dict[str, list[Access]] = field(default_factory=dict)

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

    def met(self) -> None:
        """Threads have met, so that what they did before is done."""
        self.accesses.clear()

    def check_order(self, source: Source, node: ast.expr, array: str, place: Value,
                    writes: bool = False) -> None:
        """Raises an error if another thread accesses the same element, one of them writes, and
        they have not met in between."""
        values = self._values(place) if self.values else None
        if values is None:
            return
        size = next(iter(self.values.values())).shape
        places = np.broadcast_to(values, size).tolist()
        access = Access(source, node, writes, {e: t for t, e in enumerate(places)})
        earlier = self.accesses.setdefault(array, [])
        for other in earlier:
            if other.writes == writes:  # two writes of one value are none
                continue
            for thread, element in enumerate(places):
                if other.threads.get(element, thread) != thread:
                    raise source.error(
                        node, f"thread {thread} {access.verb} {ast.unparse(node)}, which thread "
                        f"{other.threads[element]} {other.verb} in line {other.line}, and nothing "
                        "says which comes first", "put zt.barrier() between the two lines"
                        if access.line != other.line else "read it into a variable, and put "
                        "zt.barrier() before the write")
        earlier.append(access)

    def _values(self, v: Value) -> Any:
        """The value in each thread of the first block; None: unknown."""
        if v in self.values:
            return self.values[v]
        if v.op.name == "full" and v.dtype.is_int:
            return np.int64(v.attrs["value"])
        parts = [self._values(x) for x in v.args] if v.op.name in _FUNCTIONS else [None]
        return None if any(x is None for x in parts) else _FUNCTIONS[v.op.name](*parts)

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
