"""The loop nest of a matrix product: register tiles, with the epilogue applied to each tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import AccessPattern, Run, access_pattern, steps_per_iteration
from ztorch.lower.cpu.product_operand import ProductOperand
from ztorch.lower.cpu.tile_prefetch import distant_readers, prefetch_next_panel, prefetch_operands
from ztorch.lower.cpu.tiling import (
    Tiling,
    choose,
    estimated_cycles,
    kept_for_iterations,
    packed_columns,
    product_lanes,
    registers,
    row_distance,
    tiling,
    whole_panels,
)
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, multiply_add, nested, summing
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import COPY, Region
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import (
    INLINE_EPILOGUE_DEPTH,
    INLINE_EPILOGUE_MEMBERS,
    LINE_BYTES,
    PREFETCH_MAX,
    UNROLL_MAX,
)


def product_of(region: Region) -> Value:
    """The product that a region is built around."""
    return next(v for v in region.members if v.op.kind == "contract")


def lanes_of(region: Region, limits: Limits) -> int:
    """The lanes of a vector of its tiles."""
    product = product_of(region)
    return product_lanes(product.shape[-1], limits, product.dtype)


def _access_pattern(product: Value) -> AccessPattern:
    """The access pattern of the left operand."""
    left = product.args[0]
    access = access_pattern(left)
    assert access is not None, "a product reads an operand that cannot be read in place"
    return access


def propose(region: Region, limits: Limits) -> ProductSchedule:
    """The tiles with the least estimated time. A short epilogue (copies do not count) is unrolled
    over the rows of a tile, unless k is so large that a loop over a local array costs little."""
    product = product_of(region)
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes = lanes_of(region, limits)
    access, panel = _access_pattern(product), packed_columns(product.args[1]) // lanes
    s = choose(m, n, k, limits, product.dtype, panel > 0, access, panel,
               row_distance(product.args[1]),
               kept_for_iterations(product.args[1], limits.processor))
    members = sum(v.op is not COPY for v in region.members)
    inline = members == 1 or (members <= INLINE_EPILOGUE_MEMBERS and k < INLINE_EPILOGUE_DEPTH)
    return replace(s, epilogue_inline=int(inline))


def refusal(s: ProductSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    product = product_of(region)
    m, n = product.shape[-2:]
    lanes = lanes_of(region, limits)
    heights, vectors = _access_pattern(product).heights, math.ceil(n / lanes)
    columns = packed_columns(product.args[1])
    if s.tile_rows not in heights:
        return (f"tile(rows={s.tile_rows}) must be one of {', '.join(map(str, heights))} for these "
                f"{m} rows")
    if not 1 <= s.tile_vectors <= vectors:
        return f"tile(vectors={s.tile_vectors}) must be between 1 and the {vectors} of a row"
    used = registers(s.tile_rows, s.tile_vectors)
    if used > limits.vector_registers:
        return (f"tile(rows={s.tile_rows}, vectors={s.tile_vectors}) takes {used} vector registers "
                f"of {limits.vector_registers}")
    if columns and not whole_panels(s.tile_vectors, columns // lanes):
        return (f"tile(vectors={s.tile_vectors}) must divide the {columns // lanes} vectors that "
                "the right operand is packed in, or be a multiple of them")
    for name, value, least, most in (
            ("block(rows=...)", s.block_rows, 1, m), ("prefetch(...)", s.prefetch, 0, PREFETCH_MAX),
            ("unroll(...)", s.unroll, 1, UNROLL_MAX),
            ("epilogue(inline=...)", s.epilogue_inline, 0, 1)):
        if not least <= value <= most:
            return f"{name} must be between {least} and {most}, not {value}"
    return ""


def estimator(region: Region, limits: Limits) -> Callable[[ProductSchedule], float]:
    """A function that estimates the cycles of a product with the tiles of a schedule."""
    product = product_of(region)
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes, access = lanes_of(region, limits), _access_pattern(product)
    packed = packed_columns(product.args[1]) > 0

    def cycles(s: ProductSchedule) -> float:
        if s.tile_rows not in access.heights:
            return math.inf
        tiles = tiling(s.tile_rows, s.tile_vectors, m, n, lanes, packed, access)
        return estimated_cycles(tiles, k, product.dtype, limits.processor)

    return cycles


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: ProductSchedule) -> None:
    """All tiles of the product that the region is built around."""
    product = product_of(region)
    m, n = product.shape[-2:]
    lanes = lanes_of(region, limits)
    access = _access_pattern(product)
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, lanes,
                   packed_columns(product.args[1]) > 0, access)
    nest = _Tiles(b, region, product, memory, target, limits, tiles, s, access.depths)
    for panels in tiles.panels:
        if s.block_rows > 1:
            nest.blocks(panels)
        else:
            for rows in tiles.rows:
                nest.run(rows, panels)


class _Tiles:
    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tiling: Tiling,
                 schedule: ProductSchedule, depths: tuple[int, ...]):
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits, self.tiling = memory, target, limits, tiling
        self.schedule, self.depths = schedule, depths
        self.batch = product.shape[:-2]
        self.n = product.shape[-1]
        self.arrays = 0
        self.distant = distant_readers(region, product, memory, limits)

    def run(self, rows: Run, panels: Run) -> None:
        """All tiles of one size. Workers share them."""
        with self._shared(rows.tiles, panels.count) as (batch, at_row, at_panel):
            self._tile(batch, at_row, at_panel, rows, panels)

    def blocks(self, panels: Run) -> None:
        """All tiles of one width. Workers share the pairs of a row block and a panel: a block reads
        its panel once from an outer cache, and its tiles prefetch the next panel meanwhile."""
        b, block, runs = self.b, self.schedule.block_rows, self.tiling.rows
        blocks = math.ceil(self.tiling.down / block)
        with self._shared(blocks, panels.count) as (batch, at_block, at_panel):
            first, before = b.mul(at_block, block), 0
            for rows in runs:
                begin = b.max(b.sub(first, before), 0)
                end = b.min(b.sub(b.add(first, block), before), rows.tiles)
                with b.loop(*((begin, end) if blocks > 1 else (0, rows.tiles))) as at_row:
                    tile_number = b.sub(b.add(at_row, before), first)
                    self._tile(batch, at_row, at_panel, rows, panels, tile_number)
                before += rows.tiles

    @contextmanager
    def _shared(self, down: int, across: int) -> Iterator[tuple[Operand, Operand, Operand]]:
        """The loop that workers share: the index of the matrix, of the row and of the column."""
        b, per_matrix = self.b, down * across
        with b.loop(0, math.prod(self.batch) * per_matrix, kind="parallel") as t:
            batch = b.div(t, per_matrix) if self.batch else b.const(0, b.index)
            t = b.rem(t, per_matrix) if self.batch else t
            yield batch, b.div(t, across), b.rem(t, across)

    def _tile(self, batch: Operand, down: Operand, panel: Operand, rows: Run,
              panels: Run, tile_number: Operand | None = None) -> None:
        """One tile. `tile_number` is its number in its row block, if there are blocks."""
        b, lanes, product = self.b, self.tiling.lanes, self.product
        height, width = rows.size, panels.size
        which, at_row = Var("b", math.prod(self.batch)), Var("m", rows.count)
        across, again = Var("p", panels.count), Var("g", rows.repeats)
        bound = {which: batch, at_row: down, across: panel}
        if rows.repeats > 1:
            bound |= {at_row: b.rem(down, rows.count), again: b.div(down, rows.count)}
        first = Index.of(again) * rows.period + Index.of(at_row) * height + rows.start
        scopes = [self._scope(bound, panels, j) for j in range(width)]
        of = summing(product.dtype)
        sums = [[b.var(of, lanes, 0.0) for _ in range(width)] for _ in range(height)]
        where = unflatten(Index.of(which), self.batch)
        a_of, b_of = product.args
        row_at = [first + r for r in range(height)]
        column_at = [Index.of(across) * (width * lanes) + (panels.start + j) * lanes
                     + (Index.of(s.lane) if s.lane else 0) for j, s in enumerate(scopes)]
        vector_bytes = lanes * b_of.dtype.bytes
        for r in range(height) if self.distant else ():
            for j in range(0, width, max(1, LINE_BYTES // vector_bytes)):
                at = flatten((*where, row_at[r], column_at[j]), product.shape)
                prefetch_operands(scopes[j], self.distant, self.region, {self.region.outer: at})
        with self._outer_depths(bound) as (bound, outer):
            for begin, end, times in self._pieces_of_k():
                depth = Var("k", self.depths[-1] - times + 1, kept=True)
                along = outer * self.depths[-1] + Index.of(depth)
                with b.loop(begin, end, times) as kk:
                    inner = [s.within(bound={**s.bound, **bound, depth: kk}) for s in scopes]
                    now = [[b.get(v) for v in line] for line in sums]
                    rights = [ProductOperand(inner[j], b_of, [(*where, along, column_at[j])], depth)
                              for j in range(width)]
                    lines = [(*where, row, along) for row in row_at]
                    left = ProductOperand(inner[0], a_of, lines, depth)
                    for u in range(times):
                        self._step(left, rights, u, now)
                    if tile_number is not None:
                        prefetch_next_panel(
                            b, rights, across, tile_number, times,
                            min(self.schedule.block_rows, self.tiling.down), vector_bytes)
                    for line, values in zip(sums, now, strict=True):
                        for variable, x in zip(line, values, strict=True):
                            b.set(variable, x)
        if self.schedule.epilogue_inline or height == 1:
            for r in range(height):
                for j in range(width):
                    x = b.cast(b.get(sums[r][j]), dtype=product.dtype)
                    self._finish(scopes[j], x, (*where, row_at[r], column_at[j]))
            return
        self._finish_through_array(bound, scopes, sums, where, first, column_at)

    @contextmanager
    def _outer_depths(self, bound: dict[Var, Operand]) -> Iterator[
            tuple[dict[Var, Operand], Index]]:
        """All loops along k but the innermost, and their position along k."""
        loops = [Var(f"k{a}", n) for a, n in enumerate(self.depths[:-1])]
        with nested(self.b, loops) as counters:
            at = flatten([Index.of(v) for v in loops], [v.extent for v in loops])
            yield {**bound, **dict(zip(loops, counters, strict=True))}, at

    def _pieces_of_k(self) -> list[tuple[int, int, int]]:
        """The pieces of the innermost loop along k: begin, end, and steps per iteration."""
        k, steps = self.depths[-1], steps_per_iteration(self.depths, self.schedule.unroll)
        main = k // steps * steps
        return [piece for piece in ((0, main, steps), (main, k, 1)) if piece[0] < piece[1]]

    def _step(self, left: ProductOperand, rights: list[ProductOperand], step: int,
              now: list[list[Operand]]) -> None:
        """One step along k for the whole tile."""
        of = summing(self.product.dtype)
        if self.schedule.prefetch:
            for operand in rights:
                operand.prefetch(step + self.schedule.prefetch)
        right = [self.b.cast(x.at(0, step), dtype=of) for x in rights]
        for r, line in enumerate(now):
            x = self.b.cast(left.at(r, step), dtype=of)
            for j, y in enumerate(right):
                line[j] = multiply_add(self.b, self.limits, x, y, line[j])

    def _finish_through_array(self, bound: dict[Var, Operand], scopes: list[Emitter],
                              sums: list[list[Operand]], where: tuple[Index, ...], first: Index,
                              column_at: list[Index]) -> None:
        """A long epilogue is not unrolled over rows: the sums are stored to a small local array,
        and a loop over its rows finishes them."""
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

    def _scope(self, bound: dict[Var, Operand], panels: Run, j: int) -> Emitter:
        """The scope of one vector of columns. The last vector of a row may need a mask."""
        b, lanes, tail = self.b, self.tiling.lanes, self.tiling.tail
        if lanes == 1:
            return Emitter(b, self.memory, bound, members=self.region.flat)
        end = panels.start + panels.size * panels.count
        masked = tail and j == panels.size - 1 and end == math.ceil(self.n / lanes)
        lane = Var("n", tail if masked else lanes, kept=True)
        mask = b.lt(b.iota(lanes), tail) if masked else None
        bound = {**bound, lane: b.const(0, b.index)}
        return Emitter(b, self.memory, bound, lane, lanes, mask, self.region.flat)
