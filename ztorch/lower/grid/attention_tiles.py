"""The tiles of attention by matrix instructions: rows and columns that a subgroup computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid.attention_blocks import pitch_of
from ztorch.lower.grid.attention_rows import AttentionSizes, sizes_of
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention import matrix_shape
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ATTENTION_ELEMENT,
    ATTENTION_ISSUE,
    ATTENTION_REGISTERS,
    ATTENTION_STAGES,
    ATTENTION_TILES,
)


@dataclass(frozen=True, repr=False)
class GridAttentionMatrixSchedule(Schedule):
    """Attention on a grid, by matrix instructions."""

    kind = "grid_attention_matrix"
    subgroups: int  # per workgroup
    high: int  # matrices of scores of a subgroup, stacked vertically
    block: int  # columns whose keys and values are in shared memory at once
    stages: int  # blocks in flight, including the one in use
    held: int  # steps along queries that stay in registers; the rest is reloaded for each block

    def tile(self, lanes: int) -> str:
        return f"{self.subgroups}x{self.high}x{self.block}mma"


def propose(region: Region, limits: Limits) -> GridAttentionMatrixSchedule | None:
    """The fastest schedule that fits registers and shared memory."""
    grid = limits.grid
    assert grid is not None
    shape = matrix_shape(region.members[0].args[0].dtype, grid)
    if shape is None:
        return None
    steps = padded(sizes_of(region), shape)[0] // shape.k
    schedules = (GridAttentionMatrixSchedule(subgroups, high, block, ATTENTION_STAGES,
                                         min(steps_held, steps))
             for subgroups, high, block, steps_held in ATTENTION_TILES)
    fitting = [s for s in schedules if not refusal(s, region, limits)]
    return min(fitting, key=lambda s: _cost(s, sizes_of(region), shape, grid), default=None)


def _cost(s: GridAttentionMatrixSchedule, sizes: AttentionSizes, shape: MmaShape,
          grid: GridLimits) -> float:
    """The estimated cycles of the busiest compute unit. It handles each copied byte twice: it loads
    the byte and stores it to shared memory."""
    depth, width = padded(sizes, shape)
    lines, rows = s.block * (depth + width), s.high * shape.m
    elements = s.block * rows
    added = elements * (depth + width)
    read = lines + rows * (depth - s.held * shape.k)
    shared = (read + 2 * lines / s.subgroups) * shape.of.bytes / grid.unit.shared_bytes
    issued = added / (shape.m * shape.n * shape.k) + read / (shape.n * shape.k) + (
        ATTENTION_ELEMENT * elements + rows * width) / grid.subgroup
    step_cost = max(shared, added / grid.unit.subgroup_products, issued * ATTENTION_ISSUE)
    groups = sizes.matrices * math.ceil(sizes.rows / (rows * s.subgroups))
    blocks = math.ceil(sizes.columns / s.block)
    return math.ceil(groups / grid.compute_units) * s.subgroups * blocks * step_cost


def refusal(s: GridAttentionMatrixSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, sizes = limits.grid, sizes_of(region)
    assert grid is not None
    shape = matrix_shape(region.members[0].args[0].dtype, grid)
    if shape is None:
        return ("the machine does not multiply such matrices, or does not say which thread has "
                "which elements")
    if not 1 <= s.subgroups * grid.subgroup <= grid.threads or s.high < 1:
        return (f"subgroups({s.subgroups}) must be 1 to {grid.threads // grid.subgroup}, "
                f"high({s.high}) at least 1")
    if s.block < 1 or s.block % shape.k:
        return f"block({s.block}) must be a multiple of {shape.k}"
    if not 0 <= s.held <= (steps := padded(sizes, shape)[0] // shape.k):
        return f"held({s.held}) must be 0 to {steps}"
    if s.stages < 2:
        return f"stages({s.stages}) must be at least 2"
    if (count := registers(s, sizes, shape, grid)) > ATTENTION_REGISTERS:
        return f"a thread would hold {count} registers of matrices, more than {ATTENTION_REGISTERS}"
    needed = _shared(s, sizes, shape)
    return f"it shares {needed} bytes of {grid.shared_bytes}" if needed > grid.shared_bytes else ""


def registers(s: GridAttentionMatrixSchedule, sizes: AttentionSizes, shape: MmaShape,
              grid: GridLimits) -> int:
    """32-bit registers for the matrices of a thread: queries, results, scores, weights (half the
    size of scores) and masks (a quarter)."""
    depth, width = padded(sizes, shape)
    queries = min(depth, (s.held + 1) * shape.k)  # one of those that are reloaded
    across = queries // 2 + width + 2 * s.block - s.block // (2 * 2)
    return s.high * shape.m * across // grid.subgroup


def _shared(s: GridAttentionMatrixSchedule, sizes: AttentionSizes, shape: MmaShape) -> int:
    """Bytes of shared memory."""
    depth, width = (pitch_of(n, shape) for n in padded(sizes, shape))
    rows = s.subgroups * s.high * shape.m
    return (rows * depth + s.stages * s.block * (depth + width)) * shape.of.bytes


def _up(n: int, step: int) -> int:
    return math.ceil(n / step) * step


def padded(sizes: AttentionSizes, shape: MmaShape) -> tuple[int, int]:
    """The sizes of queries and of results, rounded up to whole matrices."""
    return _up(sizes.depth, shape.k), _up(sizes.width, shape.n)
