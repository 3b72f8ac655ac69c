"""The loop nest of a matrix product for a machine of workgroups.

Each workgroup computes a tile of the result. Step by step along k, its threads bring a strip of
both operands into memory they share, and each thread multiplies out a small tile of its own in
registers; or, where subgroups multiply matrices in one instruction and that is faster, they do. The
epilogue runs over the finished tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower import grid_mma
from ztorch.lower.grid import threads, workgroups
from ztorch.lower.grid_strips import Block, Strip, Strips
from ztorch.lower.loops import multiply_add, summing
from ztorch.lower.region import Region
from ztorch.lower.tuning import GRID_TILE_START, GRID_TILES, SHARED_LOAD_COST, STRIP_PADDING


@dataclass(frozen=True)
class Tile(Block):
    """The schedule of a product: a workgroup's tile, its depth, and a thread's part of it."""

    high: int  # rows of a thread, beside one another
    wide: int  # columns of a thread, as far apart as threads lie

    @property
    def across(self) -> int:
        return self.columns // self.wide

    @property
    def threads(self) -> int:
        return self.rows // self.high * self.across

    def vectors(self, most: int) -> tuple[int, int]:
        """Neighbours that a thread reads at once from the strip of either operand."""
        return math.gcd(self.high, most), math.gcd(self.wide, most)

    def shared(self, element: int, through: bool) -> int:
        """Bytes of shared memory; with `through` the finished tile passes through it as well."""
        strips = (self.rows + self.columns) * self.depth + STRIP_PADDING * self.depth
        return element * (strips + (self.rows * self.columns if through else 0))


TILES = tuple(Tile(*sizes) for sizes in GRID_TILES)


def estimate(m: int, n: int, k: int, batch: int, grid: GridLimits, element: int,
             through: bool) -> tuple[float, Tile]:
    """The tile with the least estimated time, in multiply-adds of one thread after another: work
    that is thrown away at the edges, units with nothing to do, and the reads of shared memory that
    each multiply-add has to wait for.

    >>> estimate(4096, 4096, 4096, 1, GridLimits(), 4, False)[1]
    Tile(rows=128, columns=128, depth=8, high=8, wide=8)
    """
    best: tuple[float, Tile] | None = None
    for tile in TILES:
        if tile.threads > grid.threads or tile.shared(element, through) > grid.shared_bytes:
            continue
        tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns) * batch
        each = tile.rows * tile.columns * (
            1 + SHARED_LOAD_COST / tile.high + SHARED_LOAD_COST / tile.wide) * (k + GRID_TILE_START)
        time = math.ceil(tiles / grid.compute_units) * each
        if best is None or time < best[0]:
            best = time, tile
    if best is None:
        raise Unsupported(f"a matrix product needs {TILES[-1].threads} threads and "
                          f"{TILES[-1].shared(element, through)} bytes that they share; this "
                          f"device has {grid.threads} and {grid.shared_bytes}")
    return best


def emit_contract(b: Builder, region: Region, memory: Mapping[Value, str],
                  target: Mapping[Value, str], limits: Limits) -> None:
    """All tiles of the product that the region is built around."""
    grid = limits.grid
    assert grid is not None
    product = next(v for v in region.members if v.op.kind == "contract")
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    batch = math.prod(product.shape[:-2])
    of = summing(product.dtype)
    through = len(region.members) > 1
    try:
        time, tile = estimate(m, n, k, batch, grid, of.bytes, through)
    except Unsupported as error:
        raise Unsupported(f"layer {product.layer or product.op.name}: {error}; compile for another "
                          "device, such as cpu") from None
    shape = grid_mma.shape_for(product, limits)
    faster = shape and grid_mma.choose(m, n, k, batch, grid, shape, time)
    chosen = faster or tile
    down, along = math.ceil(m / chosen.rows), math.ceil(n / chosen.columns)
    with workgroups(b, batch * down * along, grid) as g, threads(b, chosen.threads) as t:
        which = b.div(g, down * along)
        g = b.rem(g, down * along)
        first = b.mul(b.div(g, along), chosen.rows)
        left = b.mul(b.rem(g, along), chosen.columns)
        if faster:
            matrices = grid_mma.Nest(b, region, product, memory, target, limits, faster)
            matrices.run(which, first, left, t)
        else:
            nest = Nest(b, region, product, memory, target, limits, tile, of)
            nest.run(which, first, left, t, through)


class Nest(Strips):
    """A tile whose threads multiply out small tiles of their own. Of either operand a thread loads
    so many neighbours at once as `vectors` says, or of those along k as many as the inner loop has
    `steps` in a turn.
    """

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Tile, of: DType):
        super().__init__(b, region, product, memory, target, limits, tile, of)
        assert limits.grid is not None
        self.tile, self.steps = tile, 1
        most = tile.vectors(limits.grid.load_width)
        self.vectors = (self._lay_out(0, tile.rows, STRIP_PADDING, most[0]),
                        self._lay_out(1, tile.columns, 0, most[1]))

    def _lay_out(self, side: int, length: int, pad: int, n: int) -> int:
        """The strip of an operand; how many neighbours along the tile are loaded at once, n at
        most."""
        whole, grid = self.whole(side), self.limits.grid
        assert grid is not None
        if whole > 1 and self.lies_along_k(side):  # stored as they come, so that side by side is k
            self.steps = whole
            self.strip(self.tile.depth, length, deep=True)
            return 1
        self.strip(length + pad, self.tile.depth)
        return n if grid.scalar_stores_readable_as_vectors else whole if n % whole == 0 else 1

    def run(self, which: Operand, first: Operand, left: Operand, t: Operand,
            through: bool) -> None:
        b, tile = self.b, self.tile
        sums = [[b.var(self.of, 1, 0) for _ in range(tile.wide)] for _ in range(tile.high)]
        at, lead = self.lead(which)
        row = b.mul(b.div(t, tile.across), tile.high)
        column = b.mul(b.rem(t, tile.across), self.vectors[1])
        with b.loop(0, self.k, tile.depth) as k:
            self.bring(0, lead, at, first, k, t)
            self.bring(1, lead, at, left, k, t)
            b.barrier()
            with b.loop(0, tile.depth, self.steps) as d:
                down, along = self._start(0, row, d), self._start(1, column, d)
                right = [self._column(j) for j in range(tile.wide)]
                for lefts, rights in zip(self._elements_of(0, down, range(tile.high)),
                                         self._elements_of(1, along, right), strict=True):
                    for i, x in enumerate(lefts):
                        for j, y in enumerate(rights):
                            total = b.get(sums[i][j])
                            b.set(sums[i][j], multiply_add(b, self.limits, x, y, total))
            b.barrier()
        if through:
            array = b.memory("tile", self.of, tile.rows * tile.columns, "shared", "rw")
            start = b.add(b.mul(row, tile.columns), column)
            for i, line in enumerate(sums):
                for j, variable in enumerate(line):
                    b.store(array, start, b.get(variable), off=i * tile.columns + self._column(j))
            self.sweep(array, tile.columns, at, lead, first, left, t)
            return
        for i in range(tile.high):
            for j in range(tile.wide):
                x = b.cast(b.get(sums[i][j]), dtype=self.product.dtype)
                self.finish(at, lead, b.add(first, b.add(row, i)),
                            b.add(left, b.add(column, self._column(j))), x)

    def _column(self, j: int) -> int:
        """How far the j-th column of a thread is from its first: vectors of neighbours, as far
        apart as all threads' vectors together reach."""
        n = self.vectors[1]
        return j // n * n * self.tile.across + j % n

    def _start(self, side: int, first: Operand, d: Operand) -> Operand:
        """Where a thread's part of a strip begins, d along k."""
        far, near = (first, d) if self.strips[side].deep else (d, first)
        return self.b.add(self.b.mul(far, self.strips[side].pitch), near)

    def _elements_of(self, side: int, start: Operand, offs: Sequence[int]) -> list[list[Operand]]:
        """For each step along k the elements of a strip, neighbours loaded together."""
        strip = self.strips[side]
        if strip.deep:
            lines = [self._load(strip, start, off * strip.pitch, self.steps) for off in offs]
            return [list(step) for step in zip(*lines, strict=True)]
        n = self.vectors[side]
        return [[x for off in offs[::n] for x in self._load(strip, start, off + k * strip.pitch, n)]
                for k in range(self.steps)]

    def _load(self, strip: Strip, start: Operand, off: int, n: int) -> list[Operand]:
        x = self.b.load(strip.name, start, off=off, lanes=n, align=n * self.of.bytes)
        return [self.b.extract(x, k) for k in range(n)]
