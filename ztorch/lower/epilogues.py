"""Epilogues of products: the choice between fusing them with the product and a separate kernel.

Asynchronous products run few threads per compute unit, since their sums take all its registers. A
long epilogue, or one that reads several arrays, would leave the matrix unit idle while these few
threads run it. A separate kernel has eight times as many threads.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.graph.value import Value
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.index import Index
from ztorch.lower.insets import INSET, position
from ztorch.lower.reduction import axes_of, reduce_region
from ztorch.lower.region import Region, map_region, sources
from ztorch.lower.tuning import EPILOGUE_BYTES, EPILOGUE_READS, EPILOGUE_SLOTS


def is_heavy(region: Region, sources: Callable[[Value], list[Value]]) -> bool:
    """Whether the epilogue of a product's region is better a separate kernel."""
    product = product_of(region)
    others = [v for v in region.members if v is not product]
    if region.size * product.dtype.bytes < EPILOGUE_BYTES:
        return False
    if any(v.op.kind != "map" or v.op is INSET or v.op.partial or
           region.flat[v] != position(v, region.full) for v in others):
        return False
    read = {s for v in others for s in sources(v)
            if s not in region.flat and s.size == region.size}
    return len(read) > EPILOGUE_READS or sum(v.op.cost for v in others) > EPILOGUE_SLOTS


def split(region: Region) -> Region:
    """Removes all members but the product from a region; returns a region of the removed ones."""
    product = product_of(region)
    maps = [v for v in region.members if v.op.kind == "map"]
    sums = [v for v in region.members if v.op.kind == "reduce"]
    epilogue = map_region(maps[0]) if maps else reduce_region(sums[0])
    for v in maps[1:]:
        epilogue.add(v, position(v, epilogue.full))
    if maps and sums:
        epilogue.restructure(sums[0].args[0].shape, sums[0].attrs["axes"])
    for v in sums:
        if v not in epilogue.flat:
            epilogue.add(v, Index.of(epilogue.outer))
    region.members, region.flat = [product], {product: region.flat[product]}
    return epilogue


def without(regions: dict[int, Region], home: dict[Value, int], before: dict[int, int],
            number: int, is_apart: Callable[[Region], bool]) -> list[tuple[int, int]]:
    """Makes some epilogues separate regions, with numbers from `number` on. `home` has the region
    of each value, `before` a bit set of those that run before each. Returns pairs of such a region
    and a reduction of the rows that it makes, which may compute these."""
    first = number
    for k, region in list(regions.items()):
        if region.kind == "contract" and is_apart(region):
            j, number = number, number + 1
            regions[j] = split(region)
            home.update(dict.fromkeys(regions[j].members, j))
            before[j] = before[k] | 1 << k
            for other, earlier in before.items():
                if earlier >> k & 1:
                    before[other] |= 1 << j
    pairs = ((j, _rows_behind(j, regions, home)) for j in range(first, number))
    return [(j, k) for j, k in pairs if k is not None]


def _rows_behind(j: int, regions: dict[int, Region], home: dict[Value, int]) -> int | None:
    """The first region that reduces rows of elements of region `j`; None if there is none."""
    return next((k for k, region in sorted(regions.items()) if region.kind == "reduce" and k != j
                 and not axes_of(region).by_columns and any(
                     home.get(s) == j for v in region.members for s in sources(v))),
                None) if regions[j].kind == "map" else None
