"""The transforms of Winograd convolutions on a grid: a thread for each channel of a tile or of a
kernel, or for a few neighboring channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.winograd_matrices import (
    RESULT_MATRIX,
    TILE_MATRIX,
    Matrix,
    both_axes,
    transposed,
)
from ztorch.lower.cpu.winograd_points import (
    at_point,
    channel_of,
    store,
    store_kernel,
    store_kernel_slopes,
    transform_of,
)
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.workgroups import (
    along,
    can_vectorize,
    power_of_two,
    threads,
    where,
    width_refusal,
    workgroups,
)
from ztorch.lower.index import Index, Var
from ztorch.lower.region import Region, view_of
from ztorch.lower.rewrites.winograd import (
    AT_POINTS,
    KERNEL_SLOPES,
    POINTS,
    RESULTS,
    RESULTS_OF,
    TILE,
    TILES,
)
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import TRANSFORM_THREADS


@dataclass(frozen=True, repr=False)
class GridWinogradSchedule(Schedule):
    """A transform of a Winograd convolution on a grid."""

    kind = "grid_winograd"
    threads: int  # of a workgroup
    width: int  # neighboring channels of one thread

    def tile(self, lanes: int) -> str:
        return f"{self.threads}x{self.width}" if self.width > 1 else f"{self.threads}"


def propose(region: Region, limits: Limits) -> GridWinogradSchedule:
    """One channel for each thread: neighboring threads read neighboring channels, and the points of
    several channels would take most of a thread's registers."""
    assert limits.grid is not None
    size = math.prod(a.extent for a in _axes(transform_of(region)))
    return GridWinogradSchedule(
        min(TRANSFORM_THREADS, limits.grid.threads, power_of_two(size)), 1)


def refusal(s: GridWinogradSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid = limits.grid
    assert grid is not None
    if not 1 <= s.threads <= grid.threads:
        return f"threads({s.threads}) must be between 1 and {grid.threads}"
    return width_refusal(s.width, grid, _in_vectors(region, s.width))


def _axes(v: Value) -> list[Var]:
    """The loops over tiles, or over the channels of a kernel, and over columns."""
    column = Var("f", v.shape[-1])
    if v.op in (AT_POINTS, KERNEL_SLOPES):
        return [channel_of(v), column]
    images = v if v.op is RESULTS_OF else v.args[0]
    batch, *sides, _ = images.shape
    down, across = (math.ceil(n / RESULTS) for n in sides) if v.op is RESULTS_OF else (
        v.attrs["down"], v.attrs["across"])
    return [Var("n", batch), Var("y", down), Var("x", across), column]


def _in_vectors(region: Region, n: int) -> bool:
    """Whether a thread can read, compute and store n neighboring channels."""
    v = transform_of(region)
    *_, last = axes = _axes(v)
    [source] = v.args
    others = [Var(f"s{k}", extent) for k, extent in enumerate(source.shape[:-1])]
    base = view_of(source, [*map(Index.of, others), Index.of(last)])
    if last.extent % n or base is None or not base[1].is_affine or base[1].factor(last) != 1 or any(
            k % n for k in (base[1].const, *(base[1].factor(a) for a in others))):
        return False
    rows = Var("rows", region.size // last.extent)
    full = {region.outer: Index.of(rows) * last.extent + Index.of(last)}
    members = [w for w in region.members if w is not v]
    return can_vectorize(region, full, axes[-1], n, members)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridWinogradSchedule) -> None:
    """One transform: all channels of all tiles, or of a kernel."""
    assert limits.grid is not None
    v = transform_of(region)
    axes = _axes(v)
    size = math.prod(a.extent for a in axes) // s.width
    groups = math.ceil(size / s.threads)
    with workgroups(b, groups, limits.grid) as g, threads(b, s.threads) as t:
        at = b.add(b.mul(g, s.threads), t)
        with where(b, b.lt(at, size) if size % s.threads else None):
            e = along(Emitter(b, memory, members=region.flat), at, axes, s.width)
            if v.op is AT_POINTS:
                store_kernel(e, region, v, target, limits, *axes)
            elif v.op is KERNEL_SLOPES:
                store_kernel_slopes(e, region, v, target, limits, *axes)
            elif v.op is RESULTS_OF:
                _results(e, region, v, target, limits, axes)
            elif v.op is TILES:
                _tile(e, region, v, target, limits, axes, TILE, TILE_MATRIX)
            else:
                _tile(e, region, v, target, limits, axes, RESULTS, transposed(RESULT_MATRIX))


def _tile(e: Emitter, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
          axes: list[Var], size: int, matrix: Matrix) -> None:
    """The transform of a tile of `size` elements along each axis. Those outside the image are
    zeros."""
    b, [image] = e.b, v.args
    place_of = [Var(f"s{k}", extent) for k, extent in enumerate(image.shape)]
    base = view_of(image, [*map(Index.of, place_of)])
    assert base is not None
    n, y, x, column = map(Index.of, axes)
    first = [i * RESULTS - low for i, low in zip((y, x), v.attrs["low"], strict=True)]
    sides = image.shape[1:-1]
    rows, columns = ([(start + k, _inside(e, start + k, side)) for k in range(size)]
                     for start, side in zip(first, sides, strict=True))

    def element(i: int, j: int) -> Operand:
        (row, above), (place, beside) = rows[i], columns[j]
        tests = [test for test in (above, beside) if test is not None]
        inside = b.and_(*tests) if len(tests) > 1 else next(iter(tests), None)
        at = base[1].replace(dict(zip(place_of, (n, row, place, column), strict=True)))
        number = e.load(base[0], at, inside)
        return number if inside is None or e.lanes == 1 else b.select(
            b.splat(inside, e.lanes), number, b.splat(b.const(0.0, v.dtype), e.lanes))

    lines = [[element(i, j) for j in range(size)] for i in range(size)]
    points = both_axes(b, limits, matrix, lines)
    for k, point in enumerate(p for line in points for p in line):
        store(e, region, v, target, at_point(k, axes[:-1], column), point)


def _inside(e: Emitter, at: Index, side: int) -> Operand | None:
    """Whether a row or column of a tile is inside an image; None if it always is."""
    b, (low, high) = e.b, at.range
    tests = [b.ge(e.value(at), 0)] * (low < 0) + [b.lt(e.value(at), side)] * (high >= side)
    return b.and_(*tests) if len(tests) > 1 else next(iter(tests), None)


def _results(e: Emitter, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
             axes: list[Var]) -> None:
    """The results of a tile with their epilogue. Those outside the image are left out."""
    b, [products] = e.b, v.args
    n, y, x, column = map(Index.of, axes)
    points = [e.element(products, at_point(k, axes[:-1], column))
              for k in range(POINTS)]
    lines = [points[k:k + TILE] for k in range(0, POINTS, TILE)]
    results = both_axes(b, limits, RESULT_MATRIX, lines)
    _, down, across, _ = v.shape
    for i, line in enumerate(results):
        row = y * RESULTS + i
        with where(b, _inside(e, row, down)):
            for j, result in enumerate(line):
                place = x * RESULTS + j
                with where(b, _inside(e, place, across)):
                    store(e, region, v, target, (n, row, place, column), result)
