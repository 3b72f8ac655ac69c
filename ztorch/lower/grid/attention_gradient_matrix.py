"""Gradients of attention by matrix instructions of subgroups. A workgroup keeps keys and values in
shared memory, and adds, block by block of queries and their slopes, to the gradients of these keys
and values; or it keeps queries and slopes, and adds, block by block of keys and values, to the
gradients of these queries. Each subgroup computes the scores of its lines again. Blocks are copied
while earlier ones are in use.
"""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Fragment, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.attention_blocks import Blocks, StagedLines
from ztorch.lower.grid.attention_gradient_blocks import (
    GradientBlocks,
    GridAttentionGradientMatrixSchedule,
    blocks_of,
)
from ztorch.lower.grid.attention_gradient_rows import GradientRows, placed
from ztorch.lower.grid.workgroups import threads, workgroups
from ztorch.lower.region import Region
from ztorch.lower.tuning import ATTENTION_REGISTERS_FEW

Matrices = list[list[Operand]]  # of a subgroup, by matrix of its lines
Element = tuple[int, int, int]  # a matrix of lines, a matrix of a block, and a thread's element


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: GridAttentionGradientMatrixSchedule) -> None:
    """All keys or all queries."""
    blocks = blocks_of(s, region, limits)
    assert limits.grid is not None and blocks is not None
    with workgroups(b, blocks.matrices * blocks.down, limits.grid) as g, \
            threads(b, blocks.threads) as t:
        if blocks.registers > ATTENTION_REGISTERS_FEW:
            b.resident_threads = limits.grid.resident_threads // 2
        matrix, first = placed(b, region, g, blocks.rows, blocks.down)
        _SubgroupGradients(b, region, memory, limits, blocks, matrix, first, t).run(target)


