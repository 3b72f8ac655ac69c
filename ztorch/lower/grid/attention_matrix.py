"""Attention on a grid by matrix instructions: each subgroup holds a few rows of scores, queries and
results in registers, as matrix fragments. Keys and values are copied to shared memory block by
block, while earlier blocks are in use."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Fragment, MmaShape, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.grid.attention_blocks import Blocks
from ztorch.lower.grid.attention_fragments import FragmentRows
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.attention_tiles import GridAttentionMatrixSchedule, padded, registers
from ztorch.lower.grid.workgroups import threads, workgroups
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention import matrix_shape
from ztorch.lower.tuning import ATTENTION_REGISTERS_FEW


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionMatrixSchedule) -> None:
    """All rows. With a causal mask the last rows come first, because they take longest."""
    assert limits.grid is not None
    sizes, shape = sizes_of(region), matrix_shape(region.members[0].args[0].dtype, limits.grid)
    assert shape is not None
    rows = s.subgroups * s.high * shape.m
    down, count = math.ceil(sizes.rows / rows), s.subgroups * limits.grid.subgroup
    with workgroups(b, sizes.matrices * down, limits.grid) as g, threads(b, count) as t:
        row_block = b.rem(g, down)
        if region.members[0].attrs["attention"].ahead is not None:
            row_block = b.sub(down - 1, row_block)
        if registers(s, sizes, shape, limits.grid) > ATTENTION_REGISTERS_FEW:
            b.resident_threads = limits.grid.resident_threads // 2
        nest = _SubgroupRows(b, region, memory, limits, s, shape, b.div(g, down),
                             b.mul(row_block, rows), t)
        nest.run(target)


class _SubgroupRows(FragmentRows):
    """The rows of a subgroup, whose keys and values all threads copy."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 s: GridAttentionMatrixSchedule, shape: MmaShape, matrix: Operand, first: Operand,
                 t: Operand):
        super().__init__(b, region, memory, limits, shape, s.high, s.block, s.subgroups, matrix,
                         first, t)
        self.s = s
        self.blocks = Blocks(self, shape, t, s.subgroups * self.grid.subgroup)
        self.padded_depth, self.padded_width = padded(self.sizes, shape)
        self.queries = self.blocks.declare("queries", 0, self.rows, self.padded_depth)
        self.keys, self.values = (
            self.blocks.declare(name, side, s.block, size, s.stages) for name, side, size in (
                ("keys", 1, self.padded_depth), ("values", 2, self.padded_width)))
        self.held: list[list[Operand]] = []  # fragments of queries that stay in registers, along k

    def run(self, target: Mapping[Value, str]) -> None:
        b, s = self.b, self.s
        self.blocks.start(self.queries, self.first)
        b.copies_commit()
        end = self.end(self.first, self.rows)
        count = b.div(b.add(end, s.block - 1), s.block)
        for k in range(s.stages - 1):
            with b.if_(b.lt(k, count)):
                self._start(b.const(k, b.index))
            b.copies_commit()
        if s.held:
            b.copies_wait(s.stages - 1)
            b.barrier()
            steps = range(self.padded_depth // self.shape.k)
            self.held = [self._queries(k) for k in steps[:s.held]]
        state = self.state()
        sums, scores = self._zeros(self.padded_width), self._zeros(s.block)
        with b.loop(0, count) as number:
            b.copies_wait(s.stages - 2)
            b.barrier()
            ahead = b.add(number, s.stages - 1)
            with b.if_(b.lt(ahead, count)):
                self._start(ahead)
            b.copies_commit()
            stage = b.rem(number, s.stages)
            self._multiply_keys(scores, stage)
            weights = []
            for i in range(s.high):
                self.rescale(sums[i], self.soften(i, b.mul(number, s.block), scores[i], state))
                weights.append(self.lefts(scores[i]))
            self._add_values(sums, weights, stage)
        b.barrier()  # before the queries of other rows
        for slot in self.slots:
            self.store(slot, state, sums[slot[0]], target)

    def _start(self, number: Operand) -> None:
        """Starts the copies of a block of keys and of values."""
        b, s = self.b, self.s
        for lines in (self.keys, self.values):
            self.blocks.start(lines, b.mul(number, s.block), b.rem(number, s.stages))

    def _queries(self, k: int) -> list[Operand]:
        """The fragments of queries at step k of the depth."""
        return [self.queries.matrix(self.b, self.start, Fragment("a", self.shape),
                                    self.grid.subgroup, i * self.shape.m, k * self.shape.k)
                for i in range(self.s.high)]

    def _zeros(self, columns: int) -> list[list[Operand]]:
        """Variables for the fragments of a subgroup's rows with so many columns."""
        return [[self.b.matrix(self.c, self.grid.subgroup, 0)
                 for _ in range(0, columns, self.shape.n)] for _ in range(self.s.high)]

    def _multiply_keys(self, scores: list[list[Operand]], stage: Operand) -> None:
        """Scores: queries times a block of keys."""
        b, shape = self.b, self.shape
        for line in scores:
            for v in line:
                b.set(v, 0.0)
        for k in range(self.padded_depth // shape.k):
            queries = self.held[k] if k < len(self.held) else self._queries(k)
            for j in range(self.s.block // shape.n):
                right = self.keys.matrix(b, 0, Fragment("b", shape), self.grid.subgroup,
                                         j * shape.n, k * shape.k, stage, columns=True)
                for i, x in enumerate(queries):
                    v = scores[i][j]
                    b.set(v, b.mma(x, right, b.get(v)))

    def _add_values(self, sums: list[list[Operand]], weights: list[list[Operand]],
                    stage: Operand) -> None:
        """Adds weights times a block of values to the results."""
        b, shape = self.b, self.shape
        for k, parts in enumerate(zip(*weights, strict=True)):
            for j in range(self.padded_width // shape.n):
                right = self.values.matrix(b, 0, Fragment("b", shape), self.grid.subgroup,
                                           k * shape.k, j * shape.n, stage)
                for i, x in enumerate(parts):
                    b.set(sums[i][j], b.mma(x, right, b.get(sums[i][j])))
