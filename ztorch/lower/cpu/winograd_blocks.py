"""The loop nest of a whole Winograd convolution on a processor, block by block of tiles: transforms
of tiles, products at all points, and results. Between them a block is in local arrays, which the L2
cache holds with the kernel at all points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import Run
from ztorch.lower.cpu.tiling import Tiling, choose, product_lanes, tiling
from ztorch.lower.cpu.winograd_matrices import TILE_MATRIX
from ztorch.lower.cpu.winograd_tiles import HALVES, ImageTiles, TileResults
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import multiply_add, spread
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region, view_of
from ztorch.lower.rewrites.winograd import POINTS, RESULTS, TILE, WINDOW
from ztorch.lower.tuning import EPILOGUE_SHARE, K_UNROLL, LINE_BYTES

_LINE = LINE_BYTES // f32.bytes  # elements


class _TileBlock:
    """A local array of a block of tiles at all points. Points are an odd number of lines apart,
    so that those of one tile map to different sets of a cache."""

    def __init__(self, b: Builder, name: str, tiles: int, columns: int, at: Var):
        self.columns, self.at = columns, at
        lines = math.ceil(tiles * columns / _LINE)
        self.apart = (lines + 1 - lines % 2) * _LINE
        self.name = b.memory(name, f32, POINTS * self.apart, "local", "rw")

    def place(self, e: Emitter, column: Operand) -> Operand:
        """The position of a column of the tile of a scope at point 0."""
        return e.b.add(e.b.mul(e.bound[self.at], self.columns), column)


class _BlockTiles(ImageTiles):
    """Transforms tiles into a block."""

    block: _TileBlock

    def keep(self, e: Emitter, k: int, x: Operand) -> None:
        start = self.block.place(e, e.bound[self.column])
        mask = e.mask if x.lanes > 1 else None
        e.b.store(self.block.name, start, x, off=k * self.block.apart, mask=mask)


class _BlockResults(TileResults):
    """Results of the products of a block."""

    block: _TileBlock

    def point(self, e: Emitter, k: int) -> Operand:
        start, lanes = self.block.place(e, e.bound[self.column]), e.lanes if e.lane else 1
        return e.b.load(self.block.name, start, k * self.block.apart, lanes, mask=e.mask)


def emit_blocks(e: Emitter, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
                lanes: int) -> None:
    """All blocks. Workers share them."""
    b, size = e.b, v.attrs["block"]
    image, kernel = v.args
    channels, filters, at = image.shape[-1], v.shape[-1], Var("t", size)
    tiles = _BlockTiles(v, "", limits, lanes, TILE, TILE_MATRIX)
    results = _BlockResults(region, v, target, limits, lanes)
    tiles.block = _TileBlock(b, "tiles", size, channels, at)
    results.block = _TileBlock(b, "products", size, filters, at)
    tiles.declare(b)
    results.declare(b)
    count = math.prod(a.extent for a in tiles.tile) // size
    with b.loop(0, count, kind="parallel") as block:
        first = b.mul(block, size)
        with b.loop(0, size) as t:
            scope = e.within(bound={**spread(e, b.add(first, t), tiles.tile), at: t})
            if image.nbytes + v.nbytes > limits.processor.l2_bytes * EPILOGUE_SHARE:
                _prefetch(scope, tiles, region, v, target)
            tiles.tile_at(scope, [None] * HALVES)
        _Products(e, kernel, tiles.block, results.block, size, limits).emit()
        with b.loop(0, size) as t:
            bound = spread(e, b.add(first, t), results.tile)
            results.tile_at(e.within(bound={**bound, at: t}))


def _prefetch(e: Emitter, tiles: _BlockTiles, region: Region, v: Value,
              target: Mapping[Value, str]) -> None:
    """Prefetches the results of a tile, and what the tile below it reads first."""
    n, y, x = (Index.of(a) for a in tiles.tile)
    for i, j in product(range(RESULTS), repeat=2):
        for c in range(0, tiles.image.shape[-1], _LINE):
            element = view_of(tiles.image, (n, tiles.first[0] + TILE + i,
                                            tiles.first[1] + (WINDOW // 2 + j), Index((), c)))
            if element is not None:
                e.prefetch(*element, cache=2)
        for f in range(0, v.shape[-1], _LINE):
            at = flatten((n, y * RESULTS + i, x * RESULTS + j, Index((), f)), v.shape)
            for result, name in target.items():
                e.prefetch_of(name, region.flat[result].replace({region.outer: at}), cache=2)


class _Products:
    """The products of a block with the kernel at all points, in register tiles."""

    def __init__(self, e: Emitter, kernel: Value, tiles: _TileBlock, results: _TileBlock, size: int,
                 limits: Limits):
        self.e, self.kernel, self.tiles, self.results = e, kernel, tiles, results
        self.limits, self.k, n = limits, tiles.columns, results.columns
        self.lanes, s = product_lanes(n, limits, f32), choose(size, n, self.k, limits, f32)
        self.tiling: Tiling = tiling(s.tile_rows, s.tile_vectors, size, n, self.lanes)
        self.point = Var("p", POINTS)

    def emit(self) -> None:
        """All points."""
        b = self.e.b
        with b.loop(0, POINTS) as p:
            for panels in self.tiling.panels:
                with b.loop(0, panels.count) as across:
                    for rows in self.tiling.rows:
                        with b.loop(0, rows.count) as down:
                            self._tile(p, rows, down, panels, across)

    def _tile(self, p: Operand, rows: Run, down: Operand, panels: Run, across: Operand) -> None:
        """One register tile."""
        b = self.e.b
        first = b.add(b.mul(down, rows.size), rows.start)
        vectors = [self._vector(p, panels, across, j) for j in range(panels.size)]
        left = b.add(b.mul(p, self.tiles.apart), b.mul(first, self.k))
        sums = [[b.var(f32, self.lanes, 0.0) for _ in vectors] for _ in range(rows.size)]
        whole = self.k // K_UNROLL * K_UNROLL
        for begin, end, steps in ((0, whole, K_UNROLL), (whole, self.k, 1)):
            if begin < end:
                with b.loop(begin, end, steps) as at:
                    self._steps(vectors, sums, b.add(left, at), at, steps)
        width = self.results.columns
        start = b.add(b.mul(p, self.results.apart), b.mul(first, width))
        for r, line in enumerate(sums):
            for (e, column, _), total in zip(vectors, line, strict=True):
                b.store(self.results.name, b.add(start, e.value(column)),
                        b.get(total), off=r * width, mask=e.mask)

    def _vector(self, p: Operand, panels: Run, across: Operand, j: int
                ) -> tuple[Emitter, Index, Index]:
        """The scope of a vector of columns, its first column and all of them. The last vector may
        need a mask."""
        b, lanes, tail = self.e.b, self.lanes, self.tiling.tail
        end = panels.start + panels.size * panels.count
        masked = tail and j == panels.size - 1 and end == math.ceil(self.results.columns / lanes)
        panel, lane = Var("a", panels.count), Var("n", tail if masked else lanes, kept=True)
        mask = b.lt(b.iota(lanes), tail) if masked else None
        bound = {**self.e.bound, self.point: p, panel: across, lane: b.const(0, b.index)}
        column = Index.of(panel) * (panels.size * lanes) + (panels.start + j) * lanes
        return (Emitter(b, self.e.memory, bound, lane, lanes, mask, self.e.members), column,
                column + Index.of(lane))

    def _steps(self, vectors: Sequence[tuple[Emitter, Index, Index]],
               sums: Sequence[Sequence[Operand]], left: Operand, at: Operand, steps: int) -> None:
        """Some steps along the channels."""
        b, depth, p = self.e.b, Var("k", self.k - steps + 1, kept=True), Index.of(self.point)
        totals = [[b.get(total) for total in line] for line in sums]
        scopes = [(e.within(bound={**e.bound, depth: at}), columns) for e, _, columns in vectors]
        for u in range(steps):
            right = [e.element(self.kernel, (p, Index.of(depth) + u, columns))
                     for e, columns in scopes]
            for r, line in enumerate(totals):
                x = b.load(self.tiles.name, left, off=r * self.k + u)
                for j, y in enumerate(right):
                    line[j] = multiply_add(b, self.limits, b.splat(x, self.lanes), y, line[j])
        for variables, line in zip(sums, totals, strict=True):
            for variable, x in zip(variables, line, strict=True):
                b.set(variable, x)
