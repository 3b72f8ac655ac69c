"""The schedules of a matrix product on a grid: the possible tiles, and their costs."""

from __future__ import annotations

import math

from ztorch.errors import Unsupported
from ztorch.graph.hints import layer_name
from ztorch.graph.value import Value
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, MmaShape
from ztorch.ir.limits import Limits
from ztorch.ir.product_rules import MAX_SUMS
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid import asynchronous, mma, mma_tiles
from ztorch.lower.grid.operands import copy_width, strip_registers
from ztorch.lower.grid.thread_tiles import Tile, estimate
from ztorch.lower.loops import summing
from ztorch.lower.region import Region
from ztorch.lower.schedule import GridAsyncSchedule, GridMatrixSchedule, GridProductSchedule
from ztorch.lower.tuning import (
    ASYNC_STAGES_LEAST,
    MMA_ALIGN_BYTES,
    MMA_STAGED_SUMS,
    MMA_SUM_SHARE,
)


def propose(region: Region, limits: Limits) -> GridProductSchedule:
    """The tile with the least estimated time."""
    tile = _estimated(region, limits)[1]
    return GridProductSchedule(tile.rows, tile.columns, tile.depth, tile.thread_rows,
                               tile.thread_columns, tile.bands, tile.teams)


def _estimated(region: Region, limits: Limits) -> tuple[float, Tile]:
    product, grid = product_of(region), limits.grid
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    assert grid is not None
    element, has_epilogue = summing(product.dtype).bytes, len(region.members) > 1
    time, tile = estimate(m, n, k, math.prod(product.shape[:-2]), grid, element, has_epilogue)
    if math.isinf(time):
        raise Unsupported(
            f"layer {layer_name(product.layer) or product.op.name}: a matrix product needs "
            f"{tile.threads} threads and {tile.shared(element, has_epilogue)} bytes that they "
            f"share; this device has {grid.threads} and {grid.shared_bytes}; compile for another "
            "device, such as cpu")
    return time, tile


def propose_matrix(region: Region, limits: Limits) -> GridMatrixSchedule | None:
    """The tile of matrix instructions with the least estimated time, if that is less than without
    them."""
    product, grid = product_of(region), limits.grid
    shape = mma.shape_for(product, limits)
    if shape is None:
        return None
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    assert grid is not None
    time, _ = _estimated(region, limits)

    def staged(tile: mma.MmaTile) -> mma.MmaTile:
        return tile.staged(grid, k) if _copied(product, tile, limits) else tile

    def fits(tile: mma.MmaTile) -> bool:
        alone = staged(tile).stages > 1
        return tile.fits(grid, None if alone else strip_registers(product, tile, limits))

    tile = mma_tiles.choose(m, n, k, math.prod(product.shape[:-2]), grid, shape, time, fits, staged)
    if tile is None:
        return None
    tile = staged(tile)
    return GridMatrixSchedule(tile.rows, tile.columns, tile.depth, tile.down, tile.across,
                              tile.stages, tile.bands)


def propose_async(region: Region, limits: Limits) -> GridAsyncSchedule | None:
    """The tile of asynchronous products with the least estimated time, if no other kind of product
    takes less."""
    shape = asynchronous.shape_for(product_of(region), limits)
    return propose_async_of(shape, region, limits) if shape else None


def propose_async_of(shape: mma.MmaShape, region: Region,
                     limits: Limits) -> GridAsyncSchedule | None:
    """The same, however the operands are copied."""
    product = product_of(region)
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    assert limits.grid is not None
    best = asynchronous.choose(m, n, k, math.prod(product.shape[:-2]), limits.grid, shape)
    if best is None or _estimated(region, limits)[0] <= best[0] or mma_tiles.choose(
            m, n, k, math.prod(product.shape[:-2]), limits.grid, shape, best[0]):
        return None
    tile = best[1]
    return GridAsyncSchedule(tile.rows, tile.columns, tile.stages, tile.bands)


def _copied(product: Value, tile: mma.MmaTile, limits: Limits) -> bool:
    """Whether asynchronous copies can transfer both operands."""
    assert limits.grid is not None
    return limits.grid.asynchronous_copies and all(
        copy_width(product, side, tile, tile.shape.of) for side in (0, 1))


def tile_of(s: GridProductSchedule) -> Tile:
    return Tile(s.tile_rows, s.tile_columns, s.tile_depth, s.thread_rows, s.thread_columns,
                s.epilogue_bands, s.teams)


