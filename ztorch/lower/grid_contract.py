"""The loop nest of a matrix product for a machine of workgroups.

Each workgroup computes a tile of the result. Step by step along k, its threads bring a strip of
both operands into memory they share, and each thread multiplies out a small tile of its own in
registers. Operands are read element by element wherever their views say, so transposes, windows
of a convolution and paddings need no copy. The epilogue runs over the finished tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.errors import Unsupported
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Grid, Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import threads, where, workgroups
from ztorch.lower.index import Index, Var, flatten, unflatten
from ztorch.lower.loops import evaluate, summing
from ztorch.lower.region import Region, view_of


@dataclass(frozen=True)
class Tile:
    """The schedule of a product: a workgroup's tile, its depth, and a thread's part of it."""

    rows: int
    columns: int
    depth: int
    high: int  # rows of a thread, beside one another
    wide: int  # columns of a thread, as far apart as threads lie

    @property
    def across(self) -> int:
        return self.columns // self.wide

    @property
    def threads(self) -> int:
        return self.rows // self.high * self.across

    def shared(self, element: int, through: bool) -> int:
        """Bytes of shared memory; with `through` the finished tile passes through it as well."""
        strips = (self.rows + self.columns) * self.depth + self.depth
        return element * (strips + (self.rows * self.columns if through else 0))


TILES = (Tile(128, 128, 8, 8, 8), Tile(128, 64, 8, 8, 4), Tile(64, 128, 8, 4, 8),
         Tile(64, 64, 16, 4, 4), Tile(32, 64, 16, 2, 4), Tile(64, 32, 16, 4, 2),
         Tile(32, 32, 16, 2, 2), Tile(16, 64, 16, 1, 4), Tile(16, 32, 16, 1, 2),
         Tile(16, 16, 16, 1, 1), Tile(8, 16, 16, 1, 1), Tile(8, 8, 8, 1, 1))


def choose(m: int, n: int, k: int, batch: int, grid: Grid, element: int, through: bool) -> Tile:
    """The tile with the least estimated time: work that is thrown away at the edges, units with
    nothing to do, and the reads of shared memory that each multiply-add has to wait for.

    >>> choose(4096, 4096, 4096, 1, Grid(), 4, False)
    Tile(rows=128, columns=128, depth=8, high=8, wide=8)
    """
    best: tuple[float, Tile] | None = None
    for tile in TILES:
        if tile.threads > grid.threads or tile.shared(element, through) > grid.shared:
            continue
        tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns) * batch
        each = tile.rows * tile.columns * (1 + 1.5 / tile.high + 1.5 / tile.wide) * (k + 32)
        time = math.ceil(tiles / grid.units) * each
        if best is None or time < best[0]:
            best = time, tile
    if best is None:
        raise Unsupported(f"a matrix product needs {TILES[-1].threads} threads and "
                          f"{TILES[-1].shared(element, through)} bytes that they share; this "
                          f"device has {grid.threads} and {grid.shared}")
    return best[1]


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
    tile = choose(m, n, k, batch, grid, of.bytes, through)
    down, along = math.ceil(m / tile.rows), math.ceil(n / tile.columns)
    with workgroups(b, batch * down * along, grid) as g, threads(b, tile.threads) as t:
        which = b.div(g, down * along)
        g = b.rem(g, down * along)
        first = b.mul(b.div(g, along), tile.rows)
        left = b.mul(b.rem(g, along), tile.columns)
        nest = _Tile(b, region, product, memory, target, limits, tile, of)
        nest.run(which, first, left, t, through)


class _Tile:
    """One workgroup's tile."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Tile, of: DType):
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits = memory, target, limits
        self.tile, self.of = tile, of
        self.batch = product.shape[:-2]
        self.m, self.n = product.shape[-2:]
        self.k = product.args[0].shape[-1]
        # A strip has one column more than it needs: else threads that store down it would all
        # wait for the same bank of memory.
        self.pitch = (tile.rows + 1, tile.columns)
        self.strips = [b.memory(name, of, tile.depth * pitch, "shared", "rw")
                       for name, pitch in zip(("strip_a", "strip_b"), self.pitch, strict=True)]

    def run(self, which: Operand, first: Operand, left: Operand, t: Operand,
            through: bool) -> None:
        b, tile = self.b, self.tile
        sums = [[b.var(self.of, 1, 0) for _ in range(tile.wide)] for _ in range(tile.high)]
        batch = Var("b", math.prod(self.batch))
        at = {batch: which}
        lead = unflatten(Index.of(batch), self.batch)
        row, column = b.mul(b.div(t, tile.across), tile.high), b.rem(t, tile.across)
        with b.loop(0, self.k, tile.depth) as k:
            self._bring(0, lead, at, first, k, t)
            self._bring(1, lead, at, left, k, t)
            b.barrier()
            with b.loop(0, tile.depth) as d:
                down = b.add(b.mul(d, self.pitch[0]), row)
                along = b.add(b.mul(d, self.pitch[1]), column)
                lefts = [b.load(self.strips[0], down, off=i) for i in range(tile.high)]
                rights = [b.load(self.strips[1], along, off=j * tile.across)
                          for j in range(tile.wide)]
                for i, x in enumerate(lefts):
                    for j, y in enumerate(rights):
                        b.set(sums[i][j], self._step(x, y, b.get(sums[i][j])))
            b.barrier()
        if through:
            self._finish_through(at, lead, first, left, sums, t, row, column)
        else:
            for i in range(tile.high):
                for j in range(tile.wide):
                    x = b.cast(b.get(sums[i][j]), dtype=self.product.dtype)
                    self._finish(at, lead, b.add(first, b.add(row, i)),
                                 b.add(left, b.add(column, j * tile.across)), x)

    def _bring(self, side: int, lead: tuple[Index, ...], at: dict[Var, Operand], start: Operand,
               k: Operand, t: Operand) -> None:
        """A strip of an operand into shared memory; zeros beyond its edges. Neighbouring threads
        read neighbours in memory."""
        b, tile, operand = self.b, self.tile, self.product.args[side]
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        deep = self._lies_along_k(side)
        count = length * tile.depth // tile.threads
        whole = length * tile.depth % tile.threads == 0
        for turn in range(count + (not whole)):
            number = b.add(t, turn * tile.threads)
            if deep:
                line, d = b.div(number, tile.depth), b.rem(number, tile.depth)
            else:
                line, d = b.rem(number, length), b.div(number, length)
            beyond = b.lt(number, length * tile.depth) if turn == count else None
            with where(b, beyond):
                x, kk = b.add(start, line), b.add(k, d)
                inside = None
                if extent % length:
                    inside = b.lt(x, extent)
                if self.k % tile.depth:
                    deeper = b.lt(kk, self.k)
                    inside = deeper if inside is None else b.and_(inside, deeper)
                one, other = Var("x", extent), Var("k", self.k)
                e = Emitter(b, self.memory, {**at, one: x, other: kk}, members=self.region.flat)
                index = (*lead, Index.of(one), Index.of(other)) if side == 0 else (
                    *lead, Index.of(other), Index.of(one))
                value = b.cast(e.element(operand, index, inside), dtype=self.of)
                if inside is not None and not self._loads(operand):
                    value = b.select(inside, value, 0)
                pitch = self.pitch[side]
                b.store(self.strips[side], b.add(b.mul(d, pitch), line), value)

    def _loads(self, operand: Value) -> bool:
        """Whether elements outside the mask are zero by themselves: a plain load's are."""
        return operand in self.memory

    def _lies_along_k(self, side: int) -> bool:
        """Whether neighbours in memory are neighbours along k."""
        operand = self.product.args[side]
        axes = [Var(f"d{i}", n) for i, n in enumerate(operand.shape)]
        base = view_of(operand, [Index.of(v) for v in axes])
        along_k = axes[-1] if side == 0 else axes[-2]
        return base is not None and base[1].factor(along_k) == 1

    def _step(self, x: Operand, y: Operand, total: Operand) -> Operand:
        if self.limits.fma and total.dtype.is_float:
            return self.b.fma(x, y, total)
        return self.b.add(total, self.b.mul(x, y))

    # -- the epilogue ----------------------------------------------------------------------------

    def _finish_through(self, at: dict[Var, Operand], lead: tuple[Index, ...], first: Operand,
                        left: Operand, sums: list[list[Operand]], t: Operand, row: Operand,
                        column: Operand) -> None:
        """Through shared memory, so that the epilogue stands once, in a loop over the tile, and
        neighbouring threads have neighbouring elements."""
        b, tile = self.b, self.tile
        size = tile.rows * tile.columns
        array = b.memory("tile", self.of, size, "shared", "rw")
        start = b.add(b.mul(row, tile.columns), column)
        for i, line in enumerate(sums):
            for j, variable in enumerate(line):
                b.store(array, start, b.get(variable), off=i * tile.columns + j * tile.across)
        b.barrier()
        with b.loop(t, size, tile.threads) as number:
            x = b.cast(b.load(array, number), dtype=self.product.dtype)
            self._finish(at, lead, b.add(first, b.div(number, tile.columns)),
                         b.add(left, b.rem(number, tile.columns)), x)
        b.barrier()  # before another tile's sums

    def _finish(self, at: dict[Var, Operand], lead: tuple[Index, ...], row: Operand,
                column: Operand, x: Operand) -> None:
        """The epilogue of one element."""
        b, inside = self.b, None
        for place, extent, step in ((row, self.m, self.tile.rows),
                                    (column, self.n, self.tile.columns)):
            if extent % step:
                test = b.lt(place, extent)
                inside = test if inside is None else b.and_(inside, test)
        one, other = Var("m", self.m), Var("n", self.n)
        with where(b, inside):
            e = Emitter(b, self.memory, {**at, one: row, other: column}, members=self.region.flat)
            e.here[self.product] = x
            flat = flatten((*lead, Index.of(one), Index.of(other)), self.product.shape)
            evaluate(e, self.region.members, self.region, {self.region.outer: flat}, self.target)
