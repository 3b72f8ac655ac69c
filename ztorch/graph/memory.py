"""The static memory plan: where in one arena each buffer lives, sharing space over time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ztorch.abi import BUFFER_ALIGN


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes that are needed from step `first` to step `last`, both included."""

    id: Hashable
    size: int
    first: int
    last: int
    align: int = BUFFER_ALIGN  # bytes


def plan(buffers: Sequence[Buffer]) -> tuple[dict[Hashable, int], int]:
    """The offset of each buffer and the bytes of the arena. Equal input, equal plan.

    Buffers that live at the same time never overlap. The best arrangement is too dear to find;
    placing each into the tightest gap that holds it, in two orders that are mended a few times,
    comes within a few percent of it.

    >>> plan([Buffer("x", 64, 0, 1), Buffer("y", 64, 1, 2), Buffer("z", 64, 2, 3)])
    ({'x': 0, 'y': 64, 'z': 0}, 128)
    """
    if len({b.id for b in buffers}) != len(buffers):
        raise ValueError("two buffers have the same id")
    for b in buffers:
        if b.size < 0 or b.last < b.first or b.align < 1:
            raise ValueError(f"{b} is no buffer: it needs size >= 0, last >= first, align >= 1")
    enough = lower_bound([replace(b, size=_up(b.size, b.align)) for b in buffers])
    best: tuple[dict[Hashable, int], int] = ({}, 0)
    for order in (_largest_first(buffers), _crowded_first(buffers)):
        for _ in range(1 + min(32, 8000 // max(1, len(order)))):
            offsets, total = _place(order)
            if not best[0] or total < best[1]:
                best = (offsets, total)
            if best[1] <= enough:
                break
            # Who sticks out at the top was placed too late: next time it chooses first.
            top = max(range(len(order)), key=lambda k: offsets[order[k].id] + order[k].size)
            order.insert(0, order.pop(top))
    return {b.id: best[0][b.id] for b in buffers}, best[1]


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The most bytes alive at one step: no plan can do with less."""
    return max(_alive(buffers).values(), default=0)


def _alive(buffers: Sequence[Buffer]) -> dict[int, int]:
    """The bytes alive from each step at which that changes, in order of the steps."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + b.size
        change[b.last + 1] = change.get(b.last + 1, 0) - b.size
    steps = sorted(change)
    return dict(zip(steps, accumulate(change[at] for at in steps), strict=True))


# Sorting is stable: equals keep the caller's order, whatever their ids are.

def _largest_first(buffers: Sequence[Buffer]) -> list[Buffer]:
    return sorted(buffers, key=lambda b: (-b.size, b.first))


def _crowded_first(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Those that live when memory is fullest come first: there every hole costs."""
    alive = _alive(buffers)
    steps, sizes = list(alive), list(alive.values())

    def crowd(b: Buffer) -> int:
        return max(sizes[bisect_left(steps, b.first):bisect_left(steps, b.last + 1)])

    return sorted(buffers, key=lambda b: (-crowd(b), -b.size))


def _place(buffers: Sequence[Buffer]) -> tuple[dict[Hashable, int], int]:
    """Each buffer, in this order, into the tightest hole that holds it for as long as it lives."""
    offsets: dict[Hashable, int] = {}
    first, last, at, end = np.zeros((4, len(buffers)), np.int64)
    taken = total = 0
    for b in buffers:
        offsets[b.id] = 0
        if b.size == 0:
            continue
        beside = np.flatnonzero((first[:taken] <= b.last) & (b.first <= last[:taken]))
        beside = beside[np.argsort(at[beside], kind="stable")]
        offset = _tightest_gap(at[beside], end[beside], b)
        first[taken], last[taken] = b.first, b.last
        at[taken], end[taken] = offset, offset + b.size
        taken += 1
        offsets[b.id] = offset
        total = max(total, offset + b.size)
    return offsets, total


def _tightest_gap(at: np.ndarray, end: np.ndarray, b: Buffer) -> int:
    """The start of the smallest hole that holds b, or else the end of everything beside it."""
    free = np.maximum.accumulate(np.concatenate([[0], end]))  # what nothing so far reaches
    start = -(-free // b.align) * b.align
    spare = at - start[:-1] - b.size
    holds = np.flatnonzero(spare >= 0)
    return int(start[holds[np.argmin(spare[holds])]] if holds.size else start[-1])


def _up(at: int, align: int) -> int:
    return -(-at // align) * align
