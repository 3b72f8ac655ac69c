"""Matrix products by asynchronous instructions: threads continue while the product runs. Strips of
both operands pass through stages of swizzled shared memory. Four subgroups start the product of a
strip and then copy a later one. So copies to two or more stages and products of two are in flight
at once, and threads synchronize once a strip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ztorch.dtypes import DType, f16
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.halves import HALVES
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, Fragment, MmaShape, Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid import mma
from ztorch.lower.grid.epilogue import Bands, Block
from ztorch.lower.grid.operands import contiguous_along_k, copy_width
from ztorch.lower.grid.strips import Strips
from ztorch.lower.index import Index, Var
from ztorch.lower.region import Region
from ztorch.lower.tuning import (
    ASYNC_COST,
    ASYNC_LINES,
    ASYNC_STAGES_LEAST,
    ASYNC_TILES,
    COPY_BYTES,
    GRID_TILE_START,
    MMA_PADDING,
    MMA_STAGES,
    MMA_STRIP_COST,
)


@dataclass(frozen=True)
class AsyncTile(Block):
    """The schedule of a product: a workgroup's tile. Four subgroups have 4 m rows of it."""

    shape: MmaShape
    subgroup: int
    stages: int  # strips in shared memory at once
    bands: int = 1  # column bands in which the finished tile passes through shared memory
    padding: int = field(default=MMA_PADDING, kw_only=True)  # elements between rows of a band

    @property
    def threads(self) -> int:
        return self.rows // self.shape.m * self.subgroup

    @property
    def across(self) -> int:
        """The number of a subgroup's matrices along the columns."""
        return self.columns // self.shape.n

    @property
    def cuts(self) -> list[int]:
        """The possible numbers of bands. Their columns are a multiple of a subgroup, so that a band
        does not split parts of attention's heads."""
        return [n for n in range(1, self.across + 1) if self.columns % (n * self.subgroup) == 0]

    @property
    def pitch(self) -> int:
        """Elements from one row of a band of the finished tile in shared memory to the next. Where
        threads store pairs, those of four rows use different banks; with half of that padding,
        those of two."""
        return self.columns // self.bands + self.padding

    @property
    def lines_at_once(self) -> int:
        return ASYNC_LINES

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.stages * self.stage_bytes + self.rows * self.pitch * self.shape.into.bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of the strips of one stage."""
        return (self.rows + self.columns) * self.depth * self.shape.of.bytes

    def staged(self, grid: GridLimits, k: int) -> AsyncTile | None:
        """The same tile with the most stages, then the fewest bands, such that a compute unit has
        shared memory for as many workgroups as its registers allow, or else for two, or one. None
        if no tile fits."""
        most = max(ASYNC_STAGES_LEAST, min(MMA_STAGES, math.ceil(k / self.depth) + 2))
        halved = grid.shared_unit_bytes // 2
        for room in (grid.shared_share(self.threads), halved, grid.shared_bytes):
            for n, m in itertools.product(range(most, ASYNC_STAGES_LEAST - 1, -1), self.cuts):
                tile = replace(self, stages=n, bands=m)
                if tile.shared <= room:
                    return tile
        return None

    def time(self, m: int, n: int, k: int, batch: int, grid: GridLimits) -> float:
        """The estimated time, in multiply-adds of one thread after another."""
        tiles = math.ceil(m / self.rows) * math.ceil(n / self.columns) * batch
        deep = math.ceil(k / self.depth) * self.depth
        element = ASYNC_COST + MMA_STRIP_COST / self.rows + MMA_STRIP_COST / self.columns
        tile_time = self.rows * self.columns * element * (deep + GRID_TILE_START)
        return math.ceil(tiles / grid.compute_units) * tile_time


def tile_of(rows: int, columns: int, shape: MmaShape, grid: GridLimits, stages: int,
            bands: int = 1) -> AsyncTile:
    """A tile whose strips have the depth of a line of swizzled memory."""
    return AsyncTile(rows, columns, SWIZZLE_LINE // shape.of.bytes, shape, grid.subgroup, stages,
                     bands)


def async_shape(product: Value, limits: Limits) -> MmaShape | None:
    """The shape of the machine's asynchronous matrix instructions for the operands of a product,
    if it has one, however the operands are copied. Those of float32 must then be contiguous along
    k."""
    assert limits.grid is not None
    shape = mma.shape_for(product, limits)
    able = shape and limits.grid.asynchronous_products and (
        shape.of.bits == f16.bits or (shape.mantissa_bits and not shape.split))
    return shape if able else None


def shape_for(product: Value, limits: Limits) -> MmaShape | None:
    """The same if threads can copy the operands asynchronously."""
    shape = async_shape(product, limits)
    if shape is None:
        return None
    assert limits.grid is not None
    tile = tile_of(*ASYNC_TILES[0], shape, limits.grid, ASYNC_STAGES_LEAST)
    widest = COPY_BYTES[0] // shape.of.bytes
    copied = all(copy_width(product, side, tile, shape.of) == widest and (
        shape.of.bits == f16.bits or contiguous_along_k(product, side)) for side in (0, 1))
    return shape if copied else None


def choose(m: int, n: int, k: int, batch: int, grid: GridLimits,
           shape: MmaShape) -> tuple[float, AsyncTile] | None:
    """The tile with the least estimated time, and that time.

    >>> from ztorch.dtypes import f16, f32
    >>> grid = GridLimits(threads=1024, shared_bytes=227 << 10, subgroup=32, compute_units=132)
    >>> _, tile = choose(4096, 4096, 4096, 1, grid, MmaShape(16, 8, 16, f16, f32))
    >>> tile.rows, tile.columns, tile.stages, tile.bands, tile.threads
    (128, 256, 4, 8, 256)
    """
    best: tuple[float, AsyncTile] | None = None
    for rows, columns in ASYNC_TILES:
        tile = tile_of(rows, columns, shape, grid, ASYNC_STAGES_LEAST).staged(grid, k)
        if tile is None or tile.threads > grid.threads:
            continue
        time = tile.time(m, n, k, batch, grid)
        if best is None or time < best[0]:
            best = time, tile
    return best


class AsyncStrips(Strips):
    """Copies strips into swizzled memory, and has four subgroups at a time multiply them."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: AsyncTile):
        super().__init__(b, region, product, memory, target, limits, tile, tile.shape.of,
                         tile.stages)
        self.tile = tile
        self.lay_out()

    @property
    def passed(self) -> DType:
        """The dtype in which a finished tile passes through shared memory: sums that are rounded to
        16 bits are rounded before that."""
        d = self.product.dtype
        return d if d in HALVES else self.tile.shape.into

    def lay_out(self) -> None:
        """Declares the shared memory of both strips."""
        for side, length in enumerate((self.tile.rows, self.tile.columns)):
            self.swizzled_strip(self.tile.depth, length, contiguous_along_k(self.product, side))

    def start_products(self, stage: Operand, team: Operand, sums: list[Operand]) -> None:
        """Starts the products of the strips of a stage."""
        b, tile, (left, right) = self.b, self.tile, self.strips
        rows = tile.shape.m * WARPGROUP
        part = rows * left.pitch if left.along_k else (left.panel or left.size)
        index = b.add(b.mul(stage, left.size), b.mul(team, part))
        b.mma_fence()
        for d in range(0, tile.depth, tile.shape.k):
            b.mma_async(left.name, index, right.name, b.mul(stage, right.size), sums,
                        off=d if left.along_k else d * left.pitch, transposed=not left.along_k,
                        source_off=d if right.along_k else d * right.pitch,
                        source_transposed=right.along_k, panel=right.panel)
        b.mma_commit()

    def epilogue_store(self, sums: list[Operand], number: Operand) -> Callable[[str, int], None]:
        """Emits the stores of a subgroup's share of a band of the finished tile."""
        b, tile, shape = self.b, self.tile, self.tile.shape
        share, start = tile.across // tile.bands, b.mul(number, shape.m * tile.pitch)

        def store(array: str, band: int) -> None:
            for j, v in enumerate(sums[band * share:(band + 1) * share]):
                b.mma_store(array, start, b.get(v), tile.pitch, off=j * shape.n,
                            align=2 * self.passed.bytes)
        return store


