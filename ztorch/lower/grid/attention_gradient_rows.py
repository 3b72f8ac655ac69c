"""Gradients of attention: which blocks are computed, and the computations on an element of scores,
for workgroups that keep keys and values or queries and slopes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.exponentials import LOG2_E
from ztorch.ir.kernel import MmaShape, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.attention_fragments import FragmentRows, Slot
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.index import Index
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region

Place = tuple[int, int]  # a matrix of a block, and a thread's element in it


def placed(b: Builder, region: Region, g: Operand, rows: int, down: int) -> tuple[Operand, Operand]:
    """The matrix and the first line of a workgroup; `down` workgroups share a matrix. If rows do
    not see the columns ahead of them, the first keys or the last queries of all matrices come
    first: they take longest."""
    node, matrices = region.members[0], sizes_of(region).matrices
    if node.attrs["attention"].ahead is None:
        return b.div(g, down), b.mul(b.rem(g, down), rows)
    at = b.div(g, matrices)
    return b.rem(g, matrices), b.mul(at if node.attrs["by_keys"] else b.sub(down - 1, at), rows)


def line_counts(region: Region) -> tuple[int, int]:
    """The lines of a matrix that workgroups keep, and those that come block by block."""
    sizes = sizes_of(region)
    lines = (sizes.columns, sizes.rows)
    return lines if region.members[0].attrs["by_keys"] else lines[::-1]


class GradientRows(FragmentRows):
    """The lines of a workgroup, which are keys or queries, and their gradients."""

    stores_fours = True

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 shape: MmaShape, high: int, block: int, subgroups: int, matrix: Operand,
                 first: Operand, t: Operand):
        super().__init__(b, region, memory, limits, shape, high, block, subgroups, matrix, first, t)
        self.by_keys: bool = self.node.attrs["by_keys"]
        self.factor_of_scores: float = self.node.attrs["factor"]
        _, _, _, _, self.level, self.added, *_ = self.node.args
        own, other = (self.column, self.row) if self.by_keys else (self.row, self.column)
        self.own, self.other = own, other  # of a line of the workgroup, and of one of a stage

    def block_range(self) -> tuple[Operand, Operand, Operand]:
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

    def parts(self) -> list[tuple[Operand, Operand, bool]]:
        """The first and the last end of the blocks at the border and of the others, in the order of
        computation, and whether their scores may be masked."""
        begin, middle, end = self.block_range()
        return [(first, last, tested) for first, last, tested in (
            (begin, middle, self.by_keys), (middle, end, not self.by_keys)) if first is not last]

    def store_results(self, slot: Slot, sums: list[Operand], values: list[Operand],
                      target: Mapping[Value, str]) -> None:
        """Stores a line of the results, each as it is and in 16 bits, times the factor that its
        matrices lack. `values`: by keys, those of the gradient of values."""
        of_sums = (sums, self.factor_of_scores, self.depth)
        results = [(self.result(0), *of_sums)] if not self.by_keys else [
            (self.result(0), values, self.node.attrs["scale"], self.place),
            (self.result(1), *of_sums)]
        for same, matrices, factor, place in results:
            for v in same:
                if v in target:
                    self.store_line(target[v], slot, matrices, self.b.const(factor, f32), self.own,
                                    place)

    def at_line(self, start: Operand, i: int, j: int, k: int) -> tuple[Emitter, Operand | None]:
        """The position of a thread's element k of matrix j of a block, for the lines of matrix i,
        or the last one of the matrix; and whether its line of the block is inside of the matrix,
        None if it is."""
        b, own, other, inside = self.b, self.own, self.other, None
        line = self.row_at((i, self.row_of[k]))
        ahead = b.add(b.add(start, self.along), j * self.shape.n + self.column_of[k])
        if own.extent % self.rows:
            line = b.min(line, own.extent - 1)
        if other.extent % self.block:
            inside = b.lt(ahead, other.extent)
            ahead = b.min(ahead, other.extent - 1)
        return self.e.within(bound={**self.e.bound, own: line, other: ahead}), inside

    def of_row(self, e: Emitter, v: Value) -> Operand:
        """The number of a row."""
        return e.element(v, (*self.index(self.row), Index()))

    def weight(self, e: Emitter, inside: Operand | None, product: Operand, level: Operand,
               tested: bool) -> Operand:
        """The weight of a score. Lines outside of the matrix are zeros, and so is their score: it
        may be far above all scores of a row, and its exponential infinite."""
        b = self.b
        e = e.within()
        e.here[self.attention.scores] = product
        score = e.element(self.scores.bare if tested else self.scores.unmasked,
                          self.index(self.row, self.column))
        factor = b.const(LOG2_E * self.scores.factor, f32)
        x = b.raw_exp2(multiply_add(b, self.limits, score, factor, level))
        return x if inside is None else b.select(inside, x, 0.0)

    def change(self, e: Emitter, weight: Operand, slope: Operand, shift: Operand) -> Operand:
        """The gradient of a score, without its factor."""
        return self.b.mul(weight, self.b.add(self.used(e, slope), shift))

    def operands(self, x: Mapping[Place, Operand], matrices: int) -> list[Operand]:
        """Elements of matrices as left operands of a product."""
        return [self.b.mma_join(self.a, *(x[p] for p in places))
                for places in self.as_lefts(matrices)]
