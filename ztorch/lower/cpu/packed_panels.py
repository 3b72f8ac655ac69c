"""Right operands whose panels of columns are contiguous, as the tiles of a product read them."""

from __future__ import annotations

import math

from ztorch.dtypes import DType
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.tiling import choose, product_lanes
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, view_of


def panel_columns(right: Value, m: int, limits: Limits, of: DType) -> int:
    """The columns of a panel for a product of dtype `of` with m rows."""
    k, n = right.shape
    return choose(m, n, k, limits, of, packed=True).tile_vectors * product_lanes(n, limits, of)


def pack(right: Value, width: int) -> Value:
    """The right operand with each panel of columns contiguous, as a view in its original shape."""
    k, n = right.shape
    count = math.ceil(n / width)
    padded = OPS.pad(right, (0, 0), (0, count * width - n))
    panels = COPY(OPS.transpose(OPS.reshape(padded, (k, count, width)), (1, 0, 2)))
    joined = OPS.reshape(OPS.transpose(panels, (1, 0, 2)), (k, count * width))
    return OPS.slice(joined, (0, 0), (1, 1), (k, n))


def packed_columns(right: Value) -> int:
    """The columns of each panel if the right operand is a result of `pack`; else 0."""
    k, n = right.shape[-2:]
    row = Var("k", k)
    base = view_of(right, [*(Index() for _ in right.shape[:-1]), Index.of(Var("n", n))])
    down = view_of(right, [*(Index() for _ in right.shape[:-2]), Index.of(row), Index()])
    if right.rank != 2 or base is None or down is None or base[0].rank != 3:
        return 0
    count, depth, width = base[0].shape
    stacked = depth == k and count == math.ceil(n / width) and down[1].factor(row) == width
    return width if stacked else 0
