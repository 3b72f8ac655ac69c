"""Parts of the loops along k of a product, over which the tiles of a row block pass in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.lower.cpu.left_operand import AccessPattern, steps_per_iteration
from ztorch.lower.index import Var
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import BLOCK_DEPTH_SHARE, BLOCK_SUMS_BYTES, L2_SHARE, LINE_BYTES
from ztorch.machines.processors import Processor


@dataclass(frozen=True)
class PartOfK:
    """A range of one of the loops along k, at one iteration of the loops around it."""

    axis: int  # the loop
    begin: Operand | int
    end: Operand | int
    around: dict[Var, Operand] = field(default_factory=dict)  # counters of the loops around it

    def pieces(self, b: Builder, depths: tuple[int, ...],
               unroll: int) -> Iterator[tuple[Operand | int, Operand | int, int]]:
        """The pieces of the innermost loop along k: begin, end, and steps per iteration.

        Args:
            b: The builder.
            depths: Extents of the loops along k, outermost first.
            unroll: Steps in one iteration, as a schedule has them.
        """
        k, steps = depths[-1], steps_per_iteration(depths, unroll)
        main = k // steps * steps  # the steps of whole iterations
        if self.axis < len(depths) - 1 or isinstance(self.begin, int):
            yield from (p for p in ((0, main, steps), (main, k, 1)) if p[0] < p[1])
            return
        if main:
            yield self.begin, b.min(self.end, main) if main < k else self.end, steps
        if main < k:
            yield b.max(self.begin, main), self.end, 1


def outer_loops(depths: tuple[int, ...]) -> list[Var]:
    """All loops along k but the innermost."""
    return [Var(f"k{a}", n) for a, n in enumerate(depths[:-1])]


def parts_of_k(b: Builder, depths: tuple[int, ...], s: ProductSchedule) -> Iterator[PartOfK]:
    """The parts that a schedule asks for, in loops."""
    axis, size = part_of_k(depths, s.block_depth, s.unroll)
    extent = depths[axis]
    with ExitStack() as stack:
        around = {v: stack.enter_context(b.loop(0, v.extent)) for v in outer_loops(depths)[:axis]}
        begin = stack.enter_context(b.loop(0, extent, size))
        end = b.add(begin, size)
        yield PartOfK(axis, begin, b.min(end, extent) if extent % size else end, around)


def part_of_k(depths: tuple[int, ...], steps: int, unroll: int) -> tuple[int, int]:
    """The loop along k whose ranges are parts of at most some steps, and the length of a range:
    the outermost loop of which one iteration has no more steps. A range of the innermost loop
    consists of whole iterations of the code.

    >>> part_of_k((1024,), 256, 4), part_of_k((3, 384), 256, 4), part_of_k((3, 3, 64), 256, 4)
    ((0, 256), (1, 192), (0, 1))
    """
    last = len(depths) - 1
    axis = next(a for a in range(last + 1) if math.prod(depths[a + 1:]) <= max(1, steps))
    least = math.ceil(depths[axis] / max(1, steps // math.prod(depths[axis + 1:])))
    size = math.ceil(depths[axis] / least)
    if axis == last:
        unit = steps_per_iteration(depths, unroll)
        size = math.ceil(size / unit) * unit
    return axis, size


def most_block_rows(s: ProductSchedule, vector_bytes: int) -> int:
    """The most row tiles of a block whose sums wait on the stack for the next part of k.

    >>> most_block_rows(ProductSchedule(14, 2, 1, 0, 0, 0, 4, 1), 64)
    146
    """
    return max(1, BLOCK_SUMS_BYTES // (s.tile_rows * s.tile_vectors * vector_bytes))


def in_blocks_along_k(s: ProductSchedule, m: int, k: int, access: AccessPattern, distance: int,
                      vector_bytes: int, cpu: Processor) -> ProductSchedule:
    """The schedule with blocks along k if its tiles would evict lines of A that the next panel
    reads again, or lines of the panel of B that the next tile does.

    Args:
        s: A schedule.
        m: Rows of A.
        k: Columns of A.
        access: The access pattern of A.
        distance: The distance of its steps along k in bytes, as `step_distance` gives it.
        vector_bytes: The size of a vector of sums.
        cpu: The processor.
    """
    way_bytes = cpu.l2_bytes // cpu.l2_ways
    lines = cpu.l2_bytes // max(LINE_BYTES, math.gcd(distance, way_bytes))
    down = sum(run.tiles for run in access.runs(m, s.tile_rows))
    most = most_block_rows(s, vector_bytes)
    step_bytes = LINE_BYTES + s.tile_vectors * vector_bytes
    fits = k <= lines and k * step_bytes <= cpu.l2_bytes * L2_SHARE
    if distance < LINE_BYTES or fits or min(down, most) < 2:
        return s
    rows = math.ceil(down / math.ceil(down / most))
    if k <= lines:  # only the panel of B is too large: few tiles read each part again
        rows = max(2, min(rows, s.block_rows))
    return replace(s, block_rows=rows,
                   block_depth=int(cpu.l1_bytes * BLOCK_DEPTH_SHARE) // LINE_BYTES)
