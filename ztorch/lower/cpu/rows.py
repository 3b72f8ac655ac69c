"""Reductions on a processor: lanes run along the reduced axis if its elements are contiguous, else
along a kept axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ztorch.dtypes import storage_dtype
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.ir.opcodes import identity
from ztorch.lower.cpu.lanes import lanes_refusal, lanes_that_fit, vectors_abreast
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, nested, side_by_side, spread, summing, vectors, widest
from ztorch.lower.positions import unflatten
from ztorch.lower.reduction import Axes, Phases, axes_of
from ztorch.lower.region import Region, computed, real_reads
from ztorch.lower.schedule import RowSchedule
from ztorch.lower.tuning import (
    COLUMN_ITERATIONS,
    COLUMN_VALUES,
    COLUMN_VECTORS,
    COLUMN_VECTORS_FAR,
    ELEMENT_VECTORS,
    LINE_BYTES,
    NEXT_ROW_CACHE_SHARE,
    NEXT_ROW_SHARE,
    PAGE_BYTES,
    RECOMPUTE_SLOTS,
    ROW_SUM_VECTORS,
    ROW_SUMS,
    SIDE_BY_SIDE_MAX,
)


def propose(region: Region, limits: Limits) -> RowSchedule:
    """All lanes, or half or a quarter of them where these hold a row, and several accumulators
    along a row, or several vectors of columns: with one, each addition would wait for the last."""
    phases, axes, lanes = Phases(region), axes_of(region), limits.lanes(widest(region))
    passes = list(phases.passes([*region.stores, *phases.in_row(axes, limits)]))
    if not axes.by_columns:
        lanes = lanes_that_fit(axes.inner[-1].extent, lanes) if axes.inner else lanes
        sums = tuple(_sums(phases, axes, lanes, s, stores) if lanes > 1 else 1
                     for _, stores, s in passes)
        return RowSchedule(lanes, sums, 1)
    *rows, column = axes.outer
    lanes = lanes_that_fit(column.extent, lanes)
    trip_count = column.extent // (lanes if rows else lanes * COLUMN_ITERATIONS)
    together = max(len(sums) for _, _, sums in passes)
    columns = _columns(region, axes, max(1, together), trip_count, limits) if lanes > 1 else 1
    if lanes == limits.lanes(widest(region)):
        abreast = vectors_abreast(region, _places(region, axes), column, limits)
        lanes, columns = lanes * abreast, max(1, columns // abreast)
    return RowSchedule(lanes, (1,) * len(passes), columns)


def _sums(phases: Phases, axes: Axes, lanes: int, sums: list[Value], stores: list[Value]) -> int:
    """The number of accumulators of a pass along a row."""
    row = axes.inner[-1].extent // lanes if axes.inner else 0
    work = sum(phases.cost(v.args[0]) for v in sums)
    several = row >= ROW_SUM_VECTORS and work <= RECOMPUTE_SLOTS
    return ROW_SUMS if sums and not stores and several else 1


def _columns(region: Region, axes: Axes, sums: int, most: int, limits: Limits) -> int:
    """The vectors of columns that one loop reduces, of at most `sums` sums in a pass: neighbors
    share cache lines, and several lines of a row are adjacent. More of them if vectors are short,
    or if rows are whole pages apart, so that the same few sets of a cache hold all of a column."""
    d = widest(region)
    wide = limits.lanes(d) * d.bytes >= LINE_BYTES and not _reads_across_pages(region, axes)
    vectors = COLUMN_VECTORS if wide else COLUMN_VECTORS_FAR
    fit = limits.vector_registers // (2 * sums)
    return max(1, min(vectors, fit, COLUMN_VALUES // len(region.members), most))


def _places(region: Region, axes: Axes) -> list[Index]:
    """The positions that a region reads or computes with, in terms of its loops."""
    at = [(v, region.index(v)) for v in region.members]
    read = [flat for v, index in at for source, flat in real_reads(v, index)
            if source not in region.flat]
    return [flat.replace(axes.full) for flat in (
        *read, *(i for v, index in at for i in computed(v, index)))]


def _reads_across_pages(region: Region, axes: Axes) -> bool:
    """Whether elements that are reduced one after the other are whole pages apart in memory."""
    apart = [at.replace(axes.full).factor(axes.inner[-1]) * source.dtype.bytes
             for v in region.members for source, at in real_reads(v, region.index(v))
             if axes.inner and source not in region.flat]
    return any(step and step % PAGE_BYTES == 0 for step in apart)


def refusal(s: RowSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    phases, axes = Phases(region), axes_of(region)
    passes = len(list(phases.passes([*region.stores, *phases.in_row(axes, limits)])))
    most = limits.lanes(widest(region)) * (ELEMENT_VECTORS if axes.by_columns else 1)
    if why := lanes_refusal(s.lanes, most):
        return why
    if len(s.sums) != passes:
        return f"sums(...) takes a number for each of {passes} passes, not {len(s.sums)}"
    along = not axes.by_columns and s.lanes > 1
    most = SIDE_BY_SIDE_MAX if along else 1
    if any(not 1 <= n <= most for n in s.sums):
        return f"sums(...) must be between 1 and {most}" + (
            "" if along else ", since lanes do not run along the rows")
    most = SIDE_BY_SIDE_MAX if axes.by_columns and s.lanes > 1 else 1
    if not 1 <= s.columns <= most:
        return f"columns({s.columns}) must be between 1 and {most}" + (
            "" if most > 1 else ", since lanes do not run along columns")
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: RowSchedule) -> None:
    """All results of a reducing region."""
    axes = axes_of(region)
    size = math.prod(v.extent for v in axes.inner)
    local = {v: b.memory(f"row{k}", storage_dtype(v.dtype), size, "local", "rw")
             for k, v in enumerate(Phases(region).in_row(axes, limits))}
    nest = _RowNest(b, region, memory, {**target, **local}, axes, s, limits)
    e = Emitter(b, memory, members=region.flat, absent_loops=dict.fromkeys(local, axes.outer))
    if not axes.by_columns:
        with b.loop(0, math.prod(v.extent for v in axes.outer), kind="parallel") as r:
            nest.one_outer([e.within(bound=spread(e, r, axes.outer))], 1, along=s.lanes > 1)
        return
    *rows, column = axes.outer
    if not rows:
        for scopes in side_by_side(e, column, s.lanes, True, s.columns):
            nest.one_outer(scopes, s.lanes if scopes[0].lane else 1, along=False)
        return
    with b.loop(0, math.prod(v.extent for v in rows), kind="parallel") as r:
        bound = spread(e, r, rows)
        for scopes in side_by_side(e.within(bound=bound), column, s.lanes, False, s.columns):
            nest.one_outer(scopes, s.lanes if scopes[0].lane else 1, along=False)


def _next_row(region: Region, axes: Axes, limits: Limits) -> list[tuple[Value, Index]]:
    """What the first pass reads of the next row, if it comes from the L3 cache and a pass that
    neither reads nor writes there can fetch it meanwhile: the second of three. From memory it is
    fetched only if that pass takes long, since the processor fetches ahead as well."""
    phases = Phases(region)
    if not axes.outer or len(axes.inner) != 1 or phases.count <= 2:
        return []
    row, [last], cpu = axes.outer[-1], axes.inner, limits.processor
    reads = {(source, at.replace(axes.full)) for v in region.members if v.op.kind == "map"
             and not region.is_row(v) for source, at in real_reads(v, region.index(v))
             if source not in region.flat}
    rows = [(source, at + at.factor(row)) for source, at in reads
            if at.is_affine and at.factor(last) == 1 and at.factor(row) >= last.extent]
    nbytes = sum(source.size * source.dtype.bytes for source, _ in rows)
    stored = sum(v.size * v.dtype.bytes for v in region.stores)
    row_bytes = sum(last.extent * source.dtype.bytes for source, _ in rows)
    slow = any(v.op.kind == "reduce" and phases.ready[v] == 2 and (
        phases.cost(v.args[0]) > RECOMPUTE_SLOTS) for v in region.members)
    near = nbytes + stored <= cpu.l3_bytes * NEXT_ROW_CACHE_SHARE
    fits = row_bytes <= cpu.l1_bytes * NEXT_ROW_SHARE
    return rows if cpu.l2_bytes < nbytes and (near or slow) and fits else []


class _RowNest:
    """The body of a reducing region for one outer position (or one vector of them)."""

    def __init__(self, b: Builder, region: Region, memory: Mapping[Value, str],
                 target: Mapping[Value, str], axes: Axes, s: RowSchedule, limits: Limits):
        self.b, self.region, self.phases = b, region, Phases(region)
        self.memory, self.target, self.schedule = memory, target, s
        self.full, self.inner, self.lanes = axes.full, axes.inner, s.lanes
        self.ahead = _next_row(region, axes, limits) if not axes.by_columns else []

    def one_outer(self, scopes: list[Emitter], width: int, along: bool) -> None:
        """All passes, then the per-row values: for one scope if lanes run along the inner axis
        (`along`), else for several vectors of rows."""
        written: dict[Value, str] = {}
        passes = self.phases.passes(self.target)
        for (p, stores, sums), copies in zip(passes, self.schedule.sums, strict=True):
            self._pass(scopes, p, stores, sums, width, copies if along else 0, written)
            written |= {v: self.target[v] for v in stores}
        rows = self.phases.rows(self.target)
        for e in scopes:
            evaluate(e, rows, self.region, self.full, self.target)

    def _pass(self, rows: list[Emitter], p: int, stores: list[Value], sums: list[Value], width: int,
              along: int, written: dict[Value, str]) -> None:
        """One pass: with `along` accumulators for one row, or if that is 0 for all `rows`."""
        b = self.b
        lanes = self.lanes if along else width
        copies = along or len(rows)
        variables = {(v, u): b.var(summing(v.dtype), lanes, identity(v.op.opcode, v.dtype))
                     for v in sums for u in range(copies)}
        for v in self._row_values(p):
            flat = self.region.flat[v].replace(self.full)
            for e in rows:
                e.element(v, unflatten(flat, v.shape))  # once per row, not per element
        readable = {**self.memory, **written}
        with nested(b, self.inner[:-1] if along else self.inner) as counters:
            at = dict(zip(self.inner, counters, strict=False))
            inside = [e.within(bound={**e.bound, **at}, memory=readable) for e in rows]
            scopes: Iterator[tuple[Emitter, int]] = iter(zip(inside, range(copies), strict=False))
            if along:
                last = self.inner[-1] if self.inner else Var("i", 1)
                scopes = vectors(inside[0], last, self.lanes, unroll=copies)
            for inner, u in scopes:
                if p == 1 and along and inner.mask is None:
                    for source, flat in self.ahead:
                        inner.prefetch(source, flat)
                evaluate(inner, stores, self.region, self.full, self.target)
                for v in sums:
                    self._accumulate(inner, v, variables[v, u], bool(along))
        for v in sums:
            totals = [b.get(variables[v, u]) for u in range(copies)]
            if along:
                x = totals[0]
                for other in totals[1:]:
                    x = b.emit(v.op.opcode, x, other)
                totals = [b.fold(v.op.opcode, x)]
            for e, x in zip(rows, totals, strict=True):
                e.here[v] = b.cast(x, dtype=v.dtype)

    def _row_values(self, p: int) -> list[Value]:
        return [v for v in self.region.members
                if self.region.is_row(v) and v.op.kind == "map" and self.phases.ready[v] == p
                and v.op.cost > 1]

    def _accumulate(self, e: Emitter, v: Value, variable: Operand, along: bool) -> None:
        """Adds one vector of elements. If all lanes belong to one result, inactive lanes must not
        count; otherwise they belong to results that are not stored."""
        b, x = self.b, v.args[0]
        flat = self.region.full.replace(self.full)
        new = b.cast(e.element(x, unflatten(flat, x.shape)), dtype=variable.dtype)
        new = b.splat(new, variable.lanes)
        old = b.get(variable)
        total = b.emit(v.op.opcode, old, new)
        if along and e.mask is not None:
            total = b.select(e.mask, total, old)
        b.set(variable, total)
