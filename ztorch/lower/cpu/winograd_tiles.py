"""The tiles of a Winograd convolution on a processor: the transform of those of an image, and of
products to results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext

from ztorch.dtypes import boolean
from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Operand
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.winograd_matrices import RESULT_MATRIX, Matrix, both_axes
from ztorch.lower.cpu.winograd_points import at_point, store
from ztorch.lower.emit import Emitter
from ztorch.lower.index import Index, Var
from ztorch.lower.loops import spread, vectors
from ztorch.lower.positions import flatten
from ztorch.lower.region import Region
from ztorch.lower.rewrites.winograd import POINTS, RESULTS, TILE

TileElement = Callable[[Emitter, int, int], Operand]  # by its row and column in a tile
HALVES = 2  # of the points of a tile: rows 0 to 2 have the points 0 and +-3/4


class ImageTiles:
    """The transform of the tiles of an image, which begin RESULTS elements apart along each axis.
    A tile has `size` elements along an axis.

    Workers share the points before the tiles: one stores half of the points of all tiles. If it
    stored all points of half of the tiles, its bytes would lie between those of another worker
    every few lines, and each core would prefetch lines that the other one writes.
    """

    def __init__(self, v: Value, memory: str, limits: Limits, lanes: int, size: int,
                 matrix: Matrix):
        self.v, self.memory, self.limits = v, memory, limits
        self.size, self.matrix = size, matrix
        self.image = v.args[0]
        channels = self.image.shape[-1]
        self.lanes = lanes if channels > 1 else 1
        self.tile = [Var("n", self.image.shape[0]), Var("y", v.attrs["down"]),
                     Var("x", v.attrs["across"])]
        self.n, *places = (Index.of(a) for a in self.tile)
        # The first row and column of a tile, in the image.
        self.first = [i * RESULTS - low for i, low in zip(places, v.attrs["low"], strict=True)]
        self.sides = self.image.shape[1:-1]
        self.column = Var("c", channels)
        self.local = ""  # a copy of a tile that crosses the border

    def emit(self, e: Emitter) -> None:
        """All tiles."""
        b, tiles = e.b, math.prod(a.extent for a in self.tile)
        self.declare(b)
        shares = b.min(b.identity("workers"), HALVES)
        with b.loop(0, b.mul(shares, tiles), kind="parallel") as t:
            scope = e.within(bound=spread(e, b.rem(t, tiles), self.tile))
            half = b.div(t, tiles)
            self.tile_at(scope, [b.or_(b.eq(shares, 1), b.eq(half, k)) for k in range(HALVES)])

    def declare(self, b: Builder) -> None:
        """Declares the local array of a tile that crosses the border."""
        if not self.limits.mask_registers:
            self.local = b.memory("tile", self.v.dtype, self.size ** 2 * self.lanes, "local", "rw")

    def tile_at(self, scope: Emitter, computes: Sequence[Operand | None]) -> None:
        """The transform of the tile of a scope. `computes`: the conditions on which both halves of
        the points are computed; None: in any case."""
        b, inside = scope.b, self._inside(scope)
        with b.if_(inside):
            if min(self.sides) >= self.size:  # else no tile is inside
                for lane_scope in self._vectors(scope):
                    self._transform(lane_scope, computes, self._element)
        with b.if_(b.not_(inside)):
            for lane_scope in self._vectors(scope):
                self._transform(lane_scope, computes, self._element_or_zero(lane_scope))

    def _vectors(self, e: Emitter) -> Iterator[Emitter]:
        return (scope for scope, _ in vectors(e.within(), self.column, self.lanes))

    def _element(self, e: Emitter, i: Index | int, j: Index | int) -> Operand:
        y, x = self.first
        return e.element(self.image, (self.n, y + i, x + j, Index.of(self.column)))

    def _element_or_zero(self, e: Emitter) -> TileElement:
        """The elements of a tile that crosses the border, zero outside the image: masked, or from a
        copy in a small local array."""
        local = self.local
        if not local:
            return self._masked_element
        self._copy(e, local)
        return lambda inside, i, j: inside.b.load(local, 0, (i * self.size + j) * self.lanes,
                                                  self.lanes)

    def _masked_element(self, e: Emitter, i: int, j: int) -> Operand:
        """An element of a tile, zero outside the image. Masked lanes fetch their line, too, which
        another worker may write: they are inside the image."""
        b, place = e.b, [*map(Var, "ij", self.sides)]
        at = [e.value(first + k) for first, k in zip(self.first, (i, j), strict=True)]
        nearest = {v: b.max(b.min(x, v.extent - 1), 0) for v, x in zip(place, at, strict=True)}
        inside = b.and_(*map(b.eq, at, nearest.values()))
        return e.within(bound={**e.bound, **nearest}).element(
            self.image, (self.n, *map(Index.of, place), Index.of(self.column)), inside)

    def _copy(self, e: Emitter, local: str) -> None:
        """The part of the image in a tile, and zeros around it."""
        b, size, loops = e.b, self.size, [Var("i", self.size), Var("j", self.size)]
        zeros = b.splat(b.const(0.0, self.v.dtype), self.lanes)
        for k in range(size ** 2):
            b.store(local, 0, zeros, off=k * self.lanes)
        (low, high), (left, right) = (
            (b.max(b.sub(0, first), 0), b.min(b.sub(n, first), size))
            for first, n in zip((e.value(i) for i in self.first), self.sides, strict=True))
        with b.loop(low, high) as i, b.loop(left, right) as j:
            inside = e.within(bound={**e.bound, **dict(zip(loops, (i, j), strict=True))})
            x = self._element(inside, *(Index.of(a) for a in loops))
            b.store(local, b.mul(b.add(b.mul(i, size), j), self.lanes), x)

    def _transform(self, e: Emitter, computes: Sequence[Operand | None],
                   element: TileElement) -> None:
        """Both halves of the points, or the one that the worker computes."""
        places, rows = range(self.size), TILE // HALVES
        for half, computed in enumerate(computes):
            with e.b.if_(computed) if computed else nullcontext():
                scope = e.within()
                elements = [[element(scope, i, j) for j in places] for i in places]
                values = both_axes(e.b, self.limits, self.matrix, elements,
                                   slice(half * rows, (half + 1) * rows))
                for k, x in enumerate((x for line in values for x in line), half * rows * TILE):
                    self.keep(scope, k, x)

    def keep(self, e: Emitter, k: int, x: Operand) -> None:
        """Stores point k of a tile."""
        at = at_point(k, self.tile, Index.of(self.column))
        e.store(self.memory, self.v, flatten(at, self.v.shape), x)

    def _inside(self, e: Emitter) -> Operand:
        """Whether a tile is entirely inside the image."""
        b = e.b
        inside: Operand = b.const(int(min(self.sides) >= self.size), boolean)
        for i, n in zip(self.first, self.sides, strict=True):
            if i.range[0] < 0:
                inside = b.and_(inside, b.ge(e.value(i), 0))
            if i.range[1] + self.size > n:
                inside = b.and_(inside, b.le(e.value(i), n - self.size))
        return inside


class TileResults:
    """The inverse transform of products, with the epilogue of each result."""

    def __init__(self, region: Region, v: Value, target: Mapping[Value, str], limits: Limits,
                 lanes: int):
        self.region, self.v, self.target = region, v, target
        self.limits, self.lanes = limits, lanes
        batch, *sides, filters = v.shape
        down, across = (math.ceil(n / RESULTS) for n in sides)
        self.tile = [Var("n", batch), Var("y", down), Var("x", across)]
        self.column = Var("f", filters)
        self.inside = [Var("i", RESULTS), Var("j", RESULTS)]

    def emit(self, e: Emitter) -> None:
        """All tiles. The results of a tile are stored to a small local array, and a loop over those
        inside the image applies the epilogue."""
        b = e.b
        self.declare(b)
        with b.loop(0, math.prod(a.extent for a in self.tile), kind="parallel") as t:
            self.tile_at(e.within(bound=spread(e, t, self.tile)))

    def declare(self, b: Builder) -> None:
        """Declares the local array of the results of a tile."""
        self.array = b.memory("results", self.v.dtype, RESULTS ** 2 * self.lanes, "local", "rw")

    def tile_at(self, e: Emitter) -> None:
        """The results of the tile of a scope."""
        b, (down, across) = e.b, self.inside
        n, y, x, i, j, f = (Index.of(a) for a in (*self.tile, down, across, self.column))
        at = n, y * RESULTS + i, x * RESULTS + j, f
        ends = [self._within(e, e.bound[a], n) for a, n in zip(
            self.tile[1:], self.v.shape[1:], strict=False)]
        for scope, _ in vectors(e.within(), self.column, self.lanes):
            points = [self.point(scope, k) for k in range(POINTS)]
            lines = [points[k:k + TILE] for k in range(0, POINTS, TILE)]
            results = both_axes(b, self.limits, RESULT_MATRIX, lines)
            for k, result in enumerate(r for line in results for r in line):
                b.store(self.array, 0, result, off=k * self.lanes)
            with b.loop(0, ends[0]) as row, b.loop(0, ends[1]) as column:
                lane_scope = scope.within(bound={**scope.bound, down: row, across: column})
                where = b.mul(b.add(b.mul(row, RESULTS), column), self.lanes)
                store(lane_scope, self.region, self.v, self.target, at,
                      b.load(self.array, where, lanes=self.lanes))

    def point(self, e: Emitter, k: int) -> Operand:
        """The product at point k of a tile."""
        products = self.v.args[0]
        return e.element(products, at_point(k, self.tile, Index.of(self.column)))

    def _within(self, e: Emitter, tile: Operand, size: int) -> Operand | int:
        """The number of results of a tile that are inside an axis."""
        if size % RESULTS == 0:
            return RESULTS
        return e.b.min(e.b.sub(size, e.b.mul(tile, RESULTS)), RESULTS)
