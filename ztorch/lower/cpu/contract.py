"""The loop nest of a matrix product: its schedule, and the loops over its register tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import AccessPattern, access_pattern, in_halves
from ztorch.lower.cpu.packed_panels import packed_columns
from ztorch.lower.cpu.parts_of_k import in_blocks_along_k, most_block_rows
from ztorch.lower.cpu.register_tiles import RegisterTiles
from ztorch.lower.cpu.strides import (
    comes_from_afar,
    kept_for_iterations,
    packs_in_block,
    row_distance,
    step_distance,
)
from ztorch.lower.cpu.tile_blocks import panel_refusal
from ztorch.lower.cpu.tiling import (
    choose,
    estimated_cycles,
    product_lanes,
    registers,
    tiling,
    whole_panels,
)
from ztorch.lower.loops import summing
from ztorch.lower.region import COPY, Region
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import (
    INLINE_EPILOGUE_DEPTH,
    INLINE_EPILOGUE_MEMBERS,
    LINE_BYTES,
    OWN_ROWS_FEW,
    OWN_ROWS_SHARE,
    PREFETCH_MAX,
    SHALLOW_DEPTH,
    SHALLOW_MEMBERS,
    SHALLOW_SLOTS,
    UNROLL_MAX,
)


def products_of(region: Region) -> list[Value]:
    """The products that a region is built around: one, or several of the same rows."""
    return [v for v in region.members if v.op.kind == "contract"]


def product_of(region: Region) -> Value:
    """The product that a region is built around, or the first of several, which are alike."""
    return products_of(region)[0]


def may_share_tiles(first: Value, second: Value) -> bool:
    """Whether one kernel can compute two products: their rows are the same, and their right
    operands are stored alike. Each sum adds the same numbers in the same order as in a kernel of
    its own."""
    (left, right), (also, beside) = first.args, second.args
    return (left is also and first.shape == second.shape and first.dtype is second.dtype
            and right.dtype is beside.dtype and right.shape == beside.shape
            and left.rank == right.rank == 2 and step_distance(left) < LINE_BYTES
            and packed_columns(right) == packed_columns(beside))


def lanes_of(region: Region, limits: Limits) -> int:
    """The lanes of a vector of its tiles."""
    product = product_of(region)
    return product_lanes(product.shape[-1], limits, product.dtype)


def _access_pattern(product: Value) -> AccessPattern:
    """The access pattern of the left operand."""
    left = product.args[0]
    access = access_pattern(left)
    assert access is not None, "a product reads an operand that cannot be read in place"
    return access


def propose(region: Region, limits: Limits) -> ProductSchedule:
    """The tiles with the least estimated time. A short epilogue (copies do not count) is unrolled
    over the rows of a tile, unless k is so large that a loop over a local array costs little."""
    product, count = product_of(region), len(products_of(region))
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes = lanes_of(region, limits)
    access, panel = _access_pattern(product), packed_columns(product.args[1]) // lanes
    s = choose(m, n, k, limits, product.dtype, panel > 0, access, panel,
               row_distance(product.args[1]),
               kept_for_iterations(product.args[1], limits.processor) or _has_few_rows(
                   product, limits),
               comes_from_afar(product.args[1]), panel == 0 and count == 1 and packs_in_block(
                   product.args[1], m, product.dtype, limits), count,
               math.prod(product.shape[:-2]))
    s = in_blocks_along_k(s, m, k, access, step_distance(product.args[0]),
                          lanes * summing(product.dtype).bytes, limits.processor)
    members = [v for v in region.members if v.op is not COPY]
    cheap = k <= SHALLOW_DEPTH and sum(v.op.cost for v in members[count:]) <= SHALLOW_SLOTS
    most = SHALLOW_MEMBERS if cheap else INLINE_EPILOGUE_MEMBERS
    inline = len(members) == count or (len(members) <= most and k < INLINE_EPILOGUE_DEPTH)
    return replace(s, epilogue_inline=int(inline))


def _has_few_rows(product: Value, limits: Limits) -> bool:
    """Whether a product has about as many rows as a tile, and a small right operand. If workers
    share its rows, as they do those of kernels around it, fewer bytes move between cores."""
    least, most = OWN_ROWS_FEW
    return product.rank == 2 and least <= product.shape[0] <= most and (
        product.args[1].nbytes <= limits.processor.l2_bytes * OWN_ROWS_SHARE)


def refusal(s: ProductSchedule, region: Region, limits: Limits) -> str:
    """Why a product cannot have a schedule; empty if it can."""
    product, count = product_of(region), len(products_of(region))
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes = lanes_of(region, limits)
    heights, vectors = _access_pattern(product).heights, math.ceil(n / lanes)
    columns = packed_columns(product.args[1])
    if s.tile_rows not in heights:
        return (f"tile(rows={s.tile_rows}) must be one of {', '.join(map(str, heights))} for these "
                f"{m} rows")
    if not 1 <= s.tile_vectors <= vectors:
        return f"tile(vectors={s.tile_vectors}) must be between 1 and the {vectors} of a row"
    used = registers(s.tile_rows, s.tile_vectors * count)
    if used > limits.vector_registers:
        return (f"tile(rows={s.tile_rows}, vectors={s.tile_vectors}) takes {used} vector registers "
                f"of {limits.vector_registers}")
    if columns and not whole_panels(s.tile_vectors, columns // lanes):
        return (f"tile(vectors={s.tile_vectors}) must divide the {columns // lanes} vectors that "
                "the right operand is packed in, or be a multiple of them")
    for name, value, least, most in (
            ("block(rows=...)", s.block_rows, 1, m), ("block(depth=...)", s.block_depth, 0, k),
            ("block(pack=...)", s.block_pack, 0, 1), ("prefetch(...)", s.prefetch, 0, PREFETCH_MAX),
            ("unroll(...)", s.unroll, 1, UNROLL_MAX),
            ("epilogue(inline=...)", s.epilogue_inline, 0, 1)):
        if not least <= value <= most:
            return f"{name} must be between {least} and {most}, not {value}"
    if s.block_depth and s.block_rows == 1:
        return f"block(depth={s.block_depth}) needs block(rows=...) of 2 or more"
    if (s.block_depth or s.block_pack) and count > 1:
        return (f"block(depth={s.block_depth}, pack={s.block_pack}) must be 0 for {count} products "
                "in one kernel")
    most = most_block_rows(s, lanes * summing(product.dtype).bytes)
    if s.block_depth and s.block_rows > most:
        return f"block(rows={s.block_rows}, depth={s.block_depth}) may have {most} rows at most"
    right = product.args[1]
    return panel_refusal(s, right, columns > 0, lanes * right.dtype.bytes) if s.block_pack else ""


def estimator(region: Region, limits: Limits) -> Callable[[ProductSchedule], float]:
    """A function that estimates the cycles of a product with the tiles of a schedule."""
    product, count = product_of(region), len(products_of(region))
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    lanes, access = lanes_of(region, limits), _access_pattern(product)
    packed = packed_columns(product.args[1]) > 0

    def cycles(s: ProductSchedule) -> float:
        if s.tile_rows not in access.heights:
            return math.inf
        tiles = tiling(s.tile_rows, s.tile_vectors, m, n, lanes, packed, access)
        return estimated_cycles(tiles, k, product.dtype, limits.processor, count)

    return cycles


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: ProductSchedule) -> None:
    """All tiles of the products that the region is built around."""
    product = product_of(region)
    m, n = product.shape[-2:]
    lanes = lanes_of(region, limits)
    access = _access_pattern(product)
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, lanes,
                   packed_columns(product.args[1]) > 0, access)
    if access.period == m and kept_for_iterations(product.args[1], limits.processor):
        tiles = replace(tiles, rows=in_halves(tiles.rows, m))
    nest = RegisterTiles(b, region, products_of(region), memory, target, limits, tiles, s,
                         access.depths)
    for panels in tiles.panels:
        if s.block_rows > 1:
            nest.blocks(panels)
        else:
            for rows in tiles.rows:
                nest.run(rows, panels)
