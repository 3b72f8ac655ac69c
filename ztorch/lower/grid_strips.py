"""The parts that all matrix products on GPUs share: bringing strips of the operands into shared
memory, and the epilogue of a finished tile.

Operands are read through their views, so transposes, windows of a convolution and paddings need no
copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid import can_be_wide, where
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate
from ztorch.lower.positions import beside, flatten, unflatten
from ztorch.lower.region import Region, certain, view_of


@dataclass(frozen=True)
class Block:
    """The tile of a product that a workgroup computes."""

    rows: int  # of the tile
    columns: int  # of the tile
    depth: int  # steps along k of one strip

    @property
    def threads(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class Strip:
    """A strip of an operand in shared memory."""

    name: str  # of the memory
    pitch: int  # elements from one line to the next
    along_k: bool  # whether lines run along k; else along the tile


@dataclass(frozen=True)
class StripPart:
    """What a thread has loaded of a strip, on its way to shared memory."""

    memory: str  # the strip's
    active: Operand | None  # whether the thread has such a part; None: all have
    offset: Operand  # in the strip, of the first element
    step: int  # elements from one value to the next in the strip
    values: list[Operand]


@dataclass(frozen=True)
class Bands:
    """How a finished tile passes through shared memory. Of each block of neighbouring rows that
    threads hold together, every band has an equal share."""

    rows: int  # of the tile
    block: int  # rows that the same threads hold
    count: int  # bands
    pitch: int  # elements from one line in shared memory to the next

    @property
    def lines(self) -> int:
        """Rows of one band."""
        return self.rows // self.count

    def row(self, b: Builder, line: Operand, band: int) -> Operand:
        """The row in the tile of a line of a band."""
        share = self.block // self.count
        if self.count == 1:
            return line
        start = b.add(b.mul(b.div(line, share), self.block), band * share)
        return b.add(start, b.rem(line, share))


class Strips:
    """Emits a workgroup's tile of a product."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Block, of: DType):
        """`of` is the dtype of the strips."""
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits = memory, target, limits
        self.block, self.of = tile, of
        self.m, self.n = product.shape[-2:]
        self.k = product.args[0].shape[-1]
        self.strips: list[Strip] = []

    def strip(self, pitch: int, lines: int, along_k: bool = False) -> None:
        """Declares the shared memory for the strip of the next operand."""
        name = self.b.memory(f"strip_{'ab'[len(self.strips)]}", self.of, lines * pitch, "shared",
                             "rw")
        self.strips.append(Strip(name, pitch, along_k))

    def batch_index(self, number: Operand) -> tuple[dict[Var, Operand], tuple[Index, ...]]:
        """The position in the batch of product `number`: a binding, and indices that use it."""
        shape = self.product.shape[:-2]
        var = Var("b", math.prod(shape))
        return {var: number}, unflatten(Index.of(var), shape)

    def run_along_k(self, at: dict[Var, Operand], batch: tuple[Index, ...], first: Operand,
                    left: Operand, t: Operand, multiply: Callable[[], None]) -> None:
        """Brings strip after strip along k into shared memory, and has each multiplied.

        The next strips are on their way into registers while the present ones are multiplied.
        """
        b, depth = self.b, self.block.depth
        last = (self.k - 1) // depth * depth

        def loaded(k: Operand) -> list[StripPart]:
            return [*self._loaded(0, batch, at, first, k, t),
                    *self._loaded(1, batch, at, left, k, t)]

        self._store(loaded(b.const(0, b.index)))
        b.barrier()
        if last:
            with b.loop(0, last, depth) as k:
                ahead = loaded(b.add(k, depth))
                multiply()
                b.barrier()
                self._store(ahead)
                b.barrier()
        multiply()
        b.barrier()  # before the strips of another tile

    def _loaded(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand],
                start: Operand, k: Operand, t: Operand) -> list[StripPart]:
        """Loads a thread's parts of a strip of an operand, with zeros outside the operand.

        Neighbouring threads read neighbouring elements. Each thread loads several at once if they
        are known to be contiguous.
        """
        b, tile = self.b, self.block
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        along_k, strip = self.lies_along_k(side), self.strips[side]
        n = self._load_width(side, along_k)
        columns, rows = (tile.depth // n, length) if along_k else (length // n, tile.depth)
        parts = []
        for turn in range(math.ceil(columns * rows / tile.threads)):
            number = b.add(t, turn * tile.threads)
            inner, outer = b.mul(b.rem(number, columns), n), b.div(number, columns)
            line, d = (outer, inner) if along_k else (inner, outer)
            partial = (turn + 1) * tile.threads > columns * rows
            active = b.lt(number, columns * rows) if partial else None
            x, depth = b.add(start, line), b.add(k, d)
            tests = [b.lt(p, end) for p, end, step in (
                (x, extent, length), (depth, self.k, tile.depth)) if end % step]
            tests += [active] if active is not None else []
            inside = functools.reduce(b.and_, tests) if tests else None
            values = self._elements(side, batch, at, x, depth, inside, along_k, n)
            major, minor = (line, d) if strip.along_k else (d, line)
            offset = b.add(b.mul(major, strip.pitch), minor)
            step = 1 if along_k == strip.along_k else strip.pitch
            parts.append(StripPart(strip.name, active, offset, step, values))
        return parts

    def _store(self, parts: Sequence[StripPart]) -> None:
        """Stores what was loaded of strips into shared memory."""
        b = self.b
        for part in parts:
            with where(b, part.active):
                for i, value in enumerate(part.values):
                    align = value.lanes * self.of.bytes if value.lanes > 1 else 0
                    b.store(part.memory, part.offset, value, off=i * part.step, align=align)

    def _elements(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand], x: Operand,
                  depth: Operand, inside: Operand | None, along_k: bool, n: int) -> list[Operand]:
        """n neighbours of an operand, along k or else along the tile; zeros if not `inside`."""
        b, operand = self.b, self.product.args[side]
        line, step = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
        e = Emitter(b, self.memory, {**at, line: x, step: depth}, members=self.region.flat)
        index = (*batch, Index.of(line), Index.of(step)) if side == 0 else (
            *batch, Index.of(step), Index.of(line))
        if n == 1:
            element = b.cast(e.element(operand, index, inside), dtype=self.of)
            is_zero = inside is None or operand in self.memory  # outside: a masked load gives zero
            return [element if is_zero else b.select(inside, element, 0)]
        base = view_of(operand, index)
        assert base is not None
        at_first = base[1]
        if not at_first.is_affine:  # as a multiple of n, so that the alignment is known
            axis, position = (step, depth) if along_k else (line, x)
            begin = beside(at_first, axis, n)
            assert begin is not None
            at_first = begin
            block = Var(axis.name, axis.extent // n)
            e = e.within(bound={**e.bound, block: b.div(position, n)})
        offset = e.value(at_first)
        if inside is not None:
            offset = b.select(inside, offset, 0)
        vector = b.load(self.memory[base[0]], offset, lanes=n, align=n * base[0].dtype.bytes)
        values, as_vector = [vector], self.store_width(side) > 1
        if vector.dtype != self.of or not as_vector:
            values = [b.cast(b.extract(vector, i), dtype=self.of) for i in range(n)]
            values = [b.join(*values)] if as_vector else values
        return values if inside is None else [b.select(inside, v, 0) for v in values]

    def _load_width(self, side: int, along_k: bool) -> int:
        """How many neighbours a thread loads at once: the machine's load width, half of it, or 1.

        They must be contiguous, aligned, and all inside or all outside the matrix. Half the width
        pays only if every thread still has something to load, or if the machine can read back as
        vectors only what was stored as vectors.
        """
        assert self.limits.grid is not None
        operand, tile = self.product.args[side], self.block
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        loops = [Var(f"d{i}", size) for i, size in enumerate(operand.shape)]
        index = [Index.of(v) for v in loops]
        base = view_of(operand, index)
        step, extent = (tile.depth, self.k) if along_k else (length, extent)
        if base is None or not certain(operand, index):
            return 1
        widest = self.limits.grid.load_width
        vector_stores_only = not self.limits.grid.scalar_stores_readable_as_vectors
        busy = length * tile.depth >= widest // 2 * tile.threads  # all threads, at half the width
        widths = [widest, widest // 2] if vector_stores_only or busy else [widest]
        for n in widths if widest > 1 else ():
            first = beside(base[1], loops[-1 if along_k == (side == 0) else -2], n)
            if first is not None and not any(f % n for f in (
                    step, extent, base[0].size, *(f for _, f in first.terms), first.const)):
                return n
        return 1

    def store_width(self, side: int) -> int:
        """How many neighbours one store to a strip writes.

        1, unless the machine can read back as vectors only what was stored as vectors. Converted
        elements are joined again by fours only.
        """
        assert self.limits.grid is not None
        n = self._load_width(side, self.lies_along_k(side))
        same_dtype = self.product.args[side].dtype == self.of
        vector_stores_only = not self.limits.grid.scalar_stores_readable_as_vectors
        return n if vector_stores_only and (same_dtype or n == 4) else 1

    def lies_along_k(self, side: int) -> bool:
        """Whether neighbours in memory are neighbours along k: all, or groups of two or three, such
        as the channels at one position of a window."""
        operand = self.product.args[side]
        axes = [Var(f"d{i}", n) for i, n in enumerate(operand.shape)]
        base = view_of(operand, [Index.of(v) for v in axes])
        axis = axes[-1] if side == 0 else axes[-2]
        return base is not None and (base[1].factor(axis) == 1 or any(
            self.k % n == 0 and beside(base[1], axis, n) is not None for n in (2, 3)))

    # -- the epilogue ----------------------------------------------------------------------------

    def tile_epilogue(self, bands: Bands, dtype: DType, at: dict[Var, Operand],
                      batch: tuple[Index, ...], first: Operand, left: Operand, t: Operand,
                      store: Callable[[str, int], None]) -> None:
        """The epilogue of a finished tile, which passes through shared memory in bands.

        `store(array, band)` has every thread leave its share of a band there. What follows is a
        loop, so its code is emitted once a band, and neighbouring threads have neighbouring
        elements, several at once where they lie side by side.

        Args:
            bands: How the tile is cut.
            dtype: That of the sums.
            at: Bindings of the number in the batch.
            batch: The position in the batch.
            first: The first row of the tile.
            left: Its first column.
            t: The number of the thread.
            store: Emits the stores of a band.
        """
        b, tile, n = self.b, self.block, self._epilogue_width()
        array = b.memory("tile", dtype, bands.lines * bands.pitch, "shared", "rw")
        columns = tile.columns // n
        for band in range(bands.count):
            store(array, band)
            b.barrier()
            with b.loop(t, bands.lines * columns, tile.threads) as number:
                line, column = b.div(number, columns), b.mul(b.rem(number, columns), n)
                offset = b.add(b.mul(line, bands.pitch), column)
                align = n * dtype.bytes if n > 1 else 0
                x = b.cast(b.load(array, offset, lanes=n, align=align), dtype=self.product.dtype)
                row = b.add(first, bands.row(b, line, band))
                self.element_epilogue(at, batch, row, b.add(left, column), x)
            b.barrier()  # before the next band, or another tile's

    def _epilogue_width(self) -> int:
        """How many neighbours along a row the epilogue computes at once."""
        grid, m, n = self.limits.grid, Var("m", self.m), Var("n", self.n)
        assert grid is not None
        batch = Var("b", math.prod(self.product.shape[:-2]))
        flat = flatten((*unflatten(Index.of(batch), self.product.shape[:-2]), Index.of(m),
                        Index.of(n)), self.product.shape)
        width = grid.load_width if grid.scalar_stores_readable_as_vectors else 1
        others = [v for v in self.region.members if v is not self.product]
        possible = can_be_wide(self.region, {self.region.outer: flat}, n, width, others)
        return width if possible and self.block.columns % width == 0 else 1

    def element_epilogue(self, at: dict[Var, Operand], batch: tuple[Index, ...], row: Operand,
                         column: Operand, x: Operand) -> None:
        """The epilogue of one element, or of as many neighbours along a row as x has lanes."""
        b, inside = self.b, None
        for offset, extent, step in ((row, self.m, self.block.rows),
                                     (column, self.n, self.block.columns)):
            if extent % step:
                test = b.lt(offset, extent)
                inside = test if inside is None else b.and_(inside, test)
        m, n = Var("m", self.m), Var("n", self.n)
        with where(b, inside):
            e = Emitter(b, self.memory, {**at, m: row, n: column}, members=self.region.flat)
            if x.lanes > 1:
                e = e.within(lane=n, lanes=x.lanes, aligned=True)
            e.here[self.product] = x
            flat = flatten((*batch, Index.of(m), Index.of(n)), self.product.shape)
            evaluate(e, self.region.members, self.region, {self.region.outer: flat}, self.target)
