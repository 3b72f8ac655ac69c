"""Computes large intermediates block by block of rows, in a loop, so that they are never stored.

    attention of 16,384 positions: a gigabyte of scores per head becomes a block of two megabytes

Loops over the leading axes contain a loop over blocks of rows. Sums along rows are stacked by
iteration, and sums over rows are carried by the loop. Columns that are known to be masked, as in
causal attention, are skipped.
"""

from __future__ import annotations

import math

from ztorch.dtypes import f32
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.rewrites.block_loops import BlockLoops
from ztorch.lower.rewrites.large_intermediates import LargeShape, groups, large_shapes
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
    """The graph with intermediates that are large for the machine computed in blocks of rows."""
    for shape in large_shapes(graph, WIDE_RATIO, WIDE_STEPS):
        if rows := _block_rows(shape, limits):
            graph = blocked(graph, shape, rows)
    return graph


def _block_rows(shape: LargeShape, limits: Limits) -> int:
    """Rows of a block: as many as the L2 cache holds; 0 if the matrix should not be divided."""
    row = f32.bytes * shape.columns
    size = row * shape.rows
    if limits.grid is not None:
        capacity, least, most = GRID_BLOCK_BYTES, GRID_WIDE_BYTES, shape.rows
        size *= math.prod(shape.batch)
    else:
        capacity, least = int(limits.processor.l2_bytes * BLOCK_SHARE), WIDE_BYTES
        most = BLOCK_ROWS_MAX
    if size < least:
        return 0
    rows = max(BLOCK_ROWS_MIN, min(most, capacity // row))
    if shape.rows <= rows:
        return shape.rows if math.prod(shape.batch) > 1 else 0
    return math.ceil(shape.rows / math.ceil(shape.rows / rows))


def blocked(graph: Graph, shape: LargeShape, rows: int) -> Graph:
    """The graph with all values derived from large products of a shape computed in row blocks.

    Args:
        graph: The graph.
        shape: The shape of the large intermediates.
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
        elif all(a in new for a in v.args):  # else it is computed only inside loops
            args = tuple(new[a] for a in v.args)
            new[v] = v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)
    return graph.with_roots(new[r] for r in graph.roots)
