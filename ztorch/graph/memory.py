"""The static memory plan: the offset of each buffer in one arena, whose space is reused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ztorch.abi import BUFFER_ALIGN


@dataclass(frozen=True, slots=True)
class ArenaBuffer:
    """A buffer that the arena holds for some steps."""

    id: Hashable
    size: int  # bytes
    first: int  # the step that writes it
    last: int  # the last step that needs it
    align: int = BUFFER_ALIGN  # bytes


def plan(buffers: Sequence[ArenaBuffer]) -> tuple[dict[Hashable, int], int]:
    """The offset of each buffer, and the size of the arena in bytes. Equal input, equal plan.

    Buffers that are alive at the same step never overlap. An optimal plan is too expensive: each
    buffer goes into the tightest gap that holds it, in two orders that are improved a few times.
    The result is within a few percent of the optimum.

    >>> plan([ArenaBuffer("x", 64, 0, 1), ArenaBuffer("y", 64, 1, 2), ArenaBuffer("z", 64, 2, 3)])
    ({'x': 0, 'y': 64, 'z': 0}, 128)
    """
    if len({b.id for b in buffers}) != len(buffers):
        raise ValueError("two buffers have the same id")
    for b in buffers:
        if b.size < 0 or b.last < b.first or b.align < 1:
            raise ValueError(f"{b} is not a valid buffer: it needs size >= 0, last >= first, "
                             "align >= 1")
    enough = lower_bound([replace(b, size=_up(b.size, b.align)) for b in buffers])
    best: tuple[dict[Hashable, int], int] = ({}, 0)
    orders = _largest_first(buffers), _crowded_first(buffers)
    for _ in range(1 + min(32, 8000 // max(1, len(buffers)))):
        for order in orders:  # in turns: one of them is often right at once
            offsets, total = _place(order)
            if not best[0] or total < best[1]:
                best = (offsets, total)
            if best[1] <= enough:
                return {b.id: best[0][b.id] for b in buffers}, best[1]
            # The buffer at the top of the arena was placed too late: place it first next time.
            top = max(range(len(order)), key=lambda k: offsets[order[k].id] + order[k].size)
            order.insert(0, order.pop(top))
    return {b.id: best[0][b.id] for b in buffers}, best[1]


def lower_bound(buffers: Sequence[ArenaBuffer]) -> int:
    """The most bytes alive at one step, which every plan needs."""
    return max(_alive(buffers).values(), default=0)


def _alive(buffers: Sequence[ArenaBuffer]) -> dict[int, int]:
    """The bytes alive after each step at which this number changes, in order of steps."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + b.size
        change[b.last + 1] = change.get(b.last + 1, 0) - b.size
    steps = sorted(change)
    return dict(zip(steps, accumulate(change[at] for at in steps), strict=True))


# Sorting is stable: equal buffers keep the caller's order, whatever their ids are.

def _largest_first(buffers: Sequence[ArenaBuffer]) -> list[ArenaBuffer]:
    return sorted(buffers, key=lambda b: (-b.size, b.first))


def _crowded_first(buffers: Sequence[ArenaBuffer]) -> list[ArenaBuffer]:
    """Buffers that are alive when the arena is fullest come first, since gaps cost most there."""
    alive = _alive(buffers)
    steps, sizes = list(alive), list(alive.values())

    def crowd(b: ArenaBuffer) -> int:
        return max(sizes[bisect_left(steps, b.first):bisect_left(steps, b.last + 1)])

    return sorted(buffers, key=lambda b: (-crowd(b), -b.size))


def _place(buffers: Sequence[ArenaBuffer]) -> tuple[dict[Hashable, int], int]:
    """Places each buffer, in this order, into the tightest gap that is free while it is alive."""
    offsets: dict[Hashable, int] = {}
    placed = np.zeros((4, len(buffers)), np.int64)  # first, last, at, end: sorted by `at`
    count = total = 0
    for b in buffers:
        offsets[b.id] = 0
        if b.size == 0:
            continue
        first, last, at, end = placed[:, :count]
        beside = (first <= b.last) & (last >= b.first)
        offset = _tightest_gap(at[beside], end[beside], b)
        k = int(at.searchsorted(offset, "right"))
        placed[:, k + 1:count + 1] = placed[:, k:count]
        placed[:, k] = b.first, b.last, offset, offset + b.size
        count += 1
        offsets[b.id] = offset
        total = max(total, offset + b.size)
    return offsets, total


def _tightest_gap(at: np.ndarray, end: np.ndarray, b: ArenaBuffer) -> int:
    """The start of the smallest gap that holds b, or else the end of all buffers beside it."""
    start = np.zeros(len(at) + 1, np.int64)  # the first place after each of them
    np.maximum.accumulate(end, out=start[1:])
    start += -start % b.align
    spare = at - start[:-1]
    spare -= b.size
    if not spare.size:
        return 0
    tightest = spare.view(np.uint64).argmin()  # negative numbers are the largest
    return int(start[tightest] if spare[tightest] >= 0 else start[-1])


def _up(at: int, align: int) -> int:
    return -(-at // align) * align
