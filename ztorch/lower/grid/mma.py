"""Matrix products by matrix instructions of subgroups. A workgroup's tile is divided among its
subgroups, and each subgroup's part is a grid of fragments in registers. Strips in shared memory
have the layout of their operands, so that contiguous loads become contiguous stores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ztorch.dtypes import f16, i32
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import SWIZZLE_LINE, Fragment, MmaShape, Operand
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.grid.epilogue import Bands, Block
from ztorch.lower.grid.operands import contiguous_along_k
from ztorch.lower.grid.strips import Strips
from ztorch.lower.loops import summing
from ztorch.lower.region import Region
from ztorch.lower.tuning import (
    MMA_ALIGN_BYTES,
    MMA_PADDING,
    MMA_REGISTERS,
    MMA_STAGED_RATE,
    MMA_STAGED_SUMS,
    MMA_STAGES,
    SPLIT_FLOATS_GAIN,
)


@dataclass(frozen=True)
class MmaTile(Block):
    """The schedule of a product: a workgroup's tile, and the subgroups that share it."""

    shape: MmaShape
    down: int  # subgroups along the rows of the tile
    across: int  # subgroups along its columns
    subgroup: int  # threads of a subgroup
    bands: int = 1  # in which the finished tile passes through shared memory
    stages: int = 1  # strips in shared memory at once; 1: the next strips wait in registers
    padding: int = MMA_PADDING // 2  # elements between rows of the finished tile

    @property
    def threads(self) -> int:
        return self.down * self.across * self.subgroup

    @property
    def fragments_down(self) -> int:
        """Fragments of a subgroup along the rows of its part."""
        return self.rows // (self.down * self.shape.m)

    @property
    def fragments_across(self) -> int:
        """Fragments of a subgroup along the columns of its part."""
        return self.columns // (self.across * self.shape.n)

    @property
    def sum_registers(self) -> int:
        """32-bit registers for the sums of a thread."""
        bits = self.shape.m * self.shape.n * self.shape.into.bits  # of a fragment
        return self.fragments_down * self.fragments_across * (bits // (self.subgroup * i32.bits))

    @property
    def split_registers(self) -> int:
        """The same for the parts of a step along k that it holds at once: a matrix of the left
        strip, and all of the right."""
        if not self.shape.split:
            return 0
        elements = (self.shape.m + self.fragments_across * self.shape.n) * self.shape.k
        return self.shape.products * elements // self.subgroup

    @property
    def wide(self) -> bool:
        """Whether threads need twice as many registers as usual."""
        return self.sum_registers + self.split_registers > MMA_REGISTERS

    def fits(self, grid: GridLimits, loaded: int | None) -> bool:
        """Whether a thread has registers for its sums, and for `loaded` ones of strips; None:
        copies to shared memory pass none."""
        if loaded is not None:
            return self.sum_registers + self.split_registers + loaded <= MMA_REGISTERS
        fast = grid.unit.subgroup_products >= MMA_STAGED_RATE and not self.shape.split
        return self.sum_registers <= (MMA_STAGED_SUMS if fast else MMA_REGISTERS)

    def resident_threads(self, grid: GridLimits) -> int:
        """Threads of a compute unit for which registers suffice."""
        return grid.resident_threads // 2 if self.wide else grid.resident_threads

    @property
    def pitch(self) -> int:
        """Elements between rows of the finished tile in shared memory."""
        return self.columns + self.padding

    @property
    def swizzled(self) -> bool:
        """Whether strips are in swizzled memory, which needs copies of whole lines."""
        line = SWIZZLE_LINE // self.shape.of.bytes
        return self.stages > 1 and self.shape.of.bits == f16.bits and not any(
            n % line for n in (self.rows, self.columns)) and self.depth == line

    @property
    def shared(self) -> int:
        """Bytes of shared memory, for either layout of the operands."""
        strips = (self.rows + self.columns) * self.depth if self.swizzled else sum(
            max(length * _deep_pitch(self), self.depth * (length + MMA_PADDING))
            for length in (self.rows, self.columns))
        sums = self.rows // self.bands * self.pitch
        return self.stages * strips * self.shape.of.bytes + sums * self.shape.into.bytes

    def staged(self, grid: GridLimits, k: int) -> MmaTile:
        """The tile with the most stages, and then the fewest bands, that leave shared memory for as
        many workgroups of the compute unit as possible; a wide one is alone. Strips as deep as a
        line of swizzled memory come first. With one stage strips would wait in registers, which
        costs more than having fewer workgroups."""
        line = SWIZZLE_LINE // self.shape.of.bytes
        for room in grid.shared_rooms(grid.resident_threads if self.wide else self.threads):
            deep = replace(self, depth=line)._in_stages(room, k)
            if deep.swizzled and k > line:
                return deep
            tile = self._in_stages(room, k)
            if tile.stages > 1:
                return tile
        return self

    def _in_stages(self, room: int, k: int) -> MmaTile:
        """The same in a number of bytes; one stage if no more fit."""
        most = min(MMA_STAGES, math.ceil(k / self.depth) + 1)
        bands = [n for n in range(self.bands, self.fragments_down + 1)
                 if self.fragments_down % n == 0]
        fitting = (tile for n, m in itertools.product(range(most, 1, -1), bands)
                   if (tile := replace(self, stages=n, bands=m)).shared <= room)
        return next(fitting, self)

    def padded(self, grid: GridLimits) -> MmaTile:
        """The tile with the padding with which stores of pairs have no bank conflicts, if as many
        workgroups share a compute unit as without it."""
        wide = replace(self, padding=MMA_PADDING)
        costs = any(self.shared <= room < wide.shared
                   for room in (grid.declared_shared_bytes, *grid.shared_rooms(self.threads)))
        return self if costs else wide

    def banded(self, shared_bytes: int) -> MmaTile:
        """The tile with the fewest bands that fit in shared memory."""
        fitting = (tile for n in range(1, self.fragments_down + 1) if self.fragments_down % n == 0
                   and (tile := replace(self, bands=n)).shared <= shared_bytes)
        return next(fitting, self)


def _deep_pitch(tile: MmaTile) -> int:
    return tile.depth + MMA_ALIGN_BYTES // tile.shape.of.bytes


def shape_for(product: Value, limits: Limits) -> MmaShape | None:
    """The first shape of matrix instructions that multiplies the operands of a product, in their
    own dtype or in that of the sums, with the precision that the user asks for."""
    assert limits.grid is not None
    into, mantissa_bits = summing(product.dtype), limits.product_mantissa_bits
    mantissa_bits = min(mantissa_bits, product.attrs.get("mantissa_bits", mantissa_bits))
    for shape in limits.grid.mma_shapes:
        exact = shape.mantissa_bits == 0 or shape.mantissa_bits >= mantissa_bits
        if exact and gains(shape, limits.grid) and shape.into == into and all(
                a.dtype == shape.of or summing(a.dtype) == shape.of for a in product.args):
            return shape
    return None


def gains(shape: MmaShape, grid: GridLimits) -> bool:
    """Whether matrix instructions are faster than threads: three products of parts may not be."""
    least = shape.products * SPLIT_FLOATS_GAIN * grid.unit.f32
    return not shape.split or grid.unit.subgroup_tf32 >= least


class MatrixNest(Strips):
    """A tile whose subgroups multiply matrices."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: MmaTile):
        super().__init__(b, region, product, memory, target, limits, tile, tile.shape.of,
                         tile.stages)
        self.tile = tile
        for side, length in enumerate((tile.rows, tile.columns)):
            if tile.swizzled:
                self.swizzled_strip(tile.depth, length, contiguous_along_k(product, side))
            elif contiguous_along_k(product, side):
                self.strip(_deep_pitch(tile), length, along_k=True)
            else:
                self.strip(length + MMA_PADDING, tile.depth)

    def run(self, batch_number: Operand, first: Operand, left: Operand, t: Operand) -> None:
        b, tile, shape = self.b, self.tile, self.tile.shape
        c = Fragment("c", shape)
        sums = [[b.matrix(c, tile.subgroup, 0) for _ in range(tile.fragments_across)]
                for _ in range(tile.fragments_down)]
        at, batch = self.batch_index(batch_number)
        number = b.div(t, tile.subgroup)
        row = b.mul(b.div(number, tile.across), tile.fragments_down * shape.m)
        column = b.mul(b.rem(number, tile.across), tile.fragments_across * shape.n)

        def multiply(stage: Operand) -> None:
            for d in range(0, tile.depth, shape.k):
                lefts: Iterable[Operand] = (self._matrix(0, stage, row, i * shape.m, d)
                                            for i in range(tile.fragments_down))
                if not shape.split:  # parts take many registers: they are loaded one by one
                    lefts = [*lefts]
                rights = [self._matrix(1, stage, column, j * shape.n, d)
                          for j in range(tile.fragments_across)]
                for i, x in enumerate(lefts):
                    for j, y in enumerate(rights):
                        b.set(sums[i][j], b.mma(x, y, b.get(sums[i][j])))

        def store(array: str, band: int) -> None:
            share = tile.fragments_down // tile.bands
            line = b.mul(b.div(number, tile.across), share * shape.m)
            start = b.add(b.mul(line, tile.pitch), column)
            for i in range(share):
                for j, v in enumerate(sums[band * share + i]):
                    b.mma_store(array, start, b.get(v), tile.pitch,
                                off=i * shape.m * tile.pitch + j * shape.n,
                                align=2 * shape.into.bytes)

        self.run_along_k(at, batch, first, left, t, multiply)
        bands = Bands(tile.rows, tile.columns, tile.fragments_down * shape.m, tile.bands,
                      tile.pitch)
        self.tile_epilogue(bands, shape.into, at, batch, first, left, t, store)

    def _matrix(self, side: int, stage: Operand, start: Operand, line: int, d: int) -> Operand:
        """A fragment from a stage of a strip: `line` after the start of the subgroup's part, d
        along k."""
        b, strip, tile = self.b, self.strips[side], self.tile
        share = tile.columns // tile.across if side else tile.rows // tile.down
        off = line * strip.pitch + d if strip.along_k else d * strip.pitch + line
        if strip.along_k:
            index = b.mul(start, strip.pitch)
        elif strip.panel and strip.pitch % share:  # a subgroup's part may go on in another panel
            off -= line
            index = strip.offset(b, b.const(0, b.index), b.add(start, line))
        else:
            index = strip.offset(b, b.const(0, b.index), start)
        index = b.add(b.mul(stage, strip.size), index)
        return b.mma_load(strip.name, index, Fragment("ab"[side], self.tile.shape),
                          self.tile.subgroup, strip.pitch, transposed=strip.along_k == (side == 1),
                          off=off, align=MMA_ALIGN_BYTES)
