"""Computes wide values a block of rows at a time, in a loop, so that none is in memory whole.

    attention of 16,384 positions: a gigabyte of scores a head becomes a block of two megabytes

A loop over each leading axis holds a loop over blocks of rows. Sums along rows are kept of each
turn, and sums over rows are a state of the loop. Columns that are known to count for nothing,
such as those that causal attention hides, are left out of the blocks.
"""

from __future__ import annotations

import math

from ztorch.dtypes import f32
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.block_loops import BlockLoops
from ztorch.lower.large_intermediates import LargeShape, groups, large_shapes
from ztorch.lower.tuning import (
    BLOCK_ROWS_MAX,
    BLOCK_ROWS_MIN,
    BLOCK_SHARE,
    GRID_BLOCK_BYTES,
    GRID_WIDE_BYTES,
    WIDE_BYTES,
    WIDE_RATIO,
    WIDE_STEPS,
)


def in_blocks(graph: Graph, limits: Limits) -> Graph:
    """The graph with each wide value that is large for the machine computed in blocks of rows."""
    for shape in large_shapes(graph, WIDE_RATIO, WIDE_STEPS):
        if rows := _block_rows(shape, limits):
            graph = blocked(graph, shape, rows)
    return graph


def _block_rows(shape: LargeShape, limits: Limits) -> int:
    """Rows of a block: the number that the second cache holds. 0 if they should stay whole."""
    row = f32.bytes * shape.columns
    size = row * shape.rows
    if limits.grid is not None:
        room, least, most = GRID_BLOCK_BYTES, GRID_WIDE_BYTES, shape.rows
        size *= math.prod(shape.batch)
    else:
        room, least = int(limits.processor.l2_bytes * BLOCK_SHARE), WIDE_BYTES
        most = BLOCK_ROWS_MAX
    if size < least:
        return 0
    rows = max(BLOCK_ROWS_MIN, min(most, room // row))
    if shape.rows <= rows:
        return shape.rows if math.prod(shape.batch) > 1 else 0
    return math.ceil(shape.rows / math.ceil(shape.rows / rows))


def blocked(graph: Graph, shape: LargeShape, rows: int) -> Graph:
    """The graph with all that is made of wide products of a shape computed in blocks of rows.

    Args:
        graph: The graph.
        shape: The shape of the wide values.
        rows: Rows of a block.
    """
    all_groups, order = groups(graph, shape)
    if not all_groups:
        return graph
    group_of = {r: group for group in all_groups for r in group.results}
    new: dict[Value, Value] = {}
    for v in order:
        if v in new:
            continue
        if v in group_of:
            new.update(BlockLoops(group_of[v], new, rows).results())
        elif all(a in new for a in v.args):  # else it is made inside of loops alone
            args = tuple(new[a] for a in v.args)
            new[v] = v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)
    return graph.with_roots(new[r] for r in graph.roots)
