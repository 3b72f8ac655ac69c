"""Gradients of attention by workgroups with roles. A workgroup keeps keys and values, and adds,
block by block of queries and their slopes, to the gradients of these keys and values; or it keeps
queries and slopes, and adds, block by block of keys and values, to the gradients of these queries.
Scores and slopes of weights are computed again, and stay in registers, as do the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention_gradient_rows import GradientRows, line_counts, placed
from ztorch.lower.grid.attention_gradient_tiles import (
    GradientTile,
    GridAttentionGradientSchedule,
    Sides,
    sides_of,
    tile_of,
)
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.attention_teams import TeamRows
from ztorch.lower.grid.roles import RingPlace
from ztorch.lower.grid.workgroups import threads, workgroups
from ztorch.lower.region import Region


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionGradientSchedule) -> None:
    """All keys or all queries."""
    assert limits.grid is not None
    tile, sides = tile_of(s, region, limits), sides_of(region)
    assert tile is not None and sides is not None
    down = math.ceil(line_counts(region)[0] / tile.rows)
    with workgroups(b, sizes_of(region).matrices * down, limits.grid) as g, \
            threads(b, tile.threads + tile.team_threads) as t:
        b.resident_threads = tile.threads + tile.team_threads
        matrix, first = placed(b, region, g, tile.rows, down)
        _Gradients(b, region, memory, limits, tile, sides, matrix, first, t).run(target)


class _Gradients(TeamRows, GradientRows):
    """The gradients of the lines of a workgroup."""

    tile: GradientTile

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 tile: GradientTile, sides: Sides, matrix: Operand, first: Operand, t: Operand):
        super().__init__(b, region, memory, limits, tile, sides, matrix, first, t)
        # The numbers of the sides.
        self.resident, self.resident_slopes, self.staged, self.staged_slopes = range(len(sides))

    def run(self, target: Mapping[Value, str]) -> None:
        begin, _, end = self.block_range()
        self.in_roles(lambda: self._produce(begin, end), lambda: self._consume(target))

    def _produce(self, begin: Operand, end: Operand) -> None:
        """Copies block after block into stages that are empty at first."""
        b, tile = self.b, self.tile
        for n in (self.resident, self.resident_slopes):
            self.bring(n, self.first)
        ring = RingPlace(b, tile.stages, parity=1)
        with b.loop(begin, end) as number:
            stage, parity = ring()
            for n in (self.staged, self.staged_slopes):
                b.mbarrier_wait(self.empty[n], stage, parity)
                self.bring(n, b.mul(number, tile.block), stage)
            ring.step()

    def _consume(self, target: Mapping[Value, str]) -> None:
        b, tile = self.b, self.tile
        self.ring = RingPlace(b, tile.stages, parity=0)
        self.sums, self.values = self._matrices(tile.depth), self._matrices(
            tile.width if self.by_keys else 0)
        self.products, self.slopes = self._matrices(tile.block), self._matrices(tile.block)
        for n in (self.resident, self.resident_slopes):
            b.mbarrier_wait(self.full[n], 0, b.const(0, b.index))
        for first, last, tested in self.parts():
            with b.loop(first, last) as number:
                self._add(b.mul(number, tile.block), tested)
        for slot in self.slots:
            self.store_results(slot, self.sums, self.values, target)

    def _matrices(self, columns: int) -> list[Operand]:
        return [self.b.matrix(self.c, self.grid.subgroup, 0)
                for _ in range(columns // self.shape.n)]

    def _add(self, start: Operand, tested: bool) -> None:
        """Adds what comes from a block."""
        b, tile = self.b, self.tile
        stage, parity = self.ring()
        b.mbarrier_wait(self.full[self.staged], stage, parity)
        b.mma_fence()
        self.start_transposed(self.resident, self.staged, tile.depth, stage, self.products)
        b.mbarrier_wait(self.full[self.staged_slopes], stage, parity)
        b.mma_fence()
        self.start_transposed(self.resident_slopes, self.staged_slopes, tile.width_along, stage,
                          self.slopes)
        b.mma_wait(1)
        places = [(j, k) for j in range(len(self.products)) for k in range(self.elements)]
        at = {p: self.at_line(start, 0, *p) for p in places}
        scopes = {p: e for p, (e, _) in at.items()}
        products = [b.get(v) for v in self.products]
        weights = {(j, k): self.weight(*at[j, k], b.extract(products[j], k),
                                       self.of_row(scopes[j, k], self.level), tested)
                   for j, k in places}
        if self.by_keys:
            lefts = self.operands({p: self.used(scopes[p], x) for p, x in weights.items()},
                                  len(products))
            b.mma_fence()
            self.start_held(lefts, self.staged_slopes, stage, self.values)
            b.mma_wait(1)
        else:
            b.mma_wait(0)
        slopes = [b.get(v) for v in self.slopes]
        changes = {(j, k): self.change(scopes[j, k], weights[j, k], b.extract(slopes[j], k),
                                       self.of_row(scopes[j, k], self.added)) for j, k in places}
        lefts = self.operands(changes, len(slopes))
        b.mma_fence()
        self.start_held(lefts, self.staged, stage, self.sums)
        b.mma_wait(0)
        with b.if_(self.elected):
            for n in (self.staged, self.staged_slopes):
                b.mbarrier_arrive(self.empty[n], stage)
        self.ring.step()
