"""Patches of positions in images, and the tiles of a convolution that consist of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ztorch.ir.kernel import SWIZZLE_LINE, SWIZZLE_REPEAT
from ztorch.ir.limits import GridLimits
from ztorch.lower.grid.role_tiles import RolesTile
from ztorch.lower.grid.window_axes import WindowAxes
from ztorch.lower.index import Var
from ztorch.lower.tuning import (
    PARTS_REGISTERS,
    WINDOW_FINISH_SHARE,
    WINDOW_PASSES,
)

REPEAT = SWIZZLE_REPEAT // SWIZZLE_LINE  # lines after which a swizzle repeats


@dataclass(frozen=True)
class Patch:
    """A patch of positions: lines of a strip."""

    sizes: dict[Var, int]  # of each part, in the order of lines, the outermost first
    tap: Var | None  # the window's axis along which strips reach further, if any
    step: int = 0  # how far it moves along the outermost part

    @property
    def taps(self) -> int:
        return self.tap.extent if self.tap else 1

    @property
    def positions(self) -> int:
        return math.prod(self.sizes.values())

    @property
    def outermost(self) -> Var:
        return next(iter(self.sizes))

    @property
    def reach(self) -> int:
        """How far a strip extends beyond the patch along its outermost part."""
        return (self.taps - 1) * self.step

    @property
    def box_lines(self) -> dict[Var, int]:
        """The lines of a box that holds the strip, by part."""
        return {**self.sizes, self.outermost: self.sizes[self.outermost] + self.reach}

    @property
    def shift(self) -> int:
        """Lines from one position of a window to the next."""
        return self.step * self.positions // self.sizes[self.outermost]

    @property
    def lines(self) -> int:
        return self.positions + self.reach * self.positions // self.sizes[self.outermost]

    @property
    def count(self) -> int:
        """The number of patches that cover all positions."""
        return math.prod(math.ceil(v.extent / n) for v, n in self.sizes.items())


@dataclass(frozen=True)
class WindowTile(RolesTile):
    """A tile: one patch or several; its `depth` is that of one position of a window."""

    patch: Patch = Patch({}, None)
    deep: bool = False  # whether positions are steps along k

    @property
    def used(self) -> int:
        return super().used + (PARTS_REGISTERS if self.shape.split else 0)

    @property
    def patches(self) -> int:
        """Patches whose positions are the rows of a tile."""
        return 1 if self.deep else self.rows // self.patch.positions

    @property
    def repeats(self) -> int:
        """Positions of a window whose products add to the same sums."""
        return 1 if self.deep else self.patch.taps

    @property
    def left_lines(self) -> int:
        """Lines of a strip of the left operand, all panels together."""
        return self.patch.lines * self.left_panels

    @property
    def left_panels(self) -> int:
        """Panels of a strip of the left operand, each of which is a box."""
        if self.deep:
            return self.rows // (SWIZZLE_LINE // self.shape.of.bytes * self.patch.taps)
        return self.patches

    @property
    def panels_shared(self) -> bool:
        """Whether workgroups that share a strip of the left operand copy whole panels of it."""
        return self.deep and self.left_panels % self.cluster_columns == 0

    @property
    def shared_part(self) -> tuple[Var, int] | None:
        """The outermost part of a box of the left operand with several lines, of which each
        workgroup that shares it copies so many; None if these are not whole lines."""
        v, size = next((v, n) for v, n in self.patch.box_lines.items() if n > 1)
        share, rest = divmod(size, self.cluster_columns)
        lines = share * self.patch.lines // size
        return None if rest or lines % REPEAT else (v, share)

    @property
    def right_size(self) -> int:
        """Elements of the strip of the right operand, for one position of a window, all parts
        together."""
        return self.columns * self.depth * self.shape.parts

    @property
    def stage_bytes(self) -> int:
        line = SWIZZLE_LINE // self.shape.of.bytes
        return (self.left_lines * line + self.repeats * self.right_size) * self.shape.of.bytes

    def down(self, w: WindowAxes) -> int:
        """The number of tiles below one another. The last ones of a cluster may be empty."""
        if not self.deep:
            patches = self.patches * self.cluster_rows
            return math.ceil(self.patch.count / patches) * self.cluster_rows
        rows = math.prod(v.extent for v in w.m)
        return math.ceil(rows / self.rows)

    def strips(self, w: WindowAxes) -> int:
        """The number of strips along k."""
        if self.deep:
            return self.patch.count
        *places, channels = w.k
        others = math.prod(v.extent for v in places if v != self.patch.tap)
        return others * math.ceil(channels.extent / self.depth)

    def cycles(self, w: WindowAxes, n: int, batch: int, grid: GridLimits) -> float:
        """The estimated cycles of the workgroup with the most tiles."""
        depth, size, count = self.depth * self.repeats, self.shape.of.bytes, self.shape.products
        read = depth * (self.rows + self.teams * self.columns * count) * size
        right = self.repeats * self.right_size * size
        rate = grid.unit.tf32 if self.shape.split else grid.unit.products
        products = self.rows * self.columns * depth * count / rate
        left = (self.stage_bytes - right) / self.cluster_columns
        from_l2 = (left + right / self.cluster_rows) / grid.unit.l2_bytes
        strip = max(products, from_l2, (products + grid.unit.copy_cycles) / self.stages)
        shared = (self.stage_bytes + read) / grid.unit.shared_bytes
        tiles = self.down(w) * math.ceil(n / self.columns) * batch
        strips, finish = self.strips(w), self.finish(grid)
        return math.ceil(tiles / grid.compute_units) * max(
            strips * strip + WINDOW_FINISH_SHARE * finish, strips * shared + finish)

    def finish(self, grid: GridLimits) -> float:
        """The estimated cycles in which a finished tile passes through shared memory and out: with
        more bands, a subgroup touches more lines of the result."""
        lines = self.subgroup * grid.load_width * self.bands / self.columns
        passed = WINDOW_PASSES * self.shape.into.bytes / grid.unit.shared_bytes
        return self.rows * self.columns * (passed + lines / (self.subgroup * grid.load_width))
