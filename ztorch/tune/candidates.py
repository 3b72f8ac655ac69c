"""Proposes the schedules of a kernel that are worth measuring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, permutations, product
from math import ceil, log2
from typing import Any

from ztorch.lower import nests
from ztorch.lower.cpu import contract
from ztorch.lower.cpu.library_convolution import LibraryConvolutionSchedule
from ztorch.lower.cpu.library_nest import LibrarySchedule
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import ProductSchedule, Schedule
from ztorch.lower.tuning import (
    PREFETCH_STEPS,
    SIDE_BY_SIDE_MAX,
    TILE_ROWS_MAX,
    TILE_VECTORS_MAX,
)

MAX_SCHEDULES = 10  # measured schedules of a stage, the most promising ones
LIBRARY_PARTS = (1, 2, 4, 8, 16)  # blocks of rows, and of columns, of a product by a library; calls
MAX_ORDER_AXES = 3  # all loop orders are tried for nests of at most this many axes
POWERS = (1, 2, 4, 8, 16, 32, 64)

CLUSTER = "cluster_rows", "cluster_columns"
# The fields that each stage varies together, by kind of schedule. A stage starts from the best
# schedule of the previous one.
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "product": (("tile_rows", "tile_vectors"), ("unroll", "prefetch"), ("block_rows",),
                ("block_pack",), ("block_depth",), ("epilogue_inline",)),
    "elements": (("order", "share"), ("lanes",)),
    "transpose": (("lanes", "abreast"),),
    "rows": (("sums",), ("columns",), ("lanes",)),
    "sliding": (("places",), ("lanes",)),
    "correlation": (("steps",), ("lanes",)),
    "recurrence": (("vectors",), ("lanes",)),
    "grid_product": (("tile_rows", "tile_columns"), ("thread_rows", "thread_columns"),
                     ("tile_depth", "teams"), ("epilogue_bands",)),
    "grid_matrix": (("tile_rows", "tile_columns"), ("subgroups_down", "subgroups_across"),
                    ("tile_depth", "stages"), ("epilogue_bands",)),
    "grid_async": (("tile_rows", "tile_columns"), ("stages", "epilogue_bands")),
    "grid_roles": (("tile_rows", "tile_columns"), (*CLUSTER, "epilogue_bands"), ("stages",)),
    "grid_stream": (("tile_rows", "tile_columns"), ("whole", *CLUSTER),
                    ("stages", "epilogue_bands")),
    "grid_windows": (("tile_columns", "taps"), (*CLUSTER, "epilogue_bands"), ("stages",)),
    "grid_rows": (("team_rows", "team_ways"), ("width", "turns_held")),
    "grid_elements": (("threads", "width"),),
    "grid_transpose": (("threads", "edge"),),
    "grid_winograd": (("threads", "width"),),
    "grid_recurrence": (("threads",),),
    "grid_attention": (("threads", "ways"), ("block", "step")),
    "grid_attention_matrix": (("subgroups", "high", "block"), ("stages", "held")),
    "grid_attention_roles": (("teams", "block", "stages"),),
    "grid_attention_gradient": (("teams", "block", "stages"),),
    "grid_attention_gradient_matrix": (("subgroups", "high", "block"), ("stages", "held")),
}
# The values of a field to try.
VALUES: dict[str, Iterable[int]] = {
    "tile_rows": range(1, TILE_ROWS_MAX + 1),
    "tile_vectors": range(1, TILE_VECTORS_MAX + 1),
    "block_rows": POWERS,
    "block_depth": (0, 128, 256, 512),
    "block_pack": (0, 1),
    "prefetch": (0, PREFETCH_STEPS // 2, PREFETCH_STEPS, 2 * PREFETCH_STEPS),
    "unroll": (2, 4, 8),
    "epilogue_inline": (0, 1),
    "lanes": POWERS,
    "share": range(4),
    "columns": POWERS,
    "places": range(1, SIDE_BY_SIDE_MAX + 1),
    "steps": range(1, SIDE_BY_SIDE_MAX + 1),
    "vectors": POWERS,
    "abreast": (1, 2, 4),
    "tile_depth": (8, 16, 32, 64, 128),
    "thread_rows": (1, 2, 4, 8, 16),
    "thread_columns": (1, 2, 4, 8, 16),
    "epilogue_bands": (1, 2, 4, 8),
    "teams": (1, 2, 4),
    "subgroups_down": (1, 2, 4, 8),
    "subgroups_across": (1, 2, 4, 8),
    "stages": range(1, 7),
    "cluster_rows": (1, 2, 4),
    "cluster_columns": (1, 2),
    "taps": range(1, 10),
    "whole": range(9),
    "team_rows": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "team_ways": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "width": (1, 2, 4, 8),
    "turns_held": (0, 1, 2, 4, 8, 16),
    "threads": (32, 64, 128, 256, 512),
    "edge": (16, 32, 64),
    "ways": (1, 2, 4, 8, 16),
    "block": (16, 32, 64, 128),
    "step": (1, 2, 4, 8),
    "subgroups": (2, 4, 8),
    "high": (1, 2),
    "held": (0, 2, 4, 8, 16),
}
_TILES = (16, 32, 64, 96, 128, 192, 256)
# Those of fields that have other values on a grid than on a processor.
ON_GRIDS: dict[tuple[str, str], Iterable[int]] = {
    (kind, side): _TILES for side in ("tile_rows", "tile_columns") for kind in (
        "grid_product", "grid_matrix", "grid_async", "grid_roles", "grid_stream", "grid_windows")}


def other_kinds(kernel: RegionKernel, rule: Schedule) -> list[Schedule]:
    """The schedules that the rules propose for a kernel as loop nests of other kinds."""
    proposals = nests.proposals(kernel.region, kernel.limits)
    return [s for s in proposals if s.kind != rule.kind and not s.library]


def by_library(kernel: RegionKernel, library: str) -> list[Schedule]:
    """The schedules by which a library may compute a kernel: the rows and columns of a product in
    a few equal blocks, the images of a convolution in a few calls. Empty if the library cannot, or
    the product is too small for calls."""
    first = nests.by_library(library, kernel.region, kernel.limits)
    if isinstance(first, LibraryConvolutionSchedule):
        counts = dict.fromkeys(ceil(first.images / parts) for parts in LIBRARY_PARTS)
        return [replace(first, images=count) for count in counts]
    if first is None or not isinstance(first, LibrarySchedule):
        return [] if first is None else [first]
    m, n = contract.product_of(kernel.region).shape[-2:]
    blocks = {(ceil(m / down), ceil(n / across)): None for across in LIBRARY_PARTS
              for down in LIBRARY_PARTS}
    blocked = [replace(first, block_rows=rows, block_columns=columns) for rows, columns in blocks]
    return [first, *islice((s for s in blocked if s != first and nests.may_have(
        s, kernel.region, kernel.limits)), MAX_SCHEDULES)]


def stages(schedule: Schedule) -> tuple[tuple[str, ...], ...]:
    """The fields that each stage varies together, in the order of their effect."""
    return STAGES.get(schedule.kind, ())


def alternatives(kernel: RegionKernel, best: Schedule, fields: tuple[str, ...],
                 most: int = MAX_SCHEDULES) -> list[Schedule]:
    """Legal schedules of the kernel that differ from `best` in some of these fields, the most
    promising first; at most as many as `most`."""
    others: Iterable[Any] = (s for s in _varied(best, fields) if s != best)
    if isinstance(best, ProductSchedule) and "tile_rows" in fields:
        others = sorted(others, key=contract.estimator(kernel.region, kernel.limits))
    elif kernel.limits.grid is not None:  # those that are most like it
        others = sorted(others, key=lambda s: sum(
            abs(log2(max(0.5, getattr(s, name)) / max(0.5, getattr(best, name))))
            for name in fields))
    legal = (s for s in others if nests.may_have(s, kernel.region, kernel.limits))
    return list(islice(legal, most))


def _varied(best: Schedule, fields: tuple[str, ...]) -> Iterator[Schedule]:
    """All schedules that differ from `best` only in these fields, legal or not."""
    values = [_values(best.kind, name, getattr(best, name)) for name in fields]
    for combination in product(*values):
        yield replace(best, **dict(zip(fields, combination, strict=True)))


def _values(kind: str, field: str, current: Any) -> Iterable[Any]:
    """The values of a field to try, given its current value."""
    if field == "order":
        every = len(current) <= MAX_ORDER_AXES
        return permutations(current) if every else (current, tuple(reversed(current)))
    if field == "sums":
        return [(n,) * len(current) for n in POWERS]
    return ON_GRIDS.get((kind, field)) or VALUES[field]
