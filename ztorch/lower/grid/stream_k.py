"""Matrix products whose workgroups have roles and share tiles (stream-K), so that all units are
busy to the end.

The strips of the shared tiles are numbered, tile after tile, and divided equally. A workgroup whose
share begins inside of a tile writes its part of the sums to memory and signals. The workgroup that
has the tile's first strip waits for those parts, adds them in the order of their strips, and
finishes the tile. A workgroup has at most one such part, and it comes first, so no workgroup waits
before it has signaled. Then each workgroup computes whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ztorch.dtypes import f32, u32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.expressions import Arg
from ztorch.ir.kernel import Fragment, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid.boxes import Boxes
from ztorch.lower.grid.role_tiles import RolesTile, cut_of, tile_of
from ztorch.lower.grid.roles import Corner, Raster, RolesNest, workers
from ztorch.lower.grid.stream_tiles import GridStreamSchedule, Shares, shares_of
from ztorch.lower.region import Region

PARTS, SIGNALS = "parts_of_sums", "signals"  # global memories of the kernel alone


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridStreamSchedule) -> None:
    """All tiles of the product of the region."""
    cut, product, grid = cut_of(region, limits), product_of(region), limits.grid
    assert cut is not None and grid is not None
    tile = tile_of(s, cut[0], grid)
    shares = shares_of(s, tile, product.shape, product.args[0].shape[-1], grid)
    b.cluster, groups = tile.cluster, shares.clusters * tile.cluster
    b.memory(PARTS, f32, groups * tile.rows * tile.columns, access="rw")
    b.memory(SIGNALS, u32, groups, access="rw")
    tiles = Raster(product, tile, -(-product.shape[-2] // tile.rows), tile.rows)
    with workers(b, tile, shares.clusters) as (g, t):
        StreamNest(b, region, product, memory, target, limits, tile, cut[1], tiles, shares).run_all(
            g, shares.clusters, t)


class StreamNest(RolesNest):
    """The tiles of a workgroup, and its shares of tiles."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: RolesTile,
                 boxes: tuple[Boxes, Boxes], tiles: Raster, shares: Shares):
        super().__init__(b, region, product, memory, target, limits, tile, boxes, tiles)
        assert limits.grid is not None
        self.layout, self.shares = limits.grid.mma_layout, shares
        self.span: tuple[Operand, Operand] | None = None  # of the current tile's strips
        self.number = self.cluster = b.const(0, b.index)  # of the current tile; of the workgroup

    @property
    def share(self) -> tuple[Arg, Arg]:
        assert self.span is not None
        return self.span

    @contextmanager
    def _each(self, g: Operand, first: Operand, clusters: int) -> Iterator[Corner]:
        """The tiles of which a workgroup has strips, and then whole ones."""
        b, (tiles, strips, _, whole) = self.b, self.shares
        begin = b.div(b.mul(first, tiles * strips), clusters)
        end = b.div(b.mul(b.add(first, 1), tiles * strips), clusters)
        last = b.div(b.add(end, strips - 1), strips)
        with b.loop(b.div(begin, strips), b.add(last, whole)) as n:
            start = b.mul(n, strips)
            low, high = b.max(b.sub(begin, start), 0), b.min(b.sub(end, start), strips)
            number = n
            if whole:
                shared = b.lt(n, last)
                low, high = b.select(shared, low, 0), b.select(shared, high, strips)
                own = b.add(b.add(b.mul(b.sub(n, last), clusters), first), tiles)
                number = b.select(shared, n, own)
            self.span, self.number, self.cluster = (low, high), number, first
            yield self.tiles.place(b, number, g)

    def finish(self, corner: Corner, g: Operand, t: Operand, sums: list[Operand]) -> None:
        """Hands the sums to the workgroup with the tile's first strip; or else adds the parts of
        others, and finishes the tile."""
        b, (low, high) = self.b, self.share
        with b.if_(b.gt(low, 0), els=True) as first:
            self._hand_over(g, t, sums)
            b.else_(first)
            with b.if_(b.lt(high, self.count)):
                self._add_parts(g, t, sums)
            super().finish(corner, g, t, sums)

    def _hand_over(self, g: Operand, t: Operand, sums: list[Operand]) -> None:
        b, start = self.b, self._part(g, t)
        for n, v in enumerate(sums):
            x = b.get(v)
            b.store(PARTS, start, b.join(*(b.extract(x, k) for k in range(x.lanes))),
                    off=n * x.lanes * self.tile.threads, align=x.lanes * f32.bytes)
        self.meet()
        with b.if_(b.eq(t, 0)):
            b.grid_signal(SIGNALS, g)

    def _add_parts(self, g: Operand, t: Operand, sums: list[Operand]) -> None:
        """Adds the parts in the order of their strips."""
        b, (tiles, strips, clusters, _), cluster = self.b, self.shares, self.roles.cluster
        c = Fragment("c", self.tile.shape, self.layout)
        # The share that holds strip x is the last one that begins at x or before it.
        end = b.mul(b.add(self.number, 1), strips * clusters)
        last = b.div(b.sub(end, 1), tiles * strips)
        with b.loop(b.add(self.cluster, 1), b.add(last, 1)) as other:
            group = b.add(b.mul(other, cluster), b.rem(g, cluster))
            with b.if_(b.eq(t, 0)):
                b.grid_wait(SIGNALS, group)
            self.meet()
            start = self._part(group, t)
            for n, v in enumerate(sums):
                x = b.get(v)
                part = b.load(PARTS, start, off=n * x.lanes * self.tile.threads, lanes=x.lanes,
                              align=x.lanes * f32.bytes)
                b.set(v, b.mma_join(c, *(b.add(b.extract(x, k), b.extract(part, k))
                                         for k in range(x.lanes))))

    def _part(self, group: Operand, t: Operand) -> Operand:
        """Where the sums of a thread of a workgroup begin. Neighboring threads have neighboring
        fours."""
        b, tile = self.b, self.roles
        return b.add(b.mul(group, tile.rows * tile.columns),
                     b.mul(t, tile.shape.m * tile.shape.n // tile.subgroup))
