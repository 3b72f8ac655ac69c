"""The loop nest of a matrix product: register tiles, with the epilogue applied to each tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Quotient, Remainder, Var, flatten, unflatten
from ztorch.lower.loops import evaluate, nested, summing
from ztorch.lower.region import COPY, Region, view_of

FROM_L2 = 24  # bytes a cycle that the second level of cache delivers while the core computes
SHORT = 5  # members of a region up to which its epilogue is repeated for each row of a tile,
DEEP = 256  # unless the product is so deep that going through memory is lost in its time
UNROLL = 4  # steps along k in one turn: fewer integer operations beside the multiply-adds
HIGH = 16  # the most rows of a tile
AHEAD = 8  # steps along k that rows of B are fetched before they are used


@dataclass(frozen=True)
class Run:
    """`count` equal tiles of `size` along one axis, from `start`."""

    start: int
    size: int
    count: int


@dataclass(frozen=True)
class Tiling:
    """The schedule of a product: tiles of rows and of vectors of columns, and their order.

    `block` tiles of rows are done for one panel of columns before the next panel: they stay in the
    second level of cache while panels pass by.
    """

    rows: tuple[Run, ...]
    panels: tuple[Run, ...]  # in vectors
    lanes: int
    tail: int  # columns in the last vector, where it is not whole; else 0
    block: int
    ahead: int  # how far rows of B are fetched ahead; 0 where they are close already


@dataclass(frozen=True)
class Reading:
    """How a product can read its left operand where it lies: `depths` are the loops along k, from
    the outermost, in which positions are sums; `heights` how many rows a tile may have for them to
    lie as far apart in every tile."""

    depths: tuple[int, ...]
    heights: tuple[int, ...]


def reading(left: Value) -> Reading | None:
    """The way to read the rows of a matrix, which may be windows of an image; None if there is
    none but a copy."""
    *batch, m, k = left.shape
    where = [Index.of(Var(f"b{a}", n)) for a, n in enumerate(batch)]
    depths = _depths(left, [*where, Index.of(Var("m", m))], [k])
    if depths is None:
        return None
    loops = [Var(f"k{a}", n) for a, n in enumerate(depths)]
    along = flatten([Index.of(v) for v in loops], depths)
    return Reading(depths, tuple(h for h in range(1, min(m, HIGH) + 1) if _even(
        left, where, h, along)))


def _depths(left: Value, at: list[Index], sizes: list[int]) -> tuple[int, ...] | None:
    """Loops along k, the outermost split again wherever it is counted in other units."""
    loops = [Var(f"k{a}", n) for a, n in enumerate(sizes)]
    base = view_of(left, (*at, flatten([Index.of(v) for v in loops], sizes)))
    if base is None:
        return tuple(sizes)
    parts = [a for a in _parts(base[1]) if a.inner.mentions(loops[0])]
    if not parts:
        return None if any(a.inner.mentions(v) for a in _parts(base[1]) for v in loops) else (
            tuple(sizes))
    inside = [*parts, *(b for a in parts for b in _parts(a.inner))]
    units = {a.by for a in inside} | {sizes[0] // a.by for a in inside}
    for unit in sorted(units, reverse=True):
        if 1 < unit < sizes[0] and sizes[0] % unit == 0:
            found = _depths(left, at, [sizes[0] // unit, unit, *sizes[1:]])
            if found is not None:
                return found
    return None


def _even(left: Value, where: list[Index], height: int, along: Index) -> bool:
    """Whether rows of a tile lie the same way in every tile of that height."""
    tile, row = Var("t", left.shape[-2] // height), Var("r", height)
    base = view_of(left, (*where, Index.of(tile) * height + Index.of(row), along))
    return base is None or not any(
        a.inner.mentions(row) and not _only(a.inner, row) for a in _parts(base[1]))


def _parts(flat: Index) -> list[Quotient | Remainder]:
    return [a for a, _ in flat.terms if isinstance(a, (Quotient, Remainder))]


def _only(index: Index, var: Var) -> bool:
    """Whether an index depends on nothing but one variable."""
    return all(a == var or (isinstance(a, (Quotient, Remainder)) and _only(a.inner, var))
               for a, _ in index.terms)


def split(total: int, most: int) -> tuple[Run, ...]:
    """As few tiles as possible, as equal as possible.

    >>> split(64, 14)
    (Run(start=0, size=13, count=4), Run(start=52, size=12, count=1))
    """
    tiles = math.ceil(total / most)
    size = math.ceil(total / tiles)
    large = total - tiles * (size - 1)
    runs = [Run(0, size, large), Run(large * size, size - 1, tiles - large)]
    return tuple(r for r in runs if r.count and r.size)


def _equal(total: int, size: int) -> tuple[Run, ...]:
    """Tiles of one size and a smaller last one."""
    whole = total // size
    runs = [Run(0, size, whole), Run(whole * size, total - whole * size, 1)]
    return tuple(r for r in runs if r.count and r.size)


def choose(m: int, n: int, k: int, limits: Limits, d: DType, packed: bool = False,
           heights: Sequence[int] = tuple(range(1, HIGH + 1))) -> Tiling:
    """The tiling with the least estimated time; `packed` keeps all panels but the last as wide.
    Tiles have one of the `heights`, and what is left at the end any.

    A step along k costs a tile the most of: rows * vectors multiply-adds and rows + vectors loads,
    two of each a cycle; the latency of the adds; and the way of the vectors of B from the second
    level of cache, unless its panel stays in the first. Accumulators, the vectors of B and one
    broadcast element of A must fit the registers; a single row takes B from memory.
    """
    lanes, element = limits.lanes(d), d.bytes
    vectors = math.ceil(n / lanes)
    cut = _equal if packed else split
    heights = [h for h in heights if h <= m]
    down = split if len(heights) == min(m, HIGH) else _equal
    best: tuple[float, int, int] | None = None
    for rows in heights:
        for wide in range(1, min(vectors, 16) + 1):
            if rows * wide + (wide if rows > 1 else 0) + 1 > limits.registers:
                break
            time = 0.0
            for r in down(m, rows):
                for p in cut(vectors, wide):
                    away = p.size * k * lanes * element > limits.l1 // 2
                    fetch = p.size * lanes * element / FROM_L2 if away else 0.0
                    step = max(r.size * p.size / 2, (r.size + p.size) / 2, 4.0, fetch)
                    time += r.count * p.count * (step * k + 12 + 2 * r.size * p.size)
            if best is None or time < best[0] * 0.999:
                best = (time, rows, wide)
    assert best is not None
    _, rows, wide = best
    tail = n % lanes
    panels = cut(vectors, wide)
    if tail and (panels[-1].count > 1 or len(panels) > 1):  # only the last panel needs a mask
        last = panels[-1]
        panels = (*panels[:-1], Run(last.start, last.size, last.count - 1),
                  Run(last.start + last.size * (last.count - 1), last.size, 1))
        panels = tuple(p for p in panels if p.count)
    tiles = down(m, rows)
    close = k * wide * lanes * element <= limits.l1 // 2
    fits = max(1, limits.l2 // 2 // (tiles[0].size * k * element))
    block = fits if k * n * element > limits.l2 // 2 else 1
    return Tiling(tiles, panels, lanes, tail, block, ahead=0 if close or m == 1 else AHEAD)


def emit_contract(b: Builder, region: Region, memory: Mapping[Value, str],
                  target: Mapping[Value, str], limits: Limits) -> None:
    """All tiles of the product that the region is built around."""
    product = next(v for v in region.members if v.op.kind == "contract")
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes = limits.lanes(product.dtype)
    way = Reading((k,), (1,)) if lanes == 1 else reading(product.args[0])
    assert way is not None, "a product reads what cannot be read where it lies"
    if lanes == 1:
        tiling = Tiling((Run(0, 1, m),), (Run(0, 1, n),), 1, 0, 1, 0)
    else:
        tiling = choose(m, n, k, limits, product.dtype, is_packed(product.args[1]), way.heights)
    nest = _Tiles(b, region, product, memory, target, limits, tiling, way.depths)
    for rows in tiling.rows:
        for panels in tiling.panels:
            nest.run(rows, panels)


def pack(right: Value, m: int, limits: Limits, of: DType) -> Value:
    """The right operand of a product of dtype `of` with each panel of columns in one piece, seen
    as the same matrix."""
    k, n = right.shape
    tiling = choose(m, n, k, limits, of, packed=True)
    width = tiling.panels[0].size * tiling.lanes
    count = math.ceil(n / width)
    padded = OPS.pad(right, (0, 0), (0, count * width - n))
    panels = COPY(OPS.transpose(OPS.reshape(padded, (k, count, width)), (1, 0, 2)))
    whole = OPS.reshape(OPS.transpose(panels, (1, 0, 2)), (k, count * width))
    return OPS.slice(whole, (0, 0), (1, 1), (k, n))


def is_packed(right: Value) -> bool:
    """Whether the right operand is a view of what `pack` made."""
    base = view_of(right, [Index() for _ in right.shape])
    return base is not None and base[0].rank == 3 and right.rank == 2


class _Operand:
    """An operand of the product at one place, in some rows, and some steps along k away.

    Rows lie at distances that are known, and a step along k adds a constant: what is read, and
    where, is worked out once a tile, not once an element."""

    def __init__(self, e: Emitter, v: Value, rows: Sequence[tuple[Index, ...]], depth: Var):
        self.e, self.v, self.rows, self.depth = e, v, rows, depth
        found = [view_of(v, index) for index in rows]
        self.places = [base for base in found if base is not None and base[0] in e.memory
                       and not any(a.inner.mentions(depth) for a in _parts(base[1]))]
        self.known = len(self.places) == len(rows)

    def at(self, row: int, step: int) -> Operand:
        if self.known:
            return self.e.load(*self._moved(row, step))
        moved = {self.depth: Index.of(self.depth) + step} if step else {}
        return self.e.element(self.v, tuple(i.replace(moved) for i in self.rows[row]))

    def prefetch(self, step: int) -> None:
        if self.known:
            self.e.prefetch(*self._moved(0, step))

    def _moved(self, row: int, step: int) -> tuple[Value, Index]:
        base, flat = self.places[row]
        return base, flat + step * flat.factor(self.depth)


class _Tiles:
    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tiling: Tiling,
                 depths: Sequence[int]):
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits, self.tiling = memory, target, limits, tiling
        self.depths = depths
        self.batch = product.shape[:-2]
        self.n = product.shape[-1]
        self.arrays = 0

    def run(self, rows: Run, panels: Run) -> None:
        """Every tile of one size; workers share out pairs of a block of rows and a panel."""
        b, block = self.b, self.tiling.block
        blocks = math.ceil(rows.count / block)
        each = blocks * panels.count
        with b.loop(0, math.prod(self.batch) * each, kind="parallel") as t:
            batch = b.div(t, each) if self.batch else b.const(0, b.index)
            t = b.rem(t, each) if self.batch else t
            at_block, at_panel = b.div(t, panels.count), b.rem(t, panels.count)
            first = b.mul(at_block, block)
            if block == 1:
                self._tile(batch, first, at_panel, rows, panels)
                return
            with b.loop(first, b.min(b.add(first, block), rows.count)) as at_row:
                self._tile(batch, at_row, at_panel, rows, panels)

    def _tile(self, batch: Operand, down: Operand, panel: Operand, rows: Run,
              panels: Run) -> None:
        b, lanes, product = self.b, self.tiling.lanes, self.product
        height, width = rows.size, panels.size
        which, at_row = Var("b", math.prod(self.batch)), Var("m", rows.count)
        across = Var("p", panels.count)
        bound = {which: batch, at_row: down, across: panel}
        first = Index.of(at_row) * height + rows.start
        scopes = [self._scope(bound, panels, j) for j in range(width)]
        of = summing(product.dtype)
        sums = [[b.var(of, lanes, 0.0) for _ in range(width)] for _ in range(height)]
        where = unflatten(Index.of(which), self.batch)
        a_of, b_of = product.args
        row_at = [first + r for r in range(height)]
        column_at = [Index.of(across) * (width * lanes) + (panels.start + j) * lanes
                     + (Index.of(s.lane) if s.lane else 0) for j, s in enumerate(scopes)]
        with self._outer_depths(bound) as (bound, outer):
            for begin, end, times in self._turns():
                depth = Var("k", self.depths[-1] - times + 1, kept=True)
                along = outer * self.depths[-1] + Index.of(depth)
                with b.loop(begin, end, times) as kk:
                    inner = [s.within(bound={**s.bound, **bound, depth: kk}) for s in scopes]
                    now = [[b.get(v) for v in line] for line in sums]
                    rights = [_Operand(inner[j], b_of, [(*where, along, column_at[j])], depth)
                              for j in range(width)]
                    left = _Operand(inner[0], a_of, [(*where, row, along) for row in row_at], depth)
                    for u in range(times):
                        self._deeper(left, rights, u, now)
                    for line, values in zip(sums, now, strict=True):
                        for variable, x in zip(line, values, strict=True):
                            b.set(variable, x)
        k = product.args[0].shape[-1]
        short = len(self.region.members) == 1 or (
            len(self.region.members) <= SHORT and k < DEEP)
        if short or height == 1 or lanes == 1:
            for r in range(height):
                for j in range(width):
                    x = b.cast(b.get(sums[r][j]), dtype=product.dtype)
                    self._finish(scopes[j], x, (*where, row_at[r], column_at[j]))
            return
        self._finish_in_turn(bound, scopes, sums, where, first, column_at)

    @contextmanager
    def _outer_depths(self, bound: dict[Var, Operand]) -> Iterator[
            tuple[dict[Var, Operand], Index]]:
        """All loops along k but the innermost, and where they are."""
        loops = [Var(f"k{a}", n) for a, n in enumerate(self.depths[:-1])]
        with nested(self.b, loops) as counters:
            at = flatten([Index.of(v) for v in loops], [v.extent for v in loops])
            yield {**bound, **dict(zip(loops, counters, strict=True))}, at

    def _turns(self) -> list[tuple[int, int, int]]:
        """The innermost loop along k in pieces: begin, end, and steps in a turn."""
        k = self.depths[-1]
        if self.tiling.lanes == 1:
            return [(0, k, 1)]
        if len(self.depths) > 1 and k <= 2 * UNROLL:
            return [(0, k, k)]
        whole = k // UNROLL * UNROLL
        return [turn for turn in ((0, whole, UNROLL), (whole, k, 1)) if turn[0] < turn[1]]

    def _deeper(self, left: _Operand, rights: list[_Operand], step: int,
                now: list[list[Operand]]) -> None:
        """One step along k for all of a tile."""
        of = summing(self.product.dtype)
        if self.tiling.ahead:
            for operand in rights:
                operand.prefetch(step + self.tiling.ahead)
        right = [self.b.cast(x.at(0, step), dtype=of) for x in rights]
        for r, line in enumerate(now):
            x = self.b.cast(left.at(r, step), dtype=of)
            for j, y in enumerate(right):
                line[j] = self._step(x, y, line[j])

    def _finish_in_turn(self, bound: dict[Var, Operand], scopes: list[Emitter],
                        sums: list[list[Operand]], where: tuple[Index, ...], first: Index,
                        column_at: list[Index]) -> None:
        """A long epilogue is not repeated for each row of the tile: the sums go through a small
        local array, and a loop over its rows finishes them."""
        b, lanes, d = self.b, self.tiling.lanes, self.product.dtype
        height, width = len(sums), len(scopes)
        self.arrays += 1
        array = b.memory(f"tile{self.arrays}", d, height * width * lanes, "local", "rw")
        for r in range(height):
            for j in range(width):
                x = b.cast(b.get(sums[r][j]), dtype=d)
                b.store(array, 0, x, off=(r * width + j) * lanes)
        with b.loop(0, height) as at:
            down = Var("r", height)
            row = first + Index.of(down)
            start = b.mul(at, width * lanes)
            for j, scope in enumerate(scopes):
                inner = scope.within(bound={**scope.bound, down: at})
                x = b.load(array, start, off=j * lanes, lanes=lanes)
                self._finish(inner, x, (*where, row, column_at[j]))

    def _finish(self, e: Emitter, x: Operand, index: tuple[Index, ...]) -> None:
        """The epilogue of one vector of sums."""
        scope = e.within()
        scope.here[self.product] = x
        at = flatten(index, self.product.shape)
        evaluate(scope, self.region.members, self.region, {self.region.outer: at}, self.target)

    def _step(self, x: Operand, y: Operand, total: Operand) -> Operand:
        if self.limits.fma and total.dtype.is_float:
            return self.b.fma(x, y, total)
        return self.b.add(total, self.b.mul(x, y))

    def _scope(self, bound: dict[Var, Operand], panels: Run, j: int) -> Emitter:
        """The scope of one vector of columns; the very last one may have to be masked."""
        b, lanes, tail = self.b, self.tiling.lanes, self.tiling.tail
        if lanes == 1:
            return Emitter(b, self.memory, bound, members=self.region.flat)
        end = panels.start + panels.size * panels.count
        masked = tail and j == panels.size - 1 and end == math.ceil(self.n / lanes)
        lane = Var("n", tail if masked else lanes, kept=True)
        mask = b.lt(b.iota(lanes), tail) if masked else None
        bound = {**bound, lane: b.const(0, b.index)}
        return Emitter(b, self.memory, bound, lane, lanes, mask, self.region.flat)
