"""Loops in which each worker goes on with its own part of every buffer, such as its rows of a
batch: there workers need not meet.

    h[rows] @ u -> z[rows]    z[rows] -> h[rows]    one worker may be many iterations ahead

The kernels themselves show it: `ranges` of their indices, for each of some number of workers. If
this holds for six workers, it holds for two and three, whose parts consist of theirs. Numbers that
do not divide six meet at all barriers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from ztorch.ir.kernel import Instr, Kernel
from ztorch.ir.ranges import range_of, ranges
from ztorch.lower.barriers import BufferAccess, LoopSpan, barriers_before
from ztorch.lower.region_kernel import KernelStep

FACTORS = (2, 3)  # whose products are numbers of workers that are tried


def own_parts(kernel: Kernel, workers: int) -> Set[str]:
    """The memories of a kernel of which each worker accesses only its part: equal parts, in order.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> from ztorch.ir.builder import Builder
        >>> from ztorch.lower.passes import share_out
        >>> b = Builder("k")
        >>> x, y = b.memory("x", f32, 64), b.memory("y", f32, 64, access="w")
        >>> with b.loop(0, 64, kind="parallel") as i:
        ...     b.store(y, i, b.load(x, b.sub(63, i)))
        >>> sorted(own_parts(share_out(b.kernel()), 2))
        ['y']
    """
    own = {m.name: m.size // workers for m in kernel.memories
           if m.space == "global" and m.size % workers == 0}
    for worker in range(workers):
        if not own:
            break
        known = ranges(kernel, worker, workers)
        for i in kernel.body:
            name = i.attrs.get("mem")
            if name in own and i.opcode != "prefetch":
                first, last = _elements(i, known)
                size = own[name]
                if first < worker * size or last >= (worker + 1) * size:
                    del own[name]
    return own.keys()


def _elements(i: Instr, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The first and the last element that an instruction may access."""
    if i.opcode not in ("load", "store", "gather"):
        return -1, 0
    low, high = range_of(i.args[0], known)
    lanes = {"load": i.dest.lanes, "store": i.args[min(1, len(i.args) - 1)].lanes}
    off = i.attrs.get("off", 0)
    return low + off, high + off + lanes.get(i.opcode, 1) - 1


def workers_apart(steps: Sequence[KernelStep], loops: Sequence[LoopSpan],
                  barriers: Sequence[bool]) -> tuple[int, Sequence[bool]]:
    """A number of workers, and for each kernel whether those whose number divides it meet before
    it, if they also meet where loops begin. It is 1 if they would not meet less often.

    Args:
        steps: The kernels.
        loops: Loops around kernels, outer ones first.
        barriers: For each kernel, whether there is a barrier before it.
    """
    runs = [math.prod(loop.trip_count for loop in loops if loop.first <= k < loop.end)
            for k in range(len(steps))]
    inside = {k for k, n in enumerate(runs) if n > 1}
    best, meetings = (1, barriers), math.inf
    least = _meetings(_remaining(steps, loops, inside, 1), runs)  # without parts of their own
    for factor in FACTORS:
        while True:
            fewer = _remaining(steps, loops, inside, best[0] * factor)
            if not _meetings(fewer, runs) < least or _meetings(fewer, runs) > meetings:
                break
            best, meetings = (best[0] * factor, fewer), _meetings(fewer, runs)
    return best


def _meetings(barriers: Sequence[bool], runs: Sequence[int]) -> int:
    """How often workers meet."""
    return sum(n for barrier, n in zip(barriers, runs, strict=True) if barrier)


def _remaining(steps: Sequence[KernelStep], loops: Sequence[LoopSpan], inside: Set[int],
               workers: int) -> Sequence[bool]:
    """The barriers that remain for some number of workers. Kernels `inside` of loops are looked at.
    """
    accesses = []
    for k, step in enumerate(steps):
        own = own_parts(step.kernel, workers) if k in inside and workers > 1 else ()
        parts = [m for m in step.kernel.memories if m.space == "global"]
        accesses.append([
            BufferAccess(place, writes, m.name in own and m.size * m.dtype.bytes == place.size)
            for m, place, writes in zip(parts, step.locations, step.writes, strict=True)])
    return barriers_before(accesses, loops, True)