def refusal(s: GridProductSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    tile, product = tile_of(s), product_of(region)
    if why := _not_divisible(("tile(rows=...)", s.tile_rows, s.thread_rows),
                             ("tile(columns=...)", s.tile_columns, s.thread_columns),
                             ("tile(depth=...)", s.tile_depth, s.teams),
                             ("thread(rows=...)", s.thread_rows, s.epilogue_bands)):
        return why
    used = s.thread_rows * s.thread_columns + s.thread_rows + s.thread_columns
    if used > limits.vector_registers:
        return (f"thread(rows={s.thread_rows}, columns={s.thread_columns}) takes {used} registers "
                f"of {limits.vector_registers}")
    has_epilogue = len(region.members) > 1
    return _too_large(tile.threads, tile.shared(summing(product.dtype).bytes, has_epilogue), limits)


def refusal_matrix(s: GridMatrixSchedule, region: Region, limits: Limits) -> str:
    """The same where matrix instructions multiply."""
    shape = mma.shape_for(product_of(region), limits)
    if shape is None:
        return "this target has no matrix instruction for its operands"
    if why := _not_divisible(
            ("tile(rows=...)", s.tile_rows, s.subgroups_down * shape.m),
            ("tile(columns=...)", s.tile_columns, s.subgroups_across * shape.n),
            ("tile(depth=...)", s.tile_depth, shape.k),
            ("bytes of tile(depth=...)", s.tile_depth * shape.of.bytes, MMA_ALIGN_BYTES)):
        return why
    tile = matrix_tile_of(s, shape, limits)
    if why := _not_divisible(
            ("matrices of a subgroup below one another", tile.fragments_down, s.epilogue_bands)):
        return why
    if s.stages < 1:
        return f"stages({s.stages}) must be at least 1"
    if s.stages > 1 and not _copied(product_of(region), tile, limits):
        return (f"stages({s.stages}) must be 1: this target or the layout of an operand does not "
                "allow asynchronous copies")
    used = tile.sum_registers
    if used > (MMA_STAGED_SUMS if s.stages > 1 else MMA_SUM_SHARE * limits.vector_registers):
        return f"the sums of a thread take {used} registers of {limits.vector_registers}"
    return _too_large(tile.threads, tile.shared, limits)


def refusal_async(s: GridAsyncSchedule, region: Region, limits: Limits) -> str:
    """The same where asynchronous products multiply."""
    shape = asynchronous.shape_for(product_of(region), limits)
    if shape is None:
        return ("this target has no asynchronous product for its operands, or cannot copy them "
                "asynchronously")
    assert limits.grid is not None
    if s.stages < ASYNC_STAGES_LEAST:
        return f"stages({s.stages}) must be at least {ASYNC_STAGES_LEAST}"
    return refusal_tile(asynchronous.tile_of(
        s.tile_rows, s.tile_columns, shape, limits.grid, s.stages, s.epilogue_bands), limits)


def refusal_tile(tile: asynchronous.AsyncTile, limits: Limits) -> str:
    """Why asynchronous products cannot have a tile; empty if they can."""
    shape = tile.shape
    if why := _not_divisible(
            ("tile(rows=...)", tile.rows, shape.m * WARPGROUP),
            ("tile(columns=...)", tile.columns, SWIZZLE_LINE // shape.of.bytes),
            ("matrices of a subgroup beside one another", tile.across, tile.bands)):
        return why
    if tile.across > MAX_SUMS:
        return f"tile(columns=...) must be at most {MAX_SUMS * shape.n}, not {tile.columns}"
    return _too_large(tile.threads, tile.shared, limits)


def matrix_tile_of(s: GridMatrixSchedule, shape: MmaShape, limits: Limits) -> mma.MmaTile:
    assert limits.grid is not None
    return mma.MmaTile(s.tile_rows, s.tile_columns, s.tile_depth, shape, s.subgroups_down,
                       s.subgroups_across, limits.grid.subgroup, s.epilogue_bands, s.stages)


def _not_divisible(*sizes: tuple[str, int, int]) -> str:
    """A message about the first size that is not the multiple it must be."""
    for name, size, by in sizes:
        if size < 1 or by < 1 or size % by:
            return f"{name} must be a multiple of {by}, not {size}"
    return ""


def _too_large(threads: int, shared: int, limits: Limits) -> str:
    assert limits.grid is not None
    if threads > limits.grid.threads:
        return f"its tile takes {threads} threads of {limits.grid.threads}"
    if shared > limits.grid.shared_bytes:
        return f"its tile takes {shared} bytes of shared memory of {limits.grid.shared_bytes}"
    return ""
