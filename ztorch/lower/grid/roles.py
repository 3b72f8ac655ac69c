"""Matrix products whose workgroups have roles and compute several tiles. One warpgroup copies
strips of both operands, as boxes, into a ring of stages of shared memory; the others multiply
them. Barriers with phases hand stages over: a full stage when its bytes have arrived, an empty one
when all its readers have arrived. So the next tile is copied while a tile is finished, and no
thread waits for anything else.

Workgroups of a cluster have tiles below and beside one another. Each copies its share of the strip
of the right operand to those below and above, and of the left one to those beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.expressions import Arg
from ztorch.ir.kernel import WARPGROUP, Fragment, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid.asynchronous import AsyncStrips
from ztorch.lower.grid.boxes import Boxes
from ztorch.lower.grid.epilogue import Bands
from ztorch.lower.grid.role_tiles import (
    GridRolesSchedule,
    RolesTile,
    clusters_at_once,
    cut_of,
    shares_of,
    tile_of,
)
from ztorch.lower.grid.workgroups import threads
from ztorch.lower.region import Region
from ztorch.lower.tuning import RASTER_ROWS

# The number of a product in the batch, and the first row and column of a tile.
Corner = tuple[Operand, Operand, Operand]


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridRolesSchedule) -> None:
    """All tiles of the product of the region."""
    cut, product, grid = cut_of(region, limits), product_of(region), limits.grid
    assert cut is not None and grid is not None
    tile = tile_of(s, cut[0], grid)
    b.cluster = tile.cluster
    tiles = Raster(product, tile, math.ceil(product.shape[-2] / tile.rows), tile.rows)
    clusters = min(tiles.count, clusters_at_once(grid, tile.cluster))
    with workers(b, tile, clusters) as (g, t):
        RolesNest(b, region, product, memory, target, limits, tile, cut[1], tiles).run_all(
            g, clusters, t)


@contextmanager
def workers(b: Builder, tile: RolesTile, clusters: int) -> Iterator[tuple[Operand, Operand]]:
    """The workgroups of so many clusters: the number of a workgroup, and that of a thread."""
    with b.loop(0, clusters * tile.cluster, kind="grid") as g, \
            threads(b, tile.threads + tile.team_threads) as t:
        yield g, t


class Raster:
    """The order of the tiles of a product: down a few rows of tiles, then the next column of
    these, so that workgroups that run at once read the same strips. The tiles of a cluster count
    as one here."""

    def __init__(self, product: Value, tile: RolesTile, down: int, step: int):
        """`down` is the number of tiles below one another, `step` the difference of their numbers.
        """
        self.tile, self.step = tile, step
        self.down = math.ceil(down / tile.cluster_rows)
        self.along = math.ceil(product.shape[-1] / tile.columns / tile.cluster_columns)
        self.count = math.prod(product.shape[:-2]) * self.down * self.along
        self.raster_rows = max(n for n in range(1, RASTER_ROWS + 1) if self.down % n == 0)

    def place(self, b: Builder, number: Operand, g: Operand) -> Corner:
        """The number of a product in the batch, and the first row and column of a workgroup's
        tile."""
        tiles, band = self.down * self.along, self.raster_rows * self.along
        batch_number, rest = b.div(number, tiles), b.rem(number, tiles)
        inside = b.rem(rest, band)
        row = b.add(b.mul(b.div(rest, band), self.raster_rows), b.rem(inside, self.raster_rows))
        column = b.div(inside, self.raster_rows)
        down, along = member_of(b, self.tile, g)
        return (batch_number, b.mul(b.add(b.mul(row, self.tile.cluster_rows), down), self.step),
                b.mul(b.add(b.mul(column, self.tile.cluster_columns), along), self.tile.columns))


def member_of(b: Builder, tile: RolesTile, g: Operand) -> tuple[Operand, Operand]:
    """The row and the column of a workgroup in its cluster."""
    rank = b.rem(g, tile.cluster)
    return b.div(rank, tile.cluster_columns), b.rem(rank, tile.cluster_columns)


class RingPlace:
    """The next stage of the ring, and the parity of its phase."""

    def __init__(self, b: Builder, stages: int, parity: int):
        self.b, self.stages = b, stages
        self.stage, self.parity = b.var(b.index, 1, 0), b.var(b.index, 1, parity)

    def __call__(self) -> tuple[Operand, Operand]:
        return self.b.get(self.stage), self.b.get(self.parity)

    def step(self) -> None:
        b, (stage, parity) = self.b, self()
        after = b.add(stage, 1)
        wraps = b.eq(after, self.stages)
        b.set(self.stage, b.select(wraps, 0, after))
        b.set(self.parity, b.select(wraps, b.sub(1, parity), parity))


class RolesNest(AsyncStrips):
    """The tiles of a workgroup."""

    pending = 1  # groups of products of a strip
    layout = ""  # of the sums; empty: it does not matter which thread holds an element

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: RolesTile,
                 boxes: tuple[Boxes, Boxes] | None, tiles: Raster):
        super().__init__(b, region, product, memory, target, limits, tile)
        self.roles, self.boxes, self.tiles = tile, boxes, tiles
        self.count = math.ceil(self.k / tile.depth)  # strips of a tile
        self.full = b.barriers("full", tile.stages)
        self.empty = b.barriers("empty", tile.stages)

    def run_all(self, g: Operand, clusters: int, t: Operand) -> None:
        """Every `clusters`-th tile, starting with the number of the workgroup's cluster."""
        b, tile = self.b, self.roles
        with b.if_(b.eq(t, 0)):
            for stage in range(tile.stages):
                b.mbarrier_init(self.full, stage, 1)
                b.mbarrier_init(self.empty, stage, tile.teams * tile.cluster)
            b.mbarrier_fence()
        together = b.cluster_barrier if tile.cluster > 1 else b.barrier
        together()
        first = b.div(g, tile.cluster)
        registers = tile.registers
        moved = registers.moved(tile.used)
        with b.if_(b.ge(b.div(t, tile.team_threads), tile.teams), els=True) as roles:
            if moved:
                b.thread_registers(registers.fewer, fewer=True)
            with b.if_(b.eq(t, tile.threads)):
                self._produce(g, first, clusters)
            b.else_(roles)
            if moved:
                b.thread_registers(registers.more, fewer=False)
            self._consume(g, first, clusters, t)
        if tile.cluster > 1:
            together()  # no thread ends while others still arrive here

    @contextmanager
    def _each(self, g: Operand, first: Operand, clusters: int) -> Iterator[Corner]:
        with self.b.loop(first, self.tiles.count, clusters) as number:
            yield self.tiles.place(self.b, number, g)

    def _produce(self, g: Operand, first: Operand, clusters: int) -> None:
        """One thread copies strip after strip, into stages that are empty at first."""
        b, ring = self.b, RingPlace(self.b, self.tile.stages, parity=1)
        with self._each(g, first, clusters) as corner, self.along_strips(corner) as place:
            stage, parity = ring()
            b.mbarrier_wait(self.empty, stage, parity)
            b.mbarrier_expect(self.full, stage, self.roles.stage_bytes)
            self.copy_strips(g, place, stage)
            ring.step()

    @property
    def share(self) -> tuple[Arg, Arg]:
        """The first of the strips of a tile that this workgroup multiplies, and their end."""
        return 0, self.count

    @contextmanager
    def along_strips(self, corner: Corner) -> Iterator[Any]:
        """The start of each strip of a tile."""
        with self.b.loop(*self.share) as strip:
            yield corner, self.b.mul(strip, self.tile.depth)

    def copy_strips(self, g: Operand, place: Any, stage: Operand) -> None:
        """Starts the copies of the strips that start at a position."""
        b, tile = self.b, self.roles
        assert self.boxes is not None
        (batch_number, *starts), k = place
        members = member_of(b, tile, g)[::-1]  # among those that share a strip of each operand
        for side, (strip, boxes) in enumerate(zip(self.strips, self.boxes, strict=True)):
            cluster, apart = tile.sharing(side)
            length, member = tile.columns if side else tile.rows, members[side]
            for share in shares_of(length, tile, cluster, boxes.along_k):
                begin = b.add(b.mul(member, share.distance), share.begin)
                deeper = b.mul(member, share.distance_along_k)
                line = b.mul(begin, tile.depth)  # panels are as deep as lines are long
                at = b.add(line, b.mul(deeper, strip.pitch))
                b.copy_tile(strip.name, b.add(b.mul(stage, strip.size), at),
                            self.memory[boxes.source],
                            boxes.at(b.add(starts[side], begin), b.add(k, deeper), batch_number),
                            boxes.extents, boxes.pitches, boxes.box(share.lines), self.full, stage,
                            source_off=boxes.first, cluster=cluster, apart=apart)

    def _consume(self, g: Operand, first: Operand, clusters: int, t: Operand) -> None:
        b, tile, shape = self.b, self.roles, self.tile.shape
        sums = [b.matrix(Fragment("c", shape, self.layout), tile.subgroup, 0)
                for _ in range(tile.across)]
        self.subgroup = b.rem(b.div(t, tile.subgroup), WARPGROUP)  # of a team
        team = b.div(t, tile.team_threads)
        elected = b.eq(b.rem(t, tile.team_threads), 0)
        ring, before = RingPlace(b, tile.stages, parity=0), b.var(b.index, 1, 0)

        def release(condition: Operand) -> None:
            with b.if_(condition):
                b.mbarrier_arrive(self.empty, b.get(before), cluster=tile.cluster)

        with self._each(g, first, clusters) as corner:
            for v in sums:
                b.set(v, 0)
            begin, end = self.share
            with b.loop(begin, end) as strip:
                stage, parity = ring()
                b.mbarrier_wait(self.full, stage, parity)
                self.start_products(stage, team, sums)
                b.mma_wait(self.pending)  # the products of the previous strip are done
                release(b.and_(elected, b.gt(strip, begin)))
                b.set(before, stage)
                ring.step()
            b.mma_wait(0)
            release(elected)
            self.finish(corner, g, t, sums)

    def finish(self, corner: Corner, g: Operand, t: Operand, sums: list[Operand]) -> None:
        """The epilogue of a tile."""
        (batch_number, row, column), tile = corner, self.roles
        bands = Bands(tile.rows, tile.columns, tile.rows, tile.bands, tile.pitch, by_columns=True)
        at, batch = self.batch_index(batch_number)
        store = self.epilogue_store(sums, self.b.div(t, tile.subgroup))
        self.tile_epilogue(bands, self.passed, at, batch, row, column, t, store)

    @property
    def rows_whole(self) -> bool:
        return self.m % (self.roles.rows * self.roles.cluster_rows) == 0

    @property
    def tiles_below(self) -> int:
        return self.tiles.down * self.roles.cluster_rows

    def part_at(self, first: Operand) -> Operand:
        return self.b.div(first, self.tiles.step)

    def inside_columns(self, column: Operand) -> Operand | None:
        fits = self.n % (self.roles.columns * self.roles.cluster_columns) == 0
        return None if fits else self.b.lt(column, self.n)

    def meet(self) -> None:
        self.b.team_barrier(self.tile.threads)