class _SubgroupGradients(GradientRows):
    """The gradients of the lines of a workgroup."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str], limits: Limits,
                 blocks: GradientBlocks, matrix: Operand, first: Operand, t: Operand):
        s = blocks.s
        super().__init__(b, region, memory, limits, blocks.shape, s.high, s.block, s.subgroups,
                         matrix, first, t)
        self.s, self.tile = s, blocks
        self.blocks = Blocks(self, blocks.shape, t, blocks.threads)
        names = {"queries": blocks.depth, "keys": blocks.depth, "values": blocks.width,
                 "slopes": blocks.width}
        own, other = ("keys", "values"), ("queries", "slopes")
        if not self.by_keys:
            own, other = other, own
        sides = [*names]
        self.own_lines = [self.blocks.declare(n, sides.index(n), self.rows, names[n]) for n in own]
        self.lines, self.slopes = (
            self.blocks.declare(n, sides.index(n), s.block, names[n], s.stages) for n in other)
        self.numbers = [self.blocks.declare_numbers(name, v, s.block, s.stages) for name, v in (
            ("levels", self.level), ("shifts", self.added))] if self.by_keys else []
        self.held: list[Matrices] = [[], []]  # matrices that stay in registers, by operand and step

    def run(self, target: Mapping[Value, str]) -> None:
        b, s, tile = self.b, self.s, self.tile
        begin, _, self.last = self.block_range()
        for lines in self.own_lines:
            self.blocks.start(lines, self.first)
        b.copies_commit()
        for k in range(s.stages - 1):
            self._start(b.add(begin, k))
        if s.held:
            b.copies_wait(s.stages - 1)
            b.barrier()
            steps = tile.depth // self.shape.k
            counts = min(s.held, steps), max(s.held - steps, 0)
            self.held = [[self._own(side, k) for k in range(n)] for side, n in enumerate(counts)]
        self.sums = self._zeros(tile.depth)
        self.values = self._zeros(tile.width if self.by_keys else 0)
        self.products = self._zeros(s.block)
        for first, last, tested in self.parts():
            with b.loop(first, last) as number:
                self._add(number, tested)
        b.barrier()  # before the lines of others
        for slot in self.slots:
            self.store_results(slot, self.sums[slot[0]], self.values[slot[0]], target)

    def _zeros(self, columns: int) -> Matrices:
        """Variables for the matrices of a subgroup's lines with so many columns."""
        return [[self.b.matrix(self.c, self.grid.subgroup, 0)
                 for _ in range(0, columns, self.shape.n)] for _ in range(self.s.high)]

    def _start(self, number: Operand) -> None:
        """Starts the copies of a block, if there is one."""
        b, s = self.b, self.s
        with b.if_(b.lt(number, self.last)):
            first, stage = b.mul(number, s.block), b.rem(number, s.stages)
            for lines in (self.lines, self.slopes):
                self.blocks.start(lines, first, stage)
            for numbers in self.numbers:
                self.blocks.start_numbers(numbers, first, stage)
        b.copies_commit()

    def _add(self, number: Operand, tested: bool) -> None:
        """Adds what comes from a block."""
        b, s = self.b, self.s
        b.copies_wait(s.stages - 2)
        b.barrier()
        self._start(b.add(number, s.stages - 1))
        stage, start = b.rem(number, s.stages), b.mul(number, s.block)
        places = [(i, j, k) for i in range(s.high) for j in range(s.block // self.shape.n)
                  for k in range(self.elements)]
        at = {p: self.at_line(start, *p) for p in places}
        scopes = {p: e for p, (e, _) in at.items()}
        levels, shifts = self._numbers(scopes, stage)
        products = self._multiplied(0, self.lines, stage)
        weights = {p: self.weight(*at[p], x, levels[p], tested) for p, x in products.items()}
        if self.by_keys:
            self._add_lines(self.values, {p: self.used(scopes[p], x) for p, x in weights.items()},
                            self.slopes, stage)
        slopes = self._multiplied(1, self.slopes, stage)
        changes = {p: self.change(scopes[p], weights[p], x, shifts[p]) for p, x in slopes.items()}
        self._add_lines(self.sums, changes, self.lines, stage)

    def _numbers(self, scopes: Mapping[Element, Emitter],
                 stage: Operand) -> list[dict[Element, Operand]]:
        """The level and the shift of each element's row."""
        if not self.by_keys:
            return [{p: self.of_row(e, v) for p, e in scopes.items()}
                    for v in (self.level, self.added)]
        count, n = len(set(self.column_of)), self.shape.n  # neighbors of a thread
        loaded = [[x.load(self.b, stage, self.along, count, j * n) for j in range(self.block // n)]
                  for x in self.numbers]
        return [{(i, j, k): x[j][self.column_of[k]] for i, j, k in scopes} for x in loaded]

    def _own(self, side: int, k: int) -> list[Operand]:
        """The matrices of a subgroup's lines of an operand at step k."""
        return [self.own_lines[side].matrix(self.b, self.start, Fragment("a", self.shape),
                                            self.grid.subgroup, i * self.shape.m, k * self.shape.k)
                for i in range(self.s.high)]

    def _multiplied(self, side: int, lines: StagedLines, stage: Operand) -> dict[Element, Operand]:
        """The products of a subgroup's lines of an operand with the lines of a stage."""
        b, shape = self.b, self.shape
        for row in self.products:
            for v in row:
                b.set(v, 0.0)
        for k in range(lines.size // shape.k):
            lefts = self.held[side][k] if k < len(self.held[side]) else self._own(side, k)
            for j in range(self.s.block // shape.n):
                right = lines.matrix(b, 0, Fragment("b", shape), self.grid.subgroup, j * shape.n,
                                     k * shape.k, stage, columns=True)
                for i, x in enumerate(lefts):
                    v = self.products[i][j]
                    b.set(v, b.mma(x, right, b.get(v)))
        return {(i, j, k): b.extract(x, k) for i, row in enumerate(self.products)
                for j, x in enumerate([b.get(v) for v in row]) for k in range(self.elements)}

    def _add_lines(self, sums: Matrices, elements: Mapping[Element, Operand], lines: StagedLines,
                   stage: Operand) -> None:
        """Adds products with the lines of a stage to results."""
        b, shape = self.b, self.shape
        lefts = [self.operands({(j, k): x for (m, j, k), x in elements.items() if m == i},
                               self.s.block // shape.n) for i in range(self.s.high)]
        for k, parts in enumerate(zip(*lefts, strict=True)):
            for j in range(lines.size // shape.n):
                right = lines.matrix(b, 0, Fragment("b", shape), self.grid.subgroup, k * shape.k,
                                     j * shape.n, stage)
                for i, x in enumerate(parts):
                    v = sums[i][j]
                    b.set(v, b.mma(x, right, b.get(v)))
