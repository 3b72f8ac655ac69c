"""Copies the operands of attention to shared memory, for matrix instructions."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.expressions import Arg
from ztorch.ir.kernel import Fragment, MmaShape, Operand
from ztorch.lower.grid.attention_rows import AttentionRows
from ztorch.lower.grid.workgroups import where
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import vector_start
from ztorch.lower.region import certain, view_of
from ztorch.lower.tuning import COPY_BYTES, MMA_ALIGN_BYTES


@dataclass(frozen=True)
class StagedLines:
    """The lines of an operand in shared memory."""

    name: str  # of the memory
    side: int  # 0: queries, 1: keys, 2: values, 3: slopes
    lines: int  # per stage
    size: int  # elements of a line, padded to whole matrices
    pitch: int  # elements from one line to the next

    def matrix(self, b: Builder, start: Arg, fragment: Fragment, subgroup: int, line: int,
               place: int, stage: Arg = 0, columns: bool = False) -> Operand:
        """A matrix of a stage. Its lines are rows of the matrix, or its columns if `columns`."""
        index = b.add(b.mul(b.const(0, b.index) if stage == 0 else stage, self.lines * self.pitch),
                      b.mul(b.const(0, b.index) if start == 0 else start, self.pitch))
        return b.mma_load(self.name, index, fragment, subgroup, self.pitch,
                          transposed=columns, off=line * self.pitch + place,
                          align=MMA_ALIGN_BYTES)


@dataclass(frozen=True)
class StagedNumbers:
    """A number of each row in shared memory."""

    name: str  # of the memory
    value: Value
    rows: int  # per stage

    def load(self, b: Builder, stage: Operand, row: Operand, count: int, off: int) -> list[Operand]:
        """The numbers of `count` neighboring rows of a stage."""
        at = b.add(b.mul(stage, self.rows), row)
        x = b.load(self.name, at, off=off, lanes=count, align=count * self.value.dtype.bytes)
        return [b.extract(x, k) if count > 1 else x for k in range(count)]


def pitch_of(size: int, shape: MmaShape) -> int:
    """Elements from one line to the next: an odd multiple of the elements of one load, so that a
    column of eight lines is spread over different banks."""
    together = MMA_ALIGN_BYTES // shape.of.bytes
    return (size // together | 1) * together


class Blocks:
    """Copies blocks of lines, by all threads of a workgroup."""

    def __init__(self, rows: AttentionRows, shape: MmaShape, t: Operand, threads: int):
        self.b, self.rows, self.shape, self.t, self.threads = rows.b, rows, shape, t, threads
        self.node = rows.node

    def declare(self, name: str, side: int, lines: int, size: int, stages: int = 1) -> StagedLines:
        """Declares the shared memory of an operand."""
        pitch = pitch_of(size, self.shape)
        memory = self.b.memory(name, self.shape.of, stages * lines * pitch, "shared", "rw")
        return StagedLines(memory, side, lines, size, pitch)

    def declare_numbers(self, name: str, value: Value, rows: int, stages: int) -> StagedNumbers:
        """Declares the shared memory of a number of each row."""
        memory = self.b.memory(name, value.dtype, stages * rows, "shared", "rw")
        return StagedNumbers(memory, value, rows)

    def start_numbers(self, to: StagedNumbers, first: Operand, stage: Operand) -> None:
        """Starts copies of the numbers of rows to a stage, starting with row `first`."""
        b, row = self.b, self.rows.row
        view = view_of(to.value, (*self.rows.index(row), Index()))
        assert view is not None
        source, flat = view
        for ahead in range(0, to.rows, self.threads):
            k = b.add(self.t, ahead)
            at = b.add(first, k)
            e = self.rows.scope(row=at)
            with where(b, b.lt(k, to.rows) if to.rows % self.threads else None):
                b.copy_async(to.name, b.add(b.mul(stage, to.rows), k), self.rows.e.memory[source],
                             e.value(flat), 1,
                             b.lt(at, row.extent) if row.extent % to.rows else None,
                             align=to.value.dtype.bytes)

    def start(self, to: StagedLines, first: Operand, stage: Operand | None = None) -> None:
        """Starts copies of lines to a stage, starting with line `first`. Lines beyond the end are
        zeros."""
        b, n = self.b, self._neighbors(to.side)
        per = to.size // n
        total = to.lines * per
        base = b.const(0, b.index) if stage is None else b.mul(stage, to.lines * to.pitch)
        if n == 1:
            with b.loop(self.t, total, self.threads) as k:
                self._copy(to, first, base, k, n)
            return
        for copy in range(math.ceil(total / self.threads)):
            ahead = copy * self.threads  # whole lines, if possible: then copies share addresses
            k, lines = (self.t, ahead // per) if ahead % per == 0 else (b.add(self.t, ahead), 0)
            more = ahead + self.threads > total
            with where(b, b.lt(b.add(self.t, ahead), total) if more else None):
                self._copy(to, first, base, k, n, lines)

    def _axes(self, side: int) -> tuple[Var, Var, tuple[Var, Var]]:
        """The variables of a line and of a position along it, and the axes of the operand."""
        r = self.rows
        if side in (1, 2):
            return (r.column, r.depth, (r.depth, r.column)) if side == 1 else (
                r.column, r.place, (r.column, r.place))
        along = r.depth if side == 0 else r.place
        return r.row, along, (r.row, along)

    def _neighbors(self, side: int) -> int:
        """The elements of one copy, which must be contiguous and aligned."""
        _, along, axes = self._axes(side)
        operand, index = self.node.args[side], self.rows.index(*axes)
        base = view_of(operand, index)
        if base is None or not certain(operand, index):
            return 1
        for n in (size // self.shape.of.bytes for size in COPY_BYTES):
            first = vector_start(base[1], along, n) if along.extent % n == 0 else None
            if first is not None and not any(
                    f % n for f in (base[0].size, *(f for _, f in first.terms), first.const)):
                return n
        return 1

    def _copy(self, to: StagedLines, first: Operand, base: Operand, k: Operand, n: int,
              lines: int = 0) -> None:
        """Copies n neighbors: piece number k of a stage, `lines` lines further on."""
        b = self.b
        line, along, axes = self._axes(to.side)
        operand, index = self.node.args[to.side], self.rows.index(*axes)
        number, place = b.div(k, to.size // n), b.mul(b.rem(k, to.size // n), n)
        at, offset = b.add(first, number), b.add(base, b.add(b.mul(number, to.pitch), place))
        tests = [b.lt(b.add(at, lines), line.extent)] if line.extent % to.lines else []
        if along.extent < to.size:
            tests.append(b.lt(place, along.extent))
        inside = functools.reduce(b.and_, tests) if tests else None
        if n == 1:
            e = self.rows.scope(**{line.name: at, along.name: place})
            x = e.element(operand, index, inside)
            b.store(to.name, offset, x if inside is None else b.select(inside, x, 0))
            return
        view = view_of(operand, index)
        assert view is not None
        source, flat = view
        begin = vector_start(flat, along, n)
        assert begin is not None
        e = self.rows.scope(**{line.name: at})
        e = e.within(bound={**e.bound, Var(along.name, along.extent // n): b.div(place, n)})
        begin = begin.replace({line: Index.of(line) + lines})
        b.copy_async(to.name, offset, self.rows.e.memory[source], e.value(begin - begin.const), n,
                     inside, off=lines * to.pitch, source_off=begin.const,
                     align=n * self.shape.of.bytes)
