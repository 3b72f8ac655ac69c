"""Split-k: the number of parts along k into which products on a grid are divided."""

from __future__ import annotations

import functools
import math

from ztorch.dtypes import f16
from ztorch.graph.value import Value
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid import mma
from ztorch.lower.grid.thread_tiles import estimate
from ztorch.lower.loops import summing
from ztorch.lower.tuning import (
    ASYNC_TILES,
    SPLIT_DEEP,
    SPLIT_DEPTH,
    SPLIT_DEPTH_LARGE,
    SPLIT_DEPTH_THREADS,
    SPLIT_GROUPS,
    SPLIT_SHARE,
    SPLIT_START,
    SPLIT_TILE,
)


def parts_of(v: Value, grid: GridLimits, shape: MmaShape | None) -> int:
    """The number of parts that occupy the machine, each large enough to pay for the final sum; less
    than 2: no split.

    Asynchronous products need large tiles to share loads, so they have few; with smaller tiles,
    several workgroups per compute unit hide the memory latency. Where threads multiply, or matrix
    instructions (`shape`) split float32, the parts are those with the least estimated time.
    """
    m, n, k, batch = *v.shape[-2:], v.args[0].shape[-1], math.prod(v.shape[:-2])
    if shape is None or shape.split:
        return _fastest(m, n, k, batch, grid, summing(v.dtype).bytes, shape)
    usual = min(k // SPLIT_DEPTH, grid.compute_units // _tiles(m, n, SPLIT_TILE, SPLIT_TILE, batch))
    if not grid.asynchronous_products or v.args[0].dtype.bits != f16.bits:
        return usual
    most_rows, most_columns = ASYNC_TILES[0]
    rows = min(most_rows, max(SPLIT_TILE, _power_below(m)))
    columns = min(most_columns, max(SPLIT_TILE, _power_below(n)))
    tiles = _tiles(m, n, rows, columns, batch)
    groups = min(SPLIT_GROUPS, most_rows * most_columns // (rows * columns))
    few = min(m, n) >= most_rows and tiles <= SPLIT_SHARE * grid.compute_units
    if k < SPLIT_DEEP and not few:
        return usual
    return max(usual, min(k // SPLIT_DEPTH_LARGE, groups * grid.compute_units // tiles))


@functools.cache
def _fastest(m: int, n: int, k: int, batch: int, grid: GridLimits, element: int,
             shape: MmaShape | None) -> int:
    """The parts in which products by threads, or by matrix instructions, take the least time, with
    that to add them up."""
    def time(parts: int) -> float:
        sizes = m, n, k // parts, batch * parts, grid
        least = estimate(*sizes, element, False)[0]
        return least if shape is None else mma.fastest(
            *sizes, shape, least, lambda tile: tile.fits(grid, None))[0]

    each = element * grid.unit.f32 / (grid.unit.memory_bytes * grid.compute_units)  # of a number
    reading, adding = batch * (m + n) * k * each, batch * 2 * m * n * each
    most = min(k // SPLIT_DEPTH_THREADS, SPLIT_GROUPS * grid.compute_units)
    times = {parts: max(reading, time(parts)) + (parts * adding + SPLIT_START if parts > 1 else 0)
        for parts in range(1, most + 1) if k % parts == 0}
    return min(times, key=lambda parts: times[parts], default=1)


def _tiles(m: int, n: int, rows: int, columns: int, batch: int) -> int:
    return math.ceil(m / rows) * math.ceil(n / columns) * batch


def _power_below(n: int) -> int:
    """The largest power of two that is at most n.

    >>> _power_below(147), _power_below(64)
    (128, 64)
    """
    return 1 << (n.bit_length() - 1)
