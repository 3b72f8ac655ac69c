"""Prefetches by the tiles of a product, while it is computed: a part of the next panel of the right
operand, of the next rows or the next slice of the left one, operands of the epilogue, such as
weights and moments that an optimizer updates, and the lines that a tile will store to."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from ztorch.graph.body import SLICE
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import access_pattern
from ztorch.lower.cpu.product_operand import ProductOperand
from ztorch.lower.cpu.strides import step_distance
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, real_reads, view_of
from ztorch.lower.tuning import EPILOGUE_SHARE, LINE_BYTES


def prefetch_next_panel(b: Builder, rights: Sequence[ProductOperand], across: Var,
                        tile_number: Operand, times: int, tiles: int, vector_bytes: int) -> None:
    """Prefetches a tile's share of some steps of the next panel.

    Args:
        b: The builder.
        rights: The right operand at each vector of the panel.
        across: The number of the panel.
        tile_number: The number of the tile among those of a panel.
        times: How many steps.
        tiles: How many tiles share them.
        vector_bytes: The size of a vector.
    """
    lines_per_tile = math.ceil(times / tiles)
    first = Var("u", times - lines_per_tile + 1)
    bound = {first: b.min(b.mul(tile_number, lines_per_tile), times - lines_per_tile)}
    for right in rights[::max(1, LINE_BYTES // vector_bytes)]:
        for u in range(lines_per_tile):
            right.prefetch_next_panel(across, Index.of(first) + u, bound)


def distant_readers(region: Region, product: Value, memory: Container[Value],
                    limits: Limits) -> list[Value]:
    """The members of an epilogue that read elements in memory at the positions of the product's
    result, if these are too many for the L2 cache, or other ones in each iteration of a loop."""
    readers: dict[Value, set[Value]] = {}
    for v in region.members:
        if v.op.kind != "contract" and v.size == product.size:
            own = {source for source, at in real_reads(v, unflatten(region.flat[v], v.shape))
                   if source in memory and source not in region.flat and at == region.full}
            if own:
                readers[v] = own
    sources = set[Value]().union(*readers.values())
    size = sum(source.nbytes for source in sources)
    is_distant = size > limits.processor.l2_bytes * EPILOGUE_SHARE or any(
        source.attrs.get("role") == SLICE for source in sources)
    return [*readers] if is_distant else []


def far_results(region: Region, product: Value, target: Container[Value],
                limits: Limits) -> list[Value]:
    """The values that tiles store at the positions of the product's result, if they are too many
    for the L2 cache: a store that waits for its line holds up those behind it."""
    stores = [v for v in region.members if v in target and v.size == product.size
              and region.flat[v] == region.full]
    size = sum(v.nbytes for v in stores)
    return stores if size > limits.processor.l2_bytes * EPILOGUE_SHARE else []


def has_far_rows(product: Value, limits: Limits) -> bool:
    """Whether the left operand, whose rows have one stride, is too large for the L2 cache."""
    left = product.args[0]
    access = access_pattern(left)
    size = math.prod(left.shape[:-2]) * left.dtype.bytes * (access.elements if access else 0)
    return access is not None and access.period == left.shape[-2] and (
        size > limits.processor.l2_bytes * EPILOGUE_SHARE)


def reads_slice_across(product: Value, limits: Limits) -> bool:
    """Whether a product reads a slice of a sequence across its rows, so that each step along k
    begins another line, and the L2 cache has room for the slice of the next iteration, too."""
    left, right = product.args
    place = view_of(left, [Index.of(Var(f"d{a}", n)) for a, n in enumerate(left.shape)])
    size = product.nbytes + right.nbytes + 2 * left.nbytes
    return (left.rank == 2 and place is not None and place[0].attrs.get("role") == SLICE
            and step_distance(left) >= LINE_BYTES
            and size <= limits.processor.l2_bytes * EPILOGUE_SHARE)


def prefetch_results(e: Emitter, readers: Sequence[Value], region: Region, at: Index,
                     stored: Sequence[str]) -> None:
    """Prefetches into the L2 cache what an epilogue has in memory at one position of the result.

    Args:
        e: The scope.
        readers: Its members that read operands.
        region: The region.
        at: The position.
        stored: Names of the buffers that it stores to.
    """
    for v in readers:
        own = region.flat[v].replace({region.outer: at})
        for source, flat in real_reads(v, unflatten(own, v.shape)):
            if flat == own and source in e.memory and source not in region.flat:
                e.prefetch(source, flat, cache=2)
    for name in stored:
        e.prefetch_of(name, at, cache=2)
