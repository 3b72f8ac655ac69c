"""Split-k: the number of parts along k into which products on a grid are divided."""

from __future__ import annotations

import math

from ztorch.dtypes import f16
from ztorch.graph.value import Value
from ztorch.ir.limits import GridLimits
from ztorch.lower.tuning import (
    ASYNC_TILES,
    FEW_ROWS,
    FEW_ROWS_COLUMNS,
    FEW_ROWS_DEPTH,
    FEW_ROWS_SHARE,
    SPLIT_DEEP,
    SPLIT_DEPTH,
    SPLIT_DEPTH_LARGE,
    SPLIT_DEPTH_TEAMS,
    SPLIT_GROUPS,
    SPLIT_SHARE,
    SPLIT_TILE,
)


def parts_of(v: Value, grid: GridLimits, by_threads: bool) -> int:
    """The number of parts that occupy the machine, each large enough to pay for the final sum; less
    than 2: no split.

    Asynchronous products need large tiles to share loads, so they have few; with smaller tiles,
    several workgroups per compute unit hide the memory latency, as they do where threads multiply.
    There, teams of a workgroup divide k first. A product of few rows takes as long as reading its
    right operand, in wide tiles.
    """
    m, n, k, batch = *v.shape[-2:], v.args[0].shape[-1], math.prod(v.shape[:-2])
    least, groups = (SPLIT_DEPTH_TEAMS, SPLIT_GROUPS) if by_threads else (SPLIT_DEPTH, 1)
    tiles = _tiles(m, n, SPLIT_TILE, SPLIT_TILE, batch)
    usual = min(k // least, groups * grid.compute_units // tiles)
    if by_threads:
        usual = max(usual, _parts_of_few_rows(m, n, k, batch, grid))
    if not grid.asynchronous_products or v.args[0].dtype.bits != f16.bits:
        return usual
    most_rows, most_columns = ASYNC_TILES[0]
    rows = min(most_rows, max(SPLIT_TILE, _power_below(m)))
    columns = min(most_columns, max(SPLIT_TILE, _power_below(n)))
    tiles = _tiles(m, n, rows, columns, batch)
    groups = min(SPLIT_GROUPS, most_rows * most_columns // (rows * columns))
    few = min(m, n) >= most_rows and tiles <= SPLIT_SHARE * grid.compute_units
    if k < SPLIT_DEEP and not few:
        return usual
    return max(usual, min(k // SPLIT_DEPTH_LARGE, groups * grid.compute_units // tiles))


def _parts_of_few_rows(m: int, n: int, k: int, batch: int, grid: GridLimits) -> int:
    """The parts that give each compute unit one wide tile; 1 if most units would have none."""
    tiles = _tiles(m, n, FEW_ROWS, FEW_ROWS_COLUMNS, batch)
    parts = min(k // FEW_ROWS_DEPTH, grid.compute_units // tiles)
    fill = parts * tiles >= FEW_ROWS_SHARE * grid.compute_units
    return parts if m <= FEW_ROWS and fill else 1


def _tiles(m: int, n: int, rows: int, columns: int, batch: int) -> int:
    return math.ceil(m / rows) * math.ceil(n / columns) * batch


def _power_below(n: int) -> int:
    """The largest power of two that is at most n.

    >>> _power_below(147), _power_below(64)
    (128, 64)
    """
    return 1 << (n.bit_length() - 1)
