"""Attention on a grid by matrix instructions: a subgroup has a few rows of scores as parts of
matrices, and their queries and results, in registers. Keys and values come to shared memory block
after block, while those before are looked at."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.dtypes import f32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.exponentials import LOG2_E
from ztorch.ir.kernel import Fragment, MmaShape, Operand
from ztorch.ir.layouts import Layout, layout_of, places
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.attention import matrix_shape
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import threads, where, workgroups
from ztorch.lower.grid_attention import AttentionRows, AttentionSizes, sizes_of
from ztorch.lower.grid_attention_blocks import Blocks
from ztorch.lower.grid_tuning import (
    ATTENTION_MATRIX_BLOCK,
    ATTENTION_REGISTERS,
    ATTENTION_STAGES,
    ATTENTION_SUBGROUPS,
    MMA_ALIGN_BYTES,
)
from ztorch.lower.index import Index
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule


@dataclass(frozen=True, repr=False)
class GridAttentionMatrixSchedule(Schedule):
    """Attention on a grid, by matrix instructions."""

    kind = "grid_attention_matrix"
    subgroups: int  # of a workgroup
    high: int  # matrices of scores that a subgroup has below one another
    block: int  # columns whose keys and values lie in shared memory at once
    stages: int  # such blocks, of which one is looked at

    def tile(self, lanes: int) -> str:
        return f"{self.subgroups}x{self.high}x{self.block}mma"


def propose(region: Region, limits: Limits) -> GridAttentionMatrixSchedule | None:
    """As many rows for each subgroup as its registers hold, if there is enough for all to do."""
    grid, node, sizes = limits.grid, region.members[0], sizes_of(region)
    assert grid is not None
    shape = matrix_shape(node.dtype, grid)
    if shape is None:
        return None
    for high, block in ((2, ATTENTION_MATRIX_BLOCK // 2), (1, ATTENTION_MATRIX_BLOCK),
                        (1, ATTENTION_MATRIX_BLOCK // 2)):
        s = GridAttentionMatrixSchedule(ATTENTION_SUBGROUPS, high, block, ATTENTION_STAGES)
        rows = s.subgroups * high * shape.m
        groups = sizes.matrices * math.ceil(sizes.rows / rows)
        if high > 1 and groups < grid.compute_units:
            continue
        if not refusal(s, region, limits):
            return s
    return None


def refusal(s: GridAttentionMatrixSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, sizes = limits.grid, sizes_of(region)
    assert grid is not None
    shape = matrix_shape(region.members[0].dtype, grid)
    if shape is None:
        return "the machine does not multiply such matrices, or keeps who has which elements to itself"
    if not 1 <= s.subgroups * grid.subgroup <= grid.threads or s.high < 1:
        return f"subgroups({s.subgroups}) have more than {grid.threads} threads, or high({s.high}) is 0"
    if s.block < 1 or s.block % shape.k:
        return f"block({s.block}) must be a multiple of {shape.k}"
    if s.stages < 2:
        return f"stages({s.stages}) must be at least 2"
    if (held := _registers(s, sizes, shape, grid)) > ATTENTION_REGISTERS:
        return f"a thread would hold {held} registers of matrices, more than {ATTENTION_REGISTERS}"
    needed = _shared(s, sizes, shape)
    return f"it shares {needed} bytes of {grid.shared_bytes}" if needed > grid.shared_bytes else ""


def _registers(s: GridAttentionMatrixSchedule, sizes: AttentionSizes, shape: MmaShape,
               grid: GridLimits) -> int:
    """Registers of 32 bits that the matrices of a thread take: queries, results, scores, and
    weights, which take half as much."""
    across = _up(sizes.depth, shape.k) // 2 + _up(sizes.wide, shape.n) + s.block + s.block // 2
    return s.high * shape.m * across // grid.subgroup


def _shared(s: GridAttentionMatrixSchedule, sizes: AttentionSizes, shape: MmaShape) -> int:
    """Bytes of shared memory."""
    depth, wide = (n + MMA_ALIGN_BYTES // shape.of.bytes for n in _padded(sizes, shape))
    rows = s.subgroups * s.high * shape.m
    return (rows * depth + s.stages * s.block * (depth + wide)) * shape.of.bytes


def _up(n: int, step: int) -> int:
    return math.ceil(n / step) * step


def _padded(sizes: AttentionSizes, shape: MmaShape) -> tuple[int, int]:
    """The size of queries and of results in whole matrices."""
    return _up(sizes.depth, shape.k), _up(sizes.wide, shape.n)


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionMatrixSchedule) -> None:
    """All rows. Where rows see what is ahead of none, the last ones, which take longest, begin."""
    assert limits.grid is not None
    sizes, shape = sizes_of(region), matrix_shape(region.members[0].dtype, limits.grid)
    assert shape is not None
    rows = s.subgroups * s.high * shape.m
    down, count = math.ceil(sizes.rows / rows), s.subgroups * limits.grid.subgroup
    with workgroups(b, sizes.matrices * down, limits.grid) as g, threads(b, count) as t:
        turn = b.rem(g, down)
        if region.members[0].attrs["attention"].ahead is not None:
            turn = b.sub(down - 1, turn)
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
        self.layout: Layout = layout
        self.elements = self.c.size // self.grid.subgroup
        self.lane = b.rem(t, self.grid.subgroup)
        # Where the subgroup's rows begin in those of the workgroup.
        self.start = b.mul(b.div(t, self.grid.subgroup), s.high * shape.m)
        self.down, self.along = (self._thread_part(bits) for bits in (layout.rows, layout.columns))
        rows, columns = (x[:self.elements].tolist() for x in places(self.c))
        self.row_of, self.column_of = rows, columns  # of an element of the first thread
        self.blocks = Blocks(self, shape, t, s.subgroups * self.grid.subgroup)

    def _thread_part(self, bits: tuple[int, ...]) -> Operand:
        """What the number of a thread adds to the row or column of its elements."""
        b, total = self.b, self.b.const(0, self.b.index)
        for bit, k in self.layout.thread_bits(self.elements, bits):
            one = b.rem(b.div(self.lane, 1 << bit), 2)
            total = b.add(total, b.mul(one, 1 << k))
        return total

    def exponential(self, x: Operand) -> Operand:
        return self.b.raw_exp2(self.b.mul(x, LOG2_E))

    def run(self, target: Mapping[Value, str]) -> None:
        b, s, shape, grid = self.b, self.s, self.shape, self.grid
        depth, wide = _padded(self.sizes, shape)
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
        b.copies_wait(s.stages - 1)
        b.barrier()
        lefts = [[queries.matrix(b, self.start, Fragment("a", shape), grid.subgroup, i * shape.m, d)
                  for d in range(0, depth, shape.k)] for i in range(s.high)]
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
            for k, left in enumerate(zip(*lefts, strict=True)):
                for j in range(s.block // shape.n):
                    right = keys.matrix(b, 0, Fragment("b", shape), grid.subgroup, j * shape.n,
                                        k * shape.k, stage)
                    for i, x in enumerate(left):
                        v = scores[i][j]
                        b.set(v, b.mma(x, right, b.get(v)))
            weights = [self._weights(i, b.mul(number, s.block), scores[i], sums[i], state)
                       for i in range(s.high)]
            for k, left in enumerate(zip(*weights, strict=True)):
                for j in range(wide // shape.n):
                    right = values.matrix(b, 0, Fragment("b", shape), grid.subgroup, k * shape.k,
                                          j * shape.n, stage)
                    for i, x in enumerate(left):
                        b.set(sums[i][j], b.mma(x, right, b.get(sums[i][j])))
        b.barrier()  # before the queries of other rows
        for slot in slots:
            self._store(slot, b.get(state[slot][1]), sums[slot[0]], target)

    def _row(self, slot: tuple[int, int]) -> Operand:
        """The row of a thread's elements: their number, also where it is beyond the last row."""
        i, row = slot
        inside = self.b.add(self.start, self.down)
        return self.b.add(self.b.add(self.first, inside), i * self.shape.m + row)

    def _row_scope(self, slot: tuple[int, int]) -> Emitter:
        return self.scope(row=self.b.min(self._row(slot), self.sizes.rows - 1))

    def _across(self, opcode: str, x: Operand) -> Operand:
        """What all threads make of their elements of a row."""
        for bit, _ in self.layout.thread_bits(self.elements, self.layout.columns):
            x = self.b.emit(opcode, x, self.b.shuffle_xor(x, 1 << bit))
        return x

    def _weights(self, i: int, start: Operand, scores: list[Operand], sums: list[Operand],
                 state: dict[tuple[int, int], tuple[Operand, Operand]]) -> list[Operand]:
        """Exponentials of the scores of a matrix of rows, as matrices of the next product; the
        results so far are scaled by what their rows now call for."""
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
                weights[place] = b.raw_exp2(multiply_add(b, self.limits, x, b.const(LOG2_E, f32), shift))
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
        """Of each matrix a that matrices c side by side make: which of them, and which element of
        it, each element of a thread is. A thread has all that it needs."""
        own: dict[tuple[int, int, int], tuple[int, int]] = {}
        for number, (row, column) in enumerate(zip(*(x.tolist() for x in places(self.c)), strict=True)):
            own[row, column, number // self.elements] = 0, number % self.elements
        lefts, n = self.a.size // self.grid.subgroup, self.shape.n
        rows, columns = (x.tolist() for x in places(self.a))
        found: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
            _, k = own[row, column % n, number // lefts]
            found[number % lefts].add((column // n, k))
        order = [next(iter(found[k])) for k in range(lefts)]
        assert all(len(x) == 1 for x in found.values())
        step = self.shape.k // n
        return [[(first + j, k) for j, k in order] for first in range(0, matrices, step)]

    def _store(self, slot: tuple[int, int], total: Operand, sums: list[Operand],
               target: Mapping[Value, str]) -> None:
        """The results of a row."""
        b, sizes, node = self.b, self.sizes, self.node
        e, at = self._row_scope(slot), self._row(slot)
        factor = self.factor(e, self._across("add", total))
        rows = self.s.subgroups * self.s.high * self.shape.m
        tests = [b.lt(at, sizes.rows)] if sizes.rows % rows else []
        for j, v in enumerate(sums):
            for k in range(self.elements):
                if self.row_of[k] != slot[1]:
                    continue
                place = b.add(self.along, j * self.shape.n + self.column_of[k])
                inside = [*tests, b.lt(place, sizes.wide)] if sizes.wide % self.shape.n else tests
                x = b.cast(b.mul(b.extract(b.get(v), k), factor), dtype=node.dtype)
                with where(b, functools.reduce(b.and_, inside) if inside else None):
                    flat = Index.of(self.batch) * (sizes.rows * sizes.wide) + (
                        Index.of(self.row) * sizes.wide + Index.of(self.place))
                    self.scope(row=at, place=place).store(target[node], node, flat, x)
