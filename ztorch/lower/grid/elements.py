"""Elementwise regions on a grid: a thread for each element, or for a few neighbors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.cpu.elements import merged_axes
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.workgroups import (
    along,
    can_vectorize,
    power_of_two,
    threads,
    usual_width,
    where,
    width_refusal,
    workgroups,
)
from ztorch.lower.in_place_updates import at_position, entry_axes, write
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, spread
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridElementSchedule
from ztorch.lower.tuning import GROUP_THREADS, INTERLEAVED_MAX, SHORT_BYTES

LANES_JOINED = 4  # of the opcode `join`


def propose(region: Region, limits: Limits) -> GridElementSchedule:
    """A vector of neighbors for each thread if they can be loaded at once and enough threads
    remain. One element if the driver's compiler vectorizes over threads: neighboring threads must
    then have neighboring elements."""
    grid = limits.grid
    assert grid is not None
    axes, full = _axes(region)
    n = 1 if grid.implicit_simd else usual_width(region, grid)
    vectorized = _in_vectors(region, full, axes[-1], n) or (
        _short(region) and _can_be_joined(region, full, axes[-1], n))
    width = n if vectorized else 1
    threads_wanted = min(GROUP_THREADS, grid.threads, power_of_two(region.size // width))
    return GridElementSchedule(threads_wanted, width)


def refusal(s: GridElementSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid = limits.grid
    assert grid is not None
    axes, full = _axes(region)
    if not 1 <= s.threads <= grid.threads:
        return f"threads({s.threads}) must be between 1 and {grid.threads}"
    return width_refusal(s.width, grid, _in_vectors(region, full, axes[-1], s.width) or (
        _can_be_joined(region, full, axes[-1], s.width)))


def _short(region: Region) -> bool:
    """Whether elements are shorter than the unit of stores, so that storing several at once pays
    even if they are loaded one by one."""
    return all(v.dtype.bytes < SHORT_BYTES and v.dtype is not boolean for v in region.stores)


def _in_vectors(region: Region, full: dict[Var, Index], last: Var, n: int) -> bool:
    """Whether one thread can load, compute and store vectors of n neighbors, or of elements that
    are a few apart, which it picks from whole vectors."""
    return can_vectorize(region, full, last, n, widest_step=min(n, INTERLEAVED_MAX))


def _can_be_joined(region: Region, full: dict[Var, Index], last: Var, n: int) -> bool:
    """Whether one thread can compute n neighbors one by one and store them at once."""
    return n == LANES_JOINED and can_vectorize(region, full, last, n, members=())


def _axes(region: Region) -> tuple[list[Var], dict[Var, Index]]:
    """A loop for each axis, and the position of the loops in the region."""
    axes = [Var(f"d{k}", n) for k, n in enumerate(merged_axes(region))] or [Var("d", 1)]
    flat = flatten([Index.of(v) for v in axes], [v.extent for v in axes])
    return axes, {region.outer: flat}


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridElementSchedule) -> None:
    """All elements, each by one thread."""
    assert limits.grid is not None
    if region.in_place:
        _entries(b, region, memory, target, limits.grid, s)
        return
    axes, full = _axes(region)
    size = region.size // s.width
    groups = math.ceil(size / s.threads)
    # The block loop is outermost, so the loop of a workgroup becomes a loop of each thread.
    with workgroups(b, groups, limits.grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, size) if size % s.threads else None):
            e = along(Emitter(b, memory, members=region.flat, strided=()), at, axes, s.width)
            if _in_vectors(region, full, axes[-1], s.width):
                evaluate(e, region.members, region, full, target)
            else:
                _joined(e, region, full, target)


def _joined(e: Emitter, region: Region, full: dict[Var, Index],
            target: Mapping[Value, str]) -> None:
    """Neighbors whose operands are not contiguous: computed one by one, stored at once."""
    assert e.lane is not None
    b, stored = e.b, [v for v in region.members if v in target]
    operands: list[list[Operand]] = []
    for k in range(e.lanes):
        bound = {**e.bound, e.lane: b.add(e.bound[e.lane], k)}
        lane_scope = e.within(bound=bound, lane=None, lanes=1, aligned=False)
        operands.append([lane_scope.element(v, unflatten(region.flat[v].replace(full), v.shape))
                     for v in stored])
    for v, xs in zip(stored, zip(*operands, strict=True), strict=True):
        e.store(target[v], v, region.flat[v].replace(full), b.join(*xs))


def _entries(b: Builder, region: Region, memory: Mapping[Value, str],
             target: Mapping[Value, str], grid: GridLimits, s: GridElementSchedule) -> None:
    """Every entry that is written in place, each by one thread."""
    axes = entry_axes(region)
    size = math.prod(v.extent for v in axes)
    with workgroups(b, math.ceil(size / s.threads), grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, size)):
            e = Emitter(b, memory)
            e = e.within(bound=spread(e, at, axes))
            with at_position(e, region, axes) as place:
                write(e, region, axes, place, target[region.members[0]])
