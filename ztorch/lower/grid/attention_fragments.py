"""Attention by matrix instructions: operations on scores and results that a thread holds as
fragments of matrices."""

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
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.attention_rows import AttentionRows
from ztorch.lower.grid.workgroups import where
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import multiply_add
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention_scores import bare_scores

Slot = tuple[int, int]  # a matrix of rows of a subgroup, and a row of a thread's elements in it
State = dict[Slot, tuple[Operand, Operand]]  # of rows: the largest score, the sum of exponentials


class FragmentRows(AttentionRows):
    """The rows of a subgroup."""

    stores_fours = False  # whether threads exchange results, to store four elements at once

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 shape: MmaShape, high: int, block: int, subgroups: int, matrix: Operand,
                 first: Operand, t: Operand):
        """Each subgroup has `high` matrices, stacked vertically. `block` columns are computed
        together, and `first` is the first row of the workgroup."""
        super().__init__(b, region, memory, matrix)
        assert limits.grid is not None
        self.limits, self.shape, self.t, self.first = limits, shape, t, first
        self.high, self.block, self.rows = high, block, subgroups * high * shape.m
        self.grid = limits.grid
        self.c, self.a = (Fragment(role, shape, self.grid.mma_layout) for role in "ca")
        layout = layout_of(self.c)
        assert layout is not None
        self.layout: ElementLayout = layout
        self.elements = self.c.size // self.grid.subgroup
        self.lane = b.rem(t, self.grid.subgroup)
        # The first row of the subgroup in the workgroup.
        self.start = b.mul(b.div(t, self.grid.subgroup), high * shape.m)
        self.down, self.along = (self._thread_part(bits) for bits in (layout.rows, layout.columns))
        rows, columns = (x[:self.elements].tolist() for x in places(self.c))
        self.row_of, self.column_of = rows, columns  # of an element of the first thread
        self.scores = bare_scores(self.attention)
        self.slots = [(i, row) for i in range(high) for row in sorted(set(rows))]

    def _thread_part(self, bits: tuple[int, ...]) -> Operand:
        """The part of a row or column number that depends on the thread."""
        b, total = self.b, self.b.const(0, self.b.index)
        for bit, k in self.layout.thread_bits(self.elements, bits):
            bit_value = b.rem(b.div(self.lane, 1 << bit), 2)
            total = b.add(total, b.mul(bit_value, 1 << k))
        return total

    def exponential(self, x: Operand) -> Operand:
        return self.b.raw_exp2(self.b.mul(x, LOG2_E))

    def number(self, e: Emitter, v: Value) -> Operand:
        if v.op.opcode != "div":
            return super().number(e, v)
        over, under = (self.number(e, a) for a in v.args)
        return self.b.mul(over, self.b.raw_rcp(under))  # divisions are calls and need registers

    def state(self) -> State:
        """Before the first block."""
        b = self.b
        return {slot: (b.var(f32, 1, -math.inf), b.var(f32, 1, 0.0)) for slot in self.slots}

    def row_at(self, slot: Slot) -> Operand:
        """The row of a thread's elements, which may be beyond the last row."""
        i, row = slot
        inside = self.b.add(self.start, self.down)
        return self.b.add(self.b.add(self.first, inside), i * self.shape.m + row)

    def _row_scope(self, slot: Slot) -> Emitter:
        return self.scope(row=self.b.min(self.row_at(slot), self.sizes.rows - 1))

    def _across(self, opcode: str, x: Operand) -> Operand:
        """The reduction of a value over all threads that share a row."""
        for bit, _ in self.layout.thread_bits(self.elements, self.layout.columns):
            x = self.b.emit(opcode, x, self.b.shuffle_xor(x, 1 << bit))
        return x

    def soften(self, i: int, start: Operand, scores: list[Operand], state: State,
               tested: bool = True) -> dict[int, Operand]:
        """Replaces the scores of one matrix by their exponentials, and returns the factors that
        rescale earlier results, by row. `tested=False` asserts that no column of the block is
        masked or outside the matrix."""
        b = self.b
        products = [b.get(v) for v in scores]
        weights: dict[tuple[int, int], Operand] = {}
        scale_of: dict[int, Operand] = {}
        for row in sorted(set(self.row_of)):
            e = self._row_scope((i, row))
            places = [(j, k) for j in range(len(products)) for k in range(self.elements)
                      if self.row_of[k] == row]
            bare = [self._score(e, start, products[j], j, k, tested) for j, k in places]
            largest, total = state[i, row]
            before = b.get(largest)
            after = b.max(before, self._across("max", functools.reduce(b.max, bare)))
            ends = [b.mul(x, self.scores.factor) for x in (before, after)]
            scale_of[row] = scale = self.rescaled(e, *ends)
            shift = b.mul(self.shift(e, ends[1]), -LOG2_E)
            factor = b.const(LOG2_E * self.scores.factor, f32)
            new = b.mul(b.get(total), scale)
            for place, x in zip(places, bare, strict=True):
                power = multiply_add(b, self.limits, x, factor, shift)
                weight = b.raw_exp2(power)
                new = b.add(new, weight)
                weights[place] = self.used(self._at(e, start, *place, tested)[0], weight)
            b.set(largest, after)
            b.set(total, new)
        for j, v in enumerate(scores):
            b.set(v, b.mma_join(self.c, *(weights[j, k] for k in range(self.elements))))
        return scale_of

    def rescale(self, sums: list[Operand], scale_of: dict[int, Operand]) -> None:
        """Scales the results so far to the new maxima of their rows."""
        b = self.b
        for v in sums:
            x = b.get(v)
            b.set(v, b.mma_join(self.c, *(b.mul(b.extract(x, k), scale_of[self.row_of[k]])
                                          for k in range(self.elements))))

    def lefts(self, weights: list[Operand]) -> list[Operand]:
        """The weights as left operands of the next product."""
        b, matrices = self.b, [self.b.get(v) for v in weights]
        return [b.mma_join(self.a, *(b.extract(matrices[j], k) for j, k in places))
                for places in self.as_lefts(len(matrices))]

    def _score(self, e: Emitter, start: Operand, matrix: Operand, j: int, k: int,
               tested: bool) -> Operand:
        """The bare score of a thread's element k of matrix j of a block."""
        scope, inside = self._at(e, start, j, k, tested)
        scope.here[self.attention.scores] = self.b.extract(matrix, k)
        v = self.scores.bare if tested else self.scores.unmasked
        x = scope.element(v, self.index(self.row, self.column))
        return x if inside is None else self.b.select(inside, x, -math.inf)

    def _at(self, e: Emitter, start: Operand, j: int, k: int,
            tested: bool) -> tuple[Emitter, Operand | None]:
        """The scope of a thread's element k of matrix j of a block; its column may be the last one,
        for one outside of the matrix. And whether it is inside; None if it is."""
        b = self.b
        column, inside = b.add(b.add(start, self.along), j * self.shape.n + self.column_of[k]), None
        if tested and self.sizes.columns % self.block:
            inside = b.lt(column, self.sizes.columns)
            column = b.min(column, self.sizes.columns - 1)
        return e.within(bound={**e.bound, self.column: column}), inside

    def as_lefts(self, matrices: int) -> list[list[tuple[int, int]]]:
        """Maps accumulators (fragments c) to left operands (fragments a). For each fragment a: the
        fragment c and the element in it that each element of a comes from. Both are held by the
        same thread."""
        element_of: dict[tuple[int, int, int], tuple[int, int]] = {}
        rows, columns = (x.tolist() for x in places(self.c))
        for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
            element_of[row, column, number // self.elements] = 0, number % self.elements
        lefts, n = self.a.size // self.grid.subgroup, self.shape.n
        rows, columns = (x.tolist() for x in places(self.a))
        sources: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
            _, k = element_of[row, column % n, number // lefts]
            sources[number % lefts].add((column // n, k))
        order = [next(iter(sources[k])) for k in range(lefts)]
        assert all(len(x) == 1 for x in sources.values())
        step = self.shape.k // n
        return [[(first + j, k) for j, k in order] for first in range(0, matrices, step)]

    def store(self, slot: Slot, state: State, sums: list[Operand],
              target: Mapping[Value, str]) -> None:
        """Stores the results of a row."""
        largest, total = (self.b.get(v) for v in state[slot])
        e, total = self._row_scope(slot), self._across("add", total)
        for v in self.result(0):
            if v in target:
                self.store_line(target[v], slot, sums, self.factor(e, total), self.row, self.place)
        below = self.b.mul(largest, self.scores.factor)
        inside = [self.b.eq(self.along, 0), *self._inside(slot, self.row)]
        self.store_state(e.within(bound={**e.bound, self.row: self.row_at(slot)}), below, total,
                         functools.reduce(self.b.and_, inside), target)

    def store_line(self, mem: str, slot: Slot, sums: list[Operand], factor: Operand, line: Var,
                   place: Var) -> None:
        """Stores one line of matrices, times a factor."""
        b, at = self.b, self.row_at(slot)
        tests = self._inside(slot, line)
        own = [k for k in range(self.elements) if self.row_of[k] == slot[1]]
        dtype, width = b.memories[mem].dtype, place.extent
        scaled = [[b.mul(b.extract(b.get(v), k), factor) for k in own]
                  for v in sums[:math.ceil(width / self.shape.n)]]
        flat = Index.of(self.batch) * (line.extent * width) + (
            Index.of(line) * width + Index.of(place))

        def scope(column: Operand) -> Emitter:
            return self.e.within(bound={**self.e.bound, line: at, place: column})

        fours = self.stores_fours and width % (2 * self.shape.n) == 0
        for j in range(0, len(scaled), 2) if fours else ():
            column, vector = self._line_of_four(scaled[j], scaled[j + 1])
            to, off, _ = scope(b.add(column, j * self.shape.n)).address(flat)
            x = b.cast(vector, dtype=dtype)
            with where(b, tests[0] if tests else None):
                b.store(mem, to, x, off=off, align=x.lanes * dtype.bytes)
        for j, values in () if fours else enumerate(scaled):
            for k, x in zip(own, values, strict=True):
                ahead = j * self.shape.n + self.column_of[k]
                inside = [*tests, b.lt(b.add(self.along, ahead), width)] if (
                    width % self.shape.n) else tests
                with where(b, functools.reduce(b.and_, inside) if inside else None):
                    scope(self.along).store(mem, self.node, flat + ahead, b.cast(x, dtype=dtype))

    def _inside(self, slot: Slot, line: Var) -> list[Operand]:
        """The tests that a line is in the matrix."""
        return [self.b.lt(self.row_at(slot), line.extent)] if line.extent % self.rows else []

    def _line_of_four(self, left: list[Operand], right: list[Operand]) -> tuple[Operand, Operand]:
        """Exchanges with the next thread, so that each has four neighbors of one of two adjacent
        matrices, in place of two neighbors of each. Returns their first column and the vector."""
        b, column, odd, distance = self.b, self.b.const(0, self.b.index), None, 0
        for bit, k in self.layout.thread_bits(self.elements, self.layout.columns):
            bit_value = b.rem(b.div(self.lane, 1 << bit), 2)
            if k == 1:
                odd, distance = bit_value, 1 << bit
            column = b.add(column, b.mul(bit_value, self.shape.n if k == 1 else 1 << k))
        assert odd is not None
        second = b.eq(odd, 1)
        others = [b.shuffle_xor(b.select(second, x, y), distance)
                  for x, y in zip(left, right, strict=True)]
        line = [b.select(second, x, y) for x, y in zip([*others, *right], [*left, *others],
                                                       strict=True)]
        return column, b.join(*line)
