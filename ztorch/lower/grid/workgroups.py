"""Parts of loop nests on grids: workgroups, their threads, and vectors of neighboring elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import spread
from ztorch.lower.region import Region, computed, real_reads
from ztorch.lower.tuning import GROUP_THREADS


@contextmanager
def workgroups(b: Builder, count: int, grid: GridLimits) -> Iterator[Operand]:
    """The numbers below `count`, one for each workgroup. If a grid cannot have that many
    workgroups, each loops over several numbers."""
    if count <= grid.max_groups:
        with b.loop(0, count, kind="grid") as g:
            yield g
        return
    with b.loop(0, grid.max_groups, kind="grid") as g, b.loop(g, count, grid.max_groups) as at:
        yield at


@contextmanager
def threads(b: Builder, count: int) -> Iterator[Operand]:
    """The number of each thread of a workgroup."""
    b.workgroup = (count, 1, 1)
    with b.loop(0, count, kind="block") as t:
        yield t


@contextmanager
def where(b: Builder, condition: Operand | None) -> Iterator[None]:
    """Runs the body where the condition holds; None means always."""
    if condition is None:
        yield
        return
    with b.if_(condition):
        yield


def every(b: Builder, first: Operand, count: int, step: int,
          at_once: int) -> Iterator[list[Operand]]:
    """The numbers below `count` of a thread, `step` apart: a loop that has several at once, so that
    their loads are in flight together, and then one that has each of those that remain."""
    even = count // (step * at_once) * step * at_once
    if even:
        with b.loop(first, even, step * at_once) as at:
            yield [b.add(at, k * step) for k in range(at_once)]
    if even < count:
        with b.loop(b.add(first, even), count, step) as at:
            yield [at]


def along(e: Emitter, flat: Operand, loops: list[Var], lanes: int) -> Emitter:
    """The scope of element number `flat`, or of vector number `flat` along the last loop."""
    if lanes == 1:
        return e.within(bound=spread(e, flat, loops))
    *rows, last = loops
    vectors = Var("vectors", last.extent // lanes)
    bound = spread(e, flat, [*rows, vectors])
    bound[last] = e.b.mul(bound[vectors], lanes)
    return e.within(bound=bound, lane=last, lanes=lanes, aligned=True)


def usual_width(region: Region, grid: GridLimits) -> int:
    """The elements that a thread computes at once: a vector if enough threads remain."""
    enough = region.size // grid.load_width >= GROUP_THREADS * grid.compute_units
    return grid.load_width if enough else 1


def can_vectorize(region: Region, full: dict[Var, Index], last: Var, n: int,
                  members: Sequence[Value] | None = None, widest_step: int = 1) -> bool:
    """Whether one thread can compute a vector of n neighbors along a loop. Every load and store
    must be contiguous and aligned, or uniform over the vector, and no other computation may depend
    on the position along the loop. `members` are the values that read; None means all. Up to
    `widest_step`, accesses may also be some elements apart, in vectors that are aligned."""
    if n == 1:
        return True
    if last.extent % n:
        return False
    reading = region.members if members is None else members
    members_at = [(v, region.index(v)) for v in reading]
    touched = [(v, region.flat[v]) for v in region.stores] + [
        (source, flat) for v, index in members_at for source, flat in real_reads(v, index)
        if source not in region.flat]
    for v, index in members_at:
        position = [i.replace(full) for i in index]
        depends = any(i.mentions(last) for i in computed(v, position))
        if depends and any(flat.mentions(last) for _, flat in real_reads(v, position)):
            return False  # the elements may exist for some lanes only
    for v, flat in touched:
        at = flat.replace(full)
        step = at.factor(last)
        rest = at - Index.of(last) * step
        start = rest.const - rest.const % max(1, step)
        offsets = (v.size, start, *(f for _, f in rest.terms)) if step else ()
        if not 0 <= step <= widest_step or rest.mentions(last) or any(k % n for k in offsets):
            return False
    return True


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def widths(most: int) -> list[int]:
    """The numbers of neighbors that a thread may compute at once, up to a power of two.

    >>> widths(4)
    [4, 2, 1]
    """
    return [1 << k for k in reversed(range(most.bit_length()))]


def width_refusal(width: int, grid: GridLimits, possible: bool) -> str:
    """Why a thread cannot compute this many neighbors at once; empty if it can."""
    if width not in widths(grid.load_width):
        return f"width({width}) must be a power of two up to the {grid.load_width} of a load"
    if width > 1 and not possible:
        return f"width({width}) needs aligned neighbors in memory, and these are not"
    return ""
