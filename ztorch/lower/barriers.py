"""The order of kernels, and where workers meet: before a kernel that depends on one that ran since
their last meeting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ztorch.abi import runs
from ztorch.lower.placement import SLOTS, Location


@dataclass(frozen=True)
class LoopSpan:
    """Kernels that are repeated. Spans are inside one another, or apart."""

    first: int  # number of the first kernel
    end: int  # number of the kernel after the last one
    turns: int  # how often they run, at most
    proceed: Location | None = None  # of a bool: the loop ends once it is false


Step = TypeVar("Step", bound=Any)  # has `locations`
Access = tuple[Location, bool]  # where a kernel reads, or writes


def meetings(accesses: Sequence[Sequence[Access]], loops: Sequence[LoopSpan]) -> list[bool]:
    """For each kernel, whether workers meet before it.

    A kernel of a loop is compared with those before it in its turn and with those of the iteration
    before. Buffers that move in different ways from one iteration to the next are compared as a
    whole.

    Args:
        accesses: The buffers of each kernel.
        loops: Loops around kernels, outer ones first.
    """
    meets = [False] * len(accesses)
    touched: list[Any] = []  # since workers met last
    around = [[loop.turns for loop in loops if loop.first <= k < loop.end]
              for k in range(len(accesses))]

    def heads(loop: int, turns: Mapping[int, int]) -> bool:
        if loops[loop].proceed is not None:  # all workers read whether it goes on, then write
            meets[loops[loop].first] = True
            touched.clear()
        return True

    for k, turns in runs(len(accesses), [(s.first, s.end, min(2, s.turns)) for s in loops], heads):
        now = [(_moved(location, turns), _extent(location, around[k]), writes)
               for location, writes in accesses[k]]
        if any((writes or wrote) and _conflict(a, b)
               for *a, writes in now for *b, wrote in touched):
            meets[k] = True
            touched.clear()
        touched += now
    return meets


def runs_of(steps: Sequence[Step], loops: Sequence[LoopSpan], goes_on: Callable[[Location], bool]
            ) -> Iterator[tuple[Step, tuple[Location, ...]]]:
    """Each run of each step in order, with its locations at that iteration."""

    def head(loop: int, turns: Mapping[int, int]) -> bool:
        proceed = loops[loop].proceed
        return proceed is None or goes_on(_moved(proceed, turns))

    for k, turns in runs(len(steps), [(s.first, s.end, s.turns) for s in loops], head):
        yield steps[k], tuple(_moved(place, turns) for place in steps[k].locations)


def _moved(location: Location, turns: Mapping[int, int]) -> Location:
    """The location at an iteration of the loops around it."""
    moves = sum(t * s for t, s in zip(turns.values(), location.strides, strict=False))
    return replace(location, offset=location.offset + moves)


def _extent(location: Location, turns: Sequence[int]) -> Location:
    """All that a location covers in all iterations."""
    ways = [(n - 1) * s for n, s in zip(turns, location.strides, strict=False)]
    low, high = sum(w for w in ways if w < 0), sum(w for w in ways if w > 0)
    return replace(location, offset=location.offset + low, size=location.size + high - low)


def _conflict(a: Sequence[Location], b: Sequence[Location]) -> bool:
    """Whether two buffers overlap, each given at its turn and with all it covers in all
    iterations."""
    alike = a[0].strides == b[0].strides or a[0].space in SLOTS
    return a[0].overlaps(b[0]) if alike else a[1].overlaps(b[1])