class AsyncNest(AsyncStrips):
    """A tile whose threads copy and multiply."""

    def run(self, batch_number: Operand, first: Operand, left: Operand, t: Operand) -> None:
        b, tile, shape = self.b, self.tile, self.tile.shape
        c = Fragment("c", shape)
        sums = [b.matrix(c, tile.subgroup, 0) for _ in range(tile.across)]
        at, batch = self.batch_index(batch_number)
        bands = Bands(tile.rows, tile.columns, tile.rows, tile.bands, tile.pitch, by_columns=True)
        store = self.epilogue_store(sums, b.div(t, tile.subgroup))
        self._multiply_strips(at, batch, first, left, t, sums)
        self.tile_epilogue(bands, self.passed, at, batch, first, left, t, store)

    def _multiply_strips(self, at: dict[Var, Operand], batch: tuple[Index, ...], first: Operand,
                         left: Operand, t: Operand, sums: list[Operand]) -> None:
        """After the barrier of an iteration, its strips have arrived for all threads, and the
        products of two iterations earlier are done. The next copies overwrite the stage of those
        products."""
        b, tile, stages = self.b, self.tile, self.stages
        count, ahead = math.ceil(self.k / tile.depth), stages - 2
        starts = first, left
        team = b.div(t, tile.subgroup * WARPGROUP)
        for number in range(ahead):
            if number < count:
                self.start_copies(b.const(number, b.index), batch, at, starts, t)
            b.copies_commit()
        with b.loop(0, count) as iteration:
            b.copies_wait(ahead - 1)
            b.shared_fence()
            b.barrier()
            self.start_products(b.rem(iteration, stages), team, sums)
            b.mma_wait(1)
            later = b.add(iteration, ahead)
            with b.if_(b.lt(later, count)):
                self.start_copies(later, batch, at, starts, t)
            b.copies_commit()
        b.mma_wait(0)
        b.barrier()  # before the strips of another tile
