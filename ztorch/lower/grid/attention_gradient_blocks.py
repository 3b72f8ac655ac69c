"""Which lines of attention subgroups compute gradients of, by their own matrix instructions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.dtypes import f32
from ztorch.ir.kernel import MmaShape
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid.attention_blocks import pitch_of
from ztorch.lower.grid.attention_gradient_rows import line_counts
from ztorch.lower.grid.attention_rows import sizes_of
from ztorch.lower.grid.attention_tiles import padded
from ztorch.lower.region import Region
from ztorch.lower.rewrites.attention import hidden_by, matrix_shape
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import (
    ATTENTION_ELEMENT,
    ATTENTION_GRADIENT_BARRIER,
    ATTENTION_GRADIENT_LINES,
    ATTENTION_GRADIENT_REGISTERS,
    ATTENTION_GRADIENT_TILES,
    ATTENTION_ISSUE,
    ATTENTION_STAGES,
)


@dataclass(frozen=True, repr=False)
class GridAttentionGradientMatrixSchedule(Schedule):
    """Gradients of attention on a grid, by matrix instructions of subgroups."""

    kind = "grid_attention_gradient_matrix"
    subgroups: int  # per workgroup
    high: int  # matrices of keys or queries of a subgroup, stacked vertically
    block: int  # queries or keys of a stage
    stages: int
    held: int  # steps along keys and values, or queries and slopes, that stay in registers

    def tile(self, lanes: int) -> str:
        return f"{self.subgroups}x{self.high}x{self.block}mma"


@dataclass(frozen=True)
class GradientBlocks:
    """The lines of a workgroup and of a stage, with their sizes in whole matrices."""

    s: GridAttentionGradientMatrixSchedule
    shape: MmaShape
    grid: GridLimits
    by_keys: bool
    matrices: int  # of the batch
    own: int  # lines of a matrix that workgroups keep
    other: int  # lines of a matrix that come in stages
    depth: int  # of queries and keys
    width: int  # of values and slopes
    masks: int  # of scores, one of which may be that lines end within a block
    dropped: bool  # whether weights are dropped, too

    @property
    def rows(self) -> int:
        """Lines of a workgroup."""
        return self.s.subgroups * self.high

    @property
    def high(self) -> int:
        """Lines of a subgroup."""
        return self.s.high * self.shape.m

    @property
    def threads(self) -> int:
        return self.s.subgroups * self.grid.subgroup

    @property
    def down(self) -> int:
        """Workgroups of a matrix."""
        return math.ceil(self.own / self.rows)

    @property
    def steps(self) -> int:
        """Steps along both operands that stay."""
        return (self.depth + self.width) // self.shape.k

    @property
    def registers(self) -> int:
        """32-bit registers of a thread for matrices, masks (a quarter of the size of scores,
        thrice with dropout) and the places of lines. Matrices are results, scores and
        slopes, half as many for those as operands, and what it multiplies."""
        elements = self.high * (self.depth + self.width * self.by_keys + 2 * self.s.block)
        halves = self.high * (self.s.block + self.s.held * self.shape.k)
        more = self.high * self.shape.k * (self.s.held < self.steps)
        more += self.high * self.s.block * (self.masks + 2 * self.dropped) // 2
        matrices = (2 * elements + halves + more) // (2 * self.grid.subgroup)
        return matrices + ATTENTION_GRADIENT_LINES * self.s.high * (1 + self.dropped)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        line = sum(pitch_of(n, self.shape) for n in (self.depth, self.width)) * self.shape.of.bytes
        numbers = 2 * f32.bytes * self.by_keys
        return (self.rows + self.s.stages * self.s.block) * line + (
            self.s.stages * self.s.block * numbers)

    def cost(self) -> float:
        """The estimated cycles of the busiest compute unit. It handles each copied byte twice: it
        loads the byte and stores it to shared memory. With few threads, loads and products do not
        overlap."""
        s, shape, unit = self.s, self.shape, self.grid.unit
        lines, elements = s.block * (self.depth + self.width), s.block * self.high
        added = elements * (2 * self.depth + (1 + self.by_keys) * self.width)
        own = self.high * (self.steps - s.held) * shape.k
        read = lines + s.block * (self.depth + self.width * self.by_keys) + own
        shared = (read + 2 * lines / s.subgroups) * shape.of.bytes / unit.shared_bytes
        issued = added / (shape.m * shape.n * shape.k) + read / (shape.n * shape.k) + (
            2 * ATTENTION_ELEMENT * elements) / self.grid.subgroup
        parts = shared, added / unit.subgroup_products, issued * ATTENTION_ISSUE
        step_cost = (max if self.overlaps else sum)(parts) * s.subgroups
        busiest = math.ceil(self.matrices * self.down / self.grid.compute_units)
        blocks = math.ceil(self.other / s.block)
        return busiest * blocks * (step_cost + ATTENTION_GRADIENT_BARRIER)

    @property
    def overlaps(self) -> bool:
        """Whether shared memory suffices for as many workgroups as registers of wide kernels."""
        room = self.grid.shared_rooms(2 * self.threads)[0]
        return self.shared <= room and 2 * self.threads <= self.grid.resident_threads


def blocks_of(s: GridAttentionGradientMatrixSchedule, region: Region,
              limits: Limits) -> GradientBlocks | None:
    """The lines of a schedule; None if the machine has no such products."""
    node, grid, sizes = region.members[0], limits.grid, sizes_of(region)
    assert grid is not None
    shape = matrix_shape(node.args[0].dtype, grid)
    if shape is None:
        return None
    own, other = line_counts(region)
    depth, width = (math.ceil(n / shape.k) * shape.k for n in padded(sizes, shape))
    attention = node.attrs["attention"]
    masks = (hidden_by(attention.score) is not None) + (other % max(1, s.block) > 0)
    dropped = masks > 0 and attention.dropout_mask is not None
    return GradientBlocks(s, shape, grid, node.attrs["by_keys"], sizes.matrices, own, other, depth,
                          width, masks, dropped)


def propose(region: Region, limits: Limits) -> GridAttentionGradientMatrixSchedule | None:
    """The fastest schedule that fits registers and shared memory."""
    fitting = []
    for subgroups, high, block, held in ATTENTION_GRADIENT_TILES:
        s = GridAttentionGradientMatrixSchedule(subgroups, high, block, ATTENTION_STAGES, held)
        blocks = blocks_of(s, region, limits)
        if blocks is not None and not refusal(s, region, limits):
            fitting.append((blocks.cost(), s))
    return min(fitting, key=lambda pair: pair[0], default=(0.0, None))[1]


def refusal(s: GridAttentionGradientMatrixSchedule, region: Region, limits: Limits) -> str:
    """Why a region cannot have a schedule; empty if it can."""
    grid, blocks = limits.grid, blocks_of(s, region, limits)
    assert grid is not None
    if blocks is None:
        return ("the machine does not multiply such matrices, or does not say which thread has "
                "which elements")
    if not 1 <= blocks.threads <= grid.threads or s.high < 1:
        return (f"subgroups({s.subgroups}) must be 1 to {grid.threads // grid.subgroup}, "
                f"high({s.high}) at least 1")
    if s.block < 1 or s.block % blocks.shape.k:
        return f"block({s.block}) must be a multiple of {blocks.shape.k}"
    if not 0 <= s.held <= blocks.steps:
        return f"held({s.held}) must be 0 to {blocks.steps}"
    if s.stages < 2:
        return f"stages({s.stages}) must be at least 2"
    if (count := blocks.registers) > ATTENTION_GRADIENT_REGISTERS:
        return f"a thread takes {count} registers of {ATTENTION_GRADIENT_REGISTERS}"
    needed = blocks.shared
    return f"it shares {needed} bytes of {grid.shared_bytes}" if needed > grid.shared_bytes else ""
