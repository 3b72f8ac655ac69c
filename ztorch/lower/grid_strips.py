"""What every schedule of a matrix product does on a machine of workgroups: strips of the operands
into memory that threads share, and the epilogue of each element.

Operands are read element by element wherever their views say, so transposes, windows of a
convolution and paddings need no copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import where
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate
from ztorch.lower.positions import beside, flatten, unflatten
from ztorch.lower.region import Region, certain, view_of


@dataclass(frozen=True)
class Block:
    """What a workgroup computes of a product at once."""

    rows: int  # of its tile
    columns: int  # of its tile
    depth: int  # steps along k of each strip

    @property
    def threads(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class Strip:
    """A strip of an operand in shared memory."""

    name: str  # of the memory
    pitch: int  # elements from one line to the next
    deep: bool  # neighbours are neighbours along k, else along the tile


class Strips:
    """One workgroup's tile of a product: what its operands are, and where its results go."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Block, of: DType):
        """`of` is the dtype that the strips are held in."""
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits = memory, target, limits
        self.area, self.of = tile, of
        self.m, self.n = product.shape[-2:]
        self.k = product.args[0].shape[-1]
        self.strips: list[Strip] = []

    def strip(self, pitch: int, lines: int, deep: bool = False) -> None:
        """The shared memory for the strip of the next operand."""
        name = self.b.memory(f"strip_{'ab'[len(self.strips)]}", self.of, lines * pitch, "shared",
                             "rw")
        self.strips.append(Strip(name, pitch, deep))

    def lead(self, which: Operand) -> tuple[dict[Var, Operand], tuple[Index, ...]]:
        """Which of a batch of products this is: as what expressions are bound to, as indices."""
        shape = self.product.shape[:-2]
        batch = Var("b", math.prod(shape))
        return {batch: which}, unflatten(Index.of(batch), shape)

    def bring(self, side: int, lead: tuple[Index, ...], at: dict[Var, Operand], start: Operand,
              k: Operand, t: Operand) -> None:
        """A strip of an operand into shared memory; zeros beyond its edges. Neighbouring threads
        read neighbours in memory, several at once where these are sure to lie side by side."""
        b, tile = self.b, self.area
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        deep, strip = self.lies_along_k(side), self.strips[side]
        n = self._together(side, deep)
        across, down = (tile.depth // n, length) if deep else (length // n, tile.depth)
        count = math.ceil(across * down / tile.threads)
        for turn in range(count):
            number = b.add(t, turn * tile.threads)
            inner, outer = b.mul(b.rem(number, across), n), b.div(number, across)
            line, d = (outer, inner) if deep else (inner, outer)
            over = (turn + 1) * tile.threads > across * down
            with where(b, b.lt(number, across * down) if over else None):
                x, kk = b.add(start, line), b.add(k, d)
                tests = [b.lt(p, most) for p, most, step in (
                    (x, extent, length), (kk, self.k, tile.depth)) if most % step]
                inside = functools.reduce(b.and_, tests) if tests else None
                values = self._elements(side, lead, at, x, kk, inside, deep, n)
                far, near = (line, d) if strip.deep else (d, line)
                offset = b.add(b.mul(far, strip.pitch), near)
                step = 1 if deep == strip.deep else strip.pitch
                for i, value in enumerate(values):
                    align = value.lanes * self.of.bytes if value.lanes > 1 else 0
                    b.store(strip.name, offset, value, off=i * step, align=align)

    def _elements(self, side: int, lead: tuple[Index, ...], at: dict[Var, Operand], x: Operand,
                  kk: Operand, inside: Operand | None, deep: bool, n: int) -> list[Operand]:
        """n neighbours of an operand, along k if it is deep; zeros where they are not inside."""
        b, operand = self.b, self.product.args[side]
        line, other = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
        e = Emitter(b, self.memory, {**at, line: x, other: kk}, members=self.region.flat)
        index = (*lead, Index.of(line), Index.of(other)) if side == 0 else (
            *lead, Index.of(other), Index.of(line))
        if n == 1:
            element = b.cast(e.element(operand, index, inside), dtype=self.of)
            plain = inside is None or operand in self.memory  # a masked load is zero by itself
            return [element if plain else b.select(inside, element, 0)]
        base = view_of(operand, index)
        assert base is not None
        at_first = base[1]
        if not at_first.is_affine:  # in multiples of n, so that it is seen to be one
            axis, position = (other, kk) if deep else (line, x)
            begin = beside(at_first, axis, n)
            assert begin is not None
            at_first = begin
            block = Var(axis.name, axis.extent // n)
            e = e.within(bound={**e.bound, block: b.div(position, n)})
        offset = e.value(at_first)
        if inside is not None:
            offset = b.select(inside, offset, 0)
        together = b.load(self.memory[base[0]], offset, lanes=n, align=n * base[0].dtype.bytes)
        values, whole = [together], self.whole(side) > 1
        if together.dtype != self.of or not whole:
            values = [b.cast(b.extract(together, i), dtype=self.of) for i in range(n)]
            values = [b.join(*values)] if whole else values
        return values if inside is None else [b.select(inside, v, 0) for v in values]

    def _together(self, side: int, deep: bool) -> int:
        """How many neighbours one thread loads at once: the machine's load width, half of it, or 1.

        Neighbours must lie side by side, aligned, and all inside or all outside the matrix. Half
        the width is worth it only if every thread still has something to load, or if only vector
        stores can be read back as vectors.
        """
        assert self.limits.grid is not None
        operand, tile = self.product.args[side], self.area
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        loops = [Var(f"d{i}", size) for i, size in enumerate(operand.shape)]
        index = [Index.of(v) for v in loops]
        base = view_of(operand, index)
        step, most = (tile.depth, self.k) if deep else (length, extent)
        if base is None or not certain(operand, index):
            return 1
        widest = self.limits.grid.load_width
        vector_stores_only = not self.limits.grid.scalar_stores_readable_as_vectors
        busy = length * tile.depth >= widest // 2 * tile.threads  # every thread, at half the width
        widths = [widest, widest // 2] if vector_stores_only or busy else [widest]
        for n in widths if widest > 1 else ():
            first = beside(base[1], loops[-1 if deep == (side == 0) else -2], n)
            if first is not None and not any(f % n for f in (
                    step, most, base[0].size, *(f for _, f in first.terms), first.const)):
                return n
        return 1

    def whole(self, side: int) -> int:
        """How many neighbours one store writes, on a machine where only vector stores can be read
        back as vectors; else 1. Elements that are converted are joined again, always by fours."""
        assert self.limits.grid is not None
        n = self._together(side, self.lies_along_k(side))
        as_it_is = self.product.args[side].dtype == self.of
        vector_stores_only = not self.limits.grid.scalar_stores_readable_as_vectors
        return n if vector_stores_only and (as_it_is or n == 4) else 1

    def lies_along_k(self, side: int) -> bool:
        """Whether neighbours in memory are neighbours along k, all of them or in twos or threes:
        channels below a place of a window."""
        operand = self.product.args[side]
        axes = [Var(f"d{i}", n) for i, n in enumerate(operand.shape)]
        base = view_of(operand, [Index.of(v) for v in axes])
        along_k = axes[-1] if side == 0 else axes[-2]
        return base is not None and (base[1].factor(along_k) == 1 or any(
            self.k % n == 0 and beside(base[1], along_k, n) is not None for n in (2, 3)))

    # -- the epilogue ----------------------------------------------------------------------------

    def sweep(self, array: str, pitch: int, at: dict[Var, Operand], lead: tuple[Index, ...],
              first: Operand, left: Operand, t: Operand) -> None:
        """The epilogue of a finished tile in shared memory: so it stands once, in a loop, and
        neighbouring threads have neighbouring elements."""
        b, tile = self.b, self.area
        b.barrier()
        with b.loop(t, tile.rows * tile.columns, tile.threads) as number:
            offset = number
            if pitch != tile.columns:
                line = b.mul(b.div(number, tile.columns), pitch)
                offset = b.add(line, b.rem(number, tile.columns))
            x = b.cast(b.load(array, offset), dtype=self.product.dtype)
            self.finish(at, lead, b.add(first, b.div(number, tile.columns)),
                        b.add(left, b.rem(number, tile.columns)), x)
        b.barrier()  # before another tile's sums

    def finish(self, at: dict[Var, Operand], lead: tuple[Index, ...], row: Operand,
               column: Operand, x: Operand) -> None:
        """The epilogue of one element."""
        b, inside = self.b, None
        for offset, extent, step in ((row, self.m, self.area.rows),
                                    (column, self.n, self.area.columns)):
            if extent % step:
                test = b.lt(offset, extent)
                inside = test if inside is None else b.and_(inside, test)
        m, n = Var("m", self.m), Var("n", self.n)
        with where(b, inside):
            e = Emitter(b, self.memory, {**at, m: row, n: column}, members=self.region.flat)
            e.here[self.product] = x
            flat = flatten((*lead, Index.of(m), Index.of(n)), self.product.shape)
            evaluate(e, self.region.members, self.region, {self.region.outer: flat}, self.target)
