"""Transposing copies on a grid: a workgroup reads a tile along the rows of the source, transposes
it in shared memory, and writes it along the rows of the result. So neighboring threads access
neighboring elements on both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.dtypes import boolean, f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import SWIZZLE_LINE, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.transpose import TransposePattern, find_transpose, source_at
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.workgroups import threads, where, workgroups
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, spread
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import GROUP_THREADS


@dataclass(frozen=True, repr=False)
class GridTransposeSchedule(Schedule):
    """Elementwise work that reads across rows, on a grid."""

    kind = "grid_transpose"
    threads: int  # of a workgroup
    edge: int  # rows and columns of a tile

    def tile(self, lanes: int) -> str:
        return f"{self.edge}x{self.edge}"


def propose(region: Region, limits: Limits) -> GridTransposeSchedule | None:
    """Tiles with edges of one memory line, if the region reads one value across its rows and is
    large enough."""
    grid, pattern = limits.grid, None if region.in_place else find_transpose(region)
    assert grid is not None
    if pattern is None or grid.implicit_simd:
        return None
    edge = SWIZZLE_LINE // max(pattern.source.dtype.bytes, 2)
    s = GridTransposeSchedule(max(edge, min(GROUP_THREADS, grid.threads) // edge * edge), edge)
    tiles = region.size // edge**2
    return s if tiles >= grid.compute_units and not refusal(s, region, limits) else None


def refusal(s: GridTransposeSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, pattern = limits.grid, None if region.in_place else find_transpose(region)
    assert grid is not None
    if pattern is None or pattern.source.dtype is boolean:
        return "it reads no numbers across its rows"
    if s.edge < 1 or not 1 <= s.threads <= grid.threads or s.threads % s.edge or s.edge % (
            s.threads // s.edge):
        return (f"threads({s.threads}) must be rows of edge({s.edge}) that divide the tile, "
                f"{grid.threads} at most")
    needed = s.edge * _pitch(pattern, s.edge) * pattern.source.dtype.bytes
    if needed > grid.declared_shared_bytes:
        return f"its threads share {needed} bytes of {grid.declared_shared_bytes}"
    return ""


def _pitch(pattern: TransposePattern, edge: int) -> int:
    """The pitch of a tile in elements, chosen so that a column is spread over all banks."""
    return edge + max(1, f32.bytes // pattern.source.dtype.bytes)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridTransposeSchedule) -> None:
    """All tiles, each by a workgroup."""
    pattern = find_transpose(region)
    assert pattern is not None and limits.grid is not None
    shape, along = pattern.shape, pattern.along
    outer = [Var(f"o{k}", n) for k, n in enumerate(shape[:-1]) if k != along]
    down, across = math.ceil(shape[along] / s.edge), math.ceil(shape[-1] / s.edge)
    count = math.prod(v.extent for v in outer) * down * across
    tile = b.memory("tile", pattern.source.dtype, s.edge * _pitch(pattern, s.edge), "shared", "rw")
    with workgroups(b, count, limits.grid) as g, threads(b, s.threads) as t:
        corner = b.mul(b.div(b.rem(g, down * across), across), s.edge), b.mul(
            b.rem(g, across), s.edge)
        bound = spread(Emitter(b, memory), b.div(g, down * across), outer)
        part = _ThreadPart(b, region, pattern, outer, s, tile, t)
        e = Emitter(b, memory, bound, members=region.flat)
        part.read(e, corner)
        b.barrier()
        part.write(e, corner, target)
        if count > limits.grid.max_groups:
            b.barrier()  # before the next tile


class _ThreadPart:
    """A thread's part of a tile: one element in every few lines."""

    def __init__(self, b: Builder, region: Region, pattern: TransposePattern, outer: list[Var],
                 s: GridTransposeSchedule, tile: str, t: Operand):
        self.b, self.region, self.pattern, self.outer, self.tile = b, region, pattern, outer, tile
        self.row = Var("row", pattern.shape[pattern.along])
        self.column = Var("column", pattern.shape[-1])
        self.edge, self.pitch = s.edge, _pitch(pattern, s.edge)
        self.place, self.line = b.rem(t, s.edge), b.div(t, s.edge)
        self.lines = range(0, s.edge, s.threads // s.edge)
        rest = iter(map(Index.of, outer))
        index = [Index.of(self.row) if k == pattern.along else next(rest)
                 for k in range(len(pattern.shape) - 1)]
        self.at = flatten([*index, Index.of(self.column)], pattern.shape)

    def read(self, e: Emitter, corner: tuple[Operand, Operand]) -> None:
        """Reads the tile: neighboring threads read contiguous elements of the source."""
        b, source, elements = self.b, self.pattern.source, []
        row = self._inside(b.add(corner[0], self.place), self.row)
        for k in self.lines:
            column = self._inside(b.add(corner[1], b.add(self.line, k)), self.column)
            place = e.within(bound={**e.bound, self.row: row, self.column: column})
            flat = source_at(self.region, self.pattern, self.at)
            elements.append(place.element(source, unflatten(flat, source.shape)))
        start = b.add(b.mul(self.line, self.pitch), self.place)
        for k, x in zip(self.lines, elements, strict=True):
            b.store(self.tile, start, x, off=k * self.pitch)

    def write(self, e: Emitter, corner: tuple[Operand, Operand],
              target: Mapping[Value, str]) -> None:
        """Writes the tile: neighboring threads write contiguous elements of the result."""
        b, region = self.b, self.region
        column = b.add(corner[1], self.place)
        start = b.add(b.mul(self.place, self.pitch), self.line)
        for k in self.lines:
            row = b.add(corner[0], b.add(self.line, k))
            tests = [b.lt(at, var.extent) for at, var in ((row, self.row), (column, self.column))
                     if var.extent % self.edge]
            inside = b.and_(*tests) if len(tests) > 1 else tests[0] if tests else None
            with where(b, inside):
                place = e.within(bound={**e.bound, self.row: row, self.column: column})
                flat = source_at(region, self.pattern, self.at)
                place.known[self.pattern.source, flat, None] = b.load(self.tile, start, off=k)
                evaluate(place, region.members, region, {region.outer: self.at}, target)

    def _inside(self, at: Operand, var: Var) -> Operand:
        """A position, clamped to the last valid one."""
        return self.b.min(at, var.extent - 1) if var.extent % self.edge else at
