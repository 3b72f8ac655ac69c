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
from ztorch.lower.attention import matrix_shape
from ztorch.lower.grid import threads, workgroups
from ztorch.lower.grid_attention import sizes_of
from ztorch.lower.grid_attention_blocks import Blocks
from ztorch.lower.grid_attention_fragments import FragmentRows
from ztorch.lower.grid_attention_tiles import GridAttentionMatrixSchedule, padded, registers
from ztorch.lower.region import Region
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

    def run(self, target: Mapping[Value, str]) -> None:
        b, s, shape, grid = self.b, self.s, self.shape, self.grid
        depth, width = padded(self.sizes, shape)
        queries = self.blocks.declare("queries", 0, self.rows, depth)
        keys, values = (self.blocks.declare(name, side, s.block, size, s.stages)
                        for name, side, size in (("keys", 1, depth), ("values", 2, width)))
        self.blocks.start(queries, self.first)
        b.copies_commit()
        end = self.end(self.first, self.rows)
        count = b.div(b.add(end, s.block - 1), s.block)

        def start(number: Operand) -> None:
            for block in (keys, values):
                self.blocks.start(block, b.mul(number, s.block), b.rem(number, s.stages))

        for k in range(s.stages - 1):
            with b.if_(b.lt(k, count)):
                start(b.const(k, b.index))
            b.copies_commit()

        def left(k: int) -> list[Operand]:
            return [queries.matrix(b, self.start, Fragment("a", shape), grid.subgroup,
                                   i * shape.m, k * shape.k) for i in range(s.high)]

        steps = range(depth // shape.k)
        lefts = []
        if s.held:
            b.copies_wait(s.stages - 1)
            b.barrier()
            lefts = [left(k) for k in steps[:s.held]]
        state = self.state()
        sums = [[b.matrix(self.c, grid.subgroup, 0) for _ in range(0, width, shape.n)]
                for _ in range(s.high)]
        scores = [[b.matrix(self.c, grid.subgroup, 0) for _ in range(0, s.block, shape.n)]
                  for _ in range(s.high)]
        with b.loop(0, count) as number:
            b.copies_wait(s.stages - 2)
            b.barrier()
            ahead = b.add(number, s.stages - 1)
            with b.if_(b.lt(ahead, count)):
                start(ahead)
            b.copies_commit()
            stage = b.rem(number, s.stages)
            for line in scores:
                for v in line:
                    b.set(v, 0.0)
            for k in steps:
                rows_of_k = lefts[k] if k < s.held else left(k)
                for j in range(s.block // shape.n):
                    right = keys.matrix(b, 0, Fragment("b", shape), grid.subgroup, j * shape.n,
                                        k * shape.k, stage)
                    for i, x in enumerate(rows_of_k):
                        v = scores[i][j]
                        b.set(v, b.mma(x, right, b.get(v)))
            weights = []
            for i in range(s.high):
                self.rescale(sums[i], self.soften(i, b.mul(number, s.block), scores[i], state))
                weights.append(self.lefts(scores[i]))
            for k, parts in enumerate(zip(*weights, strict=True)):
                for j in range(width // shape.n):
                    right = values.matrix(b, 0, Fragment("b", shape), grid.subgroup, k * shape.k,
                                          j * shape.n, stage)
                    for i, x in enumerate(parts):
                        b.set(sums[i][j], b.mma(x, right, b.get(sums[i][j])))
        b.barrier()  # before the queries of other rows
        for slot in self.slots:
            self.store(slot, b.get(state[slot][1]), sums[slot[0]], target)
