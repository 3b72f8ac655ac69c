"""Convolutions whose workgroups have roles, of 16 bits or of float32 in parts. Machines multiply
fewer mantissa bits of float32 (TF32). So teams load their rows of the images into registers, split
them there, and multiply them by parts of the other operand, which a kernel wrote to memory before.
"""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Fragment, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid.parts import EVEN_FIRST
from ztorch.lower.grid.role_tiles import clusters_at_once
from ztorch.lower.grid.roles import Raster, workers
from ztorch.lower.grid.strips import Strip
from ztorch.lower.grid.window_tiles import GridWindowsSchedule, cut_of, tile_of
from ztorch.lower.grid.windows import WindowsNest
from ztorch.lower.region import Region
from ztorch.lower.tuning import PARTS_HELD


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridWindowsSchedule) -> None:
    """All tiles of the product of the region."""
    product, grid = product_of(region), limits.grid
    cut = cut_of(product, limits)
    assert cut is not None and grid is not None
    shape, windows = cut
    tile = tile_of(s, shape, windows, grid)
    b.cluster = tile.cluster
    tiles = Raster(product, tile, tile.down(windows), 1)
    nest = PartsNest if shape.split else WindowsNest
    clusters = min(tiles.count, clusters_at_once(grid, tile.cluster))
    with workers(b, tile, clusters) as (g, t):
        nest(b, region, product, memory, target, limits, tile, windows, tiles).run_all(
            g, clusters, t)


class PartsNest(WindowsNest):
    """The tiles of a workgroup, of float32 in parts."""

    @property
    def pending(self) -> int:  # type: ignore[override]
        return self.cut.repeats * self.cut.depth // self.cut.shape.k

    def start_products(self, stage: Operand, team: Operand, sums: list[Operand]) -> None:
        """Starts the products of the strips of a stage. A matrix of the left strip is loaded while
        those before it are multiplied, into registers that no product reads any more."""
        b, tile, (left, right) = self.b, self.cut, self.strips
        shift, other = self.patch.shift * self.line, b.mul(stage, right.size)
        index = b.add(b.add(b.mul(stage, left.size), self.part_of(team)), self._rows_in(left))
        for place in range(tile.repeats):
            for d in range(0, tile.depth, tile.shape.k):
                b.mma_wait(PARTS_HELD - 1)
                a = b.mma_load(left.name, index, Fragment("a", tile.shape), tile.subgroup,
                               self.line * (1 if left.along_k else 2),
                               transposed=not left.along_k,
                               off=place * shift + self._step_in(left, d))
                b.mma_fence()
                b.mma_held_async(a, right.name, other, sums, off=place * tile.right_size + d,
                                 transposed=True, parts=tile.columns * tile.depth)
                b.mma_commit()

    def _step_in(self, left: Strip, d: int) -> int:
        """Where the matrix at a step along k starts. If lines run along rows, steps are every other
        line of 16, which lie in different banks."""
        if left.along_k:
            return d
        lines, odd = divmod(d, EVEN_FIRST)
        return (lines * EVEN_FIRST + (odd > 0)) * self.line

    def _rows_in(self, left: Strip) -> Operand:
        """Where the rows of a subgroup start in its team's part of a strip."""
        b, rows = self.b, self.cut.shape.m
        if left.along_k:
            return b.mul(self.subgroup, rows * self.line)
        beside = self.line // rows  # subgroups with rows in one panel
        return b.add(b.mul(b.div(self.subgroup, beside), left.panel),
                     b.mul(b.rem(self.subgroup, beside), rows))
