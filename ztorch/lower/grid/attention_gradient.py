"""Gradients of attention by workgroups with roles. A workgroup keeps keys and values, and adds,
block by block of queries and their slopes, to the gradients of these keys and values; or it keeps
queries and slopes, and adds, block by block of keys and values, to the gradients of these queries.
Scores and slopes of weights are computed again, and stay in registers, as do the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.exponentials import LOG2_E
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
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
from ztorch.lower.index import Index
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region

Place = tuple[int, int]  # a matrix of a block, and a thread's element in it


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionGradientSchedule) -> None:
    """All keys or all queries. If rows do not see the columns ahead of them, the first keys or the
    last queries of all matrices come first: they take longest."""
    assert limits.grid is not None
    sizes, tile, sides = sizes_of(region), tile_of(s, region, limits), sides_of(region)
    assert tile is not None and sides is not None
    down = math.ceil((sizes.columns if tile.by_keys else sizes.rows) / tile.rows)
    with workgroups(b, sizes.matrices * down, limits.grid) as g, \
            threads(b, tile.threads + tile.team_threads) as t:
        b.resident_threads = tile.threads + tile.team_threads
        matrix, at = b.div(g, down), b.rem(g, down)
        if region.members[0].attrs["attention"].ahead is not None:
            matrix, at = b.rem(g, sizes.matrices), b.div(g, sizes.matrices)
            at = at if tile.by_keys else b.sub(down - 1, at)
        _Gradients(b, region, memory, limits, tile, sides, matrix, b.mul(at, tile.rows),
                   t).run(target)


class _Gradients(TeamRows):
    """The gradients of the lines of a workgroup."""

    stores_fours = True
    tile: GradientTile

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 tile: GradientTile, sides: Sides, matrix: Operand, first: Operand, t: Operand):
        super().__init__(b, region, memory, limits, tile, sides, matrix, first, t)
        self.by_keys, self.factor_of_scores = tile.by_keys, self.node.attrs["factor"]
        _, _, _, _, self.level, self.added, *_ = self.node.args
        # The numbers of the sides.
        self.resident, self.resident_slopes, self.staged, self.staged_slopes = range(len(sides))
        own, other = (self.column, self.row) if tile.by_keys else (self.row, self.column)
        self.own, self.other = own, other  # of a line of the workgroup, and of one of a stage

    def run(self, target: Mapping[Value, str]) -> None:
        begin, middle, end = self._blocks()
        self.in_roles(lambda: self._produce(begin, end),
                      lambda: self._consume(begin, middle, end, target))

    def _blocks(self) -> tuple[Operand, Operand, Operand]:
        """The first block, the first after those at the border of what is seen, and the last one's
        end. By queries, those at the border come last: the middle is their first."""
        b, a, block = self.b, self.attention, self.block
        begin = b.const(0, b.index)
        end = b.const(math.ceil(self.other.extent / block), b.index)
        masked = self.scores.bare is not self.scores.unmasked
        if self.by_keys:
            if a.ahead is not None:
                begin = b.div(b.max(b.add(self.first, 1 - a.ahead), 0), block)
                begin = b.min(begin, end)
            if not masked:
                return begin, begin, end
            if a.shown is None:
                return begin, end, end
            visible = b.max(b.add(self.first, self.rows - a.shown), 0)
            return begin, b.max(b.min(b.div(b.add(visible, block - 1), block), end), begin), end
        end = b.div(b.add(self.end(self.first, self.rows), block - 1), block)
        if not masked:
            return begin, end, end
        if a.shown is None:
            return begin, begin, end
        return begin, b.min(b.div(b.max(b.add(self.first, a.shown), 0), block), end), end

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

    def _consume(self, begin: Operand, middle: Operand, end: Operand,
                 target: Mapping[Value, str]) -> None:
        b, tile = self.b, self.tile
        self.ring = RingPlace(b, tile.stages, parity=0)
        self.sums, self.values = self._matrices(tile.depth), self._matrices(
            tile.width if self.by_keys else 0)
        self.products, self.slopes = self._matrices(tile.block), self._matrices(tile.block)
        for n in (self.resident, self.resident_slopes):
            b.mbarrier_wait(self.full[n], 0, b.const(0, b.index))
        for first, last, tested in ((begin, middle, self.by_keys), (middle, end, not self.by_keys)):
            if first is not last:
                with b.loop(first, last) as number:
                    self._add(b.mul(number, tile.block), tested)
        for slot in self.slots:
            for results, sums, factor, place in self._results():
                for v in results:
                    if v in target:
                        self.store_line(target[v], slot, sums, b.const(factor, f32), self.own,
                                        place)

    def _results(self) -> list:
        """The results, each as it is and in 16 bits, with their matrices and the factor that these
        lack."""
        sums = (self.sums, self.factor_of_scores, self.depth)
        if not self.by_keys:
            return [(self.result(0), *sums)]
        return [(self.result(0), self.values, self.node.attrs["scale"], self.place),
                (self.result(1), *sums)]

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
        at = {p: self._at_line(start, *p) for p in places}
        scopes = {p: e for p, (e, _) in at.items()}
        products = [b.get(v) for v in self.products]
        weights = {(j, k): self._weight(*at[j, k], b.extract(products[j], k), tested)
                   for j, k in places}
        if self.by_keys:
            lefts = self._operands({p: self.used(scopes[p], x) for p, x in weights.items()})
            b.mma_fence()
            self.start_held(lefts, self.staged_slopes, stage, self.values)
            b.mma_wait(1)
        else:
            b.mma_wait(0)
        slopes = [b.get(v) for v in self.slopes]
        changes = {(j, k): b.mul(weights[j, k], b.add(
            self.used(scopes[j, k], b.extract(slopes[j], k)),
            self._of_row(scopes[j, k], self.added))) for j, k in places}
        lefts = self._operands(changes)
        b.mma_fence()
        self.start_held(lefts, self.staged, stage, self.sums)
        b.mma_wait(0)
        with b.if_(self.elected):
            for n in (self.staged, self.staged_slopes):
                b.mbarrier_arrive(self.empty[n], stage)
        self.ring.step()

    def _operands(self, x: Mapping[Place, Operand]) -> list[Operand]:
        """Elements as left operands of a product."""
        return [self.b.mma_join(self.a, *(x[p] for p in places))
                for places in self.as_lefts(len(self.products))]

    def _at_line(self, start: Operand, j: int, k: int) -> tuple[Emitter, Operand | None]:
        """The position of a thread's element, or the last one of the matrix; and whether its line
        of the stage is inside of the matrix, None if it is."""
        b, own, other, inside = self.b, self.own, self.other, None
        line = self.row_at((0, self.row_of[k]))
        ahead = b.add(b.add(start, self.along), j * self.shape.n + self.column_of[k])
        if own.extent % self.rows:
            line = b.min(line, own.extent - 1)
        if other.extent % self.block:
            inside = b.lt(ahead, other.extent)
            ahead = b.min(ahead, other.extent - 1)
        return self.e.within(bound={**self.e.bound, own: line, other: ahead}), inside

    def _of_row(self, e: Emitter, v: Value) -> Operand:
        return e.element(v, (*self.index(self.row), Index()))

    def _weight(self, e: Emitter, inside: Operand | None, product: Operand,
                tested: bool) -> Operand:
        """The weight of a score. Lines outside of the matrix are zeros, and so is their score: it
        may be far above all scores of a row, and its exponential infinite."""
        b = self.b
        e = e.within()
        e.here[self.attention.scores] = product
        score = e.element(self.scores.bare if tested else self.scores.unmasked,
                          self.index(self.row, self.column))
        factor = b.const(LOG2_E * self.scores.factor, f32)
        x = b.raw_exp2(multiply_add(b, self.limits, score, factor, self._of_row(e, self.level)))
        return x if inside is None else b.select(inside, x, 0.0)
