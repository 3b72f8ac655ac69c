"""The epilogue of a finished tile of a matrix product. Its sums pass through shared memory, so the
epilogue's code is emitted once and neighboring threads have neighboring elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.emit import Emitter
from ztorch.lower.grid.column_totals import ColumnTotals, columns_of
from ztorch.lower.grid.workgroups import can_vectorize, every, where, widths
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import added, worked_out
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region


@dataclass(frozen=True)
class Block:
    """The tile of a product that a workgroup computes."""

    rows: int  # of the tile
    columns: int  # of the tile
    depth: int  # steps along k of one strip

    @property
    def threads(self) -> int:
        raise NotImplementedError

    @property
    def lines_at_once(self) -> int:
        """Lines of a finished tile whose elements a thread loads before it stores any."""
        return 1


@dataclass(frozen=True)
class Bands:
    """How a finished tile passes through shared memory, in bands. Each band has an equal share of
    every block of rows that the same threads hold, or else an equal share of the columns."""

    rows: int  # of the tile
    columns: int  # of the tile
    block: int  # rows that the same threads hold
    count: int  # bands
    pitch: int  # elements from one line in shared memory to the next
    by_columns: bool = False  # whether bands divide the columns, not the rows

    @property
    def lines(self) -> int:
        """Rows of one band."""
        return self.rows if self.by_columns else self.rows // self.count

    @property
    def width(self) -> int:
        """Columns of one band."""
        return self.columns // self.count if self.by_columns else self.columns

    def row(self, b: Builder, line: Operand, band: int) -> Operand:
        """The row in the tile of a line of a band."""
        share = self.block // self.count
        if self.count == 1 or self.by_columns:
            return line
        start = b.add(b.mul(b.div(line, share), self.block), band * share)
        return b.add(start, b.rem(line, share))


class TileOfProduct:
    """A workgroup's tile of a product and the values computed from it."""

    def __init__(self, b: Builder, region: Region, product: Value, memory: Mapping[Value, str],
                 target: Mapping[Value, str], limits: Limits, tile: Block):
        self.b, self.region, self.product = b, region, product
        self.memory, self.target, self.limits = memory, target, limits
        self.block = tile
        self.sums = [v for v in region.members if v.op.kind == "reduce"]
        self.m, self.n = product.shape[-2:]
        self.k = product.args[0].shape[-1]

    def tile_epilogue(self, bands: Bands, dtype: DType, at: dict[Var, Operand],
                      batch: tuple[Index, ...], first: Operand, left: Operand, t: Operand,
                      store: Callable[[str, int], None]) -> None:
        """The epilogue of a finished tile, which passes through shared memory in bands.

        `store(array, band)` stores each thread's share of a band to shared memory. The epilogue is
        a loop over the band, so its code is emitted once per band. Neighboring threads have
        neighboring elements, or neighboring vectors if these are contiguous.

        Args:
            bands: How the tile is divided.
            dtype: The dtype of the sums.
            at: Bindings of the number in the batch.
            batch: The position in the batch.
            first: The first row of the tile.
            left: Its first column.
            t: The number of the thread.
            store: Emits the stores of a band.
        """
        b, n = self.b, self._epilogue_width(bands.width)
        array = b.memory("tile", dtype, bands.lines * bands.pitch, "shared", "rw")
        columns, threads = bands.width // n, self.block.threads
        totals = [ColumnTotals(b, self.sums, group, t, threads)
                  for group in columns_of(columns, n, bands.lines, threads) if self.sums]
        for band in range(bands.count):
            store(array, band)
            self.meet()
            across = band * bands.width if bands.by_columns else 0
            start = b.add(left, across)
            for group in totals if bands.by_columns or band == 0 else ():
                group.clear()
            for lines, column, some in self._places(t, bands.lines, columns, n, start, totals):
                stores = []
                for line in lines:
                    offset = b.add(b.mul(line, bands.pitch), column)
                    align = n * dtype.bytes if n > 1 else 0
                    x = b.load(array, offset, lanes=n, align=align)
                    row = self.row_at(first, bands.row(b, line, band))
                    with where(b, self.inside_rows(row)):
                        stores.append(self.element_epilogue(
                            at, batch, row, b.add(start, column),
                            b.cast(x, dtype=self.product.dtype), totals=some))
                        if not self.rows_whole:
                            stores.pop()()
                for store_results in stores:
                    store_results()
            self.meet()  # before the next band, or another tile's
            for group in totals if bands.by_columns or band == bands.count - 1 else ():
                group.finish(array, self.meet, self.inside_columns, start, self.part_at(first),
                             self.tiles_below, self.n, self.target)

    def _places(self, t: Operand, lines: int, columns: int, n: int, start: Operand,
                totals: list[ColumnTotals]
                ) -> Iterator[tuple[list[Operand], Operand, ColumnTotals | None]]:
        """A thread's lines and columns of a band that starts at a column, and its totals of these
        columns. If each thread has one column, values that depend on the column only, such as a
        bias, are loaded once."""
        b, threads, at_once = self.b, self.block.threads, self.block.lines_at_once
        for some in totals:
            for together, column in some.lines(lines, start, self.inside_columns, at_once):
                yield together, column, some
        if totals:
            return
        if threads % columns:
            with b.loop(t, lines * columns, threads) as number:
                column = b.mul(b.rem(number, columns), n)
                with where(b, self.inside_columns(b.add(start, column))):
                    yield [b.div(number, columns)], column, None
            return
        column = b.mul(b.rem(t, columns), n)
        with where(b, self.inside_columns(b.add(start, column))):
            for together in every(b, b.div(t, columns), lines, threads // columns, at_once):
                yield together, column, None

    @property
    def tiles_below(self) -> int:
        """The number of tiles below one another."""
        return math.ceil(self.m / self.block.rows)

    def part_at(self, first: Operand) -> Operand:
        """The number among them of the tile whose first row is `first`."""
        return self.b.div(first, self.block.rows)

    def inside_columns(self, column: Operand) -> Operand | None:
        """Whether a column of the tile is inside the product; None means all are."""
        return self.b.lt(column, self.n) if self.n % self.block.columns else None

    @property
    def rows_whole(self) -> bool:
        """Whether all rows of all tiles are inside the product."""
        return self.m % self.block.rows == 0

    def inside_rows(self, row: Operand) -> Operand | None:
        """Whether a row of the tile is inside the product; None means all are."""
        return None if self.rows_whole else self.b.lt(row, self.m)

    def row_at(self, first: Operand, line: Operand) -> Operand:
        """The row of the product at a line of the tile whose first row is `first`."""
        return self.b.add(first, line)

    def meet(self) -> None:
        """A barrier for the threads that share a finished tile."""
        self.b.barrier()

    def _epilogue_width(self, columns: int) -> int:
        """How many neighbors along a row of a band the epilogue computes at once."""
        grid, m, n = self.limits.grid, Var("m", self.m), Var("n", self.n)
        assert grid is not None
        batch = Var("b", math.prod(self.product.shape[:-2]))
        flat = flatten((*unflatten(Index.of(batch), self.product.shape[:-2]), Index.of(m),
                        Index.of(n)), self.product.shape)
        most = grid.load_width if grid.scalar_stores_readable_as_vectors else 1
        others = [v for v in self.region.members if v is not self.product]
        return next(w for w in widths(most) if columns % w == 0 and can_vectorize(
            self.region, {self.region.outer: flat}, n, w, others))

    def element_epilogue(self, at: dict[Var, Operand], batch: tuple[Index, ...], row: Operand,
                         column: Operand, x: Operand, ahead: tuple[int, int] = (0, 0),
                         totals: ColumnTotals | None = None) -> Callable[[], None]:
        """The epilogue of one element inside the product, or of a vector of neighbors along a row,
        `ahead` of a row and a column. Elements ahead of the same place share a register for their
        addresses. Sums of columns are added to `totals`. Returns what emits the stores."""
        b = self.b
        m, n = Var("m", self.m), Var("n", self.n)
        e = Emitter(b, self.memory, {**at, m: row, n: column}, members=self.region.flat,
                    ahead=dict(zip((m, n), ahead, strict=True)))
        if x.lanes > 1:
            e = e.within(lane=n, lanes=x.lanes, aligned=True)
        e.here[self.product] = x
        flat = flatten((*batch, Index.of(m), Index.of(n)), self.product.shape)
        e.place = place = {self.region.outer: flat}
        for v, total in totals.of.items() if totals else ():
            b.set(total, added(e, self.region, self.limits, v, place, b.get(total)))
        return worked_out(e, [v for v in self.region.members if v not in self.sums], self.region,
                          place, self.target)
