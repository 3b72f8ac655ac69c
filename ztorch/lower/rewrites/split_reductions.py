"""Long reductions in two steps, so that workers or workgroups can share the first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import GridLimits
from ztorch.lower.loops import summing
from ztorch.lower.tuning import (
    COLUMN_NEIGHBORS,
    LONG_COLUMNS,
    LONG_COLUMNS_BYTES,
    LONG_COLUMNS_MAX,
    LONG_COLUMNS_MIN,
    LONG_COLUMNS_PARTS,
    LONG_REDUCTION,
    LONG_REDUCTION_PARTS,
    LONG_REDUCTION_RESULTS,
    REDUCTION_GROUPS,
    REDUCTION_PART_COLUMNS,
    REDUCTION_PART_ROWS,
    REDUCTION_PART_WIDTH,
)


def split_reduction(v: Value, grid: GridLimits | None, tiles: int = 0) -> Value:
    """A long reduction to few results as two reductions: of parts, and of their results.

    Workers share the first on a processor, workgroups on a grid. The split depends only on sizes
    and the target, so every run and every number of workers adds in the same order. If a product
    makes what is summed, as so many `tiles` below one another, there is a part for each of them.
    """
    if v.op.kind != "reduce" or not v.size:
        return v
    most_parts = _parts_for_workers(v) if grid is None else _parts_for_groups(v, grid)
    if max(most_parts, tiles) < 2:
        return v
    x, axes = v.args[0], v.attrs["axes"]
    if grid is None:
        first = max(axes, key=lambda a: (_parts_of_axis(x.shape, a, most_parts), x.shape[a]))
        end, parts = first + 1, _parts_of_axis(x.shape, first, most_parts)
    else:
        first, end = _longest_run(x.shape, axes)
        length = math.prod(x.shape[first:end])
        parts = _divisor(length, max(1, most_parts))
        # Tiles may be more than rows: clusters have empty ones.
        enough = next(p for p in range(max(1, min(tiles, length)), length + 1) if length % p == 0)
        parts = enough if parts < tiles and enough <= 2 * tiles else parts
    n = math.prod(x.shape[first:end])
    if parts == 1:
        return v
    split = OPS.reshape(x, (*x.shape[:first], parts, n // parts, *x.shape[end:]))
    joined = end - first - 1  # axes that were merged into another
    inner = {a if a < first else a - joined + 1 for a in axes if not first <= a < end}
    partial = v.op(widened(split), axes=tuple(sorted({*inner, first + 1})))
    at = sum(1 for k in range(first) if k not in axes)
    return OPS.cast(v.op(partial, axes=(at,)), v.dtype)


def _parts_of_axis(shape: Sequence[int], axis: int, most: int) -> int:
    """The most parts of an axis, up to `most`. Those of the last one fill a few vectors, for only
    their elements are neighbors in memory."""
    n, is_last = shape[axis], math.prod(shape[axis + 1:]) == 1
    return _divisor(n, max(1, min(most, n // REDUCTION_PART_WIDTH) if is_last else most))


def _longest_run(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int]:
    """The run of adjacent reduced axes with the most elements: its first axis, and the axis after
    its last. Merged axes have more divisors, and what remains after a split is still one loop."""
    runs: list[tuple[int, int]] = []
    for a in sorted(axes):
        runs.append((runs.pop()[0], a + 1) if runs and runs[-1][1] == a else (a, a + 1))
    return max(runs, key=lambda run: math.prod(shape[run[0]:run[1]]))


def _parts_for_workers(v: Value) -> int:
    """The most parts of a reduction on a processor; less than 2: it is not split. Parts of columns
    are read row by row: each loop over all rows would read a few columns of them only, which
    processors do not fetch ahead."""
    x, axes = v.args[0], v.attrs["axes"]
    if x.size // v.size >= LONG_REDUCTION and v.size <= LONG_REDUCTION_RESULTS:
        return LONG_REDUCTION_PARTS
    columns = math.prod(x.shape[max(axes) + 1:])
    long = x.nbytes >= LONG_COLUMNS_BYTES and x.size // v.size >= LONG_COLUMNS
    is_in_range = LONG_COLUMNS_MIN <= columns <= LONG_COLUMNS_MAX
    return LONG_COLUMNS_PARTS if long and is_in_range and columns == v.size else 1


def _parts_for_groups(v: Value, grid: GridLimits) -> int:
    """The same on a grid: as many parts as occupy it, each long enough to pay for a launch."""
    x, axes = v.args[0], v.attrs["axes"]
    length = x.size // v.size
    last = max((k for k, n in enumerate(x.shape) if n > 1), default=0)
    if last in axes:
        groups, shortest = v.size, REDUCTION_PART_ROWS
    else:
        groups, shortest = math.ceil(v.size / COLUMN_NEIGHBORS), REDUCTION_PART_COLUMNS
    return min(REDUCTION_GROUPS * grid.compute_units // groups, length // shortest)


def _divisor(n: int, most: int) -> int:
    """The greatest divisor of n that is at most `most`."""
    return next(p for p in range(min(n, most), 0, -1) if n % p == 0)


def widened(x: Value) -> Value:
    """x in the dtype of its sums."""
    return OPS.cast(x, summing(x.dtype))
