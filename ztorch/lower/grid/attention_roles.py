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
from ztorch.ir.kernel import WARPGROUP, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention import sizes_of
from ztorch.lower.grid.attention_fragments import FragmentRows, State
from ztorch.lower.grid.attention_role_tiles import (
    AttentionTile,
    GridAttentionRolesSchedule,
    Side,
    sides_of,
    tile_of,
)
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
        _TeamRows(b, region, memory, limits, tile, sides, matrix, b.mul(row_block, tile.rows),
                  t).run(target)


class _TeamRows(FragmentRows):
    """The rows of a workgroup."""

    stores_fours = True

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 tile: AttentionTile, sides: tuple[Side, Side, Side], matrix: Operand,
                 first: Operand, t: Operand):
        super().__init__(b, region, memory, limits, tile.shape, 1, tile.block,
                         tile.teams * WARPGROUP, matrix, first, t)
        self.tile, self.sides = tile, sides
        for side in sides:
            b.memory(side.name, tile.shape.of, side.stages(tile) * side.size(tile), "shared", "rw",
                     swizzled=True)
        self.full, self.empty = (
            [b.barriers(f"{state}_{side.name}", side.stages(tile)) for side in sides]
            for state in ("full", "empty"))

    def run(self, target: Mapping[Value, str]) -> None:
        b, tile, t = self.b, self.tile, self.t
        with b.if_(b.eq(t, 0)):
            for side, full, empty in zip(self.sides, self.full, self.empty, strict=True):
                for stage in range(side.stages(tile)):
                    b.mbarrier_init(full, stage, 1)
                    b.mbarrier_init(empty, stage, tile.teams)
            b.mbarrier_fence()
        b.barrier()
        end = self.end(self.first, tile.rows)
        count = b.div(b.add(end, tile.block - 1), tile.block)
        registers = tile.registers
        moved = registers.moved(tile.used)
        with b.if_(b.ge(b.div(t, tile.team_threads), tile.teams), els=True) as roles:
            if moved:
                b.thread_registers(registers.fewer, fewer=True)
            with b.if_(b.eq(t, tile.threads)):
                self._produce(count)
            b.else_(roles)
            if moved:
                b.thread_registers(registers.more, fewer=False)
            self._consume(count, target)

    # -- the thread that copies --------------------------------------------------------------------

    def _produce(self, count: Operand) -> None:
        """Copies block after block, the last one first, into stages that are empty at first."""
        b, tile = self.b, self.tile
        zero = b.const(0, b.index)
        b.mbarrier_expect(self.full[0], 0, self.sides[0].size(tile) * tile.shape.of.bytes)
        self._copy(0, self.first, zero)
        ring = RingPlace(b, tile.stages, parity=1)
        with b.loop(0, b.add(count, 1)) as number:
            stage, parity = ring()
            b.mbarrier_wait(self.empty[1], stage, parity)
            with b.if_(b.eq(number, count)):
                b.mbarrier_arrive(self.full[1], stage)  # consumers wait for one block more
            with b.if_(b.lt(number, count)):
                block = b.sub(count, b.add(number, 1))
                self._bring(1, block, stage)
                b.mbarrier_wait(self.empty[2], stage, parity)
                self._bring(2, block, stage)
            ring.step()

    def _bring(self, n: int, number: Operand, stage: Operand) -> None:
        """Starts to copy a block of keys or values to a stage."""
        b, tile = self.b, self.tile
        b.mbarrier_expect(self.full[n], stage, self.sides[n].size(tile) * tile.shape.of.bytes)
        self._copy(n, b.mul(number, tile.block), stage)

    def _copy(self, n: int, first: Operand, stage: Operand) -> None:
        """Starts to copy the lines of a stage."""
        b, tile, side = self.b, self.tile, self.sides[n]
        lines, matrix = side.lines, self.e.value(side.lines.matrix)
        for panel in range(side.panels):
            b.copy_tile(side.name, b.mul(stage, side.size(tile)), self.e.memory[lines.source],
                        [b.const(panel * tile.line, b.index), first, matrix], lines.extents,
                        lines.pitches, lines.box(side.high(tile)), self.full[n], stage,
                        off=panel * side.panel(tile), source_off=lines.first)

    # -- the teams that multiply -------------------------------------------------------------------

    def _consume(self, count: Operand, target: Mapping[Value, str]) -> None:
        """Computes blocks of scores from the last one on. The scores of a block are started ahead
        of the results of the one before, so that they are computed beside its softmax."""
        b, tile, shape, grid = self.b, self.tile, self.shape, self.grid
        self.team = b.div(self.t, tile.team_threads)
        self.elected = b.eq(b.rem(self.t, tile.team_threads), 0)
        self.keys, self.values = (RingPlace(b, tile.stages, parity=0) for _ in range(2))
        state = self.state()
        sums = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.width // shape.n)]
        scores = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.block // shape.n)]
        b.mbarrier_wait(self.full[0], 0, b.const(0, b.index))
        b.mbarrier_wait(self.full[1], *self.keys())
        b.mma_fence()
        self._start_scores(scores)
        b.mma_wait(0)
        self._release(1, self.keys)
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
        self._start_results(lefts, sums)
        b.mma_wait(0)
        for slot in self.slots:
            self.store(slot, b.get(state[slot][1]), sums, target)

    def _block(self, number: Operand, state: State, scores: list[Operand],
               weights: list[Operand], sums: list[Operand], tested: bool) -> None:
        """Adds the results of the block before, and replaces its weights by those of this one."""
        b = self.b
        lefts = [b.get(v) for v in weights]
        b.mma_fence()
        self._start_scores(scores)
        b.mbarrier_wait(self.full[2], *self.values())
        self._start_results(lefts, sums)
        b.mma_wait(1)
        self._release(1, self.keys)
        first = b.mul(b.sub(self.last, number), self.tile.block)
        factors = self.soften(0, first, scores, state, tested)
        # This wait is here, and not where its keys are used, since assemblers would
        # move the next one ahead of the weights, which are computed beside the product.
        b.mbarrier_wait(self.full[1], *self.keys())
        b.mma_wait(0)
        self._release(2, self.values)
        self.rescale(sums, factors)
        for v, x in zip(weights, self.lefts(scores), strict=True):
            b.set(v, x)

    def _tested(self, count: Operand) -> Operand | None:
        """How many of the last blocks have columns that some rows do not see, or that are outside
        of the matrix; None if it is at most the very last. At least one, since it is tested."""
        b, tile, a, columns = self.b, self.tile, self.attention, self.sizes.columns
        whole = columns // tile.block
        if self.scores.bare is self.scores.shown:
            return None
        if a.shown is None:
            return count
        if a.ahead is not None and tile.rows % tile.block == 0 and (
                -((1 - tile.rows - a.ahead) // tile.block) - a.shown // tile.block == 1):
            return None
        seen = b.div(b.max(b.add(self.first, a.shown), 0), tile.block)
        return b.max(b.sub(count, b.min(seen, whole)), 1)

    def _release(self, n: int, ring: RingPlace) -> None:
        """Gives a stage back."""
        with self.b.if_(self.elected):
            self.b.mbarrier_arrive(self.empty[n], ring()[0])
        ring.step()

    def _start_scores(self, scores: list[Operand]) -> None:
        """Starts the products of the team's queries with the next keys."""
        b, tile, (queries, keys, _) = self.b, self.tile, self.sides
        stage = self.keys()[0]
        rows = self.shape.m * WARPGROUP * tile.line
        for k in range(0, tile.depth, self.shape.k):
            panel, place = divmod(k, tile.line)
            b.mma_async(queries.name, b.mul(self.team, rows),
                        keys.name, b.mul(stage, keys.size(tile)), scores,
                        off=panel * queries.panel(tile) + place,
                        source_off=panel * keys.panel(tile) + place, source_turned=True,
                        fresh=k == 0)
        b.mma_commit()

    def _start_results(self, lefts: list[Operand], sums: list[Operand]) -> None:
        """Starts the products of weights with the next values."""
        b, tile, values = self.b, self.tile, self.sides[2]
        stage = self.values()[0]
        for k, left in enumerate(lefts):
            b.mma_held_async(left, values.name, b.mul(stage, values.size(tile)), sums,
                             off=k * self.shape.k * tile.line, panel=values.panel(tile))
        b.mma_commit()
