"""Copies strips of the operands of a matrix product into shared memory: asynchronously through
several stages, or through registers. Operands are read through their views, so transposes, windows
of a convolution and paddings need no copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import SWIZZLE_LINE, Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.epilogue import Block, TileOfProduct
from ztorch.lower.grid.operands import border, contiguous_along_k, copy_width, load_width
from ztorch.lower.grid.workgroups import where
from ztorch.lower.index import Index, Var
from ztorch.lower.positions import unflatten, vector_start
from ztorch.lower.region import Region, view_of


@dataclass(frozen=True)
class Strip:
    """A strip of an operand in shared memory."""

    name: str  # of the memory
    pitch: int  # elements from one line to the next
    along_k: bool  # whether lines run along k, not along the tile
    size: int  # elements of one stage
    panel: int = 0  # elements from one panel of a line to the next; 0: there is one panel

    def offset(self, b: Builder, line: Operand, place: Operand) -> Operand:
        """The offset of an element in a stage."""
        if not self.panel:
            return b.add(b.mul(line, self.pitch), place)
        start = b.add(b.mul(b.div(place, self.pitch), self.panel), b.mul(line, self.pitch))
        return b.add(start, b.rem(place, self.pitch))


@dataclass(frozen=True)
class StripPart:
    """The part of a strip that a thread has loaded and not yet stored in shared memory."""

    memory: str  # the strip's
    active: Operand | None  # whether the thread has such a part; None: all have one
    offset: Operand  # in the strip, of the first element
    step: int  # elements from one value to the next in the strip
    values: list[Operand]


@dataclass(frozen=True)
class Share:
    """A vector of a strip that one thread copies."""

    active: Operand | None  # whether the thread has this vector; None: all threads do
    inside: Operand | None  # whether it is inside the operand; None: it is
    x: Operand  # its row of the left operand, or column of the right one
    depth: Operand  # its position along k
    offset: Operand  # of its first element in the strip


class Strips(TileOfProduct):
    """Copies the strips of a workgroup's tile."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Block, of: DType,
                 stages: int = 1):
        """`of` is the dtype of the strips. With more than one stage, copies to all but one are in
        flight while threads continue."""
        super().__init__(b, region, product, memory, target, limits, tile)
        self.of, self.stages = of, stages
        self.strips: list[Strip] = []

    def strip(self, pitch: int, lines: int, along_k: bool = False) -> None:
        """Declares the shared memory for the strip of the next operand."""
        name = self.b.memory(f"strip_{'ab'[len(self.strips)]}", self.of,
                             self.stages * lines * pitch, "shared", "rw")
        self.strips.append(Strip(name, pitch, along_k, lines * pitch))

    def swizzled_strip(self, depth: int, length: int, along_k: bool) -> None:
        """The same in swizzled memory: panels of lines with SWIZZLE_LINE bytes."""
        pitch, size = SWIZZLE_LINE // self.of.bytes, depth * length
        lines, across = (length, depth) if along_k else (depth, length)
        name = self.b.memory(f"strip_{'ab'[len(self.strips)]}", self.of, self.stages * size,
                             "shared", "rw", swizzled=True)
        panel = lines * pitch if across > pitch else 0
        self.strips.append(Strip(name, pitch, along_k, size, panel))

    def batch_index(self, number: Operand) -> tuple[dict[Var, Operand], tuple[Index, ...]]:
        """The position in the batch of product `number`: a binding, and indices that use it."""
        shape = self.product.shape[:-2]
        var = Var("b", math.prod(shape))
        return {var: number}, unflatten(Index.of(var), shape)

    def run_along_k(self, at: dict[Var, Operand], batch: tuple[Index, ...], first: Operand,
                    left: Operand, t: Operand, multiply: Callable[[Operand], None]) -> None:
        """Copies strip after strip along k into shared memory, and multiplies each. The next
        strips are in flight while the current ones are multiplied: to other stages of shared
        memory, or into registers. `multiply` gets the number of the stage.
        """
        starts = (first, left)
        if self.stages > 1:
            self._through_stages(at, batch, starts, t, multiply)
        else:
            self._through_registers(at, batch, starts, t, multiply)
        self.b.barrier()  # before the strips of another tile

    def _through_registers(self, at: dict[Var, Operand], batch: tuple[Index, ...],
                           starts: tuple[Operand, Operand], t: Operand,
                           multiply: Callable[[Operand], None]) -> None:
        b, depth = self.b, self.block.depth
        last, only = (self.k - 1) // depth * depth, b.const(0, b.index)

        def loaded(k: Operand) -> list[StripPart]:
            return [part for side, start in enumerate(starts)
                    for part in self._loaded(side, batch, at, start, k, t)]

        self._store(loaded(only))
        b.barrier()
        if last:
            with b.loop(0, last, depth) as k:
                ahead = loaded(b.add(k, depth))
                multiply(only)
                b.barrier()
                self._store(ahead)
                b.barrier()
        multiply(only)

    def _through_stages(self, at: dict[Var, Operand], batch: tuple[Index, ...],
                        starts: tuple[Operand, Operand], t: Operand,
                        multiply: Callable[[Operand], None]) -> None:
        """One barrier per iteration: after it the iteration's strips have arrived for all threads,
        and no thread still reads the strips that the next copies overwrite."""
        b, stages = self.b, self.stages
        count = math.ceil(self.k / self.block.depth)
        for first in range(stages - 1):
            if first < count:
                self.start_copies(b.const(first, b.index), batch, at, starts, t)
            b.copies_commit()
        with b.loop(0, count) as number:
            b.copies_wait(stages - 2)
            b.barrier()
            ahead = b.add(number, stages - 1)
            with b.if_(b.lt(ahead, count)):
                self.start_copies(ahead, batch, at, starts, t)
            b.copies_commit()
            multiply(b.rem(number, stages))

    def start_copies(self, number: Operand, batch: tuple[Index, ...], at: dict[Var, Operand],
                     starts: tuple[Operand, Operand], t: Operand) -> None:
        """Starts to copy the strips of an iteration to their stage."""
        k, stage = self.b.mul(number, self.block.depth), self.b.rem(number, self.stages)
        for side, corner in enumerate(starts):
            self._copy(side, batch, at, corner, k, t, stage)

    def _copy(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand], start: Operand,
              k: Operand, t: Operand, stage: Operand) -> None:
        """Starts to copy a thread's parts of a strip of an operand to a stage."""
        b, strip, along_k = self.b, self.strips[side], contiguous_along_k(self.product, side)
        n = copy_width(self.product, side, self.block, self.of)
        base = b.mul(stage, strip.size)
        for part in self._shares(side, start, k, t, n):
            source, index = self._place(side, batch, at, part.x, part.depth, along_k, n)
            inside = self._inside(side, batch, at, part)
            with where(b, part.active):
                b.copy_async(strip.name, b.add(base, part.offset), self.memory[source], index, n,
                             inside, align=n * self.of.bytes)

    def _inside(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand],
                part: Share) -> Operand | None:
        """Whether a part is in the operand, and not in a border of zeros; None means it is."""
        b, operand = self.b, self.product.args[side]
        line, step = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
        e = Emitter(b, self.memory, {**at, line: part.x, step: part.depth})
        tests = [] if part.inside is None else [part.inside]
        for i, low, high in border(operand, self._index(side, batch, line, step)) or []:
            place = e.value(i)
            tests += [b.ge(place, low)] if i.range[0] < low else []
            tests += [b.lt(place, high)] if i.range[1] >= high else []
        return functools.reduce(b.and_, tests) if tests else None

    def _loaded(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand],
                start: Operand, k: Operand, t: Operand) -> list[StripPart]:
        """Loads a thread's parts of a strip of an operand, with zeros outside the operand."""
        b, strip, along_k = self.b, self.strips[side], contiguous_along_k(self.product, side)
        n, parts = load_width(self.product, side, self.block, self.limits), []
        for part in self._shares(side, start, k, t, n):
            conditions = [test for test in (part.inside, part.active) if test is not None]
            inside = functools.reduce(b.and_, conditions) if conditions else None
            values = self._elements(side, batch, at, part.x, part.depth, inside, along_k, n)
            step = 1 if along_k == strip.along_k else strip.pitch
            parts.append(StripPart(strip.name, part.active, part.offset, step, values))
        return parts

    def _shares(self, side: int, start: Operand, k: Operand, t: Operand, n: int) -> list[Share]:
        """A thread's parts of a strip: vectors of n elements. Neighboring threads have
        neighboring vectors."""
        b, tile = self.b, self.block
        length, extent = (tile.rows, self.m) if side == 0 else (tile.columns, self.n)
        along_k, strip = contiguous_along_k(self.product, side), self.strips[side]
        columns, rows = (tile.depth // n, length) if along_k else (length // n, tile.depth)
        shares = []
        for copy in range(math.ceil(columns * rows / tile.threads)):
            number = b.add(t, copy * tile.threads)
            inner, outer = b.mul(b.rem(number, columns), n), b.div(number, columns)
            line, d = (outer, inner) if along_k else (inner, outer)
            partial = (copy + 1) * tile.threads > columns * rows
            active = b.lt(number, columns * rows) if partial else None
            x, depth = b.add(start, line), b.add(k, d)
            tests = [b.lt(p, end) for p, end, step in (
                (x, extent, length), (depth, self.k, tile.depth)) if end % step]
            inside = functools.reduce(b.and_, tests) if tests else None
            major, minor = (line, d) if strip.along_k else (d, line)
            offset = strip.offset(b, major, minor)
            shares.append(Share(active, inside, x, depth, offset))
        return shares

    def _store(self, parts: Sequence[StripPart]) -> None:
        """Stores the loaded parts of strips in shared memory."""
        b = self.b
        for part in parts:
            with where(b, part.active):
                for i, value in enumerate(part.values):
                    align = value.lanes * self.of.bytes if value.lanes > 1 else 0
                    b.store(part.memory, part.offset, value, off=i * part.step, align=align)

    def _elements(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand], x: Operand,
                  depth: Operand, inside: Operand | None, along_k: bool, n: int) -> list[Operand]:
        """n contiguous elements of an operand, along k or else along the tile; zeros if not
        `inside`."""
        b, operand = self.b, self.product.args[side]
        if n == 1:
            line, step = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
            e = Emitter(b, self.memory, {**at, line: x, step: depth}, members=self.region.flat)
            element = b.cast(e.element(operand, self._index(side, batch, line, step), inside),
                             dtype=self.of)
            is_zero = inside is None or operand in self.memory  # outside: a masked load gives zero
            return [element if is_zero else b.select(inside, element, 0)]
        source, offset = self._place(side, batch, at, x, depth, along_k, n)
        if inside is not None:
            offset = b.select(inside, offset, 0)
        vector = b.load(self.memory[source], offset, lanes=n, align=n * source.dtype.bytes)
        values, as_vector = [vector], self.store_width(side) > 1
        if vector.dtype != self.of or not as_vector:
            values = [b.cast(b.extract(vector, i), dtype=self.of) for i in range(n)]
            values = [b.join(*values)] if as_vector else values
        return values if inside is None else [b.select(inside, v, 0) for v in values]

    def _index(self, side: int, batch: tuple[Index, ...], line: Var,
               step: Var) -> tuple[Index, ...]:
        """The position in an operand of a place along the tile and one along k."""
        pair = (Index.of(line), Index.of(step))
        return (*batch, *(pair if side == 0 else pair[::-1]))

    def _place(self, side: int, batch: tuple[Index, ...], at: dict[Var, Operand], x: Operand,
               depth: Operand, along_k: bool, n: int) -> tuple[Value, Operand]:
        """The value in memory under an operand, and the position of n neighbors in it."""
        line, step = Var("x", self.m if side == 0 else self.n), Var("k", self.k)
        e = Emitter(self.b, self.memory, {**at, line: x, step: depth}, members=self.region.flat)
        base = view_of(self.product.args[side], self._index(side, batch, line, step))
        assert base is not None
        source, first = base
        if not first.is_affine:  # written as a multiple of n, so that the alignment is known
            axis, position = (step, depth) if along_k else (line, x)
            begin = vector_start(first, axis, n)
            assert begin is not None
            block = Var(axis.name, axis.extent // n)
            e = e.within(bound={**e.bound, block: self.b.div(position, n)})
            first = begin
        return source, e.value(first)

    def store_width(self, side: int) -> int:
        """The elements of one store to a strip: 1, unless the machine can read as vectors only what
        was stored as vectors. Converted elements are stored as vectors of four only.
        """
        assert self.limits.grid is not None
        n = load_width(self.product, side, self.block, self.limits)
        same_dtype = self.product.args[side].dtype == self.of
        vector_stores_only = not self.limits.grid.scalar_stores_readable_as_vectors
        return n if vector_stores_only and (same_dtype or n == 4) else 1
