"""The loop nest of a matrix product for a machine of workgroups.

Each workgroup computes a tile of the result. Step by step along k, its threads bring a strip of
both operands into memory they share, and each thread multiplies out a small tile of its own in
registers. Operands are read element by element wherever their views say, so transposes, windows
of a convolution and paddings need no copy. The epilogue runs over the finished tile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
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
from ztorch.lower.region import Region, certain, view_of


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

    def vectors(self, most: int) -> tuple[int, int]:
        """Neighbours that a thread reads at once from the strip of either operand."""
        return math.gcd(self.high, most), math.gcd(self.wide, most)

    def shared(self, element: int, through: bool) -> int:
        """Bytes of shared memory; with `through` the finished tile passes through it as well."""
        strips = (self.rows + self.columns) * self.depth + PAD * self.depth
        return element * (strips + (self.rows * self.columns if through else 0))


# A row of a strip is longer than it needs to be: else threads that store down it would all wait for
# the same bank of memory. A multiple of every vector, so that vectors stay aligned.
PAD = 4

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
    try:
        tile = choose(m, n, k, batch, grid, of.bytes, through)
    except Unsupported as error:
        raise Unsupported(f"layer {product.layer or product.op.name}: {error}; compile for another "
                          "device, such as cpu") from None
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
        assert limits.grid is not None
        self.vectors = tile.vectors(limits.grid.vector)
        self.pitch = (tile.rows + PAD, tile.columns)
        self.strips = [b.memory(name, of, tile.depth * pitch, "shared", "rw")
                       for name, pitch in zip(("strip_a", "strip_b"), self.pitch, strict=True)]

    def run(self, which: Operand, first: Operand, left: Operand, t: Operand,
            through: bool) -> None:
        b, tile = self.b, self.tile
        sums = [[b.var(self.of, 1, 0) for _ in range(tile.wide)] for _ in range(tile.high)]
        batch = Var("b", math.prod(self.batch))
        at = {batch: which}
        lead = unflatten(Index.of(batch), self.batch)
        row = b.mul(b.div(t, tile.across), tile.high)
        column = b.mul(b.rem(t, tile.across), self.vectors[1])
        with b.loop(0, self.k, tile.depth) as k:
            self._bring(0, lead, at, first, k, t)
            self._bring(1, lead, at, left, k, t)
            b.barrier()
            with b.loop(0, tile.depth) as d:
                down = b.add(b.mul(d, self.pitch[0]), row)
                along = b.add(b.mul(d, self.pitch[1]), column)
                lefts = self._strip(0, down, range(tile.high))
                rights = self._strip(1, along, [self._column(j) for j in range(tile.wide)])
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
                                 b.add(left, b.add(column, self._column(j))), x)

    def _column(self, j: int) -> int:
        """How far the j-th column of a thread is from its first: vectors of neighbours, as far
        apart as all threads' vectors together reach."""
        n = self.vectors[1]
        return j // n * n * self.tile.across + j % n

    def _strip(self, side: int, start: Operand, offs: Sequence[int]) -> list[Operand]:
        """Elements of a strip, neighbours loaded together."""
        b, n, out = self.b, self.vectors[side], []
        for off in offs[::n]:
            x = b.load(self.strips[side], start, off=off, lanes=n, align=n * self.of.bytes)
            out += [b.extract(x, k) for k in range(n)]
        return out

    def _bring(self, side: int, lead: tuple[Index, ...], at: dict[Var, Operand], start: Operand,
               k: Operand, t: Operand) -> None:
        """A strip of an operand into shared memory; zeros beyond its edges. Neighbouring threads
        read neighbours in memory, several at once where these are sure to lie side by side."""
        b, tile = self.b, self.tile
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        deep = self._lies_along_k(side)
        n = self._together(side, deep)
        across, down = (tile.depth // n, length) if deep else (length // n, tile.depth)
        count = math.ceil(across * down / tile.threads)
        for turn in range(count):
            number = b.add(t, turn * tile.threads)
            inner, outer = b.mul(b.rem(number, across), n), b.div(number, across)
            line, d = (outer, inner) if deep else (inner, outer)
            over = (turn + 1) * tile.threads > across * down
            with where(b, b.lt(number, across * down) if over else None):
                x, kk = b.add(start, line), b.add(k, d)
                tests = [b.lt(p, most) for p, most, step in (
                    (x, extent, length), (kk, self.k, tile.depth)) if most % step]
                inside = functools.reduce(b.and_, tests) if tests else None
                values = self._elements(side, lead, at, x, kk, inside, deep, n)
                pitch = self.pitch[side]
                place = b.add(b.mul(d, pitch), line)
                for i, value in enumerate(values):
                    b.store(self.strips[side], place, value, off=i * pitch if deep else i)

    def _elements(self, side: int, lead: tuple[Index, ...], at: dict[Var, Operand], x: Operand,
                  kk: Operand, inside: Operand | None, deep: bool, n: int) -> list[Operand]:
        """n neighbours of an operand, along k if it is deep; zeros where they are not inside."""
        b, operand = self.b, self.product.args[side]
        one, other = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
        e = Emitter(b, self.memory, {**at, one: x, other: kk}, members=self.region.flat)
        index = (*lead, Index.of(one), Index.of(other)) if side == 0 else (
            *lead, Index.of(other), Index.of(one))
        if n == 1:
            found = b.cast(e.element(operand, index, inside), dtype=self.of)
            plain = inside is None or operand in self.memory  # a masked load is zero by itself
            return [found if plain else b.select(inside, found, 0)]
        base = view_of(operand, index)
        assert base is not None
        place = e.value(base[1])
        if inside is not None:
            place = b.select(inside, place, 0)
        together = b.load(self.memory[base[0]], place, lanes=n, align=n * base[0].dtype.bytes)
        values = [b.cast(b.extract(together, i), dtype=self.of) for i in range(n)]
        return values if inside is None else [b.select(inside, v, 0) for v in values]

    def _together(self, side: int, deep: bool) -> int:
        """How many neighbours may be read at once: all of them lie side by side, aligned, and are
        inside or outside together."""
        assert self.limits.grid is not None
        operand, tile = self.product.args[side], self.tile
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        loops = [Var(f"d{i}", size) for i, size in enumerate(operand.shape)]
        index = [Index.of(v) for v in loops]
        base = view_of(operand, index)
        n = self.limits.grid.vector
        if n == 1 or base is None or not certain(operand, index) or not base[1].is_affine:
            return 1
        axis = loops[-1 if deep == (side == 0) else -2]
        others = [f for a, f in base[1].terms if a != axis] + [base[1].const]
        step, most = (tile.depth, self.k) if deep else (length, extent)
        if base[1].factor(axis) != 1 or any(f % n for f in (*others, step, most, base[0].size)):
            return 1
        return n

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
                b.store(array, start, b.get(variable), off=i * tile.columns + self._column(j))
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
