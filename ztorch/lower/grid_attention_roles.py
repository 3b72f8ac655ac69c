"""Attention whose workgroups have roles. One thread copies queries once, and blocks of keys and
values into stages of shared memory. Each warpgroup has 64 rows: it starts the product of its
queries with the next keys, and that of the present weights with their values, and while they run
it makes weights of the scores that it has. Scores, weights and results stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import WARPGROUP, Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import threads, where
from ztorch.lower.grid_attention import sizes_of
from ztorch.lower.grid_attention_fragments import FragmentRows, State
from ztorch.lower.grid_attention_role_tiles import (
    AttentionTile,
    GridAttentionRolesSchedule,
    Side,
    sides_of,
    tile_of,
)
from ztorch.lower.grid_roles import RingPlace
from ztorch.lower.region import Region


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionRolesSchedule) -> None:
    """As many workgroups as run at once, each with several tiles."""
    assert limits.grid is not None
    tile, sides = tile_of(s, region, limits), sides_of(region)
    assert tile is not None and sides is not None
    order = _Order(region, tile, limits.grid)
    b.cluster = tile.cluster
    with b.loop(0, order.groups, kind="grid") as g, \
            threads(b, tile.threads + tile.team_threads) as t:
        b.resident_threads = tile.threads + tile.team_threads
        _TeamRows(b, region, memory, limits, tile, sides, order, g, t).run(target)


class _Order:
    """The order of tiles. If rows do not see the columns ahead of them, the last rows of all
    matrices come first: they take longest. Then workgroups that have the first tiles of a round
    have the last of the next one."""

    def __init__(self, region: Region, tile: AttentionTile, grid: GridLimits):
        sizes = sizes_of(region)
        self.matrices, self.rows = sizes.matrices, tile.rows
        self.down = math.ceil(sizes.rows / tile.rows)
        self.falling = region.members[0].attrs["attention"].ahead is not None
        self.count = self.matrices * self.down
        self.cluster = tile.cluster
        self.groups = min(self.count, max(1, grid.compute_units // tile.cluster) * tile.cluster)

    @contextmanager
    def each(self, b: Builder, group: Operand) -> Iterator[tuple[Operand, Operand]]:
        """The matrix and the first row of each tile of a workgroup."""
        with b.loop(0, math.ceil(self.count / self.groups)) as turn:
            place = group
            if self.falling:
                back = b.sub(self.groups - 1, group)
                place = b.select(b.eq(b.rem(turn, 2), 1), back, group)
            number = b.add(b.mul(turn, self.groups), place)
            with where(b, b.lt(number, self.count) if self.count % self.groups else None):
                if self.falling:
                    matrix = b.rem(number, self.matrices)
                    row = b.sub(self.down - 1, b.div(number, self.matrices))
                else:
                    matrix, row = b.div(number, self.down), b.rem(number, self.down)
                yield matrix, b.mul(row, self.rows)


class _TeamRows(FragmentRows):
    """The tiles of a workgroup."""

    stores_fours = True

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 tile: AttentionTile, sides: tuple[Side, Side, Side], order: _Order, group: Operand,
                 t: Operand):
        zero = b.const(0, b.index)
        super().__init__(b, region, memory, limits, tile.shape, 1, tile.block,
                         tile.teams * WARPGROUP, zero, zero, t)
        self.tile, self.sides, self.order, self.group = tile, sides, order, group
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
                    b.mbarrier_init(empty, stage, tile.teams * tile.cluster)
            b.mbarrier_fence()
        together = b.cluster_barrier if tile.cluster > 1 else b.barrier
        together()
        registers = tile.registers
        moved = registers.moved(tile.used)
        with b.if_(b.ge(b.div(t, tile.team_threads), tile.teams), els=True) as roles:
            if moved:
                b.thread_registers(registers.fewer, fewer=True)
            with b.if_(b.eq(t, tile.threads)):
                self._produce()
            b.else_(roles)
            if moved:
                b.thread_registers(registers.more, fewer=False)
            self._consume(target)
        if tile.cluster > 1:
            together()  # no thread ends while others still arrive here

    # -- the thread that copies --------------------------------------------------------------------

    @contextmanager
    def _each(self) -> Iterator[Operand]:
        """The number of blocks of each tile, of which everything else is about."""
        b, tile = self.b, self.tile
        with self.order.each(b, self.group) as (matrix, self.first):
            self.e = Emitter(b, self.e.memory, {self.batch: matrix})
            end = self.end(self.first, tile.rows)
            yield b.div(b.add(end, tile.block - 1), tile.block)

    def _produce(self) -> None:
        """Copies block after block of a tile, the last one first, into stages that are empty at
        first."""
        b, tile = self.b, self.tile
        zero, queries = b.const(0, b.index), RingPlace(b, 1, parity=1)
        turn = RingPlace(b, tile.stages, parity=1)
        with self._each() as count:
            b.mbarrier_wait(self.empty[0], *queries())
            b.mbarrier_expect(self.full[0], 0, self.sides[0].size(tile) * tile.shape.of.bytes)
            self._copy(0, self.first, zero, tile.rows, zero)
            queries.step()
            with b.loop(0, count) as number:
                stage, parity = turn()
                block = b.sub(count, b.add(number, 1))
                for n in (1, 2):
                    b.mbarrier_wait(self.empty[n], stage, parity)
                    self._bring(n, block, stage)
                turn.step()

    def _bring(self, n: int, number: Operand, stage: Operand) -> None:
        """Starts to copy a block of keys or values to a stage."""
        b, tile = self.b, self.tile
        b.mbarrier_expect(self.full[n], stage, self.sides[n].size(tile) * tile.shape.of.bytes)
        length = tile.block // tile.cluster
        share = b.mul(b.rem(self.group, tile.cluster), length)  # which this workgroup copies
        self._copy(n, b.add(b.mul(number, tile.block), share), stage, length, share, tile.cluster)

    def _copy(self, n: int, first: Operand, stage: Operand, length: int, share: Operand,
              cluster: int = 1) -> None:
        """Starts to copy lines of a stage, beginning with one of them."""
        b, tile, side = self.b, self.tile, self.sides[n]
        place = b.add(b.mul(stage, side.size(tile)), b.mul(share, tile.line))
        lines, apart = side.lines, self.e.value(side.lines.apart)
        for panel in range(side.panels):
            b.copy_tile(side.name, place, self.e.memory[lines.source],
                        [b.const(panel * tile.line, b.index), first, apart], lines.extents,
                        lines.pitches, lines.box(length), self.full[n], stage,
                        off=panel * side.panel(tile), source_off=lines.first, cluster=cluster)

    # -- the teams that multiply -------------------------------------------------------------------

    def _consume(self, target: Mapping[Value, str]) -> None:
        b, tile, shape, grid = self.b, self.tile, self.shape, self.grid
        team = b.div(self.t, tile.team_threads)
        self.elected = b.eq(b.rem(self.t, tile.team_threads), 0)
        queries = RingPlace(b, 1, parity=0)
        self.keys, self.values = (RingPlace(b, tile.stages, parity=0) for _ in range(2))
        state = self.state()
        sums = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.wide // shape.n)]
        scores = [b.matrix(self.c, grid.subgroup, 0) for _ in range(tile.block // shape.n)]
        held = [b.matrix(self.a, grid.subgroup, x) for x in self.lefts(scores)]
        with self._each() as count:
            for v in sums:
                b.set(v, 0)
            for largest, total in state.values():
                b.set(largest, -math.inf)
                b.set(total, 0.0)
            b.mbarrier_wait(self.full[0], *queries())
            b.mbarrier_wait(self.full[1], *self.keys())
            b.mma_fence()
            self._start_scores(team, scores)
            b.mma_wait(0)
            self._release(1, self.keys)
            self.soften(0, b.mul(b.sub(count, 1), tile.block), scores, state)
            for v, x in zip(held, self.lefts(scores), strict=True):
                b.set(v, x)
            self._turns(team, count, held, scores, sums, state)
            self._release(0, queries)
            lefts = [b.get(v) for v in held]
            b.mbarrier_wait(self.full[2], *self.values())
            b.mma_fence()
            self._start_results(lefts, sums)
            b.mma_wait(0)
            self._release(2, self.values)
            for slot in self.slots:
                self.store(slot, b.get(state[slot][1]), sums, target)

    def _turns(self, team: Operand, count: Operand, held: list[Operand], scores: list[Operand],
               sums: list[Operand], state: State) -> None:
        """All blocks of a tile but the first."""
        b, tile, last = self.b, self.tile, self.b.sub(count, 1)

        def turns(first: int | Operand, end: Operand, tested: bool) -> None:
            with b.loop(first, end) as number:
                lefts = [b.get(v) for v in held]
                b.mbarrier_wait(self.full[1], *self.keys())
                b.mma_fence()
                self._start_scores(team, scores)
                b.mbarrier_wait(self.full[2], *self.values())
                self._start_results(lefts, sums)
                b.mma_wait(1)
                self._release(1, self.keys)
                start = b.mul(b.sub(last, number), tile.block)
                scale_of = self.soften(0, start, scores, state, tested)
                # These values are there. Without this wait assemblers would move the next one ahead
                # of the weights, which are computed beside the product.
                b.mbarrier_wait(self.full[2], *self.values())
                b.mma_wait(0)
                self._release(2, self.values)
                self.rescale(sums, scale_of)
                for v, x in zip(held, self.lefts(scores), strict=True):
                    b.set(v, x)

        tested = self._tested(count)
        if tested is None:
            turns(1, count, tested=False)
        else:
            turns(1, tested, tested=True)
            turns(tested, count, tested=False)

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

    def _release(self, n: int, turn: RingPlace) -> None:
        """Gives a stage back."""
        with self.b.if_(self.elected):
            self.b.mbarrier_arrive(self.empty[n], turn()[0], cluster=self.tile.cluster)
        turn.step()

    def _start_scores(self, team: Operand, scores: list[Operand]) -> None:
        """Starts the products of a team's queries with the next keys."""
        b, tile, (queries, keys, _) = self.b, self.tile, self.sides
        stage = self.keys()[0]
        rows = self.shape.m * WARPGROUP * tile.line
        for k in range(0, tile.depth, self.shape.k):
            panel, place = divmod(k, tile.line)
            b.mma_async(queries.name, b.mul(team, rows), keys.name, b.mul(stage, keys.size(tile)),
                        scores, off=panel * queries.panel(tile) + place,
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
