"""How the threads of a workgroup share reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.workgroups import power_of_two
from ztorch.lower.positions import vector_start
from ztorch.lower.reduction import Axes, axes_of, worked_out_once
from ztorch.lower.region import Region, real_reads
from ztorch.lower.tuning import (
    COLUMN_ELEMENTS,
    COLUMN_LONG,
    COLUMN_NEIGHBORS,
    COLUMN_SECTOR,
    GROUP_THREADS,
    THREAD_ELEMENTS,
    THREAD_ELEMENTS_FEW,
)


@dataclass(frozen=True)
class Team:
    """How the threads of a workgroup share a reduction."""

    rows: int  # results
    ways: int  # threads for each result
    by_columns: bool  # neighboring threads have neighboring results, not the same result

    @property
    def size(self) -> int:
        return self.rows * self.ways

    def role(self, b: Builder, t: Operand) -> tuple[Operand, Operand]:
        """(result, share) of a thread, as numbers."""
        if self.by_columns:
            return b.rem(t, self.rows), b.div(t, self.rows)
        return b.div(t, self.ways), b.rem(t, self.ways)

    def thread(self, b: Builder, row: Operand, share: Operand) -> Operand:
        """The thread of a result and a share."""
        if self.by_columns:
            return b.add(b.mul(share, self.rows), row)
        return b.add(b.mul(row, self.ways), share)


def grid_axes(region: Region) -> Axes:
    """The loops of a region. Neighboring threads have neighboring results unless all memory that
    is read is contiguous along the reduction: then threads share each result."""
    return worked_out_once(region, _grid_axes)


def _grid_axes(region: Region) -> Axes:
    axes = axes_of(region)
    if not axes.by_columns or not axes.inner:
        return axes
    read = [flat.replace(axes.full) for v in region.members
            for source, flat in real_reads(v, region.index(v)) if source not in region.flat]
    of_results, of_one = (any(vector_start(at, loops[-1], 2) is not None for at in read)
                          for loops in (axes.outer, axes.inner))
    return replace(axes, by_columns=of_results or not of_one)


def team(outer: int, inner: int, by_columns: bool, grid: GridLimits, lanes: int = 1) -> Team:
    """A team for a reduction: each thread has a few elements, or vectors, of a result; fewer if
    there are few results.

    >>> team(1024, 10, False, GridLimits()), team(4, 4096, False, GridLimits())
    (Team(rows=32, ways=8, by_columns=False), Team(rows=1, ways=256, by_columns=False))
    """
    most = min(GROUP_THREADS, grid.threads)
    enough = outer >= most * grid.compute_units
    share = THREAD_ELEMENTS if enough else THREAD_ELEMENTS_FEW
    if by_columns and enough:  # neighboring threads read whole lines, so no others have to help
        share = COLUMN_ELEMENTS
    ways = min(most, power_of_two(math.ceil(inner / share)))
    rows = most // ways
    if by_columns:
        neighbors = COLUMN_NEIGHBORS // lanes
        if lanes == 1 and inner > COLUMN_LONG and outer <= neighbors * grid.compute_units:
            neighbors = COLUMN_SECTOR
        rows = min(max(rows, neighbors), most, power_of_two(outer))
        ways = min(ways, most // rows)
    rows = max(1, min(rows, power_of_two(outer)))
    if not by_columns and rows * ways < grid.subgroup and ways > 1:
        rows = grid.subgroup // ways  # whole subgroups, even if some threads are idle
    return Team(rows, ways, by_columns)
