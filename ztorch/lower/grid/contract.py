"""The loop nest of a matrix product on a grid. Each workgroup computes a tile of the result. In
each iteration along k, its threads copy a strip of both operands to shared memory. Then each thread
multiplies a register tile, or subgroups use matrix instructions where these are faster. The
epilogue runs over the finished tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid import asynchronous, mma
from ztorch.lower.grid.epilogue import Bands, Block
from ztorch.lower.grid.operands import contiguous_along_k, narrow_loads, strip_registers
from ztorch.lower.grid.strips import Strip, Strips
from ztorch.lower.grid.thread_tiles import Tile
from ztorch.lower.grid.tiles import matrix_tile_of, tile_of
from ztorch.lower.grid.workgroups import threads, where, workgroups
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import multiply_add, summing
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridAsyncSchedule, GridMatrixSchedule, GridProductSchedule
from ztorch.lower.tuning import (
    LOAD_REGISTERS,
    MMA_REGISTERS,
    SCHEDULED_THREADS,
    STRIP_PADDING,
    THREAD_REGISTERS,
    THREAD_UNROLL,
)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridProductSchedule) -> None:
    """All tiles of the product of the region, multiplied by threads. If a thread holds many
    values, fewer workgroups share the registers of a compute unit."""
    product, tile = product_of(region), tile_of(s)
    grid = limits.grid
    assert grid is not None
    registers = tile.thread_rows * tile.thread_columns + strip_registers(product, tile, limits) + (
        LOAD_REGISTERS * narrow_loads(product, tile, limits))
    if registers > MMA_REGISTERS and grid.resident_threads > tile.threads:
        most = grid.resident_threads * THREAD_REGISTERS // (
            registers + THREAD_REGISTERS - MMA_REGISTERS)
        step = max(tile.threads, SCHEDULED_THREADS)  # each scheduler has registers of its own
        b.resident_threads = max(1, most // step) * step
    with _tiles(b, product, tile, limits) as (batch_number, first, left, t):
        nest = ThreadNest(b, region, product, memory, target, limits, tile, summing(product.dtype))
        nest.run(batch_number, first, left, t, has_epilogue=len(region.members) > 1)


def emit_matrix(b: Builder, region: Region, memory: Mapping[Value, str],
                target: Mapping[Value, str], limits: Limits, s: GridMatrixSchedule) -> None:
    """The same by matrix instructions."""
    product = product_of(region)
    shape = mma.shape_for(product, limits)
    assert shape is not None and limits.grid is not None
    tile = matrix_tile_of(s, shape, limits).padded(limits.grid)
    if tile.wide:
        b.resident_threads = tile.resident_threads(limits.grid)
    with _tiles(b, product, tile, limits) as (batch_number, first, left, t):
        nest = mma.MatrixNest(b, region, product, memory, target, limits, tile)
        nest.run(batch_number, first, left, t)


def emit_async(b: Builder, region: Region, memory: Mapping[Value, str],
               target: Mapping[Value, str], limits: Limits, s: GridAsyncSchedule) -> None:
    """The same by asynchronous matrix instructions."""
    product = product_of(region)
    shape = asynchronous.shape_for(product, limits)
    assert shape is not None and limits.grid is not None
    tile = asynchronous.tile_of(s.tile_rows, s.tile_columns, shape, limits.grid, s.stages,
                                s.epilogue_bands)
    with _tiles(b, product, tile, limits) as (batch_number, first, left, t):
        nest = asynchronous.AsyncNest(b, region, product, memory, target, limits, tile)
        nest.run(batch_number, first, left, t)


@contextmanager
def _tiles(b: Builder, product: Value, tile: Block, limits: Limits) -> Iterator[
        tuple[Operand, Operand, Operand, Operand]]:
    """A workgroup for each tile. Yields the number of the product in the batch, the tile's first
    row and first column, and the thread number."""
    m, n = product.shape[-2:]
    down, along = math.ceil(m / tile.rows), math.ceil(n / tile.columns)
    count = math.prod(product.shape[:-2]) * down * along
    assert limits.grid is not None
    with workgroups(b, count, limits.grid) as g, threads(b, tile.threads) as t:
        batch_number = b.div(g, down * along)
        g = b.rem(g, down * along)
        first = b.mul(b.div(g, along), tile.rows)
        left = b.mul(b.rem(g, along), tile.columns)
        yield batch_number, first, left, t


class ThreadNest(Strips):
    """A tile whose threads multiply register tiles. A thread loads vectors of `vectors` elements
    from each strip, or of `steps` elements where contiguous elements are along k.
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
        """Declares the strip of an operand. Returns the length of vectors along the tile that
        threads load from it, n at most."""
        width, grid = self.store_width(side), self.limits.grid
        assert grid is not None
        if width > 1 and contiguous_along_k(self.product, side):  # as it is loaded
            self.steps = width
            self.strip(self.tile.depth, length, along_k=True)
            return 1
        self.strip(length + pad, self.tile.depth)
        return n if grid.scalar_stores_readable_as_vectors else width if n % width == 0 else 1

    def run(self, batch_number: Operand, first: Operand, left: Operand, t: Operand,
            has_epilogue: bool) -> None:
        b, tile = self.b, self.tile
        sums = [[b.var(self.of, 1, 0) for _ in range(tile.thread_columns)]
                for _ in range(tile.thread_rows)]
        at, batch = self.batch_index(batch_number)
        team, member = b.const(0, b.index), t
        if tile.teams > 1:
            team, member = b.div(t, tile.team), b.rem(t, tile.team)
        is_first = b.eq(team, 0) if tile.teams > 1 else None  # the team with the whole sums
        down, across = self._of_thread(member)
        row, column = b.mul(down, tile.thread_rows), b.mul(across, self.vectors[1])
        share = tile.depth // tile.teams
        ahead = b.mul(team, share) if tile.teams > 1 else None

        def multiply(stage: Operand) -> None:
            unrolled = math.gcd(share // self.steps, THREAD_UNROLL)
            with b.loop(0, share, unrolled * self.steps) as d:
                at_depth = d if ahead is None else b.add(ahead, d)
                down, along = self._start(0, row, at_depth), self._start(1, column, at_depth)
                for step in range(unrolled):
                    self._multiply(sums, down, along, step * self.steps)

        def store(array: str, band: int) -> None:
            lines = tile.thread_rows // tile.bands
            with where(b, is_first):
                start = b.add(b.mul(b.mul(down, lines), tile.columns), column)
                for i in range(lines):
                    for j, variable in enumerate(sums[band * lines + i]):
                        b.store(array, start, b.get(variable),
                                off=i * tile.columns + self._column(j))

        self.run_along_k(at, batch, first, left, t, multiply)
        if tile.teams > 1:
            self._add_teams(sums, team, b.add(b.mul(row, tile.columns), column))
        if has_epilogue:
            bands = Bands(tile.rows, tile.columns, tile.thread_rows, tile.bands, tile.columns)
            self.tile_epilogue(bands, self.of, at, batch, first, left, t, store)
            return
        with where(b, is_first):
            row, column = b.add(first, row), b.add(left, column)
            self._store_sums(sums, at, batch, row, column)

    def _store_sums(self, sums: Sequence[Sequence[Operand]], at: dict[Var, Operand],
                    batch: tuple[Index, ...], row: Operand, column: Operand) -> None:
        """Stores a thread's sums, with one condition for each row that may be outside the product;
        if none may be, for each column."""
        b, columns = self.b, [self._column(j) for j in range(self.tile.thread_columns)]

        def store(i: int, j: int) -> None:
            x = b.cast(b.get(sums[i][j]), dtype=self.product.dtype)
            self.element_epilogue(at, batch, row, column, x, (i, columns[j]))()

        if self.rows_whole:
            for j, right in enumerate(columns):
                with where(b, self.inside_columns(b.add(column, right))):
                    for i in range(self.tile.thread_rows):
                        store(i, j)
            return
        for i in range(self.tile.thread_rows):
            with where(b, self.inside_rows(b.add(row, i))):
                for j, right in enumerate(columns):
                    with where(b, self.inside_columns(b.add(column, right))):
                        store(i, j)

    def _of_thread(self, member: Operand) -> tuple[Operand, Operand]:
        """A thread's small tile: its numbers down and across. A subgroup of 32 has 4 x 8 of them.
        Neighboring threads read the same part of the right strip, and second next ones the same
        of the left, so two of them load 16 bytes each in the time of one."""
        b, tile = self.b, self.tile
        assert self.limits.grid is not None
        high, wide = 4, 8
        if self.limits.grid.subgroup != high * wide or tile.across % wide or (
                tile.team // tile.across % high):
            return b.div(member, tile.across), b.rem(member, tile.across)
        lane, number = b.rem(member, high * wide), b.div(member, high * wide)
        down = b.add(b.rem(lane, 2), b.mul(b.rem(b.div(lane, 4), 2), 2))
        across = b.add(b.rem(b.div(lane, 2), 2), b.mul(b.div(lane, 8), 2))
        blocks = tile.across // wide
        return (b.add(b.mul(b.div(number, blocks), high), down),
                b.add(b.mul(b.rem(number, blocks), wide), across))

    def _add_teams(self, sums: Sequence[Sequence[Operand]], team: Operand, start: Operand) -> None:
        """Adds the sums of all teams to those of the first team, in a fixed order. `start` is a
        thread's first element in the tile."""
        b, tile = self.b, self.tile
        size = tile.rows * tile.columns
        array = b.memory("team_sums", self.of, (tile.teams - 1) * size, "shared", "rw")
        places = [(v, i * tile.columns + self._column(j))
                  for i, line in enumerate(sums) for j, v in enumerate(line)]
        with b.if_(b.gt(team, 0)):
            own = b.add(b.mul(b.sub(team, 1), size), start)
            for v, off in places:
                b.store(array, own, b.get(v), off=off)
        b.barrier()
        with b.if_(b.eq(team, 0)):
            for other in range(tile.teams - 1):
                for v, off in places:
                    b.set(v, b.add(b.get(v), b.load(array, start, off=other * size + off)))

    def _multiply(self, sums: Sequence[Sequence[Operand]], down: Operand, along: Operand,
                  ahead: int) -> None:
        """Multiplies a few steps along k, `ahead` steps after the start of a thread's part of both
        strips."""
        b, tile = self.b, self.tile
        right = [self._column(j) for j in range(tile.thread_columns)]
        for lefts, rights in zip(self._elements_of(0, down, range(tile.thread_rows), ahead),
                                 self._elements_of(1, along, right, ahead), strict=True):
            for i, x in enumerate(lefts):
                for j, y in enumerate(rights):
                    total = b.get(sums[i][j])
                    b.set(sums[i][j], multiply_add(b, self.limits, x, y, total))

    def _column(self, j: int) -> int:
        """The offset of a thread's j-th column from its first: the vectors of all threads of a row
        are interleaved."""
        n = self.vectors[1]
        return j // n * n * self.tile.across + j % n

    def _start(self, side: int, first: Operand, d: Operand) -> Operand:
        """The start of a thread's part of a strip, d along k."""
        far, near = (first, d) if self.strips[side].along_k else (d, first)
        return self.b.add(self.b.mul(far, self.strips[side].pitch), near)

    def _elements_of(self, side: int, start: Operand, offs: Sequence[int],
                     ahead: int) -> list[list[Operand]]:
        """The elements of a strip for each step along k, loaded as vectors. The first step is
        `ahead` steps after the start."""
        strip = self.strips[side]
        if strip.along_k:
            lines = [self._load(strip, start, off * strip.pitch + ahead, self.steps)
                     for off in offs]
            return [list(step) for step in zip(*lines, strict=True)]
        n = self.vectors[side]
        return [[x for off in offs[::n] for x in self._load(strip, start, off + k * strip.pitch, n)]
                for k in range(ahead, ahead + self.steps)]

    def _load(self, strip: Strip, start: Operand, off: int, n: int) -> list[Operand]:
        x = self.b.load(strip.name, start, off=off, lanes=n, align=n * self.of.bytes)
        return [self.b.extract(x, k) for k in range(n)]
