"""The parts of rows whose columns a product on a grid sums: a part for each tile below another."""

from __future__ import annotations

import math

from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.grid.window_tiles import GridWindowsSchedule, cut_of, tile_of
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule

# The kinds of schedules whose workgroups finish whole tiles.
WHOLE_TILES = ("grid_roles", "grid_windows", "grid_async", "grid_matrix", "grid_product")


def count_of(s: Schedule, region: Region, limits: Limits) -> int:
    """The number of tiles below one another, with the empty ones of clusters. 0: it has none that a
    workgroup finishes alone."""
    product = product_of(region)
    rows = getattr(s, "tile_rows", 0) if s.kind in WHOLE_TILES else 0
    if isinstance(s, GridWindowsSchedule):
        cut = cut_of(product, limits)
        assert cut is not None and limits.grid is not None
        return tile_of(s, *cut, limits.grid).down(cut[1])
    cluster: int = getattr(s, "cluster_rows", 1)
    return math.ceil(product.shape[-2] / rows / cluster) * cluster if rows else 0


def refusal(s: Schedule, region: Region, limits: Limits) -> str:
    """Why the tiles of a schedule cannot sum the columns that a region sums; empty if they can."""
    sums = [v for v in region.members if v.op.kind == "reduce"]
    if region.kind != "contract" or not sums:
        return ""
    tiles, most = count_of(s, region, limits), sums[0].size // sums[0].shape[-1]
    if 0 < tiles <= most:
        return ""
    return f"it sums columns of {tiles} tiles below one another, and there is memory for {most}"
