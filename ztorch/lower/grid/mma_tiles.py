"""Chooses the tile of a product by matrix instructions of subgroups, by estimated time."""

from __future__ import annotations

import math
from collections.abc import Callable

from ztorch.dtypes import f16
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.mma import MmaTile
from ztorch.lower.tuning import (
    GRID_TILE_START,
    MMA_ALONE,
    MMA_DEPTH,
    MMA_DEPTH_PRODUCTS,
    MMA_FINISH_PASSES,
    MMA_LARGER_GAIN,
    MMA_NARROW_COST,
    MMA_SPLIT_COST,
    MMA_STRIP_COST,
    MMA_TILES,
    MMA_WIDE_COST,
    SPLIT_WAIT,
)


def choose(m: int, n: int, k: int, batch: int, grid: GridLimits, shape: MmaShape,
           time: float, fits: Callable[[MmaTile], bool] = lambda tile: not tile.wide,
           staged: Callable[[MmaTile], MmaTile] = lambda tile: tile) -> MmaTile | None:
    """The tile with the least estimated time, if that is below `time`, without its stages.

    >>> from ztorch.dtypes import f16, f32
    >>> grid, shape = GridLimits(shared_bytes=48 << 10, subgroup=32), MmaShape(16, 8, 16, f16, f32)
    >>> tile = choose(4096, 4096, 4096, 1, grid, shape, math.inf)
    >>> tile.rows, tile.columns, tile.fragments_down, tile.fragments_across, tile.threads
    (128, 128, 4, 4, 256)
    """
    return fastest(m, n, k, batch, grid, shape, time, fits, staged)[1]


def fastest(m: int, n: int, k: int, batch: int, grid: GridLimits, shape: MmaShape,
            time: float = math.inf, fits: Callable[[MmaTile], bool] = lambda tile: not tile.wide,
            staged: Callable[[MmaTile], MmaTile] = lambda tile: tile
            ) -> tuple[float, MmaTile | None]:
    """The least estimated time below `time`, and its tile, of which `fits` tells whether a thread's
    registers suffice. The estimate is that of threads, except that a multiply-add takes an eighth
    of the time (half for float32 in full precision) and does not hide the loads of strips. That of
    16 bits in stages, which `staged` makes of a tile, is in cycles of a compute unit.

    >>> from ztorch.dtypes import f16, f32
    >>> grid, shape = GridLimits(shared_bytes=48 << 10, subgroup=32), MmaShape(16, 8, 16, f16, f32)
    >>> time, tile = fastest(4096, 4096, 4096, 1, grid, shape)
    >>> time < fastest(4096, 4096, 8192, 1, grid, shape)[0]
    True
    """
    narrow = shape.mantissa_bits or shape.of.bits == f16.bits
    best, step = None, MMA_NARROW_COST if narrow else MMA_WIDE_COST
    if shape.split:
        step = shape.products * grid.unit.f32 / grid.unit.subgroup_tf32
    depth = max(MMA_DEPTH_PRODUCTS * shape.k, MMA_DEPTH)
    for rows, columns, down, across in MMA_TILES:
        if rows % (down * shape.m) or columns % (across * shape.n):
            continue
        tile = MmaTile(rows, columns, depth, shape, down, across, grid.subgroup).banded(
            grid.declared_shared_bytes)
        if tile.threads > grid.threads or tile.shared > grid.shared_bytes:
            continue
        if not fits(tile):
            continue
        in_stages = staged(tile)
        if in_stages.stages > 1 and shape.of.bits == f16.bits:
            total = cycles(in_stages, m, n, k, batch, grid, SPLIT_WAIT) * grid.unit.f32
            if total < (MMA_LARGER_GAIN if best else 1.0) * time:
                time, best = total, tile
            continue
        tiles = math.ceil(m / rows) * math.ceil(n / columns) * batch
        deep = math.ceil(k / tile.depth) * tile.depth
        element = step + MMA_STRIP_COST / rows + MMA_STRIP_COST / columns
        if shape.split:  # each subgroup splits its own parts of both strips
            element += MMA_SPLIT_COST * grid.unit.f32 * (down / rows + across / columns)
        tile_time = rows * columns * element * (deep + GRID_TILE_START)
        total = math.ceil(tiles / grid.compute_units) * tile_time
        if total < time:
            time, best = total, tile
    return time, best


def cycles(tile: MmaTile, m: int, n: int, k: int, batch: int, grid: GridLimits,
           wait: float = 1.0) -> float:
    """The estimated cycles of tiles in stages: of the compute unit with the most of them, and of
    all on average, since other kernels may occupy units meanwhile. Each copied element is loaded
    and stored, then read by all subgroups that share it; a strip is waited for where few stages
    are in flight, a share `wait` of the time that it takes while all units load."""
    unit, size = grid.unit, tile.shape.of.bytes
    strips = tile.rows + tile.columns
    read = 2 * strips + tile.rows * tile.across + tile.columns * tile.down
    step = max(read * size / unit.shared_bytes, strips * size / unit.l2_bytes,
               tile.rows * tile.columns / unit.subgroup_products)
    finish = MMA_FINISH_PASSES * tile.rows * tile.columns * tile.shape.into.bytes
    count = math.ceil(k / tile.depth)
    tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns) * batch
    busiest = math.ceil(tiles / grid.compute_units)
    together = max(1, min(tile.resident_threads(grid) // tile.threads,
                          grid.shared_unit_bytes // tile.shared))
    waited = math.ceil(busiest / together) * count * (
        wait * unit.copy_cycles / max(1, tile.stages - 1))
    counted = MMA_ALONE * busiest + (1 - MMA_ALONE) * tiles / grid.compute_units
    return max(counted * (count * tile.depth * step + finish / unit.shared_bytes), waited)
