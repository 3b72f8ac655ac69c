"""A matrix product by a function of another library, in blocks that workers share.

The blocks depend on the schedule alone, and each is computed by one call on one thread, so results
have the same bits for any number of workers. They may differ from those of our own loop nest, since
a library adds in its own order. With an epilogue, a block waits in a local array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of, products_of
from ztorch.lower.cpu.left_operand import Run, split
from ztorch.lower.cpu.library_operands import BATCH, can_multiply, library_matrix
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loop_nest import LoopNest
from ztorch.lower.loops import evaluate
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import LIBRARY_BLOCK, LIBRARY_BLOCK_BYTES, LIBRARY_WORK


@dataclass(frozen=True, repr=False)
class LibrarySchedule(Schedule):
    """A product by calls of another library, each for a block of the result."""

    block_rows: int  # rows of a block, at most
    block_columns: int  # columns of a block, at most

    def tile(self, lanes: int) -> str:
        return f"{self.block_rows}x{self.block_columns}{self.kind}"


class OpenblasSchedule(LibrarySchedule):
    """A product by OpenBLAS."""

    kind = library = "openblas"


class OnednnSchedule(LibrarySchedule):
    """A product by oneDNN."""

    kind = library = "onednn"


def propose(library: str, region: Region, limits: Limits) -> LibrarySchedule | None:
    """Blocks of moderate size; None if the library cannot compute the region, or it is too small
    for calls."""
    product = product_of(region)
    m, n = product.shape[-2:]
    if m * n * product.args[0].shape[-1] < LIBRARY_WORK:
        return None
    rows, columns = LIBRARY_BLOCK
    s = _KINDS[library](min(rows, m), min(columns, n))
    return None if refusal(library, s, region, limits) else s


def refusal(library: str, s: LibrarySchedule, region: Region, limits: Limits) -> str:
    """Why a library cannot compute a region by a schedule; empty if it can."""
    product = product_of(region)
    if len(products_of(region)) > 1:
        return "one call computes one product"
    if not can_multiply(library, product, limits) or any(
            library_matrix(a).base in region.flat for a in product.args):  # type: ignore[union-attr]
        return f"{library} is not there, or does not multiply such operands"
    m, n = product.shape[-2:]
    if not 0 < s.block_rows < 2 * m or not 0 < s.block_columns < 2 * n:
        return f"blocks of {s.block_rows}x{s.block_columns} of {m}x{n} elements"
    size = min(s.block_rows, m) * min(s.block_columns, n) * product.dtype.bytes
    if len(region.members) > 1 and size > LIBRARY_BLOCK_BYTES:
        return f"a block of {size} bytes waits in a local array of {LIBRARY_BLOCK_BYTES}"
    return ""


def emit(library: str, b: Builder, region: Region, memory: Mapping[Value, str],
         target: Mapping[Value, str], limits: Limits, s: LibrarySchedule) -> None:
    """The calls for all blocks, each with its epilogue."""
    blocks = _LibraryBlocks(library, b, region, memory, target, limits)
    m, n = blocks.product.shape[-2:]
    for rows in split(m, s.block_rows):
        for columns in split(n, s.block_columns):
            blocks.run(rows, columns)


class _LibraryBlocks:
    """The blocks of a product; the arguments are those of `emit`."""

    def __init__(self, library: str, b: Builder, region: Region, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits):
        self.library, self.b, self.region, self.memory = library, b, region, memory
        self.target, self.limits, self.arrays = target, limits, 0
        self.product = product_of(region)
        self.operands = [library_matrix(a) for a in self.product.args]

    def run(self, rows: Run, columns: Run) -> None:
        """All blocks of one size. Workers share them."""
        b, (*batch, m, n) = self.b, self.product.shape
        per_matrix = rows.count * columns.count
        array = None
        if len(self.region.members) > 1:
            self.arrays += 1
            array = b.memory(f"block{self.arrays}", self.product.dtype, rows.size * columns.size,
                             "local", "rw")
        with b.loop(0, math.prod(batch) * per_matrix, kind="parallel") as t:
            matrix = b.div(t, per_matrix) if batch else b.const(0, b.index)
            t = b.rem(t, per_matrix) if batch else t
            first_row = b.add(b.mul(b.div(t, columns.count), rows.size), rows.start)
            first_column = b.add(b.mul(b.rem(t, columns.count), columns.size), columns.start)
            starts = {Var(BATCH, math.prod(batch)): matrix,
                      **{Var(name, self.product.args[k].shape[k - 2]): first
                         for k, name, first in ((0, "row", first_row),
                                                (1, "column", first_column))}}
            sizes = {"m": rows.size, "n": columns.size, "k": self.product.args[0].shape[-1]}
            at = b.add(b.mul(b.add(b.mul(matrix, m), first_row), n), first_column)
            if array is None:
                self._multiply(self.target[self.product], at, n, starts, sizes)
                return
            self._multiply(array, b.const(0, b.index), columns.size, starts, sizes)
            self._finish(array, matrix, first_row, first_column, rows.size, columns.size)

    def _multiply(self, into: str, at: Operand, pitch: int, starts: dict[Var, Operand],
                  sizes: dict[str, int]) -> None:
        """One call. `starts`: the matrix, and the block's first row and column."""
        scope, operands = Emitter(self.b, self.memory, starts), []
        for side, x in enumerate(self.operands):
            assert x is not None  # `refusal`
            operands.append((self.memory[x.base], scope.value(x.first + (x.column if side else
                                                                         x.row)), x))
        (left, at_left, a), (right, at_right, c) = operands
        self.b.library_product(
            into, at, left, at_left, right, at_right, pitch=pitch, source_pitch=a.pitch,
            source_transposed=a.transposed, right_pitch=c.pitch, right_transposed=c.transposed,
            library=self.library, **sizes)

    def _finish(self, array: str, matrix: Operand, first_row: Operand, first_column: Operand,
                rows: int, columns: int) -> None:
        """The epilogue of a block, a vector of columns at a time."""
        b, product = self.b, self.product
        lanes = max(1, min(self.limits.lanes(product.dtype), columns))
        whole, tail = divmod(columns, lanes)
        with b.loop(0, rows) as r:
            with b.loop(0, whole) as j:
                self._vector(array, matrix, b.add(first_row, r), first_column,
                             b.add(b.mul(r, columns), b.mul(j, lanes)), b.mul(j, lanes), lanes)
            if tail:
                self._vector(array, matrix, b.add(first_row, r), first_column,
                             b.add(b.mul(r, columns), whole * lanes),
                             b.const(whole * lanes, b.index), tail)

    def _vector(self, array: str, matrix: Operand, row: Operand, first_column: Operand,
                start: Operand, column: Operand, lanes: int) -> None:
        """The epilogue of neighboring elements of a row."""
        b, product = self.b, self.product
        *batch, m, n = product.shape
        stack, down = Var("s", math.prod(batch)), Var("m", m)
        across, lane = Var("n", n - lanes + 1), Var("l", lanes, kept=True)
        bound = {stack: matrix, down: row, across: b.add(first_column, column)}
        x = b.load(array, start, lanes=lanes)
        place = Index.of(across)
        if lanes > 1:
            bound[lane], place = b.const(0, b.index), place + Index.of(lane)
        e = Emitter(b, self.memory, bound, lane if lanes > 1 else None, lanes, None,
                    self.region.flat)
        e.here[product] = x
        where = (*unflatten(Index.of(stack), tuple(batch)), Index.of(down), place)
        evaluate(e, self.region.members, self.region,
                 {self.region.outer: flatten(where, product.shape)}, self.target)


_KINDS: dict[str, type[LibrarySchedule]] = {
    s.kind: s for s in (OpenblasSchedule, OnednnSchedule)}
LOOP_NESTS = tuple(LoopNest(kind, partial(propose, kind), partial(refusal, kind),
                            partial(emit, kind)) for kind in _KINDS)
