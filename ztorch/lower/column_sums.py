"""Sums of columns in the epilogue of a product: of its elements, or of what is computed from them.

A long sum over rows is one of parts, and then of their results (`rewrites/split_reductions.py`).
Where a product on a grid makes the rows, each of its tiles is a part: its columns are summed while
its elements are in registers, so no kernel reads them again. Which rows make up a part does not
matter, since only their sum is read. The order of additions depends on the schedule alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ztorch.graph.hints import hints_of
from ztorch.graph.value import Graph, Value, attribute_key
from ztorch.ir.halves import HALVES
from ztorch.ir.limits import Limits
from ztorch.lower import nests
from ztorch.lower.grid.column_parts import count_of, refusal
from ztorch.lower.insets import position
from ztorch.lower.loops import summing
from ztorch.lower.positions import unflatten
from ztorch.lower.region import Region, map_region, view_key, view_of
from ztorch.lower.tuning import COLUMN_SUMS_BYTES, COLUMN_SUMS_READS, COLUMN_SUMS_SLOTS


def tiles_below(v: Value, limits: Limits, known: dict[tuple, int]) -> int:
    """The number of tiles below one another of the product whose columns a reduction sums; 0 if no
    product can do so. `known` has those of products that are alike."""
    x, axes = v.args[0], v.attrs["axes"]
    if limits.grid is None or v.op.opcode != "add" or tuple(axes) != tuple(range(x.rank - 1)):
        return 0
    product = _product_behind(x)
    if product is None or not _can_sum(product, limits):
        return 0
    key = (product.op, attribute_key(product.attrs), product.shape, product.dtype,
           *((a.dtype, view_key(a)) for a in product.args))
    if key not in known:
        region = map_region(product)
        region.kind = product.op.kind
        known[key] = count_of(nests.propose(region, limits).schedule, region, limits)
    return known[key]


class ColumnSums:
    """The sums of columns in a graph that epilogues of products may compute."""

    def __init__(self, graph: Graph, limits: Limits):
        self.limits = limits
        self._readers: dict[Value, list[Value]] = {r: [r] for r in graph.roots}
        for v in graph.nodes():
            for a in v.args:
                self._readers.setdefault(a, []).append(v)

    def of(self, region: Region) -> list[Value]:
        """The sums of columns among the members of a region."""
        return [v for v in region.members if v.op.kind == "reduce"] if (
            region.kind == "contract") else []

    def can_join(self, v: Value, region: Region) -> bool:
        """Whether a reduction sums columns of a product, or of what its epilogue computes."""
        products = [m for m in region.members if m.op.kind == "contract"]
        if region.kind != "contract" or len(products) != 1 or not _is_of_parts(
                v, self._readers.get(v, [])):
            return False
        [product] = products
        x = v.args[0]
        if (x.shape[-1] != product.shape[-1] or v.dtype is not summing(product.dtype)
                or not _can_sum(product, self.limits) or hints_of([*region.members, v])
                or any(s.args[0].shape != x.shape for s in self.of(region))):
            return False
        base = view_of(x, unflatten(region.full, x.shape))
        return base is not None and region.flat.get(base[0]) == base[1] == region.full

    def accepted(self, region: Region, sources: Callable[[Value], list[Value]]) -> bool:
        """Whether the epilogue of a product computes its sums, not another kernel."""
        maps = [v for v in region.members if v.op.kind == "map"]
        if any(v.op.partial or region.flat[v] != position(v, region.full) for v in maps):
            return False
        read = {s for v in maps for s in sources(v)
                if s not in region.flat and s.size == region.size}
        if len(read) > COLUMN_SUMS_READS or sum(v.op.cost for v in maps) > COLUMN_SUMS_SLOTS:
            return False
        return not refusal(nests.propose(region, self.limits).schedule, region, self.limits)


def _can_sum(product: Value, limits: Limits) -> bool:
    """Whether tiles of a product can sum columns: those of large matrices that stay float32 while
    they are finished."""
    return (limits.grid is not None and product.rank == 2 and product.dtype not in HALVES
            and product.dtype.is_float and product.nbytes >= COLUMN_SUMS_BYTES)


def _is_of_parts(v: Value, readers: list[Value]) -> bool:
    """Whether a reduction has the sums of parts of rows, of which only the sum is read."""
    return (v.op.opcode == "add" and v.rank == 2 and v.attrs["axes"] == (1,)
            and v.args[0].rank == v.rank + 1 and bool(readers) and all(
                r.op is v.op and r.attrs["axes"] == (0,) for r in readers))


def _product_behind(x: Value) -> Value | None:
    """The last product of which x has one element for each of its own, in the same order."""
    stack, visited, last = [x], {x}, None
    while stack:
        v = stack.pop()
        if v.op.kind == "contract":
            if v.shape[-1] == x.shape[-1] and (last is None or v.serial > last.serial):
                last = v
        elif v.op.kind == "map" and (v.op.opcode or v.op.name == "reshape"):
            below = {a for a in v.args if a.size == x.size} - visited
            visited |= below
            stack += below
    return last if last is not None and not _waits_for(last, visited) else None


def _waits_for(product: Value, values: set[Value]) -> bool:
    """Whether some of these values also need results of other kernels that read a product, such as
    the mean of all its elements."""
    elementwise = {v for v in values if v is not product}
    stack = [a for v in elementwise for a in v.args if a not in values]
    visited = set(stack)
    while stack:
        v = stack.pop()
        if v is product:
            return True
        below = {a for a in v.args if a.serial >= product.serial} - visited
        visited |= below
        stack += below
    return False
