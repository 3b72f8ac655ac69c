"""Attention whose workgroups have roles. One thread copies queries once, and blocks of keys and
values into stages of shared memory. Each warpgroup has 64 rows: it starts the product of its
queries with the next keys, and that of the present weights with their values, and while they run
it makes weights of the scores that it has. Scores, weights and results stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention_fragments import State
from ztorch.lower.grid.attention_role_tiles import (
    GridAttentionRolesSchedule,
    sides_of,
    tile_of,
)
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.attention_teams import TeamRows
from ztorch.lower.grid.roles import RingPlace
from ztorch.lower.grid.workgroups import threads, workgroups
from ztorch.lower.region import Region


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionRolesSchedule) -> None:
    """All rows. If rows do not see the columns ahead of them, the last rows of all matrices come
    first: they take longest."""
    assert limits.grid is not None
    sizes, tile, sides = sizes_of(region), tile_of(s, region, limits), sides_of(region)
    assert tile is not None and sides is not None
    down = math.ceil(sizes.rows / tile.rows)
    with workgroups(b, sizes.matrices * down, limits.grid) as g, \
            threads(b, tile.threads + tile.team_threads) as t:
        b.resident_threads = tile.threads + tile.team_threads
        matrix, row_block = b.div(g, down), b.rem(g, down)
        if region.members[0].attrs["attention"].ahead is not None:
            matrix, row_block = b.rem(g, sizes.matrices), b.sub(down - 1, b.div(g, sizes.matrices))
        _SoftRows(b, region, memory, limits, tile, sides, matrix, b.mul(row_block, tile.rows),
                  t).run(target)


class _SoftRows(TeamRows):
    """The rows of a workgroup."""

    stores_fours = True

    def run(self, target: Mapping[Value, str]) -> None:
        b, tile = self.b, self.tile
        end = self.end(self.first, tile.rows)
        count = b.div(b.add(end, tile.block - 1), tile.block)
        self.in_roles(lambda: self._produce(count), lambda: self._consume(count, target))

    # -- the thread that copies --------------------------------------------------------------------

    def _produce(self, count: Operand) -> None:
        """Copies block after block, the last one first, into stages that are empty at first."""
        b, tile = self.b, self.tile
        self.bring(0, self.first)
        ring = RingPlace(b, tile.stages, parity=1)
        with b.loop(0, b.add(count, 1)) as number:
            stage, parity = ring()
            b.mbarrier_wait(self.empty[1], stage, parity)
            with b.if_(b.eq(number, count)):
                b.mbarrier_arrive(self.full[1], stage)  # consumers wait for one block more
            with b.if_(b.lt(number, count)):
                start = b.mul(b.sub(count, b.add(number, 1)), tile.block)
                self.bring(1, start, stage)
                b.mbarrier_wait(self.empty[2], stage, parity)
                self.bring(2, start, stage)
            ring.step()

    # -- the teams that multiply -------------------------------------------------------------------

    def _consume(self, count: Operand, target: Mapping[Value, str]) -> None:
        """Computes blocks of scores from the last one on. The scores of a block are started ahead
        of the results of the one before, so that they are computed beside its softmax."""
        b, tile, shape, grid = self.b, self.tile, self.shape, self.grid
        self.keys, self.values = (RingPlace(b, tile.stages, parity=0) for _ in range(2))
        state = self.state()
        sums = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.width // shape.n)]
        scores = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.block // shape.n)]
        b.mbarrier_wait(self.full[0], 0, b.const(0, b.index))
        b.mbarrier_wait(self.full[1], *self.keys())
        b.mma_fence()
        self.start_transposed(0, 1, self.tile.depth, self.keys()[0], scores)
        b.mma_wait(0)
        self.release(1, self.keys)
        self.last = b.sub(count, 1)
        self.soften(0, b.mul(self.last, tile.block), scores, state)
        weights = [b.matrix(self.a, grid.subgroup, x) for x in self.lefts(scores)]
        b.mbarrier_wait(self.full[1], *self.keys())
        tested = self._tested(count)
        if tested is not None:
            with b.loop(1, tested) as number:
                self._block(number, state, scores, weights, sums, tested=True)
        with b.loop(1 if tested is None else tested, count) as number:
            self._block(number, state, scores, weights, sums, tested=False)
        lefts = [b.get(v) for v in weights]
        b.mbarrier_wait(self.full[2], *self.values())
        b.mma_fence()
        self.start_held(lefts, 2, self.values()[0], sums)
        b.mma_wait(0)
        for slot in self.slots:
            self.store(slot, state, sums, target)

    def _block(self, number: Operand, state: State, scores: list[Operand],
               weights: list[Operand], sums: list[Operand], tested: bool) -> None:
        """Adds the results of the block before, and replaces its weights by those of this one."""
        b = self.b
        lefts = [b.get(v) for v in weights]
        b.mma_fence()
        self.start_transposed(0, 1, self.tile.depth, self.keys()[0], scores)
        b.mbarrier_wait(self.full[2], *self.values())
        self.start_held(lefts, 2, self.values()[0], sums)
        b.mma_wait(1)
        self.release(1, self.keys)
        first = b.mul(b.sub(self.last, number), self.tile.block)
        factors = self.soften(0, first, scores, state, tested)
        # This wait is here, and not where its keys are used, since assemblers would
        # move the next one ahead of the weights, which are computed beside the product.
        b.mbarrier_wait(self.full[1], *self.keys())
        b.mma_wait(0)
        self.release(2, self.values)
        self.rescale(sums, factors)
        for v, x in zip(weights, self.lefts(scores), strict=True):
            b.set(v, x)

    def _tested(self, count: Operand) -> Operand | None:
        """How many of the last blocks have columns that some rows do not see, or that are outside
        of the matrix; None if it is at most the very last. At least one, since it is tested."""
        b, tile, a, columns = self.b, self.tile, self.attention, self.sizes.columns
        full_blocks = columns // tile.block
        if self.scores.bare is self.scores.unmasked:
            return None
        if a.shown is None:
            return count
        if a.ahead is not None and tile.rows % tile.block == 0 and (
                -((1 - tile.rows - a.ahead) // tile.block) - a.shown // tile.block == 1):
            return None
        visible = b.div(b.max(b.add(self.first, a.shown), 0), tile.block)
        return b.max(b.sub(count, b.min(visible, full_blocks)), 1)
