"""Scatter on a processor: a loop over updates, each of which is added to a row of a table at a
position that is data, or multiplied with it, or compared. Workers divide the tables, and the
columns or the rows of each, so each sum has a fixed order."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ztorch.dtypes import u32, u64
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.cpu.lanes import lanes_refusal
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, LoadedIndex, Var
from ztorch.lower.loops import spread, vectors
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import COPY, Region, is_view, view_of
from ztorch.lower.schedule import ScatterSchedule
from ztorch.lower.tuning import (
    SCATTER_BAND_WIDTH,
    SCATTER_BANDS,
    SCATTER_PART,
    SCATTER_PARTS_MAX,
    SCATTER_TABLES,
    SCATTER_UNROLL,
    SCATTER_UPDATES,
)


def scatter_on_buffers(v: Value) -> Value:
    """The node with arguments that are each in one buffer, or are fills."""
    args = tuple(COPY(a) if is_view(a) and a.args and view_of(
        a, unflatten(Index(), a.shape)) is None else a for a in v.args)
    return v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)


def propose(region: Region, limits: Limits) -> ScatterSchedule:
    """As many lanes as an update has elements. Workers share long updates; where most rows of a
    table get none, so that clearing it takes longest, they share the rows."""
    v = region.members[0]
    lanes, inner = limits.lanes(v.dtype), v.shape[-1]
    while lanes > inner or (lanes > 1 and v.args[1].shape[-1] > 1):
        lanes //= 2
    outer, chunks, n, _ = v.shape
    places = v.args[1]
    if places.size < n * outer and places.shape[2] == 1 and inner >= SCATTER_BAND_WIDTH and (
            chunks == 1 and outer < SCATTER_PARTS_MAX):
        return ScatterSchedule(lanes, 1, 0, min(SCATTER_BANDS, n))
    parts = max(1, min(SCATTER_PARTS_MAX, inner // SCATTER_PART))
    while inner % parts:
        parts -= 1
    updates = v.args[0].shape[1] * inner // chunks
    pay = _fits(v, SCATTER_UNROLL) and SCATTER_UNROLL * n * inner * SCATTER_UPDATES <= updates
    return ScatterSchedule(lanes, parts, SCATTER_UNROLL if pay and parts == 1 else 0)


def _fits(v: Value, tables: int) -> bool:
    """Whether so many tables fit on the stack."""
    *_, n, inner = v.shape
    return tables * n * inner * v.dtype.bytes <= SCATTER_TABLES


def refusal(s: ScatterSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    v = region.members[0]
    if s.parts < 1 or v.shape[-1] % s.parts:
        return f"parts({s.parts}) must divide the {v.shape[-1]} elements of an update"
    if not 1 <= s.bands <= v.shape[2] or (s.bands > 1 and (s.parts > 1 or s.tables)):
        return (f"bands({s.bands}) must be 1 where workers share updates or have tables, and "
                f"{v.shape[2]} at most")
    if s.lanes > 1 and v.args[1].shape[-1] > 1:
        return f"lanes({s.lanes}) must be 1 where each element has a separate target"
    if s.tables and (s.parts > 1 or s.tables > SCATTER_UNROLL or not _fits(v, s.tables)):
        return f"tables({s.tables}) must be 0: tables are too large, or workers share an update"
    return lanes_refusal(s.lanes, limits.lanes(v.dtype))


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: ScatterSchedule) -> None:
    """Each table, or each part of its columns, by one worker."""
    v = region.members[0]
    outer, chunks, _, inner = v.shape
    loops = [Var("o", outer), Var("c", chunks), Var("p", s.parts), Var("b", s.bands)]
    e = Emitter(b, {**memory, v: target[v]})
    with b.loop(0, math.prod(x.extent for x in loops), kind="parallel") as r:
        scope = e.within(bound=spread(e, r, loops))
        table = _Table(scope, v, loops, inner // s.parts, s.lanes, s.tables)
        if s.tables:
            with table.private_tables(limits.lanes(v.dtype)):
                table.add()
        else:
            table.clear(limits.lanes(v.dtype))
            table.add()


class _Table:
    """A table, or a part of its columns, and the updates that are added to it."""

    def __init__(self, e: Emitter, v: Value, loops: list[Var], width: int, lanes: int,
                 tables: int):
        self.e, self.v, self.lanes, self.tables = e, v, lanes, tables
        self.outer, self.chunk, self.part, self.band = loops
        self.column = Var("j", width)
        self.table = 0  # number of the table that the next update is added to
        self.empty = e.b.const(identity(v.op.opcode, v.dtype), v.dtype)

    def clear(self, lanes: int) -> None:
        """Empties the table: `lanes` elements at once if its columns are together."""
        b, row = self.e.b, Var("r", self.v.shape[2])
        if self.part.extent == self.band.extent == 1:
            for e, _ in vectors(self.e.within(), at := Var("t", row.extent * self.column.extent),
                                lanes):
                e.store(e.memory[self.v], self.v, self._at(Index(), Index()) + Index.of(at),
                        self.empty)
            return
        with b.loop(*self._rows()) as k:
            for e, column in self._columns(self.e.within(bound={**self.e.bound, row: k})):
                e.store(e.memory[self.v], self.v, self._at(Index.of(row), column), self.empty)

    def _rows(self) -> tuple[Operand, Operand]:
        """The rows of the band: the first, and the first behind it."""
        b, n = self.e.b, self.v.shape[2]
        band = self.e.bound[self.band] if self.band.extent > 1 else b.const(0, b.index)
        first, end = (b.div(b.mul(k, n), self.band.extent) for k in (band, b.add(band, 1)))
        return first, end

    @contextmanager
    def private_tables(self, lanes: int) -> Iterator[None]:
        """Within a `with` block, updates are added to private tables on the stack; after it these
        are summed, `lanes` elements at once."""
        *_, n, inner = self.v.shape
        b, size = self.e.b, n * inner
        tables = b.memory("tables", self.v.dtype, self.tables * size, "local", "rw")
        for e, _ in vectors(self.e.within(), position := Var("t", self.tables * size), lanes):
            e.store(tables, self.v, Index.of(position), self.empty)
        shared, self.e = self.e, replace(self.e, memory={**self.e.memory, self.v: tables})
        yield
        target, self.e = shared.memory[self.v], shared
        for e, _ in vectors(self.e.within(), at := Var("t", size), lanes):
            parts = [replace(e, memory={self.v: tables}).load(self.v, Index.of(at) + k * size)
                     for k in range(self.tables)]
            e.store(target, self.v, self._at(Index(), Index()) + Index.of(at), functools.reduce(
                self._combined, parts))

    def add(self) -> None:
        """Adds all updates of the chunk."""
        m, chunks = self.v.args[0].shape[1], self.v.shape[1]
        size = math.ceil(m / chunks)
        b, first = self.e.b, self.e.b.mul(self.e.bound[self.chunk], size)
        last = b.min(b.add(first, size), m)
        main_end = b.add(first, b.mul(b.div(b.sub(last, first), SCATTER_UNROLL), SCATTER_UNROLL))
        with b.loop(first, main_end, SCATTER_UNROLL) as k:
            for step in range(SCATTER_UNROLL):
                self.table = step % max(self.tables, 1)
                self._add_update(b.add(k, step))
        self.table = 0
        with b.loop(main_end, last) as k:
            self._add_update(k)

    def _add_update(self, number: Operand) -> None:
        """Adds one update to its target row, or each element of it to a separate row."""
        places, k = self.v.args[1], Var("k", self.v.args[0].shape[1])
        e = self.e.within(bound={**self.e.bound, k: number})
        columns: Iterable[tuple[Emitter, Index | None]] = [(e, None)]
        if places.shape[2] > 1:
            columns = self._columns(e)
        for scope, j in columns:
            at = Index.of(self.outer), Index.of(k), Index() if j is None else j
            self._add_to_row(scope, k, scope.element(places, at), j)

    def _add_to_row(self, e: Emitter, k: Var, place: Operand, column: Index | None) -> None:
        """Adds an update to a row if the row is in range; `column`: only that element of it."""
        b, n = e.b, self.v.shape[2]
        place = b.bitcast(place, dtype=u64 if place.dtype.bits > u32.bits else u32)
        inside = b.lt(place, n)  # negative numbers are large as unsigned ones
        if self.band.extent > 1:
            first, end = (b.cast(k, dtype=place.dtype) for k in self._rows())
            inside = b.lt(b.sub(place, first), b.sub(end, first))
        with b.if_(inside):
            at = Index.of(LoadedIndex(b.cast(place, dtype=b.index), n))
            for scope, j in [(e, column)] if column is not None else self._columns(e):
                x = scope.element(self.v.args[0], (Index.of(self.outer), Index.of(k), j))
                flat = self._at(at, j)
                scope.store(scope.memory[self.v], self.v, flat,
                            self._combined(x, scope.load(self.v, flat)))

    def _combined(self, a: Operand, b: Operand) -> Operand:
        """Both combined. The old number comes second: where LLVM sees it selected and stored to its
        own place, it makes a masked store, which takes five times as long on Zen 4 with AVX2."""
        return self.e.b.emit(self.v.op.opcode, a, b)

    def _columns(self, e: Emitter) -> Iterator[tuple[Emitter, Index]]:
        """Scopes that cover the columns, each with its column index."""
        column = Index(((self.part, self.column.extent),)) + Index.of(self.column)
        if self.column.extent == 1:
            yield e.within(bound={**e.bound, self.column: e.b.const(0, e.b.index)}), column
            return
        for scope, _ in vectors(e.within(), self.column, self.lanes):
            yield scope, column

    def _at(self, row: Index, column: Index) -> Index:
        if self.e.memory[self.v] == "tables":
            _, _, n, inner = self.v.shape
            return row * inner + column + self.table * n * inner
        return flatten((Index.of(self.outer), Index.of(self.chunk), row, column), self.v.shape)

