"""Attention on a grid by matrix instructions: a subgroup keeps a few rows of scores, as parts of
matrices, and their queries and results in registers. Keys and values are copied to shared memory
block by block, while earlier blocks are in use."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.exponentials import LOG2_E
from ztorch.ir.kernel import Fragment, MmaShape, Operand
from ztorch.ir.layouts import ElementLayout, layout_of, places
from ztorch.ir.limits import Limits
from ztorch.lower.attention import matrix_shape
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import threads, where, workgroups
from ztorch.lower.grid_attention import AttentionRows, sizes_of
from ztorch.lower.grid_attention_blocks import Blocks
from ztorch.lower.grid_attention_tiles import GridAttentionMatrixSchedule, padded, registers
from ztorch.lower.index import Index
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region
from ztorch.lower.tuning import ATTENTION_REGISTERS_FEW


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionMatrixSchedule) -> None:
    """All rows. If rows do not see the columns ahead of them, the last rows come first: they take
    longest."""
    assert limits.grid is not None
    sizes, shape = sizes_of(region), matrix_shape(region.members[0].args[0].dtype, limits.grid)
    assert shape is not None
    rows = s.subgroups * s.high * shape.m
    down, count = math.ceil(sizes.rows / rows), s.subgroups * limits.grid.subgroup
    with workgroups(b, sizes.matrices * down, limits.grid) as g, threads(b, count) as t:
        turn = b.rem(g, down)
        if region.members[0].attrs["attention"].ahead is not None:
            turn = b.sub(down - 1, turn)
        if registers(s, sizes, shape, limits.grid) > ATTENTION_REGISTERS_FEW:
            b.resident_threads = limits.grid.resident_threads // 2
        nest = _SubgroupRows(b, region, memory, limits, s, shape, b.div(g, down),
                             b.mul(turn, rows), t)
        nest.run(target)


class _SubgroupRows(AttentionRows):
    """The rows of a subgroup."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 s: GridAttentionMatrixSchedule, shape: MmaShape, matrix: Operand, first: Operand,
                 t: Operand):
        super().__init__(b, region, memory, matrix)
        assert limits.grid is not None
        self.limits, self.s, self.shape, self.t, self.first = limits, s, shape, t, first
        self.grid = limits.grid
        self.c, self.a = (Fragment(role, shape, self.grid.mma_layout) for role in "ca")
        layout = layout_of(self.c)
        assert layout is not None
        self.layout: ElementLayout = layout
        self.elements = self.c.size // self.grid.subgroup
        self.lane = b.rem(t, self.grid.subgroup)
        # The first row of the subgroup in the workgroup.
        self.start = b.mul(b.div(t, self.grid.subgroup), s.high * shape.m)
        self.down, self.along = (self._thread_part(bits) for bits in (layout.rows, layout.columns))
        rows, columns = (x[:self.elements].tolist() for x in places(self.c))
        self.row_of, self.column_of = rows, columns  # of an element of the first thread
        self.blocks = Blocks(self, shape, t, s.subgroups * self.grid.subgroup)

    def _thread_part(self, bits: tuple[int, ...]) -> Operand:
        """The offset that a thread adds to the row or column of its elements."""
        b, total = self.b, self.b.const(0, self.b.index)
        for bit, k in self.layout.thread_bits(self.elements, bits):
            one = b.rem(b.div(self.lane, 1 << bit), 2)
            total = b.add(total, b.mul(one, 1 << k))
        return total

    def exponential(self, x: Operand) -> Operand:
        return self.b.raw_exp2(self.b.mul(x, LOG2_E))

    def number(self, e: Emitter, v: Value) -> Operand:
        if v.op.opcode != "div":
            return super().number(e, v)
        over, under = (self.number(e, a) for a in v.args)
        return self.b.mul(over, self.b.raw_rcp(under))  # divisions are calls and need registers

    def run(self, target: Mapping[Value, str]) -> None:
        b, s, shape, grid = self.b, self.s, self.shape, self.grid
        depth, wide = padded(self.sizes, shape)
        rows = s.subgroups * s.high * shape.m
        queries = self.blocks.brought("queries", 0, rows, depth)
        keys, values = (self.blocks.brought(name, side, s.block, size, s.stages)
                        for name, side, size in (("keys", 1, depth), ("values", 2, wide)))
        self.blocks.start(queries, self.first)
        b.copies_commit()
        end = self.end(self.first, rows)
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
        slots = [(i, row) for i in range(s.high) for row in sorted(set(self.row_of))]
        state = {slot: (b.var(f32, 1, -math.inf), b.var(f32, 1, 0.0)) for slot in slots}
        sums = [[b.matrix(self.c, grid.subgroup, 0) for _ in range(0, wide, shape.n)]
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
            weights = [self._weights(i, b.mul(number, s.block), scores[i], sums[i], state)
                       for i in range(s.high)]
            for k, parts in enumerate(zip(*weights, strict=True)):
                for j in range(wide // shape.n):
                    right = values.matrix(b, 0, Fragment("b", shape), grid.subgroup, k * shape.k,
                                          j * shape.n, stage)
                    for i, x in enumerate(parts):
                        b.set(sums[i][j], b.mma(x, right, b.get(sums[i][j])))
        b.barrier()  # before the queries of other rows
        for slot in slots:
            self._store(slot, b.get(state[slot][1]), sums[slot[0]], target)

    def _row(self, slot: tuple[int, int]) -> Operand:
        """The row of a thread's elements; the number may be beyond the last row."""
        i, row = slot
        inside = self.b.add(self.start, self.down)
        return self.b.add(self.b.add(self.first, inside), i * self.shape.m + row)

    def _row_scope(self, slot: tuple[int, int]) -> Emitter:
        return self.scope(row=self.b.min(self._row(slot), self.sizes.rows - 1))

    def _across(self, opcode: str, x: Operand) -> Operand:
        """The combination of all threads' elements of a row."""
        for bit, _ in self.layout.thread_bits(self.elements, self.layout.columns):
            x = self.b.emit(opcode, x, self.b.shuffle_xor(x, 1 << bit))
        return x

    def _weights(self, i: int, start: Operand, scores: list[Operand], sums: list[Operand],
                 state: dict[tuple[int, int], tuple[Operand, Operand]]) -> list[Operand]:
        """Exponentials of the scores of a matrix of rows, as matrices of the next product. The
        results so far are scaled to the new maxima of their rows."""
        b = self.b
        held = [b.get(v) for v in scores]
        weights: dict[tuple[int, int], Operand] = {}
        scale_of: dict[int, Operand] = {}
        for row in sorted(set(self.row_of)):
            e = self._row_scope((i, row))
            places = [(j, k) for j in range(len(held)) for k in range(self.elements)
                      if self.row_of[k] == row]
            made = [self._score(e, start, held[j], j, k) for j, k in places]
            largest, total = state[i, row]
            before = b.get(largest)
            now = b.max(before, self._across("max", functools.reduce(b.max, made)))
            scale_of[row] = scale = self.rescaled(e, before, now)
            shift = b.mul(self.shift(e, now), -LOG2_E)
            new = b.mul(b.get(total), scale)
            for place, x in zip(places, made, strict=True):
                power = multiply_add(b, self.limits, x, b.const(LOG2_E, f32), shift)
                weights[place] = b.raw_exp2(power)
                new = b.add(new, weights[place])
            b.set(largest, now)
            b.set(total, new)
        for v in sums:
            x = b.get(v)
            b.set(v, b.mma_join(self.c, *(b.mul(b.extract(x, k), scale_of[self.row_of[k]])
                                          for k in range(self.elements))))
        return [b.mma_join(self.a, *(weights[place] for place in places))
                for places in self._as_lefts(len(held))]

    def _score(self, e: Emitter, start: Operand, matrix: Operand, j: int, k: int) -> Operand:
        """The score of element k of a thread in matrix j of a block."""
        b = self.b
        column, inside = b.add(b.add(start, self.along), j * self.shape.n + self.column_of[k]), None
        if self.sizes.columns % self.s.block:
            inside = b.lt(column, self.sizes.columns)
            column = b.min(column, self.sizes.columns - 1)
        scope = e.within(bound={**e.bound, self.column: column})
        return self.score(scope, b.extract(matrix, k), inside)

    def _as_lefts(self, matrices: int) -> list[list[tuple[int, int]]]:
        """Rearranges results as left operands. For each matrix a made of matrices c side by side:
        from which matrix c, and from which of its elements, each element of a thread comes. All
        belong to the same thread."""
        own: dict[tuple[int, int, int], tuple[int, int]] = {}
        rows, columns = (x.tolist() for x in places(self.c))
        for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
            own[row, column, number // self.elements] = 0, number % self.elements
        lefts, n = self.a.size // self.grid.subgroup, self.shape.n
        rows, columns = (x.tolist() for x in places(self.a))
        sources: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
            _, k = own[row, column % n, number // lefts]
            sources[number % lefts].add((column // n, k))
        order = [next(iter(sources[k])) for k in range(lefts)]
        assert all(len(x) == 1 for x in sources.values())
        step = self.shape.k // n
        return [[(first + j, k) for j, k in order] for first in range(0, matrices, step)]

    def _store(self, slot: tuple[int, int], total: Operand, sums: list[Operand],
               target: Mapping[Value, str]) -> None:
        """Stores the results of a row."""
        b, sizes, node = self.b, self.sizes, self.node
        e, at = self._row_scope(slot), self._row(slot)
        factor = self.factor(e, self._across("add", total))
        rows = self.s.subgroups * self.s.high * self.shape.m
        tests = [b.lt(at, sizes.rows)] if sizes.rows % rows else []
        for j, v in enumerate(sums):
            for k in range(self.elements):
                if self.row_of[k] != slot[1]:
                    continue
                ahead = j * self.shape.n + self.column_of[k]
                inside = [*tests, b.lt(b.add(self.along, ahead), sizes.wide)] if (
                    sizes.wide % self.shape.n) else tests
                x = b.cast(b.mul(b.extract(b.get(v), k), factor), dtype=node.dtype)
                with where(b, functools.reduce(b.and_, inside) if inside else None):
                    flat = Index.of(self.batch) * (sizes.rows * sizes.wide) + (
                        Index.of(self.row) * sizes.wide + Index.of(self.place) + ahead)
                    self.scope(row=at, place=self.along).store(target[node], node, flat, x)
