"""Elementwise regions on a processor: one flat loop if positions allow it, else a loop per axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.divided_axes import long_columns
from ztorch.lower.cpu.index_set_splitting import Part, border_parts, parts_of
from ztorch.lower.cpu.lanes import lanes_refusal, vectors_abreast
from ztorch.lower.cpu.short_rows import blocks_of, emit_blocks
from ztorch.lower.emit import Emitter
from ztorch.lower.in_place_updates import at_position, entry_axes, write
from ztorch.lower.index import Index, Var
from ztorch.lower.insets import BORDER, INTERLEAVED
from ztorch.lower.loops import evaluate, nested, spread, vectors, widest
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, computed, real_reads
from ztorch.lower.schedule import ElementSchedule
from ztorch.lower.tuning import (
    ELEMENT_VECTORS,
    FETCHED_ROW_BYTES,
    LINE_BYTES,
    PAGE_BYTES,
    ROWS_AHEAD,
    SCATTER_BYTES_MAX,
    SCATTER_RUNS,
    SCATTER_STRIDE_BYTES,
    SHARED_ITERATION_ELEMENTS,
    SHARED_ITERATIONS,
    WEIGHTS_MIN,
    WEIGHTS_SHARE,
)


def propose(region: Region, limits: Limits) -> ElementSchedule:
    """All lanes, of several vectors where an element takes long, axes in their own order or in that
    of a strided source, and as many shared axes as leave enough work in an iteration."""
    (*rows, column), order = _axes(region)
    share = _shared_axes([rows[k] for k in order], column) if rows else 0
    part = _everything(region)
    if 1 < share == len(rows) and _columns_outermost(region, part, part.axes[order[-1]], limits):
        share -= 1
    lanes = limits.lanes(widest(region))
    short = column < lanes and INTERLEAVED in {v.op for v in region.members}
    lanes = 1 << column.bit_length() - 1 if short else lanes * _vectors(region, limits)
    return ElementSchedule(lanes, order, share)


def _vectors(region: Region, limits: Limits) -> int:
    part = _everything(region)
    read, other = _positions(region)
    places = [at.replace({region.outer: part.flat}) for at in (*read, *other)]
    return vectors_abreast(region, places, part.axes[-1], limits)


def _everything(region: Region) -> Part:
    """All elements of a region."""
    shape, _ = _axes(region)
    axes = [Var(f"d{k}", n) for k, n in enumerate(shape)]
    return Part(axes, flatten([Index.of(v) for v in axes], shape))


def _axes(region: Region) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape that a region's loops run over, and the best order of all axes but the last. A copy
    that writes whole cache lines in short runs, and reads these runs with a large stride, follows
    the order of its source. If its runs are written at multiples of the page size, they would cause
    conflict misses, so a few of them are interleaved. All other regions keep the order."""
    shape = long_columns(region, _split_last(region, merged_axes(region)) or (1,))
    usual = tuple(range(len(shape) - 1))
    if (strides := _scattered(region, shape)) is None:
        return shape, usual
    *outer, inner = sorted(usual, key=lambda k: -strides[k])
    if prod(shape[inner + 1:]) * region.members[-1].dtype.bytes % PAGE_BYTES:
        return shape, (*outer, inner)
    few = next(n for n in range(SCATTER_RUNS, 0, -1) if shape[inner] % n == 0)
    if few == 1:
        return shape, usual
    behind = [k + (k > inner) for k in outer]
    return ((*shape[:inner], shape[inner] // few, few, *shape[inner + 1:]),
            (inner, *behind, inner + 1))


def _scattered(region: Region, shape: tuple[int, ...]) -> list[int] | None:
    """The stride of a copy's source along each axis, if the order of reads matters; else None."""
    *rows, column = shape
    axes = [Var(f"d{k}", n) for k, n in enumerate(shape)]
    flat = flatten([Index.of(v) for v in axes], shape)
    read = [(source.dtype.bytes, at.replace({region.outer: flat})) for v in region.members
            for source, at in real_reads(v, unflatten(region.flat[v], v.shape))
            if source not in region.flat]
    if len(read) != 1 or not rows:
        return None
    [(size, at)] = read
    strides = [at.factor(v) for v in axes]
    scattered = (at.is_affine and strides[-1] == 1 and all(s > 0 for s in strides)
                 and LINE_BYTES <= column * size <= SCATTER_BYTES_MAX
                 and strides[-2] * size >= SCATTER_STRIDE_BYTES)
    return strides if scattered else None


def refusal(s: ElementSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    (*rows, _), _ = _axes(region)
    lanes = limits.lanes(widest(region))
    if why := lanes_refusal(s.lanes, lanes * ELEMENT_VECTORS if lanes > 1 else 1):
        return why
    if sorted(s.order) != list(range(len(rows))):
        return f"order({', '.join(map(str, s.order))}) must name each of {len(rows)} axes once"
    if not min(1, len(rows)) <= s.share <= len(rows):
        return f"share({s.share}) must be between {min(1, len(rows))} and {len(rows)} axes"
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: ElementSchedule) -> None:
    """All elements of the region."""
    if region.in_place:
        _entries(b, region, memory, target, s)
        return
    everything = _everything(region)
    bordered = region.members[0].op is BORDER
    tested = bordered or _positions(region)[1] or INTERLEAVED in {v.op for v in region.members}
    for part in border_parts(region) if bordered else parts_of(region, everything, s.lanes):
        reads = frozenset(_reads(region, part))
        e = Emitter(b, memory, members=region.flat, strided=reads)
        lanes = min(s.lanes, limits.lanes(widest(region)))
        stores = [region.flat[v].replace({region.outer: part.flat})
                  for v in region.members if v in target]
        if not tested and (blocks := blocks_of(part.axes, reads, stores, lanes)):
            emit_blocks(e, region, part, target, blocks)
        else:
            _loops(e, region, part, target, limits, s)


def _loops(e: Emitter, region: Region, part: Part, target: Mapping[Value, str], limits: Limits,
           s: ElementSchedule) -> None:
    """A loop for each axis, lanes along the last."""
    axes, flat = part
    b, full = e.b, {region.outer: flat}
    *rows, column = axes
    if not rows:
        for inner, _ in vectors(e, column, s.lanes, parallel=True):
            evaluate(inner, region.members, region, full, target)
        return
    if len(rows) == len(s.order):  # else a part, whose axes are others
        rows = [rows[k] for k in s.order]
    share = max(1, s.share)
    shared, own = rows[:share], rows[share:]
    within = own[-1:] if own and _columns_outermost(region, part, own[-1], limits) else []
    own = own[:len(own) - len(within)]
    count = prod(v.extent for v in shared)
    with b.loop(0, count, kind="parallel") as r:
        if not own and not within and count > ROWS_AHEAD:
            later = spread(e, b.min(b.add(r, ROWS_AHEAD), count - 1), shared)
            _fetch_rows(e, region, flat, {**later, column: b.const(0, b.index)}, limits)
        bound = spread(e, r, shared)
        with nested(b, own) as counters:
            bound |= dict(zip(own, counters, strict=True))
            for scope, _ in vectors(e.within(bound=bound), column, s.lanes):
                with nested(b, within) as last:
                    places = {**scope.bound, **dict(zip(within, last, strict=True))}
                    evaluate(scope.within(bound=places), region.members, region, full, target)


class _Fetching(Emitter):
    """A scope that prefetches what it reads, except for indices."""

    def load(self, v: Value, flat: Index, where: Operand | None = None) -> Operand:
        if v.dtype.is_int:
            return super().load(v, flat, where)
        self.prefetch(v, flat)
        return self.b.const(0, v.dtype)


def _fetch_rows(e: Emitter, region: Region, flat: Index, bound: dict[Var, Operand],
                limits: Limits) -> None:
    """Prefetches the first line of the rows that a later iteration looks up in a large table: no
    processor can guess their addresses."""
    for v in region.members:
        if v.op.opcode or len(v.args) != 2 or not v.args[1].dtype.is_int:
            continue
        table = v.args[0]
        row = table.shape[-1] * table.dtype.bytes if table.shape[-1:] == v.shape[-1:] else 0
        if table in e.memory and row >= FETCHED_ROW_BYTES and (
                table.nbytes > limits.processor.l2_bytes):
            at = region.flat[v].replace({region.outer: flat})
            _Fetching(e.b, e.memory, bound).element(v, unflatten(at, v.shape))


def _reads(region: Region, part: Part) -> Iterator[tuple[Value, Index]]:
    """What a part of a region reads from memory, with positions in terms of its loops."""
    for v in region.members:
        for source, flat in real_reads(v, unflatten(region.flat[v], v.shape)):
            if source not in region.flat:
                yield source, flat.replace({region.outer: part.flat})


def _columns_outermost(region: Region, part: Part, row: Var, limits: Limits) -> bool:
    """Whether the loop over columns is outside of the loop over rows: most of the elements that are
    read, such as the weights of a window, are the same for all rows, and fit in registers."""
    column = part.axes[-1]
    columns = [at for _, at in {*_reads(region, part)} if at.mentions(column)]
    invariant = sum(not at.mentions(row) for at in columns)
    short = column.extent * region.members[-1].dtype.bytes <= PAGE_BYTES
    return short and invariant >= len(columns) - invariant and (
        WEIGHTS_MIN <= invariant <= limits.vector_registers * WEIGHTS_SHARE)


def _entries(b: Builder, region: Region, memory: Mapping[Value, str],
             target: Mapping[Value, str], s: ElementSchedule) -> None:
    """All entries that are written in place, with lanes along the last axis."""
    *rows, column = entry_axes(region)
    e = Emitter(b, memory)
    with b.loop(0, prod(v.extent for v in rows), kind="parallel") as r:
        inner = e.within(bound=spread(e, r, rows))
        with at_position(inner, region, [*rows, column]) as place:
            for scope, _ in vectors(inner, column, s.lanes):
                write(scope, region, [*rows, column], place, target[region.members[0]])


def merged_axes(region: Region) -> tuple[int, ...]:
    """The shape that a region's loops run over: neighboring axes are merged wherever that adds no
    division to any position. So short inner loops become longer."""
    return axes_for(region, *_positions(region))


def axes_for(region: Region, read: list[Index], other: list[Index]) -> tuple[int, ...]:
    """The same for given positions: `read` in memory, `other` that are computed with."""
    if all(at.is_affine for at in (*read, *other)) and all(
            at.factor(region.outer) in (0, 1) for at in read):
        return (region.size,)
    shape = [n for n in region.shape if n != 1]
    divisions = _divisions(region, shape, [*read, *other])
    for k in reversed(range(len(shape) - 1)):
        merged = [*shape[:k], shape[k] * shape[k + 1], *shape[k + 2:]]
        merged_divisions = _divisions(region, merged, [*read, *other])
        if merged_divisions <= divisions:
            shape, divisions = merged, merged_divisions
    return tuple(shape)


def _split_last(region: Region, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose last axis is two where positions repeat along it, as in blocks of pixels: so
    lanes need no division, and no gather."""
    read, other = _positions(region)
    if not shape or other or not _divisions(region, shape, read):
        return shape
    *rows, n = shape
    periods = {part.by for at in read for part in at.parts if n % part.by == 0 and part.by < n}
    split = [(*rows, n // by, by) for by in sorted(periods) if by > 1]
    return min([shape, *split], key=lambda s: _divisions(region, s, read))


def _positions(region: Region) -> tuple[list[Index], list[Index]]:
    """The positions at which a region reads memory, and others that it computes with."""
    at = [(v, unflatten(region.flat[v], v.shape)) for v in region.members]
    read = [flat for v, index in at for source, flat in real_reads(v, index)
            if source not in region.flat]
    return read + region.inset_at(), [i for v, index in at for i in computed(v, index)]


def _divisions(region: Region, shape: Sequence[int], positions: list[Index]) -> int:
    """The number of divisions that compute positions from loops over a shape."""
    loops = flatten([Index.of(Var(f"d{k}", n)) for k, n in enumerate(shape)], shape)
    return sum(at.replace({region.outer: loops}).divisions for at in positions)


def _shared_axes(rows: Sequence[int], columns: int) -> int:
    """The number of row axes in the loop that workers share. The others are separate loops: a loop
    counter costs an addition, an axis of the shared loop a division."""
    inner = columns
    for k in reversed(range(1, len(rows))):
        inner *= rows[k]
        if inner > SHARED_ITERATION_ELEMENTS or prod(rows[:k]) < SHARED_ITERATIONS:
            return k + 1
    return min(1, len(rows))
