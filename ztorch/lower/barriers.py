"""The order of kernels, and where barriers are: before each kernel that depends on one that has run
since the last barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from ztorch.abi import runs
from ztorch.lower.locations import Location
from ztorch.lower.tuning import LONE_CYCLES, LONE_ITERATIONS


@dataclass(frozen=True)
class LoopSpan:
    """Kernels that a loop repeats. Two spans are nested or disjoint."""

    first: int  # number of the first kernel
    end: int  # number of the kernel after the last one
    trip_count: int  # iterations, at most
    proceed: Location | None = None  # of a bool; the loop ends once it is false
    lone: bool = False  # whether one worker may run it while the others wait


class BufferAccess(NamedTuple):
    """A buffer of a kernel."""

    location: Location
    writes: bool  # whether it is written
    own: bool = False  # whether each worker accesses only its part: equal parts, in order


# The location in the current iteration, the extent over all iterations, and the access.
Accessed = tuple[Location, Location, BufferAccess]
Step = TypeVar("Step", bound=Any)  # has `locations`


def barriers_before(accesses: Sequence[Sequence[BufferAccess]], loops: Sequence[LoopSpan],
                    apart: bool = False) -> list[bool]:
    """For each kernel, whether there is a barrier before it.

    A kernel in a loop is compared with the kernels before it in the same iteration, and with those
    of the previous iteration. Two buffers whose offsets advance by different strides per iteration
    are compared by all bytes that they cover in the loop. Workers read the bool of a loop after a
    barrier of its own; those that leave the loop first must not overwrite it.

    Args:
        accesses: The buffers of each kernel.
        loops: Loops around kernels, outer ones first.
        apart: Whether workers meet where loops begin, and go on with their own parts: one may be
            any number of iterations ahead of another. Default: `False`.
    """
    barriers = [False] * len(accesses)
    touched: list[Accessed] = []  # buffers accessed since the last barrier
    trip_counts = [[loop.trip_count for loop in loops if loop.first <= k < loop.end]
                   for k in range(len(accesses))]
    conflict = _conflict_apart if apart else _conflict

    def accessed(access: BufferAccess, iterations: Mapping[int, int],
                 counts: Sequence[int]) -> Accessed:
        return _moved(access.location, iterations), _extent(access.location, counts), access

    def tested(k: int, iterations: Mapping[int, int]) -> list[Accessed]:
        """The bools of the loops around a kernel."""
        return [accessed(BufferAccess(s.proceed, False), iterations, trip_counts[k]) for s in loops
                if s.proceed is not None and s.first <= k < s.end]

    def heads(loop: int, iterations: Mapping[int, int]) -> bool:
        if loops[loop].proceed is not None or (apart and not iterations[loop]):
            touched[:] = tested(loops[loop].first, iterations)
        return True

    spans = [(s.first, s.end, min(2, s.trip_count)) for s in loops]
    for k, iterations in runs(len(accesses), spans, heads):
        current = [accessed(BufferAccess(*access), iterations, trip_counts[k])
                   for access in accesses[k]]
        if any((a[2].writes or b[2].writes) and conflict(a, b)
               for a in current for b in touched):
            barriers[k] = True
            touched[:] = tested(k, iterations)
        touched += current
    return barriers


def lone_loops(loops: Sequence[LoopSpan], work: Sequence[tuple[float, int, bool]]
               ) -> list[LoopSpan]:
    """The loops, marked where one worker may run them alone: there, workers meet more often than
    some machines can do it. Whether it is faster is found out while the program runs.

    Args:
        loops: Loops around kernels, outer ones first.
        work: For each kernel its cycles, how often it runs, and whether there is a barrier before
            it.
    """
    spans: list[LoopSpan] = []
    for loop in loops:
        inside = work[loop.first:loop.end]
        meetings = sum(runs for _, runs, barrier in inside if barrier)
        cycles = sum(cycles * runs for cycles, runs, _ in inside)
        within = any(s.lone and s.first <= loop.first < s.end for s in spans)
        spans.append(replace(loop, lone=not within and loop.trip_count >= LONE_ITERATIONS and (
            cycles < meetings * LONE_CYCLES)))
    return spans


def runs_of(steps: Sequence[Step], loops: Sequence[LoopSpan], goes_on: Callable[[Location], bool]
            ) -> Iterator[tuple[Step, tuple[Location, ...]]]:
    """Each run of each step in order, with its locations in that iteration."""

    def head(loop: int, iterations: Mapping[int, int]) -> bool:
        proceed = loops[loop].proceed
        return proceed is None or goes_on(_moved(proceed, iterations))

    for k, iterations in runs(len(steps), [(s.first, s.end, s.trip_count) for s in loops], head):
        yield steps[k], tuple(_moved(place, iterations) for place in steps[k].locations)


def _moved(location: Location, iterations: Mapping[int, int]) -> Location:
    """The location in an iteration of the enclosing loops."""
    distance = sum(t * s for t, s in zip(iterations.values(), location.strides, strict=False))
    return location.moved(distance)


def _extent(location: Location, trip_counts: Sequence[int]) -> Location:
    """All bytes that a location covers in all iterations."""
    distances = [(n - 1) * s for n, s in zip(trip_counts, location.strides, strict=False)]
    low, high = sum(d for d in distances if d < 0), sum(d for d in distances if d > 0)
    return location.moved(low, high - low)


def _conflict(a: Accessed, b: Accessed) -> bool:
    """Whether two buffers overlap in the current iterations; if they advance by different strides,
    in any."""
    return a[0].overlaps(b[0]) if a[0].strides == b[0].strides else a[1].overlaps(b[1])


def _conflict_apart(a: Accessed, b: Accessed) -> bool:
    """Whether one worker may access what another one does, in any two iterations."""
    if not a[1].overlaps(b[1]):
        return False
    if not (a[2].own and b[2].own) or a[0].size != b[0].size or a[0].strides != b[0].strides:
        return True
    *outer, stride = [n for n in a[0].strides if n] or [0]
    distance = a[2].location.distance(b[2].location)
    if outer or not stride:
        return bool(outer or distance)
    # The parts of two iterations are the same bytes or none.
    return abs(stride) < a[0].size or distance % stride != 0
