"""Split-k: products on a grid divided along k into parts, and the number of parts."""

from __future__ import annotations

import functools
import math

from ztorch.dtypes import f16
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid import mma_tiles
from ztorch.lower.grid.operands import is_copied
from ztorch.lower.grid.thread_tiles import estimate
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import summing
from ztorch.lower.region import view_of
from ztorch.lower.tuning import (
    ASYNC_TILES,
    PRODUCT_DEPTH,
    SPLIT_DEEP,
    SPLIT_DEPTH,
    SPLIT_DEPTH_LARGE,
    SPLIT_DEPTH_THREADS,
    SPLIT_GAIN,
    SPLIT_GROUPS,
    SPLIT_SHARE,
    SPLIT_START,
    SPLIT_TILE,
    SPLIT_WAIT,
)


def parts_of(v: Value, grid: GridLimits, shape: MmaShape | None) -> int:
    """The number of parts that occupy the machine, each large enough to pay for the final sum; less
    than 2: no split.

    Asynchronous products need large tiles to share loads, so they have few; with smaller tiles,
    several workgroups per compute unit hide the memory latency. Where threads multiply, or matrix
    instructions (`shape`) split float32, the parts are those with the least estimated time; where
    subgroups multiply 16 bits, if they gain enough.
    """
    m, n, k, batch = *v.shape[-2:], v.args[0].shape[-1], math.prod(v.shape[:-2])
    if shape is None or shape.split:
        return fastest(m, n, k, batch, grid, summing(v.dtype).bytes, shape)[1]
    usual = min(k // SPLIT_DEPTH, grid.compute_units // _tiles(m, n, SPLIT_TILE, SPLIT_TILE, batch))
    if shape.of.bits != f16.bits:
        return usual
    if not grid.asynchronous_products:
        copied = all(is_copied(v, side, shape.of) for side in (0, 1))
        nbytes = sum(map(_bytes_in_memory, v.args))
        return _by_subgroups(m, n, k, batch, grid, shape, nbytes, usual) if copied else usual
    most_rows, most_columns = ASYNC_TILES[0]
    rows = min(most_rows, max(SPLIT_TILE, _power_below(m)))
    columns = min(most_columns, max(SPLIT_TILE, _power_below(n)))
    tiles = _tiles(m, n, rows, columns, batch)
    groups = min(SPLIT_GROUPS, most_rows * most_columns // (rows * columns))
    few = min(m, n) >= most_rows and tiles <= SPLIT_SHARE * grid.compute_units
    if k < SPLIT_DEEP and not few:
        return usual
    return max(usual, min(k // SPLIT_DEPTH_LARGE, groups * grid.compute_units // tiles))


def short_parts(v: Value, grid: GridLimits) -> int:
    """The number of parts of a product by threads whose sums are short, and that takes the least
    time with these; 0 if it has no such parts of equal length."""
    m, n, k, batch = *v.shape[-2:], v.args[0].shape[-1], math.prod(v.shape[:-2])
    least, most = math.ceil(k / PRODUCT_DEPTH), max(1, k // SPLIT_DEPTH_THREADS)
    first = max(least, fastest(m, n, k, batch, grid, v.dtype.bytes, None)[1])
    return next((p for p in range(first, most + 1) if k % p == 0), 0)


def cut_up(v: Value, parts: int) -> Value:
    """Products of equal parts of k."""
    (a, *others), (*batch, m, n) = v.args, v.shape
    k, rank = a.shape[-1], len(batch)
    order = (*range(rank), rank + 1, rank, rank + 2)
    left = OPS.transpose(OPS.reshape(a, (*batch, m, parts, k // parts)), order)
    rights = (OPS.reshape(b, (*batch, parts, k // parts, n)) for b in others)
    return v.op(left, *rights, **{**v.attrs, "dtype": summing(v.dtype)})


def summed(parts: Value, v: Value) -> Value:
    """The sum of such products, in the dtype of v."""
    return OPS.cast(OPS.sum(parts, axis=-3), v.dtype)


def _bytes_in_memory(x: Value) -> int:
    """The bytes of an operand, of which windows share those of their image."""
    base = view_of(x, [Index.of(Var(f"d{i}", n)) for i, n in enumerate(x.shape)])
    return min(x.nbytes, base[0].nbytes) if base else x.nbytes


@functools.cache
def _by_subgroups(m: int, n: int, k: int, batch: int, grid: GridLimits, shape: MmaShape,
                  nbytes: int, usual: int) -> int:
    """The parts in which products by subgroups take the fewest cycles, or else the usual number."""
    most = min(k // SPLIT_DEPTH, SPLIT_GROUPS * grid.compute_units)
    times = {parts: _cycles(m, n, k, batch, parts, grid, shape, nbytes)
             for parts in range(1, most + 1) if k % parts == 0}
    if not times:
        return usual
    best = min(times, key=lambda parts: times[parts])
    now = max((parts for parts in times if parts <= usual), default=1)
    if times[now] <= SPLIT_GAIN * times[best]:
        return usual
    if m <= SPLIT_TILE and usual <= 1:  # one row of tiles, on most of the units: few bytes are read
        whole, split = (_cycles(m, n, k, batch, parts, grid, shape, nbytes, SPLIT_WAIT)
                        for parts in (1, best))
        return usual if whole <= split else best
    return best


def _cycles(m: int, n: int, k: int, batch: int, parts: int, grid: GridLimits,
            shape: MmaShape, nbytes: int, wait: float = 1.0) -> float:
    """The estimated cycles of a product whose operands have so many bytes in memory, and those to
    add the parts up. Of the time of a strip's copy a share `wait` is waited for."""
    unit, deep = grid.unit, k // parts
    tile = mma_tiles.fastest(m, n, deep, batch * parts, grid, shape, math.inf,
                             lambda tile: tile.fits(grid, None),
                             lambda tile: tile.staged(grid, deep))[1]
    if tile is None:
        return math.inf
    rate = unit.memory_bytes * grid.compute_units
    least = max(mma_tiles.cycles(tile.staged(grid, deep), m, n, deep, batch * parts, grid, wait),
                nbytes / rate)
    if parts == 1:
        return least
    return least + 2 * batch * parts * m * n * shape.into.bytes / rate + SPLIT_START / unit.f32


@functools.cache
def fastest(m: int, n: int, k: int, batch: int, grid: GridLimits, element: int,
            shape: MmaShape | None) -> tuple[float, int]:
    """The least estimated time of products by threads, or by matrix instructions, in multiply-adds
    of a unit, with that to add parts up; and the number of parts.

    >>> fastest(64, 64, 4096, 1, GridLimits(), 4, None)[1]
    16
    """
    def time(parts: int) -> float:
        sizes = m, n, k // parts, batch * parts, grid
        least = estimate(*sizes, element, False)[0]
        return least if shape is None else mma_tiles.fastest(
            *sizes, shape, least, lambda tile: tile.fits(grid, None))[0]

    each = element * grid.unit.f32 / (grid.unit.memory_bytes * grid.compute_units)  # of a number
    reading, adding = batch * (m + n) * k * each, batch * 2 * m * n * each
    most = min(k // SPLIT_DEPTH_THREADS, SPLIT_GROUPS * grid.compute_units)
    times = ((max(reading, time(parts)) + (parts * adding + SPLIT_START if parts > 1 else 0), parts)
             for parts in range(1, max(most, 1) + 1) if k % parts == 0)
    return min(times)


def _tiles(m: int, n: int, rows: int, columns: int, batch: int) -> int:
    return math.ceil(m / rows) * math.ceil(n / columns) * batch


def _power_below(n: int) -> int:
    """The largest power of two that is at most n.

    >>> _power_below(147), _power_below(64)
    (128, 64)
    """
    return 1 << (n.bit_length() - 1)
