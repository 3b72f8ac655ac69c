"""The order in which kernels run, and where workers meet: before a kernel that depends on one that
ran since they met last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ztorch.lower.placement import SLOTS, Location


@dataclass(frozen=True)
class LoopSpan:
    """Kernels that are repeated. Spans lie inside one another, or apart."""

    first: int  # number of the first kernel
    end: int  # number of the kernel after the last one
    turns: int  # how often they run, at most
    proceed: Location | None = None  # of a bool, where the loop ends before a turn if it is false


Step = TypeVar("Step", bound=Any)  # has `locations`
Access = tuple[Location, bool]  # where a kernel reads, or writes


def meetings(accesses: Sequence[Sequence[Access]], loops: Sequence[LoopSpan]) -> list[bool]:
    """For each kernel, whether workers meet before it.

    A kernel of a loop is compared with those before it in its turn and with those of the turn
    before. Buffers that move in different ways from turn to turn are compared as a whole.

    Args:
        accesses: The buffers of each kernel.
        loops: Loops around kernels, outer ones first.
    """
    meets = [False] * len(accesses)
    touched: list[Access] = []  # since workers met last
    turns_around = [[loop.turns for loop in loops if loop.first <= k < loop.end]
                    for k in range(len(accesses))]
    for k, turn in _order(0, len(accesses), list(loops)):
        if turn is None:  # the head of a loop, where all workers read whether it goes on
            meets[k], touched = True, []
            continue
        now = [(_moved(location, turn), _extent(location, turns_around[k]), location.strides, writes)
               for location, writes in accesses[k]]
        if any((writes or wrote) and _conflict(a, b)
               for *a, writes in now for *b, wrote in touched):  # type: ignore[misc]
            meets[k], touched = True, []
        touched += now  # type: ignore[arg-type]
    return meets


def _order(first: int, end: int, loops: list[LoopSpan], turn: tuple[int, ...] = ()
           ) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Kernels in the order in which they run, with the turn of each loop around; of each loop the
    first two turns."""
    k = first
    while k < end:
        inner = next((loop for loop in loops if loop.first == k), None)
        if inner is None:
            yield k, turn
            k += 1
            continue
        rest = loops[loops.index(inner) + 1:]
        for t in range(min(2, inner.turns)):
            if inner.proceed is not None:
                yield k, None
            yield from _order(k, inner.end, rest, (*turn, t))
        k = inner.end


def runs_of(steps: Sequence[Step], loops: Sequence[LoopSpan],
            goes_on: Callable[[Location], bool], first: int = 0, end: int | None = None,
            turn: tuple[int, ...] = ()) -> Iterator[tuple[Step, tuple[Location, ...]]]:
    """Each run of each step in order, with its locations at that turn."""
    k = first
    while k < (len(steps) if end is None else end):
        inner = next((n for n, loop in enumerate(loops) if loop.first == k), None)
        if inner is None:
            yield steps[k], tuple(_moved(place, turn) for place in steps[k].locations)
            k += 1
            continue
        loop = loops[inner]
        for t in range(loop.turns):
            now = (*turn, t)
            if loop.proceed is not None and not goes_on(_moved(loop.proceed, now)):
                break
            yield from runs_of(steps, loops[inner + 1:], goes_on, k, loop.end, now)
        k = loop.end


def _moved(location: Location, turn: tuple[int, ...]) -> Location:
    """The location at a turn."""
    offset = location.offset + sum(t * s for t, s in zip(turn, location.strides, strict=False))
    return replace(location, offset=offset)


def _extent(location: Location, turns: Sequence[int]) -> Location:
    """All that a location covers in all turns."""
    ways = [(n - 1) * s for n, s in zip(turns, location.strides, strict=False)]
    low, high = sum(w for w in ways if w < 0), sum(w for w in ways if w > 0)
    return replace(location, offset=location.offset + low, size=location.size + high - low)


def _conflict(a: Sequence, b: Sequence) -> bool:
    same = a[2] == b[2] or a[0].space in SLOTS
    return a[0].overlaps(b[0]) if same else a[1].overlaps(b[1])
