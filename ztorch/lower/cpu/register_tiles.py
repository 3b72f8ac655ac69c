"""The register tiles of a product, with the epilogue applied to each of them. A tile may have sums
of several products of the same rows, such as those of the gates of a recurrent layer.

Without blocks along k a tile multiplies all of its rows and columns at once. With them, the tiles
of a row block pass over one part of k after another: the part of the panel stays in the L1 cache,
and sums wait in a local array. They are added in the same order, so the results are the same bits.
The first tile of a block may copy the panel for the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ztorch.dtypes import DType
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import Run
from ztorch.lower.cpu.parts_of_k import PartOfK, outer_loops, parts_of_k
from ztorch.lower.cpu.product_operand import ProductOperand
from ztorch.lower.cpu.tile_blocks import BlockPanel, ProductTile, TilePlace, tiles_of_block
from ztorch.lower.cpu.tile_borders import steps_inside
from ztorch.lower.cpu.tile_prefetch import (
    distant_readers,
    far_results,
    has_far_rows,
    prefetch_next_panel,
    prefetch_results,
    reads_slice_across,
)
from ztorch.lower.cpu.tiling import Tiling
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import evaluate, multiply_add, summing
from ztorch.lower.positions import flatten, unflatten
from ztorch.lower.region import Region
from ztorch.lower.schedule import ProductSchedule
from ztorch.lower.tuning import LINE_BYTES

# Of a tile: a variable for each row and vector, those of the first product before the next one's.
_Sums = list[list[Operand]]


class RegisterTiles:
    """The tiles of the products that a region is built around.

    Args:
        b: The builder.
        region: The region.
        products: The products, which differ in their right operands.
        memory: Names of the buffers that are read, by value.
        target: Names of the buffers that are written, by value.
        limits: The machine.
        tiling: The tiles.
        schedule: The schedule.
        depths: Extents of the loops along k, outermost first.
    """

    def __init__(self, b: Builder, region: Region, products: Sequence[Value],
                 memory: Mapping[Value, str], target: Mapping[Value, str], limits: Limits,
                 tiling: Tiling, schedule: ProductSchedule, depths: tuple[int, ...]):
        self.b, self.region, self.products, self.product = b, region, products, products[0]
        product = self.product
        self.memory, self.target, self.limits, self.tiling = memory, target, limits, tiling
        self.schedule, self.depths, self.arrays = schedule, depths, 0
        self.vector_bytes = tiling.lanes * product.args[1].dtype.bytes
        (*self.batch, _, self.n), self.dot = product.shape, product.attrs.get("dot", "")
        self.distant = distant_readers(region, product, memory, limits)
        self.far_results = [] if self.distant or schedule.block_depth else far_results(
            region, product, target, limits)
        self.next_slice = reads_slice_across(product, limits)
        self.far_rows = schedule.block_rows == 1 and has_far_rows(product, limits)

    def run(self, rows: Run, panels: Run) -> None:
        """All tiles of one size. Workers share them."""
        with self._shared(rows.tiles, panels.count) as (batch, at_row, at_panel):
            self._whole(self._tile(batch, at_row, at_panel, rows, panels))

    def blocks(self, panels: Run) -> None:
        """All tiles of one width. Workers share the pairs of a row block and a panel: a block reads
        its panel once from an outer cache, and its tiles prefetch the next panel meanwhile."""
        blocks = math.ceil(self.tiling.down / self.schedule.block_rows)
        of, steps = self.product.args[1].dtype, math.prod(self.depths)
        panel = None if not self.schedule.block_pack else BlockPanel(
            self.b, self._name("panel"), of, steps, panels.size, self.tiling.lanes)
        with self._shared(blocks, panels.count) as (batch, at_block, at_panel):
            block = at_block if blocks > 1 else None
            if self.schedule.block_depth:
                self._in_parts(batch, block, at_panel, panels, panel)
                return
            for place in self._of_block(block, panel):
                self._whole(self._tile(batch, place.at_row, at_panel, place.rows, panels), place)

    def _of_block(self, at_block: Operand | None,
                  panel: BlockPanel | None = None) -> Iterator[TilePlace]:
        """The tiles of a row block; None: the only one."""
        return tiles_of_block(self.b, self.tiling, self.schedule.block_rows, at_block, panel)

    @contextmanager
    def _shared(self, down: int, across: int) -> Iterator[tuple[Operand, Operand, Operand]]:
        """The loop that workers share: the index of the matrix, of the row and of the column."""
        b, per_matrix = self.b, down * across
        with b.loop(0, math.prod(self.batch) * per_matrix, kind="parallel") as t:
            batch = b.div(t, per_matrix) if self.batch else b.const(0, b.index)
            t = b.rem(t, per_matrix) if self.batch else t
            yield batch, b.div(t, across), b.rem(t, across)

    def _tile(self, batch: Operand, down: Operand, panel: Operand, rows: Run,
              panels: Run) -> ProductTile:
        """The positions of a tile."""
        b, lanes = self.b, self.tiling.lanes
        matrix, at_row = Var("b", math.prod(self.batch)), Var("m", rows.count)
        across, again = Var("p", panels.count), Var("g", rows.repeats)
        bound = {matrix: batch, at_row: down, across: panel}
        if rows.repeats > 1:
            bound |= {at_row: b.rem(down, rows.count), again: b.div(down, rows.count)}
        first = Index.of(again) * rows.period + Index.of(at_row) * rows.size + rows.start
        scopes = [self._scope(bound, panels, j) for j in range(panels.size)]
        columns = [Index.of(across) * (panels.size * lanes) + (panels.start + j) * lanes
                   + (Index.of(s.lane) if s.lane else 0) for j, s in enumerate(scopes)]
        return ProductTile(bound, scopes, unflatten(Index.of(matrix), self.batch), first,
                            [first + r for r in range(rows.size)], columns, at_row, across)

    # -- along k -----------------------------------------------------------------------------------

    def _whole(self, tile: ProductTile, place: TilePlace | None = None) -> None:
        """A tile over all of k. `place` is its place in its row block, if there are blocks."""
        b, lanes, d = self.b, self.tiling.lanes, self.product.dtype
        height, width = len(tile.rows), len(tile.columns)
        vectors = width * len(self.products)
        sums = [[b.var(summing(d), lanes, 0.0) for _ in range(vectors)] for _ in range(height)]
        self._add(tile, sums, PartOfK(0, 0, self.depths[0]), place)
        if self.schedule.epilogue_inline or height == 1:
            for r in range(height):
                for j in range(width):
                    x = [b.cast(b.get(total), dtype=d) for total in sums[r][j::width]]
                    self._finish(tile.scopes[j], x, (*tile.where, tile.rows[r], tile.columns[j]))
            return
        array, start = self._array(height * vectors, d), b.const(0, b.index)
        self._keep(sums, array, start)
        self._finish_rows(tile, array, start)

    def _in_parts(self, batch: Operand, at_block: Operand | None, at_panel: Operand,
                  panels: Run, panel: BlockPanel | None) -> None:
        """The tiles of a row block and a panel, over one part of k after another."""
        b, lanes, of = self.b, self.tiling.lanes, summing(self.product.dtype)
        block = min(self.schedule.block_rows, self.tiling.down)
        tile_vectors = max(rows.size for rows in self.tiling.rows) * panels.size
        array, zero = self._array(block * tile_vectors, of), b.splat(b.const(0.0, of), lanes)
        with b.loop(0, block * tile_vectors) as k:
            b.store(array, b.mul(k, lanes), zero)
        for part in parts_of_k(b, self.depths, self.schedule):
            for place in self._of_block(at_block, panel):
                tile = self._tile(batch, place.at_row, at_panel, place.rows, panels)
                start, width = b.mul(place.number, tile_vectors * lanes), panels.size
                sums = [[b.var(of, lanes, b.load(array, start, (r * width + j) * lanes, lanes))
                         for j in range(width)] for r in range(place.rows.size)]
                self._add(tile, sums, part, place)
                self._keep(sums, array, start)
        for place in self._of_block(at_block):
            tile = self._tile(batch, place.at_row, at_panel, place.rows, panels)
            self._finish_rows(tile, array, b.mul(place.number, tile_vectors * lanes))

    def _add(self, tile: ProductTile, sums: _Sums, part: PartOfK, place: TilePlace | None) -> None:
        """Adds the products of a part of k to the sums of a tile."""
        b = self.b
        self._prefetch_results(tile)
        loops = outer_loops(self.depths)
        outer = flatten([Index.of(v) for v in loops], [v.extent for v in loops])
        with ExitStack() as stack:
            bound = {**tile.bound, **part.around}
            rows = [(*tile.where, row, outer * self.depths[-1]) for row in tile.rows]
            for k, loop in enumerate(loops[part.axis:]):
                in_part = k == 0 and not isinstance(part.begin, int)
                steps = (part.begin, part.end) if in_part else steps_inside(
                    tile.scopes[0], self.product, self.schedule, rows, loop)
                bound[loop] = stack.enter_context(b.loop(*steps))
            for begin, end, times in part.pieces(b, self.depths, self.schedule.unroll):
                depth = Var("k", self.depths[-1] - times + 1, kept=True)
                along = outer * self.depths[-1] + Index.of(depth)
                with b.loop(begin, end, times) as kk:
                    scopes = [s.within(bound={**s.bound, **bound, depth: kk}) for s in tile.scopes]
                    self._add_steps(replace(tile, scopes=scopes), sums, along, depth, times, place)

    def _prefetch_results(self, tile: ProductTile) -> None:
        """Prefetches what the epilogue of a tile reads and stores."""
        stored = [self.target[v] for v in self.far_results]
        for row in tile.rows if self.distant or stored else ():
            for j in range(0, len(tile.columns), max(1, LINE_BYTES // self.vector_bytes)):
                at = flatten((*tile.where, row, tile.columns[j]), self.product.shape)
                prefetch_results(tile.scopes[j], self.distant, self.region, at, stored)

    def _add_steps(self, tile: ProductTile, sums: _Sums, along: Index, depth: Var, steps: int,
                   place: TilePlace | None) -> None:
        """Adds so many steps along k, from `depth` on, whose first is `along` in all of k."""
        b, scopes = self.b, tile.scopes
        totals = [[b.get(v) for v in line] for line in sums]
        rights = [ProductOperand(s, p.args[1], [(*tile.where, along, column)], depth)
                  for p in self.products for s, column in zip(scopes, tile.columns, strict=True)]
        left = ProductOperand(scopes[0], self.product.args[0], [
            (*tile.where, row, along) for row in tile.rows], depth)
        copied = place.panel.start(scopes[0], along) if place and place.panel else None
        for u in range(steps):
            self._step(left, rights, u, totals, place, copied)
        if self.next_slice:
            left.prefetch_next_slice(tile.across, scopes[0].bound[depth])
        if self.far_rows:
            left.prefetch_next_rows(tile.down, tile.across)
        if place is not None:
            prefetch_next_panel(b, rights, tile.across, place.number, steps,
                                min(self.schedule.block_rows, self.tiling.down), self.vector_bytes)
        for line, values in zip(sums, totals, strict=True):
            for variable, x in zip(line, values, strict=True):
                b.set(variable, x)

    def _step(self, left: ProductOperand, rights: list[ProductOperand], step: int, totals: _Sums,
              place: TilePlace | None, start: Operand | None) -> None:
        """One step along k for the whole tile. `start` is that of the copied panel."""
        of, panel = summing(self.product.dtype), place.panel if place else None
        if place is None or panel is None or start is None or place.fills:
            if self.schedule.prefetch:
                for operand in rights:
                    operand.prefetch(step + self.schedule.prefetch)
            vectors = [x.at(0, step) for x in rights]
            if panel is not None and start is not None:
                panel.store(start, step, vectors)
        else:
            vectors = panel.load(start, step)
        right = [self.b.cast(x, dtype=of) for x in vectors]
        for r, line in enumerate(totals):
            x = self.b.cast(left.at(r, step), dtype=of)
            for j, y in enumerate(right):
                line[j] = multiply_add(self.b, self.limits, x, y, line[j], self.dot)

    # -- finished sums -----------------------------------------------------------------------------

    def _array(self, vectors: int, d: DType) -> str:
        """A local array for sums."""
        return self.b.memory(self._name("tile"), d, vectors * self.tiling.lanes, "local", "rw")

    def _name(self, kind: str) -> str:
        """The name of another local array."""
        self.arrays += 1
        return f"{kind}{self.arrays}"

    def _keep(self, sums: _Sums, array: str, start: Operand) -> None:
        """Stores sums to a local array."""
        b, lanes, width = self.b, self.tiling.lanes, len(sums[0])
        for r, line in enumerate(sums):
            for j, variable in enumerate(line):
                x = b.cast(b.get(variable), dtype=b.memories[array].dtype)
                b.store(array, start, x, off=(r * width + j) * lanes)

    def _finish_rows(self, tile: ProductTile, array: str, start: Operand) -> None:
        """The epilogue of sums in a local array, as a loop over the rows of a tile: a long one is
        not unrolled over them."""
        b, lanes, width = self.b, self.tiling.lanes, len(tile.scopes)
        vectors = width * len(self.products)
        with b.loop(0, len(tile.rows)) as at:
            down = Var("r", len(tile.rows))
            row = tile.first + Index.of(down)
            offset = b.add(start, b.mul(at, vectors * lanes))
            for j, scope in enumerate(tile.scopes):
                inner = scope.within(bound={**scope.bound, down: at})
                x = [b.cast(b.load(array, offset, off=k * lanes, lanes=lanes),
                            dtype=self.product.dtype) for k in range(j, vectors, width)]
                self._finish(inner, x, (*tile.where, row, tile.columns[j]))

    def _finish(self, e: Emitter, x: Sequence[Operand], index: tuple[Index, ...]) -> None:
        """The epilogue of one vector of sums of each product."""
        scope = e.within()
        scope.here.update(zip(self.products, x, strict=True))
        at = flatten(index, self.product.shape)
        evaluate(scope, self.region.members, self.region, {self.region.outer: at}, self.target)

    def _scope(self, bound: dict[Var, Operand], panels: Run, j: int) -> Emitter:
        """The scope of one vector of columns. The last vector of a row may need a mask."""
        b, lanes, tail = self.b, self.tiling.lanes, self.tiling.tail
        if lanes == 1:
            return Emitter(b, self.memory, bound, members=self.region.flat)
        end = panels.start + panels.size * panels.count
        masked = tail and j == panels.size - 1 and end == math.ceil(self.n / lanes)
        lane = Var("n", tail if masked else lanes, kept=True)
        mask = b.lt(b.iota(lanes), tail) if masked else None
        return Emitter(b, self.memory, {**bound, lane: b.const(0, b.index)}, lane, lanes, mask,
                       self.region.flat)
