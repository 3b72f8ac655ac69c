"""Axes of loops divided where positions have quotients or remainders, which become affine then."""

from __future__ import annotations

from collections.abc import Iterator

from ztorch.graph.value import Value
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region, real_reads
from ztorch.lower.tuning import LINE_BYTES


def loops_of(shape: tuple[int, ...]) -> list[Var]:
    """A loop for each axis."""
    return [Var(f"d{k}", n) for k, n in enumerate(shape)]


def reads_at(region: Region, shape: tuple[int, ...]) -> Iterator[tuple[Value, Index]]:
    """What a region reads from buffers at a position of loops over a shape."""
    full = {region.outer: flatten([Index.of(v) for v in loops_of(shape)], shape)}
    for v in region.members:
        at = region.flat[v].replace(full)
        for source, flat in real_reads(v, unflatten(at, v.shape)):
            if source not in region.flat:
                yield source, flat


def divided(region: Region, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with each axis divided of which a read has a quotient or remainder."""
    loops = {Index.of(v): k for k, v in enumerate(loops_of(shape))}
    for _, flat in reads_at(region, shape):
        for part in flat.parts:
            k = loops.get(part.inner)
            if k is not None and part.by < shape[k] and shape[k] % part.by == 0:
                parts = shape[k] // part.by, part.by
                return divided(region, (*shape[:k], *parts, *shape[k + 1:]))
    return shape


def long_columns(region: Region, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape divided, if the last axis is, and all reads are contiguous along its rest of a
    cache line or more: lanes are not read one by one."""
    parts = divided(region, shape)
    column = parts[-1]
    if column == shape[-1] or column * region.members[-1].dtype.bytes < LINE_BYTES:
        return shape
    last = loops_of(parts)[-1]
    steps = (at.factor(last) if at.is_affine else None for _, at in reads_at(region, parts))
    return parts if all(step in (0, 1) for step in steps) else shape
